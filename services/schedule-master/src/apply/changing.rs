//! Knows the calendars that schedules of one call name, and which of them are about to change.

use std::collections::HashMap;

use tollgate_core::model::{Calendar, Schedule};

use super::Key;
use crate::dates::Calendars;

/// What is known of calendars, and which of them are about to change.
#[derive(Debug, Default)]
pub(super) struct Changing {
    /// As they are, or shall be.
    pub(super) known: Calendars,
    pub(super) changed: HashMap<Key, Calendar>,
}

impl Changing {
    /// Gives a stored schedule the dates that calendars are about to give it. Answers whether any does.
    pub(super) fn change(&self, schedule: &mut Schedule) -> bool {
        let Schedule { namespace, timing, .. } = schedule;
        let find = |id: &str| self.changed.get(&(namespace.clone(), id.to_owned()));
        let changes = timing.calendars.iter().any(|one| find(&one.id).is_some());
        if changes {
            timing.take_dates(find);
        }
        changes
    }
}
