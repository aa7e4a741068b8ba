//! Alerts, and what is remembered of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use tollgate_core::model::{Alert, RunId};
use uuid::Uuid;

use super::{Ask, Driver, Engine, Tx, Whom, listed, only, own_sql, sql};
use crate::StoreError;
use crate::alert::{AlertStore, FinishedPage, Remembered};
use crate::batch::{Expected, PutAlert, judge_generations};
use crate::failure::Failure;
use crate::plan::Filter;
use crate::rows::{AlertRow, AlertStateRow, RunRow, all, json, sound, sound_page};

#[async_trait]
impl<D: Driver> AlertStore for D {
    async fn alert(&self, namespace: &str, id: &str) -> Result<Option<Alert>, StoreError> {
        Ok(self.alerts(namespace, &[id.to_owned()]).await?.pop())
    }

    async fn alerts(&self, namespace: &str, ids: &[String]) -> Result<Vec<Alert>, StoreError> {
        let ask = Ask::new(sql!("alerts_by_ids")).bind(namespace).set(ids)?;
        all(self.rows::<AlertRow>(Whom::People, ask).await?)
    }

    async fn list_alerts(
        &self,
        namespace: &str,
        filter: &Filter,
        after_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Alert>, StoreError> {
        let ask = listed(Ask::new(own_sql!("alerts_list")), namespace, filter, after_id, limit)?;
        let rows: Vec<AlertRow> = self.rows(Whom::People, ask).await?;
        let (mut page, found, rest) = sound_page(rows, limit, |row| row.id.clone(), |_| None);
        self.corruption().also(("alerts", namespace.to_owned()), found);
        if let Some((last, missing)) = rest {
            page.extend(self.list_alerts(namespace, filter, Some(&last), missing).await?);
        }
        Ok(page)
    }

    async fn alerts_count(&self, namespace: &str, up_to: u64) -> Result<u64, StoreError> {
        let ask =
            Ask::new(sql!("alerts_count")).bind(namespace).bind(i64::try_from(up_to).unwrap_or(i64::MAX));
        let (count,): (i64,) = only(self.rows(Whom::People, ask).await?)?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    async fn every_alert(
        &self,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<(Vec<Alert>, Option<Uuid>), StoreError> {
        let ask = Ask::new(sql!("alerts_every")).bind(after.unwrap_or_default()).bind(i64::from(limit));
        let rows: Vec<AlertRow> = self.rows(Whom::Roles, ask).await?;
        let next = rows.last().filter(|_| rows.len() >= limit as usize).map(|row| row.uid);
        let (alerts, found) = sound(None, rows);
        self.corruption().also(("alerts", String::new()), found);
        Ok((alerts, next))
    }

    async fn alerts_mark(&self) -> Result<i64, StoreError> {
        let (changes,): (i64,) = only(self.rows(Whom::Roles, Ask::new(sql!("alerts_mark"))).await?)?;
        Ok(changes)
    }

    async fn replace_alert(&self, old: &Alert, new: &Alert) -> Result<bool, StoreError> {
        let (uid, old, new) = (old.uid, json(old)?, json(new)?);
        self.run_tx(Whom::People, "replace_alert", move |mut tx| {
            let ask = Ask::new(sql!("alerts_replace")).bind(uid).bind(new.clone()).bind(old.clone());
            async move {
                D::before_secrets_go(&mut tx).await?;
                alerts_changed(&mut tx).await?;
                Ok(tx.execute(ask).await? == 1)
            }
            .boxed()
        })
        .await
    }

    async fn alert_states(&self, alerts: &[Uuid]) -> Result<Vec<Remembered>, StoreError> {
        if alerts.is_empty() {
            return Ok(Vec::new());
        }
        let ask = Ask::new(sql!("alert_states_list")).set(alerts)?;
        let rows: Vec<AlertStateRow> = self.rows(Whom::Roles, ask).await?;
        Ok(rows.into_iter().map(Remembered::from).collect())
    }

    async fn write_alert_state(&self, remembered: &Remembered) -> Result<bool, StoreError> {
        let (alert, version) = (remembered.alert, remembered.version);
        let state: Arc<str> = json(&remembered.state)?.into();
        self.run_tx(Whom::Roles, "write_alert_state", move |mut tx| {
            let state = state.to_string();
            let ask = if version == 0 {
                Ask::new(sql!("alert_states_insert")).bind(alert).bind(state)
            } else {
                Ask::new(sql!("alert_states_update")).bind(alert).bind(state).bind(version)
            };
            async move { Ok(tx.execute(ask).await? == 1) }.boxed()
        })
        .await
    }

    async fn schedules_labelled(
        &self,
        namespace: &str,
        ids: &[String],
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, StoreError> {
        let ask = Ask::new(own_sql!("schedules_labelled")).bind(namespace).set(ids)?.bind(json(labels)?);
        let rows: Vec<(String,)> = self.rows(Whom::Roles, ask).await?;
        Ok(rows.into_iter().map(|(id,)| id).collect())
    }

    async fn runs_finished(
        &self,
        shard: u16,
        namespaces: &[String],
        (since_us, after): (i64, Option<RunId>),
        limit: u32,
    ) -> Result<FinishedPage, StoreError> {
        let ask = Ask::new(sql!("runs_finished"))
            .bind(i32::from(shard))
            .bind(since_us)
            .bind(after.map_or(Uuid::nil(), |run| run.0))
            .bind(i64::from(limit))
            .set(namespaces)?;
        let rows: Vec<RunRow> = self.rows(Whom::Roles, ask).await?;
        let last = rows.last().filter(|_| rows.len() >= limit as usize);
        let next = last.and_then(|row| Some((row.finished_us?, RunId(row.run_id))));
        let (runs, found) = sound(Some(shard), rows);
        self.corruption().also(("runs", format!("runs_finished {shard}")), found);
        Ok((runs, next))
    }
}

/// An alert is about to change. It comes before all that is locked for that, so that nobody waits for it who holds a lock.
pub(super) async fn alerts_changed<DB: Engine>(tx: &mut Tx<'_, DB>) -> Result<(), Failure> {
    tx.execute(Ask::new(sql!("alerts_changed"))).await.map(drop)
}

pub(super) async fn put_alert<DB: Engine>(tx: &mut Tx<'_, DB>, step: &PutAlert) -> Result<(), Failure> {
    let alert = std::slice::from_ref(&step.alert);
    if let Some(expected) = &step.expected {
        hold_alert(tx, expected).await?;
        tx.execute(Ask::new(sql!("alerts_update")).set(alert)?).await?;
    } else if tx.rows::<(Uuid,)>(Ask::new(sql!("alerts_insert")).set(alert)?).await?.is_empty() {
        return Err(StoreError::Conflict { what: format!("alert {:?} already exists", step.alert.id) }.into());
    }
    Ok(())
}

pub(super) async fn drop_alert<DB: Engine>(tx: &mut Tx<'_, DB>, expected: &Expected) -> Result<(), Failure> {
    hold_alert(tx, expected).await?;
    tx.execute(Ask::new(sql!("alert_states_delete")).bind(expected.uid)).await?;
    tx.execute(Ask::new(sql!("alerts_delete")).bind(expected.uid)).await?;
    Ok(())
}

async fn hold_alert<DB: Engine>(tx: &mut Tx<'_, DB>, expected: &Expected) -> Result<(), Failure> {
    let found: Vec<(Uuid, i64)> = tx.rows(Ask::new(sql!("alerts_lock")).bind(expected.uid)).await?;
    judge_generations([expected], &found)?;
    Ok(())
}
