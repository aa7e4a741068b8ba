//! How many queue shards there are: shards that are added, beside others who have the store open and write.

use std::sync::Arc;

use tollgate_core::handle::change::{Changes, ShardPause};
use tollgate_core::handle::control::{Control, Message};
use tollgate_store::layout::ShardFill;
use tollgate_store::{Store, StoreError};
use uuid::Uuid;

use super::place::Place;
use super::samples::{
    NOON_US, audit, commit, message, pause, policy, put, put_policy, schedule, take, waiting,
};

/// The numbers of the shards that have rows.
async fn rows(store: &dyn Store) -> Vec<u16> {
    store.leases().await.unwrap().into_iter().map(|lease| lease.shard).collect()
}

async fn notes(place: &Place) -> i64 {
    place.number("SELECT count(*) FROM audit_log WHERE resource = 'shards'").await
}

pub(crate) async fn shards_are_added_and_all_learn_of_it(place: &Place) {
    let store = place.open().await;
    let owner = take(&*store, 7).await;
    let known = store.shard_count();
    let beside = tollgate_store::open_beside(&place.url).await.unwrap();
    assert_eq!(beside.use_shards(256, audit("shards")).await.unwrap(), 64);
    assert_eq!((beside.shard_count().now(), known.now()), (256, 64), "it has not looked yet");
    assert_eq!(rows(&*store).await, (0..256).collect::<Vec<_>>());
    assert_eq!((known.now(), store.shard_count().now()), (256, 256), "who reads the leases knows");
    let leases = store.leases().await.unwrap();
    assert_eq!(leases[7], owner, "an owner keeps its shard");
    assert!(leases[64..].iter().all(|lease| lease.owner.is_empty() && lease.epoch == 0));
    let oldest = "SELECT CAST(oldest AS bigint) FROM schema_compatibility";
    assert_eq!((place.number(oldest).await, notes(place).await), (34, 1), "older versions do not start");
    // One that is new is as good as any other.
    commit(
        &*store,
        200,
        Changes { runs_new: vec![waiting(&schedule("one"), 200, NOON_US)], ..Changes::default() },
    )
    .await;
    assert_eq!(beside.load_shard(200).await.unwrap().runs.len(), 1);
    beside.close().await;
    store.close().await;
    drop((beside, store));
    let again = place.open().await;
    assert_eq!((again.shard_count().now(), again.installation().await.unwrap().shards), (256, 64));
}

pub(crate) async fn the_number_is_changed_once(place: &Place) {
    let store = place.open().await;
    let oldest = "SELECT CAST(oldest AS bigint) FROM schema_compatibility";
    let first = place.number(oldest).await;
    assert_eq!(store.use_shards(64, audit("shards")).await.unwrap(), 64);
    assert_eq!((notes(place).await, place.number(oldest).await), (0, first), "nothing was done");
    assert_eq!(store.use_shards(65, audit("shards")).await.unwrap(), 64);
    assert_eq!(store.use_shards(65, audit("shards")).await.unwrap(), 65, "nothing more is done");
    assert_eq!((rows(&*store).await.len(), notes(place).await), (65, 1));
    for to in [0, 1_025] {
        let refused = store.use_shards(to, audit("shards")).await.unwrap_err();
        let StoreError::Invalid { field, message } = refused else { panic!("{refused:?}") };
        assert_eq!(field, "shards");
        assert!(message.starts_with(&format!("{to} is not allowed, expected 1 to 1024")), "{message}");
    }
    assert_eq!((store.read_shards().await.unwrap(), rows(&*store).await.len()), (65, 65));
    assert_eq!(store.use_shards(1_024, audit("shards")).await.unwrap(), 65);
    assert_eq!(rows(&*store).await.len(), 1_024);
    assert_eq!(store.use_shards(64, audit("shards")).await.unwrap(), 1_024);
    assert_eq!(rows(&*store).await.len(), 1_024, "what came from the others is found there");
    assert_eq!((store.shard_count().now(), store.shard_count().used()), (1_024, 64));
}

/// Whoever adds shards, however many do at once, they come whole, and what owners write meanwhile is written.
pub(crate) async fn shards_are_added_in_the_middle_of_other_writes(place: &Place) {
    let store = place.open().await;
    let writer = |shard: u16| {
        let store = Arc::clone(&store);
        async move {
            let lease = take(&*store, shard).await;
            for at in 0..20 {
                let run = waiting(&schedule(&format!("{shard}-{at}")), shard, NOON_US + at);
                store.commit(&lease, &Changes { runs_new: vec![run], ..Changes::default() }).await.unwrap();
                store.post(63 - shard, &[message()]).await.unwrap();
            }
        }
    };
    let adder = |to: u16| {
        let store = Arc::clone(&store);
        async move { store.use_shards(to, audit("shards")).await }
    };
    let writing = futures::future::join_all((0..8).map(writer));
    let adding = futures::future::join_all([80, 128, 128, 256].map(adder));
    let ((), added) = futures::future::join(async { drop(writing.await) }, adding).await;
    for done in added {
        let before = done.unwrap();
        assert!([64, 80, 128, 256].contains(&before), "{before}");
    }
    assert_eq!(rows(&*store).await, (0..256).collect::<Vec<_>>());
    assert_eq!(store.shard_count().now(), 256);
    for shard in 0..8 {
        assert_eq!(store.load_shard(shard).await.unwrap().runs.len(), 20);
        assert_eq!(store.inbox(63 - shard, 100).await.unwrap().len(), 20);
    }
}

/// An order to pause or resume everything reaches shards one after another: the latest that any has carried out counts.
pub(crate) async fn new_shards_are_paused_as_the_others_are(place: &Place) {
    let store = place.open().await;
    let order = |number: u128, stops: bool| ShardPause {
        order: Uuid::from_u128(number),
        pause: stops.then(|| pause("flood")),
    };
    let told = async |shard, order: &ShardPause| {
        commit(&*store, shard, Changes { pause: Some(order.clone()), ..Changes::default() }).await;
    };
    let of_shard = async |shard| store.load_shard(shard).await.unwrap().pause;
    store.use_shards(65, audit("shards")).await.unwrap();
    assert_eq!(of_shard(64).await, ShardPause::default(), "nobody has paused anything");
    let (first, second, third) = (order(5, true), order(7, false), order(9, true));
    told(3, &first).await;
    store.use_shards(66, audit("shards")).await.unwrap();
    assert_eq!(of_shard(65).await, first);
    told(9, &second).await;
    store.use_shards(67, audit("shards")).await.unwrap();
    assert_eq!(of_shard(66).await, second, "an order before this one changes nothing there");
    told(66, &third).await;
    store.use_shards(68, audit("shards")).await.unwrap();
    assert_eq!(of_shard(67).await, third);
    // One that waits for the owners waits for the owner of a new shard, too.
    let other = Message { id: Uuid::from_u128(12), control: Control::PolicyDeleted { uid: Uuid::nil() } };
    let waiting =
        Message { id: Uuid::from_u128(11), control: Control::PauseShard { pause: Some(pause("flood")) } };
    store.post(0, &[other, waiting.clone()]).await.unwrap();
    store.use_shards(70, audit("shards")).await.unwrap();
    for shard in [68, 69] {
        assert_eq!(store.inbox(shard, 100).await.unwrap(), std::slice::from_ref(&waiting));
    }
    assert!(store.inbox(67, 100).await.unwrap().is_empty());
}

/// Whoever must reach all shards waits for who adds some; whoever only asks does not.
pub(crate) async fn the_last_look_waits_for_who_adds_shards(place: &Place) {
    let store = place.open().await;
    assert_eq!((store.read_shards().await.unwrap(), store.settled_shards().await.unwrap()), (64, 64));
    if !place.is_postgres() {
        return;
    }
    let mut adder = place.postgres_connection().await;
    sqlx::raw_sql("BEGIN; UPDATE shard_layout SET shards = 65").execute(&mut adder).await.unwrap();
    assert_eq!(store.read_shards().await.unwrap(), 64);
    let mut look = std::pin::pin!(store.settled_shards());
    let early = tokio::time::timeout(std::time::Duration::from_millis(300), &mut look).await;
    assert!(early.is_err(), "{early:?}");
    sqlx::raw_sql("COMMIT").execute(&mut adder).await.unwrap();
    assert_eq!(look.await.unwrap(), 65);
}

pub(crate) async fn what_lives_in_each_shard_is_counted(place: &Place) {
    let store = place.open().await;
    store.use_shards(70, audit("shards")).await.unwrap();
    assert_eq!(store.shard_fill().await.unwrap(), vec![ShardFill::default(); 70]);
    let (mut slots, one) = (policy("slots"), schedule("one"));
    slots.shard = 69;
    store.write_plan(vec![put_policy(&slots, None), put(&one, None, vec![])]).await.unwrap();
    let runs = vec![waiting(&one, 69, NOON_US), waiting(&one, 69, NOON_US + 1)];
    commit(&*store, 69, Changes { runs_new: runs, ..Changes::default() }).await;
    let fill = store.shard_fill().await.unwrap();
    assert_eq!((fill[69].policies, fill[69].runs), (1, 2));
    assert_eq!(fill.iter().map(|of| of.schedules).sum::<u64>(), 1);
    assert_eq!(fill.iter().map(|of| of.policies + of.runs).sum::<u64>(), 3, "and nowhere else");
}
