//! What is wrong is refused with the field's name, the right exit code, and nothing written.

use std::path::Path;

use tollgate_harness::resources::{PARENT, every, once, policy, policy_name, soon};
use tollgate_harness::{Answer, Cli, Database, Kind, Service};
use tollgate_proto::v1::{
    DeletePolicyRequest, ListSchedulesRequest, Policy, Schedule, Trigger, UpdatePolicyRequest, trigger,
};
use tonic::{Code, Status};
use tonic_types::StatusExt;

fn nowhere() -> tollgate_proto::v1::Target {
    let http = tollgate_proto::v1::HttpTarget { url: "http://127.0.0.1:9/".to_owned(), ..Default::default() };
    let target = Some(tollgate_proto::v1::target::Target::Http(http));
    tollgate_proto::v1::Target { target, ..Default::default() }
}

fn good() -> Schedule {
    once(soon(3_600_000), 1, "", nowhere())
}

fn cron(expression: &str) -> Vec<Trigger> {
    vec![Trigger { trigger: Some(trigger::Trigger::Cron(expression.to_owned())) }]
}

/// The fields that a refusal names.
fn fields(status: &Status) -> Vec<String> {
    let violations =
        status.get_details_bad_request().map(|details| details.field_violations).unwrap_or_default();
    violations.into_iter().map(|violation| violation.field).collect()
}

async fn every_refusal_names_its_field(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let large = prost_types::value::Kind::StringValue("x".repeat(256 * 1024));
    let no_json = prost_types::value::Kind::NumberValue(f64::NAN);
    let cases: Vec<(&str, &str, Schedule)> = vec![
        (
            "time_zone",
            "Mars/Olympus",
            Schedule { time_zone: "Mars/Olympus".to_owned(), triggers: cron("0 3 * * *"), ..good() },
        ),
        ("triggers[0].cron", "fires some day", Schedule { triggers: cron("0 0 31 2 *"), ..good() }),
        ("triggers[0].cron", "61", Schedule { triggers: cron("61 * * * *"), ..good() }),
        ("triggers[0].cron", "@reboot", Schedule { triggers: cron("@reboot"), ..good() }),
        ("triggers[0].interval.every", "", every(0, soon(60_000), 1, "", nowhere())),
        ("events", "0", Schedule { events: Some(0), ..good() }),
        ("events", "10000001", Schedule { events: Some(10_000_001), ..good() }),
        ("policy", "nobody", Schedule { policy: "nobody".to_owned(), ..good() }),
        ("priority", "10", Schedule { priority: Some(10), ..good() }),
        ("payload", "", Schedule { payload: Some(prost_types::Value { kind: Some(large) }), ..good() }),
        ("payload", "", Schedule { payload: Some(prost_types::Value { kind: Some(no_json) }), ..good() }),
        ("target", "", Schedule { target: None, ..good() }),
        ("target.http.url", "ftp://", Schedule { target: Some(with_url("ftp://a/")), ..good() }),
    ];
    for (field, word, schedule) in cases {
        let status = service.create_schedule("bad", schedule).await.unwrap_err();
        let named = fields(&status);
        assert_eq!(status.code(), Code::InvalidArgument, "{field}: {status:?}");
        assert!(named.iter().any(|name| name.contains(field)), "{field} is not named: {named:?}, {status:?}");
        assert!(status.message().contains(word), "{field}: {word:?} is not in {}", status.message());
    }
    for (field, wrong) in [
        ("max_in_flight", policy(0)),
        ("rate_per_second", Policy { rate_per_second: Some(-1.0), ..policy(1) }),
        ("burst", Policy { burst: Some(3), ..policy(1) }),
    ] {
        let status = service.create_policy("bad", wrong).await.unwrap_err();
        assert!(fields(&status).iter().any(|name| name.ends_with(field)), "{field}: {status:?}");
    }
    let status = service.create_schedule("Not An Id", good()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    nothing_written(&service).await;
    service.stop().await;
}

fn with_url(url: &str) -> tollgate_proto::v1::Target {
    let http = tollgate_proto::v1::HttpTarget { url: url.to_owned(), ..Default::default() };
    let target = Some(tollgate_proto::v1::target::Target::Http(http));
    tollgate_proto::v1::Target { target, ..Default::default() }
}

async fn nothing_written(service: &Service) {
    let request = ListSchedulesRequest { parent: PARENT.to_owned(), ..Default::default() };
    assert_eq!(service.master().list_schedules(request).await.unwrap().into_inner().schedules, []);
    let cli = Cli::new(service.url());
    assert_eq!(cli.json(&["get", "policies"])["policies"], serde_json::json!([]));
    assert_eq!(cli.json(&["audit"])["auditEntries"], serde_json::json!([]));
}

async fn conflicts_are_told_apart(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let stored = service.create_policy("p", policy(5)).await.unwrap();
    let status = service.create_policy("p", policy(6)).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists, "{status:?}");
    service.create_schedule("s", Schedule { policy: "p".to_owned(), ..good() }).await.unwrap();
    let delete = DeletePolicyRequest { name: policy_name("p"), ..Default::default() };
    let status = service.master().delete_policy(delete).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert!(status.message().contains("/s") || status.message().contains("schedule"), "{status:?}");
    let changed = Policy { name: policy_name("p"), etag: stored.etag, ..policy(7) };
    let update = |policy: &Policy| UpdatePolicyRequest { policy: Some(policy.clone()), ..Default::default() };
    service.master().update_policy(update(&changed)).await.unwrap();
    let stale = Policy { max_in_flight: Some(8), ..changed };
    let status = service.master().update_policy(update(&stale)).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "{status:?}");
    let cli = Cli::new(service.url());
    assert_eq!(cli.json(&["get", "policy", "p"])["maxInFlight"], 7);
    let request = ListSchedulesRequest {
        parent: PARENT.to_owned(),
        page_token: "nonsense".to_owned(),
        ..Default::default()
    };
    let status = service.master().list_schedules(request).await.unwrap_err();
    assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec!["page_token".to_owned()]));
    let answer = cli.run(&["get", "schedules", "--filter", "colour=red"]);
    assert!(answer.code == 1 && answer.err.contains("filter") && answer.err.contains("colour"), "{answer:?}");
    let answer = cli.run(&["delete", "policy", "p"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    let answer = cli.run(&["describe", "schedule", "missing"]);
    assert!(answer.code == 1 && answer.err.contains("missing"), "{answer:?}");
    service.stop().await;
}

const GOOD: &str = "kind: Policy\nid: good\nmaxInFlight: 3\n";

async fn wrong_files_name_the_line_and_write_nothing(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let cases = [
        ("kind: Policy\nid: a\nmaxInFlight: [3\n", &["<stdin>:"][..]),
        ("kind: Policy\nid: a\nmaxInFlight: many\n", &["<stdin>:7", "maxInFlight"]),
        ("kind: Policy\nid: a\nlimit: 3\n", &["<stdin>:7", "limit"]),
        ("kind: Throttle\nid: a\n", &["<stdin>:5", "Throttle", "Policy, Schedule, Calendar or Alert"]),
        ("- 1\n- 2\n", &["<stdin>:5", "a list is not allowed"]),
    ];
    for (document, parts) in cases {
        let answer = cli.apply(&format!("{GOOD}---\n{document}"));
        assert_eq!(answer.code, 1, "{document}: {answer:?}");
        for part in parts {
            assert!(answer.err.contains(part), "{document}: no {part:?} in {answer:?}");
        }
    }
    nothing_written(&service).await;
    // What parses and is refused by the service is named with its line, and holds the rest of the file back.
    let wrong =
        "kind: Schedule\nid: s\ntriggers:\n- cron: '0 25 * * *'\ntarget: {http: {url: 'http://a/'}}\n";
    let answer = cli.apply(&format!("{GOOD}---\n{wrong}"));
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.err.contains("<stdin>:8") && answer.err.contains("triggers[0].cron"), "{answer:?}");
    nothing_written(&service).await;
    assert!(cli.apply(GOOD).out.contains("1 created"));
    for (arguments, part) in [
        (&["apply", "-f", "/does/not/exist.yaml"][..], "/does/not/exist.yaml"),
        (&["get", "schedule", "missing"], "missing"),
        (&["why", "nonsense"], "nonsense"),
    ] {
        let answer = cli.run(arguments);
        assert!(answer.code == 1 && answer.err.contains(part), "{arguments:?}: {answer:?}");
    }
    service.stop().await;
}

on_both_stores!(
    every_refusal_names_its_field,
    conflicts_are_told_apart,
    wrong_files_name_the_line_and_write_nothing
);

/// Runs `serve` in a way that cannot go well.
fn serve(store: &str, more: &[&str]) -> Answer {
    Cli::new("").run(&[&["serve", "--store", store, "--listen", "127.0.0.1:0"], more].concat())
}

#[test]
fn a_service_that_cannot_start_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let unreachable = serve("postgres://nobody:geheim@127.0.0.1:1/none", &[]);
    assert!(unreachable.code == 1 && unreachable.err.contains("127.0.0.1:1"), "{unreachable:?}");
    assert!(!unreachable.err.contains("geheim"), "a password is never shown: {unreachable:?}");
    let missing = serve("sqlite:/does/not/exist/tollgate.db", &[]);
    assert!(missing.code == 1 && missing.err.contains("/does/not/exist"), "{missing:?}");
    std::fs::write(folder.path().join("text.db"), "this is no database, and never was one. ".repeat(200))
        .unwrap();
    let foreign = serve(&at("text.db"), &[]);
    assert!(foreign.code == 1 && foreign.err.contains("text.db"), "{foreign:?}");
    for (flags, part) in [
        (&["--roles", "master,cook"][..], "--roles"),
        (&["--window", "soon"], "--window"),
        (&["--listen", "nowhere"], "--listen"),
        (&["--config", "/does/not/exist.yaml"], "/does/not/exist.yaml"),
    ] {
        let answer = serve(&at("a.db"), flags);
        assert!(answer.code == 2 && answer.err.contains(part), "{flags:?}: {answer:?}");
    }
    assert!(!folder.path().join("a.db").exists(), "nothing is written before the settings are right");
    let store = serve("mysql://db", &[]);
    assert!(store.code == 2 && store.err.contains("store"), "{store:?}");
    let nobody = Cli::new("http://127.0.0.1:1").run(&["status"]);
    assert!(nobody.code == 1 && nobody.err.contains("http://127.0.0.1:1"), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_another_version_is_left_alone() {
    let database = Database::new(Kind::Sqlite).await;
    Service::start(&database).await.stop().await;
    let path = database.url().trim_start_matches("sqlite:").to_owned();
    add_migration(Path::new(&path)).await;
    let answer = serve(&database.url(), &[]);
    assert!(answer.code == 1 && answer.err.contains("version"), "{answer:?}");
}

/// As a later release would leave it that this one cannot live with.
async fn add_migration(path: &Path) {
    use sqlx::Connection as _;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    let sql = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
               SELECT 9999, 'later', 1, checksum, 0 FROM _sqlx_migrations LIMIT 1;
               UPDATE schema_compatibility SET oldest = 9999";
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}
