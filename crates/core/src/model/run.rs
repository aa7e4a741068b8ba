//! A run: one trigger of one schedule. One row, however many events it has.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{
    CheckAgain, ItemsFrom, OnFinish, OverlapRule, Payload, ResultItems, RetryPolicy, SECOND_US, Schedule,
    Stagger, Target,
};

/// Id of a run, derived from its schedule and launch time, so that emitting twice is harmless.
///
/// The first 48 bits are the launch time in milliseconds, so that ids sort by time; the others are a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub Uuid);

impl RunId {
    /// The id of the run of `schedule_uid` at `launch_us`.
    pub fn derive(schedule_uid: Uuid, launch_us: i64) -> Self {
        let digest = Sha256::new()
            .chain_update(schedule_uid.as_bytes())
            .chain_update(launch_us.to_be_bytes())
            .finalize();
        let mut bytes = [0_u8; 16];
        bytes[..6].copy_from_slice(&(launch_us.div_euclid(1000)).to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&digest[..10]);
        Self(Uuid::from_bytes(bytes))
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_simple().fmt(f)
    }
}

/// What made a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RunKind {
    /// Its schedule's timing.
    #[default]
    Scheduled,
    /// A user, now.
    Manual,
    /// A user, for a past launch time.
    Backfill,
    /// A user, with data of their own for its events: those have items. A version that does not know this kind passes such a
    /// run over.
    Submitted,
    /// The end of another run. A version that does not know this kind passes such a run over.
    Followed,
}

impl RunKind {
    /// Whether no user has asked for it: what falls due while another run is unfinished is for the overlap rule to decide.
    pub fn is_automatic(self) -> bool {
        matches!(self, Self::Scheduled | Self::Followed)
    }
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RunState {
    /// Handed to the shard, not yet read by its owner.
    #[default]
    Emitted,
    /// Its items are being fetched, or will be: how many events it has is not known, and no owner takes it in.
    Listing,
    /// Known to the owner; not due, or due and nothing of it has started.
    Waiting,
    /// Some event has started.
    Running,
    /// Every event has ended.
    Finished,
    /// Cancelled by a user or an overlap rule, and no event is in flight any more.
    Cancelled,
    /// Not run at all: by its schedule's overlap rule, or because its items could not be fetched.
    Skipped,
    /// Passed over by the owner, which cannot read it or its spec; tried again now and then.
    Unreadable,
}

impl RunState {
    /// The state in which a run of a schedule is made.
    pub fn first(schedule: &Schedule) -> Self {
        if schedule.payload.from.is_some() { Self::Listing } else { Self::Emitted }
    }

    /// Whether no owner has taken the run in yet.
    pub fn is_untaken(self) -> bool {
        matches!(self, Self::Emitted | Self::Listing | Self::Unreadable)
    }
}

/// How many of a run's events ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Released as done.
    pub succeeded: u32,
    /// Released as failed, and not tried again.
    pub failed: u32,
    /// Out of attempts.
    pub dead: u32,
    /// Not started within the window.
    pub expired: u32,
    /// Cancelled before they started, or while they waited to be tried again.
    pub cancelled: u32,
    /// Reclaimed and not tried again.
    pub lost: u32,
}

impl Counts {
    /// Those that ended badly.
    pub fn badly(&self) -> u32 {
        self.failed + self.dead + self.expired + self.lost
    }

    /// All that ended.
    pub fn total(&self) -> u32 {
        self.succeeded + self.cancelled + self.badly()
    }
}

pub(super) fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
pub(super) fn is_one(units: &u32) -> bool {
    *units == 1
}

/// What every run of one generation of a schedule shares; kept once per shard and generation, so that an event
/// can be fired without its schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The schedule.
    pub schedule_uid: Uuid,
    /// Its generation; of a run's own spec, a number below 0.
    pub generation: i64,
    /// The namespace's id.
    pub namespace: String,
    /// The schedule's id.
    pub schedule_id: String,
    /// The policy's uid.
    pub policy_uid: Option<Uuid>,
    /// The policy's id.
    pub policy_id: Option<String>,
    /// As what its events count where the policy counts by key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How many tokens each event takes whose item does not say.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub units: u32,
    /// Where events go.
    pub target: Target,
    /// What they carry.
    pub payload: Payload,
    /// How they are retried.
    pub retry: RetryPolicy,
    /// What happens to a run that falls due while another is unfinished.
    pub overlap: OverlapRule,
    /// How long its schedule rests after the end of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_after_finish_s: Option<i64>,
    /// Window after the launch time within which an event must start.
    pub finish_by_s: Option<i64>,
    /// Events are spaced evenly over this long.
    pub spread_s: Option<i64>,
    /// The run starts at a moment of its schedule's own within this long after the launch time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_within_s: Option<i64>,
    /// Guards for `next_check_time`.
    pub check_again: CheckAgain,
    /// What follows its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_finish: Option<OnFinish>,
}

/// Where that is what the events of a run carry of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemsIn {
    /// They carry nothing of their own.
    Nothing,
    /// The pages of the run, which was submitted, or whose list was fetched.
    Pages,
    /// Its spec.
    Spec,
}

impl RunSpec {
    /// As what its events count where the policy counts by key: those without a key share the empty one.
    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }

    /// Where the items of a run of this spec are.
    pub fn items_of(&self, run: &Run) -> ItemsIn {
        if run.kind == RunKind::Submitted || run.result_items().is_some() || self.payload.from.is_some() {
            ItemsIn::Pages
        } else if self.payload.items.is_empty() {
            ItemsIn::Nothing
        } else {
            ItemsIn::Spec
        }
    }

    /// The most tokens that an event of a run takes.
    pub fn units_max(&self, run: &Run) -> u32 {
        self.items_units_max(run).max(self.units)
    }

    /// The most tokens that one of the items of a run says that its event takes; 0 where none says so.
    pub fn items_units_max(&self, run: &Run) -> u32 {
        match self.items_of(run) {
            ItemsIn::Nothing => 0,
            ItemsIn::Pages => run.units_max,
            ItemsIn::Spec => self.payload.units_max,
        }
    }

    /// The part of a schedule that its runs need.
    pub fn of(schedule: &Schedule) -> Self {
        Self {
            schedule_uid: schedule.uid,
            generation: schedule.generation,
            namespace: schedule.namespace.clone(),
            schedule_id: schedule.id.clone(),
            policy_uid: schedule.policy_uid,
            policy_id: schedule.policy.clone(),
            key: schedule.key.clone(),
            units: schedule.units,
            target: schedule.target.clone(),
            payload: schedule.payload.clone(),
            retry: schedule.retry.clone(),
            overlap: schedule.overlap,
            delay_after_finish_s: schedule.delay_after_finish_s,
            finish_by_s: schedule.finish_by_s,
            spread_s: schedule.spread_s,
            start_within_s: schedule.start_within_s,
            check_again: schedule.check_again.clone(),
            on_finish: schedule.on_finish.clone(),
        }
    }

    /// The spec of one run that has a payload of its own, which `schedule` has. It stands under a number that no generation
    /// has, and no other run of the schedule: generations begin at 1, and a launch time has one run.
    pub fn of_one_run(schedule: &Schedule, launch_us: i64) -> Self {
        Self { generation: -launch_us, ..Self::of(schedule) }
    }

    /// How the events of a run are set off from its launch time.
    pub fn stagger(&self, run: &Run) -> Stagger {
        let Self { start_within_s, spread_s, .. } = *self;
        Stagger { start_within_s, spread_s, events: run.events }
    }

    /// How long after the run's launch time its first event falls due. What a user starts now starts now, and so does
    /// what follows another run.
    pub fn start_delay_us(&self, run: &Run) -> i64 {
        if matches!(run.kind, RunKind::Manual | RunKind::Submitted | RunKind::Followed) {
            0
        } else {
            self.stagger(run).delay_us(self.schedule_uid)
        }
    }
}

/// A run as the stores keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The queue shard that owns it.
    pub shard: u16,
    /// The queue shard that its name and those of its events have, where it has moved since it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born_shard: Option<u16>,
    /// Derived from schedule and launch time.
    pub id: RunId,
    /// The schedule.
    pub schedule_uid: Uuid,
    /// The schedule's generation, or the number of a spec of its own; with the uid the key of its [`RunSpec`].
    pub generation: i64,
    /// The namespace's id.
    pub namespace: String,
    /// The schedule's id.
    pub schedule_id: String,
    /// The policy's uid.
    pub policy_uid: Option<Uuid>,
    /// When it falls due.
    pub launch_us: i64,
    /// How many events it has; 0 before its items have been fetched.
    pub events: u32,
    /// 0 (last) to 9 (first).
    pub priority: u8,
    /// The most tokens that one of the items in its pages says that its event takes; 0 where none says so.
    #[serde(default)]
    pub units_max: u32,
    /// What made it.
    pub kind: RunKind,
    /// Where it stands.
    pub state: RunState,
    /// Why it was skipped or cancelled; else empty.
    pub reason: String,
    /// How many events have been acquired, expired or cancelled: where its events start in the order of their indexes, those
    /// below this one.
    pub next_index: u32,
    /// Set where its events start key by key: those below it have been sorted by their keys, and which of them have not started
    /// is told beside the run ([`crate::handle::Unstarted`]); above it, none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sorted_to: Option<u32>,
    /// How its events ended.
    pub counts: Counts,
    /// The cursor that the schedule's consumers handed to this run.
    pub cursor_in: Option<String>,
    /// The last cursor that its own consumers gave.
    pub cursor_out: Option<String>,
    /// The run of which the end made this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<Box<Predecessor>>,
    /// How many bytes the results of its events have.
    #[serde(default)]
    pub result_bytes: u32,
    /// How many items are in them.
    #[serde(default)]
    pub result_count: u32,
    /// When it was emitted.
    pub emitted_us: i64,
    /// When its first event was acquired.
    pub started_us: Option<i64>,
    /// When its last event ended.
    pub finished_us: Option<i64>,
}

impl Run {
    /// The queue shard that its name and those of its events have.
    pub fn named_shard(&self) -> u16 {
        self.born_shard.unwrap_or(self.shard)
    }

    /// When its list may be fetched first.
    pub fn list_begin_us(&self, from: &ItemsFrom) -> i64 {
        self.launch_us.saturating_sub(from.fetch_ahead_s.saturating_mul(SECOND_US))
    }

    /// From when on a failure to fetch its list is the last: so long after the launch time, or after it was made where that was
    /// later; and no later than the end of the window within which its events must start.
    pub fn list_give_up_us(&self, from: &ItemsFrom, finish_by_s: Option<i64>) -> i64 {
        let made_us = self.launch_us.max(self.emitted_us);
        let until_us = made_us.saturating_add(from.give_up_after_s.saturating_mul(SECOND_US));
        let window_us = finish_by_s
            .filter(|_| self.kind != RunKind::Backfill)
            .map(|finish_by_s| self.launch_us.saturating_add(finish_by_s.saturating_mul(SECOND_US)));
        window_us.map_or(until_us, |window_us| window_us.min(until_us))
    }
}

/// The first run of a chain, where the next run of its schedule waits for the end of the whole chain, or is skipped for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainRoot {
    /// The queue shard that owned it.
    pub shard: u16,
    /// Its schedule.
    pub schedule_uid: Uuid,
    /// Its id.
    pub run: RunId,
}

/// The run before, of which the end made a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predecessor {
    /// The queue shard that its name has.
    pub shard: u16,
    /// Its id.
    pub run: RunId,
    /// Its schedule's id.
    pub schedule_id: String,
    /// Its place in the chain, from 1.
    pub place: u8,
    /// How it ended.
    pub state: RunState,
    /// How its events ended.
    pub counts: Counts,
    /// Who waits for the end of the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<ChainRoot>,
    /// How its results are read, where they have the items of the run that follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Box<ResultItems>>,
}

impl Predecessor {
    /// The most runs that one chain has.
    pub const PLACES_MAX: u8 = 8;

    /// How it ended, in the words of a release: FAILED where some event ended badly, or the run got no items; else CANCELLED
    /// where it was; else SUCCEEDED.
    pub fn outcome(&self) -> &'static str {
        match self.state {
            _ if self.counts.badly() > 0 => "FAILED",
            RunState::Cancelled => "CANCELLED",
            RunState::Skipped => "FAILED",
            _ => "SUCCEEDED",
        }
    }
}

impl Run {
    /// How its items are read from the results of the run before, where they come from there.
    pub fn result_items(&self) -> Option<&ResultItems> {
        self.predecessor.as_ref().and_then(|before| before.items.as_deref())
    }

    /// Its place in its chain, from 1.
    pub fn place(&self) -> u8 {
        self.predecessor.as_ref().map_or(1, |before| before.place.saturating_add(1))
    }
}

/// Why a trigger made no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SkipReason {
    /// It fell due in an outage and the catch-up rule left it out.
    Missed,
    /// The schedule was paused.
    Paused,
    /// An earlier run of the schedule was unfinished.
    Overlap,
    /// Its items could not be fetched.
    NotListed,
}

/// A trigger that made no run, recorded with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The schedule.
    pub schedule_uid: Uuid,
    /// When it would have fired.
    pub launch_us: i64,
    /// Why it did not.
    pub reason: SkipReason,
    /// When that was recorded.
    pub recorded_us: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_fetched_ahead_of_the_launch_and_given_up_some_time_after() {
        let from = ItemsFrom::http("http://a/x".to_owned());
        let from = ItemsFrom { fetch_ahead_s: 60, give_up_after_s: 120, ..from };
        let run = Run { launch_us: 1_000 * SECOND_US, emitted_us: 700 * SECOND_US, ..Run::default() };
        assert_eq!(run.list_begin_us(&from), 940 * SECOND_US);
        assert_eq!(run.list_give_up_us(&from, None), 1_120 * SECOND_US);
        assert_eq!(run.list_give_up_us(&from, Some(30)), 1_030 * SECOND_US);
        assert_eq!(run.list_give_up_us(&from, Some(300)), 1_120 * SECOND_US);
        let late = Run { kind: RunKind::Backfill, emitted_us: 9_000 * SECOND_US, ..run };
        assert_eq!(late.list_give_up_us(&from, Some(30)), 9_120 * SECOND_US);
    }
}
