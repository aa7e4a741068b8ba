//! What will fall due, who holds tokens and who waits, which runs there are: the answers behind the console's pages,
//! over gRPC, against what other calls say.

use std::collections::BTreeMap;
use std::time::Duration;

use prost_types::Timestamp;
use tollgate_harness::resources::{
    PARENT, every, http, ms, once, policy, policy_name, schedule_name, soon, us,
};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, now_us, wait_for};
use tollgate_proto::v1::preview_schedule_request::Source;
use tollgate_proto::v1::trigger::Trigger as Rule;
use tollgate_proto::v1::{
    AttemptAnswer, DemandForecast, EventState, ExplainEventRequest, ForecastDemandRequest,
    GetPolicyQueueRequest, ListRunsRequest, ListSchedulesRequest, PauseScheduleRequest, PolicyQueue,
    PreviewScheduleRequest, ReleaseTokenRequest, RetryPolicy, Schedule, Trigger,
};
use tonic::Code;

const MINUTE_US: i64 = 60_000_000;

on_both_stores!(
    demand_is_what_previews_say,
    a_forecast_ends_when_its_caller_leaves,
    a_policys_queue_is_told,
    runs_and_schedules_are_narrowed,
    attempts_and_answers_are_remembered
);

fn cron(text: &str, zone: &str, schedule: Schedule) -> Schedule {
    let triggers = vec![Trigger { trigger: Some(Rule::Cron(text.to_owned())) }];
    Schedule { triggers, time_zone: zone.to_owned(), ..schedule }
}

/// From (policy, minute) to the events that fall due then.
type Demand = BTreeMap<(String, i64), u64>;

fn told(forecast: &DemandForecast) -> Demand {
    let start_us = us(forecast.start_time);
    let slots = forecast.policies.iter().flat_map(|row| row.slots.iter().map(move |slot| (row, slot)));
    slots
        .map(|(row, slot)| {
            ((row.policy.clone(), start_us + i64::from(slot.slot) * MINUTE_US), slot.events_count)
        })
        .collect()
}

async fn demand_is_what_previews_say(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("p", policy(4)).await.unwrap();
    let base = |events: u32, policy: &str| once(soon(600_000), events, policy, http(&consumer));
    let schedules = [
        ("daily", cron("30 2 * * *", "Europe/Berlin", base(7, "p"))),
        ("also-daily", cron("30 2 * * *", "Europe/Berlin", base(5, "p"))),
        ("often", cron("*/7 9-17 * * MON-FRI", "America/New_York", base(3, ""))),
        ("last", cron("0 0 L * *", "Asia/Kolkata", base(11, ""))),
        ("interval", every(700, soon(1_000_000), 2, "p", http(&consumer))),
        ("single", base(9, "p")),
    ];
    for (name, schedule) in &schedules {
        service.create_schedule(name, schedule.clone()).await.unwrap();
    }
    service.create_schedule("asleep", cron("* * * * *", "UTC", base(1, "p"))).await.unwrap();
    let pause =
        PauseScheduleRequest { name: schedule_name("asleep"), reason: String::new(), ..Default::default() };
    service.master().pause_schedule(pause).await.unwrap();
    // A week, and the week of the clock change in spring, whatever today is.
    let spring = 1_806_195_600_000_000_i64;
    for from_us in [now_us(), spring - 3 * 86_400 * 1_000_000] {
        let from_us = from_us / MINUTE_US * MINUTE_US;
        let to_us = from_us + 7 * 24 * 60 * MINUTE_US;
        let forecast = forecast(&service, from_us, to_us, 60, "").await;
        let mut expected = Demand::new();
        for (name, schedule) in &schedules {
            for at_us in fires(&service, name, from_us, to_us).await {
                let under = if schedule.policy.is_empty() { String::new() } else { policy_name("p") };
                let minute = at_us.div_euclid(MINUTE_US) * MINUTE_US;
                *expected.entry((under, minute)).or_default() += u64::from(schedule.events.unwrap());
            }
        }
        assert_eq!(told(&forecast), expected);
        assert_eq!((forecast.paused_count, forecast.left_out_count), (1, 0));
        let row = forecast.policies.iter().find(|row| row.policy == policy_name("p")).unwrap();
        assert_eq!(row.max_in_flight, Some(4));
        // Coarser slots hold the same, and know their fullest minute.
        let coarse = self::forecast(&service, from_us, to_us, 3_600, "p").await;
        assert_eq!(coarse.policies.len(), 1);
        assert_eq!(coarse.policies[0].events_count, row.events_count);
        let most = row.slots.iter().map(|slot| slot.events_count).max();
        assert_eq!(coarse.policies[0].slots.iter().map(|slot| slot.minute_max).max(), most);
    }
    let wrong = ForecastDemandRequest {
        parent: PARENT.to_owned(),
        slot: Some(ms(1_500)),
        ..ForecastDemandRequest::default()
    };
    let refused = service.master().forecast_demand(wrong).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    service.stop().await;
}

/// Whoever asks and leaves at once, again and again, costs next to nothing.
async fn a_forecast_ends_when_its_caller_leaves(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    // Sixteen launches a second in all, spread over minutes: seconds of work for a week of them. None fires during the test.
    let first_us = (now_us() / MINUTE_US + 24 * 60) * MINUTE_US;
    for seconds in 1..=16 {
        for offset in 0..seconds {
            let anchor = at(first_us + offset * 1_000_000).unwrap();
            let schedule = every(seconds, anchor, 60, "", http(&consumer));
            let schedule = Schedule { spread: Some(ms(120_000)), ..schedule };
            service.create_schedule(&format!("s-{seconds}-{offset}"), schedule).await.unwrap();
        }
    }
    let request = ForecastDemandRequest {
        parent: PARENT.to_owned(),
        start_time: at(first_us),
        end_time: at(first_us + 7 * 24 * 60 * MINUTE_US),
        ..ForecastDemandRequest::default()
    };
    let before = service.cpu();
    let whole = service.master().forecast_demand(request.clone()).await.unwrap().into_inner();
    let cost = service.cpu() - before;
    assert_eq!((whole.schedules_count, whole.left_out_count), (136, 0));
    assert!(cost > Duration::from_millis(500), "{cost:?} are too little to be told from what else is done");
    let before = service.cpu();
    for _ in 0..12 {
        let mut master = service.master();
        let left = tokio::time::timeout(Duration::from_millis(200), master.forecast_demand(request.clone()));
        assert!(left.await.is_err(), "it was done in 200 ms");
    }
    // Until they would all have come to their end, and until nothing is done any more.
    let rest = wait_for("the end of the work", 300, async || {
        let so_far = service.cpu();
        tokio::time::sleep(Duration::from_secs(3)).await;
        (service.cpu() - so_far < Duration::from_millis(600)).then(|| service.cpu() - before)
    })
    .await;
    assert!(rest < cost * 4, "{rest:?} for twelve callers who left, {cost:?} for one who stayed");
    service.stop().await;
}

fn at(us: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds: us / 1_000_000, nanos: 0 })
}

async fn forecast(service: &Service, from_us: i64, to_us: i64, slot_s: i64, policy: &str) -> DemandForecast {
    let request = ForecastDemandRequest {
        parent: PARENT.to_owned(),
        start_time: at(from_us),
        end_time: at(to_us),
        slot: Some(ms(slot_s * 1_000)),
        policy: policy.to_owned(),
    };
    service.master().forecast_demand(request).await.unwrap().into_inner()
}

/// By previews, one page after the other.
async fn fires(service: &Service, name: &str, from_us: i64, to_us: i64) -> Vec<i64> {
    let mut all: Vec<i64> = Vec::new();
    let mut after_us = from_us - 1;
    loop {
        let request = PreviewScheduleRequest {
            source: Some(Source::Name(schedule_name(name))),
            from_time: Some(Timestamp {
                seconds: after_us.div_euclid(1_000_000),
                nanos: i32::try_from(after_us.rem_euclid(1_000_000)).unwrap() * 1_000,
            }),
            count: 1_000,
        };
        let times = service.master().preview_schedule(request).await.unwrap().into_inner().launch_times;
        let times: Vec<i64> = times.into_iter().map(|launch| us(launch.time)).collect();
        all.extend(times.iter().copied().filter(|at_us| *at_us < to_us));
        match times.last() {
            Some(last) if *last < to_us && times.len() == 1_000 => after_us = *last,
            _ => return all,
        }
    }
}

async fn queue(service: &Service, policy: &str) -> PolicyQueue {
    let request = GetPolicyQueueRequest { name: policy_name(policy), ..GetPolicyQueueRequest::default() };
    service.handler().get_policy_queue(request).await.unwrap().into_inner()
}

async fn a_policys_queue_is_told(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("p", policy(2)).await.unwrap();
    let schedule = |events: u32| once(soon(300), events, "p", http(&consumer));
    service.create_schedule("first", schedule(5)).await.unwrap();
    wait_for("two holders", 30, async || (queue(&service, "p").await.holders.len() == 2).then_some(())).await;
    let urgent = Schedule { priority: Some(9), finish_by: Some(ms(60_000)), ..schedule(4) };
    service.create_schedule("urgent", urgent).await.unwrap();
    service.create_schedule("late", Schedule { priority: Some(1), ..schedule(6) }).await.unwrap();
    let told = wait_for("three that wait", 30, async || {
        let told = queue(&service, "p").await;
        let states = told.holders.iter().all(|holder| holder.state() == EventState::Held);
        (told.waiters.len() == 3 && states).then_some(told)
    })
    .await;
    let shown: Vec<_> = told
        .waiters
        .iter()
        .map(|waiter| {
            (waiter.schedule.clone(), waiter.waiting_count, waiter.place_in_line, waiter.runs_count)
        })
        .collect();
    assert_eq!(
        shown,
        [
            (schedule_name("urgent"), 4, 0, 1),
            (schedule_name("first"), 3, 4, 1),
            (schedule_name("late"), 6, 7, 1),
        ]
    );
    assert!(told.waiters[0].finish_by_time.is_some() && told.waiters[1].finish_by_time.is_none());
    assert!(told.waiters[0].summary.contains("2 of 2"), "{told:?}");
    assert!(told.holders[0].expire_time.is_some() && !told.incomplete, "{told:?}");
    assert_eq!((told.holds_sampled_count, &told.hold_p99), (0, &None));
    let oldest = told.holders[0].event.clone();
    let release = ReleaseTokenRequest { name: oldest.clone(), ..ReleaseTokenRequest::default() };
    service.handler().release_token(release).await.unwrap();
    let told = wait_for("another holder", 30, async || {
        let told = queue(&service, "p").await;
        (told.holders.len() == 2 && told.waiters[0].waiting_count == 3).then_some(told)
    })
    .await;
    assert!(told.holders.iter().all(|holder| holder.event != oldest), "{told:?}");
    assert_eq!(told.holders[1].schedule, schedule_name("urgent"));
    assert_eq!(told.holds_sampled_count, 1);
    assert_eq!(told.hold_p50, told.hold_p99);
    let request = GetPolicyQueueRequest { name: policy_name("none"), ..GetPolicyQueueRequest::default() };
    let refused = service.handler().get_policy_queue(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    service.stop().await;
}

async fn runs_and_schedules_are_narrowed(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    for id in ["p", "q"] {
        service.create_policy(id, policy(2)).await.unwrap();
    }
    let (early, late) = (soon(5_000), soon(60_000));
    service.create_schedule("night-a", once(early, 1, "p", http(&consumer))).await.unwrap();
    service.create_schedule("night-b", once(late, 1, "q", http(&consumer))).await.unwrap();
    service.create_schedule("day", once(early, 1, "q", http(&consumer))).await.unwrap();
    let runs = async |filter: String| {
        let request = ListRunsRequest { parent: PARENT.to_owned(), filter, ..ListRunsRequest::default() };
        let runs = service.handler().list_runs(request).await?.into_inner().runs;
        let mut names: Vec<String> =
            runs.iter().map(|run| run.schedule.rsplit('/').next().unwrap().to_owned()).collect();
        names.sort();
        Ok::<_, tonic::Status>(names)
    };
    wait_for("all runs", 30, async || {
        let running = runs("state=RUNNING".to_owned()).await.unwrap().len();
        (running == 2 && runs(String::new()).await.unwrap().len() == 3).then_some(())
    })
    .await;
    let stamp = |time: Timestamp| chrono::DateTime::from_timestamp(time.seconds, 0).unwrap().to_rfc3339();
    let (early, late) = (stamp(early), stamp(late));
    assert_eq!(runs("policy=q".to_owned()).await.unwrap(), ["day", "night-b"]);
    assert_eq!(runs("policy=q AND state=RUNNING".to_owned()).await.unwrap(), ["day"]);
    assert_eq!(runs(format!("launch_time<={early}")).await.unwrap(), ["day", "night-a"]);
    assert_eq!(runs(format!("launch_time>={late}")).await.unwrap(), ["night-b"]);
    assert_eq!(runs(format!("state=WAITING AND launch_time<={early}")).await.unwrap(), [""; 0]);
    assert_eq!(runs(format!("schedule=day AND launch_time>={early}")).await.unwrap(), ["day"]);
    assert_eq!(runs("policy=none".to_owned()).await.unwrap(), [""; 0]);
    assert_eq!(runs("launch_time<=soon".to_owned()).await.unwrap_err().code(), Code::InvalidArgument);

    let named = async |filter: &str| {
        let request = ListSchedulesRequest {
            parent: PARENT.to_owned(),
            filter: filter.to_owned(),
            ..ListSchedulesRequest::default()
        };
        let schedules = service.master().list_schedules(request).await?.into_inner().schedules;
        Ok::<_, tonic::Status>(schedules.into_iter().map(|schedule| schedule.name).collect::<Vec<_>>())
    };
    let both = [schedule_name("night-a"), schedule_name("night-b")];
    assert_eq!(named("name=ni*").await.unwrap(), both);
    assert_eq!(named("name=night-* AND policy=q").await.unwrap(), both[1..]);
    assert_eq!(named("name=night-a").await.unwrap_err().code(), Code::InvalidArgument);
    service.stop().await;
}

async fn attempts_and_answers_are_remembered(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let conduct = |arrival: &tollgate_harness::Arrival| match arrival.attempt {
        1 => Conduct::Answer(503),
        2 => Conduct::Answer(429),
        _ => Conduct::work(1..2),
    };
    let consumer = Consumer::start(service.link(), Releases::Unary, conduct).await;
    let retry =
        RetryPolicy { min_backoff: Some(ms(50)), max_backoff: Some(ms(100)), ..RetryPolicy::default() };
    service.create_policy("p", policy(2)).await.unwrap();
    let schedule = Schedule { retry: Some(retry), ..once(soon(300), 1, "p", http(&consumer)) };
    service.create_schedule("s", schedule).await.unwrap();
    let run = service.finished("s", 40).await;
    let event = service.events(&run.name).await.remove(0);
    let request = ExplainEventRequest { name: event.name.clone() };
    let told = service.handler().explain_event(request).await.unwrap().into_inner();
    let answers: Vec<_> = told.attempts.iter().map(|made| (made.attempt, made.answer())).collect();
    assert_eq!(
        answers,
        [(1, AttemptAnswer::Refused), (2, AttemptAnswer::Refused), (3, AttemptAnswer::Accepted)]
    );
    assert!(told.attempts[0].message.contains("503") && told.attempts[1].message.contains("429"), "{told:?}");
    assert!(told.attempts.is_sorted_by_key(|made| us(made.start_time)));
    // They are written once a second, and whoever comes after this process knows them.
    wait_for("three rows", 30, async || (database.count("event_attempts").await == 3).then_some(())).await;
    service.kill9();
    let service = Service::start(&database).await;
    let request = ExplainEventRequest { name: event.name.clone() };
    let later = service.handler().explain_event(request).await.unwrap().into_inner();
    assert_eq!(later.attempts, told.attempts);
    service.stop().await;
}
