package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"tollgate.dev/worker"
)

// emulated is a queue of an SQS emulator: it speaks SQS's JSON protocol, and signs nothing, which AWS itself wants. README.md has one
// for the AWS SDK.
type emulated struct {
	endpoint, url string
}

func (q emulated) call(ctx context.Context, action string, ask map[string]any, answer any) error {
	ask["QueueUrl"] = q.url
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, q.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("content-type", "application/x-amz-json-1.0")
	request.Header.Set("x-amz-target", "AmazonSQS."+action)
	// Emulators tell by it which service is meant, and check no signature.
	request.Header.Set("authorization", "AWS4-HMAC-SHA256 Credential=none/20260101/eu-central-1/sqs/aws4_request, SignedHeaders=host, Signature=none")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", action, response.Status, said)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(said, answer)
}

func (q emulated) Receive(ctx context.Context, max int, wait time.Duration) ([]worker.Message, error) {
	var answer struct {
		Messages []struct{ Body, ReceiptHandle string }
	}
	ask := map[string]any{"MaxNumberOfMessages": max, "WaitTimeSeconds": int(wait.Seconds())}
	if err := q.call(ctx, "ReceiveMessage", ask, &answer); err != nil {
		return nil, err
	}
	var messages []worker.Message
	for _, m := range answer.Messages {
		messages = append(messages, worker.Message{Body: m.Body, Receipt: m.ReceiptHandle})
	}
	return messages, nil
}

func (q emulated) Delete(ctx context.Context, receipt string) error {
	return q.call(ctx, "DeleteMessage", map[string]any{"ReceiptHandle": receipt}, nil)
}

func (q emulated) ChangeVisibility(ctx context.Context, receipt string, visibility time.Duration) error {
	ask := map[string]any{"ReceiptHandle": receipt, "VisibilityTimeout": int(visibility.Seconds())}
	return q.call(ctx, "ChangeMessageVisibility", ask, nil)
}
