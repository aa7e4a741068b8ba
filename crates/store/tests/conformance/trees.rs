//! Policies in trees: what goes, and when one may get another parent.

use tollgate_core::handle::batch::TokenBatch;
use tollgate_core::handle::change::{Changes, TokenRow, TokenState};
use tollgate_core::model::{Parent, Policy, Run, Schedule};
use tollgate_store::{Store, StoreError};

use super::place::Place;
use super::samples::{NOON_US, commit, delete_policy, pause, policy, put_policy, schedule, token, waiting};

fn below(parent: &Policy, id: &str, floor: u32) -> Policy {
    let above = Parent {
        uid: parent.uid,
        namespace: parent.namespace.clone(),
        id: parent.id.clone(),
        floor,
        weight: 2,
    };
    Policy { parent: Some(Box::new(above)), shard: 5, ..policy(id) }
}

fn root(id: &str) -> Policy {
    Policy { shard: 5, ..policy(id) }
}

fn next(policy: &Policy, change: impl FnOnce(&mut Policy)) -> Policy {
    let mut next = Policy { generation: policy.generation + 1, ..policy.clone() };
    change(&mut next);
    next
}

async fn write(store: &dyn Store, policy: &Policy) -> Result<(), StoreError> {
    let expected = Some(policy.generation - 1).filter(|generation| *generation > 0);
    store.write_plan(vec![put_policy(policy, expected)]).await
}

pub(crate) async fn a_parent_stays_as_long_as_it_is_one(place: &Place) {
    let store = place.open().await;
    let one = root("root");
    let child = below(&one, "child", 3);
    // In one transaction, those above first.
    store.write_plan(vec![put_policy(&one, None), put_policy(&child, None)]).await.unwrap();
    assert_eq!(store.policy("default", "child").await.unwrap().unwrap(), child);
    let error = store.write_plan(vec![delete_policy(&one)]).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::InUse { what } if what.contains("is the parent of policies \"child\"")),
        "{error}"
    );
    store.write_plan(vec![delete_policy(&child), delete_policy(&one)]).await.unwrap();
    let error = write(&*store, &child).await.unwrap_err();
    assert!(matches!(&error, StoreError::Invalid { field, .. } if field == "policy.parent"), "{error}");
}

pub(crate) async fn a_rehearsal_tells_of_each_and_writes_nothing(place: &Place) {
    let store = place.open().await;
    let one = root("root");
    let (good, bad) = (below(&one, "good", 60), below(&one, "bad", 65));
    let writes = [&one, &good, &bad].map(|policy| put_policy(policy, None)).to_vec();
    let faults = store.rehearse(writes.clone()).await.unwrap();
    let mut told: Vec<_> = faults.iter().map(|(uid, _)| *uid).collect();
    told.sort_unstable();
    let mut all = vec![one.uid, good.uid, bad.uid];
    all.sort_unstable();
    assert_eq!(told, all, "together they are too much: {faults:?}");
    assert!(store.policy("default", "root").await.unwrap().is_none());
    assert!(store.write_plan(writes).await.is_err());
    assert!(store.policy("default", "root").await.unwrap().is_none(), "nothing is half written");
    assert!(store.rehearse(vec![put_policy(&one, None), put_policy(&good, None)]).await.unwrap().is_empty());
    let second = |id| Policy { adopts: true, ..policy(id) };
    write(&*store, &second("a")).await.unwrap();
    let faults = store.rehearse(vec![put_policy(&second("b"), None)]).await.unwrap();
    assert!(
        matches!(&faults[..], [(_, StoreError::Invalid { field, .. })] if field == "policy.adopts"),
        "{faults:?}"
    );
    assert_eq!(store.policy_adopting("default").await.unwrap().unwrap().id, "a");
}

/// What its shard knows, and what its events hold, decides.
pub(crate) async fn another_parent_waits_for_every_token(place: &Place) {
    let store = place.open().await;
    let (one, two) = (root("one"), root("two"));
    let child = below(&one, "child", 0);
    for policy in [&one, &two, &child] {
        write(&*store, policy).await.unwrap();
    }
    let paused = next(&child, |child| child.pause = Some(pause("a move")));
    write(&*store, &paused).await.unwrap();
    let moved = next(&paused, |child| child.parent = below(&two, "child", 0).parent);
    let kept = async |why: &str| {
        let error = write(&*store, &moved).await.unwrap_err();
        assert!(matches!(&error, StoreError::InUse { what } if what.contains(why)), "{error}");
    };
    kept("before its queue shard has heard").await;
    let of_child = Schedule { policy_uid: Some(child.uid), ..schedule("of") };
    let run = waiting(&of_child, 5, NOON_US);
    let held = TokenRow { state: TokenState::Held, ..token(run.id, 0) };
    let old = Changes { policies: vec![child.clone()], runs_new: vec![run.clone()], ..Changes::default() };
    let lease = commit(&*store, 5, old).await;
    kept("before its queue shard has heard").await;
    let heard = Changes { policies: vec![paused.clone()], tokens_put: vec![held], ..Changes::default() };
    store.commit(&lease, &heard).await.unwrap();
    kept("while its events hold tokens").await;
    let batch = TokenBatch::of(run.id, 10, NOON_US);
    let batched = Changes { tokens_gone: vec![(run.id, 0)], batches_new: vec![batch], ..Changes::default() };
    store.commit(&lease, &batched).await.unwrap();
    kept("while its events hold tokens").await;
    let back = TokenRow { state: TokenState::Waiting, ..token(run.id, 10) };
    let free = Changes {
        tokens_put: vec![back],
        batches_gone: vec![(run.id, 10)],
        runs_changed: vec![Run { next_index: 11, ..run.clone() }],
        ..Changes::default()
    };
    store.commit(&lease, &free).await.unwrap();
    write(&*store, &moved).await.unwrap();
    assert_eq!(store.policy("default", "child").await.unwrap().unwrap(), moved);
}
