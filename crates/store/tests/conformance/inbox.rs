//! Messages to a shard, and what an owner makes of them.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::Executor as _;
use tollgate_core::handle::change::Changes;
use tollgate_core::handle::control::{Control, Message, UnderWay};
use tollgate_core::handle::release::{Release, ReleaseOutcome};
use tollgate_core::model::{RunId, Sent};
use tollgate_store::CommitError;
use tollgate_store::handle::{Lease, Posted};
use uuid::Uuid;

use super::moves::{FROM, USED, tree};
use super::place::Place;
use super::samples::{NOON_US, audit, commit, message, policy, release, schedule, shard_schedule, take};

fn changes() -> Changes {
    Changes::default()
}

pub(crate) async fn inbox_is_idempotent(place: &Place) {
    let store = place.open().await;
    let (a, b) = (message(), message());
    store.post(5, &[a.clone(), b.clone(), a.clone()]).await.unwrap();
    store.post(5, &[Message { control: Control::PauseShard { pause: None }, ..a.clone() }]).await.unwrap();
    let mut inbox = store.inbox(5, 100).await.unwrap();
    inbox.sort_by_key(|message| message.id);
    assert_eq!(inbox, [a, b]);
    assert_eq!(store.inbox(5, 1).await.unwrap().len(), 1);
    store.post(5, &[]).await.unwrap();
}

pub(crate) async fn inbox_done_deletes_exactly(place: &Place) {
    let store = place.open().await;
    let messages: Vec<Message> = (0..5).map(|_| message()).collect();
    store.post(5, &messages).await.unwrap();
    store.post(6, &messages).await.unwrap();
    let done: Vec<Uuid> = [0, 2, 4].map(|i: usize| messages[i].id).to_vec();
    commit(&*store, 5, Changes { inbox_done: done, ..changes() }).await;
    let left: BTreeSet<Uuid> = store.inbox(5, 100).await.unwrap().iter().map(|message| message.id).collect();
    assert_eq!(left, BTreeSet::from([messages[1].id, messages[3].id]));
    assert_eq!(store.inbox(6, 10).await.unwrap().len(), 5);
}

pub(crate) async fn forwards_are_posted_before(place: &Place) {
    let store = place.open().await;
    let (a, b) = (message(), message());
    let forwards = vec![(6, a.clone()), (9, b.clone()), (6, b.clone())];
    commit(&*store, 5, Changes { forwards, ..changes() }).await;
    assert_eq!(store.inbox(6, 10).await.unwrap().len(), 2);
    assert_eq!(store.inbox(9, 10).await.unwrap(), [b]);
}

pub(crate) async fn forwards_survive_a_fenced_commit(place: &Place) {
    let store = place.open().await;
    let lease = Lease { lease_id: Uuid::nil(), ..take(&*store, 5).await };
    let changes = Changes { forwards: vec![(6, message())], ..changes() };
    assert!(matches!(store.commit(&lease, &changes).await, Err(CommitError::Fenced)));
    assert_eq!(store.inbox(6, 10).await.unwrap().len(), 1);
}

pub(crate) async fn unreadable_messages_are_passed_over(place: &Place) {
    let store = place.open().await;
    let bad: Vec<Message> = (0..5).map(|_| message()).collect();
    store.post(5, &bad).await.unwrap();
    place.sql("UPDATE shard_inbox SET body = '{\"kind\": \"dance\"}'").await;
    let good = message();
    store.post(5, std::slice::from_ref(&good)).await.unwrap();
    let (mut except, mut found) = (Vec::new(), Vec::new());
    for rows in [2, 2, 2, 0] {
        let read = store.inbox_except(5, &except, 2).await.unwrap();
        assert_eq!((read.rows, read.messages.len() + read.unreadable.len()), (rows, rows));
        except.extend(read.unreadable);
        except.extend(read.messages.iter().map(|message| message.id));
        found.extend(read.messages);
    }
    assert_eq!(found, std::slice::from_ref(&good));
    assert_eq!((except.len(), store.corrupt_rows().len()), (6, 5), "all are named");
    assert_eq!(store.inbox(5, 9).await.unwrap(), [good], "without exceptions they are tried again");
}

/// Whoever takes a shard over finds what was posted under the lease before; what would come later is not posted.
pub(crate) async fn what_is_posted_under_a_lease_is_there_for_the_next_owner(place: &Place) {
    let store = place.open().await;
    let lease = take(&*store, 5).await;
    let (early, late) = (message(), message());
    assert_eq!(store.post_under(&lease, &early).await.unwrap(), Posted::New);
    let owner = lease.clone();
    store.commit(&owner, &Changes { policies: vec![policy("p")], ..changes() }).await.unwrap();
    let contradicting = Message { id: early.id, control: Control::PauseShard { pause: None } };
    assert_eq!(
        store.post_under(&lease, &contradicting).await.unwrap(),
        Posted::ThereAlready,
        "the first one stays, and commits change nothing of the lease"
    );
    let next = store.take_shard(&owner, "next").await.unwrap().expect("it is as it was seen");
    assert_eq!(store.post_under(&lease, &late).await.unwrap(), Posted::ElsewhereNow);
    assert_eq!(store.inbox(5, 9).await.unwrap(), [early]);
    assert_eq!(store.post_under(&next, &late).await.unwrap(), Posted::New);
    // Both at once: what was posted is there when the shard has been taken.
    let mut seen = next;
    for number in 0..20 {
        let message = message();
        let name = format!("process-{number}");
        let (posted, taken) = tokio::join!(store.post_under(&seen, &message), async {
            let taken = store.take_shard(&seen, &name).await.unwrap().expect("nobody else takes it");
            (taken, store.inbox(5, 100).await.unwrap())
        });
        let (taken, inbox) = taken;
        assert_eq!(posted.unwrap() == Posted::New, inbox.contains(&message));
        seen = taken;
    }
}

/// Waits until so many sessions wait for a lock, or there is nothing to wait for.
async fn wait_for_locks(place: &Place, count: i64, is_over: impl Fn() -> bool) {
    let waiting = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while place.number(waiting).await < count && !is_over() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What is posted about a run goes with it to another shard, or is not posted where it was: its new owner would not find it.
pub(crate) async fn nothing_is_posted_where_a_run_has_left(place: &Place) {
    let store = place.open().await;
    let tree = tree(&*store).await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    let residents = store.residents_to_move(100).await.unwrap().remove(&FROM).unwrap();
    let lease = take(&*store, FROM).await;
    let [early, late, last] = [4, 5, 6].map(|index| release(tree.open.id, index));
    assert_eq!(store.post_under(&lease, &early).await.unwrap(), Posted::New);
    // On PostgreSQL the move is held up after it has looked what is recorded: it waits for a message that it takes along.
    let mut holder = None;
    if place.is_postgres() {
        let mut connection = place.postgres_connection().await;
        connection.execute("BEGIN; SELECT 1 FROM shard_inbox WHERE shard_id = 3 FOR UPDATE").await.unwrap();
        holder = Some(connection);
    }
    let moving = {
        let (store, lease) = (store.clone(), lease.clone());
        tokio::spawn(async move { store.move_residents(&lease, &residents, &[], NOON_US).await })
    };
    if holder.is_none() {
        while !moving.is_finished() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    } else {
        wait_for_locks(place, 1, || moving.is_finished()).await;
        assert!(!moving.is_finished(), "it is held up");
    }
    let posting = {
        let (store, lease, late) = (store.clone(), lease.clone(), late.clone());
        tokio::spawn(async move { store.post_under(&lease, &late).await })
    };
    if let Some(mut connection) = holder {
        wait_for_locks(place, 2, || posting.is_finished()).await;
        connection.execute("ROLLBACK").await.unwrap();
    }
    assert_eq!(posting.await.unwrap().unwrap(), Posted::ElsewhereNow);
    let moved = moving.await.unwrap().unwrap().expect("the lease is this one");
    assert!(moved.runs.contains_key(&tree.open.id), "{moved:?}");
    assert_eq!(store.post_under(&lease, &last).await.unwrap(), Posted::ElsewhereNow);
    assert!(store.inbox(FROM, 10).await.unwrap().is_empty(), "nothing is left behind");
    let there = store.lease(tree.to).await.unwrap().unwrap();
    assert_eq!(store.post_under(&there, &late).await.unwrap(), Posted::New);
    let inbox = store.inbox(tree.to, 10).await.unwrap();
    assert!(inbox.contains(&early) && inbox.contains(&late), "{inbox:?}");
}

pub(crate) async fn corrupt_message_is_left_out(place: &Place) {
    let store = place.open().await;
    store.post(3, &[message()]).await.unwrap();
    place.sql("UPDATE shard_inbox SET body = '{\"kind\": \"dance\"}'").await;
    let good = message();
    store.post(3, std::slice::from_ref(&good)).await.unwrap();
    assert_eq!(store.inbox(3, 10).await.unwrap(), [good]);
}

pub(crate) async fn all_messages_round_trip(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let run = RunId::derive(one.uid, NOON_US);
    let controls = [
        Control::PolicyChanged { policy: policy("p") },
        Control::PolicyDeleted { uid: one.uid },
        Control::ScheduleChanged {
            schedule: shard_schedule(&one),
            namespace: "default".to_owned(),
            schedule_id: "one".to_owned(),
            policy_uid: None,
            onward: vec![9],
        },
        Control::CursorLeft { schedule_uid: one.uid, cursor: "page 8".to_owned(), left_us: Some(7) },
        Control::CancelRun { run, reason: "é".to_owned() },
        Control::RetryDead { run, indexes: vec![1, 2] },
        Control::PauseShard { pause: None },
        Control::UnderWay {
            deliveries: vec![UnderWay { run, index: 3, attempt: 2, doubtful: true, grace_ms: 5_000 }],
        },
        Control::ChainEnded { schedule_uid: one.uid, run },
        Control::RunEnded { end: super::chains::end() },
        Control::Sent { run, index: 3, attempt: 2, sent: Sent::Accepted },
        Control::Sent {
            run,
            index: 3,
            attempt: 2,
            sent: Sent::Unclear { message: "timed out".to_owned(), retry_after_ms: Some(7) },
        },
        Control::Release {
            release: Release {
                run,
                index: 3,
                attempt: Some(2),
                outcome: ReleaseOutcome::Retry,
                message: "later\u{0}".to_owned(),
                next_check_us: Some(NOON_US),
                cursor: Some("c".to_owned()),
                result: Some(Box::new(tollgate_core::handle::release::EventResult {
                    body: "[1]".to_owned(),
                    bytes: 3,
                    items: 1,
                })),
            },
        },
    ];
    let messages: Vec<Message> = controls.map(|control| Message { id: Uuid::now_v7(), control }).to_vec();
    store.post(5, &messages).await.unwrap();
    let inbox = store.inbox(5, 100).await.unwrap();
    assert_eq!(inbox.len(), messages.len());
    assert!(messages.iter().all(|message| inbox.contains(message)));
}
