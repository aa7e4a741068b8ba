//! Commands from SQS queues: each op, in any order and again and again, through deaths and outages; what cannot be taken is told.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, SendMessageBatchRequestEntry};
use rand::seq::SliceRandom as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_harness::order::{apply, by_id, command, schedule, schedules};
use tollgate_harness::resources::{http, next_january, once, policy};
use tollgate_harness::{
    Cli, Commands, Conduct, Consumer, Database, Emulator, Kind, Releases, Service, wait_for,
};

mod broken;
mod bulk;
mod example;
mod large;
mod outage;
mod refused;
mod seen;

on_both_stores!(every_op_is_carried_out, the_highest_revision_stays_in_any_order);

/// A queue of commands, with one for answers and one for dead letters.
struct World {
    emulator: Emulator,
    client: Client,
    queue: String,
    replies: String,
    dead_letters: String,
    folder: TempDir,
    /// Which commands have been answered, as far as anybody has asked.
    answered: Mutex<BTreeSet<String>>,
}

fn read(message: &Message) -> Value {
    serde_json::from_str(message.body().unwrap()).unwrap()
}

/// Which command an answer is for.
fn reply(message: &Message) -> String {
    read(message)["reply"].as_str().unwrap().to_owned()
}

impl World {
    async fn new() -> Self {
        let emulator = Emulator::start().await;
        let client = emulator.client();
        let queue = emulator.queue("orders").await;
        let replies = emulator.queue("answers").await;
        let dead_letters = emulator.queue("dead").await;
        let (folder, answered) = (tempfile::tempdir().unwrap(), Mutex::default());
        Self { emulator, client, queue, replies, dead_letters, folder, answered }
    }

    /// A queue of the file, with these members more. It hides for so long that a slow machine hides anew in time.
    fn queue_with(&self, more: Value) -> Value {
        let mut queue = json!({
            "url": self.queue, "namespace": "default", "region": "eu-central-1",
            "endpointUrl": self.emulator.endpoint, "replyQueue": self.replies,
            "deadLetterQueue": self.dead_letters, "visibility": "12s",
        });
        for (name, value) in more.as_object().unwrap() {
            match value {
                Value::Null => drop(queue.as_object_mut().unwrap().remove(name)),
                value => queue[name] = value.clone(),
            }
        }
        queue
    }

    fn file(&self, queues: &[Value]) -> PathBuf {
        let path = self.folder.path().join("commands.yaml");
        std::fs::write(&path, json!({ "queues": queues }).to_string()).unwrap();
        path
    }

    /// Starts a process for the queue alone.
    fn start(&self, server: &str, more: Value) -> Commands {
        Commands::start(&self.file(&[self.queue_with(more)]), server, &[])
    }

    async fn send(&self, commands: &[Value]) {
        let bodies: Vec<String> = commands.iter().map(Value::to_string).collect();
        send(&self.client, &self.queue, &bodies).await;
    }

    /// The answers to so many commands, once they are there: the first to each, and none to what was answered before. A queue may
    /// bring a command twice, and its answer.
    async fn answers(&self, count: usize, seconds: u64) -> Vec<Value> {
        let before = self.answered.lock().unwrap().clone();
        let id = |message: &Message| Some(reply(message)).filter(|reply| !before.contains(reply));
        let taken = taken(&self.client, &self.replies, count, seconds, id).await;
        self.answered.lock().unwrap().extend(taken.iter().map(reply));
        taken.iter().map(read).collect()
    }

    /// All that has been answered, once there are answers to so many commands.
    async fn every_answer(&self, count: usize, seconds: u64) -> Vec<Value> {
        let every = RefCell::new(Vec::new());
        let id = |message: &Message| {
            every.borrow_mut().push(read(message));
            Some(reply(message))
        };
        taken(&self.client, &self.replies, count, seconds, id).await;
        every.into_inner()
    }

    /// Waits until nothing is left in the queue, hidden or not.
    async fn emptied(&self, seconds: u64) {
        emptied(&self.client, &self.queue, seconds).await;
    }
}

async fn send(client: &Client, queue: &str, bodies: &[String]) {
    for some in bodies.chunks(10) {
        let entries = some.iter().enumerate().map(|(at, body)| {
            SendMessageBatchRequestEntry::builder().id(at.to_string()).message_body(body).build().unwrap()
        });
        let call = client.send_message_batch().queue_url(queue).set_entries(Some(entries.collect()));
        let sent = call.send().await.unwrap();
        assert!(sent.failed().is_empty(), "{:?}", sent.failed());
    }
}

/// Takes messages out of a queue, until there are so many of different ids: the first of each. What has none does not count.
async fn taken(
    client: &Client,
    queue: &str,
    count: usize,
    seconds: u64,
    id: impl Fn(&Message) -> Option<String>,
) -> Vec<Message> {
    let (mut all, mut ids): (Vec<Message>, BTreeSet<String>) = Default::default();
    wait_for(&format!("{count} messages of {queue}"), seconds, async || {
        loop {
            let receive = client.receive_message().queue_url(queue).max_number_of_messages(10);
            let received = receive.message_attribute_names("All").send().await.unwrap();
            let messages = received.messages.unwrap_or_default();
            if messages.is_empty() {
                return None;
            }
            let entries = messages.iter().enumerate().map(|(at, message)| {
                let entry = DeleteMessageBatchRequestEntry::builder().id(at.to_string());
                entry.receipt_handle(message.receipt_handle().unwrap()).build().unwrap()
            });
            let delete = client.delete_message_batch().queue_url(queue).set_entries(Some(entries.collect()));
            delete.send().await.unwrap();
            for message in messages {
                if id(&message).is_some_and(|id| ids.insert(id)) {
                    all.push(message);
                }
            }
            if ids.len() >= count {
                return Some(());
            }
        }
    })
    .await;
    all
}

/// How many messages a queue has: those to be seen, and those that are hidden.
async fn left(client: &Client, queue: &str) -> (u64, u64) {
    use aws_sdk_sqs::types::QueueAttributeName as Name;
    let names = [Name::ApproximateNumberOfMessages, Name::ApproximateNumberOfMessagesNotVisible];
    let call = client.get_queue_attributes().queue_url(queue).set_attribute_names(Some(names.to_vec()));
    let found = call.send().await.unwrap().attributes.unwrap();
    let count = |name: &Name| found[name].parse().unwrap();
    (count(&names[0]), count(&names[1]))
}

async fn emptied(client: &Client, queue: &str, seconds: u64) {
    wait_for(&format!("the end of {queue}"), seconds, async || {
        // Twice: one that shows again between its two counts is in neither.
        let mut is_empty = true;
        for _ in 0..2 {
            is_empty = is_empty && left(client, queue).await == (0, 0);
        }
        is_empty.then_some(())
    })
    .await;
}

fn named(resource: &str, revision: u64) -> Value {
    json!({"resource": resource, "revision": revision})
}

/// A pause, a run and a submission.
fn acts() -> [Value; 3] {
    let items = json!([{"n": 1}, {"n": 2}, {"n": 3}]);
    [
        command("pause", "p1", json!({"resource": "policies/imports", "revision": 2, "reason": "month end"})),
        command("trigger", "t1", json!({"resource": "schedules/held", "events": 1, "payload": {"a": 1}})),
        command("submit", "s1", json!({"resource": "schedules/nightly", "items": items})),
    ]
}

async fn nothing_comes_again_or_late(world: &World, service: &Service, runs: &[String; 2], release: Value) {
    // All of it again: nothing changes, and no other run is made, though the schedules are paused by now.
    let pauses = ["schedules/held", "schedules/nightly"]
        .map(|name| command("pause", &name.replace('/', ":"), json!({"resource": name, "revision": 1})));
    world.send(&pauses).await;
    let answers = world.answers(2, 20).await;
    assert!(answers.iter().all(|answer| answer["outcome"] == "DONE"), "{answers:?}");
    let more = [command("release", "r2", release), apply("same", 2, schedule("nightly", 2))];
    // The same commands, whose answers are told from the first ones.
    let again = acts().map(|mut act| {
        act["reply"] = format!("{} again", act["id"].as_str().unwrap()).into();
        act
    });
    world.send(&[again.as_slice(), &more].concat()).await;
    let answers = world.answers(5, 20).await;
    let answers = by_id(&answers);
    assert_eq!(answers["r2"]["outcome"], "UNCHANGED", "{answers:?}");
    assert_eq!(
        (answers["t1 again"]["run"].as_str(), answers["s1 again"]["run"].as_str()),
        (Some(runs[0].as_str()), Some(runs[1].as_str()))
    );
    assert_eq!(
        (answers["p1 again"]["outcome"].as_str(), answers["same"]["outcome"].as_str()),
        (Some("OUTDATED"), Some("UNCHANGED"))
    );
    assert_eq!((service.runs("held").await.len(), service.runs("nightly").await.len()), (1, 1));

    // What is deleted does not come back by what is late.
    world
        .send(&[
            command("delete", "d1", named("schedules/nightly", 9)),
            command("delete", "d2", named("calendars/off", 9)),
        ])
        .await;
    let answers = world.answers(2, 20).await;
    assert!(answers.iter().all(|answer| answer["outcome"] == "DONE"), "{answers:?}");
    world.send(&[apply("late", 8, schedule("nightly", 7))]).await;
    assert_eq!(world.answers(1, 20).await[0]["outcome"], "OUTDATED");
    assert!(!schedules(&Cli::new(service.url())).contains_key("nightly"));
}

async fn every_op_is_carried_out(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    // It takes each event, and never releases it.
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::Answer(202)).await;
    service.create_policy("slow", policy(5)).await.unwrap();
    service.create_schedule("held", once(next_january(), 2, "slow", http(&consumer))).await.unwrap();
    let world = World::new().await;
    let commands = world.start(service.url(), json!({}));

    let calendar = json!({"calendar": {"id": "off", "dates": ["2099-12-24"]}});
    let limits = json!({"policy": {"id": "imports", "maxInFlight": 3}});
    world
        .send(&[apply("a1", 1, schedule("nightly", 2)), apply("a2", 1, limits), apply("a3", 1, calendar)])
        .await;
    let answers = world.answers(3, 30).await;
    for answer in &answers {
        assert_eq!(
            (answer["outcome"].as_str(), answer["answer"].as_str()),
            (Some("DONE"), Some("CREATED")),
            "{answer}"
        );
    }
    assert_eq!(schedules(&cli)["nightly"], 2);

    world.send(&acts()).await;
    let answers = world.answers(3, 30).await;
    let answers = by_id(&answers);
    assert!(answers.values().all(|answer| answer["outcome"] == "DONE"), "{answers:?}");
    assert_eq!(cli.json(&["get", "policy", "imports"])["pause"]["reason"], "month end");
    let submitted = service.run(answers["s1"]["run"].as_str().unwrap()).await;
    assert_eq!(submitted.events, 3);
    let run = answers["t1"]["run"].as_str().unwrap().to_owned();
    wait_for("an event at the consumer", 20, async || (!consumer.notes.arrivals().is_empty()).then_some(()))
        .await;
    let event = service.events(&run).await.remove(0);
    let id = event.name.rsplit('/').next().unwrap().to_owned();
    let arrived = consumer.notes.arrivals().remove(0);
    assert_eq!((arrived.data["a"].as_u64(), service.held_count().await), (Some(1), 1));

    let attempt = arrived.attempt;
    let extend = json!({"resource": arrived.event_id, "ttl": "20m", "attempt": attempt});
    world.send(&[command("extend", "e1", extend)]).await;
    assert_eq!(world.answers(1, 20).await[0]["outcome"], "DONE");
    let release = json!({"resource": arrived.event_id, "outcome": "SUCCEEDED", "message": "well done", "attempt": attempt});
    world
        .send(&[
            command("release", "r1", release.clone()),
            command("resume", "p2", named("policies/imports", 3)),
        ])
        .await;
    let answers = world.answers(2, 20).await;
    let answers = by_id(&answers);
    assert_eq!(
        (answers["r1"]["outcome"].as_str(), answers["r1"]["answer"].as_str()),
        (Some("DONE"), Some("RELEASED")),
        "{id}"
    );
    assert_eq!(service.held_count().await, 0);
    assert!(cli.json(&["get", "policy", "imports"])["pause"].is_null());

    let runs = [run, submitted.name];
    nothing_comes_again_or_late(&world, &service, &runs, release).await;
    world.emptied(20).await;
    assert_eq!(left(&world.client, &world.dead_letters).await, (0, 0));
    commands.stop().await;
    service.stop().await;
}

async fn the_highest_revision_stays_in_any_order(kind: Kind) {
    const SCHEDULES: u64 = 9;
    const REVISIONS: u64 = 8;
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let world = World::new().await;
    let mut all = Vec::new();
    for number in 0..SCHEDULES {
        let id = format!("s{number}");
        for revision in 1..=REVISIONS {
            // By its number a change is a deletion or not; every third schedule ends with one.
            let deletes = if revision == REVISIONS { number % 3 == 0 } else { revision % 4 == 0 };
            let name = format!("{id}-{revision}");
            all.push(if deletes {
                command("delete", &name, json!({"resource": format!("schedules/{id}"), "revision": revision}))
            } else {
                apply(&name, revision, schedule(&id, revision))
            });
        }
    }
    // A standard queue repeats and reorders.
    let mut sent: Vec<Value> = all.iter().chain(&all).cloned().collect();
    sent.shuffle(&mut rand::rng());
    let (before, after) = sent.split_at(sent.len() / 2);
    world.send(before).await;
    // Two processes share the queue.
    let first = world.start(service.url(), json!({"inHand": 20}));
    let second = world.start(service.url(), json!({"inHand": 20}));
    world.send(after).await;
    let answers = world.every_answer(all.len(), 240).await;
    world.emptied(120).await;
    let outcome = |answer: &Value| answer["outcome"].as_str().unwrap().to_owned();
    assert!(
        answers.iter().all(|answer| ["DONE", "UNCHANGED", "OUTDATED"].contains(&outcome(answer).as_str())),
        "{answers:?}"
    );
    let expected: BTreeMap<String, u64> = (0..SCHEDULES)
        .filter(|number| number % 3 != 0)
        .map(|number| (format!("s{number}"), REVISIONS))
        .collect();
    assert_eq!(schedules(&Cli::new(service.url())), expected);
    // Each revision counts at most once.
    let mut done: BTreeMap<String, u32> = BTreeMap::new();
    for answer in answers.iter().filter(|answer| outcome(answer) == "DONE") {
        *done.entry(answer["id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    let twice: Vec<_> = done.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    first.stop().await;
    second.stop().await;
    service.stop().await;
}
