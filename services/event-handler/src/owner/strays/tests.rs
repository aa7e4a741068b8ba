//! What is handed on, and as what.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use tollgate_core::handle::change::{Changes, ShardSchedule};
use tollgate_core::model::{Counts, RunState};
use tollgate_store::Store;

use super::*;

const FROM: u16 = 5;
const TO: u16 = 9;
const OTHER: u16 = 11;

struct World {
    _folder: tempfile::TempDir,
    store: Arc<dyn Store>,
    lease: Lease,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("t.db").display());
        let store = tollgate_store::open(&url, 1).await.unwrap();
        let seen = store.lease(FROM).await.unwrap().unwrap();
        let lease = store.take_shard(&seen, "me").await.unwrap().unwrap();
        Self { _folder: folder, store, lease }
    }

    async fn commit(&self, runs: Vec<Run>) {
        self.store.commit(&self.lease, &Changes { runs_new: runs, ..Changes::default() }).await.unwrap();
    }

    /// Hands on what is in the inbox, and answers what stays.
    async fn hand_on(&self, gone: &Gone) -> Vec<Message> {
        let mut messages = self.store.inbox(FROM, 100).await.unwrap();
        hand_on(&*self.store, (&self.lease, gone), &mut Vec::new(), &mut messages, 1).await.unwrap();
        messages
    }

    async fn inbox(&self, shard: u16) -> Vec<Control> {
        self.store.inbox(shard, 100).await.unwrap().into_iter().map(|message| message.control).collect()
    }
}

fn schedule() -> Uuid {
    Uuid::from_u128(7)
}

fn run(launch_us: i64, state: RunState) -> Run {
    let schedule_uid = schedule();
    Run {
        shard: FROM,
        id: RunId::derive(schedule_uid, launch_us),
        schedule_uid,
        launch_us,
        state,
        ..Run::default()
    }
}

fn changed(launches_us: Vec<i64>) -> Message {
    let schedule = ShardSchedule { uid: schedule(), generation: 2, launches_us, ..ShardSchedule::default() };
    let (namespace, schedule_id) = ("n".to_owned(), "s".to_owned());
    let onward = Vec::new();
    Message::first(1, Control::ScheduleChanged { schedule, namespace, schedule_id, policy_uid: None, onward })
}

#[tokio::test]
async fn a_launch_whose_run_has_ended_here_is_not_made_again_there() {
    let world = World::new().await;
    let ended = Run { finished_us: Some(20), ..run(10, RunState::Finished) };
    world.commit(vec![ended]).await;
    world.store.post(FROM, &[changed(vec![10, 30])]).await.unwrap();
    assert!(world.hand_on(&[(schedule(), TO)].into()).await.is_empty());
    let told = world.inbox(TO).await;
    let [Control::ScheduleChanged { schedule, .. }] = &told[..] else { panic!("{told:?}") };
    assert_eq!(schedule.launches_us, [30]);
    assert!(world.inbox(FROM).await.is_empty());
}

#[tokio::test]
async fn a_run_with_much_history_does_not_follow_its_policy() {
    let world = World::new().await;
    let of = |launch_us, dead| Run {
        finished_us: Some(20),
        events: dead,
        counts: Counts { dead, ..Counts::default() },
        ..run(launch_us, RunState::Finished)
    };
    let (few, many) = (of(10, ENDED_MAX), of(30, ENDED_MAX + 1));
    world.commit(vec![few.clone(), many.clone()]).await;
    let retry =
        |number, run: &Run| Message::first(number, Control::RetryDead { run: run.id, indexes: vec![0] });
    world.store.post(FROM, &[retry(1, &few), retry(2, &many)]).await.unwrap();
    assert!(world.hand_on(&[(schedule(), TO)].into()).await.is_empty());
    assert_eq!(world.store.runs(FROM, &[few.id, many.id]).await.unwrap(), [many]);
    assert_eq!(world.store.runs(TO, &[few.id]).await.unwrap()[0].named_shard(), FROM);
    assert_eq!(world.inbox(TO).await.len(), 2, "what finds no run does nothing");
}

#[tokio::test]
async fn of_a_message_about_several_runs_each_shard_gets_its_part() {
    let world = World::new().await;
    let (own, first, second) =
        (run(10, RunState::Emitted), run(20, RunState::Emitted), run(30, RunState::Emitted));
    world.store.emit(&[first.clone(), second.clone()], &[]).await.unwrap();
    for (run, to) in [(&first, TO), (&second, OTHER)] {
        let mut stray = Stray::default();
        stray.add(run.id, run.schedule_uid);
        world.store.hand_on(&world.lease, to, stray, 1).await.unwrap();
    }
    let one = |run: &Run| UnderWay { run: run.id, index: 0, attempt: 1, doubtful: false, grace_ms: 500 };
    let deliveries = vec![one(&own), one(&first), one(&second)];
    world.store.post(FROM, &[Message::first(1, Control::UnderWay { deliveries })]).await.unwrap();
    assert_eq!(world.hand_on(&Gone::new()).await.len(), 1, "its own part is there still");
    assert_eq!(world.inbox(FROM).await.len(), 1);
    assert_eq!(world.inbox(TO).await, [Control::UnderWay { deliveries: vec![one(&first)] }]);
    assert_eq!(world.inbox(OTHER).await, [Control::UnderWay { deliveries: vec![one(&second)] }]);
}
