//! Schedules that are deleted once they never fire again.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;
use tollgate_core::emit::Window;
use tollgate_core::model::{Run, RunId, RunState, SECOND_US};
use tollgate_proto::json::to_json;
use tollgate_schedule_master::{Options, shard_of};

use crate::world::{self, NOW_S, NOW_US, World};

const HOUR_S: i64 = 3_600;

/// The emitters have scanned from the first of these moments to the second, in seconds after the whole second before now.
async fn scanned(world: &World, from_s: i64, to_s: i64) {
    let at = |seconds: i64| (NOW_S + seconds) * SECOND_US;
    let window = Window { start_us: at(from_s), end_us: at(to_s) };
    assert!(world.store.open_window(window, &[], NOW_US).await.unwrap());
}

async fn shot(world: &mut World, id: &str) -> uuid::Uuid {
    let shot = json!({"triggers": [{"at": "2026-03-02T10:05:00Z"}], "when_done": "WHEN_DONE_DELETE"});
    world.create(id, shot).await.unwrap().uid.parse().unwrap()
}

fn run(world: &World, schedule_uid: uuid::Uuid, id: &str) -> Run {
    let launch_us = (NOW_S + 300) * SECOND_US;
    Run {
        shard: shard_of(schedule_uid, world.shards),
        id: RunId::derive(schedule_uid, launch_us),
        schedule_uid,
        generation: 1,
        namespace: "default".to_owned(),
        schedule_id: id.to_owned(),
        launch_us,
        events: 1,
        ..Run::default()
    }
}

#[tokio::test]
async fn a_spent_schedule_goes_when_all_of_it_is_over() {
    let mut world = World::new().await;
    world.create("kept", json!({"triggers": [{"at": "2026-03-02T10:05:00Z"}]})).await.unwrap();
    let uids = [shot(&mut world, "a").await, shot(&mut world, "busy").await, shot(&mut world, "late").await];
    shot(&mut world, "paused").await;
    world.pause("paused", "not now").await;
    let busy = Run { state: RunState::Running, ..run(&world, uids[1], "busy") };
    let finished_us = Some((NOW_S + 3 * HOUR_S / 2) * SECOND_US);
    let late = Run { state: RunState::Finished, finished_us, ..run(&world, uids[2], "late") };
    world.store.emit(&[busy, late], &[]).await.unwrap();
    scanned(&world, 0, 240).await;
    world.clock.advance_us(2 * HOUR_S * SECOND_US);
    assert!(!world.master.delete_done().await.unwrap());
    assert_eq!(
        world.ids("").await,
        ["a", "busy", "kept", "late", "paused"],
        "the emitters have not come so far"
    );
    scanned(&world, 240, 3 * HOUR_S).await;
    world.master.delete_done().await.unwrap();
    assert_eq!(world.ids("").await, ["busy", "kept", "late", "paused"]);
    let entry = to_json(&world.audit("").await[0]);
    assert_eq!((&entry["action"], &entry["actor"]), (&json!("delete"), &json!("system")));
    assert_eq!(entry["resource"], json!(world::name("a")));
    assert_eq!(
        entry["difference"]["reason"],
        json!({"new": "it never fires again, and says when_done DELETE"})
    );
    world.clock.advance_us(HOUR_S * SECOND_US);
    scanned(&world, 3 * HOUR_S, 4 * HOUR_S).await;
    let other = world.beside(Options::default()).await;
    let (one, two) = futures::future::join(world.master.delete_done(), other.master.delete_done()).await;
    assert!(!one.unwrap() && !two.unwrap(), "what another has deleted is no error");
    assert_eq!(world.ids("").await, ["busy", "kept", "paused"]);
    assert_eq!(world.store.list_runs("default", &Default::default(), None, 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn many_go_page_by_page_and_those_that_must_wait_hold_none_up() {
    let mut world = World::new().await;
    for number in 0..130 {
        let uid = shot(&mut world, &format!("s{number:03}")).await;
        if number < 60 {
            let busy = Run { state: RunState::Waiting, ..run(&world, uid, "busy") };
            world.store.emit(&[busy], &[]).await.unwrap();
        }
    }
    scanned(&world, 0, 4 * HOUR_S).await;
    world.clock.advance_us(2 * HOUR_S * SECOND_US);
    assert!(!world.master.delete_done().await.unwrap());
    assert_eq!(world.ids("").await.len(), 60);
    let now_us = NOW_US + 2 * HOUR_S * SECOND_US;
    let waiting = world.store.schedules_done(now_us, None, 100).await.unwrap();
    assert!(waiting.schedules.is_empty(), "they are looked at later");
}

#[tokio::test]
async fn what_is_shown_and_changed_is_what_was_given() {
    let mut world = World::new().await;
    shot(&mut world, "a").await;
    let shown = to_json(&world.get("a").await.unwrap());
    assert_eq!((&shown["when_done"], &shown["delete_after"]), (&json!("WHEN_DONE_DELETE"), &json!("3600s")));
    let kept = json!({"when_done": "WHEN_DONE_KEEP"});
    let shown = to_json(&world.update("a", kept, &["when_done", "delete_after"]).await.unwrap());
    assert_eq!((&shown["when_done"], shown.get("delete_after")), (&json!("WHEN_DONE_KEEP"), None));
    scanned(&world, 0, 4 * HOUR_S).await;
    world.clock.advance_us(3 * HOUR_S * SECOND_US);
    world.master.delete_done().await.unwrap();
    assert_eq!(world.ids("").await, ["a"]);
}
