// What a handler has beside its event.

import { setMaxListeners } from "node:events";

import { RefusedError } from "./client.js";
import { isOnResponse, type Event } from "./event.js";
import type { Loop } from "./loop.js";
import { isTime, words, type OutcomeParts } from "./outcome.js";

// The gRPC status FAILED_PRECONDITION.
const failedPrecondition = 9;

/** The event is held no more under any attempt that this worker has: work on it is not needed. */
export class TokenLostError extends Error {
  override name = "TokenLostError";

  constructor() {
    super("the event is no longer held by this worker");
  }
}

/** What a handler has beside its event. */
export class Context {
  /** The event's. */
  readonly attempt: number;
  /** Comes when the token is lost (its reason is a `TokenLostError`), and when the worker has stopped. */
  readonly signal: AbortSignal;

  readonly #id: string;
  // It has given its token back already.
  readonly #noToken: boolean;
  readonly #loop: Loop;
  readonly #ending = new AbortController();
  readonly #told: OutcomeParts = {};

  /** @internal */
  constructor(event: Event, loop: Loop) {
    this.attempt = event.attempt;
    this.signal = this.#ending.signal;
    this.#id = event.id;
    this.#noToken = isOnResponse(event);
    this.#loop = loop;
    // A handler may hand it to many calls.
    setMaxListeners(0, this.signal);
  }

  /**
   * Keeps the token by hand, beside the heartbeats that are sent anyway. `TokenLostError`: the event is held no more. An event
   * with `release: on_response` has no token to keep: nothing is sent.
   */
  async heartbeat(): Promise<void> {
    await this.beat();
  }

  /** Leaves a text of at most 4 KiB for the schedule's next run. */
  setCursor(cursor: string): void {
    this.#told.cursor = cursor;
  }

  /** Has the same event come again then, if the handler succeeds. */
  setNextCheckTime(at: Date): void {
    if (!isTime(at)) throw new TypeError(`nextCheckTime: ${String(at)}, expected a valid Date`);
    this.#told.nextCheckTime = at;
  }

  /** Leaves words for people. */
  setMessage(message: string): void {
    this.#told.message = message;
  }

  /** @internal */
  get told(): OutcomeParts {
    return this.#told;
  }

  /** @internal */
  end(why: Error): void {
    this.#ending.abort(why);
  }

  /** @internal */
  async beat(): Promise<number> {
    if (this.#noToken) return 0;
    const { known, client, calls, heartbeats } = this.#loop;
    const attempt = known.attempt(this.#id, this.attempt);
    try {
      const remaining = await client.extend(calls.signal, this.#id, attempt);
      heartbeats.worked();
      return remaining;
    } catch (error) {
      if (error instanceof RefusedError) {
        if (this.#loop.isFatal(error)) throw error;
        if (error.code === failedPrecondition || error.httpStatus === 404) {
          // It came again meanwhile, and is held under that attempt.
          if (known.attempt(this.#id, attempt) > attempt) return 0;
          const lost = new TokenLostError();
          this.end(lost);
          throw lost;
        }
      }
      heartbeats.failed(words(error));
      throw error;
    }
  }
}
