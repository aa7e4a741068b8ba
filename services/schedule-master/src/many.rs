//! Does the same to all schedules of a namespace that match, step by step.
//!
//! In: a filter, as lists have it. Out: what one step came to, and where the next one begins. Invariants: a step has a bound;
//! each schedule is changed as if it were the only one, with its own entry in the audit log; a step that is repeated does
//! nothing to what is so already; one that refuses stops no other. Not here: what a change is ([`crate::schedules`],
//! [`crate::runs`]).

use tollgate_core::model::Schedule;
use tollgate_proto::convert::{self, names};
use tollgate_proto::page::Token;
use tollgate_proto::{FieldError, v1};
use tonic::{Code, Status};

use crate::ScheduleMaster;
use crate::lists::to_filter;
use tollgate_service::actor::Caller;
use tollgate_service::status::status;

/// Schedules of one step.
const STEP: u32 = 100;
/// Schedules that are read at once, with their payloads.
const PAGE: u32 = 10;
/// Refusals that a step names.
const REFUSALS_MAX: usize = 20;

/// What is done to each of them.
enum Act {
    Pause { reason: String },
    Resume,
    Delete,
    Trigger { request_id: String, events: Option<u32> },
}

/// Which of them, and from where.
struct Wanted {
    parent: String,
    filter: String,
    page_token: String,
    validate_only: bool,
}

/// What a step came to.
#[derive(Default)]
struct Step {
    matched: u32,
    done: u32,
    refusals: Vec<v1::ScheduleRefusal>,
    refused: u32,
    next: String,
}

impl Act {
    /// The method, for page tokens.
    fn method(&self) -> &'static str {
        match self {
            Self::Pause { .. } => "PauseSchedules",
            Self::Resume => "ResumeSchedules",
            Self::Delete => "DeleteSchedules",
            Self::Trigger { .. } => "TriggerSchedules",
        }
    }

    /// What is wrong with it for any schedule, before the first one is touched.
    fn check(&self) -> Result<(), FieldError> {
        match self {
            Self::Pause { reason } => convert::remark("reason", reason).map(drop),
            Self::Resume | Self::Delete => Ok(()),
            Self::Trigger { request_id, events } => {
                let request =
                    v1::TriggerScheduleRequest { events: *events, ..v1::TriggerScheduleRequest::default() };
                crate::by_hand::Wanted::read(&request)?;
                convert::request_id("request_id", request_id).map(drop)
            }
        }
    }
}

/// Whether a refusal is about the one schedule, so that the others go on.
fn is_of_one(refusal: &Status) -> bool {
    matches!(refusal.code(), Code::FailedPrecondition | Code::AlreadyExists | Code::Aborted)
}

impl ScheduleMaster {
    pub(crate) async fn pause_schedules(
        &self,
        request: v1::PauseSchedulesRequest,
        actor: Caller,
    ) -> Result<v1::PauseSchedulesResponse, Status> {
        let v1::PauseSchedulesRequest { parent, filter, page_token, validate_only, reason } = request;
        let wanted = Wanted { parent, filter, page_token, validate_only };
        let step = self.step(&wanted, &Act::Pause { reason }, &actor).await?;
        Ok(v1::PauseSchedulesResponse {
            matched_count: step.matched,
            paused_count: step.done,
            refusals: step.refusals,
            refused_count: step.refused,
            next_page_token: step.next,
        })
    }

    pub(crate) async fn resume_schedules(
        &self,
        request: v1::ResumeSchedulesRequest,
        actor: Caller,
    ) -> Result<v1::ResumeSchedulesResponse, Status> {
        let v1::ResumeSchedulesRequest { parent, filter, page_token, validate_only } = request;
        let wanted = Wanted { parent, filter, page_token, validate_only };
        let step = self.step(&wanted, &Act::Resume, &actor).await?;
        Ok(v1::ResumeSchedulesResponse {
            matched_count: step.matched,
            resumed_count: step.done,
            refusals: step.refusals,
            refused_count: step.refused,
            next_page_token: step.next,
        })
    }

    pub(crate) async fn delete_schedules(
        &self,
        request: v1::DeleteSchedulesRequest,
        actor: Caller,
    ) -> Result<v1::DeleteSchedulesResponse, Status> {
        let v1::DeleteSchedulesRequest { parent, filter, page_token, validate_only } = request;
        let wanted = Wanted { parent, filter, page_token, validate_only };
        let step = self.step(&wanted, &Act::Delete, &actor).await?;
        Ok(v1::DeleteSchedulesResponse {
            matched_count: step.matched,
            deleted_count: step.done,
            refusals: step.refusals,
            refused_count: step.refused,
            next_page_token: step.next,
        })
    }

    pub(crate) async fn trigger_schedules(
        &self,
        request: v1::TriggerSchedulesRequest,
        actor: Caller,
    ) -> Result<v1::TriggerSchedulesResponse, Status> {
        let v1::TriggerSchedulesRequest { parent, filter, page_token, validate_only, request_id, events } =
            request;
        let wanted = Wanted { parent, filter, page_token, validate_only };
        let step = self.step(&wanted, &Act::Trigger { request_id, events }, &actor).await?;
        Ok(v1::TriggerSchedulesResponse {
            matched_count: step.matched,
            triggered_count: step.done,
            refusals: step.refusals,
            refused_count: step.refused,
            next_page_token: step.next,
        })
    }

    async fn step(&self, wanted: &Wanted, act: &Act, actor: &Caller) -> Result<Step, Status> {
        let namespace = names::namespace("parent", &wanted.parent)?;
        let filter = to_filter(&wanted.filter, &["name", "state", "policy", "label.*"], &namespace)?;
        if wanted.filter.trim().is_empty() {
            let expected =
                "one term at least, such as label.team=billing; state=ACTIVE for all that are not paused";
            return Err(FieldError::new("filter", "", expected).into());
        }
        act.check()?;
        let query = [act.method(), &wanted.parent, &wanted.filter];
        let mut after = Token::<String>::decode(&wanted.page_token, &query)?;
        let mut step = Step::default();
        while step.matched < STEP {
            let page = self.store().list_schedules(&namespace, &filter, after.as_deref(), PAGE).await;
            let page = page.map_err(status)?;
            let is_last = page.len() < PAGE as usize;
            for schedule in page {
                let id = schedule.id.clone();
                if !wanted.validate_only
                    && let Err(refusal) = self.one(&mut step, schedule, act, actor).await
                {
                    // What was done is told; the next step begins with this one.
                    if step.matched == 0 {
                        return Err(refusal);
                    }
                    step.next = after.map(|after| Token::encode(after, &query)).unwrap_or_default();
                    return Ok(step);
                }
                step.matched += 1;
                after = Some(id);
            }
            if is_last {
                return Ok(step);
            }
        }
        step.next = after.map(|after| Token::encode(after, &query)).unwrap_or_default();
        Ok(step)
    }

    /// Does it to one schedule, and notes what that came to.
    async fn one(
        &self,
        step: &mut Step,
        schedule: Schedule,
        act: &Act,
        actor: &Caller,
    ) -> Result<(), Status> {
        let name = names::of_schedule(&schedule.namespace, &schedule.id);
        match self.act(&name, &schedule, act, actor.clone()).await {
            Ok(is_done) => step.done += u32::from(is_done),
            // Somebody else has deleted it meanwhile.
            Err(refusal) if refusal.code() == Code::NotFound => {}
            Err(refusal) if is_of_one(&refusal) => {
                step.refused += 1;
                if step.refusals.len() < REFUSALS_MAX {
                    let message = refusal.message().to_owned();
                    step.refusals.push(v1::ScheduleRefusal { schedule: name, message });
                }
            }
            Err(refusal) => return Err(refusal),
        }
        Ok(())
    }

    /// Whether it changed anything.
    async fn act(&self, name: &str, schedule: &Schedule, act: &Act, actor: Caller) -> Result<bool, Status> {
        let name = name.to_owned();
        match act {
            Act::Pause { reason } => {
                // The reason of a pause that there is stays.
                if schedule.pause.is_none() {
                    let request = v1::PauseScheduleRequest { name, reason: reason.clone(), revision: 0 };
                    self.pause_schedule(request, actor).await?;
                }
                Ok(schedule.pause.is_none())
            }
            Act::Resume => {
                if schedule.pause.is_some() {
                    self.resume_schedule(v1::ResumeScheduleRequest { name, revision: 0 }, actor).await?;
                }
                Ok(schedule.pause.is_some())
            }
            Act::Delete => {
                // As it matched: what has changed since may not match any more.
                let etag = schedule.generation.to_string();
                self.delete_schedule(v1::DeleteScheduleRequest { name, etag, revision: 0 }, actor).await?;
                Ok(true)
            }
            Act::Trigger { request_id, events } => {
                let request = v1::TriggerScheduleRequest {
                    name,
                    events: *events,
                    request_id: request_id.clone(),
                    ..v1::TriggerScheduleRequest::default()
                };
                self.trigger_schedule(request, actor).await?;
                Ok(true)
            }
        }
    }
}
