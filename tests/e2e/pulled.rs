//! Events that workers take themselves: each once, no token without a worker and no worker beyond its room, whatever breaks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rand::Rng as _;
use tollgate_harness::resources::{http, policy, schedule_name};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::target::Target as Kinds;
use tollgate_proto::v1::work_request::Message as Say;
use tollgate_proto::v1::work_response::Message as Told;
use tollgate_proto::v1::worker_service_client::WorkerServiceClient;
use tollgate_proto::v1::{
    AcceptEvent, AcquireEventsRequest, Policy, PullTarget, ReleaseOutcome, ReleaseStatus,
    ReleaseTokenRequest, RetryPolicy, Run, RunState, Schedule, Target, TriggerScheduleRequest, WorkEvent,
    WorkRequest, WorkerCapacity,
};
use tonic::Code;

mod access;
mod cluster;
mod streams;
pub(crate) mod talk;
pub(crate) mod worker;

use talk::patient;
use worker::{Deed, Notes, Place, Worker, hello, open, place};

pub(crate) fn pull(events: u32, policy: &str, requires: &[&str]) -> Schedule {
    let requires = requires.iter().map(|&label| label.to_owned()).collect();
    let deadline = Some(prost_types::Duration { seconds: 5, nanos: 0 });
    let pull = PullTarget { queue: "render".to_owned(), requires, deadline };
    Schedule {
        events: Some(events),
        policy: policy.to_owned(),
        target: Some(Target { target: Some(Kinds::Pull(pull)), ..Target::default() }),
        retry: Some(RetryPolicy {
            min_backoff: Some(prost_types::Duration { seconds: 0, nanos: 100_000_000 }),
            max_backoff: Some(prost_types::Duration { seconds: 0, nanos: 300_000_000 }),
            ..RetryPolicy::default()
        }),
        ..Schedule::default()
    }
}

pub(crate) async fn trigger(service: &Service, id: &str, schedule: Schedule) -> Run {
    service.create_schedule(id, schedule).await.unwrap();
    let request = TriggerScheduleRequest { name: schedule_name(id), ..TriggerScheduleRequest::default() };
    service.master().trigger_schedule(request).await.unwrap().into_inner()
}

async fn succeeded(service: &Service, id: &str, seconds: u64) -> u32 {
    service.finished(id, seconds).await.counts.unwrap().succeeded
}

async fn given(notes: &Notes, count: usize) {
    wait_for("events at workers", 60, async || (notes.given().len() >= count).then_some(())).await;
}

async fn no_token_is_taken_without_a_worker_that_is_able(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(5)).await.unwrap();
    trigger(&service, "frames", patient(40, "p", &["gpu"])).await;
    trigger(&service, "texts", patient(40, "p", &[])).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(service.held_count().await, 0, "nobody is there");
    let (notes, place) = (Notes::default(), place(&service));
    let _plain = Worker::start(&place, hello("plain", &[], 2), &notes, |_| Deed::Work(10));
    assert_eq!(succeeded(&service, "texts", 30).await, 40);
    assert_eq!(service.held_count().await, 0, "what nobody is able to do holds no token");
    assert!(notes.held_max() <= 2, "{} at once", notes.held_max());
    let _gpu = Worker::start(&place, hello("gpu", &["gpu", "eu"], 50), &notes, |_| Deed::Work(10));
    assert_eq!(succeeded(&service, "frames", 30).await, 40);
    assert!(notes.held_max() <= 5, "{} at once, of 5", notes.held_max());
    assert!(notes.of_worker("plain").iter().all(|given| given.schedule == "texts"));
    assert!(notes.attempts().values().all(|attempts| *attempts == [1]), "{:?}", notes.attempts());
    assert_eq!(notes.attempts().len(), 80);
    service.stop().await;
}

async fn workers_and_schedules_have_turns(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let (notes, place) = (Notes::default(), place(&service));
    let mut runs = Vec::new();
    for id in ["a", "b", "c"] {
        // Without a policy, and under two: three queue shards that share the workers.
        let of = if id == "a" { "" } else { id };
        if !of.is_empty() {
            service.create_policy(of, policy(20)).await.unwrap();
        }
        runs.push(trigger(&service, id, patient(500, of, &[])).await.name);
    }
    // All three wait, before there is anything to share.
    for run in runs {
        wait_for("a run that waits", 30, async || {
            (service.run(&run).await.state() == RunState::Waiting).then_some(())
        })
        .await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let workers = ["one", "two", "three"]
        .map(|name| Worker::start(&place, hello(name, &[], 2), &notes, |_| Deed::Work(40)));
    // What is compared begins when all of them are there: a stream may open late.
    let begin = wait_for("events of all, to all", 30, async || {
        let given = notes.given();
        let workers = ["one", "two", "three"].map(|name| given.iter().position(|given| given.worker == name));
        let schedules = ["a", "b", "c"].map(|id| given.iter().position(|given| given.schedule == id));
        let firsts: Option<Vec<_>> = workers.into_iter().chain(schedules).collect();
        firsts?.into_iter().max()
    })
    .await;
    // So many that no shard's slow commit shows.
    given(&notes, begin + 600).await;
    let part: Vec<_> = notes.given().into_iter().skip(begin).take(600).collect();
    for worker in ["one", "two", "three"] {
        let count = part.iter().filter(|given| given.worker == worker).count();
        assert!((75..=325).contains(&count), "{worker} has {count} of 600");
    }
    for schedule in ["a", "b", "c"] {
        let count = part.iter().filter(|given| given.schedule == schedule).count();
        assert!((75..=325).contains(&count), "{schedule} has {count} of 600");
        assert_eq!(succeeded(&service, schedule, 60).await, 500);
    }
    assert!(notes.held_max() <= 6, "{} at once", notes.held_max());
    drop(workers);
    service.stop().await;
}

/// With one token: nothing else comes to any worker as long as nobody knows, and the token is never taken twice.
async fn what_is_not_accepted_is_given_again_under_its_own_token(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(1)).await.unwrap();
    let (notes, place) = (Notes::default(), place(&service));
    let deed = |event: &WorkEvent| match event.attempt {
        1 => Deed::Break,
        2 => Deed::Ignore,
        3 => Deed::Retry,
        4 => Deed::ReleaseAtOnce,
        _ => Deed::Work(0),
    };
    // It does one event at once, and there is no other worker.
    let _worker = Worker::start(&place, hello("w", &[], 1), &notes, deed);
    trigger(&service, "s", pull(3, "p", &[])).await;
    assert_eq!(succeeded(&service, "s", 120).await, 3);
    let attempts = notes.attempts();
    assert_eq!(attempts.len(), 3, "{attempts:?}");
    assert!(attempts.values().all(|attempts| *attempts == [1, 2, 3, 4]), "{attempts:?}");
    // Until the third attempt of an event, when it gives its token back, no other one has come.
    let order = notes.given();
    for index in 1..order.len() {
        let (before, now) = (&order[index - 1], &order[index]);
        assert!(before.name == now.name || before.attempt >= 3, "{before:?} {now:?}");
    }
    service.stop().await;
}

/// A later word about the same attempt, on the stream, ends nothing: the next attempt comes.
async fn what_was_given_back_is_not_ended_by_a_later_word(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(1)).await.unwrap();
    let first = Some(Say::Hello(hello("w", &[], 1)));
    let (say, mut told) = open(service.channel(), first).await.unwrap();
    trigger(&service, "s", patient(1, "p", &[])).await;
    let mut next = async || loop {
        match told.message().await.unwrap().unwrap().message {
            Some(Told::Event(event)) => return (Some(event), None),
            Some(Told::Released(released)) => return (None, released.response.map(|answer| answer.status())),
            _ => {}
        }
    };
    let (event, _) = next().await;
    let WorkEvent { name, attempt, .. } = event.unwrap();
    let release = ReleaseTokenRequest { name, attempt: Some(attempt), ..ReleaseTokenRequest::default() };
    let back = ReleaseTokenRequest { outcome: ReleaseOutcome::Retry.into(), ..release.clone() };
    let answer = service.handler().release_token(back).await.unwrap().into_inner();
    assert_eq!(answer.status(), ReleaseStatus::Released);
    say.send(WorkRequest { message: Some(Say::Release(release.clone())) }).unwrap();
    assert_eq!(next().await, (None, Some(ReleaseStatus::Late)));
    let (event, _) = next().await;
    let attempt = event.unwrap().attempt;
    assert_eq!(attempt, 2);
    let release = ReleaseTokenRequest { attempt: Some(attempt), ..release };
    say.send(WorkRequest { message: Some(Say::Release(release)) }).unwrap();
    assert_eq!(next().await, (None, Some(ReleaseStatus::Released)));
    assert_eq!(succeeded(&service, "s", 20).await, 1);
    service.stop().await;
}

async fn what_was_accepted_is_held_and_comes_back_after_its_time(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let limits = Policy { token_ttl: seconds(4), suspect_period: seconds(1), ..policy(1) };
    service.create_policy("p", limits).await.unwrap();
    let (notes, place) = (Notes::default(), place(&service));
    let deed = |event: &WorkEvent| {
        let ttl = event.token_ttl.as_ref().map(|ttl| ttl.seconds);
        assert_eq!(ttl, Some(4));
        if event.attempt == 1 { Deed::AcceptAndBreak } else { Deed::Work(0) }
    };
    let began = Instant::now();
    let _worker = Worker::start(&place, hello("w", &[], 3), &notes, deed);
    trigger(&service, "s", patient(1, "p", &[])).await;
    given(&notes, 1).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!((service.held_count().await, notes.given().len()), (1, 1), "its worker has gone, and has it");
    assert_eq!(succeeded(&service, "s", 30).await, 1);
    assert!(began.elapsed() > Duration::from_secs(5), "before its time");
    assert_eq!(notes.attempts().into_values().collect::<Vec<_>>(), [[1, 2]]);
    service.stop().await;
}

async fn a_worker_s_room_is_what_it_says(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(50)).await.unwrap();
    trigger(&service, "s", patient(30, "p", &[])).await;
    let (say, mut told) = open(service.channel(), Some(Say::Hello(hello("w", &[], 2)))).await.unwrap();
    let tell = |message| say.send(WorkRequest { message: Some(message) }).unwrap();
    let next = async |told: &mut tonic::Streaming<_>, ms: u64| {
        let message = tokio::time::timeout(Duration::from_millis(ms), told.message()).await;
        let message: tollgate_proto::v1::WorkResponse = message.ok()?.unwrap()?;
        message.message
    };
    assert!(matches!(next(&mut told, 60_000).await, Some(Told::Welcome(_))));
    let mut names = Vec::new();
    // So many words come, and no more for half a second.
    let events = async |told: &mut tonic::Streaming<_>, names: &mut Vec<String>, words: usize| {
        let mut heard = 0;
        while let Some(message) = next(told, if heard < words { 60_000 } else { 500 }).await {
            heard += 1;
            match message {
                Told::Event(event) => {
                    let accept = AcceptEvent { name: event.name.clone(), attempt: event.attempt };
                    say.send(WorkRequest { message: Some(Say::Accept(accept)) }).unwrap();
                    names.push(event.name);
                }
                Told::Released(released) => {
                    assert_eq!(released.response.unwrap().status(), ReleaseStatus::Released);
                }
                other => panic!("{other:?}"),
            }
        }
    };
    events(&mut told, &mut names, 2).await;
    assert_eq!((names.len(), service.held_count().await), (2, 2));
    tell(Say::Capacity(WorkerCapacity { capacity: 5 }));
    events(&mut told, &mut names, 3).await;
    assert_eq!((names.len(), service.held_count().await), (5, 5));
    tell(Say::Capacity(WorkerCapacity { capacity: 1 }));
    let release = |name: &String| {
        Say::Release(ReleaseTokenRequest { name: name.clone(), ..ReleaseTokenRequest::default() })
    };
    names[..4].iter().for_each(|name| tell(release(name)));
    // Four answers, and no event.
    events(&mut told, &mut names, 4).await;
    assert_eq!((names.len(), service.held_count().await), (5, 1), "it has one, and does one at once");
    tell(release(&names[4]));
    // An answer, and an event.
    events(&mut told, &mut names, 2).await;
    assert_eq!((names.len(), service.held_count().await), (6, 1));
    // It is done with one, of which it says so elsewhere first.
    let request = ReleaseTokenRequest { name: names[5].clone(), ..ReleaseTokenRequest::default() };
    let status = service.handler().release_token(request).await.unwrap().into_inner().status();
    assert_eq!(status, ReleaseStatus::Released);
    drop((say, told));
    service.stop().await;
}

async fn acquire(place: &Place, most: u32, wait_ms: i32) -> Vec<WorkEvent> {
    let request = AcquireEventsRequest {
        name: "namespaces/default/queues/render".to_owned(),
        max_events: most,
        wait: Some(prost_types::Duration {
            seconds: i64::from(wait_ms / 1_000),
            nanos: wait_ms % 1_000 * 1_000_000,
        }),
        ..AcquireEventsRequest::default()
    };
    let channel = place.lock().unwrap().clone();
    WorkerServiceClient::new(channel).acquire_events(request).await.unwrap().into_inner().events
}

async fn whoever_polls_has_what_there_is_and_takes_nothing_along(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let short = prost_types::Duration { seconds: 1, nanos: 0 };
    let limits = Policy { token_ttl: Some(short), suspect_period: Some(short), ..policy(50) };
    service.create_policy("p", limits).await.unwrap();
    let place = place(&service);
    let began = Instant::now();
    assert!(acquire(&place, 5, 0).await.is_empty() && began.elapsed() < Duration::from_secs(10));
    let waiting = {
        let place = place.clone();
        tokio::spawn(async move { (acquire(&place, 3, 30_000).await, Instant::now()) })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    let triggered = Instant::now();
    trigger(&service, "s", pull(60, "p", &[])).await;
    let (events, at) = waiting.await.unwrap();
    assert!((1..=3).contains(&events.len()), "{events:?}");
    assert!(
        at - triggered < Duration::from_secs(20),
        "as soon as there is something, and not after half a minute"
    );
    // Callers that go away meanwhile.
    let gone: Vec<_> = (0..20)
        .map(|number| {
            let place = place.clone();
            tokio::spawn(tokio::time::timeout(Duration::from_millis(number), async move {
                acquire(&place, 5, 10_000).await
            }))
        })
        .collect();
    let mut names: Vec<_> = events.into_iter().map(|event| event.name).collect();
    for task in gone {
        // One that was answered in time has its events. Those of one that went away just then come back after their time.
        names.extend(task.await.unwrap().into_iter().flatten().map(|event| event.name));
    }
    wait_for("the others", 40, async || {
        names.extend(acquire(&place, 20, 500).await.into_iter().map(|event| event.name));
        for name in &names {
            let request = ReleaseTokenRequest { name: name.clone(), ..ReleaseTokenRequest::default() };
            service.handler().release_token(request).await.unwrap();
        }
        (names.iter().collect::<BTreeSet<_>>().len() == 60).then_some(())
    })
    .await;
    assert_eq!(succeeded(&service, "s", 30).await, 60);
    service.stop().await;
}

/// Workers that come and go at random, each with all that it has.
async fn a_storm_of_workers_that_die_loses_nothing(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let short = prost_types::Duration { seconds: 2, nanos: 0 };
    let limits = Policy { token_ttl: Some(short), suspect_period: Some(short), ..policy(8) };
    service.create_policy("p", limits).await.unwrap();
    let (notes, place) = (Notes::default(), place(&service));
    trigger(&service, "s", pull(250, "p", &[])).await;
    let end = Instant::now() + Duration::from_secs(12);
    let mut workers = BTreeMap::new();
    let mut held_max = 0;
    while Instant::now() < end {
        let number = rand::rng().random_range(0..12);
        if workers.remove(&number).is_none() {
            let deed = |_: &WorkEvent| match rand::rng().random_range(0..10) {
                0 => Deed::Break,
                1 => Deed::AcceptAndBreak,
                2 => Deed::Retry,
                _ => Deed::Work(30),
            };
            let name = format!("w{number}");
            workers.insert(number, Worker::start(&place, hello(&name, &[], 3), &notes, deed));
        }
        held_max = held_max.max(service.held_count().await);
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    workers.clear();
    let _last = Worker::start(&place, hello("last", &[], 20), &notes, |_| Deed::Work(0));
    assert_eq!(succeeded(&service, "s", 90).await, 250);
    assert!((1..=8).contains(&held_max), "{held_max} held, of 8");
    assert!(notes.held_max() <= 8, "{} at once, of 8", notes.held_max());
    let attempts = notes.attempts();
    assert_eq!(attempts.len(), 250);
    for (name, attempts) in attempts {
        assert!(attempts.is_sorted_by(|before, after| before < after), "{name}: {attempts:?}");
    }
    service.stop().await;
}

/// A hundred schedules whose events nobody is able to do delay neither what others are able to do nor what is pushed.
async fn what_nobody_is_able_to_do_delays_nothing_else(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    for policies in ["p", "q"] {
        service.create_policy(policies, policy(5)).await.unwrap();
    }
    let (notes, place) = (Notes::default(), place(&service));
    let _worker = Worker::start(&place, hello("w", &[], 5), &notes, |_| Deed::Work(0));
    // How long it takes on this machine.
    let began = Instant::now();
    trigger(&service, "before", pull(200, "p", &[])).await;
    assert_eq!(succeeded(&service, "before", 60).await, 200);
    let usual = began.elapsed();
    for number in 0..100 {
        let schedule = pull(10, "p", &[&format!("l{number}")]);
        trigger(&service, &format!("s{number}"), schedule).await;
    }
    let began = Instant::now();
    trigger(&service, "mine", pull(200, "p", &[])).await;
    assert_eq!(succeeded(&service, "mine", 30).await, 200);
    let pushed = Schedule {
        events: Some(200),
        policy: "q".to_owned(),
        target: Some(http(&consumer)),
        ..Schedule::default()
    };
    trigger(&service, "pushed", pushed).await;
    assert_eq!(succeeded(&service, "pushed", 30).await, 200);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20) + 5 * usual, "{took:?}, and {usual:?} before");
    assert_eq!(service.held_count().await, 0);
    service.stop().await;
}

on_both_stores!(
    no_token_is_taken_without_a_worker_that_is_able,
    workers_and_schedules_have_turns,
    what_is_not_accepted_is_given_again_under_its_own_token,
    what_was_given_back_is_not_ended_by_a_later_word,
    what_was_accepted_is_held_and_comes_back_after_its_time,
    a_worker_s_room_is_what_it_says,
    whoever_polls_has_what_there_is_and_takes_nothing_along,
    a_storm_of_workers_that_die_loses_nothing,
    what_nobody_is_able_to_do_delays_nothing_else,
);

/// Workers are told that the process ends, which waits for none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ends_sends_its_workers_away() {
    let database = Database::new(Kind::Sqlite).await;
    let mut service = Service::start(&database).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let (notes, place) = (Notes::default(), place(&service));
    let _worker = Worker::start(&place, hello("w", &[], 5), &notes, |_| Deed::Work(300));
    trigger(&service, "s", pull(30, "p", &[])).await;
    given(&notes, 5).await;
    service.end(Duration::from_secs(40)).await.unwrap();
    wait_for("word of the end", 10, async || (notes.go_aways() == 1).then_some(())).await;
    let service = Service::start(&database).await;
    *place.lock().unwrap() = service.channel();
    assert_eq!(succeeded(&service, "s", 40).await, 30);
    assert!(notes.held_max() <= 5);
    service.stop().await;
}

/// What is wrong is told by status, field and text, and ends the stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_of_workers_are_named() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let end = async |said: Vec<Option<Say>>| {
        let mut said = said.into_iter();
        let (say, mut told) = open(service.channel(), said.next().unwrap()).await.unwrap();
        said.for_each(|message| say.send(WorkRequest { message }).unwrap());
        loop {
            match tokio::time::timeout(Duration::from_secs(60), told.message()).await.unwrap() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ends well"),
                Err(status) => return (status.code(), status.message().to_owned()),
            }
        }
    };
    let well = || Some(Say::Hello(hello("w", &["gpu"], 1)));
    let accept = Say::Accept(AcceptEvent { name: "00-x".to_owned(), attempt: 1 });
    let queue =
        |queue: &str| tollgate_proto::v1::WorkerHello { queue: queue.to_owned(), ..hello("w", &[], 1) };
    let cases = [
        (vec![None], "message: expected hello"),
        (vec![Some(accept.clone())], "message: expected hello"),
        (vec![well(), well()], "hello: "),
        (vec![well(), None], "message: expected capacity, accept, extend or release"),
        (vec![well(), Some(accept)], "accept.name: \"00-x under attempt 1\" is not allowed"),
        (vec![Some(Say::Hello(queue("render")))], "hello.queue: \"render\" is not allowed"),
        (vec![Some(Say::Hello(queue("namespaces/default/queues/Render")))], "hello.queue"),
        (vec![Some(Say::Hello(hello("w", &["GPU"], 1)))], "hello.labels: \"GPU\" is not allowed"),
        (vec![Some(Say::Hello(hello(&"w".repeat(65), &[], 1)))], "hello.worker"),
        (vec![Some(Say::Hello(hello("w", &[], 10_001)))], "hello.capacity: \"10001\" is not allowed"),
        (
            vec![well(), Some(Say::Capacity(WorkerCapacity { capacity: 20_000 }))],
            "capacity.capacity: \"20000\" is not allowed",
        ),
    ];
    for (said, message) in cases {
        let (code, text) = end(said.clone()).await;
        assert_eq!(code, Code::InvalidArgument, "{said:?}: {text}");
        assert!(text.starts_with(message), "{said:?}: {text}");
    }
    // A release of what there is not is answered, and the stream goes on.
    let (say, mut told) = open(service.channel(), well()).await.unwrap();
    let release = ReleaseTokenRequest { name: "00-x".to_owned(), ..ReleaseTokenRequest::default() };
    say.send(WorkRequest { message: Some(Say::Release(release)) }).unwrap();
    told.message().await.unwrap();
    let answer = told.message().await.unwrap().unwrap().message;
    let Some(Told::Released(released)) = answer else { panic!("{answer:?}") };
    assert_eq!(released.response.unwrap().status(), ReleaseStatus::Unknown);
    let bad = pull(1, "", &["Gpu"]);
    let error = service.create_schedule("bad", bad).await.unwrap_err();
    assert!(error.message().contains("schedule.target.pull.requires: \"Gpu\" is not allowed"), "{error:?}");
    service.stop().await;
}
