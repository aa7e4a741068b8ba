//! Makes a run that a user wants.
//!
//! Invariants: no launch time gets a second run; who asks again under the same id gets the same answer. Not here: what
//! may be asked for ([`crate::by_hand`]); runs of past launch times ([`crate::backfill`]); what asking again is
//! ([`crate::requests`]).

use serde::{Deserialize, Serialize};
use serde_json::json;
use tollgate_core::model::{Run, RunId, RunKind, RunState, SECOND_US, Schedule};
use tollgate_core::plan::home;
use tollgate_proto::convert::{moment, names, run};
use tollgate_proto::v1;
use tollgate_store::StoreError;
use tollgate_store::plan::{Audit, ByHand, RequestStep};
use tonic::Status;

use crate::ScheduleMaster;
use crate::audit::{self, Deed};
use crate::by_hand::Wanted;
use crate::change::TRIES;
use crate::requests::{Asked, unreadable};
use tollgate_service::actor::Caller;
use tollgate_service::status::status;

/// What a trigger under an id has made: kept with the request, as the answer.
#[derive(Serialize, Deserialize)]
struct Triggered {
    run: Run,
    policy: Option<String>,
}

impl Triggered {
    fn message(&self) -> v1::Run {
        run::to_message(&self.run, self.policy.as_deref())
    }
}

impl ScheduleMaster {
    pub(crate) async fn trigger_schedule(
        &self,
        request: v1::TriggerScheduleRequest,
        actor: Caller,
    ) -> Result<v1::Run, Status> {
        let name = names::schedule("name", &request.name)?;
        let now_us = self.now_us();
        let wanted = Wanted::read(&request)?;
        let schedule = self.stored_schedule(&name).await?;
        let asked = wanted.asked(&request.request_id, &schedule)?;
        for try_number in 1..=TRIES {
            if let Some(before) = self.asked_before(asked.as_ref(), &schedule).await? {
                let triggered: Triggered =
                    serde_json::from_str(&before.progress).map_err(|error| unreadable(&before, &error))?;
                return Ok(triggered.message());
            }
            wanted.check_time(now_us)?;
            refuse_paused(&schedule)?;
            let (made, spec) = self.wanted_run(&schedule, &wanted, now_us)?;
            if try_number == 1 {
                self.admit_writes(&name.namespace, 1)?;
                self.admit_events(&name.namespace, u64::from(made.events.max(1))).await?;
            }
            let triggered = Triggered { run: made.clone(), policy: schedule.policy.clone() };
            let deed = Deed { at_us: now_us, actor: actor.clone(), action: "trigger" };
            let by_hand = ByHand {
                only_new: true,
                audit: Some(self.noted_trigger(&schedule, &deed, &made, (asked.as_ref(), spec.is_some()))),
                request: step(asked.as_ref(), &schedule, &triggered, now_us, None)?,
                specs: spec.map(|spec| (spec, made.shard)).into_iter().collect(),
                runs: vec![made],
                ..ByHand::default()
            };
            match self.hand_over(&schedule, by_hand).await {
                Ok(Some(_)) => {
                    self.wake(triggered.run.shard);
                    return Ok(triggered.message());
                }
                // Somebody else has answered the request, or made a run with this launch time.
                Ok(None) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(not_handed_over(&schedule, error)),
            }
        }
        Err(Status::aborted("a run with this launch time exists already; try again"))
    }

    fn noted_trigger(
        &self,
        schedule: &Schedule,
        deed: &Deed,
        made: &Run,
        (asked, has_payload): (Option<&Asked>, bool),
    ) -> Audit {
        let mut details = vec![
            ("run", json!(names::of_run(&made.namespace, made.shard, made.id))),
            ("events", json!(made.events)),
        ];
        if made.launch_us > deed.at_us + SECOND_US {
            details.push(("launch_time", json!(moment(made.launch_us))));
        }
        if made.priority != schedule.priority {
            details.push(("priority", json!(made.priority)));
        }
        if has_payload {
            details.push(("payload", json!("one of its own")));
        }
        details.extend(asked.map(|asked| ("request_id", json!(asked.id))));
        audit::note(self.new_id(deed.at_us), deed, schedule, &details)
    }

    /// How many of the runs are new; none where somebody else goes on with the request that they answer.
    pub(crate) async fn hand_over(
        &self,
        schedule: &Schedule,
        by_hand: ByHand,
    ) -> Result<Option<u32>, StoreError> {
        let _turn = self.turn(&schedule.namespace).await;
        let began_us = self.now_us();
        let policy = schedule.policy_uid.zip(schedule.policy.clone());
        let runs = by_hand.runs.clone();
        let new = self.store().emit_by_hand(ByHand { policy, ..by_hand }).await?;
        if new.is_some() {
            self.options().metrics.traces().emitted(&runs, began_us, self.now_us());
        }
        Ok(new)
    }

    /// A new run of a schedule as it is now.
    pub(crate) fn run(&self, schedule: &Schedule, launch_us: i64, kind: RunKind, emitted_us: i64) -> Run {
        Run {
            shard: home(schedule, self.inner.base),
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
            state: RunState::first(schedule),
            emitted_us,
            ..Run::default()
        }
    }
}

/// What is said where runs could not be handed over.
pub(crate) fn not_handed_over(schedule: &Schedule, error: StoreError) -> Status {
    match error {
        StoreError::NotFound { what } => Status::aborted(format!(
            "{what} was deleted meanwhile, and {} no longer uses it; try again",
            names::of_schedule(&schedule.namespace, &schedule.id)
        )),
        error => status(error),
    }
}

/// How far a request comes, where it has an id.
pub(crate) fn step(
    asked: Option<&Asked>,
    schedule: &Schedule,
    progress: &impl Serialize,
    at_us: i64,
    from: Option<String>,
) -> Result<Option<RequestStep>, Status> {
    let Some(asked) = asked else { return Ok(None) };
    let request = asked.request(schedule.uid, progress, at_us)?;
    Ok(Some(RequestStep { request, from }))
}

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
