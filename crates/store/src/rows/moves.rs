//! Rows of what moves to another queue shard.

use sqlx::FromRow;
use tollgate_core::model::{Policy, Schedule};
use uuid::Uuid;

use super::plan::read_schedule;
use super::{corrupt, json, parse};
use crate::StoreError;
use crate::columns::row;

row! {
    /// A policy that moves.
    MovedPolicyRow of "policies with another home" {
        key {
            uid: Uuid,
        }
        fixed {}
        changing {
            spec: String,
            shard: i32,
        }
    }
}

impl MovedPolicyRow {
    /// As it is once it lives in another shard.
    pub(crate) fn in_shard(&self, shard: u16) -> Result<(Self, Policy), StoreError> {
        let mut policy: Policy =
            parse("spec", &self.spec).map_err(corrupt("policies", || format!("policy {}", self.uid)))?;
        policy.shard = shard;
        let row = Self { uid: self.uid, spec: json(&policy)?, shard: i32::from(shard) };
        Ok((row, policy))
    }
}

row! {
    /// A schedule that is to move.
    MovingScheduleRow of "schedules that move" {
        key {
            uid: Uuid,
        }
        fixed {
            namespace: String,
            id: String,
            policy_uid: Option<Uuid>,
            shard: i32,
            spec: String,
        }
        changing {}
    }
}

row! {
    /// A schedule that lives in another shard.
    MovedScheduleRow of "schedules with another home" {
        key {
            uid: Uuid,
        }
        fixed {}
        changing {
            spec: String,
            shard: i32,
        }
    }
}

impl MovingScheduleRow {
    /// As it is once it lives in another shard.
    pub(crate) fn in_shard(&self, from: u16, shard: u16) -> Result<MovedScheduleRow, StoreError> {
        let mut schedule = Schedule { shard: Some(shard), ..read_schedule(self.uid, &self.spec)? };
        // Runs that have ended stay there: whoever makes one looks there too.
        schedule.former_homes.retain(|former| *former != shard && *former != from);
        schedule.former_homes.push(from);
        Ok(MovedScheduleRow { uid: self.uid, spec: json(&schedule)?, shard: i32::from(shard) })
    }
}

row! {
    /// Where a policy or schedule has gone.
    MovedHomeRow of "moved_homes" {
        key {
            shard_id: i32,
            uid: Uuid,
        }
        fixed {}
        changing {
            to_shard: i32,
            moved_us: i64,
        }
    }
}

row! {
    /// Where a run has gone.
    MovedRunRow of "moved_runs" {
        key {
            shard_id: i32,
            run_id: Uuid,
        }
        fixed {}
        changing {
            to_shard: i32,
            moved_us: i64,
        }
    }
}

/// A run that has not ended, as far as its move goes.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct OpenRunRow {
    pub(crate) run_id: Uuid,
    pub(crate) schedule_uid: Uuid,
    pub(crate) policy_uid: Option<Uuid>,
    pub(crate) state: String,
    pub(crate) ended: i32,
}

/// A queue shard's lease, held.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct HeldLeaseRow {
    pub(crate) shard_id: i32,
    pub(crate) lease_id: Uuid,
    pub(crate) epoch: i64,
}
