//! The gRPC service `tollgate.v1.WorkerService`.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_auth::{Access, StreamKey};
use tollgate_clock::instant_now;
use tollgate_proto::convert::{names, work};
use tollgate_proto::v1;
use tollgate_proto::v1::worker_service_server::WorkerService;
use tonic::{Request, Response, Status, Streaming};

use super::book::{Labels, QueueKey};
use super::listed;
use super::poll::Poll;
use super::sessions::Profile;
use super::stream::{self, Opened, Passing, turned_away};
use super::taken::Poller;
use crate::Shared;

/// Messages that are on their way to a worker at once.
const ON_THE_WAY: usize = 16;
/// The most workers of a list.
const LISTED_MAX: usize = 10_000;

/// The service; cheap to clone.
#[derive(Clone)]
pub struct Workers {
    shared: Shared,
}

impl Workers {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared }
    }
}

#[tonic::async_trait]
impl WorkerService for Workers {
    type WorkStream = BoxStream<'static, Result<v1::WorkResponse, Status>>;

    async fn work(
        &self,
        request: Request<Streaming<v1::WorkRequest>>,
    ) -> Result<Response<Self::WorkStream>, Status> {
        let access = Access::of(request.extensions());
        let key = request.extensions().get::<StreamKey>().cloned();
        let parent = self.shared.parent(&request);
        let opened = Opened { access, key, parent, incoming: request.into_inner() };
        let (outlet, messages) = mpsc::channel(ON_THE_WAY);
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let last = outlet.clone();
            if let Err(status) = stream::serve(shared, opened, outlet).await {
                // A worker that has gone needs no word.
                let _gone = last.send(Box::new(Passing::Told(Err(status)))).await;
            }
        });
        Ok(Response::new(
            ReceiverStream::new(messages).filter_map(|passing| stream::written(*passing)).boxed(),
        ))
    }

    async fn acquire_events(
        &self,
        request: Request<v1::AcquireEventsRequest>,
    ) -> Result<Response<v1::AcquireEventsResponse>, Status> {
        let access = Access::of(request.extensions());
        // A poll may wait for longer than its key is good.
        let key = request.extensions().get::<StreamKey>().cloned();
        access.admit(request.get_ref())?;
        let request = request.into_inner();
        let names::Name { namespace, id } = work::queue("name", &request.name)?;
        access.works(&id)?;
        let labels = work::labels("labels", &request.labels)?;
        let name = work::worker("worker", &request.worker)?;
        let (most, wait_ms) = work::acquire(&request)?;
        let queue = QueueKey { namespace: namespace.into(), queue: id.into() };
        let labels: Labels = labels.into();
        let by = Poller { name: name.clone(), labels: labels.clone() };
        let profile = Profile { queue, labels, name, polls: true };
        let until = instant_now() + Duration::from_millis(u64::try_from(wait_ms).unwrap_or_default());
        let Shared { desk, leaving, .. } = &self.shared;
        let mut poll = Poll::begin(desk, leaving, profile, most)
            .map_err(|refused| turned_away(&self.shared, refused))?;
        poll.wait(until).await;
        StreamKey::check(key.as_ref())?;
        Ok(Response::new(v1::AcquireEventsResponse { events: poll.end(&by) }))
    }

    async fn list_workers(
        &self,
        request: Request<v1::ListWorkersRequest>,
    ) -> Result<Response<v1::ListWorkersResponse>, Status> {
        let access = Access::of(request.extensions());
        access.admit(request.get_ref())?;
        let parent = request.into_inner().parent;
        let (namespace, queue) = match parent.matches('/').count() {
            1 => (names::namespace("parent", &parent)?, None),
            _ => {
                let names::Name { namespace, id } = work::queue("parent", &parent)?;
                (namespace, Some(id))
            }
        };
        let mut answer = self.shared.list_workers(&namespace, queue.as_deref()).await?;
        let events = answer.workers.iter_mut().flat_map(|worker| &mut worker.events);
        events.for_each(|event| access.shown_event(event));
        Ok(Response::new(answer))
    }
}

impl Shared {
    /// The workers of all processes.
    async fn list_workers(
        &self,
        namespace: &str,
        queue: Option<&str>,
    ) -> Result<v1::ListWorkersResponse, Status> {
        let v1::ReadWorkersResponse { mut workers, mut more_count } = self.workers_here(namespace, queue);
        let mut unreached_count = 0;
        for (_, answer) in self.peers.workers(namespace, queue).await {
            match answer {
                Some(other) => {
                    workers.extend(other.workers);
                    more_count += other.more_count;
                }
                None => unreached_count += 1,
            }
        }
        let mut workers = listed::together(workers);
        more_count += u32::try_from(workers.len().saturating_sub(LISTED_MAX)).unwrap_or(u32::MAX);
        workers.truncate(LISTED_MAX);
        Ok(v1::ListWorkersResponse { workers, unreached_count, more_count })
    }

    /// The workers of this process, and those that polled any and have events of its shards.
    pub(crate) fn workers_here(&self, namespace: &str, queue: Option<&str>) -> v1::ReadWorkersResponse {
        let mut workers = self.desk.list(namespace, queue);
        let (at_work, left_out) = self.desk.at_work((namespace, queue), LISTED_MAX);
        let id = |event| self.keyring.id(event).to_string();
        workers.extend(at_work.iter().map(|one| one.shown(id)));
        let mut workers = listed::together(workers);
        let more = workers.len().saturating_sub(LISTED_MAX) + left_out;
        workers.truncate(LISTED_MAX);
        v1::ReadWorkersResponse { workers, more_count: u32::try_from(more).unwrap_or(u32::MAX) }
    }
}
