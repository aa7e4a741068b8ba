//! Releases and heartbeats: from a consumer's request to the shard's owner and back.

mod wire;

use tollgate_auth::{Access, Aim};
use tollgate_core::handle::change::{Outcome, TokenState};
use tollgate_core::handle::control::Message;
use tollgate_core::handle::release::{Answer, Release, ReleaseOutcome};
use tollgate_core::model::{EventRef, NotAgain, Run};
use tollgate_metrics::ReleaseAnswer;
use tollgate_metrics::trace::Traceparent;
use tollgate_proto::convert::{self, names};
use tollgate_proto::{FieldError, v1};
use tollgate_service::status::status as store_status;
use tollgate_store::handle::Posted;
use tollgate_store::look_up::LookUpStore;
use tonic::Status;

use crate::Shared;
use crate::addresses::Addressed;
use crate::by_key::has_changed;
use crate::peers::Asked;
use crate::routes::{Input, Replied};
pub(crate) use wire::{extended_from_wire, extended_to_wire, released_from_wire, released_to_wire};

/// How often the owner of an event is looked for.
const ASKED_MAX: u32 = 3;
/// How often a release is put into the inbox of a shard that changes hands meanwhile.
const POSTED_MAX: u32 = 3;

/// What a release came to, before it is put into the form of the call.
pub(crate) enum Released {
    Status(v1::ReleaseTokenResponse),
    Unknown(String),
    Invalid(Vec<FieldError>),
    /// The caller's key does not reach the namespace.
    Denied(Status),
    Failed(Status),
}

impl Shared {
    /// The name by which another process knows what a caller has addressed; none where that is what the caller gave.
    fn completed(&self, at: &Addressed) -> Option<String> {
        let id = at.by_key.then(|| self.keyring.id(at.named()))?;
        Some(match &at.namespace {
            Some(namespace) => names::of_event(namespace, id.as_str()),
            None => id.into(),
        })
    }

    /// What a release asks for.
    pub(crate) async fn understand(
        &self,
        access: &Access,
        request: &v1::ReleaseTokenRequest,
    ) -> Result<(Addressed, Release), Released> {
        let at = self.address((access, Aim::Release), "name", &request.name).await?;
        let mut release = convert::event::release_to_core("", request, (at.event.run, at.event.index))
            .map_err(Released::Invalid)?;
        let sealed = self.seal_result(at.event, &mut release);
        sealed.map_err(|error| Released::Failed(Status::unavailable(error.to_string())))?;
        Ok((at, release))
    }

    /// The caller's span, where spans are of interest.
    pub(crate) fn parent<T>(&self, request: &tonic::Request<T>) -> Option<Traceparent> {
        let given = request.metadata().get("traceparent").filter(|_| self.options.metrics.traces().is_on());
        given?.to_str().ok()?.parse().ok()
    }

    /// Carries out one release, and waits until it is durable. `parent`: the caller's span.
    pub(crate) async fn release(
        &self,
        access: &Access,
        request: v1::ReleaseTokenRequest,
        parent: Option<Traceparent>,
    ) -> Released {
        let event = || {
            let at = self.named_event((access, Aim::Release), "name", &request.name).ok()?;
            Some((at.event, request.attempt))
        };
        let watch = self.options.metrics.release(&self.clock).about(parent, event);
        let (Ok(released) | Err(released)) = self.try_release(access, request).await;
        watch.ended(released.kind());
        released
    }

    async fn try_release(
        &self,
        access: &Access,
        mut request: v1::ReleaseTokenRequest,
    ) -> Result<Released, Released> {
        let (mut at, release) = self.understand(access, &request).await?;
        let _room = self.result_rooms.take(&at, &release).await;
        if let Some(completed) = self.completed(&at) {
            request.name = completed;
        }
        let mut released = self.release_at(&request, &at, &release).await;
        while matches!(released, Err(Released::Unknown(_)))
            && Box::pin(self.has_moved(&mut at)).await.map_err(failed)?
        {
            released = self.release_at(&request, &at, &release).await;
        }
        if at.by_key
            && let Ok(Released::Status(response)) = &released
            && has_changed(response)
        {
            Box::pin(self.note_by_key(access, &at, "release")).await;
        }
        released
    }

    /// Carries it out where the event is thought to be.
    async fn release_at(
        &self,
        request: &v1::ReleaseTokenRequest,
        at: &Addressed,
        release: &Release,
    ) -> Result<Released, Released> {
        // What is boxed here and below is rare and far larger than the rest, for which each of a thousand releases would
        // have room.
        match self.release_anywhere(request, at, release).await {
            Asked::Answer(replied) => self.replied(at, replied).await,
            Asked::Nobody => Box::pin(self.post_release(request, at, release.clone())).await,
            Asked::Unclear if is_repeatable(release) => {
                Box::pin(self.post_release(request, at, release.clone())).await
            }
            Asked::Unclear => Err(Released::Failed(Status::unavailable(
                "the event's handler did not answer; try again, with the attempt",
            ))),
        }
    }

    /// What an owner's answer is to the caller.
    async fn replied(&self, at: &Addressed, replied: Replied) -> Result<Released, Released> {
        match replied {
            Replied::Answer(Answer::NotHeld) => Box::pin(self.ended(at)).await,
            Replied::Answer(answer) => answered(answer),
            Replied::Foreign => Err(unknown(at.named())),
            Replied::TryAgain => Err(Released::Failed(Status::unavailable(
                "the store did not confirm the release; try again, with the attempt",
            ))),
        }
    }

    /// By the owner here, or by the owner elsewhere.
    async fn release_anywhere(
        &self,
        request: &v1::ReleaseTokenRequest,
        at: &Addressed,
        release: &Release,
    ) -> Asked<Replied> {
        for attempt in 0..ASKED_MAX {
            if let Some(replied) = self.release_here(at, release).await {
                return Asked::Answer(replied);
            }
            match Box::pin(self.peers.release(at.event.shard, request)).await {
                Asked::Answer(forwarded) => {
                    if let Some(replied) = released_from_wire(forwarded) {
                        return Asked::Answer(replied);
                    }
                }
                Asked::Nobody => {}
                Asked::Unclear => return Asked::Unclear,
            }
            if attempt + 1 == ASKED_MAX || !Box::pin(self.peers.has_moved(at.event.shard)).await {
                break;
            }
        }
        Asked::Nobody
    }

    /// By the owner in this process; none where it has none.
    pub(crate) async fn release_here(&self, at: &Addressed, release: &Release) -> Option<Replied> {
        let (release, namespace) = (release.clone(), at.namespace.clone());
        let ask = |reply| Input::Release { release, namespace, reply };
        self.peers.routes().ask(at.event.shard, ask).await
    }

    /// The owner cannot be reached: its shard's inbox takes the release, durably, for the attempt that is in flight now. If
    /// the shard has changed hands meanwhile, its new owner is asked: it may have read the inbox already. If the run has left the
    /// shard, it is not found here any more, and the caller looks where it is.
    async fn post_release(
        &self,
        request: &v1::ReleaseTokenRequest,
        at: &Addressed,
        release: Release,
    ) -> Result<Released, Released> {
        let event = at.event;
        for _ in 0..POSTED_MAX {
            let owned_by = || (self.peers.routes().owns(event.shard), self.peers.owner(event.shard));
            let before = owned_by();
            let turn = self.bypass.post(at).await?;
            // A process that has come to own the shard meanwhile is asked, which is quicker.
            if owned_by() != before {
                drop(turn);
                if let Asked::Answer(replied) = self.release_anywhere(request, at, &release).await {
                    return self.replied(at, replied).await;
                }
                continue;
            }
            let store = turn.store();
            // Before the look at the event: what a later owner does to it is seen, or the lease is another one.
            let Some(lease) = store.lease(event.shard).await.map_err(failed)? else { break };
            let tokens = store.tokens(event.shard, event.run, event.index, 1).await.map_err(failed)?;
            let Some(token) = tokens.first().filter(|t| t.index == event.index) else {
                drop(turn);
                return self.ended(at).await;
            };
            let run = run_of(store, at).await?;
            // An attempt is durable before it is delivered: there is no later one.
            if token.state == TokenState::Waiting || release.attempt.is_some_and(|a| a != token.attempt) {
                return answered(Answer::Late);
            }
            if let Some(check_us) = release.next_check_us {
                self.check_slot(store, &run, token.checks, check_us).await?;
            }
            if let Some(result) = &release.result {
                Self::room_in_inbox(&run, result)?;
            }
            let recorded = Release { attempt: Some(token.attempt), ..release.clone() };
            match store.post_under(&lease, &Message::release(recorded)).await.map_err(failed)? {
                Posted::New => {
                    self.peers.wake(event.shard);
                    let message = "recorded; the handler that owns the event carries it out".to_owned();
                    return Ok(status(v1::ReleaseStatus::Released, message));
                }
                Posted::ThereAlready => {
                    let message = "a release of this attempt had been recorded before, and counts".to_owned();
                    return Ok(status(v1::ReleaseStatus::AlreadyReleased, message));
                }
                Posted::ElsewhereNow => drop(turn),
            }
            if let Asked::Answer(replied) = self.release_anywhere(request, at, &release).await {
                return self.replied(at, replied).await;
            }
        }
        Err(Released::Failed(Status::unavailable(
            "the event's shard is changing hands; try again, with the attempt",
        )))
    }

    /// The guards of a moment to come again are asked before it is recorded: nobody could be told afterwards.
    async fn check_slot(
        &self,
        store: &dyn LookUpStore,
        run: &Run,
        checks: u32,
        check_us: i64,
    ) -> Result<(), Released> {
        let key = (run.schedule_uid, run.generation);
        let specs = store.specs(run.shard, &[key]).await.map_err(failed)?;
        let Some(spec) = specs.first() else {
            let message = "what the event's run is made of cannot be read: nothing is recorded";
            return Err(Released::Failed(Status::unavailable(message)));
        };
        match spec.check_again.slot(check_us, checks, self.clock.wall_us()) {
            // One that a guard closes is recorded as well: its owner closes it.
            Ok(_) | Err(NotAgain::Closed(_)) => Ok(()),
            Err(NotAgain::Refused(message)) => answered(Answer::Refused { message }).map(drop),
        }
    }

    /// The event holds no token: what the done queue says of it.
    async fn ended(&self, at: &Addressed) -> Result<Released, Released> {
        let event = at.event;
        let turn = self.bypass.look(at).await?;
        let store = turn.store();
        run_of(store, at).await?;
        let rows = store.history(event.shard, event.run, event.index, None, 1).await.map_err(failed)?;
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
            // It has just moved to this owner, or has been passed over, as a row of it is corrupt.
            None if has_row(store, event).await? => {
                return Err(Released::Failed(Status::unavailable(
                    "the event's owner does not know its run as yet: try again; if it is corrupt, GetHandlerStatus names the row",
                )));
            }
            None => {
                status(v1::ReleaseStatus::Late, "it holds no token: it has not been delivered".to_owned())
            }
        })
    }

    /// What a heartbeat asks for: the event, and the time to live.
    pub(crate) async fn understand_extend(
        &self,
        access: &Access,
        request: &v1::ExtendTokenRequest,
    ) -> Result<(Addressed, Option<i64>), Status> {
        let ttl_ms = convert::heartbeat_ttl_ms(request)?;
        if request.attempt == Some(0) {
            return Err(
                FieldError::new("attempt", 0, "at least 1, or nothing for the attempt in flight").into()
            );
        }
        let at = self.address((access, Aim::Release), "name", &request.name).await;
        Ok((at.map_err(Released::into_status)?, ttl_ms))
    }

    /// A consumer's heartbeat.
    pub(crate) async fn extend(
        &self,
        access: &Access,
        mut request: v1::ExtendTokenRequest,
    ) -> Result<v1::ExtendTokenResponse, Status> {
        let (mut at, ttl_ms) = self.understand_extend(access, &request).await?;
        if let Some(completed) = self.completed(&at) {
            request.name = completed;
        }
        let mut extended = self.extend_anywhere(&request, &at, ttl_ms).await;
        while matches!(extended, Some(Replied::Answer(Answer::NotHeld)))
            && Box::pin(self.has_moved(&mut at)).await.map_err(store_status)?
        {
            extended = self.extend_anywhere(&request, &at, ttl_ms).await;
        }
        match extended {
            Some(Replied::Answer(Answer::Extended { remaining_ms })) => {
                if at.by_key {
                    Box::pin(self.note_by_key(access, &at, "extend")).await;
                }
                Ok(v1::ExtendTokenResponse { remaining: Some(convert::duration_of_ms(remaining_ms)) })
            }
            Some(Replied::Answer(Answer::Late)) => Err(Status::failed_precondition(
                "the event is in flight under another attempt, or waits for its next one",
            )),
            Some(Replied::Foreign) => Err(unknown(at.named()).into_status()),
            Some(Replied::TryAgain) => {
                Err(Status::unavailable("the store did not confirm the heartbeat; try again"))
            }
            Some(_) => {
                // One that has just moved to its owner, which does not know it as yet.
                if has_row(&*self.people, at.event).await.map_err(Released::into_status)? {
                    return Err(Status::unavailable("the event's owner does not know it as yet; try again"));
                }
                Err(Status::failed_precondition("the event holds no token"))
            }
            None => Err(Status::unavailable("the handler that owns the event does not answer; try again")),
        }
    }

    async fn extend_anywhere(
        &self,
        request: &v1::ExtendTokenRequest,
        at: &Addressed,
        ttl_ms: Option<i64>,
    ) -> Option<Replied> {
        for attempt in 0..ASKED_MAX {
            if let Some(replied) = self.extend_here(at, request.attempt, ttl_ms).await {
                return Some(replied);
            }
            match self.peers.extend(at.event.shard, request).await {
                Asked::Answer(forwarded) => {
                    if let Some(replied) = extended_from_wire(forwarded) {
                        return Some(replied);
                    }
                }
                Asked::Nobody => {}
                Asked::Unclear => return None,
            }
            if attempt + 1 == ASKED_MAX || !self.peers.has_moved(at.event.shard).await {
                break;
            }
        }
        None
    }

    /// By the owner in this process; none where it has none.
    pub(crate) async fn extend_here(
        &self,
        at: &Addressed,
        attempt: Option<u32>,
        ttl_ms: Option<i64>,
    ) -> Option<Replied> {
        let EventRef { shard, run, index } = at.event;
        let namespace = at.namespace.clone();
        let ask = |reply| Input::Extend { run, index, namespace, attempt, ttl_ms, reply };
        self.peers.routes().ask(shard, ask).await
    }
}

impl Released {
    fn kind(&self) -> ReleaseAnswer {
        use v1::ReleaseStatus;
        match self {
            Self::Status(response) => match response.status() {
                ReleaseStatus::Released => ReleaseAnswer::Released,
                ReleaseStatus::ComesAgain => ReleaseAnswer::ComesAgain,
                ReleaseStatus::AlreadyReleased => ReleaseAnswer::AlreadyReleased,
                ReleaseStatus::Late => ReleaseAnswer::Late,
                ReleaseStatus::Unknown => ReleaseAnswer::Unknown,
                ReleaseStatus::Invalid | ReleaseStatus::Unspecified => ReleaseAnswer::Invalid,
            },
            Self::Unknown(_) | Self::Denied(_) => ReleaseAnswer::Unknown,
            Self::Invalid(_) => ReleaseAnswer::Invalid,
            Self::Failed(_) => ReleaseAnswer::Failed,
        }
    }

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
            Self::Denied(status) | Self::Failed(status) => status,
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
            // The others of the batch are answered all the same.
            Self::Denied(status) => (v1::ReleaseStatus::Unknown, status.message().to_owned()),
            Self::Invalid(errors) => {
                let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
                (v1::ReleaseStatus::Invalid, errors.join("; "))
            }
            Self::Failed(status) => return Err(status),
        };
        Ok(v1::ReleaseTokenResponse { status: status.into(), next_check_time: None, message })
    }
}

/// The event's run, if it is of the namespace that the caller may release in.
async fn run_of(store: &dyn LookUpStore, at: &Addressed) -> Result<Run, Released> {
    let event = at.event;
    let runs = store.runs(event.shard, &[event.run]).await.map_err(failed)?;
    let own = |run: &Run| {
        run.named_shard() == at.named_shard
            && at.namespace.as_ref().is_none_or(|given| *given == run.namespace)
    };
    runs.into_iter().next().filter(own).ok_or_else(|| unknown(at.named()))
}

/// Whether the store has a token of the event.
async fn has_row(store: &dyn LookUpStore, event: EventRef) -> Result<bool, Released> {
    let tokens = store.tokens(event.shard, event.run, event.index, 1).await.map_err(failed)?;
    Ok(tokens.first().is_some_and(|token| token.index == event.index))
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
            let message =
                "the event is in flight under another attempt, or waits for its next one; nothing changed";
            status(v1::ReleaseStatus::Late, message.to_owned())
        }
        Answer::Refused { message } => return Err(Released::of_refusal(&message)),
        Answer::NotHeld | Answer::Extended { .. } => {
            return Err(Released::Failed(Status::internal("the owner gave an answer to another question")));
        }
    })
}

/// Whether a release that may have been carried out already may be posted once more: it cannot meet a later attempt.
fn is_repeatable(release: &Release) -> bool {
    let ends = release.outcome != ReleaseOutcome::Retry && release.next_check_us.is_none();
    ends || release.attempt.is_some()
}
