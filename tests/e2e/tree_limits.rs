//! What policies in a tree have in flight at the sink, also after a power cut; who waits for whom.

use tollgate_harness::resources::{http, once, policy_name, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::{ExplainEventRequest, Policy, PolicyGauge, ReasonCode, Schedule};

use crate::keys::{WORK_MS, at_once};

async fn plant(service: &Service) {
    let below = |parent: &str| Policy { parent: Some(parent.to_owned()), ..Policy::default() };
    let root = Policy { max_in_flight: Some(6), ..Policy::default() };
    service.create_policy("root", root).await.unwrap();
    service.create_policy("large", Policy { max_in_flight: Some(5), ..below("root") }).await.unwrap();
    service.create_policy("middle", Policy { floor: Some(3), ..below("root") }).await.unwrap();
    service.create_policy("small", below("middle")).await.unwrap();
}

async fn gauge(service: &Service, id: &str) -> PolicyGauge {
    let gauges = service.status().await.unwrap().policies;
    gauges.into_iter().find(|gauge| gauge.policy == policy_name(id)).unwrap_or_default()
}

/// Tokens held by a policy's own events and by those below it.
async fn holds(service: &Service, id: &str, expected: (u64, u64)) {
    wait_for(&format!("{expected:?} held by {id}"), 30, async || {
        let gauge = gauge(service, id).await;
        ((gauge.held_count, gauge.below_count) == expected).then_some(())
    })
    .await;
}

fn of(policy: &str, events: u32, consumer: &Consumer) -> Schedule {
    // All of one key, by which the sink counts them together.
    Schedule { key: "all".to_owned(), ..once(soon(3_000), events, policy, http(consumer)) }
}

async fn no_policy_of_a_tree_has_more_than_it_may(kind: Kind) {
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let link = service.link();
    let consumer =
        Consumer::start(link.clone(), Releases::Unary, |_| Conduct::work(WORK_MS..WORK_MS + 20)).await;
    plant(&service).await;
    service.create_schedule("l", of("large", 40, &consumer)).await.unwrap();
    service.create_schedule("s", of("small", 40, &consumer)).await.unwrap();
    holds(&service, "root", (0, 6)).await;
    service.kill9();
    service = Service::start(&database).await;
    link.follow(&service);
    for id in ["l", "s"] {
        let ended = service.finished(id, 90).await;
        assert_eq!(ended.counts.unwrap().succeeded, 40, "{ended:?}");
    }
    consumer.notes.assert_clean();
    let arrivals = consumer.notes.arrivals();
    assert_eq!(at_once(&arrivals, "all"), 6, "of the root: {arrivals:?}");
    let large: Vec<_> = arrivals.iter().filter(|arrival| arrival.policy == "large").cloned().collect();
    assert!(at_once(&large, "all") <= 5, "{large:?}");
    holds(&service, "root", (0, 0)).await;
    service.stop().await;
}

async fn why_names_the_policy_above(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    plant(&service).await;
    service.create_schedule("l", of("large", 20, &consumer)).await.unwrap();
    holds(&service, "large", (5, 0)).await;
    service.create_schedule("s", of("small", 20, &consumer)).await.unwrap();
    holds(&service, "root", (0, 6)).await;
    holds(&service, "middle", (0, 1)).await;
    let run = service.runs("s").await.remove(0);
    let events = service.events(&run.name).await;
    let request = ExplainEventRequest { name: events[10].name.clone() };
    let why = service.handler().explain_event(request).await.unwrap().into_inner();
    assert_eq!(why.reasons[0].code(), ReasonCode::LimitReached, "{why:?}");
    assert!(why.summary.contains("by root, a policy above its own"), "{why:?}");
    assert_eq!(why.holders.len(), 6, "those of the whole tree: {why:?}");
    // A release of the one goes to the floor of the other.
    let held = service.events(&service.runs("l").await[0].name).await;
    let cli = tollgate_harness::Cli::new(service.url());
    for event in held.iter().take(2) {
        cli.ok(&["release", &event.event_id]);
    }
    holds(&service, "middle", (0, 3)).await;
    holds(&service, "large", (3, 0)).await;
    service.stop().await;
}

on_both_stores!(no_policy_of_a_tree_has_more_than_it_may, why_names_the_policy_above);
