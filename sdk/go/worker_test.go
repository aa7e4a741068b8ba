package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return ctx
}

func pulling(f *fake, concurrency int) Options {
	return Options{
		Server: f.URL, Key: "tgk_1", Source: Pull{Queue: "render", Wait: time.Second}, Concurrency: concurrency,
		Labels: []string{"gpu"}, Name: "render-1",
	}
}

func TestEachEventIsDoneOnceAndNeverMoreThanThereIsRoomFor(t *testing.T) {
	f := newFake(t)
	var now, most, all int32
	r := start(t, pulling(f, 3), func(*Event, *Context) (any, error) {
		if at := atomic.AddInt32(&now, 1); at > atomic.LoadInt32(&most) {
			atomic.StoreInt32(&most, at)
		}
		time.Sleep(10 * time.Millisecond)
		atomic.AddInt32(&now, -1)
		atomic.AddInt32(&all, 1)
		return map[string]int{"pages": 3}, nil
	})
	for n := 0; n < 20; n++ {
		f.put(fmt.Sprint("e", n), 1, "900s")
	}
	until(t, "the end of all", func() bool { return len(f.released("e19")) == 1 && atomic.LoadInt32(&all) == 20 })
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	if most != 3 {
		t.Errorf("%d at once", most)
	}
	for n := 0; n < 20; n++ {
		told := f.released(fmt.Sprint("e", n))
		if len(told) != 1 || told[0].Outcome != Succeeded || told[0].Attempt != 1 || string(told[0].Result) != `{"pages":3}` {
			t.Errorf("e%d: %+v", n, told)
		}
	}
	for _, ask := range f.asks {
		if ask.MaxEvents < 1 || ask.MaxEvents > 3 || ask.Wait != "1.000s" || ask.Labels[0] != "gpu" || ask.Worker != "render-1" {
			t.Errorf("%+v", ask)
		}
	}
	if len(f.keys) != 1 || !f.keys["Bearer tgk_1"] {
		t.Errorf("keys: %v", f.keys)
	}
}

func TestWhatAHandlerSaysIsWhatIsReleased(t *testing.T) {
	at := time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)
	f := newFake(t)
	r := start(t, pulling(f, 8), func(event *Event, c *Context) (any, error) {
		switch event.ID {
		case "error":
			return nil, errors.New("disk full")
		case "failed":
			return nil, fmt.Errorf("later: %w", Failf("no such %s", "file"))
		case "panic":
			panic("oh")
		case "told":
			c.SetCursor("page-2")
			c.SetNextCheckTime(at)
			c.SetMessage("half")
			return 7, nil
		case "outcome":
			return Outcome{Status: Failed, Message: "no", Result: 1, NextCheckTime: at}, nil
		case "unwritable":
			return func() {}, nil
		}
		return nil, errors.New(strings.Repeat("é", 4000))
	})
	expected := map[string]string{
		"error":      `RETRY disk full`,
		"failed":     `FAILED later: no such file`,
		"panic":      `RETRY panic: oh`,
		"told":       `SUCCEEDED half page-2 2026-11-28T03:00:00Z `,
		"outcome":    `FAILED no`,
		"unwritable": `RETRY result: it is not JSON: json: unsupported type: func()`,
		"long":       `RETRY ` + strings.Repeat("é", 2048),
	}
	for id := range expected {
		f.put(id, 1, "")
	}
	for id, wanted := range expected {
		id := id
		until(t, id, func() bool { return len(f.released(id)) == 1 })
		body := f.released(id)[0]
		words := []string{string(body.Outcome), body.Message}
		if body.Cursor != nil {
			words = append(words, *body.Cursor, body.NextCheckTime, string(body.Result))
		}
		if said := strings.Join(words, " "); said != wanted {
			t.Errorf("%s: %s", id, said)
		}
	}
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
}

func TestHeartbeatsComeAtAThirdOfTheTimeToLive(t *testing.T) {
	f := newFake(t)
	options := pulling(f, 2)
	options.FirstHeartbeat = 50 * time.Millisecond
	took := map[string]time.Duration{}
	var mutex sync.Mutex
	r := start(t, options, func(event *Event, _ *Context) (any, error) {
		begun := time.Now()
		for f.heartbeats(event.ID) < 12 && time.Since(begun) < time.Minute {
			time.Sleep(2 * time.Millisecond)
		}
		mutex.Lock()
		defer mutex.Unlock()
		took[event.ID] = time.Since(begun)
		return nil, nil
	})
	f.put("told", 1, "0.300s")
	f.put("untold", 1, "")
	until(t, "both", func() bool { return len(f.released("told")) == 1 && len(f.released("untold")) == 1 })
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	// At 100, 200, …; and at 50, 150, …: the answer says 0.3 s. Later on a slow machine, never sooner.
	for _, id := range []string{"told", "untold"} {
		if took[id] < 800*time.Millisecond || took[id] > 30*time.Second {
			t.Errorf("%s: 12 heartbeats in %s", id, took[id])
		}
	}
}

func TestAHandlerIsToldThatItsTokenIsLost(t *testing.T) {
	f := newFake(t)
	f.refuseWith(func(path string) (int, string) {
		if strings.HasSuffix(path, ":extend") {
			return 400, `{"code": 9, "message": "the event holds no token"}`
		}
		return 0, ""
	})
	byHand := make(chan error, 1)
	r := start(t, pulling(f, 1), func(event *Event, c *Context) (any, error) {
		if event.ID == "hand" {
			byHand <- c.Heartbeat()
		}
		<-c.Done()
		return nil, c.Err()
	})
	f.put("lost", 1, "0.060s")
	f.put("hand", 1, "900s")
	until(t, "both", func() bool { return len(f.released("lost")) == 1 && len(f.released("hand")) == 1 })
	if err := <-byHand; !errors.Is(err, ErrTokenLost) {
		t.Errorf("by hand: %v", err)
	}
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
}

func TestRepeatsAreNotWorkedOnAgainAndNextAttemptsAre(t *testing.T) {
	f := newFake(t)
	var works int32
	let := make(chan struct{})
	r := start(t, pulling(f, 4), func(event *Event, c *Context) (any, error) {
		atomic.AddInt32(&works, 1)
		if event.ID == "slow" {
			<-let
		}
		if event.ID == "again" && event.Attempt == 1 {
			return nil, errors.New("not yet")
		}
		return nil, nil
	})
	f.put("slow", 1, "")
	f.put("slow", 2, "")
	f.put("again", 1, "")
	until(t, "the first attempt", func() bool { return len(f.released("again")) == 1 })
	f.put("again", 2, "")
	until(t, "the second attempt", func() bool { return len(f.released("again")) == 2 })
	close(let)
	until(t, "the slow one", func() bool { return len(f.released("slow")) == 1 })
	f.put("slow", 3, "")
	until(t, "its repeat", func() bool { return len(f.released("slow")) == 2 })
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	if works != 3 {
		t.Errorf("%d works", works)
	}
	if slow := f.released("slow"); slow[0].Attempt != 2 || slow[1].Attempt != 3 {
		t.Errorf("%+v", slow)
	}
	if again := f.released("again"); again[0].Outcome != Retry || again[0].Attempt != 1 || again[1].Attempt != 2 {
		t.Errorf("%+v", again)
	}
}

func TestAnEventWhoseTokenHasGoneIsWorkedOnAndNobodyTold(t *testing.T) {
	f, book := newFake(t), &logbook{}
	calls := f.holdNothing()
	options := pulling(f, 1)
	options.FirstHeartbeat, options.Logf = 50*time.Millisecond, book.logf
	var works []string
	end := make(chan struct{})
	r := start(t, options, func(event *Event, c *Context) (any, error) {
		works = append(works, event.ID)
		switch event.ID {
		case "slow":
			if err := c.Heartbeat(); err != nil {
				t.Errorf("by hand: %v", err)
			}
			select {
			case <-c.Done():
				t.Error("it was cancelled")
			case <-time.After(400 * time.Millisecond):
			}
		case "bad":
			if len(works) > 3 {
				return nil, Failf("no such file")
			}
			return nil, errors.New("disk full")
		case "end":
			close(end)
		}
		return nil, nil
	})
	// With one place. One that is done is passed over, one that failed is tried again, and what cannot be read is lost.
	for _, id := range []string{"slow", "bad", "last", "slow", "bad"} {
		f.putText(id, 1, "0.060s", fmt.Sprintf(`{"id": %q, "release": "on_response"}`, id))
	}
	f.putText("odd", 1, "0.060s", `{"id": "odd", "release": "on_response", "index": "one"}`)
	f.putText("end", 1, "0.060s", `{"id": "end", "release": "on_response"}`)
	<-end
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(works, " "); said != "slow bad last bad end" || atomic.LoadInt32(calls) != 0 {
		t.Errorf("%s, and %d calls", said, atomic.LoadInt32(calls))
	}
	for _, part := range []string{
		"event bad: failed, and counts as done, as its token has gone: disk full",
		"event bad: failed, and counts as done, as its token has gone: no such file",
		"event odd: lost, as its token has gone: event: it cannot be read: ",
	} {
		if book.with(part) != 1 {
			t.Errorf("%s: %q", part, book.lines)
		}
	}
}

func TestADrainGivesUpAnEventWhoseTokenHasGone(t *testing.T) {
	f, book := newFake(t), &logbook{}
	calls := f.holdNothing()
	options := pulling(f, 1)
	options.DrainTimeout, options.Logf = 200*time.Millisecond, book.logf
	begun := make(chan struct{})
	r := start(t, options, func(_ *Event, c *Context) (any, error) {
		close(begun)
		<-c.Done()
		return nil, c.Err()
	})
	f.putText("long", 1, "", `{"id": "long", "release": "on_response"}`)
	<-begun
	at := time.Now()
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(at); took > 8*time.Second || atomic.LoadInt32(calls) != 0 {
		t.Errorf("%s, and %d calls", took, atomic.LoadInt32(calls))
	}
	if book.with("event long: failed, and counts as done, as its token has gone: ") != 1 {
		t.Errorf("%q", book.lines)
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	k := newKnown(2)
	for _, id := range []string{"a", "b", "c"} {
		k.come(id, 1)
	}
	for _, id := range []string{"a", "b", "c"} {
		k.ended(id, release{Outcome: Succeeded})
	}
	if len(k.events) != 2 || len(k.order) != 2 {
		t.Errorf("%d remembered", len(k.events))
	}
	if what, _ := k.come("c", 2); what != done {
		t.Errorf("the latest is forgotten: %v", what)
	}
	if what, _ := k.come("a", 2); what != begin {
		t.Errorf("the first is remembered: %v", what)
	}
}

func TestAnOutageEndsNothingAndIsLoggedOnce(t *testing.T) {
	f := newFake(t)
	book := &logbook{}
	options := pulling(f, 1)
	options.Logf = book.logf
	var tries int32
	f.refuseWith(func(path string) (int, string) {
		if atomic.AddInt32(&tries, 1) <= 6 {
			return []int{503, 429, 500}[tries%3], "busy"
		}
		return 0, ""
	})
	r := start(t, options, func(*Event, *Context) (any, error) { return nil, nil })
	f.put("e", 1, "")
	until(t, "its release", func() bool { return len(f.released("e")) == 1 })
	atomic.StoreInt32(&tries, 3)
	f.put("f", 1, "")
	until(t, "the next release", func() bool { return len(f.released("f")) == 1 })
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	if book.with("taking events fails") > 2 || book.with("taking events fails") != book.with("taking events works again") {
		t.Errorf("%q", book.lines)
	}
}

func TestARefusalForGoodEndsTheLoop(t *testing.T) {
	for status, body := range map[int]string{
		400: `{"code": 3, "message": "labels: GPU, expected lower-case letters"}`,
		401: `{"code": 16, "message": "a key is missing"}`,
		403: `{"code": 7, "message": "the key may not"}`,
		501: `{"code": 12, "message": "no such call"}`,
	} {
		f := newFake(t)
		f.refuseWith(func(string) (int, string) { return status, body })
		err := start(t, pulling(f, 1), func(*Event, *Context) (any, error) { return nil, nil }).end(t)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.HTTPStatus != status || !strings.Contains(body, refused.Message) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestAReleaseThatIsRefusedHasTheEventComeAgain(t *testing.T) {
	f := newFake(t)
	var tries int32
	f.refuseWith(func(path string) (int, string) {
		if strings.HasSuffix(path, ":release") && atomic.AddInt32(&tries, 1) == 1 {
			return http.StatusBadRequest, `{"code": 3, "message": "next_check_time: too late"}`
		}
		return 0, ""
	})
	r := start(t, pulling(f, 1), func(*Event, *Context) (any, error) { return nil, nil })
	f.put("e", 4, "")
	until(t, "its release", func() bool { return len(f.released("e")) == 1 })
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	body := f.released("e")[0]
	if body.Outcome != Retry || body.Attempt != 4 || !strings.Contains(body.Message, "next_check_time: too late") {
		t.Errorf("%+v", body)
	}
}

func TestADrainEndsTheWorkAndGivesUpWhatTakesTooLong(t *testing.T) {
	f := newFake(t)
	options := pulling(f, 2)
	options.DrainTimeout = 3 * time.Second
	var begun int32
	r := start(t, options, func(event *Event, c *Context) (any, error) {
		atomic.AddInt32(&begun, 1)
		if event.ID == "short" {
			time.Sleep(100 * time.Millisecond)
			return nil, nil
		}
		<-c.Done()
		return nil, c.Err()
	})
	f.put("short", 1, "")
	f.put("long", 1, "")
	until(t, "work", func() bool { return atomic.LoadInt32(&begun) == 2 })
	f.put("late", 1, "")
	// As a process manager does it; the signal is the worker's as long as it runs.
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
	if told := f.released("short"); len(told) != 1 || told[0].Outcome != Succeeded {
		t.Errorf("%+v", told)
	}
	if told := f.released("long"); len(told) != 1 || told[0].Outcome != Retry {
		t.Errorf("%+v", told)
	}
	if begun != 2 {
		t.Errorf("%d begun", begun)
	}
}

func TestWrongOptionsAreNamed(t *testing.T) {
	work := func(*Event, *Context) (any, error) { return nil, nil }
	for wanted, options := range map[string]Options{
		"Source: missing": {},
		"Server:":         {Source: Pull{Queue: "q"}, Server: "localhost:7411"},
		"Concurrency: -1": {Source: Pull{Queue: "q"}, Concurrency: -1},
		"Labels: 17":      {Source: Pull{Queue: "q"}, Labels: make([]string, 17)},
		"DrainTimeout:":   {Source: Pull{Queue: "q"}, DrainTimeout: -1},
		"Pull.Queue:":     {Source: Pull{}},
		"Pull.Wait: 1h":   {Source: Pull{Queue: "q", Wait: time.Hour}},
		"SQS.Queue:":      {Source: SQS{}},
		"HTTP:":           {Source: &HTTP{}},
	} {
		if _, err := New(options, work); err == nil || !strings.HasPrefix(err.Error(), wanted) {
			t.Errorf("%s: %v", wanted, err)
		}
	}
	if _, err := New(Options{Source: Pull{Queue: "q"}}, nil); err == nil {
		t.Error("no handler")
	}
}
