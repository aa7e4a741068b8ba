// As much of Tollgate as a worker sees: events to hand out, and what it was told. And what else the tests share.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

import { type Handler, type Options, pull, Worker } from "../src/index.js";

/** A release, as the server was told it. */
export interface Told {
  attempt?: number;
  outcome: string;
  message?: string;
  cursor?: string;
  nextCheckTime?: string;
  result?: unknown;
}

/** What a poll asked for. */
export interface Ask {
  maxEvents: number;
  wait: string;
  labels?: string[];
  worker?: string;
}

type Refusal = { status: number; body: string; retryAfter?: string };

/** The server. */
export class Fake {
  static readonly all: Fake[] = [];
  readonly asks: Ask[] = [];
  readonly keys = new Set<string | undefined>();
  readonly beats = new Map<string, number>();
  url = "";
  /** What a call is refused with; undefined where it goes on. */
  refuse: (path: string) => Refusal | undefined = () => undefined;
  /** The status of each release. */
  status = "RELEASED";
  /** How long a poll is held before it is answered with what there is. */
  slowMs = 0;

  readonly #events: unknown[] = [];
  readonly #releases = new Map<string, Told[]>();
  readonly #server = createServer({ keepAliveTimeout: 600_000 }, (request, response) => {
    this.#answer(request, response).catch((error: unknown) => response.destroy(error as Error));
  });

  static async start(): Promise<Fake> {
    const fake = new Fake();
    Fake.all.push(fake);
    await new Promise<void>((resolve) => fake.#server.listen(0, "127.0.0.1", resolve));
    fake.url = `http://127.0.0.1:${(fake.#server.address() as AddressInfo).port}`;
    return fake;
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  kill(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  /** How many connections are open. */
  connections(): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.getConnections((error, count) => (error ? reject(error) : resolve(count)));
    });
  }

  put(id: string, attempt: number, tokenTtl: string, data: unknown = { n: 1 }): void {
    const event = JSON.stringify({ id, attempt, index: 7, count: 9, time: "2026-11-28T03:00:00Z", data });
    this.#events.push({ name: id, attempt, tokenTtl, event });
  }

  putText(id: string, event: string, tokenTtl = "900s"): void {
    this.#events.push({ name: id, attempt: 1, tokenTtl, event });
  }

  /** Puts an event whose token has gone, with a heartbeat due after 20 ms if it had one. */
  putOnResponse(id: string, more: object = {}): void {
    this.putText(id, JSON.stringify({ id, release: "on_response", ...more }), "0.060s");
  }

  /** Refuses all calls but polls, as of events that hold no token, and returns their paths. */
  holdNothing(): string[] {
    const calls: string[] = [];
    this.refuse = (path) => {
      if (path.endsWith(":acquire")) return undefined;
      calls.push(path);
      return { status: 400, body: '{"code": 9, "message": "the event holds no token"}' };
    };
    return calls;
  }

  released(id: string): Told[] {
    return this.#releases.get(id) ?? [];
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? "";
    let text = "";
    for await (const part of request) text += String(part);
    this.keys.add(request.headers.authorization);
    const refusal = this.refuse(path);
    if (refusal !== undefined) {
      response.writeHead(refusal.status, { "retry-after": refusal.retryAfter ?? "0" }).end(refusal.body);
      return;
    }
    const name = decodeURIComponent(path.slice(path.lastIndexOf("/") + 1, path.lastIndexOf(":")));
    switch (path.slice(path.lastIndexOf(":"))) {
      case ":acquire":
        await this.#handOut(JSON.parse(text) as Ask, response);
        break;
      case ":release":
        this.#releases.set(name, [...this.released(name), JSON.parse(text) as Told]);
        response.end(JSON.stringify({ status: this.status }));
        break;
      default:
        this.beats.set(name, (this.beats.get(name) ?? 0) + 1);
        response.end(name === "told" ? "{}" : '{"remaining": "0.300s"}');
    }
  }

  async #handOut(ask: Ask, response: ServerResponse): Promise<void> {
    this.asks.push(ask);
    await sleep(this.slowMs);
    const end = performance.now() + 1000;
    while (performance.now() < end && !response.destroyed) {
      if (this.#events.length > 0) {
        response.end(JSON.stringify({ events: this.#events.splice(0, ask.maxEvents) }));
        return;
      }
      await sleep(2);
    }
    response.end("{}");
  }
}

/** Options of a worker that pulls from the fake server. */
export function pulling(fake: Fake, concurrency: number): Options {
  const source = pull({ queue: "render", waitMs: 1000 });
  return { server: fake.url, key: "tgk_1", source, concurrency, labels: ["gpu"], name: "render-1", log: () => undefined };
}

/** Waits for what is to come about. */
export async function until(what: string, is: () => boolean): Promise<void> {
  for (const end = performance.now() + 60_000; !is(); await sleep(2)) {
    if (performance.now() > end) throw new Error(`${what} did not come about`);
  }
}

/** A worker that runs. */
export class Running {
  static readonly #all: Running[] = [];
  readonly worker: Worker;
  readonly #ended: Promise<unknown>;

  constructor(options: Options, handler: Handler) {
    Running.#all.push(this);
    this.worker = new Worker(options, handler);
    this.#ended = this.worker.run().then(
      () => undefined,
      (error: unknown) => error,
    );
  }

  /** Ends what a test that failed has left, so that the other failures are told. */
  static endAll(): void {
    for (const running of Running.#all) running.worker.stop();
    for (const fake of Fake.all) fake.kill();
    setTimeout(() => process.exit(1), 90_000).unref();
  }

  /** Tells it to stop, and returns what `run` rejects with. */
  async stop(): Promise<unknown> {
    this.worker.stop();
    return await this.end();
  }

  async end(): Promise<unknown> {
    const late = new AbortController();
    const over = sleep(60_000, new Error("the worker does not end"), { signal: late.signal }).catch(() => undefined);
    const ended = await Promise.race([this.#ended, over]);
    late.abort();
    return ended;
  }
}

/** Something that is waited for until it is let go. */
export class Gate {
  open: () => void = () => undefined;
  readonly opened = new Promise<void>((resolve) => (this.open = resolve));
}

/** Waits until a signal comes, and throws its reason. */
export function forSignal(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true }));
}
