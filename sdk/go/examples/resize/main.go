// Command resize is a worker by each of the ways: events are pulled from a queue, come by HTTP, or wait in an SQS emulator's queue.
//
//	QUEUE=resize TOLLGATE=http://127.0.0.1:7411 go run ./examples/resize
//	LISTEN=127.0.0.1:8080 WEBHOOK_SECRET=whsec_… go run ./examples/resize
//	QUEUE_URL=… AWS_ENDPOINT_URL=http://127.0.0.1:5000 go run ./examples/resize
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"tollgate.dev/worker"
)

func main() {
	source, err := source()
	if err != nil {
		log.Fatal(err)
	}
	concurrency, err := strconv.Atoi(setting("CONCURRENCY", "4"))
	if err != nil {
		log.Fatalf("CONCURRENCY: %v", err)
	}
	w, err := worker.New(worker.Options{Source: source, Concurrency: concurrency}, resize)
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("stopped")
}

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func source() (worker.Source, error) {
	if queue := os.Getenv("QUEUE"); queue != "" {
		fmt.Println("pulling from", queue)
		return worker.Pull{Queue: queue}, nil
	}
	if url := os.Getenv("QUEUE_URL"); url != "" {
		fmt.Println("receiving from", url)
		return worker.SQS{Queue: emulated{os.Getenv("AWS_ENDPOINT_URL"), url}}, nil
	}
	listening, err := worker.ListenHTTP(setting("LISTEN", "127.0.0.1:8080"), os.Getenv("WEBHOOK_SECRET"))
	if err == nil {
		fmt.Printf("listening on http://%s\n", listening.Addr())
	}
	return listening, err
}

var stumbled atomic.Bool

// resize is the work.
func resize(event *worker.Event, c *worker.Context) (any, error) {
	var picture struct {
		WorkMs int64 `json:"workMs"`
		// The first event with this index stumbles, once.
		Stumble *uint32 `json:"stumble"`
	}
	if err := event.Decode(&picture); err != nil {
		return nil, worker.Failf("data: %w", err)
	}
	fmt.Printf("begin %s (attempt %d)\n", event.ID, event.Attempt)
	select {
	case <-time.After(time.Duration(picture.WorkMs) * time.Millisecond):
	case <-c.Done():
		return nil, c.Err()
	}
	if picture.Stumble != nil && *picture.Stumble == event.Index && !stumbled.Swap(true) {
		fmt.Printf("stumbled %s\n", event.ID)
		return nil, errors.New("the disk is full")
	}
	fmt.Printf("done %s\n", event.ID)
	return nil, nil
}
