//! When what a shard has in hand is expected to start and to end; which deadlines are at risk.
//!
//! In: the line of a policy, its bucket, a run. Out: moments, or why there are none. Read from memory when somebody asks.
//! Not here: how a moment follows from numbers, which is [`crate::expected_end`].

use std::collections::BTreeMap;

use uuid::Uuid;

use super::bucket::Bucket;
use super::ledger::Phase;
use super::line::Places;
use super::live::{LiveRun, LiveSchedule};
use super::shard::Shard;
use super::sight::Refusal;
use super::waiting::WaitingEvents;
use crate::expected_end::{Expected, Flow, NOTHING_ENDED, Never};
use crate::model::{Limits, Now, Reclaim, RunId, SECOND_US};
use crate::trouble::Said;

/// How many events of a run are looked at for when they are tried again.
const LOOKED_AT_MAX: usize = 32;
/// For how many runs of a shard it is asked whether they start in time.
const DEADLINES_MAX: usize = 2_000;
/// Behind how many waiting runs of its policy nobody says what is expected of a run: they are walked for each who asks.
const WAITING_RUNS_MAX: usize = 5_000;
/// Of how many schedules under a policy it is asked whether all that waits is refused.
const REFUSED_SCHEDULES_MAX: usize = 16;
/// How many runs of which only retries wait are asked when these come, and how many whether workers have any of them.
const RETRIED_RUNS_MAX: usize = 100;
/// How often the line is walked to count the events that are late.
const LOOKS_OF_LATE: usize = 24;
/// How many lanes are walked for that.
const STEPS_MAX: usize = 1_000_000;

/// Behind how many runs of its schedule nobody says what is expected of a run.
const BEHIND_MAX: usize = 8;

/// Said where it waits behind more, or behind runs under another policy.
const BEHIND: &str = "not known yet: earlier runs of its schedule are unfinished";
/// Said where it waits for the end of a chain.
const BEHIND_CHAIN: &str = "not known: the chain that an earlier run of its schedule began goes on";
/// Said where [`WAITING_RUNS_MAX`] are exceeded.
const TOO_MANY_WAIT: &str = "not known: more than 5,000 runs wait under its policy";

/// Said where workers have nothing of what waits for them.
const NO_ROOM: &str = "not known while no worker has room for it";

/// What is expected of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// When its last event ends.
    pub end: Expected,
    /// By when its events must have started, and how many of them are not expected to have, where some are not.
    pub late: Option<(i64, u64)>,
}

/// What waits under each policy.
pub(super) type Lines = BTreeMap<Option<Uuid>, Places>;

/// How much more is looked at of runs with a deadline.
pub(super) struct Budget {
    runs: usize,
    steps: usize,
    /// There was more.
    pub is_spent: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self { runs: DEADLINES_MAX, steps: STEPS_MAX, is_spent: false }
    }
}

impl Budget {
    /// Whether one more run may be looked at, which takes so many steps.
    fn spend(&mut self, steps: usize) -> bool {
        match (self.runs.checked_sub(1), self.steps.checked_sub(steps)) {
            (Some(runs), Some(steps)) => (self.runs, self.steps) = (runs, steps),
            _ => self.is_spent = true,
        }
        !self.is_spent
    }
}

impl Shard {
    /// What is expected of unfinished runs, in their order; none of one that is not here.
    pub fn outlooks(&self, ids: &[RunId], now: Now) -> Vec<Option<Outlook>> {
        let mut lines = Lines::new();
        let outlook = |id: &RunId| {
            let run = self.ledger.runs.get(id)?;
            let policy = run.row.policy_uid;
            if self.waiting_runs(policy) > WAITING_RUNS_MAX {
                return Some(Outlook { end: Expected::NotKnown(TOO_MANY_WAIT), late: None });
            }
            Some(self.outlook_of(run, lines.entry(policy).or_insert_with(|| self.places_of(policy)), now))
        };
        ids.iter().map(outlook).collect()
    }

    /// How many runs wait under a policy. Nothing is walked but its lanes.
    fn waiting_runs(&self, policy: Option<Uuid>) -> usize {
        self.queues
            .get(&policy)
            .into_iter()
            .flat_map(|queue| queue.lanes())
            .map(|(_, _, lane)| lane.runs.len())
            .sum()
    }

    fn outlook_of(&self, run: &LiveRun, places: &Places, now: Now) -> Outlook {
        let last_start = self.last_start(run, places, now);
        Outlook { end: self.end(run, &last_start, now), late: self.late(run, places, &last_start, now) }
    }

    /// By when the events of a run must start, how many are not expected to in time, and when the last is. The lines are
    /// made as they are needed.
    pub(super) fn late_of(
        &self,
        run: &LiveRun,
        lines: &mut Lines,
        budget: &mut Budget,
        now: Now,
    ) -> Option<(i64, u64, Expected)> {
        run.window_end_us().filter(|_| run.row.next_index < run.row.events)?;
        let policy = run.row.policy_uid;
        let places = lines.entry(policy).or_insert_with(|| self.places_of(policy));
        if !budget.spend(places.line.lanes()) {
            return None;
        }
        let last_start = self.last_start(run, places, now);
        let (deadline_us, events) = self.late(run, places, &last_start, now)?;
        budget.spend(places.line.lanes() * LOOKS_OF_LATE);
        Some((deadline_us, events, last_start))
    }

    /// When the last of the events that wait under a policy is expected to start; none where none does.
    pub(super) fn drained(
        &self,
        (policy, bucket): (Option<Uuid>, &Bucket),
        waiting: WaitingEvents,
        now: Now,
    ) -> Option<Expected> {
        let before = waiting.events.checked_sub(1)?;
        let never = self.policy_never(bucket).or_else(|| self.target_never(bucket, now));
        if let Some(never) = never.or_else(|| self.all_refused(policy, now)) {
            return Some(Expected::Never(never));
        }
        let mut first = self.waiting_under(policy, now).take(RETRIED_RUNS_MAX).peekable();
        if first.peek().is_some() && first.all(|run| self.is_unserved(run)) {
            return Some(Expected::NotKnown(NO_ROOM));
        }
        let expected = starts(&self.flow(bucket, now), before, now);
        if waiting.retrying < waiting.events {
            return Some(expected);
        }
        // Nothing waits but for its time to be tried again.
        let waiting = self.waiting_under(policy, now).take(RETRIED_RUNS_MAX);
        let again_us = waiting.filter_map(|run| self.again_us(run, now).max()).max();
        Some(expected.not_before(again_us.unwrap_or(i64::MIN)))
    }

    /// The launched runs under a policy of which something waits.
    fn waiting_under(&self, policy: Option<Uuid>, now: Now) -> impl Iterator<Item = &LiveRun> {
        let runs = self.ledger.runs.under(policy).filter_map(|id| self.ledger.runs.get(&id));
        runs.filter(move |run| run.launched && self.waiting_now(run, now).events > 0)
    }

    /// A target that takes nothing, where all that waits under a policy waits for such targets, whatever else gets through.
    fn all_refused(&self, policy: Option<Uuid>, now: Now) -> Option<Never> {
        let mut refused: BTreeMap<Uuid, Refusal> = BTreeMap::new();
        for run in self.waiting_under(policy, now) {
            let schedule = run.row.schedule_uid;
            if refused.contains_key(&schedule) {
                continue;
            }
            if refused.len() == REFUSED_SCHEDULES_MAX {
                return None;
            }
            refused.insert(schedule, self.refusal(run, now)?);
        }
        let first = refused.into_values().next()?;
        Some(never_by(first.said, first.target))
    }

    fn last_start(&self, run: &LiveRun, places: &Places, now: Now) -> Expected {
        let row = &run.row;
        if row.next_index == row.events && run.counts.coming_again() == 0 {
            return Expected::At(now.wall_us);
        }
        if let Some(expected) = self.not_now(run, now) {
            return expected;
        }
        if !run.launched {
            return self.behind(run, places, now);
        }
        let Some(bucket) = self.ledger.buckets.get(&row.policy_uid) else {
            return Expected::NotKnown("its queue shard has not been told of its policy");
        };
        let last = row.events.saturating_sub(1);
        let due_us = (row.next_index < row.events).then(|| run.launch_of(row.events - 1));
        let earliest_us =
            self.again_us(run, now).chain(due_us).chain(self.blocked_us(run, now)).max().unwrap_or(i64::MIN);
        self.starts(run, bucket, (places, last), now).not_before(earliest_us)
    }

    /// When event `index` of a run starts, as far as its policy and its key let it.
    fn starts(&self, run: &LiveRun, bucket: &Bucket, (places, index): (&Places, u32), now: Now) -> Expected {
        let flow = self.flow(bucket, now);
        let start = starts(&flow, places.before(run, index), now);
        match flow_of_key(run, bucket, &flow) {
            Some(of_key) => start.and(starts(&of_key, places.before_in_circle(run, index), now)),
            None => start,
        }
    }

    /// When events of a run are tried again, of those that were acquired first (wall clock).
    fn again_us(&self, run: &LiveRun, now: Now) -> impl Iterator<Item = i64> {
        let first = self.ledger.tokens.of(run.row.id).take(LOOKED_AT_MAX);
        first.filter_map(move |(_, token)| match token.phase() {
            Phase::Waiting => Some(token.row.due_us),
            Phase::Again { at_us } => Some(now.wall_us + at_us - now.mono_us),
            _ => None,
        })
    }

    /// When the last event of a run starts that waits for the unfinished runs of its schedule: these end first.
    fn behind(&self, run: &LiveRun, places: &Places, now: Now) -> Expected {
        let row = &run.row;
        let schedule = self.schedules.get(&row.schedule_uid);
        if schedule.is_some_and(|schedule| schedule.chain().is_some()) {
            return Expected::NotKnown(BEHIND_CHAIN);
        }
        let active = schedule.map(|schedule| &schedule.active);
        let before: Vec<RunId> =
            active.into_iter().flat_map(|active| active.all()).take(BEHIND_MAX + 1).collect();
        let others: Vec<&LiveRun> = before.iter().filter_map(|id| self.ledger.runs.get(id)).collect();
        let is_foreign = |other: &&LiveRun| other.row.policy_uid != row.policy_uid;
        let Some(bucket) = self.ledger.buckets.get(&row.policy_uid) else {
            return Expected::NotKnown(BEHIND);
        };
        if others.len() > BEHIND_MAX || others.iter().any(is_foreign) {
            return Expected::NotKnown(BEHIND);
        }
        let rest_until_us = schedule.map_or(i64::MIN, LiveSchedule::rest_until_us);
        let mut free_us = now.wall_us.max(rest_until_us);
        for other in others.into_iter().filter(|other| other.launched) {
            let rest_us = other.spec.delay_after_finish_s.unwrap_or_default().saturating_mul(SECOND_US);
            match self.end(other, &self.last_start(other, places, now), now) {
                Expected::At(end_us) => free_us = free_us.max(end_us.saturating_add(rest_us)),
                never => return never,
            }
        }
        let flow = self.flow(bucket, now);
        let last = row.events.saturating_sub(1);
        // Once those before it have ended, the tokens are its own, but for what others of the policy wait for.
        let own = Flow { held: 0, ..flow }.start_after_us(last.into());
        let own =
            own.map_or(Expected::NotKnown(NOTHING_ENDED), |us| Expected::At(free_us.saturating_add(us)));
        match self.starts(run, bucket, (places, last), now) {
            Expected::At(us) => own.not_before(us).not_before(run.launch_of(last)),
            unknown => unknown,
        }
    }

    /// Until when the target of a run asked for a pause (wall clock).
    fn blocked_us(&self, run: &LiveRun, now: Now) -> Option<i64> {
        let blocked_us = self.schedules.get(&run.row.schedule_uid)?.blocked_us?;
        Some(now.wall_us + blocked_us - now.mono_us)
    }

    /// Why nothing of a run starts, as things stand.
    fn not_now(&self, run: &LiveRun, now: Now) -> Option<Expected> {
        let row = &run.row;
        if self.pause.pause.is_some() {
            return Some(Expected::Never(Never::DispatchPaused));
        }
        let bucket = self.ledger.buckets.get(&row.policy_uid);
        if let Some(never) = bucket.and_then(|bucket| self.policy_never(bucket)) {
            return Some(Expected::Never(never));
        }
        let schedule = self.schedules.get(&row.schedule_uid);
        if schedule.and_then(|schedule| schedule.row.as_ref()).is_some_and(|row| row.pause.is_some()) {
            return Some(Expected::Never(Never::SchedulePaused(row.schedule_id.clone())));
        }
        if let Some(bucket) = bucket
            && run.sorted.is_none()
            && bucket.rules().is_some_and(|rules| rules.pause_of(run.spec.key()).is_some())
        {
            let policy = bucket.policy.as_ref().map(|policy| policy.id.clone()).unwrap_or_default();
            return Some(Expected::Never(Never::KeyPaused { policy, key: run.spec.key().to_owned() }));
        }
        if !run.launched && run.start_us() > now.wall_us {
            return Some(Expected::NotKnown("not known yet: its launch time has not come"));
        }
        if self.is_unserved(run) {
            return Some(Expected::NotKnown(NO_ROOM));
        }
        self.refusal(run, now).map(|refusal| Expected::Never(never_by(refusal.said, refusal.target)))
    }

    /// Whether an event of a run waits for a worker, and nobody has anything under its policy, so that no room will come of that.
    fn is_unserved(&self, run: &LiveRun) -> bool {
        let bucket = self.ledger.buckets.get(&run.row.policy_uid);
        self.lacks_room(run) && bucket.is_none_or(|bucket| bucket.in_flight() == 0)
    }

    fn policy_never(&self, bucket: &Bucket) -> Option<Never> {
        if self.pause.pause.is_some() {
            return Some(Never::DispatchPaused);
        }
        let policy = bucket.policy.as_ref()?;
        let limit = policy.limits.max_in_flight;
        let is_silent =
            policy.reclaim == Reclaim::Never && limit.is_some_and(|limit| bucket.counts.suspect() >= limit);
        let paused =
            std::iter::once(bucket).chain(self.ledger.above(Some(policy.uid)).map(|(_, above)| above));
        let mut paused = paused.filter_map(|bucket| bucket.policy.as_ref());
        if let Some(paused) = paused.find(|policy| policy.pause.is_some()) {
            Some(Never::PolicyPaused(paused.id.clone()))
        } else if limit == Some(0) || policy.limits.rate_per_s.is_some_and(|rate| rate <= 0.0) {
            Some(Never::NothingAllowed(policy.id.clone()))
        } else {
            is_silent.then(|| Never::TokensSilent(policy.id.clone()))
        }
    }

    /// The target that nothing of a policy gets to. Where one of several schedules gets through, there is none.
    fn target_never(&self, bucket: &Bucket, now: Now) -> Option<Never> {
        if bucket.pace.last_minute(now).accepted > 0 {
            return None;
        }
        let (id, _) = bucket.pace.last_error.as_ref()?.event;
        let refusal = self.refusal(self.ledger.runs.get(&id)?, now)?;
        Some(never_by(refusal.said, refusal.target))
    }

    fn flow(&self, bucket: &Bucket, now: Now) -> Flow {
        let mean_us = bucket.pace.holds().and_then(|holds| holds.mean_us(now.mono_us));
        let Some(policy) = &bucket.policy else {
            let (tokens, held) = (Some(self.options.sends_max), bucket.counts.places().taken());
            return Flow { tokens, held, rate_per_s: None, mean_us };
        };
        // A token that is never reclaimed does not come back by itself.
        let lost = if policy.reclaim == Reclaim::Never { bucket.counts.suspect() } else { 0 };
        let (tokens, rate_per_s) = self.share_of(bucket, policy.uid);
        Flow {
            tokens: tokens.map(|limit| limit.saturating_sub(lost)),
            held: bucket.counts.held() - lost,
            rate_per_s,
            mean_us,
        }
    }

    /// How many tokens the events of a policy may have, and the highest rate: where others share them in a tree, what these leave
    /// as things stand, or its floor.
    fn share_of(&self, bucket: &Bucket, uid: Uuid) -> (Option<u32>, Option<f64>) {
        let limits =
            |bucket: &Bucket| bucket.policy.as_ref().map(|policy| policy.limits.clone()).unwrap_or_default();
        let Limits { max_in_flight: mut tokens, rate_per_s: mut rate, .. } = limits(bucket);
        let mut below = bucket;
        for (_, above) in self.ledger.above(Some(uid)) {
            let Limits { max_in_flight, rate_per_s, .. } = limits(above);
            if let Some(limit) = max_in_flight {
                let of_others = above.in_flight() - below.in_flight();
                let share = limit.saturating_sub(of_others).max(below.floor()).max(1);
                tokens = Some(tokens.map_or(share, |tokens| tokens.min(share)));
            }
            rate = rate.into_iter().chain(rate_per_s).reduce(f64::min);
            below = above;
        }
        (tokens, rate)
    }

    /// The last to start may not be the last to end: of k that are at work at once, the slowest is.
    fn end(&self, run: &LiveRun, last_start: &Expected, now: Now) -> Expected {
        let Expected::At(start_us) = last_start else { return last_start.clone() };
        let row = &run.row;
        let bucket = self.ledger.buckets.get(&row.policy_uid);
        let limit = bucket.and_then(|bucket| self.share_of(bucket, row.policy_uid?).0);
        let waits = row.next_index < row.events || run.counts.coming_again() > 0;
        let unfinished = row.events - row.next_index + run.counts.outstanding();
        let at_once = unfinished.min(limit.unwrap_or(u32::MAX)).max(1);
        let holds = bucket.and_then(|bucket| bucket.pace.holds());
        let Some(hold_us) = holds.and_then(|holds| holds.longest_of_us(at_once)) else {
            return Expected::NotKnown(NOTHING_ENDED);
        };
        let began_us = if waits {
            *start_us
        } else {
            let last = run.front().checked_sub(1).and_then(|last| self.ledger.tokens.get(&(row.id, last)));
            last.map_or(now.wall_us, |token| token.row.acquired_us)
        };
        Expected::At(began_us.saturating_add(hold_us)).not_before(now.wall_us)
    }

    /// By when the events of a run must have started, and how many are not expected to have.
    fn late(&self, run: &LiveRun, places: &Places, last_start: &Expected, now: Now) -> Option<(i64, u64)> {
        let deadline_us = run.window_end_us()?;
        let row = &run.row;
        let left = u64::from(row.events - row.next_index);
        if left == 0 || run.cancelled {
            return None;
        }
        if matches!(last_start, Expected::Never(_)) {
            return Some((deadline_us, left));
        }
        let bucket = self.ledger.buckets.get(&row.policy_uid).filter(|_| run.launched)?;
        let flow = self.flow(bucket, now);
        // What has not ended yet says at least how long it has lasted.
        let at_least_us = bucket.pace.holds().and_then(|holds| holds.at_least_us(now.mono_us));
        let flow = Flow { mean_us: flow.mean_us.or(at_least_us), ..flow };
        let blocked_us = self.blocked_us(run, now).unwrap_or(i64::MIN);
        let is_late = |index: u32| {
            let start = starts(&flow, places.before(run, index), now);
            let start = match flow_of_key(run, bucket, &flow) {
                Some(of_key) => start.and(starts(&of_key, places.before_in_circle(run, index), now)),
                None => start,
            };
            start.not_before(run.launch_of(index).max(blocked_us)).is_after(deadline_us)
        };
        if !is_late(row.events - 1) {
            return None;
        }
        // The first that comes too late: whoever comes after it does, too.
        let (mut low, mut high) = (row.next_index, row.events - 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_late(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some((deadline_us, u64::from(row.events - low)))
    }
}

/// How fast events of a run's key start, where its policy limits them.
fn flow_of_key(run: &LiveRun, bucket: &Bucket, flow: &Flow) -> Option<Flow> {
    // What its items' keys have is another matter for each.
    if run.sorted.is_some() {
        return None;
    }
    let Limits { max_in_flight: tokens, rate_per_s, .. } = bucket.rules()?.limits_of(run.spec.key());
    let is_limited = tokens.is_some() || rate_per_s.is_some();
    let held = bucket.counts.held_of(run.sharer.key());
    is_limited.then_some(Flow { tokens, held, rate_per_s, mean_us: flow.mean_us })
}

fn starts(flow: &Flow, before: u64, now: Now) -> Expected {
    match flow.start_after_us(before) {
        Some(after_us) => Expected::At(now.wall_us.saturating_add(after_us)),
        None => Expected::NotKnown(NOTHING_ENDED),
    }
}

fn never_by(said: Said, target: String) -> Never {
    match said {
        Said::Unclear => Never::TargetSilent(target),
        Said::NotSent => Never::NotSent(target),
        Said::Refused | Said::GivenBack => Never::TargetRefuses(target),
    }
}
