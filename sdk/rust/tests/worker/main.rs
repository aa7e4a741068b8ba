//! The loop against a server that is not Tollgate: what it asks for, what it releases, how it ends.
#![expect(clippy::unwrap_used, reason = "tests")]

mod fake;
mod http;
#[cfg(feature = "sqs")]
mod sqs;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fake::{Fake, until};
use serde_json::json;
use tokio::sync::Semaphore;
use tollgate_worker::{Context, Error, Event, Failure, Outcome, Pull, Status, Stop, TokenLost, Worker};

/// A worker that runs.
struct Running {
    stop: Stop,
    ended: tokio::task::JoinHandle<Result<(), Error>>,
}

impl Running {
    fn start(worker: Worker) -> Self {
        Self { stop: worker.stopper(), ended: tokio::spawn(worker.run()) }
    }

    async fn end(self) -> Result<(), Error> {
        tokio::time::timeout(Duration::from_secs(60), self.ended).await.unwrap().unwrap()
    }

    async fn stop(self) -> Result<(), Error> {
        self.stop.stop();
        self.end().await
    }
}

fn pulling<H, F>(fake: &Fake, concurrency: usize, handler: H) -> Worker
where
    H: Fn(Event, Context) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Outcome, Failure>> + Send + 'static,
{
    let pull = Pull::new("render").wait(Duration::from_secs(1));
    let worker = Worker::new(pull, handler).server(&fake.url).key("tgk_1").concurrency(concurrency);
    worker.labels(["gpu"]).name("render-1")
}

async fn nothing(_event: Event, _context: Context) -> Result<Outcome, Failure> {
    Ok(().into())
}

#[tokio::test]
async fn each_event_is_done_once_and_never_more_than_there_is_room_for() {
    let fake = Fake::start().await;
    let (now, most, all) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let counts = Arc::new((now, most, all));
    let of_work = counts.clone();
    let work = move |_event, _context| {
        let counts = of_work.clone();
        async move {
            counts.1.fetch_max(counts.0.fetch_add(1, SeqCst) + 1, SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            counts.0.fetch_sub(1, SeqCst);
            counts.2.fetch_add(1, SeqCst);
            Ok(json!({"pages": 3}).into())
        }
    };
    let running = Running::start(pulling(&fake, 3, work));
    for n in 0..20 {
        fake.put(&format!("e{n}"), 1, Some("900s"));
    }
    until("the end of all", || fake.books().releases.len() == 20).await;
    running.stop().await.unwrap();
    assert_eq!((counts.1.load(SeqCst), counts.2.load(SeqCst)), (3, 20));
    for n in 0..20 {
        let expected = json!({"attempt": 1, "outcome": "SUCCEEDED", "result": {"pages": 3}});
        assert_eq!(fake.released(&format!("e{n}")), [expected]);
    }
    let books = fake.books();
    for ask in &books.asks {
        assert!((1..=3).contains(&ask["maxEvents"].as_u64().unwrap()), "{ask}");
        assert_eq!((&ask["wait"], &ask["labels"]), (&json!("1.000s"), &json!(["gpu"])));
        assert_eq!(ask["worker"], "render-1");
    }
    assert!(books.keys.iter().all(|key| key == "Bearer tgk_1") && !books.keys.is_empty());
}

#[tokio::test]
async fn what_a_handler_says_is_what_is_released() {
    let fake = Fake::start().await;
    let running = Running::start(pulling(&fake, 4, async |event: Event, _context| match event.id.as_str() {
        "error" => Err(std::io::Error::other("disk full").into()),
        "failed" => Err(Failure::failed("no such file")),
        "outcome" => Ok(Outcome::new(Status::Failed).message("no")),
        "told" => Ok(Outcome::default().cursor("page-2").message("half")),
        _ => panic!("oh"),
    }));
    let cases = [
        ("error", json!({"attempt": 1, "outcome": "RETRY", "message": "disk full"})),
        ("failed", json!({"attempt": 1, "outcome": "FAILED", "message": "no such file"})),
        ("outcome", json!({"attempt": 1, "outcome": "FAILED", "message": "no"})),
        ("told", json!({"attempt": 1, "outcome": "SUCCEEDED", "message": "half", "cursor": "page-2"})),
    ];
    for (id, _) in &cases {
        fake.put(id, 1, None);
    }
    fake.put("panic", 1, None);
    for (id, expected) in cases {
        until(id, || fake.released(id).len() == 1).await;
        assert_eq!(fake.released(id), [expected]);
    }
    until("the panic's release", || fake.released("panic").len() == 1).await;
    let panicked = &fake.released("panic")[0];
    assert_eq!(panicked["outcome"], "RETRY");
    assert!(panicked["message"].as_str().unwrap().contains("oh"), "{panicked}");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn heartbeats_come_at_a_third_of_the_time_to_live() {
    let fake = Fake::start().await;
    let took: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (of_fake, of_took) = (fake.clone(), took.clone());
    let worker = pulling(&fake, 2, move |event: Event, _context| {
        let (fake, took) = (of_fake.clone(), of_took.clone());
        async move {
            let begun = Instant::now();
            let beats = || fake.books().beats.get(&event.id).copied().unwrap_or_default();
            until("twelve heartbeats", || beats() >= 12).await;
            took.lock().unwrap().push(begun.elapsed());
            Ok(().into())
        }
    });
    let running = Running::start(worker.first_heartbeat(Duration::from_millis(50)));
    fake.put("told", 1, Some("0.300s"));
    fake.put("untold", 1, None);
    until("both", || fake.books().releases.len() == 2).await;
    running.stop().await.unwrap();
    // At 100, 200, …; and at 50, 150, …: the answer says 0.3 s. Later on a slow machine, never sooner.
    let took = took.lock().unwrap();
    let is_a_third = |took: &Duration| (800..30_000).contains(&took.as_millis());
    assert!(took.len() == 2 && took.iter().all(is_a_third), "{took:?}");
}

#[tokio::test]
async fn a_handler_is_told_that_its_token_is_lost() {
    let fake = Fake::start().await;
    let gone = json!({"code": 9, "message": "the event holds no token"});
    fake.refuse(move |path| path.ends_with(":extend").then(|| (400, gone.clone())));
    let running = Running::start(pulling(&fake, 2, async |event: Event, context: Context| {
        if event.id == "hand" {
            assert_eq!(context.heartbeat().await, Err(TokenLost));
        }
        context.cancelled().await;
        assert!(context.is_cancelled());
        Err(Failure::retry("the token is lost"))
    }));
    fake.put("lost", 1, Some("0.060s"));
    fake.put("hand", 1, Some("900s"));
    until("both", || fake.books().releases.len() == 2).await;
    for id in ["lost", "hand"] {
        assert_eq!(fake.released(id)[0]["message"], "the token is lost");
    }
    running.stop().await.unwrap();
}

#[tokio::test]
async fn repeats_are_not_worked_on_again_and_next_attempts_are() {
    let fake = Fake::start().await;
    let (works, lets) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (counted, let_go) = (works.clone(), lets.clone());
    let running = Running::start(pulling(&fake, 4, move |event: Event, context: Context| {
        let (works, lets) = (counted.clone(), let_go.clone());
        async move {
            works.fetch_add(1, SeqCst);
            if event.id == "slow" {
                drop(lets.acquire().await);
            }
            let early = event.id == "again" && context.attempt() == 1;
            if early { Err(Failure::retry("not yet")) } else { Ok(().into()) }
        }
    }));
    fake.put("slow", 1, None);
    fake.put("slow", 2, None);
    fake.put("again", 1, None);
    until("the first attempt", || fake.released("again").len() == 1).await;
    fake.put("again", 2, None);
    until("the second attempt", || fake.released("again").len() == 2).await;
    lets.add_permits(1);
    until("the slow one", || fake.released("slow").len() == 1).await;
    fake.put("slow", 3, None);
    until("its repeat", || fake.released("slow").len() == 2).await;
    running.stop().await.unwrap();
    assert_eq!(works.load(SeqCst), 3);
    let attempts = |id: &str| -> Vec<u64> {
        fake.released(id).iter().map(|release| release["attempt"].as_u64().unwrap()).collect()
    };
    assert_eq!((attempts("slow"), attempts("again")), (vec![2, 3], vec![1, 2]));
}

#[tokio::test]
async fn an_event_whose_token_has_gone_is_worked_on_and_nobody_told() {
    let fake = Fake::start().await;
    let calls = fake.hold_nothing();
    let works: Arc<Mutex<Vec<String>>> = Arc::default();
    let of_work = works.clone();
    let worker = pulling(&fake, 1, move |event: Event, context: Context| {
        let is_late = {
            let mut works = of_work.lock().unwrap();
            works.push(event.id.clone());
            works.iter().any(|id| id == "last")
        };
        async move {
            if event.id == "slow" {
                assert_eq!(context.heartbeat().await, Ok(()));
                tokio::time::sleep(Duration::from_millis(400)).await;
                // It would be worked on again otherwise.
                assert!(!context.is_cancelled());
            }
            match event.id.as_str() {
                "bad" if is_late => Err(Failure::failed("no such file")),
                "bad" => Err(Failure::retry("disk full")),
                _ => Ok(().into()),
            }
        }
    });
    let running = Running::start(worker.first_heartbeat(Duration::from_millis(50)));
    // With one place. One that is done is passed over, one that failed is tried again, and what cannot be read is lost.
    for id in ["slow", "bad", "last", "slow", "bad"] {
        fake.put_on_response(id, json!(7));
    }
    fake.put_on_response("odd", json!("one"));
    fake.put_on_response("end", json!(7));
    until("the end", || works.lock().unwrap().last().is_some_and(|id| id == "end")).await;
    running.stop().await.unwrap();
    assert_eq!(*works.lock().unwrap(), ["slow", "bad", "last", "bad", "end"]);
    assert_eq!(calls.load(SeqCst), 0);
}

#[tokio::test]
async fn a_drain_gives_up_an_event_whose_token_has_gone() {
    let fake = Fake::start().await;
    let calls = fake.hold_nothing();
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = begun.clone();
    let worker = pulling(&fake, 1, move |_event, _context| {
        counted.fetch_add(1, SeqCst);
        std::future::pending()
    });
    let running = Running::start(worker.drain_timeout(Duration::from_millis(200)));
    fake.put_on_response("long", json!(7));
    until("work", || begun.load(SeqCst) == 1).await;
    let stopped = Instant::now();
    running.stop().await.unwrap();
    assert!(stopped.elapsed() < Duration::from_secs(8), "{:?}", stopped.elapsed());
    assert_eq!(calls.load(SeqCst), 0);
}

#[tokio::test]
async fn an_outage_ends_nothing() {
    let fake = Fake::start().await;
    let mut tries = 0;
    fake.refuse(move |_| {
        tries += 1;
        (tries % 3 != 0).then(|| ([503, 429, 500][tries % 3], json!("busy")))
    });
    let running = Running::start(pulling(&fake, 1, nothing));
    for id in ["a", "b", "c"] {
        fake.put(id, 1, None);
    }
    until("all releases", || fake.books().releases.len() == 3).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_refusal_for_good_ends_the_loop() {
    for (status, code) in [(400, 3), (401, 16), (403, 7), (501, 12)] {
        let fake = Fake::start().await;
        fake.refuse(move |_| Some((status, json!({"code": code, "message": "labels: GPU"}))));
        let ended = Running::start(pulling(&fake, 1, nothing)).end().await;
        let Err(Error::Refused(refused)) = ended else { panic!("{status}: {ended:?}") };
        assert_eq!(
            (refused.http_status, refused.code, refused.message.as_str()),
            (status, code, "labels: GPU")
        );
    }
    // Also where it is a release that is refused.
    let fake = Fake::start().await;
    fake.refuse(|path| path.ends_with(":release").then(|| (403, json!({"code": 7, "message": "no"}))));
    fake.put("e", 1, None);
    let ended = Running::start(pulling(&fake, 1, nothing)).end().await;
    assert!(matches!(ended, Err(Error::Refused(_))), "{ended:?}");
}

#[tokio::test]
async fn a_release_that_is_refused_has_the_event_come_again() {
    let fake = Fake::start().await;
    let mut first = true;
    fake.refuse(move |path| {
        let refused = path.ends_with(":release") && std::mem::take(&mut first);
        refused.then(|| (400, json!({"code": 3, "message": "next_check_time: too late"})))
    });
    let running = Running::start(pulling(&fake, 1, nothing));
    fake.put("e", 4, None);
    until("its release", || fake.released("e").len() == 1).await;
    running.stop().await.unwrap();
    let message = "the release was refused: next_check_time: too late";
    assert_eq!(fake.released("e"), [json!({"attempt": 4, "outcome": "RETRY", "message": message})]);
}

#[tokio::test]
async fn a_drain_ends_the_work_and_gives_up_what_takes_too_long() {
    let fake = Fake::start().await;
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = begun.clone();
    let worker = pulling(&fake, 2, move |event: Event, _context| {
        counted.fetch_add(1, SeqCst);
        async move {
            let length = if event.id == "short" { 100 } else { 60_000 };
            tokio::time::sleep(Duration::from_millis(length)).await;
            Ok(().into())
        }
    });
    let running = Running::start(worker.drain_timeout(Duration::from_secs(3)));
    fake.put("short", 1, None);
    fake.put("long", 1, None);
    until("work", || begun.load(SeqCst) == 2).await;
    fake.put("late", 1, None);
    running.stop().await.unwrap();
    assert_eq!(fake.released("short"), [json!({"attempt": 1, "outcome": "SUCCEEDED"})]);
    let message = "the worker stopped before the event was done";
    assert_eq!(fake.released("long"), [json!({"attempt": 1, "outcome": "RETRY", "message": message})]);
    assert_eq!(begun.load(SeqCst), 2);
}

#[tokio::test]
async fn wrong_options_are_named() {
    let with = |pull| Worker::new(pull, nothing).server("http://127.0.0.1:1");
    let pull = || Pull::new("q");
    for (worker, wanted) in [
        (with(pull()).server("localhost:7411"), "server: \"localhost:7411\""),
        (with(pull()).concurrency(0), "concurrency: 0, expected 1 to 10,000"),
        (with(pull()).labels(["x"; 17]), "labels: 17"),
        (with(pull()).name("x".repeat(65)), "name: "),
        (with(pull()).namespace("a/b"), "namespace: \"a/b\""),
        (with(pull()).request_timeout(Duration::ZERO), "request_timeout: 0s"),
        (with(Pull::new("")), "queue: \"\""),
        (with(pull().wait(Duration::from_secs(61))), "wait: 61s"),
    ] {
        let told = worker.run().await.unwrap_err().to_string();
        assert!(told.starts_with(wanted), "{told}");
    }
}
