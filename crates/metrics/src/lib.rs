//! What a process can be seen to do: instruments for the services, and `/metrics`, `/livez` and `/readyz` for others.
//!
//! [`Metrics`] is handed to the services, which note what happens. What they know anyway, such as how many events wait
//! under a policy, is asked for when somebody scrapes ([`sample`]). [`router`] serves both, and says whether the process
//! can do its work.
//!
//! Invariants: noting an event is a few atomic additions, without locks or allocation; even without the database
//! every page answers within seconds; the number of series is bounded, however much users create.
//! Not here: logs, and what the numbers mean for whom (`docs/metrics.md`, the dashboard and the alert rules).

mod exposition;
mod histogram;
mod instruments;
mod labels;
mod owner;
mod process;
mod readiness;
mod recent;
mod router;
pub mod sample;
mod watch;

pub use histogram::Histogram;
pub use instruments::Metrics;
pub use labels::{
    AlertMessage, Bound, ListFetched, ReleaseAnswer, Role, StepLaunched, TakenFrom, TargetKind,
};
pub use owner::OwnerWatch;
pub use readiness::{Check, check};
pub use router::{Sources, router};
pub use tollgate_trace as trace;
pub use watch::{CommitWatch, DeliveryWatch, ReleaseWatch};
