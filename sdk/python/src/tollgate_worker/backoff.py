"""How long to wait before the next try, and one line of the log for an outage."""

import logging
import random
import threading
import time

logger = logging.getLogger("tollgate_worker")

MIN_S = 0.1
MAX_S = 10.0
# The longest Retry-After that is followed.
RETRY_AFTER_MAX_S = 60.0


class Backoff:
    """Twice as long each time, with jitter."""

    def __init__(self) -> None:
        self._tries = 0

    def next_s(self, retry_after_s: float = 0.0) -> float:
        """The next pause in seconds: at least as long as the server asks for."""
        pause_s = min(MAX_S, MIN_S * float(2 ** min(self._tries, 10)))
        self._tries += 1
        return max(pause_s / 2 + random.uniform(0, pause_s / 2), min(retry_after_s, RETRY_AFTER_MAX_S))


class Outage:
    """Logs one line when calls of a kind begin to fail, and one when they work again."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._since_s: float | None = None

    def failed(self, error: BaseException) -> None:
        """A call failed, and is tried again."""
        with self._lock:
            if self._since_s is None:
                self._since_s = time.monotonic()
                logger.warning("%s fails, and is tried again: %s", self._what, error)

    def worked(self) -> None:
        """A call was answered."""
        with self._lock:
            if self._since_s is not None:
                logger.warning("%s works again, after %.3f s", self._what, time.monotonic() - self._since_s)
                self._since_s = None
