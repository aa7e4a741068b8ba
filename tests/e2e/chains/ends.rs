//! The moment between two steps: the next one is paused, or an earlier run of it goes on, or nobody is there to launch it.

use std::collections::BTreeSet;

use sqlx::{Connection as _, PgConnection};
use tollgate_harness::resources::{every, http, policy, schedule_name, soon, us};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Link, Releases, Service, wait_for};
use tollgate_proto::v1::{
    FinishCondition, Overlap, PauseScheduleRequest, ReleaseStatus, ReleaseTokenRequest,
    ResumeScheduleRequest, Run, RunState, Schedule, SkipReason,
};

use super::{manual, then, trigger};

pub(super) async fn pause(service: &Service, id: &str) {
    let request = PauseScheduleRequest { name: schedule_name(id), ..PauseScheduleRequest::default() };
    service.master().pause_schedule(request).await.unwrap();
}

async fn resume(service: &Service, id: &str) {
    let request = ResumeScheduleRequest { name: schedule_name(id), ..ResumeScheduleRequest::default() };
    service.master().resume_schedule(request).await.unwrap();
}

pub(super) fn predecessor(run: &Run) -> &str {
    &run.predecessor.as_ref().unwrap().run
}

/// A consumer that keeps the events of these schedules, and works on all others for a moment.
pub(super) async fn keeper(link: &Link, kept: &'static [&'static str]) -> Consumer {
    Consumer::start(link.clone(), Releases::Unary, move |arrival| {
        if kept.contains(&arrival.schedule.as_str()) { Conduct::keep() } else { Conduct::work(0..1) }
    })
    .await
}

/// The schedule `first`, whose event is kept, and `next` after it, with so many.
async fn two_steps(service: &Service, link: &Link, events: u32) -> Consumer {
    let consumer = keeper(link, &["first"]).await;
    service.create_policy("p", policy(4)).await.unwrap();
    service.create_schedule("next", manual(&consumer, events)).await.unwrap();
    let first = then(manual(&consumer, 1), "next", FinishCondition::AllSucceeded);
    service.create_schedule("first", first).await.unwrap();
    consumer
}

/// The events of a schedule that have come, once there are so many.
pub(super) async fn came(consumer: &Consumer, schedule: &str, count: usize) -> Vec<String> {
    wait_for(&format!("events of {schedule}"), 30, async || {
        let arrivals = consumer.notes.arrivals().into_iter();
        let ids: Vec<String> =
            arrivals.filter(|one| one.schedule == schedule).map(|one| one.event_id).collect();
        (ids.len() == count).then_some(ids)
    })
    .await
}

pub(super) async fn release(service: &Service, event: &str) {
    let request = ReleaseTokenRequest { name: event.to_owned(), attempt: Some(1), ..Default::default() };
    let answer = service.handler().release_token(request).await.unwrap().into_inner();
    assert_eq!(answer.status(), ReleaseStatus::Released, "{answer:?}");
}

/// Runs of a schedule of which so many have ended: there are no others.
pub(super) async fn ended(service: &Service, schedule: &str, count: usize) -> Vec<Run> {
    wait_for(&format!("{count} runs of {schedule}"), 60, async || {
        let runs = service.runs(schedule).await;
        assert!(runs.len() <= count, "{runs:?}");
        let ended = runs.iter().filter(|run| run.finish_time.is_some()).count();
        (ended == count).then_some(runs)
    })
    .await
}

/// The chain ends there, and that is recorded. Nothing of it comes after the pause; the next chain goes through.
async fn a_step_that_is_paused_ends_its_chain_and_no_later_one(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = keeper(&service.link(), &[]).await;
    service.create_policy("p", policy(4)).await.unwrap();
    for (id, next) in [("last", None), ("middle", Some("last")), ("first", Some("middle"))] {
        let schedule = manual(&consumer, 2);
        let schedule = next.map_or(schedule.clone(), |next| then(schedule, next, FinishCondition::Always));
        service.create_schedule(id, schedule).await.unwrap();
    }
    pause(&service, "middle").await;
    let before = trigger(&service, "first").await;
    let skipped =
        wait_for("a trigger that makes no run", 30, async || service.skipped("middle").await.pop()).await;
    assert_eq!(skipped.reason(), SkipReason::Paused);
    let before = service.run(&before.name).await;
    assert_eq!(before.state(), RunState::Finished);
    assert!(us(skipped.launch_time) >= us(before.finish_time), "{skipped:?} {before:?}");
    assert!(service.runs("middle").await.is_empty() && service.runs("last").await.is_empty());
    resume(&service, "middle").await;
    let after = trigger(&service, "first").await;
    let last = ended(&service, "last", 1).await;
    let middle = ended(&service, "middle", 1).await;
    assert_eq!((predecessor(&last[0]), predecessor(&middle[0])), (&*middle[0].name, &*after.name));
    assert_eq!(service.skipped("middle").await.len(), 1, "what was recorded stays");
    consumer.notes.assert_once();
    service.stop().await;
}

/// `overlap: SKIP` of the first step holds for its whole chain. A chain that a pause has ended holds up none.
async fn a_chain_that_a_pause_has_ended_holds_up_no_other(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = keeper(&service.link(), &[]).await;
    service.create_policy("p", policy(4)).await.unwrap();
    service.create_schedule("next", manual(&consumer, 1)).await.unwrap();
    pause(&service, "next").await;
    let first = Schedule { overlap: Overlap::Skip.into(), ..every(1, soon(500), 1, "p", http(&consumer)) };
    service.create_schedule("first", then(first, "next", FinishCondition::Always)).await.unwrap();
    let finished = async || {
        let runs = service.runs("first").await;
        runs.iter().filter(|run| run.state() == RunState::Finished).count()
    };
    wait_for("three chains", 60, async || (finished().await >= 3).then_some(())).await;
    pause(&service, "first").await;
    wait_for("each of them to be recorded", 30, async || {
        let (finished, skipped) = (finished().await, service.skipped("next").await);
        assert!(skipped.iter().all(|one| one.reason() == SkipReason::Paused), "{skipped:?}");
        (skipped.len() == finished).then_some(())
    })
    .await;
    assert!(service.runs("next").await.is_empty());
    service.stop().await;
}

/// Two runs end close together: the next step has one run after the other, and a third end, meanwhile, makes none.
async fn one_run_of_a_step_waits_where_its_predecessors_end_together(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = keeper(&service.link(), &["first", "next"]).await;
    service.create_policy("p", policy(9)).await.unwrap();
    let next = Schedule { overlap: Overlap::BufferOne.into(), ..manual(&consumer, 1) };
    service.create_schedule("next", next).await.unwrap();
    let first = then(manual(&consumer, 1), "next", FinishCondition::Always);
    service.create_schedule("first", first).await.unwrap();
    let mut before = BTreeSet::new();
    for _ in 0..2 {
        before.insert(trigger(&service, "first").await.name);
    }
    let both = came(&consumer, "first", 2).await;
    tokio::join!(release(&service, &both[0]), release(&service, &both[1]));
    wait_for("a run for each end", 30, async || (service.runs("next").await.len() == 2).then_some(())).await;
    let one = came(&consumer, "next", 1).await;
    before.insert(trigger(&service, "first").await.name);
    release(&service, &came(&consumer, "first", 3).await[2]).await;
    let skipped =
        wait_for("the third one to be passed over", 30, async || service.skipped("next").await.pop()).await;
    assert_eq!(skipped.reason(), SkipReason::Overlap);
    assert_eq!(came(&consumer, "next", 1).await, one, "the second one waits");
    release(&service, &one[0]).await;
    release(&service, &came(&consumer, "next", 2).await[1]).await;
    let runs = ended(&service, "next", 3).await;
    let of = |state: RunState| runs.iter().filter(|run| run.state() == state).collect::<Vec<_>>();
    let (mut done, passed_over) = (of(RunState::Finished), of(RunState::Skipped));
    assert_eq!((done.len(), passed_over.len()), (2, 1), "{runs:?}");
    done.sort_by_key(|run| us(run.start_time));
    assert!(us(done[1].start_time) >= us(done[0].finish_time), "{done:?}");
    let after: BTreeSet<String> = runs.iter().map(|run| predecessor(run).to_owned()).collect();
    assert_eq!(after, before, "each end is followed once");
    assert_eq!(service.skipped("next").await.len(), 1);
    service.stop().await;
}

/// The process dies as soon as the last release of a run has been answered.
async fn an_end_that_was_answered_is_followed_once(kind: Kind) {
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let link = service.link();
    let consumer = two_steps(&service, &link, 2).await;
    let mut before = BTreeSet::new();
    for round in 1..=5 {
        before.insert(trigger(&service, "first").await.name);
        let events = came(&consumer, "first", round).await;
        release(&service, &events[round - 1]).await;
        service.kill9();
        service = Service::start(&database).await;
        link.follow(&service);
        let runs = ended(&service, "next", round).await;
        let after: BTreeSet<String> = runs.iter().map(|run| predecessor(run).to_owned()).collect();
        assert_eq!(after, before);
        assert!(runs.iter().all(|run| run.counts.unwrap().succeeded == 2), "{runs:?}");
    }
    service.stop().await;
}

on_both_stores!(
    a_step_that_is_paused_ends_its_chain_and_no_later_one,
    a_chain_that_a_pause_has_ended_holds_up_no_other,
    one_run_of_a_step_waits_where_its_predecessors_end_together,
    an_end_that_was_answered_is_followed_once,
);

/// The process dies before it could read what follows, which is locked until then: so it has launched nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_process_could_not_launch_is_launched_by_the_next() {
    let database = Database::new(Kind::Postgres).await;
    let service = Service::start(&database).await;
    let link = service.link();
    let consumer = two_steps(&service, &link, 3).await;
    let before = trigger(&service, "first").await;
    let event = came(&consumer, "first", 1).await;
    let mut other = PgConnection::connect(&database.url()).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE schedules IN ACCESS EXCLUSIVE MODE").execute(&mut other).await.unwrap();
    release(&service, &event[0]).await;
    service.kill9();
    let launched = "SELECT count(*) FROM runs WHERE schedule_id = 'next'";
    let launched: i64 = sqlx::query_scalar(launched).fetch_one(&mut other).await.unwrap();
    assert_eq!(launched, 0, "it was launched before the process died");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    let service = Service::start(&database).await;
    link.follow(&service);
    let runs = ended(&service, "next", 1).await;
    assert_eq!((predecessor(&runs[0]), runs[0].counts.unwrap().succeeded), (&*before.name, 3));
    // Once: another chain goes through, and there is no third one.
    trigger(&service, "first").await;
    release(&service, &came(&consumer, "first", 2).await[1]).await;
    ended(&service, "next", 2).await;
    consumer.notes.assert_once();
    service.stop().await;
}
