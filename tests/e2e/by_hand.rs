//! Runs that no clock asked for: trigger and backfill.

use std::time::Duration;

use prost_types::Timestamp;
use tollgate_harness::resources::{every, http, once, policy, policy_name, schedule_name, soon, us};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, now_us, wait_for};
use tollgate_proto::convert::payload::from_json;
use tollgate_proto::v1::{
    BackfillScheduleRequest, BackfillScheduleResponse, GetScheduleRequest, PausePolicyRequest, RunKind,
    RunState, Schedule, TriggerScheduleRequest, WhenDone,
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
    service.create_schedule("hourly", Schedule { events: Some(100), ..schedule }).await.unwrap();
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
    let request =
        TriggerScheduleRequest { name: schedule_name("hourly"), events: Some(7), ..Default::default() };
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

/// A backfill that a power cut ends is finished by its repeat, which has one answer from then on.
async fn a_backfill_goes_on_after_a_power_cut(kind: Kind) {
    const LAUNCHES: u32 = 8_000;
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    let anchor_s = now_us() / 1_000_000 / 3_600 * 3_600 - 1_800;
    let anchor = Timestamp { seconds: anchor_s - 10 * 86_400, nanos: 0 };
    // Paused policy: only the runs count here.
    service.create_policy("p", policy(1)).await.unwrap();
    let pause = PausePolicyRequest { name: policy_name("p"), ..Default::default() };
    service.master().pause_policy(pause).await.unwrap();
    let minutely = every(60, anchor, 1, "p", http(&consumer));
    service
        .create_schedule(
            "hourly",
            Schedule { end_time: Some(Timestamp { seconds: anchor_s, nanos: 0 }), ..minutely },
        )
        .await
        .unwrap();
    let request = BackfillScheduleRequest {
        name: schedule_name("hourly"),
        start_time: Some(Timestamp { seconds: anchor_s - i64::from(LAUNCHES) * 60, nanos: 0 }),
        end_time: Some(Timestamp { seconds: anchor_s, nanos: 0 }),
        request_id: "march".to_owned(),
        ..Default::default()
    };
    for cut_ms in [30, 90, 200] {
        let (mut master, asked) = (service.master(), request.clone());
        let call = tokio::spawn(async move { master.backfill_schedule(asked).await });
        tokio::time::sleep(Duration::from_millis(cut_ms)).await;
        service.kill9();
        let _ = call.await.unwrap();
        service = Service::start(&database).await;
    }
    let whole = service.master().backfill_schedule(request.clone()).await.unwrap().into_inner();
    assert_eq!(
        (whole.created_count, whole.existing_count),
        (LAUNCHES, 0),
        "each once, and all of them its own"
    );
    let again = service.master().backfill_schedule(request.clone()).await.unwrap().into_inner();
    assert_eq!(again, whole);
    let other = BackfillScheduleRequest { request_id: String::new(), ..request };
    let none = service.master().backfill_schedule(other).await.unwrap().into_inner();
    assert_eq!((none.created_count, none.existing_count), (0, LAUNCHES));
    service.stop().await;
}

/// When, how urgent, and with what: of this run alone.
async fn a_trigger_says_when_and_with_what(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..5)).await;
    // Manual: nothing but the trigger makes it fire.
    let (schedule, _) = hourly(&consumer, "");
    let payload = from_json(&serde_json::json!({"dataset": "customers", "dry": true}));
    let schedule = Schedule { triggers: Vec::new(), payload: Some(payload), ..schedule };
    service.create_schedule("hourly", schedule).await.unwrap();
    let due = soon(5_000);
    let request = TriggerScheduleRequest {
        name: schedule_name("hourly"),
        launch_time: Some(due),
        priority: Some(9),
        payload: Some(from_json(&serde_json::json!({"dataset": "orders", "dry": null}))),
        request_id: "once".to_owned(),
        ..Default::default()
    };
    let run = service.master().trigger_schedule(request.clone()).await.unwrap().into_inner();
    assert_eq!(service.master().trigger_schedule(request).await.unwrap().into_inner(), run);
    let late_us = us(run.launch_time) - us(Some(due));
    assert!((1..=1_000).contains(&late_us), "{late_us}");
    let run = wait_for("the end of the run", 20, async || {
        let run = service.run(&run.name).await;
        (run.state() == RunState::Finished).then_some(run)
    })
    .await;
    assert_eq!((run.priority, run.counts.unwrap().succeeded), (9, 2), "{run:?}");
    assert!(us(run.start_time) >= us(run.launch_time), "nothing fires before its launch time: {run:?}");
    let arrivals = consumer.notes.arrivals();
    assert!(
        arrivals.iter().all(|arrival| arrival.data == serde_json::json!({"dataset": "orders"})),
        "{arrivals:?}"
    );
    consumer.notes.assert_clean();
    consumer.notes.assert_once();
    service.stop().await;
}

/// A single moment that is over is cleared away by the service.
async fn a_spent_schedule_is_deleted(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..5)).await;
    let shot = Schedule {
        when_done: WhenDone::Delete.into(),
        delete_after: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        ..once(soon(1_500), 1, "", http(&consumer))
    };
    service.create_schedule("shot", shot).await.unwrap();
    service.finished("shot", 20).await;
    wait_for("its deletion", 60, async || {
        let get = GetScheduleRequest { name: schedule_name("shot") };
        service.master().get_schedule(get).await.err().filter(|gone| gone.code() == tonic::Code::NotFound)
    })
    .await;
    assert_eq!(consumer.notes.attempts().len(), 1);
    service.stop().await;
}

on_both_stores!(
    a_backfill_makes_each_launch_once,
    a_backfill_gives_way,
    a_trigger_makes_a_run_now,
    a_backfill_goes_on_after_a_power_cut,
    a_trigger_says_when_and_with_what,
    a_spent_schedule_is_deleted,
);
