//! Queue shards are added while schedules fire: nothing is lost or comes twice, what is new is spread over all of them, and every
//! process, whether it began before or after, knows what lives there.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_harness::resources::{every, http, once, policy, soon};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Notes, Releases, Service, wait_for};
use tollgate_proto::v1::{
    ExplainEventRequest, ExtendTokenRequest, GetEventRequest, GetRunRequest, PauseDispatchRequest, Policy,
    ReleaseStatus, ReleaseTokenRequest, ResumeDispatchRequest, RunState,
};
use tonic::Code;

const QUICK: [&str; 4] = ["--window", "2s", "--ahead", "4s"];
/// How many shards there are at first.
const FIRST: u32 = 64;
const MORE: usize = 256;
/// How many there may be. Ids of these have a digit more.
const MOST: usize = 1_024;

/// Waits until a process knows of all shards, each of which has one of so many owners.
pub(crate) async fn all_owned(service: &Service, shards: usize, owners: usize) {
    wait_for("an owner for each queue shard", 60, async || {
        let status = service.status().await.ok()?;
        let by: BTreeSet<_> = status.shards.iter().map(|shard| shard.owner.clone()).collect();
        (status.shards.len() == shards && by.len() == owners && !by.contains("")).then_some(())
    })
    .await;
}

fn add(database: &Database, service: &Service, shards: usize) {
    let to = shards.to_string();
    let answer = Cli::new(service.url()).json(&["store", "shards", "--to", &to, "--store", &database.url()]);
    assert_eq!(
        (answer["shards"].as_u64(), answer["before"].as_u64()),
        (Some(shards as u64), Some(64)),
        "{answer}"
    );
}

/// Makes policies until one lives in a shard from `first` on, which takes a moment where the process has not heard of it.
async fn policy_from(service: &Service, first: u32, limit: u32) -> (String, Policy) {
    let mut number = 0;
    wait_for("a policy in a shard that was added", 30, async || {
        number += 1;
        let id = format!("new{number}");
        let made = service.create_policy(&id, policy(limit)).await.unwrap();
        (made.shard >= first).then_some((id, made))
    })
    .await
}

/// The events of each launch of a schedule that have come.
fn launches(notes: &Notes, schedule: &str) -> BTreeMap<i64, BTreeSet<String>> {
    let mut launches: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    for arrival in notes.arrivals().into_iter().filter(|arrival| arrival.schedule == schedule) {
        launches.entry(arrival.launch_us).or_default().insert(arrival.event_id);
    }
    launches
}

/// Checks that the schedule has fired each second, with so many events, from the first that came to the last but one. On a busy
/// machine some of them may still be on their way, which is waited for.
pub(crate) async fn each_second(notes: &Notes, schedule: &str, events: usize) {
    let (last_us, _) = launches(notes, schedule).pop_last().expect(schedule);
    let whole = wait_for(&format!("{events} events of each launch of {schedule}"), 30, async || {
        let mut launches = launches(notes, schedule);
        launches.retain(|at_us, _| *at_us < last_us);
        launches.values().all(|all| all.len() == events).then_some(launches)
    })
    .await;
    assert!(whole.len() > 4, "{schedule}: {} launches", whole.len());
    let times: Vec<i64> = whole.into_keys().collect();
    assert!(times.windows(2).all(|two| two[1] - two[0] == 1_000_000), "{schedule}: {times:?}");
}

/// Schedules without a policy, made until one has had its run in a shard that was added.
async fn free_schedules_spread(service: &Service, consumer: &Consumer) {
    let mut shards = BTreeSet::new();
    for number in 0..24 {
        let id = format!("free{number}");
        service.create_schedule(&id, once(soon(500), 1, "", http(consumer))).await.unwrap();
        let run = service.finished(&id, 60).await;
        assert_eq!(run.state(), RunState::Finished);
        let name = run.name.rsplit('/').next().unwrap().to_owned();
        shards.insert(u32::from_str_radix(name.split('-').next().unwrap(), 16).unwrap());
        if shards.iter().any(|shard| *shard >= FIRST) {
            return;
        }
    }
    panic!("no schedule lives in a shard that was added: {shards:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_are_added_beside_the_process_that_has_sqlite_open() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start_with(&database, &QUICK).await;
    let cli = Cli::new(service.url());
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..5)).await;
    service.create_policy("p", policy(3)).await.unwrap();
    service.create_schedule("often", every(1, soon(5_000), 3, "p", http(&consumer))).await.unwrap();
    service.create_schedule("free", every(1, soon(5_000), 2, "", http(&consumer))).await.unwrap();
    wait_for("arrivals", 30, async || (consumer.notes.arrivals_count() >= 10).then_some(())).await;
    let url = database.url();
    let shown = cli.ok(&["store", "shards", "--store", &url]);
    assert!(shown.starts_with("queue shards: 64\npolicies:     1, "), "{shown}");
    add(&database, &service, MOST);
    all_owned(&service, MOST, 1).await;
    let (id, made) = policy_from(&service, 256, 2).await;
    service.create_schedule("new", once(soon(1_000), 9, &id, http(&consumer))).await.unwrap();
    let run = service.finished("new", 60).await;
    assert_eq!(run.counts.unwrap().succeeded, 9, "{made:?}");
    free_schedules_spread(&service, &consumer).await;
    wait_for("seconds after that", 30, async || (consumer.notes.arrivals_count() >= 60).then_some(())).await;
    let status = cli.ok(&["status"]);
    assert!(status.contains("queue shards:") && status.contains("1024 with"), "{status}");
    // What a slow moment was told of is over soon.
    wait_for("no troubles", 30, async || {
        let troubles = cli.json(&["troubles", "-A"]);
        (troubles["troubles"].as_array().map(Vec::len) == Some(0)).then_some(())
    })
    .await;
    let shown = cli.ok(&["store", "shards", "--store", &url]);
    assert!(shown.starts_with("queue shards: 1024\n"), "{shown}");
    let again = cli.ok(&["store", "shards", "--to", "1024", "--store", &url]);
    assert_eq!(again, "1024 queue shards are used already; nothing is changed\n");
    let refused = cli.run(&["store", "shards", "--to", "1025", "--store", &url]);
    let said = "--to: 1025 is not allowed, expected 1 to 1024";
    assert!(refused.code == 2 && refused.err.contains(said), "{refused:?}");
    each_second(&consumer.notes, "often", 3).await;
    each_second(&consumer.notes, "free", 2).await;
    consumer.notes.assert_clean();
    consumer.notes.assert_once();
    service.stop().await;
    // What is there is found again.
    let service = Service::start_with(&database, &QUICK).await;
    all_owned(&service, MOST, 1).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_process_knows_what_lives_in_shards_that_were_added() {
    let database = Database::new(Kind::Postgres).await;
    let first = Service::start_with(&database, &QUICK).await;
    let second = Service::join(&database, &QUICK).await;
    let master = Service::join(&database, &["--roles", "master"]).await;
    let consumer = Consumer::start(first.link(), Releases::Batch, |_| Conduct::work(1..5)).await;
    let keeper = Consumer::start(first.link(), Releases::Unary, |_| Conduct::keep()).await;
    first.create_policy("p", policy(3)).await.unwrap();
    first.create_schedule("often", every(1, soon(5_000), 3, "p", http(&consumer))).await.unwrap();
    second.create_schedule("free", every(1, soon(5_000), 2, "", http(&consumer))).await.unwrap();
    wait_for("arrivals", 30, async || (consumer.notes.arrivals_count() >= 10).then_some(())).await;
    add(&database, &first, MORE);
    // By the master alone, which owns nothing and has to find out as well.
    let (id, made) = policy_from(&master, FIRST, 6).await;
    master.create_schedule("new", once(soon(500), 6, &id, http(&keeper))).await.unwrap();
    wait_for("six that are kept", 40, async || (keeper.notes.arrivals_count() == 6).then_some(())).await;
    let third = Service::join(&database, &QUICK).await;
    all_owned(&third, MORE, 3).await;
    all_owned(&first, MORE, 3).await;
    // Whoever is asked, and whoever owns it.
    let held: Vec<String> = keeper.notes.attempts().into_keys().collect();
    for (place, event) in held.iter().enumerate() {
        let service = [&first, &second, &third][place % 3];
        let get = GetEventRequest { name: event.clone() };
        assert_eq!(service.handler().get_event(get).await.unwrap().into_inner().event_id, *event);
        let explain = ExplainEventRequest { name: event.clone() };
        service.handler().explain_event(explain).await.unwrap();
        let extend = ExtendTokenRequest { name: event.clone(), attempt: Some(1), ttl: None };
        service.handler().extend_token(extend).await.unwrap();
        let release = ReleaseTokenRequest { name: event.clone(), ..Default::default() };
        let released = service.handler().release_token(release).await.unwrap().into_inner();
        assert_eq!(
            released.status(),
            ReleaseStatus::Released,
            "{event} of shard {}: {released:?}",
            made.shard
        );
    }
    assert_eq!(third.finished("new", 30).await.counts.unwrap().succeeded, 6);
    // Everything stops, and goes on, in all of them.
    let stop = PauseDispatchRequest { reason: "flood".to_owned() };
    let told = second.handler().pause_dispatch(stop).await.unwrap().into_inner().shards_told_count;
    assert_eq!(usize::try_from(told).unwrap(), MORE);
    assert!(first.status().await.unwrap().shards.iter().all(|shard| shard.paused));
    let told = third.handler().resume_dispatch(ResumeDispatchRequest {}).await.unwrap().into_inner();
    assert_eq!(usize::try_from(told.shards_told_count).unwrap(), MORE);
    // An id of a shard that there is not is nobody's.
    let run = third.first_run("new").await.name;
    let (parent, own) = run.rsplit_once('/').unwrap();
    let nowhere = format!("{parent}/1ff-{}", own.split_once('-').unwrap().1);
    let missing = third.handler().get_run(GetRunRequest { name: nowhere }).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound, "{missing:?}");
    // A machine that is quick comes here within few launches.
    let launches = || -> BTreeSet<i64> {
        let of = |schedule| consumer.notes.arrivals().into_iter().filter(move |one| one.schedule == schedule);
        of("free").map(|one| one.launch_us).collect()
    };
    wait_for("some launches", 20, async || (launches().len() > 6).then_some(())).await;
    each_second(&consumer.notes, "often", 3).await;
    each_second(&consumer.notes, "free", 2).await;
    consumer.notes.assert_clean();
    consumer.notes.assert_once();
    keeper.notes.assert_once();
    for service in [first, second, third, master] {
        service.stop().await;
    }
}

/// Who adds shards while everything is stopped adds shards that are stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_that_are_added_while_all_is_paused_are_paused() {
    let database = Database::new(Kind::Postgres).await;
    let service = Service::start_with(&database, &QUICK).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..5)).await;
    let stop = PauseDispatchRequest { reason: "flood".to_owned() };
    service.handler().pause_dispatch(stop).await.unwrap();
    add(&database, &service, MORE);
    all_owned(&service, MORE, 1).await;
    let (id, _) = policy_from(&service, FIRST, 2).await;
    service.create_schedule("new", once(soon(500), 3, &id, http(&consumer))).await.unwrap();
    wait_for("all shards to be paused", 20, async || {
        service.status().await.ok()?.shards.iter().all(|shard| shard.paused).then_some(())
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(consumer.notes.arrivals_count(), 0, "nothing starts");
    service.handler().resume_dispatch(ResumeDispatchRequest {}).await.unwrap();
    assert_eq!(service.finished("new", 30).await.counts.unwrap().succeeded, 3);
    service.stop().await;
}
