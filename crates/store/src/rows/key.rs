//! Rows of API keys.

use super::batch::hexadecimal;
use super::corrupt;
use crate::StoreError;
use crate::columns::row;
use crate::keys::ApiKey;

row! {
    /// A row of `api_keys`.
    KeyRecord of "api_keys" {
        key {
            id: String,
        }
        fixed {
            name: String,
            namespace: Option<String>,
            scopes: String,
            #[serde(serialize_with = "hexadecimal")]
            hash: Vec<u8>,
            note: String,
            created_us: i64,
            expires_us: Option<i64>,
        }
        changing {
            revoked_us: Option<i64>,
        }
    }
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
