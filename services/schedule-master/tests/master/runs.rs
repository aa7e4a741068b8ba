//! Runs that a user makes by hand.
#![expect(clippy::unwrap_used, reason = "tests")]

use prost_types::Timestamp;
use serde_json::json;
use tollgate_core::model::{Run, RunId, RunKind, RunState, SECOND_US};
use tollgate_proto::json::{from_json, to_json};
use tollgate_proto::v1;
use tollgate_schedule_master::{Options, shard_of};
use tollgate_store::plan::{ByHand, Request, RequestStep};
use tonic::{Code, Status};

use crate::world::{self, NOW_S, World, as_alice, fields, name};

async fn trigger(world: &mut World, id: &str, events: Option<u32>) -> Result<v1::Run, Status> {
    let request = v1::TriggerScheduleRequest { name: name(id), events, ..Default::default() };
    Ok(world.client.trigger_schedule(as_alice(request)).await?.into_inner())
}

async fn backfill(
    world: &mut World,
    range: (i64, i64),
    priority: Option<u32>,
) -> Result<v1::BackfillScheduleResponse, Status> {
    backfill_as(world, "", range, priority).await
}

async fn backfill_once(
    world: &mut World,
    range: (i64, i64),
    priority: Option<u32>,
) -> Result<v1::BackfillScheduleResponse, Status> {
    backfill_as(world, "once", range, priority).await
}

async fn backfill_as(
    world: &mut World,
    request_id: &str,
    (from_s, to_s): (i64, i64),
    priority: Option<u32>,
) -> Result<v1::BackfillScheduleResponse, Status> {
    let time = |seconds: i64| Some(Timestamp { seconds: NOW_S + seconds, nanos: 0 });
    let request = v1::BackfillScheduleRequest {
        name: name("a"),
        start_time: time(from_s),
        end_time: time(to_s),
        priority,
        request_id: request_id.to_owned(),
    };
    Ok(world.client.backfill_schedule(as_alice(request)).await?.into_inner())
}

async fn trigger_once(
    client: &mut world::Client,
    request_id: &str,
    events: Option<u32>,
) -> Result<v1::Run, Status> {
    let request_id = request_id.to_owned();
    let request = v1::TriggerScheduleRequest { name: name("a"), events, request_id, ..Default::default() };
    Ok(client.trigger_schedule(as_alice(request)).await?.into_inner())
}

async fn runs(world: &World) -> Vec<Run> {
    world.store.list_runs("default", &Default::default(), None, 20_000).await.unwrap()
}

#[tokio::test]
async fn a_trigger_makes_one_run_now() {
    let mut world = World::new().await;
    let made = world.create("a", json!({"events": 7, "priority": 3})).await.unwrap();
    let one = trigger(&mut world, "a", None).await.unwrap();
    let two = trigger(&mut world, "a", Some(10_000_000)).await.unwrap();
    assert_eq!((one.events, one.priority, one.kind), (7, 3, v1::RunKind::Manual as i32));
    assert_eq!((two.events, two.schedule.as_str()), (10_000_000, name("a").as_str()));
    let stored = runs(&world).await;
    assert_eq!(stored.len(), 2, "the clock stands, and yet no launch time is used twice");
    let shard = shard_of(made.uid.parse().unwrap(), world.shards);
    for run in &stored {
        assert_eq!((run.shard, run.kind, run.state), (shard, RunKind::Manual, RunState::Emitted));
        assert_eq!(run.id, RunId::derive(made.uid.parse().unwrap(), run.launch_us));
        assert!((0..SECOND_US).contains(&(run.launch_us - world::NOW_US)));
        assert_ne!(run.launch_us % SECOND_US, 0);
    }
    assert_eq!(*world.woken.lock().unwrap(), [shard, shard]);
    let audit = world.audit("").await;
    assert_eq!((audit[0].action.as_str(), audit[0].generation, audit.len()), ("trigger", 1, 3));
    assert_eq!(to_json(&audit[0])["difference"]["run"], json!({"new": two.name}));
}

#[tokio::test]
async fn a_wrong_trigger_makes_nothing() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    world.pause("a", "bad data").await;
    let before = world.state().await;
    let paused = trigger(&mut world, "a", None).await.unwrap_err();
    assert_eq!(paused.code(), Code::FailedPrecondition);
    assert!(paused.message().contains("bad data") && paused.message().contains("alice"), "{paused}");
    for events in [0, 10_000_001] {
        let refused = trigger(&mut world, "a", Some(events)).await.unwrap_err();
        assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec!["events".to_owned()]));
    }
    assert_eq!(trigger(&mut world, "b", None).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(backfill(&mut world, (-600, 0), None).await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn a_backfill_makes_each_missing_run_once() {
    let mut world = World::new().await;
    world.create("a", json!({"events": 4, "priority": 8})).await.unwrap();
    let first = backfill(&mut world, (-600, -300), None).await.unwrap();
    assert_eq!((first.created_count, first.existing_count), (5, 0));
    let times: Vec<i64> = first.launch_times.iter().map(|time| time.seconds - NOW_S).collect();
    assert_eq!(times, [-600, -540, -480, -420, -360], "the end is left out");
    let more = backfill(&mut world, (-600, -180), Some(9)).await.unwrap();
    assert_eq!((more.created_count, more.existing_count), (2, 5));
    let none = backfill(&mut world, (-600, -180), None).await.unwrap();
    assert_eq!((none.created_count, none.existing_count, none.launch_times.len()), (0, 7, 0));
    let stored = runs(&world).await;
    assert_eq!(stored.len(), 7);
    for run in &stored {
        assert_eq!((run.kind, run.events, run.emitted_us), (RunKind::Backfill, 4, world::NOW_US));
        let late = run.launch_us / SECOND_US - NOW_S >= -300;
        assert_eq!(run.priority, if late { 9 } else { 0 });
    }
    let actions: Vec<String> = world.audit("").await.into_iter().map(|entry| entry.action).collect();
    assert_eq!(actions, ["backfill", "backfill", "create"], "one that makes nothing is not noted");
}

#[tokio::test]
async fn a_wrong_range_is_refused() {
    let mut world = World::with(Options { retention_s: 8 * 24 * 3600, ..Options::default() }).await;
    world.create("a", json!({})).await.unwrap();
    let before = world.state().await;
    let day = 24 * 3600;
    for (range, priority, field, word) in [
        ((-60, 60), None, "end_time", "future"),
        ((-60, -60), None, "end_time", "after start_time"),
        ((-9 * day, -8 * day), None, "start_time", "8 days"),
        ((-7 * day, 0), None, "end_time", "10080 launch times"),
        ((-60, 0), Some(10), "priority", "0 (last) to 9"),
    ] {
        let refused = backfill(&mut world, range, priority).await.unwrap_err();
        assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec![field.to_owned()]));
        assert!(refused.message().contains(word), "{word}: {refused}");
    }
    assert_eq!(world.state().await, before);
    let most = backfill(&mut world, (-10_000 * 60, 0), None).await.unwrap();
    assert_eq!((most.created_count, most.launch_times.len()), (10_000, 1000));
}

#[tokio::test]
async fn a_trigger_with_an_id_makes_one_run_however_often_it_comes() {
    let mut world = World::new().await;
    world.create("a", json!({"events": 7})).await.unwrap();
    let first = trigger_once(&mut world.client, "deploy-1.2:eu", None).await.unwrap();
    world.clock.advance_us(60 * SECOND_US);
    let other = world.beside(Options::default()).await;
    for client in [&mut world.client, &mut other.client.clone()] {
        assert_eq!(
            trigger_once(client, "deploy-1.2:eu", None).await.unwrap(),
            first,
            "also by another master"
        );
    }
    world.pause("a", "bad data").await;
    assert_eq!(
        trigger_once(&mut world.client, "deploy-1.2:eu", None).await.unwrap(),
        first,
        "it is made already"
    );
    world.resume("a").await;
    let refused = trigger_once(&mut world.client, "deploy-1.2:eu", Some(3)).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    let told = "request_id \"deploy-1.2:eu\" has been used for another request, at 2026-03-02T10:00:00.5";
    assert!(refused.message().starts_with(told), "{refused}");
    assert!(refused.message().ends_with(": events was not given, and is 3"), "{refused}");
    assert_eq!(runs(&world).await.len(), 1);
    trigger_once(&mut world.client, "deploy-1.3:eu", None).await.unwrap();
    assert_eq!(runs(&world).await.len(), 2);
    let triggers: Vec<_> =
        world.audit("").await.into_iter().filter(|entry| entry.action == "trigger").collect();
    assert_eq!(triggers.len(), 2, "what makes nothing is not noted");
    assert_eq!(to_json(&triggers[1])["difference"]["request_id"], json!({"new": "deploy-1.2:eu"}));
    // Another schedule of the same name is another one.
    world.delete("a", "").await.unwrap();
    world.create("a", json!({"events": 3})).await.unwrap();
    assert_eq!(trigger_once(&mut world.client, "deploy-1.2:eu", None).await.unwrap().events, 3);
    for wrong in ["a b", "é", &"x".repeat(129)] {
        let refused = trigger_once(&mut world.client, wrong, None).await.unwrap_err();
        assert_eq!(
            (refused.code(), fields(&refused)),
            (Code::InvalidArgument, vec!["request_id".to_owned()])
        );
    }
}

#[tokio::test]
async fn of_many_who_ask_under_one_id_at_once_one_makes_the_run() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    let other = world.beside(Options::default()).await;
    let calls = (0..20).map(|number| {
        let mut client = if number % 2 == 0 { world.client.clone() } else { other.client.clone() };
        async move { trigger_once(&mut client, "x", None).await.unwrap() }
    });
    let answers = futures::future::join_all(calls).await;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(runs(&world).await.len(), 1);
    assert_eq!(world.audit("").await.iter().filter(|entry| entry.action == "trigger").count(), 1);
}

#[tokio::test]
async fn a_backfill_with_an_id_has_one_answer() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    backfill(&mut world, (-360, -300), None).await.unwrap();
    let first = backfill_once(&mut world, (-600, -300), None).await.unwrap();
    assert_eq!((first.created_count, first.existing_count, first.launch_times.len()), (4, 1, 4));
    world.clock.advance_us(3600 * SECOND_US);
    assert_eq!(backfill_once(&mut world, (-600, -300), None).await.unwrap(), first);
    let refused = backfill_once(&mut world, (-600, -300), Some(3)).await.unwrap_err();
    assert!(refused.message().ends_with(": priority was not given, and is 3"), "{refused}");
    let refused = trigger_once(&mut world.client, "once", None).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert!(refused.message().contains("method was \"backfill\", and is \"trigger\""), "{refused}");
    assert_eq!(runs(&world).await.len(), 5);
    let notes = world.audit("").await.iter().filter(|entry| entry.action == "backfill").count();
    assert_eq!(notes, 2, "what makes nothing is not noted");
}

/// A process ends after each part of a backfill; whoever is asked again goes on.
#[tokio::test]
async fn a_backfill_with_an_id_goes_on_where_it_was_broken_off() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    let range = (-1_000 * 60, 0);
    let whole = backfill_once(&mut world, range, None).await.unwrap();
    assert_eq!((whole.created_count, whole.existing_count), (1_000, 0));
    let uid = world.store.schedule("default", "a").await.unwrap().unwrap().uid;
    let done = world.store.request(uid, "once").await.unwrap().unwrap();
    let mut all = runs(&world).await;
    all.sort_by_key(|run| run.launch_us);
    for made in [250, 500, 750] {
        // As it stands after that many, in a world of its own.
        let mut world = World::new().await;
        world.create("a", json!({})).await.unwrap();
        let schedule = world.store.schedule("default", "a").await.unwrap().unwrap();
        let of_it = |run: &Run| Run {
            id: RunId::derive(schedule.uid, run.launch_us),
            schedule_uid: schedule.uid,
            shard: shard_of(schedule.uid, world.shards),
            ..run.clone()
        };
        let made_runs: Vec<Run> = all.iter().take(made).map(of_it).collect();
        let launches: Vec<i64> = made_runs.iter().map(|run| run.launch_us).collect();
        let progress = json!({
            "next_us": launches.last().unwrap() + 1, "launches": made, "shown_us": launches, "ended": false,
        });
        let progress = progress.to_string();
        let request = Request { schedule_uid: schedule.uid, progress, made: 0, ..done.clone() };
        let step = RequestStep { request, from: None };
        let by_hand = ByHand { runs: made_runs, request: Some(step), ..ByHand::default() };
        let new = world.store.emit_by_hand(by_hand).await.unwrap();
        assert_eq!(new.map(|new| new as usize), Some(made));
        let counted = world.store.request(schedule.uid, "once").await.unwrap().unwrap().made;
        assert_eq!(counted, made as u64);
        assert_eq!(backfill_once(&mut world, range, None).await.unwrap(), whole);
        assert_eq!(runs(&world).await.len(), 1_000);
    }
}

async fn trigger_with(world: &mut World, with: serde_json::Value) -> Result<v1::Run, Status> {
    let mut request: v1::TriggerScheduleRequest = from_json(with).unwrap();
    request.name = name("a");
    Ok(world.client.trigger_schedule(as_alice(request)).await?.into_inner())
}

#[tokio::test]
async fn a_trigger_may_say_when_how_urgent_and_with_what() {
    let mut world = World::new().await;
    let payload = json!({"dataset": "customers", "since": 7, "mode": {"dry": true, "deep": 1}});
    let made = world.create("a", json!({"events": 2, "priority": 3, "payload": payload})).await.unwrap();
    let patch = json!({"dataset": "orders", "since": null, "mode": {"dry": false}, "new": [1]});
    let wanted =
        json!({"launch_time": "2026-03-02T20:00:00Z", "priority": 9, "payload": patch, "request_id": "x"});
    let run = trigger_with(&mut world, wanted.clone()).await.unwrap();
    assert_eq!((run.priority, run.events, run.schedule_generation), (9, 2, 0));
    let stored = runs(&world).await.remove(0);
    let late_us = stored.launch_us - (NOW_S + 10 * 3600) * SECOND_US;
    assert!((1..=1_000).contains(&late_us), "{late_us}");
    assert_eq!(
        (stored.kind, stored.state, stored.emitted_us),
        (RunKind::Manual, RunState::Emitted, world::NOW_US)
    );
    let key = (stored.schedule_uid, stored.generation);
    let own = world.store.specs(stored.shard, &[key]).await.unwrap().remove(0);
    let merged = json!({"dataset": "orders", "mode": {"dry": false, "deep": 1}, "new": [1]});
    let read: serde_json::Value = serde_json::from_str(&own.payload.json).unwrap();
    assert_eq!(read.to_string(), proto_number(&merged));
    let generation: i64 = made.etag.parse().unwrap();
    let shared =
        world.store.specs(stored.shard, &[(stored.schedule_uid, generation)]).await.unwrap().remove(0);
    assert!(shared.payload.json.contains("customers"), "the schedule's is as it was");
    // The same request, an hour before the launch and long after it.
    assert_eq!(trigger_with(&mut world, wanted.clone()).await.unwrap(), run);
    world.clock.advance_us(48 * 3600 * SECOND_US);
    assert_eq!(trigger_with(&mut world, wanted.clone()).await.unwrap(), run);
    let other =
        json!({"launch_time": "2026-03-02T20:00:00Z", "priority": 9, "payload": 7, "request_id": "x"});
    let refused = trigger_with(&mut world, other).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert!(
        refused.message().contains("payload was \"SHA-256 ") && !refused.message().contains("orders"),
        "{refused}"
    );
    assert_eq!(runs(&world).await.len(), 1);
    let details = to_json(&world.audit("").await[0])["difference"].clone();
    assert_eq!(
        details["payload"],
        json!({"new": "one of its own"}),
        "what is in it is nobody's business here"
    );
    assert_eq!(details["priority"], json!({"new": 9}));
}

/// Numbers travel as doubles.
fn proto_number(value: &serde_json::Value) -> String {
    let message = tollgate_proto::convert::payload::from_json(value);
    tollgate_proto::convert::payload::to_core("", Some(&message)).unwrap().json
}

#[tokio::test]
async fn two_runs_for_one_moment_are_two() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    for _ in 0..20 {
        trigger_with(&mut world, json!({"launch_time": "2026-03-02T10:05:00Z"})).await.unwrap();
    }
    let made = runs(&world).await;
    assert_eq!(made.len(), 20);
    assert!(made.iter().all(|run| run.launch_us % SECOND_US != 0), "no place of a scheduled run is taken");
}

#[tokio::test]
async fn a_trigger_that_says_something_wrong_is_refused() {
    let mut world = World::new().await;
    world.create("a", json!({"payload": {"text": "x".repeat(200 * 1024)}})).await.unwrap();
    let before = world.state().await;
    for (wanted, field, word) in [
        (json!({"launch_time": "2026-03-02T09:58:00Z"}), "launch_time", "at most a minute ago"),
        (json!({"launch_time": "2026-03-03T10:00:01Z"}), "launch_time", "at most 24 hours ahead"),
        (json!({"priority": 10}), "priority", "0 (last) to 9"),
        (json!({"payload": {"more": "x".repeat(100 * 1024)}}), "payload", "at most 262144 bytes"),
    ] {
        let refused = trigger_with(&mut world, wanted).await.unwrap_err();
        assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec![field.to_owned()]));
        assert!(refused.message().contains(word), "{refused}");
    }
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn a_schedule_without_triggers_fires_by_hand_alone() {
    let mut world = World::new().await;
    let made = world.create("a", json!({"triggers": []})).await.unwrap();
    assert_eq!((made.children_count, made.next_launch_time), (0, None));
    assert!(made.warnings.is_empty(), "{:?}", made.warnings);
    let refused = backfill(&mut world, (-600, 0), None).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("is manual"), "{refused}");
    trigger(&mut world, "a", None).await.unwrap();
    assert_eq!(runs(&world).await.len(), 1);
    // Triggers may come and go.
    let timed = world.update("a", json!({"triggers": [{"cron": "0 3 * * *"}]}), &["triggers"]).await.unwrap();
    assert!(timed.next_launch_time.is_some());
    let manual = world.update("a", json!({"triggers": []}), &["triggers"]).await.unwrap();
    assert_eq!((manual.children_count, manual.next_launch_time), (0, None));
    assert!(world.store.registry(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_run_by_hand_has_an_event_for_each_item() {
    let mut world = World::new().await;
    world.create("a", json!({"items": [{"data": 1, "key": "acme"}, {"data": 2}]})).await.unwrap();
    let run = trigger(&mut world, "a", None).await.unwrap();
    assert_eq!((run.events, run.kind()), (2, v1::RunKind::Manual));
    assert_eq!(trigger(&mut world, "a", Some(2)).await.unwrap().events, 2);
    let refused = trigger(&mut world, "a", Some(3)).await.unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec!["events".to_owned()]));
    let request = v1::TriggerScheduleRequest {
        name: name("a"),
        payload: Some(tollgate_proto::convert::payload::from_json(&json!({"p": 1}))),
        ..Default::default()
    };
    let own = world.client.trigger_schedule(as_alice(request)).await.unwrap().into_inner();
    assert_eq!((own.events, own.schedule_generation), (2, 0));
    let stored = world.store.schedule("default", "a").await.unwrap().unwrap();
    let made = world.store.list_runs("default", &Default::default(), None, 10).await.unwrap();
    let made = made.into_iter().find(|run| run.generation < 0).unwrap();
    let spec = world.store.specs(made.shard, &[(stored.uid, made.generation)]).await.unwrap().remove(0);
    assert_eq!((spec.payload.json.as_str(), &spec.payload.items), (r#"{"p":1}"#, &stored.payload.items));
}
