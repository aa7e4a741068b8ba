// Takes events from an SQS queue. A message is hidden while its event is worked on, and deleted once the release was answered.
// One whose event needs no release is deleted after the work, and shows again where that failed. A stop waits for the poll under
// way, and has what that brings show again.

import { Backoff, pause } from "./backoff.js";
import { parseEvent, type Event } from "./event.js";
import type { Loop } from "./loop.js";
import { words } from "./outcome.js";

// The most messages of an answer.
const receiveMax = 10;
// How long SQS waits for messages.
const receiveWaitS = 5;
// How long a stop waits for the poll under way: SQS goes on with a call whose caller has gone, and what it hands out then is
// hidden from all, though nobody works on it.
const lastPollMs = receiveWaitS * 1000 + 2000;
const visibilityMinMs = 3000;
const visibilityMaxMs = 12 * 3_600_000;

type Aws = typeof import("@aws-sdk/client-sqs");

/** As much of an `SQSClient` of `@aws-sdk/client-sqs` as the worker needs. */
export interface SqsClient {
  /** Sends a command of that package. */
  send(command: unknown, options?: { abortSignal?: AbortSignal }): Promise<unknown>;
}

/** Which queue, and how. */
export interface SqsOptions {
  /** The queue's URL. Required. */
  queueUrl: string;
  /** Speaks to SQS; by default a client with region, endpoint and credentials as all programs of AWS find them. */
  client?: SqsClient | undefined;
  /** For how long a message that is worked on is hidden, anew at each third of it: 3,000 to 43,200,000; 30,000 by default. */
  visibilityMs?: number | undefined;
}

interface Message {
  Body?: string;
  ReceiptHandle?: string;
}

/** Takes events from an SQS queue: what `sqs` returns. */
export class SqsSource {
  readonly #queueUrl: string;
  readonly #visibilityMs: number;
  readonly #given: SqsClient | undefined;
  readonly #lastPollMs: number;

  /** @internal */
  constructor(options: SqsOptions, lastMs = lastPollMs) {
    this.#lastPollMs = lastMs;
    this.#queueUrl = options.queueUrl;
    this.#visibilityMs = options.visibilityMs ?? 30_000;
    this.#given = options.client;
  }

  /** @internal */
  check(): void {
    const [queueUrl, visibilityMs] = [this.#queueUrl as unknown, this.#visibilityMs as unknown];
    if (queueUrl === undefined || queueUrl === "") throw new TypeError("sqs.queueUrl: missing");
    if (typeof queueUrl !== "string") throw new TypeError(`sqs.queueUrl: ${String(queueUrl)}, expected a queue's URL`);
    if (typeof visibilityMs !== "number" || !(visibilityMs >= visibilityMinMs && visibilityMs <= visibilityMaxMs)) {
      throw new TypeError(`sqs.visibilityMs: ${String(visibilityMs)}, expected 3,000 to 43,200,000`);
    }
    if (this.#given !== undefined && typeof this.#given?.send !== "function") {
      throw new TypeError(`sqs.client: ${String(this.#given)}, expected an SQSClient of @aws-sdk/client-sqs`);
    }
  }

  /** @internal */
  async run(taking: AbortSignal, loop: Loop): Promise<void> {
    const aws = await load();
    const own = this.#given === undefined ? new aws.SQSClient({}) : undefined;
    // The package's own type takes its commands alone.
    const queue = new Queue(aws, (own ?? this.#given) as SqsClient, this.#queueUrl, this.#visibilityMs);
    // Messages are deleted until the last release was answered.
    loop.calls.signal.addEventListener("abort", () => own?.destroy(), { once: true });
    const polling = new AbortController();
    const polls = this.#polls(taking, polling.signal, loop, queue);
    await new Promise<void>((resolve, reject) => {
      taking.addEventListener("abort", () => resolve(), { once: true });
      polls.then(resolve, reject);
    });
    // It waits for the last poll beside the drain.
    void this.#end(polls, polling, loop).finally(loop.enter());
  }

  /** @internal */
  close(): Promise<void> {
    return Promise.resolve();
  }

  /** Takes events until a signal comes. Its calls end by another one, later. */
  async #polls(taking: AbortSignal, polling: AbortSignal, loop: Loop, queue: Queue): Promise<void> {
    const backoff = new Backoff();
    while (await loop.place(taking)) {
      let places = 1 + loop.morePlaces(receiveMax - 1);
      try {
        const messages = await queue.receive(polling, places);
        loop.acquires.worked();
        backoff.reset();
        if (taking.aborted) {
          await Promise.all(messages.map((message) => queue.show(polling, loop, message)));
          continue;
        }
        for (const message of messages) {
          // What is left shows again when its visibility ends.
          if (places === 0) break;
          if (queue.begin(loop, message)) places--;
        }
      } catch (error) {
        if (taking.aborted) continue;
        loop.acquires.failed(words(error));
        await pause(taking, backoff.next(0));
      } finally {
        for (; places > 0; places--) loop.free();
      }
    }
  }

  /** Waits for the last poll, also where its client heeds no signal, for so long, and until the work is given up. */
  async #end(polls: Promise<void>, polling: AbortController, loop: Loop): Promise<void> {
    const giveUp = (): void => polling.abort();
    loop.work.signal.addEventListener("abort", giveUp, { once: true });
    await Promise.race([polls, pause(polling.signal, this.#lastPollMs)]);
    loop.work.signal.removeEventListener("abort", giveUp);
    giveUp();
  }
}

/** A queue, and the calls that are made to it. */
class Queue {
  readonly #aws: Aws;
  readonly #client: SqsClient;
  readonly #queueUrl: string;
  readonly #visibilityMs: number;

  constructor(aws: Aws, client: SqsClient, queueUrl: string, visibilityMs: number) {
    this.#aws = aws;
    this.#client = client;
    this.#queueUrl = queueUrl;
    this.#visibilityMs = visibilityMs;
  }

  /** Waits for up to so many messages. */
  async receive(signal: AbortSignal, max: number): Promise<Message[]> {
    const ask = { QueueUrl: this.#queueUrl, MaxNumberOfMessages: max, WaitTimeSeconds: receiveWaitS };
    const answer = (await this.#client.send(new this.#aws.ReceiveMessageCommand(ask), { abortSignal: signal })) as {
      Messages?: Message[];
    };
    return answer.Messages ?? [];
  }

  /** Has a message that is not worked on show again at once. */
  async show(signal: AbortSignal, loop: Loop, message: Message): Promise<void> {
    const change = { QueueUrl: this.#queueUrl, ReceiptHandle: message.ReceiptHandle ?? "", VisibilityTimeout: 0 };
    try {
      await this.#client.send(new this.#aws.ChangeMessageVisibilityCommand(change), { abortSignal: signal });
    } catch (error) {
      loop.settings.log(`a message is not shown again, and comes when its visibility ends: ${words(error)}`);
    }
  }

  /** Works on a message in a place; false if it has none of an event, and needed no place. */
  begin(loop: Loop, message: Message): boolean {
    const { log } = loop.settings;
    let event: Event;
    try {
      event = parseEvent(message.Body ?? "");
    } catch (error) {
      log(`a message is left to the queue: ${words(error)}`);
      return false;
    }
    const ReceiptHandle = message.ReceiptHandle ?? "";
    const hide = async (signal: AbortSignal): Promise<void> => {
      const VisibilityTimeout = Math.trunc(this.#visibilityMs / 1000);
      const change = { QueueUrl: this.#queueUrl, ReceiptHandle, VisibilityTimeout };
      try {
        await this.#client.send(new this.#aws.ChangeMessageVisibilityCommand(change), { abortSignal: signal });
      } catch (error) {
        log(`event ${event.id}: its message is not hidden for longer: ${words(error)}`);
      }
    };
    const answered = async (signal: AbortSignal): Promise<void> => {
      const remove = { QueueUrl: this.#queueUrl, ReceiptHandle };
      try {
        await this.#client.send(new this.#aws.DeleteMessageCommand(remove), { abortSignal: signal });
      } catch (error) {
        // It comes again then, and is only released again.
        log(`event ${event.id}: its message is not deleted: ${words(error)}`);
      }
    };
    loop.take({ event, ttlMs: 0, hide, hideEveryMs: this.#visibilityMs / 3, answered });
    return true;
  }
}

async function load(): Promise<Aws> {
  try {
    return await import("@aws-sdk/client-sqs");
  } catch (error) {
    const advice = "add it: npm install @aws-sdk/client-sqs";
    throw new Error(`sqs: the package @aws-sdk/client-sqs cannot be loaded; ${advice}`, { cause: error });
  }
}

/** The events of an SQS queue. It needs the package `@aws-sdk/client-sqs`. */
export function sqs(options: SqsOptions): SqsSource {
  return new SqsSource(options);
}
