//! What is about to move, and its rows: those of runs, what shards know of schedules, and where what has gone is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt as _;
use uuid::Uuid;

use super::{Ask, Driver, Engine, Tx, Whom, insert_messages, sql};
use crate::StoreError;
use crate::failure::Failure;
use crate::handle::Lease;
use crate::history::PRUNE_AT_ONCE;
use crate::moves::Stray;
use crate::rows::{HeldLeaseRow, MessageRow, MovedPolicyRow, MovedRunRow, MovingScheduleRow, OpenRunRow};

/// What is about to go.
#[derive(Default)]
pub(super) struct Load {
    pub(super) policies: Vec<MovedPolicyRow>,
    pub(super) schedules: Vec<MovingScheduleRow>,
    /// The resident of each policy, and of each schedule, by its uid.
    pub(super) of_policy: BTreeMap<Uuid, Uuid>,
    pub(super) of_schedule: BTreeMap<Uuid, Uuid>,
    pub(super) runs: Vec<OpenRun>,
    /// Residents that stay for now.
    pub(super) stays: BTreeSet<Uuid>,
}

impl Load {
    pub(super) fn take(&mut self, schedules: impl IntoIterator<Item = MovingScheduleRow>) {
        for row in schedules {
            // A schedule alone that has got a policy since goes with that one.
            let resident = match row.policy_uid {
                Some(policy) => self.of_policy.get(&policy).copied().unwrap_or(row.uid),
                None => row.uid,
            };
            if self.of_schedule.insert(row.uid, resident).is_none() {
                self.schedules.push(row);
            }
        }
    }

    /// The resident with which a run goes: that of its policy, else that of its schedule.
    pub(super) fn resident_of(&self, run: &OpenRun) -> Option<Uuid> {
        match run.policy_uid {
            Some(policy) => self.of_policy.get(&policy).copied(),
            None => self.of_schedule.get(&run.schedule_uid).copied(),
        }
    }

    /// The resident that a policy or schedule is of.
    pub(super) fn resident_with(&self, uid: Uuid) -> Option<Uuid> {
        self.of_policy.get(&uid).or_else(|| self.of_schedule.get(&uid)).copied()
    }

    pub(super) fn drop_what_stays(&mut self) {
        let stays = std::mem::take(&mut self.stays);
        self.of_policy.retain(|_, resident| !stays.contains(resident));
        self.of_schedule.retain(|_, resident| !stays.contains(resident));
        let (of_policy, of_schedule) = (&self.of_policy, &self.of_schedule);
        self.policies.retain(|row| of_policy.contains_key(&row.uid));
        self.schedules.retain(|row| of_schedule.contains_key(&row.uid));
        let runs = std::mem::take(&mut self.runs);
        self.runs = runs.into_iter().filter(|run| self.resident_of(run).is_some()).collect();
    }
}

/// The policies of these trees, and the root of each.
pub(super) fn in_trees(all: &[(Uuid, Option<Uuid>, i32)], roots: &BTreeSet<Uuid>) -> BTreeMap<Uuid, Uuid> {
    let above: BTreeMap<Uuid, Option<Uuid>> = all.iter().map(|(uid, parent, _)| (*uid, *parent)).collect();
    let root_of = |uid: Uuid| {
        let mut at = uid;
        // A tree has few levels; a circle, which no writer makes, ends here.
        for _ in 0..64 {
            match above.get(&at)? {
                Some(parent) => at = *parent,
                None => return Some(at),
            }
        }
        None
    };
    let rooted = above.keys().filter_map(|uid| Some((*uid, root_of(*uid)?)));
    rooted.filter(|(_, root)| roots.contains(root)).collect()
}

/// The policies of each tree, by its root.
pub(super) fn by_root(trees: &BTreeMap<Uuid, Uuid>) -> BTreeMap<Uuid, BTreeSet<Uuid>> {
    let mut all: BTreeMap<Uuid, BTreeSet<Uuid>> = BTreeMap::new();
    for (uid, root) in trees {
        all.entry(*root).or_default().insert(*uid);
    }
    all
}

/// As how many rows one page of items counts.
const PAGE_ROWS: i64 = 20;

/// A run that has not ended, as far as its move goes.
pub(super) struct OpenRun {
    pub(super) id: Uuid,
    pub(super) schedule_uid: Uuid,
    pub(super) policy_uid: Option<Uuid>,
    pub(super) state: String,
    /// How many rows go with it, roughly.
    pub(super) rows: i64,
}

/// Holds both shards, the one with the smaller number first. The epoch of the one that gets something; none where the other
/// one's lease is not this one any more.
pub(super) async fn hold<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    lease: &Lease,
    to: u16,
) -> Result<Option<i64>, Failure> {
    let (from, to) = (i32::from(lease.shard), i32::from(to));
    let mut held = Vec::new();
    for shard in [from.min(to), from.max(to)] {
        held.extend(tx.rows::<HeldLeaseRow>(Ask::new(sql!("moves_lock")).bind(shard)).await?);
    }
    let of = |shard| held.iter().find(|row| row.shard_id == shard);
    let is_own = of(from).is_some_and(|row| row.lease_id == lease.lease_id);
    Ok(of(to).filter(|_| is_own).map(|row| row.epoch))
}

/// Which of these runs a shard has, and their states.
pub(super) async fn known<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    shard: i32,
    runs: &[Uuid],
) -> Result<Vec<(Uuid, String)>, Failure> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    tx.rows(Ask::new(sql!("moves_known")).bind(shard).set(runs)?).await
}

/// Rows of runs go that are in another shard as well.
pub(super) async fn drop_twins<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    shard: i32,
    runs: &[Uuid],
) -> Result<(), Failure> {
    if !runs.is_empty() {
        tx.execute(Ask::new(sql!("moves_twins")).bind(shard).set(runs)?).await?;
    }
    Ok(())
}

/// Runs go, with all that stands under them, and leave word where.
pub(super) async fn move_runs<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    (from, to): (i32, i32),
    runs: &[Uuid],
    now_us: i64,
) -> Result<(), Failure> {
    if runs.is_empty() {
        return Ok(());
    }
    let statements = [
        sql!("moves_tokens"),
        sql!("moves_token_batches"),
        sql!("moves_unstarted_events"),
        sql!("moves_event_history"),
        sql!("moves_ended_batches"),
        sql!("moves_event_results"),
        sql!("moves_item_pages"),
        sql!("moves_item_runs"),
        sql!("moves_closed_failures"),
        sql!("moves_submissions"),
        sql!("moves_run_rows"),
    ];
    for statement in statements {
        tx.execute(Ask::new(statement).bind(from).bind(to).set(runs)?).await?;
    }
    let word: Vec<MovedRunRow> = runs
        .iter()
        .map(|run| MovedRunRow { shard_id: from, run_id: *run, to_shard: to, moved_us: now_us })
        .collect();
    tx.execute(Ask::new(sql!("moved_runs_drop")).bind(to).set(runs)?).await?;
    tx.execute(Ask::new(sql!("moved_runs_put")).set(&word)?).await?;
    Ok(())
}

pub(super) async fn copy_specs<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    (from, to): (i32, i32),
    schedules: &[Uuid],
) -> Result<(), Failure> {
    if !schedules.is_empty() {
        tx.execute(Ask::new(sql!("moves_specs")).bind(from).bind(to).set(schedules)?).await?;
    }
    Ok(())
}

/// What a shard knows of some schedules: their generations, and whether they live there.
pub(super) async fn schedules_known<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    shard: i32,
    schedules: &[Uuid],
) -> Result<BTreeMap<Uuid, (i64, bool)>, Failure> {
    let ask = Ask::new(sql!("moves_schedules_known")).bind(shard).set(schedules)?;
    let rows: Vec<(Uuid, i64, bool)> = tx.rows(ask).await?;
    Ok(rows.into_iter().map(|(uid, generation, is_home)| (uid, (generation, is_home))).collect())
}

/// What a shard knows of schedules goes to the other one, unless that one has them already, and knows as much.
pub(super) async fn move_known<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    (from, to): (i32, i32),
    schedules: &[Uuid],
) -> Result<(), Failure> {
    let mut here = schedules_known(tx, from, schedules).await?;
    let there = schedules_known(tx, to, schedules).await?;
    here.retain(|uid, (generation, is_home)| {
        let is_newer = |there: &(i64, bool)| !there.1 || *generation > there.0;
        *is_home && there.get(uid).is_none_or(is_newer)
    });
    let moving: Vec<Uuid> = here.into_keys().collect();
    let before: Vec<Uuid> = moving.iter().filter(|uid| there.contains_key(uid)).copied().collect();
    if !before.is_empty() {
        tx.execute(Ask::new(sql!("moves_schedules_before")).bind(to).set(&before)?).await?;
    }
    tx.execute(Ask::new(sql!("moves_shard_schedules")).bind(from).bind(to).set(&moving)?).await?;
    Ok(())
}

/// What has come to one shard for what lives in another one goes there, unless the lease is another one by now.
pub(super) async fn hand_on<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    (lease, to): (&Lease, u16),
    stray: &Stray,
    (messages, parts): (&[MessageRow], &[MessageRow]),
    now_us: i64,
) -> Result<(), Failure> {
    if hold(tx, lease, to).await?.is_none() {
        // The next owner does it.
        return Ok(());
    }
    let (from, to) = (i32::from(lease.shard), i32::from(to));
    copy_specs(tx, (from, to), &stray.schedules.iter().copied().collect::<Vec<_>>()).await?;
    let runs: Vec<Uuid> = stray.runs.iter().map(|run| run.0).collect();
    // What has been taken in here goes with the rest of its policy.
    let is_taken = |state: &str| matches!(state, "WAITING" | "RUNNING" | "LISTING");
    let free = known(tx, from, &runs).await?.into_iter().filter(|(_, state)| !is_taken(state));
    let runs: Vec<Uuid> = free.map(|(run, _)| run).collect();
    // One that is there already stays as it is.
    let twins: BTreeSet<Uuid> = known(tx, to, &runs).await?.into_iter().map(|(run, _)| run).collect();
    drop_twins(tx, from, &twins.iter().copied().collect::<Vec<_>>()).await?;
    let others: Vec<Uuid> = runs.into_iter().filter(|run| !twins.contains(run)).collect();
    move_runs(tx, (from, to), &others, now_us).await?;
    if !parts.is_empty() {
        insert_messages(tx, to, parts).await?;
    }
    pass_on(tx, (from, to), messages).await
}

/// Messages that are in one inbox go to another one.
pub(super) async fn pass_on<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    (from, to): (i32, i32),
    messages: &[MessageRow],
) -> Result<(), Failure> {
    if messages.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = messages.iter().map(|message| message.message_id).collect();
    let here: Vec<(Uuid,)> = tx.rows(Ask::new(sql!("moves_inbox")).bind(from).set(&ids)?).await?;
    let here: BTreeSet<Uuid> = here.into_iter().map(|(id,)| id).collect();
    let is_here = |message: &&MessageRow| here.contains(&message.message_id);
    let messages: Vec<MessageRow> = messages.iter().filter(is_here).cloned().collect();
    insert_messages(tx, to, &messages).await?;
    Ok(())
}

/// A shard's runs of some policies and schedules that have not ended.
pub(super) async fn open_runs<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    shard: i32,
    policies: &[Uuid],
    schedules: &[Uuid],
) -> Result<Vec<OpenRun>, Failure> {
    let ask = Ask::new(sql!("moves_runs")).bind(shard).set(policies)?.set(schedules)?;
    let rows: Vec<OpenRunRow> = tx.rows(ask).await?;
    let ids: Vec<Uuid> = rows.iter().map(|row| row.run_id).collect();
    let pages: Vec<(Uuid, i64)> = tx.rows(Ask::new(sql!("moves_pages")).bind(shard).set(&ids)?).await?;
    let pages: BTreeMap<Uuid, i64> = pages.into_iter().collect();
    let of = |row: OpenRunRow| {
        let pages = pages.get(&row.run_id).copied().unwrap_or_default();
        let rows = 1 + i64::from(row.ended) + pages.saturating_mul(PAGE_ROWS);
        OpenRun {
            id: row.run_id,
            schedule_uid: row.schedule_uid,
            policy_uid: row.policy_uid,
            state: row.state,
            rows,
        }
    };
    Ok(rows.into_iter().map(of).collect())
}

/// Forgets of a shard where runs have gone before `before_us`, if they are not there any more, and have not gone on from there.
/// Answers how many.
pub(super) async fn prune_moved<D: Driver>(
    driver: &D,
    shard: u16,
    before_us: i64,
) -> Result<u64, StoreError> {
    let (mut all, mut after) = (0, Uuid::nil());
    loop {
        let ask = Ask::new(sql!("moved_runs_old")).bind(i32::from(shard)).bind(after).bind(before_us);
        let old: Vec<(Uuid, i32)> = driver.rows(Whom::Roles, ask.bind(i64::from(PRUNE_AT_ONCE))).await?;
        let Some((last, _)) = old.last() else { return Ok(all) };
        after = *last;
        let mut gone: BTreeSet<Uuid> = old.iter().map(|(run, _)| *run).collect();
        for to in old.iter().map(|(_, to)| *to).collect::<BTreeSet<_>>() {
            let runs: Vec<Uuid> = old.iter().filter(|(_, at)| *at == to).map(|(run, _)| *run).collect();
            // In this order: one that goes on meanwhile is found by either.
            let there: Vec<(Uuid, String)> =
                driver.rows(Whom::Roles, Ask::new(sql!("moves_known")).bind(to).set(&runs)?).await?;
            let onward: Vec<(Uuid, i32)> =
                driver.rows(Whom::Roles, Ask::new(sql!("moved_runs_list")).bind(to).set(&runs)?).await?;
            for run in there.iter().map(|(run, _)| run).chain(onward.iter().map(|(run, _)| run)) {
                gone.remove(run);
            }
        }
        let gone: Arc<Vec<Uuid>> = Arc::new(gone.into_iter().collect());
        all += driver
            .run_tx(Whom::Roles, "prune_moved", move |mut tx| {
                let gone = Arc::clone(&gone);
                async move {
                    tx.execute(Ask::new(sql!("moved_runs_drop")).bind(i32::from(shard)).set(&gone)?).await
                }
                .boxed()
            })
            .await?;
    }
}
