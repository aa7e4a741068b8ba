//! Knows where runs are that have moved to another queue shard since they were made.
//!
//! In: what owners have loaded, and what the store says when it is asked. Out: the shard in which a run lives whose name has
//! another one. Invariant: what is known here may be old, or forgotten, so whoever does not find a run asks the store once
//! more. Not here: what moves (the store), and when ([`crate::moves`]).

use std::sync::Arc;

use dashmap::DashMap;
use tollgate_core::model::{Run, RunId};
use tollgate_store::StoreError;

use crate::Shared;

/// How often a run may have moved before nobody looks further.
const MOVES_MAX: usize = 16;
/// With more known runs all are forgotten.
const KNOWN_MAX: usize = 200_000;

#[derive(Clone, Copy, Debug)]
struct Place {
    named: u16,
    lives: u16,
}

/// Runs that have moved, as far as this process knows. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct MovedRuns(Arc<DashMap<RunId, Place>>);

impl MovedRuns {
    /// These runs live where they say.
    pub(crate) fn learn<'a>(&self, runs: impl IntoIterator<Item = &'a Run>) {
        for run in runs {
            if let Some(named) = run.born_shard {
                if self.0.len() >= KNOWN_MAX {
                    self.0.clear();
                }
                self.0.insert(run.id, Place { named, lives: run.shard });
            }
        }
    }

    /// The shard in which a run lives whose name has this one, as far as is known.
    pub(crate) fn lives(&self, named: u16, run: RunId) -> u16 {
        self.0.get(&run).filter(|place| place.named == named).map_or(named, |place| place.lives)
    }
}

impl Shared {
    /// Where a run is by now that is not in this shard, and whose name has another one; none where it has not moved, and where
    /// that is not its name.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn moved_to(
        &self,
        (named, shard): (u16, u16),
        run: RunId,
    ) -> Result<Option<u16>, StoreError> {
        let mut at = shard;
        for _ in 0..MOVES_MAX {
            match self.people.moved_runs(at, &[run]).await?.get(&run) {
                Some(to) => at = *to,
                None => break,
            }
        }
        if at == shard {
            return Ok(None);
        }
        let runs = self.people.runs(at, &[run]).await?;
        self.moved.learn(&runs);
        Ok(runs.iter().any(|run| run.named_shard() == named).then_some(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_has_moved_is_known_by_its_name() {
        let moved = MovedRuns::default();
        let run = |number| RunId(uuid::Uuid::from_u128(number));
        let of = |number, born_shard| Run { id: run(number), shard: 200, born_shard, ..Run::default() };
        moved.learn(&[of(1, Some(8)), of(2, None)]);
        assert_eq!(moved.lives(8, run(1)), 200);
        assert_eq!(
            (moved.lives(9, run(1)), moved.lives(200, run(1))),
            (9, 200),
            "of another name, or at home"
        );
        assert_eq!(moved.lives(200, run(2)), 200);
    }

    #[test]
    fn what_is_known_has_a_bound() {
        let moved = MovedRuns::default();
        let run = |number| RunId(uuid::Uuid::from_u128(number));
        let all = (0..=KNOWN_MAX as u128).map(|number| Run {
            id: run(number),
            born_shard: Some(8),
            ..Run::default()
        });
        moved.learn(&all.collect::<Vec<_>>());
        assert_eq!(
            (moved.0.len(), moved.lives(8, run(0)), moved.lives(8, run(KNOWN_MAX as u128))),
            (1, 8, 0)
        );
    }
}
