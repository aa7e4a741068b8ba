//! The loop of a consumer of Tollgate: it takes events, has a handler work on each once, keeps their tokens by heartbeats, and
//! gives the tokens back when the work is done.
//!
//! In: events by [`Pull`], [`Http`] or `Sqs` (feature `sqs`). Out: what the handler made of each, as its release.
//! Whatever the source, never more events are worked on than the worker's concurrency, a release is repeated until it is
//! answered, and SIGTERM ends the worker in order.
//!
//! ```no_run
//! use tollgate_worker::{Context, Event, Failure, Outcome, Pull, Worker};
//!
//! async fn render(event: Event, _context: Context) -> Result<Outcome, Failure> {
//!     let page: serde_json::Value = event.decode()?;
//!     Ok(Outcome::from(page))
//! }
//!
//! # async fn run() -> Result<(), tollgate_worker::Error> {
//! Worker::new(Pull::new("render"), render).concurrency(4).run().await
//! # }
//! ```

mod backoff;
mod calls;
mod client;
mod context;
mod engine;
mod event;
mod http;
mod known;
mod outcome;
mod pull;
mod signature;
#[cfg(feature = "sqs")]
mod sqs;
mod worker;

pub use client::Refused;
pub use context::{Context, TokenLost};
pub use event::Event;
pub use http::Http;
pub use outcome::{Failure, Outcome, Status};
pub use pull::Pull;
#[cfg(feature = "sqs")]
pub use sqs::Sqs;
pub use worker::{Error, Source, Stop, Worker};
