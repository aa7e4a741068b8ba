//! Decides which runs of past launch times a user may make by hand.
//!
//! Invariants: no launch time gets a second run; a range is refused where the history that would tell is gone; who asks again
//! under the same id gets the same answer, and what was not made yet is made.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate_core::model::{DAY_US, Run, RunKind, SECOND_US, Schedule};
use tollgate_core::plan::home;
use tollgate_proto::convert::{self, moment, names, schedule::PRIORITIES};
use tollgate_proto::v1::CallStage;
use tollgate_proto::{FieldError, v1};
use tollgate_store::plan::{Audit, ByHand};
use tonic::Status;

use crate::ScheduleMaster;
use crate::audit::{self, Deed};
use crate::draft::stored_plan;
use crate::progress::Progress;
use crate::requests::{Asked, unreadable};
use crate::runs::{not_handed_over, refuse_paused, step};
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

/// How far a backfill has come: kept with a request that has an id.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Backfilled {
    /// Launch times before this moment have their runs.
    next_us: i64,
    /// How many launch times that were.
    launches: u32,
    /// The first of those whose runs were made.
    shown_us: Vec<i64>,
    /// Whether nothing is left.
    ended: bool,
}

impl Backfilled {
    fn response(&self, made: u64) -> v1::BackfillScheduleResponse {
        let created_count = u32::try_from(made).unwrap_or(u32::MAX);
        v1::BackfillScheduleResponse {
            created_count,
            existing_count: self.launches.saturating_sub(created_count),
            launch_times: self.shown_us.iter().copied().map(convert::timestamp).collect(),
        }
    }

    /// Once the runs of `chunk` are made, of which those of `rest` come after.
    fn after(&self, chunk: &[Run], launches: &[i64], is_last: bool) -> Self {
        let next_us = match chunk.last() {
            Some(last) if !is_last => last.launch_us + 1,
            _ => i64::MAX,
        };
        let passed = launches.iter().filter(|launch| (self.next_us..next_us).contains(*launch)).count();
        let room = SHOWN_MAX.saturating_sub(self.shown_us.len());
        let mut shown_us = self.shown_us.clone();
        shown_us.extend(chunk.iter().take(room).map(|run| run.launch_us));
        Self {
            next_us,
            launches: self.launches.saturating_add(u32::try_from(passed).unwrap_or(u32::MAX)),
            shown_us,
            ended: is_last,
        }
    }
}

/// A backfill that is wanted.
struct Range {
    start_us: i64,
    end_us: i64,
    priority: u8,
}

impl ScheduleMaster {
    pub(crate) async fn backfill_schedule(
        &self,
        request: v1::BackfillScheduleRequest,
        actor: Caller,
        progress: &Progress,
    ) -> Result<v1::BackfillScheduleResponse, Status> {
        let name = names::schedule("name", &request.name)?;
        let now_us = self.now_us();
        let content = [
            ("start_time", request.start_time.map(|time| Value::from(time.to_string()))),
            ("end_time", request.end_time.map(|time| Value::from(time.to_string()))),
            ("priority", request.priority.map(Value::from)),
        ];
        let asked = Asked::read(&request.request_id, "backfill", content)?;
        let priority = backfill_priority(request.priority)?;
        // Whether it is too old depends on whether it was begun before.
        self.backfill_range(&request, now_us, asked.is_some())?;
        let schedule = self.stored_schedule(&name).await?;
        let deed = Deed { at_us: now_us, actor, action: "backfill" };
        loop {
            let before = self.asked_before(asked.as_ref(), &schedule).await?;
            let mut done = Backfilled::default();
            let (mut made, from) = match before {
                Some(before) => {
                    done = serde_json::from_str(&before.progress)
                        .map_err(|error| unreadable(&before, &error))?;
                    (before.made, Some(before.progress))
                }
                None => (0, None),
            };
            if done.ended {
                return Ok(done.response(made));
            }
            // What was begun may be finished however old it is by now.
            let (start_us, end_us) = self.backfill_range(&request, now_us, from.is_some())?;
            let range = Range { start_us, end_us, priority };
            refuse_manual(&schedule)?;
            refuse_paused(&schedule)?;
            if self
                .backfill_range_of(
                    &schedule,
                    &range,
                    (asked.as_ref(), from),
                    (&mut done, &mut made),
                    (&deed, progress),
                )
                .await?
            {
                return Ok(done.response(made));
            }
        }
    }

    /// Makes what is left of a backfill, part by part. False where somebody else goes on with it.
    async fn backfill_range_of(
        &self,
        schedule: &Schedule,
        range: &Range,
        (asked, mut from): (Option<&Asked>, Option<String>),
        (done, made): (&mut Backfilled, &mut u64),
        (deed, progress): (&Deed, &Progress),
    ) -> Result<bool, Status> {
        let launches = launches(schedule, range.start_us, range.end_us)?;
        let taken = self.store().launches_with_runs(schedule.uid, range.start_us, range.end_us).await;
        let taken: HashSet<i64> = taken.map_err(status)?.into_iter().collect();
        let runs: Vec<Run> = launches
            .iter()
            .filter(|launch_us| **launch_us >= done.next_us && !taken.contains(launch_us))
            .map(|launch_us| Run {
                priority: range.priority,
                ..self.run(schedule, *launch_us, RunKind::Backfill, deed.at_us)
            })
            .collect();
        if runs.is_empty() && asked.is_none() {
            *done = done.after(&[], &launches, true);
            return Ok(true);
        }
        self.admit_writes(&schedule.namespace, 1)?;
        self.admit_events(&schedule.namespace, runs.iter().map(|run| u64::from(run.events.max(1))).sum())
            .await?;
        let mut audit = (from.is_none() && !runs.is_empty())
            .then(|| self.noted_backfill(schedule, deed, range, &runs, asked));
        let parts = runs.len().div_ceil(CHUNK).max(1);
        progress.begin(CallStage::Write, runs.len());
        for part in 0..parts {
            let chunk = runs.chunks(CHUNK).nth(part).unwrap_or_default();
            let next = done.after(chunk, &launches, part + 1 == parts);
            let request = step(asked, schedule, &next, deed.at_us, from.take())?;
            from = request.as_ref().map(|step| step.request.progress.clone());
            let by_hand = ByHand { runs: chunk.to_vec(), audit: audit.take(), request, ..ByHand::default() };
            let new = self.hand_over(schedule, by_hand).await;
            let Some(new) = new.map_err(|error| not_handed_over(schedule, error))? else { return Ok(false) };
            *made += u64::from(new);
            progress.add(chunk.len());
            *done = next;
        }
        self.wake(home(schedule, self.inner.base));
        Ok(true)
    }

    fn noted_backfill(
        &self,
        schedule: &Schedule,
        deed: &Deed,
        range: &Range,
        runs: &[Run],
        asked: Option<&Asked>,
    ) -> Audit {
        let mut details = vec![
            ("start_time", json!(moment(range.start_us))),
            ("end_time", json!(moment(range.end_us))),
            ("runs", json!(runs.len())),
        ];
        details.extend(asked.map(|asked| ("request_id", json!(asked.id))));
        audit::note(self.new_id(deed.at_us), deed, schedule, &details)
    }

    fn backfill_range(
        &self,
        request: &v1::BackfillScheduleRequest,
        now_us: i64,
        is_begun: bool,
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
        if start_us < earliest_us && !is_begun {
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
}

fn refuse_manual(schedule: &Schedule) -> Result<(), Status> {
    if !schedule.timing.triggers.is_empty() {
        return Ok(());
    }
    Err(Status::failed_precondition(format!(
        "{} is manual: it has no triggers, and so no launch times to make up for; trigger it instead",
        names::of_schedule(&schedule.namespace, &schedule.id)
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
