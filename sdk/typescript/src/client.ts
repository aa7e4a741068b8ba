// Speaks to Tollgate by REST.

import * as http from "node:http";
import * as https from "node:https";

import { timer } from "./backoff.js";
import { cut, releaseText, type Release } from "./outcome.js";

// The longest answer that is read.
const answerMax = 64 * 2 ** 20;

/** An answer of the server that will not change: a wrong key, a wrong field. Its `message` is the server's. */
export class RefusedError extends Error {
  override name = "RefusedError";
  /** The status of the answer. */
  readonly httpStatus: number;
  /** The number of the gRPC status, such as 3 for INVALID_ARGUMENT; 0 where the answer has none. */
  readonly code: number;

  constructor(httpStatus: number, code: number, message: string) {
    super(message);
    this.httpStatus = httpStatus;
    this.code = code;
  }
}

/** A failure after which the call is repeated. */
export class BusyError extends Error {
  override name = "BusyError";
  /** How long the server asked to wait; 0 where it did not. */
  readonly retryAfterMs: number;

  constructor(message: string, retryAfterMs = 0) {
    super(message);
    this.retryAfterMs = retryAfterMs;
  }
}

/** How long the server asked to wait before the next try. */
export function retryAfterOf(error: unknown): number {
  return error instanceof BusyError ? error.retryAfterMs : 0;
}

/** What a poll asks for. */
export interface AcquireRequest {
  maxEvents: number;
  wait: string;
  labels?: readonly string[] | undefined;
  worker?: string | undefined;
}

/** An event that a poll was given; `event` is the text of its document. */
export interface Acquired {
  name: string;
  attempt: number;
  tokenTtl?: string;
  event: string;
}

interface Answer {
  status: number;
  retryAfter: string | undefined;
  text: string;
}

/** The calls that a worker makes. */
export class Client {
  readonly #server: string;
  readonly #key: string;
  readonly #timeoutMs: number;
  readonly #request: typeof http.request;
  readonly #agent: http.Agent;

  constructor(server: string, key: string, timeoutMs: number, concurrency: number) {
    this.#server = server;
    this.#key = key;
    this.#timeoutMs = timeoutMs;
    const { request, Agent } = server.startsWith("https:") ? https : http;
    this.#request = request as typeof http.request;
    // As many releases at once as there are events.
    this.#agent = new Agent({ keepAlive: true, maxFreeSockets: concurrency + 2 });
  }

  /** Ends the connections that are kept. */
  close(): void {
    this.#agent.destroy();
  }

  /** A poll. */
  async acquire(signal: AbortSignal, namespace: string, queue: string, ask: AcquireRequest, waitMs: number): Promise<Acquired[]> {
    const path = `/v1/namespaces/${encodeURIComponent(namespace)}/queues/${encodeURIComponent(queue)}:acquire`;
    const answer = await this.#post(signal, path, JSON.stringify(ask), waitMs + this.#timeoutMs);
    return (answer["events"] ?? []) as Acquired[];
  }

  /** Gives a token back. */
  async release(signal: AbortSignal, id: string, body: Release): Promise<void> {
    await this.#post(signal, `/v1/events/${encodeURIComponent(id)}:release`, releaseText(body), this.#timeoutMs);
  }

  /** The heartbeat. It returns how long silence is allowed from now, in milliseconds; 0 where that is not said. */
  async extend(signal: AbortSignal, id: string, attempt: number): Promise<number> {
    const path = `/v1/events/${encodeURIComponent(id)}:extend`;
    const answer = await this.#post(signal, path, JSON.stringify({ attempt }), this.#timeoutMs);
    return span(answer["remaining"]);
  }

  async #post(signal: AbortSignal, path: string, body: string, limitMs: number): Promise<Record<string, unknown>> {
    const answer = await this.#send(signal, path, body, limitMs, true);
    if (Math.floor(answer.status / 100) !== 2) throw problem(answer);
    let said: unknown;
    try {
      said = JSON.parse(answer.text);
    } catch {
      throw new BusyError(`an answer that is not JSON: ${cut(answer.text).slice(0, 200)}`);
    }
    if (typeof said !== "object" || said === null) throw new BusyError("an answer that is no JSON object");
    return said as Record<string, unknown>;
  }

  /** Sends one request, and reads its answer; once more where the server had just closed the connection that was kept. */
  async #send(signal: AbortSignal, path: string, body: string, limitMs: number, kept: boolean): Promise<Answer> {
    const headers: http.OutgoingHttpHeaders = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
    if (this.#key !== "") headers["authorization"] = `Bearer ${this.#key}`;
    const request = this.#request(this.#server + path, { method: "POST", agent: this.#agent, headers });
    let broken: Error | undefined;
    const breakOff = (why: string): void => {
      broken ??= new Error(why);
      request.destroy(broken);
    };
    const gone = (): void => breakOff("the worker stopped");
    const limit = timer(limitMs, () => breakOff(`no answer within ${limitMs / 1000} s`));
    signal.addEventListener("abort", gone, { once: true });
    try {
      if (signal.aborted) gone();
      const response = await respond(request, body);
      return await read(response);
    } catch (error) {
      const why = broken ?? (error as NodeJS.ErrnoException);
      if (kept && broken === undefined && request.reusedSocket && (why as NodeJS.ErrnoException).code === "ECONNRESET") {
        return await this.#send(signal, path, body, limitMs, false);
      }
      throw new BusyError(why.message || (why as NodeJS.ErrnoException).code || why.name);
    } finally {
      clearTimeout(limit);
      signal.removeEventListener("abort", gone);
    }
  }
}

function respond(request: http.ClientRequest, body: string): Promise<http.IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.on("response", resolve);
    request.on("error", reject);
    // Where it was broken off before it was sent, there may be no error.
    request.on("close", () => reject(new Error("the connection was closed without an answer")));
    request.end(body);
  });
}

async function read(response: http.IncomingMessage): Promise<Answer> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of response as AsyncIterable<Buffer>) {
    length += part.length;
    if (length > answerMax) throw new Error("an answer that is too long");
    parts.push(part);
  }
  const text = Buffer.concat(parts).toString("utf8");
  return { status: response.statusCode ?? 0, retryAfter: response.headers["retry-after"], text };
}

/** What an answer that is no success means. */
function problem(answer: Answer): Error {
  let code = 0;
  let message = "";
  try {
    const told = JSON.parse(answer.text) as { code?: unknown; message?: unknown } | null;
    if (typeof told?.code === "number") code = told.code;
    if (typeof told?.message === "string") message = told.message;
  } catch {
    // Not an answer of Tollgate's, but perhaps of a proxy before it.
  }
  message ||= cut(answer.text).trim();
  const { status } = answer;
  const passes = status >= 500 && status !== 501;
  if (passes || status === 408 || status === 429) {
    // Absent, or a date: the back-off alone says when.
    const seconds = /^\d+$/.test(answer.retryAfter ?? "") ? Number(answer.retryAfter) : 0;
    return new BusyError(`HTTP ${status}: ${message}`, seconds * 1000);
  }
  return new RefusedError(status, code, message || `HTTP ${status}`);
}

/** Reads a duration as the API writes it: "900s", "1.500s"; in milliseconds, 0 where there is none. */
export function span(text: unknown): number {
  return typeof text === "string" && /^\d+(\.\d+)?s$/.test(text) ? Number.parseFloat(text) * 1000 : 0;
}
