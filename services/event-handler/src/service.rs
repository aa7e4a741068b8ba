//! The gRPC service `tollgate.v1.EventHandlerService`.

use std::collections::VecDeque;

use crate::alerts::Mail;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tollgate_auth::{Access, Aim, Named, StreamKey};
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::{Pause, RunId};
use tollgate_metrics::trace::Traceparent;
use tollgate_proto::convert::{self, names};
use tollgate_proto::order::{self, Order};
use tollgate_proto::v1::event_handler_service_server::EventHandlerService;
use tollgate_proto::{FieldError, filter, page, v1};
use tollgate_service::actor::caller;
use tollgate_service::redact;
use tollgate_service::status::status as store_status;
use tollgate_store::history::{RunFilter, RunIds};
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

use crate::Shared;
use crate::answers::Released;
use crate::results;

/// How many releases one batch, or one message of a stream, may have.
const BATCH_MAX: usize = 1_000;
/// How many releases of one stream may be under way at once.
const STREAM_MAX: usize = 8_192;
/// How many problems the answer to a stream names.
const PROBLEMS_MAX: usize = 1_000;
/// How many queue shards are told at once of an order to all.
const POSTS_AT_ONCE: usize = 8;
/// How many dead events one call takes up.
const RETRY_MAX: u32 = 2_000;

/// The service; cheap to clone.
#[derive(Clone)]
pub struct HandlerService {
    shared: Shared,
    mail: Mail,
}

impl HandlerService {
    pub(crate) fn new(shared: Shared, mail: Mail) -> Self {
        Self { shared, mail }
    }

    async fn pause_all(&self, pause: Option<Pause>) -> Result<v1::DispatchState, Status> {
        let id = later_than(self.shared.pause_order().await);
        let (mut all, mut told) = (0, 0);
        loop {
            // Who adds shards pauses them as the others are. What is added before these have heard of it is told like them. An
            // order to stop waits for nobody who adds some, but for the last look.
            let store = &self.shared.store;
            let read = if all == 0 { store.read_shards().await } else { store.settled_shards().await };
            read.map_err(store_status)?;
            let shards: Vec<u16> = (all..self.shared.shards.now()).collect();
            let Some(last) = shards.last() else { break };
            // Shard 0 before all others: who adds shards looks there for orders that no shard has carried out.
            let (first, others) = shards.split_at(usize::from(all == 0));
            all = last + 1;
            let message = [Message { id, control: Control::PauseShard { pause: pause.clone() } }];
            // Not as people: an order to stop everything does not wait for those who look.
            let post = async |shard: &u16| self.shared.store.post(*shard, &message).await;
            for some in first.chunks(1).chain(others.chunks(POSTS_AT_ONCE)) {
                futures::future::try_join_all(some.iter().map(post)).await.map_err(store_status)?;
            }
            told += self.shared.sync(&shards).await;
        }
        Ok(v1::DispatchState {
            pause: pause.map(|p| v1::Pause {
                reason: p.reason,
                actor: p.actor,
                since: Some(convert::timestamp(p.since_us)),
            }),
            shards_told_count: u32::try_from(told).unwrap_or(u32::MAX),
        })
    }
}

/// An id for now, or for just after another one if the clock that made that one is ahead.
fn later_than(other: Uuid) -> Uuid {
    let now = Uuid::now_v7();
    if now > other {
        return now;
    }
    Uuid::from_u128(other.as_u128().saturating_add(1))
}

/// Whose request it is, once it is known that it names nothing foreign.
fn admitted<T: Named>(request: &Request<T>) -> Result<Access, Status> {
    let access = Access::of(request.extensions());
    access.admit(request.get_ref())?;
    Ok(access)
}

fn batch_size(field: &str, releases: usize) -> Result<(), FieldError> {
    if (1..=BATCH_MAX).contains(&releases) {
        return Ok(());
    }
    Err(FieldError::new(field, format!("{releases} releases"), "1 to 1000 releases"))
}

/// What became of the releases of a stream.
#[derive(Default)]
struct Tally(v1::ReleaseTokensResponse);

impl Tally {
    fn add(&mut self, name: String, response: v1::ReleaseTokenResponse) {
        use v1::ReleaseStatus::{AlreadyReleased, ComesAgain, Invalid, Late, Released, Unknown, Unspecified};
        let status = response.status();
        let counts = &mut self.0;
        *match status {
            Released => &mut counts.released_count,
            ComesAgain => &mut counts.comes_again_count,
            AlreadyReleased => &mut counts.already_released_count,
            Late => &mut counts.late_count,
            Unknown => &mut counts.unknown_count,
            Invalid | Unspecified => &mut counts.invalid_count,
        } += 1;
        let problem = !matches!(status, Released | ComesAgain | AlreadyReleased);
        if problem && counts.problems.len() < PROBLEMS_MAX {
            let message = response.message;
            counts.problems.push(v1::ReleaseProblem { name, status: status.into(), message });
        }
    }
}

#[tonic::async_trait]
impl EventHandlerService for HandlerService {
    async fn release_token(
        &self,
        request: Request<v1::ReleaseTokenRequest>,
    ) -> Result<Response<v1::ReleaseTokenResponse>, Status> {
        let access = Access::of(request.extensions());
        let parent = self.shared.parent(&request);
        self.shared.release(&access, request.into_inner(), parent).await.into_response().map(Response::new)
    }

    async fn release_tokens(
        &self,
        request: Request<Streaming<v1::ReleaseTokensRequest>>,
    ) -> Result<Response<v1::ReleaseTokensResponse>, Status> {
        let access = Access::of(request.extensions());
        // A stream may stay open for longer than its key is good.
        let stream_key = request.extensions().get::<StreamKey>().cloned();
        let parent = self.shared.parent(&request);
        let mut stream = request.into_inner();
        let mut tally = Tally::default();
        let mut waiting = VecDeque::new();
        let mut running = FuturesUnordered::new();
        // What the results weigh that are under way.
        let mut heavy = 0;
        let mut open = true;
        while open || !running.is_empty() || !waiting.is_empty() {
            while running.len() < STREAM_MAX
                && heavy < results::STREAM_MAX
                && let Some(release) = waiting.pop_front()
            {
                let weight = results::weight(&release);
                heavy += weight;
                let done = one_of_many(&self.shared, &access, parent, release);
                running.push(async move { (done.await, weight) });
            }
            tokio::select! {
                message = stream.message(), if open && waiting.is_empty() => match message? {
                    Some(message) => {
                        StreamKey::check(stream_key.as_ref())?;
                        batch_size("releases", message.releases.len())?;
                        waiting.extend(message.releases);
                    }
                    None => open = false,
                },
                Some((done, weight)) = running.next(), if !running.is_empty() => {
                    heavy -= weight;
                    let (name, response) = done?;
                    tally.add(name, response);
                }
            }
        }
        Ok(Response::new(tally.0))
    }

    async fn batch_release_tokens(
        &self,
        request: Request<v1::BatchReleaseTokensRequest>,
    ) -> Result<Response<v1::BatchReleaseTokensResponse>, Status> {
        let access = Access::of(request.extensions());
        let parent = self.shared.parent(&request);
        let releases = request.into_inner().releases;
        batch_size("releases", releases.len())?;
        let all = releases.into_iter().map(|release| one_of_many(&self.shared, &access, parent, release));
        let responses: Result<Vec<_>, Status> = futures::future::join_all(all).await.into_iter().collect();
        let responses = responses?.into_iter().map(|(_, response)| response).collect();
        Ok(Response::new(v1::BatchReleaseTokensResponse { responses }))
    }

    async fn extend_token(
        &self,
        request: Request<v1::ExtendTokenRequest>,
    ) -> Result<Response<v1::ExtendTokenResponse>, Status> {
        let access = Access::of(request.extensions());
        self.shared.extend(&access, request.into_inner()).await.map(Response::new)
    }

    async fn get_event(&self, request: Request<v1::GetEventRequest>) -> Result<Response<v1::Event>, Status> {
        let access = admitted(&request)?;
        let name = request.into_inner().name;
        let at =
            self.shared.address((&access, Aim::Read), "name", &name).await.map_err(Released::into_status)?;
        let at = self.shared.present(at).await?;
        let event = self.shared.find_event(&name, &at).await?;
        Ok(Response::new(redact::event(&access, event)))
    }

    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Result<Response<v1::ListEventsResponse>, Status> {
        let access = admitted(&request)?;
        let request = request.into_inner();
        let mut page = match request.parent.matches('/').count() {
            1 => self.shared.list_failed_events(&request).await?,
            _ => self.shared.list_events(&request).await?,
        };
        page.events = page.events.into_iter().map(|event| redact::event(&access, event)).collect();
        Ok(Response::new(page))
    }

    async fn list_failures(
        &self,
        request: Request<v1::ListFailuresRequest>,
    ) -> Result<Response<v1::ListFailuresResponse>, Status> {
        let access = admitted(&request)?;
        let mut failures = self.shared.list_failures(request.into_inner()).await?;
        failures.groups.iter_mut().for_each(|group| access.shown_event(&mut group.example_event));
        Ok(Response::new(failures))
    }

    async fn retry_failures(
        &self,
        request: Request<v1::RetryFailuresRequest>,
    ) -> Result<Response<v1::RetryFailuresResponse>, Status> {
        admitted(&request)?;
        let caller = caller(request.metadata());
        self.shared.retry_failures(caller, request.into_inner()).await.map(Response::new)
    }

    async fn close_failures(
        &self,
        request: Request<v1::CloseFailuresRequest>,
    ) -> Result<Response<v1::CloseFailuresResponse>, Status> {
        admitted(&request)?;
        let caller = caller(request.metadata());
        self.shared.close_failures(caller, request.into_inner()).await.map(Response::new)
    }

    async fn get_run(&self, request: Request<v1::GetRunRequest>) -> Result<Response<v1::Run>, Status> {
        admitted(&request)?;
        let run = self.shared.find_run("name", &request.into_inner().name).await?;
        self.shared.show_run(&run).await.map(Response::new)
    }

    async fn list_runs(
        &self,
        request: Request<v1::ListRunsRequest>,
    ) -> Result<Response<v1::ListRunsResponse>, Status> {
        admitted(&request)?;
        let request = request.into_inner();
        let size = page::size(request.page_size)?;
        let rising = order::parse(&request.order_by, "launch_time")? == Some(Order::Rising);
        // Both ways to ask for the usual order are one query.
        let query = ["ListRuns", &request.parent, &request.filter, "launch_time"];
        let query = if rising { query.as_slice() } else { &query[..3] };
        let after = page::Token::<(i64, RunId)>::decode(&request.page_token, query)?;
        let namespace = names::namespace("parent", &request.parent)?;
        let filter = self.run_filter(&namespace, &request.filter).await?;
        let Some(filter) = filter.map(|filter| RunFilter { rising, ..filter }) else {
            return Ok(Response::new(v1::ListRunsResponse::default()));
        };
        let limit = u32::try_from(size).unwrap_or(u32::MAX);
        let runs =
            self.shared.people.list_runs(&namespace, &filter, after, limit).await.map_err(store_status)?;
        let next_page_token = match runs.last() {
            Some(last) if runs.len() == size => page::Token::encode((last.launch_us, last.id), query),
            _ => String::new(),
        };
        let runs = self.shared.show_runs(&runs).await?;
        Ok(Response::new(v1::ListRunsResponse { runs, next_page_token }))
    }

    async fn cancel_run(&self, request: Request<v1::CancelRunRequest>) -> Result<Response<v1::Run>, Status> {
        admitted(&request)?;
        let mut caller = caller(request.metadata());
        let request = request.into_inner();
        let reason = convert::remark("reason", &request.reason)?;
        if !reason.is_empty() {
            caller.reason.clone_from(&reason);
        }
        let run = self.shared.find_run("name", &request.name).await?;
        if run.finished_us.is_none() {
            self.shared.note(caller, &run.namespace, request.name.clone(), "cancel").await?;
            self.shared.post(run.shard, Control::CancelRun { run: run.id, reason }).await?;
            self.shared.sync(&[run.shard]).await;
        }
        let run = self.shared.find_run("name", &request.name).await?;
        self.shared.show_run(&run).await.map(Response::new)
    }

    async fn retry_dead_events(
        &self,
        request: Request<v1::RetryDeadEventsRequest>,
    ) -> Result<Response<v1::RetryDeadEventsResponse>, Status> {
        let access = admitted(&request)?;
        let caller = caller(request.metadata());
        let request = request.into_inner();
        let mut run = self.shared.find_run("parent", &request.parent).await?;
        self.shared.may_be_tried_again(&run).await?;
        if request.events.len() > BATCH_MAX {
            let given = format!("{} events", request.events.len());
            return Err(FieldError::new("events", given, "at most 1000 events, or none for all").into());
        }
        let mut indexes = Vec::with_capacity(request.events.len());
        for name in &request.events {
            let at = self.shared.address((&access, Aim::Read), "events", name).await;
            let event = at.map_err(Released::into_status)?.named();
            if (event.run, event.shard) != (run.id, run.named_shard()) {
                return Err(FieldError::new("events", name, format!("an event of {}", request.parent)).into());
            }
            indexes.push(event.index);
        }
        let mut retried_count = 0;
        loop {
            let dead = self.shared.people.dead_events(run.shard, run.id, &indexes, RETRY_MAX).await;
            let found: Vec<u32> = dead.map_err(store_status)?.iter().map(|row| row.index).collect();
            if found.is_empty() {
                break;
            }
            retried_count += u32::try_from(found.len()).unwrap_or(u32::MAX);
            let more = found.len() == RETRY_MAX as usize;
            self.shared.post(run.shard, Control::RetryDead { run: run.id, indexes: found }).await?;
            if self.shared.sync(&[run.shard]).await == 0 || !more {
                break;
            }
            // It may have followed its policy.
            run = self.shared.find_run("parent", &request.parent).await?;
            self.shared.sync(&[run.shard]).await;
        }
        if retried_count > 0 {
            self.shared.note(caller, &run.namespace, request.parent, "retry").await?;
        }
        Ok(Response::new(v1::RetryDeadEventsResponse { retried_count }))
    }

    async fn explain_event(
        &self,
        request: Request<v1::ExplainEventRequest>,
    ) -> Result<Response<v1::Explanation>, Status> {
        let access = admitted(&request)?;
        let name = request.into_inner().name;
        let at =
            self.shared.address((&access, Aim::Read), "name", &name).await.map_err(Released::into_status)?;
        let at = self.shared.present(at).await?;
        let told = self.shared.explain(&name, &at).await?;
        Ok(Response::new(redact::explanation(&access, told)))
    }

    async fn get_policy_queue(
        &self,
        request: Request<v1::GetPolicyQueueRequest>,
    ) -> Result<Response<v1::PolicyQueue>, Status> {
        let access = admitted(&request)?;
        let queue = self.shared.policy_queue(request.into_inner()).await?;
        Ok(Response::new(redact::queue(&access, queue)))
    }

    async fn get_handler_status(
        &self,
        request: Request<v1::GetHandlerStatusRequest>,
    ) -> Result<Response<v1::HandlerStatus>, Status> {
        let access = admitted(&request)?;
        let mut asked = request.into_inner();
        if let Some(namespace) = access.namespace().filter(|_| asked.parent.is_empty()) {
            // Others' targets take none of the room for its own.
            asked.parent = format!("namespaces/{namespace}");
        }
        let status = self.shared.status(asked).await?;
        Ok(Response::new(redact::handler_status(&access, status)))
    }

    async fn list_troubles(
        &self,
        request: Request<v1::ListTroublesRequest>,
    ) -> Result<Response<v1::ListTroublesResponse>, Status> {
        let access = admitted(&request)?;
        self.shared.list_troubles(request.into_inner(), access.namespace()).await.map(Response::new)
    }

    async fn list_history(
        &self,
        request: Request<v1::ListHistoryRequest>,
    ) -> Result<Response<v1::ListHistoryResponse>, Status> {
        let access = admitted(&request)?;
        self.shared.list_history(request.into_inner(), access.namespace()).await.map(Response::new)
    }

    async fn send_test_alert(
        &self,
        request: Request<v1::SendTestAlertRequest>,
    ) -> Result<Response<v1::SendTestAlertResponse>, Status> {
        admitted(&request)?;
        let (caller, name) = (caller(request.metadata()), request.into_inner().name);
        let named = names::alert("name", &name)?;
        let found = self.shared.people.alert(&named.namespace, &named.id).await.map_err(store_status)?;
        let alert = found.ok_or_else(|| Status::not_found(format!("{name} does not exist")))?;
        self.shared.note(caller, &named.namespace, name, "send_test").await?;
        self.mail.test(&alert, self.shared.clock.wall_us()).await.map(Response::new)
    }

    async fn pause_dispatch(
        &self,
        request: Request<v1::PauseDispatchRequest>,
    ) -> Result<Response<v1::DispatchState>, Status> {
        let mut caller = caller(request.metadata());
        let reason = convert::remark("reason", &request.into_inner().reason)?;
        if !reason.is_empty() {
            caller.reason.clone_from(&reason);
        }
        let actor = caller.name.clone();
        self.shared.note(caller, "", "dispatch".to_owned(), "pause").await?;
        let pause = Pause { reason, actor, since_us: self.shared.clock.wall_us() };
        self.pause_all(Some(pause)).await.map(Response::new)
    }

    async fn resume_dispatch(
        &self,
        request: Request<v1::ResumeDispatchRequest>,
    ) -> Result<Response<v1::DispatchState>, Status> {
        self.shared.note(caller(request.metadata()), "", "dispatch".to_owned(), "resume").await?;
        self.pause_all(None).await.map(Response::new)
    }
}

impl HandlerService {
    /// None where the filter names a schedule or a policy that does not exist: nothing can match.
    async fn run_filter(&self, namespace: &str, text: &str) -> Result<Option<RunFilter>, Status> {
        let mut filter = RunFilter::default();
        for term in
            filter::parse(text, &["schedule", "policy", "state", "name", "launch_time>", "launch_time<"])?
        {
            match term.key.as_str() {
                "state" => {
                    (filter.states, filter.failures) = convert::run::states_in_filter(&term.value)?;
                }
                "name" => {
                    let (mut shard, from, to) = convert::run::ids_in_filter(&term.value)?;
                    // A whole name is found wherever its run is by now.
                    if let Some(named) = shard.filter(|_| from == to) {
                        let run = self.shared.find_run_by_id(namespace, named, from).await?;
                        shard = run.map(|run| run.shard).or(shard);
                    }
                    filter.ids = Some(RunIds { shard, from, to });
                }
                "launch_time>" => filter.from_us = Some(filter::moment(&term.value)?),
                "launch_time<" => filter.to_us = Some(filter::moment(&term.value)?.saturating_add(1)),
                "policy" => {
                    let name = names::policy_within("filter", namespace, &term.value)?;
                    let policy = self.shared.people.policy_by_name(namespace, &name.id).await;
                    let policy = policy.map_err(store_status)?;
                    let Some(policy) = policy else { return Ok(None) };
                    filter.policy_uid = Some(policy.uid);
                }
                _ => {
                    let name = names::schedule_within("filter", namespace, &term.value)?;
                    let uid = self.shared.people.schedule_uid(namespace, &name.id).await;
                    let Some(uid) = uid.map_err(store_status)? else { return Ok(None) };
                    filter.schedule_uid = Some(uid);
                }
            }
        }
        Ok(Some(filter))
    }
}

async fn one_of_many(
    shared: &Shared,
    access: &Access,
    parent: Option<Traceparent>,
    request: v1::ReleaseTokenRequest,
) -> Result<(String, v1::ReleaseTokenResponse), Status> {
    let name = request.name.clone();
    let response = shared.release(access, request, parent).await.into_item()?;
    Ok((name, response))
}
