//! Moves what lives in one queue shard and belongs into another one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use tollgate_clock::instant_now;
use tollgate_core::handle::control::{Control, Message, UnderWay};
use tollgate_core::model::{MINUTE_US, RunId};
use tollgate_core::plan::shard_of;
use uuid::Uuid;

use super::moving::{
    Load, OpenRun, by_root, copy_specs, drop_twins, hand_on, hold, in_trees, known, move_known, move_runs,
    open_runs, pass_on, schedules_known,
};
use super::{Ask, Driver, Engine, Tx, Whom, insert_messages, own_sql, sql};
use crate::StoreError;
use crate::failure::Failure;
use crate::handle::Lease;
use crate::moves::{ENDED_MAX, MoveStore, Moved, Resident, ResidentKind, Stray, WITH_MOVES};
use crate::rows::{
    MessageRow, MovedHomeRow, MovedPolicyRow, MovedScheduleRow, MovingScheduleRow, message_rows, policy_body,
};

/// To how many shards something goes at once: as long as it goes, nothing of the shard starts.
const TARGETS_MAX: usize = 8;
/// After so long it goes to no further one at once.
const TIME_MAX: Duration = Duration::from_millis(300);
/// How many schedules one look reads at once.
const PAGE: i64 = 10_000;
/// How many rows one transaction moves, roughly, unless a single resident has more: the other shard's owner waits for it.
const ROWS_MAX: i64 = 50_000;
/// For how long the items of a submission are waited for that is not complete, from the latest that came.
const SUBMITTING_US: i64 = 15 * MINUTE_US;

#[async_trait]
impl<D: Driver> MoveStore for D {
    async fn residents_to_move(&self, limit: usize) -> Result<BTreeMap<u16, Vec<Resident>>, StoreError> {
        let used: Vec<(i32,)> = self.rows(Whom::Roles, Ask::new(sql!("layout_used"))).await?;
        let Some(used) = used.first().and_then(|(used,)| u16::try_from(*used).ok()) else {
            return Ok(BTreeMap::new());
        };
        let mut look = Look { limit, found: BTreeMap::new() };
        let policies: Vec<(Uuid, Option<Uuid>, i32)> =
            self.rows(Whom::Roles, Ask::new(sql!("moves_policies"))).await?;
        let policies: BTreeMap<Uuid, (Option<Uuid>, i32)> =
            policies.into_iter().map(|(uid, parent, shard)| (uid, (parent, shard))).collect();
        for (uid, (parent, shard)) in &policies {
            if parent.is_none() {
                look.at(*shard, Resident { to: shard_of(*uid, used), uid: *uid, kind: ResidentKind::Tree });
            }
        }
        let mut after = Uuid::nil();
        loop {
            let ask = Ask::new(sql!("moves_schedules")).bind(after).bind(PAGE);
            let page: Vec<(Uuid, Option<Uuid>, i32)> = self.rows(Whom::Roles, ask).await?;
            for (uid, policy, shard) in &page {
                let found = match policy {
                    None => Some((shard_of(*uid, used), ResidentKind::Free)),
                    // Its policy takes it along, unless somebody has put it where the policy was before.
                    Some(policy) => {
                        let of = policies.get(policy).and_then(|(_, of)| u16::try_from(*of).ok());
                        of.map(|to| (to, ResidentKind::LeftBehind))
                    }
                };
                if let Some((to, kind)) = found {
                    look.at(*shard, Resident { to, uid: *uid, kind });
                }
            }
            match page.last() {
                Some((last, ..)) if i64::try_from(page.len()).is_ok_and(|rows| rows >= PAGE) => after = *last,
                _ => return Ok(look.found),
            }
        }
    }

    async fn move_residents(
        &self,
        lease: &Lease,
        residents: &[Resident],
        under_way: &[UnderWay],
        now_us: i64,
    ) -> Result<Option<Moved>, StoreError> {
        let mut by_target: BTreeMap<u16, Vec<Resident>> = BTreeMap::new();
        for resident in residents.iter().filter(|resident| resident.to != lease.shard) {
            by_target.entry(resident.to).or_default().push(*resident);
        }
        if by_target.is_empty() {
            return Ok(Some(Moved::default()));
        }
        // Whether a schedule has followed the end of a run only its shard knows. Of this one, nothing goes on meanwhile.
        let ends: Vec<MessageRow> = self.rows(Whom::Roles, Ask::new(sql!("moves_ends"))).await?;
        let next = Arc::new(next_of(&ends));
        let mut all = Moved::default();
        // Not always the same ones first: of some nothing may go for long.
        let mut by_target: Vec<(u16, Vec<Resident>)> = by_target.into_iter().collect();
        let first = usize::try_from(now_us).unwrap_or_default() % by_target.len();
        by_target.rotate_left(first);
        let (mut failed, began) = (None, instant_now());
        for (to, residents) in by_target.into_iter().take(TARGETS_MAX) {
            if began.elapsed() > TIME_MAX {
                break;
            }
            let (lease, under_way, next) = (lease.clone(), under_way.to_vec(), Arc::clone(&next));
            let part = Arc::new(Part { lease, to, residents, under_way, next, now_us });
            let moved = self
                .run_tx(Whom::Roles, "move_residents", move |mut tx| {
                    let part = Arc::clone(&part);
                    async move { part.go(&mut tx).await }.boxed()
                })
                .await;
            let moved = match moved {
                Ok(moved) => moved,
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            };
            let Some((residents, runs)) = moved else { return Ok(None) };
            if residents > 0 {
                all.residents += residents;
                all.to.push(to);
            }
            all.runs.extend(runs.into_iter().map(|run| (RunId(run), to)));
        }
        match failed {
            Some(error) if all.residents == 0 => Err(error),
            _ => Ok(Some(all)),
        }
    }

    async fn moved_homes(&self, shard: u16) -> Result<BTreeMap<Uuid, u16>, StoreError> {
        let ask = Ask::new(sql!("moved_homes_list")).bind(i32::from(shard));
        let rows: Vec<(Uuid, i32)> = self.rows(Whom::Roles, ask).await?;
        Ok(rows.into_iter().filter_map(|(uid, to)| Some((uid, u16::try_from(to).ok()?))).collect())
    }

    async fn moved_runs(&self, shard: u16, runs: &[RunId]) -> Result<BTreeMap<RunId, u16>, StoreError> {
        if runs.is_empty() {
            return Ok(BTreeMap::new());
        }
        let ids: Vec<Uuid> = runs.iter().map(|run| run.0).collect();
        let ask = Ask::new(sql!("moved_runs_list")).bind(i32::from(shard)).set(&ids)?;
        let rows: Vec<(Uuid, i32)> = self.rows(Whom::Roles, ask).await?;
        Ok(rows.into_iter().filter_map(|(run, to)| Some((RunId(run), u16::try_from(to).ok()?))).collect())
    }

    async fn hand_on(&self, lease: &Lease, to: u16, stray: Stray, now_us: i64) -> Result<(), StoreError> {
        let messages = Arc::new((message_rows(&stray.messages)?, message_rows(&stray.parts)?));
        let of = Arc::new((lease.clone(), stray));
        self.run_tx(Whom::Roles, "hand_on", move |mut tx| {
            let (of, messages) = (Arc::clone(&of), Arc::clone(&messages));
            async move { hand_on(&mut tx, (&of.0, to), &of.1, (&messages.0, &messages.1), now_us).await }
                .boxed()
        })
        .await
    }
}

/// What a look has found.
struct Look {
    limit: usize,
    found: BTreeMap<u16, Vec<Resident>>,
}

impl Look {
    fn at(&mut self, shard: i32, resident: Resident) {
        let Ok(shard) = u16::try_from(shard) else { return };
        if resident.to == shard {
            return;
        }
        let of_shard = self.found.entry(shard).or_default();
        if of_shard.len() < self.limit {
            of_shard.push(resident);
        }
    }
}

/// What goes to one shard by one transaction.
struct Part {
    lease: Lease,
    to: u16,
    residents: Vec<Resident>,
    under_way: Vec<UnderWay>,
    /// Schedules that are to follow the end of a run, by namespace and id.
    next: Arc<BTreeSet<(String, String)>>,
    now_us: i64,
}

impl Part {
    /// How many residents have gone, and the ids of their runs.
    async fn go<DB: Engine>(&self, tx: &mut Tx<'_, DB>) -> Result<Option<(usize, Vec<Uuid>)>, Failure> {
        let Some(epoch) = hold(tx, &self.lease, self.to).await? else { return Ok(None) };
        let mut load = self.gather(tx).await?;
        self.keep_back(tx, &mut load).await?;
        load.drop_what_stays();
        // A run that has been taken in there as well would be there twice.
        let runs: Vec<Uuid> = load.runs.iter().map(|run| run.id).collect();
        let there: BTreeMap<Uuid, String> = known(tx, i32::from(self.to), &runs).await?.into_iter().collect();
        let is_taken = |run: &&OpenRun| there.get(&run.id).is_some_and(|state| state != "EMITTED");
        let twins = load.runs.iter().filter(is_taken);
        load.stays = twins.filter_map(|run| load.resident_of(run)).collect();
        load.drop_what_stays();
        let residents: BTreeSet<Uuid> =
            load.of_policy.values().chain(load.of_schedule.values()).copied().collect();
        if residents.is_empty() {
            return Ok(Some((0, Vec::new())));
        }
        let runs: Vec<Uuid> = load.runs.iter().map(|run| run.id).collect();
        let twins: Vec<Uuid> = runs.iter().filter(|run| there.contains_key(run)).copied().collect();
        drop_twins(tx, i32::from(self.to), &twins).await?;
        self.write(tx, &load, &runs).await?;
        self.tell(tx, &runs, epoch).await?;
        Ok(Some((residents.len(), runs)))
    }

    async fn gather<DB: Engine>(&self, tx: &mut Tx<'_, DB>) -> Result<Load, Failure> {
        let from = i32::from(self.lease.shard);
        let mut load = Load::default();
        let (trees, singles): (Vec<Resident>, Vec<Resident>) =
            self.residents.iter().partition(|resident| resident.kind == ResidentKind::Tree);
        if !trees.is_empty() {
            let roots: BTreeSet<Uuid> = trees.iter().map(|resident| resident.uid).collect();
            let all: Vec<(Uuid, Option<Uuid>, i32)> = tx.rows(Ask::new(sql!("moves_policies"))).await?;
            load.of_policy = in_trees(&all, &roots);
            let uids: Vec<Uuid> = load.of_policy.keys().copied().collect();
            // Schedules first, as whoever changes one does.
            let _: Vec<MovingScheduleRow> =
                tx.rows(Ask::new(sql!("moves_schedules_under")).set(&uids)?).await?;
            load.policies = tx.rows(Ask::new(sql!("moves_policies_lock")).set(&uids)?).await?;
            // One that has moved since, as a whole.
            load.policies.retain(|row| row.shard == from);
            let held: BTreeSet<Uuid> = load.policies.iter().map(|row| row.uid).collect();
            // Nobody puts any more under them; a tree that has got or lost one meanwhile stays for now.
            let all: Vec<(Uuid, Option<Uuid>, i32)> = tx.rows(Ask::new(sql!("moves_policies"))).await?;
            let (before, now) = (by_root(&load.of_policy), by_root(&in_trees(&all, &roots)));
            let is_whole = |root: &Uuid| {
                let before = before.get(root);
                before == now.get(root) && before.is_some_and(|before| before.is_subset(&held))
            };
            let whole: BTreeSet<Uuid> = roots.into_iter().filter(is_whole).collect();
            load.of_policy.retain(|_, root| whole.contains(root));
            load.policies.retain(|row| load.of_policy.contains_key(&row.uid));
            let uids: Vec<Uuid> = load.of_policy.keys().copied().collect();
            let under: Vec<MovingScheduleRow> =
                tx.rows(Ask::new(sql!("moves_schedules_under")).set(&uids)?).await?;
            load.take(under.into_iter().filter(|row| row.shard == from));
        }
        if !singles.is_empty() {
            let uids: Vec<Uuid> = singles.iter().map(|resident| resident.uid).collect();
            let rows: Vec<MovingScheduleRow> =
                tx.rows(Ask::new(sql!("moves_schedules_lock")).set(&uids)?).await?;
            let above: Vec<Uuid> = rows.iter().filter_map(|row| row.policy_uid).collect();
            let above: Vec<MovedPolicyRow> =
                tx.rows(Ask::new(sql!("moves_policies_lock")).set(&above)?).await?;
            let there: BTreeSet<Uuid> =
                above.iter().filter(|row| row.shard == i32::from(self.to)).map(|row| row.uid).collect();
            let is_free: BTreeMap<Uuid, bool> =
                singles.iter().map(|resident| (resident.uid, resident.kind == ResidentKind::Free)).collect();
            // One that has got a policy since, or lost it, belongs elsewhere.
            let belongs = |row: &MovingScheduleRow| match row.policy_uid {
                None => is_free.get(&row.uid) == Some(&true),
                Some(policy) => there.contains(&policy),
            };
            load.take(rows.into_iter().filter(|row| row.shard == from && belongs(row)));
        }
        let policies: Vec<Uuid> = load.of_policy.keys().copied().collect();
        let schedules: Vec<Uuid> = load.of_schedule.keys().copied().collect();
        load.runs = open_runs(tx, from, &policies, &schedules).await?;
        Ok(load)
    }

    /// Finds which residents stay for now: something of them is on its way, or would be left behind.
    async fn keep_back<DB: Engine>(&self, tx: &mut Tx<'_, DB>, load: &mut Load) -> Result<(), Failure> {
        let strangers: Vec<Uuid> = load
            .runs
            .iter()
            .filter(|run| {
                load.resident_of(run).is_some() && !load.of_schedule.contains_key(&run.schedule_uid)
            })
            .map(|run| run.schedule_uid)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let there: Vec<(Uuid,)> = match strangers.is_empty() {
            true => Vec::new(),
            false => tx.rows(Ask::new(sql!("moves_there")).set(&strangers)?).await?,
        };
        let there: BTreeSet<Uuid> = there.into_iter().map(|(uid,)| uid).collect();
        let mut stays = BTreeSet::new();
        // Schedules that are deleted, and have runs: they go with these, unless some are of another resident.
        let mut deleted: BTreeMap<Uuid, Option<Uuid>> = BTreeMap::new();
        for run in &load.runs {
            let (resident, of_schedule) =
                (load.resident_of(run), load.of_schedule.get(&run.schedule_uid).copied());
            let is_deleted = of_schedule.is_none() && !there.contains(&run.schedule_uid);
            if is_deleted {
                let known = *deleted.entry(run.schedule_uid).or_insert(resident);
                if known != resident {
                    stays.extend(known.into_iter().chain(resident));
                }
            } else if resident != of_schedule {
                // Made under another policy than its schedule has now.
                stays.extend(resident.into_iter().chain(of_schedule));
            }
            let may_go = matches!(run.state.as_str(), "EMITTED" | "WAITING" | "RUNNING");
            if !may_go || run.rows > i64::from(ENDED_MAX) {
                stays.extend(resident);
            }
        }
        for (schedule, resident) in deleted {
            load.of_schedule.extend(resident.map(|resident| (schedule, resident)));
        }
        let uids: Vec<Uuid> = load.of_policy.keys().chain(load.of_schedule.keys()).copied().collect();
        let waiting: Vec<(Uuid,)> = tx.rows(Ask::new(sql!("moves_outbox")).set(&uids)?).await?;
        stays.extend(waiting.iter().filter_map(|(uid,)| load.resident_with(*uid)));
        let is_next = |row: &&MovingScheduleRow| self.next.contains(&(row.namespace.clone(), row.id.clone()));
        let next = load.schedules.iter().filter(is_next);
        stays.extend(next.filter_map(|row| load.of_schedule.get(&row.uid).copied()));
        // What cannot be read stays, and nothing else for it.
        let unread = load.policies.iter().filter(|row| row.in_shard(self.to).is_err());
        stays.extend(unread.filter_map(|row| load.of_policy.get(&row.uid)));
        let unread = load.schedules.iter().filter(|row| row.in_shard(self.lease.shard, self.to).is_err());
        stays.extend(unread.filter_map(|row| load.of_schedule.get(&row.uid)));
        let coming = self.known_otherwise(tx, load).await?;
        stays.extend(coming.iter().filter_map(|uid| load.of_schedule.get(uid)));
        self.above_budget(load, &mut stays);
        load.stays = stays;
        Ok(())
    }

    /// Schedules to which items are being submitted, and those that the other shard has given up while runs of them go on there.
    async fn known_otherwise<DB: Engine>(
        &self,
        tx: &mut Tx<'_, DB>,
        load: &Load,
    ) -> Result<Vec<Uuid>, Failure> {
        let uids: Vec<Uuid> = load.of_schedule.keys().copied().collect();
        let since_us = self.now_us - SUBMITTING_US;
        let mut found: Vec<(Uuid,)> =
            tx.rows(Ask::new(sql!("moves_submitting")).set(&uids)?.bind(since_us)).await?;
        let to = i32::from(self.to);
        let given_up = schedules_known(tx, to, &uids).await?.into_iter().filter(|(_, (_, is_home))| !is_home);
        let given_up: Vec<Uuid> = given_up.map(|(uid, _)| uid).collect();
        if !given_up.is_empty() {
            let open = open_runs(tx, to, &[], &given_up).await?;
            let open: BTreeSet<Uuid> = open.iter().map(|run| run.schedule_uid).collect();
            found.extend(given_up.into_iter().filter(|uid| open.contains(uid)).map(|uid| (uid,)));
        }
        Ok(found.into_iter().map(|(uid,)| uid).collect())
    }

    /// The residents that would make the transaction too long stay for the next one, if it has any others.
    fn above_budget(&self, load: &Load, stays: &mut BTreeSet<Uuid>) {
        let mut rows: BTreeMap<Uuid, i64> = BTreeMap::new();
        for resident in load.of_schedule.values() {
            *rows.entry(*resident).or_default() += 1;
        }
        for run in &load.runs {
            if let Some(resident) = load.resident_of(run) {
                *rows.entry(resident).or_default() += run.rows;
            }
        }
        let mut sum = 0;
        for resident in self
            .residents
            .iter()
            .map(|resident| resident.uid)
            .filter(|resident| !stays.contains(resident))
            .collect::<Vec<_>>()
        {
            let own = rows.get(&resident).copied().unwrap_or_default();
            if sum > 0 && sum + own > ROWS_MAX {
                stays.insert(resident);
            } else {
                sum += own;
            }
        }
    }

    async fn write<DB: Engine>(
        &self,
        tx: &mut Tx<'_, DB>,
        load: &Load,
        runs: &[Uuid],
    ) -> Result<(), Failure> {
        let (from, to) = (i32::from(self.lease.shard), i32::from(self.to));
        let schedules: Vec<Uuid> = load.of_schedule.keys().copied().collect();
        let policies: Vec<Uuid> = load.of_policy.keys().copied().collect();
        move_runs(tx, (from, to), runs, self.now_us).await?;
        copy_specs(tx, (from, to), &schedules).await?;
        move_known(tx, (from, to), &schedules).await?;
        tx.execute(Ask::new(sql!("moves_shard_policies")).bind(from).bind(to).set(&policies)?).await?;
        let (mut rows, mut bodies) = (Vec::new(), Vec::new());
        for row in &load.policies {
            let (row, policy) = row.in_shard(self.to)?;
            bodies.push(policy_body(&policy)?);
            rows.push(row);
        }
        if !rows.is_empty() {
            tx.execute(Ask::new(sql!("moves_policy_rows")).set(&rows)?).await?;
            tx.execute(Ask::new(own_sql!("shard_policies_put")).bind(to).set(&bodies)?).await?;
        }
        let rows: Vec<MovedScheduleRow> = load
            .schedules
            .iter()
            .map(|row| row.in_shard(self.lease.shard, self.to))
            .collect::<Result<_, _>>()?;
        if !rows.is_empty() {
            tx.execute(Ask::new(sql!("moves_schedule_rows")).set(&rows)?).await?;
        }
        let gone: Vec<MovedHomeRow> = policies
            .iter()
            .chain(&schedules)
            .map(|uid| MovedHomeRow { shard_id: from, uid: *uid, to_shard: to, moved_us: self.now_us })
            .collect();
        let uids: Vec<Uuid> = gone.iter().map(|row| row.uid).collect();
        tx.execute(Ask::new(sql!("moved_homes_drop")).bind(to).set(&uids)?).await?;
        tx.execute(Ask::new(sql!("moved_homes_put")).set(&gone)?).await?;
        tx.execute(Ask::new(sql!("schema_raise")).bind(WITH_MOVES)).await?;
        Ok(())
    }

    /// The other shard's owner loads it, and does not make deliveries again that are under way.
    async fn tell<DB: Engine>(&self, tx: &mut Tx<'_, DB>, runs: &[Uuid], epoch: i64) -> Result<(), Failure> {
        let of_runs: BTreeSet<Uuid> = runs.iter().copied().collect();
        let own = self.under_way.iter().filter(|one| of_runs.contains(&one.run.0));
        let deliveries: Vec<UnderWay> = own.cloned().collect();
        // It is read first, as the others are for whoever has loaded the shard since.
        let random = Uuid::new_v4().as_u64_pair().1 >> 16;
        let mut messages = vec![Message::first(random, Control::Arrived { epoch })];
        if !deliveries.is_empty() {
            messages.push(Message::first(random | 1 << 63, Control::UnderWay { deliveries }));
        }
        insert_messages(tx, i32::from(self.to), &message_rows(&messages)?).await?;
        // What is recorded about them is there before anything of them runs out.
        let from = i32::from(self.lease.shard);
        let waiting: Vec<MessageRow> = tx.rows(Ask::new(sql!("moves_about_runs")).bind(from)).await?;
        let is_of_them = |row: &MessageRow| match serde_json::from_str::<Control>(&row.body) {
            Ok(control) => control.runs().iter().all(|run| of_runs.contains(&run.0)),
            Err(_) => false,
        };
        let about: Vec<MessageRow> = waiting.into_iter().filter(is_of_them).collect();
        pass_on(tx, (from, i32::from(self.to)), &about).await
    }
}

/// The schedules that are to follow, by namespace and id.
fn next_of(ends: &[MessageRow]) -> BTreeSet<(String, String)> {
    let named = ends.iter().filter_map(|row| match serde_json::from_str(&row.body) {
        Ok(Control::RunEnded { end }) => end.next.map(|next| (end.namespace, next.schedule)),
        _ => None,
    });
    named.collect()
}
