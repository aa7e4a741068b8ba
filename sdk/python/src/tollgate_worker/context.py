"""What a handler has beside its event."""

import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from .client import BusyError, RefusedError
from .outcome import Outcome, Release


class TokenLostError(Exception):
    """The event is held no more under any attempt that this worker has: work on it is not needed."""


class Context:
    """It is cancelled when the token is lost, and when the worker has stopped."""

    def __init__(self, attempt: int, beat: Callable[["Context"], float]) -> None:
        self.attempt = attempt
        """The event's attempt."""
        self._beat = beat
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._told = Outcome()
        # The first release that is put here is what is released.
        self._ended: queue.SimpleQueue[Release] = queue.SimpleQueue()

    @property
    def is_cancelled(self) -> bool:
        """Whether work on the event is needed no more."""
        return self._cancelled.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Sleeps, and returns True as soon as work on the event is needed no more."""
        return self._cancelled.wait(timeout_s)

    def heartbeat(self) -> None:
        """Keeps the token by hand, beside the heartbeats that are sent anyway. TokenLostError: the event is held no more.
        An event with `release: on_response` has no token to keep: nothing is sent."""
        try:
            self._beat(self)
        except (BusyError, RefusedError):
            # It has been logged, and the other heartbeats go on.
            pass

    def set_cursor(self, cursor: str) -> None:
        """Leaves a text of at most 4 KiB for the schedule's next run."""
        self._tell(lambda told: replace(told, cursor=cursor))

    def set_next_check_time(self, at: datetime) -> None:
        """Has the same event come again then, if the handler succeeds."""
        self._tell(lambda told: replace(told, next_check_time=at))

    def set_message(self, message: str) -> None:
        """Leaves words for people."""
        self._tell(lambda told: replace(told, message=message))

    def _tell(self, change: Callable[[Outcome], Outcome]) -> None:
        with self._lock:
            self._told = change(self._told)

    def _outcome(self, returned: object) -> Outcome:
        """What the handler returned, with what it has told its context."""
        if isinstance(returned, Outcome):
            return returned
        with self._lock:
            return replace(self._told, result=returned)
