//! Rows of alerts, and of what is remembered of them.

use sqlx::FromRow;
use tollgate_core::alert::State;
use tollgate_core::model::Alert;
use uuid::Uuid;

use super::{corrupt, json, parse};
use crate::StoreError;
use crate::alert::Remembered;
use crate::columns::{JsonText, row};

row! {
    /// A row of `alerts` to be written.
    AlertNew of "alerts" {
        key {
            uid: Uuid,
        }
        fixed {
            namespace: String,
            id: String,
        }
        changing {
            spec: String,
            disabled: bool,
            labels: JsonText,
            generation: i64,
            updated_us: i64,
        }
    }
}

impl AlertNew {
    /// The row of an alert.
    pub(crate) fn new(alert: &Alert) -> Result<Self, StoreError> {
        Ok(Self {
            uid: alert.uid,
            namespace: alert.namespace.clone(),
            id: alert.id.clone(),
            spec: json(alert)?,
            disabled: alert.disabled,
            labels: JsonText(json(&alert.labels)?),
            generation: alert.generation,
            updated_us: alert.updated_us,
        })
    }
}

row! {
    /// An alert as it is read.
    AlertRow of "alerts as read" {
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

impl TryFrom<AlertRow> for Alert {
    type Error = StoreError;

    fn try_from(row: AlertRow) -> Result<Self, StoreError> {
        parse("spec", &row.spec).map_err(corrupt("alerts", || format!("alert {}", row.uid)))
    }
}

/// What is remembered of an alert, as it is read.
#[derive(Debug, FromRow)]
pub(crate) struct AlertStateRow {
    alert_uid: Uuid,
    version: i64,
    state: String,
}

impl From<AlertStateRow> for Remembered {
    fn from(row: AlertStateRow) -> Self {
        let AlertStateRow { alert_uid: alert, version, state } = row;
        let state = parse("state", &state).unwrap_or_else(|(_, error)| {
            tracing::error!(%alert, version, error, "what is remembered of an alert cannot be read; it begins anew");
            let error = format!("what was remembered of this alert cannot be read, so it begins anew: {error}");
            // Each message was a write: no number that was used is used again.
            State { made: u64::try_from(version).unwrap_or_default(), error, ..State::default() }
        });
        Self { alert, version, state }
    }
}
