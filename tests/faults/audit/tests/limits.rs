//! What may come after a release, what was given back, and what the campaign's own lag explains: no more than that.

use super::*;
use crate::sink::{PULLED, SILENT};

const RELEASED_US: i64 = LAUNCH_US + 4_000_000;
const READ_LATE: &str = "the campaign was late to read it or to answer";

/// The first broken promise about deliveries, and its first case.
fn broken(world: &World) -> Option<(Promise, String)> {
    let verdict = world.verdict();
    let of_delivery = [Promise::Lost, Promise::Attempt, Promise::Released, Promise::Duplicate];
    let found = of_delivery.into_iter().find_map(|one| Some((one, verdict.breaches.get(&one)?)));
    found.map(|(promise, breach)| (promise, breach.cases[0].clone()))
}

fn promise(world: &World) -> Option<Promise> {
    broken(world).map(|(promise, _)| promise)
}

/// A fifth event, of this policy.
fn fifth(policy: &str) -> Event {
    Event { policy: policy.to_owned(), count: 5, ..event(4) }
}

/// It is of a policy that reclaims: it came, was released, and has come again.
fn released(said: &[(Said, i64)], again_us: i64) -> World {
    let mut world = World::new();
    let event = fifth(SILENT);
    let (number, _) = world.journal.arrived(&event, 1, Met::Taken, LAUNCH_US);
    world.journal.answers(number, 1, LAUNCH_US);
    for (said, at_us) in said {
        world.journal.released(number, *said, *at_us);
    }
    world.journal.arrived(&event, 2, Met::Taken, again_us);
    world
}

/// It was taken at once, and has come again ten seconds later.
fn again() -> World {
    let mut world = World::new();
    for (attempt, at_us) in [(1, LAUNCH_US), (2, LAUNCH_US + 10_000_000)] {
        let (number, _) = world.journal.arrived(&fifth("p"), attempt, Met::Taken, at_us);
        world.journal.answers(number, attempt, at_us);
    }
    world
}

#[test]
fn a_release_that_was_recorded_is_carried_out_within_a_poll_a_lease_and_a_deadline() {
    for (said, limit_us) in [(Said::Direct, 1_000_000), (Said::Recorded, 1_000_000 + LEASE_US + 1_000_000)] {
        let world = |after_us| released(&[(said, RELEASED_US)], RELEASED_US + after_us);
        assert_eq!(promise(&world(limit_us)), None, "{said:?}");
        assert_eq!(promise(&world(limit_us + 1)), Some(Promise::Released), "{said:?}");
    }
    // Of several answers the one counts that allows least.
    let both = [(Said::Recorded, RELEASED_US), (Said::Direct, RELEASED_US + 100_000)];
    assert_eq!(promise(&released(&both, RELEASED_US + 1_100_000)), None);
    assert_eq!(promise(&released(&both, RELEASED_US + 1_100_001)), Some(Promise::Released));
    let both = [(Said::Direct, RELEASED_US), (Said::Recorded, RELEASED_US + 100_000)];
    assert_eq!(promise(&released(&both, RELEASED_US + 1_000_001)), Some(Promise::Released));
}

#[test]
fn the_campaigns_lag_around_the_release_and_the_arrival_is_added() {
    let world = |after_us| {
        let mut world = released(&[(Said::Direct, RELEASED_US)], RELEASED_US + after_us);
        // At the arrival, and two seconds after it.
        world.lags.note(RELEASED_US + 2_300_000, 300_000);
        // Right before the release.
        world.lags.note(RELEASED_US - 500_000, 200_000);
        // At other times.
        world.lags.note(RELEASED_US - 60_000_000, 9_000_000);
        world.lags.note(RELEASED_US + 60_000_000, 9_000_000);
        world
    };
    assert_eq!(promise(&world(1_000_000)), None);
    assert!(!world(1_000_000).verdict().repeats.by_reason.contains_key(READ_LATE));
    assert_eq!(promise(&world(1_500_000)), None);
    assert_eq!(world(1_500_000).verdict().repeats.by_reason[READ_LATE], 1);
    assert_eq!(promise(&world(1_500_001)), Some(Promise::Released));
}

#[test]
fn an_answer_that_the_campaign_gave_after_the_deadline_was_not_heard() {
    for (lag_us, broken) in [(500_000, None), (499_999, Some(Promise::Duplicate))] {
        let mut world = again();
        world.lags.note(LAUNCH_US + 500_000, lag_us);
        assert_eq!(promise(&world), broken, "{lag_us}");
        assert_eq!(world.verdict().repeats.by_reason.contains_key(READ_LATE), broken.is_none());
        // At another time it explains nothing.
        let mut world = again();
        world.lags.note(LAUNCH_US + 5_500_000, lag_us);
        assert_eq!(promise(&world), Some(Promise::Duplicate));
    }
}

#[test]
fn a_connection_that_ends_soon_after_an_answer_may_have_ended_before_it() {
    for (after_us, lag_us, broken) in [
        (249_999, 0, None),
        (250_000, 0, Some(Promise::Duplicate)),
        (369_999, 60_000, None),
        (370_000, 60_000, Some(Promise::Duplicate)),
    ] {
        let mut world = again();
        world.lags.note(LAUNCH_US + 500_000, lag_us);
        // Before the other attempt, which came and was answered.
        let other = world.journal.entries.len() - 2;
        let other = world.journal.entries.split_off(other);
        world.journal.hung_up(&event(4).id, 1, (LAUNCH_US, LAUNCH_US + after_us));
        world.journal.entries.extend(other);
        assert_eq!(promise(&world), broken, "{after_us} {lag_us}");
    }
}

#[test]
fn a_fault_that_met_an_answer_on_its_way_through_the_campaign_explains_a_repetition() {
    for (lag_us, broken) in [(300_000, None), (299_999, Some(Promise::Duplicate))] {
        let mut world = again();
        world.lags.note(LAUNCH_US + 500_000, lag_us);
        let (from_us, until_us) = (LAUNCH_US + 300_000, LAUNCH_US + 1_000_000);
        world.disturbances.push(Disturbance { reason: KILLED, from_us, until_us });
        assert_eq!(promise(&world), broken, "{lag_us}");
    }
}

#[test]
fn what_was_given_back_comes_again_and_nothing_else_does() {
    // The service has called it done.
    let mut world = World::new();
    world.ordered.due[0].events = 5;
    world.records.runs[0].events = 5;
    world.records.runs[0].succeeded = 5;
    let at_us = LAUNCH_US + 10_000;
    let (number, _) = world.journal.arrived(&fifth(PULLED), 1, Met::GivenBack, at_us);
    world.journal.gives_back(number, at_us);
    world.journal.gave_back(number, 1, Said::Recorded, at_us + 10);
    assert_eq!(world.breaks(Promise::Lost).lost, 1);
    let mut unended = World::new();
    unended.journal = world.journal.clone();
    unended.records.runs[0].ended = false;
    assert!(!unended.verdict().breaches.contains_key(&Promise::Lost), "it may still come");
    // It comes again, and is done.
    world.journal.arrived(&fifth(PULLED), 2, Met::Taken, at_us + 100_000);
    world.journal.answers(number, 2, at_us + 100_000);
    let verdict = world.verdict();
    assert!(verdict.is_kept(), "{:#?}", verdict.breaches);
    assert_eq!(verdict.repeats.by_reason["given back"], 1);
    // It was given back before, and was not this time.
    world.journal.arrived(&fifth(PULLED), 3, Met::Taken, at_us + 200_000);
    world.breaks(Promise::Duplicate);
    let case = broken(&world).map(|(_, case)| case).unwrap_or_default();
    let back = format!("attempt 1 was given back (recorded) at {}", at_us + 10);
    assert!(case.contains(&back), "{case}");
}

#[test]
fn a_case_names_all_that_is_known() {
    let mut world = World::new();
    for (attempt, at_us, by) in [(1, LAUNCH_US, 2), (2, RELEASED_US + 5_000_001, 0)] {
        let (number, _) = world.journal.arrived_by(&fifth(PULLED), attempt, Met::Taken, (at_us, Some(by)));
        world.journal.answers(number, attempt, at_us + 7);
        world.journal.released(number, Said::Recorded, RELEASED_US);
    }
    let (promise, case) = broken(&world).unwrap_or((Promise::Lost, String::new()));
    assert_eq!(promise, Promise::Released);
    for part in [
        "policy \"pulled\", event 07-run-4-seal".to_owned(),
        format!("attempt 2 (Taken, given by process 0) came at {}", RELEASED_US + 5_000_001),
        format!("after attempt 1 (Taken, given by process 2) came at {LAUNCH_US}"),
        format!("answered at {}", LAUNCH_US + 7),
        format!("RELEASED (recorded) at {RELEASED_US}, with a limit of {}", RELEASED_US + 5_000_000),
    ] {
        assert!(case.contains(&part), "{part} is not in: {case}");
    }
}

#[test]
fn healthy_work_that_the_campaign_read_late_was_not_late() {
    for (late_us, is_kept) in [(4_200_000, true), (4_200_001, false)] {
        let mut world = World::new();
        let (id, schedule) = ("0a-healthy-0-seal".to_owned(), "healthy-1".to_owned());
        world.ordered.by_hand.insert(schedule.clone());
        let run = RunRecord {
            schedule: schedule.clone(),
            events: 1,
            succeeded: 1,
            ..world.records.runs[0].clone()
        };
        world.records.runs.push(run);
        let healthy = Event { id, schedule, policy: String::new(), count: 1, ..event(0) };
        world.journal.arrived(&healthy, 1, Met::Taken, LAUNCH_US + late_us);
        world.lags.note(LAUNCH_US + 4_500_000, 200_000);
        world.watches.push(Watch {
            kind: "f".to_owned(),
            from_us: LAUNCH_US,
            until_us: LAUNCH_US + 1,
            shards: None,
            spares_others: true,
        });
        let verdict = world.verdict();
        assert_eq!(verdict.is_kept(), is_kept, "{:#?}", verdict.breaches);
    }
}
