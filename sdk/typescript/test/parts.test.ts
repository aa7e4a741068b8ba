// The parts of the loop by themselves.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Backoff, pause } from "../src/backoff.js";
import { BusyError, Client, span } from "../src/client.js";
import { parseEvent } from "../src/event.js";
import { Known } from "../src/known.js";
import { cut, retry, words, type Release } from "../src/outcome.js";

const succeeded: Release = { attempt: 1, outcome: "SUCCEEDED", message: "" };

test("what is remembered is bounded", () => {
  const known = new Known(2);
  for (const id of ["a", "b", "c"]) known.come(id, 1);
  for (const id of ["a", "b", "c"]) known.ended(id, succeeded);
  assert.equal(known.size, 2);
  assert.equal(known.come("c", 2).what, "done", "the latest is remembered");
  assert.equal(known.come("a", 2).what, "begin", "the first is forgotten");
  assert.equal(Known.max, 10_000);
});

test("what comes again is begun again, with its next attempt alone", () => {
  const known = new Known();
  known.come("e", 1);
  assert.equal(known.come("e", 2).what, "working");
  known.ended("e", retry("disk full"));
  assert.equal(known.come("e", 2).what, "done");
  assert.equal(known.come("e", 3).what, "begin");
  known.ended("e", succeeded);
  assert.deepEqual(known.come("e", 4), { what: "done", release: succeeded });
  assert.equal(known.attempt("e", 1), 4);
  known.replaced("e", retry("refused"));
  assert.equal(known.come("e", 5).what, "begin");
});

test("pauses grow to a bound, and follow Retry-After to another", () => {
  const backoff = new Backoff();
  const pauses = Array.from({ length: 10 }, () => backoff.next(0));
  pauses.forEach((ms, at) => {
    const most = Math.min(100 * 2 ** at, 10_000);
    assert.ok(ms >= most / 2 - 1 && ms <= 10_000 && (at > 6 || ms <= most), `${at}: ${ms}`);
  });
  assert.equal(backoff.next(30_000), 30_000);
  assert.equal(backoff.next(3_600_000), 60_000);
  backoff.reset();
  assert.ok(backoff.next(0) <= 100);
});

test("a pause that is longer than a timer of Node can be does not end at once", async () => {
  const over = new AbortController();
  setTimeout(() => over.abort(), 50);
  assert.equal(await pause(over.signal, 2 ** 40), false);
  assert.equal(await pause(new AbortController().signal, 1), true);
});

test("messages are cut between characters", () => {
  assert.equal(cut("short"), "short");
  assert.equal(cut("€".repeat(2000)), "€".repeat(1365));
  assert.equal(cut(`${"a".repeat(4095)}😀`), "a".repeat(4095));
  assert.equal(cut(`${"a".repeat(4092)}😀`), `${"a".repeat(4092)}😀`);
});

test("what was thrown has words", () => {
  const cause = new Error("connect ECONNREFUSED");
  assert.equal(words(new Error("fetch failed", { cause })), "fetch failed: connect ECONNREFUSED");
  assert.equal(words(new Error("no: disk full", { cause: new Error("disk full") })), "no: disk full");
  assert.equal(words(new AggregateError([new Error("a"), new Error("b")])), "a, b");
  assert.equal(words(new RangeError()), "RangeError");
  assert.equal(words({ code: 7 }), '{"code":7}');
  assert.equal(words(undefined), "undefined");
  const circle = new Error("round");
  circle.cause = circle;
  assert.equal(words(circle), "round");
});

test("durations are read as the API writes them", () => {
  assert.deepEqual(["900s", "1.500s", "0.300s", "", undefined, "soon"].map(span), [900_000, 1500, 300, 0, 0, 0]);
});

test("a call that is not answered in time is broken off", async () => {
  const server = createServer(() => undefined);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, "", 200, 1);
  const isLate = (error: Error): boolean => error instanceof BusyError && error.message === "no answer within 0.2 s";
  await assert.rejects(client.extend(new AbortController().signal, "e", 1), isLate);
  client.close();
  server.close();
  server.closeAllConnections();
});

test("a call goes once more where the server had just closed the connection that was kept", async () => {
  let calls = 0;
  const server = createServer((request, response) => {
    // The second call on a connection is that of a server which closes it at this moment.
    if (++calls === 2) request.socket.resetAndDestroy();
    else response.end('{"remaining": "3s"}');
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, "", 10_000, 1);
  const { signal } = new AbortController();
  assert.equal(await client.extend(signal, "e", 1), 3000);
  assert.equal(await client.extend(signal, "e", 1), 3000);
  assert.equal(calls, 3);
  client.close();
  server.close();
  server.closeAllConnections();
});

test("documents that are no events are refused by the name of what is wrong", () => {
  for (const [text, wanted] of [
    ["no event", /^event: it cannot be read: /],
    ["7", /expected an object/],
    ["{}", /^event: id: missing$/],
    ['{"id": 7}', /^event: id: 7, expected a text$/],
    ['{"id": "e", "attempt": -1}', /^event: attempt: -1, expected a whole number$/],
    ['{"id": "e", "time": "soon"}', /^event: time: "soon", expected a time$/],
  ] as const) {
    assert.throws(() => parseEvent(text), (error: Error) => wanted.test(error.message), text);
  }
  const event = parseEvent('{"id": "e", "cursor": null, "index": 3, "more": [1]}');
  const { attempt, cursor, index, data, attributes } = event;
  assert.deepEqual([attempt, cursor, index, data, attributes["more"]], [1, undefined, 3, undefined, [1]]);
});
