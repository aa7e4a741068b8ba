//! Decides what a failure of the store is worth in the log: that the store is away, the process says once, for all of its
//! shards, when its heartbeat fails; what concerns one shard alone is a line of its own.

use tollgate_store::StoreError;

/// Notes a failure that one shard has met.
pub(crate) fn note(shard: u16, error: &StoreError, what: &'static str) {
    match error {
        StoreError::Unreachable(_) => tracing::debug!(shard, %error, "{what}"),
        _ => tracing::warn!(shard, %error, "{what}"),
    }
}
