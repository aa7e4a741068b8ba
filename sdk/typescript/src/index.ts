/**
 * The loop of a consumer of Tollgate: it takes events, has a handler work on each once, keeps their tokens by heartbeats, and
 * gives the tokens back when the work is done.
 *
 * ```ts
 * import { Worker, pull } from "@tollgate/worker";
 *
 * const source = pull({ queue: "render" });
 * await new Worker({ source, concurrency: 4 }, (event, context) => render(event.data, context.signal)).run();
 * ```
 *
 * @packageDocumentation
 */

export { RefusedError } from "./client.js";
export { type Context, TokenLostError } from "./context.js";
export type { Event } from "./event.js";
export { type HttpSource, listen, type ListenOptions } from "./http.js";
export { FailedError, Outcome, type OutcomeParts, type Status } from "./outcome.js";
export { pull, type PullOptions, type PullSource } from "./pull.js";
export { sqs, type SqsClient, type SqsOptions, type SqsSource } from "./sqs.js";
export { type Handler, type Options, type Source, Worker } from "./worker.js";
