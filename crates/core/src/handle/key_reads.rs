//! The keys of items: for which runs they are read, what waits for them, and what becomes of it.
//!
//! In: runs and tokens under policies that count by key, keys as they are read. Out: pages to read; runs in the lanes of their
//! keys. Invariants: of a run, one page is asked for at a time, and of a few runs at once, in the order in which they came; as
//! long as the key of a token is not known, nothing starts under its policy, as nobody knows what each key holds. Not here: what
//! is known of the keys of one run ([`super::sorted`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use uuid::Uuid;

use super::change::UNSTARTED_EVENTS;
use super::exchange::KeysWanted;
use super::keys::{ItemKey, KeyOf, Load};
use super::live::LiveRun;
use super::places::stand_in;
use super::queue::{Of, Queue};
use super::shard::{Shard, WallTimer};
use super::sorted::{Sorted, stretch_of};
use crate::model::{Now, RunId};

/// Pages that are asked for at once: those that deliveries need are read beside them.
const ASKED_MAX: usize = 4;

/// Runs of which keys may be needed.
#[derive(Debug, Default)]
pub(super) struct KeyReads {
    /// To be looked at when keys are asked for next.
    hungry: Line,
    /// Runs of which a page has been asked for, and the answer has not come.
    asked: usize,
    /// Ranges in which the known events of all runs stand.
    ranges: usize,
    /// Policies that would have more keys read, were there not so many ranges.
    waiting: BTreeSet<Option<Uuid>>,
}

/// Runs in the order of their coming, each once.
#[derive(Debug, Default)]
struct Line {
    order: VecDeque<RunId>,
    within: BTreeSet<RunId>,
}

impl Line {
    fn push(&mut self, id: RunId) {
        if self.within.insert(id) {
            self.order.push_back(id);
        }
    }

    fn pop(&mut self) -> Option<RunId> {
        let id = self.order.pop_front()?;
        self.within.remove(&id);
        Some(id)
    }
}

impl Shard {
    /// The pages of items of which the machine needs the keys, each once until it is answered. To be asked for after every
    /// poll, also while a commit is under way.
    pub fn keys_wanted(&mut self) -> Vec<KeysWanted> {
        let mut wanted = Vec::new();
        while self.key_reads.asked < ASKED_MAX
            && let Some(id) = self.key_reads.hungry.pop()
        {
            wanted.extend(self.key_wanted(id));
        }
        wanted
    }

    fn key_wanted(&mut self, id: RunId) -> Option<KeysWanted> {
        let run = self.ledger.runs.get(&id).filter(|run| !run.keys_asked)?;
        let unread = (run.counts.unread() > 0 && self.needs_items(run))
            .then(|| self.ledger.tokens.of(id).find(|(_, token)| token.load.key == KeyOf::Unread))
            .flatten();
        let next = || run.sorted.as_ref()?.next_unread(run.front(), run.row.events);
        let index = unread.map(|((_, index), _)| index).or_else(next)?;
        let item_in = run.spec.items_of(&run.row);
        let wanted = KeysWanted { run: id, index, spec: run.spec.clone(), item_in };
        self.ledger.runs.get_mut(&id)?.keys_asked = true;
        self.key_reads.asked += 1;
        Some(wanted)
    }

    /// Whether a policy counts by key.
    pub(super) fn counts_by_key(&self, policy: Option<Uuid>) -> bool {
        self.ledger.buckets.get(&policy).is_some_and(|bucket| bucket.rules().is_some())
    }

    /// Whether what is held of the events of a run follows from its items.
    pub(super) fn needs_items(&self, run: &LiveRun) -> bool {
        run.counts_by_item() && (self.counts_by_key(run.row.policy_uid) || run.has_weighed_items())
    }

    /// Whether a run starts its events key by key.
    pub(super) fn is_by_key(&self, run: &LiveRun) -> bool {
        run.sorted.is_some() || self.needs_items(run)
    }

    /// A token of a run has a key that is not known, and needs it.
    pub(super) fn needs_key(&mut self, id: RunId) {
        self.key_reads.hungry.push(id);
    }

    /// Nothing that is known may start under a policy, and something might, or nothing is known: what is not known may.
    pub(super) fn read_on(&mut self, policy: Option<Uuid>) {
        let is_full = self.key_reads.ranges >= self.options.sorted_max;
        let Some(bucket) = self.ledger.buckets.get_mut(&policy) else { return };
        if is_full && !bucket.keys.unread.is_empty() {
            self.key_reads.waiting.insert(policy);
        } else {
            std::mem::take(&mut bucket.keys.unread).into_iter().for_each(|id| self.key_reads.hungry.push(id));
        }
    }

    /// So many ranges have gone.
    fn give_ranges_back(&mut self, ranges: usize) {
        self.key_reads.ranges -= ranges;
        if self.key_reads.ranges < self.options.sorted_max {
            self.ledger.ready.append(&mut self.key_reads.waiting);
        }
    }

    /// Puts a run that starts its events key by key into the lanes of its keys or takes it out, as its state says.
    pub(super) fn sync_sorted(&mut self, id: RunId, now: Now) {
        let Some(run) = self.ledger.runs.get(&id) else { return };
        let wants = run.wants(self.options.retrying_max);
        if wants && run.sorted.is_none() {
            self.leave_lane(id);
            let Some(run) = self.ledger.runs.get_mut(&id) else { return };
            run.row.sorted_to = Some(run.row.next_index);
            run.sorted = Some(Box::new(Sorted::from(run.row.next_index)));
        }
        if wants {
            self.sort_due(id, now);
            self.want_keys(id, now);
        }
        let known =
            self.ledger.runs.get(&id).and_then(|run| run.sorted.as_ref()).map_or(0, |sorted| sorted.known());
        if wants && known > 0 {
            self.join_lane(id);
        } else {
            self.leave_lane(id);
        }
    }

    /// Sorts what has been read and has fallen due.
    fn sort_due(&mut self, id: RunId, now: Now) {
        let mut new = Vec::new();
        let Some(run) = self.ledger.runs.get_mut(&id) else { return };
        let Some(mut sorted) = run.sorted.take() else { return };
        let before = sorted.ranges();
        let first = run.front();
        while sorted.has_ahead() && run.launch_of(run.front()) <= now.wall_us {
            let index = run.front();
            new.extend(sorted.sort(index, |key| run.lane(key).circle));
            run.row.sorted_to = Some(index + 1);
        }
        let sorted_to = run.front();
        self.key_reads.ranges += sorted.ranges() - before;
        run.sorted = Some(sorted);
        if sorted_to > first {
            self.pending.runs.insert(id);
            let stretches = (stretch_of(first)..sorted_to).step_by(UNSTARTED_EVENTS as usize);
            self.pending.unstarted.extend(stretches.map(|stretch| (id, stretch)));
        }
        self.stand_in_lanes(id, &new);
    }

    /// A run that stands in its lanes stands in those of more keys.
    fn stand_in_lanes(&mut self, id: RunId, new: &[KeyOf]) {
        let Some(run) = self.ledger.runs.get(&id).filter(|run| run.in_lane && !new.is_empty()) else {
            return;
        };
        let (policy, uid) = (run.row.policy_uid, run.row.schedule_uid);
        let queue = self.queues.entry(policy).or_default();
        for key in new {
            queue.push_run(run.lane(key), run.row.launch_us, id);
        }
        self.ledger.ready.insert(policy);
        self.park_in(policy, uid);
    }

    /// Has more keys read soon where few events are known, and else once nothing that is known may start.
    fn want_keys(&mut self, id: RunId, now: Now) {
        let Some(run) = self.ledger.runs.get(&id) else { return };
        let (front, policy) = (run.front(), run.row.policy_uid);
        let Some(sorted) = &run.sorted else { return };
        if front < run.row.events && run.launch_of(front) > now.wall_us {
            self.wall_timers.insert((run.launch_of(front), WallTimer::Spread(id)));
        }
        // What had been sorted before a takeover was due then, whatever the clock says now.
        let is_wanted = sorted
            .next_unread(front, run.row.events)
            .is_some_and(|index| index < front || run.launch_of(index) <= now.wall_us);
        if !is_wanted || run.keys_asked {
            return;
        }
        let is_full = self.key_reads.ranges >= self.options.sorted_max;
        if sorted.is_short() && !is_full {
            self.key_reads.hungry.push(id);
        } else if let Some(bucket) = self.ledger.buckets.get_mut(&policy) {
            bucket.keys.unread.insert(id);
            if is_full {
                self.key_reads.waiting.insert(policy);
            }
        }
    }

    /// The keys and the units of the items of a page, from this index on, one each: empty for an item without a key, 0 for one
    /// that does not say its units. `of`: the run, and the
    /// generation of the spec by which they were asked for: those of another one are not its any more.
    pub fn keys_read(&mut self, of: (RunId, i64), first_index: u32, items: Vec<(String, u32)>, now: Now) {
        let mut known: BTreeMap<String, KeyOf> = BTreeMap::new();
        let mut key_of = |name: String| match known.get(&name) {
            Some(key) => key.clone(),
            None => {
                let key = match stand_in(&name) {
                    0 => KeyOf::Schedule,
                    stand_in => KeyOf::Item(Arc::new(ItemKey { name: name.clone(), stand_in })),
                };
                known.insert(name, key.clone());
                key
            }
        };
        let items: Vec<(KeyOf, u32)> = items.into_iter().map(|(key, units)| (key_of(key), units)).collect();
        self.items_known(of, first_index, items, now);
    }

    /// The page that holds an index cannot be read: that event counts as one whose item says nothing.
    pub fn keys_unreadable(&mut self, of: (RunId, i64), index: u32, now: Now) {
        self.items_known(of, index, vec![(KeyOf::Schedule, 0)], now);
    }

    fn items_known(
        &mut self,
        (id, generation): (RunId, i64),
        first: u32,
        items: Vec<(KeyOf, u32)>,
        now: Now,
    ) {
        let end = first.saturating_add(u32::try_from(items.len()).unwrap_or(u32::MAX));
        let Some(run) = self.ledger.runs.get_mut(&id).filter(|run| run.row.generation == generation) else {
            return;
        };
        // What a machine before this one has asked for is known of tokens alone: the run may not have launched here.
        let was_asked = std::mem::take(&mut run.keys_asked);
        self.key_reads.asked -= usize::from(was_asked);
        let (front, mut new) = (run.front(), Vec::new());
        let loads: Vec<Load> = items.into_iter().map(|(key, units)| run.load(key, units)).collect();
        if let Some(mut sorted) = run.sorted.take_if(|_| was_asked) {
            let before = sorted.ranges();
            new = sorted.read(first, &loads, front, |key| run.lane(key).circle);
            self.key_reads.ranges += sorted.ranges() - before;
            run.sorted = Some(sorted);
        }
        let policy = run.row.policy_uid;
        let within = self.ledger.tokens.within(id, first..end);
        let unread = within.filter(|(_, token)| token.load.key == KeyOf::Unread).map(|(key, _)| key);
        for key in unread.collect::<Vec<_>>() {
            if let Some(load) = loads.get((key.1 - first) as usize) {
                self.name_token(key, load.clone(), now);
            }
        }
        self.stand_in_lanes(id, &new);
        self.ledger.ready.insert(policy);
        if self.ledger.runs.get(&id).is_some_and(|run| run.counts.unread() > 0) {
            self.needs_key(id);
        }
        self.sync_lane(id, now);
    }

    /// The item of a token is known: it counts as that says, and waits there.
    fn name_token(&mut self, key: (RunId, u32), load: Load, now: Now) {
        let moved = |shard: &mut Self, edit: &dyn Fn(&mut Queue, Of, i64)| {
            let (Some(run), Some(token)) = (shard.ledger.runs.get(&key.0), shard.ledger.tokens.get(&key))
            else {
                return;
            };
            if token.queued {
                let queue = shard.queues.entry(token.policy).or_default();
                edit(queue, run.lane(&token.load.key), token.queued_us());
            }
        };
        moved(self, &|queue, of, due_us| queue.remove_retry(of, due_us, key.0, key.1));
        self.ledger.name(key, load);
        moved(self, &|queue, of, due_us| queue.push_retry(of, due_us, key.0, key.1));
        let Some(token) = self.ledger.tokens.get(&key) else { return };
        let (is_queued, policy) = (token.queued, token.policy);
        if is_queued && let Some(run) = self.ledger.runs.get(&key.0) {
            self.park_in(policy, run.row.schedule_uid);
        } else if !token.in_flight() && token.row.due_us <= now.wall_us {
            self.retry_is_due(key.0, key.1);
        } else if !token.in_flight() {
            // It may have been due before: clocks are set back.
            self.wall_timers.insert((token.row.due_us, WallTimer::Retry(key.0, key.1)));
        }
    }

    /// A policy has begun to count by key, or has ceased to: its runs with items start key by key from now on, and what has
    /// waited without a key waits until that is known.
    pub(super) fn count_by_key(&mut self, policy: Option<Uuid>, now: Now) {
        let runs: Vec<RunId> = self.ledger.runs.under(policy).collect();
        for id in runs {
            if !self.ledger.runs.get(&id).is_some_and(LiveRun::counts_by_item) {
                continue;
            }
            let waits =
                self.ledger.tokens.of(id).filter(|(_, token)| {
                    token.queued && token.load.key == KeyOf::Unread && !token.in_flight()
                });
            for key in waits.map(|(key, _)| key).collect::<Vec<_>>() {
                self.leave_queue(key);
            }
            self.needs_key(id);
            self.sync_lane(id, now);
        }
    }

    /// The next event of a key of a run starts: its index, and as what it counts.
    pub(super) fn take_of_key(&mut self, id: RunId, group: u128) -> Option<(u32, Load)> {
        let run = self.ledger.runs.get_mut(&id)?;
        let sorted = run.sorted.as_mut()?;
        let before = sorted.ranges();
        let taken = sorted.take(group)?;
        let gone = before - sorted.ranges();
        self.pending.unstarted.insert((id, stretch_of(taken.index)));
        if taken.is_last
            && let Some(queue) = self.queues.get_mut(&run.row.policy_uid)
        {
            queue.remove_run(run.lane(&taken.load.key), run.row.launch_us, id);
        }
        self.give_ranges_back(gone);
        Some((taken.index, taken.load))
    }

    /// A run leaves memory: nobody waits for its keys.
    pub(super) fn leave_key_reads(&mut self, id: RunId) {
        self.forget_keys(id);
        if let Some(run) = self.ledger.runs.get_mut(&id) {
            self.key_reads.asked -= usize::from(std::mem::take(&mut run.keys_asked));
        }
    }

    /// Nothing of a run starts any more: what was known of its keys goes.
    pub(super) fn forget_keys(&mut self, id: RunId) {
        let Some(run) = self.ledger.runs.get_mut(&id) else { return };
        if let Some(bucket) = self.ledger.buckets.get_mut(&run.row.policy_uid) {
            bucket.keys.unread.remove(&id);
        }
        if let Some(sorted) = run.sorted.take() {
            self.pending.unstarted.extend(sorted.stretches().map(|first| (id, first)));
            self.give_ranges_back(sorted.ranges());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::release::{Release, ReleaseOutcome};
    use super::super::steps::steps;
    use super::super::testing::{live_run, policy};
    use super::super::{Effect, Options, Send, ShardState};
    use super::*;
    use crate::model::{KeyRules, Limits, Payload, Policy, Run, RunSpec, SECOND_US, Sent};

    const NOW: Now = Now { wall_us: 1_795_262_400 * SECOND_US, mono_us: SECOND_US };

    /// A run of so many keys, of two events each, of which each may hold one token. All keys are known.
    fn shard(keys: u32) -> (Shard, Vec<Send>) {
        let each = Some(Limits { max_in_flight: Some(1), ..Limits::default() });
        let policy = Policy { keys: KeyRules { each, ..KeyRules::default() }, ..policy(100) };
        let run = live_run(Uuid::from_u128(2), NOW.wall_us);
        let mut spec = RunSpec { policy_uid: Some(policy.uid), ..(*run.spec).clone() };
        let names: Vec<String> = (0..2 * keys).map(|index| format!("k{}", index % keys)).collect();
        spec.payload = Payload::default()
            .with_items(names.iter().map(|name| format!("{name}\t0\n")).collect::<String>());
        let run = Run { policy_uid: spec.policy_uid, events: 2 * keys, ..run.row };
        let state = ShardState { policies: vec![policy], ..ShardState::default() };
        let mut shard = Shard::new(0, Options::default(), state, 7, NOW);
        shard.adopt(vec![run.clone()], vec![spec.clone()], NOW);
        let mut sends = commit(&mut shard);
        assert_eq!(shard.keys_wanted().len(), 1);
        shard.keys_read((run.id, spec.generation), 0, names.into_iter().map(|name| (name, 0)).collect(), NOW);
        sends.extend(commit(&mut shard));
        (shard, sends)
    }

    fn commit(shard: &mut Shard) -> Vec<Send> {
        shard.durable_after();
        let mut sends = Vec::new();
        while shard.poll_commit(NOW).is_some() {
            let sent = shard.committed(NOW).into_iter().filter_map(|effect| match effect {
                Effect::Send(send) => Some(send),
                Effect::Reply { .. } | Effect::Follow { .. } => None,
            });
            sends.extend(sent);
        }
        sends
    }

    #[test]
    fn few_pages_are_asked_for_at_once_and_each_run_has_its_turn() {
        let each = Some(Limits { max_in_flight: Some(1), ..Limits::default() });
        let policy = Policy { keys: KeyRules { each, ..KeyRules::default() }, ..policy(1) };
        let state = ShardState { policies: vec![policy.clone()], ..ShardState::default() };
        let mut shard = Shard::new(0, Options::default(), state, 7, NOW);
        for number in 0..10 {
            let run = live_run(Uuid::from_u128(100 - number), NOW.wall_us);
            let mut spec = RunSpec { policy_uid: Some(policy.uid), ..(*run.spec).clone() };
            spec.payload = Payload::default().with_items("k\t0\n".repeat(9));
            let run = Run { policy_uid: spec.policy_uid, events: 9, ..run.row };
            shard.adopt(vec![run], vec![spec], NOW);
            commit(&mut shard);
        }
        let (mut seen, mut asked) = (Vec::new(), VecDeque::from(shard.keys_wanted()));
        assert_eq!((asked.len(), shard.keys_wanted().len()), (ASKED_MAX, 0));
        while let Some(KeysWanted { run, index, spec, .. }) = asked.pop_front() {
            seen.push((run, index));
            // A page of one event, so that each run asks again.
            shard.keys_read((run, spec.generation), index, vec![("k".to_owned(), 0)], NOW);
            asked.extend(shard.keys_wanted());
            assert!(asked.len() <= ASKED_MAX);
            commit(&mut shard);
        }
        assert_eq!(seen.len(), 90);
        let first: BTreeSet<RunId> = seen.iter().take(10).map(|(run, _)| *run).collect();
        assert_eq!(first.len(), 10, "each has a page before one has two: {seen:?}");
        assert_eq!(shard.key_reads.asked, 0);
    }

    #[test]
    fn what_is_done_for_one_event_walks_no_other_keys() {
        let steps_beside = |keys: u32| {
            let (mut shard, sends) = shard(keys);
            assert_eq!(sends.len(), 100);
            let Send { run, index, attempt, .. } = sends[7];
            shard.sent(run, index, attempt, Sent::Accepted, NOW);
            commit(&mut shard);
            let before = steps();
            let release = Release {
                run,
                index,
                attempt: Some(attempt),
                outcome: ReleaseOutcome::Succeeded,
                message: String::new(),
                next_check_us: None,
                cursor: None,
                result: None,
            };
            assert_eq!(shard.release(release, 1, NOW), None);
            assert_eq!(commit(&mut shard).len(), 1);
            steps() - before
        };
        assert_eq!(steps_beside(150), steps_beside(5_000));
    }
}
