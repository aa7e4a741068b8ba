//! Reads a topic as a member of a consumer group, and writes answers and dead letters to other topics of the cluster.
//!
//! In: records. Out: messages in their places, and offsets that are committed. Invariants: the offset that is committed for a
//! partition is that of the first record that has not come to its end; nothing is committed for an assignment that is over; what
//! has to come again waits here, in its place, while later records go on. `offsets` decides what may be committed, `member` is
//! the thread that speaks with the group, `listener` hears of assignments and commits, `brokers` tells of a single bad broker,
//! `topic` writes.

mod brokers;
mod listener;
mod member;
mod offsets;
mod topic;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::KafkaConfig;
use crate::counts::Counts;
use crate::hands::Arrived;
use crate::intake::Intake;
use crate::message::{Mark, Origin, Received};

pub(crate) use topic::Topic;

use brokers::Brokers;
use member::Member;
use offsets::Offsets;

/// A topic that is read by a group.
#[derive(Clone)]
pub(crate) struct Group {
    topic: Topic,
    shared: Arc<Shared>,
}

/// What a group's thread and those who end its messages have together.
struct Shared {
    config: KafkaConfig,
    counts: Arc<Counts>,
    brokers: Brokers,
    offsets: Mutex<Offsets>,
    /// Counts assignments that are over.
    revoked: watch::Sender<u64>,
    /// Where messages go that come again.
    again: OnceLock<Again>,
    /// The group has been left.
    left: CancellationToken,
}

/// The way for what comes again, as long as anything comes; and when nothing does any more.
struct Again {
    arrivals: mpsc::WeakSender<Arrived>,
    end: CancellationToken,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Group").field(&self.shared.config).finish()
    }
}

impl Group {
    /// Of a topic, of which nothing is read yet.
    pub(crate) fn new(config: &KafkaConfig, topic: Topic, counts: Arc<Counts>) -> Self {
        let shared = Shared {
            config: config.clone(),
            brokers: Brokers::new(&counts.queue),
            counts,
            offsets: Mutex::default(),
            revoked: watch::Sender::new(0),
            again: OnceLock::new(),
            left: CancellationToken::new(),
        };
        Self { topic, shared: Arc::new(shared) }
    }

    /// Joins the group, and reads until the intake's stop; leaves it at its end, with all that has ended committed.
    pub(crate) fn start(&self, beside: &mut JoinSet<()>, intake: Intake) {
        let Intake { counts: _, arrivals, open, stop, end } = intake;
        let weak = arrivals.downgrade();
        let _first = self.shared.again.set(Again { arrivals: weak.clone(), end: end.clone() });
        let shared = self.shared.clone();
        let (left, stopped) = (shared.left.clone(), stop.clone());
        // A thread that waits for brokers keeps nobody from the end.
        beside.spawn(async move {
            let _arrivals = arrivals;
            tokio::select! {
                () = stopped.cancelled() => {}
                () = left.cancelled() => {}
            }
        });
        let name = format!("kafka {}", shared.config.topic);
        let started = std::thread::Builder::new().name(name).spawn(move || {
            let _left = shared.left.clone().drop_guard();
            Member::new(&shared, weak, open, (stop, end)).run();
        });
        if let Err(error) = started {
            // Its intake is gone with it, so its queue ends, and is told of.
            tracing::error!(queue = self.shared.counts.queue, "cannot start a thread for Kafka: {error}");
            self.shared.left.cancel();
        }
    }

    /// Whether the partition of a message has been this process's since it was read.
    pub(crate) fn is_ours(&self, message: &Received) -> bool {
        mark_of(message).is_some_and(|mark| self.shared.offsets().is_current(mark))
    }

    /// A message has come to its end.
    pub(crate) fn ended(&self, message: &Received) {
        if let Some(mark) = mark_of(message) {
            self.shared.offsets().ended(mark);
        }
    }

    /// A message comes again after this time, in its place, unless its partition goes to another process before.
    pub(crate) fn put_off(&self, (mut message, place): Arrived, span: Duration) {
        let (Some(mark), shared) = (mark_of(&message), self.shared.clone()) else { return };
        message.times = message.times.saturating_add(1);
        tokio::spawn(async move {
            let Some(again) = shared.again.get() else { return };
            tokio::select! {
                () = again.end.cancelled() => {}
                () = shared.lost(mark) => {}
                () = tokio::time::sleep(span) => {
                    if let Some(arrivals) = again.arrivals.upgrade() {
                        // Whoever takes no more leaves it to the next start.
                        let _taken = arrivals.send((message, place)).await;
                    }
                }
            }
        });
    }

    /// Waits until the group has been left.
    pub(crate) async fn left(&self) {
        self.shared.left.cancelled().await;
    }

    /// Whether the topic is there.
    pub(crate) async fn look(&self) -> Result<(), String> {
        self.topic.look().await
    }
}

fn mark_of(message: &Received) -> Option<Mark> {
    match &message.origin {
        Origin::Kafka(record) => Some(record.mark),
        Origin::Sqs { .. } => None,
    }
}

impl Shared {
    fn offsets(&self) -> MutexGuard<'_, Offsets> {
        // Each change is one call, so a panic elsewhere leaves nothing half done.
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Partitions are read from now on.
    fn assign(&self, partitions: &[i32]) {
        let count = self.offsets().assigned(partitions);
        self.counts.partitions.store(count as u64, Ordering::Relaxed);
    }

    /// Partitions are read no more.
    fn revoke(&self, partitions: &[i32]) {
        let count = self.offsets().revoked(partitions);
        self.counts.partitions.store(count as u64, Ordering::Relaxed);
        self.revoked.send_modify(|times| *times += 1);
    }

    /// Waits until the assignment of a mark is over.
    async fn lost(&self, mark: Mark) {
        let mut revoked = self.revoked.subscribe();
        while self.offsets().is_current(mark) {
            if revoked.changed().await.is_err() {
                return;
            }
        }
    }
}
