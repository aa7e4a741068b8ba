//! API keys.

use async_trait::async_trait;
use futures::FutureExt as _;
use sqlx::SqliteConnection;

use super::Sqlite;
use crate::StoreError;
use crate::failure::Failure;
use crate::keys::{ApiKey, KeyStore, judge_new};
use crate::plan::Audit;
use crate::rows::{AuditRow, KeyRecord, all, json, sound};

#[async_trait]
impl KeyStore for Sqlite {
    async fn create_key(&self, key: &ApiKey, live_max: usize, audit: Audit) -> Result<(), StoreError> {
        let (key, audit) = (key.clone(), AuditRow::new(&audit)?);
        self.run_tx("create_key", move |connection| {
            let (key, audit) = (key.clone(), audit.clone());
            async move {
                sqlx::query(sql!("keys_lock")).execute(&mut *connection).await?;
                let live = sqlx::query_as::<_, KeyRecord>(sql!("keys_live"));
                let live = live.bind(key.created_us).bind(Some(key.name.clone()));
                let (live, _) = sound::<_, ApiKey>(None, live.fetch_all(&mut *connection).await?);
                judge_new(&key, &live, live_max)?;
                insert(connection, KeyRecord::from(&key)).await?;
                note(connection, audit).await
            }
            .boxed()
        })
        .await
    }

    async fn revoke_key(&self, id: &str, at_us: i64, audit: Audit) -> Result<ApiKey, StoreError> {
        let (id, audit) = (id.to_owned(), AuditRow::new(&audit)?);
        self.run_tx("revoke_key", move |connection| {
            let (id, audit) = (id.clone(), audit.clone());
            async move {
                let revoked = sqlx::query(sql!("keys_revoke")).bind(id.clone()).bind(at_us);
                if revoked.execute(&mut *connection).await?.rows_affected() > 0 {
                    note(&mut *connection, audit).await?;
                }
                let query = sqlx::query_as::<_, KeyRecord>(sql!("keys_get")).bind(id.clone());
                let row = query.fetch_optional(connection).await?;
                let row = row.ok_or_else(|| StoreError::NotFound { what: format!("key {id}") })?;
                Ok(ApiKey::try_from(row)?)
            }
            .boxed()
        })
        .await
    }

    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        let query = sqlx::query_as::<_, KeyRecord>(sql!("keys_list"));
        all(self.judge(query.fetch_all(&self.people).await)?)
    }

    async fn live_keys(&self, now_us: i64) -> Result<Vec<ApiKey>, StoreError> {
        let query = sqlx::query_as::<_, KeyRecord>(sql!("keys_live")).bind(now_us).bind(None::<String>);
        let (keys, found) = sound(None, self.judge(query.fetch_all(&self.readers).await)?);
        self.corruption.also(("api keys", String::new()), found);
        Ok(keys)
    }
}

async fn insert(connection: &mut SqliteConnection, row: KeyRecord) -> Result<(), Failure> {
    let id = row.id.clone();
    let query = sqlx::query(sql!("keys_insert"))
        .bind(row.id)
        .bind(row.name)
        .bind(row.namespace)
        .bind(row.scopes)
        .bind(row.hash)
        .bind(row.note)
        .bind(row.created_us)
        .bind(row.expires_us);
    match query.execute(connection).await {
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
            Err(StoreError::Conflict { what: format!("there is a key {id} already") }.into())
        }
        done => Ok(done.map(drop)?),
    }
}

async fn note(connection: &mut SqliteConnection, audit: AuditRow) -> Result<(), Failure> {
    sqlx::query(sql!("audit_insert")).bind(json(&[audit])?).execute(connection).await?;
    Ok(())
}
