//! What breaks while commands come from a topic: processes die, take each other's place, and the service is away.

use std::collections::BTreeMap;

use super::*;

on_both_stores!(a_death_in_a_flood_loses_nothing);

/// Two revisions of each of so many schedules, older ones often behind later ones.
fn flood(schedules: u64) -> Vec<Value> {
    let one = |number: u64, revision: u64| {
        let id = format!("s{number}");
        quiet(apply(&format!("{id}-{revision}"), revision, schedule(&id, revision)))
    };
    (0..schedules)
        .flat_map(|number| {
            let first = 1 + number % 2;
            [one(number, first), one(number, 3 - first)]
        })
        .collect()
}

fn judged(cli: &Cli, schedules_count: u64) {
    let expected: BTreeMap<String, u64> =
        (0..schedules_count).map(|number| (format!("s{number}"), 2)).collect();
    assert_eq!(schedules(cli), expected);
}

/// Whether a process has had partitions; and how often some were taken from it.
fn partitions(commands: &Commands) -> (bool, usize) {
    let log = commands.log();
    let of = |words: &str| {
        log.lines().filter(|line| line.contains(words) && !line.contains("partitions []")).count()
    };
    (of("] from now on") > 0, of("] no more"))
}

async fn a_death_in_a_flood_loses_nothing(kind: Kind) {
    const SCHEDULES: u64 = 1_000;
    let database = Database::new(kind).await;
    let service = start(&database).await;
    let cli = Cli::new(service.url());
    let world = World::new();
    let all = flood(SCHEDULES);
    world.send(&all).await;
    let commands = world.start(service.url(), json!({"inHand": 100}));
    wait_for("some of it", 90, async || (schedules(&cli).len() >= 200).then_some(())).await;
    commands.kill9();
    let seen = schedules(&cli).len();
    let committed = world.committed().await;
    assert!(committed < 2_000, "it died in the midst of it: {seen} schedules, {committed} records");
    let commands = world.start(service.url(), json!({"inHand": 100}));
    world.done_with(all.len(), 240).await;
    judged(&cli, SCHEDULES);
    // An older one changes nothing any more.
    world.send(&[apply("older", 1, schedule("s7", 1))]).await;
    assert_eq!(world.answers(1).await[0]["outcome"], "OUTDATED");
    judged(&cli, SCHEDULES);
    assert_eq!(world.broker.records_now("dead").await, []);
    commands.stop().await;
    service.stop().await;
}

/// While the service is away nothing is committed, and the process stays in its group; then all is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_service_costs_neither_commands_nor_the_membership() {
    const SCHEDULES: u64 = 100;
    let database = Database::new(Kind::Sqlite).await;
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let world = World::new();
    let commands = world.start(&format!("http://{address}"), json!({"inHand": 20}));
    world.send(&flood(SCHEDULES)).await;
    wait_for("the outage in the log", 40, async || {
        commands.log().contains("the service: UNAVAILABLE").then_some(())
    })
    .await;
    // Longer than a silent member would be kept.
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(world.committed().await, 0);
    assert_eq!(partitions(&commands), (true, 0), "{}", commands.log());
    let service = start_at(&database, &address).await;
    world.done_with(200, 120).await;
    judged(&Cli::new(service.url()), SCHEDULES);
    assert_eq!(partitions(&commands), (true, 0), "{}", commands.log());
    commands.assert_outages_told().await;
    commands.stop().await;
    service.stop().await;
}

/// What goes to another process while the service is away, and comes back, is read again by whoever has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_move_during_an_outage_of_the_service_are_read_after_it() {
    const SCHEDULES: u64 = 60;
    let database = Database::new(Kind::Sqlite).await;
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let url = format!("http://{address}");
    let world = World::new();
    let more = json!({"inHand": 20});
    let first = world.start(&url, more.clone());
    world.send(&flood(SCHEDULES)).await;
    let is_away = async |of: &Commands| {
        wait_for("the outage in the log", 40, async || {
            of.log().contains("the service: UNAVAILABLE").then_some(())
        })
        .await;
    };
    is_away(&first).await;
    // All partitions go from the first to others, and back, while all are paused.
    let others = [(); 3].map(|()| world.start(&url, more.clone()));
    for other in &others {
        wait_for("another to have partitions", 120, async || partitions(other).0.then_some(())).await;
    }
    for other in others {
        is_away(&other).await;
        other.kill9();
    }
    let service = start_at(&database, &address).await;
    world.done_with(2 * usize::try_from(SCHEDULES).unwrap(), 120).await;
    judged(&Cli::new(service.url()), SCHEDULES);
    first.stop().await;
    service.stop().await;
}

/// Two processes of a group share the partitions. One that is killed, and one that is stopped, leave theirs to the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_a_group_take_each_other_s_place() {
    const SCHEDULES: u64 = 200;
    let database = Database::new(Kind::Sqlite).await;
    let service = start(&database).await;
    let cli = Cli::new(service.url());
    let world = World::new();
    let more = json!({"inHand": 20});
    let (first, second) =
        (world.start(service.url(), more.clone()), world.start(service.url(), more.clone()));
    wait_for("both to have partitions", 60, async || {
        (partitions(&first).0 && partitions(&second).0).then_some(())
    })
    .await;
    let all = flood(SCHEDULES);
    world.send(&all).await;
    wait_for("some of it", 60, async || (schedules(&cli).len() >= 20).then_some(())).await;
    first.kill9();
    world.done_with(all.len(), 120).await;
    judged(&cli, SCHEDULES);
    // A stop leaves the group, so that another has the partitions at once.
    let third = world.start(service.url(), more);
    wait_for("the third to have partitions", 60, async || partitions(&third).0.then_some(())).await;
    second.stop().await;
    let later: Vec<Value> = (0..40)
        .map(|number| quiet(apply(&format!("l{number}"), 3, schedule(&format!("s{number}"), 3))))
        .collect();
    world.send(&later).await;
    world.done_with(all.len() + later.len(), 60).await;
    let found = schedules(&cli);
    assert!((0..40).all(|number| found[&format!("s{number}")] == 3), "{found:?}");
    assert_eq!(world.broker.records_now("dead").await, []);
    third.stop().await;
    service.stop().await;
}

/// Brokers that go away for a while cost nothing. When that is told depends on what the client was doing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_that_are_away_for_a_while_lose_nothing() {
    const SCHEDULES: u64 = 50;
    let database = Database::new(Kind::Sqlite).await;
    let service = start(&database).await;
    let world = World::new();
    let commands = world.start(service.url(), json!({"inHand": 20}));
    world.send(&flood(SCHEDULES)).await;
    wait_for("some of it", 60, async || (world.committed().await > 0).then_some(())).await;
    world.broker.0.broker_down(-1).unwrap();
    tokio::time::sleep(Duration::from_secs(15)).await;
    world.broker.0.broker_up(-1).unwrap();
    world.done_with(100, 120).await;
    judged(&Cli::new(service.url()), SCHEDULES);
    // It reads what comes afterwards, too.
    world.send(&[quiet(apply("later", 3, schedule("s0", 3)))]).await;
    world.done_with(101, 60).await;
    commands.stop().await;
    service.stop().await;
}
