//! Who may write to a shard: the shard's row, and what an owner remembers of it.
//!
//! The lease's id is all that a commit is asked for, and a commit leaves the row as it is: an owner that does not know how
//! its last commit ended takes the shard over from itself, and a fresh id keeps out whatever is still on its way.

use tollgate_core::own;
use uuid::Uuid;

/// Who owns a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lease {
    /// 0 where it has none.
    pub(crate) owner: u32,
    /// Made anew at every takeover.
    pub(crate) lease_id: u64,
    pub(crate) epoch: u64,
}

impl Lease {
    /// As a process reads it.
    pub(crate) fn seen(&self, shard: u16) -> own::Lease {
        let owner = if self.owner == 0 { String::new() } else { self.owner.to_string() };
        let lease_id = Uuid::from_u128(u128::from(self.lease_id));
        own::Lease { shard, owner, lease_id, epoch: self.epoch as i64 }
    }

    /// The row that a process has read.
    pub(crate) fn of(seen: &own::Lease) -> Self {
        let owner = seen.owner.parse().unwrap_or_default();
        Self { owner, lease_id: seen.lease_id.as_u128() as u64, epoch: seen.epoch as u64 }
    }

    /// Whether a transaction of an owner with this lease may go on.
    pub(crate) fn passes(&self, lease: &Self) -> bool {
        self.lease_id == lease.lease_id
    }

    /// Takes the shard over, if its row is still as `seen`.
    pub(crate) fn take(&mut self, seen: &Self, owner: u32, fresh: u64) -> Option<Self> {
        if self != seen {
            return None;
        }
        *self = Self { owner, lease_id: fresh, epoch: seen.epoch + 1 };
        Some(self.clone())
    }

    /// Gives the shard up, if it is still this owner's.
    pub(crate) fn give_up(&mut self, lease: &Self, fresh: u64) {
        if self.lease_id == lease.lease_id {
            (self.owner, self.lease_id) = (0, fresh);
        }
    }
}
