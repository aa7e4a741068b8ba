//! What cannot be taken: each goes back with its error, and into the dead-letter queue; nothing is half done, and nothing lost.

use std::time::Instant;

use super::*;
use crate::security::key;

on_both_stores!(each_bad_message_is_told_and_does_nothing, the_namespace_and_the_rights_are_the_queues_own);

/// The id of a dead letter's command, or the beginning of its text.
fn id(message: &Message) -> String {
    let body = message.body().unwrap();
    let id = serde_json::from_str::<Value>(body).ok().and_then(|body| Some(body["id"].as_str()?.to_owned()));
    id.unwrap_or_else(|| body.chars().take(10).collect())
}

/// The error's attribute of each dead letter.
fn errors(messages: &[Message]) -> BTreeMap<String, Value> {
    let read = |message: &Message| {
        let attribute =
            message.message_attributes().and_then(|all| all.get("tollgate-error")?.string_value());
        (id(message), attribute.map_or(Value::Null, |text| serde_json::from_str(text).unwrap()))
    };
    messages.iter().map(read).collect()
}

async fn each_bad_message_is_told_and_does_nothing(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let world = World::new().await;
    let commands = world.start(service.url(), json!({"notFoundFor": "3s"}));
    let mut bad_target = schedule("bad", 2);
    bad_target["schedule"]["target"] = json!({"http": {"url": "nowhere"}});
    let mut elsewhere = schedule("elsewhere", 2);
    elsewhere["schedule"]["name"] = "namespaces/other/schedules/elsewhere".into();
    elsewhere["schedule"].as_object_mut().unwrap().remove("id");
    let bad = [
        json!({"version": 2, "op": "apply", "id": "version", "reply": "version"}),
        command("aply", "op", json!({})),
        command("delete", "revision", json!({"resource": "schedules/x", "revision": -1})),
        apply("field", 1, json!({"policy": {"id": "x", "maxInFligt": 3}})),
        apply("value", 1, schedule("value", 0)),
        apply("target", 1, bad_target),
        apply("elsewhere", 1, elsewhere),
        command("trigger", "missing", json!({"resource": "schedules/missing"})),
        command("release", "event", json!({"resource": "00-nothing", "attempt": 1})),
        command("extend", "held", json!({"resource": "00-nobody", "attempt": 1})),
    ];
    // Good ones in the same batch come to no harm.
    let good: Vec<Value> = (0..20)
        .map(|number| apply(&format!("good{number}"), 1, schedule(&format!("g{number}"), 3)))
        .collect();
    let mixed: Vec<Value> = good.iter().take(10).chain(&bad).chain(good.iter().skip(10)).cloned().collect();
    world.send(&mixed).await;
    let long = format!("{{\"id\": \"{}", "x".repeat(1_048_500));
    send(&world.client, &world.queue, &["not json".to_owned()]).await;
    send(&world.client, &world.queue, std::slice::from_ref(&long)).await;

    let answers = world.answers(mixed.len(), 60).await;
    let dead = taken(&world.client, &world.dead_letters, bad.len() + 2, 60, |one| Some(id(one))).await;
    world.emptied(30).await;
    let (answers, told) = (by_id(&answers), errors(&dead));
    for (id, status, field, part) in [
        ("version", "INVALID_ARGUMENT", "version", "2 is not known here, expected 1"),
        ("op", "INVALID_ARGUMENT", "op", "did you mean apply?"),
        ("revision", "INVALID_ARGUMENT", "revision", "-1 is not allowed"),
        ("field", "INVALID_ARGUMENT", "resource.policy.maxInFligt", "did you mean maxInFlight?"),
        ("value", "INVALID_ARGUMENT", "resource.schedule.events", "expected 1 to 10000000"),
        ("target", "INVALID_ARGUMENT", "resource.schedule.target.http.url", "nowhere"),
        ("elsewhere", "INVALID_ARGUMENT", "resource.schedule.name", "expected one of the namespace default"),
        ("missing", "NOT_FOUND", "", "schedules/missing does not exist"),
        ("event", "NOT_FOUND", "resource", "resource: \""),
        ("held", "NOT_FOUND", "resource", "resource: \""),
    ] {
        let answer = &answers[id];
        let error = &answer["error"];
        assert_eq!(
            (answer["outcome"].as_str(), error["status"].as_str()),
            (Some("REFUSED"), Some(status)),
            "{id}: {answer}"
        );
        assert!(field.is_empty() || error["details"][0]["field"] == field, "{answer}");
        assert!(error["message"].as_str().unwrap().contains(part), "{part}: {answer}");
        assert_eq!(&told[id], error, "the dead letter says the same");
    }
    assert!(told["not json"]["message"].as_str().unwrap().contains("the message is no command"));
    let is_kept = dead.iter().any(|message| message.body() == Some(&long));
    assert!(is_kept, "a message of a MiB is kept as it came, with an error or without");
    // A queue may bring one twice: then it is outdated by itself, and what is there is counted below.
    let outcome = |one: &Value| answers[one["id"].as_str().unwrap()]["outcome"].as_str();
    let is_taken_in = |one: &Value| matches!(outcome(one), Some("DONE" | "OUTDATED"));
    assert!(good.iter().all(is_taken_in), "{answers:?}");
    let found = schedules(&Cli::new(service.url()));
    assert_eq!((found.len(), found.values().all(|events| *events == 3)), (20, true), "{found:?}");
    commands.stop().await;
    service.stop().await;
}

async fn the_namespace_and_the_rights_are_the_queues_own(kind: Kind) {
    let database = Database::new(kind).await;
    let admin = key(&database, "ops", "admin", None);
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let world = World::new().await;
    let keys = [
        ("writer", "read,schedule:write", "default"),
        ("reader", "read", "default"),
        ("stranger", "admin", "other"),
    ];
    let mut queues = Vec::new();
    for (name, scopes, namespace) in keys {
        let file = world.folder.path().join(name);
        std::fs::write(&file, key(&database, name, scopes, Some(namespace)) + "\n").unwrap();
        let url = world.emulator.queue(name).await;
        let mut queue = world.queue_with(json!({"url": url, "keyFile": name, "name": name}));
        if name == "writer" {
            queue["allow"] = json!(["apply", "trigger"]);
        }
        queues.push(queue);
    }
    let commands = Commands::start(&world.file(&queues), service.url(), &[]);
    let to = |at: usize| queues[at]["url"].as_str().unwrap().to_owned();
    let sent = |command: Value| vec![command.to_string()];
    send(&world.client, &to(0), &sent(apply("good", 1, schedule("mine", 2)))).await;
    send(
        &world.client,
        &to(0),
        &sent(command("delete", "not allowed", json!({"resource": "schedules/mine", "revision": 9}))).clone(),
    )
    .await;
    send(&world.client, &to(1), &sent(apply("lacks", 1, schedule("lacks", 2)))).await;
    send(&world.client, &to(2), &sent(apply("foreign", 1, schedule("foreign", 2)))).await;
    let answers = world.answers(4, 60).await;
    let answers = by_id(&answers);
    assert_eq!(answers["good"]["outcome"], "DONE", "{answers:?}");
    for (id, part) in [
        ("not allowed", "id: \"not allowed\" is not allowed"),
        ("lacks", "lacks the scope schedule:write"),
        ("foreign", "namespace"),
    ] {
        let answer = &answers[id];
        assert_eq!(answer["outcome"], "REFUSED", "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(part), "{part}: {answer}");
    }
    let wrong = command("delete", "denied", json!({"resource": "schedules/mine", "revision": 9}));
    send(&world.client, &to(0), &sent(wrong)).await;
    let answer = world.answers(1, 30).await.remove(0);
    assert_eq!(answer["error"]["status"], "PERMISSION_DENIED");
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("op: \"delete\" is not allowed by this queue, expected apply, trigger"),
        "{answer}"
    );
    let list = Cli::new(service.url()).json(&["get", "schedules", "-A", "--api-key", &admin]);
    let names: Vec<&Value> = list["schedules"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["namespaces/default/schedules/mine"]);
    commands.stop().await;
    service.stop().await;
}

/// What overtook the apply that it needs waits for it, and is refused when it does not come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_too_early_waits_for_what_it_needs() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let world = World::new().await;
    let commands = world.start(service.url(), json!({"notFoundFor": "60s"}));
    let mut needs = schedule("early", 2);
    needs["schedule"]["policy"] = "late".into();
    world
        .send(&[
            apply("schedule", 1, needs),
            command("pause", "pause", json!({"resource": "schedules/early", "revision": 2})),
            command("trigger", "trigger", json!({"resource": "schedules/other"})),
            command("delete", "used", json!({"resource": "policies/used", "revision": 5})),
        ])
        .await;
    let answers = async || left(&world.client, &world.replies).await.0;
    wait_for("the deletion", 30, async || (answers().await > 0).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(answers().await, 1, "only the deletion is done");
    world
        .send(&[
            apply("policy", 1, json!({"policy": {"id": "late", "maxInFlight": 3}})),
            apply("other", 1, schedule("other", 1)),
        ])
        .await;
    let answers = world.answers(6, 40).await;
    let answers = by_id(&answers);
    assert!(answers.values().all(|answer| answer["outcome"] == "DONE"), "{answers:?}");
    assert_eq!(service.runs("other").await.len(), 1);
    world.emptied(20).await;
    commands.stop().await;
    service.stop().await;
}

/// Where nobody is to be told, nothing is lost: the message stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_is_told_of_stays_in_the_queue() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let world = World::new().await;
    let began = Instant::now();
    let commands = world.start(service.url(), json!({"replyQueue": null, "deadLetterQueue": null}));
    world.send(&[command("aply", "bad", json!({})), apply("good", 1, schedule("good", 1))]).await;
    wait_for("the good one", 20, async || {
        schedules(&Cli::new(service.url())).contains_key("good").then_some(())
    })
    .await;
    wait_for("the warning", 20, async || {
        commands.log().contains("refused, and left in the queue").then_some(())
    })
    .await;
    wait_for("the good one to be deleted", 20, async || {
        let (seen, hidden) = left(&world.client, &world.queue).await;
        (seen + hidden == 1).then_some(())
    })
    .await;
    commands.stop().await;
    let (seen, hidden) = left(&world.client, &world.queue).await;
    assert_eq!(seen + hidden, 1, "it stays");
    // It is hidden for half a minute, and comes again.
    assert!(hidden == 1 || began.elapsed() > Duration::from_secs(25), "it is not hidden");
    service.stop().await;
}
