//! What is refused, with which words, and that nothing is written then.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};
use tollgate_proto::{json as proto_json, v1};
use tonic::{Code, Status};

use crate::world::{self, PARENT, World, as_alice, fields, name, policy_name};

/// A world with a schedule `a` under policy `p`, inside an opened window.
async fn world() -> World {
    let mut world = World::new().await;
    world.open_window(5).await;
    world.create_policy("p", json!({"max_in_flight": 3})).await.unwrap();
    world.create("a", json!({"policy": "p"})).await.unwrap();
    world
}

fn assert_refused(status: &Status, field: &str, words: &[&str]) {
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert_eq!(fields(status), [field], "{status}");
    for word in words {
        assert!(status.message().contains(word), "{word:?} in {}", status.message());
    }
}

#[tokio::test]
async fn wrong_schedules_are_refused_on_every_way_and_nothing_is_written() {
    let mut world = world().await;
    let before = world.state().await;
    let long = "x".repeat(256 * 1024);
    let cases: [(Value, &str, &[&str]); 16] = [
        (json!({"time_zone": "Europe/Atlantis"}), "schedule.time_zone", &["Europe/Atlantis", "IANA"]),
        (json!({"triggers": [{"cron": "0 0 31 2 *"}]}), "schedule.triggers[0].cron", &["0 0 31 2 *"]),
        (json!({"triggers": [{"cron": "61 * * * *"}]}), "schedule.triggers[0].cron: minute", &["61", "0-59"]),
        (json!({"triggers": [{"cron": "@reboot"}]}), "schedule.triggers[0].cron", &["@reboot"]),
        (
            json!({"triggers": vec![json!({"at": "2027-01-01T00:00:00Z"}); 101]}),
            "schedule.triggers",
            &["at most 100"],
        ),
        (json!({"when_done": "WHEN_DONE_DELETE"}), "schedule.when_done", &["an end_time"]),
        (json!({"triggers": [], "when_done": "WHEN_DONE_DELETE"}), "schedule.when_done", &["an end"]),
        (json!({"delete_after": "60s"}), "schedule.delete_after", &["none without when_done DELETE"]),
        (json!({"triggers": [{"interval": {"every": "0s"}}]}), "schedule.triggers[0].interval.every", &["0"]),
        (json!({"events": 0}), "schedule.events", &["\"0\"", "10000000"]),
        (json!({"events": 10_000_001}), "schedule.events", &["10000001", "10000000"]),
        (json!({"policy": "nowhere"}), "schedule.policy", &["nowhere", "exists"]),
        (json!({"payload": long}), "schedule.payload", &["262146 bytes", "262144"]),
        (json!({"priority": 10}), "schedule.priority", &["10"]),
        (
            json!({"target": {"http": {"url": "ftp://x"}}}),
            "schedule.target.http.url",
            &["ftp://x", "http://"],
        ),
        (
            json!({"triggers": [{"cron": "0-59 0-23 1-28 1-3 *"}]}),
            "schedule.triggers",
            &["120960 children", "10000"],
        ),
    ];
    for (with, field, words) in cases {
        let refused = world.create("b", with.clone()).await.unwrap_err();
        let words: Vec<&str> = words.to_vec();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert_eq!(fields(&refused).len(), 1, "{refused}");
        assert!(fields(&refused)[0].starts_with(field), "{field}: {refused}");
        for word in &words {
            assert!(refused.message().contains(word), "{word:?} in {}", refused.message());
        }
        let refused = world.update("a", with.clone(), &[]).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(fields(&refused)[0].starts_with(field), "{field}: {refused}");
        let good = world::given_schedule("good", "batch.yaml:1", json!({}));
        let wrong = world::given_schedule("wrong", "batch.yaml:9", with);
        let refused = world.apply(vec![good, wrong]).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        let place = format!("batch.yaml:9: wrong: {field}");
        assert!(fields(&refused)[0].starts_with(&place), "{place}: {refused}");
        assert_eq!(world.state().await, before, "{field}");
    }
}

#[tokio::test]
async fn all_that_is_wrong_is_said_at_once() {
    let mut world = world().await;
    let before = world.state().await;
    let with =
        json!({"events": 0, "policy": "nowhere", "triggers": [{"cron": "0 0 31 2 *"}], "priority": 12});
    let refused = world.create("b", with).await.unwrap_err();
    let mut named = fields(&refused);
    named.sort();
    assert_eq!(named.len(), 4, "{refused}");
    assert_eq!(named[0], "schedule.events");
    assert_eq!(named[1..3], ["schedule.policy", "schedule.priority"]);
    assert!(named[3].starts_with("schedule.triggers[0].cron"), "{named:?}");
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn wrong_policies_are_refused() {
    let mut world = world().await;
    let before = world.state().await;
    for (policy, field) in [
        (json!({}), "policy.max_in_flight"),
        (json!({"max_in_flight": 0}), "policy.max_in_flight"),
        (json!({"rate_per_second": -1.0}), "policy.rate_per_second"),
        (json!({"max_in_flight": 1, "burst": 3}), "policy.burst"),
        (json!({"max_in_flight": 1, "token_ttl": "0.5s"}), "policy.token_ttl"),
    ] {
        assert_refused(&world.create_policy("q", policy).await.unwrap_err(), field, &[]);
    }
    let taken = world.create_policy("p", json!({"max_in_flight": 1})).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists, "{taken}");
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn a_policy_in_use_stays() {
    let mut world = world().await;
    for id in ["b", "c", "d", "e"] {
        world.create(id, json!({"policy": "p"})).await.unwrap();
    }
    let before = world.state().await;
    let request =
        v1::DeletePolicyRequest { name: policy_name("p"), etag: String::new(), ..Default::default() };
    let refused = world.client.delete_policy(as_alice(request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    for word in ["\"a\", \"b\", \"c\" and others", "\"p\""] {
        assert!(refused.message().contains(word), "{word} in {refused}");
    }
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn wrong_names_are_refused() {
    let mut world = world().await;
    let before = world.state().await;
    for id in ["", "A", "-a", "a b", &"a".repeat(64)] {
        let refused = world.create(id, json!({})).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{id}: {refused}");
    }
    let request = v1::GetScheduleRequest { name: policy_name("p") };
    assert_refused(&world.client.get_schedule(request).await.unwrap_err(), "name", &["schedules"]);
    let request = v1::CreateScheduleRequest {
        parent: "default".to_owned(),
        schedule_id: "b".to_owned(),
        schedule: Some(world::schedule(json!({}))),
        validate_only: false,
    };
    assert_refused(&world.client.create_schedule(request).await.unwrap_err(), "parent", &["namespaces/"]);
    let request = v1::CreateScheduleRequest { parent: PARENT.to_owned(), ..Default::default() };
    assert_refused(&world.client.create_schedule(request).await.unwrap_err(), "schedule", &[]);
    let elsewhere = json!({"policy": "namespaces/other/policies/p"});
    assert_refused(&world.create("b", elsewhere).await.unwrap_err(), "schedule.policy", &["other"]);
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn a_page_token_fits_its_own_query_only() {
    let mut world = world().await;
    world.create("b", json!({})).await.unwrap();
    let first = v1::ListSchedulesRequest { parent: PARENT.to_owned(), page_size: 1, ..Default::default() };
    let token = world.client.list_schedules(first.clone()).await.unwrap().into_inner().next_page_token;
    assert!(!token.is_empty());
    for (parent, filter, page_token) in [
        (PARENT, "state=ACTIVE", token.as_str()),
        ("namespaces/other", "", token.as_str()),
        (PARENT, "", "nonsense"),
    ] {
        let request = v1::ListSchedulesRequest {
            parent: parent.to_owned(),
            filter: filter.to_owned(),
            page_token: page_token.to_owned(),
            page_size: 1,
        };
        assert_refused(&world.client.list_schedules(request).await.unwrap_err(), "page_token", &[]);
    }
    let request =
        v1::ListPoliciesRequest { parent: PARENT.to_owned(), page_token: token, ..Default::default() };
    assert_refused(&world.client.list_policies(request).await.unwrap_err(), "page_token", &[]);
    for filter in ["colour=red", "state=ASLEEP", "policy=UPPER"] {
        let request = v1::ListSchedulesRequest { filter: filter.to_owned(), ..first.clone() };
        assert_refused(&world.client.list_schedules(request).await.unwrap_err(), "filter", &[]);
    }
    let request = v1::ListSchedulesRequest { page_size: -1, ..first };
    assert_refused(&world.client.list_schedules(request).await.unwrap_err(), "page_size", &["-1"]);
}

#[tokio::test]
async fn a_payload_that_is_no_json_does_not_become_a_schedule() {
    let text = json!({"name": "a", "payload": f64::MAX});
    assert!(proto_json::from_json::<v1::Schedule>(text).is_ok());
    let mut wrong = world::schedule(json!({}));
    wrong.payload = Some(prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(f64::NAN)) });
    let mut world = world().await;
    let before = world.state().await;
    for payload in [wrong.payload.take(), Some(prost_types::Value { kind: None })] {
        let schedule = v1::Schedule { payload, ..wrong.clone() };
        let request = v1::CreateScheduleRequest {
            parent: PARENT.to_owned(),
            schedule_id: "b".to_owned(),
            schedule: Some(schedule),
            validate_only: false,
        };
        let refused = world.client.create_schedule(as_alice(request)).await.unwrap_err();
        assert_refused(&refused, "schedule.payload", &[]);
    }
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn a_long_reason_is_refused() {
    let mut world = world().await;
    let before = world.state().await;
    let request =
        v1::PauseScheduleRequest { name: name("a"), reason: "x".repeat(4097), ..Default::default() };
    assert_refused(&world.client.pause_schedule(request).await.unwrap_err(), "reason", &["4096"]);
    let request =
        v1::PausePolicyRequest { name: policy_name("p"), reason: "x".repeat(4097), ..Default::default() };
    assert_refused(&world.client.pause_policy(request).await.unwrap_err(), "reason", &["4096"]);
    assert_eq!(world.state().await, before);
}
