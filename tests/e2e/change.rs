//! Changes of what has been emitted already: they take effect at once.

use std::time::Duration;

use tollgate_harness::resources::{every, http, ms, once, policy, policy_name, schedule_name, soon, us};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, Service, now_us, wait_for};
use tollgate_proto::v1::{
    DeleteScheduleRequest, Overlap, PausePolicyRequest, PauseScheduleRequest, ResumePolicyRequest,
    ResumeScheduleRequest, RunState, Schedule, SkipReason, UpdatePolicyRequest, UpdateScheduleRequest,
};

struct World {
    _database: Database,
    service: Service,
    consumer: Consumer,
}

async fn world(
    kind: Kind,
    conduct: impl Fn(&tollgate_harness::Arrival) -> Conduct + Send + Sync + 'static,
) -> World {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, conduct).await;
    World { _database: database, service, consumer }
}

/// Lets time pass that a mistake would need to show.
async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

async fn sleep_until(time_us: i64) {
    pass(u64::try_from((time_us - now_us()) / 1_000).unwrap_or_default()).await;
}

async fn deleted_and_moved_schedules_do_not_fire(kind: Kind) {
    let World { _database, service, consumer } = world(kind, |_| Conduct::work(0..1)).await;
    // All of it is said before.
    let at = soon(8_000);
    for id in ["deleted", "moved", "kept"] {
        service.create_schedule(id, once(at, 2, "", http(&consumer))).await.unwrap();
        service.first_run(id).await;
    }
    let request = DeleteScheduleRequest { name: schedule_name("deleted"), ..Default::default() };
    service.master().delete_schedule(request).await.unwrap();
    let later = prost_types::Timestamp { seconds: at.seconds + 2, nanos: 0 };
    let moved = Schedule { name: schedule_name("moved"), ..once(later, 3, "", http(&consumer)) };
    let request = UpdateScheduleRequest { schedule: Some(moved), ..Default::default() };
    service.master().update_schedule(request).await.unwrap();
    let arrived = |id: &str| consumer.notes.events_by_schedule().get(id).copied().unwrap_or_default();
    wait_for("what was kept", 20, async || (arrived("kept") == 2).then_some(())).await;
    wait_for("what was moved", 20, async || (arrived("moved") == 3).then_some(())).await;
    assert_eq!(arrived("deleted"), 0);
    let moved = consumer.notes.arrivals().into_iter().filter(|arrival| arrival.schedule == "moved");
    assert!(moved.map(|arrival| arrival.launch_us).all(|launch| launch == us(Some(later))));
    consumer.notes.assert_clean();
    service.stop().await;
}

async fn a_paused_schedule_skips_what_falls_due(kind: Kind) {
    let World { _database, service, consumer } = world(kind, |_| Conduct::work(0..1)).await;
    let anchor = soon(8_000);
    service.create_schedule("tick", every(2, anchor, 1, "", http(&consumer))).await.unwrap();
    service.first_run("tick").await;
    let request = PauseScheduleRequest {
        name: schedule_name("tick"),
        reason: "a test".to_owned(),
        ..Default::default()
    };
    let paused = service.master().pause_schedule(request).await.unwrap().into_inner();
    assert_eq!(paused.pause.unwrap().reason, "a test");
    sleep_until(us(Some(anchor)) + 1_000_000).await;
    let skipped = async |launch_us: i64| {
        let skipped = service.skipped("tick").await;
        skipped.into_iter().find(|skip| us(skip.launch_time) == launch_us).map(|skip| skip.reason())
    };
    let reason = wait_for("a skipped trigger", 20, async || skipped(us(Some(anchor))).await).await;
    assert_eq!(reason, SkipReason::Paused);
    assert_eq!(consumer.notes.arrivals_count(), 0);
    let request = ResumeScheduleRequest { name: schedule_name("tick"), ..Default::default() };
    let resumed_us = now_us();
    service.master().resume_schedule(request).await.unwrap();
    wait_for("a fire after the pause", 20, async || (consumer.notes.arrivals_count() > 0).then_some(()))
        .await;
    let launch_us = consumer.notes.arrivals()[0].launch_us;
    assert!(launch_us > us(Some(anchor)) && launch_us >= resumed_us - 2_000_000, "{launch_us}");
    assert_eq!(skipped(launch_us).await, None, "it fired");
    assert_eq!(skipped(us(Some(anchor))).await, Some(SkipReason::Paused), "what was skipped stays so");
    service.stop().await;
}

async fn limits_and_pauses_of_policies_take_effect_at_once(kind: Kind) {
    // Long enough that 40 at once are no more events a second than a slow machine starts.
    let World { _database, service, consumer } = world(kind, |_| Conduct::work(400..800)).await;
    service.create_policy("p", policy(20)).await.unwrap();
    service.create_schedule("batch", once(soon(800), 700, "p", http(&consumer))).await.unwrap();
    let notes = &consumer.notes;
    let set = async |limit: u32| {
        let changed = tollgate_proto::v1::Policy { name: policy_name("p"), ..policy(limit) };
        let update_mask = Some(prost_types::FieldMask { paths: vec!["max_in_flight".to_owned()] });
        let request = UpdatePolicyRequest { policy: Some(changed), update_mask, ..Default::default() };
        service.master().update_policy(request).await.unwrap();
    };
    wait_for("a full policy", 30, async || (notes.in_flight() >= 18).then_some(())).await;
    assert!(notes.in_flight_max() <= 20, "{}", notes.in_flight_max());
    set(5).await;
    // Not by the consumer's count: some may be on their way to it.
    wait_for("the lower limit", 20, async || (service.held_count().await <= 5).then_some(())).await;
    wait_for("the lower limit at the consumer", 10, async || (notes.in_flight() <= 5).then_some(())).await;
    notes.forget_max();
    let seen = notes.arrivals_count();
    wait_for("more under the lower limit", 20, async || (notes.arrivals_count() > seen + 20).then_some(()))
        .await;
    assert!(notes.in_flight_max() <= 5, "{}", notes.in_flight_max());
    set(40).await;
    wait_for("the higher limit", 20, async || (notes.in_flight() > 20).then_some(())).await;
    let request =
        PausePolicyRequest { name: policy_name("p"), reason: "a test".to_owned(), ..Default::default() };
    service.master().pause_policy(request).await.unwrap();
    wait_for("nothing held", 20, async || (service.held_count().await == 0).then_some(())).await;
    wait_for("quiet", 10, async || (notes.in_flight() == 0).then_some(())).await;
    let seen = notes.arrivals_count();
    pass(500).await;
    assert_eq!(notes.arrivals_count(), seen, "a paused policy starts nothing");
    service
        .master()
        .resume_policy(ResumePolicyRequest { name: policy_name("p"), ..Default::default() })
        .await
        .unwrap();
    let run = service.finished("batch", 60).await;
    assert_eq!(run.counts.unwrap().succeeded, 700, "{run:?}");
    assert!(notes.in_flight_max() <= 40, "{}", notes.in_flight_max());
    notes.assert_clean();
    notes.assert_once();
    service.stop().await;
}

async fn a_run_that_would_overlap_is_recorded_as_skipped(kind: Kind) {
    let World { _database, service, consumer } = world(kind, |_| Conduct::keep()).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let anchor = soon(4_000);
    let schedule = Schedule { overlap: Overlap::Skip.into(), ..every(2, anchor, 1, "p", http(&consumer)) };
    service.create_schedule("tick", schedule).await.unwrap();
    wait_for("the first run", 20, async || (consumer.notes.arrivals_count() == 1).then_some(())).await;
    let second_us = us(Some(anchor)) + 2_000_000;
    wait_for("a skipped run", 20, async || {
        let runs = service.runs("tick").await;
        let skipped =
            runs.iter().any(|run| us(run.launch_time) == second_us && run.state() == RunState::Skipped);
        let recorded = service.skipped("tick").await;
        let recorded = recorded
            .iter()
            .any(|skip| us(skip.launch_time) == second_us && skip.reason() == SkipReason::Overlap);
        (skipped || recorded).then_some(())
    })
    .await;
    assert_eq!(consumer.notes.arrivals_count(), 1);
    service.stop().await;
}

/// Each run takes half a second, and the next one starts three seconds after its end, not with the next second; also where the
/// process dies in the rest.
async fn a_schedule_rests_after_each_run(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let link = service.link();
    let consumer = Consumer::start(link.clone(), Releases::Unary, |_| Conduct::work(400..500)).await;
    service.create_policy("p", policy(2)).await.unwrap();
    let schedule = Schedule {
        overlap: Overlap::BufferOne.into(),
        delay_after_finish: Some(ms(3_000)),
        ..every(1, soon(1_000), 1, "p", http(&consumer))
    };
    service.create_schedule("restful", schedule).await.unwrap();
    wait_for("a first run", 30, async || (consumer.notes.arrivals_count() >= 1).then_some(())).await;
    wait_for("its end", 30, async || {
        service.runs("restful").await.iter().any(|run| run.finish_time.is_some()).then_some(())
    })
    .await;
    service.kill9();
    let service = Service::start(&database).await;
    link.follow(&service);
    wait_for("four runs", 60, async || (consumer.notes.arrivals_count() >= 4).then_some(())).await;
    let cli = Cli::new(service.url());
    cli.ok(&["pause", "schedule", "restful", "--reason", "enough"]);
    let mut runs = service.runs("restful").await;
    runs.retain(|run| run.start_time.is_some());
    runs.sort_by_key(|run| us(run.start_time));
    assert!(runs.len() >= 4, "{runs:?}");
    for pair in runs.windows(2) {
        let rest_us = us(pair[1].start_time) - us(pair[0].finish_time);
        assert!(rest_us >= 3_000_000, "{rest_us} us: {pair:?}");
    }
    let recorded = service.skipped("restful").await;
    assert!(recorded.iter().any(|skip| skip.reason() == SkipReason::Overlap), "{recorded:?}");
    service.stop().await;
}

async fn what_did_not_start_in_time_expires(kind: Kind) {
    let World { _database, service, consumer } = world(kind, |_| Conduct::work(7_500..7_600)).await;
    service.create_policy("p", policy(2)).await.unwrap();
    let schedule = Schedule { finish_by: Some(ms(6_000)), ..once(soon(800), 10, "p", http(&consumer)) };
    service.create_schedule("late", schedule).await.unwrap();
    let run = service.finished("late", 30).await;
    let counts = run.counts.unwrap();
    assert_eq!(
        (run.state(), counts.succeeded, counts.expired),
        (RunState::FinishedWithFailures, 2, 8),
        "{run:?}"
    );
    assert_eq!(consumer.notes.arrivals_count(), 2);
    service.stop().await;
}

async fn spread_events_come_evenly(kind: Kind) {
    let World { _database, service, consumer } = world(kind, |_| Conduct::work(0..1)).await;
    let at = soon(3_000);
    let schedule = Schedule { spread: Some(ms(4_000)), ..once(at, 8, "", http(&consumer)) };
    service.create_schedule("even", schedule).await.unwrap();
    service.finished("even", 30).await;
    let mut arrivals = consumer.notes.arrivals();
    arrivals.sort_by_key(|arrival| arrival.index);
    for arrival in &arrivals {
        let due_us = us(Some(at)) + i64::from(arrival.index) * 500_000;
        assert_eq!(arrival.launch_us, due_us, "{arrival:?}");
    }
    assert_eq!(arrivals.len(), 8);
    consumer.notes.assert_clean();
    service.stop().await;
}

on_both_stores!(
    deleted_and_moved_schedules_do_not_fire,
    a_paused_schedule_skips_what_falls_due,
    limits_and_pauses_of_policies_take_effect_at_once,
    a_run_that_would_overlap_is_recorded_as_skipped,
    a_schedule_rests_after_each_run,
    what_did_not_start_in_time_expires,
    spread_events_come_evenly,
);
