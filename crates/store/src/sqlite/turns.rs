//! Whose turn it is at the one connection that writes: commits of shards' owners and signs of life, then everything else, in
//! turns of one.
//!
//! In: transactions that are to be. Out: a turn for each. Invariants: one transaction at a time; a commit waits for one other
//! transaction at most, however many plans, emissions and deletions stand in line, and these for one commit each; within its
//! kind, the first request is first. Not here: how long one transaction may be: a caller that writes much does it in parts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Events start and end by it, or the process shows that it lives.
    Hot,
    /// All else.
    Bulk,
}

impl Kind {
    /// Of a transaction by its name.
    pub(super) fn of(name: &str) -> Self {
        match name {
            "commit" | "heartbeat" | "take_shard" | "give_up_shard" | "forget_member" => Self::Hot,
            _ => Self::Bulk,
        }
    }
}

/// The line in front of the connection; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    hot: VecDeque<oneshot::Sender<Turn>>,
    bulk: VecDeque<oneshot::Sender<Turn>>,
    /// The last turn was hot.
    was_hot: bool,
}

/// The right to write, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    is_over: bool,
}

impl Turns {
    /// Waits for a turn. A caller that gives up waiting loses its place, and nothing else.
    pub(super) async fn turn(&self, kind: Kind) -> Turn {
        let waiting = {
            let mut state = self.lock();
            if !state.is_taken {
                (state.is_taken, state.was_hot) = (true, kind == Kind::Hot);
                return self.a_turn();
            }
            let (sender, receiver) = oneshot::channel();
            match kind {
                Kind::Hot => state.hot.push_back(sender),
                Kind::Bulk => state.bulk.push_back(sender),
            }
            receiver
        };
        match waiting.await {
            Ok(turn) => turn,
            // Nobody drops a sender without a turn; if one did, to write would be safe: the connection is one.
            Err(_) => Turn { turns: self.clone(), is_over: true },
        }
    }

    fn a_turn(&self) -> Turn {
        Turn { turns: self.clone(), is_over: false }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody's turn is over: the next one's begins.
    fn pass_on(&self) {
        loop {
            let sender = {
                let mut state = self.lock();
                let hot_first = !state.was_hot || state.bulk.is_empty();
                let next = if hot_first { state.hot.pop_front().map(|one| (one, true)) } else { None };
                let next = next.or_else(|| state.bulk.pop_front().map(|one| (one, false)));
                let Some((sender, is_hot)) = next.or_else(|| state.hot.pop_front().map(|one| (one, true)))
                else {
                    state.is_taken = false;
                    return;
                };
                state.was_hot = is_hot;
                sender
            };
            match sender.send(self.a_turn()) {
                Ok(()) => return,
                // It has given up waiting. Its turn, which it never had, is not passed on twice.
                Err(mut turn) => turn.is_over = true,
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Takes turns of these kinds that all ask while another one is under way, and says in which order they come.
    async fn order(kinds: &[Kind]) -> Vec<usize> {
        let turns = Turns::default();
        let first = turns.turn(Kind::Bulk).await;
        let done = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for (number, kind) in kinds.iter().copied().enumerate() {
            let (turns, done) = (turns.clone(), done.clone());
            tasks.push(tokio::spawn(async move {
                let _turn = turns.turn(kind).await;
                done.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            assert!(task.await.is_ok());
        }
        done.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[tokio::test]
    async fn a_commit_waits_for_one_other_transaction_at_most() {
        use Kind::{Bulk, Hot};
        assert_eq!(order(&[Bulk, Bulk, Bulk, Hot, Hot]).await, [3, 0, 4, 1, 2]);
        assert_eq!(order(&[Hot, Hot, Hot, Bulk]).await, [0, 3, 1, 2]);
        assert_eq!(order(&[Bulk, Bulk]).await, [0, 1]);
    }

    #[tokio::test]
    async fn whoever_gives_up_waiting_is_passed_over() {
        let turns = Turns::default();
        let first = turns.turn(Kind::Hot).await;
        for kind in [Kind::Hot, Kind::Bulk, Kind::Hot] {
            let given_up = tokio::time::timeout(Duration::from_millis(5), turns.turn(kind)).await;
            assert!(given_up.is_err());
        }
        drop(first);
        let again = tokio::time::timeout(Duration::from_secs(5), turns.turn(Kind::Bulk)).await;
        assert!(again.is_ok());
        assert!(turns.lock().is_taken);
        drop(again);
        assert!(!turns.lock().is_taken);
    }

    #[test]
    fn a_turn_that_nobody_took_up_is_passed_on() {
        let turns = Turns::default();
        let (sender, receiver) = oneshot::channel();
        turns.lock().hot.push_back(sender);
        turns.lock().is_taken = true;
        turns.pass_on();
        // It was given, and its owner ends before it looks.
        drop(receiver);
        assert!(!turns.lock().is_taken);
    }
}
