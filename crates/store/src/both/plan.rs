//! Schedules, policies and children; the audit log and the outbox.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::FutureExt as _;
use tollgate_core::handle::control::Message;
use tollgate_core::model::{Policy, Predecessor, Schedule, SkipReason};
use tollgate_core::plan::Notice;
use tollgate_core::plan::done::RunsLeft;
use uuid::Uuid;

use super::alert::{alerts_changed, drop_alert, put_alert};
use super::by_hand::ByHandRows;
use super::calendar::{drop_calendar, hold_calendars, link, put_calendar};
use super::revision::revise;
use super::{
    Ask, Driver, Engine, Tx, Whom, forget_skipped, hold_policies, insert_messages, insert_skipped, listed,
    own_sql, sql, tree,
};
use crate::StoreError;
use crate::batch::{
    BatchStep, Expected, PlanBatch, PutPolicy, PutSchedules, USERS_NAMED, judge_held, judge_names,
    judge_nexts, judge_policies, judge_users,
};
use crate::failure::Failure;
use crate::plan::{
    Audit, AuditFilter, ByHand, DonePage, Filter, OutboxLane, OutboxPage, PlanStore, PlanWrite, Request,
    StoredChild, Told,
};
use crate::rows::{
    AuditRow, ChildRow, CountRow, DoneRow, LaneRow, NoticeKey, NoticeRow, PolicyRow, Registry, RequestRow,
    ScheduleRow, all, audit, done_page, message_rows, outbox_page, skipped_rows, sound, sound_page,
};

#[async_trait]
impl<D: Driver> PlanStore for D {
    async fn write_plan(&self, writes: Vec<PlanWrite>) -> Result<(), StoreError> {
        let batch = Arc::new(PlanBatch::new(writes)?);
        self.run_tx(Whom::People, "write_plan", move |mut tx| {
            let batch = Arc::clone(&batch);
            async move {
                let faults = write(&mut tx, &batch).await?;
                faults.into_iter().next().map_or(Ok(()), |(_, fault)| Err(fault.into()))
            }
            .boxed()
        })
        .await
    }

    async fn schedule(&self, namespace: &str, id: &str) -> Result<Option<Schedule>, StoreError> {
        Ok(self.schedules(namespace, &[id.to_owned()]).await?.pop())
    }

    async fn schedules(&self, namespace: &str, ids: &[String]) -> Result<Vec<Schedule>, StoreError> {
        let ask = Ask::new(sql!("schedules_by_ids")).bind(namespace).set(ids)?;
        all(self.rows::<ScheduleRow>(Whom::People, ask).await?)
    }

    async fn list_schedules(
        &self,
        namespace: &str,
        filter: &Filter,
        after_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Schedule>, StoreError> {
        let ask = listed(Ask::new(own_sql!("schedules_list")), namespace, filter, after_id, limit)?
            .bind(filter.policy.clone())
            .bind(filter.time_zone.clone());
        let rows: Vec<ScheduleRow> = self.rows(Whom::People, ask).await?;
        let (mut page, found, rest) = sound_page(rows, limit, |row| row.id.clone(), |_| None);
        self.corruption().also(("schedules", namespace.to_owned()), found);
        if let Some((last, missing)) = rest {
            page.extend(self.list_schedules(namespace, filter, Some(&last), missing).await?);
        }
        Ok(page)
    }

    async fn places_before(&self, namespace: &str, id: &str) -> Result<u32, StoreError> {
        let places_max = i64::from(Predecessor::PLACES_MAX);
        let ask = Ask::new(sql!("schedules_before")).bind(namespace).bind(id.to_owned()).bind(places_max);
        let rows: Vec<(i64,)> = self.rows(Whom::People, ask).await?;
        Ok(rows.first().map_or(0, |(places,)| u32::try_from(*places).unwrap_or(u32::MAX)))
    }

    async fn followed_by(&self, namespace: &str, id: &str, limit: u32) -> Result<Vec<String>, StoreError> {
        let ask = Ask::new(sql!("schedules_into")).bind(namespace).bind(id.to_owned()).bind(i64::from(limit));
        let rows: Vec<(String,)> = self.rows(Whom::People, ask).await?;
        Ok(rows.into_iter().map(|(id,)| id).collect())
    }

    async fn policy(&self, namespace: &str, id: &str) -> Result<Option<Policy>, StoreError> {
        Ok(self.policies(namespace, &[id.to_owned()]).await?.pop())
    }

    async fn policies(&self, namespace: &str, ids: &[String]) -> Result<Vec<Policy>, StoreError> {
        let ask = Ask::new(sql!("policies_by_ids")).bind(namespace).set(ids)?;
        all(self.rows::<PolicyRow>(Whom::People, ask).await?)
    }

    async fn policy_adopting(&self, namespace: &str) -> Result<Option<Policy>, StoreError> {
        let ask = Ask::new(sql!("policies_adopting")).bind(namespace);
        Ok(all(self.rows::<PolicyRow>(Whom::People, ask).await?)?.pop())
    }

    async fn rehearse(&self, writes: Vec<PlanWrite>) -> Result<Vec<(Uuid, StoreError)>, StoreError> {
        let batch = Arc::new(PlanBatch::new(writes)?);
        let found = Arc::new(Mutex::new(None));
        let told = Arc::clone(&found);
        let outcome: Result<(), StoreError> = self
            .run_tx(Whom::People, "rehearse", move |mut tx| {
                let (batch, told) = (Arc::clone(&batch), Arc::clone(&told));
                async move {
                    let faults = write(&mut tx, &batch).await?;
                    *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(faults);
                    // Nothing of it stays.
                    Err(StoreError::Internal("a rehearsal writes nothing".to_owned()).into())
                }
                .boxed()
            })
            .await;
        let found = found.lock().unwrap_or_else(PoisonError::into_inner).take();
        found.map_or_else(|| outcome.map(|()| Vec::new()), Ok)
    }

    async fn list_policies(
        &self,
        namespace: &str,
        filter: &Filter,
        after_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Policy>, StoreError> {
        let ask = listed(Ask::new(own_sql!("policies_list")), namespace, filter, after_id, limit)?;
        let rows: Vec<PolicyRow> = self.rows(Whom::People, ask).await?;
        let (mut page, found, rest) = sound_page(rows, limit, |row| row.id.clone(), |_| None);
        self.corruption().also(("policies", namespace.to_owned()), found);
        if let Some((last, missing)) = rest {
            page.extend(self.list_policies(namespace, filter, Some(&last), missing).await?);
        }
        Ok(page)
    }

    async fn list_namespaces(&self, after: Option<&str>, limit: u32) -> Result<Vec<String>, StoreError> {
        let ask = Ask::new(sql!("namespaces_list"))
            .bind(after.unwrap_or_default().to_owned())
            .bind(i64::from(limit));
        let rows: Vec<(String,)> = self.rows(Whom::People, ask).await?;
        Ok(rows.into_iter().map(|(namespace,)| namespace).collect())
    }

    async fn children(
        &self,
        schedule_uid: Uuid,
        after: Option<u32>,
        limit: u32,
    ) -> Result<Vec<StoredChild>, StoreError> {
        let ask = Ask::new(sql!("children_list"))
            .bind(schedule_uid)
            .bind(after.map_or(-1, i64::from))
            .bind(i64::from(limit));
        all(self.rows::<ChildRow>(Whom::People, ask).await?)
    }

    async fn audit(
        &self,
        namespace: &str,
        filter: &AuditFilter,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<Audit>, StoreError> {
        let statement =
            if filter.resource.is_some() { sql!("audit_list_resource") } else { sql!("audit_list") };
        let ask = Ask::new(statement)
            .anew()
            .bind(namespace)
            .bind(before)
            .bind(i64::from(limit))
            .bind(filter.actor.clone())
            .bind(filter.from_us.unwrap_or(i64::MIN))
            .bind(filter.to_us.unwrap_or(i64::MAX));
        let ask = if let Some(resource) = &filter.resource { ask.bind(resource.clone()) } else { ask };
        let (entries, found) = audit(self.rows::<AuditRow>(Whom::People, ask).await?);
        self.corruption().also(("audit log", String::new()), found);
        Ok(entries)
    }

    async fn schedules_done(
        &self,
        now_us: i64,
        after: Option<(i64, Uuid)>,
        limit: u32,
    ) -> Result<DonePage, StoreError> {
        let (after_us, after_uid) = after.unwrap_or((i64::MIN, Uuid::nil()));
        let ask = Ask::new(sql!("schedules_done"))
            .bind(now_us)
            .bind(after_us)
            .bind(after_uid)
            .bind(i64::from(limit));
        let (page, found) = done_page(self.rows::<DoneRow>(Whom::Roles, ask).await?, limit);
        self.corruption().also(("schedules", "those that may be done".to_owned()), found);
        Ok(page)
    }

    async fn put_off(&self, schedules: &[(Uuid, i64, Option<i64>)]) -> Result<(), StoreError> {
        let schedules: Arc<[_]> = Arc::from(schedules);
        self.run_tx(Whom::Roles, "put_off", move |mut tx| {
            let schedules = Arc::clone(&schedules);
            async move {
                for (uid, generation, done_us) in schedules.iter() {
                    let ask = Ask::new(sql!("schedules_put_off")).bind(*uid).bind(*generation).bind(*done_us);
                    tx.execute(ask).await?;
                }
                Ok(())
            }
            .boxed()
        })
        .await
    }

    async fn runs_left(&self, schedules: &[Uuid]) -> Result<BTreeMap<Uuid, RunsLeft>, StoreError> {
        let ask = Ask::new(sql!("runs_left")).set(schedules)?;
        let rows: Vec<(Uuid, i64, Option<i64>)> = self.rows(Whom::Roles, ask).await?;
        let left = |(uid, unfinished, last_finished_us)| {
            (uid, RunsLeft { unfinished: u64::try_from(unfinished).unwrap_or_default(), last_finished_us })
        };
        Ok(rows.into_iter().map(left).collect())
    }

    async fn emit_by_hand(&self, by_hand: ByHand) -> Result<Option<u32>, StoreError> {
        let rows = Arc::new(ByHandRows::new(by_hand)?);
        self.run_tx(Whom::Roles, "emit_by_hand", move |mut tx| {
            let rows = Arc::clone(&rows);
            async move { rows.write(&mut tx).await }.boxed()
        })
        .await
    }

    async fn request(&self, schedule_uid: Uuid, id: &str) -> Result<Option<Request>, StoreError> {
        let ask = Ask::new(sql!("requests_get")).bind(schedule_uid).bind(id.to_owned());
        let rows: Vec<RequestRow> = self.rows(Whom::Roles, ask).await?;
        Ok(rows.into_iter().next().map(Request::from))
    }

    async fn outbox_lanes(&self) -> Result<Vec<OutboxLane>, StoreError> {
        let rows: Vec<LaneRow> = self.rows(Whom::Roles, Ask::new(sql!("outbox_lanes"))).await?;
        let (lanes, found) = sound(None, rows);
        self.corruption().found(("outbox lanes", String::new()), found);
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
        let ask = Ask::new(sql!("outbox_page"))
            .bind(i32::from(shard))
            .bind(namespace)
            .bind(after_us)
            .bind(after_uid)
            .bind(i64::from(limit));
        let (page, found) = outbox_page(self.rows::<NoticeRow>(Whom::Roles, ask).await?, limit);
        let (first, last) = (after.is_none(), page.next.is_none());
        self.corruption().page(("outbox", format!("{shard} {namespace}")), found, first, last);
        Ok(page)
    }

    async fn outbox_before(&self, told: &[(Uuid, i64)]) -> Result<Vec<Notice>, StoreError> {
        let ask = Ask::new(sql!("outbox_before")).set(&NoticeKey::of(told))?;
        // What cannot be read is named where its lane is.
        Ok(sound(None, self.rows::<NoticeRow>(Whom::Roles, ask).await?).0)
    }

    async fn tell(&self, told: &[Told]) -> Result<u64, StoreError> {
        let told: Arc<[Told]> = Arc::from(told);
        self.run_tx(Whom::Roles, "tell", move |mut tx| {
            let told = Arc::clone(&told);
            async move { tell(&mut tx, &told).await }.boxed()
        })
        .await
    }
}

async fn tell<DB: Engine>(tx: &mut Tx<'_, DB>, told: &[Told]) -> Result<u64, Failure> {
    let ask = Ask::new(sql!("outbox_delete")).set(&NoticeKey::of_told(told))?;
    let gone: BTreeSet<(Uuid, i64)> = tx.rows(ask).await?.into_iter().collect();
    let told = || told.iter().filter(|one| gone.contains(&(one.uid, one.generation)));
    let mut inboxes: BTreeMap<u16, Vec<&Message>> = BTreeMap::new();
    for (shard, message) in told().filter_map(|one| Some((one.shard, one.message.as_ref()?))) {
        inboxes.entry(shard).or_default().push(message);
    }
    for (shard, messages) in inboxes {
        insert_messages(tx, i32::from(shard), &message_rows(messages)?).await?;
    }
    let mut skips = 0;
    for one in told() {
        if let Some((after_us, until_us)) = one.taken_back {
            forget_skipped(tx, one.uid, SkipReason::Paused, (after_us, until_us)).await?;
        }
        insert_skipped(tx, &skipped_rows(&one.skipped)).await?;
        skips += one.skipped.len() as u64;
    }
    Ok(skips)
}

/// Carries out writes. What is wrong with the places of policies in their trees, once all of them stand.
async fn write<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    batch: &PlanBatch,
) -> Result<Vec<(Uuid, StoreError)>, Failure> {
    let (mut placed, mut faults) = (Vec::new(), Vec::new());
    let mut registry = Registry::default();
    let is_of_alert = |step: &BatchStep| matches!(step, BatchStep::PutAlert(_) | BatchStep::DropAlert(_));
    if batch.steps.iter().any(is_of_alert) {
        alerts_changed(tx).await?;
    }
    revise(tx, &batch.revisions).await?;
    hold_calendars(tx, &batch.calendars).await?;
    for step in &batch.steps {
        match step {
            BatchStep::PutSchedules(step) => put_schedules(tx, step, &mut registry).await?,
            BatchStep::DropSchedules(gone) => drop_schedules(tx, gone, &mut registry).await?,
            BatchStep::PutPolicy(step) => {
                let mut place = tree::place_of(tx, &step.wanted, step.expected.is_some()).await?;
                match place.is_second.take() {
                    Some(fault) => faults.push((step.wanted.uid, fault)),
                    None => {
                        put_policy(tx, step).await?;
                        placed.push(place);
                    }
                }
            }
            BatchStep::DropPolicy(expected) => drop_policy(tx, expected).await?,
            BatchStep::PutCalendar(step) => put_calendar(tx, step).await?,
            BatchStep::DropCalendar(expected) => drop_calendar(tx, expected).await?,
            BatchStep::PutAlert(step) => put_alert(tx, step).await?,
            BatchStep::DropAlert(expected) => drop_alert(tx, expected).await?,
        }
    }
    write_registry(tx, registry).await?;
    if !batch.audit.is_empty() {
        tx.execute(Ask::new(sql!("audit_insert")).set(&batch.audit)?).await?;
    }
    if !batch.outbox.is_empty() {
        tx.execute(Ask::new(sql!("outbox_insert")).set(&batch.outbox)?).await?;
    }
    for place in placed {
        let fault = tree::fault_of(tx, &place).await?;
        faults.extend(fault.map(|fault| (place.policy.uid, fault)));
    }
    Ok(faults)
}

async fn put_schedules<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    step: &PutSchedules,
    registry: &mut Registry,
) -> Result<(), Failure> {
    let uids: Vec<Uuid> = step.expected.iter().map(|expected| expected.uid).collect();
    hold_schedules(tx, &step.expected, &uids).await?;
    if !step.policies.is_empty() {
        let wanted: Vec<Uuid> = step.policies.keys().copied().collect();
        judge_policies(&step.policies, &hold_policies(tx, &wanted).await?)?;
    }
    if !step.created.is_empty() {
        let named: Vec<(Uuid,)> = tx.rows(Ask::new(sql!("schedules_insert")).set(&step.created)?).await?;
        judge_names(&step.created, &uids_of(named))?;
    }
    if !step.replaced.is_empty() {
        tx.execute(Ask::new(sql!("schedules_update")).set(&step.replaced)?).await?;
        drop_children(tx, &uids, registry).await?;
    }
    for (namespace, nexts) in &step.nexts {
        let wanted: Vec<String> = nexts.iter().cloned().collect();
        let ask = Ask::new(sql!("schedules_next")).bind(namespace.clone()).set(&wanted)?;
        let found: Vec<(String,)> = tx.rows(ask).await?;
        judge_nexts(nexts, &found.into_iter().map(|(id,)| id).collect::<Vec<_>>())?;
    }
    registry.add(&step.children);
    tx.execute(Ask::new(sql!("children_insert")).set(&step.children)?).await?;
    tx.execute(Ask::new(sql!("specs_insert")).set(&step.specs)?).await?;
    link(tx, &uids, &step.links).await
}

async fn drop_schedules<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    gone: &[Expected],
    registry: &mut Registry,
) -> Result<(), Failure> {
    let uids: Vec<Uuid> = gone.iter().map(|expected| expected.uid).collect();
    hold_schedules(tx, gone, &uids).await?;
    let named_max = i64::try_from(USERS_NAMED + 1).unwrap_or(i64::MAX);
    let ask = Ask::new(sql!("schedules_followed")).set(&uids)?.bind(named_max);
    let followed: Vec<(Uuid, String)> = tx.rows(ask).await?;
    for expected in gone {
        let before = followed.iter().filter(|(uid, _)| *uid == expected.uid).map(|(_, id)| id.clone());
        judge_users(expected, "follows the schedules", &before.collect::<Vec<_>>())?;
    }
    drop_children(tx, &uids, registry).await?;
    tx.execute(Ask::new(sql!("schedules_delete")).set(&uids)?).await?;
    link(tx, &uids, &[]).await
}

async fn hold_schedules<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    expected: &[Expected],
    uids: &[Uuid],
) -> Result<(), Failure> {
    if !uids.is_empty() {
        let found: Vec<(Uuid, i64, i32)> = tx.rows(Ask::new(sql!("schedules_lock")).set(uids)?).await?;
        judge_held(expected, &found)?;
    }
    Ok(())
}

async fn drop_children<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    uids: &[Uuid],
    registry: &mut Registry,
) -> Result<(), Failure> {
    let counts: Vec<CountRow> = tx.rows(Ask::new(sql!("children_count")).set(uids)?).await?;
    registry.remove(counts);
    tx.execute(Ask::new(sql!("children_delete")).set(uids)?).await?;
    Ok(())
}

async fn write_registry<DB: Engine>(tx: &mut Tx<'_, DB>, registry: Registry) -> Result<(), Failure> {
    let (differences, smaller) = registry.into_rows();
    if !differences.is_empty() {
        tx.execute(Ask::new(sql!("registry_add")).set(&differences)?).await?;
    }
    if !smaller.is_empty() {
        tx.execute(Ask::new(sql!("registry_drop")).set(&smaller)?).await?;
    }
    Ok(())
}

fn uids_of(rows: Vec<(Uuid,)>) -> Vec<Uuid> {
    rows.into_iter().map(|(uid,)| uid).collect()
}

async fn put_policy<DB: Engine>(tx: &mut Tx<'_, DB>, step: &PutPolicy) -> Result<(), Failure> {
    let policy = std::slice::from_ref(&step.policy);
    if let Some(expected) = &step.expected {
        hold_policy(tx, expected).await?;
        tx.execute(Ask::new(sql!("policies_update")).set(policy)?).await?;
    } else if tx.rows::<(Uuid,)>(Ask::new(sql!("policies_insert")).set(policy)?).await?.is_empty() {
        let what = format!("policy {:?} already exists", step.policy.id);
        return Err(StoreError::Conflict { what }.into());
    }
    Ok(())
}

async fn drop_policy<DB: Engine>(tx: &mut Tx<'_, DB>, expected: &Expected) -> Result<(), Failure> {
    hold_policy(tx, expected).await?;
    let ask = Ask::new(sql!("policies_users")).bind(expected.uid).bind(USERS_NAMED as i64 + 1);
    let users: Vec<(String,)> = tx.rows(ask).await?;
    let users: Vec<String> = users.into_iter().map(|(user,)| user).collect();
    judge_users(expected, "is used by schedules", &users)?;
    judge_users(expected, "is the parent of policies", &tree::ids_below(tx, expected.uid).await?)?;
    tx.execute(Ask::new(sql!("policies_delete")).bind(expected.uid)).await?;
    Ok(())
}

async fn hold_policy<DB: Engine>(tx: &mut Tx<'_, DB>, expected: &Expected) -> Result<(), Failure> {
    let found: Vec<(Uuid, i64, i32)> = tx.rows(Ask::new(sql!("policies_lock")).bind(expected.uid)).await?;
    Ok(judge_held([expected], &found)?)
}
