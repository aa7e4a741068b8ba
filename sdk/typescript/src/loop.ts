// Works on what a source takes: at most so many events at once, each once. Keeps their tokens, and gives them back.

import { setMaxListeners } from "node:events";

import { Backoff, Outage, pause, timer } from "./backoff.js";
import { Client, RefusedError, retryAfterOf } from "./client.js";
import { Context, TokenLostError } from "./context.js";
import { isOnResponse, type Event } from "./event.js";
import { Known } from "./known.js";
import { retry, settle, settleThrown, type Release } from "./outcome.js";
import type { Handler, Settings } from "./worker.js";

// How long releases may go on after the work was given up.
const lastReleasesMs = 10_000;
const stoppedBefore = "the worker stopped before the event was done";

/** An event that a source has taken, with what the source does about it. Nothing here rejects. */
export interface Delivery {
  event: Event;
  /** How long silence is allowed; 0 where the source does not know. */
  ttlMs: number;
  /** Keeps others from taking it, at once and then so often, until it is over; none where nobody could. */
  hide?: (signal: AbortSignal) => Promise<void>;
  hideEveryMs?: number;
  /** Is told that it is over: its release was answered, or it needs none. */
  answered?: (signal: AbortSignal) => Promise<void>;
}

/** The answer for one event that came by a request. */
export interface Said {
  status: number;
  message: string;
}

function endable(): AbortController {
  const controller = new AbortController();
  // As many listeners as there are calls under way.
  setMaxListeners(0, controller.signal);
  return controller;
}

/** The loop. */
export class Loop {
  readonly settings: Settings;
  readonly client: Client;
  readonly known = new Known();
  readonly acquires: Outage;
  readonly releases: Outage;
  readonly heartbeats: Outage;
  /** Ends when the work is given up. */
  readonly work = endable();
  /** Ends when even the releases are given up. */
  readonly calls = endable();
  /** Why the server refuses who calls; undefined where it does not. */
  refusal: RefusedError | undefined;
  /** Resolves when the server refuses who calls. */
  readonly refused: Promise<void>;

  readonly #handler: Handler;
  #tellRefused: () => void = () => undefined;
  // Places that are taken, one for each event that is worked on; and who waits for one.
  #taken = 0;
  readonly #waiting = new Set<() => void>();
  // What is to end before the worker does, and who waits for that.
  #under = 0;
  #idle: () => void = () => undefined;

  constructor(settings: Settings, handler: Handler) {
    this.settings = settings;
    this.#handler = handler;
    this.client = new Client(settings.server, settings.key, settings.requestTimeoutMs, settings.concurrency);
    this.acquires = new Outage("taking events", settings.log);
    this.releases = new Outage("releasing tokens", settings.log);
    this.heartbeats = new Outage("the heartbeat", settings.log);
    this.refused = new Promise((resolve) => (this.#tellRefused = resolve));
  }

  /** Waits for a place; false if the signal came before. */
  async place(signal: AbortSignal): Promise<boolean> {
    if (signal.aborted) return false;
    if (this.placeNow()) return true;
    return await new Promise((resolve) => {
      const given = (): void => {
        signal.removeEventListener("abort", gone);
        resolve(true);
      };
      const gone = (): void => {
        this.#waiting.delete(given);
        resolve(false);
      };
      this.#waiting.add(given);
      signal.addEventListener("abort", gone, { once: true });
    });
  }

  /** Takes a place if there is one. */
  placeNow(): boolean {
    if (this.#taken >= this.settings.concurrency) return false;
    this.#taken++;
    return true;
  }

  /** Gives a place to who waits for one, or back. */
  free(): void {
    for (const given of this.#waiting) {
      this.#waiting.delete(given);
      given();
      return;
    }
    this.#taken--;
  }

  /** Takes up to so many further places, as many as there are, and returns how many. */
  morePlaces(max: number): number {
    let taken = 0;
    while (taken < max && this.placeNow()) taken++;
    return taken;
  }

  /** Has the worker wait for something; what is returned says that it is over. */
  enter(): () => void {
    this.#under++;
    return () => {
      this.#under--;
      if (this.#under === 0) this.#idle();
    };
  }

  /** Works on a delivery in a place that the caller has taken. It does not wait. */
  take(d: Delivery): void {
    const verdict = this.known.come(d.event.id, d.event.attempt);
    if (verdict.what === "working") {
      this.free();
      return;
    }
    const leave = this.enter();
    void this.#goThrough(d, verdict.what === "done" ? verdict.release : undefined).finally(() => {
      this.free();
      leave();
    });
  }

  /** Has an event come again that is not worked on; one whose token has gone is lost. */
  giveBack(d: Delivery, why: string): void {
    const { id, attempt } = d.event;
    if (isOnResponse(d.event)) {
      this.settings.log(`event ${id}: lost, as its token has gone: ${why}`);
      return;
    }
    this.settings.log(`event ${id}: given back: ${why}`);
    void this.#release(d, { ...retry(why), attempt }).finally(this.enter());
  }

  /** Works on an event whose answer gives its token back, in a place that the caller has taken, and returns that answer. */
  async takeNow(event: Event): Promise<Said> {
    try {
      const verdict = this.known.come(event.id, event.attempt);
      if (verdict.what === "working") return { status: 409, message: "the event is being worked on" };
      const body = verdict.what === "done" ? verdict.release : await this.#handle({ event, ttlMs: 0 });
      this.known.ended(event.id, body);
      return body.outcome === "SUCCEEDED" ? { status: 200, message: "" } : { status: 500, message: body.message };
    } finally {
      this.free();
    }
  }

  /** Whether the server refuses who calls; that ends the loop. */
  isFatal(refused: RefusedError): boolean {
    const fatal = refused.httpStatus === 401 || refused.httpStatus === 403;
    if (fatal) {
      this.refusal ??= refused;
      this.#tellRefused();
    }
    return fatal;
  }

  /** Waits for the work under way, gives up what is left, and has all tokens released. It returns what went wrong. */
  async drain(): Promise<Error | undefined> {
    try {
      if (await this.#idleWithin(this.settings.drainTimeoutMs)) return undefined;
      this.work.abort(new Error(stoppedBefore));
      if (await this.#idleWithin(lastReleasesMs)) return undefined;
      return new Error("tokens could not be released before the worker stopped; Tollgate takes them back");
    } finally {
      this.work.abort(new Error(stoppedBefore));
      this.calls.abort();
      this.client.close();
    }
  }

  #idleWithin(ms: number): Promise<boolean> {
    return new Promise((resolve) => {
      if (this.#under === 0) {
        resolve(true);
        return;
      }
      const limit = timer(ms, () => resolve(false));
      this.#idle = () => {
        clearTimeout(limit);
        resolve(true);
      };
    });
  }

  /** Works on an event, unless that has been done, and releases it. */
  async #goThrough(d: Delivery, done: Release | undefined): Promise<void> {
    const over = new AbortController();
    void this.#hide(d, over.signal);
    try {
      if (isOnResponse(d.event)) {
        await this.#goThroughUntold(d, done);
        return;
      }
      const { id, attempt } = d.event;
      const body = { ...(done ?? (await this.#handle(d))) };
      body.attempt = this.known.attempt(id, attempt);
      this.known.ended(id, body);
      await this.#release(d, body);
    } finally {
      over.abort();
    }
  }

  /** Works on an event whose token has gone, unless that has been done: nobody can be told how it went. */
  async #goThroughUntold(d: Delivery, done: Release | undefined): Promise<void> {
    const { id } = d.event;
    if (done === undefined) {
      const body = await this.#handle(d);
      const { outcome, message } = body;
      const isLeft = outcome === "RETRY" && d.answered !== undefined;
      const end = isLeft ? "is left to its queue" : "counts as done, as its token has gone";
      if (outcome !== "SUCCEEDED") this.settings.log(`event ${id}: failed, and ${end}: ${message}`);
      if (outcome === "RETRY") {
        // What still has it brings it again under the same attempt.
        this.known.forget(id);
        return;
      }
      this.known.ended(id, body);
    }
    await d.answered?.(this.calls.signal);
  }

  async #hide(d: Delivery, over: AbortSignal): Promise<void> {
    if (d.hide === undefined) return;
    do await d.hide(this.calls.signal);
    while (await pause(over, d.hideEveryMs ?? 0));
  }

  /** Has the handler work on an event, and keeps its token meanwhile, if it has one. */
  async #handle(d: Delivery): Promise<Release> {
    if (isOnResponse(d.event)) return await this.#run(d.event, () => undefined);
    const over = new AbortController();
    try {
      return await this.#run(d.event, (context) => void this.#keep(context, d, over.signal));
    } finally {
      over.abort();
    }
  }

  /** Has the handler work on an event until the work is given up. */
  async #run(event: Event, begun: (context: Context) => void): Promise<Release> {
    const { signal } = this.work;
    if (signal.aborted) return retry(stoppedBefore);
    const context = new Context(event, this);
    begun(context);
    let giveUp = (): void => undefined;
    const stopped = new Promise<Release>((resolve) => {
      giveUp = () => {
        context.end(new Error(stoppedBefore));
        resolve(retry(stoppedBefore));
      };
    });
    signal.addEventListener("abort", giveUp, { once: true });
    try {
      return await Promise.race([this.#call(event, context), stopped]);
    } finally {
      signal.removeEventListener("abort", giveUp);
    }
  }

  async #call(event: Event, context: Context): Promise<Release> {
    try {
      return settle(await this.#handler(event, context), context.told);
    } catch (error) {
      return settleThrown(error);
    }
  }

  /** Sends heartbeats at a third of the time that silence is allowed, until the work is over. */
  async #keep(context: Context, d: Delivery, over: AbortSignal): Promise<void> {
    let every = d.ttlMs > 0 ? d.ttlMs / 3 : this.settings.firstHeartbeatMs;
    let next = every;
    const backoff = new Backoff();
    while (await pause(over, next)) {
      try {
        const remaining = await context.beat();
        if (remaining > 0) every = remaining / 3;
        next = every;
        backoff.reset();
      } catch (error) {
        if (error instanceof TokenLostError) return;
        next = Math.min(backoff.next(retryAfterOf(error)), every);
      }
    }
  }

  /** Repeats a release until it is answered. */
  async #release(d: Delivery, first: Release): Promise<void> {
    const { id } = d.event;
    const backoff = new Backoff();
    let body = first;
    for (;;) {
      if (body.outcome === "SUCCEEDED" && body.nextCheckTime === undefined) {
        // Under the attempt that came last: what is done is done, whichever it was.
        body = { ...body, attempt: this.known.attempt(id, body.attempt) };
      }
      try {
        await this.client.release(this.calls.signal, id, body);
        this.releases.worked();
        break;
      } catch (error) {
        if (!(error instanceof RefusedError)) {
          this.releases.failed(error instanceof Error ? error.message : String(error));
          if (await pause(this.calls.signal, backoff.next(retryAfterOf(error)))) continue;
          return;
        }
        if (this.isFatal(error)) return;
        const why = `HTTP ${error.httpStatus}: ${error.message}`;
        // A body beyond all bounds is 413.
        const isRefused = error.httpStatus === 400 || error.httpStatus === 413;
        if (!isRefused || body.outcome === "RETRY") {
          this.settings.log(`event ${id}: not released: ${why}`);
          break;
        }
        this.settings.log(`event ${id}: the release was refused, and the event is to come again: ${why}`);
        body = { ...retry(`the release was refused: ${error.message}`), attempt: body.attempt };
        this.known.replaced(id, body);
      }
    }
    await d.answered?.(this.calls.signal);
  }
}
