//! Takes the events of a queue from Tollgate by long polls: as many as there is room for, never more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backoff::{Backoff, PAUSE_MIN};
use crate::client::{Ask, CallError, Given, Refused};
use crate::engine::{Delivery, Engine, Place};
use crate::event::Event;

/// The most events of an answer.
const EVENTS_MAX: usize = 100;
/// How long a poll may go on after the worker was told to stop: what it is answered with counts as accepted, so that one that is
/// broken off while it is being answered costs its event the time to live.
const LAST_POLL: Duration = Duration::from_secs(1);

/// A queue of Tollgate. The schedules' target is `pull`; the worker needs no address.
#[derive(Clone, Debug)]
pub struct Pull {
    queue: String,
    wait: Duration,
}

/// How a worker asks.
pub(crate) struct Asker {
    pub(crate) namespace: String,
    pub(crate) labels: Vec<String>,
    pub(crate) name: String,
}

impl Pull {
    /// A queue by its id.
    pub fn new(queue: impl Into<String>) -> Self {
        Self { queue: queue.into(), wait: Duration::from_secs(50) }
    }

    /// How long a poll waits for the first event, 0.1 to 60 s; 50 s by default.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let is_in_path = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.queue.is_empty() || !self.queue.chars().all(is_in_path) {
            return Err(format!("queue: {:?}, expected letters, digits, `-`, `_` and `.`", self.queue));
        }
        if self.wait < PAUSE_MIN || self.wait > Duration::from_secs(60) {
            return Err(format!("wait: {:?}, expected 0.1s to 60s", self.wait));
        }
        Ok(())
    }

    pub(crate) async fn run(&self, engine: &Arc<Engine>, asker: Asker) -> Result<(), Refused> {
        let path = format!("/v1/namespaces/{}/queues/{}:acquire", asker.namespace, self.queue);
        let wait = format!("{:.3}s", self.wait.as_secs_f64());
        let mut ask = Ask { max_events: 0, wait, labels: asker.labels, worker: asker.name };
        let mut backoff = Backoff::default();
        while let Some(mut places) = engine.room(EVENTS_MAX).await {
            ask.max_events = places.len();
            let asked = Instant::now();
            let answer = tokio::select! {
                biased;
                answer = engine.calls.client.acquire(&path, &ask, self.wait) => answer,
                () = stopped(engine) => break,
            };
            match answer {
                Ok(given) => {
                    engine.calls.taking.worked();
                    backoff = Backoff::default();
                    // Nobody waited: a server that is about to end.
                    let too_quick = given.is_empty() && asked.elapsed() < PAUSE_MIN;
                    given.into_iter().for_each(|given| begin(engine, &given, &mut places));
                    drop(places);
                    if too_quick {
                        engine.pause(PAUSE_MIN).await;
                    }
                }
                Err(CallError::Refused(refused)) => return Err(refused),
                Err(CallError::Busy(message, after)) => {
                    drop(places);
                    engine.calls.taking.failed(&message);
                    engine.pause(backoff.next(after)).await;
                }
            }
        }
        Ok(())
    }
}

/// Some time after nothing more is to be taken.
async fn stopped(engine: &Engine) {
    engine.taking.cancelled().await;
    tokio::time::sleep(LAST_POLL).await;
}

/// Has an event worked on in one of the places.
fn begin(engine: &Arc<Engine>, given: &Given, places: &mut Vec<Place>) {
    let event = match Event::parse(given.event.as_bytes()) {
        Ok(event) => event,
        Err(why) => return engine.give_back(given, &why),
    };
    match places.pop() {
        Some(place) => {
            let event = Event { id: given.name.clone(), attempt: given.attempt.max(1), ..event };
            engine.take(Delivery { event, ttl: given.ttl(), held: None }, place);
        }
        None => engine.give_back(given, "the worker has no room"),
    }
}
