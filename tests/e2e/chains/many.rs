//! Many chains of the same schedules: all at once, by a backfill, and one after the other, by the overlap rule of the first step.

use std::collections::{BTreeMap, BTreeSet};

use prost_types::Timestamp;
use tollgate_harness::resources::{every, http, policy, schedule_name, soon, us};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, now_us, wait_for};
use tollgate_proto::v1::{
    BackfillScheduleRequest, BackfillScheduleResponse, FinishCondition, Overlap, Run, RunKind, Schedule,
    SkipReason,
};

use super::ends::{came, ended, keeper, pause, predecessor, release};
use super::{manual, then};

const LAUNCHES: u32 = 20;

/// The last launches of the schedule `first`, which fires at this moment and every hour before.
async fn backfill(service: &Service, last_s: i64) -> BackfillScheduleResponse {
    let from_s = last_s - i64::from(LAUNCHES - 1) * 3_600;
    let request = BackfillScheduleRequest {
        name: schedule_name("first"),
        start_time: Some(Timestamp { seconds: from_s, nanos: 0 }),
        end_time: Some(Timestamp { seconds: last_s + 1, nanos: 0 }),
        ..BackfillScheduleRequest::default()
    };
    service.master().backfill_schedule(request).await.unwrap().into_inner()
}

/// Each launch has a chain of its own, and the same backfill again makes no other one.
async fn a_backfill_makes_a_chain_of_each_launch(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..5)).await;
    service.create_policy("p", policy(6)).await.unwrap();
    service.create_schedule("last", manual(&consumer, 1)).await.unwrap();
    let next = then(manual(&consumer, 3), "last", FinishCondition::AllSucceeded);
    service.create_schedule("next", next).await.unwrap();
    // Half an hour from now is never due within a test.
    let last_s = now_us() / 60_000_000 * 60 - 1_800;
    let anchor = Timestamp { seconds: last_s - 100 * 3_600, nanos: 0 };
    let first = every(3_600, anchor, 2, "p", http(&consumer));
    service.create_schedule("first", then(first, "next", FinishCondition::AllSucceeded)).await.unwrap();
    for expected in [(LAUNCHES, 0), (0, LAUNCHES)] {
        let made = backfill(&service, last_s).await;
        assert_eq!((made.created_count, made.existing_count), expected, "{made:?}");
        let mut before = BTreeSet::new();
        for (place, (id, events)) in (0..).zip([("first", 2), ("next", 3), ("last", 1)]) {
            let runs = ended(&service, id, LAUNCHES as usize).await;
            assert!(runs.iter().all(|run| run.counts.unwrap().succeeded == events), "{runs:?}");
            if place > 0 {
                let follows = |run: &Run| {
                    (run.kind(), run.predecessor.as_ref().unwrap().place) == (RunKind::Followed, place)
                };
                assert!(runs.iter().all(follows), "{runs:?}");
                let after: BTreeSet<String> = runs.iter().map(|run| predecessor(run).to_owned()).collect();
                assert_eq!(after, before, "each run of the step before is followed by one of {id}");
            }
            before = runs.into_iter().map(|run| run.name).collect();
        }
    }
    let expected = [("first", 40), ("last", 20), ("next", 60)].map(|(id, events)| (id.to_owned(), events));
    assert_eq!(consumer.notes.events_by_schedule(), BTreeMap::from(expected));
    assert!(consumer.notes.in_flight_max() <= 6);
    consumer.notes.assert_clean();
    consumer.notes.assert_once();
    service.stop().await;
}

/// `overlap: BUFFER_ONE` of the first step: its next run waits until the last step has ended, and then goes.
async fn the_next_run_of_the_first_step_waits_for_the_chain(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = keeper(&service.link(), &["last"]).await;
    service.create_policy("p", policy(9)).await.unwrap();
    service.create_schedule("last", manual(&consumer, 1)).await.unwrap();
    let overlap = Overlap::BufferOne.into();
    let first = Schedule { overlap, ..every(1, soon(500), 1, "p", http(&consumer)) };
    service.create_schedule("first", then(first, "last", FinishCondition::Always)).await.unwrap();
    let kept = came(&consumer, "last", 1).await;
    // One is passed over only where another one waits already.
    let skipped = wait_for("a run that is passed over", 60, async || {
        let skipped = service.skipped("first").await;
        skipped.into_iter().min_by_key(|skip| us(skip.launch_time))
    })
    .await;
    assert_eq!(skipped.reason(), SkipReason::Overlap);
    came(&consumer, "first", 1).await;
    release(&service, &kept[0]).await;
    let kept = came(&consumer, "last", 2).await;
    pause(&service, "first").await;
    release(&service, &kept[1]).await;
    let last = ended(&service, "last", 2).await;
    let run = service.run(predecessor(&last[1])).await;
    assert!(us(run.launch_time) < us(skipped.launch_time), "the one that waited goes: {run:?} {skipped:?}");
    assert!(us(run.start_time) >= us(last[0].finish_time), "{run:?} {last:?}");
    let order: Vec<String> = consumer.notes.arrivals().into_iter().map(|one| one.schedule).collect();
    assert_eq!(order[..4], ["first", "last", "first", "last"]);
    service.stop().await;
}

on_both_stores!(a_backfill_makes_a_chain_of_each_launch, the_next_run_of_the_first_step_waits_for_the_chain);
