//! Decides which runs a user may make by hand: one now, or those of past launch times.
//!
//! Invariants: no launch time gets a second run; a range is refused where the history that would tell is gone.

use serde_json::json;
use tollgate_core::model::{DAY_US, EVENTS_MAX, Run, RunId, RunKind, RunState, SECOND_US, Schedule};
use tollgate_core::plan::home;
use tollgate_proto::convert::{self, names, run, schedule::PRIORITIES};
use tollgate_proto::{FieldError, v1};
use tollgate_store::StoreError;
use tollgate_store::plan::PlanWrite;
use tonic::Status;

use crate::ScheduleMaster;
use crate::audit::{self, Deed};
use crate::draft::stored_plan;
use tollgate_service::actor::Caller;
use tollgate_service::status::status;

/// The most launch times of one backfill.
const BACKFILL_MAX: usize = 10_000;
/// Up to here the launch times of a range that is too long are counted.
const COUNT_MAX: usize = 100_000;
/// How many runs are handed over at once: on SQLite, everybody's commits wait for them.
const CHUNK: usize = 250;
/// The most launch times that an answer repeats.
const SHOWN_MAX: usize = 1000;
/// Backfills come last, so that they do not hold up events that are due now.
const BACKFILL_PRIORITY: u32 = 0;

impl ScheduleMaster {
    pub(crate) async fn trigger_schedule(
        &self,
        request: v1::TriggerScheduleRequest,
        actor: Caller,
    ) -> Result<v1::Run, Status> {
        let name = names::schedule("name", &request.name)?;
        if let Some(events) = request.events
            && !(1..=EVENTS_MAX).contains(&events)
        {
            return Err(FieldError::new("events", events, "1 to 10,000,000").into());
        }
        let schedule = self.stored_schedule(&name).await?;
        refuse_paused(&schedule)?;
        let launch_us = self.manual_launch_us();
        let made = Run {
            events: request.events.unwrap_or(schedule.events),
            ..self.run(&schedule, launch_us, RunKind::Manual, launch_us)
        };
        self.admit_writes(&name.namespace, 1)?;
        self.admit_events(&name.namespace, u64::from(made.events)).await?;
        let details = [
            ("run", json!(names::of_run(&made.namespace, made.shard, made.id))),
            ("events", json!(made.events)),
        ];
        let turn = self.turn(&name.namespace).await;
        // Noted before it is made: a run without a note would be worse than a note without a run.
        self.note(&schedule, Deed { at_us: launch_us, actor, action: "trigger" }, &details).await?;
        if self.hand_over(&schedule, std::slice::from_ref(&made)).await? == 0 {
            return Err(Status::aborted("a run with this launch time exists already; try again"));
        }
        drop(turn);
        self.wake(made.shard);
        Ok(run::to_message(&made, schedule.policy.as_deref()))
    }

    pub(crate) async fn backfill_schedule(
        &self,
        request: v1::BackfillScheduleRequest,
        actor: Caller,
    ) -> Result<v1::BackfillScheduleResponse, Status> {
        let name = names::schedule("name", &request.name)?;
        let now_us = self.now_us();
        let (start_us, end_us) = self.backfill_range(&request, now_us)?;
        let priority = backfill_priority(request.priority)?;
        let schedule = self.stored_schedule(&name).await?;
        refuse_paused(&schedule)?;
        let launches = launches(&schedule, start_us, end_us)?;
        let taken = self.store().launches_with_runs(schedule.uid, start_us, end_us).await;
        let taken: std::collections::HashSet<i64> = taken.map_err(status)?.into_iter().collect();
        let runs: Vec<Run> = launches
            .iter()
            .filter(|launch_us| !taken.contains(launch_us))
            .map(|launch_us| Run { priority, ..self.run(&schedule, *launch_us, RunKind::Backfill, now_us) })
            .collect();
        let mut created = 0;
        if !runs.is_empty() {
            self.admit_writes(&name.namespace, 1)?;
            let events = runs.iter().map(|run| u64::from(run.events)).sum();
            self.admit_events(&name.namespace, events).await?;
            let details = [
                ("start_time", json!(moment(start_us))),
                ("end_time", json!(moment(end_us))),
                ("runs", json!(runs.len())),
            ];
            self.note(&schedule, Deed { at_us: now_us, actor, action: "backfill" }, &details).await?;
            for chunk in runs.chunks(CHUNK) {
                let _turn = self.turn(&name.namespace).await;
                created += self.hand_over(&schedule, chunk).await?;
            }
            self.wake(home(&schedule, self.inner.shards));
        }
        Ok(v1::BackfillScheduleResponse {
            created_count: created,
            existing_count: u32::try_from(launches.len()).unwrap_or(u32::MAX) - created,
            launch_times: runs.iter().take(SHOWN_MAX).map(|run| convert::timestamp(run.launch_us)).collect(),
        })
    }

    /// How many of these runs are new.
    pub(crate) async fn hand_over(&self, schedule: &Schedule, runs: &[Run]) -> Result<u32, Status> {
        let began_us = self.now_us();
        let policy = schedule.policy_uid.zip(schedule.policy.clone());
        let new = self.store().emit_by_hand(runs, policy).await.map_err(|error| match error {
            StoreError::NotFound { what } => Status::aborted(format!(
                "{what} was deleted meanwhile, and {} no longer uses it; try again",
                names::of_schedule(&schedule.namespace, &schedule.id)
            )),
            error => status(error),
        })?;
        self.options().metrics.traces().emitted(runs, began_us, self.now_us());
        Ok(new)
    }

    fn backfill_range(
        &self,
        request: &v1::BackfillScheduleRequest,
        now_us: i64,
    ) -> Result<(i64, i64), FieldError> {
        let start_us = convert::required_time_us("start_time", request.start_time.as_ref())?;
        let end_us = convert::required_time_us("end_time", request.end_time.as_ref())?;
        if end_us <= start_us {
            return Err(FieldError::new("end_time", moment(end_us), "a moment after start_time"));
        }
        if end_us > now_us {
            let expected = format!("a moment that is not in the future; now it is {}", moment(now_us));
            return Err(FieldError::new("end_time", moment(end_us), expected));
        }
        let kept_s = self.options().retention_s;
        let earliest_us = now_us - kept_s.saturating_mul(SECOND_US);
        if start_us < earliest_us {
            let expected = format!(
                "a moment within the {} days for which runs are kept, not before {}: of earlier launch times \
                 nobody knows whether they have run",
                kept_s * SECOND_US / DAY_US,
                moment(earliest_us)
            );
            return Err(FieldError::new("start_time", moment(start_us), expected));
        }
        Ok((start_us, end_us))
    }

    /// A new run of a schedule as it is now.
    pub(crate) fn run(&self, schedule: &Schedule, launch_us: i64, kind: RunKind, emitted_us: i64) -> Run {
        Run {
            shard: home(schedule, self.inner.shards),
            id: RunId::derive(schedule.uid, launch_us),
            schedule_uid: schedule.uid,
            generation: schedule.generation,
            namespace: schedule.namespace.clone(),
            schedule_id: schedule.id.clone(),
            policy_uid: schedule.policy_uid,
            launch_us,
            events: schedule.events,
            priority: schedule.priority,
            kind,
            state: RunState::Emitted,
            emitted_us,
            ..Run::default()
        }
    }

    pub(crate) async fn note(
        &self,
        schedule: &Schedule,
        deed: Deed,
        details: &[(&str, serde_json::Value)],
    ) -> Result<(), Status> {
        let audit = audit::note(self.new_id(deed.at_us), &deed, schedule, details);
        self.store().write_plan(vec![PlanWrite::Note { audit }]).await.map_err(status)
    }
}

/// Nothing is made by hand of a schedule that is paused.
pub(crate) fn refuse_paused(schedule: &Schedule) -> Result<(), Status> {
    let Some(pause) = &schedule.pause else { return Ok(()) };
    let name = names::of_schedule(&schedule.namespace, &schedule.id);
    let reason = if pause.reason.is_empty() { "no reason given" } else { &pause.reason };
    Err(Status::failed_precondition(format!(
        "{name} is paused by {} since {}: {reason}; resume it first",
        pause.actor,
        moment(pause.since_us)
    )))
}

fn backfill_priority(given: Option<u32>) -> Result<u8, FieldError> {
    let priority = given.unwrap_or(BACKFILL_PRIORITY);
    u8::try_from(priority)
        .ok()
        .filter(|_| PRIORITIES.contains(&priority))
        .ok_or_else(|| FieldError::new("priority", priority, "0 (last) to 9 (first)"))
}

fn launches(schedule: &Schedule, start_us: i64, end_us: i64) -> Result<Vec<i64>, Status> {
    let plan = stored_plan(schedule)?;
    let mut fires = plan.fires_between(start_us - 1, end_us - 1);
    let launches: Vec<i64> = fires.by_ref().take(BACKFILL_MAX).collect();
    let more = fires.take(COUNT_MAX - BACKFILL_MAX + 1).count();
    if more > 0 {
        let count = launches.len() + more;
        let parts = count.div_ceil(BACKFILL_MAX);
        let expected = format!(
            "a range with at most {BACKFILL_MAX} launch times: split it into {parts} or more, each from start_time to \
             end_time (--from and --to), one after the other"
        );
        let given = if count > COUNT_MAX { format!("more than {COUNT_MAX}") } else { count.to_string() };
        return Err(FieldError::new("end_time", format!("{given} launch times"), expected).into());
    }
    Ok(launches)
}

fn moment(us: i64) -> String {
    convert::timestamp(us).to_string()
}
