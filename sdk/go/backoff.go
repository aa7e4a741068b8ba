package worker

import (
	"context"
	"math/rand"
	"sync"
	"time"
)

const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 10 * time.Second
	// The longest Retry-After that is followed.
	retryAfterMax = time.Minute
)

// backoff says how long to wait before the next try: twice as long each time, with jitter.
type backoff struct{ tries int }

func (b *backoff) next(retryAfter time.Duration) time.Duration {
	pause := backoffMax
	if b.tries < 7 {
		pause = backoffMin << b.tries
	}
	b.tries++
	pause = pause/2 + time.Duration(rand.Int63n(int64(pause/2)+1))
	if retryAfter > retryAfterMax {
		retryAfter = retryAfterMax
	}
	if pause < retryAfter {
		pause = retryAfter
	}
	return pause
}

// pause waits; false if the context ended before.
func pause(ctx context.Context, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// outage logs one line when calls of a kind begin to fail, and one when they work again.
type outage struct {
	what  string
	logf  func(string, ...any)
	mutex sync.Mutex
	since time.Time
}

func (o *outage) failed(err error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.since.IsZero() {
		o.since = time.Now()
		o.logf("%s fails, and is tried again: %v", o.what, err)
	}
}

func (o *outage) worked() {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if !o.since.IsZero() {
		o.logf("%s works again, after %s", o.what, time.Since(o.since).Round(time.Millisecond))
		o.since = time.Time{}
	}
}
