//! Items that are submitted: what consumers get, what is kept of broken uploads, what people find.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_harness::machine::{Machine, compile};
use tollgate_harness::resources::{http, once, policy, schedule_name, us};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, now_us, wait_for};
use tollgate_proto::v1::submit_items_request::Part;
use tollgate_proto::v1::{
    EventState, GetEventRequest, GetSubmissionRequest, Item, Items, ListEventsRequest, RunKind, RunState,
    Schedule, Submission, SubmissionHeader, SubmissionState, SubmitItemsRequest,
};
use tonic::Status;

/// A schedule that does not fire by itself while a test runs.
fn manual(consumer: &Consumer, policy: &str) -> Schedule {
    let at = prost_types::Timestamp { seconds: now_us() / 1_000_000 + 7 * 86_400, nanos: 0 };
    once(at, 1, policy, http(consumer))
}

fn header(request_id: &str) -> SubmissionHeader {
    let request_id = request_id.to_owned();
    SubmissionHeader { name: schedule_name("list"), request_id, ..SubmissionHeader::default() }
}

fn item(index: u32) -> Item {
    let data =
        json!({"n": index, "text": "x".repeat(index as usize % 700), "who": format!("t{}", index % 7)});
    Item { data: data.to_string(), key: format!("t{}", index % 7), units: 0 }
}

/// What a stream of these items is made of; a hundred in a message.
fn parts(header: SubmissionHeader, items: Vec<Item>) -> Vec<SubmitItemsRequest> {
    let part = |part| SubmitItemsRequest { part: Some(part) };
    let mut parts = vec![part(Part::Header(header))];
    parts.extend(items.chunks(100).map(|items| part(Part::Items(Items { items: items.to_vec() }))));
    parts
}

async fn submit(service: &Service, header: SubmissionHeader, items: Vec<Item>) -> Result<Submission, Status> {
    let stream = tokio_stream::iter(parts(header, items));
    Ok(service.master().submit_items(stream).await?.into_inner())
}

async fn standing(service: &Service, request_id: &str) -> Option<Submission> {
    let name = format!("{}/submissions/{request_id}", schedule_name("list"));
    service.master().get_submission(GetSubmissionRequest { name }).await.ok().map(tonic::Response::into_inner)
}

async fn each_event_carries_its_item(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..5)).await;
    service.create_policy("p", policy(20)).await.unwrap();
    let payload: prost_types::Value =
        tollgate_proto::convert::payload::from_json(&json!({"from": "schedule", "n": -1}));
    let schedule = Schedule { payload: Some(payload), ..manual(&consumer, "p") };
    service.create_schedule("list", schedule).await.unwrap();
    let payload =
        tollgate_proto::convert::payload::from_json(&json!({"from": "submission", "day": "2026-11-25"}));
    let ahead = now_us() / 1_000_000 + 15;
    let launch_time = Some(prost_types::Timestamp { seconds: ahead, nanos: 0 });
    let asked =
        SubmissionHeader { payload: Some(payload), launch_time, priority: Some(7), ..header("first") };
    let mut items: Vec<Item> = (0..1_500).map(item).collect();
    items[3] = Item { data: "[1.50, 12345678901234567890]".to_owned(), key: String::new(), units: 0 };
    let made = submit(&service, asked.clone(), items.clone()).await.unwrap();
    let run = made.run.unwrap();
    assert_eq!((run.kind(), run.events, run.priority), (RunKind::Submitted, 1_500, 7));
    assert!(consumer.notes.arrivals().is_empty(), "it is not due yet");
    let again = submit(&service, asked, items).await.unwrap();
    assert_eq!(again.run.unwrap().name, run.name);
    let run = service.finished("list", 90).await;
    assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, 1_500), "{run:?}");
    assert_eq!(service.runs("list").await.len(), 1);
    consumer.notes.assert_clean();
    consumer.notes.assert_once();
    assert!(consumer.notes.in_flight_max() <= 20);
    for arrival in consumer.notes.arrivals() {
        assert!(arrival.arrived_us >= ahead * 1_000_000);
        if arrival.index == 3 {
            assert_eq!((arrival.data, arrival.key.as_str()), (json!([1.50, 12345678901234567890_u64]), ""));
            continue;
        }
        let sent = item(arrival.index);
        let mut expected: Value = serde_json::from_str(&sent.data).unwrap();
        expected["from"] = json!("submission");
        expected["day"] = json!("2026-11-25");
        assert_eq!((arrival.data, arrival.key), (expected, sent.key), "{}", arrival.index);
    }
    let of_key = events(&service, &run.name, "key=t5").await;
    let indexes: Vec<u32> = of_key.iter().map(|(index, _)| *index).collect();
    assert_eq!(indexes, (0..1_500).filter(|index| index % 7 == 5).collect::<Vec<_>>());
    assert!(of_key.iter().all(|(_, key)| key == "t5"));
    assert!(events(&service, &run.name, "key=t9").await.is_empty());
    let all = events(&service, &run.name, "").await;
    assert!(all.len() == 1_500 && all.iter().all(|(index, key)| *index == 3 || *key == item(*index).key));
    let shown = service.events(&run.name).await.remove(8);
    let shown = service.handler().get_event(GetEventRequest { name: shown.name }).await.unwrap().into_inner();
    assert_eq!(shown.state(), EventState::Succeeded);
    assert_eq!((shown.data, shown.key), (item(8).data, item(8).key));
    service.stop().await;
}

async fn events(service: &Service, parent: &str, filter: &str) -> Vec<(u32, String)> {
    let (mut all, mut page_token) = (Vec::new(), String::new());
    loop {
        let (parent, filter) = (parent.to_owned(), filter.to_owned());
        let request = ListEventsRequest { parent, filter, page_size: 400, page_token };
        let page = service.handler().list_events(request).await.unwrap().into_inner();
        all.extend(page.events.into_iter().map(|event| (event.index, event.key)));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return all;
        }
    }
}

/// A power cut in the middle of an upload, and again: the client goes on with what the service has.
async fn an_upload_outlives_power_cuts(kind: Kind) {
    const ITEMS: u32 = 30_000;
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let link = service.link();
    let consumer = Consumer::start(link.clone(), Releases::Unary, |_| Conduct::work(0..1)).await;
    service.create_policy("p", policy(500)).await.unwrap();
    service.create_schedule("list", manual(&consumer, "p")).await.unwrap();
    let items: Vec<Item> = (0..ITEMS).map(item).collect();
    let mut cuts = 0;
    let mut come = 0;
    let made = loop {
        let from = standing(&service, "r").await.map_or(0, |submission| submission.received_count);
        assert!(from >= come, "{from} of {come} are left");
        come = from;
        let stream =
            parts(SubmissionHeader { resume_from: from, ..header("r") }, items[from as usize..].to_vec());
        // Slowly, so that there is a middle.
        let stream = tokio_stream::StreamExt::throttle(tokio_stream::iter(stream), Duration::from_millis(4));
        let mut master = service.master();
        let upload = tokio::spawn(async move { master.submit_items(stream).await });
        if cuts < 4 {
            // Early, late, and about when the last item has come.
            tokio::time::sleep(Duration::from_millis([150, 700, 450, 1_100][cuts])).await;
            service.kill9();
            cuts += 1;
            let _broken = upload.await;
            service = Service::start(&database).await;
            link.follow(&service);
            continue;
        }
        break upload.await.unwrap().unwrap().into_inner();
    };
    assert_eq!((made.state(), made.received_count), (SubmissionState::Complete, ITEMS));
    let run = service.finished("list", 300).await;
    assert_eq!((run.events, run.counts.unwrap().succeeded), (ITEMS, ITEMS));
    assert_eq!(service.runs("list").await.len(), 1);
    consumer.notes.assert_clean();
    let seen: BTreeMap<u32, Value> = consumer
        .notes
        .arrivals()
        .into_iter()
        .map(|arrival| (arrival.index, arrival.data["n"].clone()))
        .collect();
    assert!(seen.len() == ITEMS as usize && seen.iter().all(|(index, n)| *n == json!(index)));
    service.stop().await;
}

/// A disk that fills up in the middle of an upload: a clear error, nothing due, and the client goes on once there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_makes_nothing_due() {
    const ITEMS: u32 = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let library = compile(folder.path()).unwrap();
    let machine = Machine::new(&library, folder.path().join("machine")).unwrap();
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::join_on(&database, &[], &machine.environment()).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    service.create_policy("p", policy(500)).await.unwrap();
    service.create_schedule("list", manual(&consumer, "p")).await.unwrap();
    let items: Vec<Item> = (0..ITEMS).map(item).collect();
    let stream = tokio_stream::iter(parts(header("r"), items.clone()));
    // Some seconds: it is in its middle when the disk is full.
    let stream = tokio_stream::StreamExt::throttle(stream, Duration::from_millis(40));
    let mut master = service.master();
    let upload = tokio::spawn(async move { master.submit_items(stream).await });
    wait_for("some of the items", 30, async || {
        standing(&service, "r").await.filter(|submission| submission.received_count > 0)
    })
    .await;
    machine.full_disk(true).unwrap();
    let refused = upload.await.unwrap().unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
    assert!(refused.message().contains("disk"), "{refused:?}");
    assert_eq!((service.runs("list").await.len(), consumer.notes.arrivals_count()), (0, 0));
    machine.full_disk(false).unwrap();
    let open = standing(&service, "r").await.unwrap();
    assert_eq!(open.state(), SubmissionState::Open, "{open:?}");
    let rest = items[open.received_count as usize..].to_vec();
    let header = SubmissionHeader { resume_from: open.received_count, ..header("r") };
    let made = submit(&service, header, rest).await.unwrap();
    assert_eq!((made.state(), made.received_count), (SubmissionState::Complete, ITEMS));
    let run = service.finished("list", 300).await;
    assert_eq!((run.events, run.counts.unwrap().succeeded), (ITEMS, ITEMS));
    assert_eq!(service.runs("list").await.len(), 1);
    consumer.notes.assert_clean();
    service.stop().await;
}

/// The deliveries of a run with items outlive a power cut, too, and an event that is tried again carries the same.
async fn items_come_again_with_their_events(kind: Kind) {
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let link = service.link();
    let consumer = Consumer::start(link.clone(), Releases::Unary, |arrival| {
        if arrival.attempt == 1 && arrival.index % 5 == 0 {
            Conduct::Answer(503)
        } else {
            Conduct::work(5..20)
        }
    })
    .await;
    service.create_policy("p", policy(10)).await.unwrap();
    service.create_schedule("list", manual(&consumer, "p")).await.unwrap();
    submit(&service, header("r"), (0..400).map(item).collect()).await.unwrap();
    wait_for("some of them", 60, async || (consumer.notes.attempts().len() > 60).then_some(())).await;
    service.kill9();
    service = Service::start(&database).await;
    link.follow(&service);
    let run = service.finished("list", 300).await;
    assert_eq!(run.counts.unwrap().succeeded, 400, "{run:?}");
    let arrivals = consumer.notes.arrivals();
    assert!(arrivals.iter().all(|arrival| arrival.data["n"] == json!(arrival.index)));
    let again: BTreeSet<u32> = arrivals.iter().filter(|a| a.attempt > 1).map(|a| a.index).collect();
    assert!((0..400).step_by(5).all(|index| again.contains(&index)));
    assert!(us(run.launch_time) <= now_us());
    consumer.notes.assert_clean();
    service.stop().await;
}

on_both_stores!(
    each_event_carries_its_item,
    an_upload_outlives_power_cuts,
    items_come_again_with_their_events
);
