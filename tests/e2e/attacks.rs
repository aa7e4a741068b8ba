//! Releases by those who hold nothing, a thousand a second against a busy policy: they change nothing, and each gets
//! the answer that the API documents.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tollgate_harness::resources::{http, ms, once, policy, policy_name, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Notes, Releases, Service, wait_for};
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::{
    BatchReleaseTokensRequest, PausePolicyRequest, ReleaseOutcome, ReleaseStatus, ReleaseTokenRequest,
    ReleaseTokensRequest, ResumePolicyRequest, RetryPolicy, Schedule,
};
use tonic::Code;
use tonic::transport::Channel;

const LIMIT: u32 = 20;
const EVENTS: u32 = 3_000;
/// Of so many events one is refused at first, and comes a second time.
const RETRIED: u32 = 50;
/// How long the attack goes on, at least.
const ATTACK: Duration = Duration::from_secs(6);
const TICK: Duration = Duration::from_millis(50);
/// Releases a tick: in one batch, and one by one.
const BATCH: usize = 100;
const UNARY: usize = 8;
/// How many releases there are, at least: a busy machine needs longer for them.
const ATTACKS: usize = 6_000;
/// What thousands of attacks a second may cost in memory.
const GROWTH_MAX_BYTES: u64 = 200 << 20;

/// What attackers know: ids, each kind in no order that matters.
#[derive(Default)]
struct Loot {
    /// Of events that another installation has delivered.
    foreign: Vec<String>,
    /// Of events that have not been delivered, as lists show them.
    unreached: Vec<String>,
    /// Of events that the consumer has got, has released, and has got twice.
    delivered: Vec<String>,
    released: Vec<String>,
    twice: Vec<String>,
}

/// A release, and the answers that are right for it.
struct Attack {
    release: ReleaseTokenRequest,
    right: &'static [ReleaseStatus],
}

impl Loot {
    /// Looks at the consumer's notes again.
    fn look(&mut self, notes: &Notes) {
        self.delivered = notes.arrivals().into_iter().map(|arrival| arrival.event_id).collect();
        let released = notes.releases().into_iter().filter(|(_, status)| *status == ReleaseStatus::Released);
        self.released = released.map(|(name, _)| name).collect();
        let attempts = notes.attempts().into_iter().filter(|(_, attempts)| attempts.len() > 1);
        self.twice = attempts.map(|(name, _)| name).collect();
    }

    /// The attack of a number: all kinds in turn, over all ids. None while there is no such id.
    fn attack(&self, number: usize) -> Option<Attack> {
        use ReleaseStatus::{AlreadyReleased, Invalid, Late, Unknown};
        const GARBAGE: [&str; 7] =
            ["", "3f", "----", "3f-00-1-", "../../etc/passwd", "3f-é-1-AAAAAAAAAAA", "namespaces//events/"];
        let (kind, turn) = (number % 8, number / 8);
        let pick = |ids: &[String]| ids.get(turn * 13 % ids.len().max(1)).cloned();
        let (name, right): (String, &[ReleaseStatus]) = match kind {
            0 => (forged(&pick(&self.delivered)?), &[Unknown]),
            1 => (pick(&self.foreign)?, &[Unknown]),
            // A good id under another namespace's name.
            2 => (format!("namespaces/other/events/{}", pick(&self.delivered)?), &[Unknown]),
            3 => (pick(&self.unreached)?, &[Late]),
            4 => (pick(&self.released)?, &[AlreadyReleased]),
            // The attempt before the one that counts.
            5 => (pick(&self.twice)?, &[Late, AlreadyReleased]),
            6 => ("x".repeat(turn % 5_000 + 81), &[Invalid]),
            _ => (GARBAGE[turn % GARBAGE.len()].to_owned(), &[Unknown, Invalid]),
        };
        let outcome = [ReleaseOutcome::Succeeded, ReleaseOutcome::Failed, ReleaseOutcome::Retry][turn % 3];
        let release = ReleaseTokenRequest {
            name,
            attempt: (kind == 5).then_some(1),
            outcome: outcome.into(),
            cursor: Some("stolen".to_owned()),
            ..ReleaseTokenRequest::default()
        };
        Some(Attack { release, right })
    }
}

/// The same id with another seal: the last character carries two bits of it.
fn forged(id: &str) -> String {
    let (start, end) = id.split_at(id.len() - 2);
    format!("{start}{}", if end == "AA" { "BA" } else { "AA" })
}

/// What a refused call says, in the words of a batch.
fn as_status(code: Code) -> ReleaseStatus {
    match code {
        Code::NotFound => ReleaseStatus::Unknown,
        Code::InvalidArgument => ReleaseStatus::Invalid,
        other => panic!("an attack is answered {other:?}"),
    }
}

/// One tick of it: a batch, and beside it single calls. Returns how many releases were sent.
async fn strike(loot: &Loot, from: usize, client: &EventHandlerServiceClient<Channel>) -> usize {
    let attacks: Vec<Attack> =
        (from..from + BATCH + UNARY).filter_map(|number| loot.attack(number)).collect();
    let (single, batch) = attacks.split_at(UNARY.min(attacks.len()));
    let calls = single.iter().map(|attack| {
        let (mut client, release) = (client.clone(), attack.release.clone());
        async move {
            let answer = client.release_token(release).await;
            answer.map_or_else(|status| as_status(status.code()), |answer| answer.into_inner().status())
        }
    });
    let batched = async {
        let releases: Vec<_> = batch.iter().map(|attack| attack.release.clone()).collect();
        if releases.is_empty() {
            return Vec::new();
        }
        let answer = client.clone().batch_release_tokens(BatchReleaseTokensRequest { releases }).await;
        answer.unwrap().into_inner().responses.iter().map(|response| response.status()).collect()
    };
    let (singly, batched) = tokio::join!(futures::future::join_all(calls), batched);
    for (attack, status) in attacks.iter().zip(singly.into_iter().chain(batched)) {
        assert!(attack.right.contains(&status), "{status:?} for {:?}", attack.release);
    }
    attacks.len()
}

/// Events of another installation, delivered and held there.
async fn foreign_ids() -> (Vec<String>, (Database, Service, Consumer)) {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("busy", policy(10)).await.unwrap();
    service.create_schedule("busy", once(soon(500), 10, "busy", http(&consumer))).await.unwrap();
    wait_for("foreign events", 20, async || (consumer.notes.arrivals_count() == 10).then_some(())).await;
    let ids = consumer.notes.attempts().into_keys().collect();
    (ids, (database, service, consumer))
}

async fn releases_of_those_who_hold_nothing_change_nothing(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let (foreign, elsewhere) = foreign_ids().await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |arrival| {
        if arrival.attempt == 1 && arrival.index % RETRIED == 0 {
            return Conduct::Answer(500);
        }
        Conduct::work(30..70)
    })
    .await;
    service.create_policy("busy", policy(LIMIT)).await.unwrap();
    service.create_policy("shut", policy(LIMIT)).await.unwrap();
    let pause = PausePolicyRequest { name: policy_name("shut"), ..PausePolicyRequest::default() };
    service.master().pause_policy(pause).await.unwrap();
    let at = soon(3_000);
    let retry =
        RetryPolicy { min_backoff: Some(ms(200)), max_backoff: Some(ms(400)), ..RetryPolicy::default() };
    let busy = Schedule { retry: Some(retry), ..once(at, EVENTS, "busy", http(&consumer)) };
    service.create_schedule("busy", busy).await.unwrap();
    service.create_schedule("shut", once(at, 100, "shut", http(&consumer))).await.unwrap();
    let shut = service.first_run("shut").await.name;
    let unreached = service.events(&shut).await.into_iter().map(|event| event.event_id).collect();
    let mut loot = Loot { foreign, unreached, ..Loot::default() };
    wait_for("the first events", 20, async || (consumer.notes.arrivals_count() > 0).then_some(())).await;

    let (rss, cpu, start) = (service.rss_bytes(), service.cpu(), Instant::now());
    let client = service.handler();
    let (mut sent, mut number) = (0, 0);
    let mut tick = tokio::time::interval(TICK);
    while start.elapsed() < ATTACK || sent < ATTACKS {
        tick.tick().await;
        loot.look(&consumer.notes);
        sent += strike(&loot, number, &client).await;
        number += BATCH + UNARY;
    }
    let seconds = start.elapsed().as_secs_f64();
    let (cpu, growth) = (service.cpu() - cpu, service.rss_bytes().saturating_sub(rss));
    let ended_meanwhile = consumer.notes.releases().len();
    #[expect(clippy::print_stdout, reason = "what it cost")]
    {
        println!(
            "{kind:?}: {sent} attacks in {seconds:.1} s ({:.0} a second), {:.1} s of processor time, {} MB more, \
             {ended_meanwhile} events released beside them",
            sent as f64 / seconds,
            cpu.as_secs_f64(),
            growth >> 20
        );
    }
    assert!(growth < GROWTH_MAX_BYTES, "{growth} bytes more");
    let run = service.finished("busy", 90).await;
    assert_eq!(run.counts.unwrap().succeeded, EVENTS, "{run:?}");
    assert_eq!(run.cursor_out, "", "a cursor that was not the consumer's");
    assert!(consumer.notes.in_flight_max() <= LIMIT as usize, "{} in flight", consumer.notes.in_flight_max());
    consumer.notes.assert_clean();
    for (id, attempts) in consumer.notes.attempts() {
        assert!(attempts == [1] || attempts == [1, 2], "{id} came as {attempts:?}");
    }
    let twice = consumer.notes.attempts().values().filter(|a| a.len() == 2).count();
    assert_eq!(twice, (EVENTS / RETRIED) as usize, "only what was refused comes again");
    // What nobody had reached is untouched.
    let resume = ResumePolicyRequest { name: policy_name("shut"), ..Default::default() };
    service.master().resume_policy(resume).await.unwrap();
    let run = service.finished("shut", 30).await;
    assert_eq!(run.counts.unwrap().succeeded, 100, "{run:?}");
    assert_eq!(service.held_count().await, 0);
    assert_eq!(elsewhere.1.held_count().await, 10, "the other installation's tokens are held there");
    assert!(!service.log().contains("panicked"), "{}", service.log());
    service.stop().await;
}

/// A connection that begins calls and never ends them.
async fn half_open(address: &str, streams: u32) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    // POST, http, path, authority, content-type and te as literals without an index.
    let mut head = vec![0x83, 0x86];
    let path = "/tollgate.v1.EventHandlerService/ReleaseTokens";
    for (name, value) in [(4, path), (1, "tollgate")] {
        head.extend([name, value.len() as u8]);
        head.extend(value.as_bytes());
    }
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")] {
        head.extend([0, name.len() as u8]);
        head.extend(name.as_bytes());
        head.push(value.len() as u8);
        head.extend(value.as_bytes());
    }
    for number in 0..streams {
        bytes.extend([0, 0, head.len() as u8, 1, 4]);
        bytes.extend((2 * number + 1).to_be_bytes());
        bytes.extend(&head);
        // The start of a message that is announced as large: 1 MiB, of which three bytes come.
        bytes.extend([0, 0, 8, 0, 0]);
        bytes.extend((2 * number + 1).to_be_bytes());
        bytes.extend([0, 0, 16, 0, 0, 10, 80, 10]);
    }
    stream.write_all(&bytes).await.unwrap();
    stream
}

async fn streams_that_never_end_and_huge_requests_stop_nobody(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..10)).await;
    service.create_policy("p", policy(LIMIT)).await.unwrap();
    service.create_schedule("s", once(soon(1_500), 300, "p", http(&consumer))).await.unwrap();
    let rss = service.rss_bytes();
    let address = service.url().trim_start_matches("http://").to_owned();
    let mut open = Vec::new();
    for _ in 0..50 {
        open.push(half_open(&address, 100).await);
    }
    // Calls of a real client that begin, say something, and then say nothing.
    let mut waiting = Vec::new();
    for _ in 0..200 {
        let garbage = ReleaseTokenRequest { name: "garbage".to_owned(), ..ReleaseTokenRequest::default() };
        let first = tokio_stream::iter([ReleaseTokensRequest { releases: vec![garbage] }]);
        let endless = tokio_stream::StreamExt::chain(first, tokio_stream::pending());
        let mut client = service.handler();
        waiting.push(tokio::spawn(async move { client.release_tokens(endless).await.map(drop) }));
    }
    let single =
        |length: usize| ReleaseTokenRequest { name: "x".repeat(length), ..ReleaseTokenRequest::default() };
    let mut client = service.handler();
    for (length, expected) in
        [(81, Code::InvalidArgument), (1 << 20, Code::InvalidArgument), (5 << 20, Code::OutOfRange)]
    {
        let status = client.release_token(single(length)).await.unwrap_err();
        assert_eq!(status.code(), expected, "{length} bytes: {status:?}");
        assert!(status.message().len() < 2_000, "an answer of {} bytes", status.message().len());
    }
    for count in [0, 1_001] {
        let request = BatchReleaseTokensRequest { releases: vec![single(10); count] };
        let status = client.batch_release_tokens(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{count}: {status:?}");
    }
    for _ in 0..20 {
        let request = BatchReleaseTokensRequest { releases: vec![single(100); 1_000] };
        let answer = client.batch_release_tokens(request).await.unwrap().into_inner();
        let invalid = answer.responses.iter().filter(|r| r.status() == ReleaseStatus::Invalid).count();
        assert_eq!((answer.responses.len(), invalid), (1_000, 1_000));
    }
    let run = service.finished("s", 30).await;
    assert_eq!(run.counts.unwrap().succeeded, 300, "{run:?}");
    consumer.notes.assert_clean();
    consumer.notes.assert_once();
    assert!(consumer.notes.in_flight_max() <= LIMIT as usize);
    let growth = service.rss_bytes().saturating_sub(rss);
    #[expect(clippy::print_stdout, reason = "what it cost")]
    {
        println!("{kind:?}: {} half-open connections cost {} MB", open.len(), growth >> 20);
    }
    assert!(growth < GROWTH_MAX_BYTES, "{growth} bytes more");
    assert!(!service.log().contains("panicked"), "{}", service.log());
    // They do not keep it from stopping, either.
    service.stop().await;
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    drop(open);
}

on_both_stores!(
    releases_of_those_who_hold_nothing_change_nothing,
    streams_that_never_end_and_huge_requests_stop_nobody,
);
