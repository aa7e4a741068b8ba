"""Takes the events of a queue from Tollgate by long polls."""

import threading
import time
from typing import Any

from .backoff import MIN_S, Backoff
from .client import Acquired, Breaker, BusyError
from .event import Event, parse_event, release_of
from .loop import Delivery, Loop

# The most events of an answer.
ACQUIRE_MAX = 100
# How long a poll may go on after the worker was told to stop: what it is answered with counts as accepted, so that one that is
# broken off while it is being answered costs its event the time to live.
LAST_POLL_S = 1.0


class Pull:
    """The events of a queue. The schedules' target is `pull`; the worker needs no address."""

    def __init__(self, queue: str, wait_s: float = 50.0) -> None:
        """`queue` is the queue's id; `wait_s` is how long a poll waits for the first event, up to 60 s."""
        if not queue:
            raise ValueError("queue: missing")
        if not 0 < wait_s <= 60:
            raise ValueError(f"wait_s: {wait_s}, expected more than 0, up to 60")
        self._queue, self._wait_s = queue, wait_s
        # Held while events are begun, so that none is after the last.
        self._door = threading.Lock()
        self._closed = False

    def run(self, loop: Loop, namespace: str, labels: list[str], name: str) -> None:
        """Takes events until the worker stops, or until a refusal that will not go away."""
        ask: dict[str, Any] = {"wait": f"{self._wait_s:.3f}s", "labels": labels, "worker": name}
        breaker = Breaker()

        def poll() -> None:
            try:
                self._poll(loop, namespace, ask, breaker)
            except Exception as error:
                loop.fatal.put(error)

        polls = threading.Thread(target=poll, name="polls", daemon=True)
        polls.start()
        loop.stopping.wait()
        polls.join(LAST_POLL_S)
        breaker.break_off()
        # One that is still looking for the server is left to itself.
        polls.join(LAST_POLL_S / 2)
        with self._door:
            self._closed = True

    def close(self) -> None:
        """Nothing is left open."""

    def _poll(self, loop: Loop, namespace: str, ask: dict[str, Any], breaker: Breaker) -> None:
        pauses = Backoff()
        # It asks for as many as there is room for, and never for more.
        while places := loop.places(ACQUIRE_MAX):
            asked_s = time.monotonic()
            try:
                ask["maxEvents"] = places
                events = loop.client.acquire(namespace, self._queue, ask, self._wait_s, breaker)
                loop.acquires.worked()
                with self._door:
                    if self._closed:
                        return
                    places -= self._begin(loop, events, places)
                pauses = Backoff()
                if not events and time.monotonic() - asked_s < MIN_S:
                    # Nobody waited: a server that is about to end.
                    loop.stopping.wait(MIN_S)
            except BusyError as error:
                if not loop.stopping.is_set():
                    loop.acquires.failed(error)
                    loop.stopping.wait(pauses.next_s(error.retry_after_s))
            finally:
                loop.free(places)

    @staticmethod
    def _begin(loop: Loop, events: list[Acquired], places: int) -> int:
        """Has the events worked on, each in one of the places, and returns how many places it used."""
        used = 0
        for given in events:
            why = "" if used < places else "the worker has no room"
            try:
                event = parse_event(given.event)
            except ValueError as error:
                why = str(error)
                event = Event(given.name, release=release_of(given.event))
            event.id, event.attempt = given.name, given.attempt
            if why:
                loop.give_back(Delivery(event), why)
                continue
            used += 1
            loop.take(Delivery(event, given.ttl_s))
        return used
