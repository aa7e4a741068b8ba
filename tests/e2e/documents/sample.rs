//! The delivery that `docs/api.md` shows is one as they come.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Map, Value};
use tollgate_harness::{Cli, Database, Kind, Service};

use super::{read, section};

const YAML: &str = r#"
kind: Policy
id: backups
maxInFlight: 1
---
kind: Schedule
id: nightly
triggers:
  - cron: "0 3 * * *"
policy: backups
target: {http: {url: "URL"}}
payload: {dataset: customers}
"#;

/// The body of the first request, which is accepted.
fn first_body(listener: &TcpListener) -> Vec<u8> {
    let (mut stream, _) = listener.accept().unwrap();
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "the request has no end: {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let body = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        if bytes.len() - body >= length.trim().parse().unwrap() {
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            return bytes[body..].to_vec();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sample_is_like_a_delivery() {
    let text = read("docs/api.md");
    let lines = section(&text, "### What arrives");
    let json = lines.iter().skip_while(|line| **line != "```json").skip(1).take_while(|line| **line != "```");
    let sample: Map<String, Value> =
        serde_json::from_str(&json.copied().collect::<Vec<_>>().join("\n")).unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let body = tokio::task::spawn_blocking(move || first_body(&listener));
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let applied = cli.apply(&YAML.replace("URL", &url));
    assert_eq!(applied.code, 0, "{applied:?}");
    cli.ok(&["trigger", "nightly"]);
    let event: Map<String, Value> = serde_json::from_slice(&body.await.unwrap()).unwrap();

    let names = |event: &Map<String, Value>| {
        let mut names: Vec<String> = event.keys().cloned().collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(&sample), names(&event));
    for (name, value) in &sample {
        match name.as_str() {
            // What each event has of its own.
            "id" | "subject" | "time" | "run" => {
                assert!(value.is_string() && event[name].is_string(), "{name}")
            }
            "index" | "count" => assert!(value.is_u64() && event[name].is_u64(), "{name}"),
            _ => assert_eq!(value, &event[name], "{name}"),
        }
    }
    service.stop().await;
}
