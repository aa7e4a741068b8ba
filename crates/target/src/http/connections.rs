//! Connections to HTTP targets: which one a request gets, and the exchange on it.
//!
//! In: a request, the destination it goes to, and whose it is. Out: the answer, and how far the request came. Invariants: a
//! request is written at most once, and not after its leave has ended; a connection for one request at a time is kept only if
//! its last answer was read to the end; no schedule, origin or namespace uses all that may be used at once. Not here: what waits
//! for what at an origin (`pools`), what is spoken on a connection (`single`, `streams`).
//!
//! What falls due at one instant would otherwise open as many at once: more than common servers let wait to be accepted, and the
//! kernel tries those that do not fit again after a second. Who may not open one yet takes the first that becomes free. Where the
//! origin may speak HTTP/2, all wait for one connection, and then have parts of it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use ::http::Request;
use tokio::sync::watch;
use tollgate_core::model::Http2;

use super::answer::HttpAnswer;
use super::connector::{BoxError, Connector, agreed_on_http2};
use super::destinations::Destination;
use super::exchange::{Body, ExchangeError, Sender, Stage};
use super::pools::{New, Opening, OriginPool, OriginPools, SharedError, Turn, Way, lock, sweep, wait};
use super::single::Connection;
use super::streams::{NoAnswer, Shared};
use crate::address::GuardedNames;
use crate::shares::{Claim, Place, Shares, key_of};

/// How often a request goes to another connection, because the server closes the one that it had without looking at it.
const GONE_AWAY_MAX: u32 = 3;

/// The connections of all targets.
#[derive(Clone)]
pub(super) struct Connections {
    connector: Connector,
    names: GuardedNames,
    /// How many each schedule, origin and namespace may have at once.
    shares: Shares,
    pools: Arc<Mutex<OriginPools>>,
    /// How many that nobody uses are kept for each origin, and for all together.
    idle_max: (usize, usize),
}

/// A connection that has just been opened.
enum Opened {
    One(Box<Connection>),
    Many(Shared),
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
    async fn way(
        &self,
        destination: &Arc<Destination>,
        sender: Sender<'_>,
        stage: &mut Stage,
    ) -> Result<Way, ExchangeError> {
        loop {
            let may_share = destination.may_share();
            let mut opening = match self.with(&destination.origin, |pool| pool.turn(may_share)) {
                Turn::Now(way) => return Ok(way),
                Turn::Wait(freed, turns) => {
                    let why = "too many connections to its target are being opened";
                    // Boxed, as below: it is far larger than the rest, and rare.
                    return in_turn(sender, why, Box::pin(wait(freed, turns))).await;
                }
                Turn::Join(opening) => opening,
                Turn::Begin(tell, opening) => {
                    // A task of its own: who began it may be given up, and others wait for it.
                    tokio::spawn(self.clone().open(Arc::clone(destination), tell));
                    opening
                }
            };
            *stage = Stage::Connecting;
            // Where it went away without a word, somebody else begins.
            if let Ok(opened) = opening.wait_for(Option::is_some).await
                && let Some(Err(error)) = &*opened
            {
                return Err(ExchangeError::Unsent(error.clone().into()));
            }
            *stage = Stage::Waiting;
        }
    }

    /// Opens a connection that many may use, and tells all who wait for it.
    async fn open(self, destination: Arc<Destination>, tell: watch::Sender<Opening>) {
        let opened = self.connect(&destination).await;
        let (shared, told) = match opened {
            Ok(Opened::Many(shared)) => (Some(shared), Ok(())),
            Ok(Opened::One(connection)) => {
                self.keep(&destination.origin, connection);
                (None, Ok(()))
            }
            Err(error) => (None, Err(SharedError(Arc::new(error)))),
        };
        self.with(&destination.origin, |pool| pool.opened(shared));
        // Nobody may wait any more.
        let _gone = tell.send(Some(told));
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

    /// Sends a request and reads its answer. `stage` tells how far it came, also when this
    /// is dropped before its end.
    pub(super) async fn exchange(
        &self,
        destination: &Arc<Destination>,
        mut request: Request<Body>,
        sender: Sender<'_>,
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
        let mut gone_away = 0;
        loop {
            let (way, new) = match self.way(destination, sender, stage).await? {
                Way::Open(turn) => {
                    let new = New::now(turn);
                    *stage = Stage::Connecting;
                    let opened = Box::pin(self.connect(destination)).await.map_err(ExchangeError::Unsent)?;
                    (self.way_of(destination, opened)?, Some(new))
                }
                way => (way, None),
            };
            // Nothing is waited for between this look and the first bytes.
            let leave = sender.leave.check(sender.deadline);
            let withheld = leave.map_err(|why| ExchangeError::NotSent(format!("not sent: {why}")));
            let mut connection = match way {
                Way::One(connection) => connection,
                Way::Part(part) => {
                    withheld?;
                    *stage = Stage::Written;
                    let of_it = destination.shared_request(&request);
                    match Box::pin(part.exchange(of_it, sender.answer_max_bytes)).await {
                        Err(NoAnswer::GoesAway(_)) if gone_away < GONE_AWAY_MAX => gone_away += 1,
                        ended => return ended.map_err(ExchangeError::from),
                    }
                    *stage = Stage::Waiting;
                    continue;
                }
                Way::Open(_) => continue,
            };
            if let Err(withheld) = withheld {
                self.keep(&destination.origin, connection);
                return Err(withheld);
            }
            *stage = Stage::Written;
            let sent = connection.send(request).await;
            let is_fresh = new.is_some();
            drop(new);
            let response = match sent {
                Ok(response) => response,
                Err(mut failed) => {
                    let Some(unsent) = failed.take_message() else {
                        return Err(ExchangeError::NoAnswer(failed.into_error().into()));
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
            if connection.read(&mut body, &mut answer, sender.answer_max_bytes).await? {
                drop(body);
                self.keep(&destination.origin, connection);
            }
            return Ok(answer);
        }
    }

    /// Opens a connection, and begins to speak what its two sides agree on.
    async fn connect(&self, destination: &Destination) -> Result<Opened, BoxError> {
        let stream = self.connector.connect(&destination.url, destination.http2).await?;
        let is_shared = destination.http2 == Http2::PriorKnowledge || agreed_on_http2(&stream);
        destination.speaks_http2(is_shared);
        if is_shared {
            return self.connector.in_time(Shared::begin(stream)).await.map(Opened::Many);
        }
        Connection::begin(stream).await.map(Opened::One)
    }

    /// How a request goes by a connection that has just been opened for it.
    fn way_of(&self, destination: &Destination, opened: Opened) -> Result<Way, ExchangeError> {
        let shared = match opened {
            Opened::One(connection) => return Ok(Way::One(connection)),
            Opened::Many(shared) => shared,
        };
        let part = self.with(&destination.origin, |pool| pool.share(shared));
        part.map(Way::Part).ok_or_else(|| ExchangeError::Unsent("its connection ended at once".into()))
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

impl From<NoAnswer> for ExchangeError {
    fn from(ended: NoAnswer) -> Self {
        match ended {
            NoAnswer::GoesAway(error) => {
                let why = crate::chain(&error);
                Self::Unsent(format!("its connections are closed before they take it: {why}").into())
            }
            NoAnswer::Refused(error) => Self::Unsent(error.into()),
            NoAnswer::Unclear(error) => Self::NoAnswer(error.into()),
            NoAnswer::Cut(status, error) => Self::NoBody(status, crate::chain(&error)),
        }
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
