//! Looks after runs that take longer than they did: notes where runs end, and reads how long those before them took.
//!
//! In: what owners of this process have committed; the latest runs of a schedule, from the store. Out: the schedules whose runs
//! take longer, for those who ask what is wrong. Invariants: where a run ends, nothing is done but to note its schedule, and what
//! is noted is bounded ([`book`]); at most [`READS_EACH`] reads begin in a second, one after the other, so that they have one
//! connection at most; of a shard that is new here, the runs that ended in the last day are noted once, so that a restart ends no
//! trouble. Not here: what counts as longer, which the core decides.

mod book;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tollgate_core::handle::change::Changes;
use tollgate_core::model::{DAY_US, Now};
use tollgate_core::trouble::Drifting;
use tollgate_core::trouble::drift::{BEFORE_MAX, Took, judge};
use tollgate_metrics::Role;
use tollgate_store::StoreError;

use crate::queries::readable_specs;
use crate::{Shared, outage};
use book::{Book, Note};

/// How often is looked.
const EVERY: Duration = Duration::from_secs(1);
/// How many schedules, and new shards, are read then.
const READS_EACH: usize = 50;
/// How many runs of a schedule are read, whatever became of them: of these the latest that ended well are compared.
const RUNS_READ: u32 = 2 * (BEFORE_MAX as u32 + 1);
/// How many runs of a new shard, the latest that have ended.
const ENDED_READ: u32 = 500;

/// Which schedules take longer, of some queue shards.
#[derive(Debug, Default)]
pub(crate) struct KnownDrift {
    pub(crate) schedules: Vec<Drifting>,
    /// There were more than are kept.
    pub(crate) is_cut: bool,
    /// Some of the shards are new here, and not all has been read that the owners before may have known.
    pub(crate) is_settling: bool,
}

/// What is noted and known; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DriftWatch(Arc<Mutex<Book>>);

impl DriftWatch {
    /// This has been committed: runs may have ended, schedules may have gone.
    pub(crate) fn committed(&self, shard: u16, changes: &Changes) {
        let mut ended = changes.runs_changed.iter().filter_map(Note::of).peekable();
        let mut gone = changes.schedules.iter().filter(|row| row.deleted || row.home.is_some()).peekable();
        if ended.peek().is_none() && gone.peek().is_none() {
            return;
        }
        let mut book = self.book();
        ended.for_each(|note| book.note(note));
        gone.for_each(|schedule| book.forget(shard, schedule.uid));
    }

    /// What is known of these shards.
    pub(crate) fn known(&self, shards: &[u16], mono_us: i64) -> KnownDrift {
        let book = self.book();
        KnownDrift {
            schedules: book.drifting(shards),
            is_cut: book.is_cut(mono_us),
            is_settling: book.is_settling(shards),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks again and again, until told to stop.
pub(crate) async fn watch(shared: Shared, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        if let Err((shard, error)) = shared.look_for_drift(&stop).await {
            shared.options.metrics.store_failed(Role::Handler);
            outage::note(
                shard,
                &error,
                "how long runs took cannot be read; others are looked at in a second",
            );
        }
    }
}

impl Shared {
    /// Reads some of what is noted. Where a read fails, the others are left for the next time.
    async fn look_for_drift(&self, stop: &CancellationToken) -> Result<(), (u16, StoreError)> {
        let (shards, now) = (self.peers.routes().shards(), self.clock.now());
        self.drift.book().keep_only(&shards, now);
        for _ in 0..READS_EACH {
            if stop.is_cancelled() {
                return Ok(());
            }
            // No guard lives on while something is read.
            let unread = self.drift.book().unread(&shards);
            if let Some(shard) = unread {
                self.read_shard(shard, now).await.map_err(|error| (shard, error))?;
                continue;
            }
            let note = self.drift.book().take();
            let Some(note) = note else { return Ok(()) };
            let drifting = self.drifting(&note).await.map_err(|error| (note.shard, error))?;
            self.drift.book().judged(note, drifting, now.mono_us);
        }
        Ok(())
    }

    /// Notes what ended in the last day in a shard that is new here.
    async fn read_shard(&self, shard: u16, now: Now) -> Result<(), StoreError> {
        let runs = self.people.runs_ended(shard, now.wall_us - DAY_US, ENDED_READ).await?;
        self.drift.book().read(shard, runs.iter().filter_map(Note::of));
        Ok(())
    }

    /// Whether the runs of a schedule take longer, up to the one that is noted.
    async fn drifting(&self, note: &Note) -> Result<Option<Drifting>, StoreError> {
        let runs = self.people.schedule_runs(note.shard, note.uid, note.launch_us, RUNS_READ).await?;
        let took: Vec<Took> = runs.iter().rev().filter_map(Took::of).collect();
        let Some((last, drift)) = took.last().zip(judge(&took)) else { return Ok(None) };
        let uid = match self.people.schedule_uid(&note.namespace, &note.schedule).await {
            // It is there.
            Err(StoreError::Corrupt { .. }) => Some(note.uid),
            read => read?,
        };
        // One that has been deleted is in no trouble any more.
        if uid != Some(note.uid) {
            return Ok(None);
        }
        let specs = readable_specs(&*self.people, note.shard, &[(note.uid, note.generation)]).await?;
        let policy = specs.into_iter().next().and_then(|spec| spec.policy_id).unwrap_or_default();
        let (namespace, schedule) = (note.namespace.clone(), note.schedule.clone());
        Ok(Some(Drifting { namespace, schedule, policy, ended_us: last.finished_us, drift }))
    }
}
