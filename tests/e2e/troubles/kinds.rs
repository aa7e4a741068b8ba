//! Kinds of trouble whose causes lie within the service, its machine and its database, or with consumers: each is told while
//! its cause is there, and no longer.

use tollgate_harness::machine::{Machine, compile};

use super::*;

async fn handler_of(service: &Service) -> String {
    service.status().await.unwrap().handler
}

async fn a_clock_that_is_wrong_is_told(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let library = compile(folder.path()).unwrap();
    let machine = Machine::new(&library, folder.path().join("machine")).unwrap();
    let database = Database::new(kind).await;
    let service = Service::join_on(&database, &[], &machine.environment()).await;
    well_again(&service).await;
    machine.clock_offset(2 * 3_600_000_000).unwrap();
    let found = seen(&service, TroubleKind::ClockWrong, |_| true).await;
    assert_eq!(found.severity(), TroubleSeverity::Critical, "{found:?}");
    assert_eq!(found.process, handler_of(&service).await, "{found:?}");
    assert!(found.summary.contains("clock") && !found.what_to_do.is_empty(), "{found:?}");
    assert_eq!(scraped(&service, "clock_wrong").await, 1.0);
    machine.clock_offset(0).unwrap();
    wait_for("no trouble with the clock", 40, async || {
        (listed(&service, "kind=CLOCK_WRONG").await.total_size == 0).then_some(())
    })
    .await;
    service.stop().await;
}

async fn rows_that_cannot_be_read_are_told(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("p", policy(1)).await.unwrap();
    service.create_schedule("s", once(soon(500), 3, "p", http(&consumer))).await.unwrap();
    wait_for("an event at its consumer", 20, async || (consumer.notes.arrivals_count() > 0).then_some(()))
        .await;
    service.stop().await;
    database.sql("UPDATE runs SET state = 'DANCING' WHERE schedule_id = 's'").await;
    let service = Service::start(&database).await;
    let found = seen(&service, TroubleKind::CorruptRows, |_| true).await;
    assert_eq!((found.severity(), found.affected_count), (TroubleSeverity::Critical, 1), "{found:?}");
    assert!(found.message.starts_with("runs, column state: "), "{found:?}");
    assert_eq!(scraped(&service, "corrupt_rows").await, 1.0);
    service.stop().await;
    database.sql("UPDATE runs SET state = 'RUNNING' WHERE state = 'DANCING'").await;
    let service = Service::start(&database).await;
    well_again(&service).await;
    service.stop().await;
}

/// What a load reads is away, and what holds leases is there.
async fn queue_shards_that_cannot_be_loaded_are_told(kind: Kind) {
    let database = Database::new(kind).await;
    Service::start(&database).await.stop().await;
    database.sql("ALTER TABLE shard_policies RENAME TO shard_policies_away").await;
    let service = Service::join(&database, &[]).await;
    let found = seen(&service, TroubleKind::ShardsNotLoaded, |found| found.affected_count > 1).await;
    assert_eq!(found.severity(), TroubleSeverity::Critical, "{found:?}");
    assert_eq!(found.process, handler_of(&service).await, "{found:?}");
    assert!(listed(&service, "").await.troubles[0].kind() == TroubleKind::ShardsNotLoaded, "the worst");
    database.sql("ALTER TABLE shard_policies_away RENAME TO shard_policies").await;
    well_again(&service).await;
    service.stop().await;
}

/// The key that opens the target's secret is another process's.
async fn deliveries_that_do_not_leave_are_told(kind: Kind) {
    let database = Database::new(kind).await;
    let folder = tempfile::tempdir().unwrap();
    let key = |id: &str| {
        let file = folder.path().join(id);
        std::fs::write(&file, Cli::new("http://127.0.0.1:1").ok(&["secrets", "generate-key", id])).unwrap();
        file.display().to_string()
    };
    let (own, other) = (key("k1"), key("k2"));
    // Its own secret is in clear, as of before there were keys.
    Service::start(&database).await.stop().await;
    let service = Service::start_with(&database, &["--secret-keys-file", &own]).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::Answer(200)).await;
    service.create_policy("p", policy(2)).await.unwrap();
    let target = Target { release: tollgate_proto::v1::ReleaseMode::OnResponse.into(), ..http(&consumer) };
    let schedule = once(soon(10_000), 6, "p", target);
    service.create_schedule("s", Schedule { retry: patient(), ..schedule }).await.unwrap();
    service.stop().await;
    let service = Service::start_with(&database, &["--secret-keys-file", &other]).await;
    let is_whole = |found: &Trouble| found.waiting_count == 6 && found.affected_count == 6;
    let found = seen(&service, TroubleKind::NotSent, is_whole).await;
    assert_eq!(
        (found.severity(), found.schedule.as_str()),
        (TroubleSeverity::Critical, &*schedule_name("s"))
    );
    assert!(
        found.message.contains("\"k1\"") && found.waiting_count == 6 && found.affected_count == 6,
        "{found:?}"
    );
    assert_eq!((consumer.notes.arrivals_count(), scraped(&service, "not_sent").await), (0, 1.0));
    service.stop().await;
    let service = Service::start_with(&database, &["--secret-keys-file", &own]).await;
    well_again(&service).await;
    wait_for("all events", 40, async || (consumer.notes.arrivals_count() >= 6).then_some(())).await;
    service.stop().await;
}

async fn consumers_that_give_events_back_are_told(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let is_well = Arc::new(AtomicBool::new(false));
    let script = is_well.clone();
    let consumer =
        Consumer::start(service.link(), Releases::Unary, move |_| match script.load(Ordering::SeqCst) {
            true => Conduct::work(0..5),
            false => Conduct::release(ReleaseTokenRequest {
                outcome: ReleaseOutcome::Retry.into(),
                message: "the table is locked".to_owned(),
                ..ReleaseTokenRequest::default()
            }),
        })
        .await;
    service.create_policy("p", policy(2)).await.unwrap();
    let schedule = Schedule { retry: patient(), ..once(soon(500), 4, "p", http(&consumer)) };
    service.create_schedule("s", schedule).await.unwrap();
    let found = seen(&service, TroubleKind::ConsumerFails, |_| true).await;
    // It takes what it gets: something goes on.
    assert_eq!((found.severity(), found.message.as_str()), (TroubleSeverity::Warning, "the table is locked"));
    assert_eq!((found.schedule, found.policy), (schedule_name("s"), policy_name("p")));
    assert!(scraped(&service, "consumer_fails").await == 1.0);
    is_well.store(true, Ordering::SeqCst);
    service.finished("s", 40).await;
    well_again(&service).await;
    service.stop().await;
}

on_both_stores!(
    a_clock_that_is_wrong_is_told,
    rows_that_cannot_be_read_are_told,
    queue_shards_that_cannot_be_loaded_are_told,
    deliveries_that_do_not_leave_are_told,
    consumers_that_give_events_back_are_told,
);
