//! What the services note as it happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use tollgate_clock::Clock;
use tollgate_core::handle::change::Outcome;
use tollgate_core::model::SkipReason;
use tollgate_trace::Traces;

use crate::histogram::Histogram;
use crate::labels::{
    AlertMessage, Bound, CommitFailure, Counters, Delivered, Label as _, ListFetched, ReleaseAnswer, Role,
    StepLaunched, TakenFrom, TargetKind,
};
use crate::owner::OwnerWatch;
use crate::recent::Recent;
use crate::watch::ReleaseWatch;

/// The end of a certificate that there is not.
const NO_CERTIFICATE: i64 = i64::MIN;

/// The process's instruments. Cheap to clone; all clones are one. Everything counts from the start of the process.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Instruments>);

#[derive(Debug)]
pub(crate) struct Instruments {
    pub(crate) traces: Traces,
    /// Of first deliveries, without and with a policy.
    pub(crate) lateness: [Histogram; 2],
    pub(crate) answer_to_fire: Histogram,
    pub(crate) deliveries_http: Counters<Delivered>,
    pub(crate) deliveries_sqs: Counters<Delivered>,
    pub(crate) deliveries_kafka: Counters<Delivered>,
    pub(crate) deliveries_pull: Counters<Delivered>,
    pub(crate) delivery_http: Histogram,
    pub(crate) delivery_sqs: Histogram,
    pub(crate) delivery_kafka: Histogram,
    pub(crate) delivery_pull: Histogram,
    pub(crate) events_ended: Counters<Outcome>,
    pub(crate) releases: Counters<ReleaseAnswer>,
    pub(crate) release: Histogram,
    pub(crate) reclaimed: AtomicU64,
    pub(crate) commit: Histogram,
    pub(crate) recent_commits: Recent,
    pub(crate) commit_failures: Counters<CommitFailure>,
    pub(crate) store_failures: Counters<Role>,
    pub(crate) shards_taken: Counters<TakenFrom>,
    pub(crate) heartbeats: AtomicU64,
    pub(crate) skipped: Counters<SkipReason>,
    pub(crate) clock_offset_us: AtomicI64,
    pub(crate) outbox_waiting: AtomicU64,
    pub(crate) refused: Counters<Bound>,
    pub(crate) alert_messages: Counters<AlertMessage>,
    pub(crate) lists: Counters<ListFetched>,
    pub(crate) steps: Counters<StepLaunched>,
    /// When the port's certificate ends, in seconds since the epoch; none without TLS.
    pub(crate) certificate_end_s: AtomicI64,
    pub(crate) certificate_stale: AtomicBool,
}

impl Default for Instruments {
    fn default() -> Self {
        Self {
            traces: Traces::default(),
            answer_to_fire: Histogram::calls(),
            lateness: [Histogram::lateness(), Histogram::lateness()],
            deliveries_http: Counters::default(),
            deliveries_sqs: Counters::default(),
            deliveries_kafka: Counters::default(),
            deliveries_pull: Counters::default(),
            delivery_http: Histogram::calls(),
            delivery_sqs: Histogram::calls(),
            delivery_kafka: Histogram::calls(),
            delivery_pull: Histogram::calls(),
            events_ended: Counters::default(),
            releases: Counters::default(),
            release: Histogram::calls(),
            reclaimed: AtomicU64::new(0),
            commit: Histogram::calls(),
            recent_commits: Recent::default(),
            commit_failures: Counters::default(),
            store_failures: Counters::default(),
            shards_taken: Counters::default(),
            heartbeats: AtomicU64::new(0),
            skipped: Counters::default(),
            clock_offset_us: AtomicI64::new(0),
            outbox_waiting: AtomicU64::new(0),
            refused: Counters::default(),
            alert_messages: Counters::default(),
            lists: Counters::default(),
            steps: Counters::default(),
            certificate_end_s: AtomicI64::new(NO_CERTIFICATE),
            certificate_stale: AtomicBool::new(false),
        }
    }
}

impl Metrics {
    pub(crate) fn instruments(&self) -> &Instruments {
        &self.0
    }

    /// Instruments that write spans, too.
    pub fn with_traces(traces: Traces) -> Self {
        Self(Arc::new(Instruments { traces, ..Instruments::default() }))
    }

    /// Where spans go.
    pub fn traces(&self) -> &Traces {
        &self.0.traces
    }

    /// Watches over the owner of a queue shard.
    pub fn owner(&self, clock: &Clock) -> OwnerWatch {
        OwnerWatch::new(self.clone(), clock.clone())
    }

    /// Watches over a release that has come in now.
    pub fn release(&self, clock: &Clock) -> ReleaseWatch {
        ReleaseWatch::new(self.clone(), clock.clone())
    }

    /// Counts tokens of silent consumers that have been taken back.
    pub fn reclaimed(&self, tokens: u64) {
        self.0.reclaimed.fetch_add(tokens, Ordering::Relaxed);
    }

    /// The store has failed a role. Commits of a shard's owner count by themselves.
    pub fn store_failed(&self, role: Role) {
        self.0.store_failures.add(role, 1);
    }

    /// Counts triggers that have been recorded as making no run. The emitter counts its own.
    pub fn skipped(&self, reason: SkipReason, triggers: u64) {
        self.0.skipped.add(reason, triggers);
    }

    /// This process has taken a queue shard that was `owner`'s; nobody's where empty.
    pub fn shard_taken(&self, owner: &str, process: &str) {
        let from = match owner {
            "" => TakenFrom::Nobody,
            owner if owner == process => TakenFrom::Itself,
            _ => TakenFrom::Dead,
        };
        self.0.shards_taken.add(from, 1);
    }

    /// A sign of life of this process is in the store. `now_us` is of the monotonic clock.
    pub fn heartbeat(&self, now_us: i64) {
        self.0.recent_commits.look(&self.0.commit, now_us);
        self.0.heartbeats.fetch_add(1, Ordering::Relaxed);
    }

    /// By how much the machine's clock is ahead, in microseconds: of the database's, or of the time that is held.
    pub fn clock_offset(&self, offset_us: i64) {
        self.0.clock_offset_us.store(offset_us, Ordering::Relaxed);
    }

    /// How many notices of changes waited in the outbox at the latest look.
    pub fn outbox_waiting(&self, notices: u64) {
        self.0.outbox_waiting.store(notices, Ordering::Relaxed);
    }

    /// Counts a call that was turned away, as others have the room. A line in the log says so the first, second, fourth,
    /// eighth, … time.
    pub fn refused(&self, bound: Bound) {
        let times = self.0.refused.add(bound, 1) + 1;
        if times.is_power_of_two() {
            tracing::warn!(bound = bound.text(), times, "refused for want of room");
        }
    }

    /// Counts attempts to deliver messages of alerts.
    pub fn alert_messages(&self, result: AlertMessage, messages: u64) {
        self.0.alert_messages.add(result, messages);
    }

    /// Counts an attempt to fetch the list of a run, or one that is given up.
    pub fn list_fetched(&self, result: ListFetched) {
        self.0.lists.add(result, 1);
    }

    /// Counts ends of runs that another one follows, by what became of them.
    pub fn step_launched(&self, result: StepLaunched, ends: u64) {
        self.0.steps.add(result, ends);
    }

    /// When the certificate with which the port speaks ends, in seconds since the epoch.
    pub fn certificate_ends(&self, end_s: i64) {
        self.0.certificate_end_s.store(end_s, Ordering::Relaxed);
    }

    /// Whether the files of the certificate hold another one that cannot be used.
    pub fn certificate_stale(&self, is_stale: bool) {
        self.0.certificate_stale.store(is_stale, Ordering::Relaxed);
    }

    /// Commits of the last minute or so, and how many of them took longer than a second. `now_us` is of the monotonic
    /// clock.
    pub fn recent_commits(&self, now_us: i64) -> (u64, u64) {
        self.0.recent_commits.since_a_minute(&self.0.commit, now_us)
    }

    /// Signs of life so far.
    pub fn heartbeats(&self) -> u64 {
        self.0.heartbeats.load(Ordering::Relaxed)
    }
}

impl Instruments {
    /// When the port's certificate ends, in seconds since the epoch; none without TLS.
    pub(crate) fn certificate_end_s(&self) -> Option<i64> {
        Some(self.certificate_end_s.load(Ordering::Relaxed)).filter(|end_s| *end_s != NO_CERTIFICATE)
    }

    pub(crate) fn deliveries(&self, kind: TargetKind) -> (&Counters<Delivered>, &Histogram) {
        match kind {
            TargetKind::Http => (&self.deliveries_http, &self.delivery_http),
            TargetKind::Sqs => (&self.deliveries_sqs, &self.delivery_sqs),
            TargetKind::Kafka => (&self.deliveries_kafka, &self.delivery_kafka),
            TargetKind::Pull => (&self.deliveries_pull, &self.delivery_pull),
        }
    }
}
