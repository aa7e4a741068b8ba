//! The words of Tollgate as types: what a user defines, what is stored, what travels.
//!
//! Nothing here decides anything. Times are microseconds since the Unix epoch (`_us`), durations carry
//! their unit in the name. Everything that a store keeps as text derives `serde` here.

mod alert;
mod borrowed;
mod calendar;
mod date;
mod delivery;
mod event;
mod follow;
mod items_from;
mod kafka;
mod minute;
mod on_finish;
mod origin;
mod policy;
mod pull;
mod run;
mod schedule;
mod stagger;
mod target;

pub use alert::{Alert, AlertRuns, AlertTarget, AlertTroubles, SlackTarget};
pub use calendar::{Calendar, CalendarUse};
pub use date::{DateRange, DateRangeError};
pub use delivery::{Delivery, DeliveryItem, Sent};
pub use event::{EventId, EventIdError, EventKeyring, EventRef};
pub use follow::RunEnd;
pub use items_from::{HttpItems, ItemsFrom, ListFormat};
pub use kafka::{ContentMode, KEY_NAMES, KafkaTarget, is_key_template};
pub use minute::{MinuteCounts, MinuteRow};
pub use on_finish::{FinishCondition, OnFinish, ResultItems};
pub use policy::{KeyRule, KeyRules, Limits, Parent, Policy, Reclaim, TtlFrom};
pub use pull::PullTarget;
pub use run::{
    ChainRoot, Counts, ItemsIn, Predecessor, Run, RunId, RunKind, RunSpec, RunState, SkipReason, Skipped,
};
pub use schedule::{
    CatchUp, CheckAgain, GapRule, NotAgain, OnGuard, OverlapRule, PastPause, Pause, RepeatRule, RetryPolicy,
    Schedule, Timing, Trigger, WhenDone,
};
pub use stagger::Stagger;
pub use target::{Http2, HttpBatch, HttpTarget, Payload, ReleaseMode, SqsTarget, Target};

/// One second in microseconds.
pub const SECOND_US: i64 = 1_000_000;
/// One minute in microseconds.
pub const MINUTE_US: i64 = 60 * SECOND_US;
/// One day in microseconds.
pub const DAY_US: i64 = 24 * 60 * MINUTE_US;
/// The most events that one trigger may make.
pub const EVENTS_MAX: u32 = 10_000_000;
/// The most bytes that a payload may have.
pub const PAYLOAD_MAX_BYTES: usize = 256 * 1024;
/// The most children that one schedule may expand into.
pub const CHILDREN_MAX: usize = 10_000;

/// Both clocks at one moment. Launch times and the times of further attempts, which are stored, are judged by the wall
/// clock; ages and time-outs by the monotonic one, which does not run while Tollgate is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since the Unix epoch.
    pub wall_us: i64,
    /// Microseconds since some moment before the process owned anything; never goes back.
    pub mono_us: i64,
}
