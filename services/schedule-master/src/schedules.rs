//! Decides how one schedule is made, changed, paused and deleted.
//!
//! Invariant: a change is made to exactly the generation that was read; where the caller gave no etag and somebody
//! else was faster, it is read and made again.

use prost_types::FieldMask;
use tollgate_core::model::{Pause, Schedule, Target};
use tollgate_proto::convert::{self, Name, names};
use tollgate_proto::{FieldError, mask, v1};
use tollgate_store::revision::Revision;
use tonic::Status;

use crate::ScheduleMaster;
use crate::audit::Deed;
use crate::change::{Change, again, check_etag};
use crate::deletions::Deletion;
use crate::draft::{Draft, stored_plan};
use crate::revisions::{Numbered, Revised};
use crate::secrets::sealed_status;
use crate::warnings::namespace_new;
use tollgate_service::actor::Caller;
use tollgate_service::status::status;

/// How many of the schedules that one follows are named.
const FOLLOWS_MAX: u32 = 10;

/// Refuses to send to another place what a caller who may not read has not given.
fn unseen_stays(
    stored: &Schedule,
    message: &v1::Schedule,
    update_mask: Option<&FieldMask>,
) -> Result<(), FieldError> {
    let masked = mask::apply_mask(&convert::schedule::to_message(stored), message, update_mask)?;
    unseen_list_stays(stored, &masked, update_mask)?;
    let target = masked.target;
    if !target.is_some_and(|target| convert::is_elsewhere(&stored.target, &target)) {
        return Ok(());
    }
    let again = |field: &str| {
        let expected = "it again, among the fields of update_mask: the target is another one, and a key without the scope \
                        read sends nothing there that it has not given";
        Err(FieldError::new(format!("schedule.{field}"), "", expected))
    };
    let given = |field: &str| mask::names(update_mask, field);
    if !stored.payload.json.is_empty() && !given("payload") {
        return again("payload");
    }
    if !stored.payload.items.is_empty() && !given("items") {
        return again("items");
    }
    let (kind, headers) = match &stored.target {
        Target::Http { http, .. } => ("http", &http.headers),
        Target::Kafka { kafka, .. } => ("kafka", &kafka.headers),
        Target::Sqs { .. } | Target::Pull { .. } => return Ok(()),
    };
    for header in headers.keys() {
        let field = format!("target.{kind}.headers.{header}");
        if !given(&field) {
            return again(&field);
        }
    }
    Ok(())
}

/// As [`unseen_stays`], of what is sent where its list is.
fn unseen_list_stays(
    stored: &Schedule,
    masked: &v1::Schedule,
    update_mask: Option<&FieldMask>,
) -> Result<(), FieldError> {
    let (Some(before), Some(now)) = (&stored.payload.from, &masked.items_from) else { return Ok(()) };
    if !convert::is_list_elsewhere(before, now) {
        return Ok(());
    }
    let fields = before.http.headers.keys().map(|header| format!("items_from.http.headers.{header}"));
    match fields.into_iter().find(|field| !mask::names(update_mask, field)) {
        None => Ok(()),
        Some(field) => {
            let expected = "it again, among the fields of update_mask: the list is elsewhere, and a key without the scope read \
                            sends nothing there that it has not given";
            Err(FieldError::new(format!("schedule.{field}"), "", expected))
        }
    }
}

impl ScheduleMaster {
    pub(crate) async fn create_schedule(
        &self,
        request: v1::CreateScheduleRequest,
        actor: Caller,
    ) -> Result<v1::Schedule, Status> {
        let namespace = names::namespace("parent", &request.parent)?;
        let message = request.schedule.ok_or_else(|| FieldError::new("schedule", "", "a schedule"))?;
        let given = (("schedule_id", request.schedule_id.as_str()), ("schedule.name", message.name.as_str()));
        let name = names::to_create(&namespace, "schedules", given.0, given.1)?;
        let mut try_number = 1;
        loop {
            // Somebody else was faster: with its name, which the next try says, or with the dates of a calendar.
            match self.made_anew(&message, &name, actor.clone(), request.validate_only).await {
                Err(failed) if again(try_number, &failed) => try_number += 1,
                done => return done,
            }
        }
    }

    async fn made_anew(
        &self,
        message: &v1::Schedule,
        name: &Name,
        actor: Caller,
        validate_only: bool,
    ) -> Result<v1::Schedule, Status> {
        let at_us = self.now_us();
        let mut draft = self.drafted(message, name, None, self.new_id(at_us)).await?;
        let mut warnings = self.schedule_warnings(&draft, !message.time_zone.is_empty()).await;
        if self.is_new(&name.namespace).await {
            warnings.push(namespace_new(&name.namespace));
        }
        if self.store().schedule(&name.namespace, &name.id).await.map_err(status)?.is_some() {
            let taken = names::of_schedule(&name.namespace, &name.id);
            return Err(Status::already_exists(format!("{taken} exists already")));
        }
        let sealed = self.seal(&mut draft.schedule, None);
        sealed.map_err(|error| sealed_status(&draft.schedule, &error))?;
        let deed = Deed { at_us, actor, action: "create" };
        let change = Change::to(None, draft.schedule, draft.plan, deed, self.inner.base);
        let shown = self.show_change(&change)?;
        let _turn = self.admit_schedules(&[(name.namespace.as_str(), 1)].into()).await?;
        if !validate_only {
            self.admit_writes(&name.namespace, 1)?;
            self.commit(&[&change]).await.map_err(status)?;
        }
        Ok(v1::Schedule { warnings, ..shown })
    }

    pub(crate) async fn get_schedule(&self, request: v1::GetScheduleRequest) -> Result<v1::Schedule, Status> {
        let schedule = self.stored_schedule(&names::schedule("name", &request.name)?).await?;
        let before = self.store().followed_by(&schedule.namespace, &schedule.id, FOLLOWS_MAX).await;
        let named = |id: String| names::of_schedule(&schedule.namespace, &id);
        let follows = before.map_err(status)?.into_iter().map(named).collect();
        Ok(v1::Schedule { follows, ..self.shown(&schedule, None) })
    }

    /// `reads`: whether the caller may see what it does not give.
    pub(crate) async fn update_schedule(
        &self,
        request: v1::UpdateScheduleRequest,
        actor: Caller,
        reads: bool,
    ) -> Result<v1::Schedule, Status> {
        let message = request.schedule.ok_or_else(|| FieldError::new("schedule", "", "a schedule"))?;
        let name = names::schedule("schedule.name", &message.name)?;
        let etag = convert::etag("schedule.etag", &message.etag)?;
        let mask = request.update_mask.as_ref();
        let mut try_number = 1;
        loop {
            let stored = self.stored_schedule(&name).await?;
            check_etag(&message.name, etag, stored.generation)?;
            let opened = self.opened(&stored).map_err(|error| sealed_status(&stored, &error))?;
            if !reads {
                unseen_stays(&opened, &message, mask)?;
            }
            let mut draft = self.masked(&opened, &name, &message, mask).await?;
            let in_part = mask.is_some_and(|mask| !mask.paths.is_empty() && mask.paths != ["*"]);
            let warnings = self.schedule_warnings(&draft, in_part || !message.time_zone.is_empty()).await;
            if draft.schedule == opened {
                return Ok(v1::Schedule { warnings, ..self.shown(&stored, Some(&draft.plan)) });
            }
            let sealed = self.seal(&mut draft.schedule, Some(&stored));
            sealed.map_err(|error| sealed_status(&stored, &error))?;
            if !request.validate_only {
                self.admit_writes(&name.namespace, 1)?;
            }
            let at_us = self.change_us(stored.updated_us);
            let deed = Deed { at_us, actor: actor.clone(), action: "update" };
            let change = Change::to(Some(stored), draft.schedule, draft.plan, deed, self.inner.base);
            if request.validate_only {
                return self.show_change(&change).map(|shown| v1::Schedule { warnings, ..shown });
            }
            match self.make(change, Vec::new()).await {
                Err(failed) if again(try_number, &failed) => try_number += 1,
                done => return done.map(|shown| v1::Schedule { warnings, ..shown }),
            }
        }
    }

    async fn masked(
        &self,
        stored: &Schedule,
        name: &Name,
        message: &v1::Schedule,
        update_mask: Option<&FieldMask>,
    ) -> Result<Draft, Status> {
        let current = convert::schedule::to_message(stored);
        let mut masked = mask::apply_mask(&current, message, update_mask)?;
        // The number of events follows items that are given without it.
        if !masked.items.is_empty()
            && mask::names(update_mask, "items")
            && !mask::names(update_mask, "events")
        {
            masked.events = None;
        }
        self.drafted(&masked, name, Some(stored), stored.uid).await
    }

    pub(crate) async fn delete_schedule(
        &self,
        request: v1::DeleteScheduleRequest,
        actor: Caller,
    ) -> Result<(), Status> {
        let name = names::schedule("name", &request.name)?;
        let asked = (request.etag.as_str(), request.revision);
        let deletion = Deletion::new(Revised::Schedule, (&name, &request.name), asked, actor)?;
        let state = |stored: &Schedule| (stored.generation, stored.updated_us);
        self.delete(deletion, || self.stored_schedule(&name), state, Change::deletion).await
    }

    pub(crate) async fn pause_schedule(
        &self,
        request: v1::PauseScheduleRequest,
        actor: Caller,
    ) -> Result<v1::Schedule, Status> {
        let reason = convert::remark("reason", &request.reason)?;
        let pause = |schedule: &mut Schedule, since_us: i64| {
            if schedule.pause.as_ref().is_none_or(|pause| pause.reason != reason) {
                schedule.pause = Some(Pause { reason: reason.clone(), actor: actor.name.clone(), since_us });
            }
        };
        self.steer((&request.name, request.revision), "pause", &actor, pause).await
    }

    pub(crate) async fn resume_schedule(
        &self,
        request: v1::ResumeScheduleRequest,
        actor: Caller,
    ) -> Result<v1::Schedule, Status> {
        let named = (request.name.as_str(), request.revision);
        self.steer(named, "resume", &actor, |schedule, _| schedule.pause = None).await
    }

    /// Changes what is stored by `steer`, which may leave it as it is.
    async fn steer(
        &self,
        (name, revision): (&str, i64),
        action: &'static str,
        actor: &Caller,
        steer: impl Fn(&mut Schedule, i64) + Send + Sync,
    ) -> Result<v1::Schedule, Status> {
        let name = names::schedule("name", name)?;
        let numbered = Numbered::change(Revised::SchedulePause, &name, revision)?;
        let mut try_number = 1;
        loop {
            let revisions = self.not_outdated(&numbered).await?;
            let stored = self.stored_schedule(&name).await?;
            let at_us = self.change_us(stored.updated_us);
            let mut steered = stored.clone();
            steer(&mut steered, at_us);
            let plan = stored_plan(&stored)?;
            let made = if steered == stored {
                self.write_revisions(revisions).await.map(|()| self.shown(&stored, Some(&plan)))
            } else {
                let deed = Deed { at_us, actor: actor.clone(), action };
                let change = Change::to(Some(stored), steered, plan, deed, self.inner.base);
                self.make(change, revisions).await
            };
            match made {
                Err(failed) if again(try_number, &failed) => try_number += 1,
                done => return done,
            }
        }
    }

    /// Commits a change that leaves a schedule behind, and shows that.
    async fn make(&self, change: Change, revisions: Vec<Revision>) -> Result<v1::Schedule, Status> {
        let shown = self.show_change(&change)?;
        self.commit_as(&[&change], revisions).await.map_err(status)?;
        Ok(shown)
    }

    fn show_change(&self, change: &Change) -> Result<v1::Schedule, Status> {
        let (after, plan) = change.after().next().ok_or_else(|| Status::internal("nothing to show"))?;
        Ok(self.shown(after, Some(plan)))
    }

    /// A schedule by its name.
    pub(crate) async fn stored_schedule(&self, name: &Name) -> Result<Schedule, Status> {
        let found = self.store().schedule(&name.namespace, &name.id).await.map_err(status)?;
        found.ok_or_else(|| {
            let name = names::of_schedule(&name.namespace, &name.id);
            Status::not_found(format!("{name} does not exist"))
        })
    }
}
