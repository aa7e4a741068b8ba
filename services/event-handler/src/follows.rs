//! Has launched what follows the ends of this process's runs, many ends at once.
//!
//! In: ends, from the owners of its shards, once they are durable. Out: what follows has been launched, and the owner hears of
//! it. Invariants: an end stays in its shard's inbox until then, so that nothing is lost with this process; of one namespace so
//! many ends go at once, so that nobody's thousands stand before another's one; what the store does not take is tried again. Not
//! here: what follows ([`Follow`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tollgate_core::model::RunEnd;
use tollgate_metrics::Role;
use tollgate_service::follow::Follow;
use uuid::Uuid;

use crate::routes::Input;
use crate::{Shared, outage};

/// Ends of one namespace that go at once.
const EACH: usize = 64;
/// Ends that go at once.
const AT_ONCE: usize = 256;
/// The first pause after the store has failed, and the longest one.
const AGAIN: Duration = Duration::from_millis(250);
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// An end whose next run is to be launched.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) shard: u16,
    /// The message in the shard's inbox.
    pub(crate) message: Uuid,
    pub(crate) end: RunEnd,
    /// Hears that it is done. An owner that has gone leaves it to its successor.
    pub(crate) owner: mpsc::UnboundedSender<Input>,
}

/// Where owners leave their wishes. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Wishes(mpsc::UnboundedSender<Wish>);

impl Wishes {
    /// And where they are read.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Wish>) {
        let (to, from) = mpsc::unbounded_channel();
        (Self(to), from)
    }

    pub(crate) fn leave(&self, wish: Wish) {
        // At the end of the process nobody reads it: the next owner finds the message.
        let _gone = self.0.send(wish);
    }
}

/// Wishes by their namespaces, which take turns.
#[derive(Debug, Default)]
struct Lanes {
    waiting: BTreeMap<String, VecDeque<Wish>>,
    /// Whose turn was the last one.
    last: String,
}

impl Lanes {
    fn push(&mut self, wish: Wish) {
        self.waiting.entry(wish.end.namespace.clone()).or_default().push_back(wish);
    }

    /// The next ones that go together.
    fn take(&mut self) -> Vec<Wish> {
        let mut taken = Vec::new();
        for _ in 0..self.waiting.len() {
            let room = AT_ONCE - taken.len();
            let after = (std::ops::Bound::Excluded(self.last.clone()), std::ops::Bound::Unbounded);
            let next = self.waiting.range(after).next().or_else(|| self.waiting.iter().next());
            let Some(namespace) = next.map(|(namespace, _)| namespace.clone()).filter(|_| room > 0) else {
                break;
            };
            if let Some(lane) = self.waiting.get_mut(&namespace) {
                taken.extend(lane.drain(..lane.len().min(EACH).min(room)));
                if lane.is_empty() {
                    self.waiting.remove(&namespace);
                }
            }
            self.last = namespace;
        }
        taken
    }
}

/// Has launched what owners wish, until told to stop.
pub(crate) async fn run(
    shared: Shared,
    follower: Arc<dyn Follow>,
    mut wishes: mpsc::UnboundedReceiver<Wish>,
    stop: CancellationToken,
) {
    let mut lanes = Lanes::default();
    let mut pause = AGAIN;
    loop {
        if lanes.waiting.is_empty() {
            tokio::select! {
                () = stop.cancelled() => return,
                wish = wishes.recv() => match wish {
                    Some(wish) => lanes.push(wish),
                    None => return,
                }
            }
        }
        while let Ok(wish) = wishes.try_recv() {
            lanes.push(wish);
        }
        let taken = lanes.take();
        let left = follow(&shared, &*follower, taken).await;
        if left.is_empty() {
            pause = AGAIN;
            continue;
        }
        left.into_iter().for_each(|wish| lanes.push(wish));
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(AGAIN_MAX),
        }
    }
}

/// Has some launched, together, or where that fails one by one, so that one that cannot be read holds up no other. What is left.
async fn follow(shared: &Shared, follower: &dyn Follow, mut wishes: Vec<Wish>) -> Vec<Wish> {
    wishes.retain(|wish| !wish.owner.is_closed());
    let ends: Vec<RunEnd> = wishes.iter().map(|wish| wish.end.clone()).collect();
    if ends.is_empty() || follower.follow(&ends).await.is_ok() {
        wishes.into_iter().for_each(Wish::done);
        return Vec::new();
    }
    let mut left = Vec::new();
    for wish in wishes {
        match follower.follow(std::slice::from_ref(&wish.end)).await {
            Ok(()) => wish.done(),
            Err(error) => {
                shared.options.metrics.store_failed(Role::Handler);
                outage::note(wish.shard, &error, "what follows a run is not launched yet; trying again");
                left.push(wish);
            }
        }
    }
    left
}

impl Wish {
    fn done(self) {
        // An owner that has gone leaves it to its successor, who has it done again, which changes nothing.
        let _gone = self.owner.send(Input::Followed { message: self.message });
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::model::{Counts, FinishCondition, OnFinish, Predecessor, RunId, RunState};

    use super::*;

    fn wish(namespace: &str, number: u128) -> Wish {
        let (owner, _) = mpsc::unbounded_channel();
        let run = RunId(Uuid::from_u128(number));
        let of = Predecessor {
            shard: 0,
            run,
            schedule_id: "a".to_owned(),
            place: 1,
            state: RunState::Finished,
            counts: Counts::default(),
            root: None,
        };
        let next = Some(OnFinish { schedule: "b".to_owned(), when: FinishCondition::Always, events: None });
        let end = RunEnd { namespace: namespace.to_owned(), of, ended_us: 1, cursor: None, next };
        Wish { shard: 0, message: Uuid::from_u128(number), end, owner }
    }

    #[test]
    fn thousands_of_one_namespace_leave_room_for_another_ones() {
        let mut lanes = Lanes::default();
        (0..10_000).for_each(|number| lanes.push(wish("many", number)));
        lanes.push(wish("few", 1));
        let first = lanes.take();
        assert_eq!(first.iter().filter(|wish| wish.end.namespace == "few").count(), 1);
        assert_eq!(first.iter().filter(|wish| wish.end.namespace == "many").count(), EACH);
        let mut rest = 0;
        while !lanes.waiting.is_empty() {
            rest += lanes.take().len();
        }
        assert_eq!(rest, 10_000 - EACH, "in its order, and all of them");
    }
}
