//! Acquired batches: events of one run that were acquired within a second, and of which nothing more is to be said than whether
//! the consumer has them, share one row.
//!
//! In: what becomes of a batch's events. Out: the row as it is now. Invariant: an event is in at most one place, its
//! batch or a row of its own; once it has left its batch it never comes back. Not here: what an event that needs more
//! than two bits looks like ([`TokenRow`]).
//!
//! One row for many events is what halves the WAL of a token (a row per event costs an insert, a delete and both index
//! entries); the bitmap is that of a range's holes, as in a free list. A row that takes in what the next commits acquire is
//! changed in place, where rows that come and go with each commit cost index entries.

use super::change::{TokenRow, TokenState};
use crate::model::{RunId, SECOND_US};

/// How many events a batch holds at most: what a change rewrites stays small.
pub const BATCH_MAX: u32 = 512;

/// How long after its first event a batch takes in others: people read from it since when a consumer has held a token.
const TAKES_IN_US: i64 = SECOND_US;

/// Events of one run that were acquired within a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBatch {
    /// The run.
    pub run: RunId,
    /// The index of the first event.
    pub first: u32,
    /// How many events it has had, from `first` on, with those between them that are elsewhere: 1 to [`BATCH_MAX`].
    pub count: u32,
    /// When the first token was acquired (wall clock).
    pub acquired_us: i64,
    /// When the latest of those that are held was delivered (wall clock).
    pub delivered_us: Option<i64>,
    /// A bit an event: it has ended, or has a row of its own.
    gone: Vec<u8>,
    /// A bit an event: its consumer has it.
    held: Vec<u8>,
}

impl TokenBatch {
    /// One event that has just been acquired.
    pub fn of(run: RunId, first: u32, acquired_us: i64) -> Self {
        Self { run, first, count: 1, acquired_us, delivered_us: None, gone: vec![0], held: vec![0] }
    }

    /// A batch as it was stored.
    ///
    /// # Errors
    /// The column that cannot be, and why.
    pub fn restore(
        batch: (RunId, u32, u32),
        (acquired_us, delivered_us): (i64, Option<i64>),
        (gone, held): (Vec<u8>, Vec<u8>),
    ) -> Result<Self, (&'static str, String)> {
        let (run, first, count) = batch;
        if !(1..=BATCH_MAX).contains(&count) {
            return Err(("events", format!("{count}; allowed is 1 to {BATCH_MAX}")));
        }
        let bytes = count.div_ceil(8) as usize;
        for (column, bits) in [("gone", &gone), ("held", &held)] {
            if bits.len() != bytes {
                return Err((column, format!("{} bytes; {count} events need {bytes}", bits.len())));
            }
        }
        Ok(Self { run, first, count, acquired_us, delivered_us, gone, held })
    }

    /// What a batch counts for of which only the key can be read: its consumers have all events that are not `elsewhere`.
    /// The nearest allowed `count` is taken.
    pub fn held_unless(
        (run, first, count): (RunId, u32, u32),
        (acquired_us, delivered_us): (i64, Option<i64>),
        elsewhere: impl Fn(u32) -> bool,
    ) -> Self {
        let count = count.clamp(1, BATCH_MAX);
        let bytes = vec![0; count.div_ceil(8) as usize];
        let (gone, held) = (bytes.clone(), bytes);
        let mut batch = Self { run, first, count, acquired_us, delivered_us, gone, held };
        for at in 0..count {
            let bits = if elsewhere(first + at) { &mut batch.gone } else { &mut batch.held };
            set(bits, at);
        }
        batch
    }

    /// Its key.
    pub fn key(&self) -> (RunId, u32) {
        (self.run, self.first)
    }

    /// The bits of events that are no longer in it, the first event in the lowest bit of the first byte.
    pub fn gone(&self) -> &[u8] {
        &self.gone
    }

    /// The bits of events that their consumer has, in the same order.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Whether nothing is left in it.
    pub fn is_empty(&self) -> bool {
        self.gone.iter().map(|byte| byte.count_ones()).sum::<u32>() == self.count
    }

    /// Whether an event is in it.
    pub fn contains(&self, index: u32) -> bool {
        index.checked_sub(self.first).is_some_and(|at| at < self.count && !is_set(&self.gone, at))
    }

    /// The rows that its events would have.
    pub fn rows(&self) -> impl Iterator<Item = TokenRow> + '_ {
        (0..self.count).filter(|at| !is_set(&self.gone, *at)).map(|at| {
            let held = is_set(&self.held, at);
            TokenRow {
                run: self.run,
                index: self.first + at,
                state: if held { TokenState::Held } else { TokenState::Acquired },
                attempt: 1,
                failures: 0,
                checks: 0,
                due_us: 0,
                acquired_us: self.acquired_us,
                delivered_us: self.delivered_us.filter(|_| held),
                heartbeat_ttl_ms: None,
                message: String::new(),
            }
        })
    }

    /// Takes one more event in, if it comes after those that are in it, not far and not late. Between them may be events that are
    /// not in it.
    pub(super) fn take_in(&mut self, row: &TokenRow) -> bool {
        let Some(at) = row.index.checked_sub(self.first) else { return false };
        let is_like = self.run == row.run
            && (0..TAKES_IN_US).contains(&row.acquired_us.saturating_sub(self.acquired_us));
        if !is_like || at < self.count || at >= BATCH_MAX {
            return false;
        }
        let bytes = (at + 1).div_ceil(8) as usize;
        self.gone.resize(bytes, 0);
        self.held.resize(bytes, 0);
        (self.count..at).for_each(|between| set(&mut self.gone, between));
        self.count = at + 1;
        true
    }

    /// An event has ended, or has a row of its own from now on.
    pub(super) fn leave(&mut self, index: u32) {
        set(&mut self.gone, index - self.first);
    }

    /// A consumer has an event.
    pub(super) fn hold(&mut self, index: u32, delivered_us: Option<i64>) {
        set(&mut self.held, index - self.first);
        self.delivered_us = self.delivered_us.max(delivered_us);
    }
}

/// Whether a batch can say all of an event that a row of its own would say.
pub(super) fn is_plain(row: &TokenRow) -> bool {
    row.state != TokenState::Waiting
        && (row.attempt, row.failures, row.checks, row.due_us) == (1, 0, 0, 0)
        && row.heartbeat_ttl_ms.is_none()
        && row.message.is_empty()
}

fn is_set(bits: &[u8], at: u32) -> bool {
    bits.get(at as usize / 8).is_some_and(|byte| byte & (1 << (at % 8)) != 0)
}

fn set(bits: &mut [u8], at: u32) {
    if let Some(byte) = bits.get_mut(at as usize / 8) {
        *byte |= 1 << (at % 8);
    }
}
