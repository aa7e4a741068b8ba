//! What breaks while commands come: the service dies, or is away; the process that takes them dies. `outage` has many of them.

use std::process::Command;

use tollgate_harness::{Serve, binary, free_port};

use super::*;

on_both_stores!(
    deaths_in_a_flood_lose_nothing_and_repeat_nothing,
    an_outage_takes_no_patience_from_what_overtook_what_it_needs,
);

/// A service at a port that stays the same.
pub(super) async fn serve(database: &Database, port: u16) -> Service {
    let serve = Serve::new(Command::new(binary()), &database.url(), &format!("127.0.0.1:{port}"));
    let service = Service::launch(serve.flags(["--lease-ttl", "4s"])).await.unwrap();
    service.owns_all().await.unwrap();
    service
}

/// Applies of schedules, two revisions of each, and a trigger for each of some that are there.
pub(super) fn flood(schedules: u64, triggers: u64) -> Vec<Value> {
    let mut all = Vec::new();
    for number in 0..schedules {
        let id = format!("s{number}");
        for revision in 1..=2 {
            all.push(apply(&format!("{id}-{revision}"), revision, schedule(&id, revision)));
        }
    }
    for number in 0..triggers {
        all.push(command("trigger", &format!("t{number}"), json!({"resource": "schedules/there"})));
    }
    all.shuffle(&mut rand::rng());
    all
}

/// Every schedule is at its last revision, and each trigger has made one run.
pub(super) async fn judged(service: &Service, schedules_count: u64, triggers: u64) {
    let cli = Cli::new(service.url());
    let found = schedules(&cli);
    let expected: BTreeMap<String, u64> = (0..schedules_count)
        .map(|number| (format!("s{number}"), 2))
        .chain([("there".to_owned(), 1)])
        .collect();
    let differ = |(id, events): &(&String, &u64)| found.get(*id) != Some(*events);
    let wrong: Vec<_> = expected.iter().filter(differ).take(10).collect();
    assert!(wrong.is_empty(), "expected {wrong:?}, and perhaps others");
    assert_eq!(found.len(), expected.len());
    let runs = cli.json(&["get", "runs", "--filter", "schedule=there", "--limit", "0"]);
    assert_eq!(runs["runs"].as_array().unwrap().len() as u64, triggers, "a trigger makes one run");
}

pub(super) async fn there(service: &Service) {
    let written: Value = schedule("there", 1);
    let text = format!(
        "kind: Schedule\nid: there\ntriggers: [{{at: 2099-01-01T00:00:00Z}}]\nevents: {}\ntarget: {{pull: {{queue: nobody}}}}\n",
        written["schedule"]["events"]
    );
    let answer = Cli::new(service.url()).apply(&text);
    assert_eq!(answer.code, 0, "{answer:?}");
}

async fn deaths_in_a_flood_lose_nothing_and_repeat_nothing(kind: Kind) {
    const SCHEDULES: u64 = 80;
    const TRIGGERS: u64 = 60;
    let database = Database::new(kind).await;
    let port = free_port().unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let mut service = serve(&database, port).await;
    there(&service).await;
    let world = World::new().await;
    let all = flood(SCHEDULES, TRIGGERS);
    world.send(&all).await;
    let mut commands = world.start(&url, json!({"inHand": 20, "replyQueue": null}));
    for round in 0..4 {
        let seen = schedules(&Cli::new(service.url())).len();
        wait_for("something to happen", 120, async || {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let ended = left(&world.client, &world.queue).await == (0, 0);
            (schedules(&Cli::new(service.url())).len() > seen || ended).then_some(())
        })
        .await;
        if round % 2 == 0 {
            commands.kill9();
            commands = world.start(&url, json!({"inHand": 20, "replyQueue": null}));
        } else {
            service.kill9();
            service = serve(&database, port).await;
        }
    }
    world.emptied(240).await;
    judged(&service, SCHEDULES, TRIGGERS).await;
    assert_eq!(left(&world.client, &world.dead_letters).await, (0, 0));
    commands.stop().await;
    service.stop().await;
}

async fn an_outage_takes_no_patience_from_what_overtook_what_it_needs(kind: Kind) {
    const BETWEEN: u64 = 40;
    let database = Database::new(kind).await;
    let port = free_port().unwrap();
    let service = serve(&database, port).await;
    let url = service.url().to_owned();
    service.stop().await;
    let world = World::new().await;
    let mut needy = schedule("needy", 1);
    needy["schedule"]["policy"] = "late".into();
    // What is needed comes last, some batches later.
    let mut all = vec![command("trigger", "t", json!({"resource": "schedules/needy"})), apply("s", 1, needy)];
    all.extend(
        (0..BETWEEN).map(|number| apply(&format!("b{number}"), 1, schedule(&format!("b{number}"), 1))),
    );
    all.push(apply("p", 1, json!({"policy": {"id": "late", "maxInFlight": 3}})));
    world.send(&all).await;
    let commands = world.start(&url, json!({"inHand": 10, "notFoundFor": "20s"}));
    tokio::time::sleep(Duration::from_secs(22)).await;
    let service = serve(&database, port).await;
    let answers = world.answers(all.len(), 120).await;
    assert!(answers.iter().all(|answer| answer["outcome"] == "DONE"), "{answers:?}");
    assert_eq!(service.runs("needy").await.len(), 1);
    assert_eq!(left(&world.client, &world.dead_letters).await, (0, 0));
    commands.stop().await;
    service.stop().await;
}

/// Answers that cannot be sent give their messages back; commands without one go on, and the log says which queue is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_queue_that_is_gone_stops_nothing_else() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let world = World::new().await;
    let asking: Vec<Value> =
        (0..100).map(|number| apply(&format!("a{number}"), 1, schedule(&format!("a{number}"), 1))).collect();
    world.send(&asking).await;
    let gone = world.replies.replace("answers", "nowhere");
    let commands = world.start(service.url(), json!({"replyQueue": gone}));
    wait_for("the outage of the answers", 30, async || {
        let log = commands.log();
        (log.contains("its replyQueue: ") && log.contains(": replyQueue: ")).then_some(())
    })
    .await;
    let mut quiet = apply("quiet", 1, schedule("quiet", 1));
    quiet.as_object_mut().unwrap().remove("reply");
    world.send(&[quiet]).await;
    let cli = Cli::new(service.url());
    wait_for("what asks for no answer", 60, async || schedules(&cli).contains_key("quiet").then_some(()))
        .await;
    wait_for("all that was sent", 60, async || (schedules(&cli).len() == 101).then_some(())).await;
    let (seen, hidden) = left(&world.client, &world.queue).await;
    assert!(seen + hidden > 0, "what could not be answered is not deleted");
    commands.stop().await;
    service.stop().await;
}
