// Takes events from requests that Tollgate sends: checks their signatures, answers at once, refuses what there is no room for.
// An event whose answer gives its token back (`release: on_response`) is worked on before the answer. Requests may have several.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import { timer } from "./backoff.js";
import { isOnResponse, parseEvent, readEvent, type Event } from "./event.js";
import type { Loop, Said } from "./loop.js";
import { words } from "./outcome.js";

// An older request may be somebody else's copy.
const ageMaxS = 300;
// The longest body that is read, and for how long. What is longer is read to its end, within bounds, so that its sender sees the
// answer.
const bodyMax = 16 * 2 ** 20;
const refusedBodyMax = 4 * bodyMax;
const bodyMs = 30_000;
const keepAliveMs = 120_000;
// What a request that is refused for want of room is told to wait.
const waitS = 1;
// How long answers may take to be read when the worker ends.
const lastAnswersMs = 5000;

/** Where to listen, and what requests are signed in. */
export interface ListenOptions {
  /** The port; 0 for any that is free. */
  port: number;
  /** The address; all of the machine by default. */
  host?: string | undefined;
  /** The schedule's `target.http.secret`, and while it is being changed, the one before. At least one. */
  secrets: readonly string[];
}

/** Who takes what comes by requests, while the worker runs. */
interface Taker {
  taking: AbortSignal;
  loop: Loop;
}

/** A small server for the requests of Tollgate: what `listen` resolves to. */
export class HttpSource {
  /** Where it listens, such as http://127.0.0.1:8080. */
  readonly url: string;
  /** The port on which it listens. */
  readonly port: number;

  readonly #server: Server;
  readonly #keys: readonly Buffer[];
  readonly #taker: Promise<Taker>;
  #begin: (taker: Taker) => void = () => undefined;

  /** @internal */
  constructor(server: Server, keys: readonly Buffer[]) {
    const { address, family, port } = server.address() as AddressInfo;
    this.url = `http://${String(family).endsWith("6") ? `[${address}]` : address}:${port}`;
    this.port = port;
    this.#server = server;
    this.#keys = keys;
    // Requests that come before the worker runs wait for it.
    this.#taker = new Promise((resolve) => (this.#begin = resolve));
    server.on("request", (request: IncomingMessage, response: ServerResponse) => {
      // Whoever asked may be gone.
      this.#answer(request, response).catch(() => response.destroy());
    });
  }

  /** @internal */
  check(): void {
    if (!this.#server.listening) throw new TypeError("source: it listens no more, expected what listen resolves to");
  }

  /** @internal */
  async run(taking: AbortSignal, loop: Loop): Promise<void> {
    this.#server.ref();
    this.#begin({ taking, loop });
    // It goes on answering after the signal, so that nobody waits for one who does not.
    await new Promise<void>((resolve, reject) => {
      if (taking.aborted) resolve();
      taking.addEventListener("abort", () => resolve(), { once: true });
      this.#server.once("error", (error) => reject(new Error(`the worker listens no more: ${words(error)}`)));
      this.#server.once("close", () => reject(new Error("the worker listens no more")));
    });
  }

  /** Ends the server. A worker does so itself when it stops. */
  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeIdleConnections();
    const again = setInterval(() => this.#server.closeIdleConnections(), 20);
    // Those who have not read their answers by then do without.
    const limit = timer(lastAnswersMs, () => this.#server.closeAllConnections());
    await closed;
    clearInterval(again);
    clearTimeout(limit);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method !== "POST") return finish(response, 405, "POST is expected");
    const body = await readBody(request);
    if (body === undefined) {
      response.setHeader("connection", "close");
      return finish(response, 413, "the body cannot be read");
    }
    if (!isSigned(this.#keys, request.headers, body)) return finish(response, 401, "not signed in a secret of this worker");
    const text = body.toString("utf8");
    if (text.trimStart().startsWith("[")) return await this.#answerMany(response, text);
    let event: Event;
    try {
      event = parseEvent(text);
    } catch (error) {
      return finish(response, 400, words(error));
    }
    const said = await this.#one(event);
    if (said.status === 503) response.setHeader("retry-after", String(waitS));
    finish(response, said.status, said.message);
  }

  /** Takes an event if there is room, and works on it before the answer where the answer gives the token back. */
  async #one(event: Event): Promise<Said> {
    const { taking, loop } = await this.#taker;
    if (taking.aborted) return { status: 503, message: "the worker stops" };
    if (!loop.placeNow()) return { status: 503, message: "the worker has no room" };
    const leave = loop.enter();
    try {
      if (isOnResponse(event)) return await loop.takeNow(event);
      loop.take({ event, ttlMs: 0 });
      return { status: 202, message: "" };
    } finally {
      leave();
    }
  }

  /** Answers several events: those for which there is no room are refused by name. */
  async #answerMany(response: ServerResponse, text: string): Promise<void> {
    let events: Event[];
    try {
      events = readMany(text);
    } catch (error) {
      return finish(response, 400, words(error));
    }
    const answers = await Promise.all(events.map((event) => this.#one(event)));
    const refused = answers.flatMap((said, at) => {
      if (said.status < 300) return [];
      const retryAfterMs = said.status === 503 ? waitS * 1000 : undefined;
      return [{ id: events[at]?.id, status: "REFUSED", message: said.message, retryAfterMs }];
    });
    finish(response, 202, JSON.stringify({ events: refused }), "application/json");
  }
}

function finish(response: ServerResponse, status: number, message: string, type = "text/plain; charset=utf-8"): void {
  response.statusCode = status;
  if (message !== "") response.setHeader("content-type", type);
  response.end(message);
}

function readMany(text: string): Event[] {
  let documents: unknown[];
  try {
    documents = JSON.parse(text) as unknown[];
  } catch (error) {
    throw new Error(`event: it cannot be read: ${words(error)}`);
  }
  return documents.map(readEvent);
}

/** Reads a body; undefined if it is too long. */
async function readBody(request: IncomingMessage): Promise<Buffer | undefined> {
  let parts: Buffer[] = [];
  let length = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    length += part.length;
    if (length <= bodyMax) parts.push(part);
    else parts = [];
    if (length > refusedBodyMax) break;
  }
  return length > bodyMax ? undefined : Buffer.concat(parts);
}

/** Checks a request as the Standard Webhooks specification says. */
function isSigned(keys: readonly Buffer[], headers: IncomingHttpHeaders, body: Buffer): boolean {
  const { "webhook-id": id, "webhook-timestamp": sent, "webhook-signature": given } = headers;
  if (typeof sent !== "string" || !/^\d+$/.test(sent) || Math.abs(Date.now() / 1000 - Number(sent)) > ageMaxS) return false;
  const signatures = String(given).split(/\s+/).map((one) => Buffer.from(one));
  return keys.some((key) => {
    const mac = createHmac("sha256", key).update(`${String(id ?? "")}.${sent}.`).update(body).digest("base64");
    const expected = Buffer.from(`v1,${mac}`);
    return signatures.some((one) => one.length === expected.length && timingSafeEqual(one, expected));
  });
}

function readSecrets(secrets: readonly string[] | undefined): Buffer[] {
  if (!Array.isArray(secrets) || secrets.length === 0) {
    throw new TypeError("secrets: missing, expected the schedule's target.http.secret");
  }
  return secrets.map((secret: unknown) => {
    const text = typeof secret === "string" ? secret.replace(/^whsec_/, "") : "";
    if (text === "" || text.length % 4 !== 0 || !/^[A-Za-z0-9+/]+={0,2}$/.test(text)) {
      throw new TypeError("secrets: one cannot be read, expected whsec_ and base64");
    }
    return Buffer.from(text, "base64");
  });
}

/** Listens for requests of Tollgate. Requests are to be signed in one of the secrets. */
export async function listen(options: ListenOptions): Promise<HttpSource> {
  const keys = readSecrets(options.secrets);
  const { port, host } = options;
  if (!Number.isInteger(port) || port < 0 || port > 65_535) throw new TypeError(`port: ${String(port)}, expected 0 to 65535`);
  const server = createServer({ requestTimeout: bodyMs, headersTimeout: bodyMs, keepAliveTimeout: keepAliveMs });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => reject(new Error(`address: ${words(error)}`)));
    server.listen({ port, host }, resolve);
  });
  server.removeAllListeners("error");
  // A program that ends before its worker runs is not held up.
  server.unref();
  return new HttpSource(server, keys);
}
