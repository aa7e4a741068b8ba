//! Lists that are submitted: through REST and the command line, in every format, to a consumer that compares what it gets.

mod broken;
mod neighbours;
mod refused;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tollgate_harness::resources::{http, once, policy, soon};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, Service};
use tollgate_proto::v1::{RunKind, Schedule};

const URL_PATH: &str = "/v1/namespaces/default/schedules/import";
const NDJSON: &str = "content-type: application/x-ndjson";

/// A service with a schedule that fires by itself in an hour, and its consumer.
struct World {
    _database: Database,
    service: Service,
    consumer: Consumer,
    cli: Cli,
}

async fn world(kind: Kind) -> World {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..5)).await;
    service.create_policy("p", policy(20)).await.unwrap();
    let schedule = once(soon(3_600_000), 1, "p", http(&consumer));
    let payload = tollgate_proto::convert::payload::from_json(&json!({"dataset": "customers", "n": "none"}));
    service.create_schedule("import", Schedule { payload: Some(payload), ..schedule }).await.unwrap();
    let cli = Cli::new(service.url());
    World { _database: database, service, consumer, cli }
}

impl World {
    fn url(&self, query: &str) -> String {
        format!("{}{URL_PATH}:submit{query}", self.service.url())
    }

    /// What the consumer has got of a run, by index: data and key.
    fn got(&self, run: &str) -> BTreeMap<u32, (Value, Option<String>)> {
        let arrivals = self.consumer.notes.arrivals().into_iter().filter(|arrival| arrival.run == run);
        let key = |key: String| Some(key).filter(|key| !key.is_empty());
        arrivals.map(|arrival| (arrival.index, (arrival.data, key(arrival.key)))).collect()
    }

    /// Waits for the end of a run, and compares what the consumer has got.
    async fn compare(&self, run: &str, expected: &[(Value, Option<&str>)]) {
        let waited = self.cli.run(&["wait", "run", short(run), "--timeout", "240s"]);
        assert_eq!(waited.code, 0, "{waited:?}");
        let got: Vec<_> = self.got(run).into_values().collect();
        let expected = expected.iter().map(|(data, key)| (data.clone(), key.map(str::to_owned)));
        assert_eq!(got, expected.collect::<Vec<_>>());
    }

    async fn runs_count(&self) -> usize {
        self.service.runs("import").await.into_iter().filter(|run| run.kind() == RunKind::Submitted).count()
    }
}

fn short(run: &str) -> &str {
    run.rsplit('/').next().unwrap()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(text.as_bytes()).unwrap();
    packer.finish().unwrap()
}

/// Posts a body by curl; gives the HTTP status and the answer.
fn post(url: &str, headers: &[&str], body: &[u8]) -> (u16, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    std::fs::write(&file, body).unwrap();
    let mut curl = Command::new("curl");
    curl.args([
        "-sS",
        "-X",
        "POST",
        "-T",
        file.to_str().unwrap(),
        "-w",
        "\n%{http_code}",
        "--max-time",
        "300",
    ]);
    for header in headers {
        curl.args(["-H", header]);
    }
    let output = curl.arg(url).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (answer, status) = text.rsplit_once('\n').unwrap_or_else(|| panic!("{text}"));
    (status.parse().unwrap(), serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// What an item makes of the schedule's payload.
fn laid_over(data: Value) -> Value {
    let mut payload = json!({"dataset": "customers", "n": "none"});
    let (Value::Object(under), Value::Object(over)) = (&mut payload, &data) else { return data };
    under.extend(over.clone());
    payload
}

/// The same items in every format: text, how it is said, data and keys.
fn formats() -> [(&'static str, &'static str, String); 3] {
    [
        (
            "application/x-ndjson",
            "ndjson",
            "{\"t\": \"acme\", \"n\": \"1\"}\r\n\n{\"n\":\"2\",\"t\":\"ümlaut, \\\"x\\\"\"}".to_owned(),
        ),
        (
            "application/json",
            "json",
            "[{\"t\": \"acme\",\n\"n\": \"1\"} ,\n{\"n\":\"2\",\"t\":\"ümlaut, \\\"x\\\"\"}]\n".to_owned(),
        ),
        ("text/csv", "csv", "n,t\r\n1,acme\r\n2,\"ümlaut, \"\"x\"\"\"\r\n".to_owned()),
    ]
}

async fn every_format_comes_to_the_consumer(kind: Kind) {
    let world = world(kind).await;
    let expected = [
        (laid_over(json!({"t": "acme", "n": "1"})), Some("acme")),
        (laid_over(json!({"t": "ümlaut, \"x\"", "n": "2"})), Some("ümlaut, \"x\"")),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (at, (content_type, ending, text)) in formats().into_iter().enumerate() {
        let said = format!("content-type: {content_type}");
        for packed in [false, true] {
            let query = format!("?keyField=t&requestId=rest-{at}-{packed}");
            let (mut headers, mut body) = (vec![said.as_str()], text.clone().into_bytes());
            if packed {
                headers.push("content-encoding: gzip");
                body = gzip(&text);
            }
            let (status, answer) = post(&world.url(&query), &headers, &body);
            assert_eq!((status, &answer["state"]), (200, &json!("SUBMISSION_STATE_COMPLETE")), "{answer}");
            assert_eq!(
                (&answer["run"]["events"], &answer["run"]["kind"]),
                (&json!(2), &json!("RUN_KIND_SUBMITTED"))
            );
            world.compare(answer["run"]["name"].as_str().unwrap(), &expected).await;

            let file =
                folder.path().join(format!("items-{packed}.{ending}{}", if packed { ".gz" } else { "" }));
            std::fs::write(&file, &body).unwrap();
            let id = format!("cli-{at}-{packed}");
            let submit =
                ["submit", "import", file.to_str().unwrap(), "--key-field", "t", "--request-id", &id];
            let run = world.cli.json(&submit);
            world.compare(run["name"].as_str().unwrap(), &expected).await;
            assert_eq!(world.cli.json(&submit)["name"], run["name"], "again under its name: the same run");
        }
    }
    assert_eq!(world.runs_count().await, 12);
    world.consumer.notes.assert_clean();
    world.service.stop().await;
}

async fn a_list_has_results_and_is_not_made_twice(kind: Kind) {
    let world = world(kind).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tenants.csv");
    let rows: String = (0..2_500).map(|n| format!("t{n},{n}\n")).collect();
    std::fs::write(&file, format!("tenant,n\n{rows}")).unwrap();
    let submit = ["submit", "import", file.to_str().unwrap(), "--key-field", "tenant"];
    let dry = world.cli.ok(&[&submit[..], &["--dry-run"]].concat());
    let bytes: usize =
        (0..2_500).map(|n| json!({"tenant": format!("t{n}"), "n": n.to_string()}).to_string().len()).sum();
    assert_eq!(
        dry,
        format!(
            "2500 items, {bytes} bytes of data, 2500 with a key, 2500 different ones (dry run: nothing was sent)\n"
        )
    );
    assert_eq!(world.runs_count().await, 0);
    let run = world.cli.json(&submit);
    let name = run["name"].as_str().unwrap();
    // While it goes on, results are those that there are, and the exit code says so.
    world.cli.run(&["wait", "run", short(name), "--timeout", "240s"]);
    let results = world.cli.ok(&["results", short(name)]);
    let results: Vec<Value> = results.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), 2_500);
    for (at, result) in results.iter().enumerate() {
        assert_eq!((&result["index"], &result["key"]), (&json!(at), &json!(format!("t{at}"))));
        assert_eq!((&result["outcome"], &result["attempt"]), (&json!("SUCCEEDED"), &json!(1)), "{result}");
        assert!(result["finishTime"].is_string(), "{result}");
    }
    assert_eq!(world.cli.ok(&["results", short(name), "--failed"]), "");
    let again = world.cli.run(&[&submit[..], &["-o", "json"]].concat());
    assert_eq!(again.code, 5, "{again:?}");
    assert!(again.err.contains("these items had been submitted before"), "{again:?}");
    assert_eq!(serde_json::from_str::<Value>(&again.out).unwrap()["name"], name);
    // Packed and from a pipe they are the same items.
    let piped = ["submit", "import", "-", "--format", "csv", "--key-field", "tenant", "-o", "name"];
    let piped = world.cli.run_with(&piped, &std::fs::read_to_string(&file).unwrap());
    assert_eq!((piped.code, piped.out.trim()), (5, format!("run/{}", short(name)).as_str()), "{piped:?}");
    let more = world.cli.json(&[&submit[..], &["--again", "--priority", "0"]].concat());
    assert!(more["name"] != name && more["priority"] == 0, "{more}");
    assert_eq!(world.runs_count().await, 2);
    world.service.stop().await;
}

on_both_stores!(every_format_comes_to_the_consumer, a_list_has_results_and_is_not_made_twice);

/// What is wrapped, what lies under the items, and when and how they go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_with_items_goes_with_all_of_them() {
    let world = world(Kind::Sqlite).await;
    let number = "12345678901234567890.123456789012345678901234567890";
    let text = format!(
        "{{\"data\": {{\"a\": {{\"b\": 1}}, \"precise\": {number}}}, \"key\": 7}}\n{{\"data\": [1, 2]}}\n"
    );
    let query = "?wrapped=true&payload=%7B%22dataset%22:%22x%22,%22a%22:1%7D&priority=9";
    let (status, answer) = post(&world.url(query), &[NDJSON], text.as_bytes());
    assert_eq!((status, &answer["run"]["priority"]), (200, &json!(9)), "{answer}");
    let run = answer["run"]["name"].as_str().unwrap();
    let waited = world.cli.run(&["wait", "run", short(run), "--timeout", "240s"]);
    assert_eq!(waited.code, 0, "{waited:?}");
    let got = world.got(run);
    let (first, key) = &got[&0];
    assert_eq!(
        (&first["dataset"], &first["n"], &first["a"]),
        (&json!("x"), &json!("none"), &json!({"b": 1}))
    );
    assert_eq!((key.as_deref(), &got[&1]), (Some("7"), &(json!([1, 2]), None)));
    let event = world.cli.ok(&["get", "event", &format!("{}-0", short(run)), "-o", "json"]);
    assert!(event.contains(number), "digit by digit: {event}");
    let cli =
        ["submit", "import", "-", "--format", "ndjson", "--wrapped", "--payload", "{\"dataset\": \"y\"}"];
    let answer =
        world.cli.run_with(&[&cli[..], &["-o", "json"]].concat(), "{\"data\": {\"n\": 1}, \"key\": \"k\"}");
    assert_eq!(answer.code, 0, "{answer:?}");
    let run: Value = serde_json::from_str(&answer.out).unwrap();
    world.compare(run["name"].as_str().unwrap(), &[(json!({"dataset": "y", "n": 1}), Some("k"))]).await;
    world.service.stop().await;
}
