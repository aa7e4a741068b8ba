//! What the queue shards hear of changes inside the windows that are open already.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::{MINUTE_US, SECOND_US};
use tollgate_core::plan::{News, Notice, ScheduleNews};
use tollgate_proto::v1;
use tollgate_schedule_master::shard_of;
use tollgate_store::plan::PlanWrite;
use uuid::Uuid;

use crate::world::{NOW_US, Told, World, given_policy, given_schedule};

const PAUSED: i32 = v1::SkipReason::Paused as i32;

fn home(world: &World, uid: &str) -> u16 {
    shard_of(uid.parse::<Uuid>().unwrap(), world.shards)
}

#[tokio::test]
async fn a_new_schedule_is_told_only_if_it_fires_inside_what_is_open() {
    let mut world = World::new().await;
    world.create("early", json!({})).await.unwrap();
    assert!(world.inbox().await.is_empty(), "nothing is open");
    let until_us = world.open_window(3).await;
    world.create("nightly", json!({"triggers": [{"cron": "0 3 * * *"}]})).await.unwrap();
    assert!(world.inbox().await.is_empty(), "it fires later");
    let made = world.create("a", json!({"events": 7, "priority": 2})).await.unwrap();
    let told = world.told(1).await;
    assert_eq!(told.len(), 1);
    let told = &told[0];
    assert_eq!(told.launches(), [60, 120, 180]);
    assert_eq!(told.shard, home(&world, &made.uid));
    assert_eq!((told.schedule_id.as_str(), told.policy_uid, &*told.onward), ("a", None, &[][..]));
    let row = &told.schedule;
    assert_eq!((row.changed_us, row.until_us, row.events, row.priority), (NOW_US, until_us, 7, 2));
    assert_eq!((row.pause.clone(), row.deleted, row.cursor.clone()), (None, false, None));
    assert_eq!(row.uid.to_string(), made.uid);
    assert_eq!(*world.woken.lock().unwrap(), [told.shard]);
}

#[tokio::test]
async fn an_update_corrects_what_is_open() {
    let mut world = World::new().await;
    world.open_window(3).await;
    world.create("a", json!({})).await.unwrap();
    world.clock.advance_us(70 * SECOND_US);
    let changed =
        world.update("a", json!({"triggers": [{"cron": "*/2 * * * *"}], "events": 4}), &[]).await.unwrap();
    let told = world.told(2).await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].launches(), [120]);
    assert_eq!(told[0].schedule.changed_us, NOW_US + 70 * SECOND_US);
    assert_eq!((told[0].schedule.events, &*told[0].onward), (4, &[][..]));
    let other = world.update("a", json!({"triggers": [{"cron": "0 3 * * *"}]}), &["triggers"]).await.unwrap();
    assert_eq!(other.uid, changed.uid);
    assert!(world.told(3).await[0].launches().is_empty());
}

#[tokio::test]
async fn a_change_is_told_also_where_nothing_is_open() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    world.pause("a", "why").await;
    world.resume("a").await;
    world.delete("a", "").await.unwrap();
    for generation in 2..=4 {
        let told = world.told(generation).await;
        assert_eq!(told.len(), 1, "{generation}");
        let row = &told[0].schedule;
        assert!(row.launches_us.is_empty());
        assert_eq!(row.until_us, row.changed_us);
        assert_eq!(row.pause.is_some(), generation == 2);
        assert_eq!(row.deleted, generation == 4);
    }
    assert!(world.told(2).await[0].schedule.changed_us < world.told(3).await[0].schedule.changed_us);
}

#[tokio::test]
async fn a_pause_withdraws_and_records_and_a_resume_takes_back() {
    let mut world = World::new().await;
    world.open_window(4).await;
    world.create("a", json!({})).await.unwrap();
    world.pause("a", "why").await;
    let told = world.told(2).await;
    assert!(told[0].launches().is_empty());
    assert_eq!(told[0].schedule.pause.clone().unwrap().reason, "why");
    assert_eq!(world.skipped("a").await, [(240, PAUSED), (180, PAUSED), (120, PAUSED), (60, PAUSED)]);
    world.update("a", json!({"triggers": [{"cron": "*/2 * * * *"}]}), &["triggers"]).await.unwrap();
    assert_eq!(world.skipped("a").await, [(240, PAUSED), (120, PAUSED)]);
    assert!(world.told(3).await[0].launches().is_empty());
    world.clock.advance_us(130 * SECOND_US);
    world.resume("a").await;
    assert_eq!(world.skipped("a").await, [(120, PAUSED)], "what fell due in the pause stays recorded");
    assert_eq!(world.told(4).await[0].launches(), [240]);
    assert_eq!(world.told(4).await[0].schedule.pause, None);
}

#[tokio::test]
async fn a_deletion_withdraws() {
    let mut world = World::new().await;
    world.open_window(4).await;
    let made = world.create("a", json!({})).await.unwrap();
    world.delete("a", "1").await.unwrap();
    let told = world.told(2).await;
    assert_eq!(told.len(), 1);
    assert!(told[0].schedule.deleted && told[0].launches().is_empty());
    assert_eq!((told[0].shard, &*told[0].onward), (home(&world, &made.uid), &[][..]));
    let again = world.create("a", json!({})).await.unwrap();
    assert_ne!(again.uid, made.uid);
    assert_eq!(world.told(1).await.len(), 2);
}

/// A policy that lives in another shard than `not`.
async fn policy_elsewhere(world: &mut World, not: u16) -> v1::Policy {
    for at in 0..1000 {
        let made = world.create_policy(&format!("p{not}-{at}"), json!({"max_in_flight": 1})).await.unwrap();
        if u16::try_from(made.shard).unwrap() != not {
            return made;
        }
    }
    panic!("every policy lives in {not}");
}

#[tokio::test]
async fn a_move_is_told_to_the_shard_that_had_it() {
    let mut world = World::new().await;
    world.open_window(2).await;
    let made = world.create("a", json!({})).await.unwrap();
    let old = home(&world, &made.uid);
    let policy = policy_elsewhere(&mut world, old).await;
    let new = u16::try_from(policy.shard).unwrap();
    world.update("a", json!({"policy": policy.name}), &["policy"]).await.unwrap();
    let told = world.told(2).await;
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].shard, &*told[0].onward), (old, &[new][..]));
    assert_eq!(told[0].policy_uid, Some(policy.uid.parse().unwrap()));
    assert_eq!(told[0].launches(), [60, 120]);
    world.update("a", json!({"events": 3}), &["events"]).await.unwrap();
    let way = |told: Vec<Told>| (told[0].shard, told[0].onward.clone());
    assert_eq!(way(world.told(3).await), (old, vec![new]), "what waits there must not start");
    world.update("a", json!({}), &["policy"]).await.unwrap();
    assert_eq!(way(world.told(4).await), (new, vec![old]));
    let third = policy_elsewhere(&mut world, new).await;
    world.update("a", json!({"policy": third.name}), &["policy"]).await.unwrap();
    if third.shard != u32::from(old) {
        let third = u16::try_from(third.shard).unwrap();
        assert_eq!(way(world.told(5).await), (new, vec![old, third]));
    }
}

#[tokio::test]
async fn an_apply_tells_each_shard() {
    let mut world = World::new().await;
    world.open_window(2).await;
    let mut all = vec![given_policy("p", "", json!({"max_in_flight": 2}))];
    all.extend((0..40).map(|at| given_schedule(&format!("s{at}"), "", json!({}))));
    all.extend((0..3).map(|at| given_schedule(&format!("t{at}"), "", json!({"policy": "p"}))));
    world.apply(all).await.unwrap();
    let told = world.told(1).await;
    assert_eq!(told.len(), 43);
    assert!(told.iter().all(|told| told.launches() == [60, 120]));
    let policy = world.store.policy("default", "p").await.unwrap().unwrap();
    let under: Vec<u16> =
        told.iter().filter(|told| told.policy_uid.is_some()).map(|told| told.shard).collect();
    assert_eq!(under, [policy.shard; 3]);
    let shards: std::collections::BTreeSet<u16> = told.iter().map(|told| told.shard).collect();
    assert!(shards.len() > 10, "{shards:?}");
    assert!(shards.iter().all(|shard| world.woken.lock().unwrap().contains(shard)));
}

/// What an owner of all shards does with its inboxes.
async fn drain(world: &World) {
    use tollgate_core::handle::change::Changes;
    for lease in world.store.leases().await.unwrap() {
        let messages = world.store.inbox(lease.shard, 1000).await.unwrap();
        let inbox_done: Vec<Uuid> = messages.iter().map(|message| message.id).collect();
        if inbox_done.is_empty() {
            continue;
        }
        let lease = world.store.take_shard(&lease, "test").await.unwrap().unwrap();
        world.store.commit(&lease, &Changes { inbox_done, ..Changes::default() }).await.unwrap();
    }
}

/// As a process leaves them that dies between the commit of a change and its message.
async fn leave_behind(world: &World, notices: Vec<Notice>) {
    let tell = |notice| PlanWrite::Tell { notice: Box::new(notice) };
    world.store.write_plan(notices.into_iter().map(tell).collect()).await.unwrap();
}

fn left(uid: Uuid, generation: i64, way: &[u16], news: ScheduleNews) -> Notice {
    Notice {
        uid,
        generation,
        namespace: "default".to_owned(),
        id: "left".to_owned(),
        changed_us: NOW_US - 10 + generation,
        way: way.to_vec(),
        is_new: false,
        news: News::Schedule(news),
    }
}

fn news() -> ScheduleNews {
    ScheduleNews {
        policy_uid: None,
        until_us: NOW_US + 10 * MINUTE_US,
        events: 1,
        priority: 5,
        pause: None,
        was_paused: false,
        timing: Some(tollgate_core::model::Timing {
            triggers: vec![tollgate_core::model::Trigger::Interval { every_s: 60, anchor_us: Some(0) }],
            time_zone: "UTC".to_owned(),
            ..Default::default()
        }),
    }
}

#[tokio::test]
async fn what_was_left_in_the_outbox_is_told_in_order_and_once() {
    let mut world = World::new().await;
    let until_us = world.open_window(3).await;
    let (paused, gone) = (Uuid::from_u128(7 << 64), Uuid::from_u128(9 << 64));
    let pause =
        tollgate_core::model::Pause { reason: "why".to_owned(), actor: "alice".to_owned(), since_us: NOW_US };
    let notices = vec![
        left(paused, 2, &[4], ScheduleNews { pause: Some(pause), ..news() }),
        left(paused, 3, &[4], ScheduleNews { was_paused: true, ..news() }),
        left(gone, 2, &[6], news()),
        left(gone, 3, &[5, 6], ScheduleNews { timing: None, ..news() }),
    ];
    leave_behind(&world, notices).await;
    world.master.sweep().await.unwrap();
    assert!(world.inbox().await.is_empty(), "whoever wrote them a moment ago delivers them");
    world.clock.advance_us(2 * SECOND_US);
    world.master.sweep().await.unwrap();
    let inbox = world.inbox().await;
    let told: Vec<(u16, i64, bool)> = inbox
        .iter()
        .filter_map(|(shard, message)| match &message.control {
            Control::ScheduleChanged { schedule, .. } => {
                assert_eq!(schedule.until_us, until_us);
                Some((*shard, schedule.generation, schedule.deleted))
            }
            _ => None,
        })
        .collect();
    assert_eq!(told, [(4, 2, false), (4, 3, false), (5, 3, true), (6, 2, false)], "an inbox has its order");
    assert!(world.store.list_skipped(paused, None, 9).await.unwrap().is_empty(), "the pause was lifted");
    assert!(world.store.outbox_lanes().await.unwrap().is_empty());
    drain(&world).await;
    world.master.sweep().await.unwrap();
    assert!(world.inbox().await.is_empty());

    // A change tells first what was left of those before it.
    let made = world.create("a", json!({})).await.unwrap();
    let uid: Uuid = made.uid.parse().unwrap();
    leave_behind(&world, vec![left(uid, 0, &[home(&world, &made.uid)], news())]).await;
    world.pause("a", "why").await;
    let generations: Vec<i64> = world.inbox().await.iter().filter_map(generation).collect();
    assert_eq!(generations, [0, 1, 2]);
    assert!(world.store.outbox_lanes().await.unwrap().is_empty());
}

fn generation((_, message): &(u16, Message)) -> Option<i64> {
    match &message.control {
        Control::ScheduleChanged { schedule, .. } => Some(schedule.generation),
        _ => None,
    }
}

#[tokio::test]
async fn a_schedule_that_fires_much_later_leaves_no_notice() {
    let mut world = World::new().await;
    world.open_window(3).await;
    world.create("a", json!({"triggers": [{"cron": "0 3 * * *"}]})).await.unwrap();
    assert!(world.inbox().await.is_empty() && world.store.outbox_lanes().await.unwrap().is_empty());
}
