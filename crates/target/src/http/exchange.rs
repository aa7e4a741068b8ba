//! What an exchange is: whose it is, how far it came, and why it has no complete answer.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Body as _;
use uuid::Uuid;

use super::connector::BoxError;
use crate::leave::Leave;

/// What is sent.
pub(super) type Body = Full<Bytes>;

/// The bytes of a body, which are all there.
pub(super) fn bytes_of(mut body: Body) -> Bytes {
    let frame = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Some(Ok(frame))) = frame else { return Bytes::new() };
    frame.into_data().unwrap_or_default()
}

/// How far an exchange has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for its turn.
    #[default]
    Waiting,
    /// Its host's name is being looked up.
    LookingUp,
    /// It connects.
    Connecting,
    /// The request may have been written.
    Written,
}

/// Whose request it is, until when it may be sent, and how much of its answer is wanted.
#[derive(Clone, Copy)]
pub(super) struct Sender<'a> {
    pub(super) namespace: &'a str,
    pub(super) schedule: Uuid,
    pub(super) leave: &'a Leave,
    pub(super) deadline: Duration,
    /// Bytes of its answer's body that are read.
    pub(super) answer_max_bytes: usize,
}

/// Why there is no complete answer.
pub(super) enum ExchangeError {
    /// It had no turn, or has lost its leave.
    NotSent(String),
    /// There is no connection, or it took nothing.
    Unsent(BoxError),
    /// After the request was written, perhaps in part, and before the head of the answer was there.
    NoAnswer(BoxError),
    /// After the head: the answer's status, and what happened to its body.
    NoBody(u16, String),
}
