//! Turns, weights, what is held back and what comes back.

use super::*;

const SEVEN: Group = Group::Places(7);
const NOBODY: Freed = Freed::Some(BTreeSet::new());

fn next(queue: &mut Queue, holds: impl Fn(Work) -> Option<Group>) -> Option<Work> {
    match queue.next(|work| holds(work).map_or(Look::Takes(1), Look::Held), |_| 1, u32::MAX)? {
        Next::Start(work, 1) => Some(work),
        other => panic!("{other:?}"),
    }
}

/// As many lanes come back as `left` says.
fn begin_round(queue: &mut Queue, freed: Freed, left: impl Fn(Work, Group) -> u32) {
    queue.begin_round((freed, Vec::new()), |work, group| Room::of_starts(left(work, group)), |_| 1);
}

fn run(n: u128) -> RunId {
    RunId(Uuid::from_u128(n))
}

fn of(priority: u8, schedule: Uuid) -> Of {
    Of { circle: 0, priority, schedule }
}

#[test]
fn many_schedules_of_one_namespace_take_turns_with_the_one_of_another() {
    let mut queue = Queue::default();
    for schedule in 1..=300 {
        let of = Of { circle: 0, priority: 5, schedule: Uuid::from_u128(schedule) };
        queue.push_run(of, 0, run(schedule));
    }
    let (one, two) = (Uuid::from_u128(1_001), Uuid::from_u128(1_002));
    let single = |schedule| Of { circle: 1, priority: 5, schedule };
    queue.push_run(single(one), 0, run(1_001));
    queue.push_retry(single(two), 0, run(1_002), 3);
    queue.push_run(single(two), 0, run(1_002));
    let order: Vec<_> = (0..8).filter_map(|_| next(&mut queue, |_| None)).collect();
    let expected =
        [1, 1_001, 2, 1_002, 3, 1_001, 4, 1_002].map(|n| Work::Next(run(n), u128::from(n > 1_000)));
    assert_eq!(order[3], Work::Retry(run(1_002), 3));
    assert_eq!((&order[..3], &order[4..]), (&expected[..3], &expected[4..]));
    // One of them parks, the other ends: the namespace has no turns until it has something again.
    queue.park(one, true);
    queue.remove_run(single(two), 0, run(1_002));
    let order: Vec<_> = (0..4).filter_map(|_| next(&mut queue, |_| None)).collect();
    assert_eq!(order, [5, 6, 7, 8].map(|n| Work::Next(run(n), 0)));
    queue.park(one, false);
    let order: Vec<_> = (0..300).filter_map(|_| next(&mut queue, |_| None)).collect();
    assert!(order.contains(&Work::Next(run(1_001), 1)));
    assert_eq!(order.iter().filter(|work| **work == Work::Next(run(9), 0)).count(), 1);
}

#[test]
fn priority_then_turns_then_retries() {
    let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let mut queue = Queue::default();
    queue.push_run(of(5, a), 0, run(10));
    queue.push_run(of(5, b), 0, run(20));
    queue.push_run(of(9, a), 0, run(90));
    queue.push_retry(of(5, b), 0, run(20), 7);
    assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(90), 0)));
    queue.remove_run(of(9, a), 0, run(90));
    let order: Vec<_> = (0..4).filter_map(|_| next(&mut queue, |_| None)).collect();
    assert_eq!(
        order,
        [Work::Next(run(10), 0), Work::Retry(run(20), 7), Work::Next(run(10), 0), Work::Next(run(20), 0)]
    );
}

#[test]
fn who_is_held_back_is_passed_over_until_there_is_a_place() {
    let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let mut queue = Queue::default();
    queue.push_run(of(9, a), 0, run(10));
    queue.push_run(of(5, b), 0, run(20));
    let a_waits = |work: Work| (work.run() == run(10)).then_some(SEVEN);
    assert_eq!(next(&mut queue, a_waits), Some(Work::Next(run(20), 0)), "of a lower priority");
    queue.remove_run(of(5, b), 0, run(20));
    assert_eq!(next(&mut queue, a_waits), None);
    begin_round(&mut queue, NOBODY, |_, _| 0);
    assert_eq!(next(&mut queue, |_| None), None);
    // What is more urgent comes back before what was held back earlier.
    let c = Uuid::from_u128(3);
    queue.push_run(of(10, c), 0, run(30));
    assert_eq!(next(&mut queue, |_| Some(SEVEN)), None);
    begin_round(&mut queue, NOBODY, |work, group| {
        u32::from((work, group) == (Work::Next(run(30), 0), SEVEN))
    });
    assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(30), 0)));
    queue.remove_run(of(10, c), 0, run(30));
    begin_round(&mut queue, NOBODY, |work, group| {
        u32::from((work, group) == (Work::Next(run(10), 0), SEVEN))
    });
    assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(10), 0)));
}

#[test]
fn a_thousand_that_one_group_holds_back_are_not_walked() {
    let mut queue = Queue::default();
    for schedule in 1..=1_000 {
        queue.push_run(of(5, Uuid::from_u128(schedule)), 0, run(schedule));
    }
    let looks = std::cell::Cell::new(0);
    let full = |_: Work| {
        looks.set(looks.get() + 1);
        Some(SEVEN)
    };
    assert_eq!((next(&mut queue, full), looks.take()), (None, 1_000), "each is looked at once");
    begin_round(&mut queue, NOBODY, |_, _| 0);
    assert_eq!((next(&mut queue, full), looks.take()), (None, 0));
    // Two places are free: two come back, in their order, and go behind the others afterwards.
    for first in [1, 3] {
        begin_round(&mut queue, NOBODY, |_, group| if group == SEVEN { 2 } else { 0 });
        let order: Vec<_> = (0..2).filter_map(|_| next(&mut queue, |_| None)).collect();
        assert_eq!(order, [Work::Next(run(first), 0), Work::Next(run(first + 1), 0)]);
        assert_eq!((next(&mut queue, full), looks.take()), (None, 2));
    }
    // Those that end or park meanwhile leave nothing behind.
    queue.park(Uuid::from_u128(5), true);
    for schedule in (1..=1_000).filter(|schedule| *schedule != 5) {
        queue.remove_run(of(5, Uuid::from_u128(schedule)), 0, run(schedule));
    }
    assert!(queue.held.is_empty());
    queue.park(Uuid::from_u128(5), false);
    assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(5), 0)));
    queue.remove_run(of(5, Uuid::from_u128(5)), 0, run(5));
    assert!(queue.levels.is_empty());
}

#[test]
fn a_parked_schedule_is_passed_over_and_comes_back() {
    let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let mut queue = Queue::default();
    queue.push_run(of(5, a), 0, run(10));
    queue.park(a, true);
    queue.push_run(of(5, b), 0, run(20));
    assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(20), 0)));
    assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(20), 0)));
    queue.push_run(of(5, a), 1, run(11));
    queue.park(a, false);
    assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(20), 0)));
    assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(10), 0)));
}

#[test]
fn a_circle_has_as_many_turns_in_a_row_as_its_weight() {
    let mut queue = Queue::default();
    for (n, circle) in [(1, 0), (2, 0), (3, 1)] {
        queue.push_run(Of { circle, priority: 5, schedule: Uuid::from_u128(n) }, 0, run(n));
    }
    let weight = |work: Work| if work.run() == run(3) { 1 } else { 3 };
    let order: Vec<_> = (0..8).filter_map(|_| queue.next(|_| Look::Takes(1), weight, u32::MAX)).collect();
    assert_eq!(
        order,
        [1, 2, 1, 3, 2, 1, 2, 3].map(|n| Next::Start(Work::Next(run(n), u128::from(n == 3)), 1))
    );
}

#[test]
fn only_those_of_a_key_that_is_freed_are_looked_at() {
    let mut queue = Queue::default();
    for schedule in 1..=1_000 {
        queue.push_run(of(5, Uuid::from_u128(schedule)), 0, run(schedule));
    }
    let key_of = |work: Work| Group::Key(work.run().0.as_u128());
    assert_eq!(next(&mut queue, |work| Some(key_of(work))), None, "each has a key of its own");
    let looks = std::cell::Cell::new(0);
    let left = |_: Work, _: Group| {
        looks.set(looks.get() + 1);
        1
    };
    begin_round(&mut queue, Freed::Some(BTreeSet::from([7, 5_000])), left);
    assert_eq!((looks.take(), next(&mut queue, |_| None)), (1, Some(Work::Next(run(7), 0))));
    queue.remove_run(of(5, Uuid::from_u128(7)), 0, run(7));
    assert_eq!(next(&mut queue, |_| None), None);
    begin_round(&mut queue, Freed::All, left);
    assert_eq!(looks.take(), 999);
}

#[test]
fn what_comes_first_instead_of_what_a_key_holds_back_is_looked_at() {
    let (schedule, other) = (Uuid::from_u128(1), run(20));
    let mut queue = Queue::default();
    queue.push_run(of(5, schedule), 5, run(10));
    let full = |work: Work| (work == Work::Next(run(10), 0)).then_some(Group::Key(1));
    assert_eq!(next(&mut queue, full), None);
    // A retry goes before it, then an older run; then it is gone, and what is behind it is of another key.
    queue.push_retry(of(5, schedule), 0, other, 3);
    assert_eq!(next(&mut queue, full), Some(Work::Retry(other, 3)));
    assert_eq!(next(&mut queue, full), None);
    queue.push_run(of(5, schedule), 9, other);
    assert_eq!(next(&mut queue, full), None, "it is younger");
    queue.remove_run(of(5, schedule), 5, run(10));
    assert_eq!(next(&mut queue, full), Some(Work::Next(other, 0)));
}

#[test]
fn who_is_let_go_and_leaves_has_another_go_instead() {
    let mut queue = Queue::default();
    for schedule in 1..=1_000 {
        queue.push_run(of(5, Uuid::from_u128(schedule)), 0, run(schedule));
    }
    let full = |_: Work| Some(Group::Key(7));
    assert_eq!(next(&mut queue, full), None);
    let one = |queue: &mut Queue, freed: &[u128]| {
        let before = crate::handle::steps::steps();
        begin_round(queue, Freed::Some(freed.iter().copied().collect()), |_, _| 1);
        assert!(crate::handle::steps::steps() - before < 20, "the others are not walked");
    };
    one(&mut queue, &[7]);
    assert!(!queue.is_open());
    // The first is cancelled, the second parks: nothing of the key has started, and nobody gives anything back.
    queue.remove_run(of(5, Uuid::from_u128(1)), 0, run(1));
    assert!(queue.is_open());
    one(&mut queue, &[]);
    queue.park(Uuid::from_u128(2), true);
    assert!(queue.is_open());
    one(&mut queue, &[]);
    assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(3), 0)));
    // It has made use of it: who waits is let go when it gives its token back.
    queue.remove_run(of(5, Uuid::from_u128(3)), 0, run(3));
    assert!(!queue.is_open());
    assert_eq!(next(&mut queue, full), None);
}

#[test]
fn a_turn_is_worth_as_many_as_it_takes() {
    let mut queue = Queue::default();
    for n in [1, 2, 3] {
        queue.push_run(Of { circle: n, priority: 5, schedule: Uuid::from_u128(n) }, 0, run(n));
    }
    let takes = |work: Work| if work.run() == run(2) { 1 } else { 4 };
    let weight = |work: Work| if work.run() == run(3) { 2 } else { 1 };
    let mut had = [0; 4];
    for _ in 0..70 {
        let next = queue.next(|work| Look::Takes(takes(work)), weight, 10);
        let Some(Next::Start(work, units)) = next else { panic!("{next:?}") };
        had[work.run().0.as_u128() as usize] += units;
    }
    // In tokens, one to one to two.
    assert_eq!(had, [0, 40, 40, 80]);
}

#[test]
fn nobody_starts_before_whoever_waits_for_more_tokens() {
    let (large, small) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let mut queue = Queue::default();
    queue.push_run(of(5, large), 0, run(10));
    queue.push_run(of(5, small), 0, run(20));
    let next = |queue: &mut Queue, tokens| {
        let takes = |work: Work| if work.run() == run(10) { 5 } else { 1 };
        queue.next(|work| Look::Takes(takes(work)), |_| 1, tokens)
    };
    let (first, second) = (Work::Next(run(10), 0), Work::Next(run(20), 0));
    for tokens in [1, 4, 0] {
        assert_eq!(next(&mut queue, tokens), Some(Next::Short(first, 5)));
        assert!(!queue.is_open());
    }
    // What is more urgent goes before it.
    queue.push_run(of(9, small), 0, run(20));
    assert_eq!(next(&mut queue, 4), Some(Next::Start(second, 1)));
    queue.remove_run(of(9, small), 0, run(20));
    assert_eq!(next(&mut queue, 5), Some(Next::Start(first, 5)));
    assert_eq!(next(&mut queue, 5), Some(Next::Start(second, 1)));
    // Where it leaves or parks, the next one may go: somebody is to look.
    assert_eq!(next(&mut queue, 4), Some(Next::Short(first, 5)));
    queue.park(large, true);
    assert!(queue.is_open());
    assert_eq!(next(&mut queue, 4), Some(Next::Start(second, 1)));
    queue.park(large, false);
    assert_eq!(next(&mut queue, 4), Some(Next::Start(second, 1)));
    assert_eq!(next(&mut queue, 4), Some(Next::Short(first, 5)));
    queue.remove_run(of(5, large), 0, run(10));
    assert!(queue.is_open());
    assert_eq!((next(&mut queue, 4), queue.is_open()), (Some(Next::Start(second, 1)), false));
}

#[test]
fn what_is_left_of_a_key_is_kept_for_the_first_that_waits_for_it() {
    let lane = |n: u128| Of { circle: 7, priority: 5, schedule: Uuid::from_u128(n) };
    let takes = |work: Work| if work.run() == run(1) { 5 } else { 1 };
    let key = |left: u32| {
        move |work: Work| if takes(work) > left { Look::Short(7) } else { Look::Takes(takes(work)) }
    };
    let next = |queue: &mut Queue, left| queue.next(key(left), |_| 1, 100);
    let freed = |queue: &mut Queue, left: u32| {
        queue.begin_round(
            (Freed::Some([7].into()), Vec::new()),
            |_, _| Room { tokens: left, ..Room::ALL },
            takes,
        );
    };
    let work = |n| Work::Next(run(n), 7);
    let mut queue = Queue::default();
    queue.push_run(lane(1), 0, run(1));
    queue.push_run(lane(2), 0, run(2));
    assert_eq!(next(&mut queue, 3), None, "the small one waits behind the large one");
    assert_eq!(queue.kept_of(7), Some(work(1)));
    freed(&mut queue, 4);
    assert_eq!(next(&mut queue, 4), None);
    // Who comes later waits, too, unless it is more urgent.
    queue.push_run(lane(3), 0, run(3));
    queue.push_run(Of { priority: 9, ..lane(4) }, 0, run(4));
    assert_eq!(next(&mut queue, 4), Some(Next::Start(work(4), 1)));
    queue.remove_run(Of { priority: 9, ..lane(4) }, 0, run(4));
    assert_eq!(next(&mut queue, 4), None);
    // Enough for it and for one more.
    freed(&mut queue, 6);
    assert_eq!(next(&mut queue, 6), Some(Next::Start(work(1), 5)));
    queue.remove_run(lane(1), 0, run(1));
    assert_eq!(next(&mut queue, 1), Some(Next::Start(work(2), 1)));
    assert_eq!(next(&mut queue, 0), None);
    queue.remove_run(lane(2), 0, run(2));
    freed(&mut queue, 1);
    assert_eq!(next(&mut queue, 1), Some(Next::Start(work(3), 1)));
    queue.remove_run(lane(3), 0, run(3));
    assert!(queue.short.is_empty() && queue.held.is_empty() && queue.is_empty());
    // Where it leaves, those behind it are looked at.
    queue.push_run(lane(1), 0, run(1));
    queue.push_run(lane(2), 0, run(2));
    assert_eq!(next(&mut queue, 3), None);
    queue.remove_run(lane(1), 0, run(1));
    assert!(queue.is_open());
    queue.begin_round((NOBODY, Vec::new()), |_, _| Room { tokens: 3, ..Room::ALL }, takes);
    assert_eq!(next(&mut queue, 3), Some(Next::Start(work(2), 1)));
    queue.remove_run(lane(2), 0, run(2));
    assert!(queue.short.is_empty() && queue.held.is_empty());
}

#[test]
fn what_takes_more_than_there_is_stands_aside_until_a_limit_changes() {
    let mut queue = Queue::default();
    queue.push_run(of(5, Uuid::from_u128(1)), 0, run(1));
    queue.push_run(of(5, Uuid::from_u128(2)), 0, run(2));
    let above = |work: Work| (work.run() == run(1)).then_some(Group::AboveLimit);
    assert_eq!(next(&mut queue, above), Some(Work::Next(run(2), 0)));
    queue.remove_run(of(5, Uuid::from_u128(2)), 0, run(2));
    begin_round(&mut queue, NOBODY, |_, _| 9);
    assert_eq!(next(&mut queue, |_| None), None);
    begin_round(&mut queue, Freed::All, |_, _| 9);
    assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(1), 0)));
}
