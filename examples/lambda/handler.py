"""A consumer as an AWS Lambda function behind an SQS queue: works on a batch, and gives its tokens back by REST.

The function's event source mapping must report partial failures, so that one bad message does not bring the others again:

    aws lambda create-event-source-mapping --function-name reports --event-source-arn ARN_OF_THE_QUEUE \
        --batch-size 10 --function-response-types ReportBatchItemFailures

TOLLGATE is where the function reaches Tollgate. It needs no key: an event's id authorises the release of that event alone.
Set the queue's visibility timeout above the function's timeout, and the policy's above that.
"""

import json
import os
import urllib.request

TOLLGATE = os.environ.get("TOLLGATE", "http://127.0.0.1:7411")

# Events that this instance has done. A real function keeps them where all its instances see them.
done = set()


def work(event):
    """What this function is for. What it raises lets SQS bring the message again; the token stays taken meanwhile."""
    print(f"begin {event['id']}", flush=True)
    print(f"done {event['id']}", flush=True)


def handler(batch, context):
    failed, releases = [], {}
    for record in batch["Records"]:
        event = json.loads(record["body"])
        try:
            if event["id"] not in done:
                work(event)
                done.add(event["id"])
            releases[record["messageId"]] = {"name": event["id"], "attempt": event["attempt"]}
        except Exception as error:
            print(f"{event['id']}: {error}", flush=True)
            failed.append(record["messageId"])
    if releases:
        try:
            release(list(releases.values()))
        except OSError as error:
            # The work is done, but nobody knows: the messages come again, and only the release is repeated.
            print(f"not released yet: {error}", flush=True)
            failed.extend(releases)
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}


def release(releases):
    """Gives tokens back, all in one call. Harmless when repeated."""
    request = urllib.request.Request(
        f"{TOLLGATE}/v1/events:batchRelease",
        data=json.dumps({"releases": releases}).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        for given, response in zip(releases, json.load(answer)["responses"]):
            if response["status"] != "RELEASE_STATUS_RELEASED":
                print(f"{given['name']}: {response['status']}: {response.get('message', '')}", flush=True)
