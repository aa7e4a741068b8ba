// The loop, against a fake server: what is released, when, and how it ends.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { FailedError, listen, Outcome, pull, RefusedError, sqs, TokenLostError, Worker, type Options } from "../src/index.js";
import { Fake, forSignal, Gate, pulling, Running, until } from "./fake.js";

after(Running.endAll);

/** A test with a fake server of its own. */
function withFake(name: string, body: (fake: Fake) => Promise<void>): void {
  test(name, async () => {
    const fake = await Fake.start();
    try {
      await body(fake);
    } finally {
      await fake.close();
    }
  });
}

withFake("each event is done once, and never more than there is room for", async (fake) => {
  let [now, most, all] = [0, 0, 0];
  const running = new Running(pulling(fake, 3), async (event) => {
    most = Math.max(most, ++now);
    await sleep(10);
    now--;
    all++;
    assert.deepEqual([event.index, event.count, event.data, event.time?.getTime()], [7, 9, { n: 1 }, Date.UTC(2026, 10, 28, 3)]);
    return { pages: 3 };
  });
  for (let n = 0; n < 20; n++) fake.put(`e${n}`, 1, "900s");
  await until("the end of all", () => all === 20 && fake.released("e19").length === 1);
  assert.equal(await running.stop(), undefined);
  assert.equal(most, 3);
  for (let n = 0; n < 20; n++) {
    assert.deepEqual(fake.released(`e${n}`), [{ outcome: "SUCCEEDED", attempt: 1, result: { pages: 3 } }]);
  }
  for (const ask of fake.asks) {
    assert.ok(ask.maxEvents >= 1 && ask.maxEvents <= 3, JSON.stringify(ask));
    assert.deepEqual({ ...ask, maxEvents: 0 }, { maxEvents: 0, wait: "1.000s", labels: ["gpu"], worker: "render-1" });
  }
  assert.deepEqual([...fake.keys], ["Bearer tgk_1"]);
});

withFake("what a handler says is what is released", async (fake) => {
  const at = new Date(Date.UTC(2026, 10, 28, 3));
  const long = "é".repeat(4000);
  const running = new Running(pulling(fake, 20), (event, context) => {
    switch (event.id) {
      case "error":
        throw new Error("disk full");
      case "text":
        throw "disk full";
      case "failed":
        throw new Error("later", { cause: new FailedError("no such file") });
      case "told":
        context.setCursor("page-2");
        context.setNextCheckTime(at);
        context.setMessage("half");
        return 7;
      case "outcome":
        return Promise.resolve(new Outcome({ status: "FAILED", message: "no" }));
      case "whole":
        return new Outcome({ result: [1], message: "all", cursor: "", nextCheckTime: at });
      case "unwritable":
        return () => undefined;
      case "circle": {
        const circle: Record<string, unknown> = {};
        circle["it"] = circle;
        return circle;
      }
      case "never":
        context.setNextCheckTime(new Date(Number.NaN));
        return undefined;
      case "null":
        return null;
      case "broken":
        throw new Error("\ud800");
      default:
        throw new Error(long);
    }
  });
  const nextCheckTime = "2026-11-28T03:00:00.000Z";
  const expected: Record<string, unknown> = {
    error: { outcome: "RETRY", message: "disk full" },
    text: { outcome: "RETRY", message: "disk full" },
    failed: { outcome: "FAILED", message: "later: no such file" },
    told: { outcome: "SUCCEEDED", message: "half", cursor: "page-2", nextCheckTime },
    outcome: { outcome: "FAILED", message: "no" },
    whole: { outcome: "SUCCEEDED", message: "all", cursor: "", nextCheckTime },
    unwritable: { outcome: "RETRY", message: "result: it is not JSON: a function" },
    never: { outcome: "RETRY", message: "nextCheckTime: Invalid Date, expected a valid Date" },
    null: { outcome: "SUCCEEDED", result: null },
    broken: { outcome: "RETRY", message: "\ufffd" },
    // 4,096 bytes.
    long: { outcome: "RETRY", message: "é".repeat(2048) },
  };
  for (const id of [...Object.keys(expected), "circle"]) fake.put(id, 1, "");
  for (const [id, wanted] of Object.entries(expected)) {
    await until(id, () => fake.released(id).length === 1);
    assert.deepEqual(fake.released(id), [{ attempt: 1, ...(wanted as object) }], id);
  }
  await until("circle", () => fake.released("circle").length === 1);
  assert.match(fake.released("circle")[0]?.message ?? "", /^result: it is not JSON: Converting circular/);
  assert.equal(await running.stop(), undefined);
});

withFake("heartbeats come at a third of the time to live", async (fake) => {
  const took = new Map<string, number>();
  const running = new Running({ ...pulling(fake, 2), firstHeartbeatMs: 50 }, async (event) => {
    const begun = performance.now();
    await until("heartbeats", () => (fake.beats.get(event.id) ?? 0) >= 12);
    took.set(event.id, performance.now() - begun);
  });
  fake.put("told", 1, "0.300s");
  fake.put("untold", 1, "");
  await until("both", () => fake.released("told").length === 1 && fake.released("untold").length === 1);
  assert.equal(await running.stop(), undefined);
  // At 100, 200, …, where an answer says nothing; and at 50, 150, …, where each says 0.3 s. Later on a slow machine.
  for (const [id, ms] of took) assert.ok(ms >= 800 && ms < 30_000, `${id}: 12 heartbeats in ${ms} ms`);
});

withFake("a handler is told that its token is lost", async (fake) => {
  const body = '{"code": 9, "message": "the event holds no token"}';
  fake.refuse = (path) => (path.endsWith(":extend") ? { status: 400, body } : undefined);
  let byHand: unknown;
  const running = new Running(pulling(fake, 2), async (event, context) => {
    if (event.id === "lost") await forSignal(context.signal);
    await context.heartbeat().catch((error: unknown) => (byHand = error));
    return context.signal.aborted;
  });
  fake.put("lost", 1, "0.060s");
  fake.put("hand", 1, "900s");
  await until("both", () => fake.released("lost").length === 1 && fake.released("hand").length === 1);
  const message = "the event is no longer held by this worker";
  assert.deepEqual(fake.released("lost"), [{ outcome: "RETRY", attempt: 1, message }]);
  assert.deepEqual(fake.released("hand"), [{ outcome: "SUCCEEDED", attempt: 1, result: true }]);
  assert.ok(byHand instanceof TokenLostError);
  assert.equal(await running.stop(), undefined);
});

withFake("repeats are not worked on again, and next attempts are", async (fake) => {
  const gate = new Gate();
  let works = 0;
  const running = new Running(pulling(fake, 4), async (event) => {
    works++;
    if (event.id === "slow") await gate.opened;
    if (event.id === "again" && event.attempt === 1) throw new Error("not yet");
  });
  fake.put("slow", 1, "");
  fake.put("slow", 2, "");
  fake.put("again", 1, "");
  await until("the first attempt", () => fake.released("again").length === 1);
  fake.put("again", 2, "");
  await until("the second attempt", () => fake.released("again").length === 2);
  gate.open();
  await until("the slow one", () => fake.released("slow").length === 1);
  fake.put("slow", 3, "");
  await until("its repeat", () => fake.released("slow").length === 2);
  assert.equal(await running.stop(), undefined);
  assert.equal(works, 3);
  assert.deepEqual(fake.released("slow").map((told) => told.attempt), [2, 3]);
  assert.deepEqual(fake.released("again").map((told) => [told.outcome, told.attempt]), [["RETRY", 1], ["SUCCEEDED", 2]]);
});

withFake("a release that is repeated goes under the attempt that came last", async (fake) => {
  let busy = 0;
  fake.refuse = (path) => {
    if (!path.endsWith(":release") || busy === 2) return undefined;
    return { status: 503, body: `busy ${++busy}`, retryAfter: "1" };
  };
  const running = new Running(pulling(fake, 2), () => undefined);
  fake.put("e", 1, "");
  await until("a release that is refused", () => busy === 1);
  fake.put("e", 2, "");
  await until("both releases", () => fake.released("e").length === 2);
  assert.equal(await running.stop(), undefined);
  assert.deepEqual(fake.released("e").map((told) => told.attempt), [2, 2]);
});

withFake("what cannot be read, and what there is no room for, is given back", async (fake) => {
  const gate = new Gate();
  const running = new Running(pulling(fake, 1), () => gate.opened);
  fake.putText("odd", "no event");
  await until("what cannot be read", () => fake.released("odd").length === 1);
  assert.equal(fake.released("odd")[0]?.outcome, "RETRY");
  assert.match(fake.released("odd")[0]?.message ?? "", /^event: it cannot be read: /);
  gate.open();
  fake.put("e", 1, "");
  await until("what can", () => fake.released("e").length === 1);
  assert.equal(await running.stop(), undefined);
});

withFake("an event whose token has gone is worked on, and nobody told", async (fake) => {
  const calls = fake.holdNothing();
  const [works, cancelled, lines]: [string[], boolean[], string[]] = [[], [], []];
  const running = new Running({ ...pulling(fake, 1), log: (line) => lines.push(line) }, async (event, context) => {
    works.push(event.id);
    if (event.id === "slow") {
      await context.heartbeat();
      await sleep(400);
      cancelled.push(context.signal.aborted);
    }
    if (event.id === "bad") throw works.includes("last") ? new FailedError("no such file") : new Error("disk full");
  });
  // With one place. One that is done is passed over, one that failed is tried again, and what cannot be read is lost.
  for (const id of ["slow", "bad", "last", "slow", "bad"]) fake.putOnResponse(id);
  fake.putOnResponse("odd", { index: "one" });
  fake.putOnResponse("end");
  await until("the end", () => works.at(-1) === "end");
  assert.equal(await running.stop(), undefined);
  assert.deepEqual([works, cancelled, calls], [["slow", "bad", "last", "bad", "end"], [false], []]);
  assert.deepEqual(lines, [
    "event bad: failed, and counts as done, as its token has gone: disk full",
    "event bad: failed, and counts as done, as its token has gone: no such file",
    'event odd: lost, as its token has gone: event: index: "one", expected a whole number',
  ]);
});

withFake("a drain gives up an event whose token has gone", async (fake) => {
  const calls = fake.holdNothing();
  const lines: string[] = [];
  let begun = false;
  const options = { ...pulling(fake, 1), drainTimeoutMs: 200, log: (line: string) => void lines.push(line) };
  const running = new Running(options, (_, context) => {
    begun = true;
    return forSignal(context.signal);
  });
  fake.putOnResponse("long");
  await until("work", () => begun);
  const stopped = performance.now();
  assert.equal(await running.stop(), undefined);
  assert.ok(performance.now() - stopped < 8000);
  assert.deepEqual(calls, []);
  const why = "the worker stopped before the event was done";
  assert.deepEqual(lines, [`event long: failed, and counts as done, as its token has gone: ${why}`]);
});

withFake("an outage ends nothing, and is logged once", async (fake) => {
  const lines: string[] = [];
  let tries = 0;
  fake.refuse = () => (++tries <= 6 ? { status: [503, 429, 500][tries % 3] ?? 503, body: "busy" } : undefined);
  const running = new Running({ ...pulling(fake, 1), log: (line) => lines.push(line) }, () => undefined);
  fake.put("e", 1, "");
  await until("its release", () => fake.released("e").length === 1);
  tries = 3;
  fake.put("f", 1, "");
  await until("the next release", () => fake.released("f").length === 1);
  assert.equal(await running.stop(), undefined);
  const fails = lines.filter((line) => line.includes("taking events fails, and is tried again: HTTP ")).length;
  assert.ok(fails >= 1 && fails <= 2, lines.join("\n"));
  assert.equal(lines.filter((line) => line.includes("taking events works again, after ")).length, fails);
});

withFake("a server that is away is waited for", async (fake) => {
  const lines: string[] = [];
  const gone = await Fake.start();
  const server = gone.url;
  await gone.close();
  const running = new Running({ ...pulling(fake, 1), server, log: (line) => lines.push(line) }, () => undefined);
  await until("a line", () => lines.length > 0);
  await sleep(400);
  assert.equal(await running.stop(), undefined);
  assert.equal(lines.length, 1, lines.join("\n"));
  assert.match(lines[0] ?? "", /ECONNREFUSED/);
});

for (const [status, code, message] of [
  [400, 3, "labels: GPU, expected lower-case letters"],
  [401, 16, "a key is missing"],
  [403, 7, "the key may not"],
  [501, 12, "no such call"],
] as const) {
  withFake(`a refusal for good ends the loop: ${status}`, async (fake) => {
    fake.refuse = () => ({ status, body: JSON.stringify({ code, message }) });
    const refused = await new Running(pulling(fake, 1), () => undefined).end();
    assert.ok(refused instanceof RefusedError, String(refused));
    assert.deepEqual([refused.httpStatus, refused.code, refused.message], [status, code, message]);
  });
}

withFake("a key that is refused at a release ends the loop", async (fake) => {
  const body = '{"code": 16, "message": "the key was revoked"}';
  fake.refuse = (path) => (path.endsWith(":release") ? { status: 401, body } : undefined);
  const running = new Running(pulling(fake, 1), () => undefined);
  fake.put("e", 1, "");
  const refused = await running.end();
  assert.ok(refused instanceof RefusedError && refused.httpStatus === 401, String(refused));
});

for (const status of [400, 413]) {
  withFake(`a release that is refused has the event come again: ${status}`, async (fake) => {
    let tries = 0;
    const body = '{"code": 3, "message": "next_check_time: too late"}';
    fake.refuse = (path) => (path.endsWith(":release") && ++tries === 1 ? { status, body } : undefined);
    const running = new Running(pulling(fake, 1), () => undefined);
    fake.put("e", 4, "");
    await until("its release", () => fake.released("e").length === 1);
    assert.equal(await running.stop(), undefined);
    const message = "the release was refused: next_check_time: too late";
    assert.deepEqual(fake.released("e"), [{ outcome: "RETRY", attempt: 4, message }]);
  });
}

for (const status of ["LATE", "ALREADY_RELEASED", "COMES_AGAIN"]) {
  withFake(`${status} is an answer`, async (fake) => {
    fake.status = status;
    const running = new Running(pulling(fake, 1), () => undefined);
    fake.put("e", 1, "");
    await until("its release", () => fake.released("e").length === 1);
    await sleep(300);
    assert.equal(await running.stop(), undefined);
    assert.equal(fake.released("e").length, 1);
  });
}

withFake("a drain ends the work, and gives up what takes too long", async (fake) => {
  let begun = 0;
  let reason: unknown;
  const told = new Gate();
  const listeners = process.listenerCount("SIGTERM") + process.listenerCount("SIGINT");
  const running = new Running({ ...pulling(fake, 2), drainTimeoutMs: 3000 }, async (event, context) => {
    begun++;
    if (event.id === "short") return await told.opened;
    await forSignal(context.signal).catch((error: unknown) => (reason = error));
  });
  process.once("SIGTERM", () => told.open());
  fake.put("short", 1, "");
  fake.put("long", 1, "");
  await until("work", () => begun === 2);
  fake.put("late", 1, "");
  // As a process manager does it; the signal is the worker's as long as it runs.
  process.kill(process.pid, "SIGTERM");
  assert.equal(await running.end(), undefined);
  assert.deepEqual(fake.released("short"), [{ outcome: "SUCCEEDED", attempt: 1 }]);
  const message = "the worker stopped before the event was done";
  assert.deepEqual(fake.released("long"), [{ outcome: "RETRY", attempt: 1, message }]);
  assert.equal((reason as Error).message, message);
  assert.equal(begun, 2);
  assert.equal(process.listenerCount("SIGTERM") + process.listenerCount("SIGINT"), listeners);
  let open = 1;
  // The server itself closes none.
  await until("the end of its connections", () => {
    void fake.connections().then((count) => (open = count));
    return open === 0;
  });
});

withFake("a poll under way has a second more to be answered", async (fake) => {
  fake.slowMs = 300;
  const running = new Running(pulling(fake, 1), () => undefined);
  await until("a poll", () => fake.asks.length === 1);
  fake.put("last", 1, "");
  assert.equal(await running.stop(), undefined);
  assert.equal(fake.released("last").length, 1);
  assert.equal(fake.asks.length, 1);
});

withFake("releases go on for a while after the work was given up", async (fake) => {
  let [begun, busy] = [false, true];
  fake.refuse = (path) => (busy && path.endsWith(":release") ? { status: 503, body: "busy" } : undefined);
  const running = new Running({ ...pulling(fake, 1), drainTimeoutMs: 100 }, (_, context) => {
    begun = true;
    return forSignal(context.signal);
  });
  fake.put("e", 1, "");
  await until("work", () => begun);
  running.worker.stop();
  await sleep(700);
  assert.equal(fake.released("e").length, 0);
  busy = false;
  assert.equal(await running.end(), undefined);
  assert.equal(fake.released("e").length, 1);
});

test("wrong options are named", async () => {
  const source = pull({ queue: "q" });
  const cases: [string, unknown][] = [
    ["source: missing", {}],
    ["source: a Promise", { source: listen({ port: 0, host: "127.0.0.1", secrets: ["whsec_YQ=="] }) }],
    ['server: "localhost:7411", expected a URL', { source, server: "localhost:7411" }],
    ["key: ", { source, key: "a\nb" }],
    ["concurrency: -1, expected 1 to 10,000", { source, concurrency: -1 }],
    ["concurrency: NaN", { source, concurrency: Number.NaN }],
    ["labels: 17, expected at most 16", { source, labels: new Array<string>(17).fill("a") }],
    ['labels: "gpu"', { source, labels: "gpu" }],
    ["drainTimeoutMs: -1, expected more than 0", { source, drainTimeoutMs: -1 }],
    ["requestTimeoutMs: 10s", { source, requestTimeoutMs: "10s" }],
    ["firstHeartbeatMs: 0", { source, firstHeartbeatMs: 0 }],
    ["log: a string", { source, log: "stderr" }],
    ["concurency: no such option, expected source, ", { source, concurency: 4 }],
    ["pull.queue: missing", { source: pull({ queue: "" }) }],
    ["pull.waitMs: 3600000, expected 1 to 60,000", { source: pull({ queue: "q", waitMs: 3_600_000 }) }],
    ["sqs.queueUrl: missing", { source: sqs({ queueUrl: "" }) }],
    ["sqs.visibilityMs: 1, expected 3,000 to", { source: sqs({ queueUrl: "q", visibilityMs: 1 }) }],
    ["sqs.client: 7", { source: sqs({ queueUrl: "q", client: 7 as never }) }],
  ];
  for (const [wanted, options] of cases) {
    assert.throws(
      () => new Worker(options as Options, () => undefined),
      (error: Error) => error instanceof TypeError && error.message.startsWith(wanted),
      wanted,
    );
  }
  assert.throws(() => new Worker({ source }, undefined as never), /^TypeError: handler: missing/);
  const worker = new Worker({ source }, () => undefined);
  worker.stop();
  await worker.run();
  await assert.rejects(worker.run(), /a worker runs once/);
});
