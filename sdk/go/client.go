package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The longest answer that is read.
const answerMax = 64 << 20

// RefusedError is an answer of the server that will not change: a wrong key, a wrong field.
type RefusedError struct {
	// HTTPStatus is the status of the answer.
	HTTPStatus int
	// Code is the number of the gRPC status, such as 3 for INVALID_ARGUMENT; 0 where the answer has none.
	Code int
	// Message is the server's.
	Message string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("HTTP %d: %s", e.HTTPStatus, e.Message)
}

// isOfContent says that what was sent is refused, and not who sends it.
func (e *RefusedError) isOfContent() bool {
	return e.HTTPStatus == http.StatusBadRequest || e.HTTPStatus == http.StatusRequestEntityTooLarge
}

// busyError is a failure after which the call is repeated.
type busyError struct {
	err        error
	retryAfter time.Duration
}

func (e *busyError) Error() string { return e.err.Error() }
func (e *busyError) Unwrap() error { return e.err }

func retryAfterOf(err error) time.Duration {
	var busy *busyError
	if errors.As(err, &busy) {
		return busy.retryAfter
	}
	return 0
}

// client speaks to Tollgate by REST.
type client struct {
	server, key string
	http        *http.Client
	timeout     time.Duration
}

type acquireRequest struct {
	MaxEvents int      `json:"maxEvents"`
	Wait      string   `json:"wait"`
	Labels    []string `json:"labels,omitempty"`
	Worker    string   `json:"worker,omitempty"`
}

type acquired struct {
	Name     string `json:"name"`
	Attempt  uint32 `json:"attempt"`
	TokenTTL string `json:"tokenTtl"`
	Event    string `json:"event"`
}

func (c *client) acquire(ctx context.Context, namespace, queue string, ask acquireRequest, wait time.Duration) ([]acquired, error) {
	path := "/v1/namespaces/" + url.PathEscape(namespace) + "/queues/" + url.PathEscape(queue) + ":acquire"
	var answer struct {
		Events []acquired `json:"events"`
	}
	err := c.post(ctx, path, ask, wait+c.timeout, &answer)
	return answer.Events, err
}

func (c *client) release(ctx context.Context, id string, body release) (string, error) {
	var answer struct {
		Status string `json:"status"`
	}
	err := c.post(ctx, "/v1/events/"+url.PathEscape(id)+":release", body, c.timeout, &answer)
	return answer.Status, err
}

// extend is the heartbeat. It returns how long silence is allowed from now; 0 where that is not said.
func (c *client) extend(ctx context.Context, id string, attempt uint32) (time.Duration, error) {
	body := struct {
		Attempt uint32 `json:"attempt"`
	}{attempt}
	var answer struct {
		Remaining string `json:"remaining"`
	}
	if err := c.post(ctx, "/v1/events/"+url.PathEscape(id)+":extend", body, c.timeout, &answer); err != nil {
		return 0, err
	}
	return span(answer.Remaining), nil
}

func (c *client) post(ctx context.Context, path string, body any, limit time.Duration, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.server+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("content-type", "application/json")
	if c.key != "" {
		request.Header.Set("authorization", "Bearer "+c.key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return &busyError{err: err}
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	if err != nil {
		return &busyError{err: err}
	}
	if response.StatusCode/100 != 2 {
		return problem(response, said)
	}
	if err := json.Unmarshal(said, answer); err != nil {
		return &busyError{err: fmt.Errorf("an answer that is not JSON: %w", err)}
	}
	return nil
}

func problem(response *http.Response, said []byte) error {
	var told struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	if json.Unmarshal(said, &told) != nil || told.Message == "" {
		told.Message = strings.TrimSpace(cut(string(said)))
	}
	status := response.StatusCode
	passes := status >= 500 && status != http.StatusNotImplemented
	if passes || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests {
		// Absent, or a date: the back-off alone says when.
		seconds, _ := strconv.Atoi(response.Header.Get("retry-after"))
		return &busyError{fmt.Errorf("HTTP %d: %s", status, told.Message), time.Duration(seconds) * time.Second}
	}
	return &RefusedError{HTTPStatus: status, Code: told.Code, Message: told.Message}
}

// span reads a duration as the API writes it: "900s", "1.500s"; 0 where there is none.
func span(text string) time.Duration {
	length, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return length
}
