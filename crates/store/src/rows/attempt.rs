//! Rows of attempts.

use tollgate_core::model::RunId;
use uuid::Uuid;

use super::{corrupt, count, int, json, parse};
use crate::StoreError;
use crate::attempts::{ATTEMPTS_KEPT, AttemptRow};
use crate::columns::row;

row! {
    /// A row of `event_attempts`.
    AttemptRecord of "event_attempts" {
        key {
            run_id: Uuid,
            idx: i32,
            place: i32,
        }
        fixed {}
        changing {
            attempt: i32,
            start_us: i64,
            took_us: i64,
            sent: String,
        }
    }
}

impl TryFrom<&AttemptRow> for AttemptRecord {
    type Error = StoreError;

    fn try_from(row: &AttemptRow) -> Result<Self, StoreError> {
        Ok(Self {
            run_id: row.run.0,
            idx: int(row.index),
            place: int(row.attempt % ATTEMPTS_KEPT),
            attempt: int(row.attempt),
            start_us: row.start_us,
            took_us: row.took_us,
            // JSON has a NUL as an escape.
            sent: json(&row.sent)?,
        })
    }
}

impl TryFrom<AttemptRecord> for AttemptRow {
    type Error = StoreError;

    fn try_from(row: AttemptRecord) -> Result<Self, StoreError> {
        let corrupt =
            |found| corrupt("event_attempts", || format!("run {}, index {}", row.run_id, row.idx))(found);
        Ok(Self {
            run: RunId(row.run_id),
            index: count("idx", row.idx).map_err(corrupt)?,
            attempt: count("attempt", row.attempt).map_err(corrupt)?,
            start_us: row.start_us,
            took_us: row.took_us,
            sent: parse("sent", &row.sent).map_err(corrupt)?,
        })
    }
}
