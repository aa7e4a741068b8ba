//! Rows become types here, and types become rows, for both drivers.
//!
//! In: what a driver read. Out: the words of the core, or [`StoreError::Corrupt`] that names table, key and column.
//! Invariant: nothing that a driver read reaches the core unchecked. Not here: statements.

mod alert;
mod attempt;
mod batch;
mod calendar;
mod change;
mod done;
mod emit;
mod ended;
mod handle;
mod items;
mod key;
mod load;
mod minute;
mod moves;
mod plan;
mod request;
mod result;
mod revision;
mod run;
mod stand_in;
mod unstarted;
mod word;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use alert::{AlertNew, AlertRow, AlertStateRow};
pub(crate) use attempt::AttemptRecord;
pub(crate) use batch::{BatchRecord, batches_from, batches_limit, tokens_of};
pub(crate) use calendar::{CalendarNew, CalendarRow, HeldRow, LinkRow, RewrittenRow, UsersRow};
pub(crate) use change::{ChangeRows, policy_body};
pub(crate) use done::{DoneRow, done_page};
pub(crate) use emit::{
    ClaimRow, FrontierRow, ScanRow, TaskKey, TaskRow, WindowRecord, in_task_order, range_rows, scan_ranges,
    scanned, task_keys, window_tasks,
};
pub(crate) use ended::{EndedPage, EndedRecord, SPAN};
pub(crate) use handle::{
    BodyRow, EventKey, HistoryRecord, LeaseRow, MemberRow, MessageRow, PolicyBody, ScheduleBody,
    ShardPolicyRow, SpecKey, SpecRecord, TokenRecord, group_by_shard, message_rows, pause, read_spec,
};
pub(crate) use items::{ItemPageRow, SubmissionRow, stored_items, take_payload, with_payload};
pub(crate) use key::KeyRecord;
pub(crate) use load::{Assembly, Untaken, read_inbox};
pub(crate) use minute::{MinuteRecord, StepRow};
pub(crate) use moves::{
    HeldLeaseRow, MovedHomeRow, MovedPolicyRow, MovedRunRow, MovedScheduleRow, MovingScheduleRow, OpenRunRow,
};
pub(crate) use plan::{
    AuditRow, ChildRow, CountRow, KeyRow, LaneRow, NoticeKey, NoticeRow, OutboxRow, PolicyNew, PolicyRow,
    Registry, ScheduleNew, ScheduleRow, SpecRow, audit, id_range, outbox_page, read_schedule,
};
pub(crate) use request::RequestRow;
pub(crate) use result::{ResultRecord, results};
pub(crate) use revision::RevisionRow;
pub(crate) use run::{RunRow, SkippedRow, run_rows, skipped_rows};
pub(crate) use unstarted::UnstartedRow;
pub(crate) use word::Word;

use crate::StoreError;
use crate::columns::{Row as _, Table};
use crate::corrupt::CorruptRow;

/// The tables whose columns statements have by placeholders.
pub(crate) const TABLES: &[Table] = &[
    AlertNew::TABLE,
    AlertRow::TABLE,
    AttemptRecord::TABLE,
    AuditRow::TABLE,
    BatchRecord::TABLE,
    CalendarNew::TABLE,
    CalendarRow::TABLE,
    ChildRow::TABLE,
    CountRow::TABLE,
    DoneRow::TABLE,
    EndedRecord::TABLE,
    EventKey::TABLE,
    HistoryRecord::TABLE,
    KeyRecord::TABLE,
    KeyRow::TABLE,
    LinkRow::TABLE,
    MessageRow::TABLE,
    MinuteRecord::TABLE,
    MovedHomeRow::TABLE,
    MovedPolicyRow::TABLE,
    MovedRunRow::TABLE,
    MovedScheduleRow::TABLE,
    MovingScheduleRow::TABLE,
    NoticeKey::TABLE,
    NoticeRow::TABLE,
    OutboxRow::TABLE,
    PolicyBody::TABLE,
    PolicyNew::TABLE,
    PolicyRow::TABLE,
    RequestRow::TABLE,
    ResultRecord::TABLE,
    RevisionRow::TABLE,
    RewrittenRow::TABLE,
    RunRow::TABLE,
    ScheduleBody::TABLE,
    ScheduleNew::TABLE,
    ScheduleRow::TABLE,
    SkippedRow::TABLE,
    SpecRow::TABLE,
    TaskKey::TABLE,
    TaskRow::TABLE,
    TokenRecord::TABLE,
    UnstartedRow::TABLE,
];

/// A count as a column. Indexes and counts end at ten million; what passes 2³¹ stays there.
pub(crate) fn int(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A column as a count.
fn count(column: &'static str, value: i32) -> Result<u32, (&'static str, String)> {
    u32::try_from(value).map_err(|_| (column, format!("{value} is negative")))
}

/// A shard's column.
fn shard_of(column: &'static str, value: i32) -> Result<u16, (&'static str, String)> {
    u16::try_from(value).map_err(|_| (column, format!("{value} is not 0 to 65535")))
}

/// Free text from outside: PostgreSQL keeps no NUL.
pub(crate) fn text(value: &str) -> String {
    value.replace('\0', "\u{fffd}")
}

/// A value as JSON text.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Internal(format!("JSON: {error}")))
}

fn parse<T: DeserializeOwned>(column: &'static str, json: &str) -> Result<T, (&'static str, String)> {
    serde_json::from_str(json).map_err(|error| (column, error.to_string()))
}

/// Names the row of a column that is wrong.
fn corrupt(
    table: &'static str,
    key: impl FnOnce() -> String,
) -> impl FnOnce((&'static str, String)) -> StoreError {
    move |(column, message)| StoreError::Corrupt { table, key: key(), column, message }
}

/// Leaves corrupt rows of a shard out, and names them: one bad row must not stop the others.
pub(crate) fn sound<R, T>(shard: Option<u16>, rows: Vec<R>) -> (Vec<T>, Vec<CorruptRow>)
where
    T: TryFrom<R, Error = StoreError>,
{
    let (mut kept, mut found) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match T::try_from(row) {
            Ok(value) => kept.push(value),
            Err(error) => found.extend(CorruptRow::of(shard, &error)),
        }
    }
    (kept, found)
}

/// A page of a list, and what goes on after it where rows of a full page are left out: the place, and how many rows are
/// missing.
pub(crate) fn sound_page<R, T, K>(
    rows: Vec<R>,
    limit: u32,
    place: impl Fn(&R) -> K,
    shard: impl Fn(&R) -> Option<u16>,
) -> (Vec<T>, Vec<CorruptRow>, Option<(K, u32)>)
where
    T: TryFrom<R, Error = StoreError>,
{
    let last = rows.last().filter(|_| rows.len() >= limit as usize).map(place);
    let (mut kept, mut found) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        let of = shard(&row);
        match T::try_from(row) {
            Ok(value) => kept.push(value),
            Err(error) => found.extend(CorruptRow::of(of, &error)),
        }
    }
    let missing = u32::try_from(found.len()).unwrap_or(u32::MAX);
    (kept, found, last.filter(|_| missing > 0).map(|place| (place, missing)))
}

/// All rows, or the first that is corrupt.
pub(crate) fn all<R, T>(rows: Vec<R>) -> Result<Vec<T>, StoreError>
where
    T: TryFrom<R, Error = StoreError>,
{
    rows.into_iter().map(T::try_from).collect()
}
