//! A terminal shows how far a long call has come: what was sent, checked and written, and the runs of a backfill.

use std::process::Command;

use tollgate_harness::{Cli, Database, Kind, Service, now_us};
use tollgate_proto::convert::timestamp;

use crate::examples::python;

/// Microseconds of a minute.
const MINUTE_US: i64 = 60_000_000;
/// Schedules of a file: enough that a debug build takes longer than a line takes to be drawn.
const SCHEDULES: usize = 20_000;

/// What a command shows on a terminal.
fn on_a_terminal(server: &str, words: &[&str]) -> String {
    let program = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let output = Command::new(python())
        .args(["-c", program])
        .arg(tollgate_harness::binary())
        .args(words)
        .env("TOLLGATE_SERVER", server)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words:?}: {shown}{}", String::from_utf8_lossy(&output.stderr));
    shown
}

/// The lines that were drawn in each other's place and begin with `word`.
fn drawn<'shown>(shown: &'shown str, word: &str) -> Vec<&'shown str> {
    shown.split("\r\u{1b}[2K").filter(|line| line.starts_with(word)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_shows_how_far_apply_and_backfill_have_come() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let database = Database::new(kind).await;
        let service = Service::start(&database).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("all.yaml");
        let schedule = |at: usize| {
            format!(
                "kind: Schedule\nid: s{at}\ntarget: {{http: {{url: http://127.0.0.1:9/}}}}\n\
                 triggers: [{{interval: {{every: 24h}}}}]\n---\n"
            )
        };
        let minutely = "kind: Schedule\nid: minutely\ntarget: {http: {url: http://127.0.0.1:9/}}\ntimeZone: UTC\n\
                        triggers: [{cron: '* * * * *'}]\n";
        let text: String = (0..SCHEDULES).map(schedule).chain([minutely.to_owned()]).collect();
        std::fs::write(&file, text).unwrap();
        let shown = on_a_terminal(service.url(), &["apply", "-f", file.to_str().unwrap()]);
        assert!(shown.contains("20001 created, 0 updated, 0 unchanged"), "{kind:?}: {shown}");
        let written = drawn(&shown, "written ");
        assert!(!written.is_empty() && written.iter().all(|line| line.contains(" of 20001")), "{shown}");
        // The first of two pauses within a second has no rate yet.
        assert!(written.len() < 5 || written.iter().any(|line| line.contains("/s, ")), "{written:?}");

        Cli::new(service.url()).ok(&["pause", "all"]);
        let to_us = now_us() / MINUTE_US * MINUTE_US;
        let (from, to) = (timestamp(to_us - 8_640 * MINUTE_US).to_string(), timestamp(to_us).to_string());
        let began_us = now_us();
        let shown = on_a_terminal(service.url(), &["backfill", "minutely", "--from", &from, "--to", &to]);
        // What is over at once has nothing to show on the way.
        let is_short = now_us() - began_us < 2_000_000;
        assert!(shown.contains("8640 runs made, 0 existed"), "{kind:?}: {shown}");
        let made = drawn(&shown, "runs made: ");
        assert!(!made.is_empty() || is_short, "{kind:?}: {shown}");
        assert!(made.iter().all(|line| line.contains(" of 8640")), "{kind:?}: {shown}");
        service.stop().await;
    }
}
