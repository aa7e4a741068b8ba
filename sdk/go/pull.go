package worker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The most events of an answer.
const acquireMax = 100

// How long a poll may go on after the worker was told to stop: what it is answered with counts as accepted, so that one that is broken
// off while it is being answered costs its event the time to live.
const lastPoll = time.Second

// Pull takes the events of a queue from Tollgate by long polls. The schedules' target is `pull`; the worker needs no address.
type Pull struct {
	// Queue is the queue's id. Required.
	Queue string
	// Wait is how long a poll waits for the first event, up to 60 s; 50 s by default.
	Wait time.Duration
}

func (p Pull) check() error {
	if p.Queue == "" {
		return errors.New("Pull.Queue: missing")
	}
	if p.Wait < 0 || p.Wait > time.Minute {
		return fmt.Errorf("Pull.Wait: %s, expected 0s to 60s", p.Wait)
	}
	return nil
}

func (Pull) close() {}

func (p Pull) run(ctx context.Context, l *loop) error {
	wait := p.Wait.Truncate(time.Millisecond)
	if wait == 0 {
		wait = 50 * time.Second
	}
	ask := acquireRequest{
		Wait: fmt.Sprintf("%.3fs", wait.Seconds()), Labels: l.options.Labels, Worker: l.options.Name,
	}
	pauses := backoff{}
	polling, end := context.WithCancel(context.Background())
	defer end()
	go func() {
		<-ctx.Done()
		pause(polling, lastPoll)
		end()
	}()
	// It asks for as many as there is room for, and never for more.
	for l.place(ctx) {
		places := 1 + l.morePlaces(acquireMax-1)
		ask.MaxEvents = places
		asked := time.Now()
		events, err := l.client.acquire(polling, l.options.Namespace, p.Queue, ask, wait)
		places -= p.begin(l, events, places)
		for ; places > 0; places-- {
			l.free()
		}
		var refused *RefusedError
		switch {
		case err == nil:
			l.acquires.worked()
			pauses = backoff{}
			if len(events) == 0 && time.Since(asked) < backoffMin {
				// Nobody waited: a server that is about to end.
				pause(ctx, backoffMin)
			}
		case ctx.Err() != nil:
		case errors.As(err, &refused):
			return fmt.Errorf("queue %s: the server refuses: %w", p.Queue, refused)
		default:
			l.acquires.failed(err)
			pause(ctx, pauses.next(retryAfterOf(err)))
		}
	}
	return nil
}

// begin has the events worked on, each in one of the places, and returns how many places it used.
func (p Pull) begin(l *loop, events []acquired, places int) int {
	used := 0
	for _, given := range events {
		event, err := parseEvent([]byte(given.Event))
		why := "the worker has no room"
		if err != nil {
			why = err.Error()
			event = &Event{Release: releaseOf([]byte(given.Event))}
		}
		event.ID, event.Attempt = given.Name, given.Attempt
		d := delivery{event: event, ttl: span(given.TokenTTL)}
		if err != nil || used == places {
			l.giveBack(d, why)
			continue
		}
		used++
		l.take(d)
	}
	return used
}
