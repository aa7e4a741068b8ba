//! One schedule's life through the API.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;
use tollgate_core::model::{PastPause, SECOND_US, Schedule};
use tollgate_proto::json::to_json;
use tollgate_proto::v1;
use tonic::Code;

use crate::world::{self, NOW_S, NOW_US, PARENT, World, as_alice, name, schedule};

#[tokio::test]
async fn a_created_schedule_is_read_back_with_what_its_timing_means() {
    let mut world = World::new().await;
    let made = world
        .create("nightly", json!({"triggers": [{"cron": "0 3,4 * * *"}], "events": 7, "payload": {"a": 1}}))
        .await
        .unwrap();
    assert_eq!(made.name, name("nightly"));
    assert_eq!(made.etag, "1");
    assert_eq!(made.children_count, 2);
    assert_eq!(made.launch_classes, ["H"]);
    assert_eq!(made.next_launch_time.unwrap().seconds, NOW_S - 10 * 3600 + 27 * 3600);
    assert_eq!(made.create_time, made.update_time);
    // Warnings are for whoever makes it.
    assert_eq!(made.warnings.len(), 1);
    let made = v1::Schedule { warnings: Vec::new(), ..made };
    assert_eq!(world.get("nightly").await.unwrap(), made);
    assert_eq!(world.ids("").await, ["nightly"]);
    assert_eq!(world.get("other").await.unwrap_err().code(), Code::NotFound);
    let taken = world.create("nightly", json!({})).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists, "{taken}");
    let audit = world.audit("").await;
    assert_eq!(audit.len(), 1);
    assert_eq!((audit[0].actor.as_str(), audit[0].action.as_str()), ("alice", "create"));
    assert_eq!((audit[0].resource.as_str(), audit[0].generation), (name("nightly").as_str(), 1));
    assert_eq!(to_json(&audit[0])["difference"]["events"], json!({"new": 7}));
}

#[tokio::test]
async fn an_update_changes_what_its_mask_names() {
    let mut world = World::new().await;
    let made = world.create("a", json!({"events": 2, "description": "x"})).await.unwrap();
    let given = json!({"events": 5, "description": "y"});
    let changed = world.update("a", given, &["events"]).await.unwrap();
    assert_eq!((changed.events, changed.description.as_str(), changed.etag.as_str()), (Some(5), "x", "2"));
    assert_eq!((changed.uid, changed.create_time), (made.uid.clone(), made.create_time));
    let replaced = world.update("a", json!({}), &[]).await.unwrap();
    assert_eq!((replaced.events, replaced.description.as_str(), replaced.uid), (Some(1), "", made.uid));
    let audit = world.audit(&format!("resource={}", name("a"))).await;
    assert_eq!(audit.len(), 3);
    assert_eq!(audit[1].generation, 2);
    assert_eq!(to_json(&audit[1])["difference"], json!({"events": {"old": 2, "new": 5}}));
    let unknown = world.update("a", json!({}), &["colour"]).await.unwrap_err();
    assert_eq!(
        (unknown.code(), world::fields(&unknown)),
        (Code::InvalidArgument, vec!["update_mask".to_owned()])
    );
    assert_eq!(world.update("b", json!({}), &[]).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn an_update_that_changes_nothing_writes_nothing() {
    let mut world = World::new().await;
    world.open_window(5).await;
    let made = world.create("a", json!({"triggers": [{"interval": {"every": "90s"}}]})).await.unwrap();
    let before = world.state().await;
    let same = world.update("a", json!({"triggers": [{"interval": {"every": "90s"}}]}), &[]).await.unwrap();
    assert_eq!(same, made);
    world.resume("a").await;
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn an_etag_is_checked() {
    let mut world = World::new().await;
    world.create("a", json!({"events": 2})).await.unwrap();
    world.update("a", json!({"events": 3, "etag": "1"}), &["events"]).await.unwrap();
    let before = world.state().await;
    let stale = world.update("a", json!({"events": 4, "etag": "1"}), &["events"]).await.unwrap_err();
    assert_eq!(stale.code(), Code::Aborted, "{stale}");
    assert!(stale.message().contains("\"2\""), "{stale}");
    let wrong = world.update("a", json!({"etag": "x"}), &["events"]).await.unwrap_err();
    assert_eq!(
        (wrong.code(), world::fields(&wrong)),
        (Code::InvalidArgument, vec!["schedule.etag".to_owned()])
    );
    assert_eq!(world.delete("a", "1").await.unwrap_err().code(), Code::Aborted);
    assert_eq!(world.state().await, before);
    world.delete("a", "2").await.unwrap();
    assert_eq!(world.get("a").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(world.delete("a", "").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(world.audit("").await[0].generation, 3);
}

#[tokio::test]
async fn a_chosen_offset_stays_until_the_interval_changes() {
    let mut world = World::new().await;
    let every = |s: &str| json!({"triggers": [{"interval": {"every": s}}], "description": s});
    let anchor = |schedule: &v1::Schedule| match schedule.triggers[0].trigger.clone().unwrap() {
        v1::trigger::Trigger::Interval(interval) => interval.anchor.unwrap().seconds,
        other => panic!("{other:?}"),
    };
    let first = anchor(&world.create("a", every("1h")).await.unwrap());
    assert!((0..3600).contains(&first));
    let described = world.update("a", json!({"description": "z"}), &["description"]).await.unwrap();
    assert_eq!(anchor(&described), first);
    let replaced = world.update("a", every("1h"), &[]).await.unwrap();
    assert_eq!((anchor(&replaced), replaced.etag.as_str()), (first, "3"));
    let other = anchor(&world.update("a", every("7000s"), &[]).await.unwrap());
    let back = anchor(&world.update("a", every("1h"), &[]).await.unwrap());
    assert!((0..7000).contains(&other));
    assert_eq!(back, first);
}

#[tokio::test]
async fn a_pause_has_a_reason_and_ends() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    let paused = world.pause("a", "bad data").await;
    let pause = paused.pause.clone().unwrap();
    assert_eq!(
        (pause.reason.as_str(), pause.actor.as_str(), paused.etag.as_str()),
        ("bad data", "alice", "2")
    );
    assert_eq!(world.pause("a", "bad data").await, paused);
    assert_eq!(world.pause("a", "worse").await.etag, "3");
    assert_eq!(world.ids("state=PAUSED").await, ["a"]);
    assert_eq!(world.ids("state=ACTIVE").await, [""; 0]);
    let kept = world.update("a", json!({"events": 9}), &[]).await.unwrap();
    assert_eq!(kept.pause.unwrap().reason, "worse");
    let resumed = world.resume("a").await;
    assert_eq!((resumed.pause.clone(), resumed.etag.as_str()), (None, "5"));
    assert_eq!(world.resume("a").await, resumed);
    let actions: Vec<String> = world.audit("").await.into_iter().map(|entry| entry.action).collect();
    assert_eq!(actions, ["resume", "update", "pause", "pause", "create"]);
}

/// An emitter that scans a window late leaves out what fell due in them.
#[tokio::test]
async fn pauses_that_were_lifted_are_remembered() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    for reason in ["bad data", "worse"] {
        world.clock.advance_us(SECOND_US);
        world.pause("a", reason).await;
    }
    world.clock.advance_us(SECOND_US);
    world.resume("a").await;
    world.update("a", json!({"events": 9}), &["events"]).await.unwrap();
    let kept = world.store.schedule("default", "a").await.unwrap().unwrap();
    let [first, second] = kept.past_pauses[..] else { panic!("{kept:?}") };
    let pause = |from_s, to_s| PastPause {
        since_us: NOW_US + from_s * SECOND_US,
        until_us: NOW_US + to_s * SECOND_US,
    };
    assert_eq!([first, second], [pause(1, 2), pause(2, 3)]);
    let until_us = |launch_us| kept.paused_until_us(launch_us);
    assert_eq!((until_us(first.since_us), until_us(first.until_us)), (None, Some(first.until_us)));
    for _ in 0..Schedule::PAST_PAUSES_MAX {
        world.pause("a", "again").await;
        world.resume("a").await;
    }
    let kept = world.store.schedule("default", "a").await.unwrap().unwrap();
    assert_eq!(kept.past_pauses.len(), Schedule::PAST_PAUSES_MAX);
    assert!(
        kept.past_pauses.iter().all(|pause| pause.since_us > second.until_us),
        "the oldest are forgotten"
    );
}

#[tokio::test]
async fn validate_only_answers_and_changes_nothing() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    let before = world.state().await;
    let request = v1::CreateScheduleRequest {
        parent: PARENT.to_owned(),
        schedule_id: "b".to_owned(),
        schedule: Some(schedule(json!({}))),
        validate_only: true,
    };
    let shown = world.client.create_schedule(as_alice(request.clone())).await.unwrap().into_inner();
    assert_eq!((shown.name, shown.children_count), (name("b"), 60));
    let taken = v1::CreateScheduleRequest { schedule_id: "a".to_owned(), ..request };
    assert_eq!(world.client.create_schedule(taken).await.unwrap_err().code(), Code::AlreadyExists);
    let mut wanted = schedule(json!({"events": 3}));
    wanted.name = name("a");
    let request =
        v1::UpdateScheduleRequest { schedule: Some(wanted), update_mask: None, validate_only: true };
    let shown = world.client.update_schedule(as_alice(request)).await.unwrap().into_inner();
    assert_eq!((shown.events, shown.etag.as_str()), (Some(3), "2"));
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn secrets_are_kept_and_never_shown() {
    let mut world = World::new().await;
    let one = format!("whsec_{}", "QUFB".repeat(10));
    let two = format!("whsec_{}", "QkJC".repeat(10));
    let target = |secret: &str, token: &str| {
        json!({"target": {"http": {"url": "http://127.0.0.1:9/", "secret": secret,
            "headers": {"Authorization": token, "X-Team": "blue"}}}})
    };
    let made = world.create("a", target(&one, "Bearer first")).await.unwrap();
    assert_eq!(to_json(&made)["target"]["http"]["has_secret"], json!(true));
    assert!(!format!("{made:?}").contains(&one));
    let moved = |url: &str| json!({"target": {"http": {"url": url}}});
    let refused = world.update("a", moved("http://127.0.0.1:8/"), &["target.http.url"]).await.unwrap_err();
    assert_eq!(
        world::fields(&refused),
        ["schedule.target.http.headers.Authorization", "schedule.target.http.secret"]
    );
    world.update("a", moved("http://127.0.0.1:9/b"), &["target.http.url"]).await.unwrap();
    let stored = world.store.schedule("default", "a").await.unwrap().unwrap();
    assert!(serde_json::to_string(&stored.target).unwrap().contains(&one));
    assert!(!format!("{stored:?}").contains(&one), "it is not shown by accident");
    world.update("a", target(&two, "Bearer second"), &[]).await.unwrap();
    let audit = format!("{:?}", world.store.audit("default", &Default::default(), None, 100).await.unwrap());
    for secret in [one.as_str(), two.as_str(), "Bearer"] {
        assert!(!audit.contains(secret), "{secret} in {audit}");
    }
    let last = to_json(&world.audit("").await[0]);
    assert_eq!(last["difference"]["target.http.secret"]["old"], json!("redacted"));
    assert!(last["difference"]["target.http.headers.Authorization"].is_object(), "{last}");
    assert!(audit.contains("blue"));
}

#[tokio::test]
async fn lists_have_pages_and_filters() {
    let mut world = World::new().await;
    world.create_policy("p", json!({"max_in_flight": 3})).await.unwrap();
    for at in 0..5 {
        let team = if at % 2 == 0 { "blue" } else { "red" };
        let mut with = json!({"labels": {"team": team}});
        if at > 2 {
            with["policy"] = json!("p");
        }
        world.create(&format!("s{at}"), with).await.unwrap();
    }
    assert_eq!(world.ids("label.team=blue").await, ["s0", "s2", "s4"]);
    assert_eq!(world.ids("policy=p AND label.team=red").await, ["s3"]);
    assert_eq!(world.ids(&format!("policy={}", world::policy_name("p"))).await, ["s3", "s4"]);
    let mut request =
        v1::ListSchedulesRequest { parent: PARENT.to_owned(), page_size: 2, ..Default::default() };
    let mut seen = Vec::new();
    loop {
        let page = world.client.list_schedules(request.clone()).await.unwrap().into_inner();
        seen.push(page.schedules.len());
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
        assert!(seen.len() < 4);
    }
    assert_eq!(seen, [2, 2, 1]);
}

#[tokio::test]
async fn items_are_changed_as_a_whole_and_the_number_of_events_follows() {
    let mut world = World::new().await;
    let items = json!([{"data": {"n": 1}, "key": "acme"}, {"data": 2}]);
    let made = world.create("a", json!({"items": items, "payload": {"p": 1}})).await.unwrap();
    assert_eq!((made.events, to_json(&made)["items"].clone()), (Some(2), items.clone()));
    assert_eq!(to_json(&world.get("a").await.unwrap())["items"], items);
    let three = json!({"items": [{"data": 1}, {"data": 2}, {"data": 3}], "etag": "1"});
    let changed = world.update("a", three, &["items"]).await.unwrap();
    assert_eq!((changed.events, changed.items.len(), changed.etag.as_str()), (Some(3), 3, "2"));
    let wrong = world.update("a", json!({"events": 7}), &["events"]).await.unwrap_err();
    assert_eq!(world::fields(&wrong), ["schedule.events"], "{wrong}");
    let wrong = world.update("a", json!({"events": 3, "items": [{"data": 1}]}), &["events", "items"]).await;
    assert_eq!(world::fields(&wrong.unwrap_err()), ["schedule.events"]);
    let path = world.update("a", json!({}), &["items.data"]).await.unwrap_err();
    assert_eq!(world::fields(&path), ["update_mask"]);
    let stale = world.update("a", json!({"items": [], "etag": "1"}), &["items"]).await.unwrap_err();
    assert_eq!(stale.code(), Code::Aborted);
    let audit = world.audit(&format!("resource={}", name("a"))).await;
    let difference = to_json(&audit[0])["difference"].clone();
    assert_eq!(difference["events"], json!({"old": 2, "new": 3}));
    assert_eq!(difference["items"]["old"], items, "{difference}");
    let paused = world.pause("a", "x").await;
    assert_eq!((paused.items.len(), paused.events), (3, Some(3)));
    let none = world.update("a", json!({}), &["items"]).await.unwrap();
    assert_eq!((none.items.len(), none.events), (0, Some(3)), "how many there are was not named");
    let long = json!({"items": [{"data": "x".repeat(5_000)}]});
    world.update("a", long, &["items"]).await.unwrap();
    let latest = to_json(&world.audit("").await[0])["difference"].clone();
    let noted = latest["items"]["new"][0]["data"].as_str().unwrap().to_owned();
    assert!(noted.starts_with("5004 bytes, SHA-256 "), "{noted}");
}
