//! The machine itself: its memory, its clockwork, and how decisions become one commit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use uuid::Uuid;

use super::change::ShardPause;
use super::exchange::{Commit, Deadline, Effect, Options, PulledEvent, Send, ShardState};
use super::key_reads::KeyReads;
use super::ledger::Ledger;
use super::live::LiveSchedule;
use super::minutes::Minutes;
use super::outdated::Outdated;
use super::pace::Tallies;
use super::pending::{Batches, Pending};
use super::queue::Queue;
use super::rooms::Rooms;
use super::specs::Specs;
use super::steer::Move;
use crate::model::{Now, Run, RunId, RunSpec};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WallTimer {
    Launch(RunId),
    Spread(RunId),
    FinishBy(RunId),
    Retry(RunId, u32),
    /// Nothing stale of a schedule can come any more.
    Forget(Uuid),
    /// Nothing of a deleted policy can come any more.
    ForgetPolicy(Uuid),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MonoTimer {
    /// A token's silence, or the resending of an unclear delivery.
    Token(RunId, u32),
    Unblock(Uuid),
    Permit(Uuid),
}

/// One queue shard.
#[derive(Debug)]
pub struct Shard {
    pub(super) number: u16,
    pub(super) options: Options,
    pub(super) pause: ShardPause,
    /// Runs, acquired events, buckets, and what is counted of them.
    pub(super) ledger: Ledger,
    pub(super) queues: BTreeMap<Option<Uuid>, Queue>,
    /// Room at workers that pull.
    pub(super) rooms: Rooms,
    pub(super) schedules: BTreeMap<Uuid, LiveSchedule>,
    /// Policies whose deletion has come before anything else of them, and when (wall clock).
    pub(super) policies_ended: BTreeMap<Uuid, i64>,
    pub(super) specs: Specs,
    /// For which runs the keys of items are read.
    pub(super) key_reads: KeyReads,
    /// Batches as they are, or will be with the commit under way, in the store.
    pub(super) batches: Batches,
    pub(super) wall_timers: BTreeSet<(i64, WallTimer)>,
    pub(super) mono_timers: BTreeSet<(i64, MonoTimer)>,
    /// Messages taken in, by the commit that carries them out; kept until a read begins after it.
    pub(super) messages: Outdated<Uuid>,
    /// Runs that left memory, by the commit that says so, and whether they were withdrawn; kept as above.
    pub(super) gone: Outdated<RunId, bool>,
    /// Runs of which dead events were revived, by the commit that says so; kept as above.
    pub(super) revived: Outdated<RunId>,
    /// Runs that wait for their items, by the commit that says so; kept as above.
    pub(super) listing: Outdated<RunId>,
    /// Ends of runs that are being followed, by their messages.
    pub(super) ends: BTreeSet<Uuid>,
    /// Runs that followed others, by the commit that took them in; kept as long as a look that missed them may count.
    pub(super) followed: Outdated<RunId>,
    /// Schedules to be handed over to other shards, in the order of the commits that they wait for.
    pub(super) moves: VecDeque<Move>,
    /// Runs that are not in memory, as they, or what they need, could not be read.
    pub(super) left_out: BTreeSet<RunId>,
    /// What the next commit says.
    pub(super) pending: Pending,
    /// What has happened, by the minute.
    pub(super) minutes: Minutes,
    /// Since when this owner has had the shard (monotonic).
    pub(super) since_us: i64,
    /// The owner is about to give the shard up: nothing starts any more.
    pub(super) draining: bool,
    /// Tokens of silent consumers taken back since somebody asked.
    pub(super) reclaimed: u64,
    /// Runs that have been passed over since somebody asked.
    pub(super) passed_over: u64,
    /// Events that are to be sent again once the inbox has been read.
    pub(super) unread: BTreeSet<(RunId, u32)>,
    /// When the last read began that left nothing in the inbox (monotonic).
    pub(super) caught_up_us: i64,
    /// Answers and ends that have not been added to their bucket.
    pub(super) tally: Tallies,
    lazy_until_us: Option<i64>,
    pub(super) committing: Option<Vec<Effect>>,
    /// Runs of which something falls due within a moment.
    pub(super) near: BTreeSet<RunId>,
    /// Deliveries that a durable commit allows and whose launch times have not come.
    pub(super) early: BTreeMap<(i64, RunId, u32), Send>,
    commits: u64,
    random: u64,
}

impl Shard {
    /// A machine for a shard that has just been taken over. `seed` feeds the jitter of back-off.
    pub fn new(number: u16, options: Options, state: ShardState, seed: u64, now: Now) -> Self {
        let mut shard = Self {
            number,
            options,
            pause: ShardPause::default(),
            ledger: Ledger::new(now),
            queues: BTreeMap::new(),
            rooms: Rooms::default(),
            schedules: BTreeMap::new(),
            policies_ended: BTreeMap::new(),
            specs: Specs::default(),
            key_reads: KeyReads::default(),
            batches: BTreeMap::new(),
            wall_timers: BTreeSet::new(),
            mono_timers: BTreeSet::new(),
            messages: Outdated::default(),
            gone: Outdated::default(),
            revived: Outdated::default(),
            listing: Outdated::default(),
            ends: BTreeSet::new(),
            followed: Outdated::default(),
            moves: VecDeque::new(),
            left_out: BTreeSet::new(),
            pending: Pending::default(),
            minutes: Minutes::new(now),
            since_us: now.mono_us,
            draining: false,
            reclaimed: 0,
            passed_over: 0,
            unread: BTreeSet::new(),
            caught_up_us: i64::MIN,
            tally: Tallies::default(),
            lazy_until_us: None,
            committing: None,
            near: BTreeSet::new(),
            early: BTreeMap::new(),
            commits: 0,
            random: seed,
        };
        shard.restore(state, now);
        shard
    }

    /// Call it before reading emitted runs, messages and their context from the store, one read at a time: what a
    /// commit changes while the read is under way, the read may not show.
    pub fn begin_read(&mut self) {
        self.messages.begin_read(self.commits);
        self.gone.begin_read(self.commits);
        self.revived.begin_read(self.commits);
        self.listing.begin_read(self.commits);
        self.followed.begin_read(self.commits.saturating_sub(2));
        self.specs.begin_read();
    }

    /// Takes in runs that emitters have handed over (state EMITTED). Known ones are passed over.
    pub fn adopt(&mut self, runs: Vec<Run>, specs: Vec<RunSpec>, now: Now) {
        self.specs.keep(specs);
        for run in runs {
            let gone = self.gone.contains(&run.id);
            if !self.ledger.runs.contains(&run.id) && !gone {
                self.adopt_run(run, now);
            }
        }
    }

    /// Every release that was in the inbox at `began_us` (monotonic) has been handed over. To be called after every read
    /// that left none: no token is reclaimed, and nothing sent again, before the releases have been read after its time
    /// came.
    pub fn caught_up(&mut self, began_us: i64) {
        self.caught_up_us = self.caught_up_us.max(began_us);
        for key in std::mem::take(&mut self.unread) {
            if self.ledger.tokens.get(&key).is_some_and(|token| token.again_us().is_some() && !token.queued) {
                self.arm(key, Some(began_us));
            }
        }
    }

    /// From now on nothing starts: the owner wants to give the shard up. What is pending is not put off.
    pub fn drain(&mut self) {
        self.draining = true;
        self.pending.urgent = true;
    }

    /// Deliveries whose answers have not come.
    pub fn sending(&self) -> usize {
        self.ledger.sending()
    }

    /// The namespace of an unfinished run.
    pub fn namespace_of(&self, run: RunId) -> Option<&str> {
        self.ledger.runs.get(&run).map(|r| r.row.namespace.as_str())
    }

    /// An event that a worker has, or is being given, which takes events itself.
    pub fn pulled(&self, run: RunId, index: u32) -> Option<PulledEvent<'_>> {
        let of = self.ledger.runs.get(&run)?;
        let target = of.spec.target.pull()?;
        let token = self.ledger.tokens.get(&(run, index)).filter(|token| token.in_flight())?;
        Some(PulledEvent {
            namespace: &of.row.namespace,
            target,
            named_shard: of.row.named_shard(),
            attempt: token.row.attempt,
            silence_ms: self.silence_ms((run, index)),
        })
    }

    /// For how long a consumer may be silent before its token is taken back, or could be: until then a heartbeat keeps it.
    pub(super) fn silence_ms(&self, key: (RunId, u32)) -> i64 {
        let (ttl_ms, suspect_ms, _) = self.ttl_of(key);
        ttl_ms.saturating_add(suspect_ms)
    }

    /// The number of the commit after which everything taken in so far is durable; none if it is already.
    pub fn durable_after(&mut self) -> Option<u64> {
        // A schedule is handed over by the commit after the one that gives it up.
        let handed_over = self.moves.back().map(|last| last.after + 1);
        self.own_durable_after().max(handed_over)
    }

    /// As [`Self::durable_after`], for what stays in this shard.
    pub(super) fn own_durable_after(&mut self) -> Option<u64> {
        let pending = self.is_pending();
        self.pending.urgent |= pending;
        if pending {
            Some(self.pending_commit())
        } else {
            self.committing.is_some().then_some(self.commits + 1)
        }
    }

    /// Whether everything taken in so far is durable.
    pub fn is_settled(&self) -> bool {
        !self.is_pending() && self.committing.is_none() && self.moves.is_empty()
    }

    /// How many tokens of silent consumers have been taken back since the last call.
    pub fn take_reclaimed(&mut self) -> u64 {
        std::mem::take(&mut self.reclaimed)
    }

    /// How many runs have been passed over, as their specs cannot be read, since the last call.
    pub fn take_passed_over(&mut self) -> u64 {
        std::mem::take(&mut self.passed_over)
    }

    /// How many commits are durable.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// How many runs the machine holds, launched or not.
    pub fn runs_held(&self) -> usize {
        self.ledger.runs.len()
    }

    /// What the pending inputs, and the time, come to. At most one commit is under way at a time. None comes as long as room is
    /// asked for: [`Shard::rooms_asked`].
    pub fn poll_commit(&mut self, now: Now) -> Option<Commit> {
        if self.committing.is_some() {
            return None;
        }
        self.advance(now);
        self.hand_over();
        self.dispatch(now);
        while self.offer_further(now) {
            self.dispatch(now);
        }
        self.start_early(now);
        self.ask_further();
        if self.rooms.is_asking() {
            // What may start with it goes with the same commit.
            return None;
        }
        self.add_tally(now);
        self.ledger.check();
        if !self.is_pending() {
            self.lazy_until_us = None;
            return None;
        }
        let lazy_until_us = *self.lazy_until_us.get_or_insert(self.options.lazy_until_us(now));
        if !self.pending.urgent && now.mono_us < lazy_until_us {
            return None;
        }
        self.lazy_until_us = None;
        self.pending.urgent = false;
        self.count_changes();
        let changes = self.pending.take(&mut self.ledger, &self.schedules, &mut self.batches);
        self.committing = Some(std::mem::take(&mut self.pending.effects));
        Some(Commit { changes })
    }

    /// The commit under way is durable: what may be done now. What it allows for launch times to come is kept for
    /// [`Self::due`].
    pub fn committed(&mut self, now: Now) -> Vec<Effect> {
        let Some(mut effects) = self.committing.take() else { return Vec::new() };
        self.commits += 1;
        self.minutes.committed(now);
        let is_early =
            |effect: &mut Effect| matches!(effect, Effect::Send(send) if send.launch_us > now.wall_us);
        for effect in effects.extract_if(.., is_early) {
            if let Effect::Send(send) = effect {
                self.early.insert((send.launch_us, send.run, send.index), send);
            }
        }
        let is_unwanted = |effect: &mut Effect| matches!(effect, Effect::Send(send) if !self.is_wanted(send));
        for effect in effects.extract_if(.., is_unwanted).collect::<Vec<_>>() {
            if let Effect::Send(send) = effect {
                self.put_back_room(&send);
            }
        }
        effects
    }

    /// An event may have been released since its delivery was decided, by a consumer of an earlier one.
    pub(super) fn is_wanted(&self, send: &Send) -> bool {
        let token = self.ledger.tokens.get(&(send.run, send.index));
        token.is_some_and(|t| t.is_sending() && t.row.attempt == send.attempt)
    }

    /// The number of the commit that will carry the pending changes.
    pub(super) fn pending_commit(&self) -> u64 {
        self.commits + 1 + u64::from(self.committing.is_some())
    }

    /// When to poll again, if no input comes before. While a commit is under way there is nothing to poll for.
    pub fn next_deadline(&self) -> Deadline {
        let due_us = self.early.first_key_value().map(|((at_us, ..), _)| *at_us);
        if self.committing.is_some() {
            return Deadline { due_us, ..Deadline::default() };
        }
        let timer = self.mono_timers.first().map(|t| t.0);
        let lazy = if self.is_pending() { Some(self.lazy_until_us.unwrap_or(0)) } else { None };
        let mono_us = [timer, lazy].into_iter().flatten().min();
        Deadline { wall_us: self.wall_timers.first().map(|t| t.0), mono_us, due_us }
    }

    /// The next number of a SplitMix64 sequence (Steele, Lea, Flood 2014), as a fraction in [0, 1).
    pub(super) fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// An event is no longer in its batch.
    pub(super) fn leave_batch(&mut self, (run, index): (RunId, u32), first: u32) {
        if let Some(batch) = self.batches.get_mut(&(run, first)) {
            batch.leave(index);
            self.pending.batches.insert((run, first));
        }
    }

    fn advance(&mut self, now: Now) {
        while let Some(&(at_us, timer)) = self.wall_timers.first() {
            if at_us > now.wall_us {
                break;
            }
            self.wall_timers.pop_first();
            match timer {
                WallTimer::Launch(run) | WallTimer::Spread(run) if self.is_near(run, now) => {
                    self.near.insert(run);
                }
                WallTimer::Launch(run) => self.launch(run, now),
                WallTimer::Spread(run) => self.sync_lane(run, now),
                WallTimer::FinishBy(run) => self.window_ended(run, now),
                WallTimer::Retry(run, index) => self.retry_is_due(run, index),
                WallTimer::Forget(schedule) => self.forget_schedule(schedule, now),
                WallTimer::ForgetPolicy(policy) => self.forget_policy(policy, now),
            }
        }
        while let Some(&(at_us, timer)) = self.mono_timers.first() {
            if at_us > now.mono_us {
                break;
            }
            self.mono_timers.pop_first();
            match timer {
                MonoTimer::Token(run, index) => self.token_timer(run, index, now),
                MonoTimer::Unblock(schedule) => self.unblock(schedule, now),
                MonoTimer::Permit(policy) => {
                    self.ledger.ready.insert(Some(policy));
                }
            }
        }
    }

    /// Sets, moves or removes a token's monotonic timer.
    pub(super) fn arm(&mut self, key: (RunId, u32), at_us: Option<i64>) {
        let Some(token) = self.ledger.tokens.get_mut(&key) else { return };
        if let Some(old) = token.timer_us.take() {
            self.mono_timers.remove(&(old, MonoTimer::Token(key.0, key.1)));
        }
        if let Some(at_us) = at_us {
            token.timer_us = Some(at_us);
            self.mono_timers.insert((at_us, MonoTimer::Token(key.0, key.1)));
        }
    }
}
