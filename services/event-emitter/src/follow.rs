//! Launches what follows the ends of runs.
//!
//! In: ends, from the owners of the queue shards in this process. Out: runs, recorded skips, owners that are woken. Invariants:
//! an end makes one run, however often it is told and by whomever; nothing is said to be done before it is written. Not here:
//! what follows ([`tollgate_core::emit::follow`]), when it is tried again (the Event Handler).

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use tollgate_clock::Clock;
use tollgate_core::emit::{Judge, Next, follow};
use tollgate_core::handle::Following;
use tollgate_core::model::{ChainRoot, Run, RunEnd, RunSpec, RunState, Schedule, SkipReason, Skipped};
use tollgate_core::plan::home;
use tollgate_metrics::{Metrics, StepLaunched};
use tollgate_proto::convert::names;
use tollgate_service::follow::Follow;
use tollgate_service::wake::Wake;
use tollgate_store::StoreError;
use tollgate_store::follow::FollowStore;

use std::sync::Arc;

/// Launches what follows.
pub struct Follower {
    store: Arc<dyn FollowStore>,
    /// By how many queue shards homes are computed that nobody wrote down.
    base: u16,
    clock: Clock,
    wake: Wake,
    late_after_us: i64,
    metrics: Metrics,
}

/// What follows some ends.
#[derive(Default)]
struct Launch {
    runs: Vec<Run>,
    skipped: Vec<Skipped>,
    /// The ends of chains for which somebody waits.
    ended: Vec<ChainRoot>,
    missing: u64,
}

impl Follower {
    /// A follower over this store, whose installation had so many queue shards at first. What follows an end that is longer ago
    /// than `late_after_us` has been missed, and is for its schedule's catch-up rule to decide.
    pub fn new(
        (store, base): (Arc<dyn FollowStore>, u16),
        clock: Clock,
        wake: Wake,
        late_after_us: i64,
        metrics: Metrics,
    ) -> Self {
        Self { store, base, clock, wake, late_after_us, metrics }
    }

    /// The schedules that the ends name, by namespace and id.
    async fn schedules(&self, ends: &[RunEnd]) -> Result<BTreeMap<(String, String), Schedule>, StoreError> {
        let mut wanted: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for end in ends {
            if let Some(next) = &end.next {
                wanted.entry(&end.namespace).or_default().insert(next.schedule.clone());
            }
        }
        let mut found = BTreeMap::new();
        for (namespace, ids) in wanted {
            let ids: Vec<String> = ids.into_iter().collect();
            let schedules = self.store.following(namespace, &ids).await?;
            found.extend(schedules.into_iter().map(|one| ((namespace.to_owned(), one.id.clone()), one)));
        }
        Ok(found)
    }

    /// What follows each end. One that has been followed before, by somebody who died before it could say so, is left out: a
    /// pause, or a move of the schedule, may have come since.
    async fn judge(
        &self,
        ends: &[RunEnd],
        schedules: &BTreeMap<(String, String), Schedule>,
    ) -> Result<Launch, StoreError> {
        let mut launch = Launch::default();
        for end in ends {
            let named = end.next.as_ref().map(|next| (end.namespace.clone(), next.schedule.clone()));
            let next = named.as_ref().and_then(|named| schedules.get(named));
            let decided = {
                let mut judge = Judge::new(self.clock.wall_us(), self.late_after_us);
                follow(end, next, self.base, &mut judge)
            };
            if let Some(next) = next
                && let Some(launch_us) =
                    self.launched_us(end, next, matches!(decided, Ok(Next::Run(_)))).await?
            {
                launch.ended.extend(end.of.root.filter(|root| end.gives_up(*root, launch_us)));
                continue;
            }
            match decided {
                Ok(Next::Run(run)) => {
                    launch.runs.push(*run);
                    continue;
                }
                Ok(Next::Skip(skipped)) => launch.skipped.push(skipped),
                Ok(Next::Nothing) => launch.missing += tell_missing(end, "it does not exist any more"),
                Err(error) => {
                    launch.missing += tell_missing(end, &format!("its timing cannot be read: {error}"));
                }
            }
            launch.ended.extend(end.of.root);
        }
        Ok(launch)
    }

    /// When the run that follows was launched, if it is there. Where it is to be made, its present shard knows.
    async fn launched_us(
        &self,
        end: &RunEnd,
        next: &Schedule,
        is_to_be: bool,
    ) -> Result<Option<i64>, StoreError> {
        let mut shards = next.former_homes.clone();
        if !is_to_be || end.of.root.is_some() {
            shards.push(home(next, self.base));
        }
        self.store.launch_of(&shards, end.next_run(next.uid)).await
    }
}

/// Says that a chain ends early, if it does; how often.
fn tell_missing(end: &RunEnd, why: &str) -> u64 {
    let Some(next) = &end.next else { return 0 };
    let schedule = names::of_schedule(&end.namespace, &next.schedule);
    let after = names::of_run(&end.namespace, end.of.shard, end.of.run);
    tracing::warn!(schedule, after, why, "a schedule does not follow the end of a run: its chain ends early");
    1
}

#[async_trait]
impl Follow for Follower {
    async fn following(&self, end: &RunEnd, shard: u16) -> Result<Option<Following>, StoreError> {
        let schedules = self.schedules(std::slice::from_ref(end)).await?;
        // Of one that has moved something may be on its way here still, which is read before runs that are handed over.
        let is_here = |next: &Schedule| home(next, self.base) == shard && next.former_homes.is_empty();
        let Some(next) = schedules.into_values().next().filter(is_here) else { return Ok(None) };
        let decided = {
            let mut judge = Judge::new(self.clock.wall_us(), self.late_after_us);
            follow(end, Some(&next), self.base, &mut judge)
        };
        // A list is fetched first; what makes no run is recorded, and told.
        let Ok(Next::Run(run)) = decided else { return Ok(None) };
        if run.state != RunState::Emitted || self.launched_us(end, &next, false).await?.is_some() {
            return Ok(None);
        }
        Ok(Some(Following { run: *run, spec: RunSpec::of(&next) }))
    }

    async fn follow(&self, ends: &[RunEnd]) -> Result<(), StoreError> {
        let began_us = self.clock.wall_us();
        let schedules = self.schedules(ends).await?;
        let Launch { runs, skipped, ended, missing } = self.judge(ends, &schedules).await?;
        tollgate_fault_points::pass("emitter.follow.before");
        let new = self.store.launch(&runs, &skipped).await?;
        tollgate_fault_points::pass("emitter.follow.after");
        for root in &ended {
            self.store.tell_ended(*root).await?;
        }
        let waiting = ended.iter().map(|root| root.shard);
        let shards: BTreeSet<u16> = runs.iter().map(|run| run.shard).chain(waiting).collect();
        shards.into_iter().for_each(|shard| (self.wake)(shard));
        self.metrics.traces().emitted(&runs, began_us, self.clock.wall_us());
        self.metrics.step_launched(StepLaunched::Launched, u64::from(new));
        self.metrics.step_launched(StepLaunched::Skipped, skipped.len() as u64);
        self.metrics.step_launched(StepLaunched::Missing, missing);
        for reason in [SkipReason::Paused, SkipReason::Missed] {
            let of_reason = skipped.iter().filter(|skipped| skipped.reason == reason).count();
            self.metrics.skipped(reason, of_reason as u64);
        }
        Ok(())
    }
}
