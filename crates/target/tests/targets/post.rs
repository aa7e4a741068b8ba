//! Messages that are no events: as carefully sent as events, by another client.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use tollgate_core::model::{AlertTarget, HttpTarget, Sent, SlackTarget};
use tollgate_target::{Lookup, Parcel, Post, PrivateAddresses, TargetOptions};
use uuid::Uuid;

use crate::samples::{doubt, http, not_sent, permanent, refusal};
use crate::server::{FullPort, Reply, Server, answer, closed_port};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn post(change: impl FnOnce(&mut TargetOptions)) -> Post {
    let mut options =
        TargetOptions { allow_private_addresses: PrivateAddresses::Allow, ..Default::default() };
    change(&mut options);
    Post::new(options).unwrap()
}

fn parcel() -> Parcel {
    Parcel {
        namespace: "acme".into(),
        sender: Uuid::from_u128(5),
        id: "message-7".into(),
        group: "on-call".into(),
        content_type: "application/json",
        body: r#"{"text":"it is wrong"}"#.into(),
    }
}

async fn to(post: &Post, http: HttpTarget) -> Sent {
    post.send(&parcel(), &AlertTarget::Http { http }).await
}

async fn to_url(post: &Post, url: impl Into<String>) -> Sent {
    to(post, http(url)).await
}

fn within(url: impl Into<String>, deadline_ms: i64) -> HttpTarget {
    HttpTarget { deadline_ms, ..http(url) }
}

#[tokio::test]
async fn a_message_arrives_signed_and_as_it_is() {
    let server = Server::always(answer(200, "", "")).await;
    let post = post(|_| {});
    let headers = [("authorization".to_owned(), "Bearer x".to_owned())].into();
    let target = HttpTarget { headers, secret: Some(SECRET.to_owned()), ..http(server.url()) };
    assert_eq!(to(&post, target).await, Sent::Accepted);
    let request = &server.requests()[0];
    assert_eq!(request.line, "POST /hook?a=b HTTP/1.1");
    assert_eq!(request.body, parcel().body.as_bytes());
    let header = |name: &str| request.headers.get(name).map(String::as_str).unwrap_or_default();
    assert_eq!(header("host"), format!("127.0.0.1:{}", server.port));
    assert_eq!(
        (header("content-type"), header("webhook-id"), header("authorization")),
        ("application/json", "message-7", "Bearer x")
    );
    assert!(header("user-agent").starts_with("tollgate/") && header("webhook-signature").starts_with("v1,"));
    let age_s = chrono_now_s() - header("webhook-timestamp").parse::<i64>().unwrap();
    assert!((0..60).contains(&age_s), "{age_s}");
    assert!(header("referer").is_empty() && header("accept-encoding").is_empty(), "{:?}", request.headers);
    // What a user may not set is refused before anything is sent.
    let headers = [("webhook-id".to_owned(), "mine".to_owned())].into();
    assert!(permanent(to(&post, HttpTarget { headers, ..http(server.url()) }).await).contains("reserved"));
    assert_eq!(server.requests().len(), 1);
}

fn chrono_now_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_secs() as i64
}

/// The client reads more spellings of an address than deliveries' URLs have: what it makes of them is looked at.
#[tokio::test]
async fn private_addresses_are_refused_in_every_spelling() {
    let server = Server::always(answer(200, "", "")).await;
    let post = Post::new(TargetOptions::default()).unwrap();
    for host in [
        "127.0.0.1",
        "127.0.0.2",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:0:0:1]",
        "[64:ff9b::7f00:1]",
        "169.254.169.254",
        "10.0.0.1",
        "2130706433",
        "0x7f000001",
        "0X7F.0.0.1",
        "017700000001",
        "0177.0.0.1",
        "0177.0x0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.1.",
        "%31%32%37.0.0.1",
        "localhost",
        "LOCALHOST",
    ] {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:{}/", server.port);
            let sent = to_url(&post, &url).await;
            assert!(!matches!(sent, Sent::Accepted | Sent::Unclear { .. }), "{url}: {sent:?}");
            if !host.contains('%') {
                let message = permanent(sent);
                assert!(message.contains("address"), "{url}: {message}");
            }
        }
    }
    assert_eq!(server.connections(), 0);
    // Each message is looked at: networks that are open are open in every spelling.
    let open = self::post(|options| options.allow_private_addresses = "127.0.0.1/32".parse().unwrap());
    for host in ["127.0.0.1", "127.1", "localhost"] {
        let url = format!("http://{host}:{}/", server.port);
        assert_eq!(to_url(&open, &url).await, Sent::Accepted, "{url}");
    }
    permanent(to_url(&open, format!("http://127.0.0.2:{}/", server.port)).await);
}

#[tokio::test]
async fn a_name_that_resolves_to_a_private_address_is_refused() {
    let server = Server::always(answer(200, "", "")).await;
    let asked = std::sync::Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let post = post(|options| {
        options.allow_private_addresses = PrivateAddresses::Refuse;
        options.lookup = Lookup::by(move |name| {
            count.fetch_add(1, Ordering::SeqCst);
            assert!(["hooks.example", "xn--hks-sna.example"].contains(&name), "{name}");
            Ok(vec![[127, 0, 0, 1].into()])
        });
    });
    for host in ["hooks.example", "HOOKS.example"] {
        let url = format!("http://{host}:{}/", server.port);
        let message = permanent(to_url(&post, url).await);
        assert!(message.contains("hooks.example") && message.contains("loopback"), "{message}");
    }
    let slack = SlackTarget { url: format!("http://hooks.example:{}/T0/x", server.port), deadline_ms: 5_000 };
    permanent(post.send(&parcel(), &AlertTarget::Slack { slack }).await);
    assert_eq!((server.connections(), asked.load(Ordering::SeqCst)), (0, 1));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Server::always(answer(200, "", "")).await;
    let location = format!("location: {}/secret\r\n", other.origin());
    for status in [301, 302, 303, 307, 308] {
        let server = Server::always(answer(status, &location, "")).await;
        let (message, _) = refusal(to_url(&post(|_| {}), server.url()).await);
        assert!(message.contains(&format!("HTTP {status}: redirects are not followed")), "{message}");
        assert_eq!(server.requests().len(), 1);
    }
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn answers_mean_what_they_mean_for_events() {
    for (status, headers, body) in [(500, "", "it broke"), (429, "retry-after: 7\r\n", ""), (404, "", "no")] {
        let server = Server::always(answer(status, headers, body)).await;
        let (message, wish_ms) = refusal(to_url(&post(|_| {}), server.url()).await);
        assert!(message.starts_with(&format!("HTTP {status}")) && message.contains(body), "{message}");
        assert_eq!(wish_ms, (status == 429).then_some(7_000));
    }
    let gateway = Server::always(answer(504, "", "")).await;
    assert!(doubt(to_url(&post(|_| {}), gateway.url()).await).contains("504"));
}

#[tokio::test]
async fn an_answer_that_drips_is_cut_off_at_the_deadline() {
    for start in
        ["HTTP/1.1 200 OK\r\nx-slow: ", "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", "HTTP/1.1 2"]
    {
        let server = Server::always(Reply::Drip(start)).await;
        let began = Instant::now();
        let message = doubt(to(&post(|_| {}), within(server.url(), 1_500)).await);
        if start.contains("OK") {
            assert_eq!(message, "no complete answer within 1500 ms", "{start}");
            let took = began.elapsed();
            assert!((1_500..6_000).contains(&took.as_millis()), "{took:?}");
        }
        closed(&server).await;
    }
}

#[tokio::test]
async fn an_answer_without_an_end_is_read_as_far_as_it_is_kept() {
    let began = Instant::now();
    let server = Server::always(Reply::Flood("HTTP/1.1 200 OK\r\n\r\n")).await;
    assert_eq!(to_url(&post(|_| {}), server.url()).await, Sent::Accepted);
    closed(&server).await;
    let server = Server::always(Reply::Flood("HTTP/1.1 500 No\r\ncontent-length: 99999999999\r\n\r\n")).await;
    let (message, _) = refusal(to_url(&post(|options| options.answer_max_bytes = 20), server.url()).await);
    assert_eq!(message, format!("HTTP 500: {}", "x".repeat(20)));
    closed(&server).await;
    // A head without an end is no answer.
    let server = Server::always(Reply::Flood("HTTP/1.1 200 OK\r\nx-long: ")).await;
    doubt(to_url(&post(|_| {}), server.url()).await);
    closed(&server).await;
    assert!(began.elapsed() < Duration::from_secs(8), "long before the deadline: {:?}", began.elapsed());
}

/// All of its connections have ended.
async fn closed(server: &Server) {
    let gone = async {
        while server.open() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
}

#[tokio::test]
async fn no_more_connections_than_may_be_and_none_is_kept() {
    let server = Server::always(Reply::Hang).await;
    let two = post(|options| options.connections_max = 2);
    let long = join_all((0..2).map(|_| to(&two, within(server.url(), 2_000))));
    let short = async {
        while server.requests().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        join_all((0..4).map(|_| to(&two, within(server.url(), 200)))).await
    };
    let (long, short) = futures::future::join(long, short).await;
    assert!(long.iter().all(|sent| matches!(sent, Sent::Unclear { .. })), "{long:?}");
    assert!(short.into_iter().all(|sent| not_sent(sent).0 == "not sent: no turn within 200 ms"));
    assert_eq!(server.connections(), 2);
    let server = Server::always(answer(200, "", "")).await;
    for _ in 0..3 {
        assert_eq!(to_url(&two, server.url()).await, Sent::Accepted);
    }
    closed(&server).await;
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn what_did_not_leave_is_said_without_the_url() {
    let post = post(|options| options.connect_timeout_ms = 300);
    let full = FullPort::new().await;
    let closed = closed_port().await;
    let hangs = Server::always(Reply::Hang).await;
    let resets = Server::always(Reply::Reset).await;
    let plain = Server::always(Reply::CloseUnread).await;
    let mut told = Vec::new();
    for url in [
        format!("http://127.0.0.1:{closed}/T0/SECRET"),
        format!("http://127.0.0.1:{}/T0/SECRET", full.port),
        format!("http://127.0.0.1:{}/T0/SECRET", hangs.port),
        format!("http://127.0.0.1:{}/T0/SECRET", resets.port),
        format!("https://127.0.0.1:{}/T0/SECRET", plain.port),
        "http://127.0.0.1:x/SECRET".to_owned(),
        "127.0.0.1/SECRET".to_owned(),
        "ftp://127.0.0.1/SECRET".to_owned(),
    ] {
        let slack = SlackTarget { url, deadline_ms: 600 };
        told.push(post.send(&parcel(), &AlertTarget::Slack { slack }).await);
    }
    assert!(!format!("{told:?}").contains("SECRET"), "{told:?}");
    let [refused, full, hangs, resets, plain, ..] = &told[..] else { panic!("{told:?}") };
    let (message, _) = refusal(refused.clone());
    assert!(message.starts_with("not sent: ") && message.contains("refused"), "{message}");
    assert!(refusal(full.clone()).0.starts_with("not sent: "), "{full:?}");
    assert_eq!(doubt(hangs.clone()), "no complete answer within 600 ms");
    assert!(doubt(resets.clone()).starts_with("no answer: "), "{resets:?}");
    assert!(refusal(plain.clone()).0.starts_with("not sent: "), "{plain:?}");
    told[5..].iter().for_each(|sent| drop(permanent(sent.clone())));
}

#[tokio::test]
async fn a_name_server_that_is_away_says_nothing_about_the_name() {
    let says = |words: &'static str| {
        post(move |options| options.lookup = Lookup::by(move |_| Err(std::io::Error::other(words))))
    };
    let away = says("failed to lookup address information: Temporary failure in name resolution");
    assert!(not_sent(to_url(&away, "http://a.invalid/").await).0.contains("Temporary failure"));
    let unknown = says("failed to lookup address information: Name or service not known");
    assert!(refusal(to_url(&unknown, "http://a.invalid/").await).0.contains("a.invalid"));
}
