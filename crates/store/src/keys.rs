//! API keys: made and ended by operators, read by every process that checks keys.
//!
//! Invariant: no secret comes here, only its hash. Not here: what a key may do, and whether a text is the key.

use async_trait::async_trait;

use crate::StoreError;
use crate::plan::Audit;

/// An API key as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// The public part of its text.
    pub id: String,
    /// Who it is for; stands in the audit log.
    pub name: String,
    /// The only namespace that it reaches; none for all.
    pub namespace: Option<String>,
    /// What it may do, in words.
    pub scopes: Vec<String>,
    /// SHA-256 of its secret part.
    pub hash: [u8; 32],
    /// For people.
    pub note: String,
    /// When it was made.
    pub created_us: i64,
    /// When it ends by itself.
    pub expires_us: Option<i64>,
    /// When it was ended.
    pub revoked_us: Option<i64>,
}

impl ApiKey {
    /// Whether it is good at this moment.
    pub fn is_live(&self, now_us: i64) -> bool {
        self.revoked_us.is_none() && self.expires_us.is_none_or(|expires_us| expires_us > now_us)
    }
}

/// The keys' part of a store.
#[async_trait]
pub trait KeyStore: Send + Sync {
    /// Keeps a new key, unless `live_max` keys of its name are good when it is made.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] where there are `live_max` already, where one of them reaches another namespace, and for a
    /// taken id.
    async fn create_key(&self, key: &ApiKey, live_max: usize, audit: Audit) -> Result<(), StoreError>;
    /// Ends a key; one that has ended already stays as it is, and nothing is recorded. The key as it is then.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn revoke_key(&self, id: &str, at_us: i64, audit: Audit) -> Result<ApiKey, StoreError>;
    /// All keys, also those that have ended, by name and age.
    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError>;
    /// The keys that are good at this moment, oldest first. A row that is corrupt is no key, and is left out.
    async fn live_keys(&self, now_us: i64) -> Result<Vec<ApiKey>, StoreError>;
}

/// Whether a key may join those of its name that are good.
pub(crate) fn judge_new(key: &ApiKey, live: &[ApiKey], live_max: usize) -> Result<(), StoreError> {
    let named = |keys: &[ApiKey]| keys.iter().map(|key| key.id.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(other) = live.iter().find(|other| other.namespace != key.namespace) {
        let place = |key: &ApiKey| match &key.namespace {
            Some(namespace) => format!("the namespace {namespace}"),
            None => "all namespaces".to_owned(),
        };
        let what = format!(
            "{} has a live key ({}) for {}, and this one would be for {}; a name means one caller",
            key.name,
            other.id,
            place(other),
            place(key)
        );
        return Err(StoreError::Conflict { what });
    }
    if live.len() >= live_max {
        let what =
            format!("{} has {} live keys already ({}); revoke one first", key.name, live.len(), named(live));
        return Err(StoreError::Conflict { what });
    }
    Ok(())
}
