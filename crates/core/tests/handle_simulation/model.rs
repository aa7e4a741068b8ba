//! A naive model of what must be so: which events are in flight and why they may stop being so, which runs must exist,
//! what the consumers have. It knows nothing of the machine, and of the store only what was committed.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::handle::Send;
use tollgate_core::handle::change::{Changes, Outcome, TokenRow, TokenState};
use tollgate_core::handle::control::UnderWay;
use tollgate_core::handle::release::{Release, ReleaseOutcome};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::cursors::Replaced;
use crate::handle_world::Store;
use crate::totals::{Seen, Totals};
use crate::units::{Load, load_of};
use crate::world::SHARDS;

/// An event.
pub(crate) type Key = (RunId, u32);

/// An event in flight, and what is known of its latest delivery.
struct Flying {
    policy: Option<Uuid>,
    load: Load,
    /// An owner has taken over since, and has not read its item.
    unread: bool,
    attempt: u32,
    /// The attempt with which it took its token.
    first: u32,
    /// The target took it, and the answer releases.
    over: bool,
    /// The target did not take it, and no earlier delivery is unclear.
    refused: bool,
    unclear: bool,
    /// The latest sign of its consumer, or answer of its target.
    sign_us: i64,
}

#[derive(Default)]
pub(crate) struct Model {
    flying: BTreeMap<Key, Flying>,
    /// Tokens.
    in_flight: BTreeMap<Option<Uuid>, u32>,
    /// Those of the events of one key.
    in_flight_by_key: BTreeMap<(Option<Uuid>, String), u32>,
    /// Distinct events that consumers have and have not begun to release.
    working: BTreeMap<Option<Uuid>, BTreeSet<Key>>,
    /// Releases that somebody has called, right or wrong.
    called: BTreeSet<(Key, Option<u32>)>,
    /// Releases of deliveries that had not been made.
    pub(crate) forged: BTreeSet<(Key, u32)>,
    /// Releases of attempts in flight that wait in an inbox, and since when (monotonic).
    promised: BTreeMap<(Key, u32), i64>,
    /// The messages that carry releases which were answered as recorded; of which attempt, where their events may come again.
    recorded: BTreeMap<Uuid, (Key, Option<u32>)>,
    /// What each process's senders have been told not to send any more: (process, event, attempt).
    pub(crate) revoked: BTreeSet<(usize, Key, u32)>,
    /// Releases that were answered as recorded.
    acknowledged: BTreeMap<(Key, u32), Outcome>,
    /// The latest delivery of each event, and the shard it came from.
    pub(crate) sent: BTreeMap<Key, u32>,
    /// The latest attempt of each event whose bytes have gone out.
    written: BTreeMap<Key, u32>,
    pub(crate) shard_of: BTreeMap<RunId, u16>,
    /// Runs that must exist in the end, and launches that may have one.
    pub(crate) expected: BTreeMap<RunId, (Uuid, i64, RunKind)>,
    allowed: BTreeSet<RunId>,
    /// Runs after which none was launched, because of a pause, an outage or a deletion.
    pub(crate) ended_chains: BTreeSet<RunId>,
    /// Runs of which dead events were tried again.
    pub(crate) came_back: BTreeSet<RunId>,
    /// Runs that an emitter has handed over.
    pub(crate) emitted: BTreeSet<RunId>,
    /// When each shard's machine was loaded (monotonic).
    loaded_us: [i64; SHARDS as usize],
    /// Deliveries that a former owner waits for: attempt, and until when nobody repeats it.
    noted: BTreeMap<Key, (u32, i64)>,
    reported: BTreeSet<(Key, u32)>,
    /// The shard was given up on purpose, and nobody has loaded it since.
    handed_over: [bool; SHARDS as usize],
    reclaimed: BTreeSet<Key>,
    /// What targets took, and which owner heard of it when.
    pub(crate) accepted: BTreeMap<(Key, u32), (u64, i64)>,
    /// Who waits until the inbox of a shard has been carried out, and what was in it.
    pub(crate) syncs: BTreeMap<u64, (u16, Vec<Uuid>)>,
    /// Messages that were carried out, but for those that may come again.
    pub(crate) done: BTreeSet<Uuid>,
    pub(crate) cursors: Replaced,
}

impl Model {
    pub(crate) fn expect(&mut self, uid: Uuid, launch_us: i64, kind: RunKind) {
        let id = RunId::derive(uid, launch_us);
        self.expected.insert(id, (uid, launch_us, kind));
        self.allowed.insert(id);
    }

    pub(crate) fn allow(&mut self, uid: Uuid, launch_us: i64) {
        self.allowed.insert(RunId::derive(uid, launch_us));
    }

    pub(crate) fn allow_run(&mut self, run: RunId) {
        self.allowed.insert(run);
    }

    pub(crate) fn is_allowed(&self, id: RunId) -> bool {
        self.allowed.contains(&id)
    }

    pub(crate) fn in_flight(&self, policy: Option<Uuid>) -> u32 {
        self.in_flight.get(&policy).copied().unwrap_or(0)
    }

    /// Events in flight, and as how many tokens its owner counts them.
    pub(crate) fn counted(&self, policy: Option<Uuid>) -> (u32, u32) {
        let mut counted = (0, 0);
        for flying in self.flying.values().filter(|flying| flying.policy == policy) {
            counted.0 += 1;
            counted.1 += if flying.unread { flying.load.most } else { flying.load.units };
        }
        counted
    }

    /// Whether an owner has not read some item of those that hold tokens.
    pub(crate) fn has_unread(&self, policy: Option<Uuid>) -> bool {
        self.flying.values().any(|flying| flying.policy == policy && flying.unread)
    }

    /// The present owner has read items of a run, from this one on.
    pub(crate) fn read(&mut self, run: RunId, first: u32, items: u32) {
        let of_page = self.flying.range_mut((run, first)..(run, first + items));
        of_page.for_each(|(_, flying)| flying.unread = false);
    }

    pub(crate) fn in_flight_of(&self, policy: Option<Uuid>, key: &str) -> u32 {
        self.in_flight_by_key.get(&(policy, key.to_owned())).copied().unwrap_or(0)
    }

    pub(crate) fn at_consumers(&self, policy: Option<Uuid>) -> usize {
        self.working.get(&policy).map_or(0, BTreeSet::len)
    }

    /// A new owner has loaded the shard: silence counts from now on.
    pub(crate) fn loaded(&mut self, shard: u16, store: &Store, now: Now) {
        self.loaded_us[usize::from(shard)] = now.mono_us;
        let of_shard = self.flying.iter_mut().filter(|((run, _), _)| store.runs.contains_key(run));
        of_shard.for_each(|(_, flying)| flying.unread = flying.load.by_item);
        if !std::mem::take(&mut self.handed_over[usize::from(shard)]) {
            let of = |run: &RunId| self.shard_of.get(run) == Some(&shard);
            self.noted.retain(|(run, _), _| !of(run));
        }
    }

    /// A planned hand-over.
    pub(crate) fn leave_note(&mut self, shard: u16, deliveries: &[UnderWay], now: Now, totals: &mut Totals) {
        self.handed_over[usize::from(shard)] = true;
        for d in deliveries {
            let key = (d.run, d.index);
            if self.reported.contains(&(key, d.attempt)) {
                continue;
            }
            let until_us = now.mono_us + d.grace_ms * 1000;
            if self.noted.insert(key, (d.attempt, until_us)).is_some() {
                totals.count(Seen::NotedTwice);
            }
        }
    }

    /// The answer for a former owner is on its way to the present one.
    pub(crate) fn reported(&mut self, key: Key, attempt: u32) {
        self.reported.insert((key, attempt));
        if self.noted.get(&key).is_some_and(|(noted, _)| *noted == attempt) {
            self.noted.remove(&key);
        }
    }

    /// Something was heard of the event.
    pub(crate) fn heard(&mut self, key: Key, attempt: u32, at_us: i64) {
        if let Some(flying) = self.flying.get_mut(&key).filter(|f| f.attempt == attempt) {
            flying.sign_us = at_us;
        }
    }

    /// A delivery's bytes go out. The event has its token, and whatever the consumer has seen, it never sees an earlier
    /// attempt after it.
    pub(crate) fn written(&mut self, send: &Send) {
        assert!(
            self.flying.contains_key(&(send.run, send.index)),
            "attempt {} of {:?} goes out without a token",
            send.attempt,
            (send.run, send.index)
        );
        let last = self.written.insert((send.run, send.index), send.attempt).unwrap_or(0);
        assert!(
            send.attempt > last,
            "attempt {} of {:?} arrives after attempt {last}: it was overtaken",
            send.attempt,
            (send.run, send.index)
        );
    }

    /// A delivery did not go out.
    pub(crate) fn withheld(&mut self, key: Key, attempt: u32) {
        if let Some(flying) = self.flying.get_mut(&key).filter(|f| f.attempt == attempt) {
            flying.refused = !flying.unclear;
        }
    }

    /// A delivery, and what becomes of it, known here before anybody else.
    pub(crate) fn delivered(&mut self, send: &Send, sent: &Sent, arrives: bool) {
        let key = (send.run, send.index);
        let Some(flying) = self.flying.get_mut(&key) else { return };
        match sent {
            Sent::Accepted => flying.over |= !send.explicit_release,
            Sent::Refused { .. } | Sent::RefusedAlone { .. } => flying.refused = !flying.unclear,
            Sent::Unclear { .. } => flying.unclear = true,
            Sent::NotSent { .. } => {}
        }
        if arrives {
            self.working.entry(flying.policy).or_default().insert(key);
        }
    }

    pub(crate) fn release_called(&mut self, release: &Release) {
        let key = (release.run, release.index);
        self.called.insert((key, release.attempt));
        if let Some(attempt) = release.attempt.filter(|a| *a > self.sent.get(&key).copied().unwrap_or(0)) {
            self.forged.insert((key, attempt));
        }
        for working in self.working.values_mut() {
            working.remove(&key);
        }
    }

    /// A release has got into the inbox of the event's shard.
    pub(crate) fn promise(&mut self, release: &Release, now: Now) {
        let key = (release.run, release.index);
        if let (Some(flying), Some(attempt)) = (self.flying.get(&key), release.attempt)
            && flying.attempt == attempt
        {
            self.promised.entry((key, attempt)).or_insert(now.mono_us);
        }
    }

    /// A release that was answered as recorded is in the inbox.
    pub(crate) fn record(&mut self, message: Uuid, release: &Release) {
        let key = (release.run, release.index);
        let ends = release.next_check_us.is_none() && release.outcome != ReleaseOutcome::Retry;
        let of_flying =
            self.flying.get(&key).is_some_and(|flying| release.attempt.is_some_and(|a| a <= flying.attempt));
        if of_flying && release.attempt.is_some_and(|a| !self.forged.contains(&(key, a))) {
            self.recorded.insert(message, (key, release.attempt.filter(|_| !ends)));
        }
    }

    /// Whether a release of an event that was answered as recorded has not been carried out for good.
    pub(crate) fn is_recorded(&self, key: Key) -> bool {
        self.recorded.values().any(|(of, _)| *of == key)
    }

    /// Messages have been carried out: what was answered as released holds no token any more.
    pub(crate) fn check_recorded(&mut self, store: &Store, changes: &Changes) {
        for message in &changes.inbox_done {
            let Some((key, again)) = self.recorded.remove(message) else { continue };
            // It waits, or may have come again by now.
            let is_over = |t: &&TokenRow| {
                again.is_some_and(|attempt| t.state == TokenState::Waiting || t.attempt > attempt)
            };
            let token = store.tokens.get(&key).filter(|t| !is_over(t));
            assert!(token.is_none(), "{key:?} was released by its inbox, and the store has {token:?}");
        }
    }

    /// Whether a former owner still waits for the delivery before this one.
    pub(crate) fn is_repeated_early(&self, send: &Send, now: Now) -> bool {
        let noted = self.noted.get(&(send.run, send.index));
        noted.is_some_and(|(attempt, until_us)| send.attempt > *attempt && now.mono_us < *until_us)
    }

    /// A release was answered as recorded. Once is enough.
    pub(crate) fn acknowledge(&mut self, key: Key, attempt: u32, outcome: Outcome) {
        let before = self.acknowledged.insert((key, attempt), outcome);
        assert!(before.is_none(), "attempt {attempt} of {key:?} is released twice");
    }

    /// Whether somebody has released this attempt, or whichever there is.
    pub(crate) fn is_called(&self, key: Key, attempt: u32) -> bool {
        [Some(attempt), None].into_iter().any(|attempt| self.called.contains(&(key, attempt)))
    }

    pub(crate) fn was_reclaimed(&self, key: Key) -> bool {
        self.reclaimed.contains(&key)
    }

    /// Why an event that was in flight may have stopped being so.
    pub(crate) fn check_freed(
        &mut self,
        store: &Store,
        shard: u16,
        changes: &Changes,
        decided_us: i64,
    ) -> u32 {
        let waiting = changes.tokens_put.iter().filter(|t| t.state == TokenState::Waiting);
        let freed = waiting.map(|t| (t.run, t.index)).chain(changes.tokens_gone.iter().copied());
        let mut reclaimed = 0;
        for key in freed {
            let Some(flying) = self.flying.get(&key) else { continue };
            let sign_us = flying.sign_us.max(self.loaded_us[usize::from(shard)]);
            let own_ms = store.tokens.get(&key).and_then(|t| t.heartbeat_ttl_ms);
            let allowed = allowed_silence_us(store, changes, flying.policy, own_ms);
            let promised = self.promised.get(&(key, flying.attempt)).filter(|_| is_lost(changes, key));
            assert!(
                promised.is_none_or(|at_us| allowed.is_some_and(|allowed_us| *at_us >= sign_us + allowed_us)),
                "{key:?}, attempt {}, is reclaimed though its release was in the inbox in time",
                flying.attempt
            );
            let called =
                self.called.contains(&(key, Some(flying.attempt))) || self.called.contains(&(key, None));
            // Called off before its launch time, which nobody has seen.
            let unseen = self.sent.get(&key).is_none_or(|attempt| *attempt < flying.first);
            let carried_out = changes.inbox_done.iter().filter_map(|id| self.recorded.get(id));
            // What was given back gives nothing back that has come since.
            let is_it = |again: &Option<u32>| again.is_none_or(|attempt| attempt >= flying.attempt);
            let recorded = carried_out.into_iter().any(|(of, again)| *of == key && is_it(again));
            if called || recorded || flying.over || flying.refused || unseen {
                continue;
            }
            let silent_us = decided_us - sign_us;
            assert!(
                allowed.is_some_and(|allowed_us| silent_us >= allowed_us),
                "{key:?}, attempt {}, is freed though nobody released it, after {silent_us} us of silence, {allowed:?} allowed",
                flying.attempt
            );
            self.reclaimed.insert(key);
            reclaimed += 1;
        }
        reclaimed
    }

    /// What a durable commit says of events in flight.
    pub(crate) fn committed(&mut self, store: &Store, changes: &Changes) {
        for key in &changes.tokens_gone {
            self.land(*key);
        }
        for row in &changes.tokens_put {
            let key = (row.run, row.index);
            if row.state == TokenState::Waiting {
                self.land(key);
                continue;
            }
            match self.flying.get_mut(&key) {
                Some(flying) if flying.attempt < row.attempt => {
                    let attempt = std::mem::replace(&mut flying.attempt, row.attempt);
                    // Given back and taken again in one commit; else nobody knows what became of the delivery before.
                    let called = [Some(attempt), None].into_iter().any(|a| self.called.contains(&(key, a)));
                    flying.unclear = !(flying.refused || called);
                    flying.refused = false;
                    if !flying.unclear {
                        flying.first = row.attempt;
                    }
                    if called {
                        self.noted.remove(&key);
                    }
                }
                Some(_) => {}
                None => {
                    let policy = store.runs.get(&row.run).and_then(|r| r.policy_uid);
                    let load = load_of(store, key);
                    *self.in_flight.entry(policy).or_default() += load.units;
                    *self.in_flight_by_key.entry((policy, load.key.clone())).or_default() += load.units;
                    let flying = Flying {
                        policy,
                        load,
                        unread: false,
                        attempt: row.attempt,
                        first: row.attempt,
                        over: false,
                        refused: false,
                        unclear: false,
                        sign_us: i64::MIN,
                    };
                    self.flying.insert(key, flying);
                }
            }
        }
    }

    fn land(&mut self, key: Key) {
        self.noted.remove(&key);
        if let Some(flying) = self.flying.remove(&key) {
            let Load { key: of, units, .. } = flying.load;
            if let Some(count) = self.in_flight.get_mut(&flying.policy) {
                *count -= units;
            }
            if let Some(count) = self.in_flight_by_key.get_mut(&(flying.policy, of)) {
                *count -= units;
            }
            if let Some(working) = self.working.get_mut(&flying.policy) {
                working.remove(&key);
            }
        }
    }

    /// What was acknowledged is so for ever.
    pub(crate) fn check_acknowledged(&self, stores: &[Store]) {
        for ((key, attempt), outcome) in &self.acknowledged {
            let row = stores.iter().find_map(|s| s.history.get(key));
            // A run's other end states have rows of ranges; an event that was released as done has its own.
            let row = row.unwrap_or_else(|| panic!("{key:?} was acknowledged as {outcome:?} and has no end"));
            let done = *outcome == Outcome::Succeeded || *outcome == Outcome::Failed;
            assert!(
                !done || (row.outcome, row.attempt) == (*outcome, *attempt),
                "{row:?} was acknowledged as {outcome:?}"
            );
            assert!(
                row.attempt >= *attempt,
                "{row:?} goes back behind attempt {attempt}, which was acknowledged"
            );
        }
        assert!(self.flying.is_empty(), "{:?} are in flight for ever", self.flying.keys());
    }
}

/// Whether a commit takes the token back because nothing is heard of its consumer.
fn is_lost(changes: &Changes, key: Key) -> bool {
    let again = |t: &TokenRow| {
        (t.run, t.index) == key
            && t.state == TokenState::Waiting
            && t.message.starts_with("no sign of the consumer")
    };
    changes.history.iter().any(|r| (r.run, r.index) == key && r.outcome == Outcome::Lost)
        || changes.tokens_put.iter().any(again)
}

/// After how much silence a token may be reclaimed, by the policy before the commit or after it.
fn allowed_silence_us(
    store: &Store,
    changes: &Changes,
    policy: Option<Uuid>,
    own_ms: Option<i64>,
) -> Option<i64> {
    let Some(uid) = policy else {
        return Some((own_ms.unwrap_or(Policy::TOKEN_TTL_MS) + Policy::SUSPECT_MS) * 1000);
    };
    let new = changes.policies.iter().filter(|p| p.uid == uid);
    let policies = store.policies.get(&uid).into_iter().chain(new).filter(|p| p.reclaim == Reclaim::AfterTtl);
    policies.map(|p| (own_ms.unwrap_or(p.token_ttl_ms).min(p.token_ttl_ms) + p.suspect_ms) * 1000).min()
}
