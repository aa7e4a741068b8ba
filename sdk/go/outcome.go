package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Status says how the work on an event went.
type Status string

const (
	// Succeeded means done.
	Succeeded Status = "SUCCEEDED"
	// Failed means failed for good: the event is not tried again.
	Failed Status = "FAILED"
	// Retry means failed: the event is tried again as the schedule's retry policy says.
	Retry Status = "RETRY"
)

// Bytes of a message that Tollgate takes.
const messageMax = 4096

// Outcome is what the work on an event came to, in all its parts. A handler may return one instead of a bare result.
type Outcome struct {
	// Status is Succeeded by default.
	Status Status
	// Message is for people. It is cut at 4 KiB.
	Message string
	// Result is any value that is JSON, of at most 256 KiB; nil for none. Only with Succeeded, and without a next check time.
	Result any
	// Cursor is handed to the schedule's next run; nil leaves it as it is.
	Cursor *string
	// NextCheckTime has the same event come again then; the zero time for never. Only with Succeeded.
	NextCheckTime time.Time
}

// FailedError has an event fail for good: it is not tried again.
type FailedError struct {
	// Err is the reason.
	Err error
}

func (e *FailedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *FailedError) Unwrap() error { return e.Err }

// Failf makes a FailedError as fmt.Errorf does.
func Failf(format string, arguments ...any) error {
	return &FailedError{Err: fmt.Errorf(format, arguments...)}
}

// release is the body of a release but for the attempt.
type release struct {
	Attempt       uint32          `json:"attempt,omitempty"`
	Outcome       Status          `json:"outcome"`
	Message       string          `json:"message,omitempty"`
	Cursor        *string         `json:"cursor,omitempty"`
	NextCheckTime string          `json:"nextCheckTime,omitempty"`
	Result        json.RawMessage `json:"result,omitempty"`
}

func retry(message string) release {
	return release{Outcome: Retry, Message: cut(message)}
}

// settle makes a release of what a handler returned, and of what it told its context.
func settle(value any, err error, told *Outcome) release {
	var failed *FailedError
	if errors.As(err, &failed) {
		return release{Outcome: Failed, Message: cut(err.Error())}
	}
	if err != nil {
		return retry(err.Error())
	}
	outcome := *told
	switch value := value.(type) {
	case Outcome:
		outcome = value
	case *Outcome:
		if value != nil {
			outcome = *value
		}
	default:
		outcome.Result = value
	}
	if outcome.Status == "" {
		outcome.Status = Succeeded
	}
	body := release{Outcome: outcome.Status, Message: cut(outcome.Message), Cursor: outcome.Cursor}
	// What Tollgate does not take with this status is left out.
	if outcome.Status == Succeeded && !outcome.NextCheckTime.IsZero() {
		body.NextCheckTime = outcome.NextCheckTime.UTC().Format(time.RFC3339Nano)
	}
	if outcome.Status == Succeeded && body.NextCheckTime == "" && outcome.Result != nil {
		text, err := json.Marshal(outcome.Result)
		if err != nil {
			return retry("result: it is not JSON: " + err.Error())
		}
		body.Result = text
	}
	return body
}

// cut shortens a message to what Tollgate takes, at the end of a character.
func cut(message string) string {
	if len(message) <= messageMax {
		return message
	}
	end := messageMax
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end]
}
