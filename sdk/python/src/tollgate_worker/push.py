"""Takes events from requests that Tollgate sends, checks their signatures, and answers them at once."""

import base64
import binascii
import hashlib
import hmac
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .backoff import logger
from .event import Event, event_of
from .loop import Delivery, Loop, Said

# An older request may be somebody else's copy.
AGE_MAX_S = 300
# The longest body that is read.
BODY_MAX = 16 << 20
# What a request that is refused for want of room is told to wait.
RETRY_AFTER_S = 1
# How long answers may still be written after the last event is done.
LAST_ANSWERS_S = 5.0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked may be gone."""
        if not isinstance(sys.exc_info()[1], OSError):
            logger.exception("a request was not answered")


class Http:
    """A small server for a target `http`."""

    def __init__(self, *secrets: str, port: int = 8080, host: str = "0.0.0.0") -> None:
        """Requests are to be signed in one of the secrets: the schedule's target.http.secret, and while it is being changed, the
        one before. It listens from now on."""
        if not secrets:
            raise ValueError("secrets: missing, expected the schedule's target.http.secret")
        self._keys = [_key(secret) for secret in secrets]
        self._loop: Loop | None = None
        self._active = 0
        self._change = threading.Condition()
        self._server = _Server((host, port), _handler(self))

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port where it listens."""
        return str(self._server.server_address[0]), int(self._server.server_address[1])

    def run(self, loop: Loop, _namespace: str, _labels: list[str], _name: str) -> None:
        """Takes events until the worker stops. It goes on answering, so that nobody waits for one who does not."""
        self._loop = loop
        threading.Thread(target=self._server.serve_forever, name="http", daemon=True).start()
        loop.stopping.wait()

    def close(self) -> None:
        """Those who have not read their answers in time do without."""
        with self._change:
            self._change.wait_for(lambda: self._active == 0, LAST_ANSWERS_S)
        if self._loop:
            self._server.shutdown()
        self._server.server_close()

    def answer(self, headers: Message, body: bytes) -> tuple[Said, bool]:
        """The answer to a request, and whether it is JSON."""
        if not self._is_signed(headers, body):
            return Said(401, "not signed in a secret of this worker"), False
        try:
            document = json.loads(body)
            events = [event_of(one) for one in (document if isinstance(document, list) else [document])]
        except ValueError as error:
            words = str(error)
            return Said(400, words if words.startswith("event:") else f"event: it cannot be read: {words}"), False
        if isinstance(document, list):
            return self._many(events), True
        return self._one(events[0]), False

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Until an answer has been written."""
        with self._change:
            self._active += 1
        try:
            yield
        finally:
            with self._change:
                self._active -= 1
                self._change.notify_all()

    def _one(self, event: Event) -> Said:
        """Takes an event if there is room, and works on it before the answer where the answer gives the token back."""
        assert self._loop
        if refusal := self._loop.let_in():
            return Said(503, refusal)
        try:
            if event.is_on_response:
                return self._loop.take_now(event)
            self._loop.take(Delivery(event))
            return Said(202)
        finally:
            self._loop.leave()

    def _many(self, events: list[Event]) -> Said:
        """Answers several events: those that are not taken are refused by name."""
        answers: list[Said | None] = [None] * len(events)

        def one(at: int) -> None:
            answers[at] = self._one(events[at])

        # Only those that are worked on before the answer take time.
        slow = [at for at, event in enumerate(events) if event.is_on_response]
        threads = [threading.Thread(target=one, args=(at,), daemon=True) for at in slow]
        for thread in threads:
            thread.start()
        for at, event in enumerate(events):
            if not event.is_on_response:
                one(at)
        for thread in threads:
            thread.join()
        refused: list[dict[str, object]] = []
        for event, said in zip(events, answers):
            said = said or Said(503, "the worker has no room")
            if said.status // 100 != 2:
                refused.append({"id": event.id, "status": "REFUSED", "message": said.message})
                if said.status == 503:
                    refused[-1]["retryAfterMs"] = RETRY_AFTER_S * 1000
        return Said(202, json.dumps({"events": refused}, separators=(",", ":")))

    def _is_signed(self, headers: Message, body: bytes) -> bool:
        """Checks a request as the Standard Webhooks specification says."""
        sent = headers.get("webhook-timestamp", "")
        if not sent.isascii() or not sent.isdigit() or abs(time.time() - int(sent)) > AGE_MAX_S:
            return False
        signed = f"{headers.get('webhook-id', '')}.{sent}.".encode() + body
        given = [text[3:] for text in headers.get("webhook-signature", "").split() if text.startswith("v1,")]
        for key in self._keys:
            expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
            if any(hmac.compare_digest(text.encode(errors="replace"), expected) for text in given):
                return True
        return False


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if not key:
        raise ValueError("secrets: one cannot be read, expected whsec_ and base64")
    return key


def _handler(source: Http) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Of a connection that is silent.
        timeout = 60

        def do_POST(self) -> None:
            with source.answering():
                body = self._body()
                if body is None:
                    self.close_connection = True
                    self._answer(Said(413, f"the body cannot be read, expected at most {BODY_MAX} bytes"), False)
                else:
                    self._answer(*source.answer(self.headers, body))

        def _body(self) -> bytes | None:
            """The whole body; None where it is too long, or has no end."""
            if self.headers.get("transfer-encoding", "").lower() != "chunked":
                length = self.headers.get("content-length", "")
                return self.rfile.read(int(length)) if length.isdigit() and int(length) <= BODY_MAX else None
            body = b""
            while True:
                size = self.rfile.readline(32).split(b";")[0].strip()
                if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", size) or len(body) + int(size, 16) > BODY_MAX:
                    return None
                if int(size, 16) == 0:
                    break
                body += self.rfile.read(int(size, 16))
                self.rfile.readline(3)
            while self.rfile.readline(1024).strip():
                pass
            return body

        def _other(self) -> None:
            self.close_connection = True
            self._answer(Said(405, "POST is expected"), False)

        do_GET = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = _other

        def _answer(self, said: Said, is_json: bool) -> None:
            body = said.message.encode()
            self.send_response(said.status)
            self.send_header("content-type", "application/json" if is_json else "text/plain; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            if said.status == 503:
                self.send_header("retry-after", str(RETRY_AFTER_S))
            if self.close_connection:
                self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Requests are not logged."""

    return Handler
