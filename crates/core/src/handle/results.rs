//! Results that events leave: kept with the event, for people and for the run that follows.
//!
//! In: a release that ends its event as succeeded. Out: a row, written by the commit that ends the event, and its run's sums.
//! Invariants: an event that is not ended by its release leaves none; the results of a run stay within their bounds
//! ([`EventResult::fits`]), but for those that were recorded while nobody owned the shard. Not here: what the items in them are.

use super::change::ResultRow;
use super::release::{Answer, EventResult, Release, ReleaseOutcome};
use super::shard::Shard;
use crate::model::{Now, RunId};

impl Shard {
    /// Whether a release may not be taken for its result. One that ends its event otherwise than well has none.
    pub(super) fn result_refused(&self, release: &mut Release, answer: &Answer) -> Option<String> {
        let is_kept = *answer == Answer::Released && release.outcome == ReleaseOutcome::Succeeded;
        let result = release.result.take().filter(|_| is_kept)?;
        let refused = self.ledger.runs.get(&release.run).and_then(|run| result.fits(&run.row).err());
        release.result = Some(result);
        refused
    }

    /// Keeps the result of an event that succeeds with the pending commit.
    pub(super) fn keep_result(&mut self, (id, index): (RunId, u32), result: EventResult, now: Now) {
        let Some(run) = self.ledger.runs.get_mut(&id) else { return };
        run.row.result_bytes = run.row.result_bytes.saturating_add(result.bytes);
        run.row.result_count = run.row.result_count.saturating_add(result.items);
        self.pending.runs.insert(id);
        let row = ResultRow { run: id, index, body: result.body, ended_us: now.wall_us };
        self.pending.changes.results.push(row);
    }
}
