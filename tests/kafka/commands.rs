//! Commands from a topic: each op, in any order of partitions; what comes too early waits while others go on.

use std::path::PathBuf;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_harness::order::{apply, by_id, command, schedule, schedules};
use tollgate_harness::resources::{http, next_january, once, policy};
use tollgate_harness::{Cli, Commands, Conduct, Consumer, Database, Kind, Releases, free_port, wait_for};

use crate::broker::{Broker, Seen};
use crate::service::{binary, start, start_at};

mod compressed;
mod deaths;
mod refused;
mod secured;

on_both_stores!(every_op_of_a_topic_is_carried_out);

const PARTITIONS: i32 = 4;
const GROUP: &str = "tollgate";

/// A topic of commands, with one for answers and one for dead letters.
struct World {
    broker: Broker,
    producer: FutureProducer,
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let broker = Broker::with("commands", PARTITIONS);
        broker.0.create_topic("answers", 1, 1).unwrap();
        broker.0.create_topic("dead", 1, 1).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", broker.servers()).set("message.max.bytes", "10000000");
        let producer = config.create().unwrap();
        Self { broker, producer, folder: tempfile::tempdir().unwrap() }
    }

    /// The file of one queue, with these members more.
    fn file(&self, more: Value) -> PathBuf {
        let mut queue = json!({
            "kafka": {"bootstrapServers": [self.broker.servers()], "topic": "commands", "group": GROUP},
            "namespace": "default", "replyTopic": "answers", "deadLetterTopic": "dead",
        });
        for (name, value) in more.as_object().unwrap() {
            queue[name] = value.clone();
        }
        let path = self.folder.path().join("commands.yaml");
        std::fs::write(&path, json!({"queues": [queue]}).to_string()).unwrap();
        path
    }

    /// Starts a process of the build with Kafka.
    fn start(&self, server: &str, more: Value) -> Commands {
        Commands::of(binary(), &self.file(more), server, &[])
    }

    /// Sends commands, each by the key of what it is about.
    async fn send(&self, commands: &[Value]) {
        for command in commands {
            self.put(&key_of(command), Some(command.to_string().as_bytes())).await;
        }
    }

    async fn put(&self, key: &str, value: Option<&[u8]>) {
        let headers = OwnedHeaders::new().insert(Header { key: "trace", value: Some("t-1") });
        let mut record = FutureRecord::to("commands").key(key).headers(headers);
        if let Some(value) = value {
            record = record.payload(value);
        }
        self.producer.send(record, Duration::from_secs(60)).await.unwrap();
    }

    /// All that has been answered, once there is so much.
    async fn answers(&self, count: usize) -> Vec<Value> {
        let records = self.broker.records("answers", 1, count).await;
        assert!(records.len() >= count, "{} of {count} answers", records.len());
        records.iter().map(|record| serde_json::from_str(record.value.as_deref().unwrap()).unwrap()).collect()
    }

    async fn dead(&self, count: usize) -> Vec<Seen> {
        let records = self.broker.records("dead", 1, count).await;
        assert!(records.len() >= count, "{} of {count} dead letters", records.len());
        records
    }

    /// How many records of the topic the group need not read again.
    async fn committed(&self) -> i64 {
        let servers = self.broker.servers();
        let asked = tokio::task::spawn_blocking(move || {
            let mut config = ClientConfig::new();
            let consumer: BaseConsumer =
                config.set("bootstrap.servers", servers).set("group.id", GROUP).create().unwrap();
            let mut all = TopicPartitionList::new();
            all.add_partition_range("commands", 0, PARTITIONS - 1);
            let found = consumer.committed_offsets(all, Duration::from_secs(60)).unwrap();
            let mut sum = 0;
            for one in found.elements() {
                if let Offset::Offset(offset) = one.offset() {
                    sum += offset;
                }
            }
            sum
        });
        asked.await.unwrap()
    }

    /// Waits until the group has done with so many records.
    async fn done_with(&self, count: usize, seconds: u64) {
        wait_for(&format!("{count} records to be done with"), seconds, async || {
            let committed = self.committed().await;
            assert!(committed <= i64::try_from(count).unwrap(), "{committed} of {count}");
            (committed == i64::try_from(count).unwrap()).then_some(())
        })
        .await;
    }
}

/// The same, without a wish for an answer.
fn quiet(mut command: Value) -> Value {
    command.as_object_mut().unwrap().remove("reply");
    command
}

fn key_of(command: &Value) -> String {
    let resource = &command["resource"];
    let id = resource.as_str().or_else(|| resource["schedule"]["id"].as_str()).unwrap_or("others");
    id.rsplit('/').next().unwrap().to_owned()
}

async fn every_op_of_a_topic_is_carried_out(kind: Kind) {
    let database = Database::new(kind).await;
    let service = start(&database).await;
    let cli = Cli::new(service.url());
    // It takes each event, and never releases it.
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::Answer(202)).await;
    service.create_policy("slow", policy(5)).await.unwrap();
    service.create_schedule("held", once(next_january(), 2, "slow", http(&consumer))).await.unwrap();
    let world = World::new();
    let commands = world.start(service.url(), json!({}));

    let limits = json!({"policy": {"id": "imports", "maxInFlight": 3}});
    world.send(&[apply("a1", 1, schedule("nightly", 2)), apply("a2", 1, limits)]).await;
    let answers = world.answers(2).await;
    for answer in &answers {
        assert_eq!((&answer["outcome"], &answer["answer"]), (&json!("DONE"), &json!("CREATED")), "{answer}");
        assert_eq!(answer["queue"], "commands");
    }
    let items = json!([{"n": 1}, {"n": 2}, {"n": 3}]);
    world
        .send(&[
            command(
                "pause",
                "p1",
                json!({"resource": "policies/imports", "revision": 2, "reason": "month end"}),
            ),
            command("trigger", "t1", json!({"resource": "schedules/held", "events": 1, "payload": {"a": 1}})),
            command("submit", "s1", json!({"resource": "schedules/nightly", "items": items})),
        ])
        .await;
    let answers = by_id(&world.answers(5).await);
    assert!(answers.values().all(|answer| answer["outcome"] == "DONE"), "{answers:?}");
    assert_eq!(cli.json(&["get", "policy", "imports"])["pause"]["reason"], "month end");
    assert_eq!(service.run(answers["s1"]["run"].as_str().unwrap()).await.events, 3);
    wait_for("an event at the consumer", 20, async || (!consumer.notes.arrivals().is_empty()).then_some(()))
        .await;
    let arrived = consumer.notes.arrivals().remove(0);
    let (event, attempt) = (&arrived.event_id, arrived.attempt);
    world
        .send(&[command("extend", "e1", json!({"resource": event, "ttl": "20m", "attempt": attempt}))])
        .await;
    assert_eq!(by_id(&world.answers(6).await)["e1"]["outcome"], "DONE");
    let release =
        json!({"resource": event, "outcome": "SUCCEEDED", "message": "well done", "attempt": attempt});
    let resume = json!({"resource": "policies/imports", "revision": 3});
    world.send(&[command("release", "r1", release), command("resume", "p2", resume)]).await;
    let answers = by_id(&world.answers(8).await);
    assert_eq!(answers["r1"]["answer"], "RELEASED", "{answers:?}");
    assert_eq!(service.held_count().await, 0);
    // What is deleted does not come back by what is late.
    world.send(&[command("delete", "d1", json!({"resource": "schedules/nightly", "revision": 9}))]).await;
    assert_eq!(by_id(&world.answers(9).await)["d1"]["outcome"], "DONE");
    world.send(&[apply("late", 8, schedule("nightly", 7))]).await;
    assert_eq!(by_id(&world.answers(10).await)["late"]["outcome"], "OUTDATED");
    assert!(!schedules(&cli).contains_key("nightly"));
    world.done_with(10, 20).await;
    assert_eq!(world.broker.records_now("dead").await, []);
    commands.stop().await;
    service.stop().await;
}

/// A pause of what is not there yet waits in memory; others of its partition go on, and its offset waits with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_too_early_waits_while_others_go_on() {
    let database = Database::new(Kind::Sqlite).await;
    let service = start(&database).await;
    let world = World::new();
    let commands = world.start(service.url(), json!({"notFoundFor": "2m"}));
    let early = command("pause", "early", json!({"resource": "schedules/late", "revision": 2}));
    world.put("same", Some(early.to_string().as_bytes())).await;
    for number in 0..30 {
        let one = quiet(apply(&format!("o{number}"), 1, schedule(&format!("o{number}"), 1)));
        world.put("same", Some(one.to_string().as_bytes())).await;
    }
    let cli = Cli::new(service.url());
    wait_for("the others", 40, async || (schedules(&cli).len() == 30).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.committed().await, 0, "the first of them has not ended");
    world.put("same", Some(quiet(apply("late", 1, schedule("late", 1))).to_string().as_bytes())).await;
    let answers = by_id(&world.answers(1).await);
    assert_eq!(answers["early"]["outcome"], "DONE", "{answers:?}");
    world.done_with(32, 20).await;
    assert!(!cli.json(&["get", "schedule", "late"])["pause"].is_null());
    commands.stop().await;
    service.stop().await;
}
