//! Applies of a batch go through the bulk path: seen on the wire, between the process and the service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// What a client says before its first frame.
const PREFACE_BYTES: usize = 24;
const FRAME_HEAD_BYTES: usize = 9;
/// The type of the frame with which a request begins.
const HEADERS: u8 = 1;

/// A place in front of the service that counts the requests which go through it.
struct Counted {
    url: String,
    requests: Arc<AtomicU64>,
}

impl Counted {
    async fn before(service: &Service) -> Self {
        let upstream = service.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicU64::new(0));
        let counted = requests.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&upstream).await.unwrap();
                let ((from_client, mut to_client), (mut from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
                tokio::spawn(pass_on(from_client, to_server, counted.clone()));
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// Passes on what a client says in HTTP/2, frame by frame, until it says no more.
async fn pass_on(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, requests: Arc<AtomicU64>) {
    let mut preface = [0; PREFACE_BYTES];
    if client.read_exact(&mut preface).await.is_err() || server.write_all(&preface).await.is_err() {
        return;
    }
    let mut head = [0; FRAME_HEAD_BYTES];
    while client.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut body = vec![0; length as usize];
        if client.read_exact(&mut body).await.is_err() {
            return;
        }
        requests.fetch_add(u64::from(head[3] == HEADERS), Ordering::Relaxed);
        if server.write_all(&[&head[..], &body].concat()).await.is_err() {
            return;
        }
    }
}

/// Many applies cost few calls, also where one of them is refused. What has no bulk path costs a call each: calls are counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applies_of_a_batch_go_in_one_call() {
    const APPLIES: u64 = 200;
    const DELETIONS: u64 = 40;
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let counted = Counted::before(&service).await;
    let world = World::new().await;
    let mut all: Vec<Value> = (0..APPLIES)
        .map(|number| apply(&format!("s{number}"), 1, schedule(&format!("s{number}"), 1)))
        .collect();
    // The service refuses this one, not the process.
    let mut bad = schedule("bad", 1);
    bad["schedule"]["target"] = json!({"http": {"url": "nowhere"}});
    all.insert(95, apply("bad", 1, bad));
    world.send(&all).await;
    let commands = world.start(&counted.url, json!({}));
    let answers = world.answers(all.len(), 120).await;
    let answers = by_id(&answers);
    for (id, answer) in &answers {
        let expected = if id == "bad" { "REFUSED" } else { "DONE" };
        // A queue may bring one twice: then it is outdated by itself.
        let outcome = answer["outcome"].as_str().unwrap();
        assert!(outcome == expected || (id != "bad" && outcome == "OUTDATED"), "{answer}");
    }
    assert_eq!(schedules(&Cli::new(service.url())).len() as u64, APPLIES);
    world.emptied(30).await;
    // SQS hands out ten at a time; on a slow machine a batch may begin with fewer.
    let calls = counted.requests();
    assert!(calls > 0 && calls * 3 <= APPLIES, "{APPLIES} applies took {calls} calls");

    let deletions: Vec<Value> = (0..DELETIONS)
        .map(|number| command("delete", &format!("d{number}"), named(&format!("schedules/s{number}"), 2)))
        .collect();
    world.send(&deletions).await;
    world.answers(deletions.len(), 60).await;
    let calls = counted.requests() - calls;
    assert!(calls >= DELETIONS, "{DELETIONS} deletions took {calls} calls");
    commands.stop().await;
    service.stop().await;
}
