//! What is no list of items is refused with its line, by both ways, and nothing of it is due.

use serde_json::{Value, json};
use tollgate_harness::Kind;

use super::{gzip, post, world};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bad_input_is_told_with_its_line() {
    let world = world(Kind::Sqlite).await;
    let large = format!("1\n\"{}\"\n", "x".repeat(300_000)).into_bytes();
    let cut = gzip("1\n2\n3\n");
    let cases: [(&str, &str, Vec<u8>, &str); 11] = [
        (
            "application/x-ndjson",
            "ndjson",
            b"1\n{\"a\": }\n".to_vec(),
            "line 2: not JSON: expected value at column 7",
        ),
        ("application/x-ndjson", "ndjson", b"\n".to_vec(), "there are no items, expected at least one"),
        (
            "application/x-ndjson",
            "ndjson",
            large,
            "line 2: the item is too large, expected at most 262144 bytes",
        ),
        ("application/x-ndjson", "ndjson", b"1\n\"\xff\"\n".to_vec(), "line 2: not UTF-8 from byte 2 on"),
        ("application/json", "json", b"[1, 2".to_vec(), "item 2 (line 1): the array ends in the middle"),
        ("application/json", "json", b"{\"a\": 1}".to_vec(), "expected [, with which an array begins"),
        ("application/json", "json", b"[]".to_vec(), "there are no items"),
        ("text/csv", "csv", b"a,b\n1,2\n1\n".to_vec(), "line 3: the row has 1 fields, expected 2"),
        ("text/csv", "csv", b"a,b\n1,\"2\n".to_vec(), "the quote that opens on line 2 is not closed"),
        ("text/csv", "csv", b"a,b\n".to_vec(), "there are no items"),
        ("application/x-ndjson", "ndjson", cut[..cut.len() - 4].to_vec(), "the gzip stream is cut off"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (content_type, ending, body, said) in cases {
        let mut headers = vec![format!("content-type: {content_type}")];
        if body.starts_with(&[0x1f]) {
            headers.push("content-encoding: gzip".to_owned());
        }
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let (status, answer) = post(&world.url(""), &headers, &body);
        assert_eq!((status, &answer["code"]), (400, &json!(3)), "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(said), "{said}: {answer}");
        assert!(answer["details"][0]["fieldViolations"].is_array(), "{answer}");
        let file = folder.path().join(format!("items.{ending}"));
        std::fs::write(&file, &body).unwrap();
        let refused = world.cli.run(&["submit", "import", file.to_str().unwrap()]);
        assert!(refused.code == 1 && refused.err.contains(said), "{said}: {refused:?}");
        assert!(refused.err.contains("no run was made"), "{refused:?}");
    }
    assert_eq!(world.runs_count().await, 0);
    assert!(world.consumer.notes.arrivals().is_empty());
    world.service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_service_refuses_is_told_by_both_ways() {
    let world = world(Kind::Sqlite).await;
    let said = |answer: &Value| answer["message"].as_str().unwrap_or_default().to_owned();
    let other = world.url("").replace("import:submit", "unknown:submit");
    let (status, answer) = post(&other, &[super::NDJSON], b"1\n");
    assert_eq!(status, 404, "{answer}");
    for (query, status, part) in [
        ("?requestId=no%20spaces", 400, "request_id"),
        ("?priority=10", 400, "priority"),
        ("?colour=red", 400, "no such query parameter"),
        ("?launchTime=2999-01-01T00:00:00Z", 400, "launch_time"),
    ] {
        let (answered, answer) = post(&world.url(query), &[super::NDJSON], b"1\n");
        assert!(answered == status && said(&answer).contains(part), "{query}: {answer}");
    }
    assert_eq!(post(&world.url("?requestId=r"), &[super::NDJSON], b"1\n").0, 200);
    let (status, answer) = post(&world.url("?requestId=r"), &[super::NDJSON], b"2\n");
    assert_eq!((status, &answer["code"]), (409, &json!(6)), "{answer}");
    let cli = |words: &[&str]| {
        let line = [&["submit", "import", "-", "--format", "ndjson"][..], words].concat();
        world.cli.run_with(&line, "2\n")
    };
    let refused = cli(&["--request-id", "r"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let refused = cli(&["--priority", "11"]);
    assert!(refused.code == 1 && refused.err.contains("priority"), "{refused:?}");
    let unknown = world.cli.run_with(&["submit", "unknown", "-", "--format", "csv"], "a\n1\n");
    assert!(unknown.code == 1 && unknown.err.contains("unknown"), "{unknown:?}");
    assert_eq!(world.runs_count().await, 1);
    world.service.stop().await;
}
