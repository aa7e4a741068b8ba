//! What single faults need of the service, and the healthy schedules beside them all.

use std::collections::HashSet;
use std::sync::PoisonError;

use prost_types::Timestamp;
use tollgate_harness::now_us;
use tollgate_harness::resources::{every, ms, once, schedule_name, us};
use tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient;
use tollgate_proto::v1::target::Target as TargetKind;
use tollgate_proto::v1::{
    CatchUp, CatchUpMode, DeleteScheduleRequest, HttpTarget, PauseScheduleRequest, ReleaseMode,
    ResumeScheduleRequest, RetryPolicy, Schedule, SqsTarget, Target, TriggerScheduleRequest,
};
use tonic::Status;
use tonic::transport::Channel;

use super::Load;
use crate::audit::{Due, Pause};
use crate::names::HUNG;
use crate::sink::{DEADLINE, NAMED, kind};

/// Healthy schedules, over the queue shards as chance has it.
const HEALTHY: usize = 24;
/// Those whose consumer is known by name: one in each process, or nearly.
const HEALTHY_NAMED: usize = 5;
/// Schedules whose consumer's name is not resolved: some in each process.
const UNNAMED: u32 = 6;
/// Seconds between two launches of one.
const HEALTHY_EVERY_S: i64 = 2;
/// What a healthy schedule has done so long before its end is certain.
const CERTAIN_US: i64 = 5_000_000;
/// Tries to find a queue shard in which something healthy is.
const TRIES: usize = 60;
/// What takes long may take so long.
const LONG_MS: i64 = 10_000;
/// Seconds for which a schedule fires that is paused and resumed meanwhile.
const CHANGED_S: i64 = 45;

/// A healthy schedule.
pub(super) struct Healthy {
    id: String,
    /// When it fires first.
    start_s: i64,
    /// When it was acknowledged.
    known_us: i64,
}

impl Load {
    /// Makes the healthy schedules. `named`: the consumer of some more is known by name.
    pub(crate) async fn healthy(&self, named: bool) {
        let start_s = now_us() / 1_000_000 + 3;
        for number in 0..HEALTHY {
            let start_s = start_s + i64::from(number % 2 == 1);
            self.healthy_one(
                format!("{}{number:02}", kind::HEALTHY),
                start_s,
                &self.ports.healthy.to_string(),
            )
            .await;
        }
        if named {
            let host = format!("good.faults.test:{}", self.ports.healthy.port());
            for number in 0..HEALTHY_NAMED {
                self.healthy_one(format!("{NAMED}{number}"), start_s, &host).await;
            }
        }
    }

    async fn healthy_one(&self, id: String, start_s: i64, host: &str) {
        let start = Timestamp { seconds: start_s, nanos: 0 };
        let target = http(host, ReleaseMode::OnResponse, deadline_ms());
        let schedule = every(HEALTHY_EVERY_S, start, 1, "", target);
        // Somebody else's trouble must not cost it its attempts.
        if self.make(id.clone(), few_attempts(schedule), Vec::new(), 1).await {
            let healthy = Healthy { id, start_s, known_us: now_us() };
            self.healthy.lock().unwrap_or_else(PoisonError::into_inner).push(healthy);
        }
    }

    /// Deletes them; what fell due by them is known now.
    pub(crate) async fn end_healthy(&self) {
        let healthy = std::mem::take(&mut *self.healthy.lock().unwrap_or_else(PoisonError::into_inner));
        for Healthy { id, start_s, known_us } in healthy {
            let certain_us = now_us() - CERTAIN_US;
            let request =
                DeleteScheduleRequest { name: schedule_name(&id), ..DeleteScheduleRequest::default() };
            // Where it fails, it goes on, and that is no breach of anything.
            let _ = self
                .repeat(request, |channel, request| async {
                    ScheduleMasterServiceClient::new(channel).delete_schedule(request).await
                })
                .await;
            let until_s = now_us() / 1_000_000 + 8;
            let mut ordered = self.ordered();
            for second in (start_s..until_s).step_by(usize::try_from(HEALTHY_EVERY_S).unwrap_or(1)) {
                let launch_us = second * 1_000_000;
                let required = launch_us > known_us && launch_us <= certain_us;
                ordered.due.push(Due { schedule: id.clone(), launch_us, events: 1, required });
            }
        }
    }

    /// Events for a consumer that says nothing, in one of these shards; the schedule's id.
    pub(crate) async fn hole(&self, number: usize, shards: &HashSet<u16>) -> Option<String> {
        for attempt in 0..TRIES {
            let id = format!("{}{number}-{attempt}", kind::HOLE);
            let far = Timestamp { seconds: now_us() / 1_000_000 + 40 * 86_400, nanos: 0 };
            let target = http(&self.ports.hole.to_string(), ReleaseMode::OnResponse, deadline_ms());
            self.ordered().by_hand.insert(id.clone());
            if !self.make(id.clone(), patient(once(far, 1, "", target)), Vec::new(), 1).await {
                continue;
            }
            if self.trigger(&id, 1).await.is_some_and(|shard| shards.contains(&shard)) {
                return Some(id);
            }
        }
        None
    }

    /// Triggers a schedule by hand, once; the queue shard of its run.
    pub(crate) async fn trigger(&self, id: &str, events: u32) -> Option<u16> {
        let request =
            TriggerScheduleRequest { name: schedule_name(id), events: Some(events), ..Default::default() };
        // Not repeated: each call makes a run of its own, also one that is not answered.
        let answer = ScheduleMasterServiceClient::new(self.doors.any()).trigger_schedule(request).await;
        let run = answer.ok()?.into_inner();
        let launch_us = us(run.launch_time);
        self.ordered().due.push(Due { schedule: id.to_owned(), launch_us, events, required: true });
        u16::try_from(run.shard).ok()
    }

    /// So many events for a consumer whose name is not resolved for a while. How their schedules' ids begin, and how many
    /// there are.
    pub(crate) async fn unnamed(&self, number: usize, events: u32) -> (String, u32) {
        let prefix = format!("{}{number}-", kind::UNNAMED);
        let start = in_s(3);
        let host = format!("{HUNG}{number}.faults.test:{}", self.ports.hole.port());
        let events = events / UNNAMED;
        for one in 0..UNNAMED {
            let target = http(&host, ReleaseMode::OnResponse, deadline_ms());
            let schedule = patient(once(start, events, "", target));
            self.make(format!("{prefix}{one}"), schedule, vec![us(Some(start))], events).await;
        }
        (prefix, events * UNNAMED)
    }

    /// Events for one FIFO queue, from several schedules without a policy. How their ids begin.
    pub(crate) async fn slow_queue(&self, number: usize, schedules: u32, events: u32) -> String {
        let prefix = format!("{}{number}-", kind::SLOW_QUEUE);
        let start = in_s(3);
        for one in 0..schedules {
            let sqs = SqsTarget {
                queue_url: format!("http://{}/1/slow.fifo", self.ports.hole),
                endpoint_url: format!("http://{}", self.ports.hole),
                region: "eu-central-1".to_owned(),
                deadline: Some(ms(deadline_ms())),
                ..SqsTarget::default()
            };
            let target =
                Target { target: Some(TargetKind::Sqs(sqs)), release: ReleaseMode::OnResponse.into() };
            let schedule = patient(once(start, events, "", target));
            self.make(format!("{prefix}{one}"), schedule, vec![us(Some(start))], events).await;
        }
        prefix
    }

    /// Events whose consumer says nothing and releases some seconds later, in many shards. When they fall due.
    pub(crate) async fn handed(&self, number: usize, schedules: u32, events: u32) -> i64 {
        let prefix = format!("{}{number}-", kind::HANDED);
        let start = in_s(4);
        for one in 0..schedules {
            let target = http(&self.ports.healthy.to_string(), ReleaseMode::Explicit, LONG_MS);
            let schedule = patient(once(start, events, "", target));
            self.make(format!("{prefix}{one}"), schedule, vec![us(Some(start))], events).await;
        }
        us(Some(start))
    }

    /// A schedule that fires each second, to be paused meanwhile. Its id, and when it begins.
    pub(crate) async fn changing(&self, number: usize) -> Option<(String, i64)> {
        let id = format!("{}{number}", kind::CHANGED);
        let start = in_s(2);
        let end = Timestamp { seconds: start.seconds + CHANGED_S, nanos: 0 };
        let target = http(&self.ports.healthy.to_string(), ReleaseMode::OnResponse, deadline_ms());
        let schedule = Schedule { end_time: Some(end), ..patient(every(1, start, 1, "", target)) };
        self.make(id.clone(), schedule, Vec::new(), 1).await.then_some((id, start.seconds))
    }

    /// Pauses a schedule through one process.
    ///
    /// # Errors
    /// What the process answers, or that it does not.
    pub(crate) async fn pause_at(&self, channel: Channel, id: &str) -> Result<(), Status> {
        let request = PauseScheduleRequest {
            name: schedule_name(id),
            reason: "the campaign".to_owned(),
            ..Default::default()
        };
        ScheduleMasterServiceClient::new(channel).pause_schedule(request).await.map(drop)
    }

    /// Pauses a schedule through whatever process answers. Whether that was acknowledged.
    pub(crate) async fn pause(&self, id: &str) -> bool {
        let request = PauseScheduleRequest {
            name: schedule_name(id),
            reason: "the campaign".to_owned(),
            ..Default::default()
        };
        self.repeat(request, |channel, request| async {
            ScheduleMasterServiceClient::new(channel).pause_schedule(request).await
        })
        .await
        .is_ok()
    }

    /// Resumes it.
    pub(crate) async fn resume(&self, id: &str) -> bool {
        let request = ResumeScheduleRequest { name: schedule_name(id), ..Default::default() };
        self.repeat(request, |channel, request| async {
            ScheduleMasterServiceClient::new(channel).resume_schedule(request).await
        })
        .await
        .is_ok()
    }

    /// Writes down what falls due by a schedule of [`Load::changing`], and when it must not fire.
    pub(crate) fn changed(&self, id: &str, start_s: i64, pause: Option<Pause>, change_us: (i64, i64)) {
        // Shortly before and after a change, both are right.
        let (before_us, after_us) = (change_us.0 - 3_000_000, change_us.1 + 2_000_000);
        let mut ordered = self.ordered();
        for second in start_s..start_s + CHANGED_S {
            let launch_us = second * 1_000_000;
            let required = launch_us <= before_us || launch_us >= after_us;
            ordered.due.push(Due { schedule: id.to_owned(), launch_us, events: 1, required });
        }
        ordered.pauses.extend(pause);
    }
}

fn in_s(ahead_s: i64) -> Timestamp {
    Timestamp { seconds: now_us() / 1_000_000 + ahead_s, nanos: 0 }
}

fn deadline_ms() -> i64 {
    i64::try_from(DEADLINE.as_millis()).unwrap_or(1_000)
}

fn http(host: &str, release: ReleaseMode, deadline_ms: i64) -> Target {
    let url = format!("http://{host}/work");
    let http = HttpTarget { url, deadline: Some(ms(deadline_ms)), ..HttpTarget::default() };
    Target { target: Some(TargetKind::Http(http)), release: release.into() }
}

/// It never gives up.
fn patient(schedule: Schedule) -> Schedule {
    with_attempts(schedule, 1_000)
}

fn few_attempts(schedule: Schedule) -> Schedule {
    with_attempts(schedule, 3)
}

/// It catches up with everything.
pub(super) fn with_attempts(schedule: Schedule, attempts: u32) -> Schedule {
    Schedule {
        retry: Some(RetryPolicy {
            max_attempts: Some(attempts),
            min_backoff: Some(ms(100)),
            max_backoff: Some(ms(1_000)),
            retry_lost: Some(true),
        }),
        catch_up: Some(CatchUp { mode: CatchUpMode::All.into(), horizon: Some(ms(7_200_000)) }),
        ..schedule
    }
}
