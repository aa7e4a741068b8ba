package worker

import (
	"encoding/json"
	"fmt"
	"time"
)

// Event is one event as Tollgate delivers it: a CloudEvents 1.0 document.
type Event struct {
	// ID is the same on every delivery.
	ID string `json:"id"`
	// Attempt is 1 for the first delivery; it grows.
	Attempt uint32 `json:"attempt"`
	// Time is when the event fell due.
	Time time.Time `json:"time"`
	// Schedule is the name of the schedule: namespaces/{namespace}/schedules/{schedule}.
	Schedule string `json:"schedule"`
	// Run is the name of the run: namespaces/{namespace}/runs/{run}.
	Run string `json:"run"`
	// Policy is the name of the policy; empty where there is none.
	Policy string `json:"policy"`
	// Index counts from 0 to Count - 1.
	Index uint32 `json:"index"`
	// Count is the number of events of the run.
	Count uint32 `json:"count"`
	// Key says whose event it is; empty where there is none.
	Key string `json:"key"`
	// Cursor is what an earlier run left; nil where there is none.
	Cursor *string `json:"cursor"`
	// Checks says how often the event has come again as its consumer asked.
	Checks uint32 `json:"checks"`
	// Release is "explicit", or "on_response" where the token comes back as soon as the event is taken; by HTTP, with the answer.
	Release string `json:"release"`
	// Traceparent leads to the trace of the event; empty where traces are off.
	Traceparent string `json:"traceparent"`
	// Data is the payload, as it was written; nil where there is none.
	Data json.RawMessage `json:"data"`
	// Attributes has every member of the document, also those above.
	Attributes map[string]json.RawMessage `json:"-"`
}

// Decode reads the payload into a value, as json.Unmarshal does.
func (e *Event) Decode(value any) error {
	return json.Unmarshal(e.Data, value)
}

// onResponse says whether the token comes back without a release.
func (e *Event) onResponse() bool {
	return e.Release == "on_response"
}

// releaseOf reads the member `release` of a document of which others cannot be read; empty where it cannot be read either.
func releaseOf(text []byte) string {
	var document struct {
		Release string `json:"release"`
	}
	if json.Unmarshal(text, &document) != nil {
		return ""
	}
	return document.Release
}

// parseEvent reads one document.
func parseEvent(text []byte) (*Event, error) {
	event := &Event{}
	if err := json.Unmarshal(text, event); err != nil {
		return nil, fmt.Errorf("event: it cannot be read: %w", err)
	}
	if event.ID == "" {
		return nil, fmt.Errorf("event: id: missing")
	}
	if event.Attempt == 0 {
		event.Attempt = 1
	}
	// The document is an object: it has just been read as one.
	if err := json.Unmarshal(text, &event.Attributes); err != nil {
		return nil, fmt.Errorf("event: it cannot be read: %w", err)
	}
	return event, nil
}
