//! One policy's life through the API, and what its queue shard hears of it.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;
use tollgate_core::handle::control::Control;
use tollgate_core::model::{Policy, SECOND_US};
use tollgate_core::plan::Notice;
use tollgate_proto::json::to_json;
use tollgate_proto::v1;
use tollgate_schedule_master::shard_of;
use tollgate_store::plan::{Audit, PlanWrite};
use tonic::Code;

use crate::world::{PARENT, World, as_alice, given_policy, policy_name};

/// What waits in the inboxes about policies: shard, generation (0 for a deletion).
async fn told(world: &World) -> Vec<(u16, i64)> {
    let mut told: Vec<(u16, i64)> = world
        .inbox()
        .await
        .into_iter()
        .filter_map(|(shard, message)| match message.control {
            Control::PolicyChanged { policy } => Some((shard, policy.generation)),
            Control::PolicyDeleted { .. } => Some((shard, 0)),
            _ => None,
        })
        .collect();
    told.sort_unstable();
    told
}

#[tokio::test]
async fn a_policy_lives_in_one_shard_and_that_hears_of_every_change() {
    let mut world = World::new().await;
    let made = world.create_policy("p", json!({"max_in_flight": 3})).await.unwrap();
    let shard = u16::try_from(made.shard).unwrap();
    assert_eq!(shard, shard_of(made.uid.parse().unwrap(), world.shards));
    assert_eq!((made.name.as_str(), made.etag.as_str()), (policy_name("p").as_str(), "1"));
    let policy = v1::Policy { name: policy_name("p"), max_in_flight: Some(9), ..Default::default() };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["max_in_flight".to_owned()] });
    let request = v1::UpdatePolicyRequest { policy: Some(policy), update_mask, validate_only: false };
    let changed = world.client.update_policy(as_alice(request.clone())).await.unwrap().into_inner();
    assert_eq!((changed.max_in_flight, changed.etag.as_str(), changed.shard), (Some(9), "2", made.shard));
    let same = world.client.update_policy(as_alice(request.clone())).await.unwrap().into_inner();
    assert_eq!(same, changed);
    let request = v1::UpdatePolicyRequest { validate_only: true, ..request };
    world.client.update_policy(as_alice(request)).await.unwrap();

    let pause =
        v1::PausePolicyRequest { name: policy_name("p"), reason: "storm".to_owned(), ..Default::default() };
    let paused = world.client.pause_policy(as_alice(pause.clone())).await.unwrap().into_inner();
    assert_eq!((paused.pause.clone().unwrap().reason.as_str(), paused.etag.as_str()), ("storm", "3"));
    assert_eq!(world.client.pause_policy(as_alice(pause)).await.unwrap().into_inner(), paused);
    let resume = v1::ResumePolicyRequest { name: policy_name("p"), ..Default::default() };
    let resumed = world.client.resume_policy(as_alice(resume)).await.unwrap().into_inner();
    assert_eq!((resumed.pause.clone(), resumed.etag.as_str()), (None, "4"));
    assert_eq!(told(&world).await, [(shard, 1), (shard, 2), (shard, 3), (shard, 4)]);
    let get = v1::GetPolicyRequest { name: policy_name("p") };
    assert_eq!(world.client.get_policy(get.clone()).await.unwrap().into_inner(), resumed);

    let stale =
        v1::DeletePolicyRequest { name: policy_name("p"), etag: "3".to_owned(), ..Default::default() };
    assert_eq!(world.client.delete_policy(as_alice(stale)).await.unwrap_err().code(), Code::Aborted);
    let delete =
        v1::DeletePolicyRequest { name: policy_name("p"), etag: "4".to_owned(), ..Default::default() };
    world.client.delete_policy(as_alice(delete)).await.unwrap();
    assert_eq!(world.client.get_policy(get).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(told(&world).await[0], (shard, 0));
    assert_eq!(*world.woken.lock().unwrap(), [shard; 5]);
    let audit = world.audit("").await;
    let actions: Vec<(&str, i64)> =
        audit.iter().map(|entry| (entry.action.as_str(), entry.generation)).collect();
    assert_eq!(actions, [("delete", 5), ("resume", 4), ("pause", 3), ("update", 2), ("create", 1)]);
    assert_eq!(to_json(&audit[3])["difference"], json!({"max_in_flight": {"old": 3, "new": 9}}));
}

/// A process dies between the commit of a change and its message. The next change tells of it first, or a sweep does.
#[tokio::test]
async fn what_was_left_behind_of_a_policy_is_told_in_order() {
    let mut world = World::new().await;
    let made = world.create_policy("p", json!({"max_in_flight": 3})).await.unwrap();
    let shard = u16::try_from(made.shard).unwrap();
    leave_behind(&world, |policy| policy.limits.max_in_flight = Some(2)).await;
    assert_eq!(told(&world).await, [(shard, 1)]);
    let pause =
        v1::PausePolicyRequest { name: policy_name("p"), reason: String::new(), ..Default::default() };
    world.client.pause_policy(pause).await.unwrap();
    assert_eq!(told(&world).await, [(shard, 1), (shard, 2), (shard, 3)]);
    leave_behind(&world, |policy| policy.pause = None).await;
    world.master.sweep().await.unwrap();
    assert_eq!(told(&world).await.len(), 3, "whoever wrote it a moment ago delivers it");
    world.clock.advance_us(2 * SECOND_US);
    world.woken.lock().unwrap().clear();
    world.master.sweep().await.unwrap();
    assert_eq!(told(&world).await, [(shard, 1), (shard, 2), (shard, 3), (shard, 4)]);
    assert_eq!(*world.woken.lock().unwrap(), [shard]);
    assert!(world.store.outbox_lanes().await.unwrap().is_empty());
}

/// Changes the policy `p`, and tells nobody.
async fn leave_behind(world: &World, change: impl Fn(&mut Policy)) {
    let stored = world.store.policy("default", "p").await.unwrap().unwrap();
    let expected_generation = Some(stored.generation);
    let mut policy =
        Policy { generation: stored.generation + 1, updated_us: world.clock.wall_us(), ..stored };
    change(&mut policy);
    let notice = Box::new(Notice::of_policy(&policy));
    let audit = Audit {
        id: uuid::Uuid::now_v7(),
        at_us: policy.updated_us,
        actor: "bob".to_owned(),
        namespace: "default".to_owned(),
        resource: policy_name("p"),
        action: "update".to_owned(),
        difference: json!({}),
    };
    let put = PlanWrite::PutPolicy { policy: Box::new(policy), expected_generation, audit };
    world.store.write_plan(vec![put, PlanWrite::Tell { notice }]).await.unwrap();
}

#[tokio::test]
async fn policies_of_one_call_are_told_each_to_its_shard() {
    let mut world = World::new().await;
    let policies = (0..50).map(|n| given_policy(&format!("p{n}"), "f:1", json!({"max_in_flight": 1})));
    world.apply(policies.collect()).await.unwrap();
    let mut wanted: Vec<(u16, i64)> = Vec::new();
    for policy in world.store.list_policies("default", &Default::default(), None, 99).await.unwrap() {
        wanted.push((policy.shard, 1));
    }
    wanted.sort_unstable();
    assert_eq!(wanted.len(), 50);
    assert_eq!(told(&world).await, wanted);
    wanted.dedup();
    let mut woken: Vec<(u16, i64)> = world.woken.lock().unwrap().iter().map(|shard| (*shard, 1)).collect();
    woken.sort_unstable();
    assert_eq!(woken, wanted, "each once");
}

#[tokio::test]
async fn policies_are_listed_by_state_and_label() {
    let mut world = World::new().await;
    for (id, team) in [("a", "blue"), ("b", "red"), ("c", "blue")] {
        let policy = json!({"rate_per_second": 2.5, "labels": {"team": team}});
        world.create_policy(id, policy).await.unwrap();
    }
    let pause =
        v1::PausePolicyRequest { name: policy_name("a"), reason: String::new(), ..Default::default() };
    world.client.pause_policy(pause).await.unwrap();
    for (filter, ids) in [
        ("", vec!["a", "b", "c"]),
        ("state=PAUSED", vec!["a"]),
        ("state=ACTIVE AND label.team=blue", vec!["c"]),
    ] {
        let mut request = v1::ListPoliciesRequest {
            parent: PARENT.to_owned(),
            page_size: 1,
            filter: filter.to_owned(),
            ..Default::default()
        };
        let mut found = Vec::new();
        loop {
            let page = world.client.list_policies(request.clone()).await.unwrap().into_inner();
            found.extend(page.policies.into_iter().map(|row| row.name));
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                break;
            }
        }
        let names: Vec<String> = ids.into_iter().map(policy_name).collect();
        assert_eq!(found, names, "{filter}");
    }
    assert_eq!(world.audit("").await[0].actor, "anonymous");
}
