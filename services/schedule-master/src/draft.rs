//! Decides whether a schedule may be stored, and how it looks to callers.
//!
//! In: a message, and what is stored. Out: the schedule as it shall be with its compiled plan, or every refusal.
//! Invariant: an interval's offset depends on the schedule's uid alone, so that it stays over updates.

use tollgate_core::model::{Schedule, Target, Timing};
use tollgate_core::plan::units::PolicyLimits;
use tollgate_core::plan::{Plan, put_under};
use tollgate_proto::convert::{self, Name, names};
use tollgate_proto::{FieldError, field, v1};
use tonic::Status;
use uuid::Uuid;

use crate::chains::Links;
use crate::dates::{self, Calendars};
use crate::secrets::refuse_envelopes;
use crate::{ScheduleMaster, parents};
use tollgate_service::status::status;

/// A schedule as it shall be, with what its timing means.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) schedule: Schedule,
    pub(crate) plan: Plan,
}

/// What `message` describes, with the dates of its calendars; `uid` is for a schedule that is not stored yet; `speaks_kafka`:
/// whether Kafka targets may be. Its policy is not looked up. Secret parts are in clear, those of `stored` as well.
pub(crate) fn draft(
    message: &v1::Schedule,
    name: &Name,
    stored: Option<&Schedule>,
    uid: Uuid,
    calendars: &Calendars,
    speaks_kafka: bool,
) -> Result<Draft, Vec<FieldError>> {
    let uid = stored.map_or(uid, |stored| stored.uid);
    let before = stored.map(|stored| &stored.timing);
    let mut schedule = convert::schedule::to_core(message, name, stored).map_err(|mut errors| {
        // What the planner says of a timing that reads well belongs to the same answer.
        if let Ok(mut timing) = convert::schedule::timing_to_core(message, &name.namespace) {
            errors.extend(calendars.give(&mut timing, &name.namespace, before).err().into_iter().flatten());
            errors.extend(timing_faults(&timing, uid));
        }
        errors
    })?;
    refuse_envelopes(&schedule)?;
    if matches!(schedule.target, Target::Kafka { .. }) && !speaks_kafka {
        return Err(vec![no_kafka()]);
    }
    let dates = calendars.give(&mut schedule.timing, &name.namespace, before);
    let plan = match (Plan::compile(&schedule.timing, uid.as_bytes()), dates) {
        (Ok(plan), Ok(())) => plan,
        (plan, dates) => {
            let mut errors = dates.err().unwrap_or_default();
            errors.extend(plan.err().into_iter().flat_map(|_| timing_faults(&schedule.timing, uid)));
            return Err(errors);
        }
    };
    schedule.uid = uid;
    schedule.timing.triggers = plan.resolved().to_vec();
    Ok(Draft { schedule, plan })
}

/// The refusal of a target that no process of this build could send to.
fn no_kafka() -> FieldError {
    let expected = "http, sqs or pull: this server was built without Kafka, the feature `kafka`";
    FieldError::new("schedule.target.kafka", "", expected)
}

/// Everything that the planner refuses of a timing.
fn timing_faults(timing: &Timing, uid: Uuid) -> Vec<FieldError> {
    let faults = Plan::faults(timing, uid.as_bytes()).into_iter();
    faults.map(|fault| convert::plan_refusal("schedule", fault)).collect()
}

/// The refusal of a policy that does not exist.
pub(crate) fn no_policy(id: &str) -> FieldError {
    FieldError::new(
        "schedule.policy",
        id,
        "a policy of the same namespace that exists: apply it first, or with its schedule",
    )
}

/// What is refused of the units of a schedule and of its items. What is as it was stored stays: a limit was lowered since, of
/// which a warning tells.
pub(crate) fn too_many_units(
    schedule: &Schedule,
    stored: Option<&Schedule>,
    limits: &PolicyLimits,
) -> Vec<FieldError> {
    let asked = |of: &Schedule| (of.units, of.key.clone(), of.policy.clone(), of.payload.items.clone());
    if stored.is_some_and(|stored| asked(stored) == asked(schedule)) {
        return Vec::new();
    }
    let faults = limits.faults(schedule).into_iter();
    faults
        .map(|fault| FieldError::new(format!("schedule.{}", fault.field), fault.units, fault.expected))
        .collect()
}

impl ScheduleMaster {
    /// As [`draft`], with its calendars, its policy and what follows looked up.
    pub(crate) async fn drafted(
        &self,
        message: &v1::Schedule,
        name: &Name,
        stored: Option<&Schedule>,
        uid: Uuid,
    ) -> Result<Draft, Status> {
        let mut calendars = Calendars::default();
        let named = dates::named(message, &name.namespace);
        self.look_up_calendars(&mut calendars, &name.namespace, &named).await?;
        let drafted = draft(message, name, stored, uid, &calendars, self.options().speaks_kafka);
        let asked = match &drafted {
            Ok(draft) => draft.schedule.policy.clone(),
            Err(_) => names::policy_within("schedule.policy", &name.namespace, &message.policy)
                .ok()
                .map(|policy| policy.id),
        };
        let mut found = None;
        let mut missing = None;
        if let Some(id) = asked {
            match self.store().policy(&name.namespace, &id).await.map_err(status)? {
                Some(policy) => found = Some(policy),
                None => missing = Some(no_policy(&id)),
            }
        }
        match (drafted, missing) {
            (Ok(mut draft), None) => {
                if let Some(policy) = &found {
                    let limits = self.limits_of(policy, &mut parents::Known::new()).await?;
                    let errors = too_many_units(&draft.schedule, stored, &limits);
                    if !errors.is_empty() {
                        return Err(field::invalid_argument(&errors));
                    }
                }
                let found = found.map(|policy| (policy.uid, policy.shard));
                put_under(&mut draft.schedule, found, stored, self.layout());
                let links = &mut Links::default();
                match self.chain_fault(&draft.schedule, stored.is_some(), links).await? {
                    Some(fault) => Err(fault.into()),
                    None => Ok(draft),
                }
            }
            (Ok(_), Some(missing)) => Err(missing.into()),
            (Err(mut errors), missing) => {
                errors.extend(missing);
                Err(field::invalid_argument(&errors))
            }
        }
    }

    /// A schedule as callers see it.
    pub(crate) fn shown(&self, schedule: &Schedule, plan: Option<&Plan>) -> v1::Schedule {
        let opened = self.opened_to_show(schedule);
        let mut message = convert::schedule::to_message(opened.as_ref().unwrap_or(schedule));
        let compiled;
        let plan = match plan {
            Some(plan) => Some(plan),
            None => {
                compiled = read_plan(schedule).ok();
                compiled.as_ref()
            }
        };
        if let Some(plan) = plan {
            let children =
                if plan.children().is_empty() { plan.children_count() } else { plan.children().len() };
            message.launch_classes = plan.classes().iter().map(ToString::to_string).collect();
            message.children_count = u32::try_from(children).unwrap_or(u32::MAX);
            let next_us = plan.fires_after(self.now_us()).next();
            message.next_launch_time = next_us.map(convert::timestamp);
            message.next_start_time = next_us.map(|us| convert::timestamp(us + schedule.start_delay_us()));
        }
        message
    }
}

/// The plan of a stored schedule for showing it: with its children only where counting them one by one might count
/// one twice.
fn read_plan(schedule: &Schedule) -> Result<Plan, Status> {
    let compile = if schedule.timing.triggers.len() == 1 { Plan::forecast } else { Plan::compile };
    compile(&schedule.timing, schedule.uid.as_bytes()).map_err(|error| corrupt(schedule, &error.to_string()))
}

/// The plan of a stored schedule.
pub(crate) fn stored_plan(schedule: &Schedule) -> Result<Plan, Status> {
    Plan::compile(&schedule.timing, schedule.uid.as_bytes())
        .map_err(|error| corrupt(schedule, &error.to_string()))
}

fn corrupt(schedule: &Schedule, error: &str) -> Status {
    let name = names::of_schedule(&schedule.namespace, &schedule.id);
    tracing::error!(schedule = name, error, "a stored timing cannot be compiled");
    Status::internal(format!("the stored timing of {name} cannot be compiled: {error}"))
}
