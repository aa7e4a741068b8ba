//! Commits of shards' owners, in line for what writes them.
//!
//! In: the rows of any number of shards' commits, each with its fence. Out: those that go together in one transaction, and
//! onto the disk by one sync: with many policies, whose shards commit a few events each, that is what counts. Invariants:
//! each caller that waits is told once; commits of a few rows wait for one large transaction at most, however many shards take in
//! thousands of somebody's runs; large ones wait for one transaction of small ones in turn. Not here: the transaction
//! itself, and what becomes of the others where one cannot be written (the drivers).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_clock::instant_now;
use uuid::Uuid;

use crate::StoreError;
use crate::failure::TransactionError;
use crate::rows::ChangeRows;

/// Commits in one transaction, so that the first does not wait for too many.
const TOGETHER_MAX: usize = 32;
/// Rows in one transaction, where it has more than one commit.
const ROWS_MAX: usize = 1_000;
/// A commit of this many rows is a large one: they stand in a line of their own.
const LARGE_ROWS: usize = 128;
/// Nobody waits behind a transaction that has been under way for longer, where another one may go beside it. The one
/// that carries a transaction out looks this often whether somebody does ([`LineWorker::beside`]).
pub(crate) const PATIENCE: Duration = Duration::from_millis(5);

/// Who an owner claims to be. Every transaction of an owner begins by locking the shard's row where it bears this
/// lease's id.
///
/// The id alone is enough; the row need not count commits. (1) Every takeover and every release of a shard writes a
/// fresh id, and nobody ever writes one that was there before: what an owner sends under an id that is no longer in
/// the row finds none, and writes nothing. (2) The lock is held until the transaction ends. A takeover waits for
/// it, so what is written under the old id is durable before the new owner loads, or never. (3) Under one id there
/// is one transaction at a time: an owner sends the next only when it knows that the last one is durable or was
/// rolled back. Where it does not know, or the server refused, it takes the shard over from itself and loads it
/// anew, by which (1) and (2) hold for all that is still on its way. (4) A number in the row that grew with each
/// commit would differ only for two transactions under one id, of which by (3) there are never two on their way.
/// The simulation of the handlers (`crates/core/tests/handle_simulation`) has this fence, and finds what breaks
/// these rules.
///
/// Versions before this one compare and count `seq`, too: nobody but the owner writes it, so that they fence as
/// they did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence {
    pub(crate) shard: i32,
    pub(crate) lease_id: Uuid,
}

/// What an owner commits.
#[derive(Clone, Debug)]
pub(crate) struct FencedCommit {
    pub(crate) fence: Fence,
    pub(crate) rows: Arc<ChangeRows>,
}

/// One of the runs that change is not there.
pub(crate) fn no_such_run(commits: &[FencedCommit]) -> StoreError {
    let runs = commits.iter().flat_map(|commit| commit.rows.older_runs_changed());
    let runs: Vec<Uuid> = runs.map(|run| run.run_id).collect();
    StoreError::Internal(format!("one of the runs {runs:?} is not there"))
}

/// A commit that waits.
#[derive(Debug)]
pub(crate) struct WaitingCommit {
    pub(crate) commit: FencedCommit,
    done: oneshot::Sender<Result<(), TransactionError>>,
}

impl WaitingCommit {
    /// The commit, and where it is told how it ended.
    pub(crate) fn new(commit: FencedCommit) -> (Self, oneshot::Receiver<Result<(), TransactionError>>) {
        let (done, answer) = oneshot::channel();
        (Self { commit, done }, answer)
    }

    pub(crate) fn tell(self, ended: Result<(), TransactionError>) {
        // A caller that has gone needs no answer.
        let _gone = self.done.send(ended);
    }
}

/// Tells all of them how their transaction ended.
pub(crate) fn tell_all(together: Vec<WaitingCommit>, ended: Result<(), TransactionError>) {
    // Only one has the error itself; what it means is the same for all.
    let why = ended.as_ref().err().map(|ended| format!("{ended:?}"));
    let mut ended = Some(ended);
    for waiting in together {
        waiting.tell(ended.take().unwrap_or_else(|| match &why {
            Some(why) => Err(TransactionError::Lost(why.clone())),
            None => Ok(()),
        }));
    }
}

/// Commits that wait, and the workers that take them: one after the other, each as many as wait by then.
#[derive(Debug)]
pub(crate) struct Line {
    workers_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    small: VecDeque<WaitingCommit>,
    large: VecDeque<WaitingCommit>,
    /// The last transaction was of small ones.
    was_small: bool,
    workers: usize,
    /// When somebody last left the line.
    moved: Option<Instant>,
}

/// Takes what waits in the line, until nobody waits.
#[derive(Debug)]
pub(crate) struct LineWorker {
    line: Arc<Line>,
    is_open: bool,
}

impl Line {
    /// `workers_max`: transactions that may be under way at once.
    pub(crate) fn new(workers_max: usize) -> Self {
        Self { workers_max, state: Mutex::default() }
    }

    /// Takes a commit in; gives a worker where the line needs one more.
    pub(crate) fn join(self: &Arc<Self>, waiting: WaitingCommit) -> Option<LineWorker> {
        let mut state = self.lock();
        let is_large = waiting.commit.rows.count() >= LARGE_ROWS;
        if is_large { &mut state.large } else { &mut state.small }.push_back(waiting);
        self.open(&mut state)
    }

    /// A worker, where somebody waits for whom there is none, or none that moves.
    fn open(self: &Arc<Self>, state: &mut State) -> Option<LineWorker> {
        let waits = !(state.small.is_empty() && state.large.is_empty());
        let stands = state.moved.is_some_and(|moved| moved.elapsed() > PATIENCE);
        if !waits || (state.workers > 0 && !(stands && state.workers < self.workers_max)) {
            return None;
        }
        state.workers += 1;
        state.moved = Some(instant_now());
        Some(LineWorker { line: Arc::clone(self), is_open: true })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing between two changes can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineWorker {
    /// Those whose turn it is. None where nobody waits: the worker ends then.
    pub(crate) fn next(&mut self) -> Option<Vec<WaitingCommit>> {
        let mut state = self.line.lock();
        let small = !state.small.is_empty() && (!state.was_small || state.large.is_empty());
        let line = if small { &mut state.small } else { &mut state.large };
        let head = head(line);
        if head.is_empty() {
            state.workers -= 1;
            self.is_open = false;
            return None;
        }
        (state.was_small, state.moved) = (small, Some(instant_now()));
        Some(head)
    }

    /// Another worker, where somebody has joined the line and this one stands.
    pub(crate) fn beside(&self) -> Option<Self> {
        self.line.open(&mut self.line.lock())
    }
}

/// The first ones, as many as go together: at least one, where there is one.
fn head(line: &mut VecDeque<WaitingCommit>) -> Vec<WaitingCommit> {
    let mut rows = 0;
    let fits = |waiting: &&WaitingCommit| {
        rows += waiting.commit.rows.count();
        rows <= ROWS_MAX
    };
    let count = line.iter().take(TOGETHER_MAX).take_while(fits).count();
    line.drain(..count.max(1).min(line.len())).collect()
}

impl Drop for LineWorker {
    fn drop(&mut self) {
        if self.is_open {
            self.line.lock().workers -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn commit(shard: usize) -> WaitingCommit {
        commit_of(shard, 0)
    }

    fn commit_of(shard: usize, rows: usize) -> WaitingCommit {
        let fence = Fence { shard: i32::try_from(shard).unwrap(), lease_id: Uuid::nil() };
        let rows = ChangeRows { inbox_done: vec![Uuid::nil(); rows], ..ChangeRows::default() };
        WaitingCommit::new(FencedCommit { fence, rows: Arc::new(rows) }).0
    }

    fn shards(head: Option<Vec<WaitingCommit>>) -> Vec<i32> {
        head.unwrap().iter().map(|waiting| waiting.commit.fence.shard).collect()
    }

    #[test]
    fn those_that_wait_go_together_in_their_order_and_in_parts() {
        let line = Arc::new(Line::new(1));
        let mut worker = line.join(commit(0)).unwrap();
        assert!((1..TOGETHER_MAX + 2).all(|shard| line.join(commit(shard)).is_none()), "somebody sees to it");
        let all: Vec<i32> = (0..).take(TOGETHER_MAX + 2).collect();
        assert_eq!(shards(worker.next()), all[..TOGETHER_MAX]);
        assert_eq!(shards(worker.next()), all[TOGETHER_MAX..]);
        assert!(worker.next().is_none());
        drop(worker);
        assert!(line.join(commit(0)).is_some(), "nobody sees to it any more");
    }

    #[test]
    fn a_small_commit_waits_for_one_large_transaction_at_most() {
        let line = Arc::new(Line::new(1));
        let mut worker = line.join(commit_of(0, 2 * ROWS_MAX)).unwrap();
        for shard in 1..6 {
            line.join(commit_of(shard, ROWS_MAX / 2));
        }
        assert_eq!(shards(worker.next()), [0], "too many rows by itself, and it has its turn all the same");
        line.join(commit_of(6, LARGE_ROWS - 1));
        line.join(commit(7));
        assert_eq!(shards(worker.next()), [6, 7], "the large ones came first");
        line.join(commit(8));
        assert_eq!(shards(worker.next()), [1, 2], "small ones do not stop them");
        assert_eq!(shards(worker.next()), [8]);
        assert_eq!(shards(worker.next()), [3, 4]);
        assert_eq!(shards(worker.next()), [5]);
        assert!(worker.next().is_none());
    }

    #[test]
    fn a_worker_that_is_given_up_leaves_the_line_to_who_comes_next() {
        let line = Arc::new(Line::new(1));
        drop(line.join(commit(0)).unwrap());
        let mut worker = line.join(commit(1)).unwrap();
        assert_eq!(shards(worker.next()), [0, 1]);
    }

    #[test]
    fn another_worker_begins_where_the_line_stands() {
        for workers_max in [1, 2] {
            let line = Arc::new(Line::new(workers_max));
            let mut worker = line.join(commit(0)).unwrap();
            assert_eq!(shards(worker.next()), [0]);
            assert!(line.join(commit(1)).is_none(), "it moves");
            line.lock().moved = instant_now().checked_sub(2 * PATIENCE);
            let second = line.join(commit(2));
            assert_eq!(second.is_some(), workers_max == 2);
            assert!(line.join(commit(3)).is_none(), "no third one, and the second has just begun");
            if let Some(mut second) = second {
                assert_eq!(shards(second.next()), [1, 2, 3]);
            }
        }
    }

    #[test]
    fn those_who_joined_before_the_line_stood_do_not_wait_for_one_who_joins_later() {
        for workers_max in [1, 2] {
            let line = Arc::new(Line::new(workers_max));
            let mut worker = line.join(commit(0)).unwrap();
            assert_eq!(shards(worker.next()), [0]);
            line.lock().moved = instant_now().checked_sub(2 * PATIENCE);
            assert!(worker.beside().is_none(), "nobody waits");
            line.lock().moved = Some(instant_now());
            assert!(line.join(commit(1)).is_none(), "it moves");
            assert!(worker.beside().is_none(), "it still moves");
            line.lock().moved = instant_now().checked_sub(2 * PATIENCE);
            let second = worker.beside();
            assert_eq!(second.is_some(), workers_max == 2);
            if let Some(mut second) = second {
                assert_eq!(shards(second.next()), [1]);
            }
        }
    }

    #[tokio::test]
    async fn all_are_told_what_became_of_them() {
        let commits = || (0..3).map(|_| WaitingCommit::new(commit(0).commit)).collect::<(Vec<_>, Vec<_>)>();
        let (together, answers) = commits();
        tell_all(together, Ok(()));
        for answer in answers {
            assert!(answer.await.unwrap().is_ok());
        }
        let (together, answers) = commits();
        tell_all(together, Err(TransactionError::Silent));
        for answer in answers {
            assert!(matches!(
                answer.await.unwrap(),
                Err(TransactionError::Silent | TransactionError::Lost(_))
            ));
        }
    }
}
