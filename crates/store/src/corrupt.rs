//! Rows that do not hold what they must: passed over, named in the log once, and listed as long as they are found.
//!
//! In: what each read of a part of the store found. Out: the list, for those who show it. A part that is read as a whole has
//! the list of its latest read, so that a row that was put right is not listed any longer; what the pages of a list
//! or of the audit log find is kept until the process ends.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::StoreError;

/// The most rows that are named in the log at once.
const LOGGED_MAX: usize = 20;

/// A row that is passed over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CorruptRow {
    /// The table.
    pub table: &'static str,
    /// The queue shard, in tables that have one.
    pub shard: Option<u16>,
    /// The rest of its key.
    pub key: String,
    /// The column that cannot be read.
    pub column: String,
    /// What is wrong with it.
    pub message: String,
}

impl CorruptRow {
    /// The row that an error names; none for other errors.
    pub(crate) fn of(shard: Option<u16>, error: &StoreError) -> Option<Self> {
        let StoreError::Corrupt { table, key, column, message } = error else { return None };
        let (key, column, message) = (key.clone(), (*column).to_owned(), message.clone());
        Some(Self { table, shard, key, column, message })
    }
}

/// A part of the store that is read as a whole: a name and what it is read for.
pub(crate) type StorePart = (&'static str, String);

/// What is known to be corrupt.
#[derive(Debug, Default)]
pub(crate) struct Corruption {
    known: Mutex<BTreeMap<StorePart, Vec<CorruptRow>>>,
    /// Of parts that are read in pages: what the pages so far have found.
    pages: Mutex<BTreeMap<StorePart, Vec<CorruptRow>>>,
}

impl Corruption {
    /// Takes what a read of a part has found, and logs what it had not found before.
    pub(crate) fn found(&self, part: StorePart, mut rows: Vec<CorruptRow>) {
        rows.sort();
        rows.dedup();
        let mut parts = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = if rows.is_empty() { parts.remove(&part) } else { parts.insert(part, rows.clone()) };
        drop(parts);
        let before = before.unwrap_or_default();
        // Both are in order.
        let new: Vec<&CorruptRow> = rows.iter().filter(|row| before.binary_search(row).is_err()).collect();
        for row in new.iter().take(LOGGED_MAX) {
            let CorruptRow { table, shard, key, column, message } = row;
            tracing::error!(table, shard, key, column, message, "a corrupt row is passed over");
        }
        if let Some(more) = new.len().checked_sub(LOGGED_MAX).filter(|more| *more > 0) {
            tracing::error!(more, "more corrupt rows are passed over; the status names them");
        }
        let gone: Vec<&CorruptRow> = before.iter().filter(|row| rows.binary_search(row).is_err()).collect();
        for row in gone.iter().take(LOGGED_MAX) {
            let CorruptRow { table, shard, key, .. } = row;
            tracing::info!(table, shard, key, "a row is no longer corrupt, or gone");
        }
        if let Some(more) = gone.len().checked_sub(LOGGED_MAX).filter(|more| *more > 0) {
            tracing::info!(more, "more rows are no longer corrupt, or gone");
        }
    }

    /// Takes what the next read of a part has found, beside what the reads before it have.
    pub(crate) fn also(&self, part: StorePart, mut rows: Vec<CorruptRow>) {
        let parts = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        rows.extend(parts.get(&part).into_iter().flatten().cloned());
        drop(parts);
        if !rows.is_empty() {
            self.found(part, rows);
        }
    }

    /// Takes what one page of a part has found. The part has been read as a whole with its last page; what is found beyond
    /// that adds to it.
    pub(crate) fn page(&self, part: StorePart, rows: Vec<CorruptRow>, first: bool, last: bool) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if first {
            pages.insert(part.clone(), Vec::new());
        }
        let Some(so_far) = pages.get_mut(&part) else {
            drop(pages);
            return self.also(part, rows);
        };
        so_far.extend(rows);
        let whole = if last { pages.remove(&part) } else { None };
        drop(pages);
        if let Some(rows) = whole {
            self.found(part, rows);
        }
    }

    /// All of it, in order, each row once.
    pub(crate) fn rows(&self) -> Vec<CorruptRow> {
        let parts = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows: Vec<CorruptRow> = parts.values().flatten().cloned().collect();
        rows.sort();
        rows.dedup();
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str) -> CorruptRow {
        let (key, column, message) = (key.to_owned(), "body".to_owned(), "no JSON".to_owned());
        CorruptRow { table: "runs", shard: Some(3), key, column, message }
    }

    #[test]
    fn the_latest_read_of_a_part_counts() {
        let corruption = Corruption::default();
        let part = |of: &str| ("load", of.to_owned());
        corruption.found(part("3"), vec![row("b"), row("a"), row("b")]);
        corruption.found(part("4"), vec![row("a"), row("c")]);
        assert_eq!(corruption.rows(), [row("a"), row("b"), row("c")]);
        corruption.found(part("3"), Vec::new());
        assert_eq!(corruption.rows(), [row("a"), row("c")]);
    }

    #[test]
    fn a_part_in_pages_is_known_with_its_last_one() {
        let corruption = Corruption::default();
        let page =
            |key: &str, first, last| corruption.page(("inbox", String::new()), vec![row(key)], first, last);
        page("a", true, false);
        page("b", false, true);
        assert_eq!(corruption.rows(), [row("a"), row("b")]);
        page("c", false, true);
        assert_eq!(corruption.rows(), [row("a"), row("b"), row("c")], "found later");
        page("b", true, false);
        assert_eq!(corruption.rows().len(), 3, "the others may be on the next page");
        page("d", false, true);
        assert_eq!(corruption.rows(), [row("b"), row("d")]);
    }
}
