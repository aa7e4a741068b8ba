//! Decides what each span says.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tollgate_core::model::{Delivery, Run, RunId, Sent, Target};

use crate::id::{EventTrace, SpanSubject, Traceparent, of_run};

/// A delivery, from the commit that allowed it to its answer. Times are in microseconds of the wall clock.
#[derive(Clone, Debug)]
pub struct Fired<'a> {
    /// What was delivered.
    pub delivery: &'a Delivery,
    /// When the commit that took its token began, and when it was durable.
    pub committed_us: (i64, i64),
    /// When the delivery began, and when its answer was there.
    pub fired_us: (i64, i64),
    /// The answer.
    pub sent: &'a Sent,
}

/// A call that gives a token back, and its answer. Times are in microseconds of the wall clock.
#[derive(Clone, Debug)]
pub struct Released {
    /// The attempt, where the caller named one.
    pub attempt: Option<u32>,
    /// The caller's own span.
    pub parent: Option<Traceparent>,
    /// When the call came, and when it was answered.
    pub span_us: (i64, i64),
    /// What the caller was told.
    pub answer: &'static str,
    /// Whether the caller was told of an error.
    pub is_error: bool,
}

/// The end of an event that had been delivered.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The event.
    pub trace: EventTrace,
    /// Deliveries.
    pub attempts: u32,
    /// When it ended, in microseconds of the wall clock.
    pub finished_us: i64,
    /// How it ended.
    pub outcome: &'static str,
    /// Whether its work was done.
    pub is_success: bool,
}

pub(crate) fn emit(run: &Run, began_us: i64, ended_us: i64) -> SpanData {
    let (trace_id, span_id) = of_run(run.id);
    let mut span = new("emit", SpanKind::Internal, (trace_id, span_id), None, (began_us, ended_us));
    span.attributes = vec![
        KeyValue::new("tollgate.namespace", run.namespace.clone()),
        KeyValue::new("tollgate.schedule", run.schedule_id.clone()),
        KeyValue::new("tollgate.run", format!("{:02x}-{}", run.named_shard(), run.id)),
        KeyValue::new("tollgate.events", i64::from(run.events)),
    ];
    span
}

/// A wait is known of the first attempt only: a later one does not say when it fell due.
pub(crate) fn fire(trace: &EventTrace, fired: &Fired<'_>) -> [Option<SpanData>; 3] {
    let Fired { delivery, committed_us, fired_us, sent } = fired;
    let attempt = u64::from(delivery.attempt);
    let step = |name, subject, span_us| {
        new(name, SpanKind::Internal, (trace.trace_id, trace.span(subject, attempt)), root(trace), span_us)
    };
    // Clocks may have been set back.
    let wait = (delivery.attempt == 1)
        .then(|| step("wait", SpanSubject::Wait, (delivery.launch_us.min(committed_us.0), committed_us.0)));
    let acquire = step("acquire", SpanSubject::Acquire, *committed_us);
    let kind = match delivery.spec.target {
        Target::Http { .. } => ("http", SpanKind::Client),
        Target::Sqs { .. } => ("sqs", SpanKind::Producer),
        Target::Kafka { .. } => ("kafka", SpanKind::Producer),
        Target::Pull { .. } => ("pull", SpanKind::Producer),
    };
    let mut fire = step("fire", SpanSubject::Fire, *fired_us);
    fire.span_kind = kind.1;
    fire.attributes = of_event(trace, delivery.attempt);
    fire.attributes.extend([
        KeyValue::new("tollgate.event", delivery.event_id.to_string()),
        KeyValue::new("tollgate.run", delivery.event_id.run().to_owned()),
        KeyValue::new("tollgate.namespace", delivery.spec.namespace.clone()),
        KeyValue::new("tollgate.schedule", delivery.spec.schedule_id.clone()),
        KeyValue::new("tollgate.target", kind.0),
    ]);
    if let Some(policy) = &delivery.spec.policy_id {
        fire.attributes.push(KeyValue::new("tollgate.policy", policy.clone()));
    }
    fire.status = match sent {
        Sent::Accepted => Status::Unset,
        Sent::Refused { message, .. } | Sent::RefusedAlone { message, .. } => {
            Status::error(format!("refused: {message}"))
        }
        Sent::Unclear { message, .. } => Status::error(format!("unclear: {message}")),
        Sent::NotSent { message, .. } => Status::error(message.clone()),
    };
    [wait, Some(acquire), Some(fire)]
}

/// Below the caller's own span where that belongs to the trace; else below the delivery, with a link to it.
pub(crate) fn release(trace: &EventTrace, released: &Released) -> SpanData {
    let id = trace.span(SpanSubject::Release, released.span_us.0.unsigned_abs());
    let own = released.parent.filter(|parent| parent.trace_id == trace.trace_id).map(|parent| parent.span_id);
    let delivery = released.attempt.map(|attempt| trace.span(SpanSubject::Fire, attempt.into()));
    let parent = own.or(delivery).or(root(trace));
    let mut span = new("release", SpanKind::Server, (trace.trace_id, id), parent, released.span_us);
    span.parent_span_is_remote = own.is_some();
    if let Some(foreign) = released.parent.filter(|_| own.is_none()) {
        span.links = link(foreign.trace_id, foreign.span_id, foreign.sampled);
    }
    span.attributes = vec![KeyValue::new("tollgate.answer", released.answer)];
    if let Some(attempt) = released.attempt {
        span.attributes.push(KeyValue::new("tollgate.attempt", i64::from(attempt)));
    }
    if released.is_error {
        span.status = Status::error(released.answer);
    }
    span
}

pub(crate) fn event(ended: &Ended) -> SpanData {
    let Ended { trace, attempts, finished_us, outcome, is_success } = ended;
    let launch_us = launch_us(trace.run).min(*finished_us);
    let id = (trace.trace_id, trace.span(SpanSubject::Event, 0));
    let mut span = new("event", SpanKind::Internal, id, None, (launch_us, *finished_us));
    let (emit_trace, emit_span) = of_run(trace.run);
    span.links = link(emit_trace, emit_span, true);
    span.attributes = of_event(trace, *attempts);
    span.attributes.push(KeyValue::new("tollgate.outcome", *outcome));
    if !is_success {
        span.status = Status::error(*outcome);
    }
    span
}

/// A run's id begins with its launch time in milliseconds.
fn launch_us(run: RunId) -> i64 {
    let ms = run.0.as_u128() >> 80;
    i64::try_from(ms).unwrap_or_default().saturating_mul(1_000)
}

fn root(trace: &EventTrace) -> Option<u64> {
    Some(trace.span(SpanSubject::Event, 0))
}

fn of_event(trace: &EventTrace, attempt: u32) -> Vec<KeyValue> {
    vec![
        KeyValue::new("tollgate.index", i64::from(trace.index)),
        KeyValue::new("tollgate.attempt", i64::from(attempt)),
    ]
}

fn link(trace_id: u128, span_id: u64, sampled: bool) -> SpanLinks {
    let mut links = SpanLinks::default();
    links.links.push(Link::with_context(context(trace_id, span_id, sampled, true)));
    links
}

fn context(trace_id: u128, span_id: u64, sampled: bool, remote: bool) -> SpanContext {
    let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    SpanContext::new(TraceId::from(trace_id), SpanId::from(span_id), flags, remote, TraceState::default())
}

fn new(
    name: &'static str,
    span_kind: SpanKind,
    (trace_id, span_id): (u128, u64),
    parent: Option<u64>,
    (began_us, ended_us): (i64, i64),
) -> SpanData {
    SpanData {
        span_context: context(trace_id, span_id, true, false),
        parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from),
        parent_span_is_remote: false,
        span_kind,
        name: Cow::Borrowed(name),
        start_time: at(began_us),
        end_time: at(ended_us.max(began_us)),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder("tollgate").build(),
    }
}

fn at(us: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(us).unwrap_or_default())
}
