package worker

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const secret = "whsec_YS1zZWNyZXQtdGhhdC1ldmVyeWJvZHkta25vd3M="

// send posts a body, signed in a secret, and returns the status, the body and the Retry-After of the answer.
func send(t *testing.T, url, body, signedIn string, sent time.Time) (int, string, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(signedIn, "whsec_"))
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "id.%d.%s", sent.Unix(), body)
	request.Header.Set("webhook-id", "id")
	request.Header.Set("webhook-timestamp", fmt.Sprint(sent.Unix()))
	request.Header.Set("webhook-signature", "v1,AAAA v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	said, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(said), response.Header.Get("retry-after")
}

func TestHTTPTakesWhatIsSignedAndRefusesWhatItHasNoRoomFor(t *testing.T) {
	f := newFake(t)
	source, err := ListenHTTP("127.0.0.1:0", "whsec_"+base64.StdEncoding.EncodeToString([]byte("new")), secret)
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + source.Addr().String()
	let := make(chan struct{})
	var begun int32
	handler := func(event *Event, c *Context) (any, error) {
		atomic.AddInt32(&begun, 1)
		if strings.HasPrefix(event.ID, "slow") {
			<-let
		}
		if event.ID == "bad" {
			return nil, errors.New("disk full")
		}
		return nil, nil
	}
	r := start(t, Options{Server: f.URL, Source: source, Concurrency: 2}, handler)
	now := time.Now()
	expect := func(body string, sent time.Time, in string, wanted int, words string) {
		t.Helper()
		if status, said, after := send(t, url, body, in, sent); status != wanted || !strings.Contains(said, words) ||
			(status == 503) != (after == "1") {
			t.Errorf("%s: %d %s %s", body, status, said, after)
		}
	}
	expect(`{"id": "forged"}`, now, "whsec_Zm9yZ2Vk", 401, "not signed")
	expect(`{"id": "old"}`, now.Add(-time.Hour), secret, 401, "not signed")
	expect(`{"attempt": 1}`, now, secret, 400, "id: missing")
	expect(`{"id": "good", "release": "on_response"}`, now, secret, 200, "")
	expect(`{"id": "bad", "release": "on_response"}`, now, secret, 500, "disk full")
	expect(`{"id": "slow-1"}`, now, secret, 202, "")
	until(t, "work", func() bool { return atomic.LoadInt32(&begun) == 3 })
	expect(`{"id": "slow-1", "release": "on_response"}`, now, secret, 409, "being worked on")
	expect(`[{"id": "slow-2"}]`, now, secret, 202, `{"events":[]}`)
	until(t, "work", func() bool { return atomic.LoadInt32(&begun) == 4 })
	expect(`{"id": "more"}`, now, secret, 503, "no room")
	expect(`[{"id": "more"}, {"id": "many"}]`, now, secret, 202,
		`{"id":"many","status":"REFUSED","message":"the worker has no room","retryAfterMs":1000}`)
	r.worker.Stop()
	until(t, "the end of taking", func() bool { return source.taking.Err() != nil })
	expect(`{"id": "late"}`, now, secret, 503, "stops")
	close(let)
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
	if begun != 4 || len(f.released("slow-1")) != 1 || len(f.released("slow-2")) != 1 || len(f.released("good")) != 0 {
		t.Errorf("%d begun, %v", begun, f.releases)
	}
}

func TestSecretsThatCannotBeReadAreRefused(t *testing.T) {
	for _, secrets := range [][]string{{}, {""}, {"whsec_&"}} {
		if _, err := ListenHTTP("127.0.0.1:0", secrets...); err == nil || !strings.HasPrefix(err.Error(), "secrets:") {
			t.Errorf("%q: %v", secrets, err)
		}
	}
}

// queue is an SQS queue in memory.
type queue struct {
	mutex    sync.Mutex
	messages []Message
	deleted  []string
	hidden   map[string]int
	most     int
	fails    int
}

func (q *queue) Receive(ctx context.Context, max int, wait time.Duration) ([]Message, error) {
	// A hundredth of the wait.
	for end := time.Now().Add(wait / 100); time.Now().Before(end); {
		q.mutex.Lock()
		q.fails--
		if q.fails >= 0 {
			q.mutex.Unlock()
			return nil, errors.New("throttled")
		}
		if max > q.most {
			q.most = max
		}
		if len(q.messages) > 0 {
			if max > len(q.messages) {
				max = len(q.messages)
			}
			out := q.messages[:max]
			q.messages = q.messages[max:]
			q.mutex.Unlock()
			return out, nil
		}
		q.mutex.Unlock()
		time.Sleep(2 * time.Millisecond)
	}
	return nil, ctx.Err()
}

func (q *queue) Delete(_ context.Context, receipt string) error {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.deleted = append(q.deleted, receipt)
	return nil
}

func (q *queue) ChangeVisibility(_ context.Context, receipt string, _ time.Duration) error {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.hidden[receipt]++
	return nil
}

func (q *queue) count() (deleted, hidden int) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return len(q.deleted), q.hidden["0"]
}

func TestSQSDeletesAMessageAfterItsReleaseWasAnswered(t *testing.T) {
	f := newFake(t)
	q := &queue{hidden: map[string]int{}, fails: 2, messages: []Message{{Body: "no event", Receipt: "x"}}}
	for n := 0; n < 5; n++ {
		q.messages = append(q.messages, Message{Body: fmt.Sprintf(`{"id": "e%d", "attempt": 1}`, n), Receipt: fmt.Sprint(n)})
	}
	var holds atomic.Bool
	holds.Store(true)
	f.refuseWith(func(string) (int, string) {
		if holds.Load() {
			return 503, "busy"
		}
		return 0, ""
	})
	r := start(t, Options{Server: f.URL, Source: SQS{Queue: q, Visibility: 3 * time.Second}, Concurrency: 3},
		func(*Event, *Context) (any, error) { return nil, nil })
	until(t, "a message that is hidden again", func() bool { _, hidden := q.count(); return hidden > 1 })
	if deleted, _ := q.count(); deleted > 0 {
		t.Errorf("%d deleted before a release was answered", deleted)
	}
	holds.Store(false)
	until(t, "an empty queue", func() bool { deleted, _ := q.count(); return deleted == 5 })
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 5; n++ {
		if len(f.released(fmt.Sprint("e", n))) != 1 {
			t.Errorf("e%d: %v", n, f.released(fmt.Sprint("e", n)))
		}
	}
	if q.most != 3 {
		t.Errorf("asked for %d", q.most)
	}
}

func TestSQSDeletesAMessageWhoseEventNeedsNoReleaseAfterTheWork(t *testing.T) {
	f, book := newFake(t), &logbook{}
	calls := f.holdNothing()
	q := &queue{hidden: map[string]int{}}
	put := func(id, receipt string) {
		q.mutex.Lock()
		defer q.mutex.Unlock()
		body := fmt.Sprintf(`{"id": %q, "attempt": 1, "release": "on_response"}`, id)
		q.messages = append(q.messages, Message{Body: body, Receipt: receipt})
	}
	deleted := func() string {
		q.mutex.Lock()
		defer q.mutex.Unlock()
		return strings.Join(q.deleted, ", ")
	}
	var works []string
	options := Options{Server: f.URL, Source: SQS{Queue: q, Visibility: 3 * time.Second}, Logf: book.logf}
	options.FirstHeartbeat = 50 * time.Millisecond
	r := start(t, options, func(event *Event, c *Context) (any, error) {
		works = append(works, event.ID)
		switch event.ID {
		case "slow":
			select {
			case <-c.Done():
				t.Error("it was cancelled")
			case <-time.After(2500 * time.Millisecond):
			}
		case "failed":
			return nil, Failf("no such file")
		case "bad":
			if len(works) < 4 {
				return nil, errors.New("disk full")
			}
		}
		return nil, c.Heartbeat()
	})
	for _, id := range []string{"slow", "bad", "failed"} {
		put(id, id)
	}
	until(t, "all but the one that is left", func() bool { return deleted() == "slow, failed" })
	// It shows again, under the same attempt; and so does one that is done.
	put("bad", "bad again")
	put("slow", "slow again")
	until(t, "an empty queue", func() bool { return deleted() == "slow, failed, bad again, slow again" })
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(works, " "); said != "slow bad failed bad" || atomic.LoadInt32(calls) != 0 {
		t.Errorf("%s, and %d calls", said, atomic.LoadInt32(calls))
	}
	if q.hidden["slow"] < 2 {
		t.Errorf("hidden %d times", q.hidden["slow"])
	}
	for _, part := range []string{
		"event bad: failed, and is left to its queue: disk full",
		"event failed: failed, and counts as done, as its token has gone: no such file",
	} {
		if book.with(part) != 1 {
			t.Errorf("%s: %q", part, book.lines)
		}
	}
}

// lateQueue hands out what it has, and is asked by one poll more, which it answers when it is told to.
type lateQueue struct {
	*queue
	asked, let chan struct{}
	shown      []string
}

func newLateQueue() *lateQueue {
	first := []Message{{Body: `{"id": "before", "attempt": 1}`, Receipt: "before"}}
	return &lateQueue{&queue{hidden: map[string]int{}, messages: first}, make(chan struct{}), make(chan struct{}), nil}
}

func (q *lateQueue) Receive(ctx context.Context, max int, wait time.Duration) ([]Message, error) {
	if messages, err := q.queue.Receive(ctx, max, wait); len(messages) > 0 || err != nil {
		return messages, err
	}
	close(q.asked)
	<-q.let
	messages := []Message{{Body: `{"id": "gone"}`, Receipt: "gone"}}
	for n := 0; n < max; n++ {
		messages = append(messages, Message{Body: fmt.Sprintf(`{"id": "late-%d"}`, n), Receipt: fmt.Sprint("late-", n)})
	}
	return messages, nil
}

func (q *lateQueue) ChangeVisibility(ctx context.Context, receipt string, visibility time.Duration) error {
	if visibility > 0 {
		return nil
	}
	if receipt == "gone" {
		return errors.New("no such message")
	}
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.shown = append(q.shown, receipt)
	return ctx.Err()
}

func TestSQSShowsAgainWhatAPollBringsAfterAStop(t *testing.T) {
	f, book, q := newFake(t), &logbook{}, newLateQueue()
	let := make(chan struct{})
	var works int32
	options := Options{Server: f.URL, Source: SQS{Queue: q}, Concurrency: 3, Logf: book.logf}
	r := start(t, options, func(*Event, *Context) (any, error) {
		atomic.AddInt32(&works, 1)
		<-let
		return nil, nil
	})
	<-q.asked
	r.worker.Stop()
	// Releases do not wait for the poll.
	close(let)
	until(t, "the release of what was begun", func() bool { deleted, _ := q.count(); return deleted == 1 })
	close(q.let)
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
	if shown := strings.Join(q.shown, " "); shown != "late-0 late-1" || atomic.LoadInt32(&works) != 1 {
		t.Errorf("%d works, shown again: %s", works, shown)
	}
	if book.with("a message is not shown again, and comes when its visibility ends: no such message") != 1 {
		t.Errorf("%q", book.lines)
	}
}

func TestAStopWaitsForAPollOfSQSNoLongerThanItMay(t *testing.T) {
	for _, limits := range [][2]time.Duration{{200 * time.Millisecond, time.Minute}, {time.Minute, 200 * time.Millisecond}} {
		f, q := newFake(t), newLateQueue()
		options := Options{Server: f.URL, Source: SQS{Queue: q, lastReceive: limits[0]}, DrainTimeout: limits[1], Logf: t.Logf}
		r := start(t, options, func(*Event, *Context) (any, error) { return nil, nil })
		<-q.asked
		stopped := time.Now()
		if err := r.stop(t); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(stopped); took < 150*time.Millisecond || took > 5*time.Second {
			t.Errorf("%v: a stop took %s", limits, took)
		}
	}
}
