//! Decides what a consumer does with an event.

use serde::{Deserialize, Serialize};

/// What is spoken.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Protocol {
    /// An event a request.
    #[default]
    Http,
    /// The same by HTTP/2, which the consumer speaks without being asked.
    Http2,
    /// By HTTP/1.1, up to 100 events a request.
    HttpBatch,
    /// SendMessageBatch of SQS's JSON protocol.
    Sqs,
    /// Workers that pull, by gRPC streams.
    Pull,
}

/// How a token comes back.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Release {
    /// By the answer, which comes when the work is done.
    #[default]
    OnResponse,
    /// By one ReleaseTokens stream.
    Stream,
    /// By one ReleaseToken call each.
    Unary,
}

/// One consumer: a port of the sink.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) protocol: Protocol,
    pub(crate) work_ms: u64,
    pub(crate) release: Release,
}
