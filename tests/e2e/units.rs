//! Events that take several tokens: what is in flight at the sink, who waits for whom, what is refused, and what is set aside.

use std::collections::BTreeMap;

use tollgate_harness::resources::{http, once, policy, policy_name, schedule_name, soon};
use tollgate_harness::{
    Arrival, Cli, Conduct, Consumer, Database, Kind, Releases, Service, now_us, wait_for,
};
use tollgate_proto::v1::submit_items_request::Part;
use tollgate_proto::v1::{
    Event, EventState, ExplainEventRequest, Explanation, GetPolicyQueueRequest, Item, Items, KeyLimits,
    Policy, PolicyGauge, PolicyQueue, ReasonCode, Run, RunState, Schedule, ScheduleItem, SubmissionHeader,
    SubmitItemsRequest, UpdatePolicyRequest,
};
use tonic::Status;

use crate::keys::{WORK_MS, firsts};

/// The tokens that are shared where events of 1 to 4 come.
const LIMIT: u32 = 8;

fn of_units(units: u32, events: u32, consumer: &Consumer) -> Schedule {
    Schedule { units: Some(units), ..once(soon(2_000), events, "p", http(consumer)) }
}

/// A schedule that fires in a week, to which items are submitted.
fn for_items(policy: &str, consumer: &Consumer) -> Schedule {
    let at = prost_types::Timestamp { seconds: now_us() / 1_000_000 + 7 * 86_400, nanos: 0 };
    once(at, 1, policy, http(consumer))
}

fn item(index: usize, units: u32) -> Item {
    Item { data: format!("{{\"n\":{index}}}"), key: String::new(), units }
}

async fn submit(service: &Service, schedule: &str, items: Vec<Item>) -> Result<Run, Status> {
    let part = |part| SubmitItemsRequest { part: Some(part) };
    let (name, request_id) = (schedule_name(schedule), "r".to_owned());
    let header = SubmissionHeader { name, request_id, ..SubmissionHeader::default() };
    let parts = [part(Part::Header(header)), part(Part::Items(Items { items }))];
    let made = service.master().submit_items(tokio_stream::iter(parts)).await?.into_inner();
    Ok(made.run.unwrap())
}

async fn gauge(service: &Service, id: &str) -> PolicyGauge {
    let gauges = service.status().await.unwrap().policies;
    gauges.into_iter().find(|gauge| gauge.policy == policy_name(id)).unwrap_or_default()
}

async fn holds(service: &Service, tokens: u64) {
    wait_for(&format!("{tokens} tokens held"), 30, async || {
        (gauge(service, "p").await.held_count == tokens).then_some(())
    })
    .await;
}

async fn queue(service: &Service) -> PolicyQueue {
    let request = GetPolicyQueueRequest { name: policy_name("p"), ..GetPolicyQueueRequest::default() };
    service.handler().get_policy_queue(request).await.unwrap().into_inner()
}

async fn why(service: &Service, event: &Event) -> Explanation {
    let request = ExplainEventRequest { name: event.name.clone() };
    service.handler().explain_event(request).await.unwrap().into_inner()
}

/// The events of a schedule's one run that are in a state, when there are so many.
async fn events(service: &Service, schedule: &str, state: EventState, count: usize) -> Vec<Event> {
    let run = service.first_run(schedule).await;
    wait_for(&format!("{count} events of {schedule} that are {state:?}"), 30, async || {
        let events = service.events(&run.name).await.into_iter();
        let events: Vec<Event> = events.filter(|event| event.state() == state).collect();
        (events.len() == count).then_some(events)
    })
    .await
}

async fn lower(service: &Service, limit: u32) {
    let policy = Policy { name: policy_name("p"), ..policy(limit) };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["max_in_flight".to_owned()] });
    let request = UpdatePolicyRequest { policy: Some(policy), update_mask, ..UpdatePolicyRequest::default() };
    service.master().update_policy(request).await.unwrap();
}

/// The most tokens that consumers were at work on at once: each event lasted for `WORK_MS` at least.
fn tokens_at_once(arrivals: &[Arrival], units: &[u32]) -> u32 {
    let came = firsts(arrivals);
    let within = |from: i64| {
        let at_work =
            came.iter().filter(|arrival| (from..from + 1_000 * WORK_MS as i64).contains(&arrival.arrived_us));
        at_work.map(|arrival| units[arrival.index as usize]).sum()
    };
    came.iter().map(|arrival| within(arrival.arrived_us)).max().unwrap_or_default()
}

async fn events_of_a_schedule_take_as_many_as_it_says(kind: Kind) {
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("p", policy(12)).await.unwrap();
    let made = service.create_schedule("s", of_units(5, 6, &consumer)).await.unwrap();
    assert_eq!(made.units, Some(5));
    holds(&service, 10).await;
    wait_for("two at the consumer", 10, async || (consumer.notes.in_flight() == 2).then_some(())).await;
    let holders: Vec<u32> = queue(&service).await.holders.iter().map(|holder| holder.units).collect();
    assert_eq!(holders, [5, 5]);
    service.kill9();
    service = Service::start(&database).await;
    holds(&service, 10).await;
    let cli = Cli::new(service.url());
    let table = cli.ok(&["get", "schedules"]);
    assert!(table.contains("6 (units 5)"), "{table}");
    let described = cli.ok(&["describe", "policy", "p"]);
    assert!(described.contains("TOKENS"), "{described}");
    assert_eq!(cli.json(&["get", "schedule", "s"])["units"], 5);
    // What is exported is found unchanged.
    let exported = cli.ok(&["get", "schedule", "s", "-o", "yaml"]);
    assert!(exported.contains("units: 5"), "{exported}");
    // One that comes back makes room for one.
    let first = events(&service, "s", EventState::Held, 2).await.remove(0);
    assert_eq!(first.units, 5);
    cli.ok(&["release", &first.event_id]);
    wait_for("a third one", 30, async || (consumer.notes.events_by_schedule()["s"] == 3).then_some(())).await;
    holds(&service, 10).await;
    service.stop().await;
}

async fn items_take_as_many_as_they_say(kind: Kind) {
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let link = service.link();
    let consumer =
        Consumer::start(link.clone(), Releases::Unary, |_| Conduct::work(WORK_MS..WORK_MS + 20)).await;
    // Short are the tokens above.
    service.create_policy("root", policy(LIMIT)).await.unwrap();
    let below = Policy { parent: Some("root".to_owned()), ..Policy::default() };
    service.create_policy("p", below).await.unwrap();
    service.create_schedule("list", for_items("p", &consumer)).await.unwrap();
    // Where an item does not say, the schedule does: one.
    let said: Vec<u32> = (0..50).map(|index| index % 5).collect();
    let units: Vec<u32> = said.iter().map(|units| (*units).max(1)).collect();
    let items = said.iter().enumerate().map(|(index, units)| item(index, *units)).collect();
    let run = submit(&service, "list", items).await.unwrap();
    wait_for("the first of them", 30, async || (consumer.notes.arrivals_count() > 10).then_some(())).await;
    service.kill9();
    service = Service::start(&database).await;
    link.follow(&service);
    let ended = service.finished("list", 90).await;
    assert_eq!((&ended.name, ended.state()), (&run.name, RunState::Finished), "{ended:?}");
    assert_eq!(ended.counts.unwrap().succeeded, 50, "{ended:?}");
    consumer.notes.assert_clean();
    let arrivals = consumer.notes.arrivals();
    let most = tokens_at_once(&arrivals, &units);
    assert!((LIMIT / 2..=LIMIT).contains(&most), "{most} tokens at once: {arrivals:?}");
    let came: BTreeMap<u32, _> = arrivals.into_iter().map(|arrival| (arrival.index, arrival.data)).collect();
    assert_eq!(came.len(), 50);
    assert!(came.iter().all(|(index, data)| data["n"] == *index), "{came:?}");
    assert_eq!(service.held_count().await, 0);
    let shown: Vec<u32> = service.events(&run.name).await.iter().map(|event| event.units).collect();
    assert_eq!(shown, units);
    service.stop().await;
}

/// Three tokens of four are held, and the first in line needs three.
async fn the_first_in_line_keeps_what_comes_back(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("p", policy(4)).await.unwrap();
    service.create_schedule("first", of_units(1, 3, &consumer)).await.unwrap();
    holds(&service, 3).await;
    service.create_schedule("large", of_units(3, 1, &consumer)).await.unwrap();
    wait_for("the large one to wait", 30, async || {
        (gauge(&service, "p").await.waiting_count == 1).then_some(())
    })
    .await;
    service.create_schedule("small", of_units(1, 10, &consumer)).await.unwrap();
    wait_for("the small ones to wait", 30, async || {
        (gauge(&service, "p").await.waiting_count == 11).then_some(())
    })
    .await;
    let large = events(&service, "large", EventState::Waiting, 1).await.remove(0);
    let small = events(&service, "small", EventState::Waiting, 10).await.remove(0);
    let of_large = why(&service, &large).await;
    assert_eq!(of_large.reasons[0].code(), ReasonCode::LimitReached, "{of_large:?}");
    let message = &of_large.reasons[0].message;
    assert_eq!(message, "it takes 3 tokens of its policy, and 3 of 4 are held");
    let of_small = why(&service, &small).await;
    assert_eq!(of_small.reasons[0].code(), ReasonCode::TokensKept, "{of_small:?}");
    assert!(of_small.reasons[0].message.ends_with("before it, which takes 3"), "{of_small:?}");
    // One that comes back is too little for it, and is for nobody else.
    let mut held = events(&service, "first", EventState::Held, 3).await;
    cli.ok(&["release", &held.remove(0).event_id]);
    holds(&service, 2).await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(gauge(&service, "p").await.held_count, 2, "kept for the large one");
    cli.ok(&["release", &held.remove(0).event_id]);
    wait_for("the large one", 30, async || {
        consumer.notes.events_by_schedule().contains_key("large").then_some(())
    })
    .await;
    holds(&service, 4).await;
    assert_eq!(consumer.notes.events_by_schedule().get("small"), None);
    cli.ok(&["release", &large.event_id]);
    wait_for("three small ones", 30, async || {
        (consumer.notes.events_by_schedule().get("small") == Some(&3)).then_some(())
    })
    .await;
    service.stop().await;
}

/// The same for what one key may have: the others go on.
async fn a_key_keeps_what_comes_back_of_its_own(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    let per_key = Some(KeyLimits { max_in_flight: Some(3), ..KeyLimits::default() });
    service.create_policy("p", Policy { per_key, ..policy(20) }).await.unwrap();
    let of_key =
        |key: &str, units, events| Schedule { key: key.to_owned(), ..of_units(units, events, &consumer) };
    service.create_schedule("first", of_key("acme", 1, 2)).await.unwrap();
    holds(&service, 2).await;
    service.create_schedule("large", of_key("acme", 3, 1)).await.unwrap();
    wait_for("the large one to wait", 30, async || {
        (gauge(&service, "p").await.waiting_count == 1).then_some(())
    })
    .await;
    service.create_schedule("small", of_key("acme", 1, 5)).await.unwrap();
    service.create_schedule("other", of_key("zeta", 1, 5)).await.unwrap();
    holds(&service, 5).await;
    let large = events(&service, "large", EventState::Waiting, 1).await.remove(0);
    let of_large = why(&service, &large).await;
    assert_eq!(of_large.reasons[0].code(), ReasonCode::KeyLimitReached, "{of_large:?}");
    for event in events(&service, "first", EventState::Held, 2).await {
        assert_eq!(consumer.notes.events_by_schedule().get("large"), None);
        cli.ok(&["release", &event.event_id]);
    }
    wait_for("the large one", 30, async || {
        consumer.notes.events_by_schedule().contains_key("large").then_some(())
    })
    .await;
    holds(&service, 6).await;
    assert_eq!(consumer.notes.events_by_schedule().get("small"), None);
    service.stop().await;
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, parts: &[&str]) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status:?}");
    for part in parts {
        assert!(status.message().contains(part), "{part}: {}", status.message());
    }
}

async fn more_than_a_limit_is_refused(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    let below =
        |max_in_flight| Policy { parent: Some("root".to_owned()), max_in_flight, ..Policy::default() };
    let per_key = Some(KeyLimits { max_in_flight: Some(6), ..KeyLimits::default() });
    service.create_policy("root", policy(15)).await.unwrap();
    service.create_policy("p", below(Some(12))).await.unwrap();
    service.create_policy("free", below(None)).await.unwrap();
    service.create_policy("keyed", Policy { per_key, ..below(None) }).await.unwrap();
    let under = |policy: &str, units| Schedule { policy: policy.to_owned(), ..of_units(units, 1, &consumer) };
    let of_policy = "at most 12, the max_in_flight of its policy p";
    let above = "at most 15, the max_in_flight of root, a policy above its own";
    let of_key = "at most 6, the max_in_flight of the key \"acme\" under keyed";
    let acme = Schedule { key: "acme".to_owned(), ..under("keyed", 7) };
    for (schedule, units, expected) in [
        (under("p", 0), "0", "1 to 1000"),
        (under("p", 1_001), "1001", "1 to 1000"),
        (under("p", 13), "13", of_policy),
        (under("free", 16), "16", above),
        (acme, "7", of_key),
        (under("keyed", 7), "7", "at most 6, the max_in_flight of events without a key under keyed"),
    ] {
        refused(service.create_schedule("s", schedule).await, &["schedule.units", units, expected]);
    }
    let listed = |units| ScheduleItem { data: Some(1.0.into()), units, ..ScheduleItem::default() };
    let items = vec![listed(0), listed(13)];
    let listing = Schedule { items, events: None, ..under("p", 1) };
    refused(service.create_schedule("s", listing).await, &["schedule.items[1].units", "13", of_policy]);
    service.create_schedule("s", for_items("p", &consumer)).await.unwrap();
    service.create_schedule("k", for_items("keyed", &consumer)).await.unwrap();
    let of_acme = Item { key: "acme".to_owned(), ..item(1, 7) };
    for (schedule, second, units, expected) in [
        ("s", item(1, 1_001), "1001", "0 to 1000"),
        ("s", item(1, 13), "13", of_policy),
        ("k", of_acme, "7", of_key),
    ] {
        let answer = submit(&service, schedule, vec![item(0, 1), second]).await;
        refused(answer, &["items[1].units", units, expected]);
    }
    assert!(service.runs("s").await.is_empty() && service.runs("k").await.is_empty(), "nothing was made");
    // From files, with their lines.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("list.csv");
    std::fs::write(&file, "a,n\n1,2\n2,\n3,0\n").unwrap();
    let submitted = ["submit", "s", file.to_str().unwrap(), "--units-field", "n"];
    let wrong = cli.run(&submitted);
    assert!(
        wrong.err.contains("line 4: n: \"0\" is not allowed, expected a whole number from 1"),
        "{wrong:?}"
    );
    std::fs::write(&file, "a,n\n1,2\n2,\n3,13\n").unwrap();
    let wrong = cli.run(&submitted);
    assert!(
        wrong.code != 0 && wrong.err.contains("items[2].units") && wrong.err.contains("at most 12"),
        "{wrong:?}"
    );
    std::fs::write(&file, "a,n\n1,2\n2,\n3,6\n").unwrap();
    let dry = cli.ok(&["submit", "s", file.to_str().unwrap(), "--units-field", "n", "--dry-run"]);
    assert!(dry.contains("6 units at most"), "{dry}");
    cli.ok(&submitted);
    holds(&service, 9).await;
    service.stop().await;
}

async fn what_a_lower_limit_sets_aside_starts_when_it_is_raised(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("p", policy(6)).await.unwrap();
    service.create_schedule("large", of_units(5, 2, &consumer)).await.unwrap();
    holds(&service, 5).await;
    lower(&service, 3).await;
    let held = events(&service, "large", EventState::Held, 1).await.remove(0);
    cli.ok(&["release", &held.event_id]);
    // It holds up nobody else.
    service.create_schedule("small", of_units(1, 5, &consumer)).await.unwrap();
    holds(&service, 3).await;
    let large = events(&service, "large", EventState::Waiting, 1).await.remove(0);
    let of_large = why(&service, &large).await;
    assert_eq!(of_large.reasons[0].code(), ReasonCode::AboveLimit, "{of_large:?}");
    let said = cli.ok(&["why", &large.event_id]);
    assert!(said.contains("it takes 5 tokens, and its policy has 3"), "{said}");
    // Another change of the schedule is taken, with a warning.
    let exported = cli.ok(&["get", "schedule", "large", "-o", "yaml"]);
    let applied = cli.apply(&format!("{exported}description: heavy\n"));
    assert_eq!(applied.code, 0, "{applied:?}");
    let warned = "5 tokens are more than there are (at most 3, the maxInFlight of its policy p)";
    assert!(applied.err.contains(warned), "{applied:?}");
    for event in events(&service, "small", EventState::Held, 3).await {
        cli.ok(&["release", &event.event_id]);
    }
    lower(&service, 10).await;
    wait_for("the large one", 30, async || {
        (consumer.notes.events_by_schedule().get("large") == Some(&2)).then_some(())
    })
    .await;
    service.stop().await;
}

async fn a_rate_counts_an_event_once(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..20)).await;
    let rate = Policy { rate_per_second: Some(10.0), burst: Some(5), ..Policy::default() };
    service.create_policy("p", rate).await.unwrap();
    service.create_schedule("s", of_units(100, 65, &consumer)).await.unwrap();
    // By tokens it would take eleven minutes.
    let run = service.finished("s", 60).await;
    assert_eq!(run.counts.unwrap().succeeded, 65, "{run:?}");
    let mut came: Vec<i64> = consumer.notes.arrivals().iter().map(|arrival| arrival.arrived_us).collect();
    came.sort_unstable();
    assert!(came[64] - came[0] > 3_000_000, "sixty after a burst of five, ten a second: {came:?}");
    service.stop().await;
}

on_both_stores!(
    events_of_a_schedule_take_as_many_as_it_says,
    items_take_as_many_as_they_say,
    the_first_in_line_keeps_what_comes_back,
    a_key_keeps_what_comes_back_of_its_own,
    more_than_a_limit_is_refused,
    what_a_lower_limit_sets_aside_starts_when_it_is_raised,
    a_rate_counts_an_event_once,
);
