"""A worker of the nightly chain, for the queue that QUEUE names: tenants, work or report.

    QUEUE=work CONCURRENCY=8 python worker.py
"""

import logging
import os
import sys
import time

from tollgate_worker import Context, Event, Pull, Worker


def say(word: str, event: Event) -> None:
    """Writes a line as a whole: what, when in microseconds, which event, whose."""
    sys.stdout.write(f"{word} {time.time_ns() // 1000} {event.id} {event.key or '-'}\n")
    sys.stdout.flush()


def tenants(event: Event, _context: Context) -> list[dict[str, object]]:
    """Lists what is to be done: twenty pieces of work for each of 25 tenants."""
    say("begin", event)
    time.sleep(1)
    items = [{"tenant": f"tenant-{n % 25}", "piece": n // 25} for n in range(500)]
    say("done", event)
    return items


def work(event: Event, context: Context) -> None:
    """Works on one piece of a tenant."""
    say("begin", event)
    if context.wait(0.1):
        raise InterruptedError("the token is lost")
    say("done", event)


def report(event: Event, _context: Context) -> str:
    """Says how the work went."""
    say("begin", event)
    time.sleep(1)
    well, badly = (event.attributes[f"predecessor{name}"] for name in ("succeeded", "failed"))
    say("done", event)
    return f"{well} pieces of work succeeded, {badly} failed"


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    queue = os.environ["QUEUE"]
    handler = {"tenants": tenants, "work": work, "report": report}[queue]
    Worker(Pull(queue), handler, concurrency=int(os.environ.get("CONCURRENCY", "4"))).run()
