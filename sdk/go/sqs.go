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
	// Receive waits for up to so many messages, 1 to 10.
	Receive(ctx context.Context, max int, wait time.Duration) ([]Message, error)
	// Delete takes a message away for good.
	Delete(ctx context.Context, receipt string) error
	// ChangeVisibility hides a message for so long, from now.
	ChangeVisibility(ctx context.Context, receipt string, visibility time.Duration) error
}

// SQS takes events from an SQS queue. A message is deleted after the release of its event was answered. One whose event needs no
// release is deleted after the work, and shows again where that failed.
type SQS struct {
	// Queue is the queue. Required.
	Queue Queue
	// Visibility is for how long a message that is worked on is hidden, anew at each third of it; 30 s by default, 12 h at most.
	Visibility time.Duration
}

const (
	// The most messages of an answer.
	receiveMax = 10
	// The longest wait of SQS.
	receiveWait = 20 * time.Second
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
	pauses := backoff{}
	for l.place(ctx) {
		places := 1 + l.morePlaces(receiveMax-1)
		messages, err := s.Queue.Receive(ctx, places, receiveWait)
		for _, message := range messages {
			if places == 0 || ctx.Err() != nil {
				// It shows again when its visibility ends.
				break
			}
			if s.begin(l, message) {
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
	return nil
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
