//! Decides what a calendar may be.

use tollgate_core::model::Calendar;
use uuid::Uuid;

use super::check::Check;
use super::{Name, names, timestamp, timing};
use crate::field::FieldError;
use crate::v1;

/// The calendar that `message` describes, under `name`. What only the service decides (uid, generations, times) is taken from
/// `stored`, and zero where there is none.
///
/// # Errors
/// Every field that is wrong, as `calendar.…`.
pub fn to_core(
    message: &v1::Calendar,
    name: &Name,
    stored: Option<&Calendar>,
) -> Result<Calendar, Vec<FieldError>> {
    let mut check = Check::new("calendar");
    check.text("description", &message.description);
    check.labels(&message.labels);
    let dates = timing::dates(&mut check, "dates", &message.dates, Calendar::DATES_MAX);
    check.finish(Some(Calendar {
        uid: stored.map_or(Uuid::nil(), |stored| stored.uid),
        namespace: name.namespace.clone(),
        id: name.id.clone(),
        description: message.description.clone(),
        dates,
        labels: message.labels.clone(),
        generation: stored.map_or(0, |stored| stored.generation),
        dates_generation: stored.map_or(0, |stored| stored.dates_generation),
        created_us: stored.map_or(0, |stored| stored.created_us),
        updated_us: stored.map_or(0, |stored| stored.updated_us),
    }))
}

/// A calendar as callers see it, without the schedules that name it.
pub fn to_message(calendar: &Calendar) -> v1::Calendar {
    v1::Calendar {
        name: names::of_calendar(&calendar.namespace, &calendar.id),
        uid: calendar.uid.to_string(),
        description: calendar.description.clone(),
        dates: calendar.dates.iter().map(ToString::to_string).collect(),
        labels: calendar.labels.clone(),
        etag: calendar.generation.to_string(),
        create_time: Some(timestamp(calendar.created_us)),
        update_time: Some(timestamp(calendar.updated_us)),
        ..v1::Calendar::default()
    }
}
