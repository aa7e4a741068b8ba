// The worker: its options, and how it begins and ends.

import { hostname } from "node:os";

import type { Context } from "./context.js";
import type { Event } from "./event.js";
import { HttpSource } from "./http.js";
import { Loop } from "./loop.js";
import { PullSource } from "./pull.js";
import { SqsSource } from "./sqs.js";

const concurrencyMax = 10_000;
const labelsMax = 16;
const signals = ["SIGTERM", "SIGINT"] as const;

/** Where events come from: what `pull`, `sqs` and `await listen` return. */
export type Source = PullSource | HttpSource | SqsSource;

/** Where events come from, and how much at once is worked on. */
export interface Options {
  /** Where events come from: `pull(…)`, `await listen(…)` or `sqs(…)`. Required. */
  source: Source;
  /** Where Tollgate is. By default the variable TOLLGATE, else http://127.0.0.1:7411. */
  server?: string | undefined;
  /** Is sent where the server asks for keys. By default the variable TOLLGATE_KEY. */
  key?: string | undefined;
  /** "default" by default. */
  namespace?: string | undefined;
  /** The number of events that are worked on at once, 1 to 10,000; 1 by default. */
  concurrency?: number | undefined;
  /** What the worker is able to do, for the source `pull`; at most 16. */
  labels?: readonly string[] | undefined;
  /** The worker's name for people; by default that of the machine. */
  name?: string | undefined;
  /** How long work may go on after the worker was told to stop; 30,000 by default. */
  drainTimeoutMs?: number | undefined;
  /** How long an answer of the server may take; 10,000 by default. */
  requestTimeoutMs?: number | undefined;
  /**
   * When the first heartbeat is sent where the source does not say how long silence is allowed; 10,000 by default. It is to be
   * shorter than the policy's `tokenTtl`.
   */
  firstHeartbeatMs?: number | undefined;
  /** Writes a line of the log; to the standard error by default. */
  log?: ((line: string) => void) | undefined;
}

/** Options of which none is missing. */
export interface Settings {
  source: Source;
  server: string;
  key: string;
  namespace: string;
  concurrency: number;
  labels: readonly string[];
  name: string;
  drainTimeoutMs: number;
  requestTimeoutMs: number;
  firstHeartbeatMs: number;
  log: (line: string) => void;
}

/**
 * Works on one event. What it throws has the event tried again, a `FailedError` has it fail for good. What it returns is the
 * result: undefined, any value that is JSON, or an `Outcome`.
 */
export type Handler<Data = any> = (event: Event<Data>, context: Context) => unknown;

/** The loop of a consumer of Tollgate. `Data` is the type of the events' payload. */
export class Worker<Data = unknown> {
  readonly #settings: Settings;
  readonly #handler: Handler<Data>;
  readonly #stopping = new AbortController();
  #ran = false;

  /** Makes a worker, and refuses options that are wrong. */
  constructor(options: Options, handler: Handler<Data>) {
    if (typeof handler !== "function") throw new TypeError("handler: missing, expected a function");
    this.#settings = fill(options);
    check(options, this.#settings);
    this.#handler = handler;
  }

  /** Has the worker take nothing new, end the work under way, give its tokens back, and return from `run`. It does not wait. */
  stop(): void {
    this.#stopping.abort();
  }

  /**
   * Works until `stop`, SIGTERM or SIGINT; then it drains. It rejects where the server refuses what will not change, with a
   * `RefusedError`, or where tokens could not be given back. A worker runs once.
   */
  async run(): Promise<void> {
    if (this.#ran) throw new Error("a worker runs once");
    this.#ran = true;
    const stop = (): void => this.stop();
    for (const signal of signals) process.on(signal, stop);
    const { source } = this.#settings;
    const loop = new Loop(this.#settings, this.#handler);
    // So that nothing ends the process while there is work, even where all of it waits for what holds up nobody.
    const alive = setInterval(() => undefined, 2 ** 30);
    try {
      let failed: unknown;
      const ended = source.run(this.#stopping.signal, loop).catch((error: unknown) => (failed = error));
      await Promise.race([ended, loop.refused]);
      this.stop();
      await ended;
      const left = await loop.drain();
      failed ??= loop.refusal ?? left;
      if (failed !== undefined) throw failed;
    } finally {
      await source.close();
      clearInterval(alive);
      for (const signal of signals) process.off(signal, stop);
    }
  }
}

function fill(options: Options): Settings {
  const given = (options ?? {}) as Partial<Options>;
  const log = given.log ?? ((line: string) => console.error(`${new Date().toISOString()} ${line}`));
  return {
    source: given.source as Source,
    server: String(given.server || process.env["TOLLGATE"] || "http://127.0.0.1:7411").replace(/\/+$/, ""),
    key: given.key || process.env["TOLLGATE_KEY"] || "",
    namespace: given.namespace || "default",
    concurrency: given.concurrency ?? 1,
    labels: given.labels ?? [],
    // Of two processes of one machine each is a worker.
    name: given.name || `${hostname().slice(0, 50)}-${process.pid}`,
    drainTimeoutMs: given.drainTimeoutMs ?? 30_000,
    requestTimeoutMs: given.requestTimeoutMs ?? 10_000,
    firstHeartbeatMs: given.firstHeartbeatMs ?? 10_000,
    log: (line) => {
      try {
        log(line);
      } catch {
        // A log that fails ends no work.
      }
    },
  };
}

function check(options: Options, settings: Settings): void {
  for (const name of Object.keys(options ?? {})) {
    if (!(name in settings)) throw new TypeError(`${name}: no such option, expected ${Object.keys(settings).join(", ")}`);
  }
  const { source, server, concurrency, labels } = settings;
  if (source === undefined) throw new TypeError("source: missing, expected pull(…), sqs(…) or await listen(…)");
  if (!(source instanceof PullSource || source instanceof HttpSource || source instanceof SqsSource)) {
    const what = Object.prototype.toString.call(source).slice(8, -1);
    throw new TypeError(`source: a ${what}, expected pull(…), sqs(…) or await listen(…)`);
  }
  if (!isServer(server)) throw new TypeError(`server: ${JSON.stringify(server)}, expected a URL such as http://127.0.0.1:7411`);
  for (const name of ["key", "namespace", "name"] as const) {
    if (typeof settings[name] !== "string") throw new TypeError(`${name}: a ${typeof settings[name]}, expected a text`);
  }
  // The value is not for the log.
  if (!/^[\x21-\x7e]*$/.test(settings.key)) throw new TypeError("key: it has characters that no key has, expected tgk_…");
  if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > concurrencyMax) {
    throw new TypeError(`concurrency: ${String(concurrency)}, expected 1 to 10,000`);
  }
  if (!Array.isArray(labels) || labels.some((label) => typeof label !== "string")) {
    throw new TypeError(`labels: ${JSON.stringify(labels)}, expected an array of texts`);
  }
  if (labels.length > labelsMax) throw new TypeError(`labels: ${labels.length}, expected at most 16`);
  for (const name of ["drainTimeoutMs", "requestTimeoutMs", "firstHeartbeatMs"] as const) {
    const value: unknown = settings[name];
    if (!Number.isFinite(value) || (value as number) <= 0) throw new TypeError(`${name}: ${String(value)}, expected more than 0`);
  }
  if (options.log !== undefined && typeof options.log !== "function") {
    throw new TypeError(`log: a ${typeof options.log}, expected a function`);
  }
  source.check();
}

function isServer(text: string): boolean {
  try {
    const { protocol, host } = new URL(text);
    return (protocol === "http:" || protocol === "https:") && host !== "";
  } catch {
    return false;
  }
}
