//! The auditor must be able to fail: each doctored log gives the right verdict, and the log as it was gives none.

mod limits;
mod pulled;

use super::*;
use crate::journal::{Entry, Event, Met, Said, What};

const LAUNCH_US: i64 = 1_000_000_000;
const LEASE_US: i64 = 3_000_000;

/// A run of four events under a limit of two, all delivered, released and recorded.
struct World {
    ordered: Ordered,
    journal: Journal,
    records: Records,
    disturbances: Vec<Disturbance>,
    watches: Vec<Watch>,
    ahead: Option<Ahead>,
    lags: Lags,
}

fn event(index: u32) -> Event {
    Event {
        id: format!("07-run-{index}-seal"),
        policy: "p".to_owned(),
        key: if index.is_multiple_of(2) { "even".to_owned() } else { String::new() },
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
            watches: Vec::new(),
            ahead: None,
            lags: Lags::default(),
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
        self.journal.released(number, Said::Direct, at_us + 600);
    }

    fn verdict(&self) -> Verdict {
        audit(&Evidence {
            ordered: &self.ordered,
            journal: &self.journal,
            records: &self.records,
            disturbances: &self.disturbances,
            watches: &self.watches,
            ahead: self.ahead,
            lags: &self.lags,
            lease_us: LEASE_US,
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
    assert_eq!(world.breaks(Promise::Unsent).ended_undelivered, 1, "nobody had asked for that");
    world.ordered.cancelled.insert("s".to_owned());
    assert!(world.verdict().is_kept(), "it ended in a recorded state");
    world.journal.events.clear();
    world.journal.entries.clear();
    world.records.runs.clear();
    assert_eq!(world.breaks(Promise::Lost).lost, 5);
}

#[test]
fn what_was_delivered_has_a_record() {
    let mut world = World::new();
    world.records.runs.clear();
    let verdict = world.breaks(Promise::Records);
    assert_eq!(verdict.lost, 0);
}

#[test]
fn a_launch_without_any_trace_is_lost_and_one_that_is_called_missed_is_not_caught_up() {
    let mut world = World::new();
    let launch_us = LAUNCH_US + 60_000_000;
    world.ordered.due.push(Due { schedule: "s".to_owned(), launch_us, events: 3, required: true });
    assert_eq!(world.breaks(Promise::Lost).lost, 3);
    world.records.skipped.insert(("s".to_owned(), launch_us));
    assert_eq!(world.breaks(Promise::Missed).skipped, 3);
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
fn one_too_many_in_flight_below_a_policy() {
    let mut world = World::new();
    world.journal = Journal::default();
    world.ordered.limits[0].max = 4;
    world.ordered.limits.push(Limit { policy: "root".to_owned(), max: 3, ..world.ordered.limits[0].clone() });
    for index in 0..4 {
        world.journal.arrived(&event(index), 1, Met::Taken, LAUNCH_US + i64::from(index));
    }
    assert!(!world.verdict().breaches.contains_key(&Promise::AboveM), "nothing is above it");
    world.ordered.above.insert("p".to_owned(), "root".to_owned());
    world.breaks(Promise::AboveM);
}

#[test]
fn one_too_many_in_flight_of_a_key() {
    let mut world = World::new();
    world.journal = Journal::default();
    world.ordered.limits[0].max = 4;
    world.ordered.key_limits.insert("p".to_owned(), 1);
    for index in 0..2 {
        world.journal.arrived(&event(index), 1, Met::Taken, LAUNCH_US + i64::from(index));
    }
    assert!(!world.verdict().breaches.contains_key(&Promise::AboveM), "each is of another key");
    for index in 2..4 {
        world.journal.arrived(&event(index), 1, Met::Taken, LAUNCH_US + i64::from(index));
    }
    world.breaks(Promise::AboveM);
}

#[test]
fn events_count_by_the_tokens_that_they_take() {
    let mut world = World::new();
    world.journal = Journal::default();
    world.ordered.limits[0].max = 5;
    world.ordered.units.insert("s".to_owned(), vec![1, 3, 1]);
    for index in 0..3 {
        world.journal.arrived(&event(index), 1, Met::Taken, LAUNCH_US + i64::from(index));
    }
    assert!(!world.verdict().breaches.contains_key(&Promise::AboveM));
    world.journal.arrived(&event(3), 1, Met::Taken, LAUNCH_US + 3);
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

const KILLED: &str = "process killed before it was recorded";

#[test]
fn a_repetition_needs_a_reason() {
    // The answer releases: there is no release of its own.
    let again = |answered: bool, from_us: i64| {
        let mut world = World::new();
        world.journal = Journal::default();
        for index in 0..4 {
            let at_us = LAUNCH_US + 3_000 + i64::from(index);
            for (attempt, at_us) in [(1, at_us), (2, at_us + 10_000_000)] {
                let (number, _) = world.journal.arrived(&event(index), attempt, Met::Taken, at_us);
                if answered || attempt == 2 {
                    world.journal.finishes(number, at_us);
                    world.journal.answers(number, attempt, at_us);
                }
                if !answered && attempt == 1 {
                    world.journal.is_freed(&event(index).id, at_us);
                }
            }
        }
        world.disturbances.push(Disturbance { reason: KILLED, from_us, until_us: from_us + 1_000 });
        world
    };
    assert_eq!(again(true, LAUNCH_US + 4_000).breaks(Promise::Duplicate).repeats.not_allowed, 4);
    let excused = again(true, LAUNCH_US + 3_000).verdict();
    assert!(excused.is_kept(), "{:#?}", excused.breaches);
    assert_eq!((excused.repeats.by_reason[KILLED], excused.repeats.of_done), (4, 4));
    // Nobody heard the answer.
    let unheard = again(false, LAUNCH_US + 4_000).verdict();
    assert!(unheard.is_kept(), "{:#?}", unheard.breaches);
    assert_eq!(unheard.repeats.by_reason["unclear: the sender had gone before the answer"], 4);
    // It was written, and perhaps read by nobody.
    let mut unread = again(true, LAUNCH_US + 4_000);
    let answers: Vec<Entry> = unread.journal.entries.iter().copied().filter(is_first_answer).collect();
    for answer in answers {
        let place = unread.journal.entries.iter().position(|entry| *entry == answer).unwrap_or_default();
        let hung_up = Entry { what: What::HungUp { attempt: 1, after_ms: 0 }, ..answer };
        unread.journal.entries.insert(place + 1, hung_up);
    }
    assert!(unread.verdict().is_kept(), "{:#?}", unread.verdict().breaches);
}

fn is_first_answer(entry: &Entry) -> bool {
    matches!(entry.what, What::Answered { attempt: 1 })
}

#[test]
fn nothing_explains_a_delivery_after_a_release_that_was_acknowledged() {
    let mut world = World::new();
    let released_us = LAUNCH_US + 3_600;
    world.disturbances.push(Disturbance { reason: KILLED, from_us: 0, until_us: i64::MAX });
    world.deliver(3, 2, released_us + 1_000_001);
    assert_eq!(world.breaks(Promise::Released).repeats.not_allowed, 1);
    let mut world = World::new();
    world.disturbances.push(Disturbance { reason: KILLED, from_us: 0, until_us: i64::MAX });
    world.deliver(3, 2, released_us + 1_000_000);
    assert!(world.verdict().is_kept(), "it was on its way when the release was acknowledged");
}

#[test]
fn repetitions_after_refusals_and_doubts_are_allowed() {
    for met in [Met::Refused, Met::Doubtful] {
        let mut world = World::new();
        world.journal = Journal::default();
        for index in 0..4 {
            world.journal.arrived(&event(index), 1, met, LAUNCH_US + i64::from(index) * 1_000);
            world.deliver(index, 2, LAUNCH_US + i64::from(index) * 1_000 + 100);
        }
        assert!(world.verdict().is_kept(), "{met:?}: {:#?}", world.verdict().breaches);
    }
}

#[test]
fn only_a_policy_that_reclaims_sends_again_in_silence_and_only_after_its_time() {
    for (policy, waited_us, is_kept) in
        [("silent", 3_000_000, true), ("silent", 2_000_000, false), ("p", 3_000_000, false)]
    {
        let mut world = World::new();
        world.journal = Journal::default();
        world.ordered.limits.clear();
        for index in 0..4 {
            let event = Event { policy: policy.to_owned(), ..event(index) };
            for (attempt, met) in [(1, Met::Abandoned), (2, Met::Taken)] {
                let at_us = LAUNCH_US + i64::from(attempt - 1) * waited_us;
                let (number, _) = world.journal.arrived(&event, attempt, met, at_us);
                world.journal.answers(number, attempt, at_us);
            }
        }
        assert_eq!(
            world.verdict().is_kept(),
            is_kept,
            "{policy} {waited_us}: {:#?}",
            world.verdict().breaches
        );
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
            if met == Met::Taken {
                world.journal.answers(number, 2, at_us + 100);
            }
            world.deliver(index, 3, at_us + 200);
        }
        assert_eq!(world.verdict().is_kept(), is_kept, "{met:?}");
    }
}

#[test]
fn attempts_grow_and_none_is_overtaken_whatever_stood_still() {
    let at_us = LAUNCH_US + 3_000;
    for attempts in [[1, 1], [3, 2]] {
        let mut world = World::new();
        world.journal = Journal::default();
        world.disturbances.push(Disturbance { reason: KILLED, from_us: 0, until_us: i64::MAX });
        for index in 0..4 {
            for attempt in attempts {
                world.journal.arrived(&event(index), attempt, Met::Doubtful, at_us);
            }
            world.journal.is_freed(&event(index).id, at_us);
        }
        assert_eq!(world.breaks(Promise::Attempt).breaches[&Promise::Attempt].count, 4);
    }
}

#[test]
fn a_pause_that_was_acknowledged_holds() {
    let mut world = World::new();
    let pause = |from_us| Pause { schedule: "s".to_owned(), from_us, until_us: LAUNCH_US + 1 };
    world.ordered.pauses.push(pause(LAUNCH_US - 5_999_999));
    assert!(world.verdict().is_kept(), "its shard hears of it a moment later");
    world.ordered.pauses[0] = pause(LAUNCH_US - 6_000_000);
    assert_eq!(world.breaks(Promise::Paused).breaches[&Promise::Paused].count, 4);
    world.ordered.pauses[0].until_us = LAUNCH_US;
    assert!(world.verdict().is_kept(), "it was resumed");
}

#[test]
fn healthy_work_that_stands_still_is_a_breach_beside_what_must_spare_it() {
    let world = |late_us: i64, spares_others: bool| {
        let mut world = World::new();
        world.ordered.due.push(Due {
            schedule: "healthy-1".to_owned(),
            events: 1,
            ..world.ordered.due[0].clone()
        });
        let run = RunRecord {
            schedule: "healthy-1".to_owned(),
            events: 1,
            succeeded: 1,
            ..world.records.runs[0].clone()
        };
        world.records.runs.push(run);
        let healthy = Event {
            id: "0a-healthy-0-seal".to_owned(),
            policy: String::new(),
            key: String::new(),
            schedule: "healthy-1".to_owned(),
            count: 1,
            ..event(0)
        };
        world.journal.arrived(&healthy, 1, Met::Taken, LAUNCH_US + late_us);
        world.watches.push(Watch {
            kind: "f".to_owned(),
            from_us: LAUNCH_US,
            until_us: LAUNCH_US + 1,
            shards: Some(HashSet::from([10])),
            spares_others,
        });
        world
    };
    let verdict = world(4_000_000, true).verdict();
    assert!(verdict.is_kept(), "{:#?}", verdict.breaches);
    assert_eq!(
        verdict.neighbours["f"],
        Lateness { events: 1, median_ms: 4_000, p99_ms: 4_000, max_ms: 4_000 }
    );
    assert_eq!(verdict.calm.events, 0);
    world(4_000_001, true).breaks(Promise::Neighbour);
    assert!(world(4_000_001, false).verdict().is_kept(), "where a process dies, its shards stand still");
    // In another queue shard, and at another time.
    let mut elsewhere = world(10_000, true);
    elsewhere.watches[0].shards = Some(HashSet::from([11]));
    assert_eq!(elsewhere.verdict().neighbours["f"].events, 0);
    elsewhere.watches[0].from_us -= 20_000_000;
    elsewhere.watches[0].until_us -= 20_000_000;
    assert_eq!(elsewhere.verdict().calm.max_ms, 10);
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
fn what_was_sent_again_in_silence_may_meet_the_release() {
    for (again_us, promise) in [(4_100_000, None), (5_500_000, Some(Promise::Released))] {
        let mut world = World::new();
        let silent = Event { policy: "silent".to_owned(), count: 5, ..event(4) };
        let (number, _) = world.journal.arrived(&silent, 1, Met::Taken, LAUNCH_US);
        world.journal.answers(number, 1, LAUNCH_US);
        world.journal.released(number, Said::Direct, LAUNCH_US + 4_000_000);
        world.journal.arrived(&silent, 2, Met::Taken, LAUNCH_US + again_us);
        let breaches = world.verdict().breaches;
        let mut of_delivery = [Promise::Released, Promise::Duplicate].into_iter();
        assert_eq!(of_delivery.rfind(|one| breaches.contains_key(one)), promise, "{breaches:#?}");
    }
}

#[test]
fn what_never_fell_due_must_not_fire() {
    let mut world = World::new();
    let stray = Event { id: "07-stray-0-seal".to_owned(), schedule: "t".to_owned(), ..event(0) };
    let (number, _) = world.journal.arrived(&stray, 1, Met::Taken, LAUNCH_US + 9_000);
    world.journal.finishes(number, LAUNCH_US + 9_100);
    let run =
        RunRecord { schedule: "t".to_owned(), events: 1, succeeded: 1, ..world.records.runs[0].clone() };
    world.records.runs.push(run);
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
