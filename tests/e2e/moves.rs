//! The number of queue shards is changed while schedules fire and consumers hold tokens: what belongs elsewhere moves, nothing is
//! lost or comes twice, no policy has more in flight than it may, and every id goes on naming its event.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_harness::resources::{every, http, once, policy, schedule_name, soon};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Link, Releases, Service, wait_for};
use tollgate_proto::v1::{
    CancelRunRequest, ExplainEventRequest, ExtendTokenRequest, GetEventRequest, ListRunsRequest,
    ReleaseOutcome, ReleaseStatus, ReleaseTokenRequest, RetryDeadEventsRequest, RunState,
    TriggerScheduleRequest,
};
use tonic::Code;

use crate::more_shards::{all_owned, each_second};

mod held;
mod middle;

on_both_stores!(what_belongs_elsewhere_moves_while_everything_goes_on);

const QUICK: [&str; 4] = ["--window", "2s", "--ahead", "4s"];
/// Policies, each with a schedule that fires each second, and one whose consumer keeps what it gets.
const POLICIES: usize = 6;
const HELD: u32 = 3;

/// How many trees of policies, and schedules without one, are still to move.
fn to_move(cli: &Cli, url: &str) -> u64 {
    cli.json(&["store", "shards", "--store", url])["toMove"].as_u64().unwrap()
}

struct World {
    database: Database,
    /// Where consumers release.
    link: Link,
    consumers: Vec<Consumer>,
    keeper: Consumer,
}

impl World {
    /// Each policy has a consumer of its own, which sees how many of its events are in flight.
    async fn begin(service: &Service, database: Database) -> Self {
        let (mut consumers, link) = (Vec::new(), service.link());
        let keeper = Consumer::start(link.clone(), Releases::Unary, |_| Conduct::keep()).await;
        for number in 0..POLICIES {
            let consumer = Consumer::start(link.clone(), Releases::Unary, |_| Conduct::work(5..20)).await;
            let id = format!("p{number}");
            service.create_policy(&id, policy(2)).await.unwrap();
            let often = every(1, soon(4_000), 5, &id, http(&consumer));
            service.create_schedule(&format!("s{number}"), often).await.unwrap();
            let free = every(1, soon(4_000), 1, "", http(&keeper));
            service.create_schedule(&format!("free{number}"), free).await.unwrap();
            consumers.push(consumer);
        }
        for number in 0..4 {
            let id = format!("kept{number}");
            service.create_policy(&id, policy(HELD)).await.unwrap();
            let kept = once(soon(2_000), 2 * HELD, &id, http(&keeper));
            service.create_schedule(&id, kept).await.unwrap();
        }
        let world = Self { database, link, consumers, keeper };
        wait_for("what is kept", 40, async || (world.kept().len() == 12).then_some(())).await;
        world
    }

    /// The events whose tokens are held, by the ids that came.
    fn kept(&self) -> BTreeSet<String> {
        let arrivals = self.keeper.notes.arrivals().into_iter();
        arrivals.filter(|one| one.schedule.starts_with("kept")).map(|one| one.event_id).collect()
    }

    /// Has so many shards used, and waits until nothing belongs elsewhere.
    async fn change(&self, service: &Service, shards: usize) {
        let (cli, url) = (Cli::new(service.url()), self.database.url());
        cli.json(&["store", "shards", "--to", &shards.to_string(), "--store", &url]);
        let is_over = async || (to_move(&cli, &url) == 0).then_some(());
        wait_for("all to be where it belongs", 120, is_over).await;
    }

    /// No schedule has missed a second, and no policy has had more in flight than it may.
    async fn judge(&self) {
        for (number, consumer) in self.consumers.iter().enumerate() {
            each_second(&consumer.notes, &format!("s{number}"), 5).await;
            each_second(&self.keeper.notes, &format!("free{number}"), 1).await;
            consumer.notes.assert_clean();
            consumer.notes.assert_once();
            assert!(consumer.notes.in_flight_max() <= 2, "{number}: {}", consumer.notes.in_flight_max());
        }
        self.keeper.notes.assert_once();
        // No policy has stood for long: what waits for no token shows it. The bound is one for a busy machine.
        let free = self.keeper.notes.arrivals().into_iter().filter(|one| one.schedule.starts_with("free"));
        let late_us = free.map(|one| one.arrived_us - one.launch_us).max().unwrap_or_default();
        assert!(late_us < 15_000_000, "{late_us} µs");
    }
}

/// Whoever is asked knows the event by the id that its consumer got.
async fn is_known(service: &Service, id: &str) {
    let get = GetEventRequest { name: id.to_owned() };
    let event = service.handler().get_event(get).await.unwrap().into_inner();
    assert_eq!(event.event_id, id);
    let explain = ExplainEventRequest { name: id.to_owned() };
    let explained = service.handler().explain_event(explain).await.unwrap().into_inner();
    assert_eq!(explained.event.unwrap().event_id, id);
    let extend = ExtendTokenRequest { name: id.to_owned(), attempt: Some(1), ttl: None };
    service.handler().extend_token(extend).await.unwrap();
}

async fn release(service: &Service, id: &str) -> ReleaseStatus {
    let release = ReleaseTokenRequest { name: id.to_owned(), ..Default::default() };
    service.handler().release_token(release).await.unwrap().into_inner().status()
}

async fn what_belongs_elsewhere_moves_while_everything_goes_on(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start_with(&database, &QUICK).await;
    let world = World::begin(&service, database).await;
    let before = service.first_run("kept0").await.name;
    world.change(&service, 256).await;
    all_owned(&service, 256, 1).await;
    // Nothing of what was held has come again, and no further event has started.
    let kept = world.kept();
    assert_eq!(kept.len(), 12, "as many as were held before");
    for id in &kept {
        is_known(&service, id).await;
    }
    assert_eq!(service.run(&before).await.name, before, "a run keeps its name");
    for id in &kept {
        assert_eq!(release(&service, id).await, ReleaseStatus::Released, "{id}");
        assert_eq!(release(&service, id).await, ReleaseStatus::AlreadyReleased, "{id}");
    }
    // Those that waited start where their policy is by now.
    wait_for("the others", 40, async || (world.kept().len() == 24).then_some(())).await;
    // Fewer than at first.
    world.change(&service, 16).await;
    for id in world.kept().difference(&kept) {
        is_known(&service, id).await;
        assert_eq!(release(&service, id).await, ReleaseStatus::Released, "{id}");
    }
    for number in 0..4 {
        let run = service.finished(&format!("kept{number}"), 40).await;
        assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, 6));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.judge().await;
    // What a slow moment was told of is over soon.
    wait_for("no troubles", 30, async || {
        let troubles = Cli::new(service.url()).json(&["troubles", "-A"]);
        (troubles["troubles"].as_array().map(Vec::len) == Some(0)).then_some(())
    })
    .await;
    service.stop().await;
}

/// A process that dies in the middle of a move loses nothing, and what it has begun goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deaths_in_the_middle_of_it_lose_nothing() {
    let database = Database::new(Kind::Postgres).await;
    let lease = ["--lease-ttl", "2s"];
    let flags = [&QUICK[..], &lease[..]].concat();
    let mut services = vec![Service::start_with(&database, &flags).await];
    for _ in 0..2 {
        services.push(Service::join(&database, &flags).await);
    }
    all_owned(&services[0], 64, 3).await;
    let world = World::begin(&services[0], database).await;
    let mut handlers = Vec::new();
    for service in &services {
        handlers.push(service.status().await.unwrap().handler);
    }
    let ids = (0..POLICIES).map(|number| format!("p{number}"));
    let ids = ids.chain((0..4).map(|number| format!("kept{number}")));
    let held = middle::first_to_move(&services[0], ids, 256).await;
    let id = held.name.rsplit('/').next().unwrap();
    let mut holder = middle::Holder::of(&world.database, id).await;
    let (url, cli) = (world.database.url(), Cli::new(services[0].url()));
    cli.json(&["store", "shards", "--to", "256", "--store", &url]);
    // Its transaction has begun, and stands.
    holder.is_awaited_by(1).await;
    let owner = holder.owner(held.shard).await;
    let dies = handlers.iter().position(|handler| *handler == owner).expect("the owner is one of them");
    services.remove(dies).kill9();
    let left = to_move(&cli, &url);
    assert!(left > 0, "all has moved before the process died");
    holder.lets_go().await;
    services.push(Service::join(&world.database, &flags).await);
    world.link.follow(&services[0]);
    world.change(&services[0], 200).await;
    all_owned(&services[0], 256, 3).await;
    for (number, id) in world.kept().iter().enumerate() {
        let service = &services[number % 3];
        // Half of them by a process that has not learnt where they are.
        if number % 2 == 0 {
            is_known(service, id).await;
        }
        assert_eq!(release(service, id).await, ReleaseStatus::Released, "{id}");
    }
    wait_for("the others", 40, async || (world.kept().len() == 24).then_some(())).await;
    for (number, consumer) in world.consumers.iter().enumerate() {
        each_second(&consumer.notes, &format!("s{number}"), 5).await;
        assert!(consumer.notes.in_flight_max() <= 2, "{number}: {}", consumer.notes.in_flight_max());
    }
    for service in services {
        service.stop().await;
    }
}

/// Dead events of a run that ended before its policy moved are tried again where the policy is; a run is cancelled there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ended_before_is_tried_again_under_its_policy() {
    let database = Database::new(Kind::Postgres).await;
    let service = Service::start_with(&database, &QUICK).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |arrival| {
        let again = ReleaseTokenRequest { outcome: ReleaseOutcome::Retry.into(), ..Default::default() };
        if arrival.attempt == 1 { Conduct::release(again) } else { Conduct::work(1..5) }
    })
    .await;
    let mut dead = Vec::new();
    for number in 0..12 {
        let id = format!("p{number}");
        service.create_policy(&id, policy(2)).await.unwrap();
        let mut schedule = once(soon(1_000), 3, &id, http(&consumer));
        schedule.retry =
            Some(tollgate_proto::v1::RetryPolicy { max_attempts: Some(1), ..Default::default() });
        service.create_schedule(&id, schedule).await.unwrap();
        dead.push(id);
    }
    let (link, consumers) = (service.link(), Vec::new());
    let world = World { database, link, consumers, keeper: consumer };
    let mut runs = Vec::new();
    for id in &dead {
        runs.push(service.finished(id, 40).await);
    }
    let later = TriggerScheduleRequest {
        name: schedule_name("p0"),
        launch_time: Some(soon(600_000)),
        ..Default::default()
    };
    let later = service.master().trigger_schedule(later).await.unwrap().into_inner();
    world.change(&service, 256).await;
    let big = runs.split_off(6);
    for run in &runs {
        assert_eq!(run.counts.unwrap().dead, 3, "{run:?}");
        let retry = RetryDeadEventsRequest { parent: run.name.clone(), ..Default::default() };
        let retried = service.handler().retry_dead_events(retry).await.unwrap().into_inner();
        assert_eq!(retried.retried_count, 3, "{run:?}");
        wait_for("the events to end well", 30, async || {
            let now = service.run(&run.name).await;
            (now.counts?.succeeded == 3).then_some(())
        })
        .await;
    }
    // What has so much history that its policy would wait for it stays; nearly all policies have moved.
    let ids = dead[6..].iter().map(|id| format!("'{id}'")).collect::<Vec<_>>().join(", ");
    world.database.sql(&format!("UPDATE runs SET dead = 20001 WHERE schedule_id IN ({ids})")).await;
    let mut refused = 0;
    for run in &big {
        let retry = RetryDeadEventsRequest { parent: run.name.clone(), ..Default::default() };
        if let Err(status) = service.handler().retry_dead_events(retry).await {
            assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
            assert!(status.message().contains("more than 20000 do not follow"), "{status:?}");
            refused += 1;
        }
    }
    assert!(refused > 0, "{big:?}");
    let cancel = CancelRunRequest { name: later.name.clone(), ..Default::default() };
    service.handler().cancel_run(cancel).await.unwrap();
    wait_for("the run to be cancelled", 20, async || {
        let run = service.run(&later.name).await;
        (run.state() == RunState::Cancelled).then_some(())
    })
    .await;
    let id = later.name.rsplit('/').next().unwrap();
    let (parent, filter) = ("namespaces/default".to_owned(), format!("name={id}*"));
    let list = ListRunsRequest { parent, filter, ..Default::default() };
    let found = service.handler().list_runs(list).await.unwrap().into_inner().runs;
    assert_eq!(found.iter().map(|run| &run.name).collect::<Vec<_>>(), [&later.name]);
    service.stop().await;
}
