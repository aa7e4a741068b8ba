//! The binary as its users see it: what it prints, what it asks the service, and how it exits.
#![expect(clippy::unwrap_used, reason = "tests")]

mod wire;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use prost::Message;
use serde_json::json;
use tollgate_proto::FieldError;
use tollgate_proto::v1;
use tonic::Status;

use wire::{Stub, answer};

/// Runs the binary with these words, against `server`, with `input` on its standard input.
async fn run(server: &str, words: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(words).env_clear().env("TOLLGATE_SERVER", server).env("USER", "ada");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let input = input.to_owned();
    tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        // A command that does not read its input may be gone already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    })
    .await
    .unwrap()
}

async fn ask(stub: &Stub, words: &[&str], input: &str) -> (i32, String, String) {
    let output = run(&format!("http://{}", stub.address), words, input).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_streams_policies_first_with_their_places() {
    let stub = Stub::start(|_| {
        answer(&v1::ApplyResourcesResponse { created_count: 1, unchanged_count: 1, ..Default::default() })
    })
    .await;
    let input = "kind: Schedule\nid: s\npolicy: p\n---\nkind: Policy\nid: p\nmaxInFlight: 4\n";
    let (code, out, err) = ask(&stub, &["apply", "-f", "-", "-n", "team"], input).await;
    assert_eq!((code, out.as_str(), err.as_str()), (0, "1 created, 0 updated, 1 unchanged\n", ""));
    let calls = stub.calls();
    assert_eq!((calls[0].method.as_str(), calls[0].actor.as_str()), ("ApplyResources", "ada"));
    let sent: Vec<v1::ApplyResourcesRequest> =
        calls[0].messages.iter().map(|bytes| Message::decode(bytes.clone()).unwrap()).collect();
    let sources: Vec<&str> = sent.iter().map(|request| request.source.as_str()).collect();
    assert_eq!(sources, ["<stdin>:5", "<stdin>:1"]);
    assert!(sent.iter().all(|request| request.namespace == "team" && !request.validate_only));
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_sends_nothing_when_something_is_wrong_and_exits_1_when_something_is_refused() {
    let stub = Stub::start(|_| {
        let error = v1::ApplyError {
            source: "<stdin>:1".to_owned(),
            name: "namespaces/default/policies/p".to_owned(),
            field: "policy.burst".to_owned(),
            message: "it needs rate_per_second".to_owned(),
        };
        answer(&v1::ApplyResourcesResponse { failed_count: 1, errors: vec![error], ..Default::default() })
    })
    .await;
    let (code, out, err) = ask(&stub, &["apply", "-f", "-"], "kind: Policy\nid: p\nburst: many\n").await;
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("nothing was sent") && err.contains("<stdin>:3: burst: "), "{err}");
    assert!(stub.calls().is_empty());
    let (code, out, err) = ask(&stub, &["apply", "-f", "-"], "kind: Policy\nid: p\nburst: 7\n").await;
    assert_eq!((code, out.as_str()), (1, "0 created, 0 updated, 0 unchanged, 1 refused\n"));
    let expected = "<stdin>:3: namespaces/default/policies/p: burst: it needs ratePerSecond";
    assert!(err.contains(expected), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_tables_or_the_messages_json() {
    let stub = Stub::start(|_| {
        let name = "namespaces/default/policies/imports".to_owned();
        let policy = v1::Policy { name, max_in_flight: Some(4), ..Default::default() };
        answer(&v1::ListPoliciesResponse { policies: vec![policy], next_page_token: String::new() })
    })
    .await;
    let (code, out, _) = ask(&stub, &["list", "policies", "--filter", "state=ACTIVE"], "").await;
    assert_eq!(code, 0);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("POLICY   STATE   IN FLIGHT"), "{out}");
    assert!(lines[1].starts_with("imports  ACTIVE  4"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours where nobody sees them: {out:?}");
    let (_, out, _) = ask(&stub, &["list", "policies", "--color", "always"], "").await;
    assert!(out.starts_with("\u{1b}[1mPOLICY\u{1b}[0m"), "{out:?}");
    let (_, out, _) = ask(&stub, &["get", "policies", "-o", "json"], "").await;
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["policies"][0]["maxInFlight"], 4);
    let (_, out, _) = ask(&stub, &["-o", "yaml", "get", "policies"], "").await;
    assert!(out.contains("maxInFlight: 4"), "{out}");
    let (_, out, _) = ask(&stub, &["get", "policies", "-o", "name"], "").await;
    assert_eq!(out, "policy/imports\n");
    let (_, out, _) = ask(&stub, &["-n", "team", "get", "policies", "-o", "name"], "").await;
    assert_eq!(out, "namespaces/default/policies/imports\n", "a name that is true in every namespace");
    let (_, out, _) = ask(&stub, &["get", "policies", "-o", "wide"], "").await;
    assert!(out.contains("RECLAIM") && out.contains("LAST ERROR"), "{out}");
    let request = v1::ListPoliciesRequest::decode(stub.calls()[0].messages[0].clone()).unwrap();
    assert_eq!((request.parent.as_str(), request.filter.as_str()), ("namespaces/default", "state=ACTIVE"));
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_says_what_it_did_to_which_resource() {
    let stub = Stub::start(|_| {
        let updated = json!({
            "name": "namespaces/default/policies/backups",
            "action": "UPDATED",
            "difference": {"max_in_flight": {"old": 50, "new": 5000}},
        });
        let created = json!({"name": "namespaces/default/schedules/nightly", "action": "CREATED"});
        let all = json!({
            "created_count": 2, "updated_count": 1, "unchanged_count": 7, "results": [updated, created],
            "unlisted_results_count": 1,
        });
        answer(&tollgate_proto::json::from_json::<v1::ApplyResourcesResponse>(all).unwrap())
    })
    .await;
    let input = "kind: Policy\nid: p\nmaxInFlight: 4\n";
    let (code, out, _) = ask(&stub, &["apply", "-f", "-", "--reason", "größer"], input).await;
    let expected = "policy/backups updated (maxInFlight 50 -> 5000)\nschedule/nightly created\n… and 1 more\n\
                    2 created, 1 updated, 7 unchanged\n";
    assert_eq!((code, out.as_str()), (0, expected));
    assert_eq!(stub.calls()[0].reason, "gr%C3%B6%C3%9Fer");
    let (code, out, _) = ask(&stub, &["apply", "-f", "-", "-o", "name"], input).await;
    assert_eq!((code, out.as_str()), (0, "policy/backups\nschedule/nightly\n"));
    let (code, out, _) = ask(&stub, &["diff", "-f", "-"], input).await;
    assert_eq!(code, 1, "as diff(1): {out}");
    assert!(out.contains("policy/backups would be updated\n    maxInFlight: 50 -> 5000\n"), "{out}");
    assert_eq!(ask(&stub, &["diff", "-f", "-"], "kind: Policy\n").await.0, 2);
    let (_, out, _) = ask(&stub, &["apply", "-f", "-", "-o", "json"], input).await;
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["results"][0]["difference"]["max_in_flight"]["new"], 5000);
    assert_eq!((&json["updatedCount"], json.get("pruned")), (&json!(1), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_one_paragraph_and_exit_with_1() {
    let stub = Stub::start(|call| match call.method.as_str() {
        "PreviewSchedule" => Err(FieldError::new("schedule.triggers[0].cron", "x", "five fields").into()),
        _ => Err(Status::not_found("schedule namespaces/default/schedules/s does not exist")),
    })
    .await;
    let (code, out, err) = ask(&stub, &["preview", "--cron", "x"], "").await;
    assert_eq!((code, out.as_str()), (1, ""));
    let expected = "error: cannot preview \"x\" in UTC: the service refused it:\n  \
                    schedule.triggers[0].cron: \"x\" is not allowed, expected five fields\n";
    assert_eq!(err, expected);
    let (code, _, err) = ask(&stub, &["pause", "schedule", "s"], "").await;
    assert_eq!(code, 1);
    let start = "error: cannot pause namespaces/default/schedules/s: schedule namespaces/default/schedules/s does not";
    assert!(err.starts_with(start), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_reaches_the_handler() {
    let stub = Stub::start(|_| {
        let status = v1::ReleaseStatus::Released.into();
        answer(&v1::ReleaseTokenResponse { status, ..Default::default() })
    })
    .await;
    let event = "0a-0123456789abcdef0123456789abcdef-7-aB_-cdEfGhI";
    let words = ["release", event, "--outcome", "retry", "--attempt", "2", "--actor", "grace"];
    let (code, out, _) = ask(&stub, &words, "").await;
    assert_eq!((code, out.as_str()), (0, "RELEASED\n"));
    let call = &stub.calls()[0];
    assert_eq!(call.actor, "grace");
    let request = v1::ReleaseTokenRequest::decode(call.messages[0].clone()).unwrap();
    assert_eq!((request.outcome(), request.attempt), (v1::ReleaseOutcome::Retry, Some(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_said_with_a_hint() {
    // Another test may get a port that was free just now; nobody gets this one.
    let free = "127.0.0.1:1";
    let output = run(&format!("http://{free}"), &["status"], "").await;
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err.contains(&format!("cannot reach http://{free}: nothing listens there"))
            && err.contains("`tollgate serve`"),
        "{err}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_use_exits_with_2() {
    let nowhere = "http://127.0.0.1:1";
    for words in [
        vec!["list", "colours"],
        vec!["config", "--window", "soon"],
        vec!["serve", "--listen", "here"],
        vec!["status", "--server", "ftp://x"],
        vec!["status", "--actor", "Zoë"],
        vec!["-n", "team", "config"],
        vec!["apply", "-f", "x", "--prune"],
    ] {
        let output = run(nowhere, &words, "").await;
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let output = run(nowhere, &["config", "--window", "30s", "-o", "json"], "").await;
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let window = rows.as_array().unwrap().iter().find(|row| row["setting"] == "window").unwrap();
    assert_eq!((window["value"].as_str(), window["from"].as_str()), (Some("30s"), Some("flag --window")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["config"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
