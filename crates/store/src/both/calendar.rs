//! Calendars, and which schedules go by them.
//!
//! Invariants: a calendar's row is locked before any schedule's, by those who write a schedule that goes by it, too, so that
//! nobody waits for a calendar who holds a schedule; a schedule is written with the dates that its calendars have, or not at all;
//! a link counts only for the generation of the schedule that it names, so that a process that knows no links leaves none
//! that are wrong.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use tollgate_core::model::Calendar;
use uuid::Uuid;

use super::{Ask, Driver, Engine, Tx, Whom, listed, own_sql, sql};
use crate::StoreError;
use crate::batch::{
    Expected, PutCalendar, USERS_NAMED, judge_calendars, judge_generations, judge_homes, judge_rewritten,
    judge_users,
};
use crate::calendar::CalendarStore;
use crate::failure::Failure;
use crate::plan::Filter;
use crate::rows::{CalendarRow, HeldRow, LinkRow, UsersRow, all, sound_page};

#[async_trait]
impl<D: Driver> CalendarStore for D {
    async fn calendar(&self, namespace: &str, id: &str) -> Result<Option<Calendar>, StoreError> {
        Ok(self.calendars(namespace, &[id.to_owned()]).await?.pop())
    }

    async fn calendars(&self, namespace: &str, ids: &[String]) -> Result<Vec<Calendar>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ask = Ask::new(sql!("calendars_by_ids")).bind(namespace).set(ids)?;
        all(self.rows::<CalendarRow>(Whom::People, ask).await?)
    }

    async fn list_calendars(
        &self,
        namespace: &str,
        filter: &Filter,
        after_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Calendar>, StoreError> {
        let ask = listed(Ask::new(own_sql!("calendars_list")), namespace, filter, after_id, limit)?;
        let rows: Vec<CalendarRow> = self.rows(Whom::People, ask).await?;
        let (mut page, found, rest) = sound_page(rows, limit, |row| row.id.clone(), |_| None);
        self.corruption().also(("calendars", namespace.to_owned()), found);
        if let Some((last, missing)) = rest {
            page.extend(self.list_calendars(namespace, filter, Some(&last), missing).await?);
        }
        Ok(page)
    }

    async fn calendars_used(&self, calendars: &[Uuid]) -> Result<BTreeMap<Uuid, u64>, StoreError> {
        if calendars.is_empty() {
            return Ok(BTreeMap::new());
        }
        let rows: Vec<UsersRow> =
            self.rows(Whom::People, Ask::new(sql!("calendars_used")).set(calendars)?).await?;
        let count = |row: UsersRow| (row.calendar_uid, u64::try_from(row.users).unwrap_or_default());
        Ok(rows.into_iter().map(count).collect())
    }

    async fn calendar_users(
        &self,
        calendar: Uuid,
        after_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<String>, StoreError> {
        let ask = users(calendar, after_id, i64::from(limit));
        let rows: Vec<(String,)> = self.rows(Whom::People, ask).await?;
        Ok(rows.into_iter().map(|(id,)| id).collect())
    }
}

fn users<DB: Engine>(calendar: Uuid, after_id: Option<&str>, limit: i64) -> Ask<DB> {
    Ask::new(sql!("calendar_users_list"))
        .bind(calendar)
        .bind(after_id.unwrap_or_default().to_owned())
        .bind(limit)
}

/// Holds calendars as they are until the commit, for schedules that have their dates.
pub(super) async fn hold_calendars<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    wanted: &BTreeSet<HeldRow>,
) -> Result<(), Failure> {
    if wanted.is_empty() {
        return Ok(());
    }
    let uids: BTreeSet<Uuid> = wanted.iter().map(|row| row.uid).collect();
    let uids: Vec<Uuid> = uids.into_iter().collect();
    let found: Vec<(Uuid, i64)> = tx.rows(Ask::new(sql!("calendars_hold")).set(&uids)?).await?;
    judge_calendars(wanted, &found)?;
    Ok(())
}

/// Notes by which calendars schedules go, in place of what was noted of those that are replaced or go.
pub(super) async fn link<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    replaced: &[Uuid],
    links: &[LinkRow],
) -> Result<(), Failure> {
    if !replaced.is_empty() {
        tx.execute(Ask::new(sql!("calendar_users_delete")).set(replaced)?).await?;
    }
    if !links.is_empty() {
        tx.execute(Ask::new(sql!("calendar_users_insert")).set(links)?).await?;
    }
    Ok(())
}

pub(super) async fn put_calendar<DB: Engine>(tx: &mut Tx<'_, DB>, step: &PutCalendar) -> Result<(), Failure> {
    let calendar = std::slice::from_ref(&step.calendar);
    let Some(expected) = &step.expected else {
        if tx.rows::<(Uuid,)>(Ask::new(sql!("calendars_insert")).set(calendar)?).await?.is_empty() {
            let what = format!("calendar {:?} already exists", step.calendar.id);
            return Err(StoreError::Conflict { what }.into());
        }
        return Ok(());
    };
    lock(tx, expected).await?;
    if step.rewrites {
        rewrite(tx, step, expected).await?;
    }
    tx.execute(Ask::new(sql!("calendars_update")).set(calendar)?).await?;
    Ok(())
}

/// Gives all schedules that go by a calendar its new dates. Nobody else comes to go by it, or ceases to, once its row and theirs
/// are locked.
async fn rewrite<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    step: &PutCalendar,
    expected: &Expected,
) -> Result<(), Failure> {
    let uids: Vec<Uuid> = step.users.iter().map(|user| user.uid).collect();
    let held: Vec<(Uuid, i64, i32)> = tx.rows(Ask::new(sql!("schedules_lock")).set(&uids)?).await?;
    judge_homes(&step.users, &held)?;
    let found: Vec<(Uuid, i64)> = tx.rows(Ask::new(sql!("calendar_users_now")).bind(expected.uid)).await?;
    judge_rewritten(step, &found)?;
    if uids.is_empty() {
        return Ok(());
    }
    tx.execute(Ask::new(sql!("schedules_rewrite")).set(&step.rewritten)?).await?;
    tx.execute(Ask::new(sql!("specs_insert")).set(&step.specs)?).await?;
    tx.execute(Ask::new(sql!("calendar_users_follow")).set(&step.rewritten)?).await?;
    Ok(())
}

pub(super) async fn drop_calendar<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    expected: &Expected,
) -> Result<(), Failure> {
    lock(tx, expected).await?;
    let found: Vec<(String,)> = tx.rows(users(expected.uid, None, USERS_NAMED as i64 + 1)).await?;
    let found: Vec<String> = found.into_iter().map(|(id,)| id).collect();
    judge_users(expected, "is used by schedules", &found)?;
    tx.execute(Ask::new(sql!("calendar_users_forget")).bind(expected.uid)).await?;
    tx.execute(Ask::new(sql!("calendars_delete")).bind(expected.uid)).await?;
    Ok(())
}

async fn lock<DB: Engine>(tx: &mut Tx<'_, DB>, expected: &Expected) -> Result<(), Failure> {
    let found: Vec<(Uuid, i64)> = tx.rows(Ask::new(sql!("calendars_lock")).bind(expected.uid)).await?;
    judge_generations([expected], &found)?;
    Ok(())
}
