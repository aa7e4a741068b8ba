//! The worker loop for Python: `sdk/python/examples/resize.py` over the package that its own tool builds, and its own tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use tollgate_harness::Kind;

use super::{Way, outlives_the_server, works_and_stops};

fn python() -> String {
    std::env::var("TOLLGATE_TEST_PYTHON")
        .expect("TOLLGATE_TEST_PYTHON is not set. Run the tests with ./tests/run")
}

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/python")
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let words = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{command:?}: {words}");
    output
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (name, path) = (entry.file_name(), entry.path());
        match path.is_dir() {
            true if name == "__pycache__" => {}
            true => copy(&path, &to.join(name)),
            false => drop(fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

/// The package, which pip builds and installs into a folder.
pub(super) fn installed(folder: &TempDir) -> PathBuf {
    // The build leaves its marks beside what it builds.
    let (source, wheels, installed) =
        (folder.path().join("source"), folder.path().join("wheels"), folder.path().join("site"));
    copy(&package(), &source);
    let pip = || {
        let mut pip = Command::new(python());
        pip.args(["-m", "pip", "--disable-pip-version-check", "--quiet"]);
        pip
    };
    run(pip().args(["wheel", "--no-build-isolation", "--no-deps", "--wheel-dir"]).args([&wheels, &source]));
    let wheel = wheels.join("tollgate_worker-0.1.0-py3-none-any.whl");
    run(pip().args(["install", "--no-deps", "--no-index", "--target"]).args([&installed, &wheel]));
    assert!(installed.join("tollgate_worker/py.typed").exists(), "the package has no types");
    installed
}

/// A program over the package.
pub(super) fn program(installed: &Path, program: &Path) -> Command {
    let mut python = Command::new(python());
    python.arg(program).env("PYTHONPATH", installed);
    python
}

fn resize(folder: &TempDir) -> Command {
    program(&installed(folder), &package().join("examples/resize.py"))
}

#[test]
fn its_own_tests_pass_and_mypy_finds_nothing() {
    let tests = ["-m", "unittest", "discover", "--start-directory", "tests"];
    run(Command::new(python()).args(tests).current_dir(package()).env("PYTHONPATH", "src"));
    let cache = tempfile::tempdir().unwrap();
    run(Command::new(python()).args(["-m", "mypy", "--cache-dir"]).arg(cache.path()).current_dir(package()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_by_http_and_stops_in_order() {
    let folder = tempfile::tempdir().unwrap();
    works_and_stops(Kind::Sqlite, Way::Http, resize(&folder)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_by_sqs_and_stops_in_order() {
    let folder = tempfile::tempdir().unwrap();
    works_and_stops(Kind::Sqlite, Way::Sqs, resize(&folder)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_by_pull_and_stops_in_order() {
    let folder = tempfile::tempdir().unwrap();
    works_and_stops(Kind::Postgres, Way::Pull, resize(&folder)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_http_it_outlives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    outlives_the_server(Kind::Postgres, Way::Http, resize(&folder)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_pull_it_outlives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    outlives_the_server(Kind::Sqlite, Way::Pull, resize(&folder)).await;
}
