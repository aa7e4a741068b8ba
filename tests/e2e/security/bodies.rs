//! Bodies that cost far more than they weigh: by callers without a key, and by callers who are let in.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_harness::kernel::rss_bytes;
use tollgate_harness::resources::{PARENT, http, once, policy, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for};

/// The largest body that is read at all.
const BODY_BYTES: usize = 4 * 1024 * 1024;
/// How many at once: as in the attack that took the service down.
const AT_ONCE: usize = 8;
/// What all of them may cost: their texts are never kept.
const FLAT_BYTES: u64 = 120 << 20;
/// What they may cost where they are let in: some texts, and one at a time as a message.
const BOUNDED_BYTES: u64 = 600 << 20;

/// Objects in objects, as many as fit: each took hundreds of bytes for five of text.
fn nested() -> Vec<u8> {
    let deep = format!("{}1{}", "{\"\":".repeat(90), "}".repeat(90));
    let mut text = String::from("{\"triggers\":[");
    while text.len() + deep.len() + 8 < BODY_BYTES {
        text.push_str(&deep);
        text.push(',');
    }
    text.push_str("1]}");
    text.into_bytes()
}

/// The most payload that is light enough: numbers.
fn numbers() -> Vec<u8> {
    let payload = "0,".repeat(120_000);
    let target = r#""target":{"http":{"url":"http://127.0.0.1:9/"}}"#;
    format!(r#"{{"triggers":[{{"cron":"0 0 1 1 *"}}],{target},"payload":[{payload}0]}}"#).into_bytes()
}

/// Releases of two bytes each, framed for gRPC-Web.
fn empty_releases() -> Vec<u8> {
    let message = [0x0a, 0x00].repeat((BODY_BYTES - 64) / 2);
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    framed
}

/// Watches what a service has resident, until it is dropped.
struct Watch {
    most: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    before: u64,
}

impl Watch {
    fn over(service: &Service) -> Self {
        let (most, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let before = service.rss_bytes();
        let (pid, seen, end) = (service.pid(), most.clone(), stop.clone());
        std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                seen.fetch_max(rss_bytes(pid).unwrap_or_default(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { most, stop, before }
    }

    fn grown(&self) -> u64 {
        self.most.load(Ordering::Relaxed).saturating_sub(self.before)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Sends the body many times at once by curl; the HTTP statuses, and the answers.
async fn flood(url: &str, headers: &[&str], body: &[u8]) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    std::fs::write(&file, body).unwrap();
    let calls = (0..AT_ONCE).map(|number| {
        let (url, data) = (url.replace("{n}", &number.to_string()), format!("@{}", file.display()));
        let mut command = Command::new("curl");
        command.args([
            "-s",
            "-w",
            "\n%{http_code}",
            "--max-time",
            "180",
            "-H",
            "expect:",
            "--data-binary",
            &data,
        ]);
        for header in headers {
            command.args(["-H", header]);
        }
        command.arg(url);
        tokio::task::spawn_blocking(move || {
            let output = command.output().unwrap().stdout;
            let text = String::from_utf8_lossy(&output).into_owned();
            let (answer, status) = text.rsplit_once('\n').unwrap();
            (status.to_owned(), answer.to_owned())
        })
    });
    let mut answers = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        answers.push(call.await.unwrap());
    }
    answers
}

const JSON: &str = "content-type: application/json";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_without_a_key_cost_nothing() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let url = format!("{}/v1/{PARENT}/schedules?scheduleId=s", service.url());
    let (body, began) = (nested(), Instant::now());
    let watch = Watch::over(&service);
    let cpu = service.cpu();
    for (status, answer) in flood(&url, &[JSON], &body).await {
        assert_eq!(status, "401", "{answer}");
    }
    // A bad key is none.
    for (status, answer) in flood(&url, &[JSON, "authorization: Bearer tgk_no"], &body).await {
        assert_eq!(status, "401", "{answer}");
    }
    let (grown, cpu) = (watch.grown(), service.cpu().saturating_sub(cpu));
    assert!(grown < FLAT_BYTES, "{grown} bytes");
    assert!(cpu < Duration::from_secs(10), "{cpu:?} of processor time in {:?}", began.elapsed());
    // Releases need no key, but have no free JSON: what they may hold is little.
    let release = format!("{}/v1/events:batchRelease", service.url());
    for (status, answer) in flood(&release, &[JSON], &body).await {
        assert_eq!(status, "400", "{answer}");
    }
    assert!(watch.grown() < FLAT_BYTES, "{} bytes", watch.grown());
    drop(watch);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn millions_of_empty_releases_are_refused_unread() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let path = format!("{}/tollgate.v1.EventHandlerService/BatchReleaseTokens", service.url());
    let watch = Watch::over(&service);
    let kind = "content-type: application/grpc-web+proto";
    for (status, answer) in flood(&path, &[kind], &empty_releases()).await {
        assert_eq!(status, "200", "gRPC-Web says it in the trailers: {answer}");
        assert!(answer.contains("grpc-status:3") || answer.is_empty(), "{answer}");
    }
    assert!(watch.grown() < FLAT_BYTES, "{} bytes", watch.grown());
    drop(watch);
    service.stop().await;
}

async fn heavy_bodies_that_are_let_in_leave_others_alone(kind: Kind) {
    let database = Database::new(kind).await;
    // The lease of a service as users start it: other tests are at work beside this one.
    let service = Service::start_with(&database, &["--lease-ttl", "6s"]).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    service.create_policy("p", policy(3)).await.unwrap();
    let events = 60;
    service.create_schedule("victim", once(soon(500), events, "p", http(&consumer))).await.unwrap();
    let url = format!("{}/v1/namespaces/heavy/schedules?scheduleId=s{{n}}", service.url());
    let watch = Watch::over(&service);
    let attack = async {
        for _ in 0..2 {
            for (status, answer) in flood(&url, &[JSON], &nested()).await {
                assert_eq!(status, "400", "{answer}");
            }
            for (status, answer) in flood(&url, &[JSON], &numbers()).await {
                assert!(["200", "409"].contains(&&*status), "{status}: {}", &answer[..answer.len().min(300)]);
            }
        }
    };
    let victim = wait_for("all events, released", 40, async || {
        (consumer.notes.releases().len() >= events as usize).then_some(())
    });
    tokio::join!(attack, victim);
    assert!(watch.grown() < BOUNDED_BYTES, "{} bytes", watch.grown());
    assert!(!service.log().contains("no sign of life"), "{}", service.log());
    drop(watch);
    service.stop().await;
}

on_both_stores!(heavy_bodies_that_are_let_in_leave_others_alone);
