package worker

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// An older request may be somebody else's copy.
	ageMax = 5 * time.Minute
	// The longest body that is read.
	bodyMax = 16 << 20
	// What a request that is refused for want of room is told to wait.
	waitS = 1
)

// HTTP takes events from requests that Tollgate sends, checks their signatures, and answers them at once.
type HTTP struct {
	listener net.Listener
	server   *http.Server
	keys     [][]byte
	loop     *loop
	taking   context.Context
	// Held while an event is let in, so that none comes after the last.
	door sync.RWMutex
}

// ListenHTTP listens at an address such as ":8080". Requests are to be signed in one of the secrets: the schedule's
// target.http.secret, and while it is being changed, the one before.
func ListenHTTP(address string, secrets ...string) (*HTTP, error) {
	if len(secrets) == 0 {
		return nil, errors.New("secrets: missing, expected the schedule's target.http.secret")
	}
	h := &HTTP{}
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 {
			return nil, errors.New("secrets: one cannot be read, expected whsec_ and base64")
		}
		h.keys = append(h.keys, key)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	h.listener = listener
	return h, nil
}

// Addr is where it listens.
func (h *HTTP) Addr() net.Addr { return h.listener.Addr() }

func (h *HTTP) check() error {
	if h.listener == nil {
		return errors.New("HTTP: not listening, expected what ListenHTTP returns")
	}
	return nil
}

func (h *HTTP) run(ctx context.Context, l *loop) error {
	h.loop, h.taking = l, ctx
	h.server = &http.Server{Handler: h, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- h.server.Serve(h.listener) }()
	select {
	case <-ctx.Done():
		// Who is at the door comes in. It goes on answering, so that nobody waits for one who does not.
		h.door.Lock()
		defer h.door.Unlock()
		return nil
	case err := <-ended:
		return fmt.Errorf("the worker listens no more: %w", err)
	}
}

func (h *HTTP) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	// Those who have not read their answers by then do without.
	if err := h.server.Shutdown(ctx); err != nil {
		_ = h.server.Close()
	}
}

// ServeHTTP answers one request. It is for the worker's own server.
func (h *HTTP) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPost {
		http.Error(answer, "POST is expected", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(answer, request.Body, bodyMax))
	if err != nil {
		http.Error(answer, "the body cannot be read", http.StatusRequestEntityTooLarge)
		return
	}
	if !h.isSigned(request.Header, body) {
		http.Error(answer, "not signed in a secret of this worker", http.StatusUnauthorized)
		return
	}
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		h.answerMany(answer, body)
		return
	}
	event, err := parseEvent(body)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	said := h.one(event)
	if said.status == http.StatusServiceUnavailable {
		answer.Header().Set("retry-after", strconv.Itoa(waitS))
	}
	answer.WriteHeader(said.status)
	// Whoever asked may be gone.
	_, _ = io.WriteString(answer, said.message)
}

// said is the answer for one event.
type said struct {
	status  int
	message string
}

// one takes an event if there is room, and works on it before the answer where the answer gives the token back.
func (h *HTTP) one(event *Event) said {
	if refusal := h.letIn(); refusal != "" {
		return said{http.StatusServiceUnavailable, refusal}
	}
	defer h.loop.under.Done()
	if event.onResponse() {
		return h.loop.takeNow(event)
	}
	h.loop.take(delivery{event: event})
	return said{status: http.StatusAccepted}
}

// letIn takes a place, and has the worker wait for its event; or says why not.
func (h *HTTP) letIn() string {
	h.door.RLock()
	defer h.door.RUnlock()
	if h.taking.Err() != nil {
		return "the worker stops"
	}
	if !h.loop.placeNow() {
		return "the worker has no room"
	}
	h.loop.under.Add(1)
	return ""
}

// answerMany answers several events: those for which there is no room are refused by name.
func (h *HTTP) answerMany(answer http.ResponseWriter, body []byte) {
	type refused struct {
		ID           string `json:"id"`
		Status       string `json:"status"`
		Message      string `json:"message"`
		RetryAfterMs int    `json:"retryAfterMs,omitempty"`
	}
	var documents []json.RawMessage
	if err := json.Unmarshal(body, &documents); err != nil {
		http.Error(answer, "event: it cannot be read", http.StatusBadRequest)
		return
	}
	events := make([]*Event, len(documents))
	for at, document := range documents {
		event, err := parseEvent(document)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		events[at] = event
	}
	answers := make([]said, len(events))
	var all sync.WaitGroup
	for at, event := range events {
		all.Add(1)
		go func(at int, event *Event) {
			defer all.Done()
			answers[at] = h.one(event)
		}(at, event)
	}
	all.Wait()
	out := struct {
		Events []refused `json:"events"`
	}{[]refused{}}
	for at, one := range answers {
		switch {
		case one.status == http.StatusServiceUnavailable:
			out.Events = append(out.Events, refused{events[at].ID, "REFUSED", one.message, waitS * 1000})
		case one.status/100 != 2:
			out.Events = append(out.Events, refused{events[at].ID, "REFUSED", one.message, 0})
		}
	}
	answer.Header().Set("content-type", "application/json")
	answer.WriteHeader(http.StatusAccepted)
	// Whoever asked may be gone.
	_ = json.NewEncoder(answer).Encode(out)
}

// isSigned checks a request as the Standard Webhooks specification says.
func (h *HTTP) isSigned(header http.Header, body []byte) bool {
	sent := header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if err != nil {
		return false
	}
	age := time.Since(time.Unix(seconds, 0))
	if age > ageMax || age < -ageMax {
		return false
	}
	for _, key := range h.keys {
		mac := hmac.New(sha256.New, key)
		// A hash takes all that is written into it.
		_, _ = io.WriteString(mac, header.Get("webhook-id")+"."+sent+".")
		_, _ = mac.Write(body)
		expected := mac.Sum(nil)
		for _, signature := range strings.Fields(header.Get("webhook-signature")) {
			text := strings.TrimPrefix(signature, "v1,")
			given, err := base64.StdEncoding.DecodeString(text)
			if err == nil && text != signature && hmac.Equal(given, expected) {
				return true
			}
		}
	}
	return false
}
