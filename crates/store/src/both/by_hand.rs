//! Runs that somebody makes by hand, with all that is written with them.
//!
//! Invariant: of two that answer the same request, one writes; the other finds that it has been written.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{Ask, Engine, Tx, hold_policies, insert_runs, sql};
use crate::StoreError;
use crate::batch::judge_policies;
use crate::failure::Failure;
use crate::plan::{ByHand, RequestStep};
use crate::rows::{AuditRow, RequestRow, RunRow, SpecRow, run_rows};

/// The rows of a [`ByHand`].
pub(super) struct ByHandRows {
    runs: Vec<RunRow>,
    only_new: bool,
    specs: Vec<SpecRow>,
    policy: BTreeMap<Uuid, String>,
    audit: Vec<AuditRow>,
    request: Option<RequestStep>,
}

impl ByHandRows {
    pub(super) fn new(by_hand: ByHand) -> Result<Self, StoreError> {
        let specs = by_hand.specs.iter().map(|(spec, shard)| SpecRow::of_runs(spec, *shard, &by_hand.runs));
        Ok(Self {
            specs: specs.collect::<Result<_, _>>()?,
            runs: run_rows(&by_hand.runs),
            only_new: by_hand.only_new,
            policy: by_hand.policy.into_iter().collect(),
            audit: by_hand.audit.iter().map(AuditRow::new).collect::<Result<_, _>>()?,
            request: by_hand.request,
        })
    }

    /// How many runs are new; none where the request is elsewhere.
    pub(super) async fn write<DB: Engine>(&self, tx: &mut Tx<'_, DB>) -> Result<Option<u32>, Failure> {
        // First: who answers the same request waits here for the other's commit.
        if let Some(step) = &self.request
            && !take_step(tx, step).await?
        {
            return Ok(None);
        }
        if !self.policy.is_empty() {
            let wanted: Vec<Uuid> = self.policy.keys().copied().collect();
            judge_policies(&self.policy, &hold_policies(tx, &wanted).await?)?;
        }
        if !self.audit.is_empty() {
            tx.execute(Ask::new(sql!("audit_insert")).set(&self.audit)?).await?;
        }
        if !self.specs.is_empty() {
            tx.execute(Ask::new(sql!("specs_insert")).set(&self.specs)?).await?;
        }
        let new = insert_runs(tx, &self.runs).await?;
        if self.only_new && new < self.runs.len() as u64 {
            let what = "a run with this launch time exists already".to_owned();
            return Err(StoreError::Conflict { what }.into());
        }
        if let Some(RequestStep { request, .. }) = self.request.as_ref().filter(|_| new > 0) {
            let ask = Ask::new(sql!("requests_count")).bind(request.schedule_uid).bind(request.id.clone());
            tx.execute(ask.bind(i64::try_from(new).unwrap_or(i64::MAX))).await?;
        }
        Ok(Some(u32::try_from(new).unwrap_or(u32::MAX)))
    }
}

/// Brings a request further. False where it is not where it should be.
async fn take_step<DB: Engine>(tx: &mut Tx<'_, DB>, step: &RequestStep) -> Result<bool, Failure> {
    let RequestStep { request, from } = step;
    let ask = match from {
        None => Ask::new(sql!("requests_insert")).set(&[RequestRow::from(request)])?,
        Some(from) => Ask::new(sql!("requests_move"))
            .bind(request.schedule_uid)
            .bind(request.id.clone())
            .bind(from.clone())
            .bind(request.progress.clone()),
    };
    Ok(tx.execute(ask).await? == 1)
}
