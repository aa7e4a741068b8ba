// Pauses: how long to wait before the next try, and one line of the log for the beginning and the end of an outage.

const backoffMinMs = 100;
const backoffMaxMs = 10_000;
// The longest Retry-After that is followed.
const retryAfterMaxMs = 60_000;
// The longest that a timer of Node waits; a longer one would end at once.
const timerMaxMs = 2 ** 31 - 1;

/** Says how long to wait before the next try: twice as long each time, with jitter. */
export class Backoff {
  #tries = 0;

  /** The next pause, in milliseconds: at least what the server asked for. */
  next(retryAfterMs: number): number {
    const most = this.#tries < 7 ? backoffMinMs * 2 ** this.#tries : backoffMaxMs;
    this.#tries++;
    const pauseMs = most / 2 + Math.random() * (most / 2);
    return Math.max(pauseMs, Math.min(retryAfterMs, retryAfterMaxMs));
  }

  /** Begins anew. */
  reset(): void {
    this.#tries = 0;
  }
}

/** Begins a timer; one that is too long for Node ends earlier. */
export function timer(ms: number, then: () => void): NodeJS.Timeout {
  return setTimeout(then, Math.min(ms, timerMaxMs));
}

/** Waits; false if the signal came before. */
export function pause(signal: AbortSignal, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve(false);
      return;
    }
    const gone = (): void => {
      clearTimeout(waiting);
      resolve(false);
    };
    const waiting = timer(ms, () => {
      signal.removeEventListener("abort", gone);
      resolve(true);
    });
    signal.addEventListener("abort", gone, { once: true });
  });
}

/** Logs one line when calls of a kind begin to fail, and one when they work again. */
export class Outage {
  readonly #what: string;
  readonly #log: (line: string) => void;
  #since: number | undefined;

  constructor(what: string, log: (line: string) => void) {
    this.#what = what;
    this.#log = log;
  }

  /** A call failed, and is made again. */
  failed(why: string): void {
    if (this.#since === undefined) {
      this.#since = performance.now();
      this.#log(`${this.#what} fails, and is tried again: ${why}`);
    }
  }

  /** A call was answered. */
  worked(): void {
    if (this.#since !== undefined) {
      const seconds = (performance.now() - this.#since) / 1000;
      this.#since = undefined;
      this.#log(`${this.#what} works again, after ${seconds.toFixed(3)}s`);
    }
  }
}
