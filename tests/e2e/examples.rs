//! The consumers in `examples/`, as they stand there, with their own YAML files, against a real service.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha2::Sha256;
use tollgate_harness::process::Process;
use tollgate_harness::{Cli, Database, Emulator, Kind, Service, binary, now_us, wait_for};
use tollgate_proto::v1::{Run, RunState};

/// As the YAML files have it.
const SECRET: &str = "whsec_YS1zZWNyZXQtdGhhdC1ldmVyeWJvZHkta25vd3M=";
const HTTP_URL: &str = "http://127.0.0.1:8080/";
const SQS_URL: &str = "http://127.0.0.1:5000";

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").canonicalize().unwrap()
}

pub(crate) fn python() -> PathBuf {
    std::env::var_os("TOLLGATE_TEST_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from)
}

/// An example as a process; killed when dropped.
struct Example {
    process: Process,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Example {
    fn start(command: &mut Command) -> Self {
        let mut process = Process::start(command.stdout(Stdio::piped())).unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (out, copy) = (BufReader::new(process.output().unwrap()), lines.clone());
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).for_each(|line| copy.lock().unwrap().push(line));
        });
        Self { process, lines }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// The first words after this one, in the order of the lines.
    fn after(&self, word: &str) -> Vec<String> {
        let lines = self.lines();
        let rest = lines.iter().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        rest.filter_map(|rest| rest.split(' ').next().map(str::to_owned)).collect()
    }

    async fn address(&self) -> String {
        wait_for("its address", 30, async || self.after("listening on").into_iter().next()).await
    }

    /// The most events that it has worked on at once.
    fn most_at_once(&self) -> usize {
        let (mut now, mut most) = (BTreeSet::new(), 0);
        for line in self.lines() {
            let mut words = line.split(' ');
            match (words.next(), words.next()) {
                (Some("begin"), Some(id)) => {
                    assert!(now.insert(id.to_owned()), "{id} is worked on twice at once")
                }
                (Some("done"), Some(id)) => assert!(now.remove(id), "{id} is done and had not begun"),
                _ => {}
            }
            most = most.max(now.len());
        }
        most
    }

    /// Asks it to stop, and waits until it has.
    async fn stop(&mut self) -> ExitStatus {
        self.process.terminate(Duration::from_secs(60)).await.unwrap()
    }
}

/// The file of an example, to be fired by hand: as written it may fire by itself meanwhile, as at each quarter of an hour.
pub(crate) fn in_january(yaml: &str) -> String {
    let (start, rest) = yaml.split_once("\ntriggers:\n").expect("triggers");
    let (_, rest) = rest.split_once('\n').unwrap();
    format!("{start}\ntriggers:\n  - cron: \"0 0 1 1 *\"\n{rest}")
}

/// A policy and a schedule from a file, and what must hold of them.
struct Subject {
    yaml: String,
    schedule: String,
    events: usize,
    max_in_flight: usize,
}

impl Subject {
    fn read(folder: &str, from: &str, to: &str) -> Self {
        let yaml = std::fs::read_to_string(examples().join(folder).join("schedule.yaml")).unwrap();
        assert!(yaml.contains(from), "{folder}: no {from} to put another address for");
        let yaml = in_january(&yaml.replace(from, to));
        let documents: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
        Self {
            schedule: documents[1]["id"].as_str().unwrap().to_owned(),
            events: number(&documents[1]["events"]),
            max_in_flight: number(&documents[0]["maxInFlight"]),
            yaml,
        }
    }

    fn apply(&self, service: &Service, yaml: &str) {
        let applied = Cli::new(service.url()).apply(yaml);
        assert_eq!(applied.code, 0, "{applied:?}");
    }

    /// Fires it now, and returns the run's name.
    async fn trigger(&self, service: &Service) -> String {
        let known: BTreeSet<String> =
            service.runs(&self.schedule).await.into_iter().map(|run| run.name).collect();
        Cli::new(service.url()).ok(&["trigger", &self.schedule]);
        wait_for("a run", 20, async || {
            let runs = service.runs(&self.schedule).await;
            runs.into_iter().map(|run| run.name).find(|name| !known.contains(name))
        })
        .await
    }

    /// Fires it, and sees every event done once, within the limit.
    async fn whole_run(&self, service: &Service, consumer: &Example) -> Run {
        self.apply(service, &self.yaml);
        let name = self.trigger(service).await;
        let run = wait_for("the end of the run", 120, async || {
            let run = service.run(&name).await;
            (run.state() == RunState::Finished).then_some(run)
        })
        .await;
        // Its last words may be on their way.
        let done = wait_for("its word about each event", 30, async || {
            Some(consumer.after("done")).filter(|done| done.len() >= self.events)
        })
        .await;
        let distinct: BTreeSet<&String> = done.iter().collect();
        assert_eq!((done.len(), distinct.len()), (self.events, self.events), "{:?}", consumer.lines());
        assert_eq!(run.counts.unwrap().succeeded as usize, self.events, "{run:?}");
        assert!(consumer.most_at_once() <= self.max_in_flight, "{:?}", consumer.lines());
        run
    }
}

/// In the midst of its work it is told to stop: what it has begun is done and released, and nothing else is.
async fn stops_in_order(service: &Service, consumer: &mut Example, subject: &Subject, at_once: usize) {
    let before = consumer.after("begin").len();
    let name = subject.trigger(service).await;
    wait_for("work", 20, async || (consumer.after("begin").len() >= before + at_once).then_some(())).await;
    let status = consumer.stop().await;
    let lines = wait_for("its last words", 10, async || {
        let lines = consumer.lines();
        (lines.last().map(String::as_str) == Some("stopped")).then_some(lines)
    })
    .await;
    assert!(status.success(), "{status}: {lines:?}");
    assert_eq!(consumer.after("begin").len(), consumer.after("done").len(), "{lines:?}");
    assert!(consumer.most_at_once() <= subject.max_in_flight, "{lines:?}");
    let done = consumer.after("done").len() - before;
    assert!(done < subject.events, "it ended before it was told to: {lines:?}");
    wait_for("what it released as it stopped", 10, async || {
        (service.run(&name).await.counts.unwrap().succeeded as usize == done).then_some(())
    })
    .await;
}

/// Posts a body, signed with a secret or not, and returns the status of the answer.
async fn post(url: &str, body: &Value, secret: Option<&str>, sent_s: i64) -> u16 {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let (id, body) = (body["id"].as_str().unwrap().to_owned(), body.to_string());
    let mut request =
        Request::post("/").header("host", address).header("content-type", "application/cloudevents+json");
    request = request.header("webhook-id", &id).header("webhook-timestamp", sent_s.to_string());
    if let Some(secret) = secret {
        let key = STANDARD.decode(secret.trim_start_matches("whsec_")).unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(format!("{id}.{sent_s}.{body}").as_bytes());
        let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        request = request.header("webhook-signature", signature);
    }
    sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap().status().as_u16()
}

/// Forged and old requests are refused, and a repeated one is not worked on again.
async fn knows_what_to_refuse(url: &str, consumer: &Example) {
    let begun = consumer.after("begin");
    let now_s = now_us() / 1_000_000;
    let other = "whsec_YW5vdGhlci1zZWNyZXQtdGhhbi10aGUtb25lLWFib3Zl";
    let forged = json!({"id": "1f-forged", "attempt": 1, "data": {"workMs": 1}});
    for (what, secret, sent_s) in [
        ("no signature", None, now_s),
        ("another key", Some(other), now_s),
        ("an old one", Some(SECRET), now_s - 3_600),
    ] {
        assert_eq!(post(url, &forged, secret, sent_s).await, 401, "{what}");
    }
    let known = begun.first().unwrap();
    let again = json!({"id": known, "attempt": 2, "data": {"workMs": 1}});
    assert_eq!(post(url, &again, Some(SECRET), now_s).await, 202, "a repeat is no error");
    // What comes after it shows that it has been looked at.
    let last = json!({"id": "1f-unknown", "attempt": 1, "data": {"workMs": 1}});
    assert_eq!(post(url, &last, Some(SECRET), now_s).await, 202);
    wait_for("the last one", 10, async || {
        consumer.after("done").contains(&"1f-unknown".to_owned()).then_some(())
    })
    .await;
    assert_eq!(consumer.after("begin").len(), begun.len() + 1, "{:?}", consumer.lines());
}

async fn check_http(kind: Kind, folder: &str, mut command: Command) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    command.env("LISTEN", "127.0.0.1:0").env("TOLLGATE", service.url()).env("WEBHOOK_SECRET", SECRET);
    let mut consumer = Example::start(&mut command);
    let url = consumer.address().await;
    let subject = Subject::read(folder, HTTP_URL, &format!("{url}/"));
    subject.whole_run(&service, &consumer).await;
    assert!(consumer.most_at_once() > 1, "one after the other: {:?}", consumer.lines());
    knows_what_to_refuse(&url, &consumer).await;
    let (start, rest) = subject.yaml.split_once("workMs: ").unwrap();
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    subject.apply(&service, &format!("{start}workMs: 1500{rest}"));
    stops_in_order(&service, &mut consumer, &subject, subject.max_in_flight).await;
    service.stop().await;
}

/// Stubs of the API for Python, made anew so that they cannot be out of date.
fn python_stubs(folder: &Path) {
    let proto = examples().join("../proto");
    let folders = ["tollgate/v1", "google/api", "google/rpc"];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(proto.join(folder)).unwrap());
    let files = files.map(|file| file.unwrap().path());
    let out = |flag: &str| format!("--{flag}={}", folder.display());
    let made = Command::new(python())
        .args(["-m", "grpc_tools.protoc", "-I"])
        .arg(&proto)
        .args([out("python_out"), out("grpc_python_out")])
        .args(files)
        .status()
        .unwrap_or_else(|error| panic!("{}: {error}. Run the tests with ./tests/run", python().display()));
    assert!(made.success(), "grpc_tools.protoc failed. Run the tests with ./tests/run, which installs it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_does_its_work() {
    let stubs = tempfile::tempdir().unwrap();
    python_stubs(stubs.path());
    let mut command = Command::new(python());
    command.arg(examples().join("python/consumer.py")).env("PYTHONPATH", stubs.path());
    check_http(Kind::Postgres, "python", command).await;
}

/// The list that the nightly job submits: its tenants, in their order.
const TENANTS: [(&str, usize); 3] = [("acme", 5), ("Brown & Sons, Ltd", 2), ("zebra", 1)];

/// A job of the night submits a list, is started twice, and knows at the end what became of each row. `yaml`: of the folder, with
/// the consumer's address.
async fn works_the_night(service: &Service, yaml: &str) {
    let applied = Cli::new(service.url()).apply(yaml);
    assert_eq!(applied.code, 0, "{applied:?}");
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results.ndjson");
    let programs = [binary().parent().unwrap().to_owned()].into_iter();
    let others = std::env::var_os("PATH").unwrap();
    let programs = std::env::join_paths(programs.chain(std::env::split_paths(&others))).unwrap();
    for _ in 0..2 {
        let mut night = Command::new("bash");
        night.arg(examples().join("nightly/nightly.sh")).args(["tenants.csv", results.to_str().unwrap()]);
        night.env("PATH", &programs);
        night.env("TOLLGATE_SERVER", service.url()).env("NIGHT", "2026-11-25");
        let output = tokio::task::spawn_blocking(move || night.output().unwrap()).await.unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let text = std::fs::read_to_string(&results).unwrap();
    let results: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> =
        results.iter().map(|result| (result["key"].as_str(), result["outcome"].as_str())).collect();
    let rows = TENANTS.iter().flat_map(|(tenant, rows)| std::iter::repeat_n(*tenant, *rows));
    let expected: Vec<_> = rows.map(|tenant| (Some(tenant), Some("SUCCEEDED"))).collect();
    assert_eq!(told, expected, "{text}");
    assert_eq!(service.runs("nightly").await.len(), 1);
}

/// As [`works_the_night`], with a consumer of HTTP.
async fn works_the_night_over_http(mut command: Command) -> Vec<String> {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    command.env("LISTEN", "127.0.0.1:0").env("TOLLGATE", service.url()).env("WEBHOOK_SECRET", SECRET);
    let mut consumer = Example::start(&mut command);
    let url = consumer.address().await;
    let yaml = std::fs::read_to_string(examples().join("nightly/http.yaml")).unwrap();
    works_the_night(&service, &yaml.replace(HTTP_URL, &format!("{url}/"))).await;
    assert!((2..=5).contains(&consumer.most_at_once()), "two of each tenant: {:?}", consumer.lines());
    let lines = consumer.lines();
    assert!(consumer.stop().await.success());
    service.stop().await;
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_works_the_night() {
    let stubs = tempfile::tempdir().unwrap();
    python_stubs(stubs.path());
    let mut command = Command::new(python());
    command.arg(examples().join("python/consumer.py")).env("PYTHONPATH", stubs.path());
    let lines = works_the_night_over_http(command).await;
    for (tenant, rows) in TENANTS {
        let begun = lines
            .iter()
            .filter(|line| line.starts_with("begin ") && line.ends_with(&format!(" of {tenant}")));
        assert_eq!(begun.count(), rows, "{lines:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_works_the_night() {
    works_the_night_over_http(Command::new(rust())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_works_the_night() {
    let built = tempfile::tempdir().unwrap();
    works_the_night_over_http(typescript(built.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_works_the_night() {
    let emulator = Emulator::start().await;
    let queue_url = emulator.queue("nightly").await;
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let mut consumer = Example::start(&mut curl(&emulator, &queue_url, &service));
    consumer.address().await;
    let yaml = std::fs::read_to_string(examples().join("nightly/sqs.yaml")).unwrap();
    works_the_night(&service, &yaml.replace(SQS_URL, &emulator.endpoint)).await;
    assert!(consumer.stop().await.success());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_does_its_work() {
    check_http(Kind::Sqlite, "rust", Command::new(rust())).await;
}

fn rust() -> PathBuf {
    // Beside the folder of this test's own program.
    let own = std::env::current_exe().unwrap();
    let example = own.parent().and_then(Path::parent).unwrap().join("examples/consumer");
    assert!(example.exists(), "{} is missing: cargo build -p tollgate-tests --examples", example.display());
    example
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_does_its_work() {
    let built = tempfile::tempdir().unwrap();
    check_http(Kind::Sqlite, "typescript", typescript(built.path())).await;
}

/// The consumer in TypeScript, built into a folder: strictly checked, and then run by whatever Node there is.
fn typescript(built: &Path) -> Command {
    let folder = examples().join("typescript");
    let compiler = folder.join("node_modules/typescript/bin/tsc");
    assert!(
        compiler.exists(),
        "{} is missing. Run the tests with ./tests/run, which installs it",
        compiler.display()
    );
    let compiled =
        Command::new("node").arg(compiler).arg("--outDir").arg(built).current_dir(&folder).output();
    let compiled = compiled.unwrap_or_else(|error| panic!("node: {error}. Run the tests with ./tests/run"));
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stdout));
    std::fs::write(built.join("package.json"), r#"{"type": "module"}"#).unwrap();
    let mut command = Command::new("node");
    command.arg(built.join("consumer.js"));
    command
}

/// A queue, and the schedule of an example that puts its events there.
async fn queue(folder: &str) -> (Emulator, String, Subject) {
    let emulator = Emulator::start().await;
    let subject = Subject::read(folder, SQS_URL, &emulator.endpoint);
    let named = subject.yaml.lines().find_map(|line| line.trim().strip_prefix("queueUrl: ")).unwrap();
    let made = emulator.queue(named.rsplit('/').next().unwrap()).await;
    assert_eq!(made, named, "the emulator's account is another one");
    (emulator, made, subject)
}

/// The consumer with curl alone.
fn curl(emulator: &Emulator, queue_url: &str, service: &Service) -> Command {
    let mut command = Command::new("bash");
    command.arg(examples().join("curl/consumer.sh")).env("POLL_S", "1");
    sqs_environment(&mut command, emulator, queue_url, service);
    command
}

fn sqs_environment(command: &mut Command, emulator: &Emulator, queue_url: &str, service: &Service) {
    command
        .env("QUEUE_URL", queue_url)
        .env("SQS_ENDPOINT", &emulator.endpoint)
        .env("TOLLGATE", service.url())
        .envs([
            ("AWS_REGION", "eu-central-1"),
            ("AWS_ACCESS_KEY_ID", "testing"),
            ("AWS_SECRET_ACCESS_KEY", "testing"),
        ]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_does_its_work() {
    let (emulator, queue_url, subject) = queue("curl").await;
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let mut consumer = Example::start(&mut curl(&emulator, &queue_url, &service));
    consumer.address().await;
    subject.whole_run(&service, &consumer).await;
    assert!(consumer.most_at_once() > 1, "one after the other: {:?}", consumer.lines());
    // A message that comes twice: no second work, and it leaves the queue.
    let client = emulator.client();
    let known = consumer.after("done").remove(0);
    let attribute = |kind: &str, text: &str| {
        let value = aws_sdk_sqs::types::MessageAttributeValue::builder();
        value.data_type(kind).string_value(text).build().unwrap()
    };
    let again = client.send_message().queue_url(&queue_url).message_body("{}");
    let again = again.message_attributes("tollgate-event-id", attribute("String", &known));
    again.message_attributes("tollgate-attempt", attribute("Number", "1")).send().await.unwrap();
    wait_for("an empty queue", 20, async || {
        let all = aws_sdk_sqs::types::QueueAttributeName::All;
        let asked = client.get_queue_attributes().queue_url(&queue_url).attribute_names(all);
        let attributes = asked.send().await.unwrap().attributes.unwrap();
        let left = attributes.iter().filter(|(name, _)| {
            ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"].contains(&name.as_str())
        });
        left.into_iter().all(|(_, count)| count == "0").then_some(())
    })
    .await;
    assert_eq!(consumer.after("begin").len(), subject.events, "{:?}", consumer.lines());
    stops_in_order(&service, &mut consumer, &subject, 1).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lambda_does_its_work() {
    let (emulator, queue_url, subject) = queue("lambda").await;
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let mut command = Command::new(python());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("consumers/event_source.py");
    command.arg(source).arg(examples().join("lambda"));
    sqs_environment(&mut command, &emulator, &queue_url, &service);
    let mut consumer = Example::start(&mut command);
    consumer.address().await;
    let run = subject.whole_run(&service, &consumer).await;
    // Four of twenty stumbled. Their messages came again, alone, under the tokens that they held.
    let numbers =
        |word: &str| -> Vec<usize> { consumer.after(word).iter().map(|n| n.parse().unwrap()).collect() };
    assert_eq!(numbers("failed").iter().sum::<usize>(), subject.events / 5, "{:?}", consumer.lines());
    assert_eq!(numbers("batch of").iter().sum::<usize>(), subject.events + subject.events / 5);
    assert!(
        numbers("batch of").iter().all(|batch| *batch <= subject.max_in_flight),
        "{:?}",
        consumer.lines()
    );
    let events = service.events(&run.name).await;
    assert!(events.iter().all(|event| event.attempt == 1), "{events:?}");
    assert!(consumer.stop().await.success());
    service.stop().await;
}

/// The table has every folder, and nothing else.
#[test]
fn the_readme_has_every_example() {
    let readme = std::fs::read_to_string(examples().join("README.md")).unwrap();
    let rows = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|row| row.0.to_owned()));
    let named: BTreeSet<String> = rows.filter(|name| name.chars().all(|c| c.is_ascii_lowercase())).collect();
    let folders = std::fs::read_dir(examples()).unwrap().map(|entry| entry.unwrap());
    let folders = folders.filter(|entry| entry.file_type().unwrap().is_dir());
    assert_eq!(named, folders.map(|entry| entry.file_name().into_string().unwrap()).collect());
}
