//! What a process decides of the shards that it owns: which are its own, for how long, and what their owners do next.
//!
//! - [`Trust`]: how long a process may believe in its leases.
//! - [`Placement`]: which shards it takes, keeps and gives up.
//! - [`Owner`]: the life of a shard's owner around its machine, and [`Report`] what it still does after a hand-over.
//!
//! Each takes inputs with the time and says what to do next. Times are microseconds of the process's own monotonic
//! clock. Not here: any IO, any clock, any channel; the handler's tasks and the simulation drive the same code.

mod backlog;
mod closing;
mod gather;
mod member;
mod news;
mod next;
mod owner;
mod placement;
mod syncs;
mod trust;
mod unrecorded;

use crate::model::RunId;

pub use backlog::{ReadSize, ReadTurns, Sizes};
pub use closing::Report;
pub use member::{Lease, Member};
pub use news::{Ask, News, Page, READ_MAX};
pub use next::{CallerAnswer, Durable, Left, Next, PollTime, TakenIn, Why};
pub use owner::{Kept, Owner, RECENT_US, Setup};
pub use placement::{Look, Placement, PlacementStep, Settings, WallClock};
pub use trust::{Standing, Trust};

/// A delivery: run, index, attempt.
pub type DeliveryKey = (RunId, u32, u32);
