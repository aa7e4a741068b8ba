//! The life of a shard's owner around its machine: what is done next, and what may not be done yet.
//!
//! In: answers, releases, news, what became of commits and reads, whether the lease is to be trusted, and the time. Out, when
//! polled: deliveries and answers to perform, a commit to write, a read to make, or the end. One commit and one read
//! are under way at most; inputs gather meanwhile, which is what makes a commit large under load.
//!
//! Invariants: an owner that does not trust its lease neither commits nor sends, and answers nobody; a commit that fails ends the
//! machine, and what its successor must know is [`Kept`]; before it has read its inbox it decides nothing; one that is to stop
//! starts nothing more, waits a moment for answers, and hands the shard over. Not here: IO, tasks, channels.

use uuid::Uuid;

use crate::handle::control::{Control, UnderWay};
use crate::handle::release::{Answer, Release};
use crate::handle::{Effect, Following, KeysWanted, Options, Shard, ShardState, TakenUp};
use crate::model::{MinuteRow, Now, RunId, SECOND_US, Sent};

use super::DeliveryKey;
use super::backlog::{Backlog, ReadTurns};
use super::closing::Closing;
use super::gather::Gather;
use super::news::{News, PassedOver};
use super::next::{CallerAnswer, Durable, Left, Next, PollTime, TakenIn, Why};
use super::syncs::Syncs;
use super::trust::Standing;
use super::unrecorded::UnrecordedAnswers;

/// How soon an owner looks again whether its lease is to be trusted, in microseconds.
const DISTRUST_LOOK_US: i64 = 50_000;
/// When to look again where nothing is known that could happen by itself, in microseconds.
const IDLE_LOOK_US: i64 = 10 * SECOND_US;
/// When a read that failed is tried again, in microseconds.
const READ_AGAIN_US: i64 = SECOND_US;
/// The shortest wait for a read, in microseconds.
const SOON_US: i64 = 1_000;
/// A run that launched this long ago, or later, does not wait until all is read that should have launched before: runs of past
/// launch times come by the ten thousand.
pub const RECENT_US: i64 = 10 * SECOND_US;

/// What an owner keeps from one machine to the next.
#[derive(Debug)]
pub struct Kept<C> {
    /// What the machine before this one waited for.
    under_way: Vec<UnderWay>,
    /// Answers that no commit has recorded yet.
    unrecorded: UnrecordedAnswers,
    /// The callers that wait until the inbox has been carried out.
    syncs: Syncs<C>,
}

impl<C> Default for Kept<C> {
    fn default() -> Self {
        Self { under_way: Vec::new(), unrecorded: UnrecordedAnswers::default(), syncs: Syncs::default() }
    }
}

impl<C> Kept<C> {
    /// For an owner that is to stop and has no machine: the deliveries under way.
    pub fn take_under_way(&mut self) -> Vec<UnderWay> {
        std::mem::take(&mut self.under_way)
    }
}

/// What an owner is.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its shard.
    pub shard: u16,
    /// Tuning of its machine.
    pub options: Options,
    /// The turns of its process.
    pub turns: ReadTurns,
    /// How long before their launch runs are loaded.
    pub load_ahead_us: i64,
}

/// A shard's owner, from one load of its shard to the next. `C`: a caller that waits for [`Owner::sync`].
#[derive(Debug)]
pub struct Owner<C> {
    machine: Shard,
    kept: Kept<C>,
    load_ahead_us: i64,
    /// The inbox has been read: it decides.
    is_ready: bool,
    is_committing: bool,
    is_reading: bool,
    /// When the last read began.
    read_began_us: i64,
    /// When to look for news, where there may be some.
    read_due_us: Option<i64>,
    closing: Option<Closing>,
    gather: Gather,
    backlog: Backlog,
    passed_over: PassedOver,
    left: Option<Left>,
    /// By pool.
    room_left: Vec<(u128, u32)>,
}

impl<C> Owner<C> {
    /// An owner that has loaded its shard. `seed` feeds the jitter of back-off.
    pub fn new(setup: Setup, state: ShardState, seed: u64, kept: Kept<C>, now: Now) -> Self {
        let passed_over = PassedOver::of(&state.runs, &state.specs, now.mono_us);
        let mut machine = Shard::new(setup.shard, setup.options, state, seed, now);
        // Before the news: a release among them takes back what has not left.
        machine.wait_for(kept.under_way.clone(), now);
        Self {
            machine,
            kept,
            load_ahead_us: setup.load_ahead_us,
            is_ready: false,
            is_committing: false,
            is_reading: false,
            read_began_us: now.mono_us,
            read_due_us: Some(now.mono_us),
            closing: None,
            gather: Gather::default(),
            backlog: Backlog::new(setup.turns),
            passed_over,
            left: None,
            room_left: Vec::new(),
        }
    }

    /// What to do next; none where there is nothing to do before [`Owner::wake`]. `sending`: how many deliveries have begun
    /// whose answers have not come.
    pub fn poll(&mut self, sending: usize, standing: Standing, now: Now) -> Option<Next> {
        if let Some(left) = self.left.take() {
            return Some(Next::Leave(left));
        }
        if !self.is_ready {
            return self.poll_read(now);
        }
        if standing == Standing::Lapsed {
            return Some(Next::Leave(self.reload(Why::Lapsed, now)));
        }
        if self.passed_over.mended && !self.is_committing && self.closing.is_none() {
            return Some(Next::Leave(self.reload(Why::Mended, now)));
        }
        if standing == Standing::Holds {
            let due = self.machine.due(now);
            if !due.is_empty() {
                return Some(Next::Perform(due));
            }
            if let Some(next) = self.poll_commit(sending, now) {
                return Some(next);
            }
        }
        self.poll_closing(now).or_else(|| self.poll_read(now))
    }

    fn poll_commit(&mut self, sending: usize, now: Now) -> Option<Next> {
        if self.is_committing || !self.gather.is_enough(sending, now.mono_us) {
            return None;
        }
        let commit = self.machine.poll_commit(now);
        let asks = self.machine.rooms_asked(now);
        if !asks.is_empty() {
            return Some(Next::Room(asks));
        }
        self.room_left.extend(self.machine.room_left());
        let commit = commit?;
        self.is_committing = true;
        self.gather.commit_begins(now.mono_us);
        self.kept.unrecorded.commit_begins();
        Some(Next::Commit(commit.changes))
    }

    /// One step on the way to giving the shard up, if it is on it.
    fn poll_closing(&mut self, now: Now) -> Option<Next> {
        let closing = self.closing.as_mut()?;
        if closing.closes(self.machine.sending(), now.mono_us) {
            return Some(Next::Close);
        }
        if closing.is_closed && !self.is_committing && self.machine.durable_after().is_none() {
            return Some(Next::Leave(Left::Drained));
        }
        closing.is_over(now.mono_us).then_some(Next::Leave(Left::Stuck))
    }

    fn poll_read(&mut self, now: Now) -> Option<Next> {
        if !self.may_read() {
            return None;
        }
        if self.passed_over.again_us() <= now.mono_us {
            self.read_due_us.get_or_insert(now.mono_us);
        }
        self.read_due_us.take_if(|due_us| *due_us <= now.mono_us)?;
        self.is_reading = true;
        self.machine.begin_read();
        self.read_began_us = now.mono_us;
        self.kept.syncs.read_begins();
        let until_us = now.wall_us + self.load_ahead_us;
        let part = self.backlog.begin(now.wall_us - RECENT_US..until_us);
        let mut ask = self.passed_over.ask(part, now.mono_us);
        // However many ends wait to be followed, the rest of the inbox is read.
        ask.except.extend(self.machine.ends_waiting());
        Some(Next::Read(ask))
    }

    /// What it read while it gives the shard up would only have to be committed.
    fn may_read(&self) -> bool {
        !self.is_reading && self.closing.is_none() && self.backlog.may_read(self.machine.commits())
    }

    /// When to poll again without any input.
    pub fn wake(&self, standing: Standing, now: Now) -> PollTime {
        let trusted = standing == Standing::Holds;
        let deadline = self.machine.next_deadline();
        let in_wall_us = |at_us: i64| at_us - now.wall_us + now.mono_us;
        let send_us = deadline.due_us.filter(|_| trusted).map(in_wall_us);
        let launch_us = deadline.wall_us.filter(|_| trusted).map(in_wall_us);
        let timer_us = deadline.mono_us.filter(|_| trusted);
        let distrust_us = (!trusted).then_some(now.mono_us + DISTRUST_LOOK_US);
        let idle_us = now.mono_us + IDLE_LOOK_US;
        if !self.is_ready {
            return PollTime { sharp_us: None, about_us: idle_us };
        }
        if !self.is_committing
            && let Some(until_us) = self.gather.until_us()
        {
            // What starts waits for the answers that are gathered.
            let about_us = distrust_us.map_or(until_us, |at_us| at_us.min(until_us));
            return PollTime { sharp_us: send_us, about_us };
        }
        let closing_us = self.closing.as_ref().map(Closing::deadline_us);
        let read_due_us = self.read_due_us.unwrap_or(self.passed_over.again_us());
        let read_us = self.may_read().then_some(read_due_us.max(now.mono_us + SOON_US));
        let about_us = [timer_us, distrust_us, closing_us, read_us].into_iter().flatten().min();
        let sharp_us = [send_us, launch_us].into_iter().flatten().min();
        PollTime { sharp_us, about_us: about_us.unwrap_or(idle_us) }
    }

    /// The commit under way is durable. What it allows is done, unless the lease ran out meanwhile: then only answers are given.
    pub fn committed(&mut self, standing: Standing, now: Now) -> Durable<C> {
        self.is_committing = false;
        self.gather.commit_ends(now.mono_us);
        self.kept.unrecorded.recorded();
        if standing == Standing::Holds {
            let effects = self.machine.committed(now);
            let synced = self.kept.syncs.durable(self.machine.commits());
            return Durable { effects, synced };
        }
        self.left = Some(self.reload(Why::CommitOutlived, now));
        let mut effects = self.machine.committed(now);
        effects.retain(|effect| matches!(effect, Effect::Reply { .. }));
        Durable { effects, synced: Vec::new() }
    }

    /// The commit under way failed, or nobody knows; or its lease is another's (`is_fenced`).
    pub fn commit_failed(&mut self, is_fenced: bool, now: Now) {
        self.is_committing = false;
        self.left = Some(if is_fenced { Left::Lost } else { self.reload(Why::CommitFailed, now) });
    }

    /// What is under way goes on: its answers reach the next machine.
    fn reload(&mut self, why: Why, now: Now) -> Left {
        self.kept.under_way = self.machine.under_way(i64::MAX, now);
        Left::Reload(why)
    }

    /// Takes in what a read has found.
    pub fn news(&mut self, mut news: News, now: Now) -> TakenIn<C> {
        let mut revoked = Vec::new();
        // Messages first: a run may need the policy or the fence that they bring.
        for (message, context) in std::mem::take(&mut news.messages) {
            if self.machine.waits_for_run(&message.control) {
                self.passed_over.waits(message.id);
                continue;
            }
            let released = match &message.control {
                Control::Release { release } => Some((release.run, release.index)),
                _ => None,
            };
            self.revoking(released, &mut revoked, |machine| machine.control(message, context, now));
        }
        self.passed_over.mended |= news.mended;
        if !std::mem::replace(&mut news.complete, true) {
            news.full |= self.passed_over.found(&news, now.mono_us);
            let wanted = self.machine.specs_wanted(&news.runs);
            if !wanted.is_empty() {
                return TakenIn { revoked, synced: Vec::new(), wants: Some((news, wanted)) };
            }
        }
        self.adopt(news, now);
        let synced = self.kept.syncs.durable(self.machine.commits());
        TakenIn { revoked, synced, wants: None }
    }

    fn adopt(&mut self, news: News, now: Now) {
        self.is_reading = false;
        self.machine.adopt(news.runs, news.specs, now);
        if self.machine.take_passed_over() > 0 || news.broken {
            self.passed_over.look_soon(now.mono_us);
        }
        // However many runs and changes wait: what is sent again, or reclaimed, waits for releases alone.
        if news.releases_whole {
            self.machine.caught_up(self.read_began_us);
        }
        let after = self.machine.durable_after().unwrap_or_default();
        if news.full {
            self.kept.syncs.read_goes_on();
            self.read_due_us = Some(now.mono_us);
        } else {
            self.kept.syncs.read_ended(after);
        }
        self.backlog.taken_in(news.full.then_some(after));
        if !std::mem::replace(&mut self.is_ready, true) {
            self.kept.under_way.clear();
            for (run, index, attempt) in self.kept.unrecorded.all() {
                self.machine.sent(run, index, attempt, Sent::Accepted, now);
            }
        }
    }

    /// The read under way failed.
    pub fn read_failed(&mut self, now: Now) {
        self.is_reading = false;
        self.read_due_us = Some(now.mono_us + READ_AGAIN_US);
        if !self.is_ready {
            self.left = Some(Left::Unread);
        }
    }

    /// There is something new in the store.
    pub fn woken(&mut self, now: Now) {
        self.read_due_us = Some(now.mono_us);
    }

    /// There was nothing new in the store, at that moment (monotonic) or soon after it.
    pub fn no_news(&mut self, began_us: i64) {
        // A read that is under way, or due, says more.
        if !self.is_reading && self.read_due_us.is_none() {
            self.machine.caught_up(began_us);
        }
    }

    /// Somebody waits until everything that is in the store now has been taken in and is durable.
    pub fn sync(&mut self, caller: C, now: Now) {
        self.kept.syncs.asked(caller);
        self.woken(now);
    }

    /// A target has answered.
    pub fn sent(&mut self, run: RunId, index: u32, attempt: u32, sent: Sent, now: Now) {
        self.gather.answered(now.mono_us);
        if sent == Sent::Accepted {
            self.kept.unrecorded.accepted(run, index, attempt);
        }
        self.machine.sent(run, index, attempt, sent, now);
    }

    /// The pages of items of which the machine needs the keys: see [`Shard::keys_wanted`].
    pub fn keys_wanted(&mut self) -> Vec<KeysWanted> {
        if self.is_ready { self.machine.keys_wanted() } else { Vec::new() }
    }

    /// The keys and the units of the items of a page: see [`Shard::keys_read`].
    pub fn keys_read(&mut self, of: (RunId, i64), first_index: u32, items: Vec<(String, u32)>, now: Now) {
        self.machine.keys_read(of, first_index, items, now);
    }

    /// The page that holds an index cannot be read.
    pub fn keys_unreadable(&mut self, of: (RunId, i64), index: u32, now: Now) {
        self.machine.keys_unreadable(of, index, now);
    }

    /// Room for events of a pool: see [`Shard::room_given`].
    pub fn room_given(&mut self, pool: u128, room: u32, now: Now) -> bool {
        self.machine.room_given(pool, room, now)
    }

    /// Room that goes back, as the last poll has made no use of it. While a commit is under way there is none: what comes
    /// meanwhile is for the next one.
    pub fn room_left(&mut self) -> Vec<(u128, u32)> {
        std::mem::take(&mut self.room_left)
    }

    /// The run that follows by this message has been made, or is not to be: see [`Shard::followed`].
    pub fn followed(&mut self, message: Uuid) {
        self.machine.followed(message);
    }

    /// The run that follows by this message lives in this shard: see [`Shard::follows`].
    pub fn follows(&mut self, message: Uuid, following: Following, looked_at: u64, now: Now) -> TakenUp {
        self.machine.follows(message, following, looked_at, now)
    }

    /// A delivery was not made after all: the lease could no longer be trusted.
    pub fn unsent(&mut self, run: RunId, index: u32, attempt: u32, now: Now) {
        self.machine.unsent(run, index, attempt, now);
    }

    /// A consumer releases an event; its answer may come later, with this number. Also the delivery that is not to go out, should
    /// it still wait for its turn: the next attempt is not to be overtaken by it.
    pub fn release(
        &mut self,
        release: Release,
        number: u64,
        standing: Standing,
        now: Now,
    ) -> (CallerAnswer, Option<DeliveryKey>) {
        let (key, mut revoked) = ((release.run, release.index), Vec::new());
        let answer = self.revoking(Some(key), &mut revoked, |machine| machine.release(release, number, now));
        (told(answer, standing), revoked.pop())
    }

    /// A consumer is still at work; its answer may come later, with this number.
    pub fn extend(
        &mut self,
        key: (RunId, u32),
        attempt: Option<u32>,
        ttl_ms: Option<i64>,
        number: u64,
        (standing, now): (Standing, Now),
    ) -> CallerAnswer {
        told(self.machine.extend(key, attempt, ttl_ms, number, now), standing)
    }

    /// Has the machine do something after which it may have no use for a delivery any more that is under way.
    fn revoking<T>(
        &mut self,
        released: Option<(RunId, u32)>,
        revoked: &mut Vec<DeliveryKey>,
        acts: impl FnOnce(&mut Shard) -> T,
    ) -> T {
        let under_way = |machine: &Shard| released.and_then(|(run, at)| machine.attempt_under_way(run, at));
        let before = under_way(&self.machine);
        let result = acts(&mut self.machine);
        if let (Some((run, index)), Some(attempt)) = (released, before)
            && under_way(&self.machine) != before
        {
            revoked.push((run, index, attempt));
        }
        result
    }

    /// It is to give its shard up.
    pub fn stop(&mut self, now: Now) {
        self.machine.drain();
        self.is_reading = false;
        self.closing = Some(Closing::begin(now.mono_us));
    }

    /// Whether inputs are taken.
    pub fn is_open(&self) -> bool {
        self.is_ready && !self.closing.as_ref().is_some_and(|closing| closing.is_closed)
    }

    /// Whether it can be told to stop.
    pub fn may_stop(&self) -> bool {
        self.is_ready && self.closing.is_none()
    }

    /// For the next owner of the shard: the deliveries under way, whose answers are waited for at most `wait_ms`.
    pub fn note(&self, wait_ms: i64, now: Now) -> Vec<UnderWay> {
        self.machine.under_way(wait_ms, now)
    }

    /// What the next machine must know.
    pub fn into_kept(mut self) -> Kept<C> {
        self.kept.syncs.machine_lost();
        self.kept
    }

    /// How many runs, and how many messages, cannot be read; messages also where their runs cannot.
    pub fn passed_over(&self) -> (usize, usize) {
        self.passed_over.counts()
    }

    /// How many tokens of silent consumers have been taken back since the last call.
    pub fn take_reclaimed(&mut self) -> u64 {
        self.machine.take_reclaimed()
    }

    /// What has happened, by the minute: see [`Shard::take_minutes`].
    pub fn take_minutes(&mut self, epoch: i64, now: Now) -> Vec<MinuteRow> {
        self.machine.take_minutes(epoch, now)
    }

    /// The machine, for questions.
    pub fn machine(&self) -> &Shard {
        &self.machine
    }
}

fn told(answer: Option<Answer>, standing: Standing) -> CallerAnswer {
    match answer {
        Some(_) if standing != Standing::Holds => CallerAnswer::AskAgain,
        Some(answer) => CallerAnswer::Answer(answer),
        None => CallerAnswer::Later,
    }
}
