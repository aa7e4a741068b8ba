// What the work on an event came to, and how it becomes a release.

// Bytes of a message that Tollgate takes.
const messageMax = 4096;
// How far a chain of causes is followed.
const causesMax = 32;

/** How the work on an event went: done, failed and not tried again, or failed and tried again as the schedule's `retry` says. */
export type Status = "SUCCEEDED" | "FAILED" | "RETRY";

/** The parts of an outcome. */
export interface OutcomeParts {
  /** SUCCEEDED by default. */
  status?: Status | undefined;
  /** For people. It is cut at 4 KiB. */
  message?: string | undefined;
  /** Any value that is JSON, of at most 256 KiB; undefined for none. Only with SUCCEEDED, and without a next check time. */
  result?: unknown;
  /** Handed to the schedule's next run; undefined leaves it as it is. */
  cursor?: string | undefined;
  /** Has the same event come again then; undefined for never. Only with SUCCEEDED. */
  nextCheckTime?: Date | undefined;
}

/** What the work on an event came to, in all its parts. A handler may return one instead of a bare result. */
export class Outcome implements OutcomeParts {
  /** How it went. */
  status: Status;
  /** For people. It is cut at 4 KiB. */
  message: string | undefined;
  /** Any value that is JSON, of at most 256 KiB; undefined for none. */
  result: unknown;
  /** Handed to the schedule's next run; undefined leaves it as it is. */
  cursor: string | undefined;
  /** Has the same event come again then; undefined for never. Only with SUCCEEDED. */
  nextCheckTime: Date | undefined;

  constructor(parts: OutcomeParts = {}) {
    this.status = parts.status ?? "SUCCEEDED";
    this.message = parts.message;
    this.result = parts.result;
    this.cursor = parts.cursor;
    this.nextCheckTime = parts.nextCheckTime;
  }
}

/** Has an event fail for good: it is not tried again. It may also be the cause of what is thrown. */
export class FailedError extends Error {
  override name = "FailedError";
}

/** A release but for the attempt. The result is JSON already. */
export interface Release {
  attempt: number;
  outcome: Status;
  message: string;
  cursor?: string;
  nextCheckTime?: string;
  result?: string;
}

/** The release of an event that is to come again. */
export function retry(message: string): Release {
  return { attempt: 0, outcome: "RETRY", message: cut(message) };
}

/** Makes a release of what a handler returned, and of what it told its context. */
export function settle(value: unknown, told: OutcomeParts): Release {
  const outcome = value instanceof Outcome ? value : { ...told, result: value };
  const body: Release = { attempt: 0, outcome: outcome.status ?? "SUCCEEDED", message: cut(outcome.message ?? "") };
  if (outcome.cursor !== undefined) body.cursor = wellFormed(outcome.cursor);
  // What Tollgate does not take with this status is left out.
  const done = body.outcome === "SUCCEEDED";
  if (done && outcome.nextCheckTime !== undefined) {
    if (!isTime(outcome.nextCheckTime)) return retry(`nextCheckTime: ${String(outcome.nextCheckTime)}, expected a valid Date`);
    body.nextCheckTime = outcome.nextCheckTime.toISOString();
  }
  if (done && body.nextCheckTime === undefined && outcome.result !== undefined) {
    try {
      const text = JSON.stringify(outcome.result) as string | undefined;
      if (text === undefined) return retry(`result: it is not JSON: a ${typeof outcome.result}`);
      body.result = text;
    } catch (error) {
      return retry(`result: it is not JSON: ${words(error)}`);
    }
  }
  return body;
}

/** Makes a release of what a handler threw. */
export function settleThrown(thrown: unknown): Release {
  const body = retry(words(thrown));
  if (chain(thrown).some((one) => one instanceof FailedError)) body.outcome = "FAILED";
  return body;
}

/** The body of a release as it is sent. */
export function releaseText(body: Release): string {
  const { attempt, message, result, ...parts } = body;
  const text = JSON.stringify({ ...parts, attempt: attempt || undefined, message: message || undefined });
  return result === undefined ? text : `${text.slice(0, -1)},"result":${result}}`;
}

/** Whether something is a time. */
export function isTime(value: unknown): value is Date {
  return value instanceof Date && !Number.isNaN(value.getTime());
}

/** Shortens a message to what Tollgate takes, at the end of a character. */
export function cut(message: string): string {
  const bytes = Buffer.from(message, "utf8");
  let end = Math.min(bytes.length, messageMax);
  // A byte within a character begins with the bits 10.
  while (end > 0 && end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return bytes.toString("utf8", 0, end);
}

/** What was thrown in words: its message, and those of its causes that it does not repeat. */
export function words(thrown: unknown): string {
  let said = "";
  for (const one of chain(thrown)) {
    const message = ownWords(one);
    if (said === "") said = message;
    else if (!said.includes(message)) said += `: ${message}`;
  }
  return said;
}

function ownWords(thrown: unknown): string {
  if (!(thrown instanceof Error)) return typeof thrown === "object" ? inspect(thrown) : String(thrown);
  // Several attempts to connect that failed have no message of their own.
  if (thrown.message === "" && thrown instanceof AggregateError) return thrown.errors.map(ownWords).join(", ");
  return thrown.message === "" ? thrown.name : String(thrown.message);
}

function inspect(thrown: unknown): string {
  try {
    return String(JSON.stringify(thrown));
  } catch {
    return Object.prototype.toString.call(thrown);
  }
}

function chain(thrown: unknown): unknown[] {
  const all = [thrown];
  let last = thrown;
  while (last instanceof Error && last.cause !== undefined && all.length < causesMax && !all.includes(last.cause)) {
    last = last.cause;
    all.push(last);
  }
  return all;
}

// Half a pair of surrogates is no text, and no server would take it.
function wellFormed(text: string): string {
  return Buffer.from(text, "utf8").toString("utf8");
}
