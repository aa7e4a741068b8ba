//! Acquired batches as rows, and the events that are in them or beside them.

use std::collections::BTreeMap;

use tollgate_core::handle::batch::{BATCH_MAX, TokenBatch};
use tollgate_core::handle::change::TokenRow;
use tollgate_core::model::RunId;
use uuid::Uuid;

use super::handle::TokenRecord;
use super::{corrupt, count, int};
use crate::StoreError;
use crate::columns::row;

row! {
    /// A row of `token_batches`.
    BatchRecord of "token_batches" {
        key {
            run_id: Uuid,
            first_idx: i32,
        }
        fixed {
            acquired_us: i64,
        }
        changing {
            events: i32,
            #[serde(serialize_with = "hexadecimal")] gone: Vec<u8>,
            #[serde(serialize_with = "hexadecimal")] held: Vec<u8>,
            delivered_us: Option<i64>,
        }
    }
}

impl From<&TokenBatch> for BatchRecord {
    fn from(batch: &TokenBatch) -> Self {
        Self {
            run_id: batch.run.0,
            first_idx: int(batch.first),
            acquired_us: batch.acquired_us,
            events: int(batch.count),
            gone: batch.gone().to_vec(),
            held: batch.held().to_vec(),
            delivered_us: batch.delivered_us,
        }
    }
}

impl TryFrom<BatchRecord> for TokenBatch {
    type Error = StoreError;

    fn try_from(row: BatchRecord) -> Result<Self, StoreError> {
        let (run, first) = (RunId(row.run_id), row.first_idx);
        let read = move || {
            let batch = (run, count("first_idx", row.first_idx)?, count("events", row.events)?);
            Self::restore(batch, (row.acquired_us, row.delivered_us), (row.gone, row.held))
        };
        read().map_err(corrupt("token_batches", || format!("run {run}, first index {first}")))
    }
}

/// Bytes as JSON has them for SQLite.
pub(super) fn hexadecimal<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| DIGITS[usize::from(digit)]);
    serializer.collect_str(&String::from_iter(digits.map(char::from)))
}

/// The events of a run from an index on that are acquired and unfinished, in a batch or not. Batches are to be read before
/// own rows, as events move from those to these: one that moves meanwhile is found in both, and its own row is the newer.
pub(crate) fn tokens_of(
    batches: Vec<BatchRecord>,
    own: Vec<TokenRecord>,
    from_index: u32,
    limit: u32,
) -> Result<Vec<TokenRow>, StoreError> {
    let limit = limit as usize;
    let mut tokens: BTreeMap<u32, TokenRow> = BTreeMap::new();
    // They come in the order of their first events: what begins behind enough events adds nothing. Between the events of one may
    // be those of another.
    for batch in batches {
        if tokens.len() >= limit
            && tokens.keys().nth(limit.saturating_sub(1)).is_none_or(|last| int(*last) < batch.first_idx)
        {
            break;
        }
        let batch = TokenBatch::try_from(batch)?;
        let rows = batch.rows().filter(|row| row.index >= from_index);
        tokens.extend(rows.map(|row| (row.index, row)));
    }
    for row in own {
        let row = TokenRow::try_from(row)?;
        tokens.insert(row.index, row);
    }
    Ok(tokens.into_values().take(limit).collect())
}

/// Batches that may hold an event of this index begin after it by less than their size.
pub(crate) fn batches_from(index: u32) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX) - int(BATCH_MAX)
}

/// How many batches hold `limit` events, with those before the first one.
pub(crate) fn batches_limit(limit: u32) -> i64 {
    i64::from(limit) + i64::from(BATCH_MAX)
}
