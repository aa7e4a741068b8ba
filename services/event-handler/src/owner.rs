//! The loop around one shard's state machine: next event, handle it, commit, perform.
//!
//! Reads and commits run beside the loop, one of each at most; inputs gather meanwhile, which is what makes a
//! commit large under load. A commit that fails drops the machine; a fresh one is loaded from the store. An owner that
//! does not trust its lease neither commits nor sends; one that is told to stop starts nothing more, waits a moment for
//! answers, and hands the shard over.
#![expect(clippy::disallowed_methods, reason = "being rewritten; its instants only measure lengths")]

mod backlog;
mod gather;
mod handover;
mod heard;
mod load;
mod perform;
mod syncs;

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tollgate_clock::Alarms;
use tollgate_core::handle::Shard;
use tollgate_core::handle::change::Changes;
use tollgate_core::handle::control::UnderWay;
use tollgate_core::model::{RunId, Sent};
use tollgate_metrics::{OwnerWatch, Role};
use tollgate_store::handle::Lease;
use tollgate_store::{CommitError, StoreError};
use tollgate_target::Leave;

pub(crate) use backlog::turns;

use crate::routes::{Input, Replied};
use crate::{Shared, outage};
use backlog::Backlog;
use gather::Gather;
use handover::Closing;
use heard::Heard;
use load::{Loaded, News, PassedOver, Taken};
use perform::Outgoing;
use syncs::Syncs;

/// Inputs taken at once, before anything else is looked after.
const INPUTS_AT_ONCE: usize = 256;
/// How soon an owner looks again whether its lease is to be trusted.
const DISTRUST_LOOK: Duration = Duration::from_millis(50);
/// When to look again where nothing is known that could happen by itself.
const IDLE_LOOK: Duration = Duration::from_secs(10);
/// When a read that failed is tried again.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// How an owner ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The shard has been given up.
    HandedOver,
    /// Somebody else has the shard, or it could not be given up and its lease runs out.
    Lost,
}

/// Why the inner loop was left.
enum Left {
    /// The shard can be handed over, with these deliveries under way.
    Drained(Vec<UnderWay>),
    /// Somebody else has the shard, or nobody knows.
    Lost,
    /// The machine may not be what the store says: load it anew. These deliveries are under way.
    Reload(Vec<UnderWay>),
}

pub(crate) struct Owner {
    shared: Shared,
    lease: Lease,
    /// How often trust had lapsed when the lease was taken.
    lapses: u64,
    inputs: mpsc::UnboundedReceiver<Input>,
    loopback: mpsc::UnboundedSender<Input>,
    stop: CancellationToken,
    replies: HashMap<u64, oneshot::Sender<Replied>>,
    reply_next: u64,
    /// Deliveries that this process has begun and has no answer of: run, index, attempt.
    begun: HashMap<(RunId, u32, u32), Leave>,
    /// Some of them that wait for their turn.
    outgoing: Outgoing,
    /// What the machine before this one waited for.
    under_way: Vec<UnderWay>,
    /// Answers that no commit has recorded yet.
    heard: Heard,
    /// Measures how long tokens take to be handed on, and writes spans.
    watch: OwnerWatch,
    /// What the last read left.
    backlog: Backlog,
    /// What cannot be read.
    passed_over: PassedOver,
    /// When the last read began (monotonic).
    read_began_us: i64,
    /// Who waits until the inbox has been carried out.
    syncs: Syncs,
}

type CommitTask = JoinHandle<Result<(), CommitError>>;
type ReadTask = JoinHandle<Result<News, StoreError>>;

/// What happened next.
enum Event {
    Input(Input),
    Committed(Result<(), CommitError>),
    Read(Result<News, StoreError>),
    Deadline,
    Stop,
}

/// What runs beside the loop, and when the loop must look again.
struct Beside {
    commit: Option<CommitTask>,
    read: Option<ReadTask>,
    /// When to look for news, where there may be some.
    read_due: Option<Instant>,
    closing: Option<Closing>,
    gather: Gather,
}

/// When to look again without any input.
enum WakeAt {
    /// To the millisecond.
    About(Instant),
    /// As exactly as can be: something launches.
    Sharp(Instant),
}

impl WakeAt {
    /// Whichever comes first.
    fn first(sharp: Option<Instant>, about: Instant) -> Self {
        match sharp {
            Some(sharp) if sharp <= about => Self::Sharp(sharp),
            _ => Self::About(about),
        }
    }

    async fn sleep(self, alarms: &Alarms) {
        match self {
            Self::About(at) => tokio::time::sleep_until(at).await,
            Self::Sharp(at) => alarms.at(at.into_std()).await,
        }
    }
}

impl Owner {
    /// `lapses`: how often trust had lapsed before the lease was taken.
    pub(crate) fn new(
        shared: Shared,
        (lease, lapses): (Lease, u64),
        inputs: mpsc::UnboundedReceiver<Input>,
        loopback: mpsc::UnboundedSender<Input>,
        stop: CancellationToken,
    ) -> Self {
        let watch = shared.options.metrics.owner(&shared.clock);
        Self {
            shared,
            watch,
            lease,
            lapses,
            inputs,
            loopback,
            stop,
            replies: HashMap::new(),
            reply_next: 1,
            begun: HashMap::new(),
            outgoing: Outgoing::default(),
            under_way: Vec::new(),
            heard: Heard::default(),
            backlog: Backlog::default(),
            passed_over: PassedOver::new(),
            read_began_us: 0,
            syncs: Syncs::default(),
        }
    }

    /// Owns the shard until it is told to stop, or has lost it.
    pub(crate) async fn run(mut self) -> (u16, Ended) {
        let shard = self.lease.shard;
        loop {
            let machine = match self.load().await {
                Loaded::Machine(machine) => *machine,
                Loaded::Stopped => {
                    let under_way = std::mem::take(&mut self.under_way);
                    return (shard, self.hand_over(under_way).await);
                }
            };
            let left = self.drive(machine).await;
            if matches!(left, Left::Lost) {
                // Whoever has the shard now knows nothing of them.
                self.outgoing = Outgoing::default();
                self.begun.values().for_each(Leave::revoke);
            }
            self.outgoing.begin_all();
            match left {
                Left::Drained(under_way) => return (shard, self.hand_over(under_way).await),
                Left::Lost => return (shard, Ended::Lost),
                Left::Reload(under_way) => {
                    self.under_way = under_way;
                    self.refuse_waiting();
                    self.syncs.machine_lost();
                    if !self.take_over_from_self().await {
                        return (shard, Ended::Lost);
                    }
                }
            }
        }
    }

    async fn drive(&mut self, mut machine: Shard) -> Left {
        let read_due = self.backlog.is_left().then(Instant::now);
        let gather = Gather::default();
        let mut beside = Beside { commit: None, read: None, read_due, closing: None, gather };
        loop {
            if self.shared.trust.lapses() != self.lapses {
                tracing::debug!(shard = self.lease.shard, "the lease was not to be trusted for a while");
                return self.reload(&machine);
            }
            if self.passed_over.mended && beside.commit.is_none() && beside.closing.is_none() {
                tracing::info!(
                    shard = self.lease.shard,
                    "runs can be read that were left out; the shard is loaded anew"
                );
                return self.reload(&machine);
            }
            let trusted = self.is_trusted();
            if trusted {
                let due = machine.due(self.shared.clock.now());
                // It does not wait for the next commit.
                if !due.is_empty() {
                    self.perform(due);
                    self.outgoing.begin_some();
                }
            }
            if beside.commit.is_none()
                && trusted
                && beside.gather.is_enough(self.begun.len(), Instant::now())
                && let Some(next) = machine.poll_commit(self.shared.clock.now())
            {
                tollgate_fault_points::pass("handler.acquire.before");
                beside.commit = Some(self.begin_commit(next.changes));
                self.shared.options.metrics.reclaimed(machine.take_reclaimed());
                beside.gather.commit_begins(Instant::now());
                self.heard.commit_begins();
            }
            // What the last commit allowed, and only now: the store writes the next one meanwhile.
            self.outgoing.begin_some();
            if let Some(left) = self.close(&mut machine, &mut beside) {
                return left;
            }
            if self.passed_over.again() <= Instant::now() {
                beside.read_due.get_or_insert_with(Instant::now);
            }
            if beside.read.is_none()
                && beside.closing.is_none()
                && self.backlog.may_read(machine.commits())
                && beside.read_due.take_if(|due| *due <= Instant::now()).is_some()
            {
                beside.read = Some(self.begin_read(&mut machine));
            }
            let wake_at = self.wake_at(&machine, &beside, trusted);
            let event = self.next_event(&mut beside, wake_at).await;
            if let Some(left) = self.take_event(&mut machine, &mut beside, event) {
                return left;
            }
        }
    }

    fn take_event(&mut self, machine: &mut Shard, beside: &mut Beside, event: Event) -> Option<Left> {
        match event {
            Event::Input(input) => self.take_inputs(machine, beside, input),
            Event::Committed(Ok(())) => {
                beside.gather.commit_ends(Instant::now());
                self.heard.recorded();
                if let Some(left) = self.committed(machine) {
                    return Some(left);
                }
            }
            Event::Committed(Err(error)) => return Some(self.commit_failed(machine, error)),
            Event::Read(Ok(news)) => match self.take_in(machine, news) {
                Taken::All { more: true } => beside.read_due = Some(Instant::now()),
                Taken::All { more: false } => {}
                Taken::Wants(rest) => beside.read = Some(rest),
            },
            Event::Read(Err(error)) => {
                beside.read_due = Some(Instant::now() + READ_AGAIN);
                self.shared.options.metrics.store_failed(Role::Handler);
                outage::note(self.lease.shard, &error, "the shard's news cannot be read");
            }
            Event::Deadline => {}
            Event::Stop => {
                machine.drain();
                // What it reads now would only have to be committed.
                beside.read = None;
                beside.closing = Some(Closing::begin());
            }
        }
        None
    }

    /// This input, and those that wait behind it.
    fn take_inputs(&mut self, machine: &mut Shard, beside: &mut Beside, first: Input) {
        let mut next = Some(first);
        let mut left = INPUTS_AT_ONCE;
        let (mut now, instant) = (self.shared.clock.now(), Instant::now());
        while let Some(input) = next {
            match input {
                // A read that is under way, or due, says more.
                Input::NoNews { began_us } if beside.read.is_none() && beside.read_due.is_none() => {
                    machine.caught_up(began_us);
                }
                Input::NoNews { .. } => {}
                Input::Wake => beside.read_due = Some(Instant::now()),
                Input::Sync { reply } => {
                    self.syncs.asked(reply);
                    beside.read_due = Some(Instant::now());
                }
                input => {
                    if matches!(input, Input::Sent { .. }) {
                        beside.gather.answered(instant);
                    }
                    // For all that were taken or released, the moment of the first will do.
                    if !matches!(input, Input::Sent { sent: Sent::Accepted, .. } | Input::Release { .. }) {
                        now = self.shared.clock.now();
                    }
                    self.handle(machine, input, now);
                }
            }
            left -= 1;
            next = if left > 0 { self.inputs.try_recv().ok() } else { None };
        }
    }

    async fn next_event(&mut self, beside: &mut Beside, wake_at: WakeAt) -> Event {
        let stopping = beside.closing.is_some();
        let closed = beside.closing.as_ref().is_some_and(Closing::is_closed);
        tokio::select! {
            biased;
            done = finished(&mut beside.commit) => {
                beside.commit = None;
                Event::Committed(done.unwrap_or_else(|error| {
                    Err(CommitError::Unknown(StoreError::Internal(error.to_string())))
                }))
            }
            Some(input) = self.inputs.recv(), if !closed => Event::Input(input),
            done = finished(&mut beside.read) => {
                beside.read = None;
                Event::Read(done.unwrap_or_else(|e| Err(StoreError::Internal(e.to_string()))))
            }
            () = self.stop.cancelled(), if !stopping => Event::Stop,
            () = tokio::task::yield_now(), if !self.outgoing.is_empty() => Event::Deadline,
            () = wake_at.sleep(&self.shared.alarms) => Event::Deadline,
        }
    }

    /// When to look again without any input.
    fn wake_at(&self, machine: &Shard, beside: &Beside, trusted: bool) -> WakeAt {
        let now = self.shared.clock.now();
        let base = Instant::now();
        let deadline = machine.next_deadline();
        let in_us = |us: i64| base + Duration::from_micros(u64::try_from(us).unwrap_or_default());
        let in_wall_us = |at_us: i64| in_us(at_us - now.wall_us);
        let send = deadline.due_us.filter(|_| trusted).map(in_wall_us);
        let launch = deadline.wall_us.filter(|_| trusted).map(in_wall_us);
        let timer = deadline.mono_us.filter(|_| trusted).map(|at_us| in_us(at_us - now.mono_us));
        let distrust = (!trusted).then_some(base + DISTRUST_LOOK);
        if beside.commit.is_none()
            && let Some(until) = beside.gather.until()
        {
            // What starts waits for the answers that are gathered.
            let about = distrust.map_or(until, |at| at.min(until));
            return WakeAt::first(send, about);
        }
        let closing = beside.closing.as_ref().map(Closing::deadline);
        let soon = base + Duration::from_millis(1);
        let read_due = beside.read_due.unwrap_or(self.passed_over.again());
        let reads =
            beside.read.is_none() && beside.closing.is_none() && self.backlog.may_read(machine.commits());
        let read = reads.then_some(read_due.max(soon));
        let about = [timer, distrust, closing, read].into_iter().flatten().min();
        let sharp = [send, launch].into_iter().flatten().min();
        WakeAt::first(sharp, about.unwrap_or(base + IDLE_LOOK))
    }

    fn is_trusted(&self) -> bool {
        self.shared.trust.holds(self.lapses)
    }

    fn begin_commit(&mut self, changes: Changes) -> CommitTask {
        let (store, lease) = (self.shared.store.clone(), self.lease.clone());
        let watch = self.watch.commit(&changes);
        // A task of its own: a commit must not be cancelled half-way.
        tokio::spawn(async move {
            let result = store.commit(&lease, &changes).await;
            watch.ended(&result);
            result
        })
    }

    /// A commit is durable. What it allows is done, unless the lease ran out meanwhile: then only answers are given.
    fn committed(&mut self, machine: &mut Shard) -> Option<Left> {
        tollgate_fault_points::pass("handler.acquire.after");
        if self.is_trusted() {
            let effects = machine.committed(self.shared.clock.now());
            self.perform(effects);
            self.syncs.durable(machine.commits());
            return None;
        }
        tracing::warn!(shard = self.lease.shard, "a commit outlived the lease; what it allows is not done");
        let left = self.reload(machine);
        let effects = machine.committed(self.shared.clock.now());
        self.answer(effects);
        Some(left)
    }

    fn commit_failed(&mut self, machine: &Shard, error: CommitError) -> Left {
        let shard = self.lease.shard;
        match error {
            CommitError::Fenced => {
                tracing::warn!(shard, "the shard has another owner");
                self.refuse_waiting();
                Left::Lost
            }
            CommitError::Failed(error) | CommitError::Unknown(error) => {
                outage::note(shard, &error, "a commit failed; the shard is loaded anew");
                self.reload(machine)
            }
        }
    }

    /// What is under way goes on: its answers reach the next machine.
    fn reload(&self, machine: &Shard) -> Left {
        Left::Reload(machine.under_way(i64::MAX, self.shared.clock.now()))
    }

    /// Whoever waits for an answer is told to try again.
    fn refuse_waiting(&mut self) {
        for (_, reply) in self.replies.drain() {
            // A caller that has gone needs no answer.
            let _gone = reply.send(Replied::TryAgain);
        }
    }
}

async fn finished<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, tokio::task::JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}
