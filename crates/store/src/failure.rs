//! Why a transaction's body stopped, before anybody has judged it.

use crate::StoreError;

/// What the body of a transaction may fail with.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Judged already.
    Store(StoreError),
    /// To be judged by the driver.
    Sql(sqlx::Error),
    /// The fence let nothing through.
    Fenced,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

/// How a transaction ended without a commit that is known to have been made.
#[derive(Debug)]
pub(crate) enum TransactionError {
    /// Nothing was committed.
    RolledBack(Failure),
    /// COMMIT itself failed, or its answer did not come.
    AtCommit(sqlx::Error),
    /// No answer came for too long; nobody knows what was committed.
    Silent,
    /// The task that carried it out is gone.
    Lost(String),
}
