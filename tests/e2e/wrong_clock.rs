//! One process whose machine's clock is wrong says so, and harms nothing.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_harness::resources::{every, http, once, policy, soon, us};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, now_us, wait_for};
use tollgate_proto::v1::{GetEmitterStatusRequest, GetHandlerStatusRequest, RunState};

use crate::security::{key_command, rest};
use tollgate_harness::machine::{Machine, compile};

const HOUR_US: i64 = 3_600_000_000;
const DAY_US: i64 = 24 * HOUR_US;

fn machine(folder: &TempDir) -> Machine {
    let library = compile(folder.path()).unwrap();
    Machine::new(&library, folder.path().join("machine")).unwrap()
}

async fn join(database: &Database, machine: &Machine) -> Service {
    Service::join_on(database, &[], &machine.environment()).await
}

/// What `/readyz` says.
async fn readiness(service: &Service) -> (u16, String) {
    get(service, "readyz").await
}

async fn get(service: &Service, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let address = service.url().trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

async fn is_ready(service: &Service, within_s: u64) {
    wait_for("readiness", within_s, async || (readiness(service).await.0 == 200).then_some(())).await;
}

async fn opened_until_us(service: &Service) -> i64 {
    let status = service.emitter().get_emitter_status(GetEmitterStatusRequest::default()).await.unwrap();
    us(status.into_inner().opened_until_time)
}

async fn shards_of(asked: &Service, owner: &Service) -> usize {
    let id = async |service: &Service| {
        service.handler().get_handler_status(GetHandlerStatusRequest::default()).await.unwrap().into_inner()
    };
    let (status, owner) = (id(asked).await, id(owner).await.handler);
    status.shards.iter().filter(|shard| shard.owner == owner).count()
}

/// Fifteen seconds at two hours ahead, of one of two processes: nothing is missed, early or opened, and it makes way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_ahead_for_seconds_misses_nothing() {
    jump(2 * HOUR_US).await;
}

/// The same in the other direction: nothing is late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_behind_for_seconds_delays_nothing() {
    jump(-2 * HOUR_US).await;
}

async fn jump(by_us: i64) {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(&folder);
    let database = Database::new(Kind::Postgres).await;
    let right = Service::start(&database).await;
    let wrong = join(&database, &machine).await;
    let consumer = Consumer::start(right.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    right.create_policy("p", policy(10)).await.unwrap();
    for number in 0..6 {
        let policy = if number % 2 == 0 { "p" } else { "" };
        right
            .create_schedule(&format!("s{number}"), every(2, soon(1_000), 1, policy, http(&consumer)))
            .await
            .unwrap();
    }
    right.create_schedule("hourly", every(3_600, soon(3_000_000), 1, "", http(&consumer))).await.unwrap();
    wait_for("shards of both", 40, async || (shards_of(&right, &wrong).await > 0).then_some(())).await;
    is_ready(&wrong, 20).await;
    wait_for("deliveries", 40, async || (consumer.notes.arrivals_count() > 12).then_some(())).await;

    machine.clock_offset(by_us).unwrap();
    let (began, began_us) = (Instant::now(), now_us());
    let answer = wait_for("a process that is not ready", 10, async || {
        let (status, answer) = readiness(&wrong).await;
        (status == 503).then_some(answer)
    })
    .await;
    assert!(answer.contains("clock"), "{answer}");
    assert_eq!(readiness(&right).await.0, 200);
    let (_, metrics) = get(&wrong, "metrics").await;
    let line = metrics.lines().find(|line| line.starts_with("tollgate_clock_offset_seconds ")).unwrap();
    let offset_s: f64 = line.split(' ').nth(1).unwrap().parse().unwrap();
    assert!((offset_s - by_us as f64 / 1e6).abs() < 5.0, "{line}");
    wait_for("the other's shards", 20, async || (shards_of(&right, &wrong).await == 0).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(15).saturating_sub(began.elapsed())).await;
    machine.clock_offset(0).unwrap();
    is_ready(&wrong, 20).await;
    wait_for("shards of both again", 40, async || (shards_of(&right, &wrong).await > 0).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(3)).await;

    assert!(opened_until_us(&right).await < now_us() + HOUR_US, "windows were opened by a wrong clock");
    for number in 0..6 {
        let skipped = right.skipped(&format!("s{number}")).await;
        assert!(skipped.is_empty(), "{skipped:?}");
    }
    let arrivals = consumer.notes.arrivals();
    assert!(arrivals.iter().all(|arrival| arrival.schedule != "hourly"), "fired an hour early");
    assert!(arrivals.iter().all(|arrival| arrival.launch_us <= arrival.arrived_us + 50_000), "fired early");
    let seconds = (now_us() - began_us) / 1_000_000;
    let since = arrivals.iter().filter(|arrival| arrival.arrived_us > began_us).count();
    assert!(since as i64 > seconds * 3 / 2, "{since} deliveries in {seconds} s");
    consumer.notes.assert_clean();
    wrong.stop().await;
    right.stop().await;
}

/// A process that starts with a clock that is wrong beside the database's does nothing by time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_starts_fifty_days_ahead_prunes_and_fires_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(&folder);
    let database = Database::new(Kind::Postgres).await;
    let right = Service::start(&database).await;
    let consumer = Consumer::start(right.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    right.create_schedule("done", once(soon(500), 3, "", http(&consumer))).await.unwrap();
    right.create_schedule("later", once(soon(2 * 3_600_000), 3, "", http(&consumer))).await.unwrap();
    let run = right.finished("done", 30).await;
    machine.clock_offset(50 * DAY_US).unwrap();
    let wrong = join(&database, &machine).await;
    let answer = readiness(&wrong).await;
    assert!(answer.0 == 503 && answer.1.contains("differs from the database"), "{answer:?}");
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(shards_of(&right, &wrong).await, 0);
    let kept = right.first_run("done").await;
    assert_eq!((kept.state(), kept.name), (RunState::Finished, run.name));
    assert!(opened_until_us(&right).await < now_us() + HOUR_US);
    assert!(right.skipped("later").await.is_empty());
    assert_eq!(consumer.notes.arrivals_count(), 3);
    machine.clock_offset(0).unwrap();
    is_ready(&wrong, 20).await;
    wait_for("its shards", 40, async || (shards_of(&right, &wrong).await > 0).then_some(())).await;
    wrong.stop().await;
    right.stop().await;
}

/// Alone, nothing tells that a clock was wrong at the start; all the same nothing is emptied. And while it runs, a jump
/// of seconds changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_with_a_wrong_clock_nothing_is_pruned_and_a_jump_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(&folder);
    let database = Database::new(Kind::Sqlite).await;
    let service = join(&database, &machine).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    service.create_schedule("done", once(soon(500), 3, "", http(&consumer))).await.unwrap();
    service.create_schedule("tick", every(2, soon(1_000), 1, "", http(&consumer))).await.unwrap();
    let run = service.finished("done", 30).await;
    is_ready(&service, 20).await;
    machine.clock_offset(2 * HOUR_US).unwrap();
    wait_for("a process that is not ready", 10, async || (readiness(&service).await.0 == 503).then_some(()))
        .await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    machine.clock_offset(0).unwrap();
    is_ready(&service, 20).await;
    assert!(service.skipped("tick").await.is_empty());
    assert!(opened_until_us(&service).await < now_us() + HOUR_US);
    consumer.notes.assert_clean();
    service.stop().await;

    machine.clock_offset(50 * DAY_US).unwrap();
    let service = join(&database, &machine).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let kept = service.first_run("done").await;
    assert_eq!((kept.state(), kept.name), (RunState::Finished, run.name));
    assert!(service.log().contains("pruning is"), "{}", service.log());
    service.stop().await;
}

/// Makes a key that expires so soon.
fn key(database: &Database, name: &str, expires_in: &str) -> String {
    let arguments = ["create", name, "--scopes", "read", "--all-namespaces", "--expires-in", expires_in];
    let made = key_command(database, &arguments);
    assert_eq!(made.code, 0, "{made:?}");
    made.out.trim().to_owned()
}

/// Which status a call with a key gets.
fn status(service: &Service, key: &str) -> u16 {
    rest(service.url(), "GET", "/v1/namespaces/default/policies", Some(key)).0
}

/// Hours ahead or behind, while it runs or from the start on: keys end when they end, and the process says that its clock is
/// wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_expire_by_the_right_time_where_the_clock_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(&folder);
    let database = Database::new(Kind::Postgres).await;
    let (good, brief) = (key(&database, "good", "1h"), key(&database, "brief", "1s"));
    let expired_us = now_us() + 1_500_000;
    let guarded = async || Service::join_on(&database, &["--auth", "keys"], &machine.environment()).await;
    let service = guarded().await;
    is_ready(&service, 30).await;
    wait_for("the end of a key", 10, async || {
        (now_us() > expired_us && status(&service, &brief) == 401).then_some(())
    })
    .await;
    for by_us in [2 * HOUR_US, -2 * HOUR_US] {
        machine.clock_offset(by_us).unwrap();
        wait_for("a process that says so", 10, async || {
            let (status, answer) = readiness(&service).await;
            (status == 503 && answer.contains("clock")).then_some(())
        })
        .await;
        // It reads the keys again meanwhile, several times.
        for _ in 0..8 {
            assert_eq!((status(&service, &good), status(&service, &brief)), (200, 401), "{by_us}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        machine.clock_offset(0).unwrap();
        is_ready(&service, 20).await;
    }
    service.stop().await;
    for by_us in [2 * HOUR_US, -2 * HOUR_US] {
        machine.clock_offset(by_us).unwrap();
        let service = guarded().await;
        // From the first moment on, before the keys are read again.
        for _ in 0..8 {
            assert_eq!(
                (status(&service, &good), status(&service, &brief)),
                (200, 401),
                "from the start: {by_us}"
            );
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let answer = readiness(&service).await;
        assert!(answer.0 == 503 && answer.1.contains("differs from the database"), "{answer:?}");
        machine.clock_offset(0).unwrap();
        is_ready(&service, 20).await;
        service.stop().await;
    }
}
