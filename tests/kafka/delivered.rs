//! Events arrive as records, and hold their tokens until their consumer releases them.

use std::collections::BTreeSet;

use serde_json::Value;
use tollgate_harness::resources::{once, policy, policy_name, schedule_name, soon};
use tollgate_harness::{Cli, Database, Kind, Service, wait_for};
use tollgate_proto::v1::{GetScheduleRequest, ReleaseMode, RunState, target};

use crate::broker::{Broker, Seen};
use crate::service::{document, kafka, release, start, target};

on_both_stores!(
    records_hold_tokens_until_they_are_released,
    an_acknowledged_record_may_release_at_once,
    headers_are_hidden_and_kept,
);

/// A schedule as people write it.
fn yaml(servers: &str) -> String {
    format!(
        r#"
kind: Policy
id: few
maxInFlight: 3
---
kind: Schedule
id: nightly
events: 10
policy: few
target:
  kafka:
    bootstrapServers: ["{servers}"]
    topic: orders
    key: "{{schedule}}/{{index}}"
    headers: {{x-team: blue}}
    contentMode: BINARY
payload: {{dataset: customers}}
"#
    )
}

async fn records_hold_tokens_until_they_are_released(kind: Kind) {
    let (broker, database) = (Broker::with("orders", 4), Database::new(kind).await);
    let service = start(&database).await;
    let cli = Cli::new(service.url());
    let answer = cli.apply(&yaml(&broker.servers()));
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(!answer.err.contains("schedule.target"), "nothing speaks against its address: {answer:?}");
    assert!(cli.ok(&["get", "schedules", "-o", "wide"]).contains(&format!("orders at {}", broker.servers())));
    cli.ok(&["trigger", "nightly"]);
    let mut released = BTreeSet::new();
    while released.len() < 10 {
        let wanted = (released.len() + 3).min(10);
        let records = broker.records("orders", 4, wanted).await;
        assert_eq!(records.len(), wanted, "no more than three tokens are held");
        for record in records {
            let id = record.header("ce_id").unwrap().to_owned();
            if released.insert(id.clone()) {
                is_as_written(&record);
                release(&service, &id).await;
            }
        }
    }
    let run = service.finished("nightly", 30).await;
    assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, 10), "{run:?}");
    let metrics = metrics(&service).await;
    let wanted = "tollgate_deliveries_total{target=\"kafka\",outcome=\"accepted\"} 10";
    assert!(metrics.contains(wanted), "{metrics}");
    service.stop().await;
}

fn is_as_written(record: &Seen) {
    let index = record.header("ce_index").unwrap();
    assert_eq!(record.key, Some(format!("nightly/{index}")));
    assert_eq!(record.header("x-team"), Some("blue"));
    assert_eq!(record.header("content-type"), Some("application/json"));
    assert_eq!(record.header("ce_specversion"), Some("1.0"));
    assert_eq!(record.header("ce_type"), Some("dev.tollgate.event.v1"));
    assert_eq!(record.header("ce_attempt"), Some("1"));
    assert_eq!(record.header("ce_release"), Some("explicit"));
    assert_eq!(record.header("ce_policy"), Some(policy_name("few").as_str()));
    let value: Value = serde_json::from_str(record.value.as_deref().unwrap()).unwrap();
    assert_eq!(value, serde_json::json!({"dataset": "customers"}));
}

/// What the process says of itself.
async fn metrics(service: &Service) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let address = service.url().trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /metrics HTTP/1.1\r\nhost: {address}\r\naccept: text/plain\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await.unwrap();
    String::from_utf8(text).unwrap()
}

async fn an_acknowledged_record_may_release_at_once(kind: Kind) {
    let (broker, database) = (Broker::with("orders", 1), Database::new(kind).await);
    let service = start(&database).await;
    service.create_policy("few", policy(2)).await.unwrap();
    let target = target(kafka(&broker.servers(), "orders"), ReleaseMode::OnResponse);
    service.create_schedule("s", once(soon(1_000), 40, "few", target)).await.unwrap();
    let run = service.finished("s", 60).await;
    assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, 40), "{run:?}");
    let records = broker.records("orders", 1, 40).await;
    assert_eq!(records.len(), 40, "each once");
    let ids: BTreeSet<String> = records.iter().map(|record| document(record)["id"].to_string()).collect();
    assert_eq!(ids.len(), 40);
    service.stop().await;
}

async fn headers_are_hidden_and_kept(kind: Kind) {
    let (broker, database) = (Broker::with("orders", 1), Database::new(kind).await);
    let service = start(&database).await;
    let mut to = kafka(&broker.servers(), "orders");
    to.headers =
        [("x-api-key".to_owned(), "hidden".to_owned()), ("x-team".to_owned(), "blue".to_owned())].into();
    let schedule = once(soon(86_400_000), 1, "", target(to, ReleaseMode::OnResponse));
    service.create_schedule("s", schedule).await.unwrap();
    let mut read = service
        .master()
        .get_schedule(GetScheduleRequest { name: schedule_name("s") })
        .await
        .unwrap()
        .into_inner();
    let Some(target::Target::Kafka(shown)) = &mut read.target.as_mut().unwrap().target else {
        panic!("no Kafka")
    };
    assert_eq!((shown.headers["x-api-key"].as_str(), shown.headers["x-team"].as_str()), ("***", "blue"));
    shown.key = "{event}".to_owned();
    let update = |schedule| tollgate_proto::v1::UpdateScheduleRequest {
        schedule: Some(schedule),
        ..Default::default()
    };
    service.master().update_schedule(update(read.clone())).await.unwrap();
    Cli::new(service.url()).ok(&["trigger", "s"]);
    let records = wait_for("the record", 30, async || {
        Some(broker.records_now("orders").await).filter(|records| !records.is_empty())
    })
    .await;
    assert_eq!(records[0].header("x-api-key"), Some("hidden"), "it was kept");
    assert_eq!(records[0].key.as_deref(), document(&records[0])["id"].as_str());
    // What is hidden goes to no other topic.
    let Some(target::Target::Kafka(elsewhere)) = &mut read.target.as_mut().unwrap().target else {
        panic!("no Kafka")
    };
    elsewhere.topic = "others".to_owned();
    read.etag.clear();
    let refusal = service.master().update_schedule(update(read)).await.unwrap_err();
    assert!(refusal.message().contains("target.kafka.headers.x-api-key"), "{refusal:?}");
    service.stop().await;
}
