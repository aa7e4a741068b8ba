"""As much of Tollgate as a worker sees: events to hand out, and what it was told."""

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tollgate_worker import Worker


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A poll that was broken off."""


class Fake:
    """The fake server; `refuse` says what a call is refused with."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.events: list[dict[str, Any]] = []
        self.asks: list[dict[str, Any]] = []
        self.releases: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.beats: Counter[str] = Counter()
        self.keys: set[str | None] = set()
        self.refuse: Callable[[str], tuple[int, str] | None] = lambda path: None
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def put(self, event: str, attempt: int = 1, ttl: str = "", **more: object) -> None:
        document = json.dumps({"id": event, "attempt": attempt, "index": 7, "count": 9, "data": {"n": 1}} | more)
        given = {"name": event, "attempt": attempt, "event": document} | ({"tokenTtl": ttl} if ttl else {})
        with self.lock:
            self.events.append(given)

    def hand_out(self, ask: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            self.asks.append(ask)
        end_s = time.monotonic() + 1
        while time.monotonic() < end_s:
            with self.lock:
                out, self.events = self.events[: ask["maxEvents"]], self.events[ask["maxEvents"] :]
            if out:
                return {"events": out}
            time.sleep(0.002)
        return {}


def _handler(fake: Fake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with fake.lock:
                fake.keys.add(self.headers.get("authorization"))
            if refusal := fake.refuse(self.path):
                self._answer(*refusal)
                return
            name, _, verb = self.path.rpartition("/")[2].rpartition(":")
            answer: dict[str, Any] = {}
            if verb == "acquire":
                answer = fake.hand_out(body)
            elif verb == "release":
                with fake.lock:
                    fake.releases[name].append(body)
                answer = {"status": "RELEASED"}
            else:
                with fake.lock:
                    fake.beats[name] += 1
                answer = {"remaining": "0.300s"}
            self._answer(200, json.dumps(answer))

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(text.encode())))
            self.send_header("retry-after", "0")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *arguments: Any) -> None:
            """Requests are not logged."""

    return Handler


def until(what: str, true: Callable[[], bool]) -> None:
    """Waits for what is to come about."""
    end_s = time.monotonic() + 60
    while not true():
        if time.monotonic() > end_s:
            raise AssertionError(f"{what} did not come about")
        time.sleep(0.002)


class Running:
    """A worker that runs in a thread."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:
            self.error = error

    def end(self) -> BaseException | None:
        """Waits for its end, and returns what `run` raised."""
        self._thread.join(60)
        assert not self._thread.is_alive(), "the worker does not end"
        return self.error

    def stop(self) -> None:
        """Stops it; nothing may be raised."""
        self.worker.stop()
        if error := self.end():
            raise error


@contextmanager
def fake_server() -> Iterator[Fake]:
    """A fake for one test."""
    fake = Fake()
    try:
        yield fake
    finally:
        fake.close()
