//! Brokers that ask for TLS, a login or a client's certificate: events reach them by the operator's file, once, and none is lost
//! where the file is wrong.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_harness::resources::{ms, once, policy, soon};
use tollgate_harness::{Cli, Database, Kind, Service};
use tollgate_proto::v1::{KafkaTarget, ReleaseMode, RunState, Schedule};

use crate::authority::Authority;
use crate::broker::Broker;
use crate::front::{Front, User};
use crate::service::{document, kafka, patient, seen, start_with, target};

on_both_stores!(a_wrong_file_loses_nothing_and_the_right_one_delivers);

/// A broker, who has signed its certificate, and a folder for the operator's files.
struct World {
    broker: Broker,
    authority: Authority,
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let (broker, authority) = (Broker::with("orders", 1), Authority::new("brokers"));
        let folder = tempfile::tempdir().unwrap();
        authority.write(folder.path(), "ca");
        std::fs::write(folder.path().join("password"), "let me in\n").unwrap();
        std::fs::write(folder.path().join("wrong"), "let me out\n").unwrap();
        Self { broker, authority, folder }
    }

    /// A front that lets in who logs in like this.
    async fn front(&self, mechanism: &'static str) -> Front {
        self.front_with(mechanism, false).await
    }

    /// The same; clients may need a certificate besides.
    async fn front_with(&self, mechanism: &'static str, asks_clients: bool) -> Front {
        let user = User::new(mechanism, "tollgate", "let me in");
        Front::before(&self.broker, &self.authority, Some(user), asks_clients).await
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The operator's file, with these clusters.
    fn file(&self, clusters: &[Value]) -> PathBuf {
        let path = self.path().join("logins.yaml");
        std::fs::write(&path, json!({"clusters": clusters}).to_string()).unwrap();
        path
    }

    async fn start(&self, database: &Database, clusters: &[Value]) -> Service {
        let file = self.file(clusters);
        start_with(database, &["--kafka-logins-file", file.to_str().unwrap()]).await
    }
}

/// A cluster that is reached by TLS, with the login of a mechanism.
fn cluster(front: &Front, mechanism: &str) -> Value {
    json!({
        "bootstrapServers": [front.server()], "tls": {"caFile": "ca.pem"},
        "login": {"mechanism": mechanism, "user": "tollgate", "passwordFile": "password"},
    })
}

/// A run of some events to the front; a record has time for a machine that is busy.
fn schedule(front: &Front, events: u32) -> Schedule {
    let to = KafkaTarget { deadline: Some(ms(15_000)), ..kafka(&front.server(), "orders") };
    let target = target(to, ReleaseMode::OnResponse);
    Schedule { retry: patient(), ..once(soon(1_000), events, "few", target) }
}

/// Each of so many events is in the topic once.
async fn each_is_there_once(broker: &Broker, events: usize) {
    let records = broker.records("orders", 1, events).await;
    let ids: BTreeSet<String> = records.iter().map(|record| document(record)["id"].to_string()).collect();
    assert_eq!((records.len(), ids.len()), (events, events));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_arrive_once_by_each_way_to_prove_who_one_is() {
    let (world, database) = (World::new(), Database::new(Kind::Sqlite).await);
    let mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
    let (mut fronts, mut clusters) = (Vec::new(), Vec::new());
    for mechanism in mechanisms {
        let front = world.front(mechanism).await;
        clusters.push(cluster(&front, mechanism));
        fronts.push(front);
    }
    let by_certificate = Front::before(&world.broker, &world.authority, None, true).await;
    world.authority.write_client(world.path(), "client");
    clusters.push(json!({
        "bootstrapServers": [by_certificate.server()], "namespaces": ["default", "others"],
        "tls": {"caFile": "ca.pem", "certificateFile": "client.pem", "keyFile": "client.key"},
    }));
    fronts.push(by_certificate);
    let service = world.start(&database, &clusters).await;
    service.create_policy("few", policy(5)).await.unwrap();
    for (at, front) in fronts.iter().enumerate() {
        service.create_schedule(&format!("s{at}"), schedule(front, 10)).await.unwrap();
    }
    for (at, front) in fronts.iter().enumerate() {
        let run = service.finished(&format!("s{at}"), 90).await;
        assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, 10), "{run:?}");
        assert!(front.let_in() > 0, "{at}");
    }
    each_is_there_once(&world.broker, 10 * fronts.len()).await;
    let log = service.log();
    assert!(!log.contains("let me in") && !log.contains("TLS or login"), "{log}");
    service.stop().await;
}

async fn a_wrong_file_loses_nothing_and_the_right_one_delivers(kind: Kind) {
    let (world, database) = (World::new(), Database::new(kind).await);
    let front = world.front_with("SCRAM-SHA-512", true).await;
    // Of the same name, with another key.
    let other = Authority::new("brokers");
    other.write(world.path(), "other");
    for (authority, name) in [(&world.authority, "client"), (&other, "stranger")] {
        authority.write_client(world.path(), name);
    }
    let mut good = cluster(&front, "SCRAM-SHA-512");
    good["tls"] = json!({"caFile": "ca.pem", "certificateFile": "client.pem", "keyFile": "client.key"});
    let (mut password, mut authority, mut stranger, mut nobody) =
        (good.clone(), good.clone(), good.clone(), good.clone());
    stranger["tls"]["certificateFile"] = json!("stranger.pem");
    stranger["tls"]["keyFile"] = json!("stranger.key");
    nobody["tls"] = json!({"caFile": "ca.pem"});
    password["login"]["passwordFile"] = json!("wrong");
    authority["tls"]["caFile"] = json!("other.pem");
    let wrong = [
        (password, "Authentication failed"),
        (authority, "certificate verify failed"),
        (stranger, "alert"),
        (nobody, "certificate required"),
    ];
    for (at, (cluster, word)) in wrong.iter().enumerate() {
        let service = world.start(&database, std::slice::from_ref(cluster)).await;
        if at == 0 {
            service.create_policy("few", policy(5)).await.unwrap();
            service.create_schedule("s", schedule(&front, 5)).await.unwrap();
        }
        let refused = seen(&service, &front.server(), |gauge| {
            gauge.refusing && gauge.last_error.contains("TLS or login with brokers")
        })
        .await;
        assert!(refused.last_error.contains(word), "{refused:?}");
        assert_eq!((refused.accepted_per_second, refused.unclear_per_second), (0.0, 0.0), "{refused:?}");
        let log = service.log();
        let told = log.lines().filter(|line| line.contains("TLS or login with Kafka brokers fails"));
        assert_eq!(told.count(), 1, "{log}");
        assert!(!log.contains("let me"), "{log}");
        service.stop().await;
    }
    assert_eq!((front.let_in(), world.broker.records_now("orders").await.len()), (0, 0));
    let service = world.start(&database, &[good]).await;
    let run = service.finished("s", 90).await;
    assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, 5), "{run:?}");
    each_is_there_once(&world.broker, 5).await;
    service.stop().await;
}

/// The schedule of someone who may not use the login, as people write it.
fn yaml(servers: &str) -> String {
    format!(
        "kind: Schedule\nid: s\nevents: 2\ntarget:\n  kafka:\n    bootstrapServers: [{servers}]\n    topic: orders\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_may_not_use_a_login_is_refused_for_good_and_warned_when_it_is_written() {
    let (world, database) = (World::new(), Database::new(Kind::Sqlite).await);
    let front = world.front("PLAIN").await;
    let mut other = cluster(&front, "PLAIN");
    other["namespaces"] = json!(["team"]);
    let service = world.start(&database, &[other]).await;
    let cli = Cli::new(service.url());
    let said = "a cluster of the setting kafka_logins_file that is not for the namespace default";
    // The broker itself is in no cluster: it would be spoken to in the clear, and nothing leads there beside the front.
    for (at, servers) in
        [format!("'{}'", front.server()), format!("'{}', '{}'", world.broker.servers(), front.server())]
            .iter()
            .enumerate()
    {
        let answer = cli.apply(&yaml(servers).replace("id: s", &format!("id: s{at}")));
        assert!(answer.code == 0 && answer.err.contains(said), "it warns: {answer:?}");
        cli.ok(&["trigger", &format!("s{at}")]);
        let run = service.finished(&format!("s{at}"), 60).await;
        let counts = run.counts.unwrap();
        assert_eq!((run.state(), counts.dead), (RunState::FinishedWithFailures, 2), "{run:?}");
        let events = service.events(&run.name).await;
        assert!(events.iter().all(|event| event.message.contains(said)), "{events:?}");
    }
    assert_eq!((front.let_in(), world.broker.records_now("orders").await.len()), (0, 0));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_wrong_ends_the_start_with_its_fault() {
    let (world, database) = (World::new(), Database::new(Kind::Sqlite).await);
    let front = world.front("PLAIN").await;
    let mut good = cluster(&front, "PLAIN");
    for client in ["one", "another"] {
        world.authority.write_client(world.path(), client);
    }
    let mut clear = good.clone();
    clear.as_object_mut().unwrap().remove("tls");
    good["tls"]["certificateFile"] = json!("one.pem");
    good["tls"]["keyFile"] = json!("another.key");
    for (cluster, words) in [
        (clear, "clusters[0].login.mechanism: PLAIN is not allowed without tls"),
        (good, "kafka_logins_file: clusters[0]: "),
    ] {
        let file = world.file(&[cluster]);
        let ended = crate::service::binary()
            .args(["serve", "--store", &database.url(), "--listen", "127.0.0.1:0", "--kafka-logins-file"])
            .arg(file)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && told.contains(words), "{told}");
        assert!(!told.contains("let me in"), "{told}");
    }
}
