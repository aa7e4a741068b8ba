//! The largest that is taken, what is too large, and a queue that is not there.

use super::seen::page;
use super::*;

/// What SQS takes, and so does `tollgate commands`.
const MESSAGE_BYTES: usize = 1_048_576;
/// The most bytes of a payload.
const PAYLOAD_BYTES: usize = 262_144;

/// A submission whose message has exactly so many bytes.
fn submission(items: usize, bytes: usize) -> Value {
    const TEXT: usize = 2_000;
    let list: Vec<Value> =
        (0..items).map(|number| json!({"number": number, "text": "x".repeat(TEXT)})).collect();
    let mut command = command("submit", "submit", json!({"resource": "schedules/big", "items": list}));
    let missing = bytes - command.to_string().len();
    command["items"][0]["text"] = "x".repeat(TEXT + missing).into();
    assert_eq!(command.to_string().len(), bytes);
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_of_a_whole_message_makes_its_run() {
    const ITEMS: usize = 500;
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let world = World::new().await;
    let commands = world.start(service.url(), json!({}));
    world.send(&[apply("big", 1, schedule("big", 1))]).await;
    assert_eq!(world.answers(1, 30).await[0]["outcome"], "DONE");
    world.send(&[submission(ITEMS, MESSAGE_BYTES)]).await;
    let answer = world.answers(1, 60).await.remove(0);
    assert_eq!(answer["outcome"], "DONE", "{answer}");
    let run = service.run(answer["run"].as_str().unwrap()).await;
    assert_eq!(run.events as usize, ITEMS, "each item is an event");
    assert_eq!(service.runs("big").await.len(), 1);
    world.emptied(30).await;
    assert_eq!(left(&world.client, &world.dead_letters).await, (0, 0));
    commands.stop().await;
    service.stop().await;
}

/// A payload has its own limit, below that of a message: who asked is told which field it is, and what is beside it is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_is_too_large_is_told_by_its_field() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let world = World::new().await;
    let with_payload = |id: &str, bytes: usize| {
        let around = json!({"text": ""}).to_string().len();
        let mut resource = schedule(id, 1);
        resource["schedule"]["payload"] = json!({"text": "x".repeat(bytes - around)});
        apply(id, 1, resource)
    };
    let heavy = with_payload("heavy", 300 * 1024);
    let sent = [with_payload("full", PAYLOAD_BYTES), heavy.clone(), apply("light", 1, schedule("light", 1))];
    // One call of SQS has no more than one message may have.
    for one in &sent {
        world.send(std::slice::from_ref(one)).await;
    }
    let commands = world.start(service.url(), json!({}));
    let answers = world.answers(sent.len(), 60).await;
    let answers = by_id(&answers);
    for id in ["full", "light"] {
        assert_eq!(answers[id]["outcome"], "DONE", "{:?}", answers[id]);
    }
    let (answer, error) = (&answers["heavy"], &answers["heavy"]["error"]);
    assert_eq!(
        (answer["outcome"].as_str(), error["status"].as_str()),
        (Some("REFUSED"), Some("INVALID_ARGUMENT")),
        "{answer}"
    );
    assert_eq!(error["details"][0]["field"], "resource.schedule.payload", "{answer}");
    let said = error["details"][0]["description"].as_str().unwrap();
    assert!(
        said.contains("307200 bytes") && said.contains(&format!("at most {PAYLOAD_BYTES} bytes")),
        "{said}"
    );
    let dead =
        taken(&world.client, &world.dead_letters, 1, 30, |message| message.body().map(str::to_owned)).await;
    assert_eq!(dead[0].body(), Some(heavy.to_string().as_str()), "it is there as it came");
    let attributes = dead[0].message_attributes().unwrap();
    let told: Value = serde_json::from_str(attributes["tollgate-error"].string_value().unwrap()).unwrap();
    assert_eq!(&told, error, "the dead letter says the same");
    world.emptied(30).await;
    let found = schedules(&Cli::new(service.url()));
    assert_eq!(found.keys().collect::<Vec<_>>(), ["full", "light"]);
    commands.stop().await;
    service.stop().await;
}

/// A queue of the file that is not there is told in the log and in the metrics. Others go on, and it is read once it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_does_not_exist_is_told_and_waited_for() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let world = World::new().await;
    let missing = world.queue.replace("orders", "missing");
    let queues = [
        world.queue_with(json!({"url": missing, "name": "missing"})),
        world.queue_with(json!({"name": "calm"})),
    ];
    let commands = Commands::start(&world.file(&queues), service.url(), &["--listen-metrics", "127.0.0.1:0"]);
    let metrics = commands.metrics().await;
    for part in ["queue missing: url: ", "queue missing: SQS: "] {
        wait_for(part, 30, async || {
            let log = commands.log();
            log.lines().any(|line| line.contains(part) && line.contains("does not exist")).then_some(())
        })
        .await;
    }
    assert!(!commands.log().contains("queue calm: url: "), "{}", commands.log());
    world.send(&[apply("calm", 1, schedule("calm", 1))]).await;
    let answer = world.answers(1, 30).await.remove(0);
    assert_eq!((answer["outcome"].as_str(), answer["queue"].as_str()), (Some("DONE"), Some("calm")));
    let text = page(&metrics).await;
    assert!(text.contains("tollgate_commands_queue_outages_total{queue=\"missing\"} 1\n"), "{text}");
    assert!(text.contains("tollgate_commands_queue_outages_total{queue=\"calm\"} 0\n"), "{text}");

    // Somebody makes it: nothing has to be started anew.
    assert_eq!(world.emulator.queue("missing").await, missing);
    let late = apply("late", 1, schedule("late", 1)).to_string();
    send(&world.client, &missing, &[late]).await;
    let answer = world.answers(1, 60).await.remove(0);
    assert_eq!((answer["outcome"].as_str(), answer["queue"].as_str()), (Some("DONE"), Some("missing")));
    wait_for("the end of the outage in the log", 30, async || {
        commands.log().contains("queue missing: SQS: works again").then_some(())
    })
    .await;
    commands.stop().await;
    service.stop().await;
}
