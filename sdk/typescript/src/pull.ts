// Takes the events of a queue from Tollgate by long polls.

import { Backoff, pause, timer } from "./backoff.js";
import { RefusedError, retryAfterOf, span, type Acquired } from "./client.js";
import { parseEvent, releaseOf, type Event } from "./event.js";
import type { Loop } from "./loop.js";
import { words } from "./outcome.js";

// The most events of an answer.
const acquireMax = 100;
const waitMaxMs = 60_000;
// How long a poll may go on after the worker was told to stop: what it is answered with counts as accepted, so that one that is
// broken off while it is being answered costs its event the time to live.
const lastPollMs = 1000;
// How soon it asks again where nobody waited: a server that is about to end.
const breathMs = 100;

/** Which queue, and how. */
export interface PullOptions {
  /** The queue's id. Required. */
  queue: string;
  /** How long a poll waits for the first event, up to 60,000; 50,000 by default. */
  waitMs?: number | undefined;
}

/** Takes the events of a queue by long polls: what `pull` returns. */
export class PullSource {
  readonly #queue: string;
  readonly #waitMs: number;

  /** @internal */
  constructor(options: PullOptions) {
    this.#queue = options.queue;
    this.#waitMs = options.waitMs ?? 50_000;
  }

  /** @internal */
  check(): void {
    const [queue, waitMs] = [this.#queue as unknown, this.#waitMs as unknown];
    if (queue === undefined || queue === "") throw new TypeError("pull.queue: missing");
    if (typeof queue !== "string") throw new TypeError(`pull.queue: ${String(queue)}, expected a queue's id`);
    if (typeof waitMs !== "number" || !(waitMs >= 1 && waitMs <= waitMaxMs)) {
      throw new TypeError(`pull.waitMs: ${String(waitMs)}, expected 1 to 60,000`);
    }
  }

  /** @internal */
  async run(taking: AbortSignal, loop: Loop): Promise<void> {
    const polling = new AbortController();
    let last: NodeJS.Timeout | undefined;
    const end = (): void => {
      last = timer(lastPollMs, () => polling.abort());
    };
    taking.addEventListener("abort", end, { once: true });
    try {
      await this.#polls(taking, polling.signal, loop);
    } finally {
      taking.removeEventListener("abort", end);
      clearTimeout(last);
    }
  }

  /** @internal */
  close(): Promise<void> {
    return Promise.resolve();
  }

  async #polls(taking: AbortSignal, polling: AbortSignal, loop: Loop): Promise<void> {
    const { namespace, labels, name } = loop.settings;
    const waitMs = Math.trunc(this.#waitMs);
    const wait = `${(waitMs / 1000).toFixed(3)}s`;
    const ask = { wait, labels: labels.length > 0 ? labels : undefined, worker: name || undefined };
    const backoff = new Backoff();
    // It asks for as many as there is room for, and never for more.
    while (await loop.place(taking)) {
      let places = 1 + loop.morePlaces(acquireMax - 1);
      const asked = performance.now();
      try {
        const events = await loop.client.acquire(polling, namespace, this.#queue, { maxEvents: places, ...ask }, waitMs);
        places -= begin(loop, events, places);
        for (; places > 0; places--) loop.free();
        loop.acquires.worked();
        backoff.reset();
        if (events.length === 0 && performance.now() - asked < breathMs) await pause(taking, breathMs);
      } catch (error) {
        for (; places > 0; places--) loop.free();
        if (taking.aborted) continue;
        if (error instanceof RefusedError) throw error;
        loop.acquires.failed(words(error));
        await pause(taking, backoff.next(retryAfterOf(error)));
      }
    }
  }
}

/** Has the events worked on, each in one of the places, and returns how many places it used. */
function begin(loop: Loop, events: Acquired[], places: number): number {
  let used = 0;
  for (const given of events) {
    let event: Event;
    try {
      event = { ...parseEvent(given.event), id: given.name, attempt: given.attempt };
    } catch (error) {
      loop.giveBack({ event: nothing(given), ttlMs: 0 }, words(error));
      continue;
    }
    const delivery = { event, ttlMs: span(given.tokenTtl) };
    if (used === places) {
      loop.giveBack(delivery, "the worker has no room");
      continue;
    }
    used++;
    loop.take(delivery);
  }
  return used;
}

/** An event of which no more is known than its id, and how its token comes back. */
function nothing(given: Acquired): Event {
  const { name: id, attempt } = given;
  const release = releaseOf(given.event);
  const nobody = { time: undefined, schedule: "", run: "", policy: "", key: "", cursor: undefined, traceparent: "" };
  return { id, attempt, release, ...nobody, index: 0, count: 0, checks: 0, data: undefined, attributes: {} };
}

/** The events of a queue, by long polls. The schedules' target is `pull`; the worker needs no address. */
export function pull(options: PullOptions): PullSource {
  return new PullSource(options);
}
