//! Policies and schedules as tests need them, and the calls that they make often.

use prost_types::{Duration, Timestamp};
use tollgate_proto::v1::target::Target as TargetKind;
use tollgate_proto::v1::trigger::Trigger as Rule;
use tollgate_proto::v1::{
    CreatePolicyRequest, CreateScheduleRequest, Event, GetHandlerStatusRequest, GetRunRequest, HttpTarget,
    ListEventsRequest, ListRunsRequest, ListSkippedTriggersRequest, Policy, Run, RunState, Schedule,
    SkippedTrigger, SqsTarget, Target, Trigger,
};
use tonic::Status;

use crate::{Consumer, SECRET, Service, now_us, wait_for};

/// The namespace of all tests.
pub const PARENT: &str = "namespaces/default";

/// A duration of so many milliseconds.
pub fn ms(ms: i64) -> Duration {
    let nanos = i32::try_from(ms % 1_000).unwrap() * 1_000_000;
    Duration { seconds: ms / 1_000, nanos }
}

/// A moment that has passed when its schedule is made does not come: a busy machine has so long for that at least.
const LEAD_MS: i64 = 2_500;

/// The first whole second that is at least so many milliseconds ahead, and not so near that a schedule for it comes too late.
pub fn soon(ahead_ms: i64) -> Timestamp {
    let ahead_ms = ahead_ms.max(LEAD_MS);
    Timestamp { seconds: (now_us() + ahead_ms * 1_000 + 999_999) / 1_000_000, nanos: 0 }
}

/// A moment of next January. A schedule that does not fire before it fires in no test, whatever the time of day is, and then in
/// winter time.
pub fn next_january() -> Timestamp {
    const YEAR_S: i64 = 31_556_952;
    let year = now_us() / 1_000_000 / YEAR_S + 1;
    Timestamp { seconds: year * YEAR_S + 14 * 86_400, nanos: 0 }
}

/// A moment in microseconds since the epoch.
pub fn us(time: Option<Timestamp>) -> i64 {
    let time = time.unwrap();
    time.seconds * 1_000_000 + i64::from(time.nanos) / 1_000
}

/// A policy with this limit.
pub fn policy(max_in_flight: u32) -> Policy {
    Policy { max_in_flight: Some(max_in_flight), ..Policy::default() }
}

/// A schedule that fires once, at this moment.
pub fn once(at: Timestamp, events: u32, policy: &str, target: Target) -> Schedule {
    Schedule {
        triggers: vec![Trigger { trigger: Some(Rule::At(at)) }],
        events: Some(events),
        policy: policy.to_owned(),
        target: Some(target),
        ..Schedule::default()
    }
}

/// A schedule that fires every so many seconds from this moment on.
pub fn every(seconds: i64, anchor: Timestamp, events: u32, policy: &str, target: Target) -> Schedule {
    let interval = tollgate_proto::v1::Interval { every: Some(ms(seconds * 1_000)), anchor: Some(anchor) };
    Schedule {
        triggers: vec![Trigger { trigger: Some(Rule::Interval(interval)) }],
        start_time: Some(anchor),
        ..once(anchor, events, policy, target)
    }
}

/// A consumer as a target, with signatures.
pub fn http(consumer: &Consumer) -> Target {
    let http = HttpTarget { url: consumer.url(), secret: SECRET.to_owned(), ..HttpTarget::default() };
    Target { target: Some(TargetKind::Http(http)), ..Target::default() }
}

/// A queue of the emulator as a target.
pub fn sqs(queue_url: &str, endpoint_url: &str) -> Target {
    let sqs = SqsTarget {
        queue_url: queue_url.to_owned(),
        endpoint_url: endpoint_url.to_owned(),
        region: "eu-central-1".to_owned(),
        ..SqsTarget::default()
    };
    Target { target: Some(TargetKind::Sqs(sqs)), ..Target::default() }
}

/// `namespaces/default/schedules/{id}`.
pub fn schedule_name(id: &str) -> String {
    format!("{PARENT}/schedules/{id}")
}

/// `namespaces/default/policies/{id}`.
pub fn policy_name(id: &str) -> String {
    format!("{PARENT}/policies/{id}")
}

impl Service {
    /// Makes a policy.
    ///
    /// # Errors
    /// The refusal.
    pub async fn create_policy(&self, id: &str, policy: Policy) -> Result<Policy, Status> {
        let request = CreatePolicyRequest {
            parent: PARENT.to_owned(),
            policy_id: id.to_owned(),
            policy: Some(policy),
            ..CreatePolicyRequest::default()
        };
        Ok(self.master().create_policy(request).await?.into_inner())
    }

    /// Makes a schedule.
    ///
    /// # Errors
    /// The refusal.
    pub async fn create_schedule(&self, id: &str, schedule: Schedule) -> Result<Schedule, Status> {
        let request = CreateScheduleRequest {
            parent: PARENT.to_owned(),
            schedule_id: id.to_owned(),
            schedule: Some(schedule),
            ..CreateScheduleRequest::default()
        };
        Ok(self.master().create_schedule(request).await?.into_inner())
    }

    /// The runs of a schedule, earliest launch time first.
    pub async fn runs(&self, schedule: &str) -> Vec<Run> {
        let filter = format!("schedule={schedule}");
        let request = ListRunsRequest {
            parent: PARENT.to_owned(),
            page_size: 1_000,
            filter,
            ..ListRunsRequest::default()
        };
        let mut runs = self.handler().list_runs(request).await.unwrap().into_inner().runs;
        runs.sort_by_key(|run| us(run.launch_time));
        runs
    }

    /// A run by name.
    pub async fn run(&self, name: &str) -> Run {
        self.handler().get_run(GetRunRequest { name: name.to_owned() }).await.unwrap().into_inner()
    }

    /// Waits until the first run of a schedule exists.
    pub async fn first_run(&self, schedule: &str) -> Run {
        wait_for("a run", 30, async || self.runs(schedule).await.into_iter().next()).await
    }

    /// Waits until the first run of a schedule has ended.
    pub async fn finished(&self, schedule: &str, seconds: u64) -> Run {
        wait_for(&format!("the end of a run of {schedule}"), seconds, async || {
            let run = self.runs(schedule).await.into_iter().next()?;
            let ends =
                [RunState::Finished, RunState::FinishedWithFailures, RunState::Cancelled, RunState::Skipped];
            ends.contains(&run.state()).then_some(run)
        })
        .await
    }

    /// The events of a run, at most the first thousand.
    pub async fn events(&self, run: &str) -> Vec<Event> {
        let request =
            ListEventsRequest { parent: run.to_owned(), page_size: 1_000, ..ListEventsRequest::default() };
        self.handler().list_events(request).await.unwrap().into_inner().events
    }

    /// The triggers of a schedule that made no run, latest first, at most a thousand.
    pub async fn skipped(&self, schedule: &str) -> Vec<SkippedTrigger> {
        let request = ListSkippedTriggersRequest {
            parent: schedule_name(schedule),
            page_size: 1_000,
            ..ListSkippedTriggersRequest::default()
        };
        self.master().list_skipped_triggers(request).await.unwrap().into_inner().skipped_triggers
    }

    /// Tokens held, over all policies.
    pub async fn held_count(&self) -> u64 {
        let mut handler = self.handler();
        handler.get_handler_status(GetHandlerStatusRequest::default()).await.unwrap().into_inner().held_count
    }
}
