//! Decides what becomes of items that are submitted: pages beside a run that is made when all of them are durable.
//!
//! In: a header, then items. Out: the submission, with its run. Invariants: nothing is due before the last item is durable; one
//! request id makes one run, whoever dies when; the same items under the same id are the same submission, and others are
//! refused; what one stream has in memory is bounded, and so are the streams of a namespace. Not here: how items are put
//! together ([`tollgate_core::items`]), who removes what nobody goes on with (retention).

mod asked;
mod upload;

use std::time::Duration;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio_stream::{Stream, StreamExt as _};
use tollgate_core::items::ItemsDigest;
use tollgate_core::model::{Run, RunId, RunKind, RunState, Schedule};
use tollgate_core::plan::home;
use tollgate_core::plan::units::PolicyLimits;
use tollgate_metrics::Bound;
use tollgate_proto::convert::{self, names, run};
use tollgate_proto::v1::submit_items_request::Part;
use tollgate_proto::{FieldError, v1};
use tollgate_secrets::item_field;
use tollgate_service::actor::Caller;
use tollgate_service::room::Room;
use tollgate_service::status::status;
use tollgate_store::StoreError;
use tollgate_store::history::{RunFilter, RunIds};
use tollgate_store::items::StoredSubmission;
use tollgate_store::plan::ByHand;
use tonic::Status;

use crate::ScheduleMaster;
use crate::audit::{self, Deed};
use crate::parents::Known;
use crate::runs::{not_handed_over, refuse_paused};
use asked::Asked;
use upload::Upload;

/// Streams of all namespaces at once, and of one.
pub(crate) const STREAMS_MAX: usize = 16;
/// Of one namespace.
pub(crate) const STREAMS_EACH: usize = 4;
/// How long a stream waits for its turn.
const TURN_MAX: Duration = Duration::from_secs(20);
/// A stream of which nothing comes for so long is given up.
const SILENT_MAX: Duration = Duration::from_secs(60);

impl ScheduleMaster {
    /// Takes a stream of items in.
    pub(crate) async fn submit_items(
        &self,
        mut parts: impl Stream<Item = Result<v1::SubmitItemsRequest, Status>> + Unpin,
        actor: Caller,
    ) -> Result<v1::Submission, Status> {
        let header = match next_part(&mut parts).await? {
            Some(Part::Header(header)) => header,
            _ => return Err(FieldError::new("header", "", "the header of the submission first").into()),
        };
        let name = names::schedule("header.name", &header.name)?;
        let _room = self.room_to_submit(&name.namespace).await?;
        let schedule = self.stored_schedule(&name).await?;
        let asked = Asked::of(header, self.now_us())?;
        let begun = self.begin(&schedule, &asked).await?;
        // A pause stops no repeat of what was made before it.
        if begun.made_us.is_none() && self.run_of(&begun, &name.namespace).await?.is_none() {
            refuse_paused(&schedule)?;
        }
        let limits = self.limits_of_items(&schedule).await?;
        let mut upload = Upload::new(self, &schedule, begun, asked.resume_from, limits)?;
        while let Some(part) = next_part(&mut parts).await? {
            match part {
                Part::Items(items) => upload.take(items).await?,
                Part::Header(_) => return Err(FieldError::new("header", "", "one header, first").into()),
            }
        }
        let complete = upload.finish().await?;
        if asked.hold {
            return self.show(&schedule, complete).await;
        }
        // From here on it comes to its end, whether or not its caller waits.
        let master = self.clone();
        let made = tokio::spawn(async move { master.complete(complete, &asked, actor).await });
        made.await.map_err(|error| Status::internal(format!("the call did not come to its end: {error}")))?
    }

    /// Where a submission stands.
    pub(crate) async fn get_submission(
        &self,
        request: v1::GetSubmissionRequest,
    ) -> Result<v1::Submission, Status> {
        let (name, request_id) = asked::submission_name("name", &request.name)?;
        let schedule = self.stored_schedule(&name).await?;
        let found = self.store().submission(schedule.uid, &request_id).await.map_err(status)?;
        let found = found.ok_or_else(|| {
            let name = &request.name;
            Status::not_found(format!("name: there is no submission {name:?}, or it was made too long ago"))
        })?;
        self.show(&schedule, found).await
    }

    /// What one item of a schedule may take.
    async fn limits_of_items(&self, schedule: &Schedule) -> Result<PolicyLimits, Status> {
        let Some(id) = &schedule.policy else { return Ok(PolicyLimits::default()) };
        let policy = self.store().policy(&schedule.namespace, id).await.map_err(status)?;
        let limits = match policy {
            Some(policy) => self.limits_of(&policy, &mut Known::new()).await?,
            None => PolicyLimits::default(),
        };
        Ok(limits.with_defaults(schedule.key.as_deref().unwrap_or_default(), schedule.units))
    }

    async fn room_to_submit(&self, namespace: &str) -> Result<Room, Status> {
        let room = self.inner.submitting.take(namespace.to_owned(), 1);
        tokio::time::timeout(TURN_MAX, room).await.map_err(|_| {
            self.options().metrics.refused(Bound::Submissions);
            Status::unavailable(format!(
                "too many submissions at once: {STREAMS_EACH} of a namespace and {STREAMS_MAX} in all are taken; try \
                 again"
            ))
        })
    }

    /// The submission of this request id, begun now or before.
    async fn begin(&self, schedule: &Schedule, asked: &Asked) -> Result<StoredSubmission, Status> {
        for _ in 0..2 {
            let found = self.store().submission(schedule.uid, &asked.request_id).await.map_err(status)?;
            if let Some(found) = found {
                asked.is_the_same(&found.asked)?;
                return Ok(found);
            }
            if asked.resume_from > 0 {
                return Err(Status::failed_precondition(
                    "header.resume_from: the service has no items of this request id (any more); begin anew, from 0",
                ));
            }
            refuse_paused(schedule)?;
            let launch_us = asked.launch_us.unwrap_or_else(|| self.manual_launch_us());
            let id = RunId::derive(schedule.uid, launch_us);
            self.refuse_taken(schedule, launch_us).await?;
            let field = item_field(id.0, None);
            let payload = self.options().keys.seal(schedule.uid, &field, &asked.payload);
            let payload = payload.map_err(|error| Status::internal(error.to_string()))?;
            let begun = StoredSubmission {
                schedule_uid: schedule.uid,
                request_id: asked.request_id.clone(),
                shard: home(schedule, self.inner.base),
                run: id,
                launch_us,
                asked: asked.to_compare(),
                created_us: self.now_us(),
                items: 0,
                digest: ItemsDigest::default(),
                units_max: 0,
                made_us: None,
            };
            let _turn = self.turn(&schedule.namespace).await;
            let payload = if asked.payload.is_empty() { "" } else { &payload };
            if self.store().begin_submission(&begun, payload).await.map_err(status)? {
                return Ok(begun);
            }
        }
        Err(Status::aborted("another submission was begun at the same moment; try again"))
    }

    async fn refuse_taken(&self, schedule: &Schedule, launch_us: i64) -> Result<(), Status> {
        let taken = self.store().launches_with_runs(schedule.uid, launch_us, launch_us + 1).await;
        if taken.map_err(status)?.is_empty() {
            return Ok(());
        }
        Err(Status::already_exists(format!(
            "header.launch_time: {} has a run of {} already, and one launch time has one run; choose another moment",
            names::of_schedule(&schedule.namespace, &schedule.id),
            convert::timestamp(launch_us)
        )))
    }

    /// Makes the run of a submission whose items are durable, unless it has been made.
    async fn complete(
        &self,
        mut complete: StoredSubmission,
        asked: &Asked,
        actor: Caller,
    ) -> Result<v1::Submission, Status> {
        let name = names::schedule("header.name", &asked.name)?;
        let schedule = self.stored_schedule(&name).await?;
        if complete.made_us.is_none() {
            let mut before = self.run_of(&complete, &name.namespace).await?;
            if before.is_none() && home(&schedule, self.inner.base) != complete.shard {
                // One that was made has moved with its schedule.
                let found = self.store().submission(complete.schedule_uid, &complete.request_id).await;
                complete.shard = found.map_err(status)?.map_or(complete.shard, |found| found.shard);
                before = self.run_of(&complete, &name.namespace).await?;
            }
            let made = Run {
                shard: complete.shard,
                events: complete.items,
                units_max: complete.units_max,
                state: RunState::Emitted,
                priority: asked.priority.unwrap_or(schedule.priority),
                ..self.run(&schedule, complete.launch_us, RunKind::Submitted, self.now_us())
            };
            let is_home = home(&schedule, self.inner.base) == complete.shard;
            if schedule.uid != complete.schedule_uid || (before.is_none() && !is_home) {
                return Err(Status::aborted(
                    "the schedule was deleted, or has moved to another queue shard, since the submission began; submit \
                     it again under another request id",
                ));
            }
            if before.is_none() {
                self.make_run(&schedule, &made, &complete, actor).await?;
            }
            tollgate_fault_points::pass("master.submission.made");
            self.store().submission_made(&complete, self.now_us()).await.map_err(status)?;
        }
        self.show(&schedule, StoredSubmission { made_us: Some(self.now_us()), ..complete }).await
    }

    async fn make_run(
        &self,
        schedule: &Schedule,
        made: &Run,
        complete: &StoredSubmission,
        actor: Caller,
    ) -> Result<(), Status> {
        self.admit_writes(&schedule.namespace, 1)?;
        self.admit_events(&schedule.namespace, u64::from(made.events)).await?;
        let details = [
            ("run", json!(names::of_run(&made.namespace, made.shard, made.id))),
            ("events", json!(made.events)),
            ("request_id", json!(complete.request_id)),
        ];
        let deed = Deed { at_us: self.now_us(), actor, action: "submit" };
        let audit = audit::note(self.new_id(deed.at_us), &deed, schedule, &details);
        let by_hand =
            ByHand { runs: vec![made.clone()], only_new: true, audit: Some(audit), ..ByHand::default() };
        match self.hand_over(schedule, by_hand).await {
            Ok(_) => {}
            // Another stream of the same submission was faster, or a run of another kind has this launch time.
            Err(StoreError::Conflict { .. }) => {
                if self.run_of(complete, &schedule.namespace).await?.is_none() {
                    self.refuse_taken(schedule, made.launch_us).await?;
                }
            }
            Err(error) => return Err(not_handed_over(schedule, error)),
        }
        self.wake(made.shard);
        Ok(())
    }

    /// Its run, where that has been made.
    async fn run_of(&self, submission: &StoredSubmission, namespace: &str) -> Result<Option<Run>, Status> {
        let StoredSubmission { shard, run, .. } = *submission;
        let ids = Some(RunIds { shard: Some(shard), from: run, to: run });
        let filter = RunFilter { ids, ..RunFilter::default() };
        let found = self.store().list_runs(namespace, &filter, None, 1).await.map_err(status)?;
        Ok(found.into_iter().find(|run| run.kind == RunKind::Submitted))
    }

    async fn show(&self, schedule: &Schedule, found: StoredSubmission) -> Result<v1::Submission, Status> {
        let is_made = found.made_us.is_some();
        let run = if is_made { self.run_of(&found, &schedule.namespace).await? } else { None };
        let state = if is_made { v1::SubmissionState::Complete } else { v1::SubmissionState::Open };
        let name = names::of_schedule(&schedule.namespace, &schedule.id);
        Ok(v1::Submission {
            name: format!("{name}/submissions/{}", found.request_id),
            state: state.into(),
            received_count: found.items,
            run: run.map(|run| run::to_message(&run, schedule.policy.as_deref())),
            create_time: Some(convert::timestamp(found.created_us)),
        })
    }
}

/// The next part of a stream; none at its end.
async fn next_part(
    parts: &mut (impl Stream<Item = Result<v1::SubmitItemsRequest, Status>> + Unpin),
) -> Result<Option<Part>, Status> {
    let next = tokio::time::timeout(SILENT_MAX, parts.next()).await.map_err(|_| {
        let seconds = SILENT_MAX.as_secs();
        Status::deadline_exceeded(format!("no items came for {seconds} s; go on with what the service has"))
    })?;
    match next {
        None => Ok(None),
        Some(Err(error)) => Err(error),
        Some(Ok(v1::SubmitItemsRequest { part: Some(part) })) => Ok(Some(part)),
        Some(Ok(_)) => Err(FieldError::new("part", "", "header or items").into()),
    }
}

/// A text's SHA-256, for comparison: what is not to be read is not kept.
fn digest_of(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
