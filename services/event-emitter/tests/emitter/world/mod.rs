//! A store in a temporary directory, a clock that tests move, schedules, and what came of them.

mod hooked;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tollgate_clock::Clock;
use tollgate_core::model::{
    CatchUp, CheckAgain, HttpTarget, OverlapRule, Pause, Payload, ReleaseMode, RetryPolicy, Run, SECOND_US,
    Schedule, SkipReason, Target, Timing, Trigger,
};
use tollgate_core::plan::{Child, Plan};
use tollgate_event_emitter::{Emitter, Options};
use tollgate_service::wake::Wake;
use tollgate_store::Store;
use tollgate_store::history::RunFilter;
use tollgate_store::plan::{Audit, PlanWrite};
use uuid::Uuid;

pub(crate) use hooked::{Hooked, Moment};

/// Queue shards that schedules are spread over.
pub(crate) const SHARDS: u128 = 4;

/// A launch by schedule and time.
pub(crate) type Launch = (Uuid, i64);

pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) wakes: Arc<Mutex<Vec<u16>>>,
    _directory: TempDir,
}

impl World {
    /// An empty store; the clock stands at `now_us`.
    pub(crate) async fn new(now_us: i64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("tollgate.db").display());
        let store = tollgate_store::open(&url, 1).await.unwrap();
        Self { store, clock: Clock::manual(now_us), wakes: Arc::default(), _directory: directory }
    }

    pub(crate) fn wake(&self) -> Wake {
        let wakes = Arc::clone(&self.wakes);
        Arc::new(move |shard| wakes.lock().unwrap().push(shard))
    }

    pub(crate) fn emitter(&self, options: Options) -> Arc<Emitter> {
        Arc::new(Emitter::new(Arc::clone(&self.store) as _, self.clock.clone(), self.wake(), options))
    }

    pub(crate) fn hooked(&self, hooked: &Arc<Hooked>, options: Options) -> Arc<Emitter> {
        Arc::new(Emitter::new(Arc::clone(hooked) as _, self.clock.clone(), self.wake(), options))
    }

    pub(crate) async fn put(&self, schedules: &[Schedule]) {
        put(&*self.store, schedules).await;
    }

    /// All runs, each with its launch; panics if one launch has two.
    pub(crate) async fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        loop {
            let after = runs.last().map(|run| (run.launch_us, run.id));
            let page = self.store.list_runs("default", &RunFilter::default(), after, 1_000).await.unwrap();
            if page.is_empty() {
                break;
            }
            runs.extend(page);
        }
        let launches: BTreeSet<Launch> = runs.iter().map(|run| (run.schedule_uid, run.launch_us)).collect();
        assert_eq!(launches.len(), runs.len(), "a launch has two runs");
        runs
    }

    pub(crate) async fn launches(&self) -> BTreeSet<Launch> {
        self.runs().await.iter().map(|run| (run.schedule_uid, run.launch_us)).collect()
    }

    /// Launch times of a schedule's runs.
    pub(crate) async fn launches_of(&self, schedule: &Schedule) -> Vec<i64> {
        let launches = self.launches().await;
        launches.iter().filter(|(uid, _)| *uid == schedule.uid).map(|(_, launch_us)| *launch_us).collect()
    }

    /// Launch times of a schedule that were skipped for this reason.
    pub(crate) async fn skipped_of(&self, schedule: &Schedule, reason: SkipReason) -> Vec<i64> {
        let mut skipped = Vec::new();
        let mut before = None;
        loop {
            let page = self.store.list_skipped(schedule.uid, before, 1_000).await.unwrap();
            let Some(last) = page.last() else { break };
            before = Some(last.launch_us);
            skipped.extend(page.iter().filter(|skip| skip.reason == reason).map(|skip| skip.launch_us));
        }
        skipped.sort_unstable();
        skipped
    }

    /// Rounds with this step until `until_us`.
    pub(crate) async fn steady(&self, emitter: &Emitter, step_us: i64, until_us: i64) {
        emitter.round().await.unwrap();
        while self.clock.wall_us() < until_us {
            self.clock.advance_us(step_us);
            emitter.round().await.unwrap();
        }
    }
}

pub(crate) async fn put(store: &dyn Store, schedules: &[Schedule]) {
    for chunk in schedules.chunks(500) {
        let writes = chunk.iter().map(|schedule| write(schedule, children(schedule))).collect();
        store.write_plan(writes).await.unwrap();
    }
}

/// Writes a schedule with other children than its own.
pub(crate) async fn put_with(store: &dyn Store, schedule: &Schedule, children: Vec<Child>) {
    store.write_plan(vec![write(schedule, children)]).await.unwrap();
}

/// Writes a schedule's next generation, which lives in this shard.
pub(crate) async fn move_to(store: &dyn Store, schedule: &Schedule, to: u16) {
    let mut moved = write(schedule, children(schedule));
    if let PlanWrite::PutSchedule { expected_generation, shard, .. } = &mut moved {
        (*expected_generation, *shard) = (Some(schedule.generation - 1), to);
    }
    store.write_plan(vec![moved]).await.unwrap();
}

pub(crate) fn children(schedule: &Schedule) -> Vec<Child> {
    Plan::compile(&schedule.timing, schedule.uid.as_bytes()).unwrap().children().to_vec()
}

fn write(schedule: &Schedule, children: Vec<Child>) -> PlanWrite {
    PlanWrite::PutSchedule {
        schedule: Box::new(schedule.clone()),
        expected_generation: None,
        lived_in: None,
        children,
        shard: u16::try_from(schedule.uid.as_u128() % SHARDS).unwrap(),
        audit: Audit {
            id: Uuid::now_v7(),
            at_us: schedule.updated_us,
            actor: "test".to_owned(),
            namespace: schedule.namespace.clone(),
            resource: schedule.id.clone(),
            action: "create".to_owned(),
            difference: serde_json::Value::Null,
        },
    }
}

/// The fires of these schedules in [from, to).
pub(crate) fn due(schedules: &[Schedule], from_us: i64, to_us: i64) -> BTreeSet<Launch> {
    let of = |schedule: &Schedule| {
        let plan = Plan::forecast(&schedule.timing, schedule.uid.as_bytes()).unwrap();
        let uid = schedule.uid;
        plan.fires_between(from_us - 1, to_us - 1).map(move |launch_us| (uid, launch_us)).collect::<Vec<_>>()
    };
    schedules.iter().flat_map(of).collect()
}

/// Schedule number `number`, made a year before the tests' time.
pub(crate) fn schedule(number: u128, zone: &str, triggers: Vec<Trigger>) -> Schedule {
    let http = HttpTarget::plain("http://127.0.0.1:9/".to_owned(), 1_000);
    Schedule {
        uid: Uuid::from_u128(number),
        namespace: "default".to_owned(),
        id: format!("s-{number}"),
        description: String::new(),
        timing: Timing { triggers, time_zone: zone.to_owned(), ..Timing::default() },
        events: 3,
        target: Target::Http { http, release: ReleaseMode::default() },
        payload: Payload::default(),
        policy: None,
        policy_uid: None,
        shard: None,
        key: None,
        key_label: None,
        units: 1,
        priority: 7,
        retry: RetryPolicy::default(),
        catch_up: CatchUp::default(),
        overlap: OverlapRule::default(),
        delay_after_finish_s: None,
        finish_by_s: None,
        spread_s: None,
        start_within_s: None,
        start_within_percent: None,
        check_again: CheckAgain::default(),
        on_finish: None,
        when_done: Default::default(),
        pause: None,
        labels: std::collections::BTreeMap::new(),
        past_pauses: Vec::new(),
        former_homes: Vec::new(),
        generation: 1,
        created_us: 1_600_000_000 * SECOND_US,
        updated_us: 1_600_000_000 * SECOND_US,
    }
}

pub(crate) fn cron(expression: &str) -> Trigger {
    Trigger::Cron { expression: expression.to_owned() }
}

pub(crate) fn every(every_s: i64) -> Trigger {
    Trigger::Interval { every_s, anchor_us: None }
}

pub(crate) fn pause() -> Pause {
    Pause { reason: "test".to_owned(), actor: "test".to_owned(), since_us: 1_600_000_000 * SECOND_US }
}

/// A UTC moment of the text `2025-03-30T00:30:00Z`.
pub(crate) fn utc(text: &str) -> i64 {
    chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros()
}
