package worker

import "sync"

// The most events that are remembered beyond those at work.
const knownMax = 10_000

// verdict says what is to be done with an event that comes.
type verdict int

const (
	begin verdict = iota
	working
	done
)

// entry is what is known of an event: the latest attempt that came, and the release of it once it has been worked on.
type entry struct {
	attempt uint32
	release *release
	again   bool
}

// known remembers events, so that each is worked on once. It is bounded: of those done, the ones that were done first are forgotten.
type known struct {
	mutex  sync.Mutex
	events map[string]*entry
	order  []string
	max    int
}

func newKnown(max int) *known {
	return &known{events: map[string]*entry{}, max: max}
}

// come notes an event that comes, and says what is to be done with it.
func (k *known) come(id string, attempt uint32) (verdict, release) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	seen, there := k.events[id]
	switch {
	case !there:
		k.events[id] = &entry{attempt: attempt}
		return begin, release{}
	case seen.release == nil:
		seen.attempt = maxOf(seen.attempt, attempt)
		return working, release{}
	case seen.again && attempt > seen.attempt:
		// It was given back, or was to come again: this is the next attempt. Its place in the order is taken by its end.
		k.remove(id)
		k.events[id] = &entry{attempt: attempt}
		return begin, release{}
	}
	seen.attempt = maxOf(seen.attempt, attempt)
	return done, *seen.release
}

// ended notes how the work on an event ended.
func (k *known) ended(id string, body release) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	seen, there := k.events[id]
	if !there || seen.release != nil {
		return
	}
	seen.release = &body
	seen.again = body.Outcome != Succeeded || body.NextCheckTime != ""
	k.order = append(k.order, id)
	for len(k.order) > k.max {
		delete(k.events, k.order[0])
		k.order = k.order[1:]
	}
}

// replaced notes that another release takes the place of the one that was refused.
func (k *known) replaced(id string, body release) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if seen, there := k.events[id]; there && seen.release != nil {
		seen.release, seen.again = &body, true
	}
}

// attempt is the latest one that came of an event; the one given where the event has been forgotten.
func (k *known) attempt(id string, otherwise uint32) uint32 {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if seen, there := k.events[id]; there {
		return maxOf(seen.attempt, otherwise)
	}
	return otherwise
}

// forget has an event at work come again under the same attempt.
func (k *known) forget(id string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if seen, there := k.events[id]; there && seen.release == nil {
		delete(k.events, id)
	}
}

func (k *known) remove(id string) {
	delete(k.events, id)
	for at, other := range k.order {
		if other == id {
			k.order = append(k.order[:at:at], k.order[at+1:]...)
			return
		}
	}
}

func maxOf(a, b uint32) uint32 {
	if a > b {
		return a
	}
	return b
}
