"""The loop over the source Pull, against a fake server."""

import os
import signal
import threading
import time
import unittest
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from fake import Fake, Running, until

from tollgate_worker import (
    Context,
    Event,
    FailedError,
    Handler,
    Outcome,
    Pull,
    RefusedError,
    Sqs,
    Status,
    TokenLostError,
    Worker,
)
from tollgate_worker.event import parse_event
from tollgate_worker.known import Known, Verdict
from tollgate_worker.outcome import Release, retry


def worker(fake: Fake, handler: Handler, concurrency: int = 1, **options: Any) -> Worker:
    return Worker(
        Pull("render", wait_s=1), handler, server=fake.url, key="tgk_1", labels=["gpu"], name="render-1",
        concurrency=concurrency, **options,
    )  # fmt: skip


class Broken(FailedError):
    def __str__(self) -> str:
        raise ValueError("it has no words")


def nothing(_event: Event, _context: Context) -> None:
    return None


class Loop(unittest.TestCase):
    def setUp(self) -> None:
        self.fake = Fake()
        self.addCleanup(self.fake.close)

    def released(self, event: str) -> list[dict[str, Any]]:
        with self.fake.lock:
            return list(self.fake.releases[event])

    def until_released(self, event: str, count: int = 1) -> None:
        until(f"release {count} of {event}", lambda: len(self.released(event)) >= count)

    def test_each_event_is_done_once_and_never_more_than_there_is_room_for(self) -> None:
        lock = threading.Lock()
        now, most = 0, 0

        def work(_event: Event, _context: Context) -> dict[str, int]:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.02)
            with lock:
                now -= 1
            return {"pages": 3}

        running = Running(worker(self.fake, work, 3))
        for n in range(20):
            self.fake.put(f"e{n}", ttl="900s")
        for n in range(20):
            self.until_released(f"e{n}")
        running.stop()
        self.assertEqual(most, 3)
        for n in range(20):
            told = {"attempt": 1, "outcome": "SUCCEEDED", "result": {"pages": 3}}
            self.assertEqual(self.released(f"e{n}"), [told])
        for ask in self.fake.asks:
            self.assertIn(ask.pop("maxEvents"), (1, 2, 3))
            self.assertEqual(ask, {"wait": "1.000s", "labels": ["gpu"], "worker": "render-1"})
        self.assertEqual(self.fake.keys, {"Bearer tgk_1"})

    def test_what_a_handler_says_is_what_is_released(self) -> None:
        at = datetime(2026, 11, 28, 3, tzinfo=timezone.utc)

        def work(event: Event, context: Context) -> Any:
            if event.id == "error":
                raise OSError("disk full")
            if event.id == "failed":
                raise RuntimeError("later") from FailedError("no such file")
            if event.id == "exit":
                raise SystemExit(3)
            if event.id == "told":
                context.set_cursor("page-2")
                context.set_next_check_time(at)
                context.set_message("half")
                # It is left out: the event comes again.
                return 7
            if event.id == "later":
                raise OSError("network") from None
            if event.id == "handled":
                try:
                    raise FailedError("not in the cache")
                except FailedError:
                    raise OSError("network")  # noqa: B904
            if event.id == "cursor":
                context.set_cursor(7)  # type: ignore[arg-type]
            if event.id == "broken":
                raise Broken(1)
            if event.id == "refused":
                return Outcome(Status.FAILED, "no", result=1, next_check_time=at)
            if event.id == "outcome":
                return Outcome(Status.FAILED, "no")
            if event.id == "unwritable":
                return float("nan")
            if event.id == "unknown":
                return Outcome("DONE")  # type: ignore[arg-type]
            if event.id == "long":
                raise FailedError("é" * 4000)
            return None

        async def work_async(event: Event, context: Context) -> Any:
            return work(event, context)

        expected: dict[str, dict[str, Any]] = {
            "error": {"outcome": "RETRY", "message": "OSError: disk full"},
            "failed": {"outcome": "FAILED", "message": "later"},
            "exit": {"outcome": "RETRY", "message": "SystemExit: 3"},
            "told": {
                "outcome": "SUCCEEDED", "message": "half", "cursor": "page-2",
                "nextCheckTime": "2026-11-28T03:00:00Z",
            },
            "later": {"outcome": "RETRY", "message": "OSError: network"},
            "handled": {"outcome": "RETRY", "message": "OSError: network"},
            "cursor": {"outcome": "RETRY", "message": "cursor: int, expected a text"},
            "broken": {"outcome": "RETRY", "message": "what the handler raised cannot be told"},
            "refused": {"outcome": "FAILED", "message": "no"},
            "outcome": {"outcome": "FAILED", "message": "no"},
            "unwritable": {
                "outcome": "RETRY",
                "message": "result: it is not JSON: Out of range float values are not JSON compliant",
            },
            "unknown": {"outcome": "RETRY", "message": "ValueError: 'DONE' is not a valid Status"},
            "long": {"outcome": "FAILED", "message": "é" * 2048},
        }  # fmt: skip
        for round_, handler in enumerate((work, work_async), 1):
            running = Running(worker(self.fake, handler, 8))
            with self.assertLogs("tollgate_worker", "WARNING") as log:
                for event in expected:
                    self.fake.put(event)
                for event, body in expected.items():
                    self.until_released(event, round_)
                    said = self.released(event)[-1]
                    if event == "unwritable":
                        # Newer releases of Python name the value, too.
                        said["message"] = said["message"].partition(": nan")[0]
                    self.assertEqual(said, {"attempt": 1} | body)
            running.stop()
            # With the traceback.
            self.assertTrue(any("OSError: disk full" in line and "line " in line for line in log.output), log.output)

    def test_heartbeats_come_at_a_third_of_the_time_to_live(self) -> None:
        took_s: dict[str, float] = {}

        def work(event: Event, _context: Context) -> None:
            begun_s = time.monotonic()
            until("twelve heartbeats", lambda: self.fake.beats[event.id] >= 12)
            took_s[event.id] = time.monotonic() - begun_s

        running = Running(worker(self.fake, work, 2, first_heartbeat_s=0.05))
        self.fake.put("told", ttl="0.300s")
        self.fake.put("untold")
        self.until_released("told")
        self.until_released("untold")
        running.stop()
        # At 100, 200, …; and at 50, 150, …: the answer says 0.3 s. Later on a slow machine, never sooner.
        for event in ("told", "untold"):
            self.assertTrue(0.8 <= took_s[event] < 30, took_s)

    def test_a_handler_is_told_that_its_token_is_lost(self) -> None:
        refusal = (400, '{"code": 9, "message": "the event holds no token"}')
        self.fake.refuse = lambda path: refusal if path.endswith(":extend") else None
        by_hand: list[str] = []

        def work(event: Event, context: Context) -> None:
            if event.id == "hand":
                try:
                    context.heartbeat()
                except TokenLostError as error:
                    by_hand.append(str(error))
            if not context.wait(10):
                raise AssertionError("it was not told")
            self.assertTrue(context.is_cancelled)

        running = Running(worker(self.fake, work))
        self.fake.put("lost", ttl="0.060s")
        self.fake.put("hand", ttl="900s")
        for event in ("lost", "hand"):
            self.until_released(event)
            self.assertEqual(self.released(event)[0]["outcome"], "SUCCEEDED")
        running.stop()
        self.assertEqual(by_hand, ["the event is no longer held by this worker"])

    def test_a_heartbeat_by_hand_in_an_outage_ends_nothing(self) -> None:
        self.fake.refuse = lambda path: (503, "busy") if path.endswith(":extend") else None
        running = Running(worker(self.fake, lambda _event, context: context.heartbeat()))
        with self.assertLogs("tollgate_worker", "WARNING"):
            self.fake.put("e", ttl="900s")
            self.until_released("e")
        running.stop()
        self.assertEqual(self.released("e"), [{"attempt": 1, "outcome": "SUCCEEDED"}])

    def test_repeats_are_not_worked_on_again_and_next_attempts_are(self) -> None:
        works: list[str] = []
        let = threading.Event()

        def work(event: Event, _context: Context) -> None:
            works.append(event.id)
            if event.id == "slow":
                let.wait(15)
            if event.id == "again" and event.attempt == 1:
                raise ValueError("not yet")

        running = Running(worker(self.fake, work, 4))
        self.fake.put("slow", 1)
        until("the begin of the slow one", lambda: "slow" in works)
        self.fake.put("slow", 2)
        self.fake.put("again", 1)
        self.until_released("again")
        self.fake.put("again", 2)
        self.until_released("again", 2)
        let.set()
        self.until_released("slow")
        self.fake.put("slow", 3)
        self.until_released("slow", 2)
        running.stop()
        self.assertEqual(sorted(works), ["again", "again", "slow"])
        self.assertEqual([body["attempt"] for body in self.released("slow")], [2, 3])
        again = self.released("again")
        self.assertEqual([(body["outcome"], body["attempt"]) for body in again], [("RETRY", 1), ("SUCCEEDED", 2)])

    def none_is_told(self) -> list[str]:
        """The calls that are made beside polls; the server holds no token."""
        calls: list[str] = []

        def refuse(path: str) -> tuple[int, str] | None:
            if path.endswith(":acquire"):
                return None
            calls.append(path)
            return 400, '{"code": 9, "message": "the event holds no token"}'

        self.fake.refuse = refuse
        return calls

    def test_an_event_whose_token_has_gone_is_worked_on_and_nobody_told(self) -> None:
        calls = self.none_is_told()
        works: list[str] = []
        cancelled: list[bool] = []

        def work(event: Event, context: Context) -> None:
            works.append(event.id)
            if event.id == "slow":
                context.heartbeat()
                cancelled.append(context.wait(0.4))
            if event.id == "bad":
                raise FailedError("no such file") if "last" in works else OSError("disk full")

        running = Running(worker(self.fake, work, first_heartbeat_s=0.05))
        with self.assertLogs("tollgate_worker", "ERROR") as log:
            # With one place. One that is done is passed over, one that failed is tried again, and what cannot be read is lost.
            for event in ("slow", "bad", "last", "slow", "bad"):
                self.fake.put(event, ttl="0.060s", release="on_response")
            self.fake.put("odd", release="on_response", index="one")
            self.fake.put("end", release="on_response")
            until("the end", lambda: works[-1:] == ["end"])
        running.stop()
        self.assertEqual((works, cancelled, calls), (["slow", "bad", "last", "bad", "end"], [False], []))
        failed = "ERROR:tollgate_worker:event bad: failed, and counts as done, as its token has gone: "
        lost = "ERROR:tollgate_worker:event odd: lost, as its token has gone: event: index: 'one', expected a number"
        self.assertEqual(log.output, [failed + "OSError: disk full", failed + "no such file", lost])

    def test_a_drain_gives_up_an_event_whose_token_has_gone(self) -> None:
        calls = self.none_is_told()
        begun = threading.Event()
        ended: list[bool] = []

        def work(_event: Event, context: Context) -> None:
            begun.set()
            ended.append(context.wait(15))

        running = Running(worker(self.fake, work, drain_timeout_s=0.2))
        self.fake.put("long", release="on_response")
        self.assertTrue(begun.wait(15))
        begun_s = time.monotonic()
        with self.assertLogs("tollgate_worker", "ERROR") as log:
            running.stop()
        self.assertLess(time.monotonic() - begun_s, 8)
        until("its end", lambda: ended == [True])
        self.assertEqual(calls, [])
        words = "event long: failed, and counts as done, as its token has gone: the worker stopped before the event was done"
        self.assertEqual(log.output, [f"ERROR:tollgate_worker:{words}"])

    def test_an_event_that_cannot_be_read_is_given_back(self) -> None:
        running = Running(worker(self.fake, nothing))
        with self.assertLogs("tollgate_worker", "ERROR"), self.fake.lock:
            self.fake.events.append({"name": "e", "attempt": 2, "event": '{"id": "e", "index": "one"}'})
            self.fake.lock.release()
            self.until_released("e")
            self.fake.lock.acquire()
        running.stop()
        body = {"attempt": 2, "outcome": "RETRY", "message": "event: index: 'one', expected a number"}
        self.assertEqual(self.released("e"), [body])

    def test_an_outage_ends_nothing_and_is_logged_once(self) -> None:
        tries = 0

        def refuse(_path: str) -> tuple[int, str] | None:
            nonlocal tries
            tries += 1
            return ((503, 429, 500)[tries % 3], "busy") if tries <= 6 else None

        self.fake.refuse = refuse
        with self.assertLogs("tollgate_worker", "WARNING") as log:
            running = Running(worker(self.fake, nothing))
            self.fake.put("e")
            self.until_released("e")
            tries = 3
            self.fake.put("f")
            self.until_released("f")
            running.stop()
        fails = [line for line in log.output if "taking events fails" in line]
        works = [line for line in log.output if "taking events works again" in line]
        self.assertTrue(len(fails) == len(works) <= 2, log.output)

    def test_a_refusal_for_good_ends_the_loop(self) -> None:
        refusals = {
            400: '{"code": 3, "message": "labels: GPU, expected lower-case letters"}',
            401: '{"code": 16, "message": "a key is missing"}',
            403: '{"code": 7, "message": "the key may not"}',
            501: '{"code": 12, "message": "no such call"}',
        }
        for refusal in refusals.items():
            status, body = refusal

            def refuse(_path: str, refusal: tuple[int, str] = refusal) -> tuple[int, str] | None:
                return refusal

            self.fake.refuse = refuse
            error = Running(worker(self.fake, nothing)).end()
            assert isinstance(error, RefusedError), error
            self.assertEqual(error.http_status, status)
            self.assertIn(error.message, body)

    def test_a_refused_release_ends_the_loop_or_has_the_event_come_again(self) -> None:
        tries = 0

        def refuse(path: str) -> tuple[int, str] | None:
            nonlocal tries
            tries += path.endswith(":release")
            first = path.endswith(":release") and tries == 1
            return (400, '{"code": 3, "message": "next_check_time: too late"}') if first else None

        self.fake.refuse = refuse
        running = Running(worker(self.fake, nothing))
        with self.assertLogs("tollgate_worker", "WARNING"):
            self.fake.put("e", 4)
            self.until_released("e")
        running.stop()
        message = "the release was refused: next_check_time: too late"
        self.assertEqual(self.released("e"), [{"attempt": 4, "outcome": "RETRY", "message": message}])

        self.fake.refuse = lambda path: (403, '{"message": "revoked"}') if path.endswith(":release") else None
        running = Running(worker(self.fake, nothing))
        self.fake.put("f")
        self.assertIsInstance(running.end(), RefusedError)

    def test_a_drain_ends_the_work_and_gives_up_what_takes_too_long(self) -> None:
        begun: list[str] = []

        def work(event: Event, context: Context) -> None:
            begun.append(event.id)
            if event.id == "short":
                time.sleep(0.1)
            else:
                context.wait(60)
                time.sleep(0.2)

        this = worker(self.fake, work, 2, drain_timeout_s=3)
        self.fake.put("short")
        self.fake.put("long")

        def signal_it() -> None:
            until("work", lambda: len(begun) == 2)
            self.fake.put("late")
            # As a process manager does it; the signal is the worker's as long as it runs.
            os.kill(os.getpid(), signal.SIGTERM)

        before = signal.getsignal(signal.SIGTERM)
        threading.Thread(target=signal_it, daemon=True).start()
        this.run()
        self.assertEqual(signal.getsignal(signal.SIGTERM), before)
        self.assertEqual([body["outcome"] for body in self.released("short")], ["SUCCEEDED"])
        self.assertEqual([body["outcome"] for body in self.released("long")], ["RETRY"])
        self.assertEqual(sorted(begun), ["long", "short"])

    def test_a_worker_that_waits_for_events_stops_soon(self) -> None:
        running = Running(worker(self.fake, nothing))
        until("a poll", lambda: len(self.fake.asks) > 0)
        begun_s = time.monotonic()
        running.stop()
        self.assertLess(time.monotonic() - begun_s, 8)


class Parts(unittest.TestCase):
    def test_what_is_remembered_is_bounded(self) -> None:
        known = Known(2)
        for event in "abc":
            known.come(event, 1)
        for event in "abc":
            known.ended(event, Release(Status.SUCCEEDED))
        self.assertEqual(len(known), 2)
        self.assertIs(known.come("c", 2)[0], Verdict.DONE)
        self.assertIs(known.come("a", 2)[0], Verdict.BEGIN)

    def test_a_late_release_does_not_end_the_attempt_that_is_at_work(self) -> None:
        known = Known()
        known.come("a", 1)
        known.ended("a", retry("no"))
        self.assertIs(known.come("a", 2)[0], Verdict.BEGIN)
        known.replaced("a", retry("the release of the first attempt was refused"))
        self.assertIs(known.come("a", 3)[0], Verdict.WORKING)
        self.assertEqual(known.attempt("a", 1), 3)

    def test_one_that_begins_again_is_not_forgotten_at_work(self) -> None:
        known = Known(1)
        known.come("a", 1)
        known.ended("a", retry("no"))
        self.assertIs(known.come("a", 1)[0], Verdict.DONE)
        self.assertIs(known.come("a", 2)[0], Verdict.BEGIN)
        known.come("b", 1)
        known.ended("b", Release(Status.SUCCEEDED))
        self.assertIs(known.come("a", 2)[0], Verdict.WORKING)

    def test_an_event_is_read_as_it_is_written(self) -> None:
        event = parse_event(
            '{"id": "e", "time": "2026-11-28T03:00:00.123456789+01:00", "key": "acme", "cursor": "", "data": [1], "other": 2}'
        )
        assert event.time
        self.assertEqual(event.time.isoformat(), "2026-11-28T03:00:00.123456+01:00")
        self.assertEqual((event.attempt, event.key, event.cursor, event.data), (1, "acme", "", [1]))
        self.assertEqual(event.attributes["other"], 2)
        for text in ("", "[]", "{}", '{"id": 1}', '{"id": "e", "time": "noon"}'):
            self.assertRaisesRegex(ValueError, "^event: ", parse_event, text)

    def test_wrong_options_are_named(self) -> None:
        wrong: dict[str, Callable[[], object]] = {
            "queue: missing": lambda: Pull(""),
            "wait_s: 61": lambda: Pull("q", wait_s=61),
            "queue_url: missing": lambda: Sqs("", client=None),
            "visibility_s: 1": lambda: Sqs("q", visibility_s=1),
            "server: 'localhost:7411'": lambda: Worker(Pull("q"), nothing, server="localhost:7411"),
            "concurrency: 0": lambda: Worker(Pull("q"), nothing, concurrency=0),
            "labels: 17": lambda: Worker(Pull("q"), nothing, labels=["l"] * 17),
            "key: ": lambda: Worker(Pull("q"), nothing, key="tgk_\n1"),
            "drain_timeout_s: -1": lambda: Worker(Pull("q"), nothing, drain_timeout_s=-1),
        }
        for wanted, make in wrong.items():
            with self.assertRaisesRegex(ValueError, f"^{wanted}"):
                make()


if __name__ == "__main__":
    unittest.main()
