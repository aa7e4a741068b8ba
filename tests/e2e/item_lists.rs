//! Items that are fetched ahead of each run: what consumers get of a list that changes, in pages, that fails, that is given up;
//! who dies in the middle of it, who changes his mind, and who is held up by nobody's.

mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prost_types::Timestamp;
use serde_json::{Value, json};
use tollgate_harness::resources::{PARENT, every, http, ms, once, policy, schedule_name, soon, us};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Link, Releases, Service, now_us, wait_for};
use tollgate_proto::convert::payload::from_json;
use tollgate_proto::v1::items_from::Source;
use tollgate_proto::v1::{
    HttpItems, ItemsFrom, ListTroublesRequest, Run, RunKind, RunState, Schedule, SkipReason,
    TriggerScheduleRequest, Trouble, TroubleKind, TroubleSeverity, UpdateScheduleRequest,
};

use server::{Lists, Reply};

const NDJSON: &str = "application/x-ndjson";
const JSON: &str = "application/json";

struct World {
    service: Service,
    consumer: Consumer,
    database: Database,
    link: Link,
}

async fn world(kind: Kind) -> World {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let link = service.link();
    let consumer = Consumer::start(link.clone(), Releases::Unary, |_| Conduct::work(1..5)).await;
    service.create_policy("p", policy(50)).await.unwrap();
    World { service, consumer, database, link }
}

fn from(lists: &Lists, path: &str) -> ItemsFrom {
    let http = HttpItems { url: lists.url(path), ..HttpItems::default() };
    ItemsFrom { source: Some(Source::Http(http)), ..ItemsFrom::default() }
}

/// The same, with so long for an answer.
fn within(lists: &Lists, path: &str, deadline_ms: i64) -> ItemsFrom {
    let http = HttpItems { url: lists.url(path), deadline: Some(ms(deadline_ms)), ..HttpItems::default() };
    ItemsFrom { source: Some(Source::Http(http)), ..ItemsFrom::default() }
}

/// A schedule that fires once, with a list.
fn listed(at: Timestamp, from: ItemsFrom, consumer: &Consumer) -> Schedule {
    Schedule { events: None, items_from: Some(from), ..once(at, 1, "p", http(consumer)) }
}

fn manual(from: ItemsFrom, consumer: &Consumer) -> Schedule {
    Schedule { triggers: Vec::new(), ..listed(soon(0), from, consumer) }
}

async fn trigger(service: &Service, id: &str) -> Run {
    let request = TriggerScheduleRequest { name: schedule_name(id), ..TriggerScheduleRequest::default() };
    service.master().trigger_schedule(request).await.unwrap().into_inner()
}

/// What consumers got of a run, by index.
fn got(consumer: &Consumer, run: &str) -> Vec<(Value, String)> {
    let arrivals = consumer.notes.arrivals().into_iter().filter(|arrival| arrival.run == run);
    let by_index: BTreeMap<u32, _> = arrivals.map(|got| (got.index, (got.data, got.key))).collect();
    by_index.into_values().collect()
}

async fn run_in(service: &Service, run: &str, state: RunState) -> Run {
    wait_for(&format!("a run that is {state:?}"), 60, async || {
        let run = service.run(run).await;
        (run.state() == state).then_some(run)
    })
    .await
}

async fn trouble(service: &Service, kind: TroubleKind) -> Option<Trouble> {
    let request = ListTroublesRequest { parent: PARENT.to_owned(), ..ListTroublesRequest::default() };
    let troubles = service.handler().list_troubles(request).await.unwrap().into_inner().troubles;
    troubles.into_iter().find(|trouble| trouble.kind() == kind)
}

/// Each launch has the list as it was shortly before it, over the schedule's payload.
async fn a_list_changes_between_two_launches(kind: Kind) {
    let World { service, consumer, database: _database, .. } = world(kind).await;
    let lists = Lists::start(|asked| {
        let number = asked.number;
        let lines: String = (0..2 + number).map(|n| format!("{{\"list\":{number},\"n\":{n}}}\n")).collect();
        Reply::ok(NDJSON, lines)
    })
    .await;
    let (ahead_s, apart_s) = (4, 9);
    let anchor = soon(10_000);
    let schedule = Schedule {
        events: None,
        items_from: Some(ItemsFrom { fetch_ahead: Some(ms(ahead_s * 1_000)), ..from(&lists, "/list") }),
        payload: Some(from_json(&json!({"of": "all"}))),
        ..every(apart_s, anchor, 1, "p", http(&consumer))
    };
    let made = service.create_schedule("daily", schedule).await.unwrap();
    assert_eq!((made.events, made.items_from.is_some()), (None, true));
    let waiting = service.runs("daily").await;
    assert!(waiting.iter().all(|run| (run.state(), run.events) == (RunState::Listing, 0)), "{waiting:?}");
    let runs = wait_for("two runs that have finished", 60, async || {
        let mut runs = service.runs("daily").await;
        runs.retain(|run| run.state() == RunState::Finished);
        runs.sort_by_key(|run| us(run.launch_time));
        (runs.len() >= 2).then_some(runs)
    })
    .await;
    for (number, run) in runs.iter().take(2).enumerate() {
        let data = |n| (json!({"list": number, "n": n, "of": "all"}), String::new());
        assert_eq!(got(&consumer, &run.name), (0..2 + number).map(data).collect::<Vec<_>>());
        assert_eq!((run.events, run.reason.as_str()), (2 + number as u32, ""));
        let ahead_us = us(run.launch_time) - lists.asked()[number].at_us;
        assert!((0..=ahead_s * 1_000_000).contains(&ahead_us), "{ahead_us}");
    }
    consumer.notes.assert_clean();
    service.stop().await;
}

/// By `Link`, and by a member with a cursor; with headers that nobody sees, and keys that count. Sealed at rest.
async fn pages_are_followed(kind: Kind) {
    let database = Database::new(kind).await;
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), Cli::new("http://127.0.0.1:1").ok(&["secrets", "generate-key", "k"])).unwrap();
    let service = Service::start_with(&database, &["--secret-keys-file", key.path().to_str().unwrap()]).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..5)).await;
    service.create_policy("p", policy(50)).await.unwrap();
    let lists = Lists::start(|asked| match asked.path.as_str() {
        "/linked?page=1" => Reply::ok("text/csv", "id,n\na,1\nb,2\n").link("</linked?page=2>; rel=\"next\""),
        "/linked?page=2" => Reply::ok("text/csv", "id,n\nc,3\n"),
        "/cursors?x=1" => Reply::ok(JSON, r#"{"rows": [{"id": "a"}, {"id": "b"}], "next": "t&2"}"#),
        "/cursors?x=1&cursor=t%262" => Reply::ok(JSON, r#"{"rows": [], "next": 3}"#),
        "/cursors?x=1&cursor=3" => Reply::ok(JSON, r#"{"rows": [{"id": "c"}], "next": null}"#),
        _ => Reply::status(404),
    })
    .await;
    let headers: BTreeMap<String, String> = [("authorization".to_owned(), "Bearer veiled".to_owned())].into();
    let linked = HttpItems {
        url: lists.url("/linked?page=1"),
        headers: headers.clone(),
        key_field: "id".to_owned(),
        ..HttpItems::default()
    };
    let cursors = HttpItems {
        url: lists.url("/cursors?x=1"),
        headers,
        key_field: "id".to_owned(),
        items_field: "rows".to_owned(),
        next_field: "next".to_owned(),
        next_parameter: "cursor".to_owned(),
        ..HttpItems::default()
    };
    for (id, list, second) in
        [("linked", linked, json!({"id": "b", "n": "2"})), ("cursors", cursors, json!({"id": "b"}))]
    {
        let from = ItemsFrom { source: Some(Source::Http(list)), ..ItemsFrom::default() };
        let made = service.create_schedule(id, manual(from, &consumer)).await.unwrap();
        let Some(Source::Http(shown)) = made.items_from.unwrap().source else { panic!("no list") };
        assert_eq!(shown.headers["authorization"], "***");
        let run = trigger(&service, id).await;
        let run = run_in(&service, &run.name, RunState::Finished).await;
        let got = got(&consumer, &run.name);
        let keys: Vec<&str> = got.iter().map(|(_, key)| key.as_str()).collect();
        assert_eq!((run.events, keys), (3, vec!["a", "b", "c"]), "{id}");
        assert_eq!(got[1].0, second);
    }
    assert!(lists.asked().iter().all(|asked| asked.authorization == "Bearer veiled"));
    service.stop().await;
}

/// What fails is told at the run and as a trouble, until it works again.
async fn a_list_that_fails_is_fetched_again(kind: Kind) {
    let World { service, consumer, database: _database, .. } = world(kind).await;
    let (seen, has_stalled) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let is_seen = seen.clone();
    let lists = Lists::start(move |asked| match asked.number {
        0 => Reply::ok(NDJSON, "1\nnonsense\n"),
        1 => Reply::ok(NDJSON, ""),
        // Until what is told of it has been seen.
        _ if !is_seen.load(Ordering::SeqCst) => Reply::status(503),
        _ if !has_stalled.swap(true, Ordering::SeqCst) => Reply::Stall(NDJSON, "1\n".to_owned()),
        _ => Reply::ok(NDJSON, "1\n2\n"),
    })
    .await;
    service.create_schedule("s", manual(within(&lists, "/list", 4_000), &consumer)).await.unwrap();
    let run = trigger(&service, "s").await;
    assert_eq!((run.state(), run.events), (RunState::Listing, 0));
    let told = wait_for("a trouble, and a reason", 60, async || {
        let told = trouble(&service, TroubleKind::ListFails).await?;
        let is_told = told.summary.contains("HTTP 503 Service Unavailable (attempt ");
        let waiting = service.run(&run.name).await;
        (is_told && waiting.reason.starts_with("its items cannot be fetched: HTTP 503")).then_some(told)
    })
    .await;
    assert_eq!((told.severity(), told.schedule), (TroubleSeverity::Critical, schedule_name("s")));
    assert!(
        told.summary.starts_with("the list of s cannot be fetched from http://127.0.0.1:"),
        "{}",
        told.summary
    );
    let told = Cli::new(service.url()).ok(&["troubles"]);
    assert!(told.contains("the list of s cannot be fetched"), "{told}");
    seen.store(true, Ordering::SeqCst);
    let ended = run_in(&service, &run.name, RunState::Finished).await;
    assert_eq!((ended.events, ended.reason.as_str()), (2, ""));
    assert!(lists.asked().len() >= 5, "{:?}", lists.asked());
    assert_eq!(got(&consumer, &run.name).len(), 2);
    assert_eq!(trouble(&service, TroubleKind::ListFails).await, None);
    let log = service.log();
    assert_eq!(log.matches("the list of a run cannot be fetched").count(), 1, "{log}");
    assert_eq!(log.matches("the list of a run is fetched after all").count(), 1, "{log}");
    service.stop().await;
}

/// A refusal for good, and one that lasts too long: no run is empty, each is skipped, recorded and told.
async fn what_is_given_up_is_skipped_and_told(kind: Kind) {
    let World { service, consumer, database: _database, .. } = world(kind).await;
    let lists = Lists::start(|asked| Reply::status(if asked.path == "/never" { 401 } else { 500 })).await;
    let short = ItemsFrom { give_up_after: Some(ms(3_000)), ..from(&lists, "/broken") };
    for (id, list, attempts, why) in
        [("never", from(&lists, "/never"), 1..=1, "HTTP 401"), ("broken", short, 2..=4, "HTTP 500")]
    {
        service.create_schedule(id, listed(soon(2_000), list, &consumer)).await.unwrap();
        let skipped =
            wait_for("a trigger that is skipped", 30, async || service.skipped(id).await.into_iter().next())
                .await;
        assert_eq!(skipped.reason(), SkipReason::NotListed);
        let run = service.runs(id).await.remove(0);
        assert_eq!(
            (run.state(), run.events, us(run.launch_time)),
            (RunState::Skipped, 0, us(skipped.launch_time))
        );
        assert!(
            run.reason.starts_with("its items could not be fetched in ") && run.reason.contains(why),
            "{run:?}"
        );
        let asked = lists.asked().iter().filter(|asked| asked.path == format!("/{id}")).count();
        assert!(attempts.contains(&asked), "{id}: {asked}");
    }
    let told = wait_for("a trouble", 20, async || trouble(&service, TroubleKind::NotListed).await).await;
    assert!(told.summary.contains("1 trigger of ") && told.summary.contains("made no events"), "{told:?}");
    assert_eq!(trouble(&service, TroubleKind::ListFails).await, None);
    assert_eq!(consumer.notes.arrivals_count(), 0);
    service.stop().await;
}

/// An address that targets may not have is none for a list either.
async fn a_private_address_is_refused(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start_with(&database, &["--allow-private-addresses", "refuse"]).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..5)).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let lists = Lists::start(|_| Reply::ok(NDJSON, "1\n")).await;
    let made = service.create_schedule("s", manual(from(&lists, "/list"), &consumer)).await.unwrap();
    let warned: Vec<&str> = made.warnings.iter().map(|warning| warning.field.as_str()).collect();
    assert!(warned.contains(&"schedule.items_from.http.url"), "{warned:?}");
    let run = trigger(&service, "s").await;
    let run = run_in(&service, &run.name, RunState::Skipped).await;
    assert!(run.reason.contains("is a loopback address"), "{run:?}");
    assert!(lists.asked().is_empty());
    service.stop().await;
}

/// Whoever dies with half of a list: the next process begins anew, and there is one run with all of it.
async fn a_process_that_dies_in_the_middle_leaves_one_whole_run(kind: Kind) {
    let World { service, consumer, database, link } = world(kind).await;
    let lists = Lists::start(|asked| {
        let line =
            |n| format!("{{\"list\":{},\"n\":{n},\"about\":\"{}\"}}\n", asked.number, "x".repeat(10_000));
        // More than is written at once.
        let lines = |n| (0..n).map(line).collect::<String>();
        if asked.number == 0 { Reply::Stall(NDJSON, lines(400)) } else { Reply::ok(NDJSON, lines(300)) }
    })
    .await;
    service.create_schedule("s", listed(soon(4_000), from(&lists, "/list"), &consumer)).await.unwrap();
    wait_for("a fetch that has begun", 30, async || (!lists.asked().is_empty()).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    service.kill9();
    let service = Service::start(&database).await;
    link.follow(&service);
    let run = service.finished("s", 60).await;
    assert_eq!((service.runs("s").await.len(), run.events, run.state()), (1, 300, RunState::Finished));
    let got = got(&consumer, &run.name);
    assert_eq!(got.len(), 300);
    assert!(got.iter().enumerate().all(|(n, (data, _))| data["list"] == json!(1) && data["n"] == json!(n)));
    service.stop().await;
}

/// Before its items are there: a run is cancelled, a schedule is changed, or deleted.
async fn a_run_that_waits_for_its_list_is_steered(kind: Kind) {
    let World { service, consumer, database: _database, .. } = world(kind).await;
    let lists =
        Lists::start(
            |asked| if asked.path == "/other" { Reply::ok(NDJSON, "1\n2\n3\n") } else { Reply::Hang },
        )
        .await;
    let cli = Cli::new(service.url());
    service.create_schedule("by-hand", manual(from(&lists, "/a"), &consumer)).await.unwrap();
    let run = trigger(&service, "by-hand").await;
    assert_eq!((run.kind(), run.state()), (RunKind::Manual, RunState::Listing));
    wait_for("a fetch that has begun", 30, async || (!lists.asked().is_empty()).then_some(())).await;
    cli.ok(&["cancel", run.name.rsplit('/').next().unwrap(), "--reason", "not today"]);
    let ended = service.run(&run.name).await;
    assert_eq!((ended.state(), ended.reason.as_str(), ended.events), (RunState::Cancelled, "not today", 0));
    // Another list, and none at all any more.
    let at = soon(20_000);
    for id in ["another", "none", "deleted"] {
        service.create_schedule(id, listed(at, from(&lists, "/b"), &consumer)).await.unwrap();
    }
    wait_for("runs that wait", 30, async || (lists.asked().len() >= 3).then_some(())).await;
    let change = async |id: &str, schedule: Schedule| {
        let schedule = Some(Schedule { name: schedule_name(id), ..schedule });
        let request = UpdateScheduleRequest { schedule, ..UpdateScheduleRequest::default() };
        service.master().update_schedule(request).await.unwrap();
    };
    change("another", listed(at, from(&lists, "/other"), &consumer)).await;
    change("none", once(at, 2, "p", http(&consumer))).await;
    cli.ok(&["delete", "schedule", "deleted"]);
    for (id, events) in [("another", 3), ("none", 2)] {
        let run = service.finished(id, 60).await;
        assert_eq!((run.events, run.state(), run.reason.as_str()), (events, RunState::Finished, ""), "{id}");
        assert_eq!(got(&consumer, &run.name).len() as u32, events);
    }
    assert_eq!(consumer.notes.arrivals_count(), 5);
    service.stop().await;
}

/// Lists that hang hold up those of their own namespace alone.
async fn lists_of_a_neighbour_hold_nobody_up(kind: Kind) {
    let World { service, consumer, database: _database, .. } = world(kind).await;
    let lists =
        Lists::start(|asked| if asked.path == "/hangs" { Reply::Hang } else { Reply::ok(NDJSON, "1\n") })
            .await;
    let hanging = Schedule { policy: String::new(), ..manual(within(&lists, "/hangs", 120_000), &consumer) };
    for number in 0..30 {
        let request = tollgate_proto::v1::CreateScheduleRequest {
            parent: "namespaces/busy".to_owned(),
            schedule_id: format!("s{number}"),
            schedule: Some(hanging.clone()),
            ..Default::default()
        };
        let made = service.master().create_schedule(request).await.unwrap().into_inner();
        let request = TriggerScheduleRequest { name: made.name, ..TriggerScheduleRequest::default() };
        service.master().trigger_schedule(request).await.unwrap();
    }
    wait_for("as many fetches as a namespace has", 30, async || (lists.asked().len() >= 2).then_some(()))
        .await;
    service.create_schedule("s", manual(from(&lists, "/list"), &consumer)).await.unwrap();
    let began_us = now_us();
    let run = trigger(&service, "s").await;
    run_in(&service, &run.name, RunState::Finished).await;
    assert!(now_us() - began_us < 20_000_000, "{} s", (now_us() - began_us) / 1_000_000);
    assert_eq!(lists.asked().iter().filter(|asked| asked.path == "/hangs").count(), 2);
    service.stop().await;
}

/// A file with a list, what `get -o yaml` makes of it, and what is said of mistakes.
async fn files_know_lists(kind: Kind) {
    let World { service, database: _database, .. } = world(kind).await;
    let cli = Cli::new(service.url());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("list.yaml");
    let text = "kind: Schedule\nid: list\npolicy: p\ntarget:\n  http: {url: 'http://127.0.0.1:9/'}\nitemsFrom:\n  http:\n    \
                url: http://127.0.0.1:9/list\n    format: csv\n    headers: {x-api-key: veiled}\n  fetchAhead: 2m\n";
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let applied = cli.run(&["apply", "-f", path]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let yaml = cli.run(&["get", "schedule", "list", "-o", "yaml"]);
    assert!(yaml.out.contains("itemsFrom:") && yaml.out.contains("fetchAhead: 120s"), "{yaml:?}");
    assert!(!yaml.out.contains("events") && !yaml.out.contains("veiled"), "{yaml:?}");
    std::fs::write(&file, &yaml.out).unwrap();
    let again = cli.run(&["apply", "-f", path]);
    assert!(again.out.contains("1 unchanged"), "{again:?}");
    let shown = cli.ok(&["get", "schedules"]);
    assert!(shown.contains("a list"), "{shown}");
    for (was, is, told) in [
        (
            "id: list\n",
            "id: list\nevents: 5\n",
            "events: \"5\" is not allowed, expected none: as many as its list has",
        ),
        (
            "fetchAhead: 2m",
            "fetchAhead: 2h",
            "itemsFrom.fetchAhead: \"7200s\" is not allowed, expected 0s to 1h",
        ),
        (
            "url: http://127.0.0.1:9/list",
            "url: ftp://a/",
            "itemsFrom.http.url: \"ftp://a/\" is not allowed, expected http://",
        ),
        ("format: csv", "format: xml", "itemsFrom.http.format"),
        (
            "format: csv",
            "nextField: next",
            "itemsFrom.http.nextField: \"next\" is not allowed, expected none without itemsField",
        ),
        (
            "id: list\n",
            "id: list\nitems: [{data: 1}]\n",
            "itemsFrom: \"a list\" is not allowed, expected none beside items",
        ),
    ] {
        std::fs::write(&file, text.replace(was, is)).unwrap();
        let wrong = cli.run(&["apply", "-f", path]);
        assert!(wrong.code == 1 && wrong.err.contains(told), "{told}: {wrong:?}");
    }
    let wrong = cli.run(&["trigger", "list", "--events", "5"]);
    assert!(wrong.code == 1 && wrong.err.contains("as many as its list has"), "{wrong:?}");
    service.stop().await;
}

on_both_stores!(
    a_list_changes_between_two_launches,
    pages_are_followed,
    a_list_that_fails_is_fetched_again,
    what_is_given_up_is_skipped_and_told,
    a_private_address_is_refused,
    a_process_that_dies_in_the_middle_leaves_one_whole_run,
    a_run_that_waits_for_its_list_is_steered,
    lists_of_a_neighbour_hold_nobody_up,
    files_know_lists,
);
