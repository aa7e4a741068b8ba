//! The loop around one shard's state machine: next event, handle it, commit, perform.
//!
//! Reads and commits run beside the loop, one of each at most; inputs gather meanwhile, which is what makes a
//! commit large under load. A commit that fails drops the machine; a fresh one is loaded from the store.

mod load;
mod perform;

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tollgate_core::handle::Shard;
use tollgate_core::handle::change::Changes;
use tollgate_store::CommitError;
use tollgate_store::handle::Lease;

use crate::Shared;
use crate::routes::{Input, Replied};
use load::{Loaded, News};

/// How an owner ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was told to; the shard can be handed over.
    Stopped,
    /// Somebody else has the shard.
    Fenced,
}

/// Why the inner loop was left.
enum Left {
    Ended(Ended),
    /// The machine is no longer what the store says: load it anew. With the changed lease, if any.
    Reload,
}

pub(crate) struct Owner {
    shared: Shared,
    lease: Lease,
    inputs: mpsc::UnboundedReceiver<Input>,
    loopback: mpsc::UnboundedSender<Input>,
    stop: CancellationToken,
    replies: HashMap<u64, oneshot::Sender<Replied>>,
    reply_next: u64,
    /// Syncs that wait for a read to begin, for the read under way, and for a commit.
    syncs_new: Vec<oneshot::Sender<()>>,
    syncs_read: Vec<oneshot::Sender<()>>,
    syncs_commit: Vec<(u64, oneshot::Sender<()>)>,
}

type CommitTask = JoinHandle<(Lease, Result<(), CommitError>)>;

/// What happened next.
enum Event {
    Input(Input),
    Committed(Lease, Result<(), CommitError>),
    Read(Result<News, tollgate_store::StoreError>),
    Deadline,
    Stop,
}

impl Owner {
    pub(crate) fn new(
        shared: Shared,
        lease: Lease,
        inputs: mpsc::UnboundedReceiver<Input>,
        loopback: mpsc::UnboundedSender<Input>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            shared,
            lease,
            inputs,
            loopback,
            stop,
            replies: HashMap::new(),
            reply_next: 1,
            syncs_new: Vec::new(),
            syncs_read: Vec::new(),
            syncs_commit: Vec::new(),
        }
    }

    /// Owns the shard until it is told to stop, or has lost it.
    pub(crate) async fn run(mut self) -> (Lease, Ended) {
        loop {
            let machine = match self.load().await {
                Loaded::Machine(machine) => *machine,
                Loaded::Stopped => return (self.lease, Ended::Stopped),
            };
            match self.drive(machine).await {
                Left::Ended(ended) => return (self.lease, ended),
                Left::Reload => {
                    self.refuse_waiting();
                    if !self.take_over_from_self().await {
                        return (self.lease, Ended::Fenced);
                    }
                }
            }
        }
    }

    async fn drive(&mut self, mut machine: Shard) -> Left {
        let poll = Duration::from_millis(self.shared.options.poll_ms);
        let mut commit: Option<CommitTask> = None;
        let mut commit_began_us = 0;
        let mut read: Option<JoinHandle<_>> = Some(self.begin_read(&mut machine));
        let mut read_due = tokio::time::Instant::now() + poll;
        let mut grace: Option<tokio::time::Instant> = None;
        loop {
            if commit.is_none()
                && let Some(next) = machine.poll_commit(self.shared.clock.now())
            {
                commit_began_us = self.shared.clock.now().mono_us;
                commit = Some(self.begin_commit(next.changes));
            }
            if let Some(until) = grace
                && commit.is_none()
                && (machine.sending() == 0 || tokio::time::Instant::now() >= until)
                && machine.durable_after().is_none()
            {
                return Left::Ended(Ended::Stopped);
            }
            let wake_at = self.wake_at(&machine, read_due, grace);
            match self.next_event(&mut commit, &mut read, wake_at, grace.is_some()).await {
                Event::Input(Input::Wake) => read_due = tokio::time::Instant::now(),
                Event::Input(Input::Sync { reply }) => {
                    self.syncs_new.push(reply);
                    read_due = tokio::time::Instant::now();
                }
                Event::Input(input) => self.handle(&mut machine, input),
                Event::Committed(lease, Ok(())) => {
                    self.lease = lease;
                    let effects = machine.committed();
                    let took_us = self.shared.clock.now().mono_us - commit_began_us;
                    if took_us > self.shared.options.lease_ttl_ms * 1000 {
                        tracing::warn!(shard = self.lease.shard, took_us, "a commit outlived the lease");
                        return Left::Reload;
                    }
                    self.perform(effects);
                    self.resolve_syncs(&machine);
                }
                Event::Committed(lease, Err(error)) => {
                    self.lease = lease;
                    return self.commit_failed(error);
                }
                Event::Read(Ok(news)) => {
                    if self.take_in(&mut machine, news) {
                        read_due = tokio::time::Instant::now();
                    }
                }
                Event::Read(Err(error)) => {
                    tracing::warn!(shard = self.lease.shard, %error, "the shard's news cannot be read");
                }
                Event::Deadline => {}
                Event::Stop => {
                    machine.drain();
                    let grace_ms = self.shared.options.stop_grace_ms;
                    grace = Some(tokio::time::Instant::now() + Duration::from_millis(grace_ms));
                }
            }
            if read.is_none() && tokio::time::Instant::now() >= read_due {
                read = Some(self.begin_read(&mut machine));
                read_due = tokio::time::Instant::now() + poll;
            }
        }
    }

    async fn next_event(
        &mut self,
        commit: &mut Option<CommitTask>,
        read: &mut Option<JoinHandle<Result<News, tollgate_store::StoreError>>>,
        wake_at: tokio::time::Instant,
        stopping: bool,
    ) -> Event {
        tokio::select! {
            biased;
            done = finished(commit) => {
                *commit = None;
                match done {
                    Ok((lease, result)) => Event::Committed(lease, result),
                    Err(error) => {
                        let error = tollgate_store::StoreError::Internal(error.to_string());
                        Event::Committed(self.lease.clone(), Err(CommitError::Unknown(error)))
                    }
                }
            }
            Some(input) = self.inputs.recv() => Event::Input(input),
            done = finished(read) => {
                *read = None;
                Event::Read(done.unwrap_or_else(|e| Err(tollgate_store::StoreError::Internal(e.to_string()))))
            }
            () = self.stop.cancelled(), if !stopping => Event::Stop,
            () = tokio::time::sleep_until(wake_at) => Event::Deadline,
        }
    }

    /// When to look again without any input.
    fn wake_at(
        &self,
        machine: &Shard,
        read_due: tokio::time::Instant,
        grace: Option<tokio::time::Instant>,
    ) -> tokio::time::Instant {
        let now = self.shared.clock.now();
        let base = tokio::time::Instant::now();
        let deadline = machine.next_deadline();
        let waits = [deadline.wall_us.map(|t| t - now.wall_us), deadline.mono_us.map(|t| t - now.mono_us)];
        let first = waits.into_iter().flatten().min();
        let wanted = first.map_or(read_due, |wait_us| {
            base + Duration::from_micros(u64::try_from(wait_us).unwrap_or_default())
        });
        wanted.min(read_due.max(base + Duration::from_millis(1))).min(grace.unwrap_or(wanted))
    }

    fn begin_commit(&self, changes: Changes) -> CommitTask {
        let (store, mut lease) = (self.shared.store.clone(), self.lease.clone());
        // A task of its own: a commit must not be cancelled half-way.
        tokio::spawn(async move {
            let result = store.commit(&mut lease, &changes).await;
            (lease, result)
        })
    }

    fn commit_failed(&mut self, error: CommitError) -> Left {
        let shard = self.lease.shard;
        match error {
            CommitError::Fenced => {
                tracing::warn!(shard, "the shard has another owner");
                self.refuse_waiting();
                Left::Ended(Ended::Fenced)
            }
            CommitError::Failed(error) | CommitError::Unknown(error) => {
                tracing::warn!(shard, %error, "a commit failed; the shard is loaded anew");
                Left::Reload
            }
        }
    }

    /// Whoever waits for an answer is told to try again: nothing of theirs is recorded.
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
