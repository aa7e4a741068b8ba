//! Which events of a run have not started, where it starts them key by key, as rows.

use tollgate_core::handle::change::{UNSTARTED_EVENTS, Unstarted};
use tollgate_core::model::RunId;
use uuid::Uuid;

use super::batch::hexadecimal;
use super::{corrupt, count, int};
use crate::StoreError;
use crate::columns::row;

row! {
    /// A row of `unstarted_events`.
    UnstartedRow of "unstarted_events" {
        key {
            run_id: Uuid,
            first_idx: i32,
        }
        fixed {}
        changing {
            #[serde(serialize_with = "hexadecimal")] bits: Vec<u8>,
        }
    }
}

impl From<&Unstarted> for UnstartedRow {
    fn from(unstarted: &Unstarted) -> Self {
        Self { run_id: unstarted.run.0, first_idx: int(unstarted.first), bits: unstarted.bits.clone() }
    }
}

impl TryFrom<UnstartedRow> for Unstarted {
    type Error = StoreError;

    fn try_from(row: UnstartedRow) -> Result<Self, StoreError> {
        let (run, first) = (RunId(row.run_id), row.first_idx);
        let read = move || {
            let first = count("first_idx", row.first_idx)?;
            if first % UNSTARTED_EVENTS != 0 {
                return Err(("first_idx", format!("{first} is no multiple of {UNSTARTED_EVENTS}")));
            }
            if row.bits.len() > UNSTARTED_EVENTS as usize / 8 {
                let message = format!("{} bytes tell of more than {UNSTARTED_EVENTS} events", row.bits.len());
                return Err(("bits", message));
            }
            Ok(Self { run, first, bits: row.bits })
        };
        read().map_err(corrupt("unstarted_events", || format!("run {run}, first index {first}")))
    }
}
