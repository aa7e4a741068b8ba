// A worker by each of the ways: events are pulled from a queue, come by HTTP, or lie in a queue of SQS.
//
//   QUEUE=resize TOLLGATE=http://127.0.0.1:7411 node examples/resize.js
//   LISTEN=127.0.0.1:8080 WEBHOOK_SECRET=whsec_… node examples/resize.js
//   QUEUE_URL=https://sqs.… node examples/resize.js     (with the package @aws-sdk/client-sqs)

import { setTimeout as sleep } from "node:timers/promises";

import { type Context, type Event, FailedError, listen, pull, type Source, sqs, Worker } from "@tollgate/worker";

/** What the schedules carry. */
interface Picture {
  workMs: number;
  /** The first event with this index stumbles, once. */
  stumble?: number;
}

let stumbled = false;

/** The work. */
async function resize(event: Event<Picture>, context: Context): Promise<void> {
  const { workMs, stumble } = event.data ?? {};
  if (!Number.isFinite(workMs)) throw new FailedError(`data: workMs: ${String(workMs)}, expected a number`);
  console.log(`begin ${event.id} (attempt ${event.attempt})`);
  await sleep(workMs, undefined, { signal: context.signal });
  if (stumble === event.index && !stumbled) {
    stumbled = true;
    console.log(`stumbled ${event.id}`);
    throw new Error("the disk is full");
  }
  console.log(`done ${event.id}`);
}

function setting(name: string, otherwise: string): string {
  return process.env[name] || otherwise;
}

async function source(): Promise<Source> {
  const { QUEUE: queue, QUEUE_URL: queueUrl, WEBHOOK_SECRET: secret = "" } = process.env;
  if (queue) {
    console.log(`pulling from ${queue}`);
    return pull({ queue });
  }
  if (queueUrl) {
    console.log(`pulling from ${queueUrl}`);
    return sqs({ queueUrl });
  }
  const address = setting("LISTEN", "127.0.0.1:8080");
  const at = address.lastIndexOf(":");
  const host = address.slice(0, at).replace(/^\[|\]$/g, "") || undefined;
  const listening = await listen({ host, port: Number(address.slice(at + 1)), secrets: [secret] });
  console.log(`listening on ${listening.url}`);
  return listening;
}

await new Worker({ source: await source(), concurrency: Number(setting("CONCURRENCY", "4")) }, resize).run();
console.log("stopped");
