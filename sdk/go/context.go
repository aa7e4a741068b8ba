package worker

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// ErrTokenLost says that the event is held no more under any attempt that this worker has: work on it is not needed.
var ErrTokenLost = errors.New("the event is no longer held by this worker")

// Context is what a handler has beside its event. It ends when the token is lost, and when the worker has stopped.
type Context struct {
	context.Context
	// Attempt is the event's.
	Attempt uint32

	loop *loop
	id   string
	// It has given its token back already.
	noToken bool
	lose    context.CancelFunc
	mutex   sync.Mutex
	told    Outcome
}

// Heartbeat keeps the token by hand, beside those that are sent anyway. ErrTokenLost: the event is held no more. An event with
// `release: on_response` has no token to keep: nothing is sent.
func (c *Context) Heartbeat() error {
	_, err := c.beat()
	return err
}

// SetCursor leaves a text of at most 4 KiB for the schedule's next run.
func (c *Context) SetCursor(cursor string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.told.Cursor = &cursor
}

// SetNextCheckTime has the same event come again then, if the handler succeeds.
func (c *Context) SetNextCheckTime(at time.Time) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.told.NextCheckTime = at
}

// SetMessage leaves words for people.
func (c *Context) SetMessage(message string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.told.Message = message
}

func (c *Context) outcome() *Outcome {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	told := c.told
	return &told
}

func (c *Context) beat() (time.Duration, error) {
	if c.noToken {
		return 0, nil
	}
	attempt := c.loop.known.attempt(c.id, c.Attempt)
	remaining, err := c.loop.client.extend(c.loop.calls, c.id, attempt)
	var refused *RefusedError
	switch {
	case err == nil:
		c.loop.heartbeats.worked()
	case errors.As(err, &refused):
		if c.loop.isFatal(refused) {
			return 0, err
		}
		const failedPrecondition = 9
		if refused.Code != failedPrecondition && refused.HTTPStatus != http.StatusNotFound {
			c.loop.heartbeats.failed(err)
			return 0, err
		}
		if c.loop.known.attempt(c.id, attempt) > attempt {
			// It came again meanwhile, and is held under that attempt.
			return 0, nil
		}
		c.lose()
		return 0, ErrTokenLost
	default:
		c.loop.heartbeats.failed(err)
	}
	return remaining, err
}
