//! What a target takes and refuses is told by target: over the API, `/metrics`, the command line and the console, of one
//! process and of several.

use serde_json::Value;
use tollgate_harness::resources::{PARENT, http, ms, once, policy, soon};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, Service, lasting_shares, wait_for};
use tollgate_proto::v1::{GetHandlerStatusRequest, HandlerStatus, RetryPolicy, Schedule, TargetGauge};

use crate::console::Browser;
use crate::metrics::page;

async fn status(service: &Service, parent: &str) -> HandlerStatus {
    let asked = GetHandlerStatusRequest { parent: parent.to_owned(), busy_only: false };
    service.handler().get_handler_status(asked).await.unwrap().into_inner()
}

fn patient() -> Option<RetryPolicy> {
    Some(RetryPolicy {
        max_attempts: Some(1_000),
        min_backoff: Some(ms(200)),
        max_backoff: Some(ms(1_000)),
        ..RetryPolicy::default()
    })
}

/// Waits until there is a target at this address that looks as wanted.
async fn seen(service: &Service, address: &str, wanted: impl Fn(&TargetGauge) -> bool) -> TargetGauge {
    wait_for("the target", 30, async || {
        let all = status(service, PARENT).await.targets;
        all.into_iter().find(|gauge| gauge.target == address && wanted(gauge))
    })
    .await
}

/// The value of a target's series.
fn scraped(text: &str, name: &str, address: &str) -> Option<f64> {
    let series = format!("tollgate_target_{name}{{namespace=\"default\",target=\"{address}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok())
}

async fn one_target_takes_and_another_refuses(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let well = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    let sick = Consumer::start(service.link(), Releases::Unary, |_| Conduct::Answer(503)).await;
    let (good, bad) = (well.url(), sick.url());
    let (good, bad) = (address(&good), address(&bad));
    for (id, limit) in [("first", 3), ("second", 2), ("third", 4)] {
        service.create_policy(id, policy(limit)).await.unwrap();
    }
    let at = soon(5_000);
    for (id, policy, consumer) in [("a", "first", &well), ("b", "second", &well), ("c", "third", &sick)] {
        let schedule = Schedule { retry: patient(), ..once(at, 6, policy, http(consumer)) };
        service.create_schedule(id, schedule).await.unwrap();
    }
    let all_taken = |gauge: &TargetGauge| gauge.held_count == 5 && gauge.accepted_per_second > 4.5 / 60.0;
    let taken = seen(&service, good, all_taken).await;
    assert_eq!(
        (taken.waiting_count, taken.retrying_count, taken.refusing),
        (7, 0, false),
        "of both schedules"
    );
    assert_eq!((taken.refused_per_second, taken.unclear_per_second), (0.0, 0.0), "{taken:?}");
    assert!(taken.last_error.is_empty() && taken.parent == PARENT, "{taken:?}");
    let refused =
        seen(&service, bad, |gauge| gauge.refused_per_second > 0.2 && gauge.retrying_count > 0).await;
    assert!(refused.refusing && refused.last_error.contains("503"), "{refused:?}");
    assert_eq!((refused.started_per_second, refused.accepted_per_second), (0.0, 0.0), "nothing has started");
    let all = status(&service, "").await;
    assert_eq!(
        (all.targets.len(), all.targets[0].target.as_str()),
        (2, bad),
        "that which refuses comes first"
    );
    assert_eq!(all.omitted_targets_count, 0);
    assert_eq!(
        status(&service, "namespaces/other").await.targets,
        [],
        "another namespace has sent nothing there"
    );
    over_rest(&service, bad).await;
    on_the_command_line(&service, good, bad);
    let text = page(&service, "/metrics", "text/plain").await.body;
    assert_eq!(scraped(&text, "in_flight", good), Some(5.0), "{text}");
    assert_eq!(scraped(&text, "accepted_per_second", bad), Some(0.0));
    assert!(scraped(&text, "refused_per_second", bad).unwrap() > 0.0);
    assert!(text.contains("\ntollgate_targets_left_out 0"), "{text}");
    let browser = Browser::new(&service);
    browser.page("/n/default").await.shows(&["Targets, those that refuse first", good, bad, "refusing"]);
    browser.page("/n/default/schedules/c").await.shows(&["Its target", bad, "refusing"]);
    service.stop().await;
}

/// Scheme, host and port.
fn address(url: &str) -> &str {
    let host = url.find("://").unwrap() + 3;
    url[host..].find('/').map_or(url, |end| &url[..host + end])
}

async fn over_rest(service: &Service, bad: &str) {
    for path in ["/v1/handlerStatus", "/v1/namespaces/default/handlerStatus?busyOnly=true"] {
        let body = page(service, path, "application/json").await.body;
        let told: Value = serde_json::from_str(&body).unwrap();
        let first = &told["targets"][0];
        assert_eq!(
            (first["target"].as_str(), first["refusing"].as_bool()),
            (Some(bad), Some(true)),
            "{body}"
        );
        assert!(first["refusedPerSecond"].as_f64().unwrap() > 0.0, "{body}");
    }
}

fn on_the_command_line(service: &Service, good: &str, bad: &str) {
    let cli = Cli::new(service.url());
    let text = cli.ok(&["status"]);
    let line = |address: &str| text.lines().find(|line| line.starts_with(&format!("{address} "))).unwrap();
    assert!(line(bad).contains("REFUSING") && line(good).contains("OK"), "{text}");
    assert!(text.find("POLICY") < text.find("TARGET"), "{text}");
    assert!(cli.ok(&["status", "-o", "wide"]).contains("503"), "what it said");
    let told = cli.json(&["status"]);
    assert_eq!(told["handler"]["targets"][0]["target"], bad, "{told}");
}

on_both_stores!(one_target_takes_and_another_refuses);

/// Queue shards of two processes send to one target: either process tells of all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_add_up_what_they_send_to_one_target() {
    let database = Database::new(Kind::Postgres).await;
    let services = [Service::join(&database, &[]).await, Service::join(&database, &[]).await];
    let ids = [status(&services[0], "").await.handler, status(&services[1], "").await.handler];
    lasting_shares(&ids.into(), async || status(&services[0], "").await).await;
    let consumer = Consumer::start(services[0].link(), Releases::Unary, |_| Conduct::keep()).await;
    let url = consumer.url();
    let address = address(&url);
    for number in 0..12 {
        let id = format!("p{number}");
        services[0].create_policy(&id, policy(2)).await.unwrap();
        // Chosen anew for each: a slow disk must not leave the last ones behind their moment.
        services[0].create_schedule(&id, once(soon(5_000), 3, &id, http(&consumer))).await.unwrap();
    }
    for service in &services {
        let gauge = seen(service, address, |gauge| gauge.held_count == 24).await;
        assert_eq!((gauge.waiting_count, gauge.retrying_count), (12, 0));
    }
    let mut parts = Vec::new();
    for service in &services {
        let text = page(service, "/metrics", "text/plain").await.body;
        parts.push(scraped(&text, "in_flight", address).unwrap_or_default());
    }
    assert!(parts.iter().all(|part| *part > 0.0), "each sends some: {parts:?}");
    assert_eq!(parts.iter().sum::<f64>(), 24.0, "and tells of its own");
    for service in services {
        service.stop().await;
    }
}
