//! The gRPC service `tollgate.v1.HandlerPeerService`: what other processes of the installation ask.
//!
//! Invariants: nothing is done for a caller without the credential; nothing is passed on: what is not owned here is said
//! to be not owned.

use tollgate_auth::{Access, Aim};
use tollgate_core::handle::release::Answer;
use tollgate_core::model::RunId;
use tollgate_core::trouble::worst_first;
use tollgate_proto::convert::{self, names};
use tollgate_proto::v1;
use tollgate_proto::v1::handler_peer_service_server::{HandlerPeerService, HandlerPeerServiceServer};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::Shared;
use crate::answers::{Released, extended_to_wire, released_to_wire};
use crate::peers::PeerKey;
use crate::queries::Seen;
use crate::routes::{Input, Replied};

/// How many troubles of one process are told.
const TOLD_MAX: usize = 1_000;

/// Lets only the installation's own processes in.
#[derive(Clone)]
pub struct Admission {
    key: PeerKey,
    process: String,
}

impl Interceptor for Admission {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        if self.key.admits(&self.process, request.metadata()) {
            return Ok(request);
        }
        Err(Status::permission_denied(
            "this service is for the processes of the installation among themselves",
        ))
    }
}

/// The service; cheap to clone.
#[derive(Clone)]
pub struct PeerService {
    shared: Shared,
}

/// The service behind its door.
pub type GuardedPeerService = InterceptedService<HandlerPeerServiceServer<PeerService>, Admission>;

impl PeerService {
    pub(crate) fn guarded(shared: Shared) -> GuardedPeerService {
        let admission = Admission { key: shared.peers.key().clone(), process: shared.process.clone() };
        InterceptedService::new(HandlerPeerServiceServer::new(Self { shared }), admission)
    }
}

/// Whether no owner here holds the event where it was thought to be.
fn is_missing(replied: Option<&Replied>) -> bool {
    matches!(replied, None | Some(Replied::Answer(Answer::NotHeld)))
}

#[tonic::async_trait]
impl HandlerPeerService for PeerService {
    async fn forward_releases(
        &self,
        request: Request<v1::ForwardReleasesRequest>,
    ) -> Result<Response<v1::ForwardReleasesResponse>, Status> {
        let all = request.into_inner().releases.into_iter().map(|request| async move {
            let replied = match self.shared.understand(&Access::Open, &request).await {
                Ok((mut at, release)) => {
                    let mut replied = self.shared.release_here(&at, &release).await;
                    while is_missing(replied.as_ref()) && self.shared.has_moved_here(&mut at).await {
                        replied = self.shared.release_here(&at, &release).await;
                    }
                    replied
                }
                // The caller has understood it, so this process is another version: the caller finds another way.
                Err(_) => None,
            };
            released_to_wire(replied)
        });
        let releases = futures::future::join_all(all).await;
        Ok(Response::new(v1::ForwardReleasesResponse { releases }))
    }

    async fn forward_extend(
        &self,
        request: Request<v1::ForwardExtendRequest>,
    ) -> Result<Response<v1::ForwardExtendResponse>, Status> {
        let extend = request.into_inner().extend.unwrap_or_default();
        let (mut at, ttl_ms) = self.shared.understand_extend(&Access::Open, &extend).await?;
        let mut replied = self.shared.extend_here(&at, extend.attempt, ttl_ms).await;
        while is_missing(replied.as_ref()) && self.shared.has_moved_here(&mut at).await {
            replied = self.shared.extend_here(&at, extend.attempt, ttl_ms).await;
        }
        Ok(Response::new(extended_to_wire(replied)))
    }

    async fn forward_explain(
        &self,
        request: Request<v1::ForwardExplainRequest>,
    ) -> Result<Response<v1::ForwardExplainResponse>, Status> {
        let name = request.into_inner().name;
        let at = self.shared.address((&Access::Open, Aim::Read), "name", &name).await;
        let at = self.shared.present(at.map_err(Released::into_status)?).await?;
        let explanation = self.shared.explain_here(&name, &at).await?;
        Ok(Response::new(v1::ForwardExplainResponse { explanation }))
    }

    async fn count_outstanding(
        &self,
        request: Request<v1::CountOutstandingRequest>,
    ) -> Result<Response<v1::CountOutstandingResponse>, Status> {
        // What is no key is no run that is here.
        let key = |key: v1::RunKey| {
            let shard = u16::try_from(key.shard).unwrap_or(u16::MAX);
            (shard, RunId(Uuid::from_slice(&key.run).unwrap_or_default()))
        };
        let keys: Vec<_> = request.into_inner().runs.into_iter().map(key).collect();
        let known = self.shared.outstanding_here(&keys).await;
        let runs = known.into_iter().map(Option::unwrap_or_default).collect();
        Ok(Response::new(v1::CountOutstandingResponse { runs }))
    }

    async fn count_keys(
        &self,
        request: Request<v1::CountKeysRequest>,
    ) -> Result<Response<v1::CountKeysResponse>, Status> {
        let v1::CountKeysRequest { shard, policy_uid } = request.into_inner();
        let shard = u16::try_from(shard).unwrap_or(u16::MAX);
        // What is no uid is no policy that is here.
        let policy = Uuid::from_slice(&policy_uid).unwrap_or_default();
        Ok(Response::new(self.shared.keys_here(shard, policy).await.unwrap_or_default()))
    }

    async fn read_handler_status(
        &self,
        request: Request<v1::ReadHandlerStatusRequest>,
    ) -> Result<Response<v1::ReadHandlerStatusResponse>, Status> {
        let v1::ReadHandlerStatusRequest { parent, busy_only } = request.into_inner();
        let namespace = if parent.is_empty() { None } else { Some(names::namespace("parent", &parent)?) };
        let (status, order) = self.shared.status_here(namespace.as_deref(), busy_only).await;
        let pause_order = order.as_bytes().to_vec();
        Ok(Response::new(v1::ReadHandlerStatusResponse { status: Some(status), pause_order }))
    }

    async fn read_troubles(
        &self,
        _request: Request<v1::ReadTroublesRequest>,
    ) -> Result<Response<v1::ReadTroublesResponse>, Status> {
        let Seen { troubles, incomplete, settling, shards } = self.shared.troubles_here().await;
        let troubles =
            worst_first(troubles).iter().take(TOLD_MAX).map(convert::trouble::to_message).collect();
        let shards_count = u32::try_from(shards).unwrap_or(u32::MAX);
        Ok(Response::new(v1::ReadTroublesResponse { troubles, incomplete, settling, shards_count }))
    }

    async fn take_room(
        &self,
        request: Request<v1::TakeRoomRequest>,
    ) -> Result<Response<v1::TakeRoomResponse>, Status> {
        self.shared.desk.lend(request.into_inner()).await.map(Response::new)
    }

    async fn return_room(
        &self,
        request: Request<v1::ReturnRoomRequest>,
    ) -> Result<Response<v1::ReturnRoomResponse>, Status> {
        self.shared.desk.returned(&request.into_inner().rooms);
        Ok(Response::new(v1::ReturnRoomResponse {}))
    }

    async fn give_event(
        &self,
        request: Request<v1::GiveEventRequest>,
    ) -> Result<Response<v1::GiveEventResponse>, Status> {
        Ok(Response::new(self.shared.desk.take_in(request.into_inner()).await))
    }

    async fn read_workers(
        &self,
        request: Request<v1::ReadWorkersRequest>,
    ) -> Result<Response<v1::ReadWorkersResponse>, Status> {
        let v1::ReadWorkersRequest { namespace, queue } = request.into_inner();
        let queue = Some(queue.as_str()).filter(|queue| !queue.is_empty());
        Ok(Response::new(self.shared.workers_here(&namespace, queue)))
    }

    async fn wake_shards(
        &self,
        request: Request<v1::WakeShardsRequest>,
    ) -> Result<Response<v1::WakeShardsResponse>, Status> {
        let v1::WakeShardsRequest { shards, wait, placement } = request.into_inner();
        if placement {
            self.shared.peers.place_anew();
        }
        let told = shards.into_iter().filter_map(|shard| u16::try_from(shard).ok()).map(|shard| async move {
            let routes = self.shared.peers.routes();
            let done = if wait {
                routes.ask(shard, |reply| Input::Sync { reply }).await.is_some()
            } else {
                routes.wake(shard)
            };
            done.then_some(u32::from(shard))
        });
        let shards = futures::future::join_all(told).await.into_iter().flatten().collect();
        Ok(Response::new(v1::WakeShardsResponse { shards }))
    }
}
