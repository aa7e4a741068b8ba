//! One queue: its receivers, its batches, and what it does while the service is away. It shares nothing with other queues.
//!
//! In: messages. Out: their ends ([`Settler`]). Invariants: batches are carried out one after the other; while the service is
//! away nothing more is asked for, and what is in hand stays so; after a stop, what has not begun is given back at once. Where
//! messages come from is no business of this file ([`crate::source::Source`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tollgate_clock::instant_now;
use tonic::Code;

use crate::api::{Api, Connection, Done, Outcome};
use crate::backoff::Backoff;
use crate::carry::{Outcomes, carry_out};
use crate::command::Command;
use crate::config::QueueConfig;
use crate::counts::{Counts, Ending};
use crate::fault::Fault;
use crate::hands::{Arrived, MESSAGES_MAX};
use crate::intake::Intake;
use crate::message::Received;
use crate::patience::Patience;
use crate::read::{Scope, read_body};
use crate::settle::{End, Held, Settler};
use crate::source::Ways;

/// How long a batch is gathered, and how much it may have.
const GATHER: Duration = Duration::from_millis(50);
const COMMANDS_MAX: usize = 100;
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// The most ends of ten messages under way at once.
const SETTLING_MAX: usize = 8;
/// How long what is under way may take after a stop.
const GRACE: Duration = Duration::from_secs(10);
/// And how long it may take to give the rest back.
const GIVE_BACK: Duration = Duration::from_secs(3);

/// One queue that is read.
pub(crate) struct Reader {
    config: QueueConfig,
    scope: Scope,
    api: Api,
    settler: Settler,
    counts: Arc<Counts>,
    patience: Patience,
    settling: Arc<Semaphore>,
    tracker: TaskTracker,
    /// Whether messages are asked for.
    open: watch::Sender<bool>,
}

/// A command that has no outcome yet.
type Pending = (BTreeMap<usize, Command>, BTreeMap<usize, Held>);

impl Reader {
    /// A queue, of which nothing is read yet.
    ///
    /// # Errors
    /// A queue that cannot be read by its configuration.
    pub(crate) async fn new(
        config: QueueConfig,
        connection: &Connection,
        stop: CancellationToken,
    ) -> Result<Self, String> {
        let Ways { source, replies, dead_letters, counts } = Ways::of(&config).await?;
        let end = CancellationToken::new();
        Ok(Self {
            scope: Scope { namespace: config.namespace.clone(), allow: config.allow.clone() },
            api: Api::new(connection, &config),
            settler: Settler { source, replies, dead_letters, counts: counts.clone(), stop, end },
            counts,
            patience: Patience::default(),
            settling: Arc::new(Semaphore::new(SETTLING_MAX)),
            tracker: TaskTracker::new(),
            open: watch::Sender::new(true),
            config,
        })
    }

    pub(crate) fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Reads until it is told to stop, ends what is under way, and gives the rest back.
    pub(crate) async fn run(self) {
        let stop = self.settler.stop.clone();
        let QueueConfig { name, namespace, source, .. } = &self.config;
        tracing::info!("queue {name}: commands of {source} go to the namespace {namespace}");
        let this = Arc::new(self);
        // What a source does ends with this one, however that ends.
        let _end = this.settler.end.clone().drop_guard();
        let (arrivals, mut arriving) = mpsc::channel(this.config.in_hand);
        let intake = Intake {
            counts: this.counts.clone(),
            arrivals,
            open: this.open.subscribe(),
            stop: stop.clone(),
            end: this.settler.end.clone(),
        };
        let mut beside = JoinSet::new();
        this.settler.source.start(&mut beside, this.config.in_hand, intake);
        beside.spawn(this.clone().look());
        let work = this.work(&mut arriving, &stop);
        let grace = async {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        let mut work = std::pin::pin!(work);
        let left = tokio::select! {
            left = &mut work => Some(left),
            () = grace => None,
        };
        this.settler.end.cancel();
        beside.abort_all();
        // Whatever has a place yet has not come to its end.
        let rest: Vec<String> =
            this.counts.hands.due(Duration::ZERO).into_iter().map(|(_, receipt)| receipt).collect();
        let count = rest.len();
        let given_back = tokio::time::timeout(GIVE_BACK, this.settler.source.give_back(rest)).await.is_ok();
        if count > 0 {
            tracing::info!("queue {}: {count} messages are left in the queue", this.config.name);
        }
        if !given_back || left.is_none() {
            tracing::warn!(
                "queue {}: not everything came to its end within the grace of a stop",
                this.config.name
            );
        }
        drop(left);
    }

    /// Says at the start which of its queues cannot be used.
    async fn look(self: Arc<Self>) {
        let Settler { source, replies, dead_letters, .. } = &self.settler;
        let [_, reply_field, dead_letter_field] = self.config.source.words();
        let (name, field) = (&self.config.name, self.config.source.field());
        if let Err(said) = source.look().await {
            tracing::warn!("queue {name}: {field}: {said}");
        }
        for (field, outlet) in [(reply_field, replies), (dead_letter_field, dead_letters)] {
            if let Some(outlet) = outlet
                && let Err(said) = outlet.look().await
            {
                tracing::warn!("queue {name}: {field}: {said}");
            }
        }
    }

    /// Carries out one batch after the other. What is left after a stop keeps its places.
    async fn work(&self, arriving: &mut mpsc::Receiver<Arrived>, stop: &CancellationToken) -> Vec<Arrived> {
        let mut left = Vec::new();
        loop {
            let first = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                first = arriving.recv() => first,
            };
            let Some(first) = first else { break };
            let batch = gather(first, arriving).await;
            left = self.batch(batch, stop).await;
            if !left.is_empty() {
                break;
            }
        }
        // Receivers hold back until they know of the stop.
        while let Some(arrived) = arriving.recv().await {
            left.push(arrived);
        }
        if !stop.is_cancelled() {
            // Nothing comes any more, and nobody has asked for that: what waits to be sent would wait for ever.
            self.settler.end.cancel();
        }
        self.tracker.close();
        self.tracker.wait().await;
        left
    }

    /// Carries out a batch, however long the service is away. Gives back what a stop has left of it.
    async fn batch(&self, batch: Vec<Arrived>, stop: &CancellationToken) -> Vec<Arrived> {
        let (mut pending, refused) = self.sorted(batch);
        self.settle(refused).await;
        let (mut backoff, mut tries) = (Backoff::default(), 0);
        while !pending.0.is_empty() {
            let (outcomes, away) = carry_out(&self.api, &pending.0, tries).await;
            if !outcomes.is_empty() {
                backoff = Backoff::default();
            }
            self.settle(self.ended(&mut pending, outcomes)).await;
            let Some(away) = away else {
                self.counts.service.worked();
                continue;
            };
            tries += 1;
            self.open.send_replace(false);
            self.counts.service.failed(&Fault::of_status(&away.status).text());
            if away.status.code() == Code::Unauthenticated {
                self.api.read_key();
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(backoff.next(away.wait)) => {}
            }
            self.drop_lost(&mut pending);
        }
        if pending.0.is_empty() {
            // Also where all that was left has gone to another process: the next batch tells how the service is.
            self.open.send_replace(true);
        }
        pending.1.into_values().map(|held| (held.message, held.place)).collect()
    }

    /// What another process has by now is no longer this one's to begin.
    fn drop_lost(&self, (commands, held): &mut Pending) {
        held.retain(|_, held| self.settler.source.is_ours(&held.message));
        commands.retain(|at, _| held.contains_key(at));
    }

    /// Commands, and what cannot be one.
    fn sorted(&self, batch: Vec<Arrived>) -> (Pending, Vec<(Held, End)>) {
        let (mut commands, mut held, mut refused) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let ours = batch.into_iter().filter(|(message, _)| self.settler.source.is_ours(message));
        for (at, (message, place)) in ours.enumerate() {
            let known = read_body(&message.body, &self.scope);
            let one = Held { message, place, label: known.label };
            match known.command {
                Ok(command) => {
                    commands.insert(at, command);
                    held.insert(at, one);
                }
                Err(fault) => refused.push((one, End::Refused(fault))),
            }
        }
        ((commands, held), refused)
    }

    /// The ends of those that have an outcome.
    fn ended(&self, pending: &mut Pending, outcomes: Outcomes) -> Vec<(Held, End)> {
        let end = |(at, outcome)| {
            pending.0.remove(&at);
            let held = pending.1.remove(&at)?;
            let end = self.end(&held.message, outcome);
            Some((held, end))
        };
        outcomes.into_iter().filter_map(end).collect()
    }

    fn end(&self, message: &Received, outcome: Outcome) -> End {
        let end = match outcome {
            Outcome::Done(done) => {
                End::Done(if done.unchanged { Ending::Unchanged } else { Ending::Done }, done)
            }
            Outcome::Outdated => End::Done(Ending::Outdated, Done::default()),
            Outcome::Refused(fault) => End::Refused(fault),
            Outcome::Early(fault) => self.again(message, fault, soon, self.config.not_found_for),
            Outcome::Later(fault) => {
                let (queue, id) = (&self.config.name, &message.id);
                let (times, said) = (message.times, fault.text());
                tracing::info!(queue, message_id = id, times, "comes again: {said}");
                self.again(message, fault, later, self.config.give_up_after)
            }
        };
        if !matches!(end, End::Later(_)) {
            self.patience.forget(&message.id);
        }
        end
    }

    /// A command comes again after a pause, unless it has waited for so long; by its receptions where that is not known.
    fn again(
        &self,
        message: &Received,
        fault: Fault,
        pauses: fn(u32) -> Duration,
        waits_max: Duration,
    ) -> End {
        let pause = pauses(message.times);
        let waited = self.patience.judged(&message.id, pause, instant_now());
        let waited = waited.unwrap_or_else(|| (1..message.times.min(10_000)).map(pauses).sum());
        if waited >= waits_max { End::Refused(fault) } else { End::Later(pause) }
    }

    /// Ends messages, ten in a call, beside what comes next.
    async fn settle(&self, ended: Vec<(Held, End)>) {
        let mut ended = ended.into_iter().peekable();
        while ended.peek().is_some() {
            let some: Vec<(Held, End)> = ended.by_ref().take(MESSAGES_MAX).collect();
            let Ok(turn) = self.settling.clone().acquire_owned().await else { return };
            let settler = self.settler.clone();
            self.tracker.spawn(async move {
                // What waits here for Kafka holds up nobody; it is bounded by what may be in hand.
                let turn = Some(turn).filter(|_| !settler.source.holds_on());
                let unsent = settler.settle(some).await;
                drop(turn);
                settler.persist(unsent).await;
            });
        }
    }
}

/// When a command comes again that may have overtaken what it needs.
fn soon(times: u32) -> Duration {
    Duration::from_secs(1 << times.saturating_sub(1).min(4)).min(Duration::from_secs(15))
}

/// When a command comes again that was not carried out while the service works.
fn later(times: u32) -> Duration {
    Duration::from_secs(2 << times.saturating_sub(1).min(7)).min(Duration::from_secs(300))
}

/// What comes within a moment, as much as a batch may have.
async fn gather(first: Arrived, arriving: &mut mpsc::Receiver<Arrived>) -> Vec<Arrived> {
    let until = instant_now() + GATHER;
    let mut bytes = first.0.body.len();
    let mut batch = vec![first];
    while batch.len() < COMMANDS_MAX && bytes < BYTES_MAX {
        match tokio::time::timeout_at(until, arriving.recv()).await {
            Ok(Some(next)) => {
                bytes += next.0.body.len();
                batch.push(next);
            }
            Ok(None) | Err(_) => break,
        }
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hands::Hands;
    use crate::message::Origin;

    #[test]
    fn what_comes_again_comes_ever_more_rarely() {
        let spans = |span: fn(u32) -> Duration| [1, 2, 3, 9, 100].map(|times| span(times).as_secs());
        assert_eq!(spans(soon), [1, 2, 4, 15, 15]);
        assert_eq!(spans(later), [2, 4, 8, 256, 256]);
    }

    #[tokio::test]
    async fn a_batch_is_no_larger_than_it_may_be() {
        let hands = Hands::new(1_000);
        let (arrivals, mut arriving) = mpsc::channel(1_000);
        for _ in 0..25 {
            let mut room = hands.room().await;
            for _ in 0..10 {
                let origin = Origin::Sqs { receipt: String::new(), group: None };
                let body = vec![b'x'; 1_000];
                let message = Received { id: String::new(), body, sent_ms: 0, times: 1, origin };
                let place = room.take(&message, instant_now());
                assert!(arrivals.try_send((message, place)).is_ok());
            }
        }
        let mut sizes = Vec::new();
        while let Ok(first) = arriving.try_recv() {
            sizes.push(gather(first, &mut arriving).await.len());
        }
        assert_eq!(sizes, [100, 100, 50]);
    }
}
