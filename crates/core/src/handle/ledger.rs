//! The shard's books: runs, acquired events, buckets, and the one way in which they are counted.
//!
//! In: an event or a run enters, an event goes into another phase, either leaves. Out: what each run, each bucket and the shard
//! count of them, and the buckets in which something may start since. Invariants: an event is in exactly one phase, which its
//! row's state agrees with, and every count follows from the phases; a token that is freed, and a place that is given back, makes
//! its bucket ready. Not here: why an event goes into a phase, timers, queues, what is stored.

mod counts;
mod runs;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use uuid::Uuid;

use super::bucket::Bucket;
use super::change::TokenState;
use super::keys::Load;
use super::live::{LiveRun, LiveToken};
use super::pace::Answers;
use super::steps::Counted as _;
use super::targets::Targets;
use crate::model::{Now, RunId};

pub(super) use counts::{BucketCounts, RunCounts};
pub(super) use runs::Runs;

/// An event: its run and its index.
pub(super) type Key = (RunId, u32);

/// What an acquired, unfinished event is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It holds no token: it waits for its next attempt and then for a token.
    Waiting,
    /// It holds a token, and is about to go into another phase: never from one input to the next.
    Acquired,
    /// A delivery is under way; `placed`: it has one of its bucket's places.
    Sending { placed: bool },
    /// Its latest delivery is unclear: it is to be sent again, from then on (monotonic).
    Again { at_us: i64 },
    /// Its consumer has it; `suspect`: and has been silent for longer than the time to live.
    Held { suspect: bool },
}

impl Phase {
    /// What the store says of it.
    pub(super) fn state(self) -> TokenState {
        match self {
            Self::Waiting => TokenState::Waiting,
            Self::Acquired | Self::Sending { .. } | Self::Again { .. } => TokenState::Acquired,
            Self::Held { .. } => TokenState::Held,
        }
    }

    /// The phase in which an event stands that was stored in this state.
    pub(super) fn restored(state: TokenState) -> Self {
        match state {
            TokenState::Waiting => Self::Waiting,
            TokenState::Acquired => Self::Acquired,
            TokenState::Held => Self::Held { suspect: false },
        }
    }

    /// Whether it holds a token.
    pub(super) fn in_flight(self) -> bool {
        self != Self::Waiting
    }

    fn is_sending(self) -> usize {
        usize::from(matches!(self, Self::Sending { .. }))
    }

    fn has_place(self) -> bool {
        self == Self::Sending { placed: true }
    }

    /// Whether runs and buckets count one like the other.
    fn counts_like(self, other: Self) -> bool {
        let counts = |phase: Self| {
            let is_suspect = phase == Self::Held { suspect: true };
            (phase.in_flight(), phase.has_place(), matches!(phase, Self::Again { .. }), is_suspect)
        };
        counts(self) == counts(other)
    }
}

/// The phase of an event, which only the books change.
#[derive(Debug)]
pub(super) struct GuardedPhase(Phase);

impl GuardedPhase {
    pub(super) fn new(phase: Phase) -> Self {
        Self(phase)
    }

    pub(super) fn phase(&self) -> Phase {
        self.0
    }
}

/// The acquired, unfinished events. Only the books take them in and out.
#[derive(Debug, Default)]
pub(super) struct Tokens(BTreeMap<Key, LiveToken>);

impl Tokens {
    pub(super) fn get(&self, key: &Key) -> Option<&LiveToken> {
        self.0.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut LiveToken> {
        self.0.get_mut(key)
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.0.contains_key(key)
    }

    /// Those of one run.
    pub(super) fn of(&self, run: RunId) -> impl Iterator<Item = (Key, &LiveToken)> {
        self.0.range((run, 0)..=(run, u32::MAX)).counted().map(|(key, token)| (*key, token))
    }

    /// Those of one run among some indexes.
    pub(super) fn within(&self, run: RunId, indexes: Range<u32>) -> impl Iterator<Item = (Key, &LiveToken)> {
        self.0.range((run, indexes.start)..(run, indexes.end)).counted().map(|(key, token)| (*key, token))
    }

    /// All of the shard.
    pub(super) fn all(&self) -> impl Iterator<Item = (Key, &LiveToken)> {
        self.0.iter().counted().map(|(key, token)| (*key, token))
    }
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Ledger {
    pub buckets: BTreeMap<Option<Uuid>, Bucket>,
    pub runs: Runs,
    pub tokens: Tokens,
    /// How fast events go to each target.
    pub targets: Targets,
    /// Buckets in which something may start.
    pub ready: BTreeSet<Option<Uuid>>,
    /// Policies whose way up to a root is not one.
    tangled: BTreeSet<Uuid>,
    sending: usize,
    /// How many polls there are before the next check.
    #[cfg(debug_assertions)]
    check_after: usize,
}

impl Ledger {
    pub(super) fn new(now: Now) -> Self {
        Self {
            buckets: BTreeMap::from([(None, Bucket::new(None, now))]),
            runs: Runs::default(),
            tokens: Tokens::default(),
            targets: Targets::default(),
            ready: BTreeSet::new(),
            tangled: BTreeSet::new(),
            sending: 0,
            #[cfg(debug_assertions)]
            check_after: 0,
        }
    }

    /// The bucket of a policy; an unknown policy lets nothing through until the shard is told of it.
    pub(super) fn bucket(&mut self, policy: Option<Uuid>, now: Now) -> &mut Bucket {
        self.buckets.entry(policy).or_insert_with(|| Bucket::unknown(now))
    }

    /// Deliveries whose answers have not come.
    pub(super) fn sending(&self) -> usize {
        self.sending
    }

    /// The events under a policy.
    pub(super) fn tokens_under(&self, policy: Option<Uuid>) -> impl Iterator<Item = (Key, &LiveToken)> {
        self.runs.under(policy).flat_map(|run| self.tokens.of(run))
    }

    /// A run of which no event has been acquired.
    pub(super) fn run_enters(&mut self, mut run: LiveRun, now: Now) {
        self.bucket(run.row.policy_uid, now).counts.run_enters();
        if run.launched {
            self.targets.enter(&mut run);
        }
        self.runs.insert(run);
    }

    /// A run's launch time has come. The history looks at it next.
    pub(super) fn run_launches(&mut self, id: &RunId) -> Option<&LiveRun> {
        let run = self.runs.stir(id)?;
        run.launched = true;
        self.targets.enter(run);
        Some(run)
    }

    /// Where what its target answered for an event of a run is counted.
    pub(super) fn answers_of_target(&mut self, run: RunId, now: Now) -> Option<&mut Answers> {
        if !self.targets.is_told_of(run) {
            let target = self.runs.get(&run)?.target()?;
            self.targets.turn_to(run, target, now);
        }
        Some(self.targets.answers())
    }

    /// With the last run goes what is kept for a policy that nobody has told of.
    pub(super) fn run_leaves(&mut self, id: RunId) -> Option<LiveRun> {
        let run = self.runs.remove(&id)?;
        self.targets.leave(&run);
        let policy = run.row.policy_uid;
        if let Some(bucket) = self.buckets.get_mut(&policy) {
            bucket.counts.run_leaves();
            if bucket.unknown && !bucket.in_use() {
                self.buckets.remove(&policy);
            }
        }
        Some(run)
    }

    /// Tokens of runs that cannot be read. They are never freed.
    pub(super) fn unreadable(&mut self, policy: Option<Uuid>, tokens: u32, now: Now) {
        let bucket = self.bucket(policy, now);
        bucket.counts.unreadable(tokens);
        let parent = bucket.parent();
        self.moved_below(parent, tokens.into());
    }

    /// An event of a run that is here.
    pub(super) fn enter(&mut self, key: Key, token: LiveToken) {
        let phase = token.phase();
        if let Some(run) = self.runs.stir(&key.0) {
            run.counts.enter(phase, &token.load);
            self.sending += phase.is_sending();
            if let Some(bucket) = self.buckets.get_mut(&token.policy) {
                let units = token.load.units;
                bucket.counts.enter(phase, &run.sharer.with(&token.load.key), units);
                let parent = bucket.parent().filter(|_| phase.in_flight());
                self.moved_below(parent, units.into());
            }
            self.tokens.0.insert(key, token);
        }
    }

    /// An event has ended.
    pub(super) fn leave(&mut self, key: Key) -> Option<LiveToken> {
        let token = self.tokens.0.remove(&key)?;
        let phase = token.phase();
        if let Some(run) = self.runs.stir(&key.0) {
            run.counts.leave(phase, &token.load);
            self.sending -= phase.is_sending();
            let (sharer, units) = (run.sharer.with(&token.load.key), token.load.units);
            if let Some(bucket) = self.buckets.get_mut(&token.policy).filter(|_| phase.in_flight()) {
                bucket.counts.leave(phase, &sharer, units);
                bucket.freed(&sharer);
                self.ready.insert(token.policy);
                let parent = bucket.parent();
                self.moved_below(parent, -i64::from(units));
            }
        }
        Some(token)
    }

    /// An event goes into another phase.
    pub(super) fn turn(&mut self, key: Key, phase: Phase) {
        let Some(token) = self.tokens.0.get_mut(&key) else { return };
        let before = std::mem::replace(&mut token.phase.0, phase);
        token.row.state = phase.state();
        self.sending = self.sending + phase.is_sending() - before.is_sending();
        // Most turns change no other count.
        if before.counts_like(phase) {
            return;
        }
        let Some(run) = self.runs.stir(&key.0) else { return };
        run.counts.leave(before, &token.load);
        run.counts.enter(phase, &token.load);
        let (sharer, units) = (run.sharer.with(&token.load.key), token.load.units);
        if let Some(bucket) = self.buckets.get_mut(&token.policy) {
            bucket.counts.leave(before, &sharer, units);
            bucket.counts.enter(phase, &sharer, units);
            if before.in_flight() && !phase.in_flight() {
                bucket.freed(&sharer);
            }
            if before.in_flight() && !phase.in_flight() || before.has_place() {
                self.ready.insert(token.policy);
            }
            let parent = bucket.parent().filter(|_| before.in_flight() != phase.in_flight());
            self.moved_below(parent, if phase.in_flight() { units.into() } else { -i64::from(units) });
        }
    }

    /// The item of an event has been read.
    pub(super) fn name(&mut self, key: Key, load: Load) {
        let Some(token) = self.tokens.0.get_mut(&key) else { return };
        let (phase, before) = (token.phase(), std::mem::replace(&mut token.load, load));
        let Some(run) = self.runs.get_mut(&key.0) else { return };
        run.counts.leave(phase, &before);
        run.counts.enter(phase, &token.load);
        if let Some(bucket) = self.buckets.get_mut(&token.policy) {
            let units = token.load.units;
            bucket.counts.leave(phase, &run.sharer.with(&before.key), before.units);
            bucket.counts.enter(phase, &run.sharer.with(&token.load.key), units);
            self.ready.insert(token.policy);
            let parent = bucket.parent().filter(|_| phase.in_flight());
            self.moved_below(parent, i64::from(units) - i64::from(before.units));
        }
    }

    /// The phase of an event under this policy that is sent now.
    pub(super) fn sending_under(&self, policy: Option<Uuid>) -> Phase {
        Phase::Sending { placed: !self.is_bounded(policy) }
    }

    /// Whether every count is what the phases say. In builds with debug assertions it is counted anew, rarely enough that this
    /// costs little beside everything else; in others it is not asked.
    #[cfg(debug_assertions)]
    pub(super) fn check(&mut self) {
        self.check_after = match self.check_after.checked_sub(1) {
            Some(left) => left,
            None => self.recount() / 4,
        };
    }

    #[cfg(not(debug_assertions))]
    pub(super) const fn check(&mut self) {}

    /// Counts everything anew, and compares. How many entries that were.
    #[cfg(debug_assertions)]
    fn recount(&self) -> usize {
        let mut runs: BTreeMap<RunId, RunCounts> = BTreeMap::new();
        let mut buckets: BTreeMap<Option<Uuid>, BucketCounts> = BTreeMap::new();
        let mut sending = 0;
        self.targets.recount(self.runs.all());
        for run in self.runs.all() {
            runs.insert(run.row.id, RunCounts::default());
            buckets.entry(run.row.policy_uid).or_default().run_enters();
        }
        for (key, token) in &self.tokens.0 {
            let (phase, row) = (token.phase(), &token.row);
            assert!(phase != Phase::Acquired, "{key:?} is in no phase: {token:?}");
            assert_eq!((phase.state(), (row.run, row.index)), (row.state, *key), "{token:?}");
            let Some(run) = self.runs.get(&key.0) else { panic!("{key:?} is of no run: {token:?}") };
            assert_eq!(token.policy, run.row.policy_uid, "{token:?} of {run:?}");
            runs.entry(key.0).or_default().enter(phase, &token.load);
            let sharer = run.sharer.with(&token.load.key);
            buckets.entry(token.policy).or_default().enter(phase, &sharer, token.load.units);
            sending += phase.is_sending();
        }
        assert_eq!(self.sending, sending, "deliveries under way");
        for (id, counts) in &runs {
            assert_eq!(self.runs.get(id).map(|run| &run.counts), Some(counts), "the run {id}");
        }
        for (policy, bucket) in &self.buckets {
            let mut counts = buckets.remove(policy).unwrap_or_default();
            counts.unreadable(bucket.counts.never_freed());
            assert_eq!(bucket.counts, counts, "the bucket {policy:?}");
        }
        assert!(buckets.is_empty(), "without a bucket: {buckets:?}");
        self.recount_below();
        self.runs.len() + self.tokens.0.len() + self.buckets.len()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::super::testing::{live_run, policy};
    use super::*;
    use crate::handle::change::TokenRow;

    const NOW: Now = Now { wall_us: 1_000_000, mono_us: 1_000_000 };

    /// One run, and one event of it in this phase.
    fn ledger(policy_uid: Option<Uuid>, phase: Phase) -> (Ledger, Key) {
        let mut ledger = Ledger::new(NOW);
        let mut run = live_run(Uuid::from_u128(9), 0);
        run.row.policy_uid = policy_uid;
        let key = (run.row.id, 0);
        ledger.run_enters(run, NOW);
        let row = TokenRow::acquired(key, 0);
        let load = ledger.runs.get(&key.0).unwrap().load_at_first();
        ledger.enter(key, LiveToken::new(row, policy_uid, load, (phase, NOW.mono_us)));
        (ledger, key)
    }

    #[test]
    fn every_count_follows_from_the_phases() {
        let again = Phase::Again { at_us: 7 };
        let phases = [
            (Phase::Waiting, [0, 0, 0, 1, 1, 0]),
            (Phase::Sending { placed: true }, [1, 0, 1, 0, 0, 1]),
            (Phase::Sending { placed: false }, [1, 0, 0, 0, 0, 1]),
            (again, [1, 0, 0, 0, 1, 0]),
            (Phase::Held { suspect: false }, [1, 0, 0, 0, 0, 0]),
            (Phase::Held { suspect: true }, [1, 1, 0, 0, 0, 0]),
        ];
        let counts = |ledger: &Ledger, key: Key| {
            let (run, bucket) = (&ledger.runs.get(&key.0).unwrap().counts, &ledger.buckets[&None].counts);
            let sending = u32::try_from(ledger.sending()).unwrap();
            let places = bucket.places().taken();
            [bucket.held(), bucket.suspect(), places, run.retrying(), run.coming_again(), sending]
        };
        for (before, _) in phases {
            for (after, expected) in phases {
                let (mut ledger, key) = ledger(None, before);
                ledger.turn(key, after);
                assert_eq!(counts(&ledger, key), expected, "{before:?} to {after:?}");
                let freed = before.in_flight() && !after.in_flight() || before.has_place() && before != after;
                assert_eq!(ledger.ready.contains(&None), freed, "{before:?} to {after:?}");
                ledger.recount();
                assert!(ledger.leave(key).is_some());
                assert_eq!(counts(&ledger, key), [0; 6]);
                ledger.recount();
            }
        }
    }

    #[test]
    #[should_panic(expected = "the bucket")]
    fn a_count_that_is_wrong_is_seen() {
        let (mut ledger, key) = ledger(None, Phase::Waiting);
        ledger.tokens.get_mut(&key).unwrap().phase = GuardedPhase::new(Phase::Held { suspect: false });
        ledger.tokens.get_mut(&key).unwrap().row.state = TokenState::Held;
        let run = ledger.runs.get_mut(&key.0).unwrap();
        run.counts = RunCounts::default();
        let load = run.load_at_first();
        run.counts.enter(Phase::Held { suspect: false }, &load);
        ledger.recount();
    }

    #[test]
    fn tokens_that_are_never_freed_keep_a_bucket_that_nobody_has_told_of() {
        let uid = Some(Uuid::from_u128(1));
        let (mut ledger, key) = ledger(uid, Phase::Sending { placed: false });
        ledger.unreadable(uid, 2, NOW);
        ledger.recount();
        assert!(ledger.leave(key).is_some() && ledger.run_leaves(key.0).is_some());
        assert_eq!(ledger.buckets[&uid].counts.held(), 2);
        let other = Some(Uuid::from_u128(2));
        let (mut ledger, key) = self::ledger(other, Phase::Waiting);
        assert!(ledger.leave(key).is_some() && ledger.run_leaves(key.0).is_some());
        assert!(!ledger.buckets.contains_key(&other));
    }

    #[test]
    fn a_bucket_bounds_what_is_held_and_what_starts() {
        let mut p = policy(2);
        p.limits.rate_per_s = Some(1000.0);
        p.limits.burst = Some(100);
        let uid = Some(p.uid);
        let mut ledger = Ledger::new(NOW);
        ledger.buckets.insert(uid, Bucket::new(Some(p), NOW));
        let later = Now { wall_us: 2_000_000, mono_us: 2_000_000 };
        assert_eq!(ledger.bucket(uid, NOW).capacity(later, 100).tokens, 2);
        ledger.unreadable(uid, 2, NOW);
        assert_eq!(ledger.bucket(uid, NOW).capacity(later, 100).tokens, 0);
        assert_eq!(ledger.sending_under(uid), Phase::Sending { placed: false });
    }
}
