// Remembers events, so that each is worked on once.

import type { Release } from "./outcome.js";

/** What is to be done with an event that comes; `release`: what has been released of one that is done. */
export type Verdict = { what: "begin" } | { what: "working" } | { what: "done"; release: Release };

// What is known of an event: the latest attempt that came, and the release of it once it has been worked on.
interface Entry {
  attempt: number;
  release?: Release;
  again: boolean;
}

/** What is known of events. It is bounded: of those done, the ones that were done first are forgotten. */
export class Known {
  /** The most events that are remembered beyond those at work. */
  static readonly max = 10_000;

  readonly #events = new Map<string, Entry>();
  // Those done, the first first.
  readonly #order = new Set<string>();
  readonly #max: number;

  constructor(max = Known.max) {
    this.#max = max;
  }

  /** How many events are known. */
  get size(): number {
    return this.#events.size;
  }

  /** Notes an event that comes, and says what is to be done with it. */
  come(id: string, attempt: number): Verdict {
    const seen = this.#events.get(id);
    if (seen === undefined) {
      this.#events.set(id, { attempt, again: false });
      return { what: "begin" };
    }
    if (seen.release === undefined) {
      seen.attempt = Math.max(seen.attempt, attempt);
      return { what: "working" };
    }
    if (seen.again && attempt > seen.attempt) {
      // It was given back, or was to come again: this is the next attempt. Its place in the order is taken by its end.
      this.#order.delete(id);
      this.#events.set(id, { attempt, again: false });
      return { what: "begin" };
    }
    seen.attempt = Math.max(seen.attempt, attempt);
    return { what: "done", release: seen.release };
  }

  /** Notes how the work on an event ended. */
  ended(id: string, body: Release): void {
    const seen = this.#events.get(id);
    if (seen === undefined || seen.release !== undefined) return;
    seen.release = body;
    seen.again = body.outcome !== "SUCCEEDED" || body.nextCheckTime !== undefined;
    this.#order.add(id);
    for (const first of this.#order) {
      if (this.#order.size <= this.#max) break;
      this.#order.delete(first);
      this.#events.delete(first);
    }
  }

  /** Has an event at work come again under the same attempt. */
  forget(id: string): void {
    if (this.#events.get(id)?.release === undefined) this.#events.delete(id);
  }

  /** Notes that another release takes the place of the one that was refused. */
  replaced(id: string, body: Release): void {
    const seen = this.#events.get(id);
    if (seen?.release === undefined) return;
    seen.release = body;
    seen.again = true;
  }

  /** The latest attempt that came of an event; the one given where the event has been forgotten. */
  attempt(id: string, otherwise: number): number {
    return Math.max(this.#events.get(id)?.attempt ?? 0, otherwise);
  }
}
