//! The consumers that the documentation shows, as they stand there.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use tollgate_proto::v1::{HttpTarget, RunState, Target, target};
use tollgate_tests::resources::{once, policy, soon};
use tollgate_tests::{Database, Kind, Service, wait_for};

const EVENTS: u32 = 30;

/// A consumer as a process, ended when dropped.
struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (out, copy) = (BufReader::new(child.stdout.take().unwrap()), lines.clone());
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).for_each(|line| copy.lock().unwrap().push(line));
        });
        Self { child, lines }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn check(kind: Kind, start: impl FnOnce(&Service) -> Process) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = start(&service);
    let url = wait_for("its address", 20, async || {
        let lines = consumer.lines();
        lines.iter().find_map(|line| line.strip_prefix("listening on ").map(str::to_owned))
    })
    .await;
    service.create_policy("gentle", policy(5)).await.unwrap();
    let http = target::Target::Http(HttpTarget { url, ..HttpTarget::default() });
    let target = Target { target: Some(http), ..Target::default() };
    service.create_schedule("batch", once(soon(500), EVENTS, "gentle", target)).await.unwrap();
    let run = service.finished("batch", 30).await;
    assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, EVENTS), "{run:?}");
    let lines = consumer.lines();
    let done: BTreeSet<&str> =
        lines.iter().filter_map(|line| line.strip_prefix("done ")?.split(' ').next()).collect();
    assert_eq!(done.len(), EVENTS as usize, "{lines:?}");
    service.stop().await;
}

/// Stubs of the API for Python, made anew so that they cannot be out of date.
fn python_stubs(python: &Path, folder: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let proto = root.join("proto");
    let folders = ["tollgate/v1", "google/api", "google/rpc"];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(proto.join(folder)).unwrap());
    let files = files.map(|file| file.unwrap().path());
    let out = |flag: &str| format!("--{flag}={}", folder.display());
    let made = Command::new(python)
        .args(["-m", "grpc_tools.protoc", "-I"])
        .arg(&proto)
        .args([out("python_out"), out("grpc_python_out")])
        .args(files)
        .status()
        .unwrap_or_else(|error| panic!("{}: {error}. Run the tests with ./tests/run", python.display()));
    assert!(made.success(), "grpc_tools.protoc failed. Run the tests with ./tests/run, which installs it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_consumer_does_its_work() {
    let python =
        std::env::var_os("TOLLGATE_TEST_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let stubs = tempfile::tempdir().unwrap();
    python_stubs(&python, stubs.path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("consumers/consumer.py");
    check(Kind::Postgres, |service| {
        let server = service.url().trim_start_matches("http://").to_owned();
        let mut command = Command::new(python);
        Process::start(
            command.arg(script).args(["--port", "0", "--server", &server]).env("PYTHONPATH", stubs.path()),
        )
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rust_consumer_does_its_work() {
    // Beside the folder of this test's own program.
    let own = std::env::current_exe().unwrap();
    let example = own.parent().and_then(Path::parent).unwrap().join("examples/consumer");
    assert!(example.exists(), "{} is missing: cargo build -p tollgate-tests --examples", example.display());
    check(Kind::Sqlite, |service| Process::start(Command::new(example).args(["127.0.0.1:0", service.url()])))
        .await;
}
