//! Who must know is told: by a webhook that dies in the middle, by Slack's form, by a queue; by whichever process decides.

mod rules;

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Request, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate_harness::event::check_headers;
use tollgate_harness::resources::{PARENT, http, ms, once, policy, policy_name, schedule_name, soon, sqs};
use tollgate_harness::{
    Answer, Cli, Conduct, Consumer, Database, Emulator, Kind, Releases, SECRET, Service, free_port, wait_for,
};
use tollgate_proto::v1::alert_target::Target as To;
use tollgate_proto::v1::target::Target as Place;
use tollgate_proto::v1::{
    Alert, AlertRuns, AlertTarget, AlertTroubles, CreateAlertRequest, DeleteAlertRequest, GetAlertRequest,
    GetHandlerStatusRequest, HttpTarget, PausePolicyRequest, ReleaseMode, ResumePolicyRequest, SlackTarget,
    Target, TroubleKind,
};
use tonic::Code;

use crate::metrics::page;
use crate::pulled::worker::{Deed, Worker};

/// The connection is closed without an answer, as by a process that dies.
const DIES: u16 = 0;
/// No answer at all.
const HANGS: u16 = 1;

/// A request, and what was answered.
#[derive(Clone)]
struct Heard {
    headers: HeaderMap,
    body: Bytes,
    answer: u16,
}

impl Heard {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn id(&self) -> String {
        self.headers["webhook-id"].to_str().unwrap().to_owned()
    }
}

/// An alert's receiver.
struct Receiver {
    port: u16,
    answer: Arc<AtomicU16>,
    heard: Arc<Mutex<Vec<Heard>>>,
    listens: JoinHandle<()>,
}

impl Receiver {
    async fn start(answer: u16) -> Self {
        let (port, answer) = (free_port().unwrap(), Arc::new(AtomicU16::new(answer)));
        let heard = Arc::default();
        let listens = listen(port, &answer, &heard).await;
        Self { port, answer, heard, listens }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    fn answers(&self, answer: u16) {
        self.answer.store(answer, Ordering::SeqCst);
    }

    /// Its port is closed, and so are its connections.
    fn die(&self) {
        self.answers(DIES);
        self.listens.abort();
    }

    async fn come_back(&mut self) {
        self.answers(200);
        self.listens = listen(self.port, &self.answer, &self.heard).await;
    }

    fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    /// What was taken.
    fn taken(&self) -> Vec<Heard> {
        self.heard().into_iter().filter(|heard| heard.answer == 200).collect()
    }

    /// Waits for the message with this place among those that were taken.
    async fn message(&self, at: usize) -> Heard {
        wait_for("a message", 40, async || self.taken().into_iter().nth(at)).await
    }
}

async fn listen(port: u16, answer: &Arc<AtomicU16>, heard: &Arc<Mutex<Vec<Heard>>>) -> JoinHandle<()> {
    let listener =
        wait_for("a free port", 10, async || TcpListener::bind(("127.0.0.1", port)).await.ok()).await;
    let (answer, heard) = (answer.clone(), heard.clone());
    tokio::spawn(async move {
        tollgate_harness::http::accept(listener, move |stream| {
            let (answer, heard) = (answer.clone(), heard.clone());
            tollgate_harness::http::serve(stream, move |request| take(request, answer.clone(), heard.clone()))
        })
        .await;
    })
}

async fn take(
    request: Request<Incoming>,
    answer: Arc<AtomicU16>,
    heard: Arc<Mutex<Vec<Heard>>>,
) -> Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    let headers = request.headers().clone();
    let body = request.into_body().collect().await?.to_bytes();
    let answer = answer.load(Ordering::SeqCst);
    if answer == DIES {
        return Err("it dies".into());
    }
    heard.lock().unwrap().push(Heard { headers, body, answer });
    if answer == HANGS {
        std::future::pending::<()>().await;
    }
    Ok(Response::builder().status(answer).body(Full::from("said"))?)
}

/// All troubles of the namespace, told at once and not again.
fn alert(target: To) -> Alert {
    Alert {
        troubles: Some(AlertTroubles::default()),
        target: Some(AlertTarget { target: Some(target) }),
        group_wait: Some(ms(0)),
        repeat_interval: Some(ms(0)),
        ..Alert::default()
    }
}

fn webhook(receiver: &Receiver) -> To {
    To::Http(HttpTarget { url: receiver.url(), secret: SECRET.to_owned(), ..HttpTarget::default() })
}

async fn create(service: &Service, id: &str, alert: Alert) -> Result<Alert, tonic::Status> {
    let request = CreateAlertRequest {
        parent: PARENT.to_owned(),
        alert_id: id.to_owned(),
        alert: Some(alert),
        ..CreateAlertRequest::default()
    };
    service.master().create_alert(request).await.map(tonic::Response::into_inner)
}

async fn stored(service: &Service, id: &str) -> Alert {
    let name = format!("{PARENT}/alerts/{id}");
    service.master().get_alert(GetAlertRequest { name }).await.unwrap().into_inner()
}

async fn on_response() -> Target {
    Target { release: ReleaseMode::OnResponse.into(), ..Target::default() }
}

/// A policy with events behind it that is paused: a trouble until it goes on.
async fn paused_work(service: &Service, id: &str, consumer: &Consumer) {
    service.create_policy(id, policy(2)).await.unwrap();
    let pause =
        PausePolicyRequest { name: policy_name(id), reason: "storm".to_owned(), ..Default::default() };
    service.master().pause_policy(pause).await.unwrap();
    let target = Target { target: http(consumer).target, ..on_response().await };
    service.create_schedule(id, once(soon(500), 4, id, target)).await.unwrap();
}

async fn resume(service: &Service, id: &str) {
    service
        .master()
        .resume_policy(ResumePolicyRequest { name: policy_name(id), ..Default::default() })
        .await
        .unwrap();
}

async fn well(service: &Service) -> Consumer {
    Consumer::start(service.link(), Releases::Unary, |_| Conduct::Answer(200)).await
}

async fn a_receiver_that_dies_in_the_middle_hears_everything_once(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let (consumer, mut receiver) = (well(&service).await, Receiver::start(500).await);
    create(&service, "on-call", alert(webhook(&receiver))).await.unwrap();
    paused_work(&service, "p", &consumer).await;
    wait_for("two attempts", 40, async || (receiver.heard().len() >= 2).then_some(())).await;
    receiver.die();
    let status = wait_for("the error in the status", 40, async || {
        stored(&service, "on-call").await.status.filter(|status| status.attempts >= 3)
    })
    .await;
    assert!(status.last_error_time.is_some() && status.raised_count == 1, "{status:?}");
    receiver.come_back().await;
    let first = receiver.message(0).await;
    let all = receiver.heard();
    assert!(all.iter().all(|heard| heard.id() == first.id() && heard.body == first.body), "one message");
    check_headers(&first.headers, &first.id(), &first.body, Some(SECRET)).unwrap();
    let event = first.json();
    assert_eq!((event["specversion"].as_str(), event["id"].as_str()), (Some("1.0"), Some(&*first.id())));
    let raised = &event["data"]["raised"];
    assert_eq!(raised.as_array().unwrap().len(), 1, "{event}");
    assert_eq!(
        (raised[0]["kind"].as_str(), raised[0]["policy"].as_str()),
        (Some("POLICY_PAUSED"), Some(&*policy_name("p")))
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(receiver.taken().len(), 1, "it is told once");
    resume(&service, "p").await;
    let second = receiver.message(1).await;
    assert_ne!(second.id(), first.id());
    let over = second.json();
    assert_eq!(over["data"]["resolved"][0]["kind"], "POLICY_PAUSED", "{over}");
    assert_eq!(over["data"]["raised"].as_array().unwrap().len(), 0, "{over}");
    let status = wait_for("both counted", 20, async || {
        stored(&service, "on-call").await.status.filter(|status| status.sent_count == 2)
    })
    .await;
    assert_eq!((status.raised_count, status.dropped_count, status.attempts), (0, 0, 0), "{status:?}");
    let text = page(&service, "/metrics", "text/plain").await.body;
    assert!(text.contains("tollgate_alert_messages_total{result=\"sent\"} 2"), "{text}");
    let name = format!("{PARENT}/alerts/on-call");
    service.master().delete_alert(DeleteAlertRequest { name, ..Default::default() }).await.unwrap();
    assert_eq!(database.count("alert_states").await, 0);
    service.stop().await;
}

/// Without keeping the receiver from answering.
async fn test_alert(service: &Service, id: &'static str) -> Answer {
    let cli = Cli::new(service.url());
    tokio::task::spawn_blocking(move || cli.run(&["test-alert", id])).await.unwrap()
}

async fn people_are_told_in_slack_s_form(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let receiver = Receiver::start(200).await;
    let slack = SlackTarget { url: format!("{}/T0/secret", receiver.url()), ..SlackTarget::default() };
    let alert = Alert {
        troubles: None,
        runs: AlertRuns::FinishedWithFailures.into(),
        schedules: vec!["bad".to_owned(), schedule_name("good")],
        ..alert(To::Slack(slack))
    };
    let made = create(&service, "channel", alert).await.unwrap();
    let hidden = format!("http://127.0.0.1:{}/***", receiver.port);
    let Some(To::Slack(shown)) = made.target.unwrap().target else { panic!("not Slack") };
    assert_eq!(shown.url, hidden);
    let cli = Cli::new(service.url());
    let tested = test_alert(&service, "channel").await;
    assert!(tested.code == 0 && tested.out.contains("has taken"), "{tested:?}");
    let test = receiver.message(0).await.json();
    assert!(test["text"].as_str().unwrap().contains("a test of the alert channel"), "{test}");
    let listed = cli.ok(&["list", "alerts"]);
    assert!(listed.contains("channel") && listed.contains(&hidden) && !listed.contains("T0"), "{listed}");
    let consumer = Consumer::start(service.link(), Releases::Unary, |arrival| {
        Conduct::Answer(if arrival.schedule == "good" { 200 } else { 500 })
    })
    .await;
    // It looks first, and tells what ends from then on.
    wait_for("a first look", 20, async || (database.count("alert_states").await == 1).then_some(())).await;
    for id in ["good", "bad", "other"] {
        let retry = Some(tollgate_proto::v1::RetryPolicy { max_attempts: Some(1), ..Default::default() });
        let target = Target { target: http(&consumer).target, ..on_response().await };
        let schedule = tollgate_proto::v1::Schedule { retry, ..once(soon(500), 3, "", target) };
        service.create_schedule(id, schedule).await.unwrap();
    }
    let told = receiver.message(1).await.json();
    let text = told["blocks"].to_string();
    assert!(told["text"].as_str().unwrap().contains("1 run has finished"), "{told}");
    assert!(text.contains("the run of bad at") && text.contains("3 failed"), "{text}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(receiver.heard().len(), 2, "neither of the good one, nor of another, nor twice");
    receiver.answers(404);
    let refused = test_alert(&service, "channel").await;
    assert!(refused.code != 0 && refused.err.contains("HTTP 404: said"), "{refused:?}");
    service.stop().await;
}

async fn a_queue_is_told(kind: Kind) {
    let (database, emulator) = (Database::new(kind).await, Emulator::start().await);
    let service = Service::start(&database).await;
    let (queue, consumer) = (emulator.queue("alerts").await, well(&service).await);
    let Some(Place::Sqs(target)) = sqs(&queue, &emulator.endpoint).target else { panic!("not SQS") };
    let kinds = vec![TroubleKind::PolicyPaused.into()];
    let troubles = Some(AlertTroubles { kinds, ..AlertTroubles::default() });
    create(&service, "q", Alert { troubles, ..alert(To::Sqs(target)) }).await.unwrap();
    paused_work(&service, "p", &consumer).await;
    let client = emulator.client();
    let next = async || {
        wait_for("a message in the queue", 40, async || {
            let got = client.receive_message().queue_url(&queue).send().await.unwrap();
            let message = got.messages().first()?;
            let handle = message.receipt_handle().unwrap();
            client.delete_message().queue_url(&queue).receipt_handle(handle).send().await.unwrap();
            Some(serde_json::from_str::<Value>(message.body().unwrap()).unwrap())
        })
        .await
    };
    let first = next().await;
    assert_eq!(first["type"], "dev.tollgate.alert.v1");
    assert_eq!(first["data"]["raised"][0]["kind"], "POLICY_PAUSED", "{first}");
    resume(&service, "p").await;
    let second = next().await;
    assert_eq!(second["data"]["resolved"][0]["kind"], "POLICY_PAUSED", "{second}");
    service.stop().await;
}

async fn a_queue_without_an_able_worker_is_told(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let receiver = Receiver::start(200).await;
    let troubles = Some(AlertTroubles { kinds: vec![TroubleKind::NoWorker.into()], ..Default::default() });
    create(&service, "on-call", Alert { troubles, ..alert(webhook(&receiver)) }).await.unwrap();
    crate::pulled::trigger(&service, "frames", crate::pulled::pull(2, "", &["gpu"])).await;
    let told = receiver.message(0).await.json();
    let raised = &told["data"]["raised"][0];
    assert_eq!(
        (&raised["kind"], &raised["schedule"]),
        (&json!("NO_WORKER"), &json!(schedule_name("frames")))
    );
    assert_eq!(raised["target"], "pull:render [gpu]", "{told}");
    let (notes, place) = (Default::default(), crate::pulled::worker::place(&service));
    let hello = crate::pulled::worker::hello("w", &["gpu"], 1);
    let _able = Worker::start(&place, hello, &notes, |_| Deed::Work(0));
    let over = receiver.message(1).await.json();
    assert_eq!(over["data"]["resolved"][0]["kind"], "NO_WORKER", "{over}");
    assert_eq!(service.finished("frames", 20).await.counts.unwrap().succeeded, 2);
    service.stop().await;
}

async fn what_is_wrong_with_an_alert_is_said(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start_with(&database, &["--quota-alerts", "2"]).await;
    let slack = |url: &str| To::Slack(SlackTarget { url: url.to_owned(), ..SlackTarget::default() });
    let good = alert(slack("https://hooks.example/T/x"));
    let wrong = [
        (Alert { troubles: None, ..good.clone() }, "alert.troubles"),
        (Alert { target: None, ..good.clone() }, "alert.target"),
        (alert(slack("hooks.example/T/secret")), "alert.target.slack.url"),
        (alert(slack("https://hooks.example/***")), "alert.target.slack.url"),
        (Alert { repeat_interval: Some(ms(1_000)), ..good.clone() }, "alert.repeat_interval"),
        (Alert { group_wait: Some(ms(3_600_001)), ..good.clone() }, "alert.group_wait"),
        (Alert { schedules: vec!["A b".to_owned()], ..good.clone() }, "alert.schedules[0]"),
        (
            Alert { troubles: Some(AlertTroubles { kinds: vec![0], ..Default::default() }), ..good.clone() },
            "alert.troubles.kinds[0]",
        ),
    ];
    for (alert, field) in wrong {
        let refused = create(&service, "a", alert).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(field) && !refused.message().contains("secret"), "{refused}");
    }
    for id in ["a", "b"] {
        create(&service, id, good.clone()).await.unwrap();
    }
    assert_eq!(create(&service, "a", good.clone()).await.unwrap_err().code(), Code::AlreadyExists);
    let full = create(&service, "c", good).await.unwrap_err();
    assert!(full.code() == Code::ResourceExhausted && full.message().contains("`alerts`"), "{full}");
    let cli = Cli::new(service.url());
    let yaml = std::fs::read_to_string(tollgate_root("examples/alerts.yaml")).unwrap();
    let refused = cli.apply(&yaml);
    assert!(refused.code != 0 && refused.err.contains("quota"), "{refused:?}");
    for id in ["a", "b"] {
        cli.ok(&["delete", "alert", id]);
    }
    let applied = cli.apply(&yaml);
    assert!(applied.code == 0 && applied.out.contains("2 created"), "{applied:?}");
    let described = cli.ok(&["describe", "alert", "on-call"]);
    assert!(described.contains("has_secret: true") || described.contains("hasSecret: true"), "{described}");
    let again = cli.apply(&yaml);
    assert!(again.out.contains("2 unchanged"), "{again:?}");
    assert!(cli.ok(&["audit", "alert/on-call"]).contains("create"));
    service.stop().await;
}

fn tollgate_root(path: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Also the bound of `docs/bounds.md`: there are more deaf ones than a namespace has messages under way.
async fn a_receiver_that_hangs_delays_no_other(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = well(&service).await;
    let (deaf, awake) = (Receiver::start(HANGS).await, Receiver::start(200).await);
    for n in 0..20 {
        let To::Http(target) = webhook(&deaf) else { panic!("not a webhook") };
        let patient = To::Http(HttpTarget { deadline: Some(ms(20_000)), ..target });
        create(&service, &format!("a-deaf-{n:02}"), alert(patient)).await.unwrap();
    }
    create(&service, "b-awake", alert(webhook(&awake))).await.unwrap();
    paused_work(&service, "p", &consumer).await;
    wait_for("all deaf ones", 40, async || (deaf.heard().len() >= 20).then_some(())).await;
    awake.message(0).await;
    // Each of them is silent for the second time, or waits for that.
    let again = async || (deaf.heard().len() >= 28).then_some(());
    wait_for("the deaf ones again", 60, again).await;
    let began = Instant::now();
    resume(&service, "p").await;
    let over = awake.message(1).await;
    assert_eq!(over.json()["data"]["resolved"][0]["kind"], "POLICY_PAUSED");
    assert!(began.elapsed() < Duration::from_secs(16), "{:?}: the deaf ones have 20 s", began.elapsed());
    service.stop().await;
}

on_both_stores!(
    a_receiver_that_dies_in_the_middle_hears_everything_once,
    people_are_told_in_slack_s_form,
    a_queue_is_told,
    a_queue_without_an_able_worker_is_told,
    what_is_wrong_with_an_alert_is_said,
    a_receiver_that_hangs_delays_no_other,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_process_goes_on_with_what_is_stored() {
    let database = Database::new(Kind::Postgres).await;
    let mut services = Vec::new();
    for _ in 0..2 {
        services.push(Service::join(&database, &["--lease-ttl", "3s"]).await);
    }
    let mut ids = Vec::new();
    for service in &services {
        let status = service.handler().get_handler_status(GetHandlerStatusRequest::default()).await;
        ids.push(status.unwrap().into_inner().handler);
    }
    wait_for("shards of both", 40, async || {
        let status = services[0].status().await.unwrap();
        let owns = |id: &String| status.shards.iter().any(|shard| shard.owner == *id);
        ids.iter().all(owns).then_some(())
    })
    .await;
    let decides = usize::from(ids[1] < ids[0]);
    let receiver = Receiver::start(503).await;
    let consumer = well(&services[1 - decides]).await;
    create(&services[0], "on-call", alert(webhook(&receiver))).await.unwrap();
    paused_work(&services[1 - decides], "p", &consumer).await;
    wait_for("an attempt", 40, async || (!receiver.heard().is_empty()).then_some(())).await;
    services.remove(decides).kill9();
    let before = receiver.heard().len();
    wait_for("an attempt of the next process", 60, async || (receiver.heard().len() > before).then_some(()))
        .await;
    receiver.answers(200);
    let first = receiver.message(0).await;
    assert!(receiver.heard().iter().all(|heard| heard.id() == first.id() && heard.body == first.body));
    let raised = first.json()["data"]["raised"].clone();
    assert_eq!(raised[0]["kind"], "POLICY_PAUSED", "{raised}");
    resume(&services[0], "p").await;
    let over = wait_for("its end", 60, async || {
        let of = |heard: &Heard| heard.json()["data"]["resolved"].to_string().contains("POLICY_PAUSED");
        receiver.taken().into_iter().find(of)
    })
    .await;
    assert_ne!(over.id(), first.id());
    let told = |heard: &Heard| heard.json()["data"]["raised"].to_string().contains("POLICY_PAUSED");
    assert_eq!(receiver.taken().iter().filter(|heard| told(heard)).count(), 1, "raised once");
    services.remove(0).stop().await;
}
