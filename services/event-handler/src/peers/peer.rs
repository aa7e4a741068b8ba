//! One other process: its channel, the releases on their way to it, and the wakes that wait to be sent.
//!
//! In: calls, releases, and shards to be woken. Out: its answers. Invariants: a process that has not answered is left alone for a
//! moment; a wake that it has not heard is told again as long as the process is known; one call with wakes is under way at most,
//! and after one without an answer there is a pause. Not here: who owns what.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
    /// They are being sent; what gathers meanwhile goes with the next call.
    sending: bool,
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

    /// Tells it that there is something for a shard in the store, or (none) that shards are to be placed anew. It is told also
    /// while it is left alone: it may only have been slow.
    pub(super) fn wake(&self, shard: Option<u16>, calls: &TaskTracker) {
        let mut wakes = lock(&self.wakes);
        match shard {
            Some(shard) => {
                wakes.shards.insert(shard);
            }
            None => wakes.placement = true,
        }
        if !std::mem::replace(&mut wakes.sending, true) {
            let link = self.link.clone();
            let call = move |request: v1::WakeShardsRequest| {
                let link = link.clone();
                async move {
                    link.call_anyway(DEADLINE, |mut client| async move { client.wake_shards(request).await })
                        .await
                }
            };
            // Ends with the peer at the latest.
            calls.spawn(send_wakes(Arc::downgrade(&self.wakes), call));
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
        self.call_anyway(within, call).await
    }

    /// Makes one call even while the process is left alone. Nobody: it has refused.
    async fn call_anyway<T, F>(&self, within: Duration, call: impl FnOnce(Client) -> F) -> Asked<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
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

/// Sends what waits, as long as something does and the process is known.
async fn send_wakes<F>(wakes: Weak<Mutex<Wakes>>, call: impl Fn(v1::WakeShardsRequest) -> F)
where
    F: Future<Output = Asked<v1::WakeShardsResponse>>,
{
    while let Some((shards, placement)) = next_wakes(&wakes) {
        let numbers = shards.iter().copied().map(u32::from).collect();
        let asked = call(v1::WakeShardsRequest { shards: numbers, wait: false, placement }).await;
        // One that refuses is another process by now. One that has lost a shard takes its wake all the same: the next owner has
        // read what it was for.
        if matches!(asked, Asked::Unclear) {
            put_back(&wakes, shards, placement);
            tokio::time::sleep(SHUN).await;
        }
    }
}

/// What the next call tells: shards, and whether some are to be placed anew. None where nothing waits, and nobody sends any more.
fn next_wakes(of: &Weak<Mutex<Wakes>>) -> Option<(BTreeSet<u16>, bool)> {
    let kept = of.upgrade()?;
    let mut wakes = lock(&kept);
    if wakes.shards.is_empty() && !wakes.placement {
        wakes.sending = false;
        return None;
    }
    let shards = std::mem::take(&mut wakes.shards);
    Some((shards, std::mem::take(&mut wakes.placement)))
}

/// They have not been heard.
fn put_back(of: &Weak<Mutex<Wakes>>, shards: BTreeSet<u16>, placement: bool) {
    if let Some(kept) = of.upgrade() {
        let mut wakes = lock(&kept);
        wakes.shards.extend(shards);
        wakes.placement |= placement;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn waiting(shards: &[u16]) -> Arc<Mutex<Wakes>> {
        let shards = shards.iter().copied().collect();
        Arc::new(Mutex::new(Wakes { shards, placement: false, sending: true }))
    }

    #[tokio::test]
    async fn what_was_not_heard_is_told_again_with_what_has_come_since() {
        let (wakes, told) = (waiting(&[3, 5]), Mutex::new(Vec::new()));
        let call = |request: v1::WakeShardsRequest| {
            lock(&told).push(request.shards);
            let is_first = lock(&told).len() == 1;
            if is_first {
                lock(&wakes).shards.insert(7);
            }
            async move { if is_first { Asked::Unclear } else { Asked::Answer(v1::WakeShardsResponse::default()) } }
        };
        let began = instant_now();
        send_wakes(Arc::downgrade(&wakes), call).await;
        assert_eq!(*lock(&told), [vec![3, 5], vec![3, 5, 7]]);
        assert!(instant_now() - began >= SHUN, "one that does not answer is not called again at once");
        assert!(!lock(&wakes).sending);
    }

    #[tokio::test]
    async fn nobody_tells_a_process_that_is_not_known_any_more_or_that_refuses() {
        let wakes = waiting(&[3]);
        let (weak, known) = (Arc::downgrade(&wakes), Mutex::new(Some(wakes)));
        let calls = Mutex::new(0);
        let call = |_: v1::WakeShardsRequest| {
            // It is forgotten while it is called.
            drop(lock(&known).take());
            *lock(&calls) += 1;
            async { Asked::<v1::WakeShardsResponse>::Unclear }
        };
        send_wakes(weak, call).await;
        assert_eq!(*lock(&calls), 1);
        let wakes = waiting(&[3]);
        send_wakes(Arc::downgrade(&wakes), |_| async { Asked::Nobody }).await;
        assert!(lock(&wakes).shards.is_empty());
    }

    #[tokio::test]
    async fn a_wake_goes_to_a_process_that_is_left_alone_and_nothing_else_does() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let member = Member { process: "p".to_owned(), roles: String::new(), address, heartbeat: 0 };
        let peer = Peer::new(&member, &PeerKey::new(&[7; 32]), &ClientTlsConfig::new()).unwrap();
        peer.link.shun();
        let asked = peer.release(v1::ReleaseTokenRequest::default()).await;
        assert_eq!(asked, Asked::Nobody);
        peer.wake(Some(3), &TaskTracker::new());
        let called = tokio::time::timeout(SHUN / 2, listener.accept()).await;
        assert!(called.is_ok(), "it may only have been slow");
    }
}
