package worker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fake is as much of Tollgate as a worker sees: events to hand out, and what it was told.
type fake struct {
	*httptest.Server
	mutex    sync.Mutex
	events   []acquired
	asks     []acquireRequest
	releases map[string][]release
	beats    map[string]int
	keys     map[string]bool
	// Says what a call is refused with; none where it goes on.
	refuse func(path string) (status int, body string)
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{releases: map[string][]release{}, beats: map[string]int{}, keys: map[string]bool{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	f.mutex.Lock()
	f.keys[request.Header.Get("authorization")] = true
	refuse := f.refuse
	f.mutex.Unlock()
	if refuse != nil {
		if status, body := refuse(request.URL.Path); status != 0 {
			answer.Header().Set("retry-after", "0")
			answer.WriteHeader(status)
			fmt.Fprint(answer, body)
			return
		}
	}
	at := strings.LastIndex(request.URL.Path, ":")
	name := request.URL.Path[strings.LastIndex(request.URL.Path, "/")+1 : at]
	switch request.URL.Path[at:] {
	case ":acquire":
		f.handOut(answer, request)
	case ":release":
		var body release
		decode(request, &body)
		f.mutex.Lock()
		f.releases[name] = append(f.releases[name], body)
		f.mutex.Unlock()
		fmt.Fprint(answer, `{"status": "RELEASED"}`)
	case ":extend":
		f.mutex.Lock()
		f.beats[name]++
		f.mutex.Unlock()
		fmt.Fprint(answer, `{"remaining": "0.300s"}`)
	}
}

func decode(request *http.Request, body any) {
	if err := json.NewDecoder(request.Body).Decode(body); err != nil {
		panic(err)
	}
}

func (f *fake) handOut(answer http.ResponseWriter, request *http.Request) {
	var ask acquireRequest
	decode(request, &ask)
	f.mutex.Lock()
	f.asks = append(f.asks, ask)
	f.mutex.Unlock()
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		f.mutex.Lock()
		count := len(f.events)
		if count > ask.MaxEvents {
			count = ask.MaxEvents
		}
		out := f.events[:count]
		f.events = f.events[count:]
		f.mutex.Unlock()
		if count > 0 || request.Context().Err() != nil {
			_ = json.NewEncoder(answer).Encode(map[string]any{"events": out})
			return
		}
	}
	fmt.Fprint(answer, "{}")
}

func (f *fake) put(id string, attempt uint32, ttl string) {
	event := fmt.Sprintf(`{"id": %q, "attempt": %d, "index": 7, "count": 9, "data": {"n": 1}}`, id, attempt)
	f.putText(id, attempt, ttl, event)
}

func (f *fake) putText(id string, attempt uint32, ttl, event string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.events = append(f.events, acquired{Name: id, Attempt: attempt, TokenTTL: ttl, Event: event})
}

// holdNothing refuses all calls but polls, as of events that hold no token, and counts them.
func (f *fake) holdNothing() *int32 {
	var calls int32
	f.refuseWith(func(path string) (int, string) {
		if strings.HasSuffix(path, ":acquire") {
			return 0, ""
		}
		atomic.AddInt32(&calls, 1)
		return 400, `{"code": 9, "message": "the event holds no token"}`
	})
	return &calls
}

func (f *fake) refuseWith(refuse func(path string) (int, string)) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.refuse = refuse
}

func (f *fake) released(id string) []release {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return append([]release{}, f.releases[id]...)
}

func (f *fake) heartbeats(id string) int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.beats[id]
}

// until waits for what is to come about.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

// logbook keeps lines of the log.
type logbook struct {
	mutex sync.Mutex
	lines []string
}

func (l *logbook) logf(format string, arguments ...any) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, arguments...))
}

func (l *logbook) with(part string) int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	count := 0
	for _, line := range l.lines {
		if strings.Contains(line, part) {
			count++
		}
	}
	return count
}

// running is a worker that runs.
type running struct {
	worker *Worker
	ended  chan error
}

func start(t *testing.T, options Options, handler Handler) *running {
	t.Helper()
	if options.Logf == nil {
		options.Logf = t.Logf
	}
	w, err := New(options, handler)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{worker: w, ended: make(chan error, 1)}
	go func() { r.ended <- w.Run(testContext(t)) }()
	return r
}

// stop tells it to stop, and returns what Run does.
func (r *running) stop(t *testing.T) error {
	t.Helper()
	r.worker.Stop()
	return r.end(t)
}

func (r *running) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the worker does not end")
		return nil
	}
}
