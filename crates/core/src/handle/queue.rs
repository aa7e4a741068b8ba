//! Who is next under one policy: by priority, then round robin over the circles that wait, each with as many turns in a row as
//! its weight says, so that many schedules of one do not starve the single one of another, then round robin over the circle's
//! schedules, so that one large batch does not starve a small one. Under a policy, the schedules of one key are a circle; of
//! what runs without a policy, those of one namespace. Within a schedule, retries go before new events, older runs before
//! younger.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::keys::Freed;
use super::steps::Counted as _;
use crate::model::RunId;

/// What may start next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// An event that waited for another attempt, or to be sent again.
    Retry(RunId, u32),
    /// The next event of a run; the run stays in its lane.
    Next(RunId),
}

/// Whose work it is, and how urgent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of<'a> {
    /// The circle in which its schedule takes turns: its key or its namespace.
    pub circle: &'a str,
    pub priority: u8,
    pub schedule: Uuid,
}

/// What one schedule has waiting at one priority.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub circle: String,
    stand: Stand,
    pub retries: BTreeSet<(i64, RunId, u32)>,
    pub runs: BTreeSet<(i64, RunId)>,
}

/// Where a lane stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stand {
    /// Nowhere: its schedule waits for something else than a token or a place.
    #[default]
    Parked,
    /// In the order of its circle.
    Turn(i64),
    /// Among those that one group holds back.
    Held(Group, u64),
}

/// What holds schedules back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// Those that share places: a namespace, a target or a schedule has its share.
    Places(u128),
    /// The events of one key have what it may have.
    Key(u128),
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.retries.is_empty() && self.runs.is_empty()
    }

    fn first(&self) -> Option<Work> {
        match self.retries.first() {
            Some((_, run, index)) => Some(Work::Retry(*run, *index)),
            None => self.runs.first().map(|(_, run)| Work::Next(*run)),
        }
    }
}

impl Work {
    /// The run that it is of.
    pub(super) fn run(self) -> RunId {
        match self {
            Self::Retry(run, _) | Self::Next(run) => run,
        }
    }
}

/// An order that can be left from anywhere, without a look at the others in it.
#[derive(Debug)]
struct TurnOrder<T>(BTreeMap<i64, T>);

impl<T> Default for TurnOrder<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> TurnOrder<T> {
    fn push(&mut self, item: T, first: bool) -> i64 {
        let place = if first {
            self.0.first_key_value().map_or(0, |(place, _)| place - 1)
        } else {
            self.0.last_key_value().map_or(0, |(place, _)| place + 1)
        };
        self.0.insert(place, item);
        place
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop_first().map(|(_, item)| item)
    }
}

/// The schedules of one circle that take turns. Never empty.
#[derive(Debug, Default)]
struct Ring {
    /// Its circle's place among those that take turns.
    turn: i64,
    /// Turns that it has had in a row.
    had: u32,
    schedules: TurnOrder<Uuid>,
}

#[derive(Debug, Default)]
struct Level {
    /// The circles that take turns: those with a ring.
    turns: TurnOrder<String>,
    rings: BTreeMap<String, Ring>,
    lanes: BTreeMap<Uuid, Lane>,
}

impl Level {
    /// The schedule takes turns from now on, before those that do or behind them.
    fn enter(&mut self, schedule: Uuid, first: bool) {
        let Some(lane) = self.lanes.get_mut(&schedule) else { return };
        let ring = self.rings.entry(lane.circle.clone()).or_default();
        if ring.schedules.0.is_empty() {
            ring.turn = self.turns.push(lane.circle.clone(), first);
        }
        lane.stand = Stand::Turn(ring.schedules.push(schedule, first));
    }
}

/// Lanes that may not start, by the group that holds them back: by priority, and in the order of their coming.
type Held = BTreeMap<Group, BTreeMap<(Reverse<u8>, u64), Uuid>>;

/// Everything that waits for a token or a place of one policy.
#[derive(Debug, Default)]
pub(super) struct Queue {
    levels: BTreeMap<Reverse<u8>, Level>,
    held: Held,
    /// Lanes that were ever held back.
    held_ever: u64,
}

impl Queue {
    pub(super) fn push_retry(&mut self, of: Of<'_>, due_us: i64, run: RunId, index: u32) {
        self.lane(of).retries.insert((due_us, run, index));
    }

    pub(super) fn push_run(&mut self, of: Of<'_>, launch_us: i64, run: RunId) {
        self.lane(of).runs.insert((launch_us, run));
    }

    pub(super) fn remove_run(&mut self, priority: u8, schedule: Uuid, launch_us: i64, run: RunId) {
        self.edit(priority, schedule, |lane| {
            lane.runs.remove(&(launch_us, run));
        });
    }

    pub(super) fn remove_retry(&mut self, priority: u8, schedule: Uuid, due_us: i64, run: RunId, index: u32) {
        self.edit(priority, schedule, |lane| {
            lane.retries.remove(&(due_us, run, index));
        });
    }

    /// Takes what a schedule has waiting out of the turns, or back in. Whether that changed anything.
    pub(super) fn park(&mut self, schedule: Uuid, parked: bool) -> bool {
        let mut changed = false;
        for (&priority, level) in self.levels.iter_mut().counted() {
            let Some(lane) = level.lanes.get(&schedule) else { continue };
            if parked == (lane.stand == Stand::Parked) {
                continue;
            }
            changed = true;
            if parked {
                leave(priority, level, &mut self.held, schedule);
            } else {
                level.enter(schedule, false);
            }
        }
        changed
    }

    /// Takes the next piece of work that may start. A retry leaves its lane; a run stays until [`Queue::remove_run`].
    /// `holds`: the group that holds a piece of work back. Its schedule takes no turns then until [`Queue::begin_round`] finds
    /// that the group may have more, and it uses up none of its circle's. `weight`: how many turns in a row a circle has.
    pub(super) fn next(
        &mut self,
        holds: impl Fn(Work) -> Option<Group>,
        weight: impl Fn(&str) -> u32,
    ) -> Option<Work> {
        loop {
            let has_turns = |(_, level): &(&Reverse<u8>, &mut Level)| !level.turns.0.is_empty();
            let (&priority, level) = self.levels.iter_mut().counted().find(has_turns)?;
            let circle = level.turns.pop()?;
            let ring = level.rings.get_mut(&circle)?;
            let schedule = ring.schedules.pop()?;
            let lane = level.lanes.get_mut(&schedule)?;
            let work = lane.first()?;
            let held = holds(work);
            if held.is_none() && matches!(work, Work::Retry(..)) {
                lane.retries.pop_first();
            }
            match held {
                Some(group) => {
                    self.held_ever += 1;
                    let place = (priority, self.held_ever);
                    self.held.entry(group).or_default().insert(place, schedule);
                    lane.stand = Stand::Held(group, self.held_ever);
                }
                None if lane.is_empty() => drop(level.lanes.remove(&schedule)),
                None => lane.stand = Stand::Turn(ring.schedules.push(schedule, false)),
            }
            if ring.schedules.0.is_empty() {
                level.rings.remove(&circle);
            } else {
                ring.had += u32::from(held.is_none());
                let goes_on = ring.had < weight(&circle);
                if !goes_on {
                    ring.had = 0;
                }
                ring.turn = level.turns.push(circle, goes_on);
            }
            if held.is_none() {
                if level.lanes.is_empty() {
                    self.levels.remove(&priority);
                }
                return Some(work);
            }
        }
    }

    /// Where a group may have more, as many as may start come back, first of all. `left`: how many more a group may have
    /// that holds this piece of work back. `freed`: the keys of which that may be otherwise than it was; the others are not
    /// walked. Each place that comes free may be of use to any group that shares places; no such group is without a place of its
    /// own, so that there are never more of them than places.
    pub(super) fn begin_round(&mut self, freed: Freed, left: impl Fn(Work, Group) -> u32) {
        let of_places = self.held.range(..=Group::Places(u128::MAX)).map(|(group, _)| *group);
        let mut groups: Vec<Group> = of_places.counted().collect();
        match freed {
            Freed::All => {
                let of_keys = self.held.range(Group::Key(0)..).map(|(group, _)| *group);
                groups.extend(of_keys.counted());
            }
            Freed::Some(keys) => groups.extend(keys.into_iter().counted().map(Group::Key)),
        }
        for group in groups {
            self.let_go(group, &left);
        }
    }

    fn let_go(&mut self, group: Group, left: impl Fn(Work, Group) -> u32) {
        let Some(line) = self.held.get_mut(&group) else { return };
        let first = line
            .first_key_value()
            .and_then(|((priority, _), schedule)| self.levels.get(priority)?.lanes.get(schedule)?.first());
        let most = first.map_or(0, |work| left(work, group));
        let mut back = Vec::new();
        while back.len() < most as usize
            && let Some(((priority, _), schedule)) = line.pop_first()
        {
            back.push((priority, schedule));
        }
        if line.is_empty() {
            self.held.remove(&group);
        }
        for (priority, schedule) in back.into_iter().rev() {
            if let Some(level) = self.levels.get_mut(&priority) {
                level.enter(schedule, true);
            }
        }
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Lanes in the order of their priority, for explanations: (priority, schedule, lane).
    pub(super) fn lanes(&self) -> impl Iterator<Item = (u8, Uuid, &Lane)> {
        let lanes = self
            .levels
            .iter()
            .flat_map(|(p, level)| level.lanes.iter().map(move |(s, lane)| (p.0, *s, lane)));
        lanes.counted()
    }

    /// What a schedule has waiting at one priority.
    pub(super) fn lane_of(&self, priority: u8, schedule: Uuid) -> Option<&Lane> {
        self.levels.get(&Reverse(priority))?.lanes.get(&schedule)
    }

    /// When a lane's turn comes, to be compared with others of its priority: its circle's turn among the circles, and its own
    /// within that. One that takes none comes last.
    pub(super) fn turn_of(&self, priority: u8, lane: &Lane) -> (i64, i64) {
        let Stand::Turn(turn) = lane.stand else { return (i64::MAX, i64::MAX) };
        let ring = self.levels.get(&Reverse(priority)).and_then(|level| level.rings.get(&lane.circle));
        (ring.map_or(i64::MAX, |ring| ring.turn), turn)
    }

    fn lane(&mut self, of: Of<'_>) -> &mut Lane {
        let Of { circle, priority, schedule } = of;
        let level = self.levels.entry(Reverse(priority)).or_default();
        if let Entry::Vacant(free) = level.lanes.entry(schedule) {
            free.insert(Lane { circle: circle.to_owned(), ..Lane::default() });
            level.enter(schedule, false);
        }
        level.lanes.entry(schedule).or_default()
    }

    fn edit(&mut self, priority: u8, schedule: Uuid, edit: impl FnOnce(&mut Lane)) {
        let priority = Reverse(priority);
        let Some(level) = self.levels.get_mut(&priority) else { return };
        let Some(lane) = level.lanes.get_mut(&schedule) else { return };
        edit(lane);
        if lane.is_empty() {
            leave(priority, level, &mut self.held, schedule);
            level.lanes.remove(&schedule);
        }
        if level.lanes.is_empty() {
            self.levels.remove(&priority);
        }
    }
}

/// The schedule stands nowhere any more.
fn leave(priority: Reverse<u8>, level: &mut Level, held: &mut Held, schedule: Uuid) {
    let Some(lane) = level.lanes.get_mut(&schedule) else { return };
    match std::mem::take(&mut lane.stand) {
        Stand::Parked => {}
        Stand::Held(group, place) => {
            if let Some(line) = held.get_mut(&group) {
                line.remove(&(priority, place));
                if line.is_empty() {
                    held.remove(&group);
                }
            }
        }
        Stand::Turn(place) => {
            let Some(ring) = level.rings.get_mut(&lane.circle) else { return };
            ring.schedules.0.remove(&place);
            if ring.schedules.0.is_empty() {
                level.turns.0.remove(&ring.turn);
                level.rings.remove(&lane.circle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEVEN: Group = Group::Places(7);
    const NOBODY: Freed = Freed::Some(BTreeSet::new());

    fn next(queue: &mut Queue, holds: impl Fn(Work) -> Option<Group>) -> Option<Work> {
        queue.next(holds, |_| 1)
    }

    fn run(n: u128) -> RunId {
        RunId(Uuid::from_u128(n))
    }

    fn of(priority: u8, schedule: Uuid) -> Of<'static> {
        Of { circle: "team", priority, schedule }
    }

    #[test]
    fn many_schedules_of_one_namespace_take_turns_with_the_one_of_another() {
        let mut queue = Queue::default();
        for schedule in 1..=300 {
            let of = Of { circle: "many", priority: 5, schedule: Uuid::from_u128(schedule) };
            queue.push_run(of, 0, run(schedule));
        }
        let (one, two) = (Uuid::from_u128(1_001), Uuid::from_u128(1_002));
        let single = |schedule| Of { circle: "one", priority: 5, schedule };
        queue.push_run(single(one), 0, run(1_001));
        queue.push_retry(single(two), 0, run(1_002), 3);
        queue.push_run(single(two), 0, run(1_002));
        let order: Vec<_> = (0..8).filter_map(|_| next(&mut queue, |_| None)).collect();
        let expected = [1, 1_001, 2, 1_002, 3, 1_001, 4, 1_002].map(|n| Work::Next(run(n)));
        assert_eq!(order[3], Work::Retry(run(1_002), 3));
        assert_eq!((&order[..3], &order[4..]), (&expected[..3], &expected[4..]));
        // One of them parks, the other ends: the namespace has no turns until it has something again.
        queue.park(one, true);
        queue.remove_run(5, two, 0, run(1_002));
        let order: Vec<_> = (0..4).filter_map(|_| next(&mut queue, |_| None)).collect();
        assert_eq!(order, [5, 6, 7, 8].map(|n| Work::Next(run(n))));
        queue.park(one, false);
        let order: Vec<_> = (0..300).filter_map(|_| next(&mut queue, |_| None)).collect();
        assert!(order.contains(&Work::Next(run(1_001))));
        assert_eq!(order.iter().filter(|work| **work == Work::Next(run(9))).count(), 1);
    }

    #[test]
    fn priority_then_turns_then_retries() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut queue = Queue::default();
        queue.push_run(of(5, a), 0, run(10));
        queue.push_run(of(5, b), 0, run(20));
        queue.push_run(of(9, a), 0, run(90));
        queue.push_retry(of(5, b), 0, run(20), 7);
        assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(90))));
        queue.remove_run(9, a, 0, run(90));
        let order: Vec<_> = (0..4).filter_map(|_| next(&mut queue, |_| None)).collect();
        assert_eq!(
            order,
            [Work::Next(run(10)), Work::Retry(run(20), 7), Work::Next(run(10)), Work::Next(run(20))]
        );
    }

    #[test]
    fn who_is_held_back_is_passed_over_until_there_is_a_place() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut queue = Queue::default();
        queue.push_run(of(9, a), 0, run(10));
        queue.push_run(of(5, b), 0, run(20));
        let a_waits = |work: Work| (work.run() == run(10)).then_some(SEVEN);
        assert_eq!(next(&mut queue, a_waits), Some(Work::Next(run(20))), "of a lower priority");
        queue.remove_run(5, b, 0, run(20));
        assert_eq!(next(&mut queue, a_waits), None);
        queue.begin_round(NOBODY, |_, _| 0);
        assert_eq!(next(&mut queue, |_| None), None);
        // What is more urgent comes back before what was held back earlier.
        let c = Uuid::from_u128(3);
        queue.push_run(of(10, c), 0, run(30));
        assert_eq!(next(&mut queue, |_| Some(SEVEN)), None);
        queue.begin_round(NOBODY, |work, group| u32::from((work, group) == (Work::Next(run(30)), SEVEN)));
        assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(30))));
        queue.remove_run(10, c, 0, run(30));
        queue.begin_round(NOBODY, |work, group| u32::from((work, group) == (Work::Next(run(10)), SEVEN)));
        assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(10))));
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
        queue.begin_round(NOBODY, |_, _| 0);
        assert_eq!((next(&mut queue, full), looks.take()), (None, 0));
        // Two places are free: two come back, in their order, and go behind the others afterwards.
        for first in [1, 3] {
            queue.begin_round(NOBODY, |_, group| if group == SEVEN { 2 } else { 0 });
            let order: Vec<_> = (0..2).filter_map(|_| next(&mut queue, |_| None)).collect();
            assert_eq!(order, [Work::Next(run(first)), Work::Next(run(first + 1))]);
            assert_eq!((next(&mut queue, full), looks.take()), (None, 2));
        }
        // Those that end or park meanwhile leave nothing behind.
        queue.park(Uuid::from_u128(5), true);
        for schedule in (1..=1_000).filter(|schedule| *schedule != 5) {
            queue.remove_run(5, Uuid::from_u128(schedule), 0, run(schedule));
        }
        assert!(queue.held.is_empty());
        queue.park(Uuid::from_u128(5), false);
        assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(5))));
        queue.remove_run(5, Uuid::from_u128(5), 0, run(5));
        assert!(queue.levels.is_empty());
    }

    #[test]
    fn a_parked_schedule_is_passed_over_and_comes_back() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut queue = Queue::default();
        queue.push_run(of(5, a), 0, run(10));
        queue.park(a, true);
        queue.push_run(of(5, b), 0, run(20));
        assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(20))));
        assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(20))));
        queue.push_run(of(5, a), 1, run(11));
        queue.park(a, false);
        assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(20))));
        assert_eq!(next(&mut queue, |_| None), Some(Work::Next(run(10))));
    }

    #[test]
    fn a_circle_has_as_many_turns_in_a_row_as_its_weight() {
        let mut queue = Queue::default();
        for (n, circle) in [(1, "heavy"), (2, "heavy"), (3, "light")] {
            queue.push_run(Of { circle, priority: 5, schedule: Uuid::from_u128(n) }, 0, run(n));
        }
        let weight = |circle: &str| if circle == "heavy" { 3 } else { 1 };
        let order: Vec<_> = (0..8).filter_map(|_| queue.next(|_| None, weight)).collect();
        assert_eq!(order, [1, 2, 1, 3, 2, 1, 2, 3].map(|n| Work::Next(run(n))));
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
        queue.begin_round(Freed::Some(BTreeSet::from([7, 5_000])), left);
        assert_eq!((looks.take(), next(&mut queue, |_| None)), (1, Some(Work::Next(run(7)))));
        queue.remove_run(5, Uuid::from_u128(7), 0, run(7));
        assert_eq!(next(&mut queue, |_| None), None);
        queue.begin_round(Freed::All, left);
        assert_eq!(looks.take(), 999);
    }
}
