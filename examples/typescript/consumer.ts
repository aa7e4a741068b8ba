// A consumer in TypeScript: takes events over HTTP, works on each once, and gives its token back by REST.
//
//   npm ci && npm run build
//   LISTEN=127.0.0.1:8080 TOLLGATE=http://127.0.0.1:7411 WEBHOOK_SECRET=whsec_… node dist/consumer.js
//
// Node 18 or newer; nothing else at run time. Node 22.18 and newer take this file as it is: node consumer.ts
// SIGTERM: takes nothing new, ends the work under way, gives its tokens back.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

interface TollgateEvent {
  id: string;
  attempt: number;
  data?: { workMs?: number };
}

const ageMaxS = 300; // an older request may be somebody else's copy
const knownMax = 10_000; // a real consumer keeps the ids of events beside what its work makes
const tollgate = process.env.TOLLGATE ?? "http://127.0.0.1:7411";
const [host, port] = (process.env.LISTEN ?? "127.0.0.1:8080").split(":");
if (!process.env.WEBHOOK_SECRET) throw new Error("WEBHOOK_SECRET is not set");
const secret = Buffer.from(process.env.WEBHOOK_SECRET.replace(/^whsec_/, ""), "base64");

/** From an event's id to its latest attempt, and whether its work is done. */
const known = new Map<string, { attempt: number; done: boolean }>();
const underWay = new Set<Promise<void>>();
let stopping = false;

/** What this consumer is for. */
async function work(event: TollgateEvent): Promise<void> {
  console.log(`begin ${event.id} (attempt ${event.attempt})`);
  await sleep(event.data?.workMs ?? 100);
  console.log(`done ${event.id}`);
}

/** As the Standard Webhooks specification says. */
function isSigned(headers: IncomingHttpHeaders, body: Buffer): boolean {
  const { "webhook-id": id, "webhook-timestamp": sent, "webhook-signature": given } = headers;
  if (!(Math.abs(Date.now() / 1000 - Number(sent)) <= ageMaxS)) return false;
  const mac = createHmac("sha256", secret).update(`${id}.${sent}.`).update(body).digest("base64");
  const expected = Buffer.from(`v1,${mac}`);
  return String(given)
    .split(" ")
    .map((one) => Buffer.from(one))
    .some((one) => one.length === expected.length && timingSafeEqual(one, expected));
}

async function handle(event: TollgateEvent): Promise<void> {
  const before = known.get(event.id);
  const state = before ?? { attempt: event.attempt, done: false };
  // Whatever comes last is what Tollgate waits for.
  state.attempt = Math.max(state.attempt, event.attempt);
  if (before && !before.done) return; // it came again while it is worked on
  known.set(event.id, state);
  if (known.size > knownMax) known.delete(known.keys().next().value!);
  const body: Record<string, unknown> = {};
  if (!before) {
    try {
      await work(event);
      state.done = true;
    } catch (error) {
      // Whatever it is, Tollgate is to send the event again.
      known.delete(event.id);
      Object.assign(body, { outcome: "RETRY", message: String(error) });
    }
  }
  await release(event.id, { ...body, attempt: state.attempt });
}

/** A release is idempotent, so it may be repeated until it is answered. */
async function release(id: string, body: object): Promise<void> {
  for (;;) {
    try {
      const answer = await fetch(`${tollgate}/v1/events/${id}:release`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(30_000),
      });
      if (answer.status < 500 && answer.status !== 429) {
        if (!answer.ok) console.log(`${id}: ${answer.status} ${await answer.text()}`);
        return;
      }
    } catch (error) {
      console.log(`not released yet: ${error}`);
    }
    await sleep(1000);
  }
}

const server = createServer(async (request, response) => {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  const body = Buffer.concat(parts);
  if (stopping) return response.writeHead(503, { connection: "close" }).end();
  if (!isSigned(request.headers, body)) return response.writeHead(401).end();
  let event: TollgateEvent;
  try {
    event = JSON.parse(body.toString()) as TollgateEvent;
  } catch {
    return response.writeHead(400).end();
  }
  const task = handle(event).finally(() => underWay.delete(task));
  underWay.add(task);
  // Accepted is not done: the token stays taken until it is released.
  return response.writeHead(202).end();
});

async function stop(): Promise<void> {
  stopping = true;
  server.close();
  server.closeIdleConnections();
  while (underWay.size > 0) await Promise.allSettled(underWay);
  console.log("stopped");
  process.exit(0);
}

process.once("SIGTERM", stop);
process.once("SIGINT", stop);
server.listen(Number(port), host, () => {
  console.log(`listening on http://${host}:${(server.address() as AddressInfo).port}`);
});
