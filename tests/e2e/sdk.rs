//! The worker loops in `sdk/`, each as its own example program, against a real service: every event done once and released, never
//! more at once than they are told, through stumbles, a stop in the midst and a server that dies.

/// Tests of one worker's program: their names, what they try, over which store, and where the events come from.
macro_rules! works {
    ($program:ident: $($name:ident $tries:ident $kind:ident $way:ident;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$tries(tollgate_harness::Kind::$kind, super::Way::$way, $program()).await;
            }
        )+
    };
}

mod chain;
mod go;
mod python;
mod rust;
mod storm;
mod typescript;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;
use tollgate_harness::process::Process;
use tollgate_harness::{Cli, Database, Emulator, Kind, Serve, Service, binary, free_port, wait_for};
use tollgate_proto::v1::RunState;

const SECRET: &str = "whsec_YS1zZWNyZXQtdGhhdC1ldmVyeWJvZHkta25vd3M=";
const CONCURRENCY: usize = 4;
const EVENTS: usize = 16;
/// How long a worker may take to stop: what it has begun takes a few seconds.
const STOP_MAX: Duration = Duration::from_secs(60);
/// The event that stumbles at its first attempt.
const STUMBLES: usize = 7;

/// An empty folder for what is built once for all tests of this process.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Where a worker takes events from.
pub(crate) enum Way {
    Http,
    Pull,
    Sqs,
}

/// A worker's program as a process; killed when dropped.
struct Program {
    process: Process,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Program {
    fn start(command: &mut Command) -> Self {
        let mut process = Process::start(command.stdout(Stdio::piped())).unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (out, copy) = (BufReader::new(process.output().unwrap()), lines.clone());
        let reader = std::thread::spawn(move || {
            out.lines().map_while(Result::ok).for_each(|line| copy.lock().unwrap().push(line));
        });
        Self { process, lines, reader: Some(reader) }
    }

    /// Ends it without a word to it, and answers all that it has written.
    fn kill(mut self) -> Vec<String> {
        self.process.kill9().unwrap();
        let read = self.reader.take().map(JoinHandle::join);
        assert!(matches!(read, Some(Ok(()))), "its output was not read");
        self.lines()
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

    /// Each event begins and ends in turn, and never are more at work than there may be.
    fn keeps_within(&self, most: usize) {
        let (mut now, mut seen) = (BTreeSet::new(), 0);
        for line in self.lines() {
            let mut words = line.split(' ');
            match (words.next(), words.next()) {
                (Some("begin"), Some(id)) => {
                    assert!(now.insert(id.to_owned()), "{id} is worked on twice at once")
                }
                (Some("done" | "stumbled"), Some(id)) => assert!(now.remove(id), "{id} had not begun"),
                _ => {}
            }
            seen = seen.max(now.len());
        }
        assert!((2..=most).contains(&seen), "{seen} at once: {:?}", self.lines());
    }

    /// Each event has been done, and once. Its last words may be on their way.
    async fn did_each_once(&self) {
        let done = wait_for("its word about each event", 30, async || {
            Some(self.after("done")).filter(|done| done.len() >= EVENTS)
        })
        .await;
        let distinct: BTreeSet<&String> = done.iter().collect();
        assert_eq!((done.len(), distinct.len()), (EVENTS, EVENTS), "{:?}", self.lines());
    }
}

/// A service, its schedule, and a worker of it.
struct Stage {
    database: Database,
    listen: String,
    service: Service,
    worker: Program,
    target: serde_json::Value,
    emulator: Option<Emulator>,
}

impl Stage {
    async fn set(kind: Kind, way: Way, mut command: Command) -> Self {
        let database = Database::new(kind).await;
        let listen = format!("127.0.0.1:{}", free_port().unwrap());
        let service = serve(&database, &listen).await;
        command.env("TOLLGATE", service.url()).env("CONCURRENCY", CONCURRENCY.to_string());
        let mut emulator = None;
        let mut target = json!({"pull": {"queue": "resize"}});
        match way {
            Way::Http => drop(command.env("LISTEN", "127.0.0.1:0").env("WEBHOOK_SECRET", SECRET)),
            Way::Pull => drop(command.env("QUEUE", "resize")),
            Way::Sqs => {
                let sqs = Emulator::start().await;
                let queue_url = sqs.queue("resize").await;
                command.env("QUEUE_URL", &queue_url).env("AWS_ENDPOINT_URL", &sqs.endpoint);
                command.env("AWS_REGION", "eu-central-1").env("AWS_ACCESS_KEY_ID", "testing");
                command.env("AWS_SECRET_ACCESS_KEY", "testing");
                target = json!({"sqs": {
                    "queueUrl": queue_url, "region": "eu-central-1", "endpointUrl": sqs.endpoint
                }});
                emulator = Some(sqs);
            }
        }
        let worker = Program::start(&mut command);
        let begun = wait_for("its first words", 30, async || worker.lines().into_iter().next()).await;
        if let Some(url) = begun.strip_prefix("listening on ") {
            target = json!({"http": {"url": url, "secret": SECRET}});
        }
        Self { database, listen, service, worker, target, emulator }
    }

    fn apply(&self, work_ms: u32, stumbles: Option<usize>) {
        self.apply_with("60s", work_ms, stumbles);
    }

    fn apply_with(&self, token_ttl: &str, work_ms: u32, stumbles: Option<usize>) {
        let policy = json!({
            "kind": "Policy", "id": "resizing", "maxInFlight": 12, "tokenTtl": token_ttl, "suspectPeriod": "1s",
        });
        let schedule = json!({
            "kind": "Schedule", "id": "resize", "triggers": [{"cron": "0 3 1 1 *"}], "timeZone": "UTC",
            "events": EVENTS, "policy": "resizing", "target": self.target,
            "retry": {"minBackoff": "200ms", "maxBackoff": "1s", "maxAttempts": 100},
            "payload": {"workMs": work_ms, "stumble": stumbles},
        });
        let applied = Cli::new(self.service.url()).apply(&format!("{policy}\n---\n{schedule}\n"));
        assert_eq!(applied.code, 0, "{applied:?}");
    }

    /// Fires it now, and returns the run's name.
    async fn trigger(&self) -> String {
        let runs = async || self.service.runs("resize").await.into_iter().map(|run| run.name);
        let known: BTreeSet<String> = runs().await.collect();
        Cli::new(self.service.url()).ok(&["trigger", "resize"]);
        // It may be over already.
        wait_for("another run", 30, async || runs().await.find(|name| !known.contains(name))).await
    }

    /// Stops the worker as it polls. What comes to its queue of SQS meanwhile it leaves to others, who need not wait for it.
    async fn stop_idle(&mut self) {
        const LATE: &str = r#"{"id": "late"}"#;
        let client = self.emulator.as_ref().map(Emulator::client);
        let queue_url = self.target["sqs"]["queueUrl"].as_str().unwrap_or_default();
        let send = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if let Some(client) = &client {
                client.send_message().queue_url(queue_url).message_body(LATE).send().await.unwrap();
            }
        };
        let stopped = self.worker.process.terminate(STOP_MAX);
        let (status, ()) = tokio::join!(stopped, send);
        assert!(status.as_ref().unwrap().success(), "{status:?}");
        if let Some(client) = &client {
            let receive = client.receive_message().queue_url(queue_url).max_number_of_messages(10);
            let received = receive.send().await.unwrap();
            let is_there = received.messages().iter().any(|message| message.body() == Some(LATE));
            assert!(is_there, "it is hidden, or gone: {received:?}");
        }
    }

    async fn finished(&self, run: &str) {
        wait_for("the end of the run", 60, async || {
            let run = self.service.run(run).await;
            let succeeded = run.counts.as_ref().map_or(0, |counts| counts.succeeded as usize);
            (run.state() == RunState::Finished).then(|| assert_eq!(succeeded, EVENTS, "{run:?}"))
        })
        .await;
    }
}

async fn serve(database: &Database, listen: &str) -> Service {
    let serve = Serve::new(Command::new(binary()), &database.url(), listen);
    let flags = ["--lease-ttl", "4s", "--allow-private-addresses", "127.0.0.0/8,::1/128"];
    let service = Service::launch(serve.flags(flags)).await.unwrap();
    service.owns_all().await.unwrap();
    service
}

/// A run of which one event stumbles; then another, in the midst of which the worker is told to stop.
async fn works_and_stops(kind: Kind, way: Way, command: Command) {
    let mut stage = Stage::set(kind, way, command).await;
    stage.apply(100, Some(STUMBLES));
    let run = stage.trigger().await;
    stage.finished(&run).await;
    stage.worker.did_each_once().await;
    stage.worker.keeps_within(CONCURRENCY);
    assert_eq!(stage.worker.after("stumbled").len(), 1, "{:?}", stage.worker.lines());

    stage.apply(1_500, None);
    let run = stage.trigger().await;
    let begun = || stage.worker.after("begin").len();
    wait_for("work", 30, async || (begun() >= EVENTS + 1 + CONCURRENCY).then_some(())).await;
    let status = stage.worker.process.terminate(STOP_MAX).await.unwrap();
    let lines = wait_for("its last words", 10, async || {
        let lines = stage.worker.lines();
        (lines.last().map(String::as_str) == Some("stopped")).then_some(lines)
    })
    .await;
    assert!(status.success(), "{status}: {lines:?}");
    stage.worker.keeps_within(CONCURRENCY);
    let done = stage.worker.after("done").len() - EVENTS;
    assert_eq!(stage.worker.after("begin").len(), done + EVENTS + 1, "what it has begun it ends: {lines:?}");
    assert!(done < EVENTS, "it ended before it was told to: {lines:?}");
    // What it has done is released; what it has not, nobody has.
    wait_for("what it released as it stopped", 10, async || {
        let counts = stage.service.run(&run).await.counts.unwrap();
        (counts.succeeded as usize == done).then_some(())
    })
    .await;
    stage.service.stop().await;
}

/// Work that takes longer than a consumer may be silent: heartbeats keep the tokens, and no event comes twice.
async fn keeps_its_tokens(kind: Kind, way: Way, command: Command) {
    let mut stage = Stage::set(kind, way, command).await;
    stage.apply_with("4s", 6_500, None);
    let run = stage.trigger().await;
    stage.finished(&run).await;
    stage.worker.did_each_once().await;
    let attempts: Vec<u32> = stage.service.events(&run).await.iter().map(|event| event.attempt).collect();
    assert_eq!(attempts, [1; EVENTS], "{:?}", stage.worker.lines());
    let status = stage.worker.process.terminate(STOP_MAX).await.unwrap();
    assert!(status.success(), "{status}");
    stage.service.stop().await;
}

/// Tokens that come back as soon as the events are taken: the work takes longer than a consumer may be silent, and is done all
/// the same, each once. Nobody is told of what stumbles: it counts as done, and only a queue brings it again.
async fn works_without_tokens(kind: Kind, way: Way, command: Command) {
    let done = if matches!(way, Way::Sqs) { EVENTS } else { EVENTS - 1 };
    let mut stage = Stage::set(kind, way, command).await;
    stage.target["release"] = json!("ON_RESPONSE");
    stage.apply_with("2s", 2_500, Some(STUMBLES));
    Cli::new(stage.service.url()).ok(&["trigger", "resize"]);
    let run = stage.service.finished("resize", 60).await;
    let succeeded = run.counts.as_ref().map_or(0, |counts| counts.succeeded as usize);
    assert_eq!((run.state(), succeeded), (RunState::Finished, EVENTS), "{run:?}");
    wait_for("the end of the work", 90, async || {
        let counts = ["done", "stumbled"].map(|word| stage.worker.after(word).len());
        (counts == [done, 1]).then_some(())
    })
    .await;
    Box::pin(stage.stop_idle()).await;
    stage.worker.keeps_within(CONCURRENCY);
    let distinct: BTreeSet<String> = stage.worker.after("done").into_iter().collect();
    assert_eq!(distinct.len(), done, "{:?}", stage.worker.lines());
    assert_eq!(stage.worker.after("begin").len(), done + 1, "{:?}", stage.worker.lines());
    stage.service.stop().await;
}

/// The server dies while events are worked on, and comes back: all are done, each once.
async fn outlives_the_server(kind: Kind, way: Way, command: Command) {
    let mut stage = Stage::set(kind, way, command).await;
    stage.apply(400, None);
    let run = stage.trigger().await;
    wait_for("some work", 30, async || (stage.worker.after("done").len() >= 3).then_some(())).await;
    stage.service.kill9();
    // Long enough for work that ends while nobody takes its release.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    stage.service = serve(&stage.database, &stage.listen).await;
    stage.finished(&run).await;
    stage.worker.did_each_once().await;
    stage.worker.keeps_within(CONCURRENCY);
    let status = stage.worker.process.terminate(STOP_MAX).await.unwrap();
    assert!(status.success(), "{status}");
    stage.service.stop().await;
}
