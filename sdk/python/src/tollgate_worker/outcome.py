"""What the work on an event came to."""

import json
import traceback
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from typing import Any

# Bytes of a message that Tollgate takes.
MESSAGE_MAX = 4096


class Status(str, Enum):
    """How the work on an event went."""

    SUCCEEDED = "SUCCEEDED"
    """Done."""
    FAILED = "FAILED"
    """Failed for good: the event is not tried again."""
    RETRY = "RETRY"
    """Failed: the event is tried again as the schedule's retry policy says."""


class FailedError(Exception):
    """Has an event fail for good: it is not tried again. Raise it in a handler, by itself or `from` another."""


@dataclass(frozen=True)
class Outcome:
    """What the work on an event came to, in all its parts. A handler may return one instead of a bare result."""

    status: Status = Status.SUCCEEDED
    message: str = ""
    """For people. It is cut at 4 KiB."""
    result: Any = None
    """Any value that is JSON, of at most 256 KiB; None for none. Only with SUCCEEDED, and without a next check time."""
    cursor: str | None = None
    """Handed to the schedule's next run; None leaves it as it is."""
    next_check_time: datetime | None = None
    """Has the same event come again then. Only with SUCCEEDED. A time without a zone is local."""


@dataclass(frozen=True)
class Release:
    """The body of a release. The result is text: what becomes of the value later does not matter."""

    outcome: Status
    message: str = ""
    cursor: str | None = None
    next_check_time: str = ""
    result: str = ""
    attempt: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the event is to come again."""
        return self.outcome is not Status.SUCCEEDED or bool(self.next_check_time)

    def under(self, attempt: int) -> "Release":
        """The same under another attempt."""
        return replace(self, attempt=attempt)

    def body(self) -> dict[str, Any]:
        """As the API takes it."""
        body: dict[str, Any] = {"attempt": self.attempt, "outcome": self.outcome.value}
        if self.message:
            body["message"] = self.message
        if self.cursor is not None:
            body["cursor"] = self.cursor
        if self.next_check_time:
            body["nextCheckTime"] = self.next_check_time
        if self.result:
            body["result"] = json.loads(self.result)
        return body


def retry(message: str) -> Release:
    """Has the event come again."""
    return Release(Status.RETRY, cut(message))


def settle(outcome: Outcome) -> Release:
    """The release of what a handler returned."""
    result, check = "", ""
    status = Status(outcome.status)
    if outcome.cursor is not None and not isinstance(outcome.cursor, str):
        return retry(f"cursor: {type(outcome.cursor).__name__}, expected a text")
    # What the API does not take with this status is left out.
    succeeded = status is Status.SUCCEEDED
    if outcome.result is not None and succeeded and outcome.next_check_time is None:
        try:
            result = json.dumps(outcome.result, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            return retry(f"result: it is not JSON: {error}")
    if outcome.next_check_time is not None and succeeded:
        check = outcome.next_check_time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    return Release(status, cut(outcome.message), outcome.cursor, check, result)


def settle_error(error: BaseException) -> Release:
    """The release of what a handler raised."""
    if failed_in(error) is not None:
        return Release(Status.FAILED, cut(str(error)))
    return retry("".join(traceback.format_exception_only(type(error), error)).strip())


def failed_in(error: BaseException | None) -> FailedError | None:
    """The first FailedError among an error and what it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, FailedError):
            return error
        seen.add(id(error))
        error = error.__cause__
    return None


def cut(message: str) -> str:
    """Shortens a message to what Tollgate takes, at the end of a character."""
    return message.encode(errors="replace")[:MESSAGE_MAX].decode(errors="ignore")
