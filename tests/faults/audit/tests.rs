//! The auditor must be able to fail: each doctored log gives the right verdict, and the log as it was gives none.

use super::*;
use crate::journal::{Entry, Event, Met, What};

const LAUNCH_US: i64 = 1_000_000_000;

/// A run of four events under a limit of two, all delivered, released and recorded.
struct World {
    ordered: Ordered,
    journal: Journal,
    records: Records,
    disturbances: Vec<Disturbance>,
    ahead: Option<Ahead>,
}

fn event(index: u32) -> Event {
    Event {
        id: format!("07-run-{index}-seal"),
        policy: "p".to_owned(),
        schedule: "s".to_owned(),
        run: "07-run".to_owned(),
        launch_us: LAUNCH_US,
        index,
        count: 4,
    }
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            ordered: Ordered {
                due: vec![Due { schedule: "s".to_owned(), launch_us: LAUNCH_US, events: 4, required: true }],
                limits: vec![Limit { policy: "p".to_owned(), max: 2, from_us: 0, until_us: i64::MAX }],
                ..Ordered::default()
            },
            journal: Journal::default(),
            records: Records {
                runs: vec![RunRecord {
                    schedule: "s".to_owned(),
                    launch_us: LAUNCH_US,
                    events: 4,
                    ended: true,
                    succeeded: 4,
                    ..RunRecord::default()
                }],
                ..Records::default()
            },
            disturbances: Vec::new(),
            ahead: None,
        };
        for index in 0..4 {
            world.deliver(index, 1, LAUNCH_US + i64::from(index) * 1_000);
        }
        world
    }

    /// A delivery that is taken and, 500 us later, released.
    fn deliver(&mut self, index: u32, attempt: u32, at_us: i64) {
        let (number, _) = self.journal.arrived(&event(index), attempt, Met::Taken, at_us);
        self.journal.answers(number, attempt, at_us);
        self.journal.finishes(number, at_us + 500);
        self.journal.released(number, at_us + 600);
    }

    fn verdict(&self) -> Verdict {
        audit(&Evidence {
            ordered: &self.ordered,
            journal: &self.journal,
            records: &self.records,
            disturbances: &self.disturbances,
            ahead: self.ahead,
        })
    }

    /// Checks that exactly this promise was broken.
    fn breaks(&self, promise: Promise) -> Verdict {
        let verdict = self.verdict();
        let broken: Vec<Promise> = verdict.breaches.keys().copied().collect();
        assert_eq!(broken, [promise], "{:#?}", verdict.breaches);
        verdict
    }
}

#[test]
fn a_good_log_breaks_nothing() {
    let verdict = World::new().verdict();
    assert!(verdict.is_kept(), "{:#?}", verdict.breaches);
    assert_eq!((verdict.events_due, verdict.deliveries, verdict.distinct), (4, 4, 4));
    assert_eq!(verdict.in_flight_max["p"], (1, 2));
}

#[test]
fn one_event_that_neither_came_nor_ended_is_lost() {
    let mut world = World::new();
    world.ordered.due[0].events = 5;
    world.records.runs[0].events = 5;
    world.records.runs[0].succeeded = 4;
    world.records.runs[0].otherwise = 1;
    assert!(world.verdict().is_kept(), "it ended in a recorded state");
    world.records.runs.clear();
    assert_eq!(world.breaks(Promise::Lost).lost, 1);
}

#[test]
fn a_launch_without_any_trace_is_lost_and_a_recorded_skip_is_not() {
    let mut world = World::new();
    let launch_us = LAUNCH_US + 60_000_000;
    world.ordered.due.push(Due { schedule: "s".to_owned(), launch_us, events: 3, required: true });
    assert_eq!(world.breaks(Promise::Lost).lost, 3);
    world.records.skipped.insert(("s".to_owned(), launch_us));
    assert_eq!(world.verdict().skipped, 3);
    assert!(world.verdict().is_kept());
    world.records.skipped.clear();
    world.ordered.due[1].required = false;
    assert!(world.verdict().is_kept(), "the schedule was not acknowledged before it");
}

#[test]
fn one_too_many_in_flight() {
    let mut world = World::new();
    world.journal = Journal::default();
    for index in 0..4 {
        world.journal.arrived(&event(index), 1, Met::Taken, LAUNCH_US + i64::from(index));
        if index == 0 {
            world.journal.finishes(0, LAUNCH_US);
        }
    }
    let verdict = world.breaks(Promise::AboveM);
    assert_eq!((verdict.above_m_max, verdict.in_flight_max["p"]), (1, (3, 2)));
    // Under the limit that held shortly before, it is not too many.
    world.ordered.limits[0].until_us = LAUNCH_US - 10;
    world.ordered.limits.push(Limit { max: 3, ..world.ordered.limits[0].clone() });
    assert!(world.verdict().is_kept());
    world.ordered.limits[1].until_us = LAUNCH_US - 1_000_000_000;
    world.breaks(Promise::AboveM);
}

#[test]
fn one_microsecond_early_is_early() {
    let mut world = World::new();
    world.journal.entries[0].at_us = LAUNCH_US - 1;
    assert_eq!(world.breaks(Promise::Early).early, 1);
    world.ahead = Some(Ahead { from_us: LAUNCH_US - 1, by_us: 1 });
    assert!(world.verdict().is_kept(), "by the service's clock it was due");
}

#[test]
fn one_token_that_nobody_gave_back_is_leaked() {
    let mut world = World::new();
    world.records.held.insert("q".to_owned(), 0);
    assert!(world.verdict().is_kept());
    world.records.held.insert("p".to_owned(), 1);
    assert_eq!(world.breaks(Promise::Leaked).leaked, 1);
}

#[test]
fn an_event_that_did_not_end_is_stuck() {
    let mut world = World::new();
    world.records.runs[0].ended = false;
    world.breaks(Promise::Stuck);
}

#[test]
fn a_shard_that_nobody_owns_is_stuck() {
    let mut world = World::new();
    world.records.unowned.push(7);
    world.breaks(Promise::Stuck);
}

#[test]
fn a_repetition_needs_a_reason() {
    let mut world = World::new();
    let taken_us = LAUNCH_US + 3_000;
    world.deliver(3, 2, taken_us + 10_000_000);
    assert_eq!(world.breaks(Promise::Duplicate).repeats.not_allowed, 1);
    world.disturbances.push(Disturbance { from_us: taken_us - 1, until_us: taken_us + 1 });
    let repeats = world.verdict().repeats;
    assert!(world.verdict().is_kept());
    assert_eq!((repeats.unrecorded, repeats.of_done), (1, 1));
    world.disturbances[0].from_us = taken_us + 1;
    world.breaks(Promise::Duplicate);
}

#[test]
fn repetitions_after_refusals_and_doubts_are_allowed() {
    for met in [Met::Refused, Met::Doubtful, Met::Abandoned] {
        let mut world = World::new();
        world.journal = Journal::default();
        for index in 0..4 {
            world.journal.arrived(&event(index), 1, met, LAUNCH_US + i64::from(index) * 1_000);
            world.deliver(index, 2, LAUNCH_US + i64::from(index) * 1_000 + 100);
        }
        assert!(world.verdict().is_kept(), "{met:?}: {:#?}", world.verdict().breaches);
    }
}

/// The service cannot know that the work has been done while the calls that say so fail.
#[test]
fn doubt_about_an_event_that_has_been_done_allows_a_repetition_too() {
    let at_us = LAUNCH_US + 3_000;
    for (met, is_kept) in [(Met::Doubtful, true), (Met::Taken, false)] {
        let mut world = World::new();
        world.journal = Journal::default();
        for index in 0..4 {
            let (number, _) = world.journal.arrived(&event(index), 1, Met::Doubtful, at_us);
            world.journal.finishes(number, at_us + 50);
            world.journal.arrived(&event(index), 2, met, at_us + 100);
            world.deliver(index, 3, at_us + 200);
        }
        assert_eq!(world.verdict().is_kept(), is_kept, "{met:?}");
    }
}

#[test]
fn attempts_grow() {
    let mut world = World::new();
    let at_us = LAUNCH_US + 3_000;
    world.disturbances.push(Disturbance { from_us: at_us, until_us: at_us + 1_000 });
    world.deliver(3, 1, at_us + 100);
    world.breaks(Promise::Attempt);
    let mut world = World::new();
    world.disturbances.push(Disturbance { from_us: at_us, until_us: at_us + 1_000 });
    world.deliver(3, 3, at_us + 100);
    world.deliver(3, 2, at_us + 200);
    assert!(world.verdict().is_kept(), "one overtook the other while something stood still");
}

#[test]
fn one_event_has_one_id() {
    let mut world = World::new();
    let twin = Event { id: "08-other-3-seal".to_owned(), policy: String::new(), ..event(3) };
    world.journal.arrived(&twin, 1, Met::Taken, LAUNCH_US + 9_000);
    world.breaks(Promise::Identity);
    let mut world = World::new();
    let changed = Event { launch_us: LAUNCH_US - 1, ..event(3) };
    world.journal.arrived(&changed, 2, Met::Taken, LAUNCH_US + 9_000);
    assert!(world.verdict().breaches.contains_key(&Promise::Protocol));
}

#[test]
fn what_never_fell_due_must_not_fire() {
    let mut world = World::new();
    let stray = Event { id: "07-stray-0-seal".to_owned(), schedule: "t".to_owned(), ..event(0) };
    let (number, _) = world.journal.arrived(&stray, 1, Met::Taken, LAUNCH_US + 9_000);
    world.journal.finishes(number, LAUNCH_US + 9_100);
    world.breaks(Promise::NotDue);
    world.ordered.by_hand.insert("t".to_owned());
    assert!(world.verdict().is_kept());
}

#[test]
fn records_tell_no_more_than_what_happened() {
    let mut world = World::new();
    world.records.runs[0].succeeded = 3;
    world.records.runs[0].otherwise = 1;
    world.breaks(Promise::Records);
    let mut world = World::new();
    let last = world.journal.events.pop();
    world
        .journal
        .entries
        .retain(|entry: &Entry| entry.event < 3 || !matches!(entry.what, What::Arrived { .. }));
    world.journal.entries.retain(|entry| entry.event < 3);
    assert!(last.is_some());
    assert!(world.verdict().breaches.contains_key(&Promise::Records));
}
