//! Errors by what the caller does about them.

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The thing does not exist.
    #[error("{what} does not exist")]
    NotFound {
        /// Kind and name.
        what: String,
    },
    /// A name is taken, or a generation (etag) is stale.
    #[error("{what}")]
    Conflict {
        /// What collided, for people.
        what: String,
    },
    /// It is needed by something else.
    #[error("{what}")]
    InUse {
        /// What needs it, for people.
        what: String,
    },
    /// The request makes no sense to the store (a page token of another query, say).
    #[error("{field}: {message}")]
    Invalid {
        /// The field.
        field: String,
        /// The value and what is allowed.
        message: String,
    },
    /// The database does not answer; try again later.
    #[error("the database is unreachable: {0}")]
    Unreachable(String),
    /// There is no room for what was to be written, and nothing of it was; try again once there is.
    #[error("the database's disk is full: {0}")]
    Full(String),
    /// The database cannot be opened; trying again does not help, something has to be mended.
    #[error("{place}: {why}")]
    CannotOpen {
        /// The file, or the server and its database; no password.
        place: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// Another process has the embedded database open.
    #[error("{path} is in use by another process; SQLite serves one process, use PostgreSQL for several")]
    Locked {
        /// The file.
        path: String,
    },
    /// The database has a schema that this version does not know.
    #[error("the database's schema is {found}, this version knows up to {known}; start a newer version")]
    WrongSchema {
        /// In the database.
        found: i64,
        /// In this binary.
        known: i64,
    },
    /// A row does not hold what it must.
    #[error("corrupt row in {table}, {key}: {column}: {message}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The row's key.
        key: String,
        /// The column.
        column: &'static str,
        /// What is wrong.
        message: String,
    },
    /// Anything else.
    #[error("the database refused: {0}")]
    Internal(String),
}

/// Why an owner's commit did not happen, or may not have.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Somebody else owns the shard now: drop its memory.
    #[error("the shard has another owner")]
    Fenced,
    /// The transaction was rolled back: reload the shard and go on.
    #[error("the commit failed: {0}")]
    Failed(StoreError),
    /// Nobody knows whether it was committed: take the shard over from oneself and reload.
    #[error("the commit's outcome is unknown: {0}")]
    Unknown(StoreError),
}
