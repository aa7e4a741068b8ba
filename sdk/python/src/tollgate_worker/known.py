"""Remembers events, so that each is worked on once. When there are too many, those are forgotten that were done first."""

import threading
from dataclasses import dataclass
from enum import Enum

from .outcome import Release

# The most events that are remembered beyond those at work.
KNOWN_MAX = 10_000


class Verdict(Enum):
    """What is to be done with an event that comes."""

    BEGIN = 1
    WORKING = 2
    """It is being worked on, and passed over."""
    DONE = 3
    """It has been worked on, and is only released again."""


@dataclass
class _Entry:
    attempt: int
    release: Release | None = None


class Known:
    """The events of a worker."""

    def __init__(self, most: int = KNOWN_MAX) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._events: dict[str, _Entry] = {}
        # Those that are done, in their order.
        self._done: dict[str, None] = {}

    def come(self, event: str, attempt: int) -> tuple[Verdict, Release | None]:
        """Notes an event that comes."""
        with self._lock:
            entry = self._events.get(event)
            if entry is None:
                self._events[event] = _Entry(attempt)
                return Verdict.BEGIN, None
            if entry.release is None:
                entry.attempt = max(entry.attempt, attempt)
                return Verdict.WORKING, None
            if entry.release.is_open and attempt > entry.attempt:
                # It was given back, or was to come again: this is the next attempt.
                self._done.pop(event, None)
                self._events[event] = _Entry(attempt)
                return Verdict.BEGIN, None
            entry.attempt = max(entry.attempt, attempt)
            return Verdict.DONE, entry.release

    def ended(self, event: str, release: Release) -> None:
        """Notes how the work on an event ended."""
        with self._lock:
            entry = self._events.get(event)
            if entry is None or entry.release is not None:
                return
            entry.release = release
            self._done[event] = None
            while len(self._done) > self._most:
                first = next(iter(self._done))
                del self._done[first], self._events[first]

    def forget(self, event: str) -> None:
        """Forgets an event at work, so that it may come again under the same attempt."""
        with self._lock:
            entry = self._events.get(event)
            if entry is not None and entry.release is None:
                del self._events[event]

    def replaced(self, event: str, release: Release) -> None:
        """Notes that another release takes the place of the one that was refused."""
        with self._lock:
            entry = self._events.get(event)
            if entry is not None and entry.release is not None:
                entry.release = release

    def attempt(self, event: str, otherwise: int) -> int:
        """The latest attempt that came of an event; the one given where the event has been forgotten."""
        with self._lock:
            entry = self._events.get(event)
            return max(entry.attempt, otherwise) if entry else otherwise

    def __len__(self) -> int:
        with self._lock:
            return len(self._events)
