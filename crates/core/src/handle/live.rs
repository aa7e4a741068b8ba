//! Runs, tokens and schedules as the shard keeps them in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::change::{ShardSchedule, TokenRow};
use super::exchange::Options;
use super::keys::{self, KeyOf, Load};
use super::ledger::{GuardedPhase, Phase, RunCounts};
use super::minutes::Noted;
use super::places::Sharer;
use super::queue::Of;
use super::sorted::Sorted;
use super::steps::Counted as _;
use super::targets::{TargetId, Told};
use crate::model::{ItemsIn, Run, RunId, RunKind, RunSpec, SECOND_US};
use crate::trouble::Said;

/// An unfinished run.
#[derive(Debug)]
pub(super) struct LiveRun {
    pub row: Run,
    pub spec: Arc<RunSpec>,
    /// Its launch time has come, and its overlap rule lets it go.
    pub launched: bool,
    /// Nothing of it starts any more.
    pub cancelled: bool,
    /// It stands in its queue.
    pub in_lane: bool,
    /// What is known of its keys, where its events start key by key.
    pub sorted: Option<Box<Sorted>>,
    /// Keys of it have been asked for.
    pub keys_asked: bool,
    /// Of its acquired events.
    pub counts: RunCounts,
    /// How long after its launch time its first event falls due.
    pub delay_us: i64,
    /// With whom it shares places.
    pub sharer: Sharer,
    /// How its target is told of, once it has launched.
    pub told: Option<Told>,
    /// When its target last took one of its events (monotonic), as far as this owner has heard it; else long ago.
    pub accepted_us: i64,
    /// What the history has of it.
    pub noted: Noted,
}

impl LiveRun {
    pub(super) fn new(row: Run, spec: Arc<RunSpec>) -> Self {
        let cancelled = row.next_index == row.events && !row.reason.is_empty();
        let (sharer, noted) = (Sharer::of(&row, &spec), Noted::of(&row));
        Self {
            delay_us: spec.start_delay_us(&row),
            row,
            spec,
            launched: false,
            cancelled,
            in_lane: false,
            sorted: None,
            keys_asked: false,
            counts: RunCounts::default(),
            sharer,
            told: None,
            accepted_us: i64::MIN,
            noted,
        }
    }

    /// The first run of the chain that it is of, where another run came before it.
    pub(super) fn chain(&self) -> Option<RunId> {
        self.row.predecessor.as_ref().and_then(|before| before.root).map(|root| root.run)
    }

    /// What its target is told of as, once it has launched.
    pub(super) fn target(&self) -> Option<TargetId> {
        self.told.map(|told| told.id(&self.sharer))
    }

    /// Whether its events have items, and count as the keys of these.
    pub(super) fn counts_by_item(&self) -> bool {
        self.row.policy_uid.is_some() && self.spec.items_of(&self.row) != ItemsIn::Nothing
    }

    /// As what its events count before anything is known of their items: none of them takes more tokens.
    pub(super) fn load_at_first(&self) -> Load {
        if self.counts_by_item() {
            Load { key: KeyOf::Unread, units: self.units_max() }
        } else {
            self.load(KeyOf::Schedule, 0)
        }
    }

    /// As what an event of it counts whose item says so many units.
    pub(super) fn load(&self, key: KeyOf, units: u32) -> Load {
        let said = if units == 0 { self.spec.units } else { units };
        Load { key, units: if self.row.policy_uid.is_some() { said.max(1) } else { 1 } }
    }

    /// The most tokens that one of its events takes.
    pub(super) fn units_max(&self) -> u32 {
        if self.row.policy_uid.is_some() { self.spec.units_max(&self.row).max(1) } else { 1 }
    }

    /// Whether its items say how many tokens their events take.
    pub(super) fn has_weighed_items(&self) -> bool {
        self.counts_by_item() && self.spec.items_units_max(&self.row) > 0
    }

    /// The key as which an event of it counts.
    pub(super) fn key<'a>(&'a self, of: &'a KeyOf) -> &'a str {
        match of {
            KeyOf::Item(item) => &item.name,
            KeyOf::Schedule | KeyOf::Unread => self.spec.key(),
        }
    }

    /// Where an event of it waits.
    pub(super) fn lane(&self, of: &KeyOf) -> Of {
        let Run { priority, schedule_uid: schedule, .. } = self.row;
        let circle = if self.row.policy_uid.is_some() {
            keys::group(&self.sharer.with(of))
        } else {
            self.sharer.namespace()
        };
        Of { circle, priority, schedule }
    }

    /// Where all of it waits that may start: of each key of which events are known, where it starts them key by key.
    pub(super) fn lanes(&self) -> impl Iterator<Item = Of> {
        let alone = self.sorted.is_none().then_some(&KeyOf::Schedule);
        let keys = alone.into_iter().chain(self.sorted.iter().flat_map(|sorted| sorted.keys()));
        keys.map(|key| self.lane(key))
    }

    /// The index of an event that has not started, with all after it: where it starts them key by key, of those that have not
    /// been sorted.
    pub(super) fn front(&self) -> u32 {
        self.row.sorted_to.unwrap_or(self.row.next_index)
    }

    /// When the next event of it falls due, or did.
    pub(super) fn falls_due_us(&self) -> i64 {
        // What has been sorted and has not started was due then.
        if self.row.next_index < self.front() { self.start_us() } else { self.launch_of(self.front()) }
    }

    /// Whether an event of it has not started.
    pub(super) fn is_unstarted(&self, index: u32) -> bool {
        let is_left = self.sorted.as_ref().is_some_and(|sorted| sorted.is_unstarted(index));
        index < self.row.events && (index >= self.front() || is_left)
    }

    /// When its first event falls due: the launch time, or its schedule's own moment after it.
    pub(super) fn start_us(&self) -> i64 {
        self.row.launch_us.saturating_add(self.delay_us)
    }

    /// When the event of this index falls due: with the first one, or at its place in the spread.
    pub(super) fn launch_of(&self, index: u32) -> i64 {
        self.start_us().saturating_add(self.spec.stagger(&self.row).place_us(index))
    }

    /// The index of the first event, from this one on, that falls due after this moment.
    pub(super) fn due_until(&self, from_index: u32, wall_us: i64) -> u32 {
        let (mut low, mut high) = (from_index, self.row.events);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.launch_of(middle) <= wall_us {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The moment by which its events must have started. A backfill's launch time lies in the past, and so would its
    /// window.
    pub(super) fn window_end_us(&self) -> Option<i64> {
        let finish_by_s = self.spec.finish_by_s.filter(|_| self.row.kind != RunKind::Backfill)?;
        Some(self.row.launch_us.saturating_add(finish_by_s.saturating_mul(SECOND_US)))
    }

    /// Whether more of it is to start, once that is due.
    pub(super) fn wants(&self, retrying_max: u32) -> bool {
        let again = self.counts.coming_again();
        self.launched && !self.cancelled && self.row.next_index < self.row.events && again < retrying_max
    }

    /// Whether its next event is due, or, where all fall due at once, will be soon enough to start early.
    pub(super) fn next_is_due(&self, wall_us: i64, options: &Options) -> bool {
        let due_us = self.falls_due_us();
        let from_us = if self.spec.spread_s.is_none() { options.early_at_us(due_us) } else { due_us };
        self.row.next_index < self.row.events && from_us <= wall_us
    }
}

/// An acquired, unfinished event.
#[derive(Debug)]
pub(super) struct LiveToken {
    pub row: TokenRow,
    /// The bucket that it counts in.
    pub policy: Option<uuid::Uuid>,
    /// As what it counts there.
    pub load: Load,
    pub phase: GuardedPhase,
    /// An earlier delivery of it is unclear, so that a refusal of a later one proves nothing.
    pub doubtful: bool,
    /// What was said of its latest delivery that did not go well, as far as this owner has heard it.
    pub said: Option<Said>,
    /// The last sign of its consumer (monotonic).
    pub sign_us: i64,
    /// Its place among the monotonic timers.
    pub timer_us: Option<i64>,
    /// Its row is, or will be with the commit under way, in the store.
    pub stored: bool,
    /// The first index of the batch that it is stored in, where it has no row of its own.
    pub batch: Option<u32>,
    /// It stands in its queue: it waits for a token, or for a place to be sent again, and its time has come.
    pub queued: bool,
    /// A former owner waits for the answer of its delivery, until then (monotonic).
    pub elsewhere_us: Option<i64>,
    /// The commit that carries its latest heartbeat's own time to live.
    pub ttl_commit: u64,
    /// How often in a row its delivery has not left the process, and since when (monotonic).
    pub unsent: Option<(u32, i64)>,
}

impl LiveToken {
    pub(super) fn new(
        row: TokenRow,
        policy: Option<uuid::Uuid>,
        load: Load,
        (phase, mono_us): (Phase, i64),
    ) -> Self {
        Self {
            row,
            policy,
            load,
            phase: GuardedPhase::new(phase),
            doubtful: false,
            said: None,
            sign_us: mono_us,
            timer_us: None,
            stored: false,
            batch: None,
            queued: false,
            elsewhere_us: None,
            ttl_commit: 0,
            unsent: None,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.phase()
    }

    /// Whether a delivery is under way.
    pub(super) fn is_sending(&self) -> bool {
        matches!(self.phase(), Phase::Sending { .. })
    }

    /// From when on it is to be sent again (monotonic), if it is.
    pub(super) fn again_us(&self) -> Option<i64> {
        match self.phase() {
            Phase::Again { at_us } => Some(at_us),
            _ => None,
        }
    }

    /// Whether it stands in its queue to be sent again.
    pub(super) fn is_queued_again(&self) -> bool {
        self.queued && self.again_us().is_some()
    }

    /// Its place among those of its lane that come again: whoever holds its token waits for nobody who wants one.
    pub(super) fn queued_us(&self) -> i64 {
        if self.in_flight() { i64::MIN } else { self.row.due_us }
    }

    /// How often in a row its delivery has failed, or has not left.
    pub(super) fn failures(&self) -> u32 {
        self.unsent.map_or(self.row.failures, |(times, _)| times)
    }

    /// Whether it counts as in flight.
    pub(super) fn in_flight(&self) -> bool {
        self.phase().in_flight()
    }

    /// Nothing of its latest delivery matters any more: it waits for its next attempt.
    pub(super) fn wait_until(&mut self, due_us: i64, message: String) {
        (self.row.due_us, self.row.message) = (due_us, message);
        self.doubtful = false;
        if self.row.delivered_us.is_some() {
            self.said = Some(Said::GivenBack);
        }
        (self.elsewhere_us, self.unsent) = (None, None);
        (self.sign_us, self.ttl_commit) = (0, 0);
    }
}

/// A schedule with runs in the shard, or with a fence.
#[derive(Debug, Default)]
pub(super) struct LiveSchedule {
    /// Kept once there is something to keep.
    pub row: Option<ShardSchedule>,
    /// Its target asked for a pause until then (monotonic).
    pub blocked_us: Option<i64>,
    /// Launched, unfinished runs.
    pub active: Active,
    /// The run that waits for those.
    pub buffered: Option<RunId>,
}

/// The launched, unfinished runs of a schedule; those that have been cancelled come last, so that nobody has to pass by
/// them.
#[derive(Debug, Default)]
pub(super) struct Active(BTreeSet<(bool, RunId)>);

impl Active {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, run: RunId, cancelled: bool) {
        self.0.insert((cancelled, run));
    }

    pub(super) fn has(&self, run: RunId) -> bool {
        self.0.contains(&(false, run)) || self.0.contains(&(true, run))
    }

    /// One of them is cancelled from now on.
    pub(super) fn cancel(&mut self, run: RunId) {
        if self.0.remove(&(false, run)) {
            self.0.insert((true, run));
        }
    }

    pub(super) fn remove(&mut self, run: RunId) {
        self.0.remove(&(false, run));
        self.0.remove(&(true, run));
    }

    pub(super) fn first(&self) -> Option<RunId> {
        self.0.first().map(|(_, run)| *run)
    }

    /// All of them; those that have been cancelled come last.
    pub(super) fn all(&self) -> impl Iterator<Item = RunId> {
        self.0.iter().counted().map(|(_, run)| *run)
    }

    /// One will do: a schedule may have a hundred thousand of them, each of which asks.
    pub(super) fn other_than(&self, run: RunId) -> Option<RunId> {
        self.0.iter().counted().map(|(_, other)| *other).find(|other| *other != run)
    }

    pub(super) fn not_cancelled(&self) -> Vec<RunId> {
        self.0.iter().take_while(|(cancelled, _)| !cancelled).counted().map(|(_, run)| *run).collect()
    }
}

impl LiveSchedule {
    /// The first run of a chain that goes on, for the end of which the next run waits.
    pub(super) fn chain(&self) -> Option<RunId> {
        self.row.as_ref().and_then(|row| row.chains.first().copied())
    }

    /// As [`Self::chain`], other than the one that a run is of: a chain that comes back to its schedule does not wait for itself.
    pub(super) fn chain_but(&self, own: Option<RunId>) -> Option<RunId> {
        self.row.as_ref().and_then(|row| row.chains.iter().copied().find(|first| Some(*first) != own))
    }

    /// Whether no run of it is unfinished, and no chain.
    pub(super) fn is_free(&self) -> bool {
        self.is_free_for(None)
    }

    /// As [`Self::is_free`], for a run of the chain that began with this one.
    pub(super) fn is_free_for(&self, own: Option<RunId>) -> bool {
        self.active.is_empty() && self.chain_but(own).is_none()
    }

    /// Whether there is nothing to remember of it.
    pub(super) fn is_idle(&self) -> bool {
        self.row.is_none() && self.blocked_us.is_none() && self.buffered.is_none() && self.active.is_empty()
    }

    /// Until when it rests after its last run (wall clock); long ago where it does not.
    pub(super) fn rest_until_us(&self) -> i64 {
        self.row.as_ref().map_or(0, |row| row.rest_until_us)
    }

    pub(super) fn is_parked(&self) -> bool {
        self.blocked_us.is_some() || self.row.as_ref().is_some_and(|r| r.pause.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::batch::TokenBatch;
    use crate::handle::bucket::Bucket;
    use crate::model::RunSpec;

    /// Without what they refer to: texts, payloads, bitmaps, and their places in the maps.
    #[test]
    #[expect(clippy::print_stdout, reason = "the numbers are for the docs")]
    fn what_is_kept_by_the_thousand_is_small() {
        let sizes = [
            ("run", size_of::<LiveRun>(), 512),
            ("event", size_of::<LiveToken>(), 256),
            ("batch", size_of::<TokenBatch>(), 128),
            ("schedule", size_of::<LiveSchedule>(), 320),
            ("policy", size_of::<Bucket>(), 512),
            ("spec", size_of::<RunSpec>(), 640),
        ];
        for (what, bytes, most) in sizes {
            println!("{what}: {bytes} bytes");
            assert!(bytes <= most, "{what}: {bytes} bytes, more than {most}");
        }
    }
}
