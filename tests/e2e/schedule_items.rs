//! Items of a schedule: each run of it carries them, whatever makes the run; files, REST and people see the same.

use std::collections::BTreeMap;

use prost_types::Timestamp;
use serde_json::{Value, json};
use tollgate_harness::resources::{PARENT, every, http, once, policy, schedule_name, soon};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, SECRET, Service, now_us, wait_for};
use tollgate_proto::convert::payload::from_json;
use tollgate_proto::v1::{
    BackfillScheduleRequest, Item, Items, ListEventsRequest, Run, RunKind, RunState, Schedule, ScheduleItem,
    SubmissionHeader, SubmitItemsRequest, TriggerScheduleRequest, submit_items_request,
};

const KEYS: [&str; 3] = ["acme", "", "globex"];

fn items() -> Vec<ScheduleItem> {
    let datas = [json!({"tenant": 1, "n": "own"}), json!([1.5, "x\ty"]), json!({"tenant": 3})];
    let item = |(data, key): (&Value, &str)| ScheduleItem {
        data: Some(from_json(data)),
        key: key.to_owned(),
        units: 0,
    };
    datas.iter().zip(KEYS).map(item).collect()
}

/// What consumers get of each event: the item over the payload.
fn expected(payload: &str) -> Vec<(Value, String)> {
    let datas = [
        json!({"tenant": 1, "n": "own", "from": payload}),
        json!([1.5, "x\ty"]),
        json!({"tenant": 3, "n": 0, "from": payload}),
    ];
    datas.into_iter().zip(KEYS.map(str::to_owned)).collect()
}

fn got(consumer: &Consumer, run: &str) -> Vec<(Value, String)> {
    let arrivals = consumer.notes.arrivals().into_iter().filter(|arrival| arrival.run == run);
    let by_index: BTreeMap<u32, _> = arrivals.map(|got| (got.index, (got.data, got.key))).collect();
    by_index.into_values().collect()
}

async fn finished(service: &Service, schedule: &str, kinds: &[RunKind]) -> Vec<Run> {
    wait_for("runs that have finished", 60, async || {
        let runs = service.runs(schedule).await;
        let done = runs.len() == kinds.len() && runs.iter().all(|run| run.state() == RunState::Finished);
        done.then_some(runs)
    })
    .await
}

async fn keyed(service: &Service, run: &str, filter: &str) -> Vec<(u32, String)> {
    let request =
        ListEventsRequest { parent: run.to_owned(), filter: filter.to_owned(), ..Default::default() };
    let events = service.handler().list_events(request).await.unwrap().into_inner().events;
    events.into_iter().map(|event| (event.index, event.key)).collect()
}

async fn trigger(service: &Service, payload: Option<Value>) -> Run {
    let payload = payload.map(|payload| from_json(&payload));
    let request = TriggerScheduleRequest { name: schedule_name("list"), payload, ..Default::default() };
    service.master().trigger_schedule(request).await.unwrap().into_inner()
}

/// By the clock, by hand, by hand with a payload, in a backfill: sealed in the store, and over a power cut.
async fn every_run_carries_the_items(kind: Kind) {
    let database = Database::new(kind).await;
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), Cli::new("http://127.0.0.1:1").ok(&["secrets", "generate-key", "k"])).unwrap();
    let flags = ["--secret-keys-file", key.path().to_str().unwrap()];
    let mut service = Service::start_with(&database, &flags).await;
    let link = service.link();
    // The first delivery of the clock's run fails: what is tried again carries the same.
    let consumer = Consumer::start(link.clone(), Releases::Unary, |arrival| {
        if arrival.attempt == 1 && arrival.index == 2 { Conduct::Answer(503) } else { Conduct::work(1..5) }
    })
    .await;
    service.create_policy("p", policy(2)).await.unwrap();
    let anchor = Timestamp { seconds: soon(5_000).seconds - 5 * 3_600, nanos: 0 };
    let schedule = Schedule {
        events: None,
        payload: Some(from_json(&json!({"from": "schedule", "n": 0}))),
        items: items(),
        ..every(3_600, anchor, 1, "p", http(&consumer))
    };
    let made = service.create_schedule("list", schedule).await.unwrap();
    assert_eq!((made.events, &made.items), (Some(3), &items()));
    let by_clock = finished(&service, "list", &[RunKind::Scheduled]).await.remove(0);
    assert_eq!((by_clock.kind(), by_clock.events), (RunKind::Scheduled, 3));
    assert_eq!(got(&consumer, &by_clock.name), expected("schedule"));
    service.kill9();
    service = Service::start_with(&database, &flags).await;
    link.follow(&service);
    let by_hand = trigger(&service, None).await;
    let own = trigger(&service, Some(json!({"from": "hand"}))).await;
    let request = BackfillScheduleRequest {
        name: schedule_name("list"),
        start_time: Some(Timestamp { seconds: anchor.seconds + 3_600, nanos: 0 }),
        end_time: Some(Timestamp { seconds: anchor.seconds + 2 * 3_600, nanos: 0 }),
        ..Default::default()
    };
    let made = service.master().backfill_schedule(request).await.unwrap().into_inner();
    assert_eq!(made.created_count, 1);
    let runs = finished(&service, "list", &[RunKind::Scheduled; 4]).await;
    let backfilled = runs.iter().find(|run| run.kind() == RunKind::Backfill).unwrap();
    for (run, from) in [(&by_hand.name, "schedule"), (&own.name, "hand"), (&backfilled.name, "schedule")] {
        assert_eq!(got(&consumer, run), expected(from), "{run}");
        let all = KEYS.map(str::to_owned).into_iter().enumerate().map(|(at, key)| (at as u32, key));
        assert_eq!(keyed(&service, run, "").await, all.collect::<Vec<_>>());
        assert_eq!(keyed(&service, run, "key=globex").await, [(2, "globex".to_owned())]);
        assert!(keyed(&service, run, "key=other").await.is_empty());
    }
    assert!(consumer.notes.in_flight_max() <= 2);
    consumer.notes.assert_clean();
    service.stop().await;
}

/// A submission to such a schedule has its own items, and the schedule's payload under them.
async fn what_is_submitted_has_its_own(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..5)).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let at = Timestamp { seconds: now_us() / 1_000_000 + 86_400, nanos: 0 };
    let payload = Some(from_json(&json!({"from": "schedule"})));
    let schedule = Schedule { events: None, payload, items: items(), ..once(at, 1, "p", http(&consumer)) };
    service.create_schedule("list", schedule).await.unwrap();
    let part = |part| SubmitItemsRequest { part: Some(part) };
    let header = SubmissionHeader { name: schedule_name("list"), ..SubmissionHeader::default() };
    let own = Item { data: json!({"a": 1}).to_string(), key: "own".to_owned(), units: 0 };
    let parts = [
        part(submit_items_request::Part::Header(header)),
        part(submit_items_request::Part::Items(Items { items: vec![own; 4] })),
    ];
    let made = service.master().submit_items(tokio_stream::iter(parts)).await.unwrap().into_inner();
    let run = finished(&service, "list", &[RunKind::Submitted]).await.remove(0);
    assert_eq!((run.name.as_str(), run.events), (made.run.unwrap().name.as_str(), 4));
    assert_eq!(got(&consumer, &run.name), vec![(json!({"a": 1, "from": "schedule"}), "own".to_owned()); 4]);
    assert_eq!(keyed(&service, &run.name, "key=own").await.len(), 4);
    service.stop().await;
}

/// A file with items, what `get -o yaml` makes of it, and what `results` prints of its run.
async fn files_and_commands_know_items(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..5)).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let cli = Cli::new(service.url());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("list.yaml");
    let text = format!(
        "kind: Schedule\nid: list\npolicy: p\ntarget:\n  http: {{url: '{}', secret: {SECRET}}}\nitems:\n  \
         - {{data: {{two_words: 1}}, key: acme}}\n  - data: 7\n",
        consumer.url()
    );
    std::fs::write(&file, &text).unwrap();
    let path = file.to_str().unwrap();
    let applied = cli.run(&["apply", "-f", path]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let yaml = cli.run(&["get", "schedule", "list", "-o", "yaml"]);
    assert!(yaml.out.contains("two_words: 1") && yaml.out.contains("key: acme"), "{yaml:?}");
    assert!(!yaml.out.contains("events"), "it follows from the items: {yaml:?}");
    std::fs::write(&file, &yaml.out).unwrap();
    let again = cli.run(&["apply", "-f", path]);
    assert!(again.out.contains("1 unchanged"), "{again:?}");
    std::fs::write(&file, text.replace("id: list\n", "id: list\nevents: 5\n")).unwrap();
    let wrong = cli.run(&["apply", "-f", path]);
    let told = format!("{path}:3: list: events: \"5\" is not allowed, expected none, or 2");
    assert!(wrong.code == 1 && wrong.err.contains(&told), "{wrong:?}");
    std::fs::write(&file, text.replace("data: 7", "dta: 7")).unwrap();
    let wrong = cli.run(&["apply", "-f", path]);
    assert!(wrong.code == 1 && wrong.err.contains(&format!("{path}:8: items[1].dta")), "{wrong:?}");
    let run = cli.run(&["trigger", "list", "-o", "name"]);
    assert_eq!(run.code, 0, "{run:?}");
    let run = run.out.trim().trim_start_matches("run/").to_owned();
    let waited = cli.run(&["wait", "run", &run, "--timeout", "60s"]);
    assert_eq!(waited.code, 0, "{waited:?}");
    let results = cli.run(&["results", &run]);
    let lines: Vec<Value> = results.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (lines.len(), &lines[0]["key"], &lines[1]["outcome"]),
        (2, &json!("acme"), &json!("SUCCEEDED"))
    );
    assert_eq!(got(&consumer, &format!("{PARENT}/runs/{run}")).len(), 2);
    service.stop().await;
}

on_both_stores!(every_run_carries_the_items, what_is_submitted_has_its_own, files_and_commands_know_items);
