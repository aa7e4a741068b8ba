//! The first minutes of somebody new: a store in memory, a file to start from, a demonstration that stays.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tollgate_harness::process::Process;
use tollgate_harness::{
    Cli, Conduct, Consumer, Database, FREE_PORT, Kind, Releases, SECRET, Serve, Service, binary,
};
use tollgate_proto::v1::RunState;

const EVENTS: u32 = 60;
const LIMIT: usize = 7;

fn file(consumer: &Consumer) -> String {
    format!(
        "kind: Policy\nid: imports\nmaxInFlight: {LIMIT}\n---\nkind: Schedule\nid: nightly\ntriggers: [{{cron: '0 3 * * *'}}]\n\
         timeZone: Europe/Berlin\nevents: {EVENTS}\npolicy: imports\ntarget: {{http: {{url: '{}', secret: '{SECRET}'}}}}\n",
        consumer.url()
    )
}

/// The body of a success.
async fn over_http(verb: &str, url: &str, body: String) -> String {
    let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::builder().method(verb).uri(url).header("content-type", "application/json");
    let request = request.body(Full::from(body)).unwrap();
    let answer = client.request(request).await.unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    assert!(status.is_success(), "{verb} {url}: {status}: {body}");
    body
}

async fn in_memory() -> Service {
    let serve = Serve::new(Command::new(binary()), "sqlite::memory:", FREE_PORT);
    let service = Service::launch(serve).await.unwrap();
    service.owns_all().await.unwrap();
    service
}

/// Readers and the writer have one database, each process its own, and nothing is left of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_memory_does_the_main_job() {
    let (service, other) = (in_memory().await, in_memory().await);
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..30)).await;
    let cli = Cli::new(service.url());
    let applied = cli.apply(&file(&consumer));
    assert!(applied.code == 0 && applied.out.contains("2 created"), "{applied:?}");
    assert_eq!(Cli::new(other.url()).json(&["get", "schedules"])["schedules"], json!([]));
    cli.ok(&["trigger", "nightly"]);
    // People read while events are committed.
    let end = Instant::now() + Duration::from_secs(120);
    while !cli.ok(&["history", "nightly"]).contains("FINISHED") {
        assert!(Instant::now() < end, "{}", cli.ok(&["status"]));
        cli.ok(&["get", "runs"]);
        cli.ok(&["audit"]);
    }
    let run = service.finished("nightly", 60).await;
    assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, EVENTS), "{run:?}");
    consumer.notes.assert_clean();
    consumer.notes.assert_once();
    assert!(consumer.notes.in_flight_max() <= LIMIT, "{} in flight", consumer.notes.in_flight_max());
    let beside = cli.run(&["key", "list", "--store", "sqlite::memory:"]);
    assert!(beside.code != 0 && beside.err.contains("in the memory of the process"), "{beside:?}");
    service.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_of_init_is_applied_as_it_is() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tollgate.yaml").display().to_string();
    let written = cli.ok(&["init", &file]);
    assert!(written.contains(&format!("tollgate apply -f {file} --dry-run")), "{written}");
    let dry = cli.run(&["apply", "-f", &file, "--dry-run"]);
    assert!(dry.code == 0 && dry.out.contains("3 created") && dry.err.is_empty(), "{dry:?}");
    let applied = cli.run(&["apply", "-f", &file]);
    assert!(applied.code == 0 && applied.out.contains("3 created"), "{applied:?}");
    let again = cli.run(&["init", &file]);
    assert!(again.code == 2 && again.err.contains("--force"), "{again:?}");
    assert_eq!(cli.ok(&["init", "-"]), std::fs::read_to_string(&file).unwrap());
    service.stop().await;
}

const ODD: &str = "\
kind: Policy
id: unused
maxInFlight: 2
---
kind: Policy
id: slow
ratePerSecond: 1
---
kind: Schedule
id: late
triggers: [{at: 2020-01-01T00:00:00Z}]
target: {http: {url: 'http://10.0.0.1/'}}
---
kind: Schedule
id: hours
triggers: [{cron: 0 3 * * *}]
events: 600
policy: slow
finishBy: 1m
target: {http: {url: 'http://nowhere.invalid/'}}
---
kind: Alert
id: ops
troubles: {}
schedules: [hour]
target: {http: {url: 'http://1.1.1.1/'}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_will_not_do_what_was_meant_is_warned_of_at_its_line() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let expected = [
        "<stdin>:1: unused: no schedule uses it",
        "<stdin>:1: unused: namespace: nothing has ever been in the namespace prodd",
        "<stdin>:11: late: triggers[0].at: 2020-01-01T00:00:00Z has passed",
        "<stdin>:12: late: target.http.url: host 10.0.0.1: 10.0.0.1 is a private address",
        "<stdin>:14: hours: timeZone: no time zone is given",
        "<stdin>:19: hours: finishBy: 600 events need 9m59s at 1 per second",
        "<stdin>:20: hours: target.http.url: host nowhere.invalid",
        "<stdin>:25: ops: schedules[0]: there is no schedule hour",
    ];
    // As often as it is applied, but for the namespace; without writing, too.
    for (flags, known) in [(&["--dry-run"][..], false), (&[], false), (&[], true)] {
        let answer = cli.run_with(&[&["apply", "-f", "-", "-n", "prodd"], flags].concat(), ODD);
        assert_eq!(answer.code, 0, "a warning refuses nothing: {answer:?}");
        let mut lines: Vec<&str> = answer.err.lines().collect();
        lines.sort_unstable();
        let expected: Vec<&str> =
            expected.into_iter().filter(|line| !(known && line.contains("namespace:"))).collect();
        assert_eq!(lines.len(), expected.len(), "{answer:?}");
        for line in expected {
            let line = format!("warning: {line}");
            assert!(lines.iter().any(|warned| warned.starts_with(&line)), "{line}: {answer:?}");
        }
    }
    let url = format!("{}/v1/namespaces/default/schedules?scheduleId=late", service.url());
    let body = json!({
        "triggers": [{"at": "2020-01-01T00:00:00Z"}], "target": {"http": {"url": "http://10.0.0.1/"}},
    });
    let made = over_http("POST", &url, body.to_string()).await;
    let made: Value = serde_json::from_str(&made).unwrap();
    let kinds: Vec<&str> =
        made["warnings"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["WARNING_KIND_TIME_IN_PAST", "WARNING_KIND_ADDRESS_REFUSED"], "{made}");
    assert_eq!(made["warnings"][0]["field"], "schedule.triggers[0].at", "{made}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demonstration_that_is_held_stays_until_it_is_interrupted() {
    let mut command = Command::new(binary());
    command.args(["demo", "--hold", "--events", "20"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut demo = Process::start(&mut command).unwrap();
    let output = BufReader::new(demo.output().unwrap());
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut all = String::new();
    let console = loop {
        let line =
            lines.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|error| panic!("{error}: {all}"));
        all.push_str(&format!("{line}\n"));
        if let Some((_, rest)) = line.split_once("look at the console, ") {
            break rest.split(',').next().unwrap().to_owned();
        }
    };
    let page = over_http("GET", &console, String::new()).await;
    assert!(page.contains("<title>"), "{page}");
    let history = Cli::new(console.trim_end_matches('/')).ok(&["history", "nightly-backup"]);
    assert!(history.contains("FINISHED"), "{history}");
    assert!(demo.exited().unwrap().is_none(), "it has ended by itself");
    demo.signal("INT").unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = demo.exited().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "it does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(status.success(), "{status}: {all}");
}
