//! What concerns an alert.

use std::collections::BTreeSet;

use crate::alert::Rules;
use crate::model::{Alert, AlertRuns};
use crate::trouble::{Severity, Trouble};

/// Which schedules and policies an alert is about.
#[derive(Clone, Debug, Default)]
pub struct Selection<'a> {
    /// Schedules that have the labels that the alert asks for; of those that are in question.
    pub labelled: BTreeSet<&'a str>,
}

impl Alert {
    /// When it tells.
    pub fn rules(&self) -> Rules {
        Rules {
            generation: self.generation,
            enabled_us: self.enabled_us,
            group_wait_us: self.group_wait_ms * 1_000,
            repeat_us: self.repeat_ms * 1_000,
            resolved: self.send_resolved,
            deadline_us: self.target.deadline_ms() * 1_000,
        }
    }

    /// Whether it tells of such a trouble, of whichever schedule or policy.
    pub fn wants_such(&self, trouble: &Trouble) -> bool {
        self.troubles.as_ref().is_some_and(|wanted| {
            let is_kind =
                wanted.kinds.is_empty() || wanted.kinds.iter().any(|word| word == trouble.kind.word());
            is_kind && (!wanted.critical_only || trouble.severity == Severity::Critical)
        })
    }

    /// Whether it tells of this trouble.
    pub fn wants(&self, trouble: &Trouble, selection: &Selection<'_>) -> bool {
        let Some(wanted) = &self.troubles else { return false };
        let subject = &trouble.subject;
        let concerns = if subject.namespace.is_empty() {
            wanted.installation
        } else {
            self.concerns(&subject.namespace, &subject.schedule, &subject.policy, selection)
        };
        self.wants_such(trouble) && concerns
    }

    /// Whether it tells of a run of this schedule that finished, perhaps with failures.
    pub fn wants_run(
        &self,
        (namespace, schedule, policy): (&str, &str, &str),
        has_failures: bool,
        selection: &Selection<'_>,
    ) -> bool {
        self.wants_such_run(has_failures) && self.concerns(namespace, schedule, policy, selection)
    }

    /// Whether it tells of a run that finished, perhaps with failures, of whichever schedule.
    pub fn wants_such_run(&self, has_failures: bool) -> bool {
        match self.runs {
            AlertRuns::None => false,
            AlertRuns::Finished => true,
            AlertRuns::FinishedWithFailures => has_failures,
        }
    }

    fn concerns(&self, namespace: &str, schedule: &str, policy: &str, selection: &Selection<'_>) -> bool {
        let named = |ids: &[String], id: &str| !id.is_empty() && ids.iter().any(|one| one == id);
        let all = self.schedules.is_empty() && self.policies.is_empty() && self.schedule_labels.is_empty();
        namespace == self.namespace
            && (all
                || named(&self.schedules, schedule)
                || named(&self.policies, policy)
                || (!self.schedule_labels.is_empty() && selection.labelled.contains(schedule)))
    }
}
