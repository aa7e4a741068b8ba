//! One run of ten million events: one row, and no more memory than a small one.

use tollgate_harness::resources::{http, once, policy, soon};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::{CancelRunRequest, RunState};

const EVENTS: u32 = 10_000_000;
const LIMIT: u32 = 100;
const GROWTH_MAX_BYTES: u64 = 64 << 20;

async fn memory_does_not_grow_with_n(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Batch, |_| Conduct::work(0..5)).await;
    service.create_policy("wide", policy(LIMIT)).await.unwrap();
    // A small batch first: connections and buffers are there before memory is looked at.
    service.create_schedule("small", once(soon(500), 1_000, "wide", http(&consumer))).await.unwrap();
    service.finished("small", 60).await;
    let before = service.rss_bytes();
    service.create_schedule("huge", once(soon(500), EVENTS, "wide", http(&consumer))).await.unwrap();
    wait_for("some thousand events", 120, async || (consumer.notes.arrivals_count() >= 4_000).then_some(()))
        .await;
    let after = service.rss_bytes();
    let run = service.first_run("huge").await;
    let request = CancelRunRequest { name: run.name.clone(), reason: "enough".to_owned() };
    service.handler().cancel_run(request).await.unwrap();
    let run = service.finished("huge", 30).await;
    let counts = run.counts.unwrap();
    assert_eq!(run.state(), RunState::Cancelled, "{run:?}");
    assert_eq!(
        counts.succeeded + counts.cancelled,
        EVENTS,
        "what was in flight ended well, the rest was cancelled"
    );
    assert_eq!(run.in_flight_count + run.waiting_count, 0, "{run:?}");
    let of_huge = consumer.notes.events_by_schedule()["huge"];
    assert_eq!(counts.succeeded as usize, of_huge, "what came was not cancelled");
    let shown = Cli::new(service.url()).json(&["get", "run", &run.name]);
    assert_eq!(shown["counts"]["cancelled"], counts.cancelled, "{shown}");
    let growth = after.saturating_sub(before);
    let mib = |bytes: u64| bytes >> 20;
    #[expect(clippy::print_stdout, reason = "a measurement, shown with --nocapture")]
    {
        println!(
            "{kind:?}: {} MiB before, {} MiB after, peak at the end {} MiB",
            mib(before),
            mib(after),
            mib(service.rss_bytes())
        );
    }
    assert!(growth < GROWTH_MAX_BYTES, "memory grew by {} MiB", mib(growth));
    assert!(consumer.notes.in_flight_max() <= LIMIT as usize, "{} in flight", consumer.notes.in_flight_max());
    consumer.notes.assert_clean();
    consumer.notes.assert_once();
    service.stop().await;
}

on_both_stores!(memory_does_not_grow_with_n);
