//! Runs that no clock asked for: trigger and backfill.

use prost_types::Timestamp;
use tollgate_harness::resources::{every, http, once, policy, schedule_name, soon, us};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, now_us, wait_for};
use tollgate_proto::v1::{
    BackfillScheduleRequest, BackfillScheduleResponse, RunKind, RunState, Schedule, TriggerScheduleRequest,
};

/// A schedule that is due every hour, from many hours ago on; it does not fire while the test runs.
fn hourly(consumer: &Consumer, policy: &str) -> (Schedule, i64) {
    // Half an hour from now is never due within a test.
    let anchor_s = now_us() / 1_000_000 / 60 * 60 - 1_800;
    let anchor = Timestamp { seconds: anchor_s - 100 * 3_600, nanos: 0 };
    (every(3_600, anchor, 2, policy, http(consumer)), anchor_s)
}

async fn backfill(service: &Service, from_s: i64, to_s: i64) -> BackfillScheduleResponse {
    let request = BackfillScheduleRequest {
        name: schedule_name("hourly"),
        start_time: Some(Timestamp { seconds: from_s, nanos: 0 }),
        end_time: Some(Timestamp { seconds: to_s, nanos: 0 }),
        priority: Some(1),
        ..Default::default()
    };
    service.master().backfill_schedule(request).await.unwrap().into_inner()
}

async fn a_backfill_makes_each_launch_once(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(5..10)).await;
    service.create_policy("p", policy(3)).await.unwrap();
    let (schedule, last_s) = hourly(&consumer, "p");
    service.create_schedule("hourly", schedule).await.unwrap();
    let (from_s, to_s) = (last_s - 9 * 3_600, last_s + 1);
    let first = backfill(&service, from_s, to_s).await;
    assert_eq!((first.created_count, first.existing_count), (10, 0), "{first:?}");
    let again = backfill(&service, from_s - 3_600, to_s).await;
    assert_eq!((again.created_count, again.existing_count), (1, 10), "{again:?}");
    let runs = wait_for("eleven finished runs", 60, async || {
        let runs = service.runs("hourly").await;
        (runs.len() == 11 && runs.iter().all(|run| run.state() == RunState::Finished)).then_some(runs)
    })
    .await;
    for (at, run) in (0..).zip(&runs) {
        assert_eq!(us(run.launch_time), (from_s - 3_600 + at * 3_600) * 1_000_000);
        assert_eq!((run.kind(), run.priority), (RunKind::Backfill, 1), "{run:?}");
        assert_eq!(run.counts.unwrap().succeeded, 2, "{run:?}");
    }
    assert_eq!(consumer.notes.attempts().len(), 22);
    assert!(consumer.notes.in_flight_max() <= 3);
    consumer.notes.assert_clean();
    consumer.notes.assert_once();
    service.stop().await;
}

/// A backfill in the way of what is due now: the lower priority waits.
async fn a_backfill_gives_way(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(60..80)).await;
    service.create_policy("p", policy(2)).await.unwrap();
    let (schedule, last_s) = hourly(&consumer, "p");
    service.create_schedule("hourly", Schedule { events: Some(20), ..schedule }).await.unwrap();
    service.create_schedule("urgent", once(soon(1_500), 10, "p", http(&consumer))).await.unwrap();
    backfill(&service, last_s - 3 * 3_600, last_s + 1).await;
    service.finished("urgent", 60).await;
    let backfilled = service.runs("hourly").await;
    let open = backfilled.iter().filter(|run| run.state() != RunState::Finished).count();
    assert!(open > 0, "the backfill was done before what had the higher priority");
    let arrivals = consumer.notes.arrivals();
    let urgent: Vec<usize> =
        arrivals.iter().enumerate().filter(|(_, a)| a.schedule == "urgent").map(|(at, _)| at).collect();
    let between = urgent[9] - urgent[0] + 1 - 10;
    assert!(between <= 2, "{between} backfilled events came between those of the higher priority");
    service.stop().await;
}

async fn a_trigger_makes_a_run_now(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..5)).await;
    let (schedule, _) = hourly(&consumer, "");
    service.create_schedule("hourly", schedule).await.unwrap();
    let request = TriggerScheduleRequest { name: schedule_name("hourly"), events: Some(7), ..Default::default() };
    let run = service.master().trigger_schedule(request).await.unwrap().into_inner();
    assert_eq!((run.kind(), run.events), (RunKind::Manual, 7), "{run:?}");
    let run = wait_for("the end of the run", 20, async || {
        let run = service.run(&run.name).await;
        (run.state() == RunState::Finished).then_some(run)
    })
    .await;
    assert_eq!(run.counts.unwrap().succeeded, 7, "{run:?}");
    assert_eq!(consumer.notes.attempts().len(), 7);
    consumer.notes.assert_clean();
    service.stop().await;
}

on_both_stores!(a_backfill_makes_each_launch_once, a_backfill_gives_way, a_trigger_makes_a_run_now);
