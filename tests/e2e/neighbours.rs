//! Schedules that share a queue shard, and of which one is in trouble: its consumer says nothing, or its rows cannot be
//! read, by the thousand. The others fire as if they were alone.

use std::time::Duration;

use tollgate_harness::resources::{every, http, policy, policy_name, schedule_name, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for, within};
use tollgate_proto::v1::{
    GetHandlerStatusRequest, PausePolicyRequest, ResumePolicyRequest, Run, RunState, Schedule, Target,
    TriggerScheduleRequest,
};

use crate::metrics::page;

/// More than a shard has places for where no policy bounds its deliveries.
const SILENT: u32 = 1_200;
/// More than an owner reads at once.
const UNREADABLE: usize = 2_500;
/// How long events of a healthy schedule may take, in seconds. On an idle machine they take milliseconds.
const HEALTHY_S: u64 = 25;

/// A schedule without a policy that does not fire by itself while a test runs.
fn by_hand(target: Target) -> Schedule {
    every(86_400, soon(80_000_000), 1, "", target)
}

async fn trigger(service: &Service, id: &str, events: u32) -> Run {
    let request =
        TriggerScheduleRequest { name: schedule_name(id), events: Some(events), ..Default::default() };
    service.master().trigger_schedule(request).await.unwrap().into_inner()
}

/// The queue shard of a run, as its name says.
fn shard(run: &Run) -> u16 {
    let (_, id) = run.name.split_once("/runs/").unwrap();
    u16::from_str_radix(id.split_once('-').unwrap().0, 16).unwrap()
}

/// Makes schedules until one lives in this shard, and returns its id.
async fn neighbour(service: &Service, wanted: u16, target: &Target) -> String {
    for number in 0..2_000 {
        let id = format!("healthy-{number}");
        service.create_schedule(&id, by_hand(target.clone())).await.unwrap();
        if shard(&trigger(service, &id, 1).await) == wanted {
            return id;
        }
    }
    panic!("no schedule of 2,000 lives in shard {wanted}");
}

async fn arrivals(consumer: &Consumer, run: &Run, count: usize) {
    within(&format!("{count} events of {}", run.name), HEALTHY_S, async || {
        let arrived = consumer.notes.arrivals().into_iter().filter(|one| one.run == run.name).count();
        (arrived >= count).then_some(())
    })
    .await;
}

async fn a_consumer_that_says_nothing_stops_no_other_schedule_of_its_shard(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let silent = Consumer::start(service.link(), Releases::Unary, |_| Conduct::Hang).await;
    let good = Consumer::start(service.link(), Releases::Unary, |_| Conduct::Answers(Duration::ZERO)).await;
    service.create_schedule("silent", by_hand(http(&silent))).await.unwrap();
    let hung = trigger(&service, "silent", SILENT).await;
    let healthy = neighbour(&service, shard(&hung), &http(&good)).await;
    wait_for("events at the consumer that says nothing", 30, async || {
        (silent.notes.arrivals_count() >= 100).then_some(())
    })
    .await;
    // All that it may take is taken.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for _ in 0..3 {
        let run = trigger(&service, &healthy, 50).await;
        arrivals(&good, &run, 50).await;
    }
    assert_ne!(service.run(&hung.name).await.state(), RunState::Finished);
    service.kill9();
}

async fn runs_that_cannot_be_read_stop_no_other_schedule_of_their_shard(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let link = service.link();
    let good = Consumer::start(link.clone(), Releases::Unary, |_| Conduct::Answers(Duration::ZERO)).await;
    service.create_schedule("healthy", by_hand(http(&good))).await.unwrap();
    arrivals(&good, &trigger(&service, "healthy", 1).await, 1).await;
    for sql in unreadable(kind) {
        assert_eq!(database.sql(&sql).await, UNREADABLE as u64, "{sql}");
    }
    for _ in 0..3 {
        let run = trigger(&service, "healthy", 5).await;
        arrivals(&good, &run, 5).await;
    }
    // Counted, named and listed.
    wait_for("the count of what is passed over", 20, async || {
        let metrics = page(&service, "/metrics", "text/plain").await.body;
        metrics.contains(&format!("\ntollgate_runs_unreadable {UNREADABLE}.0\n")).then_some(())
    })
    .await;
    let status = service.handler().get_handler_status(GetHandlerStatusRequest::default()).await;
    let named = status.unwrap().into_inner().corrupt_rows;
    assert!(named.iter().any(|row| row.table == "run_specs" && row.column == "body"), "{:?}", named.first());
    let listed = service.runs("healthy").await;
    let unreadable = listed.iter().filter(|run| run.state() == RunState::Unreadable).count();
    assert!(unreadable > 900, "{unreadable} of a page of 1,000 runs");

    // Tried again: by itself within a minute or so, and by whoever has the shard next.
    let mended = "UPDATE run_specs SET body = replace((SELECT sound.body FROM run_specs AS sound WHERE sound.body <> '{' \
                  AND sound.generation = 1 AND sound.schedule_uid = run_specs.schedule_uid), '\"generation\":1,', \
                  '\"generation\":' || generation || ',') WHERE body = '{'";
    assert_eq!(database.sql(mended).await, UNREADABLE as u64);
    let service = match kind {
        Kind::Postgres => service,
        Kind::Sqlite => {
            service.stop().await;
            let service = Service::start(&database).await;
            link.follow(&service);
            service
        }
    };
    wait_for("the runs that can be read again", 150, async || {
        (good.notes.attempts().len() >= 1 + 3 * 5 + UNREADABLE).then_some(())
    })
    .await;
    service.stop().await;
}

/// Emitted runs of the one that is there, each with a generation and a spec of its own that cannot be read.
fn unreadable(kind: Kind) -> [String; 2] {
    let (numbers, id) = match kind {
        Kind::Postgres => {
            (format!("generate_series(2, {}) AS n (number)", UNREADABLE + 1), "gen_random_uuid()")
        }
        Kind::Sqlite => (
            format!(
                "(WITH RECURSIVE n (number) AS (SELECT 2 UNION ALL SELECT number + 1 FROM n WHERE number <= {UNREADABLE}) \
                 SELECT number FROM n) AS n"
            ),
            "randomblob(16)",
        ),
    };
    [
        format!(
            "INSERT INTO run_specs (shard_id, schedule_uid, generation, created_us, body) \
             SELECT shard_id, schedule_uid, n.number, created_us, '{{' FROM run_specs, {numbers} WHERE generation = 1"
        ),
        format!(
            "INSERT INTO runs (shard_id, run_id, schedule_uid, generation, namespace, schedule_id, policy_uid, launch_us, \
             events, priority, kind, state, reason, next_index, succeeded, failed, dead, expired, cancelled, lost, \
             emitted_us) SELECT shard_id, {id}, schedule_uid, n.number, namespace, schedule_id, NULL, launch_us - n.number, 1, \
             priority, kind, 'EMITTED', '', 0, 0, 0, 0, 0, 0, 0, emitted_us FROM runs, {numbers} WHERE schedule_id = 'healthy'"
        ),
    ]
}

on_both_stores!(
    a_consumer_that_says_nothing_stops_no_other_schedule_of_its_shard,
    runs_that_cannot_be_read_stop_no_other_schedule_of_their_shard,
);

/// Of runs that had been taken in before, as well: their shard's next owner finds them, and takes them in once it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_run_whose_spec_cannot_be_read_goes_on_by_itself_once_it_can() {
    let database = Database::new(Kind::Postgres).await;
    let service = Service::start(&database).await;
    let link = service.link();
    let good = Consumer::start(link.clone(), Releases::Unary, |_| Conduct::work(0..1)).await;
    service.create_policy("p", policy(2)).await.unwrap();
    let under_it = |target: Target| Schedule { policy: "p".to_owned(), ..by_hand(target) };
    service.create_schedule("broken", under_it(http(&good))).await.unwrap();
    service.create_schedule("healthy", under_it(http(&good))).await.unwrap();
    let pause = PausePolicyRequest { name: policy_name("p"), ..PausePolicyRequest::default() };
    service.master().pause_policy(pause).await.unwrap();
    let run = trigger(&service, "broken", 5).await;
    wait_for("a run that its shard has taken in", 30, async || {
        (service.run(&run.name).await.state() != RunState::Emitted).then_some(())
    })
    .await;
    let of_it = "WHERE schedule_uid = (SELECT uid FROM schedules WHERE id = 'broken')";
    assert_eq!(database.sql(&format!("UPDATE run_specs SET body = '{{' || body {of_it}")).await, 1);
    service.kill9();
    let service = Service::start(&database).await;
    link.follow(&service);
    let resume = ResumePolicyRequest { name: policy_name("p"), ..Default::default() };
    service.master().resume_policy(resume).await.unwrap();
    let healthy = trigger(&service, "healthy", 5).await;
    arrivals(&good, &healthy, 5).await;
    assert_eq!(good.notes.arrivals().iter().filter(|one| one.run == run.name).count(), 0);
    assert_eq!(database.sql(&format!("UPDATE run_specs SET body = substr(body, 2) {of_it}")).await, 1);
    wait_for("the run that can be read again", 150, async || {
        (service.run(&run.name).await.state() == RunState::Finished).then_some(())
    })
    .await;
    assert_eq!(service.run(&run.name).await.counts.unwrap().succeeded, 5);
    service.stop().await;
}
