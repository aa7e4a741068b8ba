//! HTTP answers: any bytes from the consumer's side of a real connection, through the real client.
//!
//! The first byte of an input says how the bytes are written: bit 0 in two pieces, bit 1 without an end (the connection
//! stays open), the rest is the answer.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tollgate_core::model::{
    Delivery, EventKeyring, EventRef, HttpTarget, OverlapRule, Payload, ReleaseMode, RunId, RunSpec, Sent,
    Target,
};
use tollgate_target::{PrivateAddresses, TargetOptions, Targets};
use uuid::Uuid;

const DEADLINE_MS: i64 = 150;
/// The deadline, and what a busy machine adds.
const TIME_MAX: Duration = Duration::from_secs(3);
/// An excerpt of the answer, and the words around it.
const MESSAGE_MAX_CHARS: usize = 400;
const DAY_MS: i64 = 86_400_000;

/// A consumer, and the client that it answers.
struct World {
    runtime: Runtime,
    address: String,
    answer: Arc<Mutex<Vec<u8>>>,
    targets: Mutex<Targets>,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let answer = Arc::new(Mutex::new(Vec::new()));
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let shared = answer.clone();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let bytes = shared.lock().unwrap().clone();
            tokio::spawn(consume(stream, bytes));
        }
    });
    World { runtime, address, answer, targets: Mutex::new(targets()) }
});

fn targets() -> Targets {
    let options = TargetOptions {
        allow_private_addresses: PrivateAddresses::Allow,
        // Each answer meets a connection of its own.
        idle_connections_per_host_max: 0,
        ..TargetOptions::default()
    };
    Targets::new(options).unwrap()
}

pub(crate) fn target(data: &[u8]) {
    let world = &*WORLD;
    *world.answer.lock().unwrap() = data.to_vec();
    let targets = world.targets.lock().unwrap().clone();
    let start = Instant::now();
    let sent = world.runtime.block_on(targets.send(delivery(&world.address)));
    let took = start.elapsed();
    assert!(took < TIME_MAX, "an answer took {took:?}");
    let text = String::from_utf8_lossy(data.get(1..).unwrap_or_default()).into_owned();
    match &sent {
        Sent::Accepted => {
            assert!(text.contains("HTTP/1.") && text.contains(" 2"), "accepted without a 2xx: {text:?}");
        }
        Sent::Refused { message, retry_after_ms, permanent } => {
            // Only a whole answer proves that the consumer has not taken the event.
            assert!(text.contains("HTTP/1."), "refused without an answer: {message}");
            assert!(!permanent, "an answer is no refusal for good: {message}");
            bounded(message, *retry_after_ms);
            if retry_after_ms.is_some() {
                // The next input shall not meet the pause that this one asked for.
                *world.targets.lock().unwrap() = self::targets();
            }
        }
        Sent::RefusedAlone { message, .. } => panic!("it had no batch to be alone in: {message}"),
        // On a machine that is busy the deadline may be over before the delivery has begun.
        Sent::NotSent { message, .. } => {
            assert!(
                took >= Duration::from_millis(DEADLINE_MS.unsigned_abs()),
                "it was sent, and yet: {message}"
            );
        }
        Sent::Unclear { message, retry_after_ms } => bounded(message, *retry_after_ms),
    }
}

fn bounded(message: &str, retry_after_ms: Option<i64>) {
    assert!(
        message.chars().count() <= MESSAGE_MAX_CHARS,
        "a message of {} characters",
        message.chars().count()
    );
    assert!(!message.chars().any(char::is_control), "control characters in {message:?}");
    assert!(retry_after_ms.is_none_or(|ms| (0..=DAY_MS).contains(&ms)), "a pause of {retry_after_ms:?} ms");
}

/// Reads a request and writes the answer.
async fn consume(mut stream: TcpStream, data: Vec<u8>) {
    let mut seen = Vec::new();
    let mut chunk = [0; 4_096];
    // The request's body ends with the payload.
    while !seen.ends_with(b"\"end\"}") {
        match stream.read(&mut chunk).await {
            Ok(read) if read > 0 => seen.extend_from_slice(&chunk[..read]),
            _ => return,
        }
    }
    let (how, answer) = data.split_first().map_or((0, &[][..]), |(how, answer)| (*how, answer));
    let middle = if how & 1 == 1 { answer.len() / 2 } else { 0 };
    // The client may have gone.
    let _ = stream.write_all(&answer[..middle]).await;
    let _ = stream.flush().await;
    let _ = stream.write_all(&answer[middle..]).await;
    if how & 2 == 2 {
        // Until the client gives up.
        let _ = stream.read(&mut chunk).await;
    }
    let _ = stream.shutdown().await;
}

fn delivery(address: &str) -> Delivery {
    let run = RunId::derive(Uuid::from_u128(5), 1_780_000_000_000_000);
    let http = HttpTarget::plain(format!("http://{address}/hook"), DEADLINE_MS);
    let spec = RunSpec {
        schedule_uid: Uuid::from_u128(5),
        generation: 1,
        namespace: "acme".into(),
        schedule_id: "nightly".into(),
        policy_uid: None,
        policy_id: None,
        key: None,
        units: 1,
        target: Target::Http { http, release: ReleaseMode::TargetDefault },
        payload: Payload::of("\"end\""),
        retry: Default::default(),
        overlap: OverlapRule::Allow,
        delay_after_finish_s: None,
        finish_by_s: None,
        spread_s: None,
        start_within_s: None,
        check_again: Default::default(),
        on_finish: None,
    };
    Delivery {
        event_id: EventKeyring::new(&[9; 32]).id(EventRef { shard: 4, run, index: 3 }),
        attempt: 2,
        index: 3,
        events: 7,
        launch_us: 1_780_000_000_000_000,
        cursor: None,
        predecessor: None,
        explicit_release: false,
        spec: Arc::new(spec),
        checks: 0,
        item: None,
    }
}
