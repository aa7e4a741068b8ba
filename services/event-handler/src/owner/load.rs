//! What an owner reads: all of its shard after a takeover, news later.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::{Context, Needs, Shard, State};
use tollgate_core::model::{Run, RunId, RunSpec, SECOND_US, Sent};
use tollgate_metrics::Role;
use tollgate_store::StoreError;
use tollgate_store::handle::HandleStore;
use uuid::Uuid;

use super::Owner;
use super::backlog::{Backlog, Part};
use crate::outage;
use crate::queries::readable_specs;

/// How many dead events of a run, and how many runs that could not be read before, one read takes.
const READ_MAX: u32 = 2_000;
/// What launches so long ago, or later, does not wait until all is read that should have launched before: runs of past launch
/// times come by the ten thousand.
const RECENT_US: i64 = 10 * SECOND_US;
/// To read what a message is about takes as long as to take in so many runs.
const MESSAGE_RUNS: usize = 4;
/// When what has been passed over is counted.
const SOON: Duration = Duration::from_secs(2);
/// When what could not be read is tried again, at the earliest.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// Waits between tries to load a shard, in milliseconds.
const RETRY_MS: [u64; 5] = [100, 500, 1_000, 2_000, 5_000];

/// What became of news.
pub(super) enum Taken {
    /// The machine has them.
    All {
        /// There may be more.
        more: bool,
    },
    /// The machine needs specs first: the same news with them.
    Wants(JoinHandle<Result<News, StoreError>>),
}

pub(super) enum Loaded {
    Machine(Box<Shard>),
    Stopped,
}

/// What is new in the store.
pub(super) struct News {
    runs: Vec<Run>,
    specs: Vec<RunSpec>,
    messages: Vec<(Message, Context)>,
    /// Messages that cannot be read, or whose context cannot.
    unreadable: Vec<Uuid>,
    /// Runs that had been passed over and were read again: how many, and the last one's id.
    again: Option<(usize, RunId)>,
    /// Rows of runs cannot be read, and have been marked.
    broken: bool,
    /// Specs can be read that could not when the machine was loaded.
    mended: bool,
    /// There may be more.
    full: bool,
    /// No release waits in the inbox.
    releases_whole: bool,
    /// The specs are there that the machine has asked for.
    complete: bool,
}

/// What is passed over because it cannot be read, and when it is tried again.
pub(super) struct PassedOver {
    /// Messages of the inbox.
    messages: BTreeSet<Uuid>,
    /// Runs that the look under way has come across.
    runs: usize,
    /// Up to which id it has looked; none where none is under way.
    looked: Option<RunId>,
    began: Instant,
    again: Instant,
    /// Specs of runs that have been taken in before, and were left out when the machine was loaded.
    specs: Vec<(Uuid, i64)>,
    /// They are to be tried again by the next read.
    try_specs: bool,
    /// Some of them can be read again.
    pub(super) mended: bool,
}

impl PassedOver {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            messages: BTreeSet::new(),
            runs: 0,
            looked: Some(RunId::default()),
            began: now,
            again: now,
            specs: Vec::new(),
            try_specs: false,
            mended: false,
        }
    }

    /// As of a shard that has been read: what of its runs has no spec is left out.
    fn of(runs: &[Run], specs: &[RunSpec]) -> Self {
        let read: BTreeSet<_> = specs.iter().map(|spec| (spec.schedule_uid, spec.generation)).collect();
        let wanted: BTreeSet<_> = runs.iter().map(|run| (run.schedule_uid, run.generation)).collect();
        Self { specs: wanted.difference(&read).copied().collect(), ..Self::new() }
    }

    /// When to look again.
    pub(super) fn again(&self) -> Instant {
        self.again
    }

    /// Begins to look again, if it is time.
    fn begin(&mut self, now: Instant) {
        if self.looked.is_none() && now >= self.again {
            self.messages.clear();
            (self.looked, self.runs, self.began) = (Some(RunId::default()), 0, now);
            self.try_specs = true;
        }
    }

    /// Takes what a read has found. True where there is more to be looked at.
    fn found(&mut self, news: &News, now: Instant) -> bool {
        self.messages.extend(news.unreadable.iter().copied());
        let Some((rows, last)) = news.again else { return false };
        self.runs += rows;
        if rows >= READ_MAX as usize {
            self.looked = Some(last);
            return true;
        }
        self.looked = None;
        // Many of them take their time, and do not get more than a part of it.
        self.again = now + TRY_AGAIN.max((now - self.began) * 20);
        false
    }

    /// More has been passed over: it is to be counted and named, once its marks are durable.
    fn look_soon(&mut self, now: Instant) {
        self.again = self.again.min(now + SOON);
    }

    /// The specs that the next read tries again: none but for the first one of a look.
    fn specs_again(&mut self) -> Vec<(Uuid, i64)> {
        if std::mem::take(&mut self.try_specs) { self.specs.clone() } else { Vec::new() }
    }

    /// How many runs, and how many messages, as of the last look.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.runs, self.messages.len())
    }
}

impl Owner {
    /// Loads the machine from the store, however long that takes.
    pub(super) async fn load(&mut self) -> Loaded {
        for attempt in 0.. {
            if self.stop.is_cancelled() {
                return Loaded::Stopped;
            }
            match self.try_load().await {
                Ok(machine) => return Loaded::Machine(machine),
                Err(error) => {
                    let shard = self.lease.shard;
                    self.shared.options.metrics.store_failed(Role::Handler);
                    if attempt == 0 {
                        outage::note(shard, &error, "the shard cannot be loaded; trying again");
                    }
                    let wait_ms = RETRY_MS[attempt.min(RETRY_MS.len() - 1)];
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                }
            }
        }
        Loaded::Stopped
    }

    /// The news are taken in before the machine decides anything: a former owner may have left a note of deliveries that
    /// it still waits for.
    async fn try_load(&mut self) -> Result<Box<Shard>, StoreError> {
        let loaded = self.shared.store.load_shard(self.lease.shard).await?;
        self.passed_over = PassedOver::of(&loaded.runs, &loaded.specs);
        let state = State {
            policies: loaded.policies,
            policies_deleted: loaded.policies_deleted,
            schedules: loaded.schedules,
            runs: loaded.runs,
            batches: loaded.batches,
            tokens: loaded.tokens,
            counted: loaded.counted,
            specs: loaded.specs,
            pause: loaded.pause,
        };
        let (options, now) = (self.shared.options.machine.clone(), self.shared.clock.now());
        let mut machine = Box::new(Shard::new(self.lease.shard, options, state, rand::random(), now));
        // Before the news: a release among them takes back what has not left.
        machine.wait_for(self.under_way.clone(), now);
        self.backlog = Backlog::default();
        let mut read = self.begin_read(&mut machine);
        loop {
            let news = read.await.map_err(|error| StoreError::Internal(error.to_string()))??;
            match self.take_in(&mut machine, news) {
                Taken::All { .. } => break,
                Taken::Wants(rest) => read = rest,
            }
        }
        let now = self.shared.clock.now();
        self.under_way.clear();
        for (run, index, attempt) in self.heard.unrecorded() {
            machine.sent(run, index, attempt, Sent::Accepted, now);
        }
        Ok(machine)
    }

    /// A commit failed, or nobody knows: a fresh lease makes sure that nothing of the old one can still come.
    /// False if somebody else has the shard.
    pub(super) async fn take_over_from_self(&mut self) -> bool {
        for attempt in 0.. {
            let shard = self.lease.shard;
            match self.reclaim().await {
                Ok(Some(lease)) => {
                    self.lease = lease;
                    return true;
                }
                Ok(None) => return false,
                Err(error) => {
                    if attempt == 0 {
                        outage::note(shard, &error, "the store does not answer; trying again");
                    }
                    if self.stop.is_cancelled() {
                        return false;
                    }
                    let wait_ms = RETRY_MS[attempt.min(RETRY_MS.len() - 1)];
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                }
            }
        }
        false
    }

    async fn reclaim(&mut self) -> Result<Option<tollgate_store::handle::Lease>, StoreError> {
        let store = &self.shared.store;
        // Before the look at the lease: a lapse after it must be seen.
        self.lapses = self.shared.trust.lapses();
        let leases = store.leases().await?;
        let Some(seen) = leases.into_iter().find(|l| l.shard == self.lease.shard) else { return Ok(None) };
        if seen.owner != self.shared.process {
            return Ok(None);
        }
        store.take_shard(&seen, &self.shared.process).await
    }

    pub(super) fn begin_read(&mut self, machine: &mut Shard) -> JoinHandle<Result<News, StoreError>> {
        machine.begin_read();
        self.read_began_us = self.shared.clock.now().mono_us;
        self.syncs.read_begins();
        let (store, shard) = (self.shared.store.clone(), self.lease.shard);
        let now_us = self.shared.clock.wall_us();
        let until_us = now_us + self.shared.options.load_ahead_s * SECOND_US;
        self.passed_over.begin(Instant::now());
        let except: Vec<Uuid> = self.passed_over.messages.iter().copied().collect();
        let (again, specs) = (self.passed_over.looked, self.passed_over.specs_again());
        let part = self.backlog.begin(&self.shared.loads, now_us - RECENT_US..until_us);
        tokio::spawn(async move { read_news(&*store, shard, part, &except, (again, &specs)).await })
    }

    /// Hands news to the machine.
    pub(super) fn take_in(&mut self, machine: &mut Shard, mut news: News) -> Taken {
        let now = self.shared.clock.now();
        // Messages first: a run may need the policy or the fence that they bring.
        for (message, context) in std::mem::take(&mut news.messages) {
            let released = match &message.control {
                Control::Release { release } => Some((release.run, release.index)),
                _ => None,
            };
            let under_way = released.and_then(|(run, index)| machine.attempt_under_way(run, index));
            machine.control(message, context, now);
            if let Some((run, index)) = released {
                self.revoke(machine, run, index, under_way);
            }
        }
        self.passed_over.mended |= news.mended;
        if !std::mem::replace(&mut news.complete, true) {
            news.full |= self.passed_over.found(&news, Instant::now());
            self.shared.passed_over.insert(self.lease.shard, self.passed_over.counts());
            let wanted = machine.specs_wanted(&news.runs);
            if !wanted.is_empty() {
                let (store, shard) = (self.shared.store.clone(), self.lease.shard);
                return Taken::Wants(tokio::spawn(async move {
                    news.specs.extend(readable_specs(&*store, shard, &wanted).await?);
                    Ok(news)
                }));
            }
        }
        machine.adopt(news.runs, news.specs, now);
        if machine.take_passed_over() > 0 || news.broken {
            self.passed_over.look_soon(Instant::now());
        }
        // However many runs and changes wait: what is sent again, or reclaimed, waits for releases alone.
        if news.releases_whole {
            machine.caught_up(self.read_began_us);
        }
        if news.full {
            self.syncs.read_goes_on();
        } else {
            self.syncs.read_ended(machine.durable_after().unwrap_or_default());
        }
        self.backlog.taken_in(news.full.then(|| machine.durable_after().unwrap_or_default()));
        self.syncs.durable(machine.commits());
        Taken::All { more: news.full }
    }
}

/// Emitted runs are read before messages, so that what a run needs is among the messages. `except`: messages that have been
/// passed over. `again`: look again at runs that have been, from this id on, and at these specs.
async fn read_news(
    store: &dyn HandleStore,
    shard: u16,
    part: Part,
    except: &[Uuid],
    (again, specs): (Option<RunId>, &[(Uuid, i64)]),
) -> Result<News, StoreError> {
    let mended = !specs.is_empty() && !readable_specs(store, shard, specs).await?.is_empty();
    let Part { runs_max, messages_max, recent_us } = part;
    let mut untaken = store.emitted_runs(shard, i64::MIN..recent_us.end, runs_max).await?;
    let mut full = untaken.rows >= runs_max as usize;
    let mut broken = untaken.rows > untaken.runs.len();
    if full && untaken.runs.last().is_some_and(|run| run.launch_us < recent_us.start) {
        let recent = store.emitted_runs(shard, recent_us, runs_max).await?;
        broken |= recent.rows > recent.runs.len();
        untaken.runs.extend(recent.runs);
        untaken.specs.extend(recent.specs);
    }
    let mut looked = None;
    if let Some(after) = again {
        let passed_over = store.unreadable_runs(shard, after, READ_MAX).await?;
        looked = Some((passed_over.rows, passed_over.last.unwrap_or(after)));
        untaken.runs.extend(passed_over.runs);
        untaken.specs.extend(passed_over.specs);
    }
    let inbox = store.inbox_except(shard, except, messages_max).await?;
    let ids = inbox.messages.iter().map(|message| message.id).chain(inbox.unreadable.iter().copied());
    let releases_whole =
        inbox.rows < messages_max as usize || ids.max().is_some_and(Message::is_beyond_releases);
    let (in_turn, others_wait) = in_turn(inbox.messages, runs_max as usize);
    full |= others_wait || inbox.rows >= messages_max as usize;
    let (mut messages, mut unreadable) = (Vec::with_capacity(in_turn.len()), inbox.unreadable);
    for message in in_turn {
        match read_context(store, shard, &message.control).await {
            Ok(context) => messages.push((message, context)),
            // It stays in the inbox until what it is about can be read; the others go on.
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::debug!(shard, message = %message.id, %error, "a message waits");
                unreadable.push(message.id);
            }
            Err(error) => return Err(error),
        }
    }
    let (runs, specs) = (untaken.runs, untaken.specs);
    Ok(News {
        runs,
        specs,
        messages,
        unreadable,
        again: looked,
        broken,
        mended,
        full,
        releases_whole,
        complete: false,
    })
}

/// Those of some messages that are taken in at once, in their order, and whether others wait for the next read: those that
/// would make more runs than `runs_max`. Each namespace's first one is taken in all the same, and so is what makes none, so
/// that a pause does not wait for somebody's thousands of new schedules.
fn in_turn(mut messages: Vec<Message>, runs_max: usize) -> (Vec<Message>, bool) {
    let (mut runs, mut namespaces, mut waiting) = (0, BTreeSet::new(), BTreeSet::new());
    messages.retain(|message| {
        let Control::ScheduleChanged { schedule, namespace, .. } = &message.control else { return true };
        // One generation after the other.
        let mut goes = !waiting.contains(&schedule.uid);
        if goes && !schedule.launches_us.is_empty() {
            let more = runs + schedule.launches_us.len() + MESSAGE_RUNS;
            goes = namespaces.insert(namespace.clone()) || more <= runs_max;
            runs = if goes { more } else { runs };
        }
        if !goes {
            waiting.insert(schedule.uid);
        }
        goes
    });
    (messages, !waiting.is_empty())
}

async fn read_context(store: &dyn HandleStore, shard: u16, control: &Control) -> Result<Context, StoreError> {
    let needs = Needs::of(control);
    let mut context = Context::default();
    if !needs.runs.is_empty() {
        context.runs = store.runs(shard, &needs.runs).await?;
    }
    // What is cancelled needs no spec.
    if !matches!(control, Control::CancelRun { .. }) {
        let mut keys = needs.specs.clone();
        keys.extend(context.runs.iter().map(|r| (r.schedule_uid, r.generation)));
        keys.sort_unstable();
        keys.dedup();
        context.specs = store.specs(shard, &keys).await?;
    }
    if let Some((run, indexes)) = &needs.dead {
        context.dead = store.dead_events(shard, *run, indexes, READ_MAX).await?;
    }
    Ok(context)
}

#[cfg(test)]
mod tests;
