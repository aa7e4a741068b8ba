//! Lists whose connection breaks: nothing of them is due, and they are gone on with.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_harness::proxy::{Mode, Proxy};
use tollgate_harness::{Kind, binary, wait_for};
use tollgate_proto::v1::{GetSubmissionRequest, Submission, SubmissionState};

use super::{NDJSON, URL_PATH, World, post, short, world};

const ITEMS: usize = 30_000;

fn lines(from: usize, to: usize, about: usize) -> String {
    (from..to).map(|n| format!("{{\"n\":{n},\"about\":\"{}\"}}\n", "x".repeat(about))).collect()
}

async fn submission(world: &World, id: &str) -> Option<Submission> {
    let name = format!("namespaces/default/schedules/import/submissions/{id}");
    world
        .service
        .master()
        .get_submission(GetSubmissionRequest { name })
        .await
        .ok()
        .map(|found| found.into_inner())
}

/// Waits until so many items of a submission are durable.
async fn stored(world: &World, id: &str, at_least: u32) -> Submission {
    wait_for("stored items", 30, async || {
        submission(world, id).await.filter(|found| found.received_count >= at_least)
    })
    .await
}

/// A chunked body whose connection is closed in the middle of it.
fn break_off(world: &World, query: &str, body: &str) {
    let place = world.service.url().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(place).unwrap();
    let head = format!(
        "POST {URL_PATH}:submit{query} HTTP/1.1\r\nhost: {place}\r\n{NDJSON}\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(format!("{:x}\r\n{body}\r\n", body.len()).as_bytes()).unwrap();
    // The service reads it before the end of the connection.
    std::thread::sleep(Duration::from_secs(1));
}

/// Of so many bytes that some are stored before the end: it is written a MiB at a time.
const LARGE: usize = 10_000;

async fn a_body_that_breaks_off_makes_nothing_due_and_is_gone_on_with(kind: Kind) {
    let world = world(kind).await;
    break_off(&world, "?requestId=r", &lines(0, 300, LARGE));
    let open = stored(&world, "r", 1).await;
    assert_eq!((open.state(), &open.run), (SubmissionState::Open, &None), "{open:?}");
    // All that came of it has been stored.
    let mut last = (0, Instant::now());
    let from = wait_for("most of it", 30, async || {
        let count = submission(&world, "r").await?.received_count as usize;
        if count != last.0 {
            last = (count, Instant::now());
        }
        ((100..=300).contains(&count) && last.1.elapsed() > Duration::from_secs(2)).then_some(count)
    })
    .await;
    assert_eq!((world.runs_count().await, world.consumer.notes.arrivals_count()), (0, 0));
    let query = format!("?requestId=r&resumeFrom={from}");
    let (status, answer) = post(&world.url(&query), &[NDJSON], lines(from, 350, LARGE).as_bytes());
    assert_eq!((status, &answer["run"]["events"]), (200, &json!(350)), "{answer}");
    let complete = submission(&world, "r").await.unwrap();
    assert_eq!((complete.state(), complete.received_count), (SubmissionState::Complete, 350));
    // The whole of it under the same name is the same run.
    let (status, again) = post(&world.url("?requestId=r"), &[NDJSON], lines(0, 350, LARGE).as_bytes());
    assert_eq!((status, &again["run"]["name"]), (200, &answer["run"]["name"]), "{again}");
    let run = answer["run"]["name"].as_str().unwrap();
    let waited = world.cli.run(&["wait", "run", short(run), "--timeout", "240s"]);
    assert_eq!(waited.code, 0, "{waited:?}");
    let numbers =
        world.got(run).into_iter().map(|(index, (data, _))| (u64::from(index), data["n"].as_u64().unwrap()));
    assert_eq!(numbers.collect::<Vec<_>>(), (0..350).map(|n| (n, n)).collect::<Vec<_>>());
    world.service.stop().await;
}

on_both_stores!(a_body_that_breaks_off_makes_nothing_due_and_is_gone_on_with);

/// A file, and what submits it.
struct Upload {
    folder: tempfile::TempDir,
}

/// A command that submits a file, under way.
struct Running {
    process: Child,
    err: BufReader<ChildStderr>,
    id: String,
}

impl Upload {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.ndjson"), lines(0, ITEMS, 100)).unwrap();
        Self { folder }
    }

    fn file(&self) -> String {
        self.folder.path().join("a.ndjson").to_str().unwrap().to_owned()
    }

    /// Begins to submit it by a slow way, and waits until some of it is stored.
    async fn begin(&self, world: &World, proxy: &Proxy) -> Running {
        proxy.set(Mode::Late(Duration::from_millis(20)));
        let mut command = Command::new(binary());
        command.args(["submit", "import", &self.file(), "-o", "json"]);
        command.env("TOLLGATE_SERVER", format!("http://{}", proxy.address));
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut err = BufReader::new(process.stderr.take().unwrap());
        let (err, first) = tokio::task::spawn_blocking(move || {
            let mut first = String::new();
            err.read_line(&mut first).unwrap();
            (err, first)
        })
        .await
        .unwrap();
        let id = first.trim().rsplit(' ').next().unwrap().to_owned();
        assert!(first.starts_with("submitting 30000 items as sha256-"), "{first}");
        stored(world, &id, 1).await;
        Running { process, err, id }
    }
}

impl Running {
    /// Its end: how, and what it wrote.
    async fn end(mut self) -> (Option<i32>, String, String) {
        tokio::task::spawn_blocking(move || {
            let (mut out, mut err) = (String::new(), String::new());
            self.process.stdout.take().unwrap().read_to_string(&mut out).unwrap();
            self.err.read_to_string(&mut err).unwrap();
            (self.process.wait().unwrap().code(), out, err)
        })
        .await
        .unwrap()
    }
}

async fn proxy(world: &World) -> Proxy {
    Proxy::start(world.service.url().strip_prefix("http://").unwrap().parse().unwrap()).await.unwrap()
}

/// The command is killed in the middle: the same command goes on, and makes one run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_command_goes_on_after_it_was_killed() {
    let world = world(Kind::Sqlite).await;
    let (upload, proxy) = (Upload::new(), proxy(&world).await);
    let mut running = upload.begin(&world, &proxy).await;
    running.process.kill().unwrap();
    running.process.wait().unwrap();
    assert_eq!(world.runs_count().await, 0);
    let run = world.cli.json(&["submit", "import", &upload.file()]);
    assert_eq!(run["events"], json!(ITEMS), "{run}");
    let again = world.cli.run(&["submit", "import", &upload.file()]);
    assert_eq!((again.code, world.runs_count().await), (5, 1), "{again:?}");
    world.service.stop().await;
}

/// The connection is reset in the middle: the command goes on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_taken_up_again() {
    let world = world(Kind::Sqlite).await;
    let (upload, proxy) = (Upload::new(), proxy(&world).await);
    let running = upload.begin(&world, &proxy).await;
    proxy.set(Mode::Reset);
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.set(Mode::Pass);
    let (code, out, err) = running.end().await;
    assert!(code == Some(0) && err.contains("interrupted: "), "{err}");
    let run: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&run["events"], world.runs_count().await), (&json!(ITEMS), 1), "{err}");
    world.service.stop().await;
}

/// A file that changes while it is sent: no run of the half of one and the half of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_changes_makes_nothing_due() {
    let world = world(Kind::Sqlite).await;
    let (upload, proxy) = (Upload::new(), proxy(&world).await);
    let running = upload.begin(&world, &proxy).await;
    let id = running.id.clone();
    let file = std::fs::OpenOptions::new().append(true).open(upload.file());
    file.unwrap().write_all(b"{\"n\": \"one more\"}\n").unwrap();
    let (code, _, err) = running.end().await;
    assert!(code == Some(1) && err.contains("the file has changed while it was sent"), "{err}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((world.runs_count().await, world.consumer.notes.arrivals_count()), (0, 0));
    assert_eq!(submission(&world, &id).await.unwrap().state(), SubmissionState::Open);
    world.service.stop().await;
}
