"""Does for examples/lambda what AWS does: polls a queue, calls the function with batches, and deletes what did not fail.

    TOLLGATE=… QUEUE_URL=… SQS_ENDPOINT=… python event_source.py FOLDER_OF_THE_HANDLER

Every fifth event's work fails when it is tried first, so that partial failures are seen.
"""

import importlib
import os
import signal
import sys

import boto3

sys.path.insert(0, sys.argv[1])
function = importlib.import_module("handler")
sqs = boto3.client("sqs", endpoint_url=os.environ["SQS_ENDPOINT"], region_name="eu-central-1")
queue = os.environ["QUEUE_URL"]
stopping, stumbled = [], set()
work = function.work


def stumble(event):
    if event["index"] % 5 == 0 and event["id"] not in stumbled:
        stumbled.add(event["id"])
        raise RuntimeError("stumbled")
    work(event)


def record(message):
    """A message as a function gets it; only what the others would not tell."""
    return {"messageId": message["MessageId"], "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"], "attributes": message.get("Attributes", {}),
            "eventSource": "aws:sqs", "awsRegion": "eu-central-1"}


function.work = stumble
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
print(f"listening on {queue}", flush=True)
while not stopping:
    received = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1,
                                   VisibilityTimeout=1, AttributeNames=["All"], MessageAttributeNames=["All"])
    batch = [record(message) for message in received.get("Messages", [])]
    if not batch:
        continue
    print(f"batch of {len(batch)}", flush=True)
    answer = function.handler({"Records": batch}, None)
    failed = {item["itemIdentifier"] for item in answer["batchItemFailures"]}
    print(f"failed {len(failed)}", flush=True)
    gone = [{"Id": str(at), "ReceiptHandle": one["receiptHandle"]}
            for at, one in enumerate(batch) if one["messageId"] not in failed]
    if gone:
        sqs.delete_message_batch(QueueUrl=queue, Entries=gone)
print("stopped", flush=True)
