//! Events that ended well in one commit of a run, many in a row of the done queue.
//!
//! In: rows of the done queue as the core has them. Out: one row for those of a run that succeeded and are near each other,
//! rows of their own for the others; and, of what was read, the core's rows again. Invariant: each event is in one place. Not
//! here: what did not succeed, which is looked for by its outcome, and has a row and an index entry for that.
//!
//! A row an event costs its head, a key, an index entry, and three times as much in the log: 136 to 250 bytes, of which an
//! event's own are some 20.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::iter::Peekable;

use serde::Deserialize;
use tollgate_core::handle::change::{HistoryRow, Outcome};
use tollgate_core::model::RunId;
use uuid::Uuid;

use super::handle::HistoryRecord;
use super::{corrupt, count, int, parse, text};
use crate::StoreError;
use crate::columns::row;

/// The indexes of one row are less than this far apart, so that an event's row begins less than this far before it.
pub(crate) const SPAN: u32 = 512;
/// A row that has this many bytes of lists takes no further event: a page of SQLite has room for four of these, and PostgreSQL
/// does not compress them.
const ENDS_MAX: usize = 900;

row! {
    /// A row of `ended_batches`.
    EndedRecord of "ended_batches" {
        key {
            run_id: Uuid,
            first_idx: i32,
        }
        fixed {
            last_idx: i32,
            finished_us: i64,
            ends: String,
        }
        changing {}
    }
}

/// The end of an event as the column `ends` has it: its index less the first one; when it ended, was acquired and was
/// delivered, in microseconds before the row's end; its attempt; its message.
#[derive(Deserialize)]
struct End(u32, i64, Option<i64>, Option<i64>, #[serde(default = "first")] u32, #[serde(default)] String);

/// The attempt that most events succeed with.
fn first() -> u32 {
    1
}

/// The done queue's rows of one commit: those of events that share rows, and all others.
pub(crate) fn pack(ended: &[HistoryRow]) -> (Vec<EndedRecord>, Vec<HistoryRecord>) {
    let mut others = Vec::new();
    let mut runs: BTreeMap<RunId, Vec<&HistoryRow>> = BTreeMap::new();
    for row in ended {
        if row.outcome == Outcome::Succeeded && row.count == 1 {
            runs.entry(row.run).or_default().push(row);
        } else {
            others.push(HistoryRecord::from(row));
        }
    }
    let mut batches = Vec::new();
    for (run, rows) in &mut runs {
        rows.sort_by_key(|row| row.index);
        let finished_us = rows.iter().map(|row| row.finished_us).max().unwrap_or_default();
        let mut left = rows.iter().copied().peekable();
        while let Some(first) = left.peek() {
            batches.push(batch_of((*run, first.index, finished_us), &mut left));
        }
    }
    (batches, others)
}

/// The row of as many events, by ascending index, as go into it.
fn batch_of<'a>(
    (run, first, finished_us): (RunId, u32, i64),
    left: &mut Peekable<impl Iterator<Item = &'a HistoryRow>>,
) -> EndedRecord {
    let (mut ends, mut last) = (String::with_capacity(ENDS_MAX + 64), first);
    let before = |us: Option<i64>| us.map(|us| finished_us.saturating_sub(us));
    while let Some(row) = left.next_if(|row| ends.len() < ENDS_MAX && row.index - first < SPAN) {
        ends.push(if ends.is_empty() { '[' } else { ',' });
        // A string takes all that is written into it.
        let _written = write!(ends, "[{},{}", row.index - first, finished_us - row.finished_us);
        for before in [row.acquired_us, row.delivered_us].map(before) {
            let _written = match before {
                Some(us) => write!(ends, ",{us}"),
                None => write!(ends, ",null"),
            };
        }
        if row.attempt != 1 || !row.message.is_empty() {
            let _written = write!(ends, ",{}", row.attempt);
        }
        if !row.message.is_empty() {
            let _written = write!(ends, ",{}", serde_json::Value::String(text(&row.message)));
        }
        ends.push(']');
        last = row.index;
    }
    ends.push(']');
    EndedRecord { run_id: run.0, first_idx: int(first), last_idx: int(last), finished_us, ends }
}

impl EndedRecord {
    /// The indexes of its events.
    pub(super) fn indexes(&self) -> Result<Vec<u32>, StoreError> {
        Ok(self.events()?.iter().map(|row| row.index).collect())
    }

    /// Its events, by ascending index.
    fn events(&self) -> Result<Vec<HistoryRow>, StoreError> {
        let read = || {
            let (first, last) = (count("first_idx", self.first_idx)?, count("last_idx", self.last_idx)?);
            let ends: Vec<End> = parse("ends", &self.ends)?;
            let indexes: Vec<u32> = ends.iter().map(|end| first.saturating_add(end.0)).collect();
            let spans = (indexes.first(), indexes.last()) == (Some(&first), Some(&last));
            if !(spans && indexes.is_sorted_by(|one, next| one < next)) {
                return Err(("ends", format!("its indexes do not rise from {first} to {last}")));
            }
            Ok(ends.into_iter().map(|end| self.event(first, end)).collect())
        };
        let key = || format!("run {}, first index {}", RunId(self.run_id), self.first_idx);
        read().map_err(corrupt("ended_batches", key))
    }

    fn event(
        &self,
        first: u32,
        End(index, finished, acquired, delivered, attempt, message): End,
    ) -> HistoryRow {
        let before = |us: i64| self.finished_us.saturating_sub(us);
        HistoryRow {
            run: RunId(self.run_id),
            index: first + index,
            count: 1,
            outcome: Outcome::Succeeded,
            attempt,
            acquired_us: acquired.map(before),
            delivered_us: delivered.map(before),
            finished_us: before(finished),
            message,
        }
    }
}

/// The done queue of a run from the row that covers an index on: rows of their own, which are to be read first, as an event that
/// had died leaves those and may succeed afterwards, and then batches, as many as hold the page.
pub(crate) struct EndedPage {
    all: BTreeMap<u32, HistoryRow>,
    from_index: u32,
    limit: u32,
    /// From where batches are wanted, and how many; none once there are enough.
    wanted: Option<(u32, u32)>,
}

impl EndedPage {
    pub(crate) fn new(own: Vec<HistoryRecord>, from_index: u32, limit: u32) -> Result<Self, StoreError> {
        let own = own.into_iter().map(|row| HistoryRow::try_from(row).map(|row| (row.index, row)));
        // Most batches hold many events.
        let wanted = Some((from_index, 1 + limit / 16));
        Ok(Self { all: own.collect::<Result<_, _>>()?, from_index, limit, wanted })
    }

    /// From which index on how many batches are to be read, beside those that begin before it.
    pub(crate) fn wants(&self) -> Option<(i32, u32)> {
        self.wanted.map(|(from, batches)| (int(from), batches))
    }

    /// Takes in what was wanted.
    pub(crate) fn take(&mut self, batches: Vec<EndedRecord>) -> Result<(), StoreError> {
        let Some((from, wanted)) = self.wanted.take() else { return Ok(()) };
        let mut later = 0;
        let mut last = from;
        for batch in batches {
            let first = count("first_idx", batch.first_idx).unwrap_or_default();
            (later, last) = (later + u32::from(first > from), last.max(first));
            let events = batch.events()?.into_iter().filter(|row| row.index >= self.from_index);
            self.all.extend(events.map(|row| (row.index, row)));
        }
        // A batch that has not been read begins after the last one that has, so that nothing is missing up to there.
        let known = self.all.range(..=last).count();
        if later == wanted && known < self.limit as usize {
            self.wanted = Some((last, 2 * wanted));
        }
        Ok(())
    }

    /// The page, by ascending index.
    pub(crate) fn rows(self) -> Vec<HistoryRow> {
        self.all.into_values().take(self.limit as usize).collect()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn row(run: u128, index: u32) -> HistoryRow {
        HistoryRow {
            run: RunId(Uuid::from_u128(run)),
            index,
            count: 1,
            outcome: Outcome::Succeeded,
            attempt: 1,
            acquired_us: Some(1_780_000_000_000_000),
            delivered_us: Some(1_780_000_000_001_000),
            finished_us: 1_780_000_000_002_000 + i64::from(index % 5),
            message: String::new(),
        }
    }

    fn unpacked(batches: &[EndedRecord]) -> Vec<HistoryRow> {
        batches.iter().flat_map(|batch| batch.events().unwrap()).collect()
    }

    #[test]
    fn what_goes_in_comes_out() {
        let mut rows: Vec<HistoryRow> =
            (0..2).flat_map(|run| (0..700).map(move |at| row(run, at * at % 4_096))).collect();
        rows.sort_by_key(|row| (row.run, row.index));
        rows.dedup_by_key(|row| (row.run, row.index));
        for (at, row) in rows.iter_mut().enumerate() {
            match at % 9 {
                0 => row.attempt = 3,
                1 => row.message = "\"é\" \\ [1],\n".repeat(at % 40),
                2 => row.delivered_us = None,
                3 => row.acquired_us = None,
                // A clock was set back meanwhile.
                4 => row.finished_us -= 5_000_000,
                _ => {}
            }
        }
        let (batches, others) = pack(&rows.iter().rev().cloned().collect::<Vec<_>>());
        assert!(others.is_empty());
        assert_eq!(unpacked(&batches), rows);
        for batch in &batches {
            assert!(batch.last_idx - batch.first_idx < int(SPAN), "{batch:?}");
            assert_eq!(batch.indexes().unwrap().first().copied().map(int), Some(batch.first_idx));
        }
    }

    #[test]
    fn an_event_that_ends_as_most_do_takes_some_twenty_bytes() {
        let rows: Vec<HistoryRow> = (0..512).map(|index| row(1, index)).collect();
        let (batches, _) = pack(&rows);
        let bytes: usize = batches.iter().map(|batch| batch.ends.len()).sum();
        assert!(bytes < 20 * rows.len(), "{bytes} in {} rows", batches.len());
        assert!(batches.iter().all(|batch| batch.ends.len() < ENDS_MAX + 40));
    }

    #[test]
    fn a_page_reads_about_as_many_batches_as_it_needs() {
        for apart in [1, 600] {
            let rows: Vec<HistoryRow> = (0..2_000).map(|index| row(1, apart * index)).collect();
            let (batches, _) = pack(&rows);
            let (from, mut read, mut asked) = (apart * 700, 0, 0);
            let mut page = EndedPage::new(Vec::new(), from, 300).unwrap();
            while let Some((from, wanted)) = page.wants() {
                let reaches = |batch: &&EndedRecord| batch.first_idx <= from && batch.last_idx >= from;
                let later = batches.iter().filter(|batch| batch.first_idx > from).take(wanted as usize);
                let found: Vec<EndedRecord> = batches.iter().filter(reaches).chain(later).cloned().collect();
                (read, asked) = (read + found.len(), asked + 1);
                page.take(found).unwrap();
            }
            assert_eq!(page.rows(), rows[700..1_000], "{apart} apart");
            let needed = if apart == 1 { 300 / 30 } else { 300 };
            assert!(read < 3 * needed && asked < 6, "{read} read in {asked} asks, {apart} apart");
        }
    }

    #[test]
    fn what_did_not_succeed_has_a_row_of_its_own() {
        let bad = HistoryRow { outcome: Outcome::Lost, ..row(1, 4) };
        let range = HistoryRow { count: 3, ..row(1, 7) };
        let (batches, others) = pack(&[row(1, 5), bad, range, row(1, 6)]);
        assert_eq!(unpacked(&batches), [row(1, 5), row(1, 6)]);
        assert_eq!(others.iter().map(|other| other.idx).collect::<Vec<_>>(), [4, 7]);
    }

    #[test]
    fn a_message_takes_no_other_event_with_it_into_a_large_row() {
        let rows: Vec<HistoryRow> =
            (0..10).map(|index| HistoryRow { message: "m".repeat(1_000), ..row(1, index) }).collect();
        let (batches, _) = pack(&rows);
        assert_eq!((batches.len(), unpacked(&batches)), (10, rows));
    }
}
