//! What people see of workers that take events themselves: the list, by API, command and page; the trouble where nobody is able
//! to do what waits; and that a worker which does not read holds up nobody.

use std::time::Duration;

use tollgate_harness::resources::{policy, schedule_name};
use tollgate_harness::{Cli, Database, Kind, Service, wait_for};
use tollgate_proto::v1::target::Target as Place;
use tollgate_proto::v1::work_request::Message as Say;
use tollgate_proto::v1::work_response::Message as Told;
use tollgate_proto::v1::worker_service_client::WorkerServiceClient;
use tollgate_proto::v1::{
    AcceptEvent, AcquireEventsRequest, AcquireEventsResponse, CancelRunRequest, ExplainEventRequest,
    ExtendTokenRequest, GetHandlerStatusRequest, ListTroublesRequest, ListWorkersRequest, PullTarget,
    ReasonCode, ReleaseMode, ReleaseTokenRequest, Schedule, Target, TriggerScheduleRequest, Trouble,
    TroubleSeverity, WorkEvent, WorkRequest, WorkerHello,
};
use tonic::Code;
use tonic::transport::Channel;

use crate::metrics::page;

const QUEUE: &str = "namespaces/default/queues/render";
/// As long as it is by itself: a machine that stands for a few seconds takes no shard from anybody.
const LEASE: [&str; 2] = ["--lease-ttl", "6s"];

fn workers(service: &Service) -> WorkerServiceClient<Channel> {
    WorkerServiceClient::new(service.channel())
}

fn frames(events: u32, requires: &[&str]) -> Schedule {
    let requires = requires.iter().map(|&label| label.to_owned()).collect();
    // Nothing is given again during a test because nobody accepts it.
    let deadline = Some(prost_types::Duration { seconds: 300, nanos: 0 });
    let pull = PullTarget { queue: "render".to_owned(), requires, deadline };
    Schedule {
        events: Some(events),
        policy: "p".to_owned(),
        target: Some(Target { target: Some(Place::Pull(pull)), ..Target::default() }),
        ..Schedule::default()
    }
}

async fn triggered(service: &Service, id: &str, schedule: Schedule) {
    service.create_schedule(id, schedule).await.unwrap();
    let request = TriggerScheduleRequest { name: schedule_name(id), ..TriggerScheduleRequest::default() };
    service.master().trigger_schedule(request).await.unwrap();
}

async fn acquire(service: &Service, labels: &[&str], most: u32, wait_s: i64) -> AcquireEventsResponse {
    let request = AcquireEventsRequest {
        name: QUEUE.to_owned(),
        max_events: most,
        wait: Some(prost_types::Duration { seconds: wait_s, nanos: 0 }),
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        worker: "poller".to_owned(),
    };
    workers(service).acquire_events(request).await.unwrap().into_inner()
}

/// So many, by as many polls as it takes: one is answered soon after the first event is there.
async fn acquire_all(service: &Service, labels: &[&str], count: u32) -> Vec<WorkEvent> {
    let mut events = Vec::new();
    while events.len() < count as usize {
        let more = acquire(service, labels, count - events.len() as u32, 60).await.events;
        assert!(!more.is_empty(), "{} of {count}", events.len());
        events.extend(more);
    }
    events
}

async fn no_worker(service: &Service) -> Option<Trouble> {
    let request =
        ListTroublesRequest { filter: "kind=no_worker".to_owned(), ..ListTroublesRequest::default() };
    service.handler().list_troubles(request).await.unwrap().into_inner().troubles.pop()
}

/// A worker with a stream: what it says goes in, and it stays there as long as the sender is kept.
async fn stream(
    service: &Service,
    name: &str,
    labels: &[&str],
    capacity: u32,
) -> (tokio::sync::mpsc::Sender<WorkRequest>, tonic::Streaming<tollgate_proto::v1::WorkResponse>) {
    let (say, said) = tokio::sync::mpsc::channel(64);
    let hello = WorkerHello {
        queue: QUEUE.to_owned(),
        capacity,
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        worker: name.to_owned(),
    };
    say.send(WorkRequest { message: Some(Say::Hello(hello)) }).await.unwrap();
    let said = tokio_stream::wrappers::ReceiverStream::new(said);
    let told = workers(service).work(said).await.unwrap().into_inner();
    (say, told)
}

async fn what_nobody_is_able_to_do_is_a_trouble_until_somebody_is(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let (_say, mut told) = stream(&service, "plain", &["gpu"], 4).await;
    told.message().await.unwrap();
    triggered(&service, "frames", frames(3, &["gpux"])).await;
    // As long as it is new it is none: workers that are started anew come back.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(no_worker(&service).await, None);
    let trouble = wait_for("a trouble", 30, async || no_worker(&service).await).await;
    assert_eq!(trouble.severity(), TroubleSeverity::Critical, "{trouble:?}");
    assert_eq!(
        (trouble.schedule.as_str(), trouble.target.as_str()),
        (&*schedule_name("frames"), "pull:render [gpux]")
    );
    assert_eq!((trouble.waiting_count, trouble.affected_count), (3, 3), "{trouble:?}");
    assert!(trouble.summary.contains("that has gpux; gpu is a label that one has"), "{trouble:?}");
    assert!(trouble.since_time.is_some() && trouble.oldest_launch_time.is_some());
    let run = service.first_run("frames").await;
    let name = service.events(&run.name).await.pop().unwrap().name;
    let why = service.handler().explain_event(ExplainEventRequest { name }).await.unwrap().into_inner();
    let reason = why.reasons.iter().find(|reason| reason.code() == ReasonCode::NoRoom);
    assert!(reason.is_some_and(|reason| reason.message.contains("is connected that has gpux")), "{why:?}");
    let cli = Cli::new(service.url());
    let text = cli.ok(&["troubles"]);
    assert!(text.contains("nobody is able to do the events of frames (3 events wait)"), "{text}");
    let now = page(&service, "/n/default", "text/html").await.body;
    assert!(now.contains("nobody is able to do the events of frames"), "{now}");
    let metrics = page(&service, "/metrics", "text/plain").await.body;
    assert!(metrics.lines().any(|line| line == "tollgate_troubles{kind=\"no_worker\"} 1.0"), "{metrics}");
    // One that polls, and is able to do something else, changes nothing when it goes.
    assert!(acquire(&service, &["gpu"], 1, 1).await.events.is_empty());
    assert!(no_worker(&service).await.is_some());
    let events = acquire_all(&service, &["gpux"], 3).await;
    wait_for("the end of the trouble", 20, async || no_worker(&service).await.is_none().then_some(())).await;
    for event in events {
        let request = ReleaseTokenRequest { name: event.name, ..ReleaseTokenRequest::default() };
        service.handler().release_token(request).await.unwrap();
    }
    service.finished("frames", 1).await;
    service.stop().await;
}

/// A worker that polls is seen only while it does: while it is at work, others wait for it, and that is no trouble.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_polls_is_able_while_it_is_at_work() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(5)).await.unwrap();
    // Its own kind of target is released by itself: nothing says then that somebody is at work.
    for (id, release) in [("held", ReleaseMode::Explicit), ("taken", ReleaseMode::OnResponse)] {
        let mut schedule = frames(3, &[id]);
        schedule.target.as_mut().unwrap().release = release.into();
        triggered(&service, id, schedule).await;
        assert_eq!(acquire(&service, &[id], 1, 60).await.events.len(), 1);
    }
    tokio::time::sleep(Duration::from_secs(13)).await;
    assert_eq!(no_worker(&service).await, None);
    for id in ["held", "taken"] {
        let run = service.first_run(id).await;
        let name = service.events(&run.name).await.pop().unwrap().name;
        let why = service.handler().explain_event(ExplainEventRequest { name }).await.unwrap().into_inner();
        let reason = why.reasons.iter().find(|reason| reason.code() == ReasonCode::NoRoom).unwrap();
        assert!(reason.message.contains("has room"), "{reason:?}");
    }
    service.stop().await;
}

/// The shard of an event, by its id.
fn shard_of(event: &str) -> u32 {
    let number = event.rsplit('/').next().unwrap().split('-').next().unwrap();
    u32::from_str_radix(number, 16).unwrap()
}

/// The first policy whose queue shard is this process's own.
async fn policy_of(service: &Service, own: bool) -> String {
    let mut handler = service.handler();
    let status = handler.get_handler_status(GetHandlerStatusRequest::default()).await.unwrap().into_inner();
    let owner = |shard: u32| status.shards.iter().find(|one| one.shard == shard).unwrap().owner.clone();
    for number in 0..40 {
        let id = format!("p-{own}-{number}");
        service.create_policy(&id, policy(5)).await.unwrap();
        let probe = Schedule { policy: id.clone(), ..frames(1, &["probe"]) };
        triggered(service, &id, probe).await;
        let run = service.first_run(&id).await.name;
        let shard = shard_of(&service.events(&run).await[0].name);
        service
            .handler()
            .cancel_run(CancelRunRequest { name: run, ..CancelRunRequest::default() })
            .await
            .unwrap();
        if (owner(shard) == status.handler) == own {
            return id;
        }
    }
    panic!("all policies are in one process");
}

/// What a worker has of one process keeps it able to do what waits in another, also long after its poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_at_work_for_one_process_is_able_for_another() {
    let database = Database::new(Kind::Postgres).await;
    let services = [Service::start_with(&database, &LEASE).await, Service::join(&database, &LEASE).await];
    divided(&services[0]).await;
    let (near, far) = (policy_of(&services[0], true).await, policy_of(&services[0], false).await);
    triggered(&services[0], "held", Schedule { policy: far, ..frames(1, &["gpu"]) }).await;
    let held = acquire(&services[0], &["gpu"], 1, 60).await.events.remove(0).name;
    triggered(&services[0], "waits", Schedule { policy: near, ..frames(1, &["gpu"]) }).await;
    let troubles = async || {
        let filter = "kind=no_worker AND schedule=namespaces/default/schedules/waits".to_owned();
        let request = ListTroublesRequest { filter, ..ListTroublesRequest::default() };
        services[1].handler().list_troubles(request).await.unwrap().into_inner().troubles
    };
    // For a minute after the poll nobody would be missed anyway. It sends no heartbeat: its time to live is longer.
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(troubles().await, []);
    }
    let release = ReleaseTokenRequest { name: held, ..ReleaseTokenRequest::default() };
    services[0].handler().release_token(release).await.unwrap();
    wait_for("a trouble", 40, async || (!troubles().await.is_empty()).then_some(())).await;
    for service in services {
        service.stop().await;
    }
}

/// A worker with a stream is seen as long as that is open: where it has gone, its held token does not hide that nobody is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_gone_with_an_event_is_missed() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let (say, mut told) = stream(&service, "w", &["gpu"], 1).await;
    triggered(&service, "frames", frames(3, &["gpu"])).await;
    let event = loop {
        if let Some(Told::Event(event)) = told.message().await.unwrap().unwrap().message {
            break event;
        }
    };
    let name = event.name.clone();
    let accept = Say::Accept(AcceptEvent { name: event.name, attempt: event.attempt });
    say.send(WorkRequest { message: Some(accept) }).await.unwrap();
    let extend = Say::Extend(ExtendTokenRequest { name, ..ExtendTokenRequest::default() });
    say.send(WorkRequest { message: Some(extend) }).await.unwrap();
    wait_for("its token to be held", 20, async || {
        (service.run(&service.first_run("frames").await.name).await.in_flight_count == 1).then_some(())
    })
    .await;
    drop((say, told));
    let trouble = wait_for("a trouble", 30, async || no_worker(&service).await).await;
    assert_eq!(trouble.waiting_count, 2, "{trouble:?}");
    service.stop().await;
}

/// Until two processes share the queue shards, and none has moved for three seconds.
async fn divided(service: &Service) {
    let owners = async || {
        let request = GetHandlerStatusRequest::default();
        let shards = service.handler().get_handler_status(request).await.unwrap().into_inner().shards;
        shards.into_iter().map(|shard| shard.owner).collect::<Vec<_>>()
    };
    let is_shared = |owners: &[String]| {
        owners.iter().any(|owner| *owner != owners[0]) && owners.iter().all(|owner| !owner.is_empty())
    };
    wait_for("two owners at rest", 60, async || {
        let before = owners().await;
        if !is_shared(&before) {
            return None;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        (owners().await == before).then_some(())
    })
    .await;
}

/// Between two polls, and where the owner is another process, a worker is listed with what it has.
async fn who_polls_is_listed_with_what_it_has(kind: Kind) {
    let database = Database::new(kind).await;
    let mut services = vec![Service::start_with(&database, &LEASE).await];
    if kind == Kind::Postgres {
        services.push(Service::join(&database, &LEASE).await);
        // What a shard knows of those that poll does not go along with it.
        divided(&services[0]).await;
    }
    let service = &services[0];
    service.create_policy("p", policy(8)).await.unwrap();
    for number in 0..8 {
        let id = format!("frames-{number}");
        triggered(service, &id, frames(1, &["gpu"])).await;
    }
    let mut names = Vec::new();
    while names.len() < 8 {
        let most = 8 - u32::try_from(names.len()).unwrap();
        let events = acquire(&services[names.len() % services.len()], &["gpu", "eu"], most, 20).await.events;
        names.extend(events.into_iter().map(|event| event.name));
    }
    let listed = async |service: &Service, has: u32| {
        wait_for("what it has", 20, async || {
            let request = ListWorkersRequest { parent: QUEUE.to_owned() };
            let list = workers(service).list_workers(request).await.unwrap().into_inner().workers;
            let count = list.first().map_or(0, |worker| worker.events_count);
            (list.len() <= 1 && count == has).then_some(list.into_iter().next())
        })
        .await
    };
    for service in &services {
        let worker = listed(service, 8).await.unwrap();
        assert_eq!((worker.worker.as_str(), worker.polls, worker.id.as_str()), ("poller", true, ""));
        assert_eq!(
            (worker.capacity, worker.room, worker.labels),
            (8, 0, vec!["eu".to_owned(), "gpu".to_owned()])
        );
        assert!(worker.events.len() == 8 && worker.events.iter().all(|event| names.contains(event)));
    }
    let text = Cli::new(service.url()).ok(&["workers"]);
    let line: Vec<&str> = text.lines().last().unwrap().split_whitespace().take(6).collect();
    assert_eq!(line, ["render", "poller", "eu,gpu", "8", "0", "8"], "{text}");
    let shown = page(service, "/n/default/workers", "text/html").await.body;
    assert!(shown.contains("poller") && shown.contains("8 events"), "{shown}");
    let before = listed(service, 8).await.unwrap().last_sign_time.unwrap();
    let extend = ExtendTokenRequest { name: names[0].clone(), ..ExtendTokenRequest::default() };
    service.handler().extend_token(extend).await.unwrap();
    let after = listed(service, 8).await.unwrap().last_sign_time.unwrap();
    assert!((after.seconds, after.nanos) > (before.seconds, before.nanos), "a heartbeat is a sign of life");
    // While it polls for more, it is one line with both.
    let more = acquire(service, &["gpu", "eu"], 3, 60);
    let both = async {
        let request = || ListWorkersRequest { parent: QUEUE.to_owned() };
        wait_for("its poll and its events", 30, async || {
            let list = workers(service).list_workers(request()).await.unwrap().into_inner().workers;
            let [worker] = list.as_slice() else { return None };
            (worker.room == 3 && worker.capacity == 11 && worker.events_count == 8).then_some(())
        })
        .await;
    };
    tokio::select! {
        polled = more => panic!("{polled:?}"),
        () = both => {}
    }
    for (at, name) in names.iter().enumerate() {
        let request = ReleaseTokenRequest { name: name.clone(), ..ReleaseTokenRequest::default() };
        service.handler().release_token(request).await.unwrap();
        listed(service, 7 - u32::try_from(at).unwrap()).await;
    }
    for service in services {
        service.stop().await;
    }
}

async fn workers_are_listed_with_what_they_have(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let cli = Cli::new(service.url());
    assert_eq!(cli.ok(&["workers"]), "no workers\n");
    let empty = page(&service, "/n/default/workers", "text/html").await.body;
    assert!(empty.contains("No worker is connected."), "{empty}");
    let (_say, mut told) = stream(&service, "render-7", &["gpu", "eu"], 4).await;
    told.message().await.unwrap();
    triggered(&service, "frames", frames(3, &["gpu"])).await;
    let list = wait_for("a worker with three events", 20, async || {
        let request = ListWorkersRequest { parent: QUEUE.to_owned() };
        let list = workers(&service).list_workers(request).await.unwrap().into_inner().workers;
        list.first().is_some_and(|worker| worker.events_count == 3).then_some(list)
    })
    .await;
    let [worker] = list.as_slice() else { panic!("{list:?}") };
    assert_eq!(
        (worker.capacity, worker.room, worker.given_count, worker.polls),
        (4, 1, 3, false),
        "{worker:?}"
    );
    assert_eq!(worker.labels, ["eu", "gpu"]);
    assert_eq!(worker.events.len(), 3);
    let text = cli.ok(&["workers", "render"]);
    let line: Vec<&str> = text.lines().last().unwrap().split_whitespace().take(6).collect();
    assert_eq!(line, ["render", "render-7", "eu,gpu", "4", "1", "3"], "{text}");
    assert_eq!(cli.ok(&["workers", "other"]), "no workers\n");
    assert!(cli.ok(&["workers", "-o", "json"]).contains("\"givenCount\": \"3\""));
    let shown = page(&service, "/n/default/workers?queue=render", "text/html").await.body;
    for part in ["render-7", "3 events", "data-refresh=\"3\"", "pull:render [gpu]"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    for event in &worker.events {
        let path = format!("/n/default/events/{event}");
        assert!(shown.contains(&path), "{path}: {shown}");
        assert_eq!(page(&service, &path, "text/html").await.status, 200);
    }
    let schedule = page(&service, "/n/default/schedules/frames", "text/html").await.body;
    assert!(
        schedule.contains("workers that take events of <a href=\"/n/default/workers?queue=render\">"),
        "{schedule}"
    );
    let metrics = page(&service, "/metrics", "text/plain").await.body;
    for line in ["tollgate_workers 1.0", "tollgate_workers_room 1.0", "tollgate_workers_events 3.0"] {
        assert!(metrics.lines().any(|other| other == line), "{line}: {metrics}");
    }
    let wrong = ListWorkersRequest { parent: "namespaces/default/queues/A b".to_owned() };
    let refused = workers(&service).list_workers(wrong).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("parent"), "{refused:?}");
    service.stop().await;
}

/// Answers that nobody reads are kept up to a bound; then its stream ends, and a neighbour has noticed nothing.
async fn a_worker_that_does_not_read_is_given_up(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let (say, mut told) = stream(&service, "deaf", &[], 0).await;
    let pouring = tokio::spawn(async move {
        let extend = ExtendTokenRequest { name: "x".repeat(60), ..ExtendTokenRequest::default() };
        while say.send(WorkRequest { message: Some(Say::Extend(extend.clone())) }).await.is_ok() {}
    });
    triggered(&service, "frames", frames(3, &[])).await;
    // A neighbour is given events meanwhile.
    acquire_all(&service, &[], 3).await;
    tokio::time::timeout(Duration::from_secs(300), pouring).await.unwrap().unwrap();
    let mut unread = 0;
    let end = loop {
        match told.message().await {
            Ok(Some(_)) => unread += 1,
            Ok(None) => panic!("it has ended well, after {unread}"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::ResourceExhausted, "{end:?}");
    assert!(end.message().contains("does not read: 40000 messages wait for it"), "{end:?}");
    wait_for("that it has gone", 20, async || {
        let request = ListWorkersRequest { parent: "namespaces/default".to_owned() };
        let list = workers(&service).list_workers(request).await.unwrap().into_inner().workers;
        list.iter().all(|worker| worker.worker != "deaf").then_some(())
    })
    .await;
    service.stop().await;
}

on_both_stores!(
    what_nobody_is_able_to_do_is_a_trouble_until_somebody_is,
    workers_are_listed_with_what_they_have,
    who_polls_is_listed_with_what_it_has,
    a_worker_that_does_not_read_is_given_up,
);
