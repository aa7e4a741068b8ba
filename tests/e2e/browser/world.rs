//! A service with something of everything in it: held tokens, what waits, runs that ended in every way, pauses, a chain.

use serde_json::json;
use tollgate_harness::browser::Browser;
use tollgate_harness::resources::{PARENT, every, http, ms, once, policy, policy_name, schedule_name, soon};
use tollgate_harness::{Arrival, Cli, Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::convert::payload::from_json;
use tollgate_proto::v1::alert_target::Target as To;
use tollgate_proto::v1::trigger::Trigger as Rule;
use tollgate_proto::v1::{
    Alert, AlertTarget, AlertTroubles, Calendar, CreateAlertRequest, CreateCalendarRequest, Event,
    EventState, FinishCondition, GetAlertRequest, HttpTarget, OnFinish, PausePolicyRequest,
    PauseScheduleRequest, Policy, RetryPolicy, Run, RunState, Schedule, ScheduleItem, Trigger,
    TriggerScheduleRequest, UpdatePolicyRequest, UpdateScheduleRequest, WorkerHello,
};

use crate::pulled::worker::{Deed, Notes, Worker, hello, place};

/// What runs while a test looks.
pub(super) struct World {
    pub(super) service: Service,
    pub(super) browser: Browser,
    consumer: Consumer,
    _worker: Worker,
    _database: Database,
}

fn cron(text: &str) -> Vec<Trigger> {
    vec![Trigger { trigger: Some(Rule::Cron(text.to_owned())) }]
}

/// Each schedule's name says what becomes of its events.
fn conduct(arrival: &Arrival) -> Conduct {
    match arrival.schedule.as_str() {
        "done" | "fetch" | "publish" => Conduct::work(20..60),
        "flaky" => Conduct::Answer(503),
        "hopeless" => Conduct::Answer(400),
        _ => Conduct::keep(),
    }
}

impl World {
    /// Everything, and a browser before it.
    pub(super) async fn start() -> Self {
        Box::pin(Self::make()).await
    }

    async fn make() -> Self {
        let database = Database::new(Kind::Sqlite).await;
        let service = Service::start(&database).await;
        let consumer = Consumer::start(service.link(), Releases::Unary, conduct).await;
        policies(&service).await;
        Box::pin(schedules(&service, &consumer)).await;
        Box::pin(chain(&service, &consumer)).await;
        let missed = service.create_schedule("missed", nightly(&consumer)).await.unwrap();
        let uid = missed.uid.replace('-', "");
        for (ago_s, reason) in [(86_400, "MISSED"), (172_800, "PAUSED"), (259_200, "OVERLAP")] {
            let at_us = tollgate_harness::now_us() - ago_s * 1_000_000;
            database
                .sql(&format!("INSERT INTO skipped_triggers VALUES (x'{uid}', {at_us}, '{reason}', {at_us})"))
                .await;
        }
        wait_for("two held tokens", 30, async || (held(&service, "batch").await.len() == 2).then_some(()))
            .await;
        for (schedule, ended) in [("done", 3), ("hopeless", 1), ("hasty", 1)] {
            wait_for(&format!("runs of {schedule} that have ended"), 40, async || {
                let runs = service.runs(schedule).await;
                let finished = runs
                    .iter()
                    .filter(|run| matches!(run.state(), RunState::Finished | RunState::FinishedWithFailures));
                (finished.count() >= ended).then_some(())
            })
            .await;
        }
        wait_for("a chain at its second step", 30, async || {
            (held(&service, "convert").await.len() == 3).then_some(())
        })
        .await;
        alert(&service).await;
        calendar(&service).await;
        let worker = farm(&service).await;
        let browser = Browser::start(service.url()).await;
        Self { service, browser, consumer, _worker: worker, _database: database }
    }

    /// Changes a policy's limit.
    pub(super) async fn limit(&self, policy: &str, max_in_flight: u32) {
        let policy =
            Policy { name: policy_name(policy), max_in_flight: Some(max_in_flight), ..Policy::default() };
        let paths = vec!["max_in_flight".to_owned()];
        let update = UpdatePolicyRequest {
            policy: Some(policy),
            update_mask: Some(prost_types::FieldMask { paths }),
            ..UpdatePolicyRequest::default()
        };
        self.service.master().update_policy(update).await.unwrap();
    }

    /// The first run of a schedule.
    pub(super) async fn run(&self, schedule: &str) -> Run {
        self.service.runs(schedule).await.into_iter().next().unwrap()
    }

    /// An event of a schedule's first run in a state.
    pub(super) async fn event(&self, schedule: &str, state: EventState) -> Event {
        wait_for(&format!("an event of {schedule} that is {state:?}"), 30, async || {
            let run = self.service.runs(schedule).await.into_iter().next()?;
            self.service.events(&run.name).await.into_iter().find(|event| event.state() == state)
        })
        .await
    }

    /// Ends it all, and asks the consumer whether all was as it must be.
    pub(super) async fn stop(self) {
        drop(self.browser);
        self.consumer.notes.assert_sound();
        self.service.stop().await;
    }
}

/// The events of a schedule that hold tokens.
pub(super) async fn held(service: &Service, schedule: &str) -> Vec<Event> {
    let runs = service.runs(schedule).await;
    let Some(run) = runs.first() else { return Vec::new() };
    let events = service.events(&run.name).await;
    events.into_iter().filter(|event| event.state() == EventState::Held).collect()
}

/// The last part of a name.
pub(super) fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap()
}

/// Where a resource's page is.
pub(super) fn page_of(name: &str) -> String {
    format!("/n/default/{}", name.strip_prefix("namespaces/default/").unwrap())
}

/// A namespace with a worker that has two events, and with events that nobody is able to do.
async fn farm(service: &Service) -> Worker {
    let schedule = |id: &str, label: &str| {
        format!(
            "---\nkind: Schedule\nid: {id}\npolicy: frames\nevents: 6\n\
             target: {{pull: {{queue: render, requires: [{label}]}}}}\n"
        )
    };
    let policy = "kind: Policy\nid: frames\nmaxInFlight: 5\n";
    let file = [policy, &schedule("stills", "gpu"), &schedule("moons", "tpu")].concat();
    let cli = Cli::new(service.url());
    let applied = cli.run_with(&["apply", "-n", "farm", "-f", "-"], &file);
    assert_eq!(applied.code, 0, "{applied:?}");
    for id in ["stills", "moons"] {
        cli.ok(&["trigger", "-n", "farm", id]);
    }
    let hello = WorkerHello {
        queue: "namespaces/farm/queues/render".to_owned(),
        ..hello("render-7", &["gpu", "zone:eu"], 2)
    };
    let notes = Notes::default();
    let worker = Worker::start(&place(service), hello, &notes, |_| Deed::Work(3_600_000));
    wait_for("a worker at work", 20, async || (notes.given().len() == 2).then_some(())).await;
    worker
}

/// Three schedules that follow one another, each with a run. That of the second one keeps its tokens: the third one waits for it.
async fn chain(service: &Service, consumer: &Consumer) {
    let links = [("publish", 1, None), ("convert", 3, Some("publish")), ("fetch", 2, Some("convert"))];
    for (id, events, next) in links {
        let on_finish = next.map(|next: &str| OnFinish {
            schedule: next.to_owned(),
            when: FinishCondition::Always.into(),
            ..OnFinish::default()
        });
        let schedule = Schedule {
            events: Some(events),
            policy: "rated".to_owned(),
            target: Some(http(consumer)),
            on_finish,
            ..Schedule::default()
        };
        service.create_schedule(id, schedule).await.unwrap();
    }
    for id in ["publish", "fetch"] {
        let request = TriggerScheduleRequest { name: schedule_name(id), ..TriggerScheduleRequest::default() };
        service.master().trigger_schedule(request).await.unwrap();
    }
}

/// An alert whose receiver takes nothing.
async fn alert(service: &Service) {
    let http = HttpTarget { url: "http://127.0.0.1:9/none".to_owned(), ..HttpTarget::default() };
    let alert = Alert {
        description: "Who has the pager".to_owned(),
        troubles: Some(AlertTroubles::default()),
        group_wait: Some(ms(0)),
        target: Some(AlertTarget { target: Some(To::Http(http)) }),
        ..Alert::default()
    };
    let request = CreateAlertRequest {
        parent: PARENT.to_owned(),
        alert_id: "on-call".to_owned(),
        alert: Some(alert),
        ..CreateAlertRequest::default()
    };
    let made = service.master().create_alert(request).await.unwrap().into_inner();
    wait_for("a message that nobody takes", 40, async || {
        let request = GetAlertRequest { name: made.name.clone() };
        let status = service.master().get_alert(request).await.unwrap().into_inner().status;
        status.filter(|status| !status.last_error.is_empty())
    })
    .await;
}

/// A calendar that a schedule names.
async fn calendar(service: &Service) {
    let dates = ["2030-12-25", "2030-12-31..2031-01-02"].map(str::to_owned).to_vec();
    let calendar = Calendar { description: "Nobody works".to_owned(), dates, ..Calendar::default() };
    let request = CreateCalendarRequest {
        parent: PARENT.to_owned(),
        calendar_id: "holidays".to_owned(),
        calendar: Some(calendar),
        ..CreateCalendarRequest::default()
    };
    service.master().create_calendar(request).await.unwrap();
    let schedule = Schedule {
        name: schedule_name("nightly"),
        exclude_calendars: vec!["holidays".to_owned()],
        ..Schedule::default()
    };
    let update = UpdateScheduleRequest {
        schedule: Some(schedule),
        update_mask: Some(prost_types::FieldMask { paths: vec!["exclude_calendars".to_owned()] }),
        ..UpdateScheduleRequest::default()
    };
    service.master().update_schedule(update).await.unwrap();
}

async fn policies(service: &Service) {
    let gentle = Policy { description: "Two at a time: <the import host is small>".to_owned(), ..policy(2) };
    service.create_policy("gentle", gentle).await.unwrap();
    service.create_policy("idle", policy(50)).await.unwrap();
    let rated = Policy { rate_per_second: Some(5.0), ..Policy::default() };
    service.create_policy("rated", rated).await.unwrap();
    service.create_policy("quick", policy(8)).await.unwrap();
    service.create_policy("stopped", policy(4)).await.unwrap();
    service.create_policy("site", policy(12)).await.unwrap();
    service.create_policy("exports", policy(9)).await.unwrap();
    let below = |parent: &str| Policy { parent: Some(parent.to_owned()), ..Policy::default() };
    let imports = Policy { floor: Some(5), weight: Some(2), ..below("site") };
    service.create_policy("site-imports", imports).await.unwrap();
    let slow = Policy { max_in_flight: Some(4), ..below("site-imports") };
    service.create_policy("site-imports-slow", slow).await.unwrap();
    let reason = "the disk of b7 is full".to_owned();
    service
        .master()
        .pause_policy(PausePolicyRequest { name: policy_name("stopped"), reason, ..Default::default() })
        .await
        .unwrap();
}

fn nightly(consumer: &Consumer) -> Schedule {
    Schedule {
        triggers: cron("30 2 * * *"),
        time_zone: "Europe/Berlin".to_owned(),
        description: "Nightly backups of all devices".to_owned(),
        ..once(soon(300), 500, "gentle", http(consumer))
    }
}

/// A list of tenants, of which one is large.
fn tenants() -> Vec<ScheduleItem> {
    let item = |(tenant, units): (&str, u32)| ScheduleItem {
        data: Some(from_json(&json!({"tenant": tenant}))),
        key: tenant.to_owned(),
        units,
    };
    [("acme", 5), ("globex", 3), ("acme", 5), ("initech", 0)].map(item).to_vec()
}

async fn schedules(service: &Service, consumer: &Consumer) {
    let target = || http(consumer);
    // A moment that has passed does not come. Each is chosen when its schedule is created, and far enough ahead for a disk
    // that stands still for a while.
    let now = || soon(5_000);
    let retry = |attempts: u32| RetryPolicy {
        max_attempts: Some(attempts),
        min_backoff: Some(ms(200)),
        max_backoff: Some(ms(400)),
        ..RetryPolicy::default()
    };
    let schedule_of = |name: &str| match name {
        // Two hold the tokens, eight wait, and a more urgent schedule waits before them.
        "batch" => Schedule { finish_by: Some(ms(1_200_000)), ..once(now(), 10, "gentle", target()) },
        "urgent" => Schedule { priority: Some(9), ..once(soon(7_500), 3, "gentle", target()) },
        // Runs again and again, and well.
        "done" => every(2, now(), 4, "quick", target()),
        "flaky" => Schedule { retry: Some(retry(500)), ..once(now(), 2, "quick", target()) },
        "hopeless" => Schedule { retry: Some(retry(2)), ..once(now(), 3, "quick", target()) },
        // What it starts must start within a second, and cannot.
        "hasty" => Schedule { finish_by: Some(ms(1_000)), ..once(now(), 3, "stopped", target()) },
        "kept" => once(now(), 3, "site-imports", target()),
        "kept-slow" => once(now(), 2, "site-imports-slow", target()),
        "stuck" => once(now(), 6, "stopped", target()),
        // Of nine tokens, the first of each key hold nine, and the second of one waits.
        "tenants" => Schedule { items: tenants(), events: None, ..once(now(), 1, "exports", target()) },
        "weekdays" => Schedule { triggers: cron("*/15 9-17 * * MON-FRI"), ..nightly(consumer) },
        "herd" => Schedule { triggers: cron("0 0 * * *"), events: Some(100_000), ..nightly(consumer) },
        "resting" => Schedule { triggers: cron("0 12 * * SUN"), ..nightly(consumer) },
        _ => nightly(consumer),
    };
    let all = [
        "batch",
        "urgent",
        "done",
        "flaky",
        "hopeless",
        "hasty",
        "stuck",
        "nightly",
        "weekdays",
        "herd",
        "resting",
        "kept",
        "kept-slow",
        "tenants",
    ];
    for name in all {
        service.create_schedule(name, schedule_of(name)).await.unwrap();
    }
    let pause = PauseScheduleRequest {
        name: schedule_name("resting"),
        reason: "until the move".to_owned(),
        ..Default::default()
    };
    service.master().pause_schedule(pause).await.unwrap();
}
