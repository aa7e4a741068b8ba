//! The commands that speak to a running service over gRPC, one file each.
//!
//! In: parsed arguments. Out: text or data on standard output, or one paragraph that says what was tried, what the
//! service answered and what may help. Invariants: nothing is decided here that the service decides; names without a
//! slash are completed with the namespace; data is what the REST API gives.

pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod complete;
mod counts;
pub(crate) mod delete;
pub(crate) mod describe;
mod explanation;
mod failure;
pub(crate) mod failures;
mod fetch;
pub(crate) mod follow;
mod gauges;
pub(crate) mod get;
pub(crate) mod history;
mod ids;
pub(crate) mod limit;
mod many;
mod names;
mod namespaces;
pub(crate) mod output;
mod pages;
pub(crate) mod pause;
pub(crate) mod ping;
pub(crate) mod preview;
mod progress;
pub(crate) mod release;
pub(crate) mod results;
mod rows;
pub(crate) mod runs;
mod session;
pub(crate) mod status;
pub(crate) mod style;
pub(crate) mod submit;
pub(crate) mod table;
mod target;
mod targets;
pub(crate) mod test_alert;
pub(crate) mod trigger;
pub(crate) mod troubles;
mod unreached;
pub(crate) mod wait;
mod watch;
pub(crate) mod when;
pub(crate) mod why;
mod why_chain;
pub(crate) mod workers;

pub(crate) use session::{ClientArgs, Session};
