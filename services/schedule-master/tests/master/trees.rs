//! Policies in trees: what may stand where, where it lives, what new ones get above them.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};
use tollgate_core::handle::change::Changes;
use tollgate_core::handle::control::Control;
use tollgate_proto::convert::names;
use tollgate_proto::v1;
use tollgate_schedule_master::{Options, shard_of};
use tonic::{Code, Status};

use crate::world::{PARENT, World, as_alice, given_policy, given_schedule, policy_name, refused};

async fn update(world: &mut World, id: &str, policy: Value, mask: &[&str]) -> Result<v1::Policy, Status> {
    let mut policy: v1::Policy = tollgate_proto::json::from_json(policy).unwrap();
    policy.name = policy_name(id);
    let update_mask =
        Some(prost_types::FieldMask { paths: mask.iter().map(|path| (*path).to_owned()).collect() });
    let request = v1::UpdatePolicyRequest { policy: Some(policy), update_mask, validate_only: true };
    let rehearsed = world.client.update_policy(as_alice(request.clone())).await.map(drop);
    let request = v1::UpdatePolicyRequest { validate_only: false, ..request };
    let done = world.client.update_policy(as_alice(request)).await;
    assert_eq!(rehearsed.map_err(|error| error.code()).err(), done.as_ref().map_err(Status::code).err());
    Ok(done?.into_inner())
}

async fn delete(world: &mut World, id: &str) -> Result<(), Status> {
    let request =
        v1::DeletePolicyRequest { name: policy_name(id), etag: String::new(), ..Default::default() };
    world.client.delete_policy(as_alice(request)).await.map(drop)
}

/// The queue shards carry out what waits for them of policies.
async fn hear(world: &World) {
    for lease in world.store.leases().await.unwrap() {
        let messages = world.store.inbox(lease.shard, 1000).await.unwrap();
        let mut changes = Changes::default();
        for message in messages {
            changes.inbox_done.push(message.id);
            if let Control::PolicyChanged { policy } = message.control {
                changes.policies.retain(|known| known.uid != policy.uid);
                changes.policies.push(policy);
            }
        }
        if !changes.inbox_done.is_empty() {
            let lease = world.store.take_shard(&lease, "test").await.unwrap().unwrap();
            world.store.commit(&lease, &changes).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_tree_lives_in_the_queue_shard_of_its_root_with_all_that_is_under_it() {
    let mut world = World::new().await;
    let root = world.create_policy("root", json!({"max_in_flight": 10})).await.unwrap();
    for number in 0..6 {
        let given = json!({"parent": "root", "floor": 1, "weight": 3});
        let child = world.create_policy(&format!("c{number}"), given).await.unwrap();
        assert_eq!((child.shard, child.parent), (root.shard, Some(policy_name("root"))));
        assert_eq!((child.max_in_flight, child.floor, child.weight), (None, Some(1), Some(3)));
        let under =
            world.create(&format!("s{number}"), json!({"policy": format!("c{number}")})).await.unwrap();
        let stored = world.store.schedule("default", &format!("s{number}")).await.unwrap().unwrap();
        let elsewhere =
            shard_of(stored.policy_uid.unwrap(), world.shards) != u16::try_from(root.shard).unwrap();
        assert_eq!(stored.shard.is_some(), elsewhere, "{under:?}");
        assert_eq!(tollgate_core::plan::home(&stored, world.shards), u16::try_from(root.shard).unwrap());
    }
    let gone = delete(&mut world, "root").await.unwrap_err();
    assert_eq!(gone.code(), Code::FailedPrecondition);
    assert!(
        gone.message().contains("is the parent of policies \"c0\", \"c1\", \"c2\" and others"),
        "{gone:?}"
    );
    // The same once more, whole: it has the parent that it has.
    let same = json!({"floor": 1, "weight": 3});
    assert_eq!(update(&mut world, "c0", same, &[]).await.unwrap().etag, "1");
    let other = update(&mut world, "c0", json!({"floor": 2}), &["floor"]).await.unwrap();
    assert_eq!((other.floor, other.weight, other.parent), (Some(2), Some(3), Some(policy_name("root"))));
}

#[tokio::test]
async fn what_makes_no_tree_is_refused() {
    let mut world = World::new().await;
    world.create_policy("root", json!({"max_in_flight": 10})).await.unwrap();
    let missing = world.create_policy("a", json!({"parent": "rooot"})).await;
    refused(missing, "policy.parent", "a policy of the same namespace that exists");
    let foreign = json!({"parent": "namespaces/other/policies/root"});
    refused(world.create_policy("a", foreign).await, "policy.parent", "namespaces/default");
    let none = world.create_policy("a", json!({"max_in_flight": 3, "floor": 2})).await;
    refused(none, "policy.floor", "nothing of the kind without a parent");
    let none = world.create_policy("a", json!({"max_in_flight": 3, "parent": "", "weight": 2})).await;
    refused(none, "policy.weight", "nothing of the kind without a parent");
    refused(
        world.create_policy("a", json!({"parent": "root", "weight": 0})).await,
        "policy.weight",
        "1 to 1000",
    );
    refused(
        world.create_policy("a", json!({"parent": "root", "floor": 11})).await,
        "policy.floor",
        "at most 10",
    );
    let own = world.create_policy("a", json!({"parent": "root", "floor": 4, "max_in_flight": 3})).await;
    refused(own, "policy.floor", "at most 3, its own max_in_flight");
    world.create_policy("a", json!({"parent": "root", "floor": 7})).await.unwrap();
    let much = world.create_policy("b", json!({"parent": "root", "floor": 4})).await;
    refused(much, "policy.floor", "at most 3: root has 10 tokens, and 7 of them are the floors of others");
    let less = update(&mut world, "root", json!({"max_in_flight": 6}), &["max_in_flight"]).await;
    refused(less, "policy.max_in_flight", "at least 7, the floors of the policies below it");
    let rate = json!({"rate_per_second": 5.0});
    let less = update(&mut world, "root", rate, &["max_in_flight", "rate_per_second"]).await;
    refused(less, "policy.max_in_flight", "at least 7");
    world.create_policy("free", json!({"rate_per_second": 5.0})).await.unwrap();
    let floor = world.create_policy("b", json!({"parent": "free", "floor": 1})).await;
    refused(floor, "policy.floor", "none, as free has no max_in_flight");
    // Four levels are the most.
    for (id, parent) in [("b", "a"), ("c", "b")] {
        world.create_policy(id, json!({"parent": parent})).await.unwrap();
    }
    let deep = world.create_policy("d", json!({"parent": "c"})).await;
    refused(deep, "policy.parent", "a tree of at most 4 levels, not 5");
    let state = world.state().await;
    let below = json!({"parent": "c"});
    let circle = update(&mut world, "root", below, &["parent"]).await;
    refused(circle, "policy.parent", "a policy that does not stand below this one");
    assert_eq!(world.state().await, state);
}

#[tokio::test]
async fn another_parent_is_for_a_policy_that_rests() {
    let mut world = World::new().await;
    world.create_policy("root", json!({"max_in_flight": 10})).await.unwrap();
    for id in ["a", "b"] {
        world.create_policy(id, json!({"parent": "root", "max_in_flight": 3})).await.unwrap();
    }
    let up = || json!({"parent": "", "max_in_flight": 3});
    let down = |id: &str| json!({"parent": id, "max_in_flight": 3});
    let said = |result: Result<v1::Policy, Status>, why: &str| {
        let status = result.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert!(status.message().contains(why), "{}", status.message());
    };
    said(update(&mut world, "b", up(), &["parent"]).await, "while it is not paused");
    let pause =
        v1::PausePolicyRequest { name: policy_name("b"), reason: String::new(), ..Default::default() };
    world.client.pause_policy(as_alice(pause)).await.unwrap();
    said(update(&mut world, "b", up(), &["parent"]).await, "before its queue shard has heard of its pause");
    hear(&world).await;
    let alone = update(&mut world, "b", up(), &["parent"]).await.unwrap();
    assert_eq!(
        (alone.parent.clone(), alone.shard),
        (None, world.store.policy("default", "a").await.unwrap().unwrap().shard.into())
    );
    said(update(&mut world, "b", down("a"), &["parent"]).await, "before its queue shard has heard");
    hear(&world).await;
    let below = update(&mut world, "b", down("a"), &["parent"]).await.unwrap();
    assert_eq!(below.parent, Some(policy_name("a")));
    // One that has others below it stays.
    let pause =
        v1::PausePolicyRequest { name: policy_name("a"), reason: String::new(), ..Default::default() };
    world.client.pause_policy(as_alice(pause)).await.unwrap();
    hear(&world).await;
    said(update(&mut world, "a", up(), &["parent"]).await, "while it is the parent of \"b\"");
    // Elsewhere is too far.
    let mut other = None;
    for number in 0..20 {
        let made = world.create_policy(&format!("r{number}"), json!({"max_in_flight": 9})).await.unwrap();
        if made.shard != below.shard {
            other = Some(format!("r{number}"));
            break;
        }
    }
    let other = other.unwrap();
    refused(
        update(&mut world, "b", down(&other), &["parent"]).await,
        "policy.parent",
        "lives in the same queue shard",
    );
}

#[tokio::test]
async fn new_policies_get_a_parent_by_default() {
    let root_policy = names::policy("", "namespaces/ops/policies/all").unwrap();
    let mut world = World::with(Options { root_policy: Some(root_policy), ..Options::default() }).await;
    let early = world.create_policy("a", json!({"max_in_flight": 3})).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition);
    assert!(early.message().contains("root_policy"), "{early:?}");
    let all = v1::Policy { max_in_flight: Some(100), ..v1::Policy::default() };
    let request = v1::CreatePolicyRequest {
        parent: "namespaces/ops".to_owned(),
        policy_id: "all".to_owned(),
        policy: Some(all),
        validate_only: false,
    };
    let root = world.client.create_policy(as_alice(request)).await.unwrap().into_inner();
    assert_eq!(root.parent, None);
    let name = "namespaces/ops/policies/all".to_owned();
    let a = world.create_policy("a", json!({"max_in_flight": 3, "floor": 2})).await.unwrap();
    assert_eq!((a.parent.clone(), a.shard, a.floor), (Some(name.clone()), root.shard, Some(2)));
    // It can be read and written back.
    assert_eq!(
        update(&mut world, "a", json!({"floor": 1, "parent": name}), &["floor", "parent"])
            .await
            .unwrap()
            .floor,
        Some(1)
    );
    assert_eq!(
        world.create_policy("b", json!({"max_in_flight": 3, "parent": ""})).await.unwrap().parent,
        None
    );
    let team = world.create_policy("team", json!({"max_in_flight": 30, "adopts": true})).await.unwrap();
    assert_eq!(team.parent, Some(name), "the namespace's own budget is below that of all");
    let c = world.create_policy("c", json!({"max_in_flight": 3})).await.unwrap();
    assert_eq!(c.parent, Some(policy_name("team")));
    let second = world.create_policy("d", json!({"max_in_flight": 3, "adopts": true})).await;
    refused(second, "policy.adopts", "\"team\" adopts new policies already");
}

#[tokio::test]
async fn a_tree_is_applied_in_whatever_order_it_is_written() {
    let mut world = World::with(Options { apply_chunk: 2, ..Options::default() }).await;
    let tree = |floor: u32| {
        vec![
            given_policy("leaf", "f:1", json!({"parent": "middle"})),
            given_policy("other", "f:2", json!({"parent": "root", "floor": 10 - floor})),
            given_schedule("s", "f:3", json!({"policy": "leaf"})),
            given_policy("middle", "f:4", json!({"parent": "root", "floor": floor})),
            given_policy("root", "f:5", json!({"max_in_flight": 10})),
            given_policy("team", "f:6", json!({"max_in_flight": 5, "adopts": true})),
            given_policy("plain", "f:7", json!({"max_in_flight": 5})),
        ]
    };
    let dry = |requests: Vec<v1::ApplyResourcesRequest>| {
        requests.into_iter().map(|one| v1::ApplyResourcesRequest { validate_only: true, ..one }).collect()
    };
    let state = world.state().await;
    let answer = world.apply(dry(tree(4))).await.unwrap();
    assert_eq!((answer.created_count, answer.errors.len()), (7, 0), "{answer:?}");
    assert_eq!(world.state().await, state, "a dry run writes nothing");
    let answer = world.apply(tree(4)).await.unwrap();
    assert_eq!((answer.created_count, answer.failed_count), (7, 0), "{answer:?}");
    let again = world.apply(tree(4)).await.unwrap();
    assert_eq!((again.unchanged_count, again.updated_count), (7, 0), "{again:?}");
    let stored = world.store.policy("default", "plain").await.unwrap().unwrap();
    assert_eq!(stored.parent.unwrap().id, "team");
    // Floors are changed together.
    let answer = world.apply(tree(9)).await.unwrap();
    assert_eq!((answer.updated_count, answer.failed_count), (2, 0), "{answer:?}");
    // What is wrong names its place, in a dry run, too.
    let wrong = vec![given_policy("middle", "f:4", json!({"parent": "root", "floor": 11}))];
    let answer = world.apply(dry(wrong)).await.unwrap();
    let error = &answer.errors[0];
    assert_eq!((error.source.as_str(), error.field.as_str()), ("f:4", "policy.floor"), "{answer:?}");
    let _parent = PARENT;
}
