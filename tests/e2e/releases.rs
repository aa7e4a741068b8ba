//! What consumers say, and what comes of it: come again, cursor, failed, dead, silent, and releases that change nothing.

use std::time::Duration;

use tollgate_harness::resources::{every, http, ms, once, policy, soon, us};
use tollgate_harness::{
    Arrival, Cli, Conduct, Consumer, Database, Kind, Releases, Service, Work, now_us, wait_for,
};
use tollgate_proto::v1::{
    BatchReleaseTokensRequest, EventState, ExtendTokenRequest, Policy, ReleaseOutcome, ReleaseStatus,
    ReleaseTokenRequest, ReleaseTokensRequest, RetryDeadEventsRequest, RetryPolicy, RunState, Schedule,
};
use tonic::Code;

struct World {
    _database: Database,
    service: Service,
    consumer: Consumer,
}

async fn world(kind: Kind, conduct: impl Fn(&Arrival) -> Conduct + Send + Sync + 'static) -> World {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, conduct).await;
    service.create_policy("p", policy(5)).await.unwrap();
    World { _database: database, service, consumer }
}

fn quick_retry(max_attempts: u32) -> Option<RetryPolicy> {
    Some(RetryPolicy {
        max_attempts: Some(max_attempts),
        min_backoff: Some(ms(100)),
        max_backoff: Some(ms(200)),
        ..RetryPolicy::default()
    })
}

async fn an_event_that_asks_to_come_again_comes_again(kind: Kind) {
    let World { _database, service, consumer } = world(kind, |arrival| match arrival.attempt {
        1 => {
            Conduct::release(ReleaseTokenRequest { next_check_time: Some(soon(1_500)), ..Default::default() })
        }
        _ => Conduct::work(0..1),
    })
    .await;
    service.create_schedule("poll", once(soon(800), 3, "p", http(&consumer))).await.unwrap();
    let run = service.finished("poll", 30).await;
    assert_eq!(run.counts.unwrap().succeeded, 3, "{run:?}");
    assert_eq!(consumer.notes.attempts().values().collect::<Vec<_>>(), [&vec![1, 2]; 3]);
    assert_eq!(consumer.notes.released(ReleaseStatus::ComesAgain), 3);
    for id in consumer.notes.attempts().into_keys() {
        let times: Vec<i64> = consumer
            .notes
            .arrivals()
            .iter()
            .filter(|arrival| arrival.event_id == id)
            .map(|arrival| arrival.arrived_us)
            .collect();
        assert!(times[1] - times[0] >= 1_000_000, "came again after {} us", times[1] - times[0]);
    }
    service.stop().await;
}

async fn checks_of_one_thing_are_cleared_by_its_label(kind: Kind) {
    let World { _database, service, consumer } = world(kind, |arrival| match arrival.attempt {
        1 => {
            let ahead_ms = if arrival.schedule == "order-2" { 12_000 } else { 10_000 };
            Conduct::release(ReleaseTokenRequest {
                next_check_time: Some(soon(ahead_ms)),
                ..Default::default()
            })
        }
        _ => Conduct::work(0..1),
    })
    .await;
    let check = |order: &str, at| {
        let labels = [("order".to_owned(), order.to_owned())].into();
        Schedule { labels, ..once(at, 1, "p", http(&consumer)) }
    };
    for (id, order, at) in
        [("order-1", "1", soon(800)), ("order-1-late", "1", soon(10_000)), ("order-2", "2", soon(800))]
    {
        service.create_schedule(id, check(order, at)).await.unwrap();
    }
    wait_for("both first checks", 20, async || {
        (consumer.notes.released(ReleaseStatus::ComesAgain) == 2).then_some(())
    })
    .await;
    let run = service.first_run("order-1").await.name;
    let deleted = Cli::new(service.url()).ok(&["delete", "schedules", "-l", "order=1", "--yes"]);
    assert_eq!(deleted, "deleted 2 schedules of 2 that matched\n");
    let cleared = wait_for("the end of what waited", 20, async || {
        Some(service.run(&run).await).filter(|run| run.finish_time.is_some())
    })
    .await;
    assert_eq!(
        cleared.counts.map(|counts| (counts.cancelled, counts.succeeded)),
        Some((1, 0)),
        "{cleared:?}"
    );
    // The other thing's check comes, later than the cleared ones would have.
    let kept = service.finished("order-2", 30).await;
    assert_eq!(kept.counts.map(|counts| counts.succeeded), Some(1), "{kept:?}");
    let mut came: Vec<(String, u32)> =
        consumer.notes.arrivals().into_iter().map(|arrival| (arrival.schedule, arrival.attempt)).collect();
    came.sort();
    let expected = [("order-1", 1), ("order-2", 1), ("order-2", 2)];
    assert_eq!(came, expected.map(|(schedule, attempt)| (schedule.to_owned(), attempt)));
    service.stop().await;
}

async fn a_cursor_goes_to_the_next_run(kind: Kind) {
    let World { _database, service, consumer } = world(kind, |arrival| {
        let cursor = Some(format!("after {}", arrival.launch_us));
        Conduct::release(ReleaseTokenRequest { cursor, ..Default::default() })
    })
    .await;
    service.create_schedule("pages", every(3, soon(1_000), 1, "p", http(&consumer))).await.unwrap();
    wait_for("three runs", 40, async || (consumer.notes.arrivals_count() >= 3).then_some(())).await;
    let arrivals = consumer.notes.arrivals();
    assert_eq!(arrivals[0].cursor, None);
    for two in arrivals.windows(2) {
        assert_eq!(two[1].cursor, Some(format!("after {}", two[0].launch_us)));
    }
    service.stop().await;
}

async fn outcomes_end_events_as_they_say(kind: Kind) {
    let World { _database, service, consumer } = world(kind, |arrival| {
        let outcome = match (arrival.index, arrival.attempt) {
            (0, _) => ReleaseOutcome::Failed,
            (1, 1) => ReleaseOutcome::Retry,
            _ => ReleaseOutcome::Succeeded,
        };
        let message = format!("index {}", arrival.index);
        Conduct::release(ReleaseTokenRequest { outcome: outcome.into(), message, ..Default::default() })
    })
    .await;
    let schedule = Schedule { retry: quick_retry(5), ..once(soon(800), 4, "p", http(&consumer)) };
    service.create_schedule("mixed", schedule).await.unwrap();
    let run = service.finished("mixed", 30).await;
    let counts = run.counts.unwrap();
    assert_eq!((counts.succeeded, counts.failed, counts.dead), (3, 1, 0), "{run:?}");
    let events = service.events(&run.name).await;
    assert_eq!((events[0].state(), &*events[0].message), (EventState::Failed, "index 0"), "{events:?}");
    assert_eq!((events[1].state(), events[1].attempt), (EventState::Succeeded, 2), "{events:?}");
    consumer.notes.assert_clean();
    service.stop().await;
}

async fn a_bad_consumer_leads_to_dead_events_and_retry_brings_them_back(kind: Kind) {
    let well = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let cured = well.clone();
    let World { _database, service, consumer } = world(kind, move |arrival| {
        if well.load(std::sync::atomic::Ordering::SeqCst) {
            return Conduct::work(0..1);
        }
        match arrival.index {
            0 => Conduct::Answer(500),
            1 => Conduct::Answer(503),
            _ => Conduct::Answer(400),
        }
    })
    .await;
    let schedule = Schedule { retry: quick_retry(3), ..once(soon(800), 3, "p", http(&consumer)) };
    service.create_schedule("bad", schedule).await.unwrap();
    let run = service.finished("bad", 40).await;
    assert_eq!((run.state(), run.counts.unwrap().dead), (RunState::FinishedWithFailures, 3), "{run:?}");
    let events = service.events(&run.name).await;
    assert!(
        events.iter().all(|event| event.state() == EventState::Dead && !event.message.is_empty()),
        "{events:?}"
    );
    assert_eq!(events[0].attempt, 3, "{events:?}");
    assert_eq!(service.held_count().await, 0, "the dead hold no tokens");
    cured.store(true, std::sync::atomic::Ordering::SeqCst);
    let request = RetryDeadEventsRequest { parent: run.name.clone(), ..Default::default() };
    let retried = service.handler().retry_dead_events(request).await.unwrap().into_inner();
    assert_eq!(retried.retried_count, 3);
    wait_for("the retried events", 20, async || {
        let counts = service.run(&run.name).await.counts.unwrap();
        (counts.succeeded == 3 && counts.dead == 0).then_some(())
    })
    .await;
    // The same ids, and attempts that go on growing.
    assert_eq!(consumer.notes.attempts().len(), 3);
    consumer.notes.assert_clean();
    service.stop().await;
}

/// Whether the consumer has the event is not known then: it keeps its token, and comes again with the same id.
async fn a_consumer_that_hangs_or_breaks_off_gets_the_same_event_again(kind: Kind) {
    let World { _database, service, consumer } =
        world(kind, |arrival| match (arrival.attempt, arrival.index % 2) {
            (1, 0) => Conduct::Hang,
            (1, _) => Conduct::Reset,
            _ => Conduct::work(0..1),
        })
        .await;
    let mut target = http(&consumer);
    if let Some(tollgate_proto::v1::target::Target::Http(http)) = &mut target.target {
        http.deadline = Some(ms(1_500));
    }
    let schedule = Schedule { retry: quick_retry(5), ..once(soon(800), 5, "p", target) };
    service.create_schedule("hung", schedule).await.unwrap();
    let run = service.finished("hung", 40).await;
    assert_eq!(run.counts.unwrap().succeeded, 5, "{run:?}");
    assert_eq!(consumer.notes.attempts().len(), 5);
    consumer.notes.assert_clean();
    service.stop().await;
}

async fn a_silent_consumer_loses_its_token_and_a_heartbeat_keeps_it(kind: Kind) {
    let World { _database, service, consumer } =
        world(kind, |arrival| match (&*arrival.schedule, arrival.attempt) {
            ("silent", 1) | ("alive", _) => Conduct::keep(),
            _ => Conduct::work(0..1),
        })
        .await;
    let short = Policy { token_ttl: Some(ms(3_000)), suspect_period: Some(ms(1_000)), ..policy(2) };
    service.create_policy("short", short).await.unwrap();
    let started = soon(3_000);
    for id in ["silent", "alive"] {
        let schedule = Schedule { retry: quick_retry(5), ..once(started, 1, "short", http(&consumer)) };
        service.create_schedule(id, schedule).await.unwrap();
    }
    wait_for("both events", 20, async || (consumer.notes.arrivals_count() >= 2).then_some(())).await;
    let alive = consumer.notes.arrivals().into_iter().find(|arrival| arrival.schedule == "alive").unwrap();
    let attempts = async |id: &str| {
        consumer
            .notes
            .arrivals()
            .iter()
            .filter(|arrival| arrival.schedule == id)
            .map(|arrival| arrival.attempt)
            .collect::<Vec<_>>()
    };
    // For twice as long as silence is allowed, and until the silent one has come again.
    while now_us() < us(Some(started)) + 9_000_000 || attempts("silent").await.len() < 2 {
        assert!(now_us() < us(Some(started)) + 90_000_000, "what is silent does not come again");
        let request = ExtendTokenRequest { name: alive.event_id.clone(), attempt: Some(1), ttl: None };
        service.handler().extend_token(request).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(attempts("alive").await, [1], "heartbeats keep the token");
    assert_eq!(attempts("silent").await, [1, 2], "reclaimed once, then released");
    assert_eq!(service.finished("silent", 10).await.counts.unwrap().succeeded, 1);
    // The release of the reclaimed attempt comes too late, and changes nothing.
    let silent = consumer.notes.arrivals().into_iter().find(|arrival| arrival.schedule == "silent").unwrap();
    let late = ReleaseTokenRequest { name: silent.event_id, attempt: Some(1), ..Default::default() };
    let status = service.handler().release_token(late).await.unwrap().into_inner().status();
    assert!([ReleaseStatus::Late, ReleaseStatus::AlreadyReleased].contains(&status), "{status:?}");
    service.stop().await;
}

/// An id that was not issued: the last character is another one.
fn forged(id: &str) -> String {
    let (start, end) = id.split_at(id.len() - 1);
    format!("{start}{}", if end == "0" { "1" } else { "0" })
}

async fn releases_that_change_nothing_are_answered_clearly(kind: Kind) {
    let World { _database, service, consumer } = world(kind, |arrival| match arrival.index {
        0 => {
            let releases = vec![ReleaseTokenRequest::default(); 2];
            Conduct::Take(Work { time: Duration::ZERO, releases })
        }
        _ => Conduct::keep(),
    })
    .await;
    service.create_schedule("s", once(soon(800), 2, "p", http(&consumer))).await.unwrap();
    wait_for("two answers", 20, async || {
        (consumer.notes.releases().len() == 2 && consumer.notes.arrivals_count() == 2).then_some(())
    })
    .await;
    let statuses: Vec<ReleaseStatus> =
        consumer.notes.releases().into_iter().map(|(_, status)| status).collect();
    assert_eq!(statuses, [ReleaseStatus::Released, ReleaseStatus::AlreadyReleased]);
    let held = consumer.notes.arrivals().into_iter().find(|arrival| arrival.index == 1).unwrap().event_id;
    let of = |name: &str| ReleaseTokenRequest { name: name.to_owned(), ..Default::default() };
    let unknown = [forged(&held), "nonsense".to_owned(), held.replace('-', "_"), "ff".repeat(30)];
    for name in &unknown {
        let status = service.handler().release_token(of(name)).await.unwrap_err();
        assert!(matches!(status.code(), Code::NotFound | Code::InvalidArgument), "{name}: {status:?}");
        assert!(!status.message().is_empty());
    }
    // In a batch each has its own answer, and the good one counts.
    let mut releases: Vec<_> = unknown.iter().map(|name| of(name)).collect();
    releases.push(of(&held));
    releases.push(of(&held));
    let request = BatchReleaseTokensRequest { releases: releases.clone() };
    let responses = service.handler().batch_release_tokens(request).await.unwrap().into_inner().responses;
    let statuses: Vec<ReleaseStatus> = responses.iter().map(|response| response.status()).collect();
    let refused = [ReleaseStatus::Unknown, ReleaseStatus::Invalid];
    assert!(statuses[..4].iter().all(|status| refused.contains(status)), "{statuses:?}");
    assert_eq!(statuses[4..], [ReleaseStatus::Released, ReleaseStatus::AlreadyReleased], "{statuses:?}");
    let stream = tokio_stream::iter([ReleaseTokensRequest { releases }]);
    let answer = service.handler().release_tokens(stream).await.unwrap().into_inner();
    assert_eq!((answer.released_count, answer.already_released_count), (0, 2), "{answer:?}");
    assert_eq!(answer.unknown_count + answer.invalid_count, 4, "{answer:?}");
    assert_eq!(answer.problems.len(), 4, "{answer:?}");
    let run = service.finished("s", 10).await;
    assert_eq!(run.counts.unwrap().succeeded, 2, "{run:?}");
    let answer = Cli::new(service.url()).run(&["release", &forged(&held)]);
    assert_eq!(answer.code, 1, "{answer:?}");
    service.stop().await;
}

on_both_stores!(
    an_event_that_asks_to_come_again_comes_again,
    checks_of_one_thing_are_cleared_by_its_label,
    a_cursor_goes_to_the_next_run,
    outcomes_end_events_as_they_say,
    a_bad_consumer_leads_to_dead_events_and_retry_brings_them_back,
    a_consumer_that_hangs_or_breaks_off_gets_the_same_event_again,
    a_silent_consumer_loses_its_token_and_a_heartbeat_keeps_it,
    releases_that_change_nothing_are_answered_clearly,
);
