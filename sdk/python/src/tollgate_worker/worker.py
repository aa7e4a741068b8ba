"""The worker: its options, its start and its end."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Protocol
from urllib.parse import urlsplit

from .client import Client
from .context import Context
from .event import Event
from .loop import Loop


Handler = Callable[[Event, Context], Any]
"""Works on one event; it may be `async`. What it raises has the event tried again, a FailedError has it fail for good. What it
returns is the result: None, any value that is JSON, or an Outcome."""


class Source(Protocol):
    """Where events come from: Pull, Http or Sqs."""

    def run(self, loop: Loop, namespace: str, labels: list[str], name: str, /) -> None: ...
    def close(self) -> None: ...


class Worker:
    """The loop. A worker runs once."""

    def __init__(
        self,
        source: Source,
        handler: Handler,
        *,
        server: str | None = None,
        key: str | None = None,
        namespace: str = "default",
        concurrency: int = 1,
        labels: Iterable[str] = (),
        name: str | None = None,
        drain_timeout_s: float = 30.0,
        request_timeout_s: float = 10.0,
        first_heartbeat_s: float = 10.0,
    ) -> None:
        """Refuses options that are wrong with a ValueError.

        `server` is where Tollgate is; by default the variable TOLLGATE, else http://127.0.0.1:7411.
        `key` is sent where the server asks for keys; by default the variable TOLLGATE_KEY.
        `concurrency` is the number of events that are worked on at once, each in a thread of its own, 1 to 1,000.
        `labels` say what the worker is able to do, for the source Pull; at most 16.
        `name` is the worker's name for people; by default that of the machine.
        `drain_timeout_s` is how long work may go on after the worker was told to stop.
        `request_timeout_s` is how long an answer of the server may take.
        `first_heartbeat_s` is when the first heartbeat is sent where the source does not say how long silence is allowed.
        It is to be shorter than the policy's token_ttl.
        """
        self._labels = list(labels)
        self._namespace = namespace
        # Of two processes of one machine each is a worker.
        self._name = (f"{socket.gethostname()[:50]}-{os.getpid()}" if name is None else name)[:64]
        self._drain_timeout_s = drain_timeout_s
        self._source = source
        server = (server or os.environ.get("TOLLGATE") or "http://127.0.0.1:7411").rstrip("/")
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"server: {server!r}, expected a URL such as http://127.0.0.1:7411")
        if not 1 <= concurrency <= 1000:
            raise ValueError(f"concurrency: {concurrency}, expected 1 to 1000")
        if len(self._labels) > 16:
            raise ValueError(f"labels: {len(self._labels)}, expected at most 16")
        for option, value_s in [
            ("drain_timeout_s", drain_timeout_s),
            ("request_timeout_s", request_timeout_s),
            ("first_heartbeat_s", first_heartbeat_s),
        ]:
            if value_s <= 0:
                raise ValueError(f"{option}: {value_s}, expected more than 0")
        key = (os.environ.get("TOLLGATE_KEY", "") if key is None else key).strip()
        if not key.isascii() or not key.isprintable():
            raise ValueError("key: characters that no key has, expected what `tollgate key create` printed")
        # As many releases at once as there are events.
        self._client = Client(server, key, request_timeout_s, concurrency + 2)
        self._loop = Loop(self._client, handler, concurrency, first_heartbeat_s)

    def stop(self) -> None:
        """Has the worker take nothing new, end the work under way, give its tokens back, and return from `run`.

        It does not wait."""
        # This queue may be put into from a signal handler, also while the same thread reads from it.
        self._loop.fatal.put(None)

    def run(self) -> None:
        """Works until `stop`, SIGTERM or SIGINT; then it drains. Signals come to it only where it runs in the main thread.

        RefusedError: the server refuses what will not change. RuntimeError: tokens could not be given back.
        """
        previous = self._take_signals()
        try:
            refusal = self._work()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        if refusal:
            raise refusal

    def _work(self) -> Exception | None:
        loop = self._loop
        taking = threading.Thread(target=self._take, name="taking events", daemon=True)
        taking.start()
        refusal = loop.fatal.get()
        loop.stop()
        taking.join()
        left = loop.drain(self._drain_timeout_s)
        self._source.close()
        self._client.close()
        while refusal is None and not loop.fatal.empty():
            refusal = loop.fatal.get()
        return refusal or (RuntimeError(left) if left else None)

    def _take(self) -> None:
        try:
            self._source.run(self._loop, self._namespace, self._labels, self._name)
        except Exception as error:
            self._loop.fatal.put(error)

    def _take_signals(self) -> dict[int, Any]:
        if threading.current_thread() is not threading.main_thread():
            return {}

        def handle(_number: int, _frame: FrameType | None) -> None:
            self.stop()

        return {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
