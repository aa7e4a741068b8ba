//! Schedules that may be done, as they are read.

use tollgate_core::model::Schedule;
use uuid::Uuid;

use super::items::with_payload;
use super::plan::read_schedule;
use super::sound;
use crate::StoreError;
use crate::columns::row;
use crate::corrupt::CorruptRow;
use crate::plan::DonePage;

row! {
    /// A schedule that may be done, as it is read.
    DoneRow of "schedules that may be done" {
        key {
            uid: Uuid,
        }
        fixed {
            done_us: i64,
            spec: String,
            payload: String,
            items: String,
        }
        changing {}
    }
}

impl TryFrom<DoneRow> for Schedule {
    type Error = StoreError;

    fn try_from(row: DoneRow) -> Result<Self, StoreError> {
        read_schedule(row.uid, &row.spec).map(|schedule| with_payload(schedule, row.payload, &row.items))
    }
}

/// The page that schedules make which may be done, and those that cannot be read.
pub(crate) fn done_page(rows: Vec<DoneRow>, limit: u32) -> (DonePage, Vec<CorruptRow>) {
    let full = rows.len() >= limit as usize;
    let next = rows.last().filter(|_| full).map(|row| (row.done_us, row.uid));
    let (schedules, found) = sound(None, rows);
    (DonePage { schedules, next }, found)
}
