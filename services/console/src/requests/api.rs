//! Decides how the API is asked: over the channel, in the caller's name, for a bounded time.

use std::time::Duration;

use tollgate_proto::v1;
use tollgate_proto::v1::event_emitter_service_client::EventEmitterServiceClient;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient;
use tollgate_proto::v1::worker_service_client::WorkerServiceClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::requests::problem::Problem;
use crate::words::show::encode;

/// How long one call may take.
const CALL_MAX: Duration = Duration::from_secs(10);
/// A page of schedules with large payloads is large.
const ANSWER_MAX_BYTES: usize = 128 * 1024 * 1024;

/// Adds the caller's name, the visitor's key and the time limit to each call.
#[derive(Clone)]
pub(crate) struct Caller {
    actor: MetadataValue<Ascii>,
    reason: Option<MetadataValue<Ascii>>,
    bearer: Option<MetadataValue<Ascii>>,
    /// How long the call may take; none for what goes on as long as somebody sends.
    within: Option<Duration>,
}

impl Interceptor for Caller {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("tollgate-actor", self.actor.clone());
        if let Some(reason) = &self.reason {
            request.metadata_mut().insert("tollgate-reason", reason.clone());
        }
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        if let Some(within) = self.within {
            request.set_timeout(within);
        }
        Ok(request)
    }
}

type Wire = InterceptedService<Channel, Caller>;

/// The API in somebody's name.
#[derive(Clone)]
pub(crate) struct Api {
    channel: Channel,
    caller: Caller,
}

impl Api {
    /// Over this channel, as `actor`, with the key that the visitor has shown; a name that cannot be a header is `console`.
    pub(crate) fn new(channel: Channel, actor: &str, key: Option<&str>) -> Self {
        let actor = actor.parse().unwrap_or_else(|_| MetadataValue::from_static("console"));
        let bearer = key.and_then(|key| format!("Bearer {key}").parse().ok());
        Self { channel, caller: Caller { actor, reason: None, bearer, within: Some(CALL_MAX) } }
    }

    /// The same, with a reason that stands in the audit log beside what is done.
    pub(crate) fn because(&self, reason: &str) -> Self {
        let reason = encode(reason.trim()).parse().ok().filter(|_| !reason.trim().is_empty());
        Self { channel: self.channel.clone(), caller: Caller { reason, ..self.caller.clone() } }
    }

    /// The same, for a call that may take as long as what it sends.
    pub(crate) fn for_long(&self) -> Self {
        Self { channel: self.channel.clone(), caller: Caller { within: None, ..self.caller.clone() } }
    }

    fn wire(&self) -> Wire {
        InterceptedService::new(self.channel.clone(), self.caller.clone())
    }

    /// The Schedule Master.
    pub(crate) fn master(&self) -> ScheduleMasterServiceClient<Wire> {
        ScheduleMasterServiceClient::new(self.wire()).max_decoding_message_size(ANSWER_MAX_BYTES)
    }

    /// The Event Emitter.
    pub(crate) fn emitter(&self) -> EventEmitterServiceClient<Wire> {
        EventEmitterServiceClient::new(self.wire()).max_decoding_message_size(ANSWER_MAX_BYTES)
    }

    /// The Event Handler.
    pub(crate) fn handler(&self) -> EventHandlerServiceClient<Wire> {
        EventHandlerServiceClient::new(self.wire()).max_decoding_message_size(ANSWER_MAX_BYTES)
    }

    /// Who takes events.
    pub(crate) fn workers(&self) -> WorkerServiceClient<Wire> {
        WorkerServiceClient::new(self.wire()).max_decoding_message_size(ANSWER_MAX_BYTES)
    }

    /// The buckets, and what the handlers do.
    pub(crate) async fn handler_status(&self, parent: String) -> Result<v1::HandlerStatus, Problem> {
        let asked = v1::GetHandlerStatusRequest { parent, busy_only: false };
        Ok(self.handler().get_handler_status(asked).await?.into_inner())
    }

    /// What is wrong, worst first; `page_size` of it at most.
    pub(crate) async fn troubles(
        &self,
        parent: String,
        page_size: i32,
    ) -> Result<v1::ListTroublesResponse, Problem> {
        let asked = v1::ListTroublesRequest { parent, page_size, ..v1::ListTroublesRequest::default() };
        Ok(self.handler().list_troubles(asked).await?.into_inner())
    }

    /// The buckets of all namespaces that do something.
    pub(crate) async fn busy(&self) -> Result<v1::HandlerStatus, Problem> {
        let asked = v1::GetHandlerStatusRequest { parent: String::new(), busy_only: true };
        Ok(self.handler().get_handler_status(asked).await?.into_inner())
    }

    /// How far the emitter is; none where the process that answers plays no emitter.
    pub(crate) async fn emitter_status(&self) -> Result<Option<v1::EmitterStatus>, Problem> {
        match self.emitter().get_emitter_status(v1::GetEmitterStatusRequest {}).await {
            Ok(answer) => Ok(Some(answer.into_inner())),
            Err(status) if status.code() == Code::Unimplemented => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    /// A page of runs, latest launch time first.
    pub(crate) async fn runs(
        &self,
        parent: String,
        filter: &str,
        page_size: i32,
        page_token: &str,
    ) -> Result<v1::ListRunsResponse, Problem> {
        self.runs_by(parent, filter, "", page_size, page_token).await
    }

    /// The same, in an order that is chosen.
    pub(crate) async fn runs_by(
        &self,
        parent: String,
        filter: &str,
        order_by: &str,
        page_size: i32,
        page_token: &str,
    ) -> Result<v1::ListRunsResponse, Problem> {
        let (filter, order_by) = (filter.to_owned(), order_by.to_owned());
        let page_token = page_token.to_owned();
        let request = v1::ListRunsRequest { parent, page_size, page_token, filter, order_by };
        Ok(self.handler().list_runs(request).await?.into_inner())
    }

    /// A page of a run's events, by index.
    pub(crate) async fn events(
        &self,
        run: &str,
        filter: &str,
        page_size: i32,
        page_token: &str,
    ) -> Result<v1::ListEventsResponse, Problem> {
        let (parent, filter) = (run.to_owned(), filter.to_owned());
        let request = v1::ListEventsRequest { parent, page_size, page_token: page_token.to_owned(), filter };
        Ok(self.handler().list_events(request).await?.into_inner())
    }

    /// Why an event is where it is.
    pub(crate) async fn explain(&self, event: &str) -> Result<v1::Explanation, Problem> {
        let request = v1::ExplainEventRequest { name: event.to_owned() };
        Ok(self.handler().explain_event(request).await?.into_inner())
    }

    /// A schedule by its full name.
    pub(crate) async fn schedule(&self, name: &str) -> Result<v1::Schedule, Problem> {
        let request = v1::GetScheduleRequest { name: name.to_owned() };
        Ok(self.master().get_schedule(request).await?.into_inner())
    }

    /// The namespaces in which there is something.
    pub(crate) async fn namespaces(&self, page_size: i32) -> Result<v1::ListNamespacesResponse, Problem> {
        let asked = v1::ListNamespacesRequest { page_size, page_token: String::new() };
        Ok(self.master().list_namespaces(asked).await?.into_inner())
    }

    /// The audit entries that fit a filter, latest first.
    pub(crate) async fn audit(
        &self,
        parent: String,
        filter: &str,
        page_size: i32,
        page_token: &str,
    ) -> Result<v1::ListAuditEntriesResponse, Problem> {
        let (filter, page_token) = (filter.to_owned(), page_token.to_owned());
        let request = v1::ListAuditEntriesRequest { parent, page_size, page_token, filter };
        Ok(self.master().list_audit_entries(request).await?.into_inner())
    }
}
