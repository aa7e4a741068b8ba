//! The main job, as a user does it: a file, `apply`, a consumer; then the questions that users ask.

use serde_json::Value;
use tollgate_harness::resources::{policy_name, schedule_name, soon};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, SECRET, Service, wait_for};
use tollgate_proto::v1::RunState;

const EVENTS: u32 = 120;
const LIMIT: usize = 10;

fn file(consumer: &Consumer, at: &str) -> String {
    format!(
        "# Two schedules under one policy.\n\
         kind: Policy\n\
         id: imports\n\
         description: what the ERP bears\n\
         maxInFlight: {LIMIT}\n\
         ---\n\
         kind: Schedule\n\
         id: nightly\n\
         triggers:\n\
         - at: {at}\n\
         events: {EVENTS}\n\
         policy: imports\n\
         payload: {{tenants: [1, 2, 3], name: größe}}\n\
         labels: {{team: data}}\n\
         retry: {{minBackoff: 200ms}}\n\
         target:\n\
         \x20 http: {{url: \"{}\", secret: \"{SECRET}\"}}\n\
         ---\n\
         kind: Schedule\n\
         id: weekly\n\
         triggers:\n\
         - fields: {{dayOfWeek: MON, hour: 3}}\n\
         timeZone: Europe/Berlin\n\
         policy: imports\n\
         target:\n\
         \x20 http: {{url: \"{}\"}}\n",
        consumer.url(),
        consumer.url(),
    )
}

fn rfc3339(time: prost_types::Timestamp) -> String {
    chrono::DateTime::from_timestamp(time.seconds, 0).unwrap().to_rfc3339()
}

async fn a_file_is_applied_and_its_events_are_done(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..30)).await;
    let yaml = file(&consumer, &rfc3339(soon(10_000)));

    let dry = cli.run_with(&["apply", "-f", "-", "--dry-run"], &yaml);
    assert_eq!(dry.code, 0, "{dry:?}");
    assert_eq!(
        cli.json(&["get", "schedules"])["schedules"],
        serde_json::json!([]),
        "a dry run writes nothing"
    );
    let applied = cli.apply(&yaml);
    assert_eq!(applied.code, 0, "{applied:?}");
    assert!(applied.out.contains("3 created, 0 updated, 0 unchanged"), "{applied:?}");
    let again = cli.apply(&yaml);
    assert!(again.out.contains("0 created, 0 updated, 3 unchanged"), "{again:?}");

    let run = service.finished("nightly", 60).await;
    assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, EVENTS), "{run:?}");
    assert_eq!(
        (run.schedule.as_str(), run.policy.as_str()),
        (&*schedule_name("nightly"), &*policy_name("imports"))
    );
    consumer.notes.assert_clean();
    consumer.notes.assert_once();
    assert!(consumer.notes.in_flight_max() <= LIMIT, "{} in flight", consumer.notes.in_flight_max());
    let first = consumer.notes.arrivals().remove(0);
    assert_eq!(first.data, serde_json::json!({"tenants": [1, 2, 3], "name": "größe"}));
    assert_eq!((first.count, first.attempt, &*first.run), (EVENTS, 1, &*run.name));

    check_answers(&cli, &run.name, &first.event_id);
    service.stop().await;
}

/// What `get`, `describe`, `history`, `why`, `audit` and `status` show of it.
fn check_answers(cli: &Cli, run: &str, event: &str) {
    let shows = |arguments: &[&str], parts: &[&str]| {
        let out = cli.ok(arguments);
        for part in parts {
            assert!(out.contains(part), "tollgate {} shows no {part:?}:\n{out}", arguments.join(" "));
        }
    };
    let run_id = run.rsplit('/').next().unwrap();
    shows(&["get", "policies"], &["imports", "10"]);
    shows(&["get", "schedules"], &["nightly", "weekly", "imports"]);
    shows(&["get", "runs"], &["nightly", "FINISHED", run_id]);
    shows(&["get", "events", run_id], &[event, "SUCCEEDED"]);
    shows(&["get", "children", "weekly"], &["W", "Europe/Berlin"]);
    shows(&["describe", "schedule", "weekly"], &["weekly", "Europe/Berlin", "imports"]);
    shows(&["describe", "policy", "imports"], &["imports", "what the ERP bears"]);
    shows(&["describe", "run", run_id], &["nightly", "FINISHED", "120"]);
    shows(&["history", "nightly"], &["FINISHED", run_id]);
    shows(&["why", event], &["SUCCEEDED", "ENDED"]);
    shows(&["audit"], &["tester", "create", "nightly"]);
    shows(&["status"], &["imports"]);
    let got = cli.json(&["get", "schedule", "nightly"]);
    assert_eq!(
        (&got["events"], &got["labels"]["team"]),
        (&Value::from(EVENTS), &Value::from("data")),
        "{got}"
    );
    assert!(!got.to_string().contains(SECRET), "a secret is never shown: {got}");
    let filtered = cli.json(&["get", "schedules", "--filter", "label.team=data"]);
    assert_eq!(filtered["schedules"].as_array().map(Vec::len), Some(1), "{filtered}");
    let history = cli.json(&["history", "nightly"]);
    assert_eq!(history["runs"]["runs"][0]["counts"]["succeeded"], EVENTS, "{history}");
}

async fn why_names_who_holds_the_tokens(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    let yaml = file(&consumer, &rfc3339(soon(5_000)));
    assert_eq!(cli.apply(&yaml).code, 0);
    wait_for("a full policy", 30, async || (consumer.notes.in_flight() == LIMIT).then_some(())).await;
    let run = service.first_run("nightly").await;
    let held = consumer.notes.arrivals();
    let waiting = wait_for("an event that waits", 10, async || {
        service.events(&run.name).await.into_iter().find(|event| event.attempt == 0)
    })
    .await;
    let why = cli.json(&["why", &waiting.event_id]);
    let codes: Vec<&str> =
        why["reasons"].as_array().unwrap().iter().filter_map(|reason| reason["code"].as_str()).collect();
    assert!(codes.contains(&"REASON_CODE_LIMIT_REACHED"), "{why}");
    let holder = why["holders"][0]["event"].as_str().unwrap_or_default().to_owned();
    assert!(held.iter().any(|arrival| holder.ends_with(&arrival.event_id)), "{why}");
    // An operator frees a token by hand, and the next event starts.
    cli.ok(&["release", &held[0].event_id]);
    wait_for("the next event", 10, async || (consumer.notes.arrivals_count() > LIMIT).then_some(())).await;
    service.stop().await;
}

on_both_stores!(a_file_is_applied_and_its_events_are_done, why_names_who_holds_the_tokens);
