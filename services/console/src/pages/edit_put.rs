//! Reads what is made or changed, and keeps it: all kinds of resource in the same way.

use serde_json::Value;
use tollgate_files::{document, with_ids};
use tollgate_proto::json::to_json;
use tollgate_proto::v1;

use crate::parts::draft::{Stored, What, editable, would_be};
use crate::parts::forms::Texts;
use crate::parts::rules;
use crate::requests::problem::{Problem, read};
use crate::requests::visit::Visit;

/// A resource as it is stored; as nothing where it is to be made.
pub(crate) async fn stored(visit: &Visit, what: What, id: &str) -> Result<Stored, Problem> {
    if id.is_empty() {
        return Ok(Stored::default());
    }
    let name = visit.full(what.collection(), id);
    let (value, file, etag, schedule) = match what {
        What::Schedule => {
            let schedule = visit.api.schedule(&name).await?;
            (to_json(&schedule), document(what.kind(), &schedule), schedule.etag.clone(), Some(schedule))
        }
        What::Policy => {
            let policy = visit.api.master().get_policy(v1::GetPolicyRequest { name }).await?.into_inner();
            (to_json(&policy), document(what.kind(), &policy), policy.etag, None)
        }
        What::Calendar => {
            let request = v1::GetCalendarRequest { name };
            let calendar = visit.api.master().get_calendar(request).await?.into_inner();
            (to_json(&calendar), document(what.kind(), &calendar), calendar.etag, None)
        }
        What::Alert => {
            let alert = visit.api.master().get_alert(v1::GetAlertRequest { name }).await?.into_inner();
            (to_json(&alert), document(what.kind(), &alert), alert.etag, None)
        }
    };
    let mut members = editable(value);
    if what != What::Schedule {
        with_ids(&mut members, &visit.ns);
    }
    Ok(Stored { id: id.to_owned(), etag, members, file, schedule })
}

/// What was made or changed, or could be.
pub(crate) struct Put {
    /// The resource's full name.
    pub(crate) name: String,
    /// What the service warns of.
    pub(crate) warnings: Vec<v1::Warning>,
}

/// What is sent of a resource.
struct Sent {
    name: String,
    parent: String,
    id: String,
    etag: String,
    update_mask: Option<prost_types::FieldMask>,
    members: Value,
    is_new: bool,
    validate_only: bool,
}

/// Makes or changes the resource as the form says, for this reason; without one, it only asks whether that can be done.
pub(crate) async fn put(
    visit: &Visit,
    what: What,
    stored: &Stored,
    texts: &Texts,
    reason: Option<&str>,
) -> Result<Put, Problem> {
    let (members, paths) = would_be(what, stored, texts)?;
    let text = |name: &str| texts.get(name).map(|text| text.trim()).unwrap_or_default();
    let id = text("id").to_owned();
    let name = visit.full(what.collection(), if stored.id.is_empty() { &id } else { &stored.id });
    let sent = Sent {
        name: name.clone(),
        parent: visit.parent(),
        id,
        etag: text("etag").to_owned(),
        update_mask: Some(prost_types::FieldMask { paths }),
        members: members.into(),
        is_new: stored.id.is_empty(),
        validate_only: reason.is_none(),
    };
    let done = match what {
        What::Schedule => schedule(visit, sent, reason).await,
        What::Policy => policy(visit, sent, reason).await,
        What::Calendar => calendar(visit, sent, reason).await,
        What::Alert => alert(visit, sent, reason).await,
    };
    done.map(|warnings| Put { name, warnings })
        .map_err(|problem| if text("form") == "json" { problem } else { rules::placed(problem, texts) })
}

async fn schedule(visit: &Visit, sent: Sent, reason: Option<&str>) -> Result<Vec<v1::Warning>, Problem> {
    let Sent { name, parent, id, etag, update_mask, members, is_new, validate_only } = sent;
    let mut master = visit.api.because(reason.unwrap_or_default()).master();
    let read: v1::Schedule = read(members)?;
    let kept = if is_new {
        let schedule = Some(read);
        let request = v1::CreateScheduleRequest { parent, schedule_id: id, schedule, validate_only };
        master.create_schedule(request).await?
    } else {
        let schedule = Some(v1::Schedule { name, etag, ..read });
        master.update_schedule(v1::UpdateScheduleRequest { schedule, update_mask, validate_only }).await?
    };
    Ok(kept.into_inner().warnings)
}

async fn policy(visit: &Visit, sent: Sent, reason: Option<&str>) -> Result<Vec<v1::Warning>, Problem> {
    let Sent { name, parent, id, etag, update_mask, members, is_new, validate_only } = sent;
    let mut master = visit.api.because(reason.unwrap_or_default()).master();
    let read: v1::Policy = read(members)?;
    let kept = if is_new {
        let policy = Some(read);
        let request = v1::CreatePolicyRequest { parent, policy_id: id, policy, validate_only };
        master.create_policy(request).await?
    } else {
        let policy = Some(v1::Policy { name, etag, ..read });
        master.update_policy(v1::UpdatePolicyRequest { policy, update_mask, validate_only }).await?
    };
    Ok(kept.into_inner().warnings)
}

async fn calendar(visit: &Visit, sent: Sent, reason: Option<&str>) -> Result<Vec<v1::Warning>, Problem> {
    let Sent { name, parent, id, etag, update_mask, members, is_new, validate_only } = sent;
    let mut master = visit.api.because(reason.unwrap_or_default()).master();
    let read: v1::Calendar = read(members)?;
    let kept = if is_new {
        let calendar = Some(read);
        let request = v1::CreateCalendarRequest { parent, calendar_id: id, calendar, validate_only };
        master.create_calendar(request).await?
    } else {
        let calendar = Some(v1::Calendar { name, etag, ..read });
        master.update_calendar(v1::UpdateCalendarRequest { calendar, update_mask, validate_only }).await?
    };
    Ok(kept.into_inner().warnings)
}

async fn alert(visit: &Visit, sent: Sent, reason: Option<&str>) -> Result<Vec<v1::Warning>, Problem> {
    let Sent { name, parent, id, etag, update_mask, members, is_new, validate_only } = sent;
    let mut master = visit.api.because(reason.unwrap_or_default()).master();
    let read: v1::Alert = read(members)?;
    let kept = if is_new {
        let alert = Some(read);
        let request = v1::CreateAlertRequest { parent, alert_id: id, alert, validate_only };
        master.create_alert(request).await?
    } else {
        let alert = Some(v1::Alert { name, etag, ..read });
        master.update_alert(v1::UpdateAlertRequest { alert, update_mask, validate_only }).await?
    };
    Ok(kept.into_inner().warnings)
}
