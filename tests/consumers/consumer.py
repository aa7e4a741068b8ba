#!/usr/bin/env python3
"""A consumer: takes events over HTTP, works on each, and gives its token back.

Once:  pip install grpcio-tools
       python -m grpc_tools.protoc -I proto --python_out=gen --grpc_python_out=gen proto/*/*/*.proto
Then:  PYTHONPATH=gen python consumer.py --port 8080 --server 127.0.0.1:7411
"""

import argparse
import json
import logging
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from tollgate.v1 import event_handler_pb2 as api
from tollgate.v1 import event_handler_pb2_grpc as api_grpc


def work(event):
    """What this consumer is for."""
    time.sleep(0.02)
    logging.info("done %s (attempt %d): %s", event["id"], event["attempt"], event.get("data"))


def handle(tollgate, event):
    release = api.ReleaseTokenRequest(name=event["id"], attempt=event["attempt"])
    try:
        work(event)
        release.outcome = api.RELEASE_OUTCOME_SUCCEEDED
    except Exception as error:  # whatever it is, Tollgate is to send the event again
        release.outcome = api.RELEASE_OUTCOME_RETRY
        release.message = str(error)
    # A release is idempotent, so it may be repeated until it is answered.
    tollgate.ReleaseToken(release, wait_for_ready=True)


class Consumer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        # Accepted is not done: the token stays taken until the work ends.
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()
        threading.Thread(target=handle, args=(self.server.tollgate, event), daemon=True).start()

    def log_message(self, *_):
        pass


def main():
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
    options = argparse.ArgumentParser(description="Takes events and gives their tokens back.")
    options.add_argument("--port", type=int, default=8080)
    options.add_argument("--server", default="127.0.0.1:7411", help="where Tollgate serves gRPC")
    options = options.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Consumer)
    server.tollgate = api_grpc.EventHandlerServiceStub(grpc.insecure_channel(options.server))
    logging.info("listening on http://127.0.0.1:%d", server.server_port)
    server.serve_forever()


if __name__ == "__main__":
    main()
