//! Bodies of items beside everything else: those that do not end, and one that is long.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tollgate_harness::resources::{http, once, policy, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::{CreatePolicyRequest, CreateScheduleRequest};

use super::{NDJSON, post, world};
use crate::security::{key, master};

/// What a list of 60 MB may add to what the service has resident.
const FLAT_BYTES: u64 = 48 << 20;
/// Bodies of one caller that are read at once.
const EACH_AT_ONCE: usize = 4;

/// A body that begins, and never ends.
fn begin(service: &Service, namespace: &str, key: &str) -> TcpStream {
    let place = service.url().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(place).unwrap();
    let path = format!("/v1/namespaces/{namespace}/schedules/s:submit");
    let key = format!("authorization: Bearer {key}");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {place}\r\n{NDJSON}\r\n{key}\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(b"2\r\n1\n\r\n").unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_items_that_do_not_end_delay_nobody_else() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    let keys = ["greedy", "victim"].map(|name| key(&database, name, "read,schedule:write", Some(name)));
    for (namespace, key) in ["greedy", "victim"].iter().zip(&keys) {
        let parent = format!("namespaces/{namespace}");
        let mut master = master(&service, Some(key));
        let (policy, policy_id) = (Some(policy(5)), "p".to_owned());
        let wanted = CreatePolicyRequest {
            parent: parent.clone(),
            policy_id,
            policy,
            ..CreatePolicyRequest::default()
        };
        // The service reads its keys every few seconds.
        wait_for("the key", 30, async || master.create_policy(wanted.clone()).await.ok()).await;
        let schedule = Some(once(soon(3_600_000), 1, "p", http(&consumer)));
        let schedule_id = "s".to_owned();
        let wanted =
            CreateScheduleRequest { parent, schedule_id, schedule, ..CreateScheduleRequest::default() };
        master.create_schedule(wanted).await.unwrap();
    }
    let held: Vec<TcpStream> = (0..EACH_AT_ONCE).map(|_| begin(&service, "greedy", &keys[0])).collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let submit = |namespace: &str, key: &str| {
        let url = format!("{}/v1/namespaces/{namespace}/schedules/s:submit", service.url());
        let key = format!("authorization: Bearer {key}");
        tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let (status, answer) = post(&url, &[NDJSON, &key], "{\"n\": 1}\n".repeat(60).as_bytes());
            (status, answer, begun.elapsed())
        })
    };
    let one_more = submit("greedy", &keys[0]);
    for _ in 0..3 {
        let (status, answer, took) = submit("victim", &keys[1]).await.unwrap();
        assert_eq!(status, 200, "{answer}");
        assert!(took < Duration::from_secs(9), "{took:?}");
    }
    let (mut status, mut answer, _) = one_more.await.unwrap();
    for _ in 0..3 {
        // One of the bodies may have begun late.
        if status == 200 {
            (status, answer, _) = submit("greedy", &keys[0]).await.unwrap();
        }
    }
    assert_eq!(status, 429, "{answer}");
    wait_for("all events of the neighbour, released", 30, async || {
        (consumer.notes.releases().len() >= 180).then_some(())
    })
    .await;
    drop(held);
    wait_for("a turn after the silent ones have gone", 30, async || {
        let (status, ..) = submit("greedy", &keys[0]).await.unwrap();
        (status == 200).then_some(())
    })
    .await;
    service.stop().await;
}

/// The service's memory does not grow with the list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_list_takes_no_memory() {
    let world = world(Kind::Sqlite).await;
    let about = "x".repeat(580);
    let text: String = (0..100_000).map(|n| format!("{{\"n\":{n},\"about\":\"{about}\"}}\n")).collect();
    let later = |ahead_ms: i64| {
        let time = chrono::DateTime::from_timestamp(soon(ahead_ms).seconds, 0).unwrap();
        world.url(&format!("?launchTime={}", time.format("%Y-%m-%dT%H:%M:%SZ")))
    };
    // The first one makes what every later one uses.
    assert_eq!(post(&later(7_200_000), &[NDJSON], b"1\n").0, 200);
    let before = world.service.rss_bytes();
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let watch = async {
        let mut most = before;
        while tokio::time::timeout(Duration::from_millis(20), &mut stopped).await.is_err() {
            most = most.max(world.service.rss_bytes());
        }
        most
    };
    let url = later(7_300_000);
    let posted = async {
        let posted =
            tokio::task::spawn_blocking(move || post(&url, &[NDJSON], text.as_bytes())).await.unwrap();
        stop.send(()).unwrap();
        posted
    };
    let (most, (status, answer)) = tokio::join!(watch, posted);
    assert_eq!(status, 200, "{answer}");
    assert!(most - before < FLAT_BYTES, "{} bytes more", most - before);
    world.service.stop().await;
}
