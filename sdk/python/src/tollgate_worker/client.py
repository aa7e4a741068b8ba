"""Speaks to Tollgate by REST, with the standard library alone."""

import http.client
import json
import re
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from .outcome import Release, cut

# The longest answer that is read.
ANSWER_MAX = 64 << 20
# How long a connection is kept without a use: what lies between may forget it.
IDLE_MAX_S = 60.0


class RefusedError(Exception):
    """An answer of the server that will not change: a wrong key, a wrong field."""

    def __init__(self, http_status: int, code: int, message: str) -> None:
        super().__init__(f"HTTP {http_status}: {message}")
        self.http_status = http_status
        """The status of the answer."""
        self.code = code
        """The number of the gRPC status, such as 3 for INVALID_ARGUMENT; 0 where the answer has none."""
        self.message = message
        """The server's message."""


class BusyError(Exception):
    """A failure after which the call is repeated."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Breaker:
    """Breaks off the call that it was given to, now or when it begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._broken = False

    def holds(self, connection: socket.socket | None) -> None:
        with self._lock:
            if self._broken and connection is not None:
                raise OSError("the call was broken off")
            self._socket = connection

    @property
    def is_broken(self) -> bool:
        """Whether it has been broken off."""
        with self._lock:
            return self._broken

    def break_off(self) -> None:
        """Has the call fail at once."""
        with self._lock:
            self._broken = True
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    # It has just been closed.
                    pass


@dataclass
class Acquired:
    """An event that an answer holds: a document as text, and what goes with it."""

    name: str
    attempt: int
    ttl_s: float
    event: str


class Client:
    """Calls over connections that are kept."""

    def __init__(self, server: str, key: str, timeout_s: float, idle_max: int) -> None:
        parts = urlsplit(server)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._base = parts.path
        self._headers = {"content-type": "application/json"}
        if key:
            self._headers["authorization"] = f"Bearer {key}"
        self._timeout_s = timeout_s
        # The one that was used last comes last.
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._idle_max = idle_max
        self._lock = threading.Lock()

    def acquire(
        self, namespace: str, queue: str, ask: dict[str, Any], wait_s: float, breaker: Breaker
    ) -> list[Acquired]:
        path = f"/v1/namespaces/{quote(namespace, safe='')}/queues/{quote(queue, safe='')}:acquire"
        answer = self._post(path, ask, wait_s + self._timeout_s, breaker)
        return [
            Acquired(one["name"], one.get("attempt", 1), span_s(one.get("tokenTtl")), one["event"])
            for one in answer.get("events", [])
        ]

    def release(self, event: str, release: Release) -> str:
        """Returns how it was taken, such as RELEASED."""
        path = f"/v1/events/{quote(event, safe='')}:release"
        return str(self._post(path, release.body(), self._timeout_s).get("status", ""))

    def extend(self, event: str, attempt: int) -> float:
        """The heartbeat. Returns for how many seconds silence is allowed from now; 0 where that is not said."""
        path = f"/v1/events/{quote(event, safe='')}:extend"
        return span_s(self._post(path, {"attempt": attempt}, self._timeout_s).get("remaining"))

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _post(self, path: str, body: dict[str, Any], limit_s: float, breaker: Breaker | None = None) -> dict[str, Any]:
        text = json.dumps(body).encode()
        while True:
            connection, is_kept = self._connection()
            try:
                status, headers, said = self._exchange(connection, path, text, limit_s, breaker)
                break
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                # The server may have closed it meanwhile. Each call may be made twice.
                if not is_kept or isinstance(error, TimeoutError) or (breaker and breaker.is_broken):
                    raise BusyError(f"{type(error).__name__}: {error}") from error
            finally:
                if breaker:
                    breaker.holds(None)
        if status // 100 != 2:
            raise problem(status, headers, said)
        try:
            answer = json.loads(said)
        except ValueError as error:
            raise BusyError(f"an answer that is not JSON: {error}") from error
        return answer if isinstance(answer, dict) else {}

    def _exchange(
        self, connection: http.client.HTTPConnection, path: str, text: bytes, limit_s: float, breaker: Breaker | None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        is_new = connection.sock is None
        if is_new:
            connection.connect()
        if is_new:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.sock.settimeout(limit_s)
        if breaker:
            breaker.holds(connection.sock)
        connection.request("POST", self._base + path, text, self._headers)
        response = connection.getresponse()
        said = response.read(ANSWER_MAX)
        if response.isclosed() and not response.will_close:
            self._keep(connection)
        else:
            connection.close()
        return response.status, response.headers, said

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            while self._idle and time.monotonic() - self._idle[0][0] > IDLE_MAX_S:
                self._idle.pop(0)[1].close()
            if self._idle:
                return self._idle.pop()[1], True
        if self._tls:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout_s, context=self._tls
            ), False
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s), False

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < self._idle_max:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()


def problem(status: int, headers: http.client.HTTPMessage, said: bytes) -> Exception:
    """What a refusal says, and whether it may pass."""
    try:
        told = json.loads(said)
        code, message = int(told.get("code", 0)), str(told["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        code, message = 0, cut(said.decode(errors="replace")).strip()
    if (status >= 500 and status != 501) or status in (408, 429):
        after = headers.get("retry-after", "")
        # Absent, or a date: the back-off alone says when.
        return BusyError(f"HTTP {status}: {message}", float(after) if re.fullmatch(r"\d{1,9}", after) else 0.0)
    return RefusedError(status, code, message)


def span_s(text: object) -> float:
    """Seconds of a duration as the API writes it: "900s", "1.500s"; 0 where there is none."""
    if isinstance(text, str) and re.fullmatch(r"\d+(\.\d+)?s", text):
        return float(text[:-1])
    return 0.0
