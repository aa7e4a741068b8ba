//! What cannot be taken from a topic: each goes to the dead letters as it came, with its error; what is beside it goes on.

use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Error};

use super::*;
use crate::service::start_with;

/// What a dead letter says is wrong.
fn error_of(record: &Seen) -> Value {
    assert_eq!(record.header("tollgate-queue"), Some("commands"));
    assert_eq!(record.header("trace"), Some("t-1"), "what it had is kept");
    serde_json::from_str(record.header("tollgate-error").unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bad_record_is_told_and_does_nothing() {
    let database = Database::new(Kind::Sqlite).await;
    let service = start(&database).await;
    let world = World::new();
    let commands = world.start(service.url(), json!({"allow": ["apply", "trigger"], "notFoundFor": "2s"}));
    let long = format!("{{\"id\": \"{}\"}}", "x".repeat(1_048_600));
    let version = json!({"version": 2, "op": "apply", "id": "version", "reply": "version"}).to_string();
    let denied = command("delete", "denied", json!({"resource": "schedules/x", "revision": 9})).to_string();
    let value = apply("value", 1, schedule("value", 0)).to_string();
    let missing = command("trigger", "missing", json!({"resource": "schedules/missing"})).to_string();
    let bad: [(&str, Option<&[u8]>, &str, &str); 9] = [
        ("null", None, "INVALID_ARGUMENT", "it is empty; expected a JSON object"),
        ("empty", Some(b""), "INVALID_ARGUMENT", "it is empty; expected a JSON object"),
        ("no-json", Some(b"not json"), "INVALID_ARGUMENT", "the message is no command"),
        ("number", Some(b"{\"id\": 1}"), "INVALID_ARGUMENT", "id"),
        ("long", Some(long.as_bytes()), "INVALID_ARGUMENT", "at most 1048576 are allowed"),
        ("version", Some(version.as_bytes()), "INVALID_ARGUMENT", "version: "),
        (
            "denied",
            Some(denied.as_bytes()),
            "PERMISSION_DENIED",
            "op: \"delete\" is not allowed by this queue",
        ),
        ("value", Some(value.as_bytes()), "INVALID_ARGUMENT", "resource.schedule.events"),
        ("missing", Some(missing.as_bytes()), "NOT_FOUND", "schedules/missing does not exist"),
    ];
    for (number, (key, value, ..)) in bad.iter().enumerate() {
        let good = quiet(apply(&format!("good{number}"), 1, schedule(&format!("g{number}"), 3)));
        world.put(key, Some(good.to_string().as_bytes())).await;
        world.put(key, *value).await;
    }
    let dead = world.dead(bad.len()).await;
    assert_eq!(dead.len(), bad.len(), "{dead:?}");
    for (key, value, status, part) in bad {
        let letter = dead.iter().find(|one| one.key.as_deref() == Some(key)).unwrap();
        assert_eq!(letter.value.as_deref().map(str::as_bytes), value, "{key}: as it came");
        let error = error_of(letter);
        assert_eq!(
            (&error["status"], letter.header("tollgate-code")),
            (&json!(status), Some(status)),
            "{error}"
        );
        assert!(error["message"].as_str().unwrap().contains(part), "{part}: {error}");
    }
    let answers = by_id(&world.answers(4).await);
    for id in ["version", "denied", "value", "missing"] {
        assert_eq!(answers[id]["outcome"], "REFUSED", "{answers:?}");
    }
    world.done_with(2 * dead.len(), 30).await;
    let found = schedules(&Cli::new(service.url()));
    assert_eq!((found.len(), found.values().all(|events| *events == 3)), (dead.len(), true), "{found:?}");
    commands.stop().await;
    service.stop().await;
}

/// Makes a key for the namespace `default`.
fn key(database: &Database, name: &str, scopes: &str) -> String {
    let store = database.url();
    let made = Cli::new("").run(&[
        "key",
        "create",
        name,
        "--scopes",
        scopes,
        "--namespace",
        "default",
        "--store",
        &store,
    ]);
    assert_eq!(made.code, 0, "{made:?}");
    made.out.trim().to_owned()
}

/// A topic's commands may do what its key may, and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_are_those_of_the_topic_s_key() {
    let database = Database::new(Kind::Sqlite).await;
    let reader = key(&database, "reader", "read");
    let service = start_with(&database, &["--auth", "keys"]).await;
    let world = World::new();
    std::fs::write(world.folder.path().join("key"), reader + "\n").unwrap();
    let commands = world.start(service.url(), json!({"keyFile": "key"}));
    world.send(&[apply("lacks", 1, schedule("lacks", 2))]).await;
    let answer = world.answers(1).await.remove(0);
    assert_eq!(
        (&answer["outcome"], &answer["error"]["status"]),
        (&json!("REFUSED"), &json!("PERMISSION_DENIED"))
    );
    let error = error_of(&world.dead(1).await[0]);
    assert!(error["message"].as_str().unwrap().contains("lacks the scope schedule:write"), "{error}");
    world.done_with(1, 20).await;
    commands.stop().await;
    service.stop().await;
}

/// What is too large for its topic with the error goes there without; what cannot be written is tried again until it can be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_that_cannot_be_written_are_kept_until_they_can_be() {
    let database = Database::new(Kind::Sqlite).await;
    let service = start(&database).await;
    let world = World::new();
    world.put("bad", Some(b"not json")).await;
    let good = quiet(apply("good", 1, schedule("good", 1)));
    world.put("good", Some(good.to_string().as_bytes())).await;
    let not_allowed = Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    world.broker.0.request_errors(Api::Produce, &[not_allowed; 2]);
    world.broker.0.request_errors(Api::Produce, &[Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
    let commands = world.start(service.url(), json!({}));
    let cli = Cli::new(service.url());
    wait_for("the good one", 40, async || schedules(&cli).contains_key("good").then_some(())).await;
    assert!(world.committed().await <= 1, "the bad one has not ended");
    let dead = world.dead(1).await;
    assert_eq!((dead.len(), dead[0].value.as_deref()), (1, Some("not json")));
    assert_eq!((dead[0].header("tollgate-error"), dead[0].header("trace")), (None, Some("t-1")));
    world.done_with(2, 20).await;
    let log = commands.log();
    let lines = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    assert_eq!(
        (lines("its deadLetterTopic: topic dead"), lines("its deadLetterTopic: works again")),
        (1, 1),
        "{log}"
    );
    assert!(log.contains("refused: INVALID_ARGUMENT"), "the error is in the log: {log}");
    commands.stop().await;
    service.stop().await;
}

/// The file names what this build lacks; the other build takes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_without_kafka_refuses_the_file() {
    let world = World::new();
    let file = world.file(json!({}));
    let checked = std::process::Command::new(tollgate_harness::binary())
        .args(["commands", "--check", "-f"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8(checked.stderr).unwrap();
    assert!(!checked.status.success() && said.contains("queues[0].kafka: this build has no Kafka"), "{said}");
    let checked = binary().args(["commands", "--check", "-f"]).arg(&file).output().unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success() && said.contains("commands: the topic commands of "), "{said}");
}
