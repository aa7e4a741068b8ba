//! Has launched what follows the ends of this process's runs, many ends at once.
//!
//! In: ends, from the owners of its shards, once they are durable. Out: what follows has been launched, and the owner hears of
//! it. Invariants: an end stays in its shard's inbox until then, so that nothing is lost with this process; of one namespace so
//! many ends go at once, so that nobody's thousands stand before another's one; what the store does not take is tried again. Not
//! here: what follows ([`Follow`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tollgate_core::model::RunEnd;
use tollgate_metrics::{Metrics, Role};
use tollgate_service::follow::Follow;
use tollgate_store::StoreError;
use uuid::Uuid;

use crate::lists::Lists;
use crate::outage;
use crate::routes::Input;

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
    (metrics, lists): (Metrics, Lists),
    follower: Arc<dyn Follow>,
    mut wishes: mpsc::UnboundedReceiver<Wish>,
    stop: CancellationToken,
) {
    let (mut lanes, mut later, mut pause) = (Lanes::default(), FuturesUnordered::new(), AGAIN);
    while !stop.is_cancelled() {
        if lanes.waiting.is_empty() {
            tokio::select! {
                () = stop.cancelled() => return,
                wish = wishes.recv() => match wish {
                    Some(wish) => lanes.push(wish),
                    None => return,
                },
                Some(wish) = later.next(), if !later.is_empty() => lanes.push(wish),
            }
        }
        while let Ok(wish) = wishes.try_recv() {
            lanes.push(wish);
        }
        while let Some(Some(wish)) = later.next().now_or_never() {
            lanes.push(wish);
        }
        let together = lanes.take();
        let is_listed = together.iter().any(|wish| wish.end.of.items.is_some());
        let Left { unreadable, others } = follow(&metrics, &*follower, together).await;
        if is_listed {
            lists.hurry();
        }
        pause = if others.is_empty() { AGAIN } else { (pause * 2).min(AGAIN_MAX) };
        // What is tried again waits beside the others, and never in their way.
        later.extend(others.into_iter().map(|wish| wish.after(pause)));
        later.extend(unreadable.into_iter().map(|wish| wish.after(AGAIN_MAX)));
    }
}

/// What is left of some wishes.
#[derive(Default)]
struct Left {
    /// A schedule that follows cannot be read.
    unreadable: Vec<Wish>,
    /// The store has failed.
    others: Vec<Wish>,
}

/// Has some launched together; where one of them cannot be read, one by one, so that it holds up no other.
async fn follow(metrics: &Metrics, follower: &dyn Follow, mut wishes: Vec<Wish>) -> Left {
    wishes.retain(|wish| !wish.owner.is_closed());
    let ends: Vec<RunEnd> = wishes.iter().map(|wish| wish.end.clone()).collect();
    let mut left = Left::default();
    match follower.follow(&ends).await {
        Ok(()) => wishes.into_iter().for_each(Wish::done),
        Err(StoreError::Corrupt { .. }) => {
            for wish in wishes {
                match follower.follow(std::slice::from_ref(&wish.end)).await {
                    Ok(()) => wish.done(),
                    Err(error) => {
                        note(metrics, &wish, &error);
                        let is_corrupt = matches!(error, StoreError::Corrupt { .. });
                        if is_corrupt { left.unreadable.push(wish) } else { left.others.push(wish) }
                    }
                }
            }
        }
        Err(error) => {
            wishes.first().into_iter().for_each(|wish| note(metrics, wish, &error));
            left.others = wishes;
        }
    }
    left
}

fn note(metrics: &Metrics, wish: &Wish, error: &StoreError) {
    metrics.store_failed(Role::Handler);
    outage::note(wish.shard, error, "what follows a run is not launched yet; trying again");
}

impl Wish {
    async fn after(self, pause: Duration) -> Self {
        tokio::time::sleep(pause).await;
        self
    }

    fn done(self) {
        // An owner that has gone leaves it to its successor, who has it done again, which changes nothing.
        let _gone = self.owner.send(Input::Followed { message: self.message });
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tollgate_core::handle::Following;
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
            items: None,
        };
        let next = Some(OnFinish {
            schedule: "b".to_owned(),
            when: FinishCondition::Always,
            events: None,
            items: None,
        });
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

    /// Cannot read the schedule that follows in the namespace `bad`.
    struct Half;

    #[async_trait::async_trait]
    impl Follow for Half {
        async fn following(&self, _: &RunEnd, _: u16) -> Result<Option<Following>, StoreError> {
            Ok(None)
        }

        async fn follow(&self, ends: &[RunEnd]) -> Result<(), StoreError> {
            if ends.iter().any(|end| end.namespace == "bad") {
                let (key, message) = ("b".to_owned(), "not JSON".to_owned());
                return Err(StoreError::Corrupt { table: "schedules", key, column: "spec", message });
            }
            Ok(())
        }
    }

    #[tokio::test]
    async fn one_that_cannot_be_read_holds_up_no_other() {
        let (to, from) = Wishes::new();
        let stop = CancellationToken::new();
        let task =
            tokio::spawn(run((Metrics::default(), Lists::default()), Arc::new(Half), from, stop.clone()));
        let (bad_owner, mut bad) = mpsc::unbounded_channel();
        let (good_owner, mut good) = mpsc::unbounded_channel();
        for number in 0..3 {
            to.leave(Wish { owner: bad_owner.clone(), ..wish("bad", number) });
            to.leave(Wish { owner: good_owner.clone(), ..wish("good", number) });
            let heard = tokio::time::timeout(Duration::from_secs(10), good.recv()).await;
            let message = Uuid::from_u128(number);
            assert!(matches!(heard, Ok(Some(Input::Followed { message: of })) if of == message), "{heard:?}");
        }
        assert!(bad.try_recv().is_err(), "nothing follows what cannot be read");
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(10), task).await.unwrap().unwrap();
    }
}
