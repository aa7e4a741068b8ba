//! Limits: messages that are too large, too many connections, connections that say nothing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tollgate_harness::resources::PARENT;
use tollgate_harness::{Database, Kind, Service, wait_for};
use tollgate_proto::v1::CreateScheduleRequest;
use tonic::Code;

use super::{curl, serve};

fn address(service: &Service) -> String {
    service.url().trim_start_matches("http://").to_owned()
}

/// What comes until the other end closes.
async fn rest_of(stream: &mut TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    // A reset is an end as well.
    let _ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut got))
        .await
        .expect("it stays open");
    got
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_are_refused() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start_with(&database, &["--message-max", "65536"]).await;
    let request = CreateScheduleRequest {
        parent: PARENT.to_owned(),
        schedule_id: "x".repeat(70_000),
        ..Default::default()
    };
    let refused = service.master().create_schedule(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    std::fs::write(&file, format!("{{\"description\": \"{}\"}}", "x".repeat(70_000))).unwrap();
    let (code, body) = curl(&[
        "-H",
        "content-type: application/json",
        "--data-binary",
        &format!("@{}", file.display()),
        &format!("{}/v1/{PARENT}/schedules?scheduleId=s", service.url()),
    ]);
    assert_eq!(code, 413, "{body}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_are_closed_and_their_number_is_bounded() {
    let database = Database::new(Kind::Sqlite).await;
    let flags = ["--connections-max", "8", "--handshake-timeout", "1s"];
    let service = Service::start_with(&database, &flags).await;
    // The harness has one open. Seven that say nothing, or only begin, fill the rest.
    let mut silent = Vec::new();
    for number in 0..7 {
        let mut stream = TcpStream::connect(address(&service)).await.unwrap();
        if number % 2 == 0 {
            stream.write_all(b"PRI * HTTP").await.unwrap();
        }
        silent.push(stream);
    }
    let began = Instant::now();
    tokio::time::sleep(Duration::from_millis(100)).await;
    // For one that has something to say, the oldest of those is closed: nobody is kept out by who says nothing.
    for _ in 0..3 {
        assert_eq!(curl(&[&format!("{}/livez", service.url())]).0, 200, "there is no room");
    }
    wait_for("the warning", 5, async || {
        service.log().contains("connections are open, as many as connections_max").then_some(())
    })
    .await;
    for mut stream in silent {
        let _goodbye = rest_of(&mut stream).await;
    }
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    assert_eq!(curl(&[&format!("{}/livez", service.url())]).0, 200, "there is room again");
    // The connection that is in use has outlived all that.
    assert_eq!(service.held_count().await, 0);
    service.stop().await;
}

/// A connection from one of the machine's own addresses, with a request on it that has been answered; none where it is closed.
async fn asks(from: &str, to: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.ok()?;
    let mut begin = [0; 12];
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_exact(&mut begin)).await;
    read.expect("it is neither answered nor closed").ok()?;
    (&begin == b"HTTP/1.1 200").then_some(stream)
}

/// The port of a service that others can reach.
fn port(served: &Service) -> SocketAddr {
    let port = served.url().rsplit_once(':').unwrap().1;
    format!("127.0.0.1:{port}").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_leaves_connections_to_others() {
    let database = Database::new(Kind::Sqlite).await;
    let flags = ["--auth", "insecure", "--connections-max", "16"];
    let served = serve(&database, "0.0.0.0:0", &flags).await;
    let to = port(&served);
    // None of them is idle in the eyes of the port: each has had a request.
    let mut greedy = Vec::new();
    for _ in 0..20 {
        greedy.extend(asks("127.0.0.2", to).await);
    }
    assert_eq!(greedy.len(), 8);
    let mut neighbour = Vec::new();
    for _ in 0..4 {
        neighbour.push(asks("127.0.0.3", to).await.expect("the places are all taken"));
    }
    let (code, metrics) = curl(&[&format!("http://{to}/metrics")]);
    let refused = metrics.lines().find(|line| line.contains("connections_of_address")).unwrap();
    assert_eq!((code, refused), (200, "tollgate_refused_total{bound=\"connections_of_address\"} 12"));
    assert!(served.log().contains("refused for want of room"), "{}", served.log());
    // Whoever closes some may open some.
    greedy.truncate(4);
    wait_for("a place", 10, async || asks("127.0.0.2", to).await).await;
}
