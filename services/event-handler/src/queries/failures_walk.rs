//! Walks over what ended badly in a namespace's runs that have ended: latest end first, within a run by index.
//!
//! In: what is wanted, and where the walk goes on. Out: each row of the done queue that matches, with its reason. Invariants: a
//! walk reads a bounded number of runs and rows, and then says where it stopped; a run that it stopped in is gone on with, also
//! where the run has left the list meanwhile. Not here: what is done with the rows.

use tollgate_core::failure;
use tollgate_core::handle::change::{HistoryRow, Outcome};
use tollgate_core::model::{Run, RunId};
use tollgate_proto::convert::{event, names};
use tollgate_proto::{FieldError, filter, page, v1};
use tollgate_service::status::status as store_status;
use tollgate_store::history::FailureFilter;
use tonic::Status;

use crate::Shared;

const KEYS: [&str; 7] = ["state", "schedule", "policy", "reason", "end_time>", "end_time<", "closed"];
/// How many runs, and rows of a run, are read at once.
const RUNS_AT_ONCE: u32 = 100;
const ROWS_AT_ONCE: u32 = 500;

/// What is looked for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) namespace: String,
    pub(super) filter: FailureFilter,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) reason: Option<String>,
}

/// Where a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// When the run had ended.
    ended_us: i64,
    shard: u16,
    run: RunId,
    /// In the run, from this index on; none: after the run.
    index: Option<u32>,
}

/// How much a walk may still read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) runs: u32,
    pub(super) rows: u32,
}

/// How a walk goes on after a row.
pub(super) enum Next {
    /// With the next row.
    Row,
    /// With the next run.
    Run,
    /// Not at all; the next walk goes on at this index of the run.
    StopBefore(u32),
}

/// A row that matches.
pub(super) struct Found<'a> {
    pub(super) run: &'a Run,
    pub(super) row: &'a HistoryRow,
    /// Its first event that has not been walked over.
    pub(super) from: u32,
    pub(super) reason: String,
}

impl Wanted {
    fn of_run(&self, run: &Run) -> bool {
        let counts = &run.counts;
        self.outcomes.iter().any(|outcome| match outcome {
            Outcome::Failed => counts.failed > 0,
            Outcome::Dead => counts.dead > 0,
            Outcome::Expired => counts.expired > 0,
            Outcome::Lost => counts.lost > 0,
            Outcome::Succeeded | Outcome::Cancelled => false,
        })
    }
}

impl Place {
    /// From a page token of a query.
    pub(super) fn read(token: &str, query: &[&str]) -> Result<Option<Self>, FieldError> {
        let parts = page::Token::<(i64, u16, RunId, Option<u32>)>::decode(token, query)?;
        Ok(parts.map(|(ended_us, shard, run, index)| Self { ended_us, shard, run, index }))
    }

    /// As a page token of a query.
    pub(super) fn token(self, query: &[&str]) -> String {
        page::Token::encode((self.ended_us, self.shard, self.run, self.index), query)
    }

    fn after(run: &Run) -> Self {
        let ended_us = run.finished_us.unwrap_or_default();
        Self { ended_us, shard: run.shard, run: run.id, index: None }
    }
}

fn outcome(text: &str) -> Result<Outcome, FieldError> {
    Ok(match event::state_in_filter(text) {
        Ok(v1::EventState::Dead) => Outcome::Dead,
        Ok(v1::EventState::Failed) => Outcome::Failed,
        Ok(v1::EventState::Expired) => Outcome::Expired,
        Ok(v1::EventState::Lost) => Outcome::Lost,
        _ => return Err(FieldError::new("filter", text, "state=DEAD, FAILED, EXPIRED or LOST")),
    })
}

impl Shared {
    /// None where the filter names a schedule or a policy that does not exist: nothing can match.
    pub(super) async fn wanted_failures(&self, parent: &str, text: &str) -> Result<Option<Wanted>, Status> {
        let namespace = names::namespace("parent", parent)?;
        let outcomes = vec![Outcome::Dead, Outcome::Failed, Outcome::Expired, Outcome::Lost];
        let mut wanted = Wanted { namespace, filter: FailureFilter::default(), outcomes, reason: None };
        let mut exists = true;
        for term in filter::parse(text, &KEYS)? {
            let (namespace, value) = (wanted.namespace.as_str(), term.value.as_str());
            match term.key.as_str() {
                "state" => wanted.outcomes = vec![outcome(value)?],
                "reason" => wanted.reason = Some(failure::reason(value)),
                "end_time>" => wanted.filter.from_us = Some(filter::moment(value)?),
                "end_time<" => wanted.filter.until_us = Some(filter::moment(value)?),
                "closed" => {
                    wanted.filter.closed = value
                        .parse::<bool>()
                        .map_err(|_| FieldError::new("filter", value, "closed=true or closed=false"))?;
                }
                "policy" => {
                    let name = names::policy_within("filter", namespace, value)?;
                    let policy =
                        self.people.policy_by_name(namespace, &name.id).await.map_err(store_status)?;
                    wanted.filter.policy_uid = policy.map(|policy| policy.uid);
                    exists &= wanted.filter.policy_uid.is_some();
                }
                _ => {
                    let name = names::schedule_within("filter", namespace, value)?;
                    let uid = self.people.schedule_uid(namespace, &name.id).await.map_err(store_status)?;
                    wanted.filter.schedule_uid = uid;
                    exists &= uid.is_some();
                }
            }
        }
        Ok(exists.then_some(wanted))
    }

    /// Shows `each` what matches, from a place on. Answers where the next walk goes on; none where there is no more.
    pub(super) async fn walk_failures(
        &self,
        wanted: &Wanted,
        from: Option<Place>,
        mut bounds: Bounds,
        each: &mut (dyn for<'a> FnMut(Found<'a>) -> Next + Send),
    ) -> Result<Option<Place>, Status> {
        if let Some(place) = from
            && let Some(index) = place.index
        {
            let runs = self.runs_of_place(place).await?;
            if let Some(run) = runs.into_iter().find(|run| run.namespace == wanted.namespace) {
                let stopped = self.walk_run(wanted, (&run, index), &mut bounds, each).await?;
                if let Some(index) = stopped {
                    return Ok(Some(Place { index: Some(index), ..place }));
                }
            }
        }
        let mut place = from.map(|place| Place { index: None, ..place });
        while bounds.runs > 0 {
            let limit = bounds.runs.min(RUNS_AT_ONCE);
            let after = place.map(|place| (place.ended_us, place.run));
            let runs = self.people.runs_failed(&wanted.namespace, &wanted.filter, after, limit).await;
            let runs = runs.map_err(store_status)?;
            let is_last = runs.len() < limit as usize;
            for run in runs {
                bounds.runs -= 1;
                let after = Place::after(&run);
                let stopped = self.walk_run(wanted, (&run, 0), &mut bounds, each).await?;
                if let Some(index) = stopped {
                    return Ok(Some(Place { index: Some(index), ..after }));
                }
                place = Some(after);
            }
            if is_last {
                return Ok(None);
            }
        }
        Ok(place)
    }

    async fn runs_of_place(&self, place: Place) -> Result<Vec<Run>, Status> {
        if !self.has_shard(place.shard).await? {
            return Ok(Vec::new());
        }
        self.people.runs(place.shard, &[place.run]).await.map_err(store_status)
    }

    /// The index before which the walk stopped; none where it goes on with the next run.
    async fn walk_run(
        &self,
        wanted: &Wanted,
        (run, mut from): (&Run, u32),
        bounds: &mut Bounds,
        each: &mut (dyn for<'a> FnMut(Found<'a>) -> Next + Send),
    ) -> Result<Option<u32>, Status> {
        // A run that is gone on with may have been retried: its counts say nothing of what was dead.
        if from == 0 && !wanted.of_run(run) {
            return Ok(None);
        }
        loop {
            if bounds.rows == 0 {
                return Ok(Some(from));
            }
            let limit = bounds.rows.min(ROWS_AT_ONCE);
            let rows = self.people.history_failed(run.shard, run.id, from, &wanted.outcomes, limit).await;
            let rows = rows.map_err(store_status)?;
            bounds.rows -= u32::try_from(rows.len()).unwrap_or(u32::MAX).min(bounds.rows);
            let is_last = rows.len() < limit as usize;
            for mut row in rows {
                let after = row.index.saturating_add(row.count);
                row.message = self.without_seal((row.run, row.index), row.message);
                let reason = failure::reason(&row.message);
                if wanted.reason.as_ref().is_none_or(|wanted| *wanted == reason) {
                    let from = row.index.max(from);
                    match each(Found { run, row: &row, from, reason }) {
                        Next::Row => {}
                        Next::Run => return Ok(None),
                        Next::StopBefore(index) => return Ok(Some(index)),
                    }
                }
                from = after;
            }
            if is_last {
                return Ok(None);
            }
        }
    }
}
