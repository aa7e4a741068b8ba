//! Decides which values the service would refuse, as far as that can be known without it.
//!
//! Only asked when something is wrong with the files anyway: then all of it is said at once, and nothing is sent. What
//! depends on what is stored (secrets that are kept, policies and calendars that exist) is not judged.

use tollgate_core::plan::Plan;
use tollgate_proto::convert::{self, Name, names};
use tollgate_proto::{FieldError, v1};

use super::{FileEntry, Resource};

/// The refusals of the entries' values, with file and line, at most `most`.
pub fn wrong_values(entries: &[FileEntry], most: usize) -> Vec<String> {
    let of_entry = |entry: &FileEntry| {
        let mut lines: Vec<_> = wrong(&entry.resource)
            .into_iter()
            .filter(|error| !entry.location.is_told_by_step(&error.field))
            .map(|error| {
                let location = entry.location.of_field(&error.field);
                let field = entry.location.spelled(&error.field);
                let description = entry.location.spelled_text(&error.description());
                (location.line, format!("{location}: {field}: {description}"))
            })
            .collect();
        lines.sort_by_key(|(line, _)| *line);
        lines.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
    };
    entries.iter().flat_map(of_entry).take(most).collect()
}

/// What is wrong with the values of a resource.
pub(super) fn wrong(resource: &Resource) -> Vec<FieldError> {
    let errors = match resource {
        Resource::Policy(policy) => named(names::policy("name", &policy.name), |name| {
            convert::policy::to_core(policy, name, None).err().unwrap_or_default()
        }),
        Resource::Calendar(calendar) => named(names::calendar("name", &calendar.name), |name| {
            convert::calendar::to_core(calendar, name, None).err().unwrap_or_default()
        }),
        Resource::Alert(alert) => named(names::alert("name", &alert.name), |name| {
            convert::alert::to_core(alert, name, None).err().unwrap_or_default()
        }),
        Resource::Schedule(schedule) => {
            named(names::schedule("name", &schedule.name), |name| of_schedule(schedule, name))
        }
    };
    errors.into_iter().filter(|error| !is_kept(&error.field)).collect()
}

fn named(name: Result<Name, FieldError>, judge: impl FnOnce(&Name) -> Vec<FieldError>) -> Vec<FieldError> {
    match name {
        Ok(name) => judge(&name),
        Err(error) => vec![error],
    }
}

fn of_schedule(schedule: &v1::Schedule, name: &Name) -> Vec<FieldError> {
    let mut errors = convert::schedule::to_core(schedule, name, None).err().unwrap_or_default();
    if let Ok(timing) = convert::schedule::timing_to_core(schedule, &name.namespace) {
        let faults = Plan::faults(&timing, b"").into_iter();
        errors.extend(faults.map(|fault| convert::plan_refusal("schedule", fault)));
    }
    errors
}

/// Whether a field may stand for what is stored.
fn is_kept(field: &str) -> bool {
    ["target.http.secret", "target.http.headers", "target.slack.url", "items_from.http.headers"]
        .iter()
        .any(|kept| field.contains(kept))
}
