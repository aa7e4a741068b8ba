//! Asks the service: a connection and a key for each queue; what an answer means for the command.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::stream;
use tollgate_files::Kind;
use tollgate_proto::v1;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient;
use tollgate_proto::v1::submit_items_request::Part;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use crate::command::{Act, Pausable};
use crate::config::{QueueConfig, key};
use crate::fault::Fault;

/// How long one command may take, and a call with many.
const CALL_MAX: Duration = Duration::from_secs(30);
const MANY_MAX: Duration = Duration::from_secs(60);
/// How long the service may take to show that it answers at all.
const PROBE_MAX: Duration = Duration::from_secs(5);
/// The most items of a message of a stream.
const ITEMS_MAX: usize = 1_000;
/// The most bytes of items of a message of a stream, before the last one.
const ITEMS_BYTES_MAX: usize = 128 * 1024;
/// What an answer may have: a run with its payload.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// By this the service says that a revision is older than what has been here.
const OUTDATED: &str = "OUTDATED";
/// By this a refusal says that it names what is not there, which may still come.
const EXISTS: &str = " that exists: apply it first";

/// How the service is reached.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Where it is.
    pub endpoint: Endpoint,
    /// What every call has: actor, reason, and the key, where there is one.
    pub metadata: MetadataMap,
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// It is done.
    Done(Done),
    /// A later revision, or the same, has been here.
    Outdated,
    /// It is refused, and will be.
    Refused(Fault),
    /// It is refused, perhaps since it has overtaken what it needs.
    Early(Fault),
    /// It was not carried out, and may be later; the service works.
    Later(Fault),
}

impl Outcome {
    /// The same, with a refusal as the sender of the command reads it.
    fn told(self, place: impl FnOnce(Fault) -> Fault) -> Self {
        match self {
            Self::Refused(fault) => Self::Refused(place(fault)),
            Self::Early(fault) => Self::Early(place(fault)),
            other => other,
        }
    }
}

/// What there is to tell of what is done.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Done {
    /// Whether everything had been so before.
    pub(crate) unchanged: bool,
    /// The service's word, such as `CREATED` or `RELEASED`.
    pub(crate) answer: Option<String>,
    /// The run that was made.
    pub(crate) run: Option<String>,
}

/// The service does not answer, or not this caller.
#[derive(Clone, Debug)]
pub(crate) struct Away {
    pub(crate) status: Status,
    /// How long it asks to be left alone.
    pub(crate) wait: Option<Duration>,
}

type Answer = Result<Outcome, Away>;

/// The service, as one queue asks it.
#[derive(Debug)]
pub(crate) struct Api {
    channel: Channel,
    namespace: String,
    key_file: Option<PathBuf>,
    one_max: Duration,
    many_max: Duration,
    metadata: Mutex<MetadataMap>,
}

impl Api {
    /// The same, which waits no longer than that.
    #[cfg(test)]
    pub(crate) fn with_waits(self, one_max: Duration, many_max: Duration) -> Self {
        Self { one_max, many_max, ..self }
    }

    /// A connection of its own, which is made when it is needed.
    pub(crate) fn new(connection: &Connection, queue: &QueueConfig) -> Self {
        let mut metadata = connection.metadata.clone();
        if !metadata.contains_key("tollgate-reason")
            && let Ok(reason) = format!("command%20of%20{}", queue.name).parse::<MetadataValue<Ascii>>()
        {
            metadata.insert("tollgate-reason", reason);
        }
        let channel = connection.endpoint.connect_lazy();
        let api = Self {
            channel,
            namespace: queue.namespace.clone(),
            key_file: queue.key_file.clone(),
            one_max: CALL_MAX,
            many_max: MANY_MAX,
            metadata: Mutex::new(metadata),
        };
        api.read_key();
        api
    }

    /// Reads the queue's key, which may have become another one. The file has been read at the start; where it cannot be now,
    /// the key before stays.
    pub(crate) fn read_key(&self) {
        let Some(file) = &self.key_file else { return };
        let bearer = key(file).and_then(|key| {
            let bearer = format!("Bearer {key}").parse::<MetadataValue<Ascii>>();
            bearer.map_err(|_| format!("{} has no key", file.display()))
        });
        match bearer {
            Ok(mut bearer) => {
                bearer.set_sensitive(true);
                let mut metadata = self.metadata.lock().unwrap_or_else(PoisonError::into_inner);
                metadata.insert("authorization", bearer);
            }
            Err(said) => tracing::warn!("keyFile: {said}; the key before is used"),
        }
    }

    fn request<M>(&self, message: M, within: Duration) -> Request<M> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.metadata.lock().unwrap_or_else(PoisonError::into_inner).clone();
        request.set_timeout(within);
        request
    }

    fn master(&self) -> ScheduleMasterServiceClient<Channel> {
        ScheduleMasterServiceClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    fn handler(&self) -> EventHandlerServiceClient<Channel> {
        EventHandlerServiceClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// Applies many at once; `source` of each is its own. All, or none where one is refused.
    pub(crate) async fn apply(
        &self,
        requests: Vec<v1::ApplyResourcesRequest>,
    ) -> Result<v1::ApplyResourcesResponse, Status> {
        let request = self.request(stream::iter(requests), self.many_max);
        within(self.many_max, self.master().apply_resources(request)).await
    }

    /// Whether the service answers something, if only that there is no such thing.
    pub(crate) async fn is_there(&self) -> bool {
        let name = format!("namespaces/{}/policies/there", self.namespace);
        let request = self.request(v1::GetPolicyRequest { name }, PROBE_MAX);
        match within(PROBE_MAX, self.master().get_policy(request)).await {
            Ok(_) => true,
            Err(status) => judged(&status).is_ok(),
        }
    }

    /// Carries out one command.
    pub(crate) async fn carry_out(&self, act: &Act, revision: i64) -> Answer {
        match act {
            Act::Apply(request) => match self.apply(vec![request.as_ref().clone()]).await {
                Ok(answer) => Ok(applied(&answer, &request.source)),
                Err(status) => judged(&status).map(|outcome| outcome.told(|fault| fault.within(in_resource))),
            },
            Act::Delete(kind, name) => self.delete(*kind, name, revision).await,
            Act::Pause(..) | Act::Resume(..) => self.pause(act, revision).await,
            Act::Trigger(request) => {
                let request = self.request(request.clone(), self.one_max);
                let made = within(self.one_max, self.master().trigger_schedule(request)).await;
                answered(made, |run| Done { run: Some(run.name), ..Done::default() })
            }
            Act::Submit(header, items) => {
                let request = self.request(stream::iter(parts(header, items)), self.one_max);
                let made = within(self.one_max, self.master().submit_items(request)).await;
                answered(made, |made| Done { run: made.run.map(|run| run.name), ..Done::default() })
            }
            Act::Release(request) => {
                let request = self.request(request.clone(), self.one_max);
                let answer = within(self.one_max, self.handler().release_token(request)).await;
                let outcome = answer.map(|answer| released(&answer)).or_else(|status| judged(&status));
                outcome.map(|outcome| outcome.told(Fault::of_event))
            }
            Act::Extend(request) => {
                let request = self.request(request.clone(), self.one_max);
                let extended = within(self.one_max, self.handler().extend_token(request)).await;
                answered(extended, |_| Done::default()).map(|outcome| outcome.told(Fault::of_event))
            }
        }
    }

    async fn delete(&self, kind: Kind, name: &str, revision: i64) -> Answer {
        let (name, mut master) = (name.to_owned(), self.master());
        let etag = String::new();
        let deleted = match kind {
            Kind::Schedule => {
                let request = self.request(v1::DeleteScheduleRequest { name, etag, revision }, self.one_max);
                within(self.one_max, master.delete_schedule(request)).await.map(drop)
            }
            Kind::Policy => {
                let request = self.request(v1::DeletePolicyRequest { name, etag, revision }, self.one_max);
                within(self.one_max, master.delete_policy(request)).await.map(drop)
            }
            Kind::Calendar => {
                let request = self.request(v1::DeleteCalendarRequest { name, etag, revision }, self.one_max);
                within(self.one_max, master.delete_calendar(request)).await.map(drop)
            }
            Kind::Alert => {
                let request = self.request(v1::DeleteAlertRequest { name, etag, revision }, self.one_max);
                within(self.one_max, master.delete_alert(request)).await.map(drop)
            }
        };
        match answered(deleted, |()| Done::default()) {
            // It may have overtaken the deletion of what still uses it.
            Ok(Outcome::Refused(fault)) if fault.code == Code::FailedPrecondition => {
                Ok(Outcome::Early(fault))
            }
            other => other,
        }
    }

    async fn pause(&self, act: &Act, revision: i64) -> Answer {
        let mut master = self.master();
        let done = match act {
            Act::Pause(Pausable::Schedule, name, reason) => {
                let (name, reason) = (name.clone(), reason.clone());
                let request = self.request(v1::PauseScheduleRequest { name, reason, revision }, self.one_max);
                within(self.one_max, master.pause_schedule(request)).await.map(drop)
            }
            Act::Pause(Pausable::Policy, name, reason) => {
                let (name, reason) = (name.clone(), reason.clone());
                let request = self.request(v1::PausePolicyRequest { name, reason, revision }, self.one_max);
                within(self.one_max, master.pause_policy(request)).await.map(drop)
            }
            Act::Resume(Pausable::Schedule, name) => {
                let request =
                    self.request(v1::ResumeScheduleRequest { name: name.clone(), revision }, self.one_max);
                within(self.one_max, master.resume_schedule(request)).await.map(drop)
            }
            Act::Resume(Pausable::Policy, name) => {
                let request =
                    self.request(v1::ResumePolicyRequest { name: name.clone(), revision }, self.one_max);
                within(self.one_max, master.resume_policy(request)).await.map(drop)
            }
            _ => Ok(()),
        };
        answered(done, |()| Done::default())
    }
}

async fn within<T>(
    most: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(most + Duration::from_secs(1), call).await {
        // Here the client has given up, or the service when it was told to.
        Ok(Err(status))
            if status.code() == Code::Cancelled && status.message().contains("Timeout expired") =>
        {
            Err(Status::deadline_exceeded("the service does not answer in time"))
        }
        Ok(answer) => answer.map(tonic::Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded("the service does not answer")),
    }
}

fn answered<T>(answer: Result<T, Status>, done: impl FnOnce(T) -> Done) -> Answer {
    match answer {
        Ok(answer) => Ok(Outcome::Done(done(answer))),
        Err(status) => judged(&status),
    }
}

/// What an answer says of the resource of this source. What was not written comes again; one that is not listed is as it was,
/// unless there are more than are listed.
pub(crate) fn applied(answer: &v1::ApplyResourcesResponse, source: &str) -> Outcome {
    if let Some(error) = answer.errors.iter().find(|error| error.source == source) {
        return Outcome::Later(Fault::new(Code::Aborted, &error.message));
    }
    let listed = answer.results.iter().find(|result| result.source == source);
    match listed.map(v1::ApplyResult::action) {
        Some(v1::ApplyAction::Outdated) => Outcome::Outdated,
        Some(action) => {
            let word = action.as_str_name().trim_start_matches("APPLY_ACTION_").to_owned();
            Outcome::Done(Done { answer: Some(word), ..Done::default() })
        }
        None if usize::try_from(answer.failed_count).is_ok_and(|failed| failed > answer.errors.len()) => {
            Outcome::Later(Fault::new(Code::Aborted, "the service does not say what became of it"))
        }
        None => Outcome::Done(Done { unchanged: answer.unlisted_results_count == 0, ..Done::default() }),
    }
}

fn released(answer: &v1::ReleaseTokenResponse) -> Outcome {
    let status = answer.status();
    if status == v1::ReleaseStatus::Late {
        return Outcome::Outdated;
    }
    let word = status.as_str_name().trim_start_matches("RELEASE_STATUS_").to_owned();
    let unchanged = status == v1::ReleaseStatus::AlreadyReleased;
    Outcome::Done(Done { unchanged, answer: Some(word), ..Done::default() })
}

/// A field of an ApplyResources call, `source: name: schedule.events`, where the command has it.
fn in_resource(field: &str) -> String {
    let inner = field.rsplit(": ").next().unwrap_or(field);
    if inner.is_empty() { "resource".to_owned() } else { format!("resource.{inner}") }
}

/// The messages of a submission.
fn parts(header: &v1::SubmissionHeader, items: &[v1::Item]) -> Vec<v1::SubmitItemsRequest> {
    let mut parts = vec![Part::Header(header.clone())];
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for item in items {
        bytes += item.data.len() + item.key.len();
        batch.push(item.clone());
        if batch.len() >= ITEMS_MAX || bytes >= ITEMS_BYTES_MAX {
            parts.push(Part::Items(v1::Items { items: std::mem::take(&mut batch) }));
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        parts.push(Part::Items(v1::Items { items: batch }));
    }
    parts.into_iter().map(|part| v1::SubmitItemsRequest { part: Some(part) }).collect()
}

/// What a refusal means for the command.
pub(crate) fn judged(status: &Status) -> Answer {
    let fault = || Fault::of_status(status);
    let away = |wait| Err(Away { status: status.clone(), wait });
    // What the connection says, and not the service.
    if std::error::Error::source(status).is_some() {
        return away(None);
    }
    match status.code() {
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Unauthenticated
        | Code::Unimplemented => away(None),
        Code::Unknown if is_of_connection(status.message()) => away(None),
        Code::Internal if is_of_connection(status.message()) => away(None),
        Code::ResourceExhausted => match retry_after(status) {
            Some(wait) => away(Some(wait)),
            None => Ok(Outcome::Later(fault())),
        },
        Code::Aborted | Code::Internal | Code::Unknown | Code::DataLoss | Code::Ok => {
            Ok(Outcome::Later(fault()))
        }
        Code::FailedPrecondition if is_outdated(status) => Ok(Outcome::Outdated),
        Code::NotFound => Ok(Outcome::Early(fault())),
        Code::InvalidArgument if needs_others(status) => Ok(Outcome::Early(fault())),
        Code::InvalidArgument if status.message().starts_with("header.resume_from: ") => {
            Ok(Outcome::Later(fault()))
        }
        _ => Ok(Outcome::Refused(fault())),
    }
}

fn is_of_connection(said: &str) -> bool {
    ["h2 ", "http2", "transport", "connection"].iter().any(|word| said.contains(word))
}

fn retry_after(status: &Status) -> Option<Duration> {
    let wait = status.metadata().get("retry-after")?.to_str().ok()?;
    wait.parse().ok().map(Duration::from_secs)
}

fn is_outdated(status: &Status) -> bool {
    let violations = status.get_details_precondition_failure().map(|of| of.violations).unwrap_or_default();
    violations.iter().any(|violation| violation.r#type == OUTDATED)
}

/// Whether all that is wrong is that something else is not there, which may come yet.
fn needs_others(status: &Status) -> bool {
    let violations = status.get_details_bad_request().map(|of| of.field_violations).unwrap_or_default();
    !violations.is_empty() && violations.iter().all(|one| one.description.contains(EXISTS))
}

#[cfg(test)]
mod tests;
