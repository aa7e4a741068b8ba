"""Takes events from an SQS queue. A message is hidden while its event is worked on, and deleted once the release was answered.
One whose event needs no release is deleted once the work is done, and shows again where it failed. A stop waits for the poll
under way, and has what that brings show again."""

import os
import threading
from typing import Any, Protocol

from .backoff import Backoff, logger
from .event import parse_event
from .loop import Delivery, Loop

# The most messages of an answer.
RECEIVE_MAX = 10
# How long SQS waits for messages.
WAIT_S = 5
# How long a stop waits for the poll under way: SQS goes on with a call whose caller has gone, and what it hands out then is
# hidden from all, though nobody works on it.
LAST_POLL_S = WAIT_S + 2.0
VISIBILITY_MAX_S = 12 * 3600


class SqsClient(Protocol):
    """As much of SQS as the worker needs: a client of boto3 has it."""

    def receive_message(self, **arguments: Any) -> Any: ...
    def delete_message(self, **arguments: Any) -> Any: ...
    def change_message_visibility(self, **arguments: Any) -> Any: ...


class Sqs:
    """A queue of SQS. Without a client one of boto3 is made, which finds region and credentials as all programs of AWS do."""

    def __init__(self, queue_url: str, client: SqsClient | None = None, visibility_s: int = 30) -> None:
        """`visibility_s` is for how long a message that is worked on is hidden, anew at each third of it."""
        if not queue_url:
            raise ValueError("queue_url: missing")
        if not 3 <= visibility_s <= VISIBILITY_MAX_S:
            raise ValueError(f"visibility_s: {visibility_s}, expected 3 to {VISIBILITY_MAX_S}")
        self._queue_url, self._visibility_s = queue_url, visibility_s
        self._client = client or _boto3_client()
        # Held while messages are begun, so that none is after the last.
        self._door = threading.Lock()

    def run(self, loop: Loop, _namespace: str, _labels: list[str], _name: str) -> None:
        """Takes events until the worker stops. What is received after that is shown again, beside the drain."""
        polls = threading.Thread(target=self._poll, args=(loop,), name="polls of SQS", daemon=True)
        polls.start()
        loop.last_poll = (polls, LAST_POLL_S)
        loop.stopping.wait()
        with self._door:
            pass

    def close(self) -> None:
        """Nothing is left open."""

    def _poll(self, loop: Loop) -> None:
        pauses = Backoff()
        while places := loop.places(RECEIVE_MAX):
            try:
                answer = self._client.receive_message(
                    QueueUrl=self._queue_url, MaxNumberOfMessages=places, WaitTimeSeconds=WAIT_S
                )
                loop.acquires.worked()
                pauses = Backoff()
                late: list[dict[str, Any]] = []
                with self._door:
                    for message in answer.get("Messages", []):
                        if loop.stopping.is_set():
                            late.append(message)
                        elif places > 0 and self._begin(loop, message):
                            places -= 1
                for message in late:
                    self._show(message)
            except Exception as error:  # Whatever the client raises: it may pass.
                if not loop.stopping.is_set():
                    loop.acquires.failed(error)
                    loop.stopping.wait(pauses.next_s())
            finally:
                loop.free(places)

    def _show(self, message: dict[str, Any]) -> None:
        """Has a message that is not worked on show again at once."""
        try:
            self._client.change_message_visibility(
                QueueUrl=self._queue_url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )
        except Exception as error:
            logger.warning("a message is not shown again, and comes when its visibility ends: %s", error)

    def _begin(self, loop: Loop, message: dict[str, Any]) -> bool:
        """Works on a message in a place; False if it has no event, and needs no place."""
        try:
            event = parse_event(message["Body"])
        except ValueError as error:
            logger.error("a message is left to the queue: %s", error)
            return False
        named = {"QueueUrl": self._queue_url, "ReceiptHandle": message["ReceiptHandle"]}

        def hide() -> None:
            try:
                self._client.change_message_visibility(**named, VisibilityTimeout=self._visibility_s)
            except Exception as error:
                logger.warning("event %s: its message is not hidden for longer: %s", event.id, error)

        def remove() -> None:
            try:
                self._client.delete_message(**named)
            except Exception as error:
                # It comes again then, and is only released again.
                logger.warning("event %s: its message is not deleted: %s", event.id, error)

        loop.take(Delivery(event, hide=hide, hide_every_s=self._visibility_s / 3, answered=remove))
        return True


def _boto3_client() -> SqsClient:
    try:
        import boto3
    except ImportError as error:
        raise ImportError("boto3 is missing: pip install 'tollgate-worker[sqs]', or hand over a client") from error
    # boto3 itself reads AWS_DEFAULT_REGION, other programs of AWS this one.
    client: SqsClient = boto3.client("sqs", region_name=os.environ.get("AWS_REGION"))
    return client
