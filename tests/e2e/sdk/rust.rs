//! The worker loop for Rust: `sdk/rust/examples/resize.rs`.

use std::path::Path;
use std::process::Command;

use tollgate_harness::Kind;

use super::{Way, outlives_the_server, works_and_stops};

/// Beside the folder of this test's own program.
fn resize() -> Command {
    let own = std::env::current_exe().unwrap();
    let example = own.parent().and_then(Path::parent).unwrap().join("examples/resize");
    assert!(example.exists(), "{} is missing: cargo build --workspace --examples", example.display());
    Command::new(example)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_by_http_and_stops_in_order() {
    works_and_stops(Kind::Sqlite, Way::Http, resize()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_by_sqs_and_stops_in_order() {
    works_and_stops(Kind::Postgres, Way::Sqs, resize()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_by_pull_and_stops_in_order() {
    works_and_stops(Kind::Postgres, Way::Pull, resize()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_http_it_outlives_the_server() {
    outlives_the_server(Kind::Postgres, Way::Http, resize()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_pull_it_outlives_the_server() {
    outlives_the_server(Kind::Sqlite, Way::Pull, resize()).await;
}
