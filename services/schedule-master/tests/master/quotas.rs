//! How much a namespace may have and do.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;
use tollgate_core::model::SECOND_US;
use tollgate_proto::v1;
use tollgate_schedule_master::{Options, Quota, Quotas};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::world::{self, PARENT, World, given_schedule, name};

async fn world(each: Quota, overrides: &str) -> World {
    let quotas = Quotas { each, namespaces: serde_json::from_str(overrides).unwrap() };
    World::with(Options { quotas, ..Options::default() }).await
}

fn assert_exhausted(refused: &Status, parts: &[&str]) {
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    for part in parts {
        assert!(refused.message().contains(part), "{part}: {refused}");
    }
    let violations = refused.get_details_quota_failure().unwrap().violations;
    assert_eq!(violations[0].subject, PARENT);
}

async fn trigger(world: &mut World, id: &str, events: u32) -> Result<v1::Run, Status> {
    let request = v1::TriggerScheduleRequest { name: name(id), events: Some(events), ..Default::default() };
    Ok(world.client.trigger_schedule(request).await?.into_inner())
}

#[tokio::test]
async fn schedules_end_at_their_quota() {
    let mut world = world(Quota { schedules: 2, ..Quota::default() }, r#"{"other": {"schedules": 0}}"#).await;
    world.create("one", json!({})).await.unwrap();
    world.create("two", json!({})).await.unwrap();
    let refused = world.create("three", json!({})).await.unwrap_err();
    assert_exhausted(&refused, &["2 schedules and 1 more", "`schedules` allows 2", PARENT]);
    // What is there may change, and what goes makes room.
    world.update("one", json!({"priority": 3}), &["priority"]).await.unwrap();
    world.delete("one", "").await.unwrap();
    let both = || vec![given_schedule("three", "a:1", json!({})), given_schedule("four", "a:2", json!({}))];
    assert_exhausted(&world.apply(both()).await.unwrap_err(), &["1 schedules and 2 more"]);
    assert_eq!(world.ids("").await, ["two"], "all or nothing");
    let applied = world.apply(vec![given_schedule("two", "a:1", json!({})), both().remove(0)]).await.unwrap();
    assert_eq!(applied.created_count, 1);
    // Another namespace has its own.
    for id in ["a", "b", "c"] {
        let request = v1::CreateScheduleRequest {
            parent: "namespaces/other".to_owned(),
            schedule_id: id.to_owned(),
            schedule: Some(world::schedule(json!({}))),
            validate_only: false,
        };
        world.client.create_schedule(request).await.unwrap();
    }
}

#[tokio::test]
async fn calls_at_the_same_moment_do_not_pass_a_quota_together() {
    // Near the bound from the start, and far below it at first.
    for (allowed, calls) in [(5, 20), (60, 120)] {
        let world = world(Quota { schedules: allowed, ..Quota::default() }, "{}").await;
        let calls = (0..calls).map(|n| {
            let mut client = world.client.clone();
            async move {
                let request = v1::CreateScheduleRequest {
                    parent: PARENT.to_owned(),
                    schedule_id: format!("s{n}"),
                    schedule: Some(world::schedule(json!({}))),
                    validate_only: false,
                };
                client.create_schedule(request).await.is_ok()
            }
        });
        let mut made = 0;
        for call in calls.map(tokio::spawn).collect::<Vec<_>>() {
            made += u64::from(call.await.unwrap());
        }
        assert_eq!(made, allowed);
    }
}

#[tokio::test]
async fn runs_by_hand_end_at_the_quota_of_waiting_events() {
    let mut world = world(Quota { waiting_events: 100, ..Quota::default() }, "{}").await;
    world.create("one", json!({"events": 30})).await.unwrap();
    trigger(&mut world, "one", 60).await.unwrap();
    let refused = trigger(&mut world, "one", 41).await.unwrap_err();
    assert_exhausted(
        &refused,
        &["60 events that have not started and 41 more", "`waiting_events` allows 100"],
    );
    trigger(&mut world, "one", 40).await.unwrap();
    let seconds = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let now_s = world::NOW_S;
    let request = v1::BackfillScheduleRequest {
        name: name("one"),
        start_time: seconds(now_s - 600),
        end_time: seconds(now_s - 480),
        priority: None,
        ..Default::default()
    };
    let refused = world.client.backfill_schedule(request).await.unwrap_err();
    assert_exhausted(&refused, &["100 events that have not started and 60 more"]);
}

#[tokio::test]
async fn writes_end_at_their_rate_and_say_when_to_come_again() {
    let mut world = world(Quota { writes: 1, ..Quota::default() }, "{}").await;
    for n in 0..10 {
        world.create(&format!("s{n}"), json!({})).await.unwrap();
    }
    let refused = world.create("more", json!({})).await.unwrap_err();
    assert_exhausted(&refused, &["`writes`", "allowed are 1 a second", "try again in 1.0 s"]);
    assert_eq!(refused.metadata().get("retry-after").unwrap(), "1");
    let wait = refused.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert_eq!(wait.as_millis(), 1_000);
    for refused in [
        world.update("s1", json!({"priority": 3}), &["priority"]).await.unwrap_err(),
        world.delete("s1", "").await.unwrap_err(),
        trigger(&mut world, "s1", 1).await.unwrap_err(),
        world.create_policy("p", json!({"max_in_flight": 1})).await.unwrap_err(),
        world.apply(vec![given_schedule("more", "a:1", json!({}))]).await.unwrap_err(),
    ] {
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    }
    // Reads, pauses and what changes nothing are not writes.
    world.get("s1").await.unwrap();
    world.pause("s1", "now").await;
    world.apply(vec![given_schedule("s2", "a:1", json!({}))]).await.unwrap();
    // A revision is one, also of what is as it was, or is not there.
    let numbered = v1::ApplyResourcesRequest { revision: 1, ..given_schedule("s2", "a:1", json!({})) };
    let gone = v1::DeleteScheduleRequest { name: name("never"), revision: 1, ..Default::default() };
    for refused in [
        world.apply(vec![numbered]).await.unwrap_err(),
        world.client.delete_schedule(gone).await.unwrap_err(),
    ] {
        assert_exhausted(&refused, &["`writes`"]);
    }
    world.clock.advance_us(SECOND_US);
    world.create("more", json!({})).await.unwrap();
}
