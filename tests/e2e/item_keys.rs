//! Limits by the keys of items: what each tenant of one list has in flight at the sink, also after a power cut; why an item
//! waits.

use std::collections::BTreeMap;

use tollgate_harness::resources::{http, once, policy_name, schedule_name};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, Service, now_us, wait_for};
use tollgate_proto::v1::submit_items_request::Part;
use tollgate_proto::v1::{
    EventState, ExplainEventRequest, GetPolicyQueueRequest, Item, Items, ListEventsRequest, PolicyQueue,
    ReasonCode, Run, RunState, Schedule, SubmissionHeader, SubmitItemsRequest,
};

use crate::keys::{WORK_MS, at_once, by_key};

/// A list whose first tenant has many, and of which some items have no key.
fn list(first: usize) -> Vec<Item> {
    let item = |key: &str| Item { data: "{}".to_owned(), key: key.to_owned(), units: 0 };
    let mut items = vec![item("acme"); first];
    for _ in 0..10 {
        items.extend(["zeta", "", "beta"].map(item));
    }
    items
}

/// Submits items to a schedule of the key `house`, whose run falls due at once.
async fn submit(service: &Service, consumer: &Consumer, items: Vec<Item>) -> Run {
    let at = prost_types::Timestamp { seconds: now_us() / 1_000_000 + 7 * 86_400, nanos: 0 };
    let schedule = Schedule { key: "house".to_owned(), ..once(at, 1, "p", http(consumer)) };
    service.create_schedule("list", schedule).await.unwrap();
    let part = |part| SubmitItemsRequest { part: Some(part) };
    let (name, request_id) = (schedule_name("list"), "r".to_owned());
    let header = SubmissionHeader { name, request_id, ..SubmissionHeader::default() };
    let parts = [part(Part::Header(header)), part(Part::Items(Items { items }))];
    let made = service.master().submit_items(tokio_stream::iter(parts)).await.unwrap().into_inner();
    made.run.unwrap()
}

async fn queue(service: &Service) -> PolicyQueue {
    let request = GetPolicyQueueRequest { name: policy_name("p"), ..GetPolicyQueueRequest::default() };
    service.handler().get_policy_queue(request).await.unwrap().into_inner()
}

async fn held(service: &Service) -> BTreeMap<String, u32> {
    let keys = queue(service).await.keys;
    keys.into_iter().filter(|key| key.held_count > 0).map(|key| (key.key, key.held_count)).collect()
}

async fn holds(service: &Service, expected: &[(&str, u32)]) {
    let expected: BTreeMap<String, u32> = expected.iter().map(|(key, n)| ((*key).to_owned(), *n)).collect();
    wait_for(&format!("tokens of {expected:?}"), 30, async || {
        (held(service).await == expected).then_some(())
    })
    .await;
}

async fn each_item_counts_as_its_own_key(kind: Kind) {
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let link = service.link();
    let consumer =
        Consumer::start(link.clone(), Releases::Unary, |_| Conduct::work(WORK_MS..WORK_MS + 20)).await;
    service.create_policy("p", by_key()).await.unwrap();
    let items = list(30);
    let run = submit(&service, &consumer, items.clone()).await;
    holds(&service, &[("acme", 2), ("zeta", 2), ("beta", 2), ("house", 2)]).await;
    service.kill9();
    service = Service::start(&database).await;
    link.follow(&service);
    let run = { service.finished("list", 90).await.name == run.name }.then_some(run).unwrap();
    let ended = service.finished("list", 1).await;
    assert_eq!(
        (ended.state(), ended.counts.unwrap().succeeded),
        (RunState::Finished, run.events),
        "{ended:?}"
    );
    consumer.notes.assert_clean();
    let arrivals = consumer.notes.arrivals();
    for key in ["acme", "zeta", "beta", "house"] {
        assert_eq!(at_once(&arrivals, key), 2, "{key:?}: {arrivals:?}");
    }
    for arrival in &arrivals {
        let key = &items[arrival.index as usize].key;
        assert_eq!(&arrival.key, if key.is_empty() { "house" } else { key }, "{arrival:?}");
    }
    // What stands behind the first tenant's did not wait for it.
    let last = |key: &str| arrivals.iter().filter(|a| a.key == key).map(|a| a.arrived_us).max().unwrap();
    assert!(last("zeta") + 3_000_000 < last("acme"), "{arrivals:?}");
    service.stop().await;
}

async fn why_an_item_waits(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("p", by_key()).await.unwrap();
    let run = submit(&service, &consumer, list(300)).await;
    holds(&service, &[("acme", 2), ("zeta", 2), ("beta", 2), ("house", 2)]).await;
    let queue = wait_for("what is held in the rows of runs", 10, async || {
        let queue = queue(&service).await;
        (queue.waiters.first()?.waiting_count == 330 - 8).then_some(queue)
    })
    .await;
    let acme = queue.keys.iter().find(|key| key.key == "acme").unwrap();
    assert_eq!((acme.waiting_count, queue.keys_unread_count), (298, 0), "{queue:?}");
    assert_eq!(queue.waiters.len(), 1);
    let events = service.events(&run.name).await;
    let request = ExplainEventRequest { name: events[20].name.clone() };
    let why = service.handler().explain_event(request).await.unwrap().into_inner();
    assert_eq!(why.reasons[0].code(), ReasonCode::KeyLimitReached, "{why:?}");
    assert!(why.summary.contains("the events of the key \"acme\" hold all tokens"), "{why:?}");
    assert_eq!(why.holders.len(), 2, "those of its key: {why:?}");
    let listed = ListEventsRequest {
        parent: run.name.clone(),
        filter: "state=WAITING".to_owned(),
        page_size: 1_000,
        ..ListEventsRequest::default()
    };
    let waiting = service.handler().list_events(listed).await.unwrap().into_inner().events;
    let held: Vec<u32> =
        events.iter().filter(|event| event.state() != EventState::Waiting).map(|event| event.index).collect();
    assert_eq!((waiting.len(), held.len()), (322, 8));
    assert!(waiting.iter().all(|event| !held.contains(&event.index)));
    let id = run.name.rsplit('/').next().unwrap();
    let of_zeta = cli.ok(&["get", "events", id, "--filter", "key=zeta"]);
    assert!(of_zeta.contains("KEY") && of_zeta.contains("zeta") && !of_zeta.contains("acme"), "{of_zeta}");
    // An item without a key has its schedule's.
    let of_house = cli.ok(&["get", "events", id, "--filter", "key=house"]);
    assert!(of_house.contains("house") && !of_house.contains("zeta"), "{of_house}");
    // One key is steered.
    cli.ok(&["limit", "p", "acme", "--max-in-flight", "5"]);
    holds(&service, &[("acme", 5), ("zeta", 2), ("beta", 2), ("house", 2)]).await;
    cli.ok(&["limit", "p", "zeta", "--max-in-flight", "9", "--pause", "--reason", "they asked"]);
    let why = cli.ok(&["why", &events[300 + 3 * 9].event_id]);
    assert!(why.contains("the events of the key \"zeta\" are paused (they asked)"), "{why}");
    cli.ok(&["limit", "p", "zeta", "--resume"]);
    holds(&service, &[("acme", 5), ("zeta", 9), ("beta", 2), ("house", 2)]).await;
    // What has not started is cancelled once, wherever it stands; what is held stays.
    cli.ok(&["cancel", id]);
    let ended = wait_for("the rest to be cancelled", 30, async || {
        let run = service.runs("list").await.remove(0);
        (run.counts.unwrap().cancelled > 0).then_some(run)
    })
    .await;
    assert_eq!(ended.counts.unwrap().cancelled, run.events - 18, "{ended:?}");
    let states = service.events(&run.name).await.into_iter().map(|event| event.state());
    let cancelled = states.filter(|state| *state == EventState::Cancelled).count();
    assert_eq!(cancelled as u32, run.events - 18);
    service.stop().await;
}

on_both_stores!(each_item_counts_as_its_own_key, why_an_item_waits);
