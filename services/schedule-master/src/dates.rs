//! Decides which dates a schedule takes from the calendars that it names.
//!
//! In: calendars as they are stored, or shall be. Out: the schedule's timing with their dates, or what is wrong with their names.

use std::collections::BTreeMap;

use tollgate_core::model::{Calendar, Timing};
use tollgate_core::nearest::nearest;
use tollgate_proto::convert::names;
use tollgate_proto::{FieldError, v1};
use tollgate_service::status::status;
use tollgate_store::plan::Filter;
use tonic::Status;
use uuid::Uuid;

use crate::ScheduleMaster;

/// How many ids are looked through for the one that somebody meant.
const IDS_MAX: u32 = 1_000;

/// What is known of calendars.
#[derive(Debug, Default)]
pub(crate) struct Calendars {
    /// By namespace and id.
    found: BTreeMap<(String, String), Calendar>,
    /// How many schedules go by each.
    used: BTreeMap<Uuid, u64>,
    /// What else there is in namespaces where one was not found.
    ids: BTreeMap<String, Vec<String>>,
}

impl Calendars {
    /// A calendar as it is, or shall be.
    pub(crate) fn know(&mut self, calendar: Calendar) {
        self.found.insert((calendar.namespace.clone(), calendar.id.clone()), calendar);
    }

    /// A calendar by its name.
    pub(crate) fn find(&self, namespace: &str, id: &str) -> Option<&Calendar> {
        self.found.get(&(namespace.to_owned(), id.to_owned()))
    }

    /// A schedule will go by these calendars, and did by those of `before`.
    pub(crate) fn join(&mut self, timing: &Timing, before: Option<&Timing>) {
        for uid in joined(timing, before) {
            *self.used.entry(uid).or_default() += 1;
        }
    }

    /// Gives a timing the dates of its calendars. `before`: as it is stored.
    ///
    /// # Errors
    /// Names that are not known, calendars that too many go by, more dates than a schedule may have.
    pub(crate) fn give(
        &self,
        timing: &mut Timing,
        namespace: &str,
        before: Option<&Timing>,
    ) -> Result<(), Vec<FieldError>> {
        timing.take_dates(|id| self.find(namespace, id));
        let mut errors: Vec<FieldError> = Vec::new();
        for (at, one) in timing.calendars.iter().enumerate() {
            let field = format!("schedule.exclude_calendars[{at}]");
            let is_full = self.used.get(&one.uid).is_some_and(|used| *used >= Calendar::SCHEDULES_MAX as u64);
            if self.find(namespace, &one.id).is_none() {
                errors.push(self.none(field, namespace, &one.id));
            } else if is_full && joined(timing, before).any(|uid| uid == one.uid) {
                let expected =
                    format!("a calendar by which fewer than {} schedules go", Calendar::SCHEDULES_MAX);
                errors.push(FieldError::new(field, &one.id, expected));
            }
        }
        if timing.exclude.len() > Timing::DATES_MAX {
            let given = format!("{} dates and ranges of dates", timing.exclude.len());
            let expected = format!("at most {} with those of exclude", Timing::DATES_MAX);
            errors.push(FieldError::new("schedule.exclude_calendars", given, expected));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// The refusal of a calendar that does not exist.
    fn none(&self, field: String, namespace: &str, id: &str) -> FieldError {
        let ids = self.ids.get(namespace).into_iter().flatten();
        let given = self.found.keys().filter(|(of, _)| of == namespace).map(|(_, id)| id);
        let near = nearest(id, ids.chain(given).map(String::as_str));
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        let expected = format!(
            "a calendar of the same namespace that exists: apply it first, or with its schedule{near}"
        );
        FieldError::new(field, id, expected)
    }
}

/// The calendars of a timing that it did not have before.
fn joined<'t>(timing: &'t Timing, before: Option<&'t Timing>) -> impl Iterator<Item = Uuid> + 't {
    let had = move |uid: Uuid| {
        before.is_some_and(|before| before.calendars.iter().any(|calendar| calendar.uid == uid))
    };
    timing.calendars.iter().map(|one| one.uid).filter(move |uid| !had(*uid))
}

/// The ids of the calendars that a schedule names, as far as they are ids.
pub(crate) fn named(message: &v1::Schedule, namespace: &str) -> Vec<String> {
    let named = message.exclude_calendars.iter().take(Timing::CALENDARS_MAX);
    named.filter_map(|text| names::calendar_within("", namespace, text).ok()).map(|name| name.id).collect()
}

impl ScheduleMaster {
    /// What is stored of calendars of a namespace, and in case that one of them is not, what else there is.
    pub(crate) async fn look_up_calendars(
        &self,
        known: &mut Calendars,
        namespace: &str,
        ids: &[String],
    ) -> Result<(), Status> {
        if ids.is_empty() {
            return Ok(());
        }
        let found = self.store().calendars(namespace, ids).await.map_err(status)?;
        let uids: Vec<Uuid> = found.iter().map(|calendar| calendar.uid).collect();
        known.used.extend(self.store().calendars_used(&uids).await.map_err(status)?);
        if found.len() < ids.len() && !known.ids.contains_key(namespace) {
            let all = self.store().list_calendars(namespace, &Filter::default(), None, IDS_MAX).await;
            let ids = all.map_err(status)?.into_iter().map(|calendar| calendar.id).collect();
            known.ids.insert(namespace.to_owned(), ids);
        }
        found.into_iter().for_each(|calendar| known.know(calendar));
        Ok(())
    }
}
