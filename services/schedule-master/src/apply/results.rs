//! Decides what an answer says of each resource that is made or changed, and of how many.

use prost::Message as _;
use tollgate_proto::v1;
use uuid::Uuid;

use super::judge::{Planned, Planning};
use super::{ERRORS_MAX, ResourceRef};
use crate::audit;

/// The most results in an answer.
pub(super) const RESULTS_MAX: usize = 1000;
/// The most bytes of results in an answer: callers refuse larger ones.
const RESULTS_MAX_BYTES: usize = 1024 * 1024;
/// What a difference notes for the service itself, or says already elsewhere.
const LEFT_OUT: [&str; 3] = ["reason", "shards", "uid"];

impl Planned {
    /// The resource's full name.
    pub(super) fn name(&self) -> String {
        self.reference.full_name()
    }

    fn outcome(&self, base: u16) -> v1::ApplyResult {
        let difference = self.change.audit(|_| Uuid::nil(), base).filter(|_| !self.is_new).map(|audit| {
            let mut difference = audit::to_message(&audit).difference.unwrap_or_default();
            LEFT_OUT.iter().for_each(|key| {
                difference.fields.remove(*key);
            });
            difference
        });
        let action = if self.is_new { v1::ApplyAction::Created } else { v1::ApplyAction::Updated };
        v1::ApplyResult {
            source: self.reference.source.clone(),
            name: self.name(),
            action: action.into(),
            difference,
        }
    }
}

impl Planning {
    /// Notes with as many changes as an answer has room for what it will say of them.
    pub(super) fn note_results(&mut self, base: u16) {
        let mut room = RESULTS_MAX_BYTES;
        let all = self.policies.iter_mut().chain(&mut self.calendars);
        let all = all.chain(&mut self.schedules).chain(&mut self.alerts);
        for planned in all.take(RESULTS_MAX) {
            let result = planned.outcome(base);
            let Some(left) = room.checked_sub(result.encoded_len()) else { return };
            room = left;
            planned.result = Some(result);
        }
    }
}

/// Counts what was made, changed or outdated and is not listed.
pub(super) fn count_unlisted(response: &mut v1::ApplyResourcesResponse) {
    let listed = u32::try_from(response.results.len()).unwrap_or(u32::MAX);
    let made = response.created_count.saturating_add(response.updated_count);
    let all = made.saturating_add(response.outdated_count);
    response.unlisted_results_count = all.saturating_sub(listed);
}

/// Counts what could not be written, and lists it where there is room.
pub(super) fn failed(
    response: &mut v1::ApplyResourcesResponse,
    reference: ResourceRef,
    name: String,
    error: &impl std::fmt::Display,
) {
    response.failed_count += 1;
    if response.errors.len() < ERRORS_MAX {
        let message = format!("{error}; apply it again");
        response.errors.push(v1::ApplyError {
            source: reference.source,
            name,
            field: String::new(),
            message,
        });
    }
}
