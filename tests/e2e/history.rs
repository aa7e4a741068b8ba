//! History by the minute is what the runs say, whatever ends the process that counted it.

use std::time::Duration;

use tollgate_harness::resources::{http, once, policy, policy_name, soon};
use tollgate_harness::{
    Arrival, Cli, Conduct, Consumer, Database, Kind, Releases, Service, Work, now_us, wait_for,
};
use tollgate_proto::convert::timestamp;
use tollgate_proto::v1::{
    HistoryPoint, ListHistoryRequest, ReleaseMode, ReleaseOutcome, ReleaseTokenRequest, RetryPolicy,
    RunCounts, Schedule, Target,
};
use tonic::Code;

use crate::metrics::page;

const EVENTS: u32 = 60;

/// Of six events four go well, one fails for good, and one is refused until it is dead.
fn conduct(arrival: &Arrival) -> Conduct {
    match arrival.index % 6 {
        0 => Conduct::Answer(500),
        1 => {
            let outcome = ReleaseOutcome::Failed.into();
            let release = ReleaseTokenRequest { outcome, ..ReleaseTokenRequest::default() };
            Conduct::Take(Work { time: Duration::from_millis(5), releases: vec![release] })
        }
        _ => Conduct::work(0..20),
    }
}

async fn runs_to_its_end(service: &Service, consumer: &Consumer, schedule: &str, policy: &str) -> RunCounts {
    let retry = RetryPolicy {
        max_attempts: Some(2),
        min_backoff: Some(tollgate_harness::resources::ms(100)),
        max_backoff: Some(tollgate_harness::resources::ms(200)),
        ..RetryPolicy::default()
    };
    let target = Target { release: ReleaseMode::Explicit.into(), ..http(consumer) };
    let made = once(soon(1_000), EVENTS, policy, target);
    service.create_schedule(schedule, Schedule { retry: Some(retry), ..made }).await.unwrap();
    let counts = service.finished(schedule, 60).await.counts.unwrap();
    assert_eq!((counts.succeeded, counts.failed, counts.dead), (40, 10, 10), "{counts:?}");
    counts
}

async fn points(service: &Service, parent: &str) -> Vec<HistoryPoint> {
    let (from_us, to_us) = (now_us() - 1_800_000_000, now_us() + 60_000_000);
    let request = ListHistoryRequest {
        parent: parent.to_owned(),
        from_time: Some(timestamp(from_us)),
        to_time: Some(timestamp(to_us)),
        ..ListHistoryRequest::default()
    };
    service.handler().list_history(request).await.unwrap().into_inner().points
}

/// Due, started, retried, succeeded, failed, dead.
async fn sums(service: &Service, parent: &str) -> [u64; 6] {
    let mut sums = [0; 6];
    for point in points(service, parent).await {
        let HistoryPoint {
            due_count,
            started_count,
            retried_count,
            succeeded_count,
            failed_count,
            dead_count,
            ..
        } = point;
        let counts = [due_count, started_count, retried_count, succeeded_count, failed_count, dead_count];
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    sums
}

/// What so many runs come to.
fn of_runs(runs: u64) -> [u64; 6] {
    [60, 60, 10, 40, 10, 10].map(|count| count * runs)
}

async fn reaches(service: &Service, parent: &str, expected: [u64; 6]) {
    let began = std::time::Instant::now();
    loop {
        let seen = sums(service, parent).await;
        if seen == expected {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(90), "{parent}: {seen:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn sums_survive_kills_and_hand_overs(kind: Kind) {
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let link = service.link();
    let consumer = Consumer::start(link.clone(), Releases::Unary, conduct).await;
    for id in ["p", "idle"] {
        service.create_policy(id, policy(10)).await.unwrap();
    }
    let p = policy_name("p");
    runs_to_its_end(&service, &consumer, "first", "p").await;
    reaches(&service, &p, of_runs(1)).await;
    service.kill9();
    service = Service::start(&database).await;
    link.follow(&service);
    assert_eq!(sums(&service, &p).await, of_runs(1), "after a kill");
    runs_to_its_end(&service, &consumer, "second", "p").await;
    // It is asked to stop at once, and the next process begins within the same minute.
    service.stop().await;
    service = Service::start(&database).await;
    link.follow(&service);
    assert_eq!(sums(&service, &p).await, of_runs(2), "after a planned stop");
    runs_to_its_end(&service, &consumer, "third", "").await;
    reaches(&service, "namespaces/default", of_runs(3)).await;
    reaches(&service, "", of_runs(3)).await;
    assert_eq!(sums(&service, &p).await, of_runs(2), "what has no policy is the namespace's");
    assert_eq!(sums(&service, &policy_name("idle")).await, [0; 6]);
    assert_eq!(sums(&service, "namespaces/other").await, [0; 6]);
    is_told_by_rest_and_client(&service).await;
    service.stop().await;
}

async fn is_told_by_rest_and_client(service: &Service) {
    for path in [
        "/v1/history?step=60s",
        "/v1/namespaces/default/history",
        "/v1/namespaces/default/policies/p/history",
    ] {
        let answer = page(service, path, "application/json").await;
        assert!(answer.status == 200 && answer.body.contains("\"step\":\"60s\""), "{path}: {}", answer.body);
        assert_eq!(answer.body.matches("\"time\":").count(), 60, "{path}: the last hour");
    }
    for (parent, code) in [("namespaces/default/policies/none", Code::NotFound), ("x", Code::InvalidArgument)]
    {
        let request = ListHistoryRequest { parent: parent.to_owned(), ..ListHistoryRequest::default() };
        assert_eq!(service.handler().list_history(request).await.unwrap_err().code(), code, "{parent}");
    }
    let cli = Cli::new(service.url());
    let text = cli.ok(&["history", "policy", "p", "--since", "30m", "--step", "30m"]);
    assert!(text.starts_with("FROM") && text.contains("SUCCEEDED"), "{text}");
    let told: u64 = text
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(told, 80, "{text}");
    assert!(cli.ok(&["history", "--since", "30m"]).lines().count() >= 2);
    assert_eq!(cli.ok(&["history", "policy", "idle"]), "nothing happened\n");
    assert_eq!(cli.run(&["history", "plan", "p"]).code, 2);
}

/// What waits under a pause is seen as long as it does.
async fn what_waits_is_seen(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("p", policy(3)).await.unwrap();
    service.create_schedule("s", once(soon(500), 20, "p", http(&consumer))).await.unwrap();
    let waits = async || {
        let points = points(&service, &policy_name("p")).await;
        // A minute that ended before all three were sent has other counts.
        points.into_iter().find(|point| (point.waiting_count, point.held_count) == (17, 3))
    };
    wait_for("a minute in which 17 wait and 3 are held", 60, waits).await;
    service.stop().await;
}

on_both_stores!(sums_survive_kills_and_hand_overs, what_waits_is_seen);
