//! `/metrics`, `/livez` and `/readyz` of real processes: the numbers are what happened, and every page answers whatever
//! the database does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tollgate_harness::proxy::Mode;
use tollgate_harness::resources::{http, ms, once, policy, soon};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, Service, lasting_shares, wait_for};
use tollgate_proto::v1::{
    GetHandlerStatusRequest, Policy, ReleaseStatus, ReleaseTokenRequest, RetryPolicy, Schedule,
};

const OPENMETRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;q=0.1";
const CHAPTER: &str = include_str!("../../docs/metrics.md");
/// Whatever the database does.
const ANSWER_MAX: Duration = Duration::from_secs(8);

/// One answer over HTTP/1.1.
pub(crate) struct Page {
    pub(crate) status: u16,
    kind: String,
    pub(crate) body: String,
}

/// Asks a service for a page.
pub(crate) async fn page(service: &Service, path: &str, accept: &str) -> Page {
    let address = service.url().trim_start_matches("http://");
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(path).header("host", address).header("accept", accept);
    let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    Page { status, kind, body: String::from_utf8(body.to_vec()).unwrap() }
}

/// What one scrape showed: from each series, as it is written, to its value.
#[derive(Debug)]
struct Scraped(BTreeMap<String, f64>);

impl Scraped {
    async fn of(service: &Service) -> Self {
        let page = page(service, "/metrics", "text/plain").await;
        assert_eq!((page.status, page.kind.as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
        Self::read(&page.body)
    }

    fn read(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self(
            lines
                .map(|line| line.rsplit_once(' ').unwrap())
                .map(|(s, v)| (s.to_owned(), v.parse().unwrap()))
                .collect(),
        )
    }

    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        *self.0.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", self.0))
    }

    #[track_caller]
    fn is(&self, series: &str, value: f64) {
        let found = self.value(series);
        assert!((found - value).abs() < 1e-9, "{series} is {found}, not {value}");
    }

    fn of_policy(&self, name: &str, id: &str) -> f64 {
        self.value(&format!("tollgate_policy_{name}{{namespace=\"default\",policy=\"{id}\"}}"))
    }

    fn count(&self, name: &str) -> usize {
        self.0.keys().filter(|series| series.starts_with(&format!("{name}{{"))).count()
    }
}

fn tries(max_attempts: u32) -> Option<RetryPolicy> {
    Some(RetryPolicy { max_attempts: Some(max_attempts), ..RetryPolicy::default() })
}

async fn what_happened_is_counted(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |arrival| match &*arrival.schedule {
        "batch" => Conduct::work(5..15),
        "refused" => Conduct::Answer(500),
        _ => Conduct::keep(),
    })
    .await;
    let silent = Policy { token_ttl: Some(ms(1_000)), suspect_period: Some(ms(500)), ..policy(2) };
    for (id, policy) in [("gentle", policy(5)), ("stuck", policy(3)), ("silent", silent)] {
        service.create_policy(id, policy).await.unwrap();
    }
    let at = soon(6_000);
    for (id, events, policy) in
        [("batch", 60, "gentle"), ("stuck", 10, "stuck"), ("silent", 4, "silent"), ("refused", 3, "")]
    {
        let schedule = Schedule { retry: tries(1), ..once(at, events, policy, http(&consumer)) };
        service.create_schedule(id, schedule).await.unwrap();
    }
    for id in ["batch", "silent", "refused"] {
        service.finished(id, 60).await;
    }
    let released = |consumer: &Consumer| consumer.notes.released(ReleaseStatus::Released);
    wait_for("answers to all releases", 10, async || (released(&consumer) == 60).then_some(())).await;
    let known = consumer.notes.releases()[0].0.clone();
    for name in [known.as_str(), "1f-nothing"] {
        let release = ReleaseTokenRequest { name: name.to_owned(), ..Default::default() };
        // What becomes of it is what is counted.
        let _ = service.handler().release_token(release).await;
    }
    let before = Scraped::of(&service).await;
    counters(&before);
    policies(&before);
    agrees(&service, &before).await;
    process(&service, &before);
    forms(&service).await;
    Cli::new(service.url()).ok(&["pause", "policy", "stuck", "--reason", "test"]);
    wait_for("the pause", 10, async || {
        (Scraped::of(&service).await.of_policy("paused", "stuck") > 0.0).then_some(())
    })
    .await;
    service.stop().await;
}

fn counters(scraped: &Scraped) {
    for (series, value) in [
        ("tollgate_deliveries_total{target=\"http\",outcome=\"accepted\"}", 60.0 + 3.0 + 4.0),
        ("tollgate_deliveries_total{target=\"http\",outcome=\"refused\"}", 3.0),
        ("tollgate_deliveries_total{target=\"http\",outcome=\"unclear\"}", 0.0),
        ("tollgate_deliveries_total{target=\"sqs\",outcome=\"accepted\"}", 0.0),
        ("tollgate_delivery_duration_seconds_count{target=\"http\"}", 70.0),
        ("tollgate_lateness_seconds_count{throttled=\"true\"}", 67.0),
        ("tollgate_lateness_seconds_bucket{le=\"+Inf\",throttled=\"true\"}", 67.0),
        ("tollgate_lateness_seconds_count{throttled=\"false\"}", 3.0),
        ("tollgate_events_ended_total{outcome=\"succeeded\"}", 60.0),
        ("tollgate_events_ended_total{outcome=\"lost\"}", 4.0),
        ("tollgate_events_ended_total{outcome=\"dead\"}", 3.0),
        ("tollgate_events_ended_total{outcome=\"expired\"}", 0.0),
        ("tollgate_tokens_reclaimed_total", 4.0),
        ("tollgate_releases_total{answer=\"released\"}", 60.0),
        ("tollgate_releases_total{answer=\"already_released\"}", 1.0),
        ("tollgate_releases_total{answer=\"unknown\"}", 1.0),
        ("tollgate_release_duration_seconds_count", 62.0),
        ("tollgate_trace_spans_total{outcome=\"exported\"}", 0.0),
        ("tollgate_shards_taken_total{from=\"nobody\"}", 64.0),
        ("tollgate_shards_owned", 64.0),
        ("tollgate_shards_silent", 0.0),
        ("tollgate_commit_failures_total{kind=\"failed\"}", 0.0),
        ("tollgate_ready", 1.0),
    ] {
        scraped.is(series, value);
    }
    assert!(scraped.value("tollgate_commit_duration_seconds_count") >= 7.0);
    // Of 60 events under a limit of 5, all but the first five took a token that a release had freed; some may have met
    // one for which nobody waited at that moment: on a slow machine, many.
    let handed_on = scraped.value("tollgate_answer_to_fire_seconds_count");
    assert!((5.0..=60.0).contains(&handed_on), "{handed_on}");
    let mean_s = scraped.value("tollgate_answer_to_fire_seconds_sum") / handed_on;
    assert!(mean_s < 10.0, "{mean_s}");
    // The second two of four silent events started when the first two had lost their tokens.
    let within = |le: &str| {
        scraped.value(&format!("tollgate_lateness_seconds_bucket{{le=\"{le}\",throttled=\"true\"}}"))
    };
    assert!(within("0.0005") <= within("1.0") && within("1.0") < 67.0, "{scraped:?}");
    scraped.is("tollgate_lateness_seconds_bucket{le=\"60.0\",throttled=\"true\"}", 67.0);
    let lag_s = scraped.value("tollgate_emitter_lag_seconds");
    assert!((-361.0..-200.0).contains(&lag_s), "windows are emitted 300 s ahead: {lag_s}");
    assert!(scraped.value("tollgate_windows_opened_total") >= 5.0);
}

fn policies(scraped: &Scraped) {
    for (name, gentle, stuck) in [
        ("in_flight", 0.0, 3.0),
        ("limit", 5.0, 3.0),
        ("waiting", 0.0, 7.0),
        ("suspect", 0.0, 0.0),
        ("paused", 0.0, 0.0),
    ] {
        assert_eq!(
            (scraped.of_policy(name, "gentle"), scraped.of_policy(name, "stuck")),
            (gentle, stuck),
            "{name}"
        );
    }
    let wait_s = scraped.of_policy("oldest_wait_seconds", "stuck");
    assert!((1.0..300.0).contains(&wait_s), "{wait_s}");
    scraped.is("tollgate_policies_left_out", 0.0);
}

/// The status call says the same.
async fn agrees(service: &Service, scraped: &Scraped) {
    let status =
        service.handler().get_handler_status(GetHandlerStatusRequest::default()).await.unwrap().into_inner();
    assert_eq!(status.policies.iter().filter(|gauge| !gauge.policy.is_empty()).count(), 3, "{status:?}");
    for gauge in status.policies.iter().filter(|gauge| !gauge.policy.is_empty()) {
        let id = gauge.policy.rsplit('/').next().unwrap();
        let limit = f64::from(gauge.max_in_flight.unwrap());
        let told = [gauge.held_count as f64, gauge.waiting_count as f64, gauge.suspect_count as f64, limit];
        let shown = ["in_flight", "waiting", "suspect", "limit"].map(|name| scraped.of_policy(name, id));
        assert_eq!(shown, told, "{id}");
    }
}

fn process(service: &Service, scraped: &Scraped) {
    let (resident, real) = (scraped.value("process_resident_memory_bytes"), service.rss_bytes() as f64);
    assert!((0.5..2.0).contains(&(resident / real)), "{resident} of {real}");
    let (cpu_s, real_s) = (scraped.value("process_cpu_seconds_total"), service.cpu().as_secs_f64());
    assert!(cpu_s > 0.0 && cpu_s <= real_s, "{cpu_s} of {real_s}");
    assert!(scraped.value("process_open_fds") > 5.0);
}

/// The same series in both forms.
async fn forms(service: &Service) {
    let openmetrics = page(service, "/metrics", OPENMETRICS).await;
    assert_eq!(openmetrics.kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(openmetrics.body.ends_with("\n# EOF\n"));
    let (modern, classic) = (Scraped::read(&openmetrics.body), Scraped::of(service).await);
    assert_eq!(modern.0.keys().collect::<Vec<_>>(), classic.0.keys().collect::<Vec<_>>());
}

/// Which answer `/readyz` gives, after what it must be.
async fn readiness(service: &Service) -> (u16, Value) {
    let began = Instant::now();
    let page = page(service, "/readyz", "*/*").await;
    assert!(began.elapsed() < ANSWER_MAX, "/readyz took {:?}", began.elapsed());
    assert_eq!(page.kind, "application/json");
    (page.status, serde_json::from_str(&page.body).unwrap())
}

async fn becomes(service: &Service, status: u16) -> Value {
    wait_for(&format!("/readyz {status}"), 40, async || {
        let (found, body) = readiness(service).await;
        (found == status).then_some(body)
    })
    .await
}

/// The database is away: nothing hangs, and everybody is told.
async fn without_database(service: &Service) {
    let body = becomes(service, 503).await;
    assert!(body["ready"] == false && body["notReady"]["store"].is_string(), "{body}");
    // It waits for nothing: each of three would.
    let mut quickest = ANSWER_MAX;
    for _ in 0..3 {
        let began = Instant::now();
        assert_eq!(page(service, "/livez", "*/*").await.status, 200);
        quickest = quickest.min(began.elapsed());
    }
    assert!(quickest < Duration::from_millis(1_900), "/livez took {quickest:?}");
    let began = Instant::now();
    Scraped::of(service).await.is("tollgate_ready", 0.0);
    assert!(began.elapsed() < ANSWER_MAX, "/metrics took {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_follows_the_database() {
    let database = Database::new(Kind::Postgres).await;
    let (proxy, through) = database.behind_a_proxy().await;
    let service = Service::start(&through).await;
    assert_eq!(becomes(&service, 200).await, serde_json::json!({ "ready": true, "notReady": {} }));
    proxy.set(Mode::Reset);
    without_database(&service).await;
    wait_for("a failure that is counted", 30, async || {
        let scraped = Scraped::of(&service).await;
        (scraped.value("tollgate_store_failures_total{role=\"handler\"}") > 0.0).then_some(())
    })
    .await;
    wait_for("a heartbeat that has met it", 30, async || {
        service.log().contains("the heartbeat cannot be written").then_some(())
    })
    .await;
    proxy.set(Mode::Pass);
    becomes(&service, 200).await;
    // 64 shards have met it; the process has said it once, and once that it is over.
    wait_for("the end of it in the log", 20, async || {
        service.log().contains("the store answers again").then_some(())
    })
    .await;
    let log = service.log();
    let lines = log.lines().skip_while(|line| !line.contains("listening on")).skip(1);
    // Whoever asks is answered, each with a line: as often as this test asks.
    let lines: Vec<&str> = lines.filter(|line| !line.contains("tollgate_service::status")).collect();
    assert_eq!(log.matches("the heartbeat cannot be written").count(), 1, "{log}");
    assert!(lines.len() <= 24, "one outage is {} lines: {log}", lines.len());
    proxy.set(Mode::Stall);
    without_database(&service).await;
    proxy.set(Mode::Pass);
    becomes(&service, 200).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_policies_beyond_a_thousand_have_no_series() {
    const POLICIES: usize = 1_003;
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    let documents = (0..POLICIES).map(|at| format!("kind: Policy\nid: p{at}\nmaxInFlight: 1\n---\n"));
    let answer = Cli::new(service.url()).apply(&documents.collect::<String>());
    assert_eq!(answer.code, 0, "{answer:?}");
    for id in ["p7", "p8"] {
        service.create_schedule(id, once(soon(500), 2, id, http(&consumer))).await.unwrap();
    }
    let scraped = wait_for("two policies with work, and all others left out", 30, async || {
        let scraped = Scraped::of(&service).await;
        let left_out = scraped.value("tollgate_policies_left_out");
        ((left_out - (POLICIES - 2) as f64).abs() < 0.5).then_some(scraped)
    })
    .await;
    for name in ["in_flight", "waiting", "oldest_wait_seconds", "suspect", "paused"] {
        // And what runs without a policy.
        assert_eq!(scraped.count(&format!("tollgate_policy_{name}")), 3, "{name}");
    }
    assert_eq!((scraped.of_policy("in_flight", "p7"), scraped.of_policy("waiting", "p8")), (1.0, 1.0));
    service.stop().await;
}

/// Two processes share the shards, a third one only emits: sums are right, and a death shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_process_tells_of_its_own_shards() {
    let database = Database::new(Kind::Postgres).await;
    let one = Service::start(&database).await;
    let two = Service::join(&database, &[]).await;
    let emitter = Service::join(&database, &["--roles", "emitter"]).await;
    let both = async || (Scraped::of(&one).await, Scraped::of(&two).await);
    let sum = |(one, two): &(Scraped, Scraped), series: &str| {
        one.0.get(series).unwrap_or(&0.0) + two.0.get(series).unwrap_or(&0.0)
    };
    let ids = BTreeSet::from([one.status().await.unwrap().handler, two.status().await.unwrap().handler]);
    lasting_shares(&ids, async || one.status().await.unwrap()).await;
    let shares = both().await;
    assert!(shares.0.value("tollgate_shards_owned") > 0.0 && shares.1.value("tollgate_shards_owned") > 0.0);
    assert!((sum(&shares, "tollgate_shards_owned") - 64.0).abs() < 0.5);
    let consumer = Consumer::start(one.link(), Releases::Unary, |_| Conduct::keep()).await;
    for id in ["a", "b", "c", "d"] {
        one.create_policy(id, policy(3)).await.unwrap();
        one.create_schedule(id, once(soon(500), 10, id, http(&consumer))).await.unwrap();
    }
    wait_for("deliveries", 30, async || (consumer.notes.arrivals_count() == 12).then_some(())).await;
    let shares = both().await;
    let of =
        |name: &str, id: &str| format!("tollgate_policy_{name}{{namespace=\"default\",policy=\"{id}\"}}");
    for id in ["a", "b", "c", "d"] {
        for (name, value) in [("in_flight", 3.0), ("limit", 3.0), ("waiting", 7.0)] {
            let found = sum(&shares, &of(name, id));
            assert!((found - value).abs() < 0.5, "{id}: {name} {found}, not {value}");
        }
    }
    becomes(&emitter, 200).await;
    let alone = Scraped::of(&emitter).await;
    assert!(alone.value("tollgate_emitter_lag_seconds") < 0.0);
    assert!(!alone.0.keys().any(|series| series.starts_with("tollgate_policy_")), "{alone:?}");

    let before = shares.0.value("tollgate_shards_owned");
    two.kill9();
    let after = wait_for("the takeover", 30, async || {
        let scraped = Scraped::of(&one).await;
        let is =
            |series: &str, value: f64| scraped.0.get(series).is_some_and(|found| (found - value).abs() < 0.5);
        let whole = is("tollgate_shards_owned", 64.0) && is("tollgate_shards_silent", 0.0);
        // With all that stood in them.
        let read = |id: &&str| is(&of("in_flight", id), 3.0) && is(&of("waiting", id), 7.0);
        (whole && ["a", "b", "c", "d"].iter().all(read)).then_some(scraped)
    })
    .await;
    after.is("tollgate_shards_taken_total{from=\"dead\"}", 64.0 - before);
    emitter.stop().await;
    one.stop().await;
}

/// The names of all families that a process with every role shows, as the older text names them.
pub(crate) async fn names(service: &Service) -> BTreeSet<String> {
    let page = page(service, "/metrics", "text/plain").await;
    let types = page.body.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|rest| rest.split(' ').next().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_chapter_names_every_metric_and_no_other() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    // Those of a process of another kind have a test of their own.
    let (chapter, _) = CHAPTER.split_once("## Metrics of commands").unwrap();
    let rows = chapter.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.filter(|row| !row.starts_with('/'));
    let told: Vec<String> = rows.map(|row| row.split(['`', '{']).next().unwrap().to_owned()).collect();
    let shown = wait_for("an emitter that has looked", 10, async || {
        let names = names(&service).await;
        names.contains("tollgate_emitter_lag_seconds").then_some(names)
    })
    .await;
    assert_eq!(told.iter().cloned().collect::<BTreeSet<_>>(), shown);
    assert_eq!(told.len(), shown.len(), "a metric is told of twice");
    service.stop().await;
}

on_both_stores!(what_happened_is_counted);
