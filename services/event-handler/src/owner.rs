//! The loop around one shard's owner: carries out what [`own::Owner`] says, and tells it what came of it.
//!
//! In: inputs, and what became of commits and reads, which run beside the loop. Out: commits, reads, deliveries,
//! answers. A machine that may not be what the store says is dropped, and the shard loaded anew. Not here: decisions;
//! they are the core's.

mod ahead;
mod handover;
mod load;
mod perform;
mod questions;
mod strays;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tollgate_clock::{Clock, instant_now};
use tollgate_core::handle::change::Changes;
use tollgate_core::model::Sent;
use tollgate_core::own::{self, DeliveryKey, Kept, Left, News, Next, PollTime, Standing, TakenIn, Why};
use tollgate_metrics::{OwnerWatch, Role};
use tollgate_store::handle::Lease;
use tollgate_store::{CommitError, StoreError};
use tollgate_target::Leave;
use uuid::Uuid;

use crate::routes::{Input, Replied};
use crate::{Shared, outage};
use ahead::Look;
pub(crate) use ahead::{Ahead, LOOKS_MAX};
use load::wait_to_try;
use perform::Outgoing;

/// Inputs taken at once, before anything else is looked after.
const INPUTS_AT_ONCE: usize = 256;

/// How an owner ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerEnd {
    /// The shard has been given up.
    HandedOver,
    /// Somebody else has the shard, or it could not be given up and its lease runs out.
    Lost,
}

/// A caller that waits until the inbox has been carried out.
type Caller = oneshot::Sender<()>;
type Life = own::Owner<Caller>;

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
    /// Deliveries that this process has begun and has no answer of.
    begun: HashMap<DeliveryKey, Leave>,
    /// Some of them that wait for their turn.
    outgoing: Outgoing,
    /// What follows the ends that the commit under way says, by their messages.
    ahead: HashMap<Uuid, Look>,
    /// What has gone to other shards.
    gone: Arc<strays::Gone>,
    /// What the next machine must know.
    kept: Kept<Caller>,
    /// Up to when this owner has counted what fell due.
    counted_until_us: Option<i64>,
    /// Measures how long tokens take to be handed on, and writes spans.
    watch: OwnerWatch,
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

/// What runs beside the loop.
#[derive(Default)]
struct Beside {
    commit: Option<CommitTask>,
    read: Option<ReadTask>,
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
            ahead: HashMap::new(),
            gone: Arc::default(),
            kept: Kept::default(),
            counted_until_us: None,
        }
    }

    /// Owns the shard until it is told to stop, or has lost it.
    pub(crate) async fn run(mut self) -> (u16, OwnerEnd) {
        let shard = self.lease.shard;
        let mut failures = 0;
        loop {
            if self.stop.is_cancelled() {
                let under_way = self.kept.take_under_way();
                // A note of deliveries may not have been read: what they are of stays.
                self.shared.moves.put_off(shard);
                return (shard, self.hand_over(under_way).await);
            }
            let mut life = match self.load().await {
                Ok(life) => life,
                Err(error) => {
                    self.tell_not_loaded(failures, &error);
                    wait_to_try(failures).await;
                    failures += 1;
                    continue;
                }
            };
            self.shared.desk.presume(life.machine().kinds_at_work());
            let left = self.drive(&mut life).await;
            self.keep_minutes(&mut life);
            if matches!(left, Left::Lost | Left::Stuck) {
                // The present owner of the shard knows nothing of them.
                self.outgoing = Outgoing::default();
                self.begun.values().for_each(Leave::revoke);
            }
            // What has begun has its own.
            self.shared.desk.forget(self.lease.shard);
            self.outgoing.begin_all();
            self.ahead.clear();
            match left {
                Left::Drained => {
                    let under_way = life.note(self.wait_ms(), self.shared.clock.now());
                    return (shard, self.hand_over(under_way).await);
                }
                Left::Lost | Left::Stuck => {
                    self.refuse_waiting();
                    return (shard, OwnerEnd::Lost);
                }
                Left::Unread => {
                    self.kept = life.into_kept();
                    wait_to_try(failures).await;
                    failures += 1;
                }
                Left::Reload(why) => {
                    self.tell_reload(why);
                    self.kept = life.into_kept();
                    self.refuse_waiting();
                    if !self.take_over_from_self().await {
                        // Nor does the next owner; it may be this process itself.
                        self.begun.values().for_each(Leave::revoke);
                        return (shard, OwnerEnd::Lost);
                    }
                    failures = 0;
                }
            }
        }
    }

    /// Carries out what the owner says, until its end.
    async fn drive(&mut self, life: &mut Life) -> Left {
        let mut beside = Beside::default();
        loop {
            while let Some(next) = life.poll(self.begun.len(), self.standing(), self.shared.clock.now()) {
                match next {
                    Next::Perform(due) => {
                        self.perform(due);
                        self.outgoing.begin_some();
                    }
                    Next::Commit(changes) => {
                        tollgate_fault_points::pass("handler.acquire.before");
                        self.look_ahead(&changes, life.machine().commits());
                        beside.commit = Some(self.begin_commit(changes));
                        self.shared.options.metrics.reclaimed(life.take_reclaimed());
                    }
                    Next::Room(asks) => self.look_for_room(life, &asks),
                    Next::Read(ask) => beside.read = Some(self.begin_read(ask)),
                    // Callers are sent elsewhere from now on; those in line are turned away at the end.
                    Next::Close => self.shared.peers.routes().remove(self.lease.shard),
                    Next::Leave(left) => return left,
                }
            }
            self.give_room_back(life);
            life.keys_wanted().into_iter().for_each(|wanted| self.read_keys(wanted));
            // What the last commit allowed, and only now: the store writes the next one meanwhile.
            self.outgoing.begin_some();
            let event = self.next_event(life, &mut beside).await;
            self.take_event(life, &mut beside, event);
        }
    }

    /// What has been counted outlives the machine.
    fn keep_minutes(&mut self, life: &mut Life) {
        let now = self.shared.clock.now();
        self.shared.minutes.put(life.take_minutes(self.lease.epoch, now));
        self.counted_until_us = Some(now.wall_us);
    }

    fn take_event(&mut self, life: &mut Life, beside: &mut Beside, event: Event) {
        match event {
            Event::Input(input) => self.take_inputs(life, input),
            Event::Committed(Ok(())) => {
                tollgate_fault_points::pass("handler.acquire.after");
                let durable = life.committed(self.standing(), self.shared.clock.now());
                self.perform(durable.effects);
                answer_all(durable.synced);
            }
            Event::Committed(Err(error)) => self.commit_failed(life, &error),
            Event::Read(Ok(news)) => {
                let TakenIn { revoked, synced, wants } = life.news(news, self.shared.clock.now());
                revoked.iter().for_each(|delivery| self.revoke(delivery));
                answer_all(synced);
                self.shared.passed_over.insert(self.lease.shard, life.passed_over());
                beside.read = wants.map(|(news, wanted)| self.read_specs(news, wanted));
            }
            Event::Read(Err(error)) => {
                life.read_failed(self.shared.clock.now());
                self.shared.options.metrics.store_failed(Role::Handler);
                outage::note(self.lease.shard, &error, "the shard's news cannot be read");
            }
            Event::Deadline => {}
            Event::Stop => {
                life.stop(self.shared.clock.now());
                beside.read = None;
            }
        }
    }

    /// This input, and those that wait behind it.
    fn take_inputs(&mut self, life: &mut Life, first: Input) {
        let mut next = Some(first);
        let mut left = INPUTS_AT_ONCE;
        let mut now = self.shared.clock.now();
        while let Some(input) = next {
            // For all that were taken or released, the moment of the first will do.
            if !matches!(input, Input::Sent { sent: Sent::Accepted, .. } | Input::Release { .. }) {
                now = self.shared.clock.now();
            }
            self.handle(life, input, now);
            left -= 1;
            next = if left > 0 { self.inputs.try_recv().ok() } else { None };
        }
    }

    async fn next_event(&mut self, life: &Life, beside: &mut Beside) -> Event {
        let wake = life.wake(self.standing(), self.shared.clock.now());
        tokio::select! {
            biased;
            done = finished(&mut beside.commit) => {
                beside.commit = None;
                Event::Committed(done.unwrap_or_else(|error| {
                    Err(CommitError::Unknown(StoreError::Internal(error.to_string())))
                }))
            }
            Some(input) = self.inputs.recv(), if life.is_open() => Event::Input(input),
            done = finished(&mut beside.read) => {
                beside.read = None;
                Event::Read(done.unwrap_or_else(|e| Err(StoreError::Internal(e.to_string()))))
            }
            () = self.stop.cancelled(), if life.may_stop() => Event::Stop,
            () = tokio::task::yield_now(), if !self.outgoing.is_empty() => Event::Deadline,
            () = sleep(&self.shared, wake) => Event::Deadline,
        }
    }

    fn standing(&self) -> Standing {
        self.shared.trust.standing(self.lapses)
    }

    fn begin_commit(&mut self, changes: Changes) -> CommitTask {
        let (store, lease, drift) =
            (self.shared.store.clone(), self.lease.clone(), self.shared.drift.clone());
        let watch = self.watch.commit(&changes);
        // A task of its own: a commit must not be cancelled half-way.
        tokio::spawn(async move {
            let result = store.commit(&lease, &changes).await;
            watch.ended(&result);
            if result.is_ok() {
                drift.committed(lease.shard, &changes);
            }
            result
        })
    }

    fn commit_failed(&self, life: &mut Life, error: &CommitError) {
        let (shard, now) = (self.lease.shard, self.shared.clock.now());
        match error {
            CommitError::Fenced => {
                tracing::warn!(shard, "the shard has another owner");
                life.commit_failed(true, now);
            }
            CommitError::Failed(error) | CommitError::Unknown(error) => {
                outage::note(shard, error, "a commit failed; the shard is loaded anew");
                life.commit_failed(false, now);
            }
        }
    }

    fn tell_reload(&self, why: Why) {
        let shard = self.lease.shard;
        match why {
            Why::CommitFailed => {}
            Why::Lapsed => tracing::debug!(shard, "the lease was not to be trusted for a while"),
            Why::CommitOutlived => {
                tracing::warn!(
                    shard,
                    "a commit outlived the lease; what it allows is dropped, and the shard is loaded anew"
                );
            }
            Why::Mended => {
                tracing::info!(shard, "the store has more of the shard than was loaded; it is loaded anew");
            }
        }
    }

    /// Tells the callers that wait for an answer to try again.
    fn refuse_waiting(&mut self) {
        for (_, reply) in self.replies.drain() {
            // A caller that has gone needs no answer.
            let _gone = reply.send(Replied::TryAgain);
        }
    }
}

fn answer_all(callers: Vec<Caller>) {
    for caller in callers {
        // A caller that has gone needs no answer.
        let _gone = caller.send(());
    }
}

/// The instant at which the monotonic clock shows this.
fn instant(clock: &Clock, at_us: i64) -> Instant {
    let left_us = at_us.saturating_sub(clock.mono_us());
    instant_now() + Duration::from_micros(u64::try_from(left_us).unwrap_or_default())
}

async fn sleep(shared: &Shared, wake: PollTime) {
    match wake.sharp_us {
        Some(at_us) if at_us <= wake.about_us => {
            shared.alarms.at(instant(&shared.clock, at_us).into_std()).await;
        }
        _ => tokio::time::sleep_until(instant(&shared.clock, wake.about_us)).await,
    }
}

async fn finished<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, tokio::task::JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}
