//! What is secret is sealed in the store, comes back only to who may see it, and never reaches the audit log.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_proto::json as proto_json;
use tollgate_schedule_master::{Options, reseal};
use tollgate_secrets::{Keys, generate_line};
use tonic::Code;

use crate::world::{self, World, fields, given_schedule};

const SECRET: &str = "whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0";
const HIDDEN: [&str; 4] = ["c2VjcmV0IHNlY3JldCBz", "Bearer abc", "tenant-17", "hunter2"];

fn target(secret: Option<&str>) -> Value {
    let headers = json!({"Authorization": "Bearer abc", "X-Tenant": "tenant-17"});
    match secret {
        Some(secret) => json!({"http": {"url": "http://127.0.0.1:9/", "headers": headers, "secret": secret}}),
        None => json!({"http": {"url": "http://127.0.0.1:9/", "headers": headers, "has_secret": true}}),
    }
}

fn full() -> Value {
    json!({"target": target(Some(SECRET)), "payload": {"password": "hunter2"}})
}

fn options(lines: &str) -> Options {
    Options { keys: Arc::new(Keys::parse(lines).unwrap()), ..Options::default() }
}

/// All rows that may hold secrets.
async fn rows(world: &World) -> String {
    let schedules = world.store.schedules("default", &["one".to_owned()]).await.unwrap();
    let mut text = serde_json::to_string(&schedules).unwrap();
    let audit = world.store.audit("default", &Default::default(), None, 100).await.unwrap();
    text.extend(audit.iter().map(|entry| entry.difference.to_string()));
    text
}

#[tokio::test]
async fn secrets_are_sealed_and_shown_to_callers_only() {
    let mut world = World::with(options(&generate_line("k1").unwrap())).await;
    let made = world.create("one", full()).await.unwrap();
    let stored = rows(&world).await;
    assert_eq!(stored.matches("enc:v1:k1:").count(), 4, "{stored}");
    for hidden in HIDDEN {
        assert!(!stored.contains(hidden), "{hidden} is in {stored}");
    }
    let shown = proto_json::to_json(&world.get("one").await.unwrap());
    assert_eq!(shown, proto_json::to_json(&made));
    assert_eq!(shown["payload"]["password"], "hunter2");
    let http = &shown["target"]["http"];
    assert_eq!((&http["headers"]["X-Tenant"], &http["has_secret"]), (&json!("tenant-17"), &json!(true)));
    assert_eq!(http["headers"]["Authorization"], "***", "a credential does not come back");
    assert!(!shown.to_string().contains("c2VjcmV0IHNlY3JldCBz"));
}

#[tokio::test]
async fn what_is_the_same_changes_nothing_and_keeps_its_envelope() {
    let mut world = World::with(options(&generate_line("k1").unwrap())).await;
    world.create("one", full()).await.unwrap();
    let before = world.store.schedule("default", "one").await.unwrap().unwrap();
    // The same in clear, and the same as it is shown.
    for target in [target(Some(SECRET)), target(None)] {
        let same = json!({"target": target, "payload": {"password": "hunter2"}});
        world.update("one", same.clone(), &["target", "payload"]).await.unwrap();
        let applied = world.apply(vec![given_schedule("one", "a.yaml:1", same)]).await.unwrap();
        assert_eq!(applied.unchanged_count, 1, "{applied:?}");
    }
    let mut shown = target(None);
    shown["http"]["headers"]["Authorization"] = json!("***");
    world.update("one", json!({"target": shown}), &["target"]).await.unwrap();
    assert_eq!(world.store.schedule("default", "one").await.unwrap().unwrap(), before);
    // One part changes: the others are not sealed anew, and the log says which one it was.
    world.update("one", json!({"payload": {"password": "hunter3"}}), &["payload"]).await.unwrap();
    let after = world.store.schedule("default", "one").await.unwrap().unwrap();
    assert_eq!(after.target, before.target);
    assert_ne!(after.payload, before.payload);
    let audit = world.audit("").await;
    let latest = proto_json::to_json(&audit[0])["difference"].clone();
    assert_eq!(latest, json!({"payload": {"old": "redacted", "new": "redacted, another one"}}));
    let stored = rows(&world).await;
    assert!(!stored.contains("hunter"), "{stored}");
}

#[tokio::test]
async fn keys_that_come_later_leave_no_old_secret_in_the_log() {
    let (mut plain, key) = (World::new().await, generate_line("k1").unwrap());
    let mut given = full();
    given["payload"] = json!({"note": "in clear"});
    plain.create("one", given).await.unwrap();
    let keys = Keys::parse(&key).unwrap();
    let done = reseal(&*plain.store, &keys).await.unwrap();
    // The schedule, its run spec and the installation's own.
    assert_eq!((done.rows, done.resealed, done.failed.len(), done.rewritten), (3, 3, 0, true), "{done:?}");
    let again = reseal(&*plain.store, &keys).await.unwrap();
    assert_eq!((again.rows, again.resealed, again.overtaken), (3, 0, 0), "it may be repeated");
    let (id, secret) = plain.store.stored_installation().await.unwrap();
    assert!(secret.starts_with(b"enc:v1:k1:"));
    let clear = plain.store.installation().await.unwrap().secret;
    assert_eq!(keys.open_installation(id, &secret).unwrap().to_vec(), clear);
    let stored = serde_json::to_string(&plain.store.schedules("default", &["one".to_owned()]).await.unwrap());
    assert_eq!(stored.unwrap().matches("enc:v1:k1:").count(), 4);
    // A change under a key does not write down what was in clear before it.
    let mut bare = World::new().await;
    bare.create("one", full()).await.unwrap();
    bare.clock.advance_us(1_000_000);
    let mut sealing = bare.beside(options(&key)).await;
    sealing.update("one", json!({"priority": 3}), &["priority"]).await.unwrap();
    let latest = proto_json::to_json(&sealing.audit("").await[0])["difference"].clone();
    assert_eq!(latest["payload"], json!({"old": "redacted", "new": "redacted, sealed from now on"}));
    for hidden in HIDDEN {
        assert!(!latest.to_string().contains(hidden), "{hidden} is in {latest}");
    }
}

#[tokio::test]
async fn headers_of_records_are_hidden_in_the_log_and_a_change_is_told() {
    let target = |tenant: &str, token: &str, team: &str| {
        json!({"target": {"kafka": {"bootstrap_servers": ["127.0.0.1:9"], "topic": "orders",
            "headers": {"authorization": token, "x-tenant": tenant, "x-team": team}}}})
    };
    for sealed in [false, true] {
        let key = generate_line("k1").unwrap();
        let keys = if sealed { Arc::new(Keys::parse(&key).unwrap()) } else { Options::default().keys };
        let mut world = World::with(Options { keys, speaks_kafka: true, ..Options::default() }).await;
        world.create("one", target("tenant-17", "Bearer abc", "blue")).await.unwrap();
        world.update("one", target("tenant-18", "Bearer abd", "blue"), &[]).await.unwrap();
        let latest = proto_json::to_json(&world.audit("").await[0])["difference"].clone();
        let another = json!({"old": "redacted", "new": "redacted, another one"});
        assert_eq!(latest["target.kafka.headers.authorization"], another, "{latest}");
        if sealed {
            assert_eq!(latest["target.kafka.headers.x-tenant"], another, "{latest}");
        }
        let stored = rows(&world).await;
        let log = world.store.audit("default", &Default::default(), None, 100).await.unwrap();
        let log: String = log.iter().map(|entry| entry.difference.to_string()).collect();
        assert!(log.contains("redacted") && !log.contains("Bearer"), "{log}");
        assert_eq!(log.contains("tenant-1"), !sealed, "{log}");
        assert!(!sealed || !(stored.contains("Bearer") || stored.contains("tenant-1")), "{stored}");
    }
}

#[tokio::test]
async fn without_its_key_a_schedule_is_listed_and_not_changed() {
    let (old, new) = (generate_line("k1").unwrap(), generate_line("k2").unwrap());
    let mut world = World::with(options(&old)).await;
    world.create("one", full()).await.unwrap();
    let mut other = world.beside(options(&new)).await;
    let shown = proto_json::to_json(&other.get("one").await.unwrap()).to_string();
    assert!(shown.contains("enc:v1:k1:") && !shown.contains("tenant-17"), "{shown}");
    let refused = other.update("one", json!({"priority": 3}), &["priority"]).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("\"k1\"") && refused.message().contains("it has k2"), "{refused}");
    let refused = other.apply(vec![given_schedule("one", "a.yaml:1", full())]).await.unwrap_err();
    assert!(refused.message().contains("\"k1\""), "{refused}");
    // What needs no secret goes on.
    assert!(other.pause("one", "no key").await.pause.is_some());
    let failed = reseal(&*world.store, &Keys::parse(&new).unwrap()).await.unwrap();
    assert_eq!((failed.resealed, failed.failed.len()), (0, 3), "{failed:?}");
    assert!(failed.failed[0].contains("\"k1\""), "{failed:?}");
    // With both, everything is brought under the first.
    let both = Keys::parse(&format!("{new}\n{old}")).unwrap();
    assert_eq!(reseal(&*world.store, &both).await.unwrap().resealed, 4);
    let shown = proto_json::to_json(&other.get("one").await.unwrap());
    assert_eq!(shown["payload"]["password"], "hunter2");
}

#[tokio::test]
async fn an_envelope_is_no_header_value() {
    for options in [Options::default(), options(&generate_line("k1").unwrap())] {
        let mut world = World::with(options).await;
        let target = json!({"http": {"url": "http://127.0.0.1:9/", "headers": {"X-A": "enc:v1:k1:AAAA"}}});
        let refused = world.create("one", json!({"target": target})).await.unwrap_err();
        assert_eq!(fields(&refused), ["schedule.target.http.headers.X-A"]);
    }
}

#[tokio::test]
async fn the_payload_of_one_run_is_sealed_as_the_schedule_s_is() {
    let line = generate_line("k1").unwrap();
    let mut world = World::with(options(&line)).await;
    world.create("one", full()).await.unwrap();
    let patch = json!({"token": "swordfish"});
    let request = tollgate_proto::v1::TriggerScheduleRequest {
        name: world::name("one"),
        payload: Some(tollgate_proto::convert::payload::from_json(&patch)),
        request_id: "x".to_owned(),
        ..Default::default()
    };
    world.client.trigger_schedule(request).await.unwrap();
    let run = world.store.list_runs("default", &Default::default(), None, 1).await.unwrap().remove(0);
    let own = world.store.specs(run.shard, &[(run.schedule_uid, run.generation)]).await.unwrap().remove(0);
    let stored = serde_json::to_string(&own).unwrap();
    let remembered = world.store.request(run.schedule_uid, "x").await.unwrap().unwrap();
    for text in [stored.clone(), format!("{remembered:?}"), rows(&world).await] {
        for hidden in HIDDEN.into_iter().chain(["swordfish"]) {
            assert!(!text.contains(hidden), "{hidden} is in {text}");
        }
    }
    assert_eq!(stored.matches("enc:v1:k1:").count(), 4, "{stored}");
    let (mut target, mut payload) = (own.target, own.payload);
    Keys::parse(&line).unwrap().open_parts(run.schedule_uid, &mut target, &mut payload).unwrap();
    let read: Value = serde_json::from_str(&payload.json).unwrap();
    assert_eq!(read, json!({"password": "hunter2", "token": "swordfish"}));
    // It goes under another key with all the others.
    let both = format!("{}\n{line}", generate_line("k2").unwrap());
    let done = reseal(world.store.as_ref(), &Keys::parse(&both).unwrap()).await.unwrap();
    assert!(done.failed.is_empty(), "{done:?}");
    let own = world.store.specs(run.shard, &[(run.schedule_uid, run.generation)]).await.unwrap().remove(0);
    assert!(own.payload.json.contains("enc:v1:k2:"), "{}", own.payload.json);
}

#[tokio::test]
async fn items_are_sealed_with_the_rest() {
    let line = generate_line("k1").unwrap();
    let mut world = World::with(options(&line)).await;
    let items = json!([{"data": {"password": "hunter2"}, "key": "tenant-17"}, {"data": 1}]);
    let made = world.create("one", json!({ "items": items })).await.unwrap();
    assert_eq!(proto_json::to_json(&made)["items"], items);
    assert_eq!(proto_json::to_json(&world.get("one").await.unwrap())["items"], items);
    let stored = rows(&world).await;
    assert_eq!(stored.matches("enc:v1:k1:").count(), 1, "{stored}");
    let before = world.store.schedule("default", "one").await.unwrap().unwrap();
    world.update("one", json!({ "items": items }), &["items"]).await.unwrap();
    assert_eq!(world.store.schedule("default", "one").await.unwrap().unwrap(), before);
    let changed = world.update("one", json!({"items": [{"data": "hunter2"}]}), &["items"]).await.unwrap();
    assert_eq!(changed.events, Some(1));
    let latest = proto_json::to_json(&world.audit("").await[0])["difference"].clone();
    assert_eq!(latest["items"], json!({"old": "redacted", "new": "redacted, another one"}));
    let stored = rows(&world).await;
    for hidden in HIDDEN {
        assert!(!stored.contains(hidden), "{hidden} is in {stored}");
    }
    let envelope = json!({"items": [{"data": 1, "key": "enc:v1:k1:abc"}]});
    let refused = world.update("one", envelope, &["items"]).await.unwrap_err();
    assert_eq!(fields(&refused), ["schedule.items[0].key"]);
    let (other, clock) = (generate_line("k2").unwrap(), &world.clock);
    clock.advance_us(1_000_000);
    let mut without = world.beside(options(&other)).await;
    let shown = proto_json::to_json(&without.get("one").await.unwrap());
    assert!(shown["items"][0]["data"].as_str().unwrap().starts_with("enc:v1:k1:"), "{shown}");
    let done = reseal(&*world.store, &Keys::parse(&format!("{other}\n{line}")).unwrap()).await.unwrap();
    assert!(done.failed.is_empty(), "{done:?}");
    assert!(rows(&world).await.contains("enc:v1:k2:"));
    assert_eq!(without.get("one").await.unwrap().items.len(), 1);
    let shown = proto_json::to_json(&without.get("one").await.unwrap());
    assert_eq!(shown["items"], json!([{"data": "hunter2"}]));
}
