//! A calendar: dates under a name, on which the schedules that name it do not fire.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::DateRange;

/// Dates under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calendar {
    /// Chosen by the service, never used again for another calendar.
    pub uid: Uuid,
    /// The namespace's id.
    pub namespace: String,
    /// The calendar's id within its namespace.
    pub id: String,
    /// Free text.
    #[serde(default)]
    pub description: String,
    /// On these local dates the schedules that name it do not fire.
    pub dates: Vec<DateRange>,
    /// Labels for the user's own filters.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Grows by one with every change; also the etag.
    pub generation: i64,
    /// The generation that changed the dates last: schedules have the dates of this one.
    pub dates_generation: i64,
    /// When it was made.
    pub created_us: i64,
    /// When it was last changed.
    pub updated_us: i64,
}

impl Calendar {
    /// The most dates and ranges of dates that one calendar has.
    pub const DATES_MAX: usize = 1_000;
    /// How many schedules may go by one calendar: a change of its dates is one transaction over all of them.
    pub const SCHEDULES_MAX: usize = 2_000;
}

/// A calendar that a schedule goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalendarUse {
    /// The calendar's id, in the same namespace.
    pub id: String,
    /// Its uid.
    pub uid: Uuid,
    /// The [`Calendar::dates_generation`] whose dates the schedule has.
    pub dates_generation: i64,
    /// How many of the schedule's dates are the calendar's.
    pub count: u32,
}
