// Command chain works on the queue work of the nightly chain, beside worker.py.
//
//	CONCURRENCY=8 go run .
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"tollgate.dev/worker"
)

// work works on one piece of a tenant.
func work(event *worker.Event, c *worker.Context) (any, error) {
	say("begin", event)
	select {
	case <-time.After(100 * time.Millisecond):
	case <-c.Done():
		return nil, c.Err()
	}
	say("done", event)
	return nil, nil
}

// say writes a line: what, when in microseconds, which event, whose.
func say(word string, event *worker.Event) {
	fmt.Println(word, time.Now().UnixMicro(), event.ID, event.Key)
}

func main() {
	concurrency, err := strconv.Atoi(os.Getenv("CONCURRENCY"))
	if err != nil {
		concurrency = 4
	}
	w, err := worker.New(worker.Options{Source: worker.Pull{Queue: "work"}, Concurrency: concurrency}, work)
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
