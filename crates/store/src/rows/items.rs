//! Rows of items and of submissions.

use sqlx::FromRow;
use tollgate_core::items::{ItemPage, ItemsDigest};
use tollgate_core::model::{Payload, RunId, Schedule};
use uuid::Uuid;

use super::{corrupt, count, shard_of};
use crate::StoreError;
use crate::items::StoredSubmission;

/// The `items` column of a schedule: its generation, a line end, its items. A version that knows no items leaves the column as
/// it is, and writes another generation: then it counts for nothing.
pub(crate) fn stored_items(generation: i64, payload: &Payload) -> String {
    if payload.items.is_empty() { String::new() } else { format!("{generation}\n{}", payload.items) }
}

/// Takes out what the `payload` and `items` columns hold. What the `spec` column has of it stays: where a list is fetched, and
/// the most units that an item says.
pub(crate) fn take_payload(schedule: &mut Schedule) -> Payload {
    let mut payload = std::mem::take(&mut schedule.payload);
    schedule.payload.from = payload.from.take();
    schedule.payload.units_max = payload.units_max;
    payload
}

/// A schedule of a `spec` column, as [`take_payload`] leaves it, with what its `payload` and `items` columns hold.
pub(crate) fn with_payload(mut schedule: Schedule, payload: String, items: &str) -> Schedule {
    let own = items.split_once('\n').filter(|(of, _)| of.parse() == Ok(schedule.generation));
    let units_max = own.map_or(0, |_| schedule.payload.units_max);
    let items = own.map(|(_, items)| items).unwrap_or_default().into();
    schedule.payload = Payload { json: payload, items, from: schedule.payload.from.take(), units_max };
    schedule
}

/// A row of `item_pages`, as far as it is read.
#[derive(Debug, FromRow)]
pub(crate) struct ItemPageRow {
    first_idx: i32,
    events: i32,
    keys: Vec<u8>,
    #[sqlx(default)]
    body: String,
}

impl TryFrom<ItemPageRow> for ItemPage {
    type Error = StoreError;

    fn try_from(row: ItemPageRow) -> Result<Self, StoreError> {
        let first = row.first_idx;
        let read = || {
            let (first_index, events) = (count("first_idx", first)?, count("events", row.events)?);
            Ok(Self { first_index, events, keys: row.keys, body: row.body })
        };
        read().map_err(corrupt("item_pages", || format!("first index {first}")))
    }
}

/// A row of `submissions`.
#[derive(Debug, FromRow)]
pub(crate) struct SubmissionRow {
    schedule_uid: Uuid,
    request_id: String,
    shard_id: i32,
    run_id: Uuid,
    launch_us: i64,
    asked: String,
    created_us: i64,
    items: i32,
    digest: Vec<u8>,
    units_max: i32,
    made_us: Option<i64>,
}

impl TryFrom<SubmissionRow> for StoredSubmission {
    type Error = StoreError;

    fn try_from(row: SubmissionRow) -> Result<Self, StoreError> {
        let key = format!("schedule {}, request {}", row.schedule_uid, row.request_id);
        let digest = ItemsDigest::try_from(row.digest.as_slice())
            .map_err(|_| ("digest", format!("{} bytes", row.digest.len())));
        let read = || {
            Ok(Self {
                schedule_uid: row.schedule_uid,
                request_id: row.request_id,
                shard: shard_of("shard_id", row.shard_id)?,
                run: RunId(row.run_id),
                launch_us: row.launch_us,
                asked: row.asked,
                created_us: row.created_us,
                items: count("items", row.items)?,
                digest: digest?,
                units_max: count("units_max", row.units_max)?,
                made_us: row.made_us,
            })
        };
        read().map_err(corrupt("submissions", || key))
    }
}
