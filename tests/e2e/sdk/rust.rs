//! The worker loop for Rust: `sdk/rust/examples/resize.rs`.

use std::path::Path;
use std::process::Command;

/// Beside the folder of this test's own program.
fn resize() -> Command {
    let own = std::env::current_exe().unwrap();
    let example = own.parent().and_then(Path::parent).unwrap().join("examples/resize");
    assert!(example.exists(), "{} is missing: cargo build --workspace --examples", example.display());
    Command::new(example)
}

works! { resize:
    it_works_by_http_and_stops_in_order works_and_stops Sqlite Http;
    it_works_by_sqs_and_stops_in_order works_and_stops Postgres Sqs;
    it_works_by_pull_and_stops_in_order works_and_stops Postgres Pull;
    by_http_it_outlives_the_server outlives_the_server Postgres Http;
    by_pull_it_outlives_the_server outlives_the_server Sqlite Pull;
    its_heartbeats_keep_tokens keeps_its_tokens Sqlite Pull;
    by_pull_it_works_without_tokens works_without_tokens Sqlite Pull;
    by_sqs_it_works_without_tokens works_without_tokens Sqlite Sqs;
}
