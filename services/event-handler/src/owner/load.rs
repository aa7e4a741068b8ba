//! What an owner reads: all of its shard after a takeover, news later.

use std::time::Duration;

use tokio::task::JoinHandle;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::{Context, Needs, Shard, State};
use tollgate_core::model::{Run, RunSpec, SECOND_US, Sent};
use tollgate_metrics::Role;
use tollgate_store::{Store, StoreError};

use super::Owner;
use crate::outage;

/// How many emitted runs, and how many messages, one read takes.
const READ_MAX: u32 = 2_000;
/// Waits between tries to load a shard, in milliseconds.
const RETRY_MS: [u64; 5] = [100, 500, 1_000, 2_000, 5_000];

pub(super) enum Loaded {
    Machine(Box<Shard>),
    Stopped,
}

/// What is new in the store.
pub(super) struct News {
    runs: Vec<Run>,
    specs: Vec<RunSpec>,
    messages: Vec<(Message, Context)>,
    /// There may be more.
    full: bool,
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
        let state = State {
            policies: loaded.policies,
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
        let news = self.begin_read(&mut machine).await;
        let news = news.map_err(|error| StoreError::Internal(error.to_string()))??;
        self.more = self.take_in(&mut machine, news);
        let now = self.shared.clock.now();
        machine.wait_for(std::mem::take(&mut self.under_way), now);
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
        let until_us = self.shared.clock.wall_us() + self.shared.options.load_ahead_s * SECOND_US;
        tokio::spawn(async move { read_news(&*store, shard, until_us).await })
    }

    /// Hands news to the machine. True if there may be more.
    pub(super) fn take_in(&mut self, machine: &mut Shard, news: News) -> bool {
        let now = self.shared.clock.now();
        // Messages first: a run may need the policy or the fence that they bring.
        for (message, context) in news.messages {
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
        machine.adopt(news.runs, news.specs, now);
        if news.full {
            self.syncs.read_goes_on();
        } else {
            machine.caught_up(self.read_began_us);
            self.syncs.read_ended(machine.durable_after().unwrap_or_default());
        }
        self.syncs.durable(machine.commits());
        news.full
    }
}

/// Emitted runs are read before messages, so that what a run needs is among the messages.
async fn read_news(store: &dyn Store, shard: u16, until_us: i64) -> Result<News, StoreError> {
    let (runs, specs) = store.emitted_runs(shard, until_us, READ_MAX).await?;
    let inbox = store.inbox(shard, READ_MAX).await?;
    let full = runs.len() == READ_MAX as usize || inbox.len() == READ_MAX as usize;
    let mut messages = Vec::with_capacity(inbox.len());
    for message in inbox {
        match read_context(store, shard, &Needs::of(&message.control)).await {
            Ok(context) => messages.push((message, context)),
            // It stays in the inbox until what it is about can be read; the others go on.
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::debug!(shard, message = %message.id, %error, "a message waits");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(News { runs, specs, messages, full })
}

async fn read_context(store: &dyn Store, shard: u16, needs: &Needs) -> Result<Context, StoreError> {
    let mut context = Context::default();
    if !needs.runs.is_empty() {
        context.runs = store.runs(shard, &needs.runs).await?;
    }
    let mut keys = needs.specs.clone();
    keys.extend(context.runs.iter().map(|r| (r.schedule_uid, r.generation)));
    keys.sort_unstable();
    keys.dedup();
    if !keys.is_empty() {
        context.specs = store.specs(shard, &keys).await?;
    }
    if let Some((run, indexes)) = &needs.dead {
        context.dead = store.dead_events(shard, *run, indexes, READ_MAX).await?;
    }
    Ok(context)
}
