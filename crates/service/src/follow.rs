//! How the owner of a queue shard has launched what follows the ends of its runs.

use async_trait::async_trait;
use tollgate_core::handle::Following;
use tollgate_core::model::RunEnd;
use tollgate_store::StoreError;

/// What launches the runs that follow others. The owner of a shard reads no schedules; this does.
#[async_trait]
pub trait Follow: Send + Sync {
    /// Launches what follows these ends, or records why nothing does; what has been launched before stays as it is.
    ///
    /// # Errors
    /// What the store says. Some may have been launched; asked again, these are not launched again.
    async fn follow(&self, ends: &[RunEnd]) -> Result<(), StoreError>;
    /// Only looks: the run that follows this end, if it lives in this shard, may be handed to its owner as it is, and has not
    /// been launched. Everything else is for [`Follow::follow`].
    ///
    /// # Errors
    /// What the store says.
    async fn following(&self, end: &RunEnd, shard: u16) -> Result<Option<Following>, StoreError>;
}
