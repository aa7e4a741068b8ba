//! Decides what is planned: owns schedules, policies, calendars, alerts, their children and the audit log.
//!
//! In: calls of `tollgate.v1.ScheduleMasterService`. Out: one transaction of the store for each change, and a
//! [`ScheduleChanged`](tollgate_core::handle::control::Control::ScheduleChanged) message to the queue shard of the
//! schedule, which puts right what the emitter has emitted already.
//! Invariants: a refused call writes nothing; an update that changes nothing writes nothing; a change that was
//! begun is carried to its end whether or not its caller waits; what the queue shards must hear of a change is written with it,
//! and the rest is delivered by [`ScheduleMaster::sweep_until`].
//! Not here: what a change tells which shards, and in which order ([`tollgate_core::plan`]); scanning, firing, releases. The
//! Schedule Master never reads tokens and never writes runs but those that a user asks for.

mod alerts;
mod apply;
mod audit;
mod backfill;
mod by_hand;
mod calendars;
mod chains;
mod change;
mod dates;
mod deletions;
mod done;
mod draft;
mod forecast;
mod horizon;
mod ids;
mod lists;
mod many;
mod outbox;
mod parents;
mod policies;
mod preview;
mod progress;
mod quota;
mod requests;
mod revisions;
mod runs;
mod schedules;
mod secrets;
mod service;
mod submissions;
mod warnings;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tollgate_clock::Clock;
use tollgate_core::plan::Layout;
use tollgate_metrics::Metrics;
use tollgate_secrets::Keys;
use tollgate_service::room::Rooms;
use tollgate_service::wake::Wake;
use tollgate_store::layout::ShardCount;
use tollgate_store::plan::MasterStore;
use tollgate_store::{Store, StoreError};
use uuid::Uuid;

pub use quota::{Quota, QuotaOverride, Quotas};
pub use secrets::{Resealing, reseal};
pub use tollgate_core::plan::shard_of;
pub use warnings::{Address, AddressFault, AddressKind, AddressLook};

/// What an operator may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// For how long finished runs are kept, in seconds; a backfill cannot reach further back, because it could not
    /// tell which launch times have had their run.
    pub retention_s: i64,
    /// How many resources ApplyResources writes in one transaction.
    pub apply_chunk: usize,
    /// The most resources of one ApplyResources call.
    pub apply_max: usize,
    /// What seals signing secrets, header values and payloads.
    pub keys: Arc<Keys>,
    /// How much each namespace may have and do.
    pub quotas: Quotas,
    /// Where it notes what it does.
    pub metrics: Metrics,
    /// What tells whether deliveries to an address would be refused.
    pub addresses: AddressLook,
    /// Whether Kafka targets may be: handlers of the same build send to them.
    pub speaks_kafka: bool,
    /// The policy that new ones of all namespaces get above them which name none, and whose namespace has none that adopts.
    pub root_policy: Option<tollgate_proto::convert::Name>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            retention_s: 45 * 24 * 3600,
            apply_chunk: 100,
            apply_max: 100_000,
            keys: Arc::default(),
            quotas: Quotas::default(),
            metrics: Metrics::default(),
            addresses: AddressLook::default(),
            speaks_kafka: false,
            root_policy: None,
        }
    }
}

/// Transactions of all namespaces at once; connections to the store are left for others.
const TURNS_MAX: usize = 6;
/// Transactions of one namespace at once.
const TURNS_EACH: usize = 2;
/// Calls that make schedules of one namespace at once.
const MAKERS_EACH: usize = 1024;

/// The service. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct ScheduleMaster {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn MasterStore>,
    clock: Clock,
    wake: Wake,
    options: Options,
    /// By how many queue shards homes are computed that nobody wrote down.
    base: u16,
    /// How many queue shards there are.
    shards: ShardCount,
    ids: ids::Ids,
    /// The launch time of the latest manual run, so that two of them never share one.
    manual_us: AtomicI64,
    /// What each namespace has written of late.
    writes: quota::Writes,
    /// Told when a notice could not be delivered.
    left_over: tokio::sync::Notify,
    /// How much waits in the outbox.
    waiting: outbox::WaitingNotices,
    /// How much each namespace has.
    tally: quota::Tally,
    /// Held, by its namespace, by each call that makes schedules, until they are committed: whoever counts them is alone.
    making: Rooms<String>,
    /// Transactions under way, by namespace.
    turns: Rooms<String>,
    /// Streams of items, by namespace.
    submitting: Rooms<String>,
}

impl ScheduleMaster {
    /// A Schedule Master over this store.
    ///
    /// # Errors
    /// What the store says when it is asked for the installation.
    pub async fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        wake: Wake,
        options: Options,
    ) -> Result<Self, StoreError> {
        let (base, shards) = (store.installation().await?.shards, store.shard_count());
        let ids = ids::Ids::default();
        let inner = Inner {
            store,
            clock,
            wake,
            options,
            base,
            shards,
            ids,
            manual_us: AtomicI64::new(0),
            writes: quota::Writes::default(),
            left_over: tokio::sync::Notify::default(),
            waiting: outbox::WaitingNotices::default(),
            tally: quota::Tally::default(),
            making: Rooms::new(usize::MAX, MAKERS_EACH),
            turns: Rooms::new(TURNS_MAX, TURNS_EACH),
            submitting: Rooms::new(submissions::STREAMS_MAX, submissions::STREAMS_EACH),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    fn store(&self) -> &dyn MasterStore {
        self.inner.store.as_ref()
    }

    fn options(&self) -> &Options {
        &self.inner.options
    }

    fn now_us(&self) -> i64 {
        self.inner.clock.wall_us()
    }

    /// The moment of a change to something that was last changed at `before_us`: changes never share one.
    fn change_us(&self, before_us: i64) -> i64 {
        self.now_us().max(before_us + 1)
    }

    fn layout(&self) -> Layout {
        Layout { base: self.inner.base, now: self.inner.shards.used() }
    }

    /// Where a new root of policies lives.
    fn shard_of(&self, uid: Uuid) -> u16 {
        shard_of(uid, self.layout().now)
    }

    fn new_id(&self, at_us: i64) -> Uuid {
        self.inner.ids.at(at_us)
    }

    fn wake(&self, shard: u16) {
        (self.inner.wake)(shard);
    }

    /// A launch time for a manual run: now, never that of another one, and never a whole second, which would be
    /// the launch time of a scheduled run.
    fn manual_launch_us(&self) -> i64 {
        let now = self.now_us();
        let next = |last: i64| {
            let us = now.max(last + 1);
            us + i64::from(us % tollgate_core::model::SECOND_US == 0)
        };
        let manual = &self.inner.manual_us;
        let last = manual.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |last| Some(next(last)));
        next(last.unwrap_or_default())
    }
}
