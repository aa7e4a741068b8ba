#!/usr/bin/env python3
"""A consumer in Python: takes events over HTTP, works on each once, and gives its token back by gRPC.

Once:  pip install grpcio-tools
       mkdir gen && python -m grpc_tools.protoc -I proto --python_out=gen --grpc_python_out=gen proto/*/*/*.proto
Then:  LISTEN=127.0.0.1:8080 TOLLGATE=http://127.0.0.1:7411 WEBHOOK_SECRET=whsec_… PYTHONPATH=gen python consumer.py

SIGTERM: takes nothing new, ends the work under way, gives its tokens back.
"""

import base64
import hashlib
import hmac
import json
import logging
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from tollgate.v1 import event_handler_pb2 as api
from tollgate.v1 import event_handler_pb2_grpc as api_grpc

AGE_MAX_S = 300  # an older request may be somebody else's copy
KNOWN_MAX = 10_000  # a real consumer keeps the ids of events beside what its work makes
SECRET = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))

tollgate = api_grpc.EventHandlerServiceStub(
    grpc.insecure_channel(os.environ.get("TOLLGATE", "http://127.0.0.1:7411").removeprefix("http://"))
)
workers = ThreadPoolExecutor(max_workers=64)
known = {}  # from an event's id to its latest attempt, and whether its work is done
lock = threading.Lock()


def work(event):
    """What this consumer is for."""
    tenant = f" of {event['key']}" if "key" in event else ""  # the key of its item, where a list was submitted
    logging.info(f"begin {event['id']} (attempt {event['attempt']}){tenant}")
    time.sleep((event.get("data") or {}).get("workMs", 100) / 1000)
    logging.info(f"done {event['id']}")


def is_signed(headers, body):
    """As the Standard Webhooks specification says."""
    sent = headers.get("webhook-timestamp", "")
    if not sent.isdigit() or abs(time.time() - int(sent)) > AGE_MAX_S:
        return False
    signed = f"{headers.get('webhook-id', '')}.{sent}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256)).decode()
    given = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(expected.encode(), one.encode()) for one in given)


def handle(event):
    event_id, outcome, message = event["id"], api.RELEASE_OUTCOME_SUCCEEDED, ""
    with lock:
        before = known.get(event_id)
        # Whatever comes last is what Tollgate waits for.
        known[event_id] = {"attempt": event["attempt"], "done": bool(before and before["done"])}
        if len(known) > KNOWN_MAX:
            del known[next(iter(known))]
    if before and not before["done"]:
        return  # it came again while it is worked on
    if not before:
        try:
            work(event)
        except Exception as error:  # whatever it is, Tollgate is to send the event again
            outcome, message = api.RELEASE_OUTCOME_RETRY, str(error)
    with lock:
        state = known.get(event_id, {"attempt": event["attempt"]})
        state["done"] = True
        if outcome == api.RELEASE_OUTCOME_RETRY:
            known.pop(event_id, None)
    release = api.ReleaseTokenRequest(
        name=event_id, attempt=state["attempt"], outcome=outcome, message=message
    )
    while True:
        try:
            # A release is idempotent, so it may be repeated until it is answered.
            tollgate.ReleaseToken(release, wait_for_ready=True, timeout=30)
            return
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                logging.info(f"{event_id}: {error.code().name}: {error.details()}")
                return
            time.sleep(1)


class Consumer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not is_signed(self.headers, body):
            return self.answer(401)
        try:
            workers.submit(handle, json.loads(body))
        except (RuntimeError, ValueError) as error:  # it stops, or that was no JSON
            return self.answer(503 if isinstance(error, RuntimeError) else 400)
        # Accepted is not done: the token stays taken until it is released.
        self.answer(202)

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def main():
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
    host, port = os.environ.get("LISTEN", "127.0.0.1:8080").rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), Consumer)
    for number in (signal.SIGTERM, signal.SIGINT):
        # serve_forever cannot be ended by the thread that runs it.
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    logging.info(f"listening on http://{host}:{server.server_port}")
    server.serve_forever()
    workers.shutdown(wait=True)
    logging.info("stopped")


if __name__ == "__main__":
    main()
