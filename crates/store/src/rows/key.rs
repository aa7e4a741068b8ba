//! Rows of API keys.

use sqlx::FromRow;

use super::corrupt;
use crate::StoreError;
use crate::keys::ApiKey;

/// A row of `api_keys`.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct KeyRecord {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) scopes: String,
    pub(crate) hash: Vec<u8>,
    pub(crate) note: String,
    pub(crate) created_us: i64,
    pub(crate) expires_us: Option<i64>,
    pub(crate) revoked_us: Option<i64>,
}

impl From<&ApiKey> for KeyRecord {
    fn from(key: &ApiKey) -> Self {
        Self {
            id: key.id.clone(),
            name: key.name.clone(),
            namespace: key.namespace.clone(),
            scopes: key.scopes.join(","),
            hash: key.hash.to_vec(),
            note: super::text(&key.note),
            created_us: key.created_us,
            expires_us: key.expires_us,
            revoked_us: key.revoked_us,
        }
    }
}

impl TryFrom<KeyRecord> for ApiKey {
    type Error = StoreError;

    fn try_from(row: KeyRecord) -> Result<Self, StoreError> {
        let length = row.hash.len();
        let hash = <[u8; 32]>::try_from(row.hash).map_err(|_| ("hash", format!("{length} bytes, not 32")));
        Ok(Self {
            hash: hash.map_err(corrupt("api_keys", || format!("key {}", row.id)))?,
            id: row.id,
            name: row.name,
            namespace: row.namespace,
            scopes: row.scopes.split(',').filter(|scope| !scope.is_empty()).map(str::to_owned).collect(),
            note: row.note,
            created_us: row.created_us,
            expires_us: row.expires_us,
            revoked_us: row.revoked_us,
        })
    }
}
