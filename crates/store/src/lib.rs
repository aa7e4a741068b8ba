//! Where state lives: small traits, one method a transaction, and two drivers behind them.
//!
//! - [`plan`]: schedules, policies, children, audit (written by the Schedule Master).
//! - [`emit`]: windows, scan tasks, the launch index (read and written by the Event Emitter).
//! - [`follow`]: what follows the ends of runs.
//! - [`handle`]: queue shards, their inboxes, runs and tokens (written by a shard's owner, through the fence).
//! - [`history`]: what has ended; retention.
//! - [`attempts`]: what became of deliveries.
//! - [`minutes`]: what became of events by the minute.
//! - [`items`]: what the events of submitted runs carry.
//! - [`listing`]: runs whose items are fetched.
//! - [`look_up`]: what the Event Handler answers people from; no schedules.
//! - [`seal`]: rows that hold secrets; [`quota`]: counts.
//! - [`revision`]: revisions of resources, by which callers number their changes.
//! - [`keys`]: API keys.
//! - [`layout`]: how many queue shards there are.
//! - [`alert`]: who is told of what is wrong.
//! - [`calendar`]: dates under a name, and which schedules go by them.
//! - [`columns`]: a row said once, for both drivers.
//!
//! [`sqlite`] serves one process, [`postgres`] serves many. One conformance suite runs on both. No statement reads
//! a clock: times are parameters, in microseconds.

/// The text of a statement in `queries/`, which is the same for both databases.
macro_rules! both_text {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/queries/", $name, ".sql"))
    };
}

pub mod alert;
pub mod attempts;
mod batch;
mod both;
pub mod calendar;
mod corrupt;
mod error;
mod failure;
mod installation;
mod line;
mod rows;
mod slot;

pub mod columns;
pub mod emit;
pub mod follow;
pub mod handle;
pub mod history;
pub mod items;
pub mod keys;
pub mod layout;
pub mod listing;
pub mod look_up;
pub mod minutes;
pub mod moves;
pub mod plan;
pub mod postgres;
pub mod quota;
pub mod revision;
pub mod seal;
pub mod sqlite;

use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;

pub use corrupt::CorruptRow;
pub use error::{CommitError, StoreError};

/// What every process of an installation shares; made with the first migration. Only how its secret is stored may change.
#[derive(Clone, PartialEq, Eq)]
pub struct Installation {
    /// Its id.
    pub id: Uuid,
    /// Key of the event ids' seals, as it is stored: 32 bytes in clear, or an envelope of `tollgate-secrets`.
    pub secret: Vec<u8>,
    /// How many queue shards it had at first: [`layout`] says how many there are.
    pub shards: u16,
}

/// For whom a store does what the roles do not do for themselves: whose share of its connections it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// People, who may ask for much: they wait for people alone.
    People,
    /// Consumers whose releases go past an owner. They stand in the line of the roles' own work, and never wait for
    /// people: the caller sees to it that they are few at once.
    Consumers,
}

/// A store: all its parts, and what belongs to none of them.
#[async_trait]
pub trait Store:
    alert::AlertStore
    + calendar::CalendarStore
    + plan::PlanStore
    + plan::MasterStore
    + emit::EmitStore
    + follow::FollowStore
    + handle::HandleStore
    + history::HistoryStore
    + history::RetentionStore
    + look_up::LookUpStore
    + keys::KeyStore
    + layout::LayoutStore
    + quota::QuotaStore
    + revision::RevisionStore
    + seal::SealStore
{
    /// The installation's identity.
    async fn installation(&self) -> Result<Installation, StoreError>;
    /// The same store, all of whose calls are made for `asker`. Cheap; it ends with the store that it is of.
    fn on_behalf_of(&self, asker: Asker) -> Arc<dyn Store>;
    /// A cheap query, for readiness.
    async fn ping(&self) -> Result<(), StoreError>;
    /// What the database's own clock shows, in microseconds since the Unix epoch; none where it has none of its own. Only for
    /// finding out whether a clock is wrong: nothing is decided by it.
    async fn clock_us(&self) -> Result<Option<i64>, StoreError>;
    /// Waits for what is under way and closes.
    async fn close(&self);
}

/// Opens the store that a URL names, and brings its schema up to date.
///
/// `sqlite:PATH` (or a plain path) opens an embedded database and locks it for this process; `postgres://…` connects
/// with at most `connections_max` connections.
///
/// # Errors
/// [`StoreError::Unreachable`], [`StoreError::Locked`], [`StoreError::WrongSchema`] and what the driver reports.
pub async fn open(url: &str, connections_max: u32) -> Result<Arc<dyn Store>, StoreError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(Arc::new(postgres::Postgres::open(url, connections_max).await?));
    }
    Ok(Arc::new(sqlite::Sqlite::open(url.strip_prefix("sqlite:").unwrap_or(url)).await?))
}

/// As [`open`], for the administration of keys and secrets alone, which may go on beside the process that has an
/// embedded database open: nothing that the process keeps in its memory is touched.
///
/// # Errors
/// As [`open`]; [`StoreError::Locked`] only where the process that has it open is of an older version.
pub async fn open_beside(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return open(url, 2).await;
    }
    Ok(Arc::new(sqlite::Sqlite::open_beside(url.strip_prefix("sqlite:").unwrap_or(url)).await?))
}
