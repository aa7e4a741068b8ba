"""A worker by each of the ways: events are pulled from a queue, come by HTTP, or lie in a queue of SQS.

    QUEUE=resize TOLLGATE=http://127.0.0.1:7411 python examples/resize.py
    LISTEN=127.0.0.1:8080 WEBHOOK_SECRET=whsec_… python examples/resize.py
    QUEUE_URL=https://sqs.… python examples/resize.py
"""

import logging
import os
import sys
import threading

from tollgate_worker import Context, Event, FailedError, Http, Pull, Source, Sqs, Worker

stumbled = threading.Event()


def say(line: str) -> None:
    """Writes a line as a whole: the threads share the output."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def resize(event: Event, context: Context) -> None:
    """The work."""
    try:
        work_ms, stumble = float(event.data["workMs"]), event.data.get("stumble")
    except (TypeError, KeyError, ValueError) as error:
        raise FailedError(f"data: {error!r}") from error
    say(f"begin {event.id} (attempt {event.attempt})")
    if context.wait(work_ms / 1000):
        raise InterruptedError("the token is lost")
    # The first event with this index stumbles, once.
    if event.index == stumble and not stumbled.is_set():
        stumbled.set()
        say(f"stumbled {event.id}")
        raise OSError("the disk is full")
    say(f"done {event.id}")


def source() -> Source:
    """Where the events come from, by the environment."""
    if queue := os.environ.get("QUEUE"):
        say(f"pulling from {queue}")
        return Pull(queue)
    if queue_url := os.environ.get("QUEUE_URL"):
        say(f"pulling from {queue_url}")
        return Sqs(queue_url)
    host, _, port = os.environ.get("LISTEN", "127.0.0.1:8080").rpartition(":")
    http = Http(os.environ.get("WEBHOOK_SECRET", ""), host=host, port=int(port))
    say("listening on http://{}:{}".format(*http.address))
    return http


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    Worker(source(), resize, concurrency=int(os.environ.get("CONCURRENCY", "4"))).run()
    say("stopped")
