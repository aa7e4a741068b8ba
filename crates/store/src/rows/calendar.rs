//! Rows of calendars, and of the schedules that go by them.

use sqlx::FromRow;
use tollgate_core::model::{Calendar, Schedule};
use tollgate_core::plan::done::done_us;
use uuid::Uuid;

use super::items::{stored_items, take_payload};
use super::{corrupt, json, parse};
use crate::StoreError;
use crate::columns::{JsonText, row};

row! {
    /// A row of `calendars` to be written.
    CalendarNew of "calendars" {
        key {
            uid: Uuid,
        }
        fixed {
            namespace: String,
            id: String,
        }
        changing {
            spec: String,
            labels: JsonText,
            generation: i64,
            dates_generation: i64,
            updated_us: i64,
        }
    }
}

impl CalendarNew {
    /// The row of a calendar.
    pub(crate) fn new(calendar: &Calendar) -> Result<Self, StoreError> {
        Ok(Self {
            uid: calendar.uid,
            namespace: calendar.namespace.clone(),
            id: calendar.id.clone(),
            spec: json(calendar)?,
            labels: JsonText(json(&calendar.labels)?),
            generation: calendar.generation,
            dates_generation: calendar.dates_generation,
            updated_us: calendar.updated_us,
        })
    }
}

row! {
    /// A calendar as it is read.
    CalendarRow of "calendars as read" {
        key {
            uid: Uuid,
        }
        fixed {
            id: String,
            spec: String,
        }
        changing {}
    }
}

impl TryFrom<CalendarRow> for Calendar {
    type Error = StoreError;

    fn try_from(row: CalendarRow) -> Result<Self, StoreError> {
        parse("spec", &row.spec).map_err(corrupt("calendars", || format!("calendar {}", row.uid)))
    }
}

row! {
    /// That a schedule goes by a calendar, in this generation: a row of `calendar_users`.
    LinkRow of "calendar_users" {
        key {
            calendar_uid: Uuid,
            schedule_uid: Uuid,
        }
        fixed {}
        changing {
            generation: i64,
        }
    }
}

row! {
    /// What changes of a schedule's row when only its dates do.
    RewrittenRow of "schedules with other dates" {
        key {
            uid: Uuid,
        }
        fixed {}
        changing {
            spec: String,
            items: String,
            generation: i64,
            updated_us: i64,
            done_us: Option<i64>,
        }
    }
}

impl RewrittenRow {
    /// What changes of a schedule's row.
    pub(crate) fn new(mut schedule: Schedule) -> Result<Self, StoreError> {
        // Items count only under the generation that they name.
        let items = stored_items(schedule.generation, &schedule.payload);
        take_payload(&mut schedule);
        Ok(Self {
            uid: schedule.uid,
            items,
            spec: json(&schedule)?,
            generation: schedule.generation,
            updated_us: schedule.updated_us,
            done_us: done_us(&schedule),
        })
    }
}

/// A calendar whose dates must still be those of this generation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeldRow {
    pub(crate) uid: Uuid,
    /// For the error.
    pub(crate) id: String,
    pub(crate) dates_generation: i64,
}

/// How many schedules go by a calendar.
#[derive(Debug, FromRow)]
pub(crate) struct UsersRow {
    pub(crate) calendar_uid: Uuid,
    pub(crate) users: i64,
}
