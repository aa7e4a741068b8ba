//! Notes what takes time: made when it begins, told how it ended. What is dropped before that is not counted.

use tollgate_clock::Clock;
use tollgate_core::handle::change::{Changes, Outcome};
use tollgate_core::model::{Delivery, Sent, SkipReason};
use tollgate_store::CommitError;

use crate::Metrics;
use crate::labels::{CommitFailure, Delivered, Label, ReleaseAnswer, TargetKind};

/// A delivery, from just before it is made to its answer.
#[derive(Debug)]
pub struct DeliveryWatch {
    metrics: Metrics,
    clock: Clock,
    kind: TargetKind,
    /// Whether a policy may have kept it waiting.
    throttled: bool,
    /// When the event fell due, for its first delivery.
    launch_us: Option<i64>,
}

impl DeliveryWatch {
    pub(crate) fn new(metrics: Metrics, clock: Clock, delivery: &Delivery) -> Self {
        Self {
            metrics,
            clock,
            kind: TargetKind::of(&delivery.spec.target),
            throttled: delivery.spec.policy_uid.is_some(),
            launch_us: (delivery.attempt == 1).then_some(delivery.launch_us),
        }
    }

    /// Makes the delivery.
    pub async fn over(self, send: impl Future<Output = Sent>) -> Sent {
        let began = self.clock.now();
        let instruments = self.metrics.instruments();
        if let Some(launch_us) = self.launch_us {
            let [free, throttled] = &instruments.lateness;
            let lateness = if self.throttled { throttled } else { free };
            lateness.observe_us(began.wall_us - launch_us);
        }
        let sent = send.await;
        let (counts, durations) = instruments.deliveries(self.kind);
        counts.add(Delivered::of(&sent), 1);
        durations.observe_us(self.clock.now().mono_us - began.mono_us);
        sent
    }
}

/// A commit of a shard's owner, from its begin to its end.
#[derive(Debug)]
pub struct CommitWatch {
    metrics: Metrics,
    clock: Clock,
    began_us: i64,
    /// In the order of [`Outcome`]'s labels.
    ended: [u64; Outcome::ALL.len()],
    overlaps: u64,
}

impl CommitWatch {
    pub(crate) fn new(metrics: Metrics, clock: Clock, changes: &Changes) -> Self {
        let mut ended = [0; Outcome::ALL.len()];
        for row in &changes.history {
            let place = Outcome::ALL.iter().position(|(outcome, _)| *outcome == row.outcome);
            if let Some(count) = place.and_then(|place| ended.get_mut(place)) {
                *count += u64::from(row.count);
            }
        }
        let overlaps = changes.skipped.iter().filter(|s| s.reason == SkipReason::Overlap).count() as u64;
        let began_us = clock.now().mono_us;
        Self { metrics, clock, began_us, ended, overlaps }
    }

    /// It has ended. What it says has happened only where it is durable for certain.
    pub fn ended(self, result: &Result<(), CommitError>) {
        let instruments = self.metrics.instruments();
        instruments.commit.observe_us(self.clock.now().mono_us - self.began_us);
        if let Err(error) = result {
            instruments.commit_failures.add(CommitFailure::of(error), 1);
            return;
        }
        for ((outcome, _), count) in Outcome::ALL.iter().zip(self.ended) {
            instruments.events_ended.add(*outcome, count);
        }
        instruments.skipped.add(SkipReason::Overlap, self.overlaps);
    }
}

/// A release, from its arrival to its answer.
#[derive(Debug)]
pub struct ReleaseWatch {
    metrics: Metrics,
    clock: Clock,
    began_us: i64,
}

impl ReleaseWatch {
    pub(crate) fn new(metrics: Metrics, clock: Clock) -> Self {
        let began_us = clock.now().mono_us;
        Self { metrics, clock, began_us }
    }

    /// It is about to be answered.
    pub fn ended(self, answer: ReleaseAnswer) {
        let instruments = self.metrics.instruments();
        instruments.releases.add(answer, 1);
        instruments.release.observe_us(self.clock.now().mono_us - self.began_us);
    }
}
