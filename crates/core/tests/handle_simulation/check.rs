//! What must hold after each step, and at the end.

use std::collections::BTreeSet;

use tollgate_core::handle::Send;
use tollgate_core::handle::change::{Changes, Outcome, ShardSchedule, TokenRow, TokenState};
use tollgate_core::handle::release::{Answer, Release, ReleaseOutcome};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::handle_world::Store;
use crate::model::Model;
use crate::owner::Owner;
use crate::totals::{Seen, Totals};
use crate::tree;
use crate::units::{self, load_of};
use crate::world::{At, World};

/// The keys that schedules have; those without one have the empty one.
pub(crate) const KEYS: [&str; 3] = ["", "acme", "zeta"];

fn limit_of_key(policy: &Policy, key: &str) -> u32 {
    policy.keys.limits_of(key).max_in_flight.unwrap_or(u32::MAX)
}

impl World {
    /// One transaction, and what must hold of it.
    pub(crate) fn commit_checked(&mut self, shard: u16, changes: &Changes, decided_us: i64) {
        self.check_behind_chains(shard, changes);
        let store = &mut self.stores[usize::from(shard)];
        let (whole, changes) = (changes, &store.flat(changes));
        let reclaimed = self.model.check_freed(store, shard, changes, decided_us);
        let model = &self.model;
        let limit_of = |policy: &Policy| policy.limits.max_in_flight.unwrap_or(u32::MAX);
        let held_before = tree::held(store, |uid| model.in_flight(Some(uid)));
        let before: Vec<(Uuid, u32, u32)> =
            store.policies.values().map(|p| (p.uid, limit_of(p), held_before[&p.uid])).collect();
        let by_key: ByKey<'_> = store
            .policies
            .values()
            .flat_map(|p| {
                KEYS.map(|key| ((p.uid, key), (limit_of_key(p, key), model.in_flight_of(Some(p.uid), key))))
            })
            .collect();
        check_starts(store, changes);
        units::check_urgent(store, changes, &self.troubles);
        self.model.came_back.extend(changes.history_gone.iter().map(|(run, _)| *run));
        if !self.troubles.clocks {
            check_rest(store, changes, &self.model.came_back);
        }
        for id in changes.inbox_done.iter().filter(|id| id.as_u64_pair().1 == 0) {
            assert!(self.model.done.insert(*id), "the message {id} is carried out twice");
        }
        self.model.cursors.check(shard, store, changes);
        store.apply(whole);
        let is_passed = |row: &TokenRow| {
            let before = store.unstarted.range((row.run, 0)..=(row.run, row.index));
            before.flat_map(|(_, stretch)| stretch.indexes()).any(|index| index < row.index)
        };
        if changes.tokens_put.iter().any(is_passed) {
            self.totals.count(Seen::PassedOver);
        }
        self.model.committed(store, changes);
        self.model.check_recorded(store, changes);
        let held = tree::held(store, |uid| self.model.in_flight(Some(uid)));
        for policy in store.policies.values() {
            let own = self.model.in_flight(Some(policy.uid));
            let in_flight = held[&policy.uid];
            let old = before.iter().find(|(uid, ..)| *uid == policy.uid);
            let (old_limit, old) = old.map_or((0, 0), |(_, limit, old)| (*limit, *old));
            let bound = limit_of(policy).max(old_limit).max(old);
            assert!(in_flight <= bound, "{in_flight} in flight of {policy:?}, before {old} of {old_limit}");
            let outside = self.model.at_consumers(Some(policy.uid));
            assert!(outside <= own as usize, "consumers have {outside}, {own} are in flight: {policy:?}");
            tree::count_full(&mut self.totals, store, (policy, own), &held);
            check_keys(&self.model, &mut self.totals, policy, &by_key);
            if in_flight > limit_of(policy) {
                self.totals.count(Seen::LimitBelowHeld);
            }
        }
        for run in changes.runs_changed.iter().filter(|r| r.state == RunState::Skipped) {
            assert!(store.skipped.contains_key(&(run.schedule_uid, run.launch_us)), "{run:?}");
        }
        self.count_changes(shard, changes, reclaimed);
    }

    fn count_changes(&mut self, shard: u16, changes: &Changes, reclaimed: u32) {
        for row in &changes.history {
            self.count(match row.outcome {
                Outcome::Succeeded => Seen::Succeeded,
                Outcome::Failed => Seen::Failed,
                Outcome::Dead => Seen::Dead,
                Outcome::Expired => Seen::Expired,
                Outcome::Cancelled => Seen::Cancelled,
                Outcome::Lost => Seen::Lost,
            });
        }
        for (seen, happened) in [
            (Seen::Withdrawn, !changes.runs_withdrawn.is_empty()),
            (Seen::Revived, !changes.history_gone.is_empty()),
            (Seen::Skipped, !changes.skipped.is_empty()),
            (Seen::Reclaimed, reclaimed > 0),
            (Seen::TookSeveral, units::takes_several(&self.stores[usize::from(shard)], changes)),
        ] {
            if happened {
                self.count(seen);
            }
        }
        for token in changes.tokens_put.iter().filter(|t| t.state != TokenState::Waiting && t.failures > 0) {
            self.count(match token.state {
                TokenState::Held if token.delivered_us.is_none() => Seen::HeldWithoutAnswer,
                _ if token.failures > 1 => Seen::UnclearTwice,
                _ => Seen::RefusedInDoubt,
            });
        }
    }

    /// Only what is recorded is sent, in order, once due, by the shard's owner, from one shard, and not during a pause.
    pub(crate) fn check_send(&mut self, at: At, send: &Send) {
        let shard = at.shard;
        let store = &self.stores[usize::from(shard)];
        let key = (send.run, send.index);
        let row = store.tokens.get(&key).unwrap_or_else(|| panic!("{key:?} is sent without a token row"));
        assert_eq!((row.state, row.attempt), (TokenState::Acquired, send.attempt), "{key:?}");
        let lease = self.processes[at.slot].owners.get(&shard).map(|o| o.lease.lease_id);
        let row = &self.leases[usize::from(shard)];
        let mine = lease == Some(row.lease_id);
        assert!(mine, "{key:?} is sent by an owner that has lost the shard: {row:?}, {lease:?}");
        assert!(send.launch_us <= self.wall_max_us, "{key:?} before its launch time");
        let run = &store.runs[&send.run];
        let start_us = run.launch_us + send.spec.start_delay_us(run);
        assert!(start_us <= send.launch_us && send.index < run.events, "{run:?}");
        let explicit = run.policy_uid.is_some() || send.pulled.is_some();
        assert_eq!(send.explicit_release, explicit);
        assert!(store.pause.pause.is_none(), "{key:?} while all is paused");
        let policy = run.policy_uid.map(|uid| &store.policies[&uid]);
        assert!(policy.is_none_or(|p| p.pause.is_none()), "{key:?} while its policy is paused");
        let key_paused = policy.is_some_and(|p| p.keys.pause_of(&load_of(store, key).key).is_some());
        assert!(!key_paused, "{key:?} while its key is paused");
        let schedule = store.schedules.get(&run.schedule_uid);
        // What was acquired before the pause, and waits for its time, goes as soon as the shard has read that the pause
        // is lifted.
        let stored = self.master.schedules.get(&run.schedule_uid);
        let lifted = stored.is_some_and(|stored| stored.schedule.pause.is_none());
        assert!(lifted || schedule.is_none_or(|s| s.pause.is_none()), "{key:?} while its schedule is paused");
        let early = self.model.is_repeated_early(send, self.now);
        assert!(!early, "{key:?}: attempt {} while a former owner waits for the one before", send.attempt);
        self.check_not_under_way(at, send);
        let last = self.model.sent.insert(key, send.attempt).unwrap_or(0);
        assert!(send.attempt > last, "{key:?}: attempt {} after {last}", send.attempt);
        let from = *self.model.shard_of.entry(send.run).or_insert(shard);
        assert_eq!(from, shard, "{key:?} is delivered from two shards");
        self.count(if send.attempt == 1 { Seen::Sent } else { Seen::Resent });
        if row_was_under_way(last, send.attempt) {
            self.count(Seen::SentAfterReload);
        }
    }

    /// What an owner has under way itself, it does not send again; unless somebody has released it.
    fn check_not_under_way(&self, at: At, send: &Send) {
        let (key, before) = ((send.run, send.index), send.attempt.wrapping_sub(1));
        let owner = self.processes[at.slot].owners.get(&at.shard);
        let until_us = owner.and_then(|owner| owner.begun.get(&(send.run, send.index, before)));
        let waits = until_us.is_some_and(|until_us| self.now.mono_us < *until_us);
        let is_over =
            self.model.is_called(key, before) || self.model.revoked.contains(&(at.slot, key, before));
        assert!(!waits || is_over, "{key:?}: attempt {} while the one before is under way", send.attempt);
    }

    /// What a consumer is told is so in the store.
    pub(crate) fn check_answer(&mut self, shard: u16, release: &Release, answer: &Answer) {
        self.count_answer(answer);
        let key = (release.run, release.index);
        if *answer == Answer::Late && self.model.was_reclaimed(key) {
            self.count(Seen::LateAfterReclaim);
        }
        let token = self.stores[usize::from(shard)].tokens.get(&key);
        let held = token.is_some_and(|t| {
            t.state != TokenState::Waiting && release.attempt.is_none_or(|attempt| t.attempt == attempt)
        });
        match answer {
            // Its next attempt may have started in the meantime.
            Answer::Released | Answer::ComesAgain { .. } | Answer::Late if release.attempt.is_none() => {}
            // The delivery may have been made since.
            Answer::Late if self.model.forged.contains(&(key, release.attempt.unwrap_or(0))) => {}
            Answer::Released | Answer::ComesAgain { .. } | Answer::Late => {
                assert!(!held, "{answer:?} to {release:?}, but the store has {token:?}");
            }
            Answer::NotHeld => {
                assert!(token.is_none(), "NotHeld to {release:?}, but the store has {token:?}")
            }
            Answer::Refused { .. } | Answer::Extended { .. } => {}
        }
        if let (Answer::Released, Some(attempt)) = (answer, release.attempt) {
            let outcome = match release.outcome {
                ReleaseOutcome::Succeeded => Outcome::Succeeded,
                ReleaseOutcome::Failed => Outcome::Failed,
                ReleaseOutcome::Retry => Outcome::Dead,
            };
            self.model.acknowledge(key, attempt, outcome);
        }
    }

    pub(crate) fn count_answer(&mut self, answer: &Answer) {
        self.count(match answer {
            Answer::Released => Seen::Released,
            Answer::ComesAgain { .. } => Seen::ComesAgain,
            Answer::Extended { .. } => Seen::Extended,
            Answer::NotHeld => Seen::NotHeld,
            Answer::Late => Seen::Late,
            Answer::Refused { .. } => Seen::Refused,
        });
    }

    /// With nothing pending, the machine counts what the model and the store have.
    pub(crate) fn compare(&mut self, at: At) {
        if !self.random.percent(8) {
            return;
        }
        let now = self.now_at(at.slot);
        let (store, row) = (&self.stores[usize::from(at.shard)], &self.leases[usize::from(at.shard)]);
        let process = &self.processes[at.slot];
        let Some(owner) = process.owners.get(&at.shard) else { return };
        let Some(machine) = owner.machine() else { return };
        if owner.lease.lease_id != row.lease_id || !machine.is_settled() {
            return;
        }
        if !owner.stops {
            units::check_goes_on((store, &self.model), &self.troubles, (machine, now));
        }
        let (mut suspects, mut as_most) = (0, false);
        for gauge in machine.status(now).gauges {
            let uid = gauge.policy.as_ref().map(|p| p.uid);
            if let Some(policy) = &gauge.policy {
                let (events, counted) = self.model.counted(uid);
                assert_eq!((store.in_flight(uid), gauge.held), (events, counted), "{gauge:?}");
                as_most |= counted > self.model.in_flight(uid);
                let in_tree = tree::held(store, |uid| self.model.counted(Some(uid)).1)[&policy.uid];
                assert_eq!(gauge.held + gauge.below, in_tree, "{gauge:?}");
                assert_eq!(
                    Some(policy),
                    store.policies.get(&policy.uid),
                    "the machine has another policy than the store"
                );
            }
            assert!(gauge.suspect <= gauge.held, "{gauge:?}");
            suspects += gauge.suspect;
        }
        if suspects > 0 {
            self.count(Seen::Suspect);
        }
        if as_most {
            self.count(Seen::CountedAsMost);
        }
    }

    /// Somebody asks how things stand.
    pub(crate) fn explain(&mut self, shard: u16) {
        let store = &self.stores[usize::from(shard)];
        let found = self
            .processes
            .iter()
            .enumerate()
            .find_map(|(slot, process)| Some((slot, process.owners.get(&shard)?.machine()?)));
        let Some((slot, machine)) = found else { return };
        let now = self.now_at(slot);
        let mut seen = BTreeSet::new();
        for run in store.runs.values().filter(|r| !has_ended(r)) {
            for index in [0, run.next_index.min(run.events - 1), run.events - 1] {
                if let Some(explanation) = machine.explain(run.id, index, now) {
                    seen.extend(explanation.reasons.iter().filter_map(units::seen_in));
                }
            }
        }
        seen.into_iter().for_each(|seen| self.count(seen));
    }

    pub(crate) fn at_rest(&self) -> bool {
        let quiet = |shard: u16| {
            let store = &self.stores[usize::from(shard)];
            store.inbox.is_empty() && store.tokens.is_empty() && store.runs.values().all(has_ended)
        };
        self.owned().len() == self.stores.len()
            && !self.master.is_anything_paused()
            && self.all_emitted()
            && self.master.outbox.is_empty()
            && (0..self.stores.len() as u16).all(quiet)
    }

    /// What keeps the world from coming to rest.
    pub(crate) fn unrest(&self) -> String {
        let untold = self.master.outbox.values().take(3).collect::<Vec<_>>();
        let mut text =
            format!("owned {:?}, emitted {}, untold {untold:?}\n", self.owned(), self.all_emitted());
        for (shard, store) in self.stores.iter().enumerate() {
            let machines = self.processes.iter().filter_map(|p| p.owners.get(&(shard as u16)));
            let machine = machines.filter_map(Owner::machine).next();
            let run = store.runs.values().find(|r| !has_ended(r));
            let tokens: Vec<_> = store.tokens.values().take(3).collect();
            let index = tokens.first().map(|token| token.index);
            let why = run.and_then(|r| machine?.explain(r.id, index.unwrap_or(r.next_index), self.now));
            let deadline = machine.map(|m| m.next_deadline());
            let inbox: Vec<_> = store.inbox.values().take(3).collect();
            text += &format!("{shard}: {run:?}\n{why:?}\n{tokens:?}\n{inbox:?}\n{deadline:?}\n");
        }
        text
    }

    /// Nothing is lost, nothing is twice, nothing is left.
    pub(crate) fn check_end(&mut self) {
        for (id, (uid, launch_us, kind)) in &self.model.expected {
            let rows: Vec<_> = self.stores.iter().filter_map(|s| s.runs.get(id)).collect();
            let skip = self.master.skipped.get(&(*uid, *launch_us));
            if rows.is_empty() && skip.is_some_and(|skip| skip.reason == SkipReason::Missed) {
                continue;
            }
            assert_eq!(rows.len(), 1, "the {kind:?} run {id} of {uid} at {launch_us}: {rows:?}");
        }
        let narrowed = &self.master.narrowed;
        assert!(narrowed.is_empty(), "told with fewer windows than the generation before: {narrowed:?}");
        for store in &self.stores {
            for run in store.runs.values() {
                assert!(self.model.is_allowed(run.id), "nobody asked for {run:?}");
                let rows = store.history.range((run.id, 0)..=(run.id, u32::MAX));
                let (mut ended, expected) = (0, if run.state == RunState::Skipped { 0 } else { run.events });
                for ((_, index), row) in rows {
                    ended += row.count;
                    let delivered = self.model.sent.contains_key(&(run.id, *index));
                    assert!(row.outcome != Outcome::Succeeded || delivered, "{row:?} was never delivered");
                }
                assert_eq!((ended, run.counts.total()), (expected, expected), "{run:?}");
            }
        }
        for policy in self.master.policies.values() {
            let known = self.stores[usize::from(policy.shard)].policies.get(&policy.uid);
            assert_eq!(known, Some(policy), "its shard knows another policy than was stored");
        }
        self.model.check_acknowledged(&self.stores);
        self.check_cursors();
        self.check_chains();
        let slots = 0..self.processes.len();
        for (slot, shard, owner) in
            slots.flat_map(|slot| self.processes[slot].owners.iter().map(move |(shard, o)| (slot, shard, o)))
        {
            // A zombie that has not woken does not count.
            let mine = owner.lease.lease_id == self.leases[usize::from(*shard)].lease_id;
            let Some(machine) = owner.machine().filter(|_| mine) else { continue };
            assert_eq!(machine.runs_held(), 0);
            for gauge in machine.status(self.now_at(slot)).gauges {
                let left = (gauge.held, gauge.below, gauge.suspect, gauge.waiting);
                assert_eq!(left, (0, 0, 0, 0), "{gauge:?}");
            }
        }
    }
}

/// What held, and was the limit, of each key of each policy before a commit.
type ByKey<'a> = Vec<((Uuid, &'a str), (u32, u32))>;

/// Of each key no more is in flight than may be.
fn check_keys(model: &Model, totals: &mut Totals, policy: &Policy, by_key: &ByKey<'_>) {
    for key in KEYS {
        let old = by_key.iter().find(|(of, _)| *of == (policy.uid, key));
        let (old_limit, old) = old.map_or((0, 0), |(_, before)| *before);
        let in_flight = model.in_flight_of(Some(policy.uid), key);
        let bound = limit_of_key(policy, key).max(old_limit).max(old);
        assert!(in_flight <= bound, "{in_flight} in flight of the key {key:?} of {policy:?}, before {old}");
        if in_flight > 0 && in_flight == limit_of_key(policy, key) {
            totals.count(Seen::KeyFull);
        }
    }
}

/// No run starts that its schedule's fence in the store calls stale; no event of a run that is cancelled, or after its
/// window.
fn check_starts(store: &Store, changes: &Changes) {
    for row in changes.tokens_put.iter().filter(|row| row.state != TokenState::Waiting) {
        let before = store.tokens.get(&(row.run, row.index));
        let new = changes.runs_changed.iter().find(|r| r.id == row.run);
        let Some(run) = new.or_else(|| store.runs.get(&row.run)) else { continue };
        if before.is_some_and(|b| b.state != TokenState::Waiting) {
            continue;
        }
        let retried =
            changes.history_gone.contains(&(row.run, row.index)) || before.is_some_and(|b| b.failures == 0);
        assert!(run.reason.is_empty() || retried, "{row:?} starts though its run is cancelled: {run:?}");
        let spec = &store.specs[&(run.schedule_uid, run.generation)];
        let window_us =
            spec.finish_by_s.filter(|_| run.kind != RunKind::Backfill).map(|s| run.launch_us + s * SECOND_US);
        let in_time = row.attempt > 1 || window_us.is_none_or(|end_us| row.acquired_us < end_us);
        assert!(in_time, "{row:?} starts after its window: {run:?}");
    }
    for run in changes.runs_changed.iter().filter(|r| r.kind == RunKind::Scheduled && r.started_us.is_some())
    {
        let new = store.runs.get(&run.id).is_some_and(|old| old.started_us.is_none());
        let row = store.schedules.get(&run.schedule_uid);
        if let Some(row) = row.filter(|row| new && is_stale(row, run)) {
            panic!("a withdrawn run starts: {run:?}, {row:?}");
        }
    }
}

/// No run of a timing starts while its schedule rests after an earlier one. `came_back`: runs that have ended more than once.
fn check_rest(store: &Store, changes: &Changes, came_back: &BTreeSet<RunId>) {
    let rests = |run: &Run| {
        let spec = &store.specs[&(run.schedule_uid, run.generation)];
        matches!(spec.overlap, OverlapRule::Skip | OverlapRule::BufferOne).then_some(spec)
    };
    let is_new = |run: &&Run| store.runs.get(&run.id).is_none_or(|old| old.started_us.is_none());
    let scheduled = |run: &&Run| run.kind == RunKind::Scheduled && run.started_us.is_some();
    for run in changes.runs_changed.iter().filter(scheduled).filter(is_new).filter(|run| rests(run).is_some())
    {
        let of_schedule = |other: &&Run| other.schedule_uid == run.schedule_uid && other.id != run.id;
        // What a user has started may have ended since, and set another rest.
        let latest = store.runs.values().filter(of_schedule).max_by_key(|other| other.finished_us);
        let Some(other) = latest.filter(scheduled).filter(|other| !came_back.contains(&other.id)) else {
            continue;
        };
        let delay_s = rests(other).and_then(|spec| spec.delay_after_finish_s);
        if let (Some(delay_s), Some(ended_us)) = (delay_s, other.finished_us) {
            let rest_until_us = ended_us + delay_s * SECOND_US;
            assert!(run.started_us >= Some(rest_until_us), "{run:?} starts in the rest after {other:?}");
        }
    }
}

fn is_stale(row: &ShardSchedule, run: &Run) -> bool {
    row.generation > run.generation
        && run.launch_us > row.changed_us
        && run.launch_us <= row.until_us
        && !row.launches_us.contains(&run.launch_us)
}

/// The delivery before was neither answered nor given up.
fn row_was_under_way(last: u32, attempt: u32) -> bool {
    last > 0 && attempt > last + 1
}

pub(crate) fn has_ended(run: &Run) -> bool {
    matches!(run.state, RunState::Finished | RunState::Cancelled | RunState::Skipped)
}
