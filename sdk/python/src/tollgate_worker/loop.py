"""Works on what a source takes: at most so many events at once, each once."""

import asyncio
import inspect
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .backoff import Backoff, Outage, logger
from .client import BusyError, Client, RefusedError
from .context import Context, TokenLostError
from .event import Event
from .known import Known, Verdict
from .outcome import Release, Status, failed_in, retry, settle, settle_error

if TYPE_CHECKING:
    from .worker import Handler

# How long releases may go on after the work was given up.
LAST_RELEASES_S = 10.0
FAILED_PRECONDITION = 9


@dataclass
class Delivery:
    """An event that a source has taken, with what the source does about it."""

    event: Event
    ttl_s: float = 0.0
    """How long silence is allowed; 0 where the source does not know."""
    hide: Callable[[], None] | None = None
    """Keeps others from taking it, at once and then so often, until it is over."""
    hide_every_s: float = 0.0
    answered: Callable[[], None] | None = None
    """Is told that it is over: its release was answered, or it needs none."""


@dataclass(frozen=True)
class Said:
    """The answer of an HTTP request for one event."""

    status: int
    message: str = ""


class Loop:
    """The events of a worker that runs."""

    def __init__(self, client: Client, handler: "Handler", concurrency: int, first_heartbeat_s: float) -> None:
        self.client = client
        self.known = Known()
        self.acquires = Outage("taking events")
        self.stopping = threading.Event()
        """Set when nothing new is to be taken."""
        self.fatal: "queue.SimpleQueue[Exception | None]" = queue.SimpleQueue()
        """A refusal that will not go away; None where the worker is told to stop."""
        self.last_poll: tuple[threading.Thread, float] | None = None
        """Begins nothing after a stop, and ends by itself. A drain waits for it, for so many seconds at most."""
        self._releases, self._heartbeats = Outage("releasing tokens"), Outage("the heartbeat")
        self._handler = handler
        self._first_heartbeat_s = first_heartbeat_s
        self._abandoned = threading.Event()
        self._change = threading.Condition()
        self._free = concurrency
        self._under = 0
        self._given_up = False
        self._contexts: set[Context] = set()

    def stop(self) -> None:
        """Ends the taking."""
        with self._change:
            self.stopping.set()
            self._change.notify_all()

    def places(self, most: int) -> int:
        """Waits for a place, and takes as many as there are; 0 once the worker stops."""
        with self._change:
            self._change.wait_for(lambda: self._free > 0 or self.stopping.is_set())
            if self.stopping.is_set():
                return 0
            taken = min(most, self._free)
            self._free -= taken
            return taken

    def let_in(self) -> str:
        """Takes a place for an event that comes by itself, and has the worker wait for its answer; or says why not."""
        with self._change:
            if self.stopping.is_set():
                return "the worker stops"
            if self._free == 0:
                return "the worker has no room"
            self._free -= 1
            self._under += 1
            return ""

    def free(self, count: int = 1) -> None:
        """Gives places back."""
        with self._change:
            self._free += count
            self._change.notify_all()

    def leave(self) -> None:
        """What was let in is answered."""
        with self._change:
            self._under -= 1
            self._change.notify_all()

    def take(self, delivery: Delivery) -> None:
        """Works on a delivery in a place that the caller has taken. It does not wait."""
        verdict, release = self.known.come(delivery.event.id, delivery.event.attempt)
        if verdict is Verdict.WORKING:
            self.free()
            return
        self._start(self._work, delivery, release)

    def give_back(self, delivery: Delivery, why: str) -> None:
        """Has an event come again that is not worked on; one whose token has gone is lost."""
        event = delivery.event
        if event.is_on_response:
            logger.error("event %s: lost, as its token has gone: %s", event.id, why)
            return
        logger.error("event %s: given back: %s", event.id, why)
        self._start(self._release, delivery, retry(why).under(event.attempt))

    def take_now(self, event: Event) -> Said:
        """Works on an event whose answer gives its token back, in a place that the caller has taken."""
        try:
            verdict, release = self.known.come(event.id, event.attempt)
            if verdict is Verdict.WORKING:
                return Said(409, "the event is being worked on")
            if release is None:
                release = self._run(Delivery(event))
                self.known.ended(event.id, release)
            return Said(200) if release.outcome is Status.SUCCEEDED else Said(500, release.message)
        finally:
            self.free()

    def drain(self, timeout_s: float) -> str:
        """Waits for the work under way and the last poll, gives up what is left, and has all tokens released.

        Returns what could not be done."""
        left, begun_s = "", time.monotonic()
        if self._is_idle(timeout_s):
            if self.last_poll:
                polls, most_s = self.last_poll
                polls.join(max(0.0, min(most_s, timeout_s) - (time.monotonic() - begun_s)))
        else:
            with self._change:
                self._given_up = True
                contexts = list(self._contexts)
            for context in contexts:
                self._give_up(context)
            if not self._is_idle(LAST_RELEASES_S):
                left = "tokens could not be released before the worker stopped; Tollgate takes them back"
        self._abandoned.set()
        return left

    def _is_idle(self, timeout_s: float) -> bool:
        with self._change:
            return self._change.wait_for(lambda: self._under == 0, timeout_s)

    @staticmethod
    def _give_up(context: Context) -> None:
        context._ended.put(retry("the worker stopped before the event was done"))
        context._cancelled.set()

    def _start(self, work: Callable[[Delivery, Any], None], delivery: Delivery, release: Release | None) -> None:
        with self._change:
            self._under += 1

        def run() -> None:
            try:
                work(delivery, release)
            finally:
                self.leave()

        try:
            threading.Thread(target=run, name=f"event {delivery.event.id}", daemon=True).start()
        except RuntimeError as error:
            # The machine allows no further thread: this one waits, and takes nothing meanwhile.
            logger.error("event %s: %s", delivery.event.id, error)
            run()

    def _work(self, delivery: Delivery, release: Release | None) -> None:
        over = threading.Event()
        try:
            if delivery.hide:
                threading.Thread(target=self._hide, args=(delivery, over), daemon=True).start()
            event = delivery.event
            if event.is_on_response:
                self._work_untold(delivery, release)
                return
            if release is None:
                release = self._run(delivery)
                release = release.under(self.known.attempt(event.id, event.attempt))
                self.known.ended(event.id, release)
            else:
                release = release.under(self.known.attempt(event.id, event.attempt))
            self._release(delivery, release)
        finally:
            over.set()
            self.free()

    def _work_untold(self, delivery: Delivery, done: Release | None) -> None:
        """Works on an event whose token has gone, unless that has been done: nobody can be told how it went."""
        event = delivery.event
        if done is None:
            release = self._run(delivery)
            is_left = release.outcome is Status.RETRY and delivery.answered is not None
            if release.outcome is not Status.SUCCEEDED:
                end = "is left to its queue" if is_left else "counts as done, as its token has gone"
                logger.error("event %s: failed, and %s: %s", event.id, end, release.message)
            if release.outcome is Status.RETRY:
                # What still has it brings it again under the same attempt.
                self.known.forget(event.id)
                return
            self.known.ended(event.id, release)
        if delivery.answered:
            delivery.answered()

    @staticmethod
    def _hide(delivery: Delivery, over: threading.Event) -> None:
        assert delivery.hide
        delivery.hide()
        while not over.wait(delivery.hide_every_s):
            delivery.hide()

    def _run(self, delivery: Delivery) -> Release:
        """Has the handler work on an event in a thread of its own, until the work is given up; keeps its token meanwhile."""
        event = delivery.event
        context = Context(event.attempt, lambda context: 0.0 if event.is_on_response else self._beat(event.id, context))
        with self._change:
            if self._given_up:
                return retry("the worker stopped before the event was done")
            self._contexts.add(context)
        try:
            threading.Thread(
                target=self._handle, args=(event, context), name=f"handler {event.id}", daemon=True
            ).start()
            return self._early(context, delivery) or context._ended.get()
        except RuntimeError as error:
            # The machine allows no further thread.
            return retry(str(error))
        finally:
            context._cancelled.set()
            with self._change:
                self._contexts.discard(context)

    def _handle(self, event: Event, context: Context) -> None:
        try:
            returned = self._handler(event, context)
            if inspect.iscoroutine(returned):
                returned = asyncio.run(returned)
            release = settle(context._outcome(returned))
        except BaseException as error:  # Also SystemExit: a handler does not end the worker.
            release = retry("what the handler raised cannot be told")
            try:
                release = settle_error(error)
                if failed_in(error) is None:
                    logger.warning("event %s: the handler raised", event.id, exc_info=error)
            except Exception:
                # An error, or a log, that breaks when it is written.
                pass
        context._ended.put(release)

    def _early(self, context: Context, delivery: Delivery) -> Release | None:
        """How an event ended before its first heartbeat. The token of one that takes longer is kept from now on, in a thread of
        its own, as a heartbeat may wait for its answer."""
        if delivery.event.is_on_response:
            # There is no token to keep.
            return None
        every_s = delivery.ttl_s / 3 if delivery.ttl_s > 0 else self._first_heartbeat_s
        try:
            return context._ended.get(timeout=every_s)
        except queue.Empty:
            threading.Thread(target=self._keep, args=(context, delivery, every_s), daemon=True).start()
            return None

    def _keep(self, context: Context, delivery: Delivery, every_s: float) -> None:
        """Sends heartbeats, the first one now, at a third of the time that silence is allowed, until the work is over."""
        due_s, pauses = time.monotonic(), Backoff()
        while not context._cancelled.wait(max(0.0, due_s - time.monotonic())):
            try:
                remaining_s = self._beat(delivery.event.id, context)
                every_s = remaining_s / 3 if remaining_s > 0 else every_s
                due_s, pauses = time.monotonic() + every_s, Backoff()
            except TokenLostError:
                return
            except (BusyError, RefusedError) as error:
                after_s = error.retry_after_s if isinstance(error, BusyError) else 0.0
                due_s = time.monotonic() + min(every_s, pauses.next_s(after_s))

    def _beat(self, event: str, context: Context) -> float:
        """One heartbeat. Returns for how many seconds silence is allowed; 0 where that is not known."""
        attempt = self.known.attempt(event, context.attempt)
        try:
            remaining_s = self.client.extend(event, attempt)
        except BusyError as error:
            self._heartbeats.failed(error)
            raise
        except RefusedError as error:
            if self._is_fatal(error):
                raise
            if error.code != FAILED_PRECONDITION and error.http_status != 404:
                self._heartbeats.failed(error)
                raise
            if self.known.attempt(event, attempt) > attempt:
                # It came again meanwhile, and is held under that attempt.
                return 0.0
            context._cancelled.set()
            raise TokenLostError("the event is no longer held by this worker") from error
        self._heartbeats.worked()
        return remaining_s

    def _release(self, delivery: Delivery, release: Release) -> None:
        """Repeats a release until it is answered."""
        event, pauses = delivery.event.id, Backoff()
        while True:
            if not release.is_open:
                # Under the attempt that came last: done is done, whichever it was.
                release = release.under(self.known.attempt(event, release.attempt))
            try:
                self.client.release(event, release)
                self._releases.worked()
            except BusyError as error:
                self._releases.failed(error)
                if self._abandoned.wait(pauses.next_s(error.retry_after_s)):
                    return
                continue
            except RefusedError as error:
                if self._is_fatal(error):
                    return
                if error.http_status in (400, 413) and release.outcome is not Status.RETRY:
                    logger.warning("event %s: the release was refused, and the event is to come again: %s", event, error)
                    release = retry(f"the release was refused: {error.message}").under(release.attempt)
                    self.known.replaced(event, release)
                    continue
                logger.warning("event %s: not released: %s", event, error)
            if delivery.answered:
                delivery.answered()
            return

    def _is_fatal(self, refused: RefusedError) -> bool:
        """Ends the worker where the server refuses who calls."""
        is_fatal = refused.http_status in (401, 403)
        if is_fatal:
            self.fatal.put(refused)
        return is_fatal
