//! Quotas, as their users meet them: from a file of settings to 429 with `Retry-After`.

use std::process::Command;

use tollgate_harness::{Cli, Database, Kind, Service};

const SCHEDULE: &str = r#"{"triggers": [{"cron": "0 0 1 1 *"}], "events": 10, "target": {"http": {"url": "http://127.0.0.1:9/"}}}"#;

/// Status, headers and body of a call by curl.
fn curl(arguments: &[&str]) -> String {
    let output =
        Command::new("curl").args(["-s", "-i", "--max-time", "20"]).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

async fn quotas_of_a_file_hold(kind: Kind) {
    let (database, folder) = (Database::new(kind).await, tempfile::tempdir().unwrap());
    let file = folder.path().join("tollgate.yaml");
    let settings = "quota_schedules: 3\nquota_overrides:\n  small: {schedules: 1, waiting_events: 25}\n  slow: {writes: 1, \
                    schedules: 0}\n";
    std::fs::write(&file, settings).unwrap();
    let service = Service::start_with(&database, &["--config", file.to_str().unwrap()]).await;
    let create = |namespace: &str, id: usize| {
        let url = format!("{}/v1/namespaces/{namespace}/schedules?scheduleId=s{id}", service.url());
        curl(&["--json", SCHEDULE, &url])
    };
    let status = |answer: &str| answer.lines().next().unwrap().split(' ').nth(1).unwrap().to_owned();

    // Schedules: three for everybody, one for `small`.
    for (namespace, allowed) in [("default", 3), ("small", 1)] {
        for id in 0..allowed {
            let answer = create(namespace, id);
            assert_eq!(status(&answer), "200", "{answer}");
        }
        let answer = create(namespace, allowed);
        assert_eq!(status(&answer), "429", "{answer}");
        let said = format!(
            "namespaces/{namespace}: {allowed} schedules and 1 more; the quota `schedules` allows {allowed}"
        );
        assert!(answer.contains(&said), "{answer}");
        assert!(answer.contains("google.rpc.QuotaFailure"), "{answer}");
    }

    // Waiting events: a run of ten does not start while its policy is paused.
    let cli = Cli::new(service.url());
    let policy = "kind: Policy\nid: p\nmaxInFlight: 1\n---\nkind: Schedule\nid: s0\ntriggers: [{cron: '0 0 1 1 *'}]\n\
                  events: 10\npolicy: p\ntarget: {http: {url: 'http://127.0.0.1:9/'}}\n";
    let applied = cli.run_with(&["apply", "-n", "small", "-f", "-"], policy);
    assert_eq!(applied.code, 0, "{applied:?}");
    cli.ok(&["pause", "policy", "p", "-n", "small", "--reason", "quota"]);
    for _ in 0..2 {
        cli.ok(&["trigger", "s0", "-n", "small"]);
    }
    let refused = cli.run(&["trigger", "s0", "-n", "small"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let said = "20 events that have not started and 10 more; the quota `waiting_events` allows 25";
    assert!(refused.err.contains(said), "{refused:?}");

    // Writes: ten at once, then one a second.
    let refused = (0..40).map(|id| create("slow", id)).find(|answer| status(answer) != "200").unwrap();
    assert_eq!(status(&refused), "429", "{refused}");
    assert!(refused.to_ascii_lowercase().contains("retry-after: 1\r\n"), "{refused}");
    assert!(refused.contains("the quota `writes`") && refused.contains("google.rpc.RetryInfo"), "{refused}");
    service.stop().await;
}

on_both_stores!(quotas_of_a_file_hold);
