//! How many tokens events take: refused above a limit where it is asked for, warned of where a limit was lowered since.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;
use tollgate_core::model::Run;
use tollgate_proto::v1::submit_items_request::Part;
use tollgate_proto::v1::{self, SubmissionHeader, SubmitItemsRequest, WarningKind};
use tonic::Status;

use crate::world::{World, as_alice, given_policy, given_schedule, name, policy_name, refused};

/// A policy `own` of 10 tokens, 5 for each key, below `root` of 20.
async fn world() -> World {
    let mut world = World::new().await;
    world.create_policy("root", json!({"max_in_flight": 20})).await.unwrap();
    let own = json!({"parent": "root", "max_in_flight": 10, "per_key": {"max_in_flight": 5}});
    world.create_policy("own", own).await.unwrap();
    world.create_policy("below", json!({"parent": "root"})).await.unwrap();
    world
}

async fn limit(world: &mut World, policy: &str, max_in_flight: u32) {
    let policy =
        v1::Policy { name: policy_name(policy), max_in_flight: Some(max_in_flight), ..v1::Policy::default() };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["max_in_flight".to_owned()] });
    let request = v1::UpdatePolicyRequest { policy: Some(policy), update_mask, validate_only: false };
    world.client.update_policy(as_alice(request)).await.unwrap();
}

fn kinds(warnings: &[v1::Warning]) -> Vec<WarningKind> {
    warnings.iter().map(v1::Warning::kind).collect()
}

#[tokio::test]
async fn a_schedule_asks_for_no_more_than_there_is() {
    let mut world = world().await;
    let of_root = "at most 20, the max_in_flight of root, a policy above its own";
    refused(world.create("a", json!({"policy": "below", "units": 21})).await, "schedule.units", of_root);
    let of_key = "at most 5, the max_in_flight of the key \"acme\" under own";
    let keyed = json!({"policy": "own", "key": "acme", "units": 6});
    refused(world.create("a", keyed).await, "schedule.units", of_key);
    let items = json!([{"data": 1, "key": "k"}, {"data": 2, "key": "acme", "units": 6}]);
    let made = world.create("a", json!({"policy": "own", "items": items})).await;
    refused(made, "schedule.items[1].units", of_key);
    let made = world.create("a", json!({"policy": "below", "units": 20})).await.unwrap();
    assert_eq!((made.units, made.warnings), (Some(20), vec![]));
    refused(world.update("a", json!({"units": 25}), &["units"]).await, "schedule.units", of_root);
    let moved = world.update("a", json!({"policy": "own"}), &["policy"]).await;
    refused(moved, "schedule.units", "at most 5, the max_in_flight of events without a key under own");
    // Without a policy nothing bounds it.
    let free = world.update("a", json!({"policy": "", "units": 1_000}), &["policy", "units"]).await.unwrap();
    assert_eq!(free.units, Some(1_000));
}

#[tokio::test]
async fn a_limit_that_was_lowered_is_warned_of() {
    let mut world = world().await;
    world.create("a", json!({"policy": "below", "units": 15})).await.unwrap();
    limit(&mut world, "root", 12).await;
    let same = world.update("a", json!({"description": "x"}), &["description"]).await.unwrap();
    assert_eq!(kinds(&same.warnings), [WarningKind::UnitsAboveLimit]);
    assert_eq!(same.warnings[0].field, "schedule.units");
    assert!(same.warnings[0].message.starts_with("15 tokens are more than there are"), "{same:?}");
    refused(world.update("a", json!({"units": 14}), &["units"]).await, "schedule.units", "at most 12");
    let fewer = world.update("a", json!({"units": 12}), &["units"]).await.unwrap();
    assert_eq!(kinds(&fewer.warnings), []);
}

#[tokio::test]
async fn what_is_applied_goes_by_the_limits_as_they_will_be() {
    let mut world = world().await;
    let given = |root: u32, units: u32| {
        vec![
            given_policy("root", "a.yaml:1", json!({"max_in_flight": root})),
            given_schedule("a", "a.yaml:4", json!({"policy": "below", "units": units})),
        ]
    };
    refused(world.apply(given(20, 30)).await, "a.yaml:4: a: schedule.units", "at most 20");
    assert_eq!(world.apply(given(40, 30)).await.unwrap().warnings, [], "below itself does not change");
    let lowered = world.apply(given(25, 30)).await.unwrap();
    let warned: Vec<WarningKind> =
        lowered.warnings.iter().map(|one| one.warning.as_ref().unwrap().kind()).collect();
    assert_eq!(warned, [WarningKind::UnitsAboveLimit]);
    refused(world.apply(given(25, 26)).await, "a.yaml:4: a: schedule.units", "at most 25");
}

async fn submit(world: &mut World, request_id: &str, items: Vec<v1::Item>) -> Result<v1::Submission, Status> {
    let header = SubmissionHeader {
        name: name("a"),
        request_id: request_id.to_owned(),
        ..SubmissionHeader::default()
    };
    let part = |part| SubmitItemsRequest { part: Some(part) };
    let parts = vec![part(Part::Header(header)), part(Part::Items(v1::Items { items }))];
    Ok(world.client.submit_items(as_alice(tokio_stream::iter(parts))).await?.into_inner())
}

async fn submitted(world: &World) -> Vec<Run> {
    let mut runs = Vec::new();
    for lease in world.store.leases().await.unwrap() {
        runs.extend(world.store.emitted_runs(lease.shard, i64::MIN..i64::MAX, 10).await.unwrap().runs);
    }
    runs
}

#[tokio::test]
async fn submitted_items_ask_for_no_more_than_there_is() {
    let mut world = world().await;
    world.create("a", json!({"policy": "own", "units": 3})).await.unwrap();
    let item = |key: &str, units: u32| v1::Item { data: "1".to_owned(), key: key.to_owned(), units };
    for (units, said) in [(6, "at most 5, the max_in_flight of the key \"k\""), (1_001, "0 to 1000 tokens")] {
        let made = submit(&mut world, "r", vec![item("k", 5), item("k", units)]).await;
        refused(made, "items[1].units", said);
    }
    assert!(submitted(&world).await.is_empty());
    submit(&mut world, "r", vec![item("k", 0), item("", 5), item("j", 4)]).await.unwrap();
    let [run] = &submitted(&world).await[..] else { panic!("one run") };
    assert_eq!((run.events, run.units_max), (3, 5));
    // An item that does not say takes as many as its schedule says.
    limit(&mut world, "own", 2).await;
    let made = submit(&mut world, "s", vec![item("k", 1), item("k", 0)]).await;
    refused(
        made,
        "items[1].units",
        "\"3\" is not allowed, expected at most 2, the max_in_flight of its policy own",
    );
}
