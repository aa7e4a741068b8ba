//! The worker loop for Go: `sdk/go/examples/resize`, and the package's own tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tollgate_harness::Kind;

use super::{Way, outlives_the_server, works_and_stops};

fn go(arguments: &[&str]) -> Output {
    go_in("../sdk/go", arguments)
}

fn go_in(folder: &str, arguments: &[&str]) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut go = Command::new("go");
    // Nothing is to be fetched: the standard library is all that it needs.
    go.args(arguments)
        .current_dir(folder)
        .env("GOPROXY", "off")
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", "local");
    let output = go.output().unwrap_or_else(|error| panic!("go: {error}. Run the tests with ./tests/run"));
    let words = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "go {}: {words}", arguments.join(" "));
    output
}

/// The program, built into a folder.
fn resize(folder: &Path) -> Command {
    let program: PathBuf = folder.join("resize");
    go(&["build", "-o", program.to_str().unwrap(), "./examples/resize"]);
    Command::new(program)
}

/// The worker of `examples/chain`, built into a folder.
pub(super) fn of_chain(folder: &Path) -> PathBuf {
    let program = folder.join("chain");
    go_in("../examples/chain", &["vet", "./..."]);
    go_in("../examples/chain", &["build", "-o", program.to_str().unwrap(), "."]);
    program
}

#[test]
fn its_own_tests_pass_and_vet_finds_nothing() {
    go(&["vet", "./..."]);
    go(&["test", "-count=1", "./..."]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/go");
    let unformed = Command::new("gofmt").arg("-l").arg(folder).output().unwrap();
    assert!(unformed.stdout.is_empty(), "gofmt: {}", String::from_utf8_lossy(&unformed.stdout));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_by_http_and_stops_in_order() {
    let folder = tempfile::tempdir().unwrap();
    works_and_stops(Kind::Postgres, Way::Http, resize(folder.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_by_pull_and_stops_in_order() {
    let folder = tempfile::tempdir().unwrap();
    works_and_stops(Kind::Sqlite, Way::Pull, resize(folder.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_http_it_outlives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    outlives_the_server(Kind::Sqlite, Way::Http, resize(folder.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_pull_it_outlives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    outlives_the_server(Kind::Postgres, Way::Pull, resize(folder.path())).await;
}
