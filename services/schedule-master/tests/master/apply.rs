//! Many resources at once.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests, which measure with the machine's clocks"
)]

use std::time::Instant;

use serde_json::json;
use tollgate_proto::v1;
use tollgate_schedule_master::Options;
use tonic::Code;

use crate::world::{self, World, fields, given_policy, given_schedule};

fn counts(answer: &v1::ApplyResourcesResponse) -> [u32; 4] {
    [answer.created_count, answer.updated_count, answer.unchanged_count, answer.failed_count]
}

#[tokio::test]
async fn applying_twice_changes_nothing_the_second_time() {
    let mut world = World::with(Options { apply_chunk: 2, ..Options::default() }).await;
    let every = json!([{"interval": {"every": "1h"}}]);
    let all = |m: u32, n: u32| {
        vec![
            // Schedules may stand before their policies.
            given_schedule("a", "f:1", json!({"policy": "p", "events": n, "triggers": every})),
            given_policy("p", "f:9", json!({"max_in_flight": m})),
            given_policy("q", "f:12", json!({"max_in_flight": 1})),
            given_schedule("namespaces/default/schedules/b", "f:15", json!({"policy": "q"})),
            given_schedule("c", "f:20", json!({"payload": {"x": [1, 2.5, "y"]}})),
        ]
    };
    assert_eq!(counts(&world.apply(all(1, 1)).await.unwrap()), [5, 0, 0, 0]);
    let before = world.state().await;
    world.clock.advance_us(1_000_000);
    assert_eq!(counts(&world.apply(all(1, 1)).await.unwrap()), [0, 0, 5, 0]);
    assert_eq!(world.state().await, before);
    assert_eq!(counts(&world.apply(all(2, 3)).await.unwrap()), [0, 2, 3, 0]);
    assert_eq!(world.get("a").await.unwrap().events, Some(3));
    assert_eq!(world.get("a").await.unwrap().etag, "2");
    let audit = world.audit("").await;
    assert_eq!(audit.iter().filter(|entry| entry.action == "update").count(), 2);
    assert!(audit.iter().all(|entry| entry.actor == "alice"));
}

#[tokio::test]
async fn chains_are_judged_as_all_of_them_will_be() {
    let mut world = World::new().await;
    let step = |id: &str, next: &str| {
        let on_finish = json!({"schedule": next, "when": "ALWAYS"});
        given_schedule(id, &format!("{id}:1"), json!({"on_finish": on_finish}))
    };
    let last = |id: &str| given_schedule(id, &format!("{id}:1"), json!({}));
    let in_a_row = |count: u32| -> Vec<v1::ApplyResourcesRequest> {
        let others = (1..count).map(|place| step(&format!("s{place}"), &format!("s{}", place + 1)));
        others.chain([last(&format!("s{count}"))]).collect()
    };
    let circle = vec![step("a", "b"), step("b", "c"), step("c", "a"), last("other")];
    for (given, expected) in [
        (circle, "does not lead back to this one"),
        (vec![step("a", "a"), last("other")], "a chain does not come back"),
        (vec![step("a", "nowhere"), last("other")], "\"nowhere\" is not allowed"),
        (in_a_row(9), "at most 8 schedules, not 9"),
    ] {
        let refused = world.apply(given).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(fields(&refused).iter().all(|field| field.ends_with("on_finish.schedule")), "{refused:?}");
        assert!(refused.message().contains(expected), "{refused:?}");
        assert_eq!(world.get("other").await.unwrap_err().code(), Code::NotFound, "nothing is half written");
        assert_eq!(world.get("s1").await.unwrap_err().code(), Code::NotFound);
    }
    // Those that follow may stand behind those that they follow.
    assert_eq!(counts(&world.apply(in_a_row(8)).await.unwrap()), [8, 0, 0, 0]);
    assert_eq!(world.get("s7").await.unwrap().on_finish.unwrap().schedule, "namespaces/default/schedules/s8");
    let back = world.apply(vec![step("s8", "s4")]).await.unwrap_err();
    assert!(back.message().contains("does not lead back to this one"), "{back:?}");
}

#[tokio::test]
async fn each_change_is_said_with_what_was_and_what_is() {
    let mut world = World::new().await;
    let all = |m: u32, url: &str| {
        let target = json!({"http": {"url": url, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}});
        vec![
            given_schedule("a", "f:1", json!({"policy": "p", "target": target})),
            given_policy("p", "f:9", json!({"max_in_flight": m})),
            given_policy("q", "f:12", json!({"max_in_flight": 1})),
        ]
    };
    let said = |answer: &v1::ApplyResourcesResponse| -> Vec<(String, String, serde_json::Value)> {
        let line = |result: &v1::ApplyResult| {
            let difference = tollgate_proto::json::to_json(result)["difference"].clone();
            (result.source.clone(), format!("{} {:?}", result.name, result.action()), difference)
        };
        answer.results.iter().map(line).collect()
    };
    let none = serde_json::Value::Null;
    let first = world.apply(all(50, "https://a.example/")).await.unwrap();
    let (p, a) = ("namespaces/default/policies/p", "namespaces/default/schedules/a");
    assert_eq!(
        said(&first),
        [
            ("f:9".to_owned(), format!("{p} Created"), none.clone()),
            ("f:12".to_owned(), "namespaces/default/policies/q Created".to_owned(), none.clone()),
            ("f:1".to_owned(), format!("{a} Created"), none),
        ]
    );
    let mut dry = all(5000, "https://b.example/");
    dry.iter_mut().for_each(|given| given.validate_only = true);
    let expected = [
        ("f:9".to_owned(), format!("{p} Updated"), json!({"max_in_flight": {"old": 50, "new": 5000}})),
        (
            "f:1".to_owned(),
            format!("{a} Updated"),
            json!({"target.http.url": {"old": "https://a.example/", "new": "https://b.example/"}}),
        ),
    ];
    assert_eq!(said(&world.apply(dry).await.unwrap()), expected);
    let done = world.apply(all(5000, "https://b.example/")).await.unwrap();
    assert_eq!((said(&done), done.unlisted_results_count), (expected.to_vec(), 0));
}

#[tokio::test]
async fn results_are_bounded_and_the_rest_is_counted() {
    let mut world = World::new().await;
    let many = (0..1_200).map(|n| given_schedule(&format!("s{n}"), &format!("f:{n}"), json!({}))).collect();
    let done = world.apply(many).await.unwrap();
    assert_eq!((done.created_count, done.results.len(), done.unlisted_results_count), (1_200, 1_000, 200));
}

#[tokio::test]
async fn one_wrong_resource_stops_all() {
    let mut world = World::new().await;
    world.create("old", json!({})).await.unwrap();
    let before = world.state().await;
    let refused = world
        .apply(vec![
            given_policy("p", "f:1", json!({"max_in_flight": 0})),
            given_schedule("a", "f:5", json!({"policy": "p"})),
            given_schedule("b", "f:9", json!({"events": 0, "time_zone": "Mars/Base"})),
            given_schedule("old", "f:20", json!({"etag": "7"})),
            given_schedule("a", "f:31", json!({})),
            given_schedule("UPPER", "f:40", json!({})),
            given_schedule("c", "f:44", json!({"policy": "nowhere"})),
        ])
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let mut named = fields(&refused);
    named.sort();
    assert_eq!(
        named,
        [
            "f:1: p: policy.max_in_flight",
            "f:20: old: schedule.etag",
            "f:31: a: schedule.name",
            "f:40: UPPER: schedule.name",
            "f:44: c: schedule.policy",
            "f:9: b: schedule.events",
            "f:9: b: schedule.time_zone",
        ]
    );
    assert!(refused.message().contains("f:5"), "both places of a name: {refused}");
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn errors_are_capped_and_too_many_resources_refused() {
    let mut world = World::with(Options { apply_max: 200, ..Options::default() }).await;
    let wrong =
        |n: u32| (0..n).map(|at| given_schedule(&format!("s{at}"), "", json!({"events": 0}))).collect();
    let refused = world.apply(wrong(150)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "too large a status is lost on its way");
    let shown = fields(&refused).len();
    assert!(shown >= 20, "{shown}");
    assert!(refused.message().ends_with(&format!("and {} more", 150 - shown)), "{refused}");
    let refused = world.apply(wrong(201)).await.unwrap_err();
    assert_eq!(fields(&refused), ["resource"]);
    assert!(world.ids("").await.is_empty());
}

#[tokio::test]
async fn validate_only_counts_and_writes_nothing() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    let before = world.state().await;
    let mut all = vec![
        given_policy("p", "", json!({"max_in_flight": 1})),
        given_schedule("a", "", json!({"events": 3})),
        given_schedule("b", "", json!({"policy": "p"})),
    ];
    all[2].validate_only = true;
    assert_eq!(counts(&world.apply(all.clone()).await.unwrap()), [2, 1, 0, 0]);
    all.push(given_schedule("c", "f:7", json!({"events": 0, "priority": 11})));
    all.push(given_schedule("b", "f:9", json!({})));
    let answer = world.apply(all).await.unwrap();
    assert_eq!(counts(&answer), [2, 1, 0, 2]);
    let mut errors: Vec<[&str; 3]> = answer
        .errors
        .iter()
        .map(|error| [error.source.as_str(), error.name.as_str(), error.field.as_str()])
        .collect();
    errors.sort_unstable();
    let expected =
        [["f:7", "c", "schedule.events"], ["f:7", "c", "schedule.priority"], ["f:9", "b", "schedule.name"]];
    assert_eq!(errors, expected);
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn what_disappears_meanwhile_costs_only_those_that_need_it() {
    let mut world = World::new().await;
    world.create_policy("p", json!({"max_in_flight": 1})).await.unwrap();
    let names: Vec<String> = (0..50).map(|at| format!("s{at}")).collect();
    let all: Vec<_> = names
        .iter()
        .map(|id| given_schedule(id, "f:1", if id == "s7" { json!({"policy": "p"}) } else { json!({}) }))
        .collect();
    // The name of one is taken between reading and writing by a second stream of the same.
    let mut other = world.client.clone();
    let (one, two) = tokio::join!(
        other.apply_resources(tokio_stream::iter(all.clone())),
        world.client.apply_resources(tokio_stream::iter(all)),
    );
    let (one, two) = (one.unwrap().into_inner(), two.unwrap().into_inner());
    assert_eq!(one.created_count + two.created_count, 50, "{one:?} {two:?}");
    let rest = [&one, &two].map(|answer| answer.unchanged_count + answer.failed_count);
    assert_eq!(rest.iter().sum::<u32>(), 50);
    assert!(two.errors.iter().chain(&one.errors).all(|error| error.source == "f:1"));
    assert_eq!(world.audit("").await.len(), 51);
}

#[tokio::test]
async fn ten_thousand_schedules_apply_in_seconds() {
    let mut world = World::new().await;
    world.open_window(5).await;
    let all = |n: u32| -> Vec<_> {
        let mut all = vec![given_policy("p", "", json!({"max_in_flight": 100}))];
        all.extend((0..10_000).map(|at| {
            let cron = format!("{} {} * * *", at % 60, at % 24);
            let with =
                json!({"triggers": [{"cron": cron}], "events": n, "policy": "p", "payload": {"at": at}});
            given_schedule(&format!("s{at:05}"), "batch.yaml", with)
        }));
        all
    };
    for (n, expected) in [(1, [10_001, 0, 0, 0]), (1, [0, 0, 10_001, 0]), (2, [0, 10_000, 1, 0])] {
        let requests = all(n);
        let start = Instant::now();
        assert_eq!(counts(&world.apply(requests).await.unwrap()), expected);
        // Without optimisation on two cores: 6 s for new ones, 1 s for unchanged ones, 9 s for changed ones.
        assert!(start.elapsed().as_secs() < 60, "{expected:?} took {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_stream_with_progress_answers_as_the_one_without() {
    let world = World::new().await;
    let client = || world.client.clone();
    let all = |events: u32| {
        vec![
            given_policy("p", "f:9", json!({"max_in_flight": 1})),
            given_schedule("a", "f:1", json!({"policy": "p", "events": events})),
        ]
    };
    let steps = async |all: Vec<v1::ApplyResourcesRequest>| {
        let request = world::as_alice(tokio_stream::iter(all));
        let mut stream = client().apply_resources_with_progress(request).await?.into_inner();
        let mut last = None;
        while let Some(message) = stream.message().await? {
            assert!(!matches!(last, Some(v1::apply_resources_progress::Step::Response(_))), "it comes last");
            last = message.step;
        }
        match last {
            Some(v1::apply_resources_progress::Step::Response(answer)) => Ok(answer),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(counts(&steps(all(1)).await.unwrap()), [2, 0, 0, 0]);
    assert_eq!(counts(&steps(all(2)).await.unwrap()), [0, 1, 1, 0]);
    let refused: tonic::Status = steps(all(0)).await.unwrap_err();
    assert_eq!(
        (refused.code(), fields(&refused)),
        (Code::InvalidArgument, vec!["f:1: a: schedule.events".to_owned()])
    );
}
