//! Which schedules have the labels that alerts ask for: asked once for all alerts of a namespace with the same labels.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::alert::Selection;
use tollgate_core::model::Alert;
use tollgate_store::StoreError;

use super::{Found, Teller};

/// A namespace, and labels of schedules.
type Asked = (String, BTreeMap<String, String>);

/// Of the schedules in question those that have the labels.
pub(super) struct Labelled(BTreeMap<Asked, Result<Vec<String>, StoreError>>);

impl Labelled {
    /// What an alert selects.
    pub(super) fn of(&self, alert: &Alert) -> Result<Selection<'_>, StoreError> {
        if alert.schedule_labels.is_empty() {
            return Ok(Selection::default());
        }
        match self.0.get(&asked_by(alert)) {
            None => Ok(Selection::default()),
            Some(Ok(ids)) => Ok(Selection { labelled: ids.iter().map(String::as_str).collect() }),
            Some(Err(error)) => Err(StoreError::Internal(error.to_string())),
        }
    }
}

impl Teller {
    /// Asks for schedules with labels, of those whose troubles and runs the alerts tell of.
    pub(super) async fn labelled(&self, found: &Found) -> Labelled {
        let mut asked: BTreeMap<Asked, BTreeSet<&str>> = BTreeMap::new();
        for alert in self.alerts.iter().filter(|alert| !alert.schedule_labels.is_empty()) {
            let troubles = found.troubles.iter().filter(|trouble| alert.wants_such(trouble));
            let troubles = troubles.map(|trouble| (&trouble.subject.namespace, &trouble.subject.schedule));
            let runs = found.runs.iter().filter(|run| alert.wants_such_run(run.has_failures()));
            let runs = runs.map(|run| (&run.namespace, &run.ended.schedule));
            let ids = troubles.chain(runs).filter(|(of, id)| **of == alert.namespace && !id.is_empty());
            asked.entry(asked_by(alert)).or_default().extend(ids.map(|(_, id)| id.as_str()));
        }
        let mut labelled = BTreeMap::new();
        for ((namespace, labels), ids) in asked.into_iter().filter(|(_, ids)| !ids.is_empty()) {
            let ids: Vec<String> = ids.into_iter().map(str::to_owned).collect();
            let read = self.shared.people.schedules_labelled(&namespace, &ids, &labels).await;
            labelled.insert((namespace, labels), read);
        }
        Labelled(labelled)
    }
}

fn asked_by(alert: &Alert) -> Asked {
    (alert.namespace.clone(), alert.schedule_labels.clone())
}
