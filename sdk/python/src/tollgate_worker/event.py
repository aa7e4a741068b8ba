"""One event as Tollgate delivers it."""

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass
class Event:
    """A CloudEvents 1.0 document."""

    id: str
    """The same on every delivery."""
    attempt: int = 1
    """1 for the first delivery; it grows."""
    time: datetime | None = None
    """When the event fell due."""
    schedule: str = ""
    """The name of the schedule: namespaces/{namespace}/schedules/{schedule}."""
    run: str = ""
    """The name of the run: namespaces/{namespace}/runs/{run}."""
    policy: str = ""
    """The name of the policy; empty where there is none."""
    index: int = 0
    """Counts from 0 to count - 1."""
    count: int = 0
    """The number of events of the run."""
    key: str = ""
    """Says whose event it is; empty where there is none."""
    cursor: str | None = None
    """What an earlier run left; None where there is none."""
    checks: int = 0
    """How often the event has come again as its consumer asked."""
    release: str = "explicit"
    """"explicit", or "on_response" where the token comes back as soon as the event is taken; by HTTP, with the answer."""
    traceparent: str = ""
    """Leads to the trace of the event; empty where traces are off."""
    data: Any = None
    """The payload; None where there is none."""
    attributes: dict[str, Any] = field(default_factory=dict)
    """Every member of the document, also those above."""

    @property
    def is_on_response(self) -> bool:
        """Whether the token comes back without a release."""
        return self.release == "on_response"


_TEXTS = ("schedule", "run", "policy", "key", "release", "traceparent")
_NUMBERS = ("attempt", "index", "count", "checks")


def parse_event(text: str | bytes) -> Event:
    """Reads one document. ValueError: why it cannot be read."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"event: it cannot be read: {error}") from error
    return event_of(document)


def event_of(document: object) -> Event:
    """Reads a document that is JSON already. ValueError: the member that is wrong."""
    if not isinstance(document, dict):
        raise ValueError("event: it cannot be read: not an object")
    if not isinstance(document.get("id"), str) or not document["id"]:
        raise ValueError("event: id: missing")
    event = Event(document["id"], data=document.get("data"), attributes=document)
    for name, kind in [*((name, str) for name in _TEXTS), *((name, int) for name in _NUMBERS), ("cursor", str)]:
        value = document.get(name)
        if value is None:
            continue
        if not isinstance(value, kind):
            raise ValueError(f"event: {name}: {value!r}, expected a {'text' if kind is str else 'number'}")
        setattr(event, name, value)
    if isinstance(document.get("time"), str):
        event.time = time_of(document["time"])
    return event


def release_of(text: str) -> str:
    """The member `release` of a document of which others cannot be read; "explicit" where it cannot be read either."""
    try:
        document = json.loads(text)
    except ValueError:
        return "explicit"
    release = document.get("release") if isinstance(document, dict) else None
    return release if isinstance(release, str) else "explicit"


def time_of(text: str) -> datetime:
    """Reads a time of RFC 3339; what is shorter than a microsecond is left out."""
    found = re.fullmatch(r"(.*\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", text)
    if not found:
        raise ValueError(f"event: time: {text!r}, expected a time such as 2026-11-28T03:00:00Z")
    seconds, fraction, zone = found.groups()
    micros = (fraction or "")[:6].ljust(6, "0")
    return datetime.fromisoformat(f"{seconds}.{micros}{'+00:00' if zone == 'Z' else zone}")
