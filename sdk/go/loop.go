package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// How long releases may go on after the work was given up.
const lastReleases = 10 * time.Second

// delivery is an event that a source has taken, with what the source does about it.
type delivery struct {
	event *Event
	// ttl is how long silence is allowed; 0 where the source does not know.
	ttl time.Duration
	// hide keeps others from taking it, at once and then so often, until it is over; nil where nobody could.
	hide      func(ctx context.Context)
	hideEvery time.Duration
	// answered is told that it is over: its release was answered, or it needs none.
	answered func(ctx context.Context)
}

// loop works on what a source takes: at most so many events at once, each once.
type loop struct {
	options *Options
	handler Handler
	client  *client
	known   *known
	// A place for each event that may be worked on at once.
	places chan struct{}
	// Ends when the work is given up.
	work   context.Context
	giveUp context.CancelFunc
	// Ends when even the releases are given up.
	calls   context.Context
	abandon context.CancelFunc
	under   sync.WaitGroup
	fatal   chan error

	acquires, releases, heartbeats *outage
}

func newLoop(options *Options, handler Handler) *loop {
	l := &loop{
		options: options,
		handler: handler,
		client: &client{
			server: options.Server, key: options.Key, http: options.HTTPClient, timeout: options.RequestTimeout,
		},
		known:      newKnown(knownMax),
		places:     make(chan struct{}, options.Concurrency),
		fatal:      make(chan error, 1),
		acquires:   &outage{what: "taking events", logf: options.Logf},
		releases:   &outage{what: "releasing tokens", logf: options.Logf},
		heartbeats: &outage{what: "the heartbeat", logf: options.Logf},
	}
	l.work, l.giveUp = context.WithCancel(context.Background())
	l.calls, l.abandon = context.WithCancel(context.Background())
	return l
}

// place waits for a place; false if the context ended before.
func (l *loop) place(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	default:
	}
	select {
	case l.places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// placeNow takes a place if there is one.
func (l *loop) placeNow() bool {
	select {
	case l.places <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l *loop) free() { <-l.places }

// morePlaces takes up to so many further places, as many as there are, and returns how many.
func (l *loop) morePlaces(max int) int {
	for taken := 0; ; taken++ {
		if taken == max || !l.placeNow() {
			return taken
		}
	}
}

// take works on a delivery in a place that the caller has taken. It does not wait.
func (l *loop) take(d delivery) {
	what, body := l.known.come(d.event.ID, d.event.Attempt)
	if what == working {
		l.free()
		return
	}
	l.under.Add(1)
	go func() {
		defer l.under.Done()
		defer l.free()
		over := make(chan struct{})
		defer close(over)
		if d.hide != nil {
			go l.hide(d, over)
		}
		if d.event.onResponse() {
			l.workUntold(d, what)
			return
		}
		if what == begin {
			body = l.handle(d)
			body.Attempt = l.known.attempt(d.event.ID, d.event.Attempt)
			l.known.ended(d.event.ID, body)
		} else {
			body.Attempt = l.known.attempt(d.event.ID, d.event.Attempt)
		}
		l.release(d, body)
	}()
}

// workUntold works on an event whose token has gone, unless that has been done: nobody can be told how it went.
func (l *loop) workUntold(d delivery, what verdict) {
	if what == begin {
		body := l.handle(d)
		if body.Outcome != Succeeded {
			end := "counts as done, as its token has gone"
			if body.Outcome == Retry && d.answered != nil {
				end = "is left to its queue"
			}
			l.options.Logf("event %s: failed, and %s: %s", d.event.ID, end, body.Message)
		}
		if body.Outcome == Retry {
			// What still has it brings it again under the same attempt.
			l.known.forget(d.event.ID)
			return
		}
		l.known.ended(d.event.ID, body)
	}
	if d.answered != nil {
		d.answered(l.calls)
	}
}

func (l *loop) hide(d delivery, over <-chan struct{}) {
	every := time.NewTicker(d.hideEvery)
	defer every.Stop()
	for {
		d.hide(l.calls)
		select {
		case <-over:
			return
		case <-every.C:
		}
	}
}

// giveBack has an event come again that is not worked on; one whose token has gone is lost.
func (l *loop) giveBack(d delivery, why string) {
	if d.event.onResponse() {
		l.options.Logf("event %s: lost, as its token has gone: %s", d.event.ID, why)
		return
	}
	l.options.Logf("event %s: given back: %s", d.event.ID, why)
	l.under.Add(1)
	go func() {
		defer l.under.Done()
		body := retry(why)
		body.Attempt = d.event.Attempt
		l.release(d, body)
	}()
}

// handle has the handler work on an event, and keeps its token meanwhile, if it has one.
func (l *loop) handle(d delivery) release {
	if d.event.onResponse() {
		// There is no token to keep.
		return l.run(d.event, func(*Context) {})
	}
	over := make(chan struct{})
	defer close(over)
	return l.run(d.event, func(c *Context) { go l.keep(c, d, over) })
}

// run has the handler work on an event until the work is given up.
func (l *loop) run(event *Event, begun func(*Context)) release {
	ctx, cancel := context.WithCancel(l.work)
	defer cancel()
	c := &Context{Context: ctx, Attempt: event.Attempt, loop: l, id: event.ID, noToken: event.onResponse(), lose: cancel}
	begun(c)
	ended := make(chan release, 1)
	go func() {
		defer func() {
			if broken := recover(); broken != nil {
				ended <- retry(fmt.Sprintf("panic: %v", broken))
			}
		}()
		value, err := l.handler(event, c)
		ended <- settle(value, err, c.outcome())
	}()
	select {
	case body := <-ended:
		return body
	case <-l.work.Done():
		return retry("the worker stopped before the event was done")
	}
}

// keep sends heartbeats at a third of the time that silence is allowed, until the work is over.
func (l *loop) keep(c *Context, d delivery, over <-chan struct{}) {
	every := l.options.FirstHeartbeat
	if d.ttl > 0 {
		every = d.ttl / 3
	}
	next, pauses := every, backoff{}
	for {
		timer := time.NewTimer(next)
		select {
		case <-over:
			timer.Stop()
			return
		case <-timer.C:
		}
		remaining, err := c.beat()
		switch {
		case err == nil:
			if remaining > 0 {
				every = remaining / 3
			}
			next, pauses = every, backoff{}
		case errors.Is(err, ErrTokenLost):
			return
		default:
			next = pauses.next(retryAfterOf(err))
			if next > every {
				next = every
			}
		}
	}
}

// release repeats a release until it is answered.
func (l *loop) release(d delivery, body release) {
	id, pauses := d.event.ID, backoff{}
	for {
		if body.Outcome == Succeeded && body.NextCheckTime == "" {
			// Under the attempt that came last: what is done is done, whichever it was.
			body.Attempt = l.known.attempt(id, body.Attempt)
		}
		_, err := l.client.release(l.calls, id, body)
		var refused *RefusedError
		switch {
		case err == nil:
			l.releases.worked()
		case errors.As(err, &refused) && l.isFatal(refused):
			return
		case errors.As(err, &refused) && refused.isOfContent() && body.Outcome != Retry:
			l.options.Logf("event %s: the release was refused, and the event is to come again: %v", id, err)
			attempt := body.Attempt
			body = retry("the release was refused: " + refused.Message)
			body.Attempt = attempt
			l.known.replaced(id, body)
			continue
		case errors.As(err, &refused):
			l.options.Logf("event %s: not released: %v", id, err)
		default:
			l.releases.failed(err)
			if !pause(l.calls, pauses.next(retryAfterOf(err))) {
				return
			}
			continue
		}
		if d.answered != nil {
			d.answered(l.calls)
		}
		return
	}
}

// isFatal ends the loop where the server refuses who calls.
func (l *loop) isFatal(refused *RefusedError) bool {
	fatal := refused.HTTPStatus == http.StatusUnauthorized || refused.HTTPStatus == http.StatusForbidden
	if fatal {
		select {
		case l.fatal <- fmt.Errorf("the server refuses this worker: %w", refused):
		default:
		}
	}
	return fatal
}

// drain waits for the work under way, gives up what is left, and has all tokens released.
func (l *loop) drain() error {
	defer l.abandon()
	defer l.giveUp()
	over := make(chan struct{})
	go func() {
		l.under.Wait()
		close(over)
	}()
	select {
	case <-over:
		return nil
	case <-time.After(l.options.DrainTimeout):
	}
	l.giveUp()
	select {
	case <-over:
		return nil
	case <-time.After(lastReleases):
		return errors.New("tokens could not be released before the worker stopped; Tollgate takes them back")
	}
}

// takeNow works on an event whose answer gives its token back, in a place that the caller has taken, and returns that answer.
func (l *loop) takeNow(event *Event) said {
	defer l.free()
	what, body := l.known.come(event.ID, event.Attempt)
	switch what {
	case working:
		return said{http.StatusConflict, "the event is being worked on"}
	case begin:
		body = l.handle(delivery{event: event})
		l.known.ended(event.ID, body)
	}
	if body.Outcome == Succeeded {
		return said{status: http.StatusOK}
	}
	return said{http.StatusInternalServerError, body.Message}
}
