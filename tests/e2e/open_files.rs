//! A process that may open few files divides them: consumers that never answer take their part and no more.

use std::time::Duration;

use tollgate_harness::resources::{every, http, schedule_name, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::{RunState, Schedule, Target, TriggerScheduleRequest};

on_both_stores!(few_open_files_are_enough_for_a_neighbour_of_consumers_that_never_answer);

/// What the process may open, at most: no more can be had by asking.
const FILES: usize = 600;
/// What it makes of that, by 8 connections to the store.
const DERIVED: &str = "limit=600 connections_max=212 target_connections_max=141";
/// More than there are files, over several consumers.
const HANGING: u32 = 400;

/// A schedule without a policy that does not fire by itself while a test runs.
fn by_hand(target: Target) -> Schedule {
    every(86_400, soon(80_000_000), 1, "", target)
}

async fn trigger(service: &Service, id: &str, events: u32) -> String {
    let request =
        TriggerScheduleRequest { name: schedule_name(id), events: Some(events), ..Default::default() };
    service.master().trigger_schedule(request).await.unwrap().into_inner().name
}

async fn few_open_files_are_enough_for_a_neighbour_of_consumers_that_never_answer(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start_with_files(&database, FILES).await;
    let said = service.log();
    let line = said.lines().find(|line| line.contains("open files")).expect("it says what it has");
    assert!(line.contains(DERIVED) && line.contains("INFO"), "{line}");

    let mut silent = Vec::new();
    for number in 0..3 {
        let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::Hang).await;
        let id = format!("silent-{number}");
        service.create_schedule(&id, by_hand(http(&consumer))).await.unwrap();
        trigger(&service, &id, HANGING).await;
        silent.push(consumer);
    }
    wait_for("events at consumers that never answer", 60, async || {
        silent.iter().all(|consumer| consumer.notes.arrivals_count() >= 20).then_some(())
    })
    .await;
    // All that they may take is taken.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let good = Consumer::start(service.link(), Releases::Unary, |_| Conduct::Answers(Duration::ZERO)).await;
    service.create_schedule("good", by_hand(http(&good))).await.unwrap();
    for _ in 0..3 {
        let run = trigger(&service, "good", 100).await;
        let ended = wait_for("the neighbour's run", 60, async || {
            let run = service.run(&run).await;
            (run.state() == RunState::Finished).then_some(run)
        })
        .await;
        let counts = ended.counts.unwrap();
        assert_eq!((counts.succeeded, counts.dead), (100, 0), "{counts:?}");
        let open = service.open_files();
        assert!(open < FILES, "{open} files are open");
    }
    let log = service.log();
    assert!(!log.contains("Too many open files") && !log.contains("os error 24"), "it ran out of files");
    service.kill9();
}
