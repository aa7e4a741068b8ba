//! What went wrong is listed over all runs, grouped by what was said, tried again in steps, and closed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_harness::resources::{PARENT, http, ms, once, policy, schedule_name, soon, us};
use tollgate_harness::{
    Arrival, Cli, Conduct, Consumer, Database, Kind, Link, Releases, Service, now_us, wait_for,
};
use tollgate_proto::v1::{
    CloseFailuresRequest, CreateScheduleRequest, Event, EventState, FailureGroup, ListEventsRequest,
    ListFailuresRequest, ListFailuresResponse, ReleaseMode, ReleaseOutcome, ReleaseTokenRequest,
    RetryFailuresRequest, RetryPolicy, RunState, Schedule, Target,
};
use tonic::Code;

use crate::console::Browser;
use crate::metrics::page;
use crate::security::{handler, key, master};

/// Events of a run; some of three kinds of failures each.
const EVENTS: u32 = 40;
/// Of how many the schedule `many` has.
const MANY: u32 = 2_300;

fn released(outcome: ReleaseOutcome, message: String) -> Conduct {
    Conduct::release(ReleaseTokenRequest {
        outcome: outcome.into(),
        message,
        ..ReleaseTokenRequest::default()
    })
}

/// Of four events one is locked out, one is of an unknown customer, one fails for good, and one goes well.
fn conduct(arrival: &Arrival) -> Conduct {
    let index = arrival.index;
    match index % 4 {
        0 => released(
            ReleaseOutcome::Retry,
            format!("HTTP 503: row {} is locked by {}", 1_000 + index, arrival.event_id),
        ),
        1 => released(ReleaseOutcome::Retry, format!("customer c-{index}{index}7 is unknown")),
        2 => released(ReleaseOutcome::Failed, format!("no file of {index} bytes")),
        _ => Conduct::work(0..2),
    }
}

struct World {
    database: Database,
    service: Service,
    consumer: Consumer,
    link: Link,
    is_well: Arc<AtomicBool>,
}

async fn world(kind: Kind, conduct: impl Fn(&Arrival) -> Conduct + Send + Sync + 'static) -> World {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let is_well = Arc::new(AtomicBool::new(false));
    let script = is_well.clone();
    let link = service.link();
    let consumer = Consumer::start(link.clone(), Releases::Unary, move |arrival| {
        if script.load(Ordering::SeqCst) { Conduct::work(0..2) } else { conduct(arrival) }
    })
    .await;
    service.create_policy("p", policy(50)).await.unwrap();
    World { database, service, consumer, link, is_well }
}

impl World {
    async fn run_to_its_end(&self, schedule: &str, events: u32) {
        let retry =
            RetryPolicy { max_attempts: Some(1), min_backoff: Some(ms(100)), ..RetryPolicy::default() };
        let made = once(soon(1_000), events, "p", http(&self.consumer));
        self.service.create_schedule(schedule, Schedule { retry: Some(retry), ..made }).await.unwrap();
        let run = self.service.finished(schedule, 120).await;
        assert_eq!(run.state(), RunState::FinishedWithFailures, "{run:?}");
    }
}

async fn groups(service: &Service, filter: &str) -> ListFailuresResponse {
    let (parent, filter) = (PARENT.to_owned(), filter.to_owned());
    let request = ListFailuresRequest { parent, filter, page_size: 0 };
    service.handler().list_failures(request).await.unwrap().into_inner()
}

/// All pages, each of this size at most.
async fn pages(service: &Service, filter: &str, page_size: i32) -> Vec<Event> {
    let mut request = ListEventsRequest {
        parent: PARENT.to_owned(),
        filter: filter.to_owned(),
        page_size,
        ..ListEventsRequest::default()
    };
    let mut events = Vec::new();
    loop {
        let page = service.handler().list_events(request.clone()).await.unwrap().into_inner();
        assert!(page.events.len() <= usize::try_from(page_size).unwrap());
        events.extend(page.events);
        if page.next_page_token.is_empty() {
            return events;
        }
        assert_ne!(page.next_page_token, request.page_token, "it goes on where it began");
        request.page_token = page.next_page_token;
    }
}

fn shown(group: &FailureGroup) -> (EventState, &str, u64) {
    (group.state(), group.reason.as_str(), group.count)
}

async fn failures_of_all_runs_are_grouped_and_listed(kind: Kind) {
    let world = world(kind, conduct).await;
    let service = &world.service;
    assert_eq!(groups(service, "").await, ListFailuresResponse::default());
    for schedule in ["one", "two", "three"] {
        world.run_to_its_end(schedule, EVENTS).await;
    }
    groups_are_right(&world).await;
    pages_are_complete(service).await;
    for path in
        ["/v1/namespaces/default/failures?filter=state%3DDEAD", "/v1/namespaces/default/events?pageSize=3"]
    {
        let answer = page(service, path, "application/json").await;
        assert!(answer.status == 200 && answer.body.contains("EVENT_STATE_DEAD"), "{}", answer.body);
    }
    world.service.stop().await;
}

const OF_A_SORT: u64 = EVENTS as u64 / 4;
const LOCKED: &str = "HTTP 503: row … is locked by …";

async fn groups_are_right(world: &World) {
    let service = &world.service;
    let found = groups(service, "").await;
    assert!(!found.truncated);
    let mut all: Vec<_> = found.groups.iter().map(shown).collect();
    all.sort_by_key(|(_, reason, _)| (*reason).to_owned());
    let (dead, failed) = (EventState::Dead, EventState::Failed);
    let expected = [
        (dead, LOCKED, 3 * OF_A_SORT),
        (dead, "customer c-… is unknown", 3 * OF_A_SORT),
        (failed, "no file of … bytes", 3 * OF_A_SORT),
    ];
    assert_eq!(all, expected);
    let group = found.groups.iter().find(|group| group.reason == LOCKED).unwrap();
    assert_eq!((group.schedules.len(), group.runs_count), (3, 3), "{group:?}");
    assert!(us(group.first_time) < us(group.last_time) && us(group.last_time) <= now_us(), "{group:?}");
    assert!(group.example_message.starts_with("HTTP 503: row 10"), "{group:?}");
    let ids = world.consumer.notes.attempts();
    assert!(!ids.keys().any(|id| group.example_message.contains(id)), "an event's token is shown: {group:?}");

    let of_two = groups(service, "schedule=two AND state=DEAD AND policy=p").await.groups;
    assert_eq!(of_two.iter().map(|group| group.count).sum::<u64>(), 2 * OF_A_SORT);
    assert_eq!(of_two[0].schedules, [schedule_name("two")]);
    assert!(groups(service, "schedule=nobody").await.groups.is_empty());
    let end = service.runs("two").await.remove(0).finish_time.unwrap();
    assert_eq!(groups(service, &format!("end_time>={end} AND end_time<={end}")).await.groups.len(), 3);
}

/// Pages of any size are complete, without doubles, latest end first.
async fn pages_are_complete(service: &Service) {
    let everything = pages(service, "", 1_000).await;
    assert_eq!(everything.len() as u64, 9 * OF_A_SORT);
    let runs: Vec<&str> = everything.iter().map(|event| event.schedule.as_str()).collect();
    let mut order = runs.clone();
    order.dedup();
    assert_eq!(order, ["three", "two", "one"].map(schedule_name));
    for size in [1, 7, 10, 90] {
        let paged = pages(service, "", size).await;
        assert_eq!(paged, everything, "pages of {size}");
    }
    let names: BTreeSet<&str> = everything.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names.len(), everything.len());
    let reason = format!("reason=\"{LOCKED}\"");
    let listed = pages(service, &reason, 7).await;
    assert_eq!(listed.len() as u64, 3 * OF_A_SORT);
    assert!(listed.iter().all(|event| event.message.starts_with("HTTP 503: row ")), "{listed:?}");
    // A message stands for its reason.
    let message = "reason=\"no file of 2 bytes\" AND state=failed";
    assert_eq!(pages(service, message, 100).await.len() as u64, 3 * OF_A_SORT);
}

async fn retry(service: &Service, filter: &str, token: &str, validate_only: bool) -> (u32, u32, String) {
    let request = RetryFailuresRequest {
        parent: PARENT.to_owned(),
        filter: filter.to_owned(),
        page_token: token.to_owned(),
        validate_only,
    };
    let done = service.handler().retry_failures(request).await.unwrap().into_inner();
    (done.matched_count, done.retried_count, done.next_page_token)
}

/// In steps, with a process that is killed in the middle: each is tried again once, and none is left.
async fn failures_are_retried_in_steps_across_a_kill(kind: Kind) {
    let refused =
        |arrival: &Arrival| released(ReleaseOutcome::Retry, format!("row {} is locked", arrival.index));
    let mut world = world(kind, refused).await;
    for schedule in ["small", "many"] {
        world.run_to_its_end(schedule, if schedule == "many" { MANY } else { EVENTS }).await;
    }
    let filter = "reason=\"row 7 is locked\"";
    let mut steps = Vec::new();
    let mut token = String::new();
    loop {
        let (matched, retried, next) = retry(&world.service, filter, &token, true).await;
        assert_eq!(retried, 0);
        steps.push(matched);
        token = next;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(steps.iter().sum::<u32>(), MANY + EVENTS, "{steps:?}");
    assert!(steps.len() >= 3 && steps.iter().all(|matched| *matched <= 1_000), "{steps:?}");
    assert_eq!(world.service.runs("many").await[0].counts.unwrap().dead, MANY, "a look changes nothing");

    world.is_well.store(true, Ordering::SeqCst);
    let (matched, retried, token) = retry(&world.service, filter, "", false).await;
    assert_eq!((matched, retried), (1_000, 1_000));
    world.service.kill9();
    world.service = Service::start(&world.database).await;
    world.link.follow(&world.service);
    // The step before may have been lost for whoever asked: it is repeated, and does nothing to what is not dead.
    let (mut token, mut all) = (token, 0);
    while !token.is_empty() {
        let (_, retried, next) = retry(&world.service, filter, &token, false).await;
        all += retried;
        token = next;
    }
    assert_eq!(all, MANY + EVENTS - 1_000);
    for (schedule, events) in [("many", MANY), ("small", EVENTS)] {
        wait_for("all done", 120, async || {
            let counts = world.service.runs(schedule).await.remove(0).counts?;
            (counts.succeeded == events).then_some(())
        })
        .await;
    }
    assert_eq!(groups(&world.service, "").await, ListFailuresResponse::default());
    assert_eq!(retry(&world.service, filter, "", false).await, (0, 0, String::new()));
    let audit = Cli::new(world.service.url()).ok(&["audit"]);
    assert!(audit.contains("retry"), "{audit}");
    world.service.stop().await;
}

async fn close(service: &Service, filter: &str, validate_only: bool) -> (u32, u32) {
    let (parent, filter) = (PARENT.to_owned(), filter.to_owned());
    let request = CloseFailuresRequest { parent, filter, page_token: String::new(), validate_only };
    let done = service.handler().close_failures(request).await.unwrap().into_inner();
    assert_eq!(done.next_page_token, "");
    (done.matched_runs_count, done.closed_runs_count)
}

async fn closed_failures_are_no_trouble_any_more(kind: Kind) {
    let world = world(kind, conduct).await;
    let service = &world.service;
    for schedule in ["one", "two"] {
        world.run_to_its_end(schedule, EVENTS).await;
    }
    let cli = Cli::new(service.url());
    wait_for("both in troubles", 30, async || {
        let told = |schedule: &str| cli.ok(&["troubles", "--filter", schedule]).contains("WARNING");
        (told("schedule=one") && told("schedule=two")).then_some(())
    })
    .await;
    assert_eq!(close(service, "schedule=one", true).await, (1, 0));
    assert_eq!(groups(service, "schedule=one").await.groups.len(), 3);
    let filter = "schedule=one AND reason=\"no file of 2 bytes\"";
    assert_eq!(close(service, filter, false).await, (1, 1));
    assert_eq!(close(service, filter, false).await, (0, 0), "it is closed");
    assert!(groups(service, "schedule=one").await.groups.is_empty(), "the whole run is");
    assert_eq!(groups(service, "schedule=one AND closed=true").await.groups.len(), 3);
    assert_eq!(groups(service, "").await.groups[0].schedules, [schedule_name("two")]);
    wait_for("no trouble with what is closed", 30, async || {
        (cli.ok(&["troubles", "--filter", "schedule=one"]) == "no troubles\n").then_some(())
    })
    .await;
    assert!(cli.ok(&["troubles", "--filter", "schedule=two"]).contains("WARNING"));
    // It ends again, still with failures, and is told again.
    let (matched, retried, _) = retry(service, "schedule=one AND closed=true", "", false).await;
    assert_eq!((matched, retried), (EVENTS / 2, EVENTS / 2));
    wait_for("what failed again", 60, async || {
        (groups(service, "schedule=one").await.groups.len() == 3).then_some(())
    })
    .await;
    let audit = cli.ok(&["audit"]);
    assert!(audit.contains("close_failures"), "{audit}");
    world.service.stop().await;
}

async fn what_is_wrong_with_a_filter_is_said(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let mut handler = service.handler();
    for (filter, allowed) in [
        ("state=SUCCEEDED", "state=DEAD, FAILED, EXPIRED or LOST"),
        ("closed=perhaps", "closed=true or closed=false"),
        ("end_time>=yesterday", "2026-03-29T03:00:00Z"),
        ("colour=red", "state, schedule, policy, reason, end_time>, end_time<, closed"),
        ("reason=", "a value after ="),
    ] {
        let (parent, text) = (PARENT.to_owned(), filter.to_owned());
        let request = ListFailuresRequest { parent: parent.clone(), filter: text.clone(), page_size: 0 };
        let refused = handler.list_failures(request).await.unwrap_err();
        let what = |status: &tonic::Status| {
            (status.code(), status.message().contains("filter"), status.message().contains(allowed))
        };
        assert_eq!(what(&refused), (Code::InvalidArgument, true, true), "{filter}: {refused}");
        let request = ListEventsRequest { parent, filter: text, ..ListEventsRequest::default() };
        let refused = handler.list_events(request).await.unwrap_err();
        assert_eq!(what(&refused), (Code::InvalidArgument, true, true), "{filter}: {refused}");
    }
    let request = RetryFailuresRequest {
        parent: PARENT.to_owned(),
        filter: "state=LOST".to_owned(),
        ..RetryFailuresRequest::default()
    };
    let refused = handler.retry_failures(request.clone()).await.unwrap_err();
    assert!(refused.message().contains("only dead events are tried again"), "{refused}");
    let request = RetryFailuresRequest { filter: String::new(), page_token: "x".to_owned(), ..request };
    let refused = handler.retry_failures(request).await.unwrap_err();
    assert!(refused.message().contains("page_token"), "{refused}");
    let request =
        ListFailuresRequest { parent: "namespaces/No/runs".to_owned(), ..ListFailuresRequest::default() };
    let refused = handler.list_failures(request).await.unwrap_err();
    assert!(
        refused.message().contains("parent") && refused.message().contains("namespaces/{namespace}"),
        "{refused}"
    );
    let request =
        ListFailuresRequest { parent: PARENT.to_owned(), page_size: -1, ..ListFailuresRequest::default() };
    assert!(handler.list_failures(request).await.unwrap_err().message().contains("page_size"));
    service.stop().await;
}

/// On the command line, and in the console: what is shown, and that nothing is done before somebody has said so.
async fn commands_and_pages_show_and_act(kind: Kind) {
    let world = world(kind, conduct).await;
    let service = &world.service;
    let (cli, browser) = (Cli::new(service.url()), Browser::new(service));
    assert_eq!(cli.ok(&["failures"]), "no failures\n");
    browser.page("/n/default/failures").await.shows(&["Nothing went wrong"]);
    for schedule in ["one", "two"] {
        world.run_to_its_end(schedule, EVENTS).await;
    }
    let shown = cli.ok(&["failures", "--since", "1h", "--state", "DEAD"]);
    assert!(shown.starts_with("EVENTS  STATE  REASON") && shown.lines().count() == 3, "{shown}");
    assert!(shown.contains(LOCKED) && shown.contains(&format!("{}  ", 2 * OF_A_SORT)), "{shown}");
    let listed = cli.json(&["list", "events", "--filter", "schedule=two", "--limit", "0"]);
    assert_eq!(listed["events"].as_array().unwrap().len() as u64, 3 * OF_A_SORT);
    let one = [
        "retry-failures",
        "--schedule",
        "one",
        "--like",
        "HTTP 503: row 12345 is locked by 0123456789abcdef",
    ];
    let dry = format!("{OF_A_SORT} dead events match; nothing is changed without --yes\n");
    assert_eq!(cli.ok(&one), dry);
    let refused = cli.run(&["retry-failures", "--state", "LOST", "--yes"]);
    assert!(
        refused.code == 1 && refused.err.contains("to go on: tollgate retry-failures --yes"),
        "{refused:?}"
    );

    let path = "/n/default/failures";
    let page = browser.page(&format!("{path}?schedule=one")).await;
    page.shows(&[LOCKED, "customer c-… is unknown", "Try all of these again…", "/n/default/schedules/one"]);
    assert!(!page.text.contains("/n/default/schedules/two"));
    let filter = "schedule=two AND state=DEAD AND reason=\"customer c-… is unknown\"";
    let order = |action: &'static str| [("action", action), ("filter", filter)];
    let asked = browser.post(path, &order("retry")).await;
    asked.shows(&["Try these events again?", &format!("{OF_A_SORT} dead events"), "customer c-… is unknown"]);
    let of_two = async || pages(service, filter, 100).await.len() as u64;
    assert_eq!(of_two().await, OF_A_SORT, "nothing is done before it is confirmed");
    world.is_well.store(true, Ordering::SeqCst);
    assert_eq!(browser.confirmed(path, &order("retry"), "the customers are known").await.goes_to(), path);
    wait_for("the end of what was tried again", 60, async || {
        let counts = service.runs("two").await.remove(0).counts?;
        (u64::from(counts.succeeded) == 2 * OF_A_SORT).then_some(())
    })
    .await;
    assert_eq!(of_two().await, 0);
    assert_eq!(
        cli.ok(&[&one[..], &["--yes"]].concat()),
        format!("{OF_A_SORT} dead events are tried again\n")
    );
    wait_for("the end of what was tried again", 60, async || {
        (groups(service, "schedule=one").await.groups.len() == 2).then_some(())
    })
    .await;
    let close = [("action", "close"), ("filter", "schedule=two")];
    browser.post(path, &close).await.shows(&["Close these failures?", "1 run"]);
    browser.confirmed(path, &close, "").await.goes_to();
    assert!(groups(service, "schedule=two").await.groups.is_empty());
    assert_eq!(cli.ok(&["close-failures", "-y"]), "1 run with failures is closed\n");
    assert_eq!(cli.ok(&["failures"]), "no failures\n");
    let audit = cli.ok(&["audit"]);
    assert!(audit.contains("the customers are known"), "{audit}");
    world.service.stop().await;
}

/// What a key of another namespace, and one that only reads, come to.
async fn keys_reach_their_own_failures_only(kind: Kind) {
    let database = Database::new(kind).await;
    let admin = key(&database, "ops", "admin", None);
    let reader = key(&database, "viewer", "read", Some("default"));
    let other = key(&database, "other", "admin", Some("other"));
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, conduct).await;
    let retry = RetryPolicy { max_attempts: Some(1), ..RetryPolicy::default() };
    // Without a policy an answer would be all that is waited for.
    let target = Target { release: ReleaseMode::Explicit.into(), ..http(&consumer) };
    let made = CreateScheduleRequest {
        parent: PARENT.to_owned(),
        schedule_id: "s".to_owned(),
        schedule: Some(Schedule { retry: Some(retry), ..once(soon(1_000), EVENTS, "", target) }),
        ..CreateScheduleRequest::default()
    };
    master(&service, Some(&admin)).create_schedule(made).await.unwrap();
    let list =
        |parent: &str| ListFailuresRequest { parent: parent.to_owned(), ..ListFailuresRequest::default() };
    let mut own = handler(&service, Some(&reader));
    let groups = wait_for("the failures", 60, async || {
        let groups = own.clone().list_failures(list(PARENT)).await.ok()?.into_inner().groups;
        (groups.len() == 3).then_some(groups)
    })
    .await;
    let tokens = consumer.notes.attempts();
    assert!(!groups.iter().any(|group| tokens.keys().any(|token| group.example_event.ends_with(token))));
    let events =
        |parent: &str| ListEventsRequest { parent: parent.to_owned(), ..ListEventsRequest::default() };
    assert_eq!(
        own.list_events(events(PARENT)).await.unwrap().into_inner().events.len() as u64,
        3 * OF_A_SORT
    );
    let retry =
        |parent: &str| RetryFailuresRequest { parent: parent.to_owned(), ..RetryFailuresRequest::default() };
    let close =
        |parent: &str| CloseFailuresRequest { parent: parent.to_owned(), ..CloseFailuresRequest::default() };
    assert_eq!(own.retry_failures(retry(PARENT)).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(own.close_failures(close(PARENT)).await.unwrap_err().code(), Code::PermissionDenied);
    let mut foreign = handler(&service, Some(&other));
    assert_eq!(foreign.list_failures(list(PARENT)).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(foreign.list_events(events(PARENT)).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(foreign.retry_failures(retry(PARENT)).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(foreign.close_failures(close(PARENT)).await.unwrap_err().code(), Code::PermissionDenied);
    let elsewhere = "namespaces/other";
    assert!(foreign.list_failures(list(elsewhere)).await.unwrap().into_inner().groups.is_empty());
    assert!(foreign.list_events(events(elsewhere)).await.unwrap().into_inner().events.is_empty());
    assert_eq!(foreign.retry_failures(retry(elsewhere)).await.unwrap().into_inner().matched_count, 0);
    service.stop().await;
}

on_both_stores!(
    commands_and_pages_show_and_act,
    keys_reach_their_own_failures_only,
    failures_of_all_runs_are_grouped_and_listed,
    failures_are_retried_in_steps_across_a_kill,
    closed_failures_are_no_trouble_any_more,
    what_is_wrong_with_a_filter_is_said,
);
