//! API keys.

use async_trait::async_trait;
use futures::FutureExt as _;

use super::{Ask, Driver, Engine, Tx, Whom, sql};
use crate::StoreError;
use crate::failure::Failure;
use crate::keys::{ApiKey, KeyStore, judge_new};
use crate::plan::Audit;
use crate::rows::{AuditRow, KeyRecord, all, sound};

#[async_trait]
impl<D: Driver> KeyStore for D {
    async fn create_key(&self, key: &ApiKey, live_max: usize, audit: Audit) -> Result<(), StoreError> {
        let (key, audit) = (key.clone(), AuditRow::new(&audit)?);
        self.run_tx(Whom::People, "create_key", move |mut tx| {
            let (key, audit) = (key.clone(), audit.clone());
            async move { create(&mut tx, &key, live_max, audit).await }.boxed()
        })
        .await
    }

    async fn revoke_key(&self, id: &str, at_us: i64, audit: Audit) -> Result<ApiKey, StoreError> {
        let (id, audit) = (id.to_owned(), AuditRow::new(&audit)?);
        self.run_tx(Whom::People, "revoke_key", move |mut tx| {
            let (id, audit) = (id.clone(), audit.clone());
            async move {
                if tx.execute(Ask::new(sql!("keys_revoke")).bind(&*id).bind(at_us)).await? > 0 {
                    note(&mut tx, audit).await?;
                }
                let row = tx.rows::<KeyRecord>(Ask::new(sql!("keys_get")).bind(&*id)).await?.pop();
                let row = row.ok_or_else(|| StoreError::NotFound { what: format!("key {id}") })?;
                Ok(ApiKey::try_from(row)?)
            }
            .boxed()
        })
        .await
    }

    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        let ask = Ask::new(sql!("keys_list")).anew();
        all(self.rows::<KeyRecord>(Whom::People, ask).await?)
    }

    async fn live_keys(&self, now_us: i64) -> Result<Vec<ApiKey>, StoreError> {
        let ask = Ask::new(sql!("keys_live")).bind(now_us).bind(None::<String>);
        let (keys, found) = sound(None, self.rows::<KeyRecord>(Whom::Roles, ask).await?);
        self.corruption().also(("api keys", String::new()), found);
        Ok(keys)
    }
}

async fn create<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    key: &ApiKey,
    live_max: usize,
    audit: AuditRow,
) -> Result<(), Failure> {
    tx.execute(Ask::new(sql!("keys_lock"))).await?;
    let live = Ask::new(sql!("keys_live")).anew().bind(key.created_us).bind(Some(key.name.clone()));
    let (live, _) = sound::<_, ApiKey>(None, tx.rows::<KeyRecord>(live).await?);
    judge_new(key, &live, live_max)?;
    insert(tx, &KeyRecord::from(key)).await?;
    note(tx, audit).await
}

async fn insert<DB: Engine>(tx: &mut Tx<'_, DB>, row: &KeyRecord) -> Result<(), Failure> {
    let ask = Ask::new(sql!("keys_insert")).set(std::slice::from_ref(row))?;
    match tx.execute(ask).await {
        Err(Failure::Sql(sqlx::Error::Database(error))) if error.is_unique_violation() => {
            Err(StoreError::Conflict { what: format!("there is a key {} already", row.id) }.into())
        }
        done => done.map(drop),
    }
}

async fn note<DB: Engine>(tx: &mut Tx<'_, DB>, audit: AuditRow) -> Result<(), Failure> {
    tx.execute(Ask::new(sql!("audit_insert")).set(&[audit])?).await.map(drop)
}
