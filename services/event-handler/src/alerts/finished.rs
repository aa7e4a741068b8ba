//! Which runs have finished, from the index of their ends: nothing is done for it where runs end.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tollgate_core::alert::{Ended, Selection};
use tollgate_core::model::{Alert, Run, RunId};
use tollgate_proto::convert::names;
use tollgate_store::StoreError;
use tollgate_store::alert::FinishedPage;
use uuid::Uuid;

use crate::Shared;
use crate::queries::readable_specs;

/// Runs that are read at once.
const PAGE: u32 = 500;
/// Pages of a shard that are read in one round.
const PAGES_MAX: usize = 20;
/// Shards that are read at once.
const AT_ONCE: usize = 4;

/// A run that has finished.
pub(super) struct Finished {
    pub(super) namespace: String,
    /// The policy's id, where an alert asks for it.
    policy: String,
    pub(super) ended: Ended,
}

impl Finished {
    /// Whether events of it ended badly.
    pub(super) fn has_failures(&self) -> bool {
        self.ended.failed + self.ended.expired > 0
    }

    /// Whether an alert tells of it.
    pub(super) fn is_wanted_by(&self, alert: &Alert, selection: &Selection<'_>) -> bool {
        let of = (self.namespace.as_str(), self.ended.schedule.as_str(), self.policy.as_str());
        alert.wants_run(of, self.has_failures(), selection)
    }
}

impl Shared {
    /// Runs that have finished at or after a moment, in the namespaces of these alerts, and a moment before which all that have
    /// are among them: `until_us`, which is now, or an earlier one where there are too many.
    pub(super) async fn finished_since(
        &self,
        from_us: i64,
        until_us: i64,
        alerts: &[&Alert],
    ) -> Result<(Vec<Finished>, i64), StoreError> {
        // Whether an alert of the namespace asks for policies.
        let mut asked: BTreeMap<&str, bool> = BTreeMap::new();
        for alert in alerts {
            *asked.entry(&alert.namespace).or_default() |= !alert.policies.is_empty();
        }
        let namespaces: Vec<String> = asked.keys().map(|namespace| (*namespace).to_owned()).collect();
        let (asked, namespaces) = (&asked, &namespaces);
        let of_shard = async |shard| {
            let read = |place| self.people.runs_finished(shard, namespaces, place, PAGE);
            let (runs, reached_us) = pages((from_us, until_us), read).await?;
            Ok((self.named(shard, runs, asked).await?, reached_us))
        };
        // Shards may have been added: no run of theirs is passed over.
        self.people.leases().await?;
        let shards: Vec<(Vec<Finished>, i64)> =
            stream::iter(0..self.shards.now()).map(of_shard).buffered(AT_ONCE).try_collect().await?;
        let reached_us = shards.iter().map(|(_, reached_us)| *reached_us).min().unwrap_or(until_us);
        Ok((shards.into_iter().flat_map(|(runs, _)| runs).collect(), reached_us))
    }

    async fn named(
        &self,
        shard: u16,
        runs: Vec<Run>,
        asked: &BTreeMap<&str, bool>,
    ) -> Result<Vec<Finished>, StoreError> {
        let of_policies = runs
            .iter()
            .filter(|run| run.policy_uid.is_some() && asked.get(run.namespace.as_str()) == Some(&true));
        let mut keys: Vec<(Uuid, i64)> = of_policies.map(|run| (run.schedule_uid, run.generation)).collect();
        keys.sort_unstable();
        keys.dedup();
        let specs =
            if keys.is_empty() { Vec::new() } else { readable_specs(&*self.people, shard, &keys).await? };
        let policy = |run: &Run| {
            let key = (run.schedule_uid, run.generation);
            let spec = specs.iter().find(|spec| (spec.schedule_uid, spec.generation) == key);
            spec.and_then(|spec| spec.policy_id.clone()).unwrap_or_default()
        };
        Ok(runs.iter().map(|run| finished(run, policy(run))).collect())
    }
}

/// Reads pages of a shard, and says before which moment all has been read.
async fn pages<'a>(
    (from_us, until_us): (i64, i64),
    read: impl Fn((i64, Option<RunId>)) -> BoxFuture<'a, Result<FinishedPage, StoreError>>,
) -> Result<(Vec<Run>, i64), StoreError> {
    let (mut place, mut runs, mut pages) = ((from_us, None), Vec::new(), 0);
    loop {
        let (page, next) = read(place).await?;
        runs.extend(page);
        pages += 1;
        let Some((reached_us, run)) = next else { return Ok((runs, until_us)) };
        // The next reading begins with a moment, so the first one is read as a whole.
        if pages >= PAGES_MAX && reached_us > from_us {
            return Ok((runs, reached_us));
        }
        place = (reached_us, Some(run));
    }
}

fn finished(run: &Run, policy: String) -> Finished {
    let counts = &run.counts;
    Finished {
        namespace: run.namespace.clone(),
        policy,
        ended: Ended {
            run: names::of_run(&run.namespace, run.named_shard(), run.id),
            schedule: run.schedule_id.clone(),
            launch_us: run.launch_us,
            finished_us: run.finished_us.unwrap_or_default(),
            events: run.events,
            succeeded: counts.succeeded,
            failed: counts.failed + counts.dead + counts.lost,
            expired: counts.expired,
        },
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use futures::FutureExt as _;

    use super::*;

    /// Pages without a run that can be read, each of which ends a second after the one before.
    async fn reached(pages_of: i64, same: i64) -> (i64, i64) {
        let read = std::cell::Cell::new(0);
        let (runs, reached_us) = pages((1_000, 9_000), |(since_us, after)| {
            read.set(read.get() + 1);
            assert_eq!(after.is_some(), read.get() > 1);
            let next_us = if read.get() > same { since_us + 1 } else { since_us };
            let next = (read.get() < pages_of).then_some((next_us, RunId(Uuid::nil())));
            futures::future::ready(Ok((Vec::new(), next))).boxed()
        })
        .await
        .unwrap();
        assert!(runs.is_empty());
        (reached_us, read.get())
    }

    #[tokio::test]
    async fn what_is_not_read_is_not_called_read() {
        assert_eq!(reached(1, 0).await, (9_000, 1));
        assert_eq!(reached(20, 0).await, (9_000, 20), "pages without a run that can be read do not end it");
        assert_eq!(reached(21, 0).await, (1_020, 20), "the rest is read next time");
        assert_eq!(reached(60, 50).await, (1_001, 51), "a moment is read as a whole");
    }
}
