// An event as Tollgate delivers it: a CloudEvents 1.0 document.

import { words } from "./outcome.js";

/** One event. `Data` is the type of the payload; nobody checks that the payload has it. */
export interface Event<Data = unknown> {
  /** The same on every delivery. */
  id: string;
  /** 1 for the first delivery; it grows. */
  attempt: number;
  /** When the event fell due. */
  time: Date | undefined;
  /** The name of the schedule: namespaces/{namespace}/schedules/{schedule}. */
  schedule: string;
  /** The name of the run: namespaces/{namespace}/runs/{run}. */
  run: string;
  /** The name of the policy; empty where there is none. */
  policy: string;
  /** Counts from 0 to count - 1. */
  index: number;
  /** The number of events of the run. */
  count: number;
  /** Whose event it is; empty where there is none. */
  key: string;
  /** What an earlier run left; undefined where there is none. */
  cursor: string | undefined;
  /** How often the event has come again as its consumer asked. */
  checks: number;
  /** "explicit", or "on_response" where the token comes back as soon as the event is taken; by HTTP, with the answer. */
  release: string;
  /** Leads to the trace of the event; empty where traces are off. */
  traceparent: string;
  /** The payload; undefined where there is none. */
  data: Data;
  /** Every member of the document, also those above. */
  attributes: Record<string, unknown>;
}

/** Whether the event's token comes back without a release. */
export function isOnResponse(event: Event): boolean {
  return event.release === "on_response";
}

/** The member `release` of a document of which others cannot be read; empty where it cannot be read either. */
export function releaseOf(text: string): string {
  try {
    const release = (JSON.parse(text) as { release?: unknown } | null)?.release;
    return typeof release === "string" ? release : "";
  } catch {
    return "";
  }
}

/** Reads the text of one document. */
export function parseEvent(text: string): Event {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch (error) {
    throw new Error(`event: it cannot be read: ${words(error)}`);
  }
  return readEvent(document);
}

/** Reads one document. */
export function readEvent(document: unknown): Event {
  if (typeof document !== "object" || document === null || Array.isArray(document)) {
    throw new Error("event: it cannot be read: expected an object");
  }
  const members = document as Record<string, unknown>;
  const id = text(members, "id");
  if (id === "") throw new Error("event: id: missing");
  return {
    id,
    attempt: whole(members, "attempt") || 1,
    time: time(members),
    schedule: text(members, "schedule"),
    run: text(members, "run"),
    policy: text(members, "policy"),
    index: whole(members, "index"),
    count: whole(members, "count"),
    key: text(members, "key"),
    cursor: members["cursor"] === undefined || members["cursor"] === null ? undefined : text(members, "cursor"),
    checks: whole(members, "checks"),
    release: text(members, "release"),
    traceparent: text(members, "traceparent"),
    data: members["data"],
    attributes: members,
  };
}

function text(members: Record<string, unknown>, name: string): string {
  const value = members[name] ?? "";
  if (typeof value !== "string") throw new Error(`event: ${name}: ${JSON.stringify(value)}, expected a text`);
  return value;
}

function whole(members: Record<string, unknown>, name: string): number {
  const value = members[name] ?? 0;
  if (!Number.isSafeInteger(value) || (value as number) < 0) {
    throw new Error(`event: ${name}: ${JSON.stringify(value)}, expected a whole number`);
  }
  return value as number;
}

function time(members: Record<string, unknown>): Date | undefined {
  const said = text(members, "time");
  if (said === "") return undefined;
  const at = new Date(said);
  if (Number.isNaN(at.getTime())) throw new Error(`event: time: ${JSON.stringify(said)}, expected a time`);
  return at;
}
