//! Rows of results.

use tollgate_core::handle::change::ResultRow;
use tollgate_core::model::RunId;
use uuid::Uuid;

use super::{corrupt, count, int};
use crate::StoreError;
use crate::columns::row;

row! {
    /// A row of `event_results` to be written.
    ResultRecord of "event_results" {
        key {
            run_id: Uuid,
            idx: i32,
        }
        fixed {
            ended_us: i64,
            body: String,
        }
        changing {}
    }
}

impl From<&ResultRow> for ResultRecord {
    fn from(row: &ResultRow) -> Self {
        // JSON has a NUL as an escape, and no other.
        Self { run_id: row.run.0, idx: int(row.index), ended_us: row.ended_us, body: row.body.clone() }
    }
}

/// The results of a run as they were read, by their indexes.
pub(crate) fn results(run: RunId, rows: Vec<(i32, String)>) -> Result<Vec<(u32, String)>, StoreError> {
    let read = |(idx, body)| {
        let index = count("idx", idx).map_err(corrupt("event_results", || format!("run {run}, index {idx}")));
        Ok((index?, body))
    };
    rows.into_iter().map(read).collect()
}
