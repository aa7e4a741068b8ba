// Package worker is the loop of a consumer of Tollgate: it takes events, has a handler work on each once, keeps their tokens by
// heartbeats, and gives the tokens back when the work is done.
//
//	w, err := worker.New(worker.Options{Source: worker.Pull{Queue: "render"}, Concurrency: 4},
//		func(event *worker.Event, c *worker.Context) (any, error) {
//			return nil, render(c, event.Data)
//		})
//	if err != nil {
//		log.Fatal(err)
//	}
//	log.Fatal(w.Run(context.Background()))
package worker

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options say where events come from, and how much at once is worked on.
type Options struct {
	// Source is where events come from: Pull, *HTTP or SQS. Required.
	Source Source
	// Server is where Tollgate is. By default the variable TOLLGATE, else http://127.0.0.1:7411.
	Server string
	// Key is sent where the server asks for keys. By default the variable TOLLGATE_KEY.
	Key string
	// Namespace is "default" by default.
	Namespace string
	// Concurrency is the number of events that are worked on at once, 1 to 10,000; 1 by default.
	Concurrency int
	// Labels say what the worker is able to do, for the source Pull; at most 16.
	Labels []string
	// Name is the worker's name for people; by default that of the machine and the process's number.
	Name string
	// DrainTimeout is how long work may go on after the worker was told to stop; 30 s by default.
	DrainTimeout time.Duration
	// RequestTimeout is how long an answer of the server may take; 10 s by default.
	RequestTimeout time.Duration
	// FirstHeartbeat is when the first heartbeat is sent where the source does not say how long silence is allowed; 10 s by
	// default. It is to be shorter than the policy's token_ttl.
	FirstHeartbeat time.Duration
	// Logf writes a line of the log; log.Printf by default.
	Logf func(format string, arguments ...any)
	// HTTPClient makes the calls; one that follows no redirect by default.
	HTTPClient *http.Client
}

// Handler works on one event. An error has the event tried again, a FailedError has it fail for good. What it returns is the result:
// nil, any value that is JSON, or an Outcome.
type Handler func(event *Event, c *Context) (any, error)

// Source is where events come from: Pull, *HTTP or SQS.
type Source interface {
	// check refuses what cannot work.
	check() error
	// run takes events until the context ends, or until a refusal that will not go away.
	run(ctx context.Context, l *loop) error
	// close ends what goes on until the last event is done.
	close()
}

// Worker is the loop.
type Worker struct {
	options Options
	handler Handler
	stop    chan struct{}
	stopped sync.Once
}

// New makes a worker, and refuses options that are wrong.
func New(options Options, handler Handler) (*Worker, error) {
	if handler == nil {
		return nil, errors.New("handler: missing")
	}
	if options.Source == nil {
		return nil, errors.New("Source: missing, expected Pull, *HTTP or SQS")
	}
	options.fill()
	if err := options.check(); err != nil {
		return nil, err
	}
	return &Worker{options: options, handler: handler, stop: make(chan struct{})}, nil
}

func (o *Options) fill() {
	for _, text := range []struct {
		value               *string
		variable, otherwise string
	}{
		{&o.Server, "TOLLGATE", "http://127.0.0.1:7411"},
		{&o.Key, "TOLLGATE_KEY", ""},
		{&o.Namespace, "", "default"},
	} {
		if *text.value == "" && text.variable != "" {
			*text.value = os.Getenv(text.variable)
		}
		if *text.value == "" {
			*text.value = text.otherwise
		}
	}
	o.Server = strings.TrimRight(o.Server, "/")
	if o.Name == "" {
		// Of two processes of one machine each is a worker.
		machine, err := os.Hostname()
		if err != nil || machine == "" {
			machine = "worker"
		}
		o.Name = fmt.Sprintf("%.50s-%d", machine, os.Getpid())
	}
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	for _, span := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{
		{&o.DrainTimeout, 30 * time.Second},
		{&o.RequestTimeout, 10 * time.Second},
		{&o.FirstHeartbeat, 10 * time.Second},
	} {
		if *span.value == 0 {
			*span.value = span.otherwise
		}
	}
	if o.Logf == nil {
		o.Logf = log.Printf
	}
	if o.HTTPClient == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		// As many releases at once as there are events.
		transport.MaxIdleConnsPerHost = o.Concurrency + 2
		o.HTTPClient = &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
}

func (o *Options) check() error {
	server, err := url.Parse(o.Server)
	if err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https" {
		return fmt.Errorf("Server: %q, expected a URL such as http://127.0.0.1:7411", o.Server)
	}
	if o.Concurrency < 1 || o.Concurrency > 10_000 {
		return fmt.Errorf("Concurrency: %d, expected 1 to 10,000", o.Concurrency)
	}
	if len(o.Labels) > 16 {
		return fmt.Errorf("Labels: %d, expected at most 16", len(o.Labels))
	}
	for name, value := range map[string]time.Duration{
		"DrainTimeout": o.DrainTimeout, "RequestTimeout": o.RequestTimeout, "FirstHeartbeat": o.FirstHeartbeat,
	} {
		if value < 0 {
			return fmt.Errorf("%s: %s, expected more than 0s", name, value)
		}
	}
	return o.Source.check()
}

// Stop has the worker take nothing new, end the work under way, give its tokens back, and return from Run. It does not wait.
func (w *Worker) Stop() {
	w.stopped.Do(func() { close(w.stop) })
}

// Run works until Stop, SIGTERM, SIGINT or the end of the context; then it drains. It returns an error where the server refuses
// what will not change, or where tokens could not be given back. A worker runs once.
func (w *Worker) Run(ctx context.Context) error {
	taking, cancel := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	go func() {
		select {
		case <-w.stop:
			cancel()
		case <-taking.Done():
		}
	}()
	l := newLoop(&w.options, w.handler)
	ended := make(chan error, 1)
	go func() { ended <- w.options.Source.run(taking, l) }()
	var err error
	select {
	case err = <-ended:
	case refusal := <-l.fatal:
		err = refusal
		cancel()
		<-ended
	}
	defer w.options.Source.close()
	left := l.drain()
	select {
	case refusal := <-l.fatal:
		left = refusal
	default:
	}
	if err == nil {
		err = left
	}
	return err
}
