//! A list is uploaded by form, without a script: seen, asked about, and made a run once.

use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate_harness::resources::{http, once, policy, schedule_name, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::{GetSubmissionRequest, ListAuditEntriesRequest, RunKind, RunState, SubmissionState};

use crate::console::{Browser, PARENT, Page};

const PATH: &str = "/n/default/schedules/list/submit";
const BOUNDARY: &str = "----WebKitFormBoundaryAb1";

impl Browser {
    /// Sends the form with a file as a browser does; `own`: from a page of this console.
    async fn upload(&self, fields: &[(&str, &str)], file: (&str, &[u8]), own: bool) -> Page {
        let mut body = Vec::new();
        for (name, value) in fields {
            let part =
                format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
            body.extend(part.into_bytes());
        }
        let (name, text) = file;
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        body.extend(head.into_bytes());
        body.extend(text);
        body.extend(format!("\r\n--{BOUNDARY}--\r\n").into_bytes());
        let site = if own { "same-origin" } else { "cross-site" };
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{PATH}", self.base))
            .header(header::CONTENT_TYPE, format!("multipart/form-data; boundary={BOUNDARY}"))
            .header("sec-fetch-site", site);
        self.send(request.body(Full::new(Bytes::from(body))).unwrap()).await
    }
}

fn request_id(page: &Page) -> String {
    let (_, rest) =
        page.text.split_once("name=\"request_id\" value=\"").unwrap_or_else(|| panic!("{}", page.text));
    rest.split('"').next().unwrap().to_owned()
}

async fn a_list_is_uploaded_seen_and_confirmed(kind: Kind) {
    const ITEMS: u32 = 20_000;
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    service.create_policy("p", policy(200)).await.unwrap();
    service.create_schedule("list", once(soon(86_400_000), 1, "p", http(&consumer))).await.unwrap();
    let browser = Browser::new(&service);
    let form = browser.page(PATH).await;
    form.shows(&["multipart/form-data", "type=\"file\"", "Read it…"]);
    browser.page("/n/default/schedules/list").await.shows(&["Submit a list…"]);

    let mut lines = String::new();
    for n in 0..ITEMS {
        let who = if n == 1 { "<script>alert('x')</script>".to_owned() } else { format!("t{}", n % 5) };
        lines.push_str(&json!({"n": n, "who": who, "fill": "x".repeat(100)}).to_string());
        lines.push('\n');
    }
    let fields = [("format", ""), ("key_field", "who"), ("wrapped", "")];
    let foreign = browser.upload(&fields, ("list.ndjson", b"{}"), false).await;
    assert_eq!(foreign.status, StatusCode::FORBIDDEN);
    let asked = browser.upload(&fields, ("list.ndjson", lines.as_bytes()), true).await;
    assert_eq!(asked.status, StatusCode::OK, "{}", asked.text);
    asked.shows(&[
        "Submit 20,000 items to list?",
        "A run of <strong>20,000 events</strong> is made now",
        "at most 200 at once",
        "20,000 read without a fault, 20,000 of them with a key",
        "The first 10:",
        "&lt;script&gt;",
        "<td>t0</td>",
    ]);
    assert!(!asked.text.contains("<script>alert"), "{}", asked.text);
    let id = request_id(&asked);
    let name = format!("{}/submissions/{id}", schedule_name("list"));
    let held = service.master().get_submission(GetSubmissionRequest { name }).await.unwrap().into_inner();
    assert_eq!((held.state(), held.received_count), (SubmissionState::Open, ITEMS));
    assert!(service.runs("list").await.is_empty(), "nobody has confirmed it");

    let without = browser.confirmed(PATH, &[("request_id", &id)], " ").await;
    assert_eq!(without.status, StatusCode::UNPROCESSABLE_ENTITY);
    without.shows(&["reason", "Submit 20,000 items to list?"]);
    assert!(service.runs("list").await.is_empty(), "no reason was given");
    let made = browser.confirmed(PATH, &[("request_id", &id)], "month end").await.goes_to();
    let again = browser.confirmed(PATH, &[("request_id", &id)], "month end").await.goes_to();
    assert_eq!(made, again, "a double click makes one run");
    let run = wait_for("the run", 240, async || {
        let [run] = &service.runs("list").await[..] else { return None };
        (run.state() == RunState::Finished).then(|| run.clone())
    })
    .await;
    assert!(made.ends_with(run.name.rsplit('/').next().unwrap()), "{made} {run:?}");
    assert_eq!((run.kind(), run.events), (RunKind::Submitted, ITEMS));
    let mut got = consumer.notes.arrivals();
    got.sort_by_key(|arrival| arrival.index);
    // One whose answer was lost comes again.
    got.dedup_by_key(|arrival| arrival.index);
    assert_eq!(got.len(), ITEMS as usize);
    assert!(got.iter().all(|got| got.data["n"] == json!(got.index) && json!(got.key) == got.data["who"]));
    let request = ListAuditEntriesRequest { parent: PARENT.to_owned(), ..Default::default() };
    let audit = service.master().list_audit_entries(request).await.unwrap().into_inner().audit_entries;
    let entry = tollgate_proto::json::to_json(audit.iter().find(|entry| entry.action == "submit").unwrap());
    assert_eq!(entry["difference"]["reason"]["new"], "month end", "{entry}");
    assert_eq!(entry["difference"]["events"]["new"], Value::from(ITEMS));
    consumer.notes.assert_clean();
    service.stop().await;
}

async fn what_is_wrong_with_a_file_is_said_at_its_line(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    service.create_schedule("list", once(soon(86_400_000), 1, "", http(&consumer))).await.unwrap();
    let browser = Browser::new(&service);
    let refused = async |fields: &[(&str, &str)], name: &str, text: &[u8], told: &str| {
        let page = browser.upload(fields, (name, text), true).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", page.text);
        page.shows(&["Nothing was made.", told, "type=\"file\""]);
        page
    };
    let mut long: Vec<u8> = b"{\"who\": \"a\"}\n".repeat(200_000);
    let keyed = [("key_field", "who")];
    long.splice(0..0, b"{\"who\": \"a\"}\n{\"a\": 1}\n".iter().copied());
    // Most of it comes after its fault.
    let page = refused(&keyed, "a.ndjson", &long, "line 2: who: missing").await;
    page.shows(&["value=\"who\""]);
    refused(&[], "a.txt", b"1", "choose how the list is written").await;
    refused(&[], "", b"", "none was chosen").await;
    refused(&[("format", "json")], "a.txt", b"[1, 2", "item 2").await;
    refused(&[], "a.json.gz", b"\x1f\x8b\x08garbage", "gzip").await;
    assert!(service.runs("list").await.is_empty());
    let unknown = browser.confirmed(PATH, &[("request_id", "none-such")], "why").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    service.stop().await;
}

/// The beginning of an upload that does not end.
async fn endless(service: &Service) -> TcpStream {
    let address = service.url().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let begun = format!(
        "POST {PATH} HTTP/1.1\r\nhost: {address}\r\nsec-fetch-site: same-origin\r\ncontent-length: 1000000\r\n\
         content-type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n--{BOUNDARY}\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"a.csv\"\r\n\r\na\n1\n"
    );
    stream.write_all(begun.as_bytes()).await.unwrap();
    stream
}

async fn files_that_do_not_end_leave_room_for_others(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    service.create_schedule("list", once(soon(86_400_000), 1, "", http(&consumer))).await.unwrap();
    let browser = Browser::new(&service);
    // As many as are let in: the next one is answered at once.
    let mut open = Vec::new();
    wait_for("one too many", 60, async || {
        let mut stream = endless(&service).await;
        let mut head = [0; 64];
        match tokio::time::timeout(Duration::from_millis(500), stream.read(&mut head)).await {
            Ok(answer) => Some(String::from_utf8_lossy(&head[..answer.unwrap()]).into_owned()),
            Err(_) => {
                open.push(stream);
                None
            }
        }
    })
    .await;
    let one_more = async || browser.upload(&[], ("a.csv", b"a\n1\n"), true).await;
    let refused = one_more().await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text);
    refused.shows(&["Too many files are read at once."]);
    browser.page("/n/default/schedules/list").await;
    drop(open);
    let taken = wait_for("room for one more file", 60, async || {
        let page = one_more().await;
        (page.status == StatusCode::OK).then_some(page)
    });
    taken.await.shows(&["Submit 1 item to list?"]);
    service.stop().await;
}

on_both_stores!(
    a_list_is_uploaded_seen_and_confirmed,
    what_is_wrong_with_a_file_is_said_at_its_line,
    files_that_do_not_end_leave_room_for_others
);
