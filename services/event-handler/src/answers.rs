//! Releases and heartbeats: from a consumer's request to the shard's owner and back.

use tollgate_core::handle::change::Outcome;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::release::{Answer, Release};
use tollgate_core::model::EventRef;
use tollgate_proto::convert::{self, names};
use tollgate_proto::{FieldError, v1};
use tollgate_status::status as store_status;
use tonic::Status;

use crate::Shared;
use crate::routes::{Input, Replied};

/// A request for one event that has been understood.
pub(crate) struct Addressed {
    pub(crate) event: EventRef,
    pub(crate) namespace: Option<String>,
}

/// What a release came to, before it is put into the form of the call.
pub(crate) enum Released {
    Status(v1::ReleaseTokenResponse),
    Unknown(String),
    Invalid(Vec<FieldError>),
    Failed(Status),
}

impl Shared {
    /// Which event a name or bare id means.
    pub(crate) fn address(&self, field: &str, name: &str) -> Result<Addressed, Released> {
        let (namespace, id) = names::event(field, name).map_err(|error| Released::Invalid(vec![error]))?;
        match self.keyring.open(&id) {
            Ok(event) if event.shard < self.shards => Ok(Addressed { event, namespace }),
            Ok(_) => {
                Err(Released::Unknown(format!("{field}: {name:?} is not an event of this installation")))
            }
            Err(error) => Err(Released::Unknown(format!("{field}: {name:?} is not an event: {error}"))),
        }
    }

    /// Carries out one release, and waits until it is durable.
    pub(crate) async fn release(&self, request: v1::ReleaseTokenRequest) -> Released {
        match self.try_release(request).await {
            Ok(released) | Err(released) => released,
        }
    }

    async fn try_release(&self, request: v1::ReleaseTokenRequest) -> Result<Released, Released> {
        let Addressed { event, namespace } = self.address("name", &request.name)?;
        let release = convert::event::release_to_core("", &request, (event.run, event.index))
            .map_err(Released::Invalid)?;
        let asked = release.clone();
        let named = namespace.clone();
        let ask = |reply| Input::Release { release: asked, namespace: named, reply };
        match self.routes.ask(event.shard, ask).await {
            Some(Replied::Answer(Answer::NotHeld)) => self.ended(event, namespace.as_deref()).await,
            Some(Replied::Answer(answer)) => answered(answer),
            Some(Replied::Foreign) => Err(unknown(event)),
            Some(Replied::TryAgain) => Err(Released::Failed(Status::unavailable(
                "the store did not take the release; nothing changed, try again",
            ))),
            None => self.post_release(event, namespace.as_deref(), release).await,
        }
    }

    /// The owner is another process: its inbox takes the release, durably.
    async fn post_release(
        &self,
        event: EventRef,
        namespace: Option<&str>,
        release: Release,
    ) -> Result<Released, Released> {
        let tokens = self.store.tokens(event.shard, event.run, event.index, 1).await.map_err(failed)?;
        if tokens.first().is_none_or(|t| t.index != event.index) {
            return self.ended(event, namespace).await;
        }
        self.check_namespace(event, namespace).await?;
        let message = Message { id: uuid::Uuid::now_v7(), control: Control::Release { release } };
        self.store.post(event.shard, &[message]).await.map_err(failed)?;
        let message = "recorded; the handler that owns the event carries it out".to_owned();
        Ok(status(v1::ReleaseStatus::Released, message))
    }

    async fn check_namespace(&self, event: EventRef, namespace: Option<&str>) -> Result<(), Released> {
        let runs = self.store.runs(event.shard, &[event.run]).await.map_err(failed)?;
        match runs.first() {
            Some(run) if namespace.is_none_or(|given| given == run.namespace) => Ok(()),
            _ => Err(unknown(event)),
        }
    }

    /// The event holds no token: what the done queue says of it.
    async fn ended(&self, event: EventRef, namespace: Option<&str>) -> Result<Released, Released> {
        self.check_namespace(event, namespace).await?;
        let rows = self.store.history(event.shard, event.run, event.index, None, 1).await.map_err(failed)?;
        let covering = rows.first().filter(|r| (r.index..r.index + r.count).contains(&event.index));
        Ok(match covering.map(|r| r.outcome) {
            Some(Outcome::Succeeded | Outcome::Failed) => {
                status(v1::ReleaseStatus::AlreadyReleased, "it had been released before".to_owned())
            }
            Some(Outcome::Lost) => status(
                v1::ReleaseStatus::Late,
                "its token had been reclaimed and the event closed as LOST".to_owned(),
            ),
            Some(outcome) => status(v1::ReleaseStatus::Late, format!("it had ended before: {outcome:?}")),
            None => {
                status(v1::ReleaseStatus::Late, "it holds no token: it has not been delivered".to_owned())
            }
        })
    }

    /// A consumer's heartbeat.
    pub(crate) async fn extend(
        &self,
        request: v1::ExtendTokenRequest,
    ) -> Result<v1::ExtendTokenResponse, Status> {
        let ttl_ms = convert::heartbeat_ttl_ms(&request)?;
        if request.attempt == Some(0) {
            return Err(
                FieldError::new("attempt", 0, "at least 1, or nothing for the attempt in flight").into()
            );
        }
        let attempt = request.attempt;
        let Addressed { event, namespace } =
            self.address("name", &request.name).map_err(|refusal| refusal.into_status())?;
        let EventRef { shard, run, index } = event;
        let ask = |reply| Input::Extend { run, index, namespace, attempt, ttl_ms, reply };
        match self.routes.ask(shard, ask).await {
            Some(Replied::Answer(Answer::Extended { remaining_ms })) => {
                Ok(v1::ExtendTokenResponse { remaining: Some(convert::duration_of_ms(remaining_ms)) })
            }
            Some(Replied::Answer(Answer::Late)) => Err(Status::failed_precondition(
                "the event is in flight under a later attempt, or waits for one",
            )),
            Some(Replied::Foreign) => Err(unknown(event).into_status()),
            Some(_) => Err(Status::failed_precondition("the event holds no token")),
            None => Err(Status::unavailable("no handler here owns the event; try again, or another handler")),
        }
    }
}

impl Released {
    /// The form of a unary call.
    pub(crate) fn into_response(self) -> Result<v1::ReleaseTokenResponse, Status> {
        match self {
            Self::Status(response) => Ok(response),
            other => Err(other.into_status()),
        }
    }

    pub(crate) fn into_status(self) -> Status {
        match self {
            Self::Status(response) => Status::internal(response.message),
            Self::Unknown(message) => Status::not_found(message),
            Self::Invalid(errors) => tollgate_proto::field::invalid_argument(&errors),
            Self::Failed(status) => status,
        }
    }

    /// The form of a batch or stream: an answer for each.
    ///
    /// # Errors
    /// Where nobody can tell what became of it.
    pub(crate) fn into_item(self) -> Result<v1::ReleaseTokenResponse, Status> {
        let (status, message) = match self {
            Self::Status(response) => return Ok(response),
            Self::Unknown(message) => (v1::ReleaseStatus::Unknown, message),
            Self::Invalid(errors) => {
                let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
                (v1::ReleaseStatus::Invalid, errors.join("; "))
            }
            Self::Failed(status) => return Err(status),
        };
        Ok(v1::ReleaseTokenResponse { status: status.into(), next_check_time: None, message })
    }
}

fn status(status: v1::ReleaseStatus, message: String) -> Released {
    Released::Status(v1::ReleaseTokenResponse { status: status.into(), next_check_time: None, message })
}

fn failed(error: tollgate_store::StoreError) -> Released {
    Released::Failed(store_status(error))
}

fn unknown(event: EventRef) -> Released {
    Released::Unknown(format!("there is no event {} of run {:02x}-{}", event.index, event.shard, event.run))
}

fn answered(answer: Answer) -> Result<Released, Released> {
    Ok(match answer {
        Answer::Released => status(v1::ReleaseStatus::Released, String::new()),
        Answer::ComesAgain { at_us } => Released::Status(v1::ReleaseTokenResponse {
            status: v1::ReleaseStatus::ComesAgain.into(),
            next_check_time: Some(convert::timestamp(at_us)),
            message: String::new(),
        }),
        Answer::Late => {
            let message = "the event is in flight under a later attempt, or waits for one; nothing changed";
            status(v1::ReleaseStatus::Late, message.to_owned())
        }
        Answer::Refused { message } => {
            let message = message.trim_start_matches("next_check_at: ").to_owned();
            let expected = format!("a moment that the guards allow: {message}");
            return Err(Released::Invalid(vec![FieldError::new("next_check_time", "", expected)]));
        }
        Answer::NotHeld | Answer::Extended { .. } => {
            return Err(Released::Failed(Status::internal("the owner gave an answer to another question")));
        }
    })
}
