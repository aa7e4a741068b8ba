"""The sources Http and Sqs, against a fake server."""

import base64
import hashlib
import hmac
import http.client
import json
import threading
import time
import unittest
from collections import Counter
from typing import Any
from unittest import mock

from fake import Running, fake_server, until

from tollgate_worker import Context, Event, FailedError, Http, Sqs, Worker

SECRET = "whsec_YS1zZWNyZXQtdGhhdC1ldmVyeWJvZHkta25vd3M="
NEW = "whsec_" + base64.b64encode(b"new").decode()


def send(http_: Http, body: str, secret: str = SECRET, age_s: int = 0, method: str = "POST") -> tuple[int, str, str | None]:
    """Sends a body, signed in a secret. Returns the status, the body and the Retry-After of the answer."""
    sent = str(int(time.time()) - age_s)
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.new(key, f"id.{sent}.{body}".encode(), hashlib.sha256).digest()
    headers = {
        "webhook-id": "id",
        "webhook-timestamp": sent,
        "webhook-signature": "v1,AAAA v1," + base64.b64encode(mac).decode(),
    }
    connection = http.client.HTTPConnection(*http_.address, timeout=60)
    connection.request(method, "/", body, headers)
    answer = connection.getresponse()
    said = answer.read().decode()
    connection.close()
    return answer.status, said, answer.headers.get("retry-after")


class ByHttp(unittest.TestCase):
    def test_it_takes_what_is_signed_and_refuses_what_it_has_no_room_for(self) -> None:
        let = threading.Event()
        begun: list[str] = []

        def work(event: Event, _context: Context) -> None:
            begun.append(event.id)
            if event.id.startswith("slow"):
                let.wait(15)
            if event.id == "bad":
                raise OSError("disk full")

        source = Http(NEW, SECRET, host="127.0.0.1", port=0)

        def expect(body: str, status: int, words: str, **how: Any) -> None:
            answered, said, after = send(source, body, **how)
            self.assertEqual((answered, after), (status, "1" if status == 503 else None), body + said)
            self.assertIn(words, said)

        with fake_server() as fake:
            running = Running(Worker(source, work, server=fake.url, concurrency=2))
            expect('{"id": "forged"}', 401, "not signed", secret="whsec_Zm9yZ2Vk")
            expect('{"id": "old"}', 401, "not signed", age_s=3600)
            expect('{"attempt": 1}', 400, "id: missing")
            expect("{", 400, "event: it cannot be read")
            expect("", 405, "POST", method="PUT")
            expect('{"id": "good", "release": "on_response"}', 200, "", secret=NEW)
            expect('{"id": "bad", "release": "on_response"}', 500, "disk full")
            expect('{"id": "slow-1"}', 202, "")
            until("work", lambda: len(begun) == 3)
            expect('{"id": "slow-1", "release": "on_response"}', 409, "being worked on")
            expect('[{"id": "slow-2"}]', 202, '{"events":[]}')
            until("work", lambda: len(begun) == 4)
            expect('{"id": "more"}', 503, "no room")
            refused = '{"id":"many","status":"REFUSED","message":"the worker has no room","retryAfterMs":1000}'
            expect('[{"id": "more"}, {"id": "many"}]', 202, refused)
            running.worker.stop()
            until("the end of taking", lambda: send(source, '{"id": "late"}')[1] == "the worker stops")
            expect('{"id": "late"}', 503, "stops")
            let.set()
            self.assertIsNone(running.end())
            self.assertEqual(begun, ["good", "bad", "slow-1", "slow-2"])
            self.assertEqual({name: len(told) for name, told in fake.releases.items()}, {"slow-1": 1, "slow-2": 1})
            self.assertRaises(OSError, send, source, "{}")

    def test_bodies_in_chunks_are_read_and_endless_ones_refused(self) -> None:
        source = Http(SECRET, host="::1", port=0)
        self.addCleanup(source.close)

        def chunks(body: list[bytes]) -> int:
            connection = http.client.HTTPConnection(*source.address, timeout=60)
            connection.request("POST", "/", iter(body), {"transfer-encoding": "chunked"}, encode_chunked=True)
            return connection.getresponse().status

        with fake_server() as fake:
            running = Running(Worker(source, lambda _event, _context: None, server=fake.url))
            self.assertEqual(chunks([b"{}", b" "]), 401, "it was read, and is not signed")
            self.assertEqual(chunks([b"x" * (1 << 20)] * 17), 413)
            running.stop()

    def test_several_that_wait_for_their_answers_are_worked_on_at_once(self) -> None:
        both = threading.Barrier(2, timeout=60)
        source = Http(SECRET, host="127.0.0.1", port=0)
        with fake_server() as fake:
            running = Running(Worker(source, lambda _event, _context: both.wait() and None, server=fake.url, concurrency=2))
            body = json.dumps([{"id": name, "release": "on_response"} for name in ("a", "b")])
            self.assertEqual(send(source, body)[:2], (202, '{"events":[]}'))
            running.stop()

    def test_secrets_that_cannot_be_read_are_refused(self) -> None:
        for secrets in ((), ("",), ("whsec_&",)):
            with self.assertRaisesRegex(ValueError, "^secrets: "):
                Http(*secrets, host="127.0.0.1", port=0)


class FakeQueue:
    """A queue of SQS in memory, as a client of boto3."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.messages: list[dict[str, str]] = []
        self.deleted: list[str] = []
        self.hidden: Counter[str] = Counter()
        self.fails = 0
        self.most = 0

    def receive_message(self, **arguments: Any) -> dict[str, Any]:
        most: int = arguments["MaxNumberOfMessages"]
        time.sleep(0.002)
        with self.lock:
            if self.fails > 0:
                self.fails -= 1
                raise OSError("throttled")
            self.most = max(self.most, most)
            out, self.messages = self.messages[:most], self.messages[most:]
            return {"Messages": out} if out else {}

    def delete_message(self, **arguments: Any) -> None:
        with self.lock:
            self.deleted.append(arguments["ReceiptHandle"])

    def change_message_visibility(self, **arguments: Any) -> None:
        with self.lock:
            self.hidden[arguments["ReceiptHandle"]] += 1


class LateQueue(FakeQueue):
    """A queue that hands out what it has, and is asked by one poll more, which it answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = [{"Body": '{"id": "before", "attempt": 1}', "ReceiptHandle": "before"}]
        self.shown: list[str] = []
        self.asked, self.let = threading.Event(), threading.Event()

    def receive_message(self, **arguments: Any) -> dict[str, Any]:
        if answer := super().receive_message(**arguments):
            return answer
        self.asked.set()
        self.let.wait(15)
        late = ["gone", *(f"late-{n}" for n in range(arguments["MaxNumberOfMessages"]))]
        return {"Messages": [{"Body": json.dumps({"id": name}), "ReceiptHandle": name} for name in late]}

    def change_message_visibility(self, **arguments: Any) -> None:
        if arguments["VisibilityTimeout"] > 0:
            return
        if arguments["ReceiptHandle"] == "gone":
            raise OSError("no such message")
        self.shown.append(arguments["ReceiptHandle"])


class BySqs(unittest.TestCase):
    def test_what_a_poll_brings_after_a_stop_is_shown_again(self) -> None:
        queue, end, works = LateQueue(), threading.Event(), list[str]()

        def work(event: Event, _context: Context) -> None:
            works.append(event.id)
            end.wait(15)

        with fake_server() as fake:
            running = Running(Worker(Sqs("queue", queue), work, server=fake.url, concurrency=3))
            self.assertTrue(queue.asked.wait(15))
            running.worker.stop()
            # Releases do not wait for the poll.
            end.set()
            until("the release of what was begun", lambda: queue.deleted == ["before"])
            self.assertEqual(queue.shown, [])
            with self.assertLogs("tollgate_worker", "WARNING") as log:
                queue.let.set()
                self.assertIsNone(running.end())
        self.assertEqual((works, queue.shown), (["before"], ["late-0", "late-1"]))
        self.assertEqual(len(log.output), 1)
        self.assertIn("a message is not shown again, and comes when its visibility ends: no such message", log.output[0])

    def test_a_stop_waits_for_a_poll_no_longer_than_it_may(self) -> None:
        for last_poll_s, drain_timeout_s in [(0.2, 30.0), (30.0, 0.2)]:
            queue = LateQueue()
            with fake_server() as fake, mock.patch("tollgate_worker.sqs.LAST_POLL_S", last_poll_s):
                source = Sqs("queue", queue)
                worker = Worker(source, lambda _event, _context: None, server=fake.url, drain_timeout_s=drain_timeout_s)
                running = Running(worker)
                self.assertTrue(queue.asked.wait(15))
                stopped_s = time.monotonic()
                running.stop()
                self.assertTrue(0.15 < time.monotonic() - stopped_s < 5)
                with self.assertLogs("tollgate_worker", "WARNING"):
                    queue.let.set()
                    # It comes too late for the stop, and is shown again as long as the process goes on.
                    until("what came late", lambda: queue.shown == ["late-0"])

    def test_a_message_is_deleted_after_its_release_was_answered(self) -> None:
        queue = FakeQueue()
        queue.fails = 2
        queue.messages = [{"Body": "no event", "ReceiptHandle": "x"}]
        queue.messages += [{"Body": f'{{"id": "e{n}", "attempt": 1}}', "ReceiptHandle": f"{n}"} for n in range(5)]
        holds = True
        with fake_server() as fake:
            fake.refuse = lambda path: (503, "busy") if holds else None
            with self.assertLogs("tollgate_worker", "WARNING"):
                source = Sqs("queue", queue, visibility_s=3)
                running = Running(Worker(source, lambda _event, _context: None, server=fake.url, concurrency=3))
                until("a message that is hidden again", lambda: queue.hidden["0"] > 1)
                self.assertEqual(queue.deleted, [])
                holds = False
                until("an empty queue", lambda: len(queue.deleted) == 5)
                running.stop()
            self.assertEqual({name: len(told) for name, told in fake.releases.items()}, {f"e{n}": 1 for n in range(5)})
        self.assertEqual((sorted(queue.deleted), queue.most), ([f"{n}" for n in range(5)], 3))

    def test_a_message_whose_event_needs_no_release_is_deleted_after_the_work(self) -> None:
        queue = FakeQueue()
        works: list[str] = []

        def work(event: Event, context: Context) -> None:
            works.append(event.id)
            context.heartbeat()
            if context.wait(2.5 if event.id == "slow" else 0):
                raise AssertionError("it was cancelled")
            if event.id == "failed":
                raise FailedError("no such file")
            if event.id == "bad" and works.count("bad") == 1:
                raise OSError("disk full")

        def put(event: str, receipt: str) -> None:
            with queue.lock:
                body = json.dumps({"id": event, "attempt": 1, "release": "on_response"})
                queue.messages.append({"Body": body, "ReceiptHandle": receipt})

        calls: list[str] = []
        with fake_server() as fake:

            def refuse(path: str) -> tuple[int, str]:
                calls.append(path)
                return 400, '{"code": 9, "message": "the event holds no token"}'

            fake.refuse = refuse
            source = Sqs("queue", queue, visibility_s=3)
            running = Running(Worker(source, work, server=fake.url, first_heartbeat_s=0.05))
            with self.assertLogs("tollgate_worker", "ERROR") as log:
                for event in ("slow", "bad", "failed"):
                    put(event, event)
                until("all but the one that is left", lambda: queue.deleted == ["slow", "failed"])
                # It shows again, under the same attempt; and so does one that is done.
                put("bad", "bad again")
                put("slow", "slow again")
                until("an empty queue", lambda: len(queue.deleted) == 4)
            running.stop()
        self.assertEqual((works, calls), (["slow", "bad", "failed", "bad"], []))
        self.assertEqual(queue.deleted, ["slow", "failed", "bad again", "slow again"])
        self.assertGreater(queue.hidden["slow"], 1)
        told = [
            "event bad: failed, and is left to its queue: OSError: disk full",
            "event failed: failed, and counts as done, as its token has gone: no such file",
        ]
        self.assertEqual(log.output, [f"ERROR:tollgate_worker:{line}" for line in told])


if __name__ == "__main__":
    unittest.main()
