//! What goes before an event under its policy, if circles and schedules take turns as they do.
//!
//! In: the lanes of a queue, in the order of their turns. Out: how many events start before one. Invariant: as long as
//! nothing new comes, nothing is held back by its share of the places or by its key, and no key has more turns in a row than
//! others, that is how many do. Of a run that starts its events key by key, its place is that of the run, as if it had one lane.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use uuid::Uuid;

use super::keys::KeyOf;
use super::live::LiveRun;
use super::queue::{LAST, Lane};
use super::shard::Shard;
use super::turns::Turn;
use crate::model::RunId;

/// A lane: what one schedule has waiting at one priority.
#[derive(Clone, Copy, Debug)]
struct Stand {
    priority: u8,
    circle: u128,
    schedule: Uuid,
    /// Its circle's turn, and its own within that.
    turn: (Turn, i64),
    events: u64,
}

/// All that waits under one policy.
#[derive(Debug)]
pub(super) struct Line(Vec<Stand>);

impl Line {
    /// How many events go before the one that `mine` of its own lane go before, if each circle has one turn after the other.
    pub(super) fn before(&self, run: &LiveRun, mine: u64) -> u64 {
        let (row, circle) = (&run.row, run.lane(&KeyOf::Schedule).circle);
        let is_own = |stand: &&Stand| stand.schedule == row.schedule_uid && stand.priority == row.priority;
        // Whoever does not take turns now is behind all that do.
        let (turn_of_all, turn) = self.0.iter().find(is_own).map_or(LAST, |stand| stand.turn);
        let (mut before, mut within) = (0, mine);
        let mut foreign: BTreeMap<u128, (Turn, u64)> = BTreeMap::new();
        for stand in self.0.iter().filter(|stand| !is_own(stand)) {
            match stand.priority.cmp(&row.priority) {
                Ordering::Greater => before += stand.events,
                Ordering::Equal if stand.circle == circle => {
                    within += stand.events.min(mine + u64::from(stand.turn.1 < turn));
                }
                Ordering::Equal => {
                    let (_, events) = foreign.entry(stand.circle).or_insert((stand.turn.0, 0));
                    *events += stand.events;
                }
                Ordering::Less => {}
            }
        }
        let turns = |(of, events): (Turn, u64)| events.min(within + u64::from(of < turn_of_all));
        before + within + foreign.into_values().map(turns).sum::<u64>()
    }

    /// As [`Self::before`], of the events of its own circle alone.
    fn in_circle(&self, run: &LiveRun, mine: u64) -> u64 {
        let (row, circle) = (&run.row, run.lane(&KeyOf::Schedule).circle);
        let others =
            self.0.iter().filter(|stand| stand.circle == circle && stand.schedule != row.schedule_uid);
        let before = others.map(|stand| match stand.priority.cmp(&row.priority) {
            Ordering::Greater => stand.events,
            Ordering::Equal => stand.events.min(mine + 1),
            Ordering::Less => 0,
        });
        mine + before.sum::<u64>()
    }

    /// How many lanes there are.
    pub(super) fn lanes(&self) -> usize {
        self.0.len()
    }
}

/// A line, and how many events of its own lane go before the next one of each run that stands in it.
#[derive(Debug)]
pub(super) struct Places {
    pub line: Line,
    runs: BTreeMap<RunId, u64>,
}

impl Places {
    /// How many events go before event `index` of a run, or before the last of its retries where it has no such event.
    pub(super) fn before(&self, run: &LiveRun, index: u32) -> u64 {
        self.line.before(run, self.own_before(run, index))
    }

    /// As [`Self::before`], of the events of its own circle alone.
    pub(super) fn before_in_circle(&self, run: &LiveRun, index: u32) -> u64 {
        self.line.in_circle(run, self.own_before(run, index))
    }

    fn own_before(&self, run: &LiveRun, index: u32) -> u64 {
        let own = self.runs.get(&run.row.id).copied().unwrap_or_default();
        own + u64::from(index.saturating_sub(run.row.next_index))
    }
}

impl Shard {
    /// What waits under a policy and takes turns.
    pub(super) fn line_of(&self, policy: Option<Uuid>) -> Line {
        let Some(queue) = self.queues.get(&policy) else { return Line(Vec::new()) };
        let is_parked =
            |schedule: &Uuid| self.schedules.get(schedule).is_some_and(super::live::LiveSchedule::is_parked);
        let lanes = queue.lanes().filter(|(_, (schedule, _), _)| !is_parked(schedule));
        let stands = lanes.map(|(priority, id, lane)| Stand {
            priority,
            circle: id.1,
            schedule: id.0,
            turn: queue.turn_of(priority, id, lane),
            events: self.lane_len(lane, id.1),
        });
        Line(stands.collect())
    }

    /// As [`Self::line_of`], with the places of its runs: for those who ask about many of them.
    pub(super) fn places_of(&self, policy: Option<Uuid>) -> Places {
        let mut runs = BTreeMap::new();
        for (_, (_, key), lane) in self.queues.get(&policy).into_iter().flat_map(|queue| queue.lanes()) {
            let mut before = lane.retries.len() as u64;
            for (_, id) in &lane.runs {
                runs.insert(*id, before);
                before += self.due_of(*id, key);
            }
        }
        Places { line: self.line_of(policy), runs }
    }

    /// How many events of its own lane go before event `index` of a run (`None`: before its retries).
    pub(super) fn own_before(&self, run: &LiveRun, index: Option<u32>) -> u64 {
        let (of, row) = (run.lane(&KeyOf::Schedule), &run.row);
        let lane = self.queues.get(&row.policy_uid).and_then(|queue| queue.lane_of(of));
        let (Some(lane), Some(index)) = (lane, index) else { return 0 };
        let older = lane.runs.range(..(row.launch_us, row.id)).map(|(_, id)| self.due_of(*id, of.circle));
        lane.retries.len() as u64 + older.sum::<u64>() + u64::from(index.saturating_sub(row.next_index))
    }

    fn lane_len(&self, lane: &Lane, key: u128) -> u64 {
        lane.retries.len() as u64 + lane.runs.iter().map(|(_, r)| self.due_of(*r, key)).sum::<u64>()
    }

    /// Events of a run that have not started: those of a key, where it starts them key by key.
    fn due_of(&self, id: RunId, key: u128) -> u64 {
        let Some(run) = self.ledger.runs.get(&id) else { return 0 };
        let of_key = run.sorted.as_ref().map(|sorted| sorted.line(key).map_or(0, |(_, events)| events));
        u64::from(of_key.unwrap_or(run.row.events - run.row.next_index))
    }
}
