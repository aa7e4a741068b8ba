//! Looks ahead: reads what follows the end of a run while the commit is under way that says so.
//!
//! In: commits that begin; ends that are durable. Out: to this owner, the run that follows, where it lives in the same shard; to
//! the process's follower ([`Wish`]), all others. Invariants: nothing is launched before its end is durable; what an earlier life
//! of the owner has read is not used; where many runs end at once, nothing is read ahead, as the follower reads for many at
//! once. Not here: what follows ([`Follow`](tollgate_service::follow::Follow)), whether a look still counts (the core).

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tollgate_core::handle::change::Changes;
use tollgate_core::handle::control::Control;
use tollgate_core::handle::{Following, TakenUp};
use tollgate_core::model::{Now, RunEnd};
use tollgate_metrics::StepLaunched;
use uuid::Uuid;

use super::{Life, Owner};
use crate::follows::Wish;
use crate::routes::Input;

/// For how many ends of one commit is looked ahead.
const ENDS_MAX: usize = 16;
/// How many looks of a process may be under way at once.
pub(crate) const LOOKS_MAX: usize = 64;
/// How long the end of a run waits for its look.
const LOOK_MAX: Duration = Duration::from_millis(250);

/// A look that may be under way.
pub(super) struct Look {
    /// How many commits were durable when it began.
    looked_at: u64,
    found: JoinHandle<Option<Following>>,
}

/// What a look has found, on its way to the owner.
#[derive(Debug)]
pub(crate) struct Ahead {
    wish: Wish,
    following: Following,
    looked_at: u64,
    /// The epoch of the lease under which it was read.
    epoch: i64,
}

impl Owner {
    /// A commit begins, of a machine with so many durable ones.
    pub(super) fn look_ahead(&mut self, changes: &Changes, commits: u64) {
        let ends = changes.inbox_new.iter().filter_map(|message| match &message.control {
            Control::RunEnded { end } if end.next.is_some() => Some((message.id, end)),
            _ => None,
        });
        if ends.clone().count() > ENDS_MAX {
            return;
        }
        for (message, end) in ends {
            // All owners of the process share the turns; what gets none is launched as any other.
            let Ok(turn) = Arc::clone(&self.shared.looks).try_acquire_owned() else { break };
            let (follower, shard, end) = (self.shared.follower.clone(), self.lease.shard, end.clone());
            // What cannot be read is read again, and told, by those who launch it.
            let look = async move {
                let found = follower.following(&end, shard).await.ok().flatten();
                drop(turn);
                found
            };
            self.ahead.insert(message, Look { looked_at: commits, found: tokio::spawn(look) });
        }
    }

    /// An end is durable: what follows is launched.
    pub(super) fn launch_next(&mut self, message: Uuid, end: RunEnd) {
        let (shard, owner) = (self.lease.shard, self.loopback.clone());
        let wish = Wish { shard, message, end, owner };
        let Some(Look { looked_at, found }) = self.ahead.remove(&message) else {
            self.shared.wishes.leave(wish);
            return;
        };
        let (wishes, epoch) = (self.shared.wishes.clone(), self.lease.epoch);
        tokio::spawn(async move {
            match tokio::time::timeout(LOOK_MAX, found).await {
                Ok(Ok(Some(following))) => {
                    let owner = wish.owner.clone();
                    // An owner that has gone leaves it to its successor, who finds the message.
                    let _gone =
                        owner.send(Input::Ahead(Box::new(Ahead { wish, following, looked_at, epoch })));
                }
                Ok(Ok(None) | Err(_)) | Err(_) => wishes.leave(wish),
            }
        });
    }

    /// A look has come to its end.
    pub(super) fn take_up(&self, life: &mut Life, ahead: Ahead, now: Now) {
        let Ahead { wish, following, looked_at, epoch } = ahead;
        // The next life has found the message, and has wished for it itself.
        if epoch != self.lease.epoch {
            return;
        }
        tollgate_fault_points::pass("handler.follow.before");
        let (run, emitted_us) = (following.run.clone(), following.run.emitted_us);
        match life.follows(wish.message, following, looked_at, now) {
            TakenUp::Made => {
                let metrics = &self.shared.options.metrics;
                metrics.traces().emitted(&[run], emitted_us, now.wall_us);
                metrics.step_launched(StepLaunched::Launched, 1);
            }
            TakenUp::Known => {}
            TakenUp::Outdated => self.shared.wishes.leave(wish),
        }
    }
}
