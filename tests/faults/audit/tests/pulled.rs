//! Chains, and what workers take.

use super::*;
use crate::sink::PULLED;

#[test]
fn a_run_is_followed_by_one_with_an_event_for_each_of_its_own() {
    let mut world = World::new();
    world.ordered.chains.insert("s".to_owned(), "next".to_owned());
    world.records.runs[0].name = "first".to_owned();
    assert!(!followed(&world.ordered, &world.records.runs));
    world.breaks(Promise::Chain);
    let next = RunRecord {
        name: "second".to_owned(),
        schedule: "next".to_owned(),
        follows: Some("first".to_owned()),
        launch_us: LAUNCH_US + 1,
        events: 4,
        ended: true,
        otherwise: 4,
        ..RunRecord::default()
    };
    world.records.runs.push(next.clone());
    assert!(followed(&world.ordered, &world.records.runs));
    assert!(world.verdict().is_kept(), "{:#?}", world.verdict().breaches);
    for wrong in [
        RunRecord { events: 3, otherwise: 3, ..next.clone() },
        RunRecord { schedule: "other".to_owned(), ..next.clone() },
    ] {
        world.records.runs[1] = wrong;
        world.breaks(Promise::Chain);
    }
    world.records.runs[1] = next.clone();
    for more in [next.follows.clone(), Some("third".to_owned()), None] {
        let more = RunRecord { follows: more, launch_us: LAUNCH_US + 2, ..next.clone() };
        world.records.runs.push(more);
        world.breaks(Promise::Chain);
        world.records.runs.pop();
    }
}

#[test]
fn what_a_worker_says_may_be_lost_while_a_fault_is_near_and_at_no_other_time() {
    let mut world = World::new();
    world.ordered.due[0].events = 5;
    world.records.runs[0].events = 5;
    world.records.runs[0].succeeded = 5;
    let pulled = Event { policy: PULLED.to_owned(), count: 5, ..event(4) };
    let at_us = LAUNCH_US + 10_000;
    for (attempt, more_us) in [(1, 0), (2, 20_000)] {
        let (number, _) = world.journal.arrived(&pulled, attempt, Met::Taken, at_us + more_us);
        world.journal.answers(number, attempt, at_us + more_us);
    }
    world.breaks(Promise::Duplicate);
    let watch = |from_us| Watch {
        kind: "peers cut".to_owned(),
        from_us,
        until_us: from_us + 1_000_000,
        shards: None,
        spares_others: false,
    };
    world.watches = vec![watch(LAUNCH_US + 60_000_000)];
    world.breaks(Promise::Duplicate);
    world.watches = vec![watch(LAUNCH_US)];
    assert!(world.verdict().is_kept(), "{:#?}", world.verdict().breaches);
}
