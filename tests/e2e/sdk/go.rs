//! The worker loop for Go: `sdk/go/examples/resize`, and the package's own tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

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

/// The folder into which both programs are built.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = super::folder("sdk-go");
        let to = folder.to_str().unwrap();
        go(&["build", "-o", to, "./examples/resize"]);
        go_in("../examples/chain", &["vet", "./..."]);
        go_in("../examples/chain", &["build", "-o", to, "."]);
        folder
    })
}

fn resize() -> Command {
    Command::new(built().join("resize"))
}

/// The worker of `examples/chain`.
pub(super) fn of_chain() -> Command {
    Command::new(built().join("chain"))
}

#[test]
fn its_own_tests_pass_and_vet_finds_nothing() {
    go(&["vet", "./..."]);
    go(&["test", "-count=1", "./..."]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/go");
    let unformed = Command::new("gofmt").arg("-l").arg(folder).output().unwrap();
    assert!(unformed.stdout.is_empty(), "gofmt: {}", String::from_utf8_lossy(&unformed.stdout));
}

works! { resize:
    it_works_by_http_and_stops_in_order works_and_stops Postgres Http;
    it_works_by_pull_and_stops_in_order works_and_stops Sqlite Pull;
    by_http_it_outlives_the_server outlives_the_server Sqlite Http;
    by_pull_it_outlives_the_server outlives_the_server Postgres Pull;
    it_works_by_sqs_and_stops_in_order works_and_stops Sqlite Sqs;
    by_sqs_it_outlives_the_server outlives_the_server Postgres Sqs;
    its_heartbeats_keep_tokens keeps_its_tokens Sqlite Pull;
    by_pull_it_works_without_tokens works_without_tokens Sqlite Pull;
    by_sqs_it_works_without_tokens works_without_tokens Postgres Sqs;
}
