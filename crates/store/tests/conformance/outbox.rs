//! The outbox: what is told to queue shards, and how it gets into their inboxes.

use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::{MINUTE_US, Schedule, SkipReason, Skipped};
use tollgate_core::plan::{News, Notice, ScheduleNews, message_id};
use tollgate_store::StoreError;
use tollgate_store::plan::{OutboxLane, PlanWrite, Told};

use super::place::Place;
use super::samples::{NOON_US, delete_policy, policy, put, put_policy, schedule};

fn notice(schedule: &Schedule, generation: i64, shard: u16) -> Notice {
    Notice {
        uid: schedule.uid,
        generation,
        namespace: schedule.namespace.clone(),
        id: schedule.id.clone(),
        changed_us: NOON_US + generation,
        way: vec![shard, 9],
        is_new: generation == 1,
        news: News::Schedule(ScheduleNews {
            policy_uid: None,
            until_us: NOON_US + MINUTE_US,
            events: 3,
            priority: 5,
            pause: None,
            was_paused: false,
            timing: Some(schedule.timing.clone()),
        }),
    }
}

pub(crate) fn tell(notice: &Notice) -> PlanWrite {
    PlanWrite::Tell { notice: Box::new(notice.clone()) }
}

/// Notices are written with the change or not at all, read lane by lane in their order, and leave once.
pub(crate) async fn notices_wait_in_their_order_until_they_are_delivered(place: &Place) {
    let store = place.open().await;
    let (a, b) = (schedule("a"), schedule("b"));
    let first = notice(&a, 1, 3);
    store.write_plan(vec![put(&a, None, vec![]), tell(&first)]).await.unwrap();
    let taken = schedule("a");
    let refused = store.write_plan(vec![put(&taken, None, vec![]), tell(&notice(&b, 1, 3))]).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    let later = [notice(&a, 2, 3), notice(&a, 3, 4), notice(&b, 2, 3)];
    store.write_plan(later.iter().map(tell).collect()).await.unwrap();
    let lane = |shard, waiting| OutboxLane { shard, namespace: a.namespace.clone(), waiting };
    assert_eq!(store.outbox_lanes().await.unwrap(), [lane(3, 3), lane(4, 1)]);
    let page = store.outbox(3, &a.namespace, None, 2).await.unwrap();
    assert_eq!(page.notices[0], first);
    let rest = store.outbox(3, &a.namespace, page.next, 2).await.unwrap();
    let mut seen: Vec<Notice> = page.notices.into_iter().chain(rest.notices).collect();
    assert_eq!(rest.next, None);
    seen[1..].sort_by_key(|notice| notice.uid != a.uid);
    assert_eq!(seen, [first.clone(), later[0].clone(), later[2].clone()]);
    assert!(store.outbox(3, "other", None, 9).await.unwrap().notices.is_empty());
    let before = store.outbox_before(&[(a.uid, 3), (b.uid, 2)]).await.unwrap();
    assert_eq!(before, [first, later[0].clone()]);

    let skip = |launch_us| Skipped {
        schedule_uid: a.uid,
        launch_us,
        reason: SkipReason::Paused,
        recorded_us: NOON_US,
    };
    let message = |generation| Message {
        id: message_id(a.uid, generation),
        control: Control::CursorLeft { schedule_uid: a.uid, cursor: String::new(), left_us: None },
    };
    let told = |generation, taken_back, skipped| {
        let message = Some(message(generation));
        Told { shard: 3, uid: a.uid, generation, message, taken_back, skipped }
    };
    let paused = told(1, None, vec![skip(NOON_US + 10), skip(NOON_US + 20)]);
    let resumed = told(2, Some((NOON_US + 10, NOON_US + 99)), vec![]);
    assert_eq!(store.tell(&[paused.clone(), resumed]).await.unwrap(), 2);
    let skipped = async || store.list_skipped(a.uid, None, 9).await.unwrap();
    assert_eq!(skipped().await, [skip(NOON_US + 10)]);
    assert_eq!(store.inbox(3, 9).await.unwrap(), [message(1), message(2)]);
    let later = Told { message: Some(message(7)), ..paused };
    assert_eq!(store.tell(&[later]).await.unwrap(), 0, "somebody has told it");
    assert_eq!(store.inbox(3, 9).await.unwrap().len(), 2, "nor is its message posted");
    assert_eq!(skipped().await, [skip(NOON_US + 10)]);
    assert_eq!(store.outbox_lanes().await.unwrap(), [lane(3, 1), lane(4, 1)]);
    store.close().await;
}

/// One that cannot be read is named and passed over, and those after it are read.
pub(crate) async fn a_corrupt_notice_is_passed_over(place: &Place) {
    let store = place.open().await;
    let (a, b) = (schedule("a"), schedule("b"));
    store.write_plan(vec![tell(&notice(&a, 1, 3)), tell(&notice(&b, 2, 3))]).await.unwrap();
    place.sql("UPDATE plan_outbox SET body = '{}' WHERE generation = 1").await;
    let page = store.outbox(3, &a.namespace, None, 1).await.unwrap();
    assert!(page.notices.is_empty());
    let page = store.outbox(3, &a.namespace, page.next, 1).await.unwrap();
    assert_eq!(page.notices, [notice(&b, 2, 3)]);
    assert!(store.outbox(3, &a.namespace, page.next, 1).await.unwrap().next.is_none());
    let corrupt = store.corrupt_rows();
    assert_eq!((corrupt.len(), corrupt[0].table), (1, "plan_outbox"));
    store.close().await;
}

/// Changes of policies and of schedules wait in the same lanes, and one transaction tells several shards of them, each once.
pub(crate) async fn policies_are_told_as_schedules_are(place: &Place) {
    let store = place.open().await;
    let (p, a) = (policy("p"), schedule("a"));
    let (made, gone) = (Notice::of_policy(&p), Notice::of_deleted_policy(&p, NOON_US + 9));
    let of_schedule = notice(&a, 1, 4);
    let writes = vec![put_policy(&p, None), tell(&made), put(&a, None, vec![]), tell(&of_schedule)];
    store.write_plan(writes).await.unwrap();
    store.write_plan(vec![delete_policy(&p), tell(&gone)]).await.unwrap();
    let waiting = async |shard| store.outbox(shard, "default", None, 9).await.unwrap().notices;
    assert_eq!(waiting(p.shard).await, [made.clone(), gone.clone()]);
    assert_eq!(store.outbox_before(&[(p.uid, gone.generation)]).await.unwrap(), std::slice::from_ref(&made));
    assert_eq!(store.inbox(p.shard, 9).await.unwrap(), [], "nothing goes past the outbox");

    let told = |notice: &Notice, control: Control| Told {
        shard: notice.first(),
        uid: notice.uid,
        generation: notice.generation,
        message: Some(Message { id: message_id(notice.uid, notice.generation), control }),
        taken_back: None,
        skipped: vec![],
    };
    let said = |one: &Told| one.message.clone().unwrap();
    let made = told(&made, Control::PolicyChanged { policy: p.clone() });
    let gone = told(&gone, Control::PolicyDeleted { uid: p.uid });
    let cursor = String::new();
    let other = told(&of_schedule, Control::CursorLeft { schedule_uid: a.uid, cursor, left_us: None });
    store.tell(&[made.clone(), other.clone()]).await.unwrap();
    assert_eq!(store.inbox(p.shard, 9).await.unwrap(), [said(&made)]);
    assert_eq!(store.inbox(4, 9).await.unwrap(), [said(&other)]);
    store.tell(&[gone.clone(), other]).await.unwrap();
    assert_eq!(store.inbox(p.shard, 9).await.unwrap(), [said(&made), said(&gone)]);
    assert_eq!(store.inbox(4, 9).await.unwrap().len(), 1, "somebody has told it");
    assert_eq!(store.outbox_lanes().await.unwrap(), []);
    store.close().await;
}
