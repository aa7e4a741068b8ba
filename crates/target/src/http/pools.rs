//! The connections to each origin that can take a request, and those who wait for one.
//!
//! In: a request's turn, and connections that have become free. Out: which connection it gets, or what it waits for. Invariants:
//! no more than [`NEW_MAX`] new ones wait for their first answer at an origin; of those that may carry many requests one is
//! opened at a time; what has been idle for too long is closed. Not here: the opening, and the exchange (`connections`).

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::Instant;
use tollgate_clock::instant_now;

use super::connector::BoxError;
use super::exchange::ExchangeError;
use super::single::Connection;
use super::streams::{Part, Shared};

/// How long an unused connection is kept. Common servers close theirs after five seconds or more, and a request that
/// meets a connection as it closes ends as unclear.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// The most connections that are new at an origin: being opened, or without an answer yet. Common servers let as many wait to
/// be accepted.
const NEW_MAX: usize = 128;
/// After that one no longer counts as new: it will have been accepted, and the answer takes its time, or nobody is there.
const NEW_FOR: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct OriginPools {
    pub(super) by_name: HashMap<String, OriginPool>,
    /// Those that nobody uses, of all.
    pub(super) kept: usize,
    /// Somebody comes to close what has been idle for too long.
    pub(super) are_swept: bool,
}

/// Connections to one origin that can take a request, and the requests that wait for one.
pub(super) struct OriginPool {
    /// Those that were used last at the end.
    pub(super) kept: Vec<(Box<Connection>, Instant)>,
    /// Turns to have a new one.
    turns: Arc<Semaphore>,
    /// Those who wait for such a turn, longest first; some have got it.
    waiting: VecDeque<oneshot::Sender<Box<Connection>>>,
    /// Those that many requests use at once.
    shared: Vec<Shared>,
    /// The opening of one that may become such a connection, for all who wait for it.
    opening: Option<watch::Receiver<Opening>>,
}

/// How the opening of a connection goes that many wait for: none while it goes on.
pub(super) type Opening = Option<Result<(), SharedError>>;

/// Why it failed, for each of them.
#[derive(Clone, Debug)]
pub(super) struct SharedError(pub(super) Arc<BoxError>);

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for SharedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // Whoever looks for what caused it begins with the error itself.
        self.0.source()
    }
}

/// A connection counts as new until this is dropped, or [`NEW_FOR`] is over.
pub(super) struct New {
    _until: oneshot::Sender<()>,
}

/// How a request gets its connection.
pub(super) enum Way {
    One(Box<Connection>),
    Open(OwnedSemaphorePermit),
    Part(Part),
}

/// The same, where it may have to wait for it.
pub(super) enum Turn {
    Now(Way),
    /// Whichever comes first.
    Wait(oneshot::Receiver<Box<Connection>>, Arc<Semaphore>),
    /// For a connection that somebody opens, and then another turn.
    Join(watch::Receiver<Opening>),
    /// The same, and this one is to open it.
    Begin(watch::Sender<Opening>, watch::Receiver<Opening>),
}

impl New {
    pub(super) fn now(turn: OwnedSemaphorePermit) -> Self {
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
        Self {
            kept: Vec::new(),
            turns: Arc::new(Semaphore::new(NEW_MAX)),
            waiting: VecDeque::new(),
            shared: Vec::new(),
            opening: None,
        }
    }
}

impl OriginPool {
    /// What a request has to do to get a connection. `may_share`: the origin may speak HTTP/2, as far as is known.
    pub(super) fn turn(&mut self, may_share: bool) -> Turn {
        self.shared.retain(Shared::is_open);
        if let Some(part) = self.shared.iter().find_map(Shared::part) {
            return Turn::Now(Way::Part(part));
        }
        if may_share {
            if let Some(opening) = self.is_opening() {
                return Turn::Join(opening.clone());
            }
            let (tell, opening) = watch::channel(None);
            self.opening = Some(opening.clone());
            return Turn::Begin(tell, opening);
        }
        if let Some((connection, since)) = self.kept.pop()
            && since.elapsed() < IDLE_MAX
        {
            return Turn::Now(Way::One(connection));
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

    /// The opening that goes on, unless its task has gone without a word.
    fn is_opening(&self) -> Option<&watch::Receiver<Opening>> {
        self.opening.as_ref().filter(|opening| opening.has_changed().is_ok())
    }

    /// The opening has ended: with a connection that many use, or without.
    pub(super) fn opened(&mut self, shared: Option<Shared>) {
        self.opening = None;
        self.shared.extend(shared);
    }

    /// Takes in a connection that many use, and gives its first part.
    pub(super) fn share(&mut self, shared: Shared) -> Option<Part> {
        let part = shared.part();
        self.shared.push(shared);
        part
    }

    pub(super) fn has_kept(&self) -> bool {
        let is_shared = self.shared.iter().any(Shared::is_open);
        is_shared || self.kept.last().is_some_and(|(_, since)| since.elapsed() < IDLE_MAX)
    }

    /// Whether it is kept.
    pub(super) fn put(&mut self, mut connection: Box<Connection>, kept_max: usize) -> bool {
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
        let is_shared = self.is_opening().is_some() || !self.shared.is_empty();
        is_shared || is_awaited || !self.kept.is_empty() || self.turns.available_permits() < NEW_MAX
    }
}

/// Waits for a connection that becomes free, or a turn to open one.
pub(super) async fn wait(
    freed: oneshot::Receiver<Box<Connection>>,
    turns: Arc<Semaphore>,
) -> Result<Way, ExchangeError> {
    tokio::select! {
        biased;
        Ok(connection) = freed => Ok(Way::One(connection)),
        turn = turns.acquire_owned() => turn.map(Way::Open).map_err(|error| ExchangeError::Unsent(error.into())),
    }
}

/// Each change leaves what is there whole, so a panic elsewhere leaves nothing half done.
pub(super) fn lock(pools: &Mutex<OriginPools>) -> MutexGuard<'_, OriginPools> {
    pools.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes what has been idle for too long, until there is nothing.
pub(super) async fn sweep(pools: Weak<Mutex<OriginPools>>) {
    loop {
        tokio::time::sleep(IDLE_MAX / 2).await;
        let Some(pools) = pools.upgrade() else { return };
        let mut closed = Vec::new();
        let mut pools = lock(&pools);
        for OriginPool { kept, shared, .. } in pools.by_name.values_mut() {
            let old = kept.partition_point(|(_, since)| since.elapsed() >= IDLE_MAX);
            closed.extend(kept.drain(..old));
            shared.retain(|shared| shared.is_open() && !shared.is_idle_for(IDLE_MAX));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_opens_what_many_share_and_another_where_it_goes_away() {
        let mut pool = OriginPool::default();
        let Turn::Begin(tell, _opening) = pool.turn(true) else { panic!("nobody opens one") };
        assert!(matches!(pool.turn(true), Turn::Join(_)) && pool.is_used());
        drop(tell);
        assert!(!pool.is_used());
        let Turn::Begin(_tell, _opening) = pool.turn(true) else { panic!("they would wait for ever") };
        assert!(matches!(pool.turn(true), Turn::Join(_)));
        pool.opened(None);
        assert!(matches!(pool.turn(false), Turn::Now(Way::Open(_))));
    }
}
