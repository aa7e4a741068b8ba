// The example as a process of its own: its lines, its end by a signal, and that nothing holds it up.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { once } from "node:events";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Fake, Running, until } from "./fake.js";

after(() => {
  for (const child of children) child.kill("SIGKILL");
  Running.endAll();
});

const example = fileURLToPath(new URL("../../examples/resize.js", import.meta.url));

const children: ChildProcess[] = [];

/** A process of the example. */
class Example {
  readonly lines: string[] = [];
  errors = "";
  readonly #child: ChildProcess;
  readonly #ended: Promise<unknown[]>;

  constructor(environment: Record<string, string>) {
    this.#child = spawn(process.execPath, [example], { env: { PATH: process.env["PATH"], ...environment } });
    children.push(this.#child);
    this.#ended = once(this.#child, "close");
    let rest = "";
    this.#child.stdout?.on("data", (part) => {
      const lines = (rest + String(part)).split("\n");
      rest = lines.pop() ?? "";
      this.lines.push(...lines);
    });
    this.#child.stderr?.on("data", (part) => (this.errors += String(part)));
  }

  /** Sends a signal, and returns the code with which the process ends. */
  async stop(signal: NodeJS.Signals): Promise<unknown> {
    this.#child.kill(signal);
    return await this.end();
  }

  async end(): Promise<unknown> {
    const late = setTimeout(() => this.#child.kill("SIGKILL"), 60_000);
    const [code] = await this.#ended;
    clearTimeout(late);
    return code;
  }
}

test("the example pulls, and ends by a signal", async () => {
  const fake = await Fake.start();
  const run = new Example({ QUEUE: "resize", TOLLGATE: fake.url, CONCURRENCY: "1" });
  fake.put("e1", 1, "900s", { workMs: 20, stumble: 7 });
  await until("a stumble", () => fake.released("e1").length === 1);
  fake.put("e1", 2, "900s", { workMs: 20, stumble: 7 });
  fake.put("e2", 1, "900s", {});
  await until("the rest", () => fake.released("e1").length === 2 && fake.released("e2").length === 1);
  assert.equal(await run.stop("SIGTERM"), 0, run.errors);
  const begins = ["pulling from resize", "begin e1 (attempt 1)", "stumbled e1", "begin e1 (attempt 2)", "done e1"];
  assert.deepEqual(run.lines, [...begins, "stopped"]);
  const told = fake.released("e1").map(({ outcome, message }) => [outcome, message]);
  assert.deepEqual(told, [["RETRY", "the disk is full"], ["SUCCEEDED", undefined]]);
  assert.equal(fake.released("e2")[0]?.outcome, "FAILED");
  assert.equal(run.errors, "");
  await fake.close();
});

test("the example listens, and ends by a signal", async () => {
  const fake = await Fake.start();
  const run = new Example({ LISTEN: "127.0.0.1:0", WEBHOOK_SECRET: "whsec_YQ==", TOLLGATE: fake.url });
  await until("its first line", () => run.lines.length === 1);
  const url = /^listening on (http:\/\/127\.0\.0\.1:\d+)$/.exec(run.lines[0] ?? "")?.[1] ?? "";
  const body = JSON.stringify({ id: "e1", data: { workMs: 50 } });
  const sent = Math.floor(Date.now() / 1000);
  const signature = `v1,${createHmac("sha256", "a").update(`m.${sent}.${body}`).digest("base64")}`;
  const headers = { "webhook-id": "m", "webhook-timestamp": String(sent), "webhook-signature": signature };
  assert.equal((await fetch(url, { method: "POST", headers, body })).status, 202);
  await until("its release", () => fake.released("e1").length === 1);
  assert.equal(await run.stop("SIGINT"), 0, run.errors);
  assert.deepEqual(run.lines.slice(1), ["begin e1 (attempt 1)", "done e1", "stopped"]);
  await fake.close();
});

test("a refusal ends the process with an error", async () => {
  const fake = await Fake.start();
  fake.refuse = () => ({ status: 401, body: '{"code": 16, "message": "a key is missing"}' });
  const run = new Example({ QUEUE: "resize", TOLLGATE: fake.url });
  assert.equal(await run.end(), 1);
  assert.match(run.errors, /RefusedError: a key is missing[^]*httpStatus: 401/);
  await fake.close();
});
