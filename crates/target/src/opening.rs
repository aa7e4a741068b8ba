//! Opens what a delivery's target and payload keep sealed, for the time of one send.
//!
//! In: a delivery as its shard knows it. Out: the same with its secrets in clear, or what is in the way. A key that is
//! missing is named in the log once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::model::{AlertTarget, Delivery};
use tollgate_secrets::{Keys, SecretError, has_sealed};
use uuid::Uuid;

/// Opens deliveries.
#[derive(Debug, Default)]
pub(crate) struct Opener {
    keys: Arc<Keys>,
    /// Keys that the log has named as missing or wrong.
    named: Mutex<BTreeSet<String>>,
}

impl Opener {
    pub(crate) fn new(keys: Arc<Keys>) -> Self {
        Self { keys, named: Mutex::default() }
    }

    /// The delivery with its secrets in clear.
    pub(crate) fn open(&self, mut delivery: Delivery) -> Result<Delivery, SecretError> {
        if !has_sealed(&delivery.spec.target, &delivery.spec.payload) {
            return Ok(delivery);
        }
        let schedule = delivery.spec.schedule_uid;
        // The shard keeps the sealed one.
        let spec = Arc::make_mut(&mut delivery.spec);
        // The delivery has its own item.
        spec.payload.items = Arc::default();
        match self.keys.open_parts(schedule, &mut spec.target, &mut spec.payload) {
            Ok(()) => Ok(delivery),
            Err(error) => {
                self.log(&error);
                Err(error)
            }
        }
    }

    /// The target of an alert with its secrets in clear.
    pub(crate) fn open_alert(&self, alert: Uuid, target: &AlertTarget) -> Result<AlertTarget, SecretError> {
        let mut opened = target.clone();
        match self.keys.open_alert(alert, &mut opened) {
            Ok(()) => Ok(opened),
            Err(error) => {
                self.log(&error);
                Err(error)
            }
        }
    }

    fn log(&self, error: &SecretError) {
        let key = error.key().unwrap_or_default().to_owned();
        if self.named.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
            tracing::error!(%error, "events or messages cannot be sent: their secrets cannot be opened");
        }
    }
}
