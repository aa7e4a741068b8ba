//! Whether it will finish, and how it did: expected ends, deadlines at risk, runs that finished with failures.

use tollgate_harness::resources::{PARENT, http, ms, once, policy, policy_name, schedule_name, soon, us};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, SECRET, Service, now_us, wait_for};
use tollgate_proto::v1::target::Target as Place;
use tollgate_proto::v1::{
    EventState, ExplainEventRequest, GetHandlerStatusRequest, GetPolicyQueueRequest, HttpTarget,
    ListRunsRequest, ListTroublesRequest, PausePolicyRequest, ReasonCode, ResumePolicyRequest, RetryPolicy,
    Run, RunState, Schedule, Target, Trouble, TroubleKind, TroubleSeverity,
};

use crate::metrics::page;

async fn at_risk(service: &Service) -> Vec<Trouble> {
    let filter = "kind=DEADLINE_AT_RISK".to_owned();
    let request = ListTroublesRequest { filter, ..ListTroublesRequest::default() };
    service.handler().list_troubles(request).await.unwrap().into_inner().troubles
}

async fn of_policy(service: &Service, series: &str) -> f64 {
    let text = page(service, "/metrics", "text/plain").await.body;
    let series = format!("tollgate_policy_{series}{{namespace=\"default\",policy=\"p\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap()
}

/// 100 events of 200 ms each, two at a time: ten seconds. Said while it goes on, and right when it has ended.
async fn a_run_says_when_it_will_end(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(200..201)).await;
    service.create_policy("p", policy(2)).await.unwrap();
    service.create_schedule("s", once(soon(1_500), 100, "p", http(&consumer))).await.unwrap();
    let (run, asked_us) = wait_for("a run that is half done", 40, async || {
        let run = service.runs("s").await.pop()?;
        (run.counts.unwrap().succeeded >= 50).then(|| (run, now_us()))
    })
    .await;
    assert_eq!((run.no_expected_finish_reason.as_str(), run.at_risk_count), ("", 0), "{run:?}");
    let expected_us = us(run.expected_finish_time) - asked_us;
    let gauge = service.status().await.unwrap().policies.remove(0);
    assert!(
        us(gauge.expected_drain_time) > asked_us && gauge.no_expected_drain_reason.is_empty(),
        "{gauge:?}"
    );
    assert!(gauge.started_per_second > 0.0 && gauge.accepted_per_second >= gauge.started_per_second);
    let ended = service.finished("s", 40).await;
    let actual_us = us(ended.finish_time) - asked_us;
    let off_us = (expected_us - actual_us).abs();
    assert!(off_us < actual_us / 2 + 1_000_000, "expected {expected_us} us, it took {actual_us} us");
    assert_eq!((ended.state(), ended.expected_finish_time), (RunState::Finished, None));
    service.stop().await;
}

/// What runs without a policy is one line for all namespaces; whose target it is, and what it says, is not for one.
async fn what_a_target_says_is_not_told_to_other_namespaces(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let url = format!("http://127.0.0.1:{}/", tollgate_harness::free_port().unwrap());
    let closed = HttpTarget { url, secret: SECRET.to_owned(), ..HttpTarget::default() };
    let target = Target { target: Some(Place::Http(closed)), ..Target::default() };
    service.create_schedule("s", once(soon(500), 3, "", target)).await.unwrap();
    let unthrottled = async |parent: &str| {
        let request = GetHandlerStatusRequest { parent: parent.to_owned(), busy_only: true };
        let status = service.handler().get_handler_status(request).await.unwrap().into_inner();
        status.policies.into_iter().find(|gauge| gauge.policy.is_empty() && gauge.retrying_count > 0)
    };
    wait_for("the words of the target, for those who reach all", 40, async || {
        let gauge = unthrottled("").await?;
        (gauge.last_error.contains("refused") && gauge.no_expected_drain_reason.contains("127.0.0.1"))
            .then_some(())
    })
    .await;
    let gauge = wait_for("the same for others", 40, async || unthrottled("namespaces/other").await).await;
    let told = (gauge.last_error.as_str(), gauge.last_error_time, gauge.no_expected_drain_reason.as_str());
    assert_eq!(told, ("", None, ""));
    service.stop().await;
}

/// A paused policy: at once. When it goes on, it is over.
async fn a_deadline_is_at_risk_as_soon_as_nothing_starts(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..5)).await;
    service.create_policy("p", policy(2)).await.unwrap();
    let (name, reason) = (policy_name("p"), "disk full".to_owned());
    service
        .master()
        .pause_policy(PausePolicyRequest { name: name.clone(), reason, ..Default::default() })
        .await
        .unwrap();
    let schedule = Schedule { finish_by: Some(ms(3_600_000)), ..once(soon(1_500), 9, "p", http(&consumer)) };
    service.create_schedule("s", schedule).await.unwrap();
    let found = wait_for("a deadline at risk", 40, async || at_risk(&service).await.pop()).await;
    assert_eq!((found.kind(), found.severity()), (TroubleKind::DeadlineAtRisk, TroubleSeverity::Critical));
    assert_eq!((&found.schedule, &found.policy), (&schedule_name("s"), &name));
    assert_eq!((found.affected_count, found.runs_count), (9, 1), "{found:?}");
    let why = "never, while the policy p is paused";
    assert!(
        found.summary.contains("9 events in 1 run of s will not start in time") && found.message == why,
        "{found:?}"
    );
    let run = service.first_run("s").await;
    assert_eq!((run.no_expected_finish_reason.as_str(), run.at_risk_count), (why, 9), "{run:?}");
    let gauge = service.status().await.unwrap().policies.remove(0);
    assert_eq!((gauge.no_expected_drain_reason.as_str(), gauge.at_risk_runs_count), (why, 1), "{gauge:?}");
    assert_eq!(of_policy(&service, "runs_at_risk").await, 1.0);
    let request = GetPolicyQueueRequest { name: name.clone(), ..GetPolicyQueueRequest::default() };
    let queue = service.handler().get_policy_queue(request).await.unwrap().into_inner();
    assert_eq!(queue.waiters[0].at_risk_count, 9, "{queue:?}");
    service.master().resume_policy(ResumePolicyRequest { name, ..Default::default() }).await.unwrap();
    service.finished("s", 30).await;
    wait_for("no deadline at risk", 30, async || at_risk(&service).await.is_empty().then_some(())).await;
    service.stop().await;
}

async fn listed(service: &Service, filter: &str) -> Vec<Run> {
    let request = ListRunsRequest {
        parent: PARENT.to_owned(),
        filter: filter.to_owned(),
        ..ListRunsRequest::default()
    };
    service.handler().list_runs(request).await.unwrap().into_inner().runs
}

/// It has a state of its own, is found by it, and says how to go on.
async fn a_run_that_ended_badly_is_not_just_finished(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer =
        Consumer::start(service.link(), Releases::Unary, |arrival| match arrival.schedule.as_str() {
            "dying" => Conduct::Answer(500),
            _ => Conduct::work(0..5),
        })
        .await;
    service.create_policy("p", policy(2)).await.unwrap();
    for id in ["dying", "well"] {
        let retry = Some(RetryPolicy { max_attempts: Some(1), ..RetryPolicy::default() });
        let schedule = Schedule { retry, ..once(soon(1_500), 3, "p", http(&consumer)) };
        service.create_schedule(id, schedule).await.unwrap();
    }
    let (dying, well) = (service.finished("dying", 40).await, service.finished("well", 40).await);
    assert_eq!((dying.state(), well.state()), (RunState::FinishedWithFailures, RunState::Finished));
    for (filter, expected) in [
        ("state=FINISHED_WITH_FAILURES", vec![&dying.name]),
        ("state=FINISHED", vec![&well.name]),
        ("schedule=dying AND state=FINISHED_WITH_FAILURES", vec![&dying.name]),
        ("schedule=dying AND state=FINISHED", vec![]),
        ("state=RUNNING", vec![]),
    ] {
        let found = listed(&service, filter).await;
        assert_eq!(found.iter().map(|run| &run.name).collect::<Vec<_>>(), expected, "{filter}");
    }
    let dead = service.events(&dying.name).await.remove(0);
    assert_eq!(dead.state(), EventState::Dead);
    let request = ExplainEventRequest { name: dead.name.clone() };
    let why = service.handler().explain_event(request).await.unwrap().into_inner();
    assert_eq!(why.reasons[0].code(), ReasonCode::Ended);
    assert!(
        why.summary.contains("it has ended as DEAD after 1 attempt: ") && why.summary.contains("500"),
        "{why:?}"
    );
    let short = |name: &str| name.rsplit('/').next().unwrap().to_owned();
    let retry = format!("`tollgate retry {} {}`", short(&dying.name), short(&dead.name));
    assert!(why.freed_by.contains(&retry), "{}", why.freed_by);
    service.stop().await;
}

on_both_stores!(
    what_a_target_says_is_not_told_to_other_namespaces,
    a_run_says_when_it_will_end,
    a_deadline_is_at_risk_as_soon_as_nothing_starts,
    a_run_that_ended_badly_is_not_just_finished,
);
