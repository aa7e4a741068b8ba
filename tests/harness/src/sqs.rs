//! SQS: the emulator, a consumer of it, and as much of its protocol as a sink needs that stands in for it.

mod batch;
pub(crate) mod consumer;
pub(crate) mod emulator;

pub use batch::{Batch, Entry, answer};
