//! One other process: its channel, the releases on their way to it, and the wakes that wait to be sent.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost::Message as _;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tollgate_clock::instant_now;
use tollgate_proto::v1;
use tollgate_proto::v1::handler_peer_service_client::HandlerPeerServiceClient;
use tollgate_store::handle::Member;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Response, Status};

use super::{Asked, DEADLINE, PeerKey};

/// The longest wait for a connection.
const CONNECT: Duration = Duration::from_millis(500);
/// A connection on which nothing comes for this time is tested, and given up when the test has no answer.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// How long a process that did not answer is left alone.
const SHUN: Duration = Duration::from_secs(1);
/// The most releases of one call, and calls under way: they bound the releases on their way, and the memory for them.
const RELEASES_MAX: usize = 500;
const CALL_MAX_BYTES: usize = 256 * 1024;
const CALLS_MAX: usize = 16;
/// The largest answer, in bytes.
const ANSWER_MAX_BYTES: usize = 16 * 1024 * 1024;

pub(super) type Client = HandlerPeerServiceClient<InterceptedService<Channel, Credential>>;

/// Adds the credential to each call.
#[derive(Clone)]
pub(super) struct Credential(MetadataValue<Ascii>);

impl Interceptor for Credential {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        PeerKey::attach(request.metadata_mut(), &self.0);
        Ok(request)
    }
}

/// A release on its way.
type Forward = (v1::ReleaseTokenRequest, oneshot::Sender<Asked<v1::ForwardedRelease>>);

pub(super) struct Peer {
    pub(super) address: String,
    link: PeerLink,
    releases: mpsc::UnboundedSender<Forward>,
    wakes: Arc<Mutex<Wakes>>,
}

/// The way to it: its client, and until when it is left alone.
#[derive(Clone)]
pub(super) struct PeerLink {
    client: Client,
    shunned_until: Arc<Mutex<Option<Instant>>>,
}

#[derive(Default)]
struct Wakes {
    shards: BTreeSet<u16>,
    placement: bool,
    /// A call is under way; what gathers meanwhile is the next one.
    calling: bool,
}

impl Peer {
    /// None where its address makes no sense.
    pub(super) fn new(member: &Member, key: &PeerKey, tls: &ClientTlsConfig) -> Option<Self> {
        let credential = Credential(key.credential(&member.process)?);
        let endpoint = Endpoint::from_shared(member.address.clone());
        let endpoint = match endpoint.and_then(|endpoint| {
            let secure = member.address.starts_with("https:");
            if secure { endpoint.tls_config(tls.clone()) } else { Ok(endpoint) }
        }) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                tracing::warn!(process = member.process, address = member.address, %error, "the address of a process cannot be used");
                return None;
            }
        };
        let channel = endpoint
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .connect_lazy();
        let client = HandlerPeerServiceClient::with_interceptor(channel, credential)
            .max_decoding_message_size(ANSWER_MAX_BYTES);
        let link = PeerLink { client, shunned_until: Arc::default() };
        let (releases, queue) = mpsc::unbounded_channel();
        // Ends with the peer.
        tokio::spawn(forward_releases(link.clone(), queue));
        Some(Self { address: member.address.clone(), link, releases, wakes: Arc::default() })
    }

    pub(super) fn link(&self) -> PeerLink {
        self.link.clone()
    }

    /// Forwards one release together with others that go the same way.
    pub(super) async fn release(&self, release: v1::ReleaseTokenRequest) -> Asked<v1::ForwardedRelease> {
        if self.link.is_shunned() {
            return Asked::Nobody;
        }
        let (reply, answer) = oneshot::channel();
        if self.releases.send((release, reply)).is_err() {
            return Asked::Nobody;
        }
        // Longer than the call itself may take: its own deadline says more.
        match tokio::time::timeout(DEADLINE + DEADLINE / 2, answer).await {
            Ok(Ok(asked)) => asked,
            Ok(Err(_)) | Err(_) => Asked::Unclear,
        }
    }

    /// Tells it that there is something for a shard in the store, or (none) that shards are to be placed anew.
    pub(super) fn wake(&self, shard: Option<u16>, calls: &TaskTracker) {
        let mut wakes = lock(&self.wakes);
        match shard {
            Some(shard) => {
                wakes.shards.insert(shard);
            }
            None => wakes.placement = true,
        }
        if !std::mem::replace(&mut wakes.calling, true) {
            calls.spawn(send_wakes(self.link.clone(), self.wakes.clone()));
        }
    }
}

impl PeerLink {
    /// Makes one call, within the deadline.
    pub(super) async fn call<T, F>(&self, call: impl FnOnce(Client) -> F) -> Asked<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.call_within(DEADLINE, call).await
    }

    /// Makes one call that may take longer than others, or not as long.
    pub(super) async fn call_within<T, F>(&self, within: Duration, call: impl FnOnce(Client) -> F) -> Asked<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        if self.is_shunned() {
            return Asked::Nobody;
        }
        match tokio::time::timeout(within, call(self.client.clone())).await {
            Ok(Ok(response)) => Asked::Answer(response.into_inner()),
            // It has refused, so it has done nothing.
            Ok(Err(status)) if matches!(status.code(), Code::PermissionDenied | Code::Unimplemented) => {
                Asked::Nobody
            }
            Ok(Err(status)) => {
                tracing::debug!(%status, "another handler does not answer");
                self.shun();
                Asked::Unclear
            }
            Err(_) => {
                self.shun();
                Asked::Unclear
            }
        }
    }

    fn is_shunned(&self) -> bool {
        lock(&self.shunned_until).is_some_and(|until| instant_now() < until)
    }

    fn shun(&self) {
        *lock(&self.shunned_until) = Some(instant_now() + SHUN);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends what waits in as few calls as may be: while all calls are under way, the next one grows.
async fn forward_releases(link: PeerLink, mut queue: mpsc::UnboundedReceiver<Forward>) {
    let calls = Arc::new(Semaphore::new(CALLS_MAX));
    while let Some((first, reply)) = queue.recv().await {
        let Ok(call) = calls.clone().acquire_owned().await else { return };
        let mut bytes = first.encoded_len();
        let (mut releases, mut replies) = (vec![first], vec![reply]);
        while releases.len() < RELEASES_MAX
            && bytes < CALL_MAX_BYTES
            && let Ok((release, reply)) = queue.try_recv()
        {
            bytes += release.encoded_len();
            releases.push(release);
            replies.push(reply);
        }
        let link = link.clone();
        tokio::spawn(async move {
            let request = v1::ForwardReleasesRequest { releases };
            let asked = link.call(|mut client| async move { client.forward_releases(request).await }).await;
            let (mut answers, otherwise) = match asked {
                Asked::Answer(response) => (response.releases, Asked::Unclear),
                Asked::Nobody => (Vec::new(), Asked::Nobody),
                Asked::Unclear => (Vec::new(), Asked::Unclear),
            };
            answers.reverse();
            for reply in replies {
                // The caller may have gone.
                let _gone = reply.send(answers.pop().map_or(otherwise.clone(), Asked::Answer));
            }
            drop(call);
        });
    }
}

async fn send_wakes(link: PeerLink, wakes: Arc<Mutex<Wakes>>) {
    loop {
        let request = {
            let mut wakes = lock(&wakes);
            if wakes.shards.is_empty() && !wakes.placement {
                wakes.calling = false;
                return;
            }
            let shards = std::mem::take(&mut wakes.shards).into_iter().map(u32::from).collect();
            v1::WakeShardsRequest { shards, wait: false, placement: std::mem::take(&mut wakes.placement) }
        };
        // Best effort: it looks by itself, only later.
        let _asked = link.call(|mut client| async move { client.wake_shards(request).await }).await;
    }
}
