//! Works on what a source takes: at most so many events at once, each once. Keeps the token while it works, and releases it then.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::Backoff;
use crate::calls::{Beat, Calls};
use crate::client::Given;
use crate::context::Context;
use crate::event::{Event, release_of};
use crate::known::Verdict;
use crate::outcome::{Failure, Outcome, Release, Status};

type Work = Pin<Box<dyn Future<Output = Result<Outcome, Failure>> + Send>>;
/// The handler, whatever its types.
pub(crate) type Handler = Box<dyn Fn(Event, Context) -> Work + Send + Sync>;

/// Room for an event.
pub(crate) type Place = OwnedSemaphorePermit;

/// Where an event lies as long as it is worked on.
#[async_trait]
pub(crate) trait Held: Send + Sync {
    /// How often it is to be hidden.
    fn every(&self) -> Duration;
    /// Keeps others from taking it.
    async fn hide(&self);
    /// Takes it away: its release was answered, or it needs none.
    async fn remove(&self);
}

/// An event that a source has taken.
pub(crate) struct Delivery {
    pub(crate) event: Event,
    /// For how long silence is allowed, where the source knows.
    pub(crate) ttl: Option<Duration>,
    pub(crate) held: Option<Box<dyn Held>>,
}

/// The loop, whatever the source.
pub(crate) struct Engine {
    pub(crate) calls: Arc<Calls>,
    pub(crate) handler: Handler,
    pub(crate) first_heartbeat: Duration,
    pub(crate) places: Arc<Semaphore>,
    /// Ends when nothing more is taken.
    pub(crate) taking: CancellationToken,
    /// Ends when the work is given up.
    pub(crate) work: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Engine {
    /// Waits for a place; none when nothing more is taken.
    pub(crate) async fn place(&self) -> Option<Place> {
        tokio::select! {
            biased;
            () = self.taking.cancelled() => None,
            place = self.places.clone().acquire_owned() => place.ok(),
        }
    }

    /// A place if there is one.
    pub(crate) fn place_now(&self) -> Option<Place> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// As many places as there are, up to so many; at least one, unless nothing more is taken.
    pub(crate) async fn room(&self, max: usize) -> Option<Vec<Place>> {
        let mut places = vec![self.place().await?];
        places.extend(std::iter::from_fn(|| self.place_now()).take(max - 1));
        Some(places)
    }

    /// Waits, unless nothing more is taken.
    pub(crate) async fn pause(&self, length: Duration) {
        tokio::select! {
            () = tokio::time::sleep(length) => {}
            () = self.taking.cancelled() => {}
        }
    }

    /// Works on a delivery in a place. Does not wait.
    pub(crate) fn take(self: &Arc<Self>, delivery: Delivery, place: Place) {
        let (id, attempt) = (delivery.event.id.clone(), delivery.event.attempt);
        let (begins, done) = match self.calls.known.come(&id, attempt) {
            Verdict::Begin => (true, None),
            Verdict::Done(release) => (false, Some(release)),
            Verdict::Working => return,
        };
        let engine = self.clone();
        self.tasks.spawn(async move {
            let _place = place;
            let (held, ttl, event) = (delivery.held, delivery.ttl, delivery.event);
            let is_held = held.is_some();
            let work = async {
                if event.is_on_response() {
                    return engine.work_untold(event, begins, is_held).await;
                }
                let known = &engine.calls.known;
                let mut release = done.unwrap_or_default();
                if begins {
                    release = engine.work(event, ttl).await;
                }
                release.attempt = known.attempt(&id, attempt);
                if begins {
                    known.ended(&id, &release);
                }
                engine.calls.release(&id, release).await
            };
            let Some(held) = held else {
                work.await;
                return;
            };
            let answered = tokio::select! {
                answered = work => answered,
                () = hide(&*held) => false,
            };
            if answered {
                held.remove().await;
            }
        });
    }

    /// Works on an event whose token has gone, unless that has been done: nobody can be told how it went. False where what
    /// holds it is to bring it again.
    async fn work_untold(&self, event: Event, begins: bool, is_held: bool) -> bool {
        if !begins {
            return true;
        }
        let id = event.id.clone();
        let release = self.work(event, None).await;
        let again = release.outcome == Status::Retry;
        if release.outcome != Status::Succeeded {
            let is_left = again && is_held;
            let end = if is_left { "is left to its queue" } else { "counts as done, as its token has gone" };
            tracing::error!("event {id}: failed, and {end}: {}", release.message);
        }
        if again {
            // What still has it brings it again under the same attempt.
            self.calls.known.forget(&id);
        } else {
            self.calls.known.ended(&id, &release);
        }
        !again
    }

    /// Has an event come again that is not worked on; one whose token has gone is lost.
    pub(crate) fn give_back(self: &Arc<Self>, given: &Given, why: &str) {
        let id = given.name.clone();
        if release_of(given.event.as_bytes()) == "on_response" {
            tracing::error!("event {id}: lost, as its token has gone: {why}");
            return;
        }
        tracing::error!("event {id}: given back: {why}");
        let (engine, release) = (self.clone(), Release::retry(given.attempt, why));
        self.tasks.spawn(async move { engine.calls.release(&id, release).await });
    }

    /// Works on an event whose answer gives its token back; none if it is being worked on.
    pub(crate) async fn take_now(&self, event: Event, _place: Place) -> Option<Release> {
        let id = event.id.clone();
        match self.calls.known.come(&id, event.attempt) {
            Verdict::Working => None,
            Verdict::Done(release) => Some(release),
            Verdict::Begin => {
                let release = self.work(event, None).await;
                self.calls.known.ended(&id, &release);
                Some(release)
            }
        }
    }

    /// Has the handler work on an event until the work is given up, and keeps its token meanwhile, if it has one. `ttl`: for so
    /// long may it be silent, where that is known.
    async fn work(&self, event: Event, ttl: Option<Duration>) -> Release {
        let (attempt, has_token) = (event.attempt, !event.is_on_response());
        let calls = self.calls.clone();
        let lost = self.work.child_token();
        let context = Context { id: event.id.clone(), attempt, has_token, calls, lost: lost.clone() };
        // A task of its own: a panic ends nothing else.
        let mut work = tokio::spawn((self.handler)(event, context.clone()));
        let came = tokio::select! {
            came = &mut work => came,
            () = self.work.cancelled() => {
                work.abort();
                return Release::retry(attempt, "the worker stopped before the event was done");
            }
            never = self.keep(&context, ttl) => match never {},
        };
        match came {
            Ok(came) => Release::of(attempt, came),
            Err(panic) => Release::retry(attempt, &panic.to_string()),
        }
    }

    /// Sends heartbeats at a third of the time that silence is allowed, as long as there is a token to keep.
    async fn keep(&self, context: &Context, ttl: Option<Duration>) -> std::convert::Infallible {
        if !context.has_token {
            return std::future::pending().await;
        }
        let mut every = ttl.map_or(self.first_heartbeat, |ttl| ttl / 3);
        let (mut next, mut backoff) = (every, Backoff::default());
        loop {
            tokio::time::sleep(next).await;
            match context.beat().await {
                Beat::Held(remaining) => {
                    every = remaining.map_or(every, |remaining| remaining / 3);
                    (next, backoff) = (every, Backoff::default());
                }
                Beat::Lost => return std::future::pending().await,
                Beat::Failed(after) => next = backoff.next(after).min(every),
            }
        }
    }
}

async fn hide(held: &dyn Held) {
    loop {
        held.hide().await;
        tokio::time::sleep(held.every()).await;
    }
}
