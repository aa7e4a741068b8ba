//! The gRPC surface: every call to its function.
//!
//! Invariant: a call that was begun is carried to its end, also when its caller leaves: a change is committed and
//! its queue shard told, and no transaction is dropped half-way.

use std::future::Future;

use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tollgate_auth::{Access, Named, StreamKey};
use tollgate_metrics::{Metrics, Role};
use tollgate_proto::v1;
use tollgate_proto::v1::schedule_master_service_server::ScheduleMasterService;
use tollgate_service::actor::{Caller, caller};
use tollgate_service::redact;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::ScheduleMaster;
use crate::alerts::{Asking, may_apply};
use crate::apply::Gathered;
use crate::progress::{Progress, Step, Steps, watched};

/// Runs a call where its caller's leaving does not stop it.
async fn carried<T: Send + 'static>(
    metrics: Metrics,
    call: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<Response<T>, Status> {
    match tokio::spawn(call).await {
        Ok(answer) => {
            if answer
                .as_ref()
                .is_err_and(|refusal| [Code::Unavailable, Code::Internal].contains(&refusal.code()))
            {
                metrics.store_failed(Role::Master);
            }
            answer.map(Response::new)
        }
        Err(error) => {
            tracing::error!(%error, "a call did not come to its end");
            Err(Status::internal("the call did not come to its end; the log has the details"))
        }
    }
}

/// Refuses a request that names what its caller's key does not reach, before anything is looked up.
fn admit<T: Named>(request: &Request<T>) -> Result<(), Status> {
    Access::of(request.extensions()).admit(request.get_ref())
}

/// A call that changes something: with its caller's name and reason.
macro_rules! change {
    ($self:ident, $request:ident, $call:ident) => {{
        admit(&$request)?;
        let master = $self.clone();
        let actor = caller($request.metadata());
        carried(
            master.options().metrics.clone(),
            async move { master.$call($request.into_inner(), actor).await },
        )
        .await
    }};
}

/// A call that changes a schedule and shows it, as far as its caller may see it.
macro_rules! change_schedule {
    ($self:ident, $request:ident, $call:ident) => {{
        let access = Access::of($request.extensions());
        change!($self, $request, $call)
            .map(|answer| answer.map(|schedule| redact::schedule(&access, schedule)))
    }};
}

/// A call that changes an alert and shows it, as far as its caller may see it.
macro_rules! change_alert {
    ($self:ident, $request:ident, $call:ident) => {{
        admit(&$request)?;
        let access = Access::of($request.extensions());
        let everywhere = access.namespace().is_none();
        let asking = Asking { actor: caller($request.metadata()), everywhere };
        let master = $self.clone();
        carried(master.options().metrics.clone(), async move {
            let alert = master.$call($request.into_inner(), asking).await?;
            Ok(redact::alert(&access, alert))
        })
        .await
    }};
}

/// A call that reads.
macro_rules! read {
    ($self:ident, $request:ident, $call:ident) => {{
        admit(&$request)?;
        let master = $self.clone();
        carried(master.options().metrics.clone(), async move { master.$call($request.into_inner()).await })
            .await
    }};
}

#[tonic::async_trait]
impl ScheduleMasterService for ScheduleMaster {
    async fn create_schedule(
        &self,
        request: Request<v1::CreateScheduleRequest>,
    ) -> Result<Response<v1::Schedule>, Status> {
        change_schedule!(self, request, create_schedule)
    }

    async fn get_schedule(
        &self,
        request: Request<v1::GetScheduleRequest>,
    ) -> Result<Response<v1::Schedule>, Status> {
        read!(self, request, get_schedule)
    }

    async fn list_schedules(
        &self,
        request: Request<v1::ListSchedulesRequest>,
    ) -> Result<Response<v1::ListSchedulesResponse>, Status> {
        read!(self, request, list_schedules)
    }

    async fn update_schedule(
        &self,
        request: Request<v1::UpdateScheduleRequest>,
    ) -> Result<Response<v1::Schedule>, Status> {
        admit(&request)?;
        let access = Access::of(request.extensions());
        let (master, actor) = (self.clone(), caller(request.metadata()));
        carried(master.options().metrics.clone(), async move {
            let changed = master.update_schedule(request.into_inner(), actor, access.reads()).await?;
            Ok(redact::schedule(&access, changed))
        })
        .await
    }

    async fn delete_schedule(
        &self,
        request: Request<v1::DeleteScheduleRequest>,
    ) -> Result<Response<()>, Status> {
        change!(self, request, delete_schedule)
    }

    async fn pause_schedule(
        &self,
        request: Request<v1::PauseScheduleRequest>,
    ) -> Result<Response<v1::Schedule>, Status> {
        change_schedule!(self, request, pause_schedule)
    }

    async fn resume_schedule(
        &self,
        request: Request<v1::ResumeScheduleRequest>,
    ) -> Result<Response<v1::Schedule>, Status> {
        change_schedule!(self, request, resume_schedule)
    }

    async fn pause_schedules(
        &self,
        request: Request<v1::PauseSchedulesRequest>,
    ) -> Result<Response<v1::PauseSchedulesResponse>, Status> {
        change!(self, request, pause_schedules)
    }

    async fn resume_schedules(
        &self,
        request: Request<v1::ResumeSchedulesRequest>,
    ) -> Result<Response<v1::ResumeSchedulesResponse>, Status> {
        change!(self, request, resume_schedules)
    }

    async fn delete_schedules(
        &self,
        request: Request<v1::DeleteSchedulesRequest>,
    ) -> Result<Response<v1::DeleteSchedulesResponse>, Status> {
        change!(self, request, delete_schedules)
    }

    async fn trigger_schedules(
        &self,
        request: Request<v1::TriggerSchedulesRequest>,
    ) -> Result<Response<v1::TriggerSchedulesResponse>, Status> {
        change!(self, request, trigger_schedules)
    }

    async fn create_policy(
        &self,
        request: Request<v1::CreatePolicyRequest>,
    ) -> Result<Response<v1::Policy>, Status> {
        change!(self, request, create_policy)
    }

    async fn get_policy(
        &self,
        request: Request<v1::GetPolicyRequest>,
    ) -> Result<Response<v1::Policy>, Status> {
        read!(self, request, get_policy)
    }

    async fn list_policies(
        &self,
        request: Request<v1::ListPoliciesRequest>,
    ) -> Result<Response<v1::ListPoliciesResponse>, Status> {
        read!(self, request, list_policies)
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesResponse>, Status> {
        let master = self.clone();
        carried(master.options().metrics.clone(), async move {
            master.list_namespaces(request.into_inner()).await
        })
        .await
    }

    async fn update_policy(
        &self,
        request: Request<v1::UpdatePolicyRequest>,
    ) -> Result<Response<v1::Policy>, Status> {
        change!(self, request, update_policy)
    }

    async fn delete_policy(&self, request: Request<v1::DeletePolicyRequest>) -> Result<Response<()>, Status> {
        change!(self, request, delete_policy)
    }

    async fn pause_policy(
        &self,
        request: Request<v1::PausePolicyRequest>,
    ) -> Result<Response<v1::Policy>, Status> {
        change!(self, request, pause_policy)
    }

    async fn resume_policy(
        &self,
        request: Request<v1::ResumePolicyRequest>,
    ) -> Result<Response<v1::Policy>, Status> {
        change!(self, request, resume_policy)
    }

    async fn create_calendar(
        &self,
        request: Request<v1::CreateCalendarRequest>,
    ) -> Result<Response<v1::Calendar>, Status> {
        change!(self, request, create_calendar)
    }

    async fn get_calendar(
        &self,
        request: Request<v1::GetCalendarRequest>,
    ) -> Result<Response<v1::Calendar>, Status> {
        read!(self, request, get_calendar)
    }

    async fn list_calendars(
        &self,
        request: Request<v1::ListCalendarsRequest>,
    ) -> Result<Response<v1::ListCalendarsResponse>, Status> {
        read!(self, request, list_calendars)
    }

    async fn update_calendar(
        &self,
        request: Request<v1::UpdateCalendarRequest>,
    ) -> Result<Response<v1::Calendar>, Status> {
        change!(self, request, update_calendar)
    }

    async fn delete_calendar(
        &self,
        request: Request<v1::DeleteCalendarRequest>,
    ) -> Result<Response<()>, Status> {
        change!(self, request, delete_calendar)
    }

    async fn create_alert(
        &self,
        request: Request<v1::CreateAlertRequest>,
    ) -> Result<Response<v1::Alert>, Status> {
        change_alert!(self, request, create_alert)
    }

    async fn get_alert(&self, request: Request<v1::GetAlertRequest>) -> Result<Response<v1::Alert>, Status> {
        admit(&request)?;
        let access = Access::of(request.extensions());
        let master = self.clone();
        carried(master.options().metrics.clone(), async move {
            let alert = master.get_alert(&request.into_inner().name).await?;
            Ok(redact::alert(&access, alert))
        })
        .await
    }

    async fn list_alerts(
        &self,
        request: Request<v1::ListAlertsRequest>,
    ) -> Result<Response<v1::ListAlertsResponse>, Status> {
        read!(self, request, list_alerts)
    }

    async fn update_alert(
        &self,
        request: Request<v1::UpdateAlertRequest>,
    ) -> Result<Response<v1::Alert>, Status> {
        change_alert!(self, request, update_alert)
    }

    async fn delete_alert(&self, request: Request<v1::DeleteAlertRequest>) -> Result<Response<()>, Status> {
        change!(self, request, delete_alert)
    }

    async fn trigger_schedule(
        &self,
        request: Request<v1::TriggerScheduleRequest>,
    ) -> Result<Response<v1::Run>, Status> {
        change!(self, request, trigger_schedule)
    }

    async fn backfill_schedule(
        &self,
        request: Request<v1::BackfillScheduleRequest>,
    ) -> Result<Response<v1::BackfillScheduleResponse>, Status> {
        admit(&request)?;
        self.backfilled(request, Progress::default()).await
    }

    async fn submit_items(
        &self,
        request: Request<Streaming<v1::SubmitItemsRequest>>,
    ) -> Result<Response<v1::Submission>, Status> {
        let actor = caller(request.metadata());
        let access = Access::of(request.extensions());
        let stream_key = request.extensions().get::<StreamKey>().cloned();
        let admitted = request.into_inner().map(move |given| {
            let given = given?;
            StreamKey::check(stream_key.as_ref())?;
            access.admit(&given)?;
            Ok(given)
        });
        // What it writes is carried to its end; a caller that leaves in between goes on later.
        let answer = self.submit_items(admitted, actor).await;
        if answer.as_ref().is_err_and(|refusal| refusal.code() == Code::Internal) {
            self.options().metrics.store_failed(Role::Master);
        }
        answer.map(Response::new)
    }

    async fn get_submission(
        &self,
        request: Request<v1::GetSubmissionRequest>,
    ) -> Result<Response<v1::Submission>, Status> {
        read!(self, request, get_submission)
    }

    async fn preview_schedule(
        &self,
        request: Request<v1::PreviewScheduleRequest>,
    ) -> Result<Response<v1::PreviewScheduleResponse>, Status> {
        read!(self, request, preview_schedule)
    }

    async fn forecast_demand(
        &self,
        request: Request<v1::ForecastDemandRequest>,
    ) -> Result<Response<v1::DemandForecast>, Status> {
        admit(&request)?;
        // Nothing is left of a forecast whose caller has gone.
        let gone = CancellationToken::new();
        let _here = gone.clone().drop_guard();
        let master = self.clone();
        let call = async move { master.forecast_demand(request.into_inner(), gone).await };
        carried(self.options().metrics.clone(), call).await
    }

    async fn list_schedule_children(
        &self,
        request: Request<v1::ListScheduleChildrenRequest>,
    ) -> Result<Response<v1::ListScheduleChildrenResponse>, Status> {
        read!(self, request, list_schedule_children)
    }

    async fn list_skipped_triggers(
        &self,
        request: Request<v1::ListSkippedTriggersRequest>,
    ) -> Result<Response<v1::ListSkippedTriggersResponse>, Status> {
        read!(self, request, list_skipped_triggers)
    }

    async fn list_audit_entries(
        &self,
        request: Request<v1::ListAuditEntriesRequest>,
    ) -> Result<Response<v1::ListAuditEntriesResponse>, Status> {
        read!(self, request, list_audit_entries)
    }

    async fn apply_resources(
        &self,
        request: Request<Streaming<v1::ApplyResourcesRequest>>,
    ) -> Result<Response<v1::ApplyResourcesResponse>, Status> {
        let (given, actor) = self.given(request).await?;
        self.applied(given, actor, Progress::default()).await
    }

    type ApplyResourcesWithProgressStream = Steps<v1::ApplyResourcesProgress>;

    async fn apply_resources_with_progress(
        &self,
        request: Request<Streaming<v1::ApplyResourcesRequest>>,
    ) -> Result<Response<Self::ApplyResourcesWithProgressStream>, Status> {
        let (given, actor) = self.given(request).await?;
        let master = self.clone();
        let call = |progress| async move { master.applied(given, actor, progress).await };
        Ok(watched(call, apply_message))
    }

    type BackfillScheduleWithProgressStream = Steps<v1::BackfillScheduleProgress>;

    async fn backfill_schedule_with_progress(
        &self,
        request: Request<v1::BackfillScheduleRequest>,
    ) -> Result<Response<Self::BackfillScheduleWithProgressStream>, Status> {
        admit(&request)?;
        let master = self.clone();
        let call = |progress| async move { master.backfilled(request, progress).await };
        Ok(watched(call, backfill_message))
    }
}

/// One message of ApplyResourcesWithProgress.
fn apply_message(step: Step<v1::ApplyResourcesResponse>) -> v1::ApplyResourcesProgress {
    use v1::apply_resources_progress::Step as Message;
    let step = match step {
        Step::Progress(progress) => Message::Progress(progress),
        Step::Response(response) => Message::Response(response),
    };
    v1::ApplyResourcesProgress { step: Some(step) }
}

/// One message of BackfillScheduleWithProgress.
fn backfill_message(step: Step<v1::BackfillScheduleResponse>) -> v1::BackfillScheduleProgress {
    use v1::backfill_schedule_progress::Step as Message;
    let step = match step {
        Step::Progress(progress) => Message::Progress(progress),
        Step::Response(response) => Message::Response(response),
    };
    v1::BackfillScheduleProgress { step: Some(step) }
}

impl ScheduleMaster {
    /// What a stream of resources gives, and who gives it.
    async fn given(
        &self,
        request: Request<Streaming<v1::ApplyResourcesRequest>>,
    ) -> Result<(Gathered, Caller), Status> {
        let actor = caller(request.metadata());
        // A caller that leaves before its stream ends has asked for nothing yet.
        let access = Access::of(request.extensions());
        // A stream may stay open for longer than its key is good.
        let stream_key = request.extensions().get::<StreamKey>().cloned();
        let admitted = request.into_inner().map(|given| {
            let given = given?;
            StreamKey::check(stream_key.as_ref())?;
            access.admit(&given)?;
            may_apply(&access, &given)?;
            Ok(given)
        });
        let given = self.gather(admitted).await?;
        StreamKey::check(stream_key.as_ref())?;
        Ok((given, actor))
    }

    async fn applied(
        &self,
        given: Gathered,
        actor: Caller,
        progress: Progress,
    ) -> Result<Response<v1::ApplyResourcesResponse>, Status> {
        let master = self.clone();
        let call = async move { master.apply(given, actor, &progress).await };
        carried(self.options().metrics.clone(), call).await
    }

    async fn backfilled(
        &self,
        request: Request<v1::BackfillScheduleRequest>,
        progress: Progress,
    ) -> Result<Response<v1::BackfillScheduleResponse>, Status> {
        let (master, actor) = (self.clone(), caller(request.metadata()));
        let call = async move { master.backfill_schedule(request.into_inner(), actor, &progress).await };
        carried(self.options().metrics.clone(), call).await
    }
}
