package worker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Message is a message of an SQS queue.
type Message struct {
	// Body is a CloudEvents document.
	Body string
	// Receipt is the handle by which the message is deleted.
	Receipt string
}

// Queue is as much of SQS as the worker needs. README.md has one for the AWS SDK.
type Queue interface {
	// Receive waits for up to so many messages, 1 to 10. Its context outlives a stop, so that what SQS is just handing out is not
	// hidden from others for nothing.
	Receive(ctx context.Context, max int, wait time.Duration) ([]Message, error)
	// Delete takes a message away for good.
	Delete(ctx context.Context, receipt string) error
	// ChangeVisibility hides a message for so long, from now; for 0 it shows again at once.
	ChangeVisibility(ctx context.Context, receipt string, visibility time.Duration) error
}

// SQS takes events from an SQS queue. A message is deleted after the release of its event was answered. One whose event needs no
// release is deleted after the work, and shows again where that failed. A stop waits for the poll under way, and has what that
// brings show again.
type SQS struct {
	// Queue is the queue. Required.
	Queue Queue
	// Visibility is for how long a message that is worked on is hidden, anew at each third of it; 30 s by default, 12 h at most.
	Visibility time.Duration

	// In the place of lastReceive, for tests.
	lastReceive time.Duration
}

const (
	// The most messages of an answer.
	receiveMax = 10
	// How long SQS waits for messages.
	receiveWait = 5 * time.Second
	// How long a stop waits for the poll under way: SQS goes on with a call whose caller has gone, and what it hands out then is
	// hidden from all, though nobody works on it.
	lastReceive = receiveWait + 2*time.Second
)

func (s SQS) check() error {
	if s.Queue == nil {
		return errors.New("SQS.Queue: missing")
	}
	if s.Visibility != 0 && s.Visibility < 3*time.Second || s.Visibility > 12*time.Hour {
		return fmt.Errorf("SQS.Visibility: %s, expected 3s to 12h", s.Visibility)
	}
	return nil
}

func (SQS) close() {}

func (s SQS) run(ctx context.Context, l *loop) error {
	last := s.lastReceive
	if last == 0 {
		last = lastReceive
	}
	polling, end := context.WithCancel(l.work)
	over := make(chan struct{})
	l.under.Add(1)
	go func() {
		defer close(over)
		s.poll(ctx, polling, l)
	}()
	go func() {
		// The drain waits for the last poll, also where its queue heeds no context, for so long.
		defer l.under.Done()
		defer end()
		<-ctx.Done()
		limit := time.NewTimer(last)
		defer limit.Stop()
		select {
		case <-over:
		case <-polling.Done():
		case <-limit.C:
		}
	}()
	<-ctx.Done()
	return nil
}

// poll takes events until a context ends. Its calls end with another one, later.
func (s SQS) poll(ctx, polling context.Context, l *loop) {
	pauses := backoff{}
	for l.place(ctx) {
		places := 1 + l.morePlaces(receiveMax-1)
		messages, err := s.Queue.Receive(polling, places, receiveWait)
		for _, message := range messages {
			switch {
			case ctx.Err() != nil:
				s.show(polling, l, message)
			case places > 0 && s.begin(l, message):
				places--
			}
		}
		for ; places > 0; places-- {
			l.free()
		}
		switch {
		case err == nil:
			l.acquires.worked()
			pauses = backoff{}
		case ctx.Err() == nil:
			l.acquires.failed(err)
			pause(ctx, pauses.next(0))
		}
	}
}

// show has a message that is not worked on show again at once.
func (s SQS) show(ctx context.Context, l *loop, message Message) {
	if err := s.Queue.ChangeVisibility(ctx, message.Receipt, 0); err != nil {
		l.options.Logf("a message is not shown again, and comes when its visibility ends: %v", err)
	}
}

// begin works on a message in a place; false if it has none of an event, and needed no place.
func (s SQS) begin(l *loop, message Message) bool {
	event, err := parseEvent([]byte(message.Body))
	if err != nil {
		l.options.Logf("a message is left to the queue: %v", err)
		return false
	}
	visibility := s.Visibility
	if visibility == 0 {
		visibility = 30 * time.Second
	}
	hide := func(ctx context.Context) {
		if err := s.Queue.ChangeVisibility(ctx, message.Receipt, visibility); err != nil {
			l.options.Logf("event %s: its message is not hidden for longer: %v", event.ID, err)
		}
	}
	remove := func(ctx context.Context) {
		if err := s.Queue.Delete(ctx, message.Receipt); err != nil {
			// It comes again then, and is only released again.
			l.options.Logf("event %s: its message is not deleted: %v", event.ID, err)
		}
	}
	l.take(delivery{event: event, hide: hide, hideEvery: visibility / 3, answered: remove})
	return true
}
