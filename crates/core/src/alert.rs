//! Who is told of what is wrong, and when: raised, grouped, repeated, resolved, tried again.
//!
//! In: an alert, the troubles and the ends of runs that concern it, answers of its receiver, and the time. Out: a [`Message`]
//! to be sent now. [`State`] is all that is remembered of an alert. Whoever takes a step stores the state before sending.
//!
//! Invariants: one message of an alert is under way at a time, with the same content and number at each attempt; what is told as
//! raised is told again only after its repeat interval, where it got worse, or after it was told as resolved; what was
//! told as raised is told as
//! resolved; what comes and goes within the group wait is not told. Not here: where troubles come from, what messages look like.

mod select;
mod state;

pub use select::Selection;
pub use state::{Ended, Item, Look, Message, Pending, Raised, Rules, State};

use crate::model::SECOND_US;

/// How many troubles an alert keeps account of; and as many more that are critical, which warnings never keep out.
pub const RAISED_MAX: usize = 500;
/// How many of a sort a message lists; the others are counted.
pub const LISTED_MAX: usize = 20;
/// For how long a message is tried.
pub const AGE_MAX_US: i64 = 24 * 3_600 * SECOND_US;
/// How far back ends of runs are read again: rows may become visible up to a minute after the time that they bear, and
/// what is read again is read every [`OVERLAP_EVERY_US`].
pub const OVERLAP_US: i64 = 60 * SECOND_US + OVERLAP_EVERY_US;
/// How often they are read again.
pub const OVERLAP_EVERY_US: i64 = 30 * SECOND_US;
/// How far back ends of runs are told at all, after nobody has looked for a while.
const CATCH_UP_US: i64 = 3_600 * SECOND_US;
/// How many ends of runs are remembered as told, for that. Where there are more, less is read again.
pub const SEEN_MAX: usize = 5_000;
/// The first pause between attempts; each is twice the one before.
const BACKOFF_MIN_US: i64 = 2 * SECOND_US;
/// The longest pause between attempts.
const BACKOFF_MAX_US: i64 = 600 * SECOND_US;
/// The longest pause that a receiver gets by asking for it.
const ASKED_MAX_US: i64 = 3_600 * SECOND_US;
/// After the deadline of an attempt another process may make the next one.
const SPARE_US: i64 = 5 * SECOND_US;
/// Where not everything is seen, what is not seen has ended after this time.
pub(crate) const UNSURE_US: i64 = 300 * SECOND_US;
