//! Several processes over one PostgreSQL: releases through any of them, and owners that die, freeze, leave and join
//! under load.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tollgate_harness::resources::{every, http, ms, once, policy, policy_name, schedule_name, soon};
use tollgate_harness::{
    Conduct, Consumer, Database, Kind, Notes, Releases, Service, lasting_shares, now_us, wait_for,
};
use tollgate_proto::v1::handler_peer_service_client::HandlerPeerServiceClient;
use tollgate_proto::v1::{
    ExplainEventRequest, ExtendTokenRequest, ForwardReleasesRequest, GetEventRequest,
    GetHandlerStatusRequest, HandlerStatus, PauseDispatchRequest, ReasonCode, ReleaseMode, ReleaseStatus,
    ReleaseTokenRequest, ReleaseTokensRequest, ResumeDispatchRequest, RunState, Target,
    TriggerScheduleRequest,
};
use tonic::Code;

mod dead_owner;

async fn status(service: &Service) -> HandlerStatus {
    service.handler().get_handler_status(GetHandlerStatusRequest::default()).await.unwrap().into_inner()
}

/// The id under which a process owns shards.
async fn id(service: &Service) -> String {
    status(service).await.handler
}

/// Starts so many processes, and waits until each owns shards and no shard is without an owner.
async fn cluster(database: &Database, processes: usize, flags: &[&str]) -> Vec<Service> {
    let mut services = Vec::new();
    for _ in 0..processes {
        services.push(Service::join(database, flags).await);
    }
    settled(&services).await;
    services
}

/// Waits until exactly these processes own everything.
async fn settled(services: &[Service]) {
    let mut ids = BTreeSet::new();
    for service in services {
        ids.insert(id(service).await);
    }
    lasting_shares(&ids, async || status(&services[0]).await).await;
}

/// Which of the processes owns a policy's shard.
async fn owner_of(services: &[Service], policy: &str) -> usize {
    let name = policy_name(policy);
    let owner = wait_for("the policy's owner", 20, async || {
        let status = status(&services[0]).await;
        let shard = status.policies.iter().find(|gauge| gauge.policy == name)?.shard;
        status
            .shards
            .into_iter()
            .find(|s| s.shard == shard)
            .map(|s| s.owner)
            .filter(|owner| !owner.is_empty())
    })
    .await;
    for (place, service) in services.iter().enumerate() {
        if id(service).await == owner {
            return place;
        }
    }
    panic!("{owner} is none of the processes");
}

fn on_response(consumer: &Consumer) -> Target {
    Target { release: ReleaseMode::OnResponse.into(), ..http(consumer) }
}

async fn arrived(notes: &Notes, at_least: usize) {
    wait_for("arrivals", 60, async || (notes.arrivals_count() >= at_least).then_some(())).await;
}

/// The longest time without an arrival between two moments, in milliseconds.
fn longest_pause_ms(notes: &Notes, from_us: i64, until_us: i64) -> i64 {
    let times = notes.arrivals().into_iter().map(|arrival| arrival.arrived_us);
    let mut times: Vec<i64> = times.filter(|at| (from_us..until_us).contains(at)).collect();
    times.push(from_us);
    times.sort_unstable();
    times.windows(2).map(|two| (two[1] - two[0]) / 1_000).max().unwrap_or((until_us - from_us) / 1_000)
}

fn report(text: &str) {
    #[expect(clippy::print_stderr, reason = "figures, shown with --nocapture")]
    {
        eprintln!("{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_go_through_every_process() {
    const EVENTS: u32 = 150;
    const LIMIT: u32 = 20;
    // So many that they live in several processes, so that every way leads to other ones, too.
    const POLICIES: usize = 12;
    let database = Database::new(Kind::Postgres).await;
    let services = cluster(&database, 3, &[]).await;
    let ways = [Releases::Unary, Releases::Batch, Releases::Stream];
    let mut consumers = Vec::new();
    for (service, how) in services.iter().zip(ways) {
        consumers.push(Consumer::start(service.link(), how, |_| Conduct::work(1..10)).await);
    }
    let at = soon(10_000);
    for number in 0..POLICIES {
        let name = format!("p{number}");
        services[number % 3].create_policy(&name, policy(LIMIT)).await.unwrap();
        let target = http(&consumers[number % 3]);
        services[(number + 1) % 3].create_schedule(&name, once(at, EVENTS, &name, target)).await.unwrap();
    }
    let mut owners = BTreeSet::new();
    for number in 0..POLICIES {
        let run = services[(number + 2) % 3].finished(&format!("p{number}"), 90).await;
        assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, EVENTS), "{run:?}");
        owners.insert(owner_of(&services, &format!("p{number}")).await);
    }
    assert!(owners.len() > 1, "all policies live in one process: nothing was forwarded");
    for consumer in &consumers {
        consumer.notes.assert_clean();
        consumer.notes.assert_once();
        let all = POLICIES / 3 * EVENTS as usize;
        wait_for("answers to all releases", 10, async || {
            (consumer.notes.releases().len() == all).then_some(())
        })
        .await;
        // A call between two processes that took too long is looked up in the store, which has it already.
        let released = consumer.notes.released(ReleaseStatus::Released);
        let twice = consumer.notes.released(ReleaseStatus::AlreadyReleased);
        assert!(released + twice == all && twice < all / 4, "{released} of {all} released, {twice} already");
        assert!(consumer.notes.in_flight_max() <= POLICIES / 3 * LIMIT as usize);
    }
    for service in services {
        service.stop().await;
    }
}

/// A stream to a process that owns nothing of it takes hardly longer than one to the owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_through_another_process_does_not_go_one_by_one() {
    const EVENTS: u32 = 4_000;
    let database = Database::new(Kind::Postgres).await;
    let services = cluster(&database, 2, &[]).await;
    let consumer = Consumer::start(services[0].link(), Releases::Unary, |_| Conduct::keep()).await;
    services[0].create_policy("p", policy(EVENTS)).await.unwrap();
    services[0].create_schedule("s", once(soon(1_000), EVENTS, "p", http(&consumer))).await.unwrap();
    arrived(&consumer.notes, EVENTS as usize).await;
    let owner = owner_of(&services, "p").await;
    let events: Vec<String> = consumer.notes.attempts().into_keys().collect();
    // By turns: the faster of two counts, should the machine stand still for a moment.
    let mut times = [Duration::MAX; 2];
    for (turn, quarter) in events.chunks(EVENTS as usize / 4).enumerate() {
        let service = if turn % 2 == 0 { owner } else { 1 - owner };
        let release = |name: &String| ReleaseTokenRequest { name: name.clone(), ..Default::default() };
        let messages: Vec<_> = quarter
            .chunks(500)
            .map(|part| ReleaseTokensRequest { releases: part.iter().map(release).collect() })
            .collect();
        let began = Instant::now();
        let answer = services[service].handler().release_tokens(tokio_stream::iter(messages)).await.unwrap();
        times[turn % 2] = times[turn % 2].min(began.elapsed());
        let answer = answer.into_inner();
        // A call between two processes that took too long is looked up in the store, which has it already.
        let done = answer.released_count + answer.already_released_count;
        assert_eq!(done, u64::from(EVENTS / 4), "through {service}: {answer:?}");
    }
    report(&format!(
        "1,000 releases by stream: through the owner {:?}, another process {:?}",
        times[0], times[1]
    ));
    assert!(times[1] < Duration::from_secs(2) + 4 * times[0], "{times:?}");
    for service in services {
        service.stop().await;
    }
}

/// What only the owner's memory knows, any process answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_process_knows_everything() {
    let database = Database::new(Kind::Postgres).await;
    let services = cluster(&database, 3, &[]).await;
    let consumer = Consumer::start(services[0].link(), Releases::Unary, |_| Conduct::keep()).await;
    services[0].create_policy("p", policy(2)).await.unwrap();
    services[1].create_schedule("s", once(soon(1_000), 5, "p", http(&consumer))).await.unwrap();
    arrived(&consumer.notes, 2).await;
    let run = services[2].first_run("s").await;
    let held = consumer.notes.arrivals()[0].event_id.clone();
    let waiting = services[0].events(&run.name).await[4].event_id.clone();
    for service in &services {
        let status = status(service).await;
        assert_eq!(status.held_count, 2);
        assert_eq!(
            status.policies.iter().map(|p| (p.held_count, p.waiting_count)).collect::<Vec<_>>(),
            [(2, 3)]
        );
        assert!(status.shards.iter().all(|shard| !shard.owner.is_empty()));
        assert_eq!(service.run(&run.name).await.in_flight_count, 2);
        assert_eq!(service.runs("s").await[0].in_flight_count, 2);
        let explain = ExplainEventRequest { name: waiting.clone() };
        let explained = service.handler().explain_event(explain).await.unwrap().into_inner();
        assert_eq!(explained.reasons[0].code(), ReasonCode::LimitReached, "{explained:?}");
        assert_eq!((explained.holders.len(), explained.place_in_line), (2, 2), "{explained:?}");
        let extend = ExtendTokenRequest { name: held.clone(), attempt: Some(1), ttl: Some(ms(120_000)) };
        let extended = service.handler().extend_token(extend).await.unwrap().into_inner();
        assert_eq!(extended.remaining, Some(ms(120_000)));
        let event = service.handler().get_event(GetEventRequest { name: held.clone() }).await.unwrap();
        assert_eq!(event.into_inner().event_id, held);
        // Refusals are the same wherever they are asked for.
        let release = ReleaseTokenRequest { name: held.clone(), attempt: Some(9), ..Default::default() };
        let late = service.handler().release_token(release).await.unwrap().into_inner();
        assert_eq!(late.status(), ReleaseStatus::Late);
        let next_check_time = Some(prost_types::Timestamp { seconds: 1, nanos: 0 });
        let past = ReleaseTokenRequest { name: held.clone(), next_check_time, ..Default::default() };
        let refused = service.handler().release_token(past).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    }
    // Everything stops and goes on everywhere, whoever is asked, and in the order in which it was asked.
    for turn in 0..3 {
        let pause = PauseDispatchRequest { reason: "flood".to_owned() };
        let told =
            services[turn].handler().pause_dispatch(pause).await.unwrap().into_inner().shards_told_count;
        assert_eq!(told, 64);
        let resume = ResumeDispatchRequest {};
        let told = services[(turn + 1) % 3].handler().resume_dispatch(resume).await.unwrap().into_inner();
        assert_eq!(told.shards_told_count, 64);
        assert!(status(&services[turn]).await.shards.iter().all(|shard| !shard.paused));
    }
    // The processes' own door is closed to others, with or without a forged mark.
    for mark in [None, Some("bm90IGl0")] {
        let mut peer = HandlerPeerServiceClient::new(services[0].channel());
        let release = ReleaseTokenRequest { name: held.clone(), ..Default::default() };
        let mut request = tonic::Request::new(ForwardReleasesRequest { releases: vec![release] });
        if let Some(mark) = mark {
            request.metadata_mut().insert("tollgate-peer", mark.parse().unwrap());
        }
        let refused = peer.forward_releases(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    }
    assert_eq!(services[0].run(&run.name).await.in_flight_count, 2);
    for service in services {
        service.stop().await;
    }
}

/// A batch under load, through the processes that stay.
struct Load {
    services: Vec<Service>,
    consumer: Consumer,
    _database: Database,
}

const LIMIT: u32 = 10;

/// The default lease: no process is taken for dead that the machine only lets wait. One that left without handing over would
/// be waited for longer than `PAUSE_MS`.
const LASTING: [&str; 2] = ["--lease-ttl", "6s"];
const PAUSE_MS: i64 = 4_000;

/// The first process is the one that owns the policy.
async fn load(processes: usize, events: u32, flags: &[&str], work: std::ops::Range<u64>) -> Load {
    let database = Database::new(Kind::Postgres).await;
    let mut services = cluster(&database, processes, flags).await;
    services[0].create_policy("gentle", policy(LIMIT)).await.unwrap();
    let owner = owner_of(&services, "gentle").await;
    services.swap(0, owner);
    let stays = services.last().unwrap();
    let consumer = Consumer::start(stays.link(), Releases::Unary, move |_| Conduct::work(work.clone())).await;
    stays.create_schedule("batch", once(soon(1_000), events, "gentle", http(&consumer))).await.unwrap();
    Load { services, consumer, _database: database }
}

impl Load {
    /// Everything came, nothing came twice at once; how many events came more than once.
    async fn check(&self, events: u32) -> usize {
        let service = self.services.last().unwrap();
        let run = service.finished("batch", 120).await;
        assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, events), "{run:?}");
        let indexes: BTreeSet<u32> = self.consumer.notes.arrivals().iter().map(|a| a.index).collect();
        assert_eq!(indexes, (0..events).collect(), "every event came");
        self.consumer.notes.assert_sound();
        let most = self.consumer.notes.in_flight_max();
        assert!(most <= LIMIT as usize, "{most} in flight");
        self.consumer.notes.attempts().values().filter(|attempts| attempts.len() > 1).count()
    }

    async fn stop(self) {
        for service in self.services {
            service.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn firing_goes_on_after_an_owner_was_killed() {
    const EVENTS: u32 = 800;
    let mut load = load(3, EVENTS, &LASTING, 10..60).await;
    arrived(&load.consumer.notes, 200).await;
    let killed_us = now_us();
    load.services.remove(0).kill9();
    let resumed = wait_for("firing after the kill", 30, async || {
        // What was on its way when it died does not count.
        load.consumer.notes.arrivals().into_iter().find(|a| a.arrived_us > killed_us + 500_000)
    })
    .await;
    let again = load.check(EVENTS).await;
    load.consumer.notes.assert_clean();
    let pause_ms = (resumed.arrived_us - killed_us) / 1_000;
    report(&format!("kill -9 of the owner: firing resumed after {pause_ms} ms, {again} events came again"));
    assert!(pause_ms <= 20_000, "firing resumed after {pause_ms} ms");
    assert!(again <= LIMIT as usize, "{again} events came again");
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_owner_does_not_fire_when_it_wakes() {
    const EVENTS: u32 = 2_500;
    let load = load(3, EVENTS, &["--lease-ttl", "4s"], 10..60).await;
    arrived(&load.consumer.notes, 200).await;
    let mut pauses = Vec::new();
    for _ in 0..2 {
        // The owner may be another one by now, and most of the events may have been sent.
        let frozen = owner_of(&load.services, "gentle").await;
        let left = EVENTS as usize - load.consumer.notes.arrivals_count().min(EVENTS as usize);
        if frozen + 1 == load.services.len() || left < 400 {
            break;
        }
        let frozen_us = now_us();
        load.services[frozen].freeze();
        let resumed = wait_for("firing while the owner is frozen", 20, async || {
            load.consumer.notes.arrivals().into_iter().find(|a| a.arrived_us > frozen_us + 500_000)
        })
        .await;
        pauses.push((resumed.arrived_us - frozen_us) / 1_000);
        tokio::time::sleep(Duration::from_secs(1)).await;
        load.services[frozen].thaw();
        settled(&load.services).await;
    }
    let again = load.check(EVENTS).await;
    report(&format!("SIGSTOP of the owner: firing resumed after {pauses:?} ms, {again} events came again"));
    assert!(pauses.iter().all(|pause_ms| *pause_ms <= 20_000), "{pauses:?}");
    assert!(again <= LIMIT as usize * pauses.len(), "{again} events came again");
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_stop_makes_no_pause_and_sends_nothing_twice() {
    const EVENTS: u32 = 900;
    let mut load = load(3, EVENTS, &LASTING, 10..40).await;
    arrived(&load.consumer.notes, 200).await;
    let stopped_us = now_us();
    let began = Instant::now();
    load.services.remove(0).stop().await;
    let stop_ms = began.elapsed().as_millis();
    // And the next owner, as soon as it is known.
    let next = owner_of(&load.services, "gentle").await;
    if next + 1 < load.services.len() {
        load.services.remove(next).stop().await;
    }
    let again = load.check(EVENTS).await;
    let pause_ms = longest_pause_ms(&load.consumer.notes, stopped_us, now_us());
    load.consumer.notes.assert_clean();
    report(&format!("planned stop: longest pause {pause_ms} ms, the process ended after {stop_ms} ms"));
    load.consumer.notes.assert_once();
    assert_eq!(again, 0);
    assert!(pause_ms <= PAUSE_MS, "nothing came for {pause_ms} ms");
    load.stop().await;
}

/// Requests are under way for seven seconds when their owner is told to stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_stop_does_not_wait_for_slow_consumers() {
    const SLOW: u32 = 4;
    const QUICK: u32 = 600;
    let database = Database::new(Kind::Postgres).await;
    let mut services = cluster(&database, 2, &LASTING).await;
    services[0].create_policy("both", policy(LIMIT)).await.unwrap();
    let owner = owner_of(&services, "both").await;
    let leaves = services.remove(owner);
    let stays = services.remove(0);
    let consumer = Consumer::start(stays.link(), Releases::Unary, |arrival| match &*arrival.schedule {
        "slow" => Conduct::Answers(Duration::from_secs(7)),
        _ => Conduct::work(10..40),
    })
    .await;
    let at = soon(5_000);
    stays.create_schedule("slow", once(at, SLOW, "both", on_response(&consumer))).await.unwrap();
    stays.create_schedule("quick", once(at, QUICK, "both", http(&consumer))).await.unwrap();
    arrived(&consumer.notes, 60).await;
    let slow = || consumer.notes.arrivals().iter().filter(|a| a.schedule == "slow").count();
    wait_for("the slow ones under way", 10, async || (slow() == SLOW as usize).then_some(())).await;
    let stopped_us = now_us();
    leaves.stop().await;
    for (schedule, events) in [("slow", SLOW), ("quick", QUICK)] {
        let run = stays.finished(schedule, 60).await;
        assert_eq!(run.counts.unwrap().succeeded, events, "{run:?}");
    }
    let pause_ms = longest_pause_ms(&consumer.notes, stopped_us, now_us());
    report(&format!("planned stop with slow consumers: longest pause {pause_ms} ms"));
    consumer.notes.assert_clean();
    consumer.notes.assert_once();
    assert!(consumer.notes.in_flight_max() <= LIMIT as usize);
    assert!(pause_ms <= PAUSE_MS, "nothing came for {pause_ms} ms");
    stays.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_move_to_a_process_that_joins() {
    const POLICIES: usize = 6;
    const EVENTS: u32 = 250;
    let database = Database::new(Kind::Postgres).await;
    let mut services = cluster(&database, 1, &LASTING).await;
    let consumer = Consumer::start(services[0].link(), Releases::Unary, |_| Conduct::work(40..120)).await;
    let at = soon(8_000);
    for number in 0..POLICIES {
        let name = format!("p{number}");
        services[0].create_policy(&name, policy(4)).await.unwrap();
        services[0].create_schedule(&name, once(at, EVENTS, &name, http(&consumer))).await.unwrap();
    }
    arrived(&consumer.notes, 100).await;
    let joined_us = now_us();
    services.push(Service::join(&database, &LASTING).await);
    settled(&services).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut owners: BTreeMap<usize, usize> = BTreeMap::new();
    let mut pauses = Vec::new();
    let until_us = now_us();
    for number in 0..POLICIES {
        let name = format!("p{number}");
        *owners.entry(owner_of(&services, &name).await).or_default() += 1;
        let times = consumer.notes.arrivals().into_iter().filter(|a| a.schedule == name);
        let mut times: Vec<i64> =
            times.map(|a| a.arrived_us).filter(|at| (joined_us..until_us).contains(at)).collect();
        times.sort_unstable();
        pauses.extend(times.windows(2).map(|two| (two[1] - two[0]) / 1_000).max());
    }
    for number in 0..POLICIES {
        let run = services[1].finished(&format!("p{number}"), 90).await;
        assert_eq!(run.counts.unwrap().succeeded, EVENTS, "{run:?}");
    }
    report(&format!("a process joins: policies by owner {owners:?}, longest pauses {pauses:?} ms"));
    consumer.notes.assert_clean();
    consumer.notes.assert_once();
    assert!(consumer.notes.in_flight_max() <= 4 * POLICIES);
    assert!(pauses.iter().all(|pause_ms| *pause_ms <= PAUSE_MS), "{pauses:?}");
    for service in services {
        service.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_in_a_process_of_its_own() {
    let database = Database::new(Kind::Postgres).await;
    let quick = ["--window", "2s", "--ahead", "4s"];
    let with = |role: &'static str| [["--roles", role].as_slice(), &quick].concat();
    let master = Service::join(&database, &with("master")).await;
    let emitter = Service::join(&database, &with("emitter")).await;
    let handlers = cluster(&database, 2, &with("handler")).await;
    let consumer = Consumer::start(handlers[0].link(), Releases::Unary, |_| Conduct::work(1..5)).await;
    master.create_policy("p", policy(5)).await.unwrap();
    master.create_schedule("often", every(1, soon(6_000), 3, "p", http(&consumer))).await.unwrap();
    arrived(&consumer.notes, 12).await;
    let schedule = once(soon(3_600_000), 1, "p", http(&consumer));
    master.create_schedule("by-hand", schedule).await.unwrap();
    let mut waits = Vec::new();
    for _ in 0..7 {
        let began_us = now_us();
        let request =
            TriggerScheduleRequest { name: schedule_name("by-hand"), events: None, ..Default::default() };
        let run = master.master().trigger_schedule(request).await.unwrap().into_inner().name;
        let came = wait_for("a run made by hand", 10, async || {
            consumer.notes.arrivals().into_iter().find(|arrival| arrival.run == run)
        })
        .await;
        waits.push((came.arrived_us - began_us) / 1_000);
    }
    waits.sort_unstable();
    report(&format!("master and handler apart: made by hand and at the consumer after {waits:?} ms"));
    // An owner that is not told looks once a second, and each run was made just after a look.
    assert!(waits[2] <= 500, "the owner was not told: {waits:?} ms");
    consumer.notes.assert_clean();
    consumer.notes.assert_once();
    for service in handlers.into_iter().chain([master, emitter]) {
        service.stop().await;
    }
}
