//! Notes what takes time: made when it begins, told how it ended. What is dropped before that is not counted.

use std::sync::Arc;

use tollgate_clock::Clock;
use tollgate_core::handle::change::{Changes, HistoryRow, Outcome};
use tollgate_core::model::{Delivery, EventRef, Now, Run, RunId, Sent, SkipReason};
use tollgate_store::CommitError;
use tollgate_trace::{Ended, EventTrace, Fired, Released, Traceparent, Traces};

use crate::Metrics;
use crate::labels::{CommitFailure, Delivered, Label, ReleaseAnswer, TargetKind};
use crate::owner::Interval;

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
    /// When the input was heard that freed the token which it takes (monotonic).
    freed_us: Option<i64>,
    traced: Option<Box<Traced>>,
}

/// What is known of a delivery before it is made, where it is traced.
#[derive(Debug)]
struct Traced {
    trace: EventTrace,
    delivery: Delivery,
    committed_us: (i64, i64),
}

impl DeliveryWatch {
    pub(crate) fn new(
        metrics: Metrics,
        clock: Clock,
        (run, delivery): (RunId, &Delivery),
        committed_us: (i64, i64),
        freed_us: Option<i64>,
    ) -> Self {
        let trace = metrics.traces().event(run, delivery.index).filter(EventTrace::is_sampled);
        let traced = trace.map(|trace| Box::new(Traced { trace, delivery: delivery.clone(), committed_us }));
        Self {
            metrics,
            clock,
            kind: TargetKind::of(&delivery.spec.target),
            throttled: delivery.spec.policy_uid.is_some(),
            launch_us: (delivery.attempt == 1).then_some(delivery.launch_us),
            freed_us,
            traced,
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
        if let Some(freed_us) = self.freed_us {
            instruments.answer_to_fire.observe_us(began.mono_us - freed_us);
        }
        let sent = send.await;
        let (counts, durations) = instruments.deliveries(self.kind);
        counts.add(Delivered::of(&sent), 1);
        durations.observe_us(self.clock.mono_us() - began.mono_us);
        if let Some(traced) = &self.traced {
            let Traced { trace, delivery, committed_us } = &**traced;
            let fired_us = (began.wall_us, self.clock.wall_us());
            let fired = Fired { delivery, committed_us: *committed_us, fired_us, sent: &sent };
            self.metrics.traces().fired(trace, &fired);
        }
        sent
    }
}

/// A commit of a shard's owner, from its begin to its end.
#[derive(Debug)]
pub struct CommitWatch {
    metrics: Metrics,
    clock: Clock,
    began: Now,
    /// In the order of [`Outcome`]'s labels.
    ended: [u64; Outcome::ALL.len()],
    overlaps: u64,
    /// Where the owner looks for when it was.
    last: Arc<Interval>,
    /// Events that end with it and are traced.
    traced: Vec<Ended>,
    /// Runs that it makes, where traces are on: those of a change inside the emitted horizon.
    runs: Vec<Run>,
}

impl CommitWatch {
    pub(crate) fn new(metrics: Metrics, clock: Clock, changes: &Changes, last: Arc<Interval>) -> Self {
        let mut ended = [0; Outcome::ALL.len()];
        for row in &changes.history {
            let place = Outcome::ALL.iter().position(|(outcome, _)| *outcome == row.outcome);
            if let Some(count) = place.and_then(|place| ended.get_mut(place)) {
                *count += u64::from(row.count);
            }
        }
        let overlaps = changes.skipped.iter().filter(|s| s.reason == SkipReason::Overlap).count() as u64;
        let traced = traced(metrics.traces(), &changes.history);
        let runs = if metrics.traces().is_on() { changes.runs_new.clone() } else { Vec::new() };
        let began = clock.now();
        Self { metrics, clock, began, ended, overlaps, last, traced, runs }
    }

    /// It has ended. What it says has happened only where it is durable for certain.
    pub fn ended(self, result: &Result<(), CommitError>) {
        let instruments = self.metrics.instruments();
        let now = self.clock.now();
        instruments.commit.observe_us(now.mono_us - self.began.mono_us);
        self.last.set(self.began.wall_us, now.wall_us);
        if let Err(error) = result {
            instruments.commit_failures.add(CommitFailure::of(error), 1);
            return;
        }
        for ((outcome, _), count) in Outcome::ALL.iter().zip(self.ended) {
            instruments.events_ended.add(*outcome, count);
        }
        instruments.skipped.add(SkipReason::Overlap, self.overlaps);
        let traces = self.metrics.traces();
        traces.emitted(&self.runs, self.began.wall_us, now.wall_us);
        self.traced.iter().for_each(|ended| traces.ended(ended));
    }
}

/// Those that were delivered at least once; what never started has no spans that wanted a root.
fn traced(traces: &Traces, history: &[HistoryRow]) -> Vec<Ended> {
    if !traces.is_on() {
        return Vec::new();
    }
    let started = history.iter().filter(|row| row.attempt > 0 && row.count == 1);
    let traced = started.filter_map(|row| {
        let trace = traces.event(row.run, row.index).filter(EventTrace::is_sampled)?;
        Some(Ended {
            trace,
            attempts: row.attempt,
            finished_us: row.finished_us,
            outcome: row.outcome.text(),
            is_success: row.outcome == Outcome::Succeeded,
        })
    });
    traced.collect()
}

/// A release, from its arrival to its answer.
#[derive(Debug)]
pub struct ReleaseWatch {
    metrics: Metrics,
    clock: Clock,
    /// Monotonic.
    began_us: i64,
    traced: Option<(EventTrace, Option<u32>, Option<Traceparent>)>,
}

impl ReleaseWatch {
    pub(crate) fn new(metrics: Metrics, clock: Clock) -> Self {
        let began_us = clock.mono_us();
        Self { metrics, clock, began_us, traced: None }
    }

    /// Which event it is about, under which attempt, where it is asked for: nobody needs it while traces are off.
    #[must_use]
    pub fn about(
        mut self,
        parent: Option<Traceparent>,
        event: impl FnOnce() -> Option<(EventRef, Option<u32>)>,
    ) -> Self {
        let traces = self.metrics.traces();
        if traces.is_on() {
            self.traced = event().and_then(|(event, attempt)| {
                let trace = traces.event(event.run, event.index).filter(EventTrace::is_sampled)?;
                Some((trace, attempt, parent))
            });
        }
        self
    }

    /// It is about to be answered.
    pub fn ended(self, answer: ReleaseAnswer) {
        let instruments = self.metrics.instruments();
        instruments.releases.add(answer, 1);
        let took_us = self.clock.mono_us() - self.began_us;
        instruments.release.observe_us(took_us);
        if let Some((trace, attempt, parent)) = self.traced {
            let now_us = self.clock.wall_us();
            let span_us = (now_us - took_us, now_us);
            let is_error = matches!(answer, ReleaseAnswer::Invalid | ReleaseAnswer::Failed);
            let released = Released { attempt, parent, span_us, answer: answer.text(), is_error };
            self.metrics.traces().released(&trace, &released);
        }
    }
}
