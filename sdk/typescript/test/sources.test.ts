// The sources that are not polls of Tollgate: requests, and queues of SQS.

import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { SQSClient } from "@aws-sdk/client-sqs";

import { FailedError, listen, sqs, Worker } from "../src/index.js";
import { SqsSource } from "../src/sqs.js";
import { Fake, Gate, Running, until } from "./fake.js";

after(Running.endAll);

const secret = "whsec_YS1zZWNyZXQtdGhhdC1ldmVyeWJvZHkta25vd3M=";
const silent = (): undefined => undefined;

/** Posts a body, signed in a secret, and returns the status, the body and the Retry-After of the answer. */
async function send(url: string, body: string, signedIn = secret, sent = Date.now()): Promise<[number, string, string | null]> {
  const seconds = Math.floor(sent / 1000);
  const key = Buffer.from(signedIn.replace("whsec_", ""), "base64");
  const mac = createHmac("sha256", key).update(`id.${seconds}.${body}`).digest("base64");
  const headers = { "webhook-id": "id", "webhook-timestamp": String(seconds), "webhook-signature": `v1,AAAA v1,${mac}` };
  const answer = await fetch(url, { method: "POST", headers, body });
  return [answer.status, await answer.text(), answer.headers.get("retry-after")];
}

test("listen takes what is signed, and refuses what it has no room for", async () => {
  const fake = await Fake.start();
  const next = `whsec_${Buffer.from("new").toString("base64")}`;
  const source = await listen({ port: 0, host: "127.0.0.1", secrets: [next, secret] });
  assert.equal(source.url, `http://127.0.0.1:${source.port}`);
  const gate = new Gate();
  let begun = 0;
  const running = new Running({ server: fake.url, source, concurrency: 2, log: silent }, async (event) => {
    begun++;
    if (event.id.startsWith("slow")) await gate.opened;
    if (event.id === "bad") throw new Error("disk full");
  });
  const expect = async (body: string, wanted: number, said: string, signedIn?: string, sent?: number): Promise<void> => {
    const [status, text, after] = await send(source.url, body, signedIn, sent);
    const isMeant = status === wanted && text.includes(said) && (status === 503) === (after === "1");
    assert.ok(isMeant, `${body}: ${status} ${text} ${after}`);
  };
  await expect('{"id": "forged"}', 401, "not signed", "whsec_Zm9yZ2Vk");
  await expect('{"id": "old"}', 401, "not signed", secret, Date.now() - 3_600_000);
  await expect('{"attempt": 1}', 400, "id: missing");
  await expect('[{"id": "e"}, 7]', 400, "expected an object");
  await expect('{"id": "good", "release": "on_response"}', 200, "");
  await expect('{"id": "bad", "release": "on_response"}', 500, "disk full");
  await expect('{"id": "slow-1"}', 202, "");
  await until("work", () => begun === 3);
  await expect('{"id": "slow-1", "release": "on_response"}', 409, "being worked on");
  await expect('[{"id": "slow-2"}]', 202, '{"events":[]}');
  await until("work", () => begun === 4);
  await expect('{"id": "more"}', 503, "no room");
  const many = '{"id":"many","status":"REFUSED","message":"the worker has no room","retryAfterMs":1000}';
  await expect(' [{"id": "more"}, {"id": "many"}]', 202, many);
  assert.equal((await fetch(source.url)).status, 405);
  running.worker.stop();
  await expect('{"id": "late"}', 503, "stops");
  gate.open();
  assert.equal(await running.end(), undefined);
  assert.equal(begun, 4);
  assert.deepEqual(["slow-1", "slow-2", "good", "bad"].map((id) => fake.released(id).length), [1, 1, 0, 0]);
  await assert.rejects(send(source.url, "{}"), "it listens no more");
  await fake.close();
});

test("a body that is too long is refused", async () => {
  const fake = await Fake.start();
  const source = await listen({ port: 0, host: "127.0.0.1", secrets: [secret] });
  const running = new Running({ server: fake.url, source, log: silent }, silent);
  const long = JSON.stringify({ id: "long", data: "a".repeat(16 * 2 ** 20) });
  assert.equal((await send(source.url, long))[0], 413);
  assert.equal((await send(source.url, JSON.stringify({ id: "short", data: "a".repeat(2 ** 20) })))[0], 202);
  await until("its release", () => fake.released("short").length === 1);
  assert.equal(await running.stop(), undefined);
  await fake.close();
});

test("requests that come before the worker runs wait for it", async () => {
  const fake = await Fake.start();
  const source = await listen({ port: 0, host: "127.0.0.1", secrets: [secret] });
  const early = send(source.url, '{"id": "early"}');
  await sleep(100);
  const running = new Running({ server: fake.url, source, log: silent }, silent);
  assert.equal((await early)[0], 202);
  await until("its release", () => fake.released("early").length === 1);
  assert.equal(await running.stop(), undefined);
  await fake.close();
});

test("secrets that cannot be read, and addresses that cannot be had, are refused", async () => {
  for (const secrets of [[], [""], ["whsec_&"], [secret, "whsec_abc"], undefined, "whsec_YQ=="]) {
    await assert.rejects(listen({ port: 0, host: "127.0.0.1", secrets: secrets as string[] }), /^TypeError: secrets:/);
  }
  await assert.rejects(listen({ port: Number.NaN, secrets: [secret] }), /^TypeError: port: NaN/);
  const taken = await listen({ port: 0, host: "127.0.0.1", secrets: [secret] });
  await assert.rejects(listen({ port: taken.port, host: "127.0.0.1", secrets: [secret] }), /^Error: address: .*EADDRINUSE/);
  await taken.close();
});

interface Command {
  constructor: { name: string };
  input: {
    QueueUrl: string;
    MaxNumberOfMessages?: number;
    WaitTimeSeconds?: number;
    ReceiptHandle?: string;
    VisibilityTimeout?: number;
  };
}

/** An SQS queue in memory. */
class Queue {
  readonly messages: { Body: string; ReceiptHandle: string }[] = [];
  readonly deleted: (string | undefined)[] = [];
  readonly hidden = new Map<string | undefined, number>();
  readonly shown: (string | undefined)[] = [];
  /** Opens when it is asked, and has nothing left. It answers then as soon as the other one is opened, whatever the signal. */
  readonly asked = new Gate();
  late: Gate | undefined;
  most = 0;
  fails = 0;

  async send(command: unknown, options?: { abortSignal?: AbortSignal }): Promise<unknown> {
    const { constructor, input } = command as Command;
    assert.equal(input.QueueUrl, "http://sqs/queue");
    switch (constructor.name) {
      case "ReceiveMessageCommand":
        assert.equal(input.WaitTimeSeconds, 5);
        return { Messages: await this.#receive(input.MaxNumberOfMessages ?? 0, options?.abortSignal) };
      case "DeleteMessageCommand":
        this.deleted.push(input.ReceiptHandle);
        return {};
      default:
        if (input.VisibilityTimeout === 0) return this.#show(input.ReceiptHandle);
        assert.equal(input.VisibilityTimeout, 3);
        this.hidden.set(input.ReceiptHandle, (this.hidden.get(input.ReceiptHandle) ?? 0) + 1);
        return {};
    }
  }

  #show(receipt: string | undefined): unknown {
    if (receipt === "gone") throw new Error("no such message");
    this.shown.push(receipt);
    return {};
  }

  /** It waits for 50 ms, not for 5 s, unless it is to answer later. */
  async #receive(max: number, signal: AbortSignal | undefined): Promise<unknown[] | undefined> {
    if (this.fails-- > 0) throw new Error("throttled");
    this.most = Math.max(this.most, max);
    for (const end = performance.now() + 50; this.messages.length === 0 && performance.now() < end; await sleep(2)) {
      if (signal?.aborted) throw new Error("aborted");
    }
    if (this.messages.length > 0 || this.late === undefined) return this.messages.splice(0, max);
    this.asked.open();
    await this.late.opened;
    return ["gone", "late-1", "late-2"].map((name) => ({ Body: JSON.stringify({ id: name }), ReceiptHandle: name }));
  }
}

test("sqs deletes a message after its release was answered", async () => {
  const fake = await Fake.start();
  const queue = new Queue();
  queue.fails = 2;
  queue.messages.push({ Body: "no event", ReceiptHandle: "x" });
  for (let n = 0; n < 5; n++) queue.messages.push({ Body: `{"id": "e${n}", "attempt": 1}`, ReceiptHandle: String(n) });
  let holds = true;
  fake.refuse = () => (holds ? { status: 503, body: "busy" } : undefined);
  const lines: string[] = [];
  const source = sqs({ queueUrl: "http://sqs/queue", client: queue, visibilityMs: 3000 });
  const running = new Running({ server: fake.url, source, concurrency: 3, log: (line) => lines.push(line) }, silent);
  await until("a message that is hidden again", () => (queue.hidden.get("0") ?? 0) > 1);
  assert.equal(queue.deleted.length, 0, "deleted before a release was answered");
  holds = false;
  await until("an empty queue", () => queue.deleted.length === 5);
  assert.equal(await running.stop(), undefined);
  for (let n = 0; n < 5; n++) assert.equal(fake.released(`e${n}`).length, 1);
  assert.equal(queue.most, 3);
  assert.ok(!queue.deleted.includes("x"));
  assert.equal(lines.filter((line) => line.startsWith("a message is left to the queue: event: it cannot be read")).length, 1);
  assert.equal(lines.filter((line) => line.startsWith("taking events fails, and is tried again: throttled")).length, 1);
  await fake.close();
});

test("sqs deletes a message whose event needs no release after the work", async () => {
  const fake = await Fake.start();
  const calls = fake.holdNothing();
  const queue = new Queue();
  const [works, cancelled, lines]: [string[], boolean[], string[]] = [[], [], []];
  const put = (id: string, ReceiptHandle: string): void => {
    queue.messages.push({ Body: JSON.stringify({ id, attempt: 1, release: "on_response" }), ReceiptHandle });
  };
  const options = { server: fake.url, firstHeartbeatMs: 50, log: (line: string) => void lines.push(line) };
  const source = sqs({ queueUrl: "http://sqs/queue", client: queue, visibilityMs: 3000 });
  const running = new Running({ ...options, source }, async (event, context) => {
    works.push(event.id);
    await context.heartbeat();
    if (event.id === "slow") await sleep(2500);
    cancelled.push(context.signal.aborted);
    if (event.id === "failed") throw new FailedError("no such file");
    if (event.id === "bad" && !works.includes("failed")) throw new Error("disk full");
  });
  for (const id of ["slow", "bad", "failed"]) put(id, id);
  await until("all but the one that is left", () => queue.deleted.join() === "slow,failed");
  // It shows again, under the same attempt; and so does one that is done.
  put("bad", "bad again");
  put("slow", "slow again");
  await until("an empty queue", () => queue.deleted.join() === "slow,failed,bad again,slow again");
  assert.equal(await running.stop(), undefined);
  assert.deepEqual([works, cancelled, calls], [["slow", "bad", "failed", "bad"], [false, false, false, false], []]);
  assert.ok((queue.hidden.get("slow") ?? 0) > 1);
  assert.deepEqual(lines, [
    "event bad: failed, and is left to its queue: disk full",
    "event failed: failed, and counts as done, as its token has gone: no such file",
  ]);
  await fake.close();
});

test("sqs shows again what a poll brings after a stop", async () => {
  const fake = await Fake.start();
  const [queue, work] = [new Queue(), new Gate()];
  const [late, works, lines]: [Gate, string[], string[]] = [new Gate(), [], []];
  queue.late = late;
  queue.messages.push({ Body: '{"id": "before"}', ReceiptHandle: "before" });
  const source = sqs({ queueUrl: "http://sqs/queue", client: queue, visibilityMs: 3000 });
  const options = { server: fake.url, source, concurrency: 3, log: (line: string) => void lines.push(line) };
  const running = new Running(options, async (event) => {
    works.push(event.id);
    await work.opened;
  });
  await queue.asked.opened;
  running.worker.stop();
  // Releases do not wait for the poll.
  work.open();
  await until("the release of what was begun", () => queue.deleted.length === 1);
  late.open();
  assert.equal(await running.end(), undefined);
  assert.deepEqual([works, queue.shown, queue.deleted], [["before"], ["late-1", "late-2"], ["before"]]);
  assert.deepEqual(lines, ["a message is not shown again, and comes when its visibility ends: no such message"]);
  await fake.close();
});

test("a stop waits for a poll of sqs no longer than it may", async () => {
  const fake = await Fake.start();
  for (const [lastPollMs, drainTimeoutMs] of [[200, 30_000], [30_000, 200]] as const) {
    const queue = new Queue();
    queue.late = new Gate();
    const source = new SqsSource({ queueUrl: "http://sqs/queue", client: queue, visibilityMs: 3000 }, lastPollMs);
    const running = new Running({ server: fake.url, source, drainTimeoutMs, log: silent }, silent);
    await queue.asked.opened;
    const stopped = performance.now();
    assert.equal(await running.stop(), undefined);
    const took = performance.now() - stopped;
    assert.ok(took > 150 && took < 5000, `${took} ms`);
    queue.late.open();
  }
  await fake.close();
});

test("sqs asks for no more than SQS gives", async () => {
  const fake = await Fake.start();
  const queue = new Queue();
  queue.messages.push({ Body: '{"id": "e"}', ReceiptHandle: "0" });
  const source = sqs({ queueUrl: "http://sqs/queue", client: queue, visibilityMs: 3000 });
  const running = new Running({ server: fake.url, source, concurrency: 50, log: silent }, silent);
  await until("an empty queue", () => queue.deleted.length === 1);
  assert.equal(await running.stop(), undefined);
  assert.equal(queue.most, 10);
  await fake.close();
});

test("sqs takes a client of the package", () => {
  const client = new SQSClient({ region: "eu-west-1" });
  assert.doesNotThrow(() => new Worker({ source: sqs({ queueUrl: "http://sqs/queue", client }) }, silent));
  client.destroy();
});

test("sqs finds its own client by the environment", async () => {
  const fake = await Fake.start();
  const deleted: string[] = [];
  let polls = 0;
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (part) => (text += String(part)));
    request.on("end", () => {
      const polled = request.headers["x-amz-target"] === "AmazonSQS.ReceiveMessage" ? ++polls : 0;
      if (request.headers["x-amz-target"] === "AmazonSQS.DeleteMessage") {
        deleted.push((JSON.parse(text) as { ReceiptHandle: string }).ReceiptHandle);
      }
      const Body = '{"id": "e"}';
      const message = { MessageId: "m", Body, MD5OfBody: createHash("md5").update(Body).digest("hex"), ReceiptHandle: "r" };
      const answer = JSON.stringify(polled === 1 ? { Messages: [message] } : {});
      // A stop waits for a poll that is answered in time.
      const answering = setTimeout(
        () => response.writeHead(200, { "content-type": "application/x-amz-json-1.0" }).end(answer),
        polled > 1 ? 500 : 0,
      );
      response.on("close", () => clearTimeout(answering));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const settings = { AWS_ENDPOINT_URL: endpoint, AWS_REGION: "eu-west-1", AWS_ACCESS_KEY_ID: "a", AWS_SECRET_ACCESS_KEY: "b" };
  Object.assign(process.env, settings);
  try {
    const running = new Running({ server: fake.url, source: sqs({ queueUrl: `${endpoint}/1/queue` }), log: silent }, silent);
    await until("an empty queue", () => deleted.length === 1);
    assert.equal(fake.released("e").length, 1);
    const stopped = performance.now();
    assert.equal(await running.stop(), undefined);
    assert.ok(performance.now() - stopped < 5000, "the poll is waited for, and no longer");
  } finally {
    for (const name of Object.keys(settings)) delete process.env[name];
    server.close();
    server.closeAllConnections();
    await fake.close();
  }
});
