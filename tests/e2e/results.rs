//! Results of events, and runs that have an event for each item in them: each once and in order, whatever dies; what is refused;
//! what is too much, beside a neighbour.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::{Value, json};
use tollgate_harness::resources::{PARENT, http, policy, schedule_name};
use tollgate_harness::{
    Arrival, Cli, Conduct, Consumer, Database, Kind, Link, Releases, SECRET, Service, wait_for,
};
use tollgate_proto::convert::payload::from_json;
use tollgate_proto::v1::{
    FinishCondition, GetEventRequest, ItemsFromResults, KeyLimits, ListTroublesRequest, OnFinish, Policy,
    ReleaseOutcome, ReleaseStatus, ReleaseTokenRequest, Run, RunState, Schedule, ScheduleItem, SkipReason,
    TriggerScheduleRequest, TroubleKind,
};
use tonic::Code;

use crate::console::Browser;

/// More than one list of 256 KiB would be.
const RUN_BYTES_MAX: usize = 16 * 1024 * 1024;

fn manual(consumer: &Consumer, events: u32) -> Schedule {
    Schedule {
        events: Some(events),
        policy: "p".to_owned(),
        target: Some(http(consumer)),
        ..Schedule::default()
    }
}

/// A schedule that `next` follows, with an event for each item in the results.
fn listing(schedule: Schedule, next: &str, when: FinishCondition) -> Schedule {
    let items = ItemsFromResults { key_field: "tenant".to_owned(), units_field: "weight".to_owned() };
    let on_finish = OnFinish {
        schedule: next.to_owned(),
        when: when.into(),
        items_from_results: Some(items),
        ..OnFinish::default()
    };
    Schedule { on_finish: Some(on_finish), ..schedule }
}

fn then(schedule: Schedule, next: &str) -> Schedule {
    let when = FinishCondition::Always.into();
    let on_finish = OnFinish { schedule: next.to_owned(), when, ..OnFinish::default() };
    Schedule { on_finish: Some(on_finish), ..schedule }
}

/// At most six at once, and of each tenant two.
fn by_tenant() -> Policy {
    let per_key = Some(KeyLimits { max_in_flight: Some(2), ..KeyLimits::default() });
    Policy { per_key, ..policy(6) }
}

fn with(result: Value) -> ReleaseTokenRequest {
    ReleaseTokenRequest { result: Some(from_json(&result)), ..ReleaseTokenRequest::default() }
}

async fn trigger(service: &Service, id: &str) -> Run {
    let request = TriggerScheduleRequest { name: schedule_name(id), ..Default::default() };
    service.master().trigger_schedule(request).await.unwrap().into_inner()
}

/// A consumer whose `list` has two results: a list, and one item.
async fn lister(link: Link) -> Consumer {
    Consumer::start(link, Releases::Unary, |arrival| match (arrival.schedule.as_str(), arrival.index) {
        ("list", 0) => Conduct::release(with(json!([
            {"tenant": "a", "n": 0}, {"tenant": "a", "n": 1, "weight": 2}, {"tenant": "b", "n": 2}
        ]))),
        ("list", _) => Conduct::release(with(json!({"tenant": "c", "n": 3}))),
        ("work", _) => Conduct::release(with(json!(arrival.data["n"]))),
        _ => Conduct::work(0..5),
    })
    .await
}

/// What consumers got of a run, by index.
fn got(consumer: &Consumer, run: &str) -> Vec<Arrival> {
    let arrivals = consumer.notes.arrivals().into_iter().filter(|arrival| arrival.run == run);
    arrivals.map(|got| (got.index, got)).collect::<BTreeMap<_, _>>().into_values().collect()
}

/// List the tenants, an event for each of them, a report.
async fn each_item_of_the_results_has_an_event(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = lister(service.link()).await;
    service.create_policy("p", by_tenant()).await.unwrap();
    service.create_schedule("report", manual(&consumer, 1)).await.unwrap();
    let base = Some(from_json(&json!({"of": "all"})));
    let work = then(Schedule { payload: base, ..manual(&consumer, 1) }, "report");
    service.create_schedule("work", work).await.unwrap();
    let list = listing(manual(&consumer, 2), "work", FinishCondition::AllSucceeded);
    let made = service.create_schedule("list", list.clone()).await.unwrap();
    assert_eq!(made.on_finish.unwrap().items_from_results, list.on_finish.unwrap().items_from_results);
    let first = trigger(&service, "list").await;
    let report = service.finished("report", 30).await;
    let work = service.finished("work", 1).await;
    assert_eq!((work.events, work.counts.unwrap().succeeded, report.events), (4, 4, 1));
    let got = got(&consumer, &work.name);
    let keys: Vec<&str> = got.iter().map(|got| got.key.as_str()).collect();
    assert_eq!(keys, ["a", "a", "b", "c"]);
    assert_eq!(got[0].data, json!({"tenant": "a", "n": 0, "of": "all"}));
    assert_eq!(got[3].data, json!({"tenant": "c", "n": 3, "of": "all"}));
    consumer.notes.assert_once();
    // It is shown with its event, to programs and people.
    let list =
        consumer.notes.arrivals().into_iter().find(|got| got.run == first.name && got.index == 1).unwrap();
    let request = GetEventRequest { name: format!("{PARENT}/events/{}", list.event_id) };
    let event = service.handler().get_event(request).await.unwrap().into_inner();
    assert_eq!(serde_json::from_str::<Value>(&event.result).unwrap(), json!({"tenant": "c", "n": 3}));
    let cli = Cli::new(service.url());
    let shown = cli.ok(&["why", &list.event_id]);
    assert!(shown.contains("{\"n\":3,\"tenant\":\"c\"}"), "{shown}");
    let page = Browser::new(&service).page(&format!("/n/default/events/{}", list.event_id)).await;
    page.shows(&["<dt>Result</dt>", "{&quot;n&quot;:3,&quot;tenant&quot;:&quot;c&quot;}"]);
    service.stop().await;
}

/// The process dies again and again while chains go on; each has one run of each step, with all of its items.
async fn each_list_becomes_one_run_whatever_dies(kind: Kind) {
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let link = service.link();
    let consumer = lister(link.clone()).await;
    service.create_policy("p", by_tenant()).await.unwrap();
    service.create_schedule("report", manual(&consumer, 1)).await.unwrap();
    service.create_schedule("work", then(manual(&consumer, 1), "report")).await.unwrap();
    let list = listing(manual(&consumer, 2), "work", FinishCondition::Always);
    service.create_schedule("list", list).await.unwrap();
    let chains = 9;
    for number in 0..chains {
        trigger(&service, "list").await;
        tokio::time::sleep(Duration::from_millis(40)).await;
        if number % 3 == 2 {
            service.kill9();
            service = Service::start(&database).await;
            link.follow(&service);
        }
    }
    for (id, events) in [("list", 2), ("work", 4), ("report", 1)] {
        wait_for("all runs of it", 90, async || {
            let runs = service.runs(id).await;
            let ended = runs.iter().filter(|run| run.state() == RunState::Finished).count();
            assert!(runs.len() <= chains, "{runs:?}");
            let whole = |run: &Run| run.state() != RunState::Finished || run.events == events;
            assert!(runs.iter().all(whole), "{runs:?}");
            (ended == chains).then_some(())
        })
        .await;
    }
    assert!(consumer.notes.in_flight_max() <= 6);
    service.stop().await;
}

/// Three processes of which each dies once; releases are forwarded, or wait in an inbox.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_with_results_survives_each_process() {
    let database = Database::new(Kind::Postgres).await;
    let flags = ["--lease-ttl", "2s"];
    let mut services = Vec::new();
    for _ in 0..3 {
        services.push(Service::join(&database, &flags).await);
    }
    let link = services[0].link();
    let consumer =
        Consumer::start(link.clone(), Releases::Unary, |arrival| match arrival.schedule.as_str() {
            "job" => Conduct::Take(tollgate_harness::Work {
                time: Duration::from_millis(100),
                releases: vec![with(json!([{"tenant": "a"}, {"tenant": format!("t{}", arrival.index)}]))],
            }),
            _ => Conduct::work(20..80),
        })
        .await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.yaml");
    let target = format!("{{http: {{url: '{}', secret: {SECRET}}}}}", consumer.url());
    let text = format!(
        "kind: Policy\nid: p\nmaxInFlight: 8\nperKey: {{maxInFlight: 1}}\n---\nkind: Schedule\nid: job\nevents: 10\n\
         policy: p\ntarget: {target}\nsteps:\n  - id: work\n    itemsFromResults: {{keyField: tenant}}\n    \
         target: {target}\n  - id: report\n    when: ALWAYS\n    target: {target}\n"
    );
    std::fs::write(&file, text).unwrap();
    let cli = Cli::new(services[0].url());
    cli.ok(&["apply", "-f", file.to_str().unwrap()]);
    for _ in 0..3 {
        trigger(&services[0], "job").await;
        tokio::time::sleep(Duration::from_millis(250)).await;
        services.remove(0).kill9();
        services.push(Service::join(&database, &flags).await);
        link.follow(&services[0]);
    }
    for (id, events) in [("job", 10), ("job.work", 20), ("job.report", 1)] {
        let runs = wait_for("three runs of it", 90, async || {
            let runs = services[0].runs(id).await;
            (runs.len() == 3 && runs.iter().all(|run| run.state() == RunState::Finished)).then_some(runs)
        })
        .await;
        let whole = |run: &Run| run.events == events && run.counts.unwrap().succeeded == events;
        assert!(runs.iter().all(whole), "{runs:?}");
    }
    for service in services {
        service.stop().await;
    }
}

/// Results without items, and with bad ones: the run that follows is skipped, says why, and is told.
async fn bad_items_end_the_run_and_are_told(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer =
        Consumer::start(service.link(), Releases::Unary, |arrival| match arrival.schedule.as_str() {
            "empty" => Conduct::release(with(json!([]))),
            "nokey" if arrival.index == 1 => Conduct::release(with(json!([{"tenant": "a"}, {"n": 1}]))),
            "nokey" => Conduct::release(with(json!({"tenant": "a"}))),
            "heavy" => Conduct::release(with(json!([{"tenant": "a", "weight": 7}]))),
            _ => Conduct::work(0..1),
        })
        .await;
    service.create_policy("p", policy(6)).await.unwrap();
    service.create_schedule("after", manual(&consumer, 1)).await.unwrap();
    let next = Schedule { on_finish: None, ..then(manual(&consumer, 1), "after") };
    let failed = OnFinish {
        schedule: "after".to_owned(),
        when: FinishCondition::AnyFailed.into(),
        ..OnFinish::default()
    };
    service.create_schedule("next", Schedule { on_finish: Some(failed), ..next }).await.unwrap();
    for (id, expected) in [
        ("none", "the results of the run before have no items"),
        ("empty", "the results of the run before have no items"),
        ("nokey", "the result of event 1: "),
        ("heavy", "the result of event 0: item 1 takes 7 tokens"),
    ] {
        let schedule = listing(manual(&consumer, 2), "next", FinishCondition::AllSucceeded);
        service.create_schedule(id, schedule).await.unwrap();
        let first = trigger(&service, id).await;
        let run = wait_for("the run that follows", 30, async || {
            let runs = service.runs("next").await;
            let of = |run: &Run| run.predecessor.as_ref().is_some_and(|before| before.run == first.name);
            runs.into_iter().find(|run| of(run) && run.state() == RunState::Skipped)
        })
        .await;
        assert!(run.events == 0 && run.reason.contains(expected), "{id}: {run:?}");
    }
    wait_for("what follows that", 30, async || (service.runs("after").await.len() == 4).then_some(())).await;
    let skips = service.skipped("next").await;
    assert!(skips.len() == 4 && skips.iter().all(|skip| skip.reason() == SkipReason::NotListed), "{skips:?}");
    let request = ListTroublesRequest { parent: PARENT.to_owned(), ..Default::default() };
    let troubles = service.handler().list_troubles(request).await.unwrap().into_inner().troubles;
    assert!(troubles.iter().any(|trouble| trouble.kind() == TroubleKind::NotListed), "{troubles:?}");
    service.stop().await;
}

async fn what_cannot_be_is_refused(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("p", policy(6)).await.unwrap();
    service.create_schedule("next", manual(&consumer, 1)).await.unwrap();
    let item = ScheduleItem { data: Some(from_json(&json!(1))), ..ScheduleItem::default() };
    let own = Schedule { events: None, items: vec![item], ..manual(&consumer, 1) };
    service.create_schedule("own", own).await.unwrap();
    let mut both = listing(manual(&consumer, 1), "next", FinishCondition::Always);
    both.on_finish.as_mut().unwrap().events = Some(3);
    let mut name = listing(manual(&consumer, 1), "next", FinishCondition::Always);
    name.on_finish.as_mut().unwrap().items_from_results.as_mut().unwrap().key_field = "a\nb".to_owned();
    for (schedule, expected) in [
        (both, "schedule.on_finish.events: \"3\" is not allowed, expected none with items_from_results"),
        (name, "schedule.on_finish.items_from_results.key_field: "),
        (
            listing(manual(&consumer, 1), "own", FinishCondition::Always),
            "schedule.on_finish.items_from_results: \"given\" is not allowed, expected none: own has items of its own",
        ),
    ] {
        let told = service.create_schedule("first", schedule).await.unwrap_err();
        assert_eq!(told.code(), Code::InvalidArgument);
        assert!(told.message().contains(expected), "{told:?}");
    }
    trigger(&service, "next").await;
    let held = wait_for("a delivery", 20, async || consumer.notes.arrivals().into_iter().next()).await;
    let name = held.event_id;
    let release = async |request: ReleaseTokenRequest| {
        service.handler().release_token(ReleaseTokenRequest { name: name.clone(), ..request }).await
    };
    let failed = ReleaseTokenRequest { outcome: ReleaseOutcome::Failed.into(), ..with(json!(1)) };
    let soon = Some(prost_types::Timestamp { seconds: 4_000_000_000, nanos: 0 });
    let again = ReleaseTokenRequest { next_check_time: soon, ..with(json!(1)) };
    for (request, expected) in [
        (
            with(json!("x".repeat(256 * 1024))),
            "result: \"262146 bytes\" is not allowed, expected at most 262144 bytes",
        ),
        (failed, "result: \"1 bytes\" is not allowed, expected none with another outcome than SUCCEEDED"),
        (again, "result: \"1 bytes\" is not allowed"),
    ] {
        let told = release(request).await.unwrap_err();
        assert_eq!(told.code(), Code::InvalidArgument, "{told:?}");
        assert!(told.message().contains(expected), "{told:?}");
    }
    // It is held as before; the first release counts, and no repeat changes anything.
    let cli = Cli::new(service.url());
    let told = cli.run(&["release", &name, "--result", "{"]);
    assert!(told.code == 2 && told.err.contains("--result: \"{\" is not allowed, expected JSON"), "{told:?}");
    assert!(cli.ok(&["release", &name, "--result", "[1, 2]"]).contains("RELEASED"));
    let told = release(with(json!("other"))).await.unwrap().into_inner();
    assert_eq!(told.status(), ReleaseStatus::AlreadyReleased);
    let event =
        service.handler().get_event(GetEventRequest { name: format!("{PARENT}/events/{name}") }).await;
    assert_eq!(event.unwrap().into_inner().result, "[1,2]");
    service.stop().await;
}

/// A run is filled with results to its bound, and beyond, while a neighbour goes on.
async fn results_beyond_the_bound_are_refused_beside_a_neighbour(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer =
        Consumer::start(service.link(), Releases::Unary, |arrival| match arrival.schedule.as_str() {
            "greedy" => Conduct::keep(),
            _ => Conduct::work(0..1),
        })
        .await;
    service.create_policy("p", policy(100)).await.unwrap();
    service.create_schedule("greedy", manual(&consumer, 70)).await.unwrap();
    service.create_schedule("neighbour", manual(&consumer, 10)).await.unwrap();
    let run = trigger(&service, "greedy").await;
    let held = wait_for("all deliveries", 30, async || {
        let arrivals = consumer.notes.arrivals();
        (arrivals.len() == 70).then_some(arrivals)
    })
    .await;
    let neighbours_run = async || {
        let began = Instant::now();
        let run = trigger(&service, "neighbour").await;
        wait_for("the neighbour's run", 30, async || service.run(&run.name).await.finish_time).await;
        began.elapsed()
    };
    // How long it takes on this machine.
    let usual = neighbours_run().await;
    let large = with(json!("x".repeat(256 * 1024 - 2)));
    let filling = async {
        let releases = held.iter().map(|held| {
            let (mut handler, name) = (service.handler(), held.event_id.clone());
            let request = ReleaseTokenRequest { name, ..large.clone() };
            async move { handler.release_token(request).await.map(|told| told.into_inner().status()) }
        });
        // Not more at once than its caller has room for: on one connection, those that wait for room may keep it from the others.
        futures::stream::iter(releases).buffered(16).collect::<Vec<_>>().await
    };
    let neighbour = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..5 {
            slowest = slowest.max(neighbours_run().await);
        }
        slowest
    };
    let (told, slowest) = tokio::join!(filling, neighbour);
    assert!(slowest < Duration::from_secs(10) + 5 * usual, "{slowest:?}, and {usual:?} before");
    let taken = told.iter().filter(|told| matches!(told, Ok(ReleaseStatus::Released))).count();
    assert_eq!(taken, RUN_BYTES_MAX / (256 * 1024));
    for refused in told.iter().filter_map(|told| told.as_ref().err()) {
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains("at most 16777216 bytes in the results of a run"), "{refused:?}");
    }
    // What was refused is held, and goes without.
    let row = service.run(&run.name).await;
    assert_eq!((row.state(), row.counts.unwrap().succeeded), (RunState::Running, 64));
    for (held, told) in held.iter().zip(&told) {
        if told.is_err() {
            let request = ReleaseTokenRequest { name: held.event_id.clone(), ..Default::default() };
            service.handler().release_token(request).await.unwrap();
        }
    }
    wait_for("its end", 20, async || service.run(&run.name).await.finish_time).await;
    service.stop().await;
}

/// On no disk in clear, where there are secret keys; read by the run that follows all the same, also under another key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_sealed_at_rest_and_move_to_another_key() {
    let database = Database::new(Kind::Sqlite).await;
    let new_key = |id: &str| Cli::new("http://127.0.0.1:1").ok(&["secrets", "generate-key", id]);
    let file = tempfile::NamedTempFile::new().unwrap();
    let (one, two) = (new_key("one"), new_key("two"));
    std::fs::write(file.path(), &one).unwrap();
    let flags = ["--secret-keys-file", file.path().to_str().unwrap()];
    let service = Service::start_with(&database, &flags).await;
    let secret = "veiled-4711";
    let consumer =
        Consumer::start(service.link(), Releases::Unary, |arrival| match arrival.schedule.as_str() {
            "list" => Conduct::release(with(json!([{"tenant": "a", "word": "veiled-4711"}]))),
            _ => Conduct::work(0..1),
        })
        .await;
    service.create_policy("p", policy(6)).await.unwrap();
    service.create_schedule("work", manual(&consumer, 1)).await.unwrap();
    let list = listing(manual(&consumer, 1), "work", FinishCondition::AllSucceeded);
    service.create_schedule("list", list).await.unwrap();
    let first = trigger(&service, "list").await;
    let work = service.finished("work", 30).await;
    assert_eq!(got(&consumer, &work.name)[0].data["word"], secret);
    let event = consumer.notes.arrivals().into_iter().find(|got| got.run == first.name).unwrap().event_id;
    service.stop().await;
    let Database::Sqlite(folder) = &database else { panic!("not SQLite") };
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
    }
    std::fs::write(file.path(), format!("{two}{one}")).unwrap();
    let url = database.url();
    let cli = Cli::new("http://127.0.0.1:1");
    cli.ok(&["secrets", "rotate", "--store", &url, flags[0], flags[1]]);
    std::fs::write(file.path(), &two).unwrap();
    let service = Service::start_with(&database, &flags).await;
    let request = GetEventRequest { name: format!("{PARENT}/events/{event}") };
    let event = service.handler().get_event(request).await.unwrap().into_inner();
    assert!(event.result.contains(secret), "{event:?}");
    service.stop().await;
}

on_both_stores!(
    each_item_of_the_results_has_an_event,
    each_list_becomes_one_run_whatever_dies,
    bad_items_end_the_run_and_are_told,
    what_cannot_be_is_refused,
    results_beyond_the_bound_are_refused_beside_a_neighbour,
);
