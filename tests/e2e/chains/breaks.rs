//! Where a chain breaks off: what expired or was lost counts as failed, and an outage is judged by what follows.

use std::collections::BTreeSet;

use sqlx::{Connection as _, PgConnection};
use tollgate_harness::machine::{Machine, compile};
use tollgate_harness::resources::{ms, policy};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::{
    CatchUp, CatchUpMode, FinishCondition, Policy, RetryPolicy, RunState, Schedule, SkipReason,
};

use super::ends::{came, ended, keeper, predecessor, release};
use super::{manual, then, trigger};

/// The first steps of the chains over an outage.
const FIRST: [&str; 5] = ["first1", "first2", "first3", "first4", "first5"];

/// The schedules `expires-…`, which have too little time for what they do one by one, and `loses-…`, whose consumer is silent.
fn that_fails(consumer: &Consumer, id: &str) -> Schedule {
    let schedule = Schedule { policy: id.to_owned(), ..manual(consumer, 3) };
    if id.starts_with("expires") {
        return Schedule { finish_by: Some(ms(1_000)), ..schedule };
    }
    let retry = Some(RetryPolicy { retry_lost: Some(false), ..RetryPolicy::default() });
    Schedule { retry, ..schedule }
}

async fn what_expired_and_what_was_lost_is_followed_as_a_failure(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |arrival| {
        match arrival.schedule.split('-').next().unwrap() {
            "expires" => Conduct::work(1_500..1_600),
            "loses" => Conduct::keep(),
            _ => Conduct::work(0..1),
        }
    })
    .await;
    service.create_policy("p", policy(4)).await.unwrap();
    for id in ["well", "badly"] {
        service.create_schedule(id, manual(&consumer, 1)).await.unwrap();
    }
    let short = Some(ms(1_000));
    let mut failed = Vec::new();
    for how in ["expires", "loses"] {
        for (next, when) in [("well", FinishCondition::AllSucceeded), ("badly", FinishCondition::AnyFailed)] {
            let id = format!("{how}-{next}");
            let limits = if how == "expires" {
                policy(1)
            } else {
                Policy { token_ttl: short, suspect_period: short, ..policy(3) }
            };
            service.create_policy(&id, limits).await.unwrap();
            service.create_schedule(&id, then(that_fails(&consumer, &id), next, when)).await.unwrap();
            failed.push((how, next, trigger(&service, &id).await.name));
        }
    }
    let mut before = BTreeSet::new();
    for (how, next, name) in failed {
        let run = wait_for("the end of a run", 60, async || {
            Some(service.run(&name).await).filter(|run| run.finish_time.is_some())
        })
        .await;
        let counts = run.counts.unwrap();
        assert_eq!(run.state(), RunState::FinishedWithFailures, "{run:?}");
        // On a slow machine the first one, too, may start too late.
        assert!(if how == "expires" { counts.expired >= 2 } else { counts.lost == 3 }, "{run:?}");
        if next == "badly" {
            before.insert((name, counts.expired, counts.lost));
        }
    }
    let after: BTreeSet<(String, u32, u32)> = ended(&service, "badly", 2)
        .await
        .into_iter()
        .map(|run| run.predecessor.unwrap())
        .map(|of| (of.run, of.counts.unwrap().expired, of.counts.unwrap().lost))
        .collect();
    assert_eq!(after, before);
    // The one that is followed by `when: ALL_SUCCEEDED` is the one that went well.
    let succeeds = then(manual(&consumer, 1), "well", FinishCondition::AllSucceeded);
    service.create_schedule("succeeds", succeeds).await.unwrap();
    let first = trigger(&service, "succeeds").await;
    let well = ended(&service, "well", 1).await;
    assert_eq!(predecessor(&well[0]), first.name);
    for id in ["well", "badly"] {
        assert!(service.skipped(id).await.is_empty(), "{id}");
    }
    service.stop().await;
}

on_both_stores!(what_expired_and_what_was_lost_is_followed_as_a_failure);

/// Runs end as their process dies, and the next process comes three minutes later, by its clock: what follows each of them was
/// missed, and its own `catchUp` decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_the_next_step_goes_by_its_own_rule() {
    let folder = tempfile::tempdir().unwrap();
    let library = compile(folder.path()).unwrap();
    let machine = Machine::new(&library, folder.path().join("machine")).unwrap();
    let database = Database::new(Kind::Postgres).await;
    let start = async || {
        let flags = ["--clock-offset-max", "0s"];
        let service = Service::join_on(&database, &flags, &machine.environment()).await;
        service.owns_all().await.unwrap();
        service
    };
    let service = start().await;
    service.create_policy("p", policy(9)).await.unwrap();
    let steps = [
        ("none", Some((CatchUpMode::None, None)), false),
        ("latest", Some((CatchUpMode::Latest, None)), true),
        ("within", Some((CatchUpMode::All, Some(ms(3_600_000)))), true),
        ("beyond", Some((CatchUpMode::All, Some(ms(60_000)))), false),
        ("default", None, true),
    ];
    let consumer = keeper(&service.link(), &FIRST).await;
    let (mut before, mut events) = (Vec::new(), Vec::new());
    for (first, (id, rule, _)) in FIRST.into_iter().zip(steps) {
        let catch_up = rule.map(|(mode, horizon)| CatchUp { mode: mode.into(), horizon });
        // Nobody takes its events.
        let next = Schedule { catch_up, ..crate::pulled::pull(1, "p", &[]) };
        service.create_schedule(id, next).await.unwrap();
        let schedule = then(manual(&consumer, 1), id, FinishCondition::Always);
        service.create_schedule(first, schedule).await.unwrap();
        before.push(trigger(&service, first).await.name);
        events.extend(came(&consumer, first, 1).await);
    }
    // What follows cannot be read, and so is not launched, until the process is dead.
    let mut other = PgConnection::connect(&database.url()).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE schedules IN ACCESS EXCLUSIVE MODE").execute(&mut other).await.unwrap();
    for event in &events {
        release(&service, event).await;
    }
    service.kill9();
    let launched = "SELECT count(*) FROM runs WHERE schedule_id NOT LIKE 'first%'";
    let launched: i64 = sqlx::query_scalar(launched).fetch_one(&mut other).await.unwrap();
    assert_eq!(launched, 0, "it was launched before the process died");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    machine.clock_offset(180_000_000).unwrap();
    let service = start().await;
    for ((id, _, goes_on), before) in steps.into_iter().zip(before) {
        let (run, skip) = wait_for(&format!("what becomes of {id}"), 60, async || {
            let (mut runs, mut skipped) = (service.runs(id).await, service.skipped(id).await);
            assert!(runs.len() + skipped.len() <= 1, "{runs:?} {skipped:?}");
            Some((runs.pop(), skipped.pop())).filter(|found| *found != (None, None))
        })
        .await;
        assert_eq!((run.is_some(), skip.is_some()), (goes_on, !goes_on), "{id}: {run:?} {skip:?}");
        if let Some(run) = run {
            assert_eq!(predecessor(&run), before);
        }
        assert!(skip.is_none_or(|skip| skip.reason() == SkipReason::Missed), "{id}");
    }
    service.stop().await;
}
