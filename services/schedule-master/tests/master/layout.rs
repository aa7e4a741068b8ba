//! Queue shards that are added: what is there stays where it lives, and what is new is spread over all.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;
use tollgate_core::model::Schedule;
use tollgate_core::plan::{home, shard_of};
use tollgate_store::plan::Audit;
use uuid::Uuid;

use crate::world::{self, World};

/// How many there are after some were added to the first ones.
const NOW: u16 = 256;

async fn add(world: &World) {
    let audit = Audit {
        id: Uuid::now_v7(),
        at_us: 1,
        actor: "ops".to_owned(),
        namespace: String::new(),
        resource: "shards".to_owned(),
        action: "add".to_owned(),
        difference: json!({}),
    };
    assert_eq!(world.store.use_shards(NOW, audit).await.unwrap(), world.shards);
}

async fn stored(world: &World, id: &str) -> Schedule {
    world.store.schedule("default", id).await.unwrap().unwrap()
}

/// Where the store has a schedule's row.
async fn lives(world: &World, id: &str) -> u16 {
    home(&stored(world, id).await, world.shards)
}

#[tokio::test]
async fn what_is_there_stays_and_what_is_new_is_spread_over_all() {
    let mut world = World::new().await;
    world.create_policy("old", json!({"max_in_flight": 1})).await.unwrap();
    for at in 0..8 {
        world.create(&format!("old{at}"), json!({})).await.unwrap();
        world.create(&format!("under{at}"), json!({"policy": "old"})).await.unwrap();
    }
    let mut before = Vec::new();
    for id in (0..8).flat_map(|at| [format!("old{at}"), format!("under{at}")]) {
        before.push((lives(&world, &id).await, id));
    }
    add(&world).await;
    // Another change moves nothing, whichever way it comes.
    for (shard, id) in &before {
        world
            .update(id, json!({"events": 9, "description": "changed"}), &["events", "description"])
            .await
            .unwrap();
        let now = stored(&world, id).await;
        assert_eq!((home(&now, world.shards), now.generation), (*shard, 2), "{id}");
        assert!(now.shard.is_none() && now.former_homes.is_empty(), "{now:?}");
    }
    let under = world.create("late", json!({"policy": "old"})).await.unwrap();
    assert_eq!(lives(&world, "late").await, lives(&world, "under0").await, "{under:?}");
    let mut above = 0;
    for at in 0..24 {
        let id = format!("new{at}");
        let made = world.create(&id, json!({})).await.unwrap();
        let shard = shard_of(made.uid.parse().unwrap(), NOW);
        assert_eq!(lives(&world, &id).await, shard, "chosen among all");
        world.update(&id, json!({"events": 9}), &["events"]).await.unwrap();
        let now = stored(&world, &id).await;
        assert_eq!((home(&now, world.shards), now.former_homes.len()), (shard, 0), "and it stays there");
        above += usize::from(shard >= world.shards);
    }
    // All of 24 would choose the first quarter once in 10^14 times.
    assert!(above > 0, "none of 24 lives in a shard that was added");
}

#[tokio::test]
async fn new_policies_live_in_all_shards_and_what_moves_under_them_goes_there() {
    let mut world = World::new().await;
    world.open_window(2).await;
    world.create("a", json!({})).await.unwrap();
    let old = lives(&world, "a").await;
    add(&world).await;
    let mut far = None;
    for at in 0..64 {
        let made = world.create_policy(&format!("p{at}"), json!({"max_in_flight": 1})).await.unwrap();
        let shard = u16::try_from(made.shard).unwrap();
        assert_eq!(shard, shard_of(made.uid.parse().unwrap(), NOW));
        if shard >= world.shards {
            far = Some((made, shard));
            break;
        }
    }
    let (policy, shard) = far.expect("a policy in a shard that was added");
    let child = world.create_policy("child", json!({"parent": policy.name})).await.unwrap();
    assert_eq!(child.shard, policy.shard, "a tree lives in one shard");
    world.update("a", json!({"policy": policy.name}), &["policy"]).await.unwrap();
    let moved = stored(&world, "a").await;
    assert_eq!((home(&moved, world.shards), &*moved.former_homes), (shard, &[old][..]));
    // The former home hears of it first, and hands on what it has.
    let told = world.told(2).await;
    assert_eq!((told[0].shard, &*told[0].onward), (old, &[shard][..]));
    world.update("a", json!({}), &["policy"]).await.unwrap();
    let free = stored(&world, "a").await;
    assert_eq!(
        home(&free, world.shards),
        shard_of(free.uid, NOW),
        "it has lost its policy, and chooses anew"
    );
}

#[tokio::test]
async fn what_is_applied_is_placed_as_what_is_created() {
    let mut world = World::new().await;
    add(&world).await;
    let all: Vec<_> = (0..16).map(|at| world::given_schedule(&format!("s{at}"), "", json!({}))).collect();
    let answer = world.apply(all.clone()).await.unwrap();
    assert_eq!(answer.results.len(), 16);
    for at in 0..16 {
        let now = stored(&world, &format!("s{at}")).await;
        assert_eq!(home(&now, world.shards), shard_of(now.uid, NOW));
    }
    let again = world.apply(all).await.unwrap();
    assert!(again.results.is_empty(), "{again:?}");
    assert_eq!(stored(&world, "s0").await.generation, 1, "the same once more changes nothing");
}
