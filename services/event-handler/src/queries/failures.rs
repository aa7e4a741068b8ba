//! What went wrong over all runs of a namespace that have ended: listed, grouped, tried again, closed.
//!
//! In: requests. Out: answers, each from a bounded walk. Invariants: what is tried again is posted and noted run by run, and a
//! step that is repeated does nothing to what is not dead any more. Not here: the walk.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::handle::change::{HistoryRow, Outcome};
use tollgate_core::handle::control::Control;
use tollgate_core::model::{EventRef, Run, RunId};
use tollgate_proto::convert::event::{EventRecord, ended};
use tollgate_proto::convert::{names, timestamp};
use tollgate_proto::{FieldError, page, v1};
use tollgate_service::actor::Caller;
use tollgate_service::status::status as store_status;
use tonic::Status;

use super::failures_walk::{Bounds, Found, Next, Place, Wanted};
use crate::Shared;

/// What one page, or one step, reads.
const STEP: Bounds = Bounds { runs: 200, rows: 2_000 };
/// What is looked at to make groups.
const GROUPED: Bounds = Bounds { runs: 500, rows: 20_000 };
/// How many events one step tries again.
const RETRY_MAX: usize = 1_000;
/// How many schedules a group names.
const SCHEDULES_MAX: usize = 10;

/// Events that failed alike.
struct Group {
    count: u64,
    first_us: i64,
    last_us: i64,
    example: EventRef,
    namespace: String,
    message: String,
    schedules: BTreeSet<String>,
    runs: u32,
    /// The latest run that was counted.
    run: RunId,
}

/// Dead events of a run.
struct Dead {
    run: Run,
    indexes: Vec<u32>,
}

impl Shared {
    /// The events that ended badly.
    pub(crate) async fn list_failed_events(
        &self,
        request: &v1::ListEventsRequest,
    ) -> Result<v1::ListEventsResponse, Status> {
        let size = page::size(request.page_size)?;
        let query = ["ListEvents", &request.parent, &request.filter];
        let from = Place::read(&request.page_token, &query)?;
        let Some(wanted) = self.wanted_failures(&request.parent, &request.filter).await? else {
            return Ok(v1::ListEventsResponse::default());
        };
        let mut found: Vec<(Run, HistoryRow, Vec<u32>)> = Vec::new();
        let mut left = size;
        let mut each = |at: Found<'_>| {
            let indexes: Vec<u32> = (at.from..at.row.index.saturating_add(at.row.count)).take(left).collect();
            left -= indexes.len();
            let next = at.from.saturating_add(u32::try_from(indexes.len()).unwrap_or(u32::MAX));
            found.push((at.run.clone(), at.row.clone(), indexes));
            if left == 0 { Next::StopBefore(next) } else { Next::Row }
        };
        let next = self.walk_failures(&wanted, from, STEP, &mut each).await?;
        let mut views = BTreeMap::new();
        let mut events = Vec::with_capacity(size - left);
        for (run, row, indexes) in found {
            let view = match views.entry(run.id) {
                Entry::Occupied(view) => view.into_mut(),
                Entry::Vacant(place) => place.insert(self.view(run).await?),
            };
            events.extend(indexes.into_iter().map(|index| self.show(view, index, EventRecord::Done(&row))));
        }
        let next_page_token = next.map(|next| next.token(&query)).unwrap_or_default();
        Ok(v1::ListEventsResponse { events, next_page_token })
    }

    /// What went wrong, by what was said of it.
    pub(crate) async fn list_failures(
        &self,
        request: v1::ListFailuresRequest,
    ) -> Result<v1::ListFailuresResponse, Status> {
        let size = page::size(request.page_size)?;
        let Some(wanted) = self.wanted_failures(&request.parent, &request.filter).await? else {
            return Ok(v1::ListFailuresResponse::default());
        };
        let mut groups = BTreeMap::new();
        let mut each = |found: Found<'_>| {
            add(&mut groups, found);
            Next::Row
        };
        let rest = self.walk_failures(&wanted, None, GROUPED, &mut each).await?;
        let truncated = rest.is_some() || groups.len() > size;
        let mut groups: Vec<_> =
            groups.into_iter().map(|(key, group)| self.group_shown(key, group)).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        groups.truncate(size);
        Ok(v1::ListFailuresResponse { groups, truncated })
    }

    fn group_shown(&self, (state, reason): (i32, String), group: Group) -> v1::FailureGroup {
        let id = self.keyring.id(group.example);
        v1::FailureGroup {
            reason,
            state,
            count: group.count,
            first_time: Some(timestamp(group.first_us)),
            last_time: Some(timestamp(group.last_us)),
            example_event: names::of_event(&group.namespace, id.as_str()),
            example_message: group.message,
            schedules: group.schedules.into_iter().collect(),
            runs_count: group.runs,
        }
    }

    /// One step of trying dead events again.
    pub(crate) async fn retry_failures(
        &self,
        caller: Caller,
        request: v1::RetryFailuresRequest,
    ) -> Result<v1::RetryFailuresResponse, Status> {
        let query = ["RetryFailures", &request.parent, &request.filter];
        let from = Place::read(&request.page_token, &query)?;
        let Some(wanted) = self.wanted_failures(&request.parent, &request.filter).await? else {
            return Ok(v1::RetryFailuresResponse::default());
        };
        let wanted = only_dead(wanted)?;
        let mut found: Vec<Dead> = Vec::new();
        let mut matched = 0;
        let mut each = |at: Found<'_>| {
            matched += 1;
            match found.last_mut().filter(|dead| dead.run.id == at.run.id) {
                Some(dead) => dead.indexes.push(at.row.index),
                None => found.push(Dead { run: at.run.clone(), indexes: vec![at.row.index] }),
            }
            if matched == RETRY_MAX { Next::StopBefore(at.row.index.saturating_add(1)) } else { Next::Row }
        };
        let next = self.walk_failures(&wanted, from, STEP, &mut each).await?;
        let matched_count = u32::try_from(matched).unwrap_or(u32::MAX);
        let mut retried_count = 0;
        if !request.validate_only {
            for Dead { run, indexes } in &found {
                // One that cannot follow its policy is told where it is asked for alone.
                if self.may_be_tried_again(run).await.is_err() {
                    continue;
                }
                let indexes = indexes.clone();
                retried_count += u32::try_from(indexes.len()).unwrap_or(u32::MAX);
                self.post(run.shard, Control::RetryDead { run: run.id, indexes }).await?;
                let name = names::of_run(&run.namespace, run.named_shard(), run.id);
                self.note(caller.clone(), &run.namespace, name, "retry").await?;
            }
            let shards: BTreeSet<u16> = found.iter().map(|dead| dead.run.shard).collect();
            self.sync(&shards.into_iter().collect::<Vec<_>>()).await;
        }
        let next_page_token = next.map(|next| next.token(&query)).unwrap_or_default();
        Ok(v1::RetryFailuresResponse { matched_count, retried_count, next_page_token })
    }

    /// One step of closing runs.
    pub(crate) async fn close_failures(
        &self,
        caller: Caller,
        request: v1::CloseFailuresRequest,
    ) -> Result<v1::CloseFailuresResponse, Status> {
        let query = ["CloseFailures", &request.parent, &request.filter];
        let from = Place::read(&request.page_token, &query)?;
        let Some(wanted) = self.wanted_failures(&request.parent, &request.filter).await? else {
            return Ok(v1::CloseFailuresResponse::default());
        };
        let mut found: Vec<Run> = Vec::new();
        let mut each = |at: Found<'_>| {
            found.push(at.run.clone());
            Next::Run
        };
        let next = self.walk_failures(&wanted, from, STEP, &mut each).await?;
        let matched_runs_count = u32::try_from(found.len()).unwrap_or(u32::MAX);
        let mut closed_runs_count = 0;
        if !request.validate_only {
            for run in &found {
                // One that goes on has nothing to close as yet.
                let Some(ended_us) = run.finished_us else { continue };
                self.people.close_failures(run.shard, &[(run.id, ended_us)]).await.map_err(store_status)?;
                let name = names::of_run(&run.namespace, run.named_shard(), run.id);
                self.note(caller.clone(), &run.namespace, name, "close_failures").await?;
                closed_runs_count += 1;
            }
        }
        let next_page_token = next.map(|next| next.token(&query)).unwrap_or_default();
        Ok(v1::CloseFailuresResponse { matched_runs_count, closed_runs_count, next_page_token })
    }
}

fn only_dead(wanted: Wanted) -> Result<Wanted, FieldError> {
    if let Some(other) = wanted.outcomes.first().filter(|_| !wanted.outcomes.contains(&Outcome::Dead)) {
        let given = format!("state={}", ended(*other).as_str_name().trim_start_matches("EVENT_STATE_"));
        return Err(FieldError::new(
            "filter",
            given,
            "state=DEAD or no state: only dead events are tried again",
        ));
    }
    Ok(Wanted { outcomes: vec![Outcome::Dead], ..wanted })
}

fn add(groups: &mut BTreeMap<(i32, String), Group>, found: Found<'_>) {
    let Found { run, row, reason, .. } = found;
    let example = EventRef { shard: run.named_shard(), run: run.id, index: row.index };
    let key = (ended(row.outcome).into(), reason);
    let group = groups.entry(key).or_insert_with(|| Group {
        count: 0,
        first_us: row.finished_us,
        last_us: row.finished_us,
        example,
        namespace: run.namespace.clone(),
        message: row.message.clone(),
        schedules: BTreeSet::new(),
        runs: 1,
        run: run.id,
    });
    group.count += u64::from(row.count);
    group.first_us = group.first_us.min(row.finished_us);
    if row.finished_us > group.last_us {
        group.last_us = row.finished_us;
        group.example = example;
        group.message.clone_from(&row.message);
    }
    if group.run != run.id {
        group.run = run.id;
        group.runs += 1;
    }
    if group.schedules.len() < SCHEDULES_MAX {
        group.schedules.insert(names::of_schedule(&run.namespace, &run.schedule_id));
    }
}
