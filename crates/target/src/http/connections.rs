//! Connections to HTTP targets: which one a request gets, and the exchange on it.
//!
//! In: a request, the destination it goes to, and whose it is. Out: the answer, and how far the request came. Invariants: one
//! request at a time on a connection; a request is written at most once, and not after its leave has ended; one is kept only if
//! its last answer was read to the end; no more than [`NEW_MAX`] new ones wait for their first answer at an origin; no
//! schedule, origin or namespace uses all that may be used at once.
//!
//! What falls due at one instant would otherwise open as many at once: more than common servers let wait to be accepted, and the
//! kernel tries those that do not fit again after a second. Who may not open one yet takes the first that becomes free.
//!
//! A connection has no task of its own: the delivery that uses it drives it, so that an answer wakes one task and not
//! two. While it is idle nobody does; that its other side has closed it is found when it is used next, before anything
//! is written.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::{TrySendError, http1};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;
use tollgate_clock::instant_now;
use tower_service::Service as _;
use uuid::Uuid;

use super::answer::HttpAnswer;
use super::connector::{BoxError, Connector, Stream};
use super::destinations::Destination;
use crate::address::GuardedNames;
use crate::leave::Leave;
use crate::shares::{Claim, Place, Shares, key_of};

/// How long an unused connection is kept. Common servers close theirs after five seconds or more, and a request that
/// meets a connection as it closes ends as unclear.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// The most connections that are new at an origin: being opened, or without an answer yet. Common servers let as many wait to
/// be accepted.
const NEW_MAX: usize = 128;
/// After that one no longer counts as new: it will have been accepted, and the answer takes its time, or nobody is there.
const NEW_FOR: Duration = Duration::from_millis(100);

/// What is sent.
type Body = Full<Bytes>;

/// How far an exchange has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for its turn.
    #[default]
    Waiting,
    /// Its host's name is being looked up.
    LookingUp,
    /// It connects.
    Connecting,
    /// The request may have been written.
    Written,
}

/// Whose event it is, and until when it may be sent.
#[derive(Clone, Copy)]
pub(super) struct Sender<'a> {
    pub(super) namespace: &'a str,
    pub(super) schedule: Uuid,
    pub(super) leave: &'a Leave,
    pub(super) deadline: Duration,
}

/// Why there is no complete answer.
pub(super) enum ExchangeError {
    /// It had no turn, or has lost its leave.
    NotSent(String),
    /// There is no connection, or it took nothing.
    Unsent(BoxError),
    /// After the request was written, perhaps in part, and before the head of the answer was there.
    NoAnswer(hyper::Error),
    /// After the head: the answer's status, and what happened to its body.
    NoBody(u16, String),
}

/// The connections of all targets.
pub(super) struct Connections {
    connector: Connector,
    names: GuardedNames,
    /// How many each schedule, origin and namespace may have at once.
    shares: Shares,
    pools: Arc<Mutex<OriginPools>>,
    /// How many that nobody uses are kept for each origin, and for all together.
    idle_max: (usize, usize),
}

#[derive(Default)]
struct OriginPools {
    by_name: HashMap<String, OriginPool>,
    /// Those that nobody uses, of all.
    kept: usize,
    /// Somebody comes to close what has been idle for too long.
    are_swept: bool,
}

/// Connections to one origin that nobody uses, and the requests that wait for one.
struct OriginPool {
    /// Those that were used last at the end.
    kept: Vec<(Box<Connection>, Instant)>,
    /// Turns to have a new one.
    turns: Arc<Semaphore>,
    /// Those who wait for such a turn, longest first; some have got it.
    waiting: VecDeque<oneshot::Sender<Box<Connection>>>,
}

/// A connection counts as new until this is dropped, or [`NEW_FOR`] is over.
struct New {
    _until: oneshot::Sender<()>,
}

/// How a request gets its connection.
enum Way {
    Kept(Box<Connection>),
    Open(OwnedSemaphorePermit),
}

/// The same, where it may have to wait for it.
enum Turn {
    Now(Way),
    /// Whichever comes first.
    Wait(oneshot::Receiver<Box<Connection>>, Arc<Semaphore>),
}

/// One connection.
struct Connection {
    sender: http1::SendRequest<Body>,
    driver: http1::Connection<Stream, Body>,
    /// The driver has ended.
    is_over: bool,
}

impl Connections {
    pub(super) fn new(
        connector: Connector,
        names: GuardedNames,
        connections_max: usize,
        idle_max: usize,
    ) -> Self {
        // Those that nobody uses come on top.
        let idle_max = (idle_max, (connections_max / 4).max(1));
        Self { connector, names, shares: Shares::new(connections_max), pools: Arc::default(), idle_max }
    }

    /// Waits until a request may go to a destination.
    async fn turn(&self, destination: &Destination) -> Result<Way, ExchangeError> {
        match self.with(&destination.origin, OriginPool::turn) {
            Turn::Now(way) => Ok(way),
            // Boxed, as below: it is far larger than the rest, and rare.
            Turn::Wait(freed, turns) => Box::pin(wait(freed, turns)).await,
        }
    }

    /// Waits until there is one for this sender among the connections that may be used at once.
    async fn place(&self, destination: &Destination, sender: Sender<'_>) -> Result<Place, ExchangeError> {
        let claims = [
            Claim::nearly_all(key_of(("namespace", sender.namespace))),
            Claim::most(("origin", &destination.origin)),
            Claim::half(("schedule", sender.schedule)),
        ];
        if let Some(place) = self.shares.try_take(claims) {
            return Ok(place);
        }
        in_turn(sender, "the connections of its schedule, target or namespace are all in use", async {
            Ok(Box::pin(self.shares.take(claims)).await)
        })
        .await?
        .ok_or_else(|| ExchangeError::NotSent("not sent: the process ends".to_owned()))
    }

    /// Sends a request and reads its answer, at most `body_max_bytes` of the body. `stage` tells how far it came, also when this
    /// is dropped before its end.
    pub(super) async fn exchange(
        &self,
        destination: &Destination,
        mut request: Request<Body>,
        sender: Sender<'_>,
        body_max_bytes: usize,
        stage: &mut Stage,
    ) -> Result<HttpAnswer, ExchangeError> {
        // Before it takes anything that others may want: a name may take its time.
        if let Some(name) = &destination.name
            && !self.with(&destination.origin, |pool| pool.has_kept())
        {
            *stage = Stage::LookingUp;
            Box::pin(self.names.resolve(name, sender.namespace)).await.map_err(ExchangeError::Unsent)?;
            *stage = Stage::Waiting;
        }
        let _place = self.place(destination, sender).await?;
        loop {
            let way = in_turn(
                sender,
                "too many connections to its target are being opened",
                self.turn(destination),
            );
            let (mut connection, new) = match way.await? {
                Way::Kept(connection) => (connection, None),
                Way::Open(turn) => {
                    let new = New::now(turn);
                    *stage = Stage::Connecting;
                    (Box::pin(self.connect(destination)).await?, Some(new))
                }
            };
            // Nothing is waited for between this look and the first bytes.
            if let Err(why) = sender.leave.check(sender.deadline) {
                self.keep(&destination.origin, connection);
                return Err(ExchangeError::NotSent(format!("not sent: {why}")));
            }
            *stage = Stage::Written;
            let sent = connection.send(request).await;
            let is_fresh = new.is_some();
            drop(new);
            let response = match sent {
                Ok(response) => response,
                Err(mut failed) => {
                    let Some(unsent) = failed.take_message() else {
                        return Err(ExchangeError::NoAnswer(failed.into_error()));
                    };
                    *stage = Stage::Waiting;
                    if is_fresh {
                        return Err(ExchangeError::Unsent(failed.into_error().into()));
                    }
                    // It had been closed while it was idle.
                    request = unsent;
                    continue;
                }
            };
            let (head, mut body) = response.into_parts();
            let mut answer = HttpAnswer { status: head.status, headers: head.headers, body: Vec::new() };
            if connection.read(&mut body, &mut answer, body_max_bytes).await? {
                drop(body);
                self.keep(&destination.origin, connection);
            }
            return Ok(answer);
        }
    }

    async fn connect(&self, destination: &Destination) -> Result<Box<Connection>, ExchangeError> {
        let mut connector = self.connector.clone();
        poll_fn(|cx| connector.poll_ready(cx)).await.map_err(ExchangeError::Unsent)?;
        let stream = connector.call(destination.url.clone()).await.map_err(ExchangeError::Unsent)?;
        let (sender, driver) =
            http1::handshake(stream).await.map_err(|error| ExchangeError::Unsent(error.into()))?;
        Ok(Box::new(Connection { sender, driver, is_over: false }))
    }

    /// Keeps a connection, if it can take another request, or gives it to the request that has waited longest.
    fn keep(&self, origin: &str, mut connection: Box<Connection>) {
        if !connection.rests() {
            return;
        }
        let (each, all) = self.idle_max;
        let mut pools = lock(&self.pools);
        let room = pools.kept < all;
        let Some(pool) = pools.by_name.get_mut(origin) else { return };
        if pool.put(connection, if room { each } else { 0 }) {
            pools.kept += 1;
        }
    }

    fn with<T>(&self, origin: &str, work: impl FnOnce(&mut OriginPool) -> T) -> T {
        let mut pools = lock(&self.pools);
        let count = |pool: &mut OriginPool| {
            let before = pool.kept.len();
            let done = work(pool);
            (done, before - pool.kept.len())
        };
        let (done, taken) = match pools.by_name.get_mut(origin) {
            Some(pool) => count(pool),
            None => count(pools.by_name.entry(origin.to_owned()).or_default()),
        };
        pools.kept -= taken;
        if !std::mem::replace(&mut pools.are_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.pools)));
        }
        done
    }
}

impl New {
    fn now(turn: OwnedSemaphorePermit) -> Self {
        let (until, over) = oneshot::channel();
        tokio::spawn(async move {
            // Either way it is over.
            let _over = tokio::time::timeout(NEW_FOR, over).await;
            drop(turn);
        });
        Self { _until: until }
    }
}

impl Default for OriginPool {
    fn default() -> Self {
        Self { kept: Vec::new(), turns: Arc::new(Semaphore::new(NEW_MAX)), waiting: VecDeque::new() }
    }
}

impl OriginPool {
    fn turn(&mut self) -> Turn {
        if let Some((connection, since)) = self.kept.pop()
            && since.elapsed() < IDLE_MAX
        {
            return Turn::Now(Way::Kept(connection));
        }
        // The others have been idle for longer yet; the sweep closes them.
        if let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() {
            return Turn::Now(Way::Open(turn));
        }
        while self.waiting.front().is_some_and(oneshot::Sender::is_closed) {
            self.waiting.pop_front();
        }
        let (sender, freed) = oneshot::channel();
        self.waiting.push_back(sender);
        Turn::Wait(freed, Arc::clone(&self.turns))
    }

    fn has_kept(&self) -> bool {
        self.kept.last().is_some_and(|(_, since)| since.elapsed() < IDLE_MAX)
    }

    /// Whether it is kept.
    fn put(&mut self, mut connection: Box<Connection>, kept_max: usize) -> bool {
        while let Some(first) = self.waiting.pop_front() {
            match first.send(connection) {
                Ok(()) => return false,
                Err(back) => connection = back,
            }
        }
        if self.kept.len() >= kept_max {
            return false;
        }
        self.kept.push((connection, instant_now()));
        true
    }

    fn is_used(&self) -> bool {
        let is_awaited = self.waiting.iter().any(|sender| !sender.is_closed());
        is_awaited || !self.kept.is_empty() || self.turns.available_permits() < NEW_MAX
    }
}

impl Connection {
    /// Writes a request and waits for the head of the answer.
    async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        let Self { sender, driver, is_over } = self;
        let mut answer = pin!(sender.try_send_request(request));
        poll_fn(|cx| {
            drive(driver, is_over, cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Reads the body of an answer. Whether it was read to its end: so much of it may be left that it is not worth it.
    async fn read(
        &mut self,
        body: &mut Incoming,
        answer: &mut HttpAnswer,
        max_bytes: usize,
    ) -> Result<bool, ExchangeError> {
        while !body.is_end_stream() {
            let frame = poll_fn(|cx| {
                if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                    return Poll::Ready(Ok(frame));
                }
                drive(&mut self.driver, &mut self.is_over, cx);
                match Pin::new(&mut *body).poll_frame(cx) {
                    Poll::Ready(frame) => Poll::Ready(Ok(frame)),
                    Poll::Pending if self.is_over => Poll::Ready(Err("the connection ended".to_owned())),
                    Poll::Pending => Poll::Pending,
                }
            });
            let broken = |why: String| ExchangeError::NoBody(answer.status.as_u16(), why);
            let Some(frame) = frame.await.map_err(broken)? else { break };
            let data = frame.map_err(|error| broken(crate::chain(&error)))?.into_data().unwrap_or_default();
            let room = max_bytes.saturating_sub(answer.body.len());
            answer.body.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Nobody waits for this connection any more. Whether it can take another request.
    fn rests(&mut self) -> bool {
        // So that it holds on to no task, and has taken notice of the answer's end.
        drive(&mut self.driver, &mut self.is_over, &mut Context::from_waker(Waker::noop()));
        !self.is_over && self.sender.is_ready()
    }
}

/// Lets a connection write and read. The request that waits for its answer hears what ended it.
fn drive(driver: &mut http1::Connection<Stream, Body>, is_over: &mut bool, cx: &mut Context<'_>) {
    if !*is_over {
        *is_over = Pin::new(driver).poll(cx).is_ready();
    }
}

/// Waits for a turn as long as its sender may; `why` it has none.
async fn in_turn<T>(
    sender: Sender<'_>,
    why: &str,
    turn: impl Future<Output = Result<T, ExchangeError>>,
) -> Result<T, ExchangeError> {
    let mut turn = pin!(turn);
    // Most have it at once.
    if let Poll::Ready(turn) = poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await {
        return turn;
    }
    let until = sender.leave.turn_until(sender.deadline);
    tokio::time::timeout_at(until, turn)
        .await
        .unwrap_or_else(|_| Err(ExchangeError::NotSent(format!("not sent: {why}"))))
}

/// Waits for a connection that becomes free, or a turn to open one.
async fn wait(
    freed: oneshot::Receiver<Box<Connection>>,
    turns: Arc<Semaphore>,
) -> Result<Way, ExchangeError> {
    tokio::select! {
        biased;
        Ok(connection) = freed => Ok(Way::Kept(connection)),
        turn = turns.acquire_owned() => turn.map(Way::Open).map_err(|error| ExchangeError::Unsent(error.into())),
    }
}

/// Each change leaves what is there whole, so a panic elsewhere leaves nothing half done.
fn lock(pools: &Mutex<OriginPools>) -> MutexGuard<'_, OriginPools> {
    pools.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes what has been idle for too long, until there is nothing.
async fn sweep(pools: Weak<Mutex<OriginPools>>) {
    loop {
        tokio::time::sleep(IDLE_MAX / 2).await;
        let Some(pools) = pools.upgrade() else { return };
        let mut closed = Vec::new();
        let mut pools = lock(&pools);
        for OriginPool { kept, .. } in pools.by_name.values_mut() {
            let old = kept.partition_point(|(_, since)| since.elapsed() >= IDLE_MAX);
            closed.extend(kept.drain(..old));
        }
        pools.kept -= closed.len();
        pools.by_name.retain(|_, pool| pool.is_used());
        pools.are_swept = !pools.by_name.is_empty();
        let is_last = !pools.are_swept;
        drop(pools);
        drop(closed);
        if is_last {
            return;
        }
    }
}
