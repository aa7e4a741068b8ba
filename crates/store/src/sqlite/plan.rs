//! Schedules, policies and children.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use sqlx::SqliteConnection;
use tollgate_core::model::{Policy, Schedule, SkipReason};
use tollgate_core::plan::Notice;
use uuid::Uuid;

use super::Sqlite;
use crate::StoreError;
use crate::batch::{
    Batch, DropPolicy, Expected, PutPolicy, PutSchedules, Step, USERS_NAMED, judge_generations, judge_names,
    judge_policies, judge_users,
};
use crate::failure::Failure;
use crate::plan::{Audit, Filter, OutboxLane, OutboxPage, PlanStore, PlanWrite, StoredChild, Told};
use crate::rows::{
    AuditRow, ChildRow, CountRow, LaneRow, NoticeKey, NoticeRow, PolicyRow, Registry, ScheduleRow, Word as _,
    all, audit, id_range, json, message_rows, outbox_page, skipped_rows, sound, sound_page,
};

#[async_trait]
impl PlanStore for Sqlite {
    async fn write_plan(&self, writes: Vec<PlanWrite>) -> Result<(), StoreError> {
        let batch = Arc::new(Batch::new(writes)?);
        self.run_tx("write_plan", move |connection| {
            let batch = Arc::clone(&batch);
            async move { write(connection, &batch).await }.boxed()
        })
        .await
    }

    async fn schedule(&self, namespace: &str, id: &str) -> Result<Option<Schedule>, StoreError> {
        Ok(self.schedules(namespace, &[id.to_owned()]).await?.pop())
    }

    async fn schedules(&self, namespace: &str, ids: &[String]) -> Result<Vec<Schedule>, StoreError> {
        let query =
            sqlx::query_as::<_, ScheduleRow>(sql!("schedules_by_ids")).bind(namespace).bind(json(ids)?);
        all(self.judge(query.fetch_all(&self.people).await)?)
    }

    async fn list_schedules(
        &self,
        namespace: &str,
        filter: &Filter,
        after_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Schedule>, StoreError> {
        let (from, to) = id_range(filter.id_prefix.as_deref());
        let query = sqlx::query_as::<_, ScheduleRow>(sql!("schedules_list"))
            .bind(namespace)
            .bind(from)
            .bind(to)
            .bind(filter.paused)
            .bind(filter.labels_json()?)
            .bind(after_id)
            .bind(i64::from(limit))
            .bind(&filter.policy)
            .bind(&filter.time_zone);
        let rows = self.judge(query.fetch_all(&self.people).await)?;
        let (mut page, found, rest) = sound_page(rows, limit, |row| row.id.clone(), |_| None);
        self.corruption.also(("schedules", namespace.to_owned()), found);
        if let Some((last, missing)) = rest {
            page.extend(self.list_schedules(namespace, filter, Some(&last), missing).await?);
        }
        Ok(page)
    }

    async fn policy(&self, namespace: &str, id: &str) -> Result<Option<Policy>, StoreError> {
        Ok(self.policies(namespace, &[id.to_owned()]).await?.pop())
    }

    async fn policies(&self, namespace: &str, ids: &[String]) -> Result<Vec<Policy>, StoreError> {
        let query = sqlx::query_as::<_, PolicyRow>(sql!("policies_by_ids")).bind(namespace).bind(json(ids)?);
        all(self.judge(query.fetch_all(&self.people).await)?)
    }

    async fn list_policies(
        &self,
        namespace: &str,
        filter: &Filter,
        after_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Policy>, StoreError> {
        let (from, to) = id_range(filter.id_prefix.as_deref());
        let query = sqlx::query_as::<_, PolicyRow>(sql!("policies_list"))
            .bind(namespace)
            .bind(from)
            .bind(to)
            .bind(filter.paused)
            .bind(filter.labels_json()?)
            .bind(after_id)
            .bind(i64::from(limit));
        let rows = self.judge(query.fetch_all(&self.people).await)?;
        let (mut page, found, rest) = sound_page(rows, limit, |row| row.id.clone(), |_| None);
        self.corruption.also(("policies", namespace.to_owned()), found);
        if let Some((last, missing)) = rest {
            page.extend(self.list_policies(namespace, filter, Some(&last), missing).await?);
        }
        Ok(page)
    }

    async fn children(
        &self,
        schedule_uid: Uuid,
        after: Option<u32>,
        limit: u32,
    ) -> Result<Vec<StoredChild>, StoreError> {
        let query = sqlx::query_as::<_, ChildRow>(sql!("children_list"))
            .bind(schedule_uid)
            .bind(after.map_or(-1, i64::from))
            .bind(i64::from(limit));
        all(self.judge(query.fetch_all(&self.people).await)?)
    }

    async fn audit(
        &self,
        namespace: &str,
        resource: Option<&str>,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<Audit>, StoreError> {
        let statement = if resource.is_some() { sql!("audit_list_resource") } else { sql!("audit_list") };
        let query =
            sqlx::query_as::<_, AuditRow>(statement).bind(namespace).bind(before).bind(i64::from(limit));
        let query = if let Some(resource) = resource { query.bind(resource) } else { query };
        let (entries, found) = audit(self.judge(query.fetch_all(&self.people).await)?);
        self.corruption.also(("audit log", String::new()), found);
        Ok(entries)
    }

    async fn outbox_lanes(&self) -> Result<Vec<OutboxLane>, StoreError> {
        let query = sqlx::query_as::<_, LaneRow>(sql!("outbox_lanes"));
        let (lanes, found) = sound(None, self.judge(query.fetch_all(&self.readers).await)?);
        self.corruption.found(("outbox lanes", String::new()), found);
        Ok(lanes)
    }

    async fn outbox(
        &self,
        shard: u16,
        namespace: &str,
        after: Option<(i64, Uuid)>,
        limit: u32,
    ) -> Result<OutboxPage, StoreError> {
        let (after_us, after_uid) = after.unwrap_or((i64::MIN, Uuid::nil()));
        let query = sqlx::query_as::<_, NoticeRow>(sql!("outbox_page"))
            .bind(i32::from(shard))
            .bind(namespace)
            .bind(after_us)
            .bind(after_uid)
            .bind(i64::from(limit));
        let (page, found) = outbox_page(self.judge(query.fetch_all(&self.readers).await)?, limit);
        let (first, last) = (after.is_none(), page.next.is_none());
        self.corruption.page(("outbox", format!("{shard} {namespace}")), found, first, last);
        Ok(page)
    }

    async fn outbox_before(&self, told: &[(Uuid, i64)]) -> Result<Vec<Notice>, StoreError> {
        let query = sqlx::query_as::<_, NoticeRow>(sql!("outbox_before")).bind(json(&NoticeKey::of(told))?);
        // What cannot be read is named where its lane is.
        Ok(sound(None, self.judge(query.fetch_all(&self.readers).await)?).0)
    }

    async fn tell(&self, shard: u16, told: &[Told]) -> Result<u64, StoreError> {
        let told: Arc<[Told]> = Arc::from(told);
        self.run_tx("tell", move |connection| {
            let told = Arc::clone(&told);
            async move { tell(connection, shard, &told).await }.boxed()
        })
        .await
    }
}

async fn tell(connection: &mut SqliteConnection, shard: u16, told: &[Told]) -> Result<u64, Failure> {
    let keys = json(&NoticeKey::of_told(told))?;
    let query = sqlx::query_as::<_, (Uuid, i64)>(sql!("outbox_delete")).bind(keys);
    let gone: BTreeSet<(Uuid, i64)> = query.fetch_all(&mut *connection).await?.into_iter().collect();
    let told = || told.iter().filter(|one| gone.contains(&(one.schedule_uid, one.generation)));
    let messages = message_rows(told().filter_map(|one| one.message.as_ref()))?;
    if !messages.is_empty() {
        super::handle::insert_messages(connection, i32::from(shard), &messages).await?;
    }
    let mut skips = 0;
    for one in told() {
        if let Some((after_us, until_us)) = one.taken_back {
            sqlx::query(sql!("skipped_forget"))
                .bind(one.schedule_uid)
                .bind(after_us)
                .bind(until_us)
                .bind(SkipReason::Paused.word())
                .execute(&mut *connection)
                .await?;
        }
        super::emit::insert_skipped(connection, &skipped_rows(&one.skipped)).await?;
        skips += one.skipped.len() as u64;
    }
    Ok(skips)
}

async fn write(connection: &mut SqliteConnection, batch: &Batch) -> Result<(), Failure> {
    let mut registry = Registry::default();
    for step in &batch.steps {
        match step {
            Step::PutSchedules(step) => put_schedules(connection, step, &mut registry).await?,
            Step::DropSchedules(gone) => drop_schedules(connection, gone, &mut registry).await?,
            Step::PutPolicy(step) => put_policy(connection, step).await?,
            Step::DropPolicy(step) => drop_policy(connection, step).await?,
        }
    }
    write_registry(connection, registry).await?;
    if !batch.audit.is_empty() {
        let query = sqlx::query(sql!("audit_insert")).bind(json(&batch.audit)?);
        query.execute(&mut *connection).await?;
    }
    if !batch.outbox.is_empty() {
        let query = sqlx::query(sql!("outbox_insert")).bind(json(&batch.outbox)?);
        query.execute(connection).await?;
    }
    Ok(())
}

async fn put_schedules(
    connection: &mut SqliteConnection,
    step: &PutSchedules,
    registry: &mut Registry,
) -> Result<(), Failure> {
    let uids: Vec<Uuid> = step.expected.iter().map(|expected| expected.uid).collect();
    hold_schedules(connection, &step.expected, &uids).await?;
    if !step.policies.is_empty() {
        let wanted: Vec<Uuid> = step.policies.keys().copied().collect();
        let query = sqlx::query_scalar(sql!("policies_hold")).bind(json(&wanted)?);
        judge_policies(&step.policies, &query.fetch_all(&mut *connection).await?)?;
    }
    if !step.created.is_empty() {
        let query = sqlx::query_scalar(sql!("schedules_insert")).bind(json(&step.created)?);
        judge_names(&step.created, &query.fetch_all(&mut *connection).await?)?;
    }
    if !step.replaced.is_empty() {
        let query = sqlx::query(sql!("schedules_update")).bind(json(&step.replaced)?);
        query.execute(&mut *connection).await?;
        drop_children(connection, &uids, registry).await?;
    }
    registry.add(&step.children);
    let query = sqlx::query(sql!("children_insert")).bind(json(&step.children)?);
    query.execute(&mut *connection).await?;
    let query = sqlx::query(sql!("specs_insert")).bind(json(&step.specs)?);
    query.execute(connection).await?;
    Ok(())
}

async fn drop_schedules(
    connection: &mut SqliteConnection,
    gone: &[Expected],
    registry: &mut Registry,
) -> Result<(), Failure> {
    let uids: Vec<Uuid> = gone.iter().map(|expected| expected.uid).collect();
    hold_schedules(connection, gone, &uids).await?;
    drop_children(connection, &uids, registry).await?;
    sqlx::query(sql!("schedules_delete")).bind(json(&uids)?).execute(connection).await?;
    Ok(())
}

async fn hold_schedules(
    connection: &mut SqliteConnection,
    expected: &[Expected],
    uids: &[Uuid],
) -> Result<(), Failure> {
    if !uids.is_empty() {
        let query = sqlx::query_as::<_, (Uuid, i64)>(sql!("schedules_lock")).bind(json(&uids)?);
        judge_generations(expected, &query.fetch_all(connection).await?)?;
    }
    Ok(())
}

async fn drop_children(
    connection: &mut SqliteConnection,
    uids: &[Uuid],
    registry: &mut Registry,
) -> Result<(), Failure> {
    let query = sqlx::query_as::<_, CountRow>(sql!("children_count")).bind(json(&uids)?);
    registry.remove(query.fetch_all(&mut *connection).await?);
    sqlx::query(sql!("children_delete")).bind(json(&uids)?).execute(connection).await?;
    Ok(())
}

async fn write_registry(connection: &mut SqliteConnection, registry: Registry) -> Result<(), Failure> {
    let (differences, smaller) = registry.into_rows();
    if !differences.is_empty() {
        let query = sqlx::query(sql!("registry_add")).bind(json(&differences)?);
        query.execute(&mut *connection).await?;
    }
    if !smaller.is_empty() {
        let query = sqlx::query(sql!("registry_drop")).bind(json(&smaller)?);
        query.execute(connection).await?;
    }
    Ok(())
}

async fn put_policy(connection: &mut SqliteConnection, step: &PutPolicy) -> Result<(), Failure> {
    let policy = &step.policy;
    if let Some(expected) = &step.expected {
        hold_policy(connection, expected).await?;
        sqlx::query(sql!("policies_update"))
            .bind(policy.uid)
            .bind(&policy.spec)
            .bind(policy.paused)
            .bind(&policy.labels)
            .bind(policy.generation)
            .bind(policy.updated_us)
            .execute(&mut *connection)
            .await?;
    } else {
        let inserted = sqlx::query_scalar::<_, Uuid>(sql!("policies_insert"))
            .bind(policy.uid)
            .bind(&policy.namespace)
            .bind(&policy.id)
            .bind(&policy.spec)
            .bind(policy.shard)
            .bind(policy.paused)
            .bind(&policy.labels)
            .bind(policy.generation)
            .bind(policy.updated_us)
            .fetch_optional(&mut *connection)
            .await?;
        if inserted.is_none() {
            let what = format!("policy {:?} already exists", policy.id);
            return Err(StoreError::Conflict { what }.into());
        }
    }
    super::handle::insert_messages(connection, step.shard, &step.messages).await.map(drop)
}

async fn drop_policy(connection: &mut SqliteConnection, step: &DropPolicy) -> Result<(), Failure> {
    hold_policy(connection, &step.expected).await?;
    let users = sqlx::query_scalar(sql!("policies_users"))
        .bind(step.expected.uid)
        .bind(USERS_NAMED as i64 + 1)
        .fetch_all(&mut *connection)
        .await?;
    judge_users(&step.expected, &users)?;
    sqlx::query(sql!("policies_delete")).bind(step.expected.uid).execute(&mut *connection).await?;
    super::handle::insert_messages(connection, step.shard, &step.messages).await.map(drop)
}

async fn hold_policy(connection: &mut SqliteConnection, expected: &Expected) -> Result<(), Failure> {
    let query = sqlx::query_as::<_, (Uuid, i64)>(sql!("policies_lock")).bind(expected.uid);
    let found = query.fetch_optional(connection).await?;
    judge_generations([expected], found.as_slice())?;
    Ok(())
}
