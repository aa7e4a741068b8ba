//! Gives one event to a worker of this process, and waits for what becomes of it.
//!
//! In: an event, a worker of which room was taken for it, and the event's limit. Out: what became of it. Invariants: however the
//! wait ends, also where whoever waits is dropped, an event that has not been written is withdrawn, and its room is free again
//! exactly once; that of one that has been written is its worker's, until the worker is done with it or has not accepted it in
//! time. Not here: whose room it is (`desk`), and who writes (`stream`, `poll`).

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_proto::v1;

use super::book::WorkerId;
use super::desk::Desk;
use super::handing::{Handed, Limit, Outcome, Way};

/// The wait for what becomes of an event.
struct Giving {
    desk: Desk,
    worker: WorkerId,
    name: String,
    attempt: u32,
    until: Instant,
    way: Arc<Way>,
    /// It is over, and nothing is left to be done once its time is: nobody has broken it off.
    is_over: bool,
}

impl Drop for Giving {
    fn drop(&mut self) {
        if self.way.withdraw() {
            // Here alone, whoever has withdrawn it.
            self.desk.free_here(self.worker);
        } else if !self.is_over
            && let Ok(runtime) = Handle::try_current()
        {
            // It has been written, and nobody waits: its worker has as long to accept it as it would have had.
            let (desk, worker, attempt, until) = (self.desk.clone(), self.worker, self.attempt, self.until);
            let name = std::mem::take(&mut self.name);
            runtime.spawn(async move {
                tokio::time::sleep_until(until).await;
                desk.overdue(worker, &name, attempt);
            });
        }
    }
}

impl Desk {
    /// To a worker of this process of which room was taken. Where it does not have the event, the room is free again.
    pub(super) async fn give_here(&self, worker: WorkerId, event: v1::WorkEvent, limit: Limit) -> Outcome {
        let (reply, answer) = oneshot::channel();
        let mut giving = Giving {
            desk: self.clone(),
            worker,
            name: event.name.clone(),
            attempt: event.attempt,
            until: limit.until(),
            way: Arc::default(),
            is_over: false,
        };
        if let Err(withheld) = limit.check(self.stops()) {
            return Outcome::NotSent(withheld.to_string());
        }
        let handed = Box::new(Handed { event, limit, way: giving.way.clone(), reply });
        if !self.pass_on(worker, handed) {
            return Outcome::NotSent("its worker has gone".to_owned());
        }
        let heard = tokio::time::timeout_at(giving.until, answer).await;
        // Where nothing is heard of it and its worker is still there, that was given a later attempt: the room of this one is to
        // be free once its time is over.
        giving.is_over = !(matches!(heard, Ok(Err(_))) && self.state().sessions.contains_key(&worker));
        match heard {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) | Err(_) if giving.way.withdraw() => {
                Outcome::NotSent("it could not be written to its worker's stream in time".to_owned())
            }
            Ok(Err(_)) => Outcome::Unclear("its worker's stream broke before it was accepted".to_owned()),
            Err(_) => {
                self.overdue(worker, &giving.name, giving.attempt);
                Outcome::Unclear("its worker did not accept it in time".to_owned())
            }
        }
    }

    /// To whoever writes to a worker. False where the worker has gone.
    fn pass_on(&self, worker: WorkerId, handed: Box<Handed>) -> bool {
        let state = self.state();
        state.sessions.get(&worker).is_some_and(|session| session.to.send(handed).is_ok())
    }
}
