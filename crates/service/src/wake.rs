//! How a service wakes the owner of a queue shard, wherever that owner is.

use std::sync::Arc;

/// Called with a queue shard's number after something was written for its owner, so that the owner reads at once.
pub type Wake = Arc<dyn Fn(u16) + Send + Sync>;
