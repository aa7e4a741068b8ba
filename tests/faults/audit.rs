//! The auditor: holds what was delivered against what fell due and against the service's own records.
//!
//! In: the list of what was ordered, the sink's journal, what the service says at the end, and when which fault was under
//! way. Out: a [`Verdict`]. It knows nothing of the service's code. Not here: how any of that was gathered.

mod chains;
mod deliveries;
mod flight;
mod neighbours;
mod runs;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::journal::Journal;
use crate::lag::Lags;

/// One launch of one schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// The last part of the schedule's name.
    pub(crate) schedule: String,
    pub(crate) launch_us: i64,
    pub(crate) events: u32,
    /// False where it fell due before the schedule was acknowledged: it may fire, and need not.
    pub(crate) required: bool,
}

/// A limit of a policy while it may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) policy: String,
    pub(crate) max: u32,
    pub(crate) from_us: i64,
    /// When a later limit had replaced it for certain.
    pub(crate) until_us: i64,
}

/// A pause of a schedule that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) schedule: String,
    /// When it was acknowledged.
    pub(crate) from_us: i64,
    /// When it was asked to go on.
    pub(crate) until_us: i64,
}

/// What was asked of the service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ordered {
    pub(crate) pauses: Vec<Pause>,
    pub(crate) due: Vec<Due>,
    pub(crate) limits: Vec<Limit>,
    /// The policy above each that has one.
    pub(crate) above: BTreeMap<String, String>,
    /// How many tokens the events of a schedule take, by their indexes; one each where it is not here.
    pub(crate) units: BTreeMap<String, Vec<u32>>,
    /// What each key of a policy may have.
    pub(crate) key_limits: BTreeMap<String, u32>,
    /// Schedules that make runs by hand: a call that was not answered may have made one.
    pub(crate) by_hand: BTreeSet<String>,
    /// Schedules whose runs are cancelled.
    pub(crate) cancelled: BTreeSet<String>,
    /// Schedules whose runs another one's follow, each with an event for each of theirs.
    pub(crate) chains: BTreeMap<String, String>,
    /// How many schedules were made.
    pub(crate) made: usize,
}

impl Ordered {
    /// How many tokens an event of a schedule takes.
    pub(crate) fn units_of(&self, schedule: &str, index: u32) -> u64 {
        let units = self.units.get(schedule).and_then(|units| units.get(index as usize).or(units.last()));
        units.copied().unwrap_or(1).into()
    }
}

/// A run as the service has recorded it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunRecord {
    pub(crate) name: String,
    pub(crate) schedule: String,
    pub(crate) launch_us: i64,
    /// The name of the run that it follows.
    pub(crate) follows: Option<String>,
    pub(crate) events: u32,
    /// Finished, cancelled or skipped.
    pub(crate) ended: bool,
    pub(crate) succeeded: u32,
    /// Ended otherwise: failed, dead, expired, cancelled, lost.
    pub(crate) otherwise: u32,
    pub(crate) in_flight: u32,
}

/// The service's own records at the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    pub(crate) runs: Vec<RunRecord>,
    /// Launches recorded as skipped, by schedule.
    pub(crate) skipped: BTreeSet<(String, i64)>,
    /// Tokens that the handlers hold, by policy.
    pub(crate) held: BTreeMap<String, u64>,
    /// Queue shards that no living process owns.
    pub(crate) unowned: Vec<u32>,
}

/// While it lasted, and shortly before, deliveries could be made and answered without being recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disturbance {
    /// Why: the verdict counts repetitions by it.
    pub(crate) reason: &'static str,
    pub(crate) from_us: i64,
    pub(crate) until_us: i64,
}

/// The service's wall clock was ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) from_us: i64,
    pub(crate) by_us: i64,
}

/// A fault and its time, for whoever is healthy beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    pub(crate) kind: String,
    pub(crate) from_us: i64,
    pub(crate) until_us: i64,
    /// The queue shards that it concerns; all where nobody knows.
    pub(crate) shards: Option<HashSet<u16>>,
    /// It must not stop anybody else.
    pub(crate) spares_others: bool,
}

/// Everything that the auditor is told.
pub(crate) struct Evidence<'a> {
    pub(crate) ordered: &'a Ordered,
    pub(crate) journal: &'a Journal,
    pub(crate) records: &'a Records,
    pub(crate) disturbances: &'a [Disturbance],
    pub(crate) watches: &'a [Watch],
    pub(crate) ahead: Option<Ahead>,
    /// How late the campaign itself was.
    pub(crate) lags: &'a Lags,
    /// Of the processes.
    pub(crate) lease_us: i64,
}

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// An event neither came nor ended in a recorded state.
    Lost,
    /// An event did not end.
    Stuck,
    /// More in flight than the policy allows.
    AboveM,
    /// Fired before its launch time.
    Early,
    /// A token is held although all work is done.
    Leaked,
    /// One event, two ids; or one id, two events.
    Identity,
    /// An attempt did not grow, or came after a later one.
    Attempt,
    /// Delivered again although the delivery had been taken, and nothing had happened.
    Duplicate,
    /// Delivered again although a release had been answered with RELEASED.
    Released,
    /// Called missed although its schedule catches up with everything.
    Missed,
    /// Ended without a delivery, and nobody had asked for that.
    Unsent,
    /// A run that has ended is not followed by one run, or not by the right one.
    Chain,
    /// Fired although its schedule had been paused.
    Paused,
    /// Healthy work stood still for what was somebody else's business.
    Neighbour,
    /// Fired though it never fell due.
    NotDue,
    /// The records say something that did not happen.
    Records,
    /// A delivery without the right form, a release that was refused.
    Protocol,
}

impl Promise {
    /// As the verdict names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Stuck => "stuck",
            Self::AboveM => "above m",
            Self::Early => "fired early",
            Self::Leaked => "leaked",
            Self::Identity => "identity",
            Self::Attempt => "attempt",
            Self::Duplicate => "duplicate",
            Self::Released => "delivered after RELEASED",
            Self::Missed => "called missed",
            Self::Unsent => "ended unsent",
            Self::Chain => "chain",
            Self::Paused => "fired while paused",
            Self::Neighbour => "neighbour stopped",
            Self::NotDue => "not due",
            Self::Records => "records",
            Self::Protocol => "protocol",
        }
    }
}

/// A broken promise: how often, and the first cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(crate) count: u64,
    pub(crate) cases: Vec<String>,
}

/// Deliveries of an event beyond the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repeats {
    /// How many for which reason.
    pub(crate) by_reason: BTreeMap<&'static str, u64>,
    /// For none.
    pub(crate) not_allowed: u64,
    /// Of all of them, those that came when the sink had released the event already.
    pub(crate) of_done: u64,
}

/// How late healthy work came, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lateness {
    pub(crate) events: usize,
    pub(crate) median_ms: i64,
    pub(crate) p99_ms: i64,
    pub(crate) max_ms: i64,
}

/// What the auditor found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) events_due: u64,
    pub(crate) deliveries: u64,
    pub(crate) distinct: u64,
    pub(crate) lost: u64,
    pub(crate) ended_undelivered: u64,
    pub(crate) skipped: u64,
    pub(crate) above_m_max: u64,
    pub(crate) early: u64,
    pub(crate) leaked: u64,
    pub(crate) repeats: Repeats,
    /// Of healthy work beside each kind of fault.
    pub(crate) neighbours: BTreeMap<String, Lateness>,
    /// Of healthy work while there was no fault.
    pub(crate) calm: Lateness,
    /// The most in flight, by policy, and the limit that held then.
    pub(crate) in_flight_max: BTreeMap<String, (u64, u64)>,
    pub(crate) breaches: BTreeMap<Promise, Breach>,
}

/// Cases of a breach that are kept.
const CASES_MAX: usize = 20;

impl Verdict {
    fn breach(&mut self, promise: Promise, case: impl FnOnce() -> String) {
        let breach = self.breaches.entry(promise).or_default();
        breach.count += 1;
        if breach.cases.len() < CASES_MAX {
            breach.cases.push(case());
        }
    }

    /// Whether every promise was kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.breaches.is_empty()
    }
}

pub(crate) use chains::followed;

/// Holds the evidence against the promises.
pub(crate) fn audit(evidence: &Evidence<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    for problem in &evidence.journal.problems {
        verdict.breach(Promise::Protocol, || problem.clone());
    }
    flight::check(evidence, &mut verdict);
    deliveries::check(evidence, &mut verdict);
    runs::check(evidence, &mut verdict);
    chains::check(evidence, &mut verdict);
    neighbours::check(evidence, &mut verdict);
    verdict
}
