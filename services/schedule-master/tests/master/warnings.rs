//! What was accepted and will probably not do what was meant: in the answers of create, update and apply.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use serde_json::json;
use tollgate_proto::v1::{self, WarningKind};
use tollgate_schedule_master::{AddressFault, AddressLook, Options};

use crate::world::{World, as_alice, given_policy, given_schedule};

/// Addresses with `inside` are refused, with `hangs` never known.
async fn world() -> World {
    let addresses = AddressLook::by(|address| {
        Box::pin(async move {
            if address.url.contains("hangs") {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
            }
            address.url.contains("inside").then(|| AddressFault::Refused("it is inside".to_owned()))
        })
    });
    World::with(Options { addresses, ..Options::default() }).await
}

fn kinds(warnings: &[v1::Warning]) -> Vec<WarningKind> {
    warnings.iter().map(v1::Warning::kind).collect()
}

#[tokio::test]
async fn one_schedule_brings_its_warnings_when_it_is_written_and_never_when_it_is_read() {
    let mut world = world().await;
    let inside = json!({"http": {"url": "http://inside/"}});
    let made = world
        .create("a", json!({"triggers": [{"at": "2020-01-01T00:00:00Z"}], "target": inside}))
        .await
        .unwrap();
    assert_eq!(kinds(&made.warnings), [WarningKind::TimeInPast, WarningKind::AddressRefused]);
    assert_eq!(made.warnings[0].field, "schedule.triggers[0].at");
    assert!(made.warnings[1].message.starts_with("it is inside"), "{made:?}");
    assert_eq!(world.get("a").await.unwrap().warnings, []);
    let same = world.update("a", json!({"events": 1}), &["events"]).await.unwrap();
    assert_eq!(kinds(&same.warnings), kinds(&made.warnings), "an update that changes nothing warns as well");
    let target = json!({"triggers": [{"cron": "0 3 * * *"}]});
    let changed = world.update("a", target.clone(), &["triggers"]).await.unwrap();
    assert_eq!(kinds(&changed.warnings), [WarningKind::AddressRefused], "its zone is not what was changed");
    let replaced = world.update("a", target, &[]).await.unwrap();
    assert_eq!(kinds(&replaced.warnings), [WarningKind::NoTimeZone]);
}

#[tokio::test]
async fn many_bring_theirs_with_where_they_were_written() {
    let mut world = world().await;
    let all = vec![
        given_policy("idle", "a.yaml:1", json!({"max_in_flight": 1})),
        given_policy("rate", "a.yaml:4", json!({"rate_per_second": 1.0})),
        given_schedule("s", "a.yaml:9", json!({"policy": "rate", "events": 600, "finish_by": "60s"})),
        given_schedule("t", "a.yaml:20", json!({"target": {"http": {"url": "http://inside/"}}})),
        given_schedule("u", "a.yaml:30", json!({"target": {"http": {"url": "http://inside/"}}})),
        given_schedule("v", "a.yaml:40", json!({"target": {"http": {"url": "http://hangs/"}}})),
    ];
    // Twice: what is unchanged is warned of, too.
    for _ in 0..2 {
        let begun = tollgate_clock::instant_now();
        let answer = world.apply(all.clone()).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30), "a look that hangs keeps nobody");
        let mut warned: Vec<(String, WarningKind)> = answer
            .warnings
            .iter()
            .map(|one| (one.source.clone(), one.warning.as_ref().unwrap().kind()))
            .collect();
        warned.sort_by(|one, other| one.0.cmp(&other.0));
        let expected = [
            ("a.yaml:1", WarningKind::PolicyUnused),
            ("a.yaml:20", WarningKind::AddressRefused),
            ("a.yaml:30", WarningKind::AddressRefused),
            ("a.yaml:9", WarningKind::FinishByShort),
        ];
        assert_eq!(warned, expected.map(|(source, kind)| (source.to_owned(), kind)));
    }
}

#[tokio::test]
async fn a_namespace_is_new_until_something_is_in_it() {
    let mut world = world().await;
    let mut create = async |id: &str, namespace: &str| {
        let request = v1::CreatePolicyRequest {
            parent: format!("namespaces/{namespace}"),
            policy_id: id.to_owned(),
            policy: Some(v1::Policy { max_in_flight: Some(1), ..v1::Policy::default() }),
            validate_only: false,
        };
        world.client.create_policy(as_alice(request)).await.unwrap().into_inner()
    };
    let first = create("a", "prodd").await;
    assert_eq!(kinds(&first.warnings), [WarningKind::NamespaceNew]);
    assert!(first.warnings[0].message.contains("prodd"), "{first:?}");
    assert_eq!(create("b", "prodd").await.warnings, []);
    assert_eq!(create("a", "default").await.warnings, [], "everybody begins there");
}

#[tokio::test]
async fn limits_that_are_never_reached_are_warned_of() {
    let mut world = world().await;
    world.create_policy("root", json!({"max_in_flight": 5})).await.unwrap();
    let made = world.create_policy("wide", json!({"max_in_flight": 8, "parent": "root"})).await.unwrap();
    assert_eq!(kinds(&made.warnings), [WarningKind::LimitAboveParent]);
    assert_eq!(made.warnings[0].field, "policy.max_in_flight");
    assert!(made.warnings[0].message.starts_with("8 is never reached: root"), "{made:?}");
    let free = world.create_policy("free", json!({"parent": "wide"})).await.unwrap();
    assert_eq!(free.warnings, []);
    let given = vec![
        given_policy("root", "a.yaml:1", json!({"max_in_flight": 5})),
        given_policy("wide", "a.yaml:4", json!({"max_in_flight": 9})),
        given_policy("free", "a.yaml:9", json!({})),
    ];
    let answer = world.apply(given).await.unwrap();
    let found: Vec<(&str, WarningKind)> = answer
        .warnings
        .iter()
        .map(|warned| (warned.source.as_str(), warned.warning.as_ref().unwrap().kind()))
        .collect();
    // What others stand below is of use without schedules.
    assert_eq!(found, [("a.yaml:4", WarningKind::LimitAboveParent), ("a.yaml:9", WarningKind::PolicyUnused)]);
}
