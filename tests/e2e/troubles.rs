//! What is wrong is told, everywhere the same and worst first, as long as it is: targets that refuse or hang, silent
//! consumers, pauses with work behind them, events that ended badly, late emitters, queue shards without an owner,
//! processes and databases that are silent.

mod kinds;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tollgate_harness::proxy::Mode;
use tollgate_harness::resources::{
    PARENT, every, http, ms, once, policy, policy_name, schedule_name, soon, us,
};
use tollgate_harness::{
    Cli, Conduct, Consumer, Database, Kind, Releases, SECRET, Service, free_port, now_us, wait_for,
};
use tollgate_proto::v1::target::Target as Place;
use tollgate_proto::v1::{
    ExplainEventRequest, HttpTarget, ListTroublesRequest, ListTroublesResponse, PauseDispatchRequest,
    PausePolicyRequest, Policy, ReasonCode, Reclaim, ReleaseOutcome, ReleaseTokenRequest,
    ResumeDispatchRequest, ResumePolicyRequest, RetryDeadEventsRequest, RetryPolicy, Schedule, Target,
    Trouble, TroubleKind, TroubleSeverity,
};
use tonic::Code;

use crate::metrics::page;

async fn listed(service: &Service, filter: &str) -> ListTroublesResponse {
    let request = ListTroublesRequest { filter: filter.to_owned(), ..ListTroublesRequest::default() };
    service.handler().list_troubles(request).await.unwrap().into_inner()
}

async fn all(service: &Service) -> Vec<Trouble> {
    listed(service, "").await.troubles
}

/// Waits until there is a trouble of this kind that looks as wanted.
async fn seen(service: &Service, kind: TroubleKind, wanted: impl Fn(&Trouble) -> bool) -> Trouble {
    let mut last = Vec::new();
    let end = now_us() + 90_000_000;
    loop {
        last.extend(all(service).await.into_iter().filter(|trouble| trouble.kind() == kind));
        if let Some(at) = last.iter().position(&wanted) {
            return last.swap_remove(at);
        }
        assert!(now_us() < end, "{kind:?}: not within 90 s, only {last:?}");
        last.clear();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until nothing is wrong any more.
async fn well_again(service: &Service) {
    wait_for("no troubles", 40, async || {
        let found = listed(service, "").await;
        (found.total_size == 0 && !found.incomplete).then_some(())
    })
    .await;
}

fn to_url(url: &str) -> Target {
    let http = HttpTarget { url: url.to_owned(), secret: SECRET.to_owned(), ..HttpTarget::default() };
    Target { target: Some(Place::Http(http)), ..Target::default() }
}

/// Tries quickly, and for long.
fn patient() -> Option<RetryPolicy> {
    Some(RetryPolicy {
        max_attempts: Some(1_000),
        min_backoff: Some(ms(200)),
        max_backoff: Some(ms(1_000)),
        ..RetryPolicy::default()
    })
}

async fn scraped(service: &Service, kind: &str) -> f64 {
    let text = page(service, "/metrics", "text/plain").await.body;
    let series = format!("tollgate_troubles{{kind=\"{kind}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap()
}

async fn a_target_that_refuses_everything_is_told_everywhere(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    well_again(&service).await;
    let cli = Cli::new(service.url());
    assert!(cli.ok(&["status"]).starts_with("no troubles\n"));
    let host = format!("http://127.0.0.1:{}", free_port().unwrap());
    service.create_policy("p", policy(3)).await.unwrap();
    let began_us = now_us();
    let schedule = once(soon(1_500), 40, "p", to_url(&format!("{host}/work?key=hidden")));
    service.create_schedule("nightly", Schedule { retry: patient(), ..schedule }).await.unwrap();
    let found = seen(&service, TroubleKind::TargetRefuses, |found| found.waiting_count >= 30).await;
    assert_eq!(found.severity(), TroubleSeverity::Critical, "{found:?}");
    assert_eq!((found.schedule, found.policy), (schedule_name("nightly"), policy_name("p")));
    assert_eq!(found.target, host, "without what may be secret");
    assert!(found.message.to_lowercase().contains("refused"), "{}", found.message);
    let since_us = us(found.since_time);
    assert!((began_us - 2_000_000..now_us()).contains(&since_us), "since {since_us}, began {began_us}");
    assert!(us(found.oldest_launch_time) <= since_us);
    let gauge = service.status().await.unwrap().policies.remove(0);
    let waited = gauge.oldest_wait.unwrap();
    assert!(i64::from(waited.nanos) / 1_000 + waited.seconds * 1_000_000 > 1_000, "{gauge:?}");
    assert!(gauge.refused_per_second > 0.0 && gauge.retrying_count > 0, "{gauge:?}");
    assert_eq!((gauge.started_per_second, gauge.accepted_per_second), (0.0, 0.0), "a refused start is none");
    assert!(gauge.last_error.to_lowercase().contains("refused"), "{gauge:?}");
    let never = format!("never, while {host} refuses everything");
    assert_eq!((gauge.no_expected_drain_reason, gauge.expected_drain_time), (never, None));
    let run = service.first_run("nightly").await;
    let (said, freed_by) = wait_for("an event that says what its target says", 20, async || {
        let name = service.events(&run.name).await.pop()?.name;
        let why = service.handler().explain_event(ExplainEventRequest { name }).await.ok()?.into_inner();
        let said = why.reasons.into_iter().find(|reason| reason.code() == ReasonCode::TargetRefuses)?;
        // While an attempt is under way, it says no more than that.
        said.message.contains("; the next attempt is due").then_some((said.message, why.freed_by))
    })
    .await;
    let says = format!("its target {host} refuses: ");
    assert!(said.starts_with(&says), "{said}");
    assert!(freed_by.starts_with(&host), "{freed_by}");
    assert_eq!(scraped(&service, "target_refuses").await, 1.0);
    assert_eq!(scraped(&service, "policy_paused").await, 0.0);
    let text = cli.ok(&["status"]);
    let head = format!("CRITICAL: {host} refuses the events of nightly (");
    assert!(text.starts_with(&head) && text.contains(", began "), "{text}");
    let text = cli.ok(&["troubles", "--filter", "kind=target_refuses AND schedule=nightly"]);
    assert!(text.starts_with(&head) && text.contains("`tollgate pause schedule nightly`"), "{text}");
    assert_eq!(cli.ok(&["troubles", "-n", "other"]), "no troubles\n");
    let now = page(&service, "/n/default", "text/html").await.body;
    assert!(now.contains("1 trouble, worst first") && now.contains("refuses the events of nightly"), "{now}");
    for path in ["/v1/troubles?filter=severity%3DCRITICAL", "/v1/namespaces/default/troubles"] {
        let answer = page(&service, path, "application/json").await;
        assert!(
            answer.status == 200 && answer.body.contains("TROUBLE_KIND_TARGET_REFUSES"),
            "{}",
            answer.body
        );
    }
    let answer = page(&service, "/v1/namespaces/other/troubles", "application/json").await;
    assert!(answer.status == 200 && !answer.body.contains("TROUBLE_KIND"), "{}", answer.body);
    service.stop().await;
}

/// It is seen from the first moment of the next process, and ends when the target is well.
async fn a_target_s_trouble_outlives_its_process_and_ends_with_its_cause(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let is_well = Arc::new(AtomicBool::new(false));
    let script = is_well.clone();
    let consumer = Consumer::start(service.link(), Releases::Unary, move |_| {
        if script.load(Ordering::SeqCst) { Conduct::Answer(200) } else { Conduct::Answer(500) }
    })
    .await;
    let target = Target { release: tollgate_proto::v1::ReleaseMode::OnResponse.into(), ..http(&consumer) };
    let slow = Some(RetryPolicy {
        min_backoff: Some(ms(8_000)),
        max_backoff: Some(ms(8_000)),
        ..patient().unwrap()
    });
    service.create_policy("p", policy(3)).await.unwrap();
    let schedule = once(soon(1_500), 20, "p", target);
    service.create_schedule("s", Schedule { retry: slow, ..schedule }).await.unwrap();
    let before = seen(&service, TroubleKind::TargetRefuses, |found| found.message.contains("500")).await;
    service.kill9();
    let service = Service::start(&database).await;
    let after = seen(&service, TroubleKind::TargetRefuses, |_| true).await;
    assert_eq!((&after.since_time, &after.schedule), (&before.since_time, &before.schedule));
    is_well.store(true, Ordering::SeqCst);
    service.finished("s", 60).await;
    well_again(&service).await;
    service.stop().await;
}

async fn a_target_that_hangs_is_told(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::Hang).await;
    service.create_policy("p", policy(2)).await.unwrap();
    let Some(Place::Http(target)) = http(&consumer).target else { unreachable!() };
    let target = Target {
        target: Some(Place::Http(HttpTarget { deadline: Some(ms(1_000)), ..target })),
        ..Target::default()
    };
    let schedule = Schedule { retry: patient(), ..once(soon(1_500), 9, "p", target) };
    service.create_schedule("s", schedule).await.unwrap();
    // Between two attempts it is told of fewer.
    let whole = |found: &Trouble| (found.waiting_count, found.affected_count) == (7, 2);
    let found = seen(&service, TroubleKind::TargetSilent, whole).await;
    assert_eq!(found.severity(), TroubleSeverity::Critical, "{found:?}");
    assert_eq!(found.schedule, schedule_name("s"), "{found:?}");
    assert!(!found.message.is_empty() && found.summary.contains("does not answer"), "{found:?}");
    service.stop().await;
}

async fn silent_consumers_are_told_with_what_waits_for_them(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    let limits = Policy { token_ttl: Some(ms(1_000)), reclaim: Reclaim::Never.into(), ..policy(2) };
    service.create_policy("p", limits).await.unwrap();
    service.create_schedule("s", once(soon(1_500), 5, "p", http(&consumer))).await.unwrap();
    let found = seen(&service, TroubleKind::TokensSilent, |found| found.affected_count == 2).await;
    assert_eq!((found.severity(), found.waiting_count), (TroubleSeverity::Critical, 3), "{found:?}");
    assert_eq!((found.policy, found.schedule), (policy_name("p"), String::new()));
    assert!(found.what_to_do.contains("consumers of s "), "{}", found.what_to_do);
    let heard_us = us(found.since_time);
    let arrived_us = consumer.notes.arrivals()[0].arrived_us;
    assert!((heard_us - arrived_us).abs() < 5_000_000, "heard of at {heard_us}, arrived at {arrived_us}");
    service.stop().await;
}

async fn a_pause_is_told_while_work_waits_behind_it(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..5)).await;
    service.create_policy("p", policy(2)).await.unwrap();
    let (name, reason) = (policy_name("p"), "disk full on b7".to_owned());
    let pause = PausePolicyRequest { name: name.clone(), reason: reason.clone(), ..Default::default() };
    service.master().pause_policy(pause).await.unwrap();
    service.handler().pause_dispatch(PauseDispatchRequest { reason: "unknown".to_owned() }).await.unwrap();
    // Nothing waits.
    well_again(&service).await;
    service.create_schedule("s", once(soon(1_500), 5, "p", http(&consumer))).await.unwrap();
    let dispatch = seen(&service, TroubleKind::DispatchPaused, |found| found.waiting_count == 5).await;
    assert!(dispatch.summary.ends_with("unknown"), "{dispatch:?}");
    let found = seen(&service, TroubleKind::PolicyPaused, |found| found.waiting_count == 5).await;
    assert!(found.policy == name && found.message.ends_with(&reason), "{found:?}");
    let kinds: Vec<TroubleKind> = all(&service).await.iter().map(Trouble::kind).collect();
    assert_eq!(kinds, [TroubleKind::DispatchPaused, TroubleKind::PolicyPaused], "worst first");
    let request = ListTroublesRequest { page_size: 1, ..ListTroublesRequest::default() };
    let first = service.handler().list_troubles(request.clone()).await.unwrap().into_inner();
    let request = ListTroublesRequest { page_token: first.next_page_token, ..request };
    let second = service.handler().list_troubles(request).await.unwrap().into_inner();
    assert_eq!((first.troubles[0].kind(), second.troubles[0].kind()), (kinds[0], kinds[1]));
    assert_eq!((first.total_size, second.next_page_token.as_str()), (2, ""));
    service.handler().resume_dispatch(ResumeDispatchRequest {}).await.unwrap();
    service.master().resume_policy(ResumePolicyRequest { name, ..Default::default() }).await.unwrap();
    service.finished("s", 20).await;
    well_again(&service).await;
    service.stop().await;
}

async fn events_that_ended_badly_are_told_until_they_are_retried(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let is_well = Arc::new(AtomicBool::new(false));
    let script = is_well.clone();
    let consumer = Consumer::start(service.link(), Releases::Unary, move |arrival| {
        match (arrival.schedule.as_str(), script.load(Ordering::SeqCst)) {
            (_, true) => Conduct::work(0..5),
            ("dying", _) => Conduct::Answer(500),
            ("failing", _) => Conduct::release(ReleaseTokenRequest {
                outcome: ReleaseOutcome::Failed.into(),
                message: format!("no row for {}", arrival.event_id),
                ..ReleaseTokenRequest::default()
            }),
            _ => Conduct::keep(),
        }
    })
    .await;
    for id in ["dying", "failing", "late"] {
        service.create_policy(id, policy(2)).await.unwrap();
        let (retry, finish_by) = match id {
            "dying" => (Some(RetryPolicy { max_attempts: Some(1), ..RetryPolicy::default() }), None),
            "late" => (None, Some(ms(6_000))),
            _ => (None, None),
        };
        let schedule = Schedule { retry, finish_by, ..once(soon(1_500), 6, id, http(&consumer)) };
        service.create_schedule(id, schedule).await.unwrap();
    }
    let of = |id: &str, count: u64| {
        let name = schedule_name(id);
        move |found: &Trouble| found.schedule == name && found.affected_count == count
    };
    let dead = seen(&service, TroubleKind::EventsFailed, of("dying", 6)).await;
    assert!(dead.message.contains("500") && dead.runs_count == 1, "{dead:?}");
    let failed = seen(&service, TroubleKind::EventsFailed, of("failing", 6)).await;
    let ids = consumer.notes.attempts();
    assert!(failed.message.starts_with("no row for ") && failed.message.len() > 40, "{failed:?}");
    assert!(!ids.keys().any(|id| failed.message.contains(id)), "an event's token is shown: {failed:?}");
    // The run goes on: two of its events are at their consumers.
    seen(&service, TroubleKind::EventsExpired, of("late", 4)).await;
    assert_eq!(listed(&service, "policy=dying AND severity=WARNING").await.total_size, 1);
    service.stop().await;
    let service = Service::start(&database).await;
    let again = seen(&service, TroubleKind::EventsFailed, of("dying", 6)).await;
    assert_eq!((&again.message, &again.policy), (&dead.message, &policy_name("dying")));
    is_well.store(true, Ordering::SeqCst);
    let run = service.runs("dying").await.remove(0);
    let retry = RetryDeadEventsRequest { parent: run.name.clone(), ..RetryDeadEventsRequest::default() };
    service.handler().retry_dead_events(retry).await.unwrap();
    wait_for("no trouble with what was retried", 40, async || {
        (listed(&service, "schedule=dying").await.total_size == 0).then_some(())
    })
    .await;
    assert_eq!(listed(&service, "schedule=failing").await.total_size, 1);
    service.stop().await;
}

async fn late_emitters_are_told(kind: Kind) {
    let database = Database::new(kind).await;
    let short = ["--window", "1s", "--ahead", "2s"];
    let service = Service::start_with(&database, &short).await;
    wait_for("a window", 20, async || (database.count("scan_windows").await > 0).then_some(())).await;
    service.stop().await;
    let flags = [&short[..], &["--roles", "master,handler"]].concat();
    let service = Service::start_with(&database, &flags).await;
    let found = seen(&service, TroubleKind::EmitterBehind, |_| true).await;
    assert!(us(found.since_time) + 5_000_000 <= now_us(), "{found:?}");
    assert_eq!(scraped(&service, "emitter_behind").await, 1.0);
    service.stop().await;
    let service = Service::start_with(&database, &short).await;
    well_again(&service).await;
    service.stop().await;
}

async fn triggers_that_were_missed_are_told(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(2)).await.unwrap();
    service
        .create_schedule("often", once(soon(3_600_000), 1, "p", to_url("http://127.0.0.1:1/")))
        .await
        .unwrap();
    // As the emitter records it after an outage of more than a minute.
    let hour_us = now_us() - 3_600_000_000;
    for (launch_us, reason) in [(hour_us, "MISSED"), (hour_us + 1, "MISSED"), (hour_us + 2, "PAUSED")] {
        let row =
            format!("SELECT uid, {launch_us}, '{reason}', {} FROM schedules WHERE id = 'often'", now_us());
        database
            .sql(&format!(
                "INSERT INTO skipped_triggers (schedule_uid, launch_us, reason, recorded_us) {row}"
            ))
            .await;
    }
    let found = seen(&service, TroubleKind::TriggersMissed, |_| true).await;
    assert_eq!((found.schedule, found.policy), (schedule_name("often"), policy_name("p")));
    assert_eq!((found.affected_count, us(found.since_time)), (2, hour_us));
    assert_eq!(found.summary, "often missed 2 triggers in an outage");
    assert_eq!(scraped(&service, "triggers_missed").await, 1.0);
    let text = Cli::new(service.url()).ok(&["history", "often"]);
    assert!(text.to_lowercase().contains("missed"), "what to do leads there: {text}");
    service.stop().await;
}

async fn queue_shards_without_an_owner_are_told(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let found = wait_for("queue shards without an owner", 40, async || {
        // Its owner takes it again as soon as it looks.
        database.sql("UPDATE queue_shards SET owner = '' WHERE shard_id IN (7, 9)").await;
        all(&service).await.into_iter().find(|found| found.kind() == TroubleKind::ShardsWithoutOwner)
    })
    .await;
    assert_eq!(found.severity(), TroubleSeverity::Critical);
    assert!((1..=2).contains(&found.affected_count), "{found:?}");
    well_again(&service).await;
    service.stop().await;
}

async fn what_is_asked_wrongly_is_refused(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    for filter in ["kind=EVERYTHING", "severity=BAD", "colour=red", "policy=namespaces/a/schedules/x"] {
        let request = ListTroublesRequest { filter: filter.to_owned(), ..ListTroublesRequest::default() };
        let refused = service.handler().list_troubles(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{filter}: {refused}");
    }
    let request = ListTroublesRequest {
        parent: PARENT.to_owned(),
        filter: "policy=namespaces/other/policies/x".to_owned(),
        ..ListTroublesRequest::default()
    };
    assert_eq!(service.handler().list_troubles(request).await.unwrap_err().code(), Code::InvalidArgument);
    service.stop().await;
}

on_both_stores!(
    a_target_that_refuses_everything_is_told_everywhere,
    a_target_s_trouble_outlives_its_process_and_ends_with_its_cause,
    a_target_that_hangs_is_told,
    silent_consumers_are_told_with_what_waits_for_them,
    a_pause_is_told_while_work_waits_behind_it,
    events_that_ended_badly_are_told_until_they_are_retried,
    late_emitters_are_told,
    triggers_that_were_missed_are_told,
    queue_shards_without_an_owner_are_told,
    what_is_asked_wrongly_is_refused,
);

/// Whoever is asked tells of all processes; one that is frozen is a trouble itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_answers_for_all_and_says_which_is_silent() {
    let database = Database::new(Kind::Postgres).await;
    let (first, second) = (Service::start(&database).await, Service::join(&database, &[]).await);
    wait_for("shards of both", 40, async || {
        let status = first.status().await.ok()?;
        let owned = status.shards.iter().filter(|shard| shard.owner == status.handler).count();
        (owned > 0 && owned < status.shards.len()).then_some(())
    })
    .await;
    let closed = to_url(&format!("http://127.0.0.1:{}/", free_port().unwrap()));
    const POLICIES: usize = 12;
    for at in 0..POLICIES {
        let id = format!("p{at}");
        first.create_policy(&id, policy(1)).await.unwrap();
        let schedule = Schedule { retry: patient(), ..once(soon(1_500), 2, &id, closed.clone()) };
        first.create_schedule(&id, schedule).await.unwrap();
    }
    let refusals = async |service: &Service| {
        let found = listed(service, "kind=TARGET_REFUSES").await;
        (found.total_size as usize == POLICIES).then_some(())
    };
    wait_for("all troubles from the one", 40, async || refusals(&first).await).await;
    wait_for("all troubles from the other", 40, async || refusals(&second).await).await;
    wait_for("each trouble counted once by the metrics", 40, async || {
        let counts = [scraped(&first, "target_refuses").await, scraped(&second, "target_refuses").await];
        (counts.iter().sum::<f64>() == POLICIES as f64 && counts.iter().all(|count| *count > 0.0))
            .then_some(())
    })
    .await;
    let frozen = second.status().await.unwrap().handler;
    second.freeze();
    let found = seen(&first, TroubleKind::HandlerSilent, |_| true).await;
    assert_eq!((found.process.as_str(), found.severity()), (frozen.as_str(), TroubleSeverity::Critical));
    assert!(found.affected_count > 0, "{found:?}");
    wait_for("all that the frozen one had, told by who has it now", 40, async || refusals(&first).await)
        .await;
    second.thaw();
    drop(second);
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_slow_is_told() {
    let database = Database::new(Kind::Postgres).await;
    let (proxy, through) = database.behind_a_proxy().await;
    let service = Service::start_with(&through, &["--lease-ttl", "20s"]).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..5)).await;
    service.create_policy("p", policy(2)).await.unwrap();
    service.create_schedule("often", every(1, soon(1_500), 1, "p", http(&consumer))).await.unwrap();
    wait_for("a run", 20, async || service.runs("often").await.pop()).await;
    proxy.set(Mode::Late(Duration::from_millis(600)));
    let found = seen(&service, TroubleKind::StoreSlow, |_| true).await;
    assert_eq!(found.process, service.status().await.unwrap().handler, "{found:?}");
    assert!(found.affected_count >= 3 && found.message.contains(" took longer than a second"), "{found:?}");
    proxy.set(Mode::Pass);
    service.stop().await;
}

/// The list comes all the same, and soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_silent_is_told() {
    let database = Database::new(Kind::Postgres).await;
    let (proxy, through) = database.behind_a_proxy().await;
    let service = Service::start(&through).await;
    proxy.set(Mode::Stall);
    let asked = Instant::now();
    let found = all(&service).await;
    assert!(asked.elapsed() < Duration::from_secs(15), "after {:?}", asked.elapsed());
    assert_eq!(found[0].kind(), TroubleKind::StoreFails, "{found:?}");
    assert_eq!(scraped(&service, "store_fails").await, 1.0);
    proxy.set(Mode::Pass);
    well_again(&service).await;
    service.stop().await;
}
