//! Runs that follow one another: each once, in order, whatever dies; and what is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_harness::resources::{every, http, policy, schedule_name, soon, us};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, SECRET, Service, wait_for};
use tollgate_proto::v1::{
    CancelRunRequest, DeleteScheduleRequest, FinishCondition, OnFinish, Overlap, ReleaseOutcome,
    ReleaseTokenRequest, RetryPolicy, Run, RunKind, RunState, Schedule, SkipReason, TriggerScheduleRequest,
    UpdateScheduleRequest,
};
use tonic::Code;

use crate::metrics::page;

mod breaks;
mod ends;
mod many;

fn manual(consumer: &Consumer, events: u32) -> Schedule {
    Schedule {
        events: Some(events),
        policy: "p".to_owned(),
        target: Some(http(consumer)),
        ..Schedule::default()
    }
}

fn then(schedule: Schedule, next: &str, when: FinishCondition) -> Schedule {
    let on_finish = OnFinish { schedule: next.to_owned(), when: when.into(), ..Default::default() };
    Schedule { on_finish: Some(on_finish), ..schedule }
}

async fn trigger(service: &Service, id: &str) -> Run {
    let request = TriggerScheduleRequest { name: schedule_name(id), ..Default::default() };
    service.master().trigger_schedule(request).await.unwrap().into_inner()
}

async fn runs_follow_one_another(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let release = || ReleaseTokenRequest { cursor: Some("here".to_owned()), ..Default::default() };
    let consumer =
        Consumer::start(service.link(), Releases::Unary, move |_| Conduct::release(release())).await;
    service.create_policy("p", policy(4)).await.unwrap();
    service.create_schedule("report", manual(&consumer, 1)).await.unwrap();
    let work = then(manual(&consumer, 9), "report", FinishCondition::Always);
    service.create_schedule("work", work).await.unwrap();
    let mut list = then(manual(&consumer, 2), "work", FinishCondition::AllSucceeded);
    list.on_finish.as_mut().unwrap().events = Some(5);
    service.create_schedule("list", list).await.unwrap();
    let first = trigger(&service, "list").await;
    let last = service.finished("report", 20).await;
    let work = service.finished("work", 1).await;
    let list = service.run(&first.name).await;
    let places: Vec<u32> = [&work, &last].map(|run| run.predecessor.as_ref().unwrap().place).to_vec();
    assert_eq!((work.events, last.events, places), (5, 1, vec![1, 2]));
    assert_eq!(
        (work.kind(), last.kind(), list.predecessor.is_none()),
        (RunKind::Followed, RunKind::Followed, true)
    );
    let before = work.predecessor.as_ref().unwrap();
    assert_eq!((&before.run, &before.schedule), (&list.name, &list.schedule));
    assert_eq!((before.state(), before.counts.unwrap().succeeded), (RunState::Finished, 2));
    assert_eq!((work.cursor_in.as_str(), last.cursor_in.as_str()), ("here", "here"));
    assert!(us(work.start_time) >= us(list.finish_time) && us(last.start_time) >= us(work.finish_time));
    let arrivals = consumer.notes.arrivals();
    let by: Vec<&str> = arrivals.iter().map(|arrival| arrival.schedule.as_str()).collect();
    assert_eq!(by, ["list", "list", "work", "work", "work", "work", "work", "report"]);
    assert_eq!(arrivals.last().unwrap().cursor.as_deref(), Some("here"));
    consumer.notes.assert_once();
    let cli = Cli::new(service.url());
    assert!(cli.ok(&["history", "work"]).contains("FOLLOWED"));
    let told = cli.ok(&["why", "--schedule", "report"]);
    assert!(told.contains("; it follows work") && told.contains("; it follows list"), "{told}");
    assert!(told.contains("no run goes on in its chain"), "{told}");
    let told = cli.ok(&["why", "--schedule", "report", "-o", "json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let links = told["schedules"].as_array().unwrap();
    let names: Vec<&str> = links.iter().map(|link| link["schedule"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["report", "work", "list"].map(schedule_name));
    assert_eq!(links[2]["latestRun"]["name"], *list.name);
    service.stop().await;
}

/// Who looks at the last step sees at which one the chain stands, and why.
async fn what_blocks_a_chain_is_told_at_its_end(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |arrival| match &*arrival.schedule {
        "list" => Conduct::keep(),
        _ => Conduct::work(0..1),
    })
    .await;
    service.create_policy("p", policy(1)).await.unwrap();
    service.create_schedule("report", manual(&consumer, 1)).await.unwrap();
    for (id, next) in [("work", "report"), ("list", "work")] {
        let schedule = then(manual(&consumer, 2), next, FinishCondition::Always);
        service.create_schedule(id, schedule).await.unwrap();
    }
    trigger(&service, "list").await;
    let kept = async |count: usize| {
        let arrivals = async || Some(consumer.notes.arrivals()).filter(|all| all.len() == count);
        wait_for("what is kept", 20, arrivals).await.pop().unwrap().event_id
    };
    let first = kept(1).await;
    let cli = Cli::new(service.url());
    let told = cli.ok(&["why", "--schedule", "report"]);
    let lines = [
        "report has had no run; it follows work",
        "work has had no run; it follows list",
        "list goes on: of 2 events of run",
        "1 wait and 1 are in flight",
        "  its next event, ",
        "    LIMIT_REACHED: ",
    ];
    let at: Vec<_> = lines.map(|line| told.find(line)).to_vec();
    assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{at:?}: {told}");
    let shown = page(&service, "/n/default/schedules/report", "text/html").await.body;
    let picture = shown.split_once("id=\"h-chain\"").unwrap().1;
    let steps = [">list<", ">work<", ">report<"].map(|step| picture.find(step));
    assert!(steps.iter().all(Option::is_some) && steps.is_sorted(), "{steps:?}: {picture}");
    assert!(picture.contains("work waits for the end of list, of which 2 events are left."), "{picture}");
    let release = async |name: String| {
        let request = ReleaseTokenRequest { name, ..Default::default() };
        service.handler().release_token(request).await.unwrap();
    };
    release(first).await;
    release(kept(2).await).await;
    service.finished("report", 20).await;
    service.stop().await;
}

/// What each end of a run is followed by.
async fn the_end_decides(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer =
        Consumer::start(service.link(), Releases::Unary, |arrival| match arrival.schedule.as_str() {
            "fails" if arrival.index == 1 => Conduct::release(ReleaseTokenRequest {
                outcome: ReleaseOutcome::Failed.into(),
                ..Default::default()
            }),
            "dies" => Conduct::Answer(410),
            "stays" => Conduct::work(1_500..1_600),
            _ => Conduct::work(0..1),
        })
        .await;
    service.create_policy("p", policy(1)).await.unwrap();
    let after = [
        ("well", FinishCondition::AllSucceeded),
        ("badly", FinishCondition::AnyFailed),
        ("always", FinishCondition::Always),
    ];
    for (id, _) in after {
        service.create_schedule(id, manual(&consumer, 1)).await.unwrap();
    }
    for (first, events) in [("succeeds", 2), ("fails", 2), ("dies", 1), ("stays", 5)] {
        for (next, when) in after {
            // One after the other: a schedule has one that follows.
            let retry = Some(RetryPolicy { max_attempts: Some(1), ..Default::default() });
            let schedule = then(Schedule { retry, ..manual(&consumer, events) }, next, when);
            let stored = service.create_schedule(first, schedule.clone()).await;
            if stored.is_err() {
                let schedule = Schedule { name: schedule_name(first), ..schedule };
                let request = UpdateScheduleRequest { schedule: Some(schedule), ..Default::default() };
                service.master().update_schedule(request).await.unwrap();
            }
            let run = trigger(&service, first).await;
            if first == "stays" {
                wait_for("its start", 20, async || service.run(&run.name).await.start_time).await;
                let request = CancelRunRequest { name: run.name.clone(), ..Default::default() };
                service.handler().cancel_run(request).await.unwrap();
            }
            wait_for("its end", 20, async || service.run(&run.name).await.finish_time).await;
        }
    }
    wait_for("all that follow", 20, async || {
        let mut counts = BTreeMap::new();
        for (id, _) in after {
            let runs = service.runs(id).await;
            let of =
                |run: &Run| run.predecessor.as_ref().unwrap().schedule.rsplit('/').next().unwrap().to_owned();
            let mut of: Vec<String> = runs.iter().map(of).collect();
            of.sort();
            counts.insert(id, of.join(" "));
        }
        let expected =
            [("always", "dies fails stays succeeds"), ("badly", "dies fails"), ("well", "succeeds")];
        (counts == BTreeMap::from(expected.map(|(id, of)| (id, of.to_owned())))).then_some(())
    })
    .await;
    service.stop().await;
}

/// The process dies again and again while chains go on; each end is followed once.
async fn each_end_is_followed_once_whatever_dies(kind: Kind) {
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let link = service.link();
    let consumer = Consumer::start(link.clone(), Releases::Unary, |_| Conduct::work(0..30)).await;
    service.create_policy("p", policy(6)).await.unwrap();
    for (id, next) in [("d", None), ("c", Some("d")), ("b", Some("c")), ("a", Some("b"))] {
        let schedule = manual(&consumer, 3);
        let schedule = next.map_or(schedule.clone(), |next| then(schedule, next, FinishCondition::Always));
        service.create_schedule(id, schedule).await.unwrap();
    }
    let chains = 12;
    for number in 0..chains {
        trigger(&service, "a").await;
        tokio::time::sleep(Duration::from_millis(60)).await;
        if number % 3 == 2 {
            service.kill9();
            service = Service::start(&database).await;
            link.follow(&service);
        }
    }
    for id in ["a", "b", "c", "d"] {
        wait_for("all runs of it", 90, async || {
            let runs = service.runs(id).await;
            let ended = runs.iter().filter(|run| run.state() == RunState::Finished).count();
            assert!(runs.len() <= chains, "{runs:?}");
            (ended == chains).then_some(())
        })
        .await;
    }
    assert!(consumer.notes.in_flight_max() <= 6);
    service.stop().await;
}

/// A second chain does not begin while the first one goes on.
async fn the_overlap_rule_of_the_first_holds_for_the_chain(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer =
        Consumer::start(service.link(), Releases::Unary, |arrival| match arrival.schedule.as_str() {
            "last" => Conduct::work(2_400..2_500),
            _ => Conduct::work(0..1),
        })
        .await;
    service.create_policy("p", policy(9)).await.unwrap();
    service.create_schedule("last", manual(&consumer, 1)).await.unwrap();
    let first = Schedule { overlap: Overlap::Skip.into(), ..every(1, soon(500), 1, "p", http(&consumer)) };
    let first = then(first, "last", FinishCondition::Always);
    service.create_schedule("first", first).await.unwrap();
    wait_for("three chains", 40, async || (service.runs("last").await.len() >= 3).then_some(())).await;
    let cli = Cli::new(service.url());
    cli.ok(&["pause", "schedule", "first", "--reason", "enough"]);
    let mut ended = service.runs("last").await;
    ended.sort_by_key(|run| us(run.launch_time));
    for pair in ended.windows(2) {
        assert!(us(pair[1].launch_time) >= us(pair[0].finish_time), "{pair:?}");
    }
    let skipped = service.runs("first").await;
    let reason = skipped.iter().find(|run| run.reason.contains("the chain of the run"));
    assert!(reason.is_some(), "{skipped:?}");
    let skips = service.skipped("first").await;
    assert!(skips.iter().any(|skip| skip.reason() == SkipReason::Overlap), "{skips:?}");
    service.stop().await;
}

async fn what_cannot_follow_is_refused(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    service.create_policy("p", policy(1)).await.unwrap();
    let always = FinishCondition::Always;
    let refused = async |id: &str, schedule: Schedule| {
        let refused = service.create_schedule(id, schedule).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        refused.message().to_owned()
    };
    let told = refused("a", then(manual(&consumer, 1), "nowhere", always)).await;
    assert!(told.contains("schedule.on_finish.schedule: \"nowhere\" is not allowed"), "{told}");
    let told = refused("a", then(manual(&consumer, 1), "a", always)).await;
    assert!(told.contains("another schedule: a chain does not come back"), "{told}");
    for place in (1..=8).rev() {
        let schedule = manual(&consumer, 1);
        let schedule = if place == 8 { schedule } else { then(schedule, &format!("s{}", place + 1), always) };
        service.create_schedule(&format!("s{place}"), schedule).await.unwrap();
    }
    let told = refused("s0", then(manual(&consumer, 1), "s1", always)).await;
    assert!(told.contains("at most 8 schedules, not 9"), "{told}");
    // Neither at its end, nor as a circle.
    service.create_schedule("s9", manual(&consumer, 1)).await.unwrap();
    for (next, expected) in [("s9", "at most 8 schedules, not 9"), ("s3", "does not lead back to this one")] {
        let schedule = Schedule { name: schedule_name("s8"), ..then(manual(&consumer, 1), next, always) };
        let request = UpdateScheduleRequest { schedule: Some(schedule), ..Default::default() };
        let told = service.master().update_schedule(request).await.unwrap_err();
        assert_eq!(told.code(), Code::InvalidArgument);
        assert!(told.message().contains(expected), "{told:?}");
    }
    let request = DeleteScheduleRequest { name: schedule_name("s5"), ..Default::default() };
    let told = service.master().delete_schedule(request).await.unwrap_err();
    assert_eq!(told.code(), Code::FailedPrecondition, "{told:?}");
    assert!(told.message().contains("follows the schedules \"s4\""), "{told:?}");
    service.stop().await;
}

/// A job with steps, written as one, in three processes of which each dies once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_steps_survives_each_process() {
    let database = Database::new(Kind::Postgres).await;
    let flags = ["--lease-ttl", "2s"];
    let mut services = Vec::new();
    for _ in 0..3 {
        services.push(Service::join(&database, &flags).await);
    }
    let link = services[0].link();
    let consumer = Consumer::start(link.clone(), Releases::Unary, |_| Conduct::work(50..150)).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.yaml");
    let target = format!("{{http: {{url: '{}', secret: {SECRET}}}}}", consumer.url());
    let text = format!(
        "kind: Policy\nid: p\nmaxInFlight: 8\n---\nkind: Schedule\nid: job\nevents: 2\npolicy: p\n\
         target: {target}\nsteps:\n  - id: work\n    events: 30\n    target: {target}\n  \
         - task: report\n    when: ALWAYS\n---\nkind: Task\nid: report\ntarget: {target}\n"
    );
    std::fs::write(&file, text).unwrap();
    let cli = Cli::new(services[0].url());
    cli.ok(&["apply", "-f", file.to_str().unwrap()]);
    for _ in 0..3 {
        trigger(&services[0], "job").await;
        tokio::time::sleep(Duration::from_millis(250)).await;
        services.remove(0).kill9();
        services.push(Service::join(&database, &flags).await);
        link.follow(&services[0]);
    }
    for (id, events) in [("job", 2), ("job.work", 30), ("job.report", 1)] {
        let runs = wait_for("three runs of it", 60, async || {
            let runs = services[0].runs(id).await;
            (runs.len() == 3 && runs.iter().all(|run| run.state() == RunState::Finished)).then_some(runs)
        })
        .await;
        assert!(
            runs.iter().all(|run| run.events == events && run.counts.unwrap().succeeded == events),
            "{runs:?}"
        );
    }
    assert!(consumer.notes.in_flight_max() <= 8);
    for service in services {
        service.stop().await;
    }
}

on_both_stores!(
    runs_follow_one_another,
    the_end_decides,
    each_end_is_followed_once_whatever_dies,
    the_overlap_rule_of_the_first_holds_for_the_chain,
    what_cannot_follow_is_refused,
    what_blocks_a_chain_is_told_at_its_end,
);
