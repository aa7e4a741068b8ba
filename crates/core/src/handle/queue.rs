//! Who is next under one policy: by priority, then round robin over the circles that wait, each with as many turns in a row as
//! its weight says, so that many schedules of one do not starve the single one of another, then round robin over the circle's
//! schedules, so that one large batch does not starve a small one. Under a policy, what waits of one key is a circle; of what
//! runs without a policy, that of one namespace. What a schedule has waiting of one key is a lane: in it, retries go before new
//! events, older runs before younger. A turn is worth as many as the tokens that it took.
//!
//! Whoever is next waits for as many tokens as it takes, and nobody starts before it; so does the first of those that wait for
//! tokens of one key, among these.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::bucket::Room;
use super::keys::Freed;
use super::steps::Counted as _;
use super::turns::{Ring, RoundOrder, Turn};
use crate::model::RunId;

/// What may start next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// An event that waited for another attempt, or to be sent again.
    Retry(RunId, u32),
    /// The next event of a run, of the key that this stands for; the run stays in its lane.
    Next(RunId, u128),
}

/// Whose work it is, and how urgent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of {
    /// What stands for the circle in which its schedule takes turns: for its key, or for its namespace where no policy bounds it.
    pub circle: u128,
    pub priority: u8,
    pub schedule: Uuid,
}

impl Of {
    fn lane(&self) -> LaneId {
        (self.schedule, self.circle)
    }
}

/// A lane of a level: its schedule, and its circle.
pub(super) type LaneId = (Uuid, u128);

/// Of whoever takes no turns: behind all that do.
pub(super) const LAST: (Turn, i64) = ((i64::MAX, i64::MAX), i64::MAX);

/// What one schedule has waiting of one key at one priority.
#[derive(Debug, Default)]
pub(super) struct Lane {
    stand: Stand,
    /// The key that let it go last, as long as it has not made use of that.
    let_go: Option<u128>,
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
    /// No worker that is able to do the events of one pool has room.
    Room(u128),
    /// The events of one key have what it may have.
    Key(u128),
    /// They take more tokens than they may ever have, as long as no limit changes.
    AboveLimit,
}

/// Whether a piece of work may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// As far as these many tokens are free; none where it holds its own.
    Takes(u32),
    /// A group holds it back.
    Held(Group),
    /// Its key has fewer tokens left than it takes: they are kept for it.
    Short(u128),
}

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It starts, and takes so many tokens.
    Start(Work, u32),
    /// It takes so many tokens, and fewer are free: nothing starts before it.
    Short(Work, u32),
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.retries.is_empty() && self.runs.is_empty()
    }

    fn first(&self, key: u128) -> Option<Work> {
        match self.retries.first() {
            Some((_, run, index)) => Some(Work::Retry(*run, *index)),
            None => self.runs.first().map(|(_, run)| Work::Next(*run, key)),
        }
    }
}

impl Work {
    /// The run that it is of.
    pub(super) fn run(self) -> RunId {
        match self {
            Self::Retry(run, _) | Self::Next(run, _) => run,
        }
    }
}

#[derive(Debug, Default)]
struct Level {
    /// The circles that take turns: those with a ring.
    turns: RoundOrder<u128>,
    rings: BTreeMap<u128, Ring>,
    lanes: BTreeMap<LaneId, Lane>,
}

impl Level {
    /// A lane takes turns from now on, before those that do or behind them.
    fn enter(&mut self, id: LaneId, first: bool) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let (schedule, circle) = id;
        let ring = self.rings.entry(circle).or_default();
        if ring.lanes.is_empty() {
            ring.turn = self.turns.push(circle, first);
        }
        lane.stand = Stand::Turn(ring.lanes.push(schedule, first));
    }
}

/// Lanes that may not start, by the group that holds them back: by priority, and in the order of their coming.
type Held = BTreeMap<Group, BTreeMap<(Reverse<u8>, u64), LaneId>>;

/// Everything that waits for a token or a place of one policy.
#[derive(Debug, Default)]
pub(super) struct Queue {
    levels: BTreeMap<Reverse<u8>, Level>,
    held: Held,
    /// Keys that have let a lane go which left without making use of it: another may go instead.
    open: BTreeSet<u128>,
    /// Keys that keep what they have left for the first of those that they hold back.
    short: BTreeSet<u128>,
    /// Whoever was next last waits for more tokens; something has left since.
    halted: Option<bool>,
    /// Lanes that were ever held back.
    held_ever: u64,
}

impl Queue {
    pub(super) fn push_retry(&mut self, of: Of, due_us: i64, run: RunId, index: u32) {
        self.make_lane(of);
        self.edit(of, |lane| {
            lane.retries.insert((due_us, run, index));
        });
    }

    pub(super) fn push_run(&mut self, of: Of, launch_us: i64, run: RunId) {
        self.make_lane(of);
        self.edit(of, |lane| {
            lane.runs.insert((launch_us, run));
        });
    }

    pub(super) fn remove_run(&mut self, of: Of, launch_us: i64, run: RunId) {
        self.edit(of, |lane| {
            lane.runs.remove(&(launch_us, run));
        });
    }

    pub(super) fn remove_retry(&mut self, of: Of, due_us: i64, run: RunId, index: u32) {
        self.edit(of, |lane| {
            lane.retries.remove(&(due_us, run, index));
        });
    }

    /// Takes what a schedule has waiting out of the turns, or back in. Whether that changed anything.
    pub(super) fn park(&mut self, schedule: Uuid, parked: bool) -> bool {
        let mut changed = false;
        for (&priority, level) in self.levels.iter_mut().counted() {
            let own = level.lanes.range((schedule, 0)..=(schedule, u128::MAX)).counted();
            let turned = own.filter(|(_, lane)| parked != (lane.stand == Stand::Parked)).map(|(id, _)| *id);
            for id in turned.collect::<Vec<_>>() {
                changed = true;
                self.halted = self.halted.map(|_| true);
                if parked {
                    self.open.extend(leave(priority, level, (&mut self.held, &mut self.short), id));
                } else {
                    level.enter(id, false);
                }
            }
        }
        changed
    }

    /// Takes the next piece of work that may start, where `tokens` are free. A retry leaves its lane; a run stays until
    /// [`Queue::remove_run`]. `look`: whether a group holds a piece of work back. Its lane takes no turns then until
    /// [`Queue::begin_round`] finds that the group may have more, and it uses up none of its circle's. `weight`: how many
    /// turns in a row its circle has.
    pub(super) fn next(
        &mut self,
        look: impl Fn(Work) -> Look,
        weight: impl Fn(Work) -> u32,
        tokens: u32,
    ) -> Option<Next> {
        self.halted = None;
        loop {
            let has_turns = |(_, level): &(&Reverse<u8>, &mut Level)| !level.turns.is_empty();
            let (&priority, level) = self.levels.iter_mut().counted().find(has_turns)?;
            let (turn, circle) = level.turns.pop()?;
            let ring = level.rings.get_mut(&circle)?;
            let (place, schedule) = ring.lanes.pop()?;
            let id = (schedule, circle);
            let lane = level.lanes.get_mut(&id)?;
            let work = lane.first(id.1)?;
            let (held, units) = match look(work) {
                Look::Takes(units) if units > 0 && self.short.contains(&id.1) => {
                    // What is left of its key is kept for one that is no less urgent; if let go, for a more urgent one.
                    let line = self.held.get(&Group::Key(id.1)).and_then(|line| line.first_key_value());
                    let was_before = |first: Reverse<u8>| lane.let_go.is_some() && first == priority;
                    let is_behind =
                        line.is_some_and(|((first, _), _)| *first <= priority && !was_before(*first));
                    (is_behind.then_some(Group::Key(id.1)), units)
                }
                Look::Takes(units) => (None, units),
                Look::Held(group) => (Some(group), 0),
                Look::Short(key) => {
                    self.short.insert(key);
                    (Some(Group::Key(key)), 0)
                }
            };
            if held.is_none() && units > tokens {
                ring.lanes.put_back(place, schedule);
                level.turns.put_back(turn, circle);
                self.halted = Some(false);
                return Some(Next::Short(work, units));
            }
            match (held, work) {
                (None, Work::Retry(..)) => {
                    lane.retries.pop_first();
                    if units > 0 {
                        lane.let_go = None;
                    }
                }
                (None, Work::Next(..)) | (Some(Group::Key(_)), _) => lane.let_go = None,
                (Some(_), _) => self.open.extend(lane.let_go.take()),
            }
            match held {
                Some(group) => {
                    self.held_ever += 1;
                    let place = (priority, self.held_ever);
                    self.held.entry(group).or_default().insert(place, id);
                    lane.stand = Stand::Held(group, self.held_ever);
                }
                None if lane.is_empty() => {
                    self.open.extend(lane.let_go.take());
                    level.lanes.remove(&id);
                }
                None => lane.stand = Stand::Turn(ring.lanes.push(schedule, false)),
            }
            if ring.lanes.is_empty() {
                level.rings.remove(&circle);
            } else if held.is_some() {
                ring.turn = level.turns.put_back(turn, circle);
            } else {
                ring.had_turn(&mut level.turns, (turn, circle), (units, weight(work)));
            }
            if held.is_none() {
                if level.lanes.is_empty() {
                    self.levels.remove(&priority);
                }
                return Some(Next::Start(work, units));
            }
        }
    }

    /// Where a group may have more, as many as may start come back, first of all. `left`: what is left to a group that holds this
    /// piece of work back. `takes`: how many tokens a piece of work takes. `freed`: the keys of which that may be otherwise
    /// than it was; of the others only those are walked that have let a lane go for nothing. `rooms`: the pools that have room.
    /// Each place that comes free may be of use to any group that shares places; no such group is without a place of its own,
    /// so that there are never more of them than places.
    pub(super) fn begin_round(
        &mut self,
        (freed, rooms): (Freed, Vec<u128>),
        left: impl Fn(Work, Group) -> Room,
        takes: impl Fn(Work) -> u32,
    ) {
        let of_places = self.held.range(..=Group::Places(u128::MAX)).map(|(group, _)| *group);
        let mut groups: Vec<Group> = of_places.counted().collect();
        groups.extend(rooms.into_iter().map(Group::Room));
        match freed {
            Freed::All => {
                let of_keys = self.held.range(Group::Key(0)..).map(|(group, _)| *group);
                groups.extend(of_keys.counted());
            }
            Freed::Some(mut keys) => {
                keys.append(&mut self.open);
                groups.extend(keys.into_iter().counted().map(Group::Key));
            }
        }
        self.open.clear();
        for group in groups {
            self.let_go(group, &left, &takes);
        }
    }

    fn let_go(&mut self, group: Group, left: impl Fn(Work, Group) -> Room, takes: impl Fn(Work) -> u32) {
        let Some(line) = self.held.get_mut(&group) else { return };
        let levels = &self.levels;
        let work_of =
            |(priority, id): (&Reverse<u8>, &LaneId)| levels.get(priority)?.lanes.get(id)?.first(id.1);
        let first = line.first_key_value().and_then(|((priority, _), id)| work_of((priority, id)));
        let mut room = first.map_or(Room::NONE, |work| left(work, group));
        let mut back = Vec::new();
        while room.starts > 0
            && let Some(first) = line.first_entry()
        {
            let ((priority, _), id) = (first.key(), first.get());
            let units = work_of((priority, id)).map_or(1, &takes);
            if units > room.tokens {
                break;
            }
            room.take(units);
            let ((priority, _), id) = first.remove_entry();
            back.push((priority, id));
        }
        let is_empty = line.is_empty();
        if is_empty {
            self.held.remove(&group);
        }
        if let Group::Key(key) = group {
            // Whoever is first now has less left than it takes.
            if !is_empty && room.tokens > 0 && room.starts > 0 {
                self.short.insert(key);
            } else {
                self.short.remove(&key);
            }
        }
        for (priority, id) in back.into_iter().rev() {
            let Some(level) = self.levels.get_mut(&priority) else { continue };
            if let (Group::Key(key), Some(lane)) = (group, level.lanes.get_mut(&id)) {
                lane.let_go = Some(key);
            }
            level.enter(id, true);
        }
    }

    /// Whether a lane has left that a key had let go, or for which tokens were kept, so that another may go instead: a round is
    /// to begin.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty() || self.halted == Some(true)
    }

    /// Whether a group holds anything back.
    pub(super) fn holds(&self, group: Group) -> bool {
        self.held.contains_key(&group)
    }

    /// The piece of work for which what is left of a key is kept.
    pub(super) fn kept_of(&self, key: u128) -> Option<Work> {
        let line = self.held.get(&Group::Key(key)).filter(|_| self.short.contains(&key))?;
        let ((priority, _), id) = line.first_key_value()?;
        self.levels.get(priority)?.lanes.get(id)?.first(id.1)
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Lanes in the order of their priority, for explanations.
    pub(super) fn lanes(&self) -> impl Iterator<Item = (u8, LaneId, &Lane)> {
        let lanes = self
            .levels
            .iter()
            .flat_map(|(p, level)| level.lanes.iter().map(move |(s, lane)| (p.0, *s, lane)));
        lanes.counted()
    }

    /// What a schedule has waiting of one key at one priority.
    pub(super) fn lane_of(&self, of: Of) -> Option<&Lane> {
        self.levels.get(&Reverse(of.priority))?.lanes.get(&of.lane())
    }

    /// When a lane's turn comes, to be compared with others of its priority: its circle's turn among the circles, and its own
    /// within that. One that takes none comes last.
    pub(super) fn turn_of(&self, priority: u8, (_, circle): LaneId, lane: &Lane) -> (Turn, i64) {
        let Stand::Turn(turn) = lane.stand else { return LAST };
        let ring = self.levels.get(&Reverse(priority)).and_then(|level| level.rings.get(&circle));
        (ring.map_or(LAST.0, |ring| ring.turn), turn)
    }

    fn make_lane(&mut self, of: Of) {
        let level = self.levels.entry(Reverse(of.priority)).or_default();
        if let Entry::Vacant(free) = level.lanes.entry(of.lane()) {
            free.insert(Lane::default());
            level.enter(of.lane(), false);
        }
    }

    /// Changes what a lane has waiting. What a key holds back is looked at anew where something else comes first then: that
    /// may be of another key, or hold its token already.
    fn edit(&mut self, of: Of, edit: impl FnOnce(&mut Lane)) {
        let (priority, id) = (Reverse(of.priority), of.lane());
        let Some(level) = self.levels.get_mut(&priority) else { return };
        let Some(lane) = level.lanes.get_mut(&id) else { return };
        let before = lane.first(id.1);
        edit(lane);
        let is_held =
            matches!(lane.stand, Stand::Held(Group::Key(_) | Group::Room(_) | Group::AboveLimit, _));
        let is_other = lane.first(id.1) != before;
        if is_other {
            self.halted = self.halted.map(|_| true);
        }
        if lane.is_empty() {
            self.open.extend(leave(priority, level, (&mut self.held, &mut self.short), id));
            level.lanes.remove(&id);
        } else if is_held && is_other {
            self.open.extend(leave(priority, level, (&mut self.held, &mut self.short), id));
            level.enter(id, false);
        }
        if level.lanes.is_empty() {
            self.levels.remove(&priority);
        }
    }
}

/// A lane stands nowhere any more. The key that has let it go for nothing, or may have kept tokens for it.
fn leave(
    priority: Reverse<u8>,
    level: &mut Level,
    (held, short): (&mut Held, &mut BTreeSet<u128>),
    id: LaneId,
) -> Option<u128> {
    let lane = level.lanes.get_mut(&id)?;
    let mut let_go = lane.let_go.take();
    match std::mem::take(&mut lane.stand) {
        Stand::Parked => {}
        Stand::Held(group, place) => {
            if let Some(line) = held.get_mut(&group) {
                line.remove(&(priority, place));
                let is_empty = line.is_empty();
                if is_empty {
                    held.remove(&group);
                }
                // What was kept for it may be enough for another.
                if let Group::Key(key) = group
                    && short.contains(&key)
                {
                    let_go = Some(key);
                    if is_empty {
                        short.remove(&key);
                    }
                }
            }
        }
        Stand::Turn(place) => {
            let ring = level.rings.get_mut(&id.1)?;
            ring.lanes.remove(place);
            if ring.lanes.is_empty() {
                level.turns.remove(ring.turn);
                level.rings.remove(&id.1);
            }
        }
    }
    let_go
}

#[cfg(test)]
mod tests;
