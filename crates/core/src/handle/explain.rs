//! Why an event waits, and what the shard is doing: answers for operators, read from memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::bucket::Bucket;
use super::keys::{KeyOf, Load};
use super::ledger::Phase;
use super::live::LiveRun;
use super::outlook::{Budget, Lines};
use super::pace::{LastError, per_s};
use super::shard::Shard;
use super::sight::Refusal;
use super::targets::TargetGauge;
use super::waiting::Waiting;
use crate::expected_end::Expected;
use crate::model::{Now, Pause, Policy, RunId};

/// How many holders an explanation names.
const HOLDERS_MAX: usize = 10;

/// Where an unfinished event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventState {
    /// Its launch time has not come.
    Scheduled,
    /// It is due and waits for a token.
    Waiting,
    /// It has failed and waits for its next attempt.
    Retrying,
    /// It holds a token; its delivery is under way or unclear.
    Acquired,
    /// Its consumer has it.
    Held,
    /// Its consumer has been silent for too long.
    Suspect,
}

/// One thing that keeps an event from starting, or from ending.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Its launch time lies ahead.
    NotDue {
        /// The event's launch time.
        launch_us: i64,
    },
    /// The chain goes on that began with an earlier run of its schedule, and the overlap rule makes it wait.
    BehindChain {
        /// That run.
        first: RunId,
    },
    /// An earlier run of its schedule is unfinished, and the overlap rule makes it wait.
    Buffered {
        /// That run.
        behind: RunId,
    },
    /// Its schedule rests after its last run, and the overlap rule makes it wait.
    Resting {
        /// Until when.
        until_us: i64,
    },
    /// Its schedule is paused.
    SchedulePaused(Pause),
    /// Its policy is paused.
    PolicyPaused(Pause),
    /// Everything is paused.
    AllPaused(Pause),
    /// Every token is held, or so many that fewer are left than it takes.
    PolicyFull {
        /// Tokens held.
        held: u32,
        /// The limit.
        limit: u32,
        /// How many it takes.
        units: u32,
    },
    /// It takes more tokens than there are: until a limit is raised, it does not start.
    AboveLimit {
        /// How many it takes.
        units: u32,
        /// The limit.
        limit: u32,
        /// The key whose limit that is; empty for that of events without one. None where it is the policy's.
        key: Option<String>,
    },
    /// Tokens that come back are kept for an event before it that takes many.
    TokensKept {
        /// That event's run.
        run: RunId,
        /// How many it takes.
        units: u32,
    },
    /// Its policy lets nothing of its key start.
    KeyPaused {
        /// The key; empty for events without one.
        key: String,
        /// Why, in the words of whoever paused it.
        reason: String,
    },
    /// Events of its key hold as many tokens as they may have, or so many that fewer are left than it takes.
    KeyFull {
        /// The key; empty for events without one.
        key: String,
        /// Tokens held.
        held: u32,
        /// The limit.
        limit: u32,
        /// How many it takes.
        units: u32,
    },
    /// The rate of its key lets nothing through before then.
    KeyRateLimited {
        /// The key; empty for events without one.
        key: String,
        /// From now, in microseconds.
        wait_us: i64,
    },
    /// Its key, or that of an event that holds a token, has not been read yet: nobody knows what each key holds.
    KeysUnread,
    /// The rate lets nothing through before then.
    RateLimited {
        /// From now, in microseconds.
        wait_us: i64,
    },
    /// Of the deliveries under way that no limit of their own bounds, its schedule, target or namespace has
    /// its share already.
    SendsFull {
        /// Deliveries under way.
        sending: u32,
    },
    /// No worker that is able to do it has room.
    NoRoom {
        /// The queue from which workers take it.
        queue: String,
        /// Labels that a worker must have.
        requires: Vec<String>,
        /// Stands for both, within the namespace.
        pool: u128,
    },
    /// Its target asked not to be called before then.
    TargetAskedToWait {
        /// From now, in microseconds.
        wait_us: i64,
    },
    /// It failed; its next attempt is due then.
    BackOff {
        /// When.
        due_us: i64,
        /// Deliveries so far.
        attempt: u32,
        /// The latest failure.
        message: String,
    },
    /// Its target takes nothing of its schedule.
    TargetRefuses(Refusal),
    /// Too many events of its run wait for another attempt; until some have gone, the run starts no new ones.
    RunRetrying {
        /// How many.
        retrying: u32,
    },
    /// The shard has not heard of its policy.
    PolicyUnknown,
    /// A policy above its own holds it back.
    Above {
        /// The id of that policy.
        policy: String,
        /// Why.
        holds: Box<Reason>,
    },
    /// Its turn has not come yet.
    Turn,
}

/// An event that holds a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The run.
    pub run: RunId,
    /// The queue shard that its name and those of its events have.
    pub named_shard: u16,
    /// The event's index.
    pub index: u32,
    /// Namespace and id of its schedule.
    pub schedule: (String, String),
    /// Where it stands.
    pub state: EventState,
    /// How long it has held the token, in microseconds.
    pub age_us: i64,
    /// Until something happens by itself (suspect, reclaimed, sent again), in microseconds; none if nothing will.
    pub timer_us: Option<i64>,
    /// How many tokens it holds.
    pub units: u32,
}

/// Why an unfinished event is where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Where it stands.
    pub state: EventState,
    /// Deliveries so far.
    pub attempt: u32,
    /// What holds it back, the most lasting first. Empty for one in flight.
    pub reasons: Vec<Reason>,
    /// Who holds the tokens of its policy, the oldest first (at most ten); itself, if it is in flight.
    pub holders: Vec<Holder>,
    /// How many events go before it, as things stand.
    pub ahead: Option<u64>,
}

/// A policy at a glance.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauge {
    /// The policy; none for runs without one.
    pub policy: Option<Policy>,
    /// Tokens held by its own events.
    pub held: u32,
    /// Tokens held by events of the policies below it.
    pub below: u32,
    /// Of its own, silent for too long.
    pub suspect: u32,
    /// Events that are due and wait for a token or for another attempt.
    pub waiting: u64,
    /// For how long the oldest has waited, in microseconds.
    pub oldest_wait_us: i64,
    /// Of those, events that wait for another attempt.
    pub retrying: u64,
    /// Events started per second, over the last minute: those that their target took, or may have taken.
    pub started_per_s: f64,
    /// Deliveries per second that a target took, over the last minute.
    pub accepted_per_s: f64,
    /// Deliveries per second that a target did not take, or that did not leave.
    pub refused_per_s: f64,
    /// Deliveries per second of which nobody knows.
    pub unclear_per_s: f64,
    /// The latest delivery that failed, as far as this owner has heard it.
    pub last_error: Option<Arc<LastError>>,
    /// When the last of what waits is expected to start; none where nothing waits.
    pub drained: Option<Expected>,
    /// Runs of which events are not expected to start in time.
    pub runs_at_risk: u64,
}

/// A shard at a glance.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// By policy.
    pub gauges: Vec<Gauge>,
    /// By namespace and target.
    pub targets: Vec<TargetGauge>,
    /// Unfinished runs that have launched.
    pub runs_launched: u64,
    /// Runs whose launch time lies ahead.
    pub runs_upcoming: u64,
    /// Why nothing starts.
    pub pause: Option<Pause>,
    /// The latest message that paused or resumed it.
    pub pause_order: Uuid,
    /// What it remembers.
    pub remembered: Remembered,
}

/// How much a shard remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Schedules: for their runs, a pause, a cursor, or a change of the last day.
    pub schedules: usize,
    /// Run specs.
    pub specs: usize,
    /// Policies.
    pub policies: usize,
}

impl Shard {
    /// Why an event of an unfinished run is where it is; none if the run or the event has ended, or is not known.
    pub fn explain(&self, id: RunId, index: u32, now: Now) -> Option<Explanation> {
        let run = self.ledger.runs.get(&id)?;
        let of = match self.ledger.tokens.get(&(id, index)) {
            Some(token) => token.load.clone(),
            None => run.load_of_unstarted(index),
        };
        if let Some(token) = self.ledger.tokens.get(&(id, index)) {
            let state = self.event_state(id, index)?;
            let attempt = token.row.attempt;
            if token.in_flight() {
                let holders = self.holder((id, index), now).into_iter().collect();
                return Some(Explanation { state, attempt, reasons: Vec::new(), holders, ahead: None });
            }
            let mut reasons = self.reasons(run, &of, now);
            if token.row.due_us > now.wall_us {
                let (due_us, message) = (token.row.due_us, token.row.message.clone());
                reasons.insert(0, Reason::BackOff { due_us, attempt, message });
            }
            let ahead = token.queued.then(|| self.ahead(run, None));
            return Some(self.waiting((run, &of), (state, attempt), reasons, ahead, now));
        }
        if !run.is_unstarted(index) {
            return None;
        }
        let launch_us = run.launch_of(index);
        if launch_us > now.wall_us {
            let reasons = vec![Reason::NotDue { launch_us }];
            return Some(self.waiting((run, &of), (EventState::Scheduled, 0), reasons, None, now));
        }
        let is_in_line = run.in_lane && (of.key != KeyOf::Unread || run.sorted.is_none());
        let ahead = is_in_line.then(|| self.ahead(run, Some(index)));
        let reasons = self.reasons(run, &of, now);
        Some(self.waiting((run, &of), (EventState::Waiting, 0), reasons, ahead, now))
    }

    /// Tokens in flight and waiting of an unfinished run: (in flight, waiting for another attempt).
    pub fn outstanding(&self, id: RunId) -> Option<(u32, u32)> {
        let run = self.ledger.runs.get(&id)?;
        Some((run.counts.outstanding() - run.counts.retrying(), run.counts.retrying()))
    }

    /// Where an acquired, unfinished event stands.
    pub fn event_state(&self, id: RunId, index: u32) -> Option<EventState> {
        let token = self.ledger.tokens.get(&(id, index))?;
        Some(match token.phase() {
            Phase::Waiting => EventState::Retrying,
            Phase::Acquired | Phase::Sending { .. } | Phase::Again { .. } => EventState::Acquired,
            Phase::Held { suspect: true } => EventState::Suspect,
            Phase::Held { suspect: false } => EventState::Held,
        })
    }

    /// The shard at a glance. Takes time in proportion to its unfinished runs.
    pub fn status(&self, now: Now) -> Status {
        self.glance(now, false)
    }

    /// As [`Self::status`], with only those policies that hold tokens, that events wait for, or that started some within
    /// the last minute.
    pub fn busy_status(&self, now: Now) -> Status {
        self.glance(now, true)
    }

    fn glance(&self, now: Now, busy_only: bool) -> Status {
        let Waiting { launched, by_policy, by_target } = self.all_waiting(now);
        let at_risk = self.runs_at_risk(now);
        let mut gauges = Vec::new();
        for (policy, bucket) in &self.ledger.buckets {
            let waiting = by_policy.get(policy).copied().unwrap_or_default();
            let minute = bucket.pace.last_minute(now);
            if busy_only && bucket.in_flight() == 0 && waiting.events == 0 && minute.tried() == 0 {
                continue;
            }
            gauges.push(Gauge {
                policy: bucket.policy.clone(),
                held: bucket.counts.held(),
                below: bucket.in_flight() - bucket.counts.held(),
                suspect: bucket.counts.suspect(),
                waiting: waiting.events,
                oldest_wait_us: waiting.since_us.map_or(0, |since| (now.wall_us - since).max(0)),
                retrying: waiting.retrying,
                started_per_s: per_s(minute.started),
                accepted_per_s: per_s(minute.accepted),
                refused_per_s: per_s(minute.refused),
                unclear_per_s: per_s(minute.unclear),
                last_error: bucket.pace.last_error.clone(),
                drained: self.drained((*policy, bucket), waiting, now),
                runs_at_risk: at_risk.get(policy).copied().unwrap_or_default(),
            });
        }
        let upcoming = self.ledger.runs.len() as u64 - launched;
        let super::change::ShardPause { order, pause } = self.pause.clone();
        let remembered = self.remembered();
        Status {
            gauges,
            targets: self.ledger.targets.gauges(&by_target, busy_only, now),
            runs_launched: launched,
            runs_upcoming: upcoming,
            pause,
            pause_order: order,
            remembered,
        }
    }

    /// How many runs under each policy have events that are not expected to start in time.
    fn runs_at_risk(&self, now: Now) -> BTreeMap<Option<Uuid>, u64> {
        let (mut lines, mut budget) = (Lines::new(), Budget::default());
        let mut at_risk = BTreeMap::new();
        for run in self.ledger.runs.all().filter(|run| run.launched && !run.cancelled) {
            if self.late_of(run, &mut lines, &mut budget, now).is_some() {
                *at_risk.entry(run.row.policy_uid).or_default() += 1;
            }
        }
        at_risk
    }

    fn waiting(
        &self,
        (run, of): (&LiveRun, &Load),
        (state, attempt): (EventState, u32),
        reasons: Vec<Reason>,
        ahead: Option<u64>,
        now: Now,
    ) -> Explanation {
        let mut holders: Vec<_> = if state == EventState::Scheduled || run.row.policy_uid.is_none() {
            Vec::new()
        } else {
            // Where its key has all that it may have, those of its key are who it waits for; where a policy above has, all below
            // that.
            let of_key = reasons.iter().any(|reason| matches!(reason, Reason::KeyFull { .. }));
            let policies = self.holding_policies((run, of), of_key);
            let runs = policies.iter().flat_map(|policy| self.ledger.runs.under(*policy));
            let runs = runs.filter_map(|id| self.ledger.runs.get(&id));
            let key = run.sharer.with(&of.key).key();
            let held =
                runs.flat_map(|other| self.ledger.tokens.of(other.row.id).map(move |held| (other, held)));
            let held = held.filter(|(other, (_, token))| {
                token.in_flight() && (!of_key || other.sharer.with(&token.load.key).key() == key)
            });
            held.filter_map(|(_, (key, _))| self.holder(key, now)).collect()
        };
        holders.sort_by_key(|h| std::cmp::Reverse(h.age_us));
        holders.truncate(HOLDERS_MAX);
        Explanation { state, attempt, reasons, holders, ahead }
    }

    /// The policies whose events hold what an event of a run waits for.
    fn holding_policies(&self, (run, of): (&LiveRun, &Load), of_key: bool) -> Vec<Option<Uuid>> {
        let own = run.row.policy_uid;
        let is_full = |bucket: &Bucket| {
            let limit = bucket.policy.as_ref().and_then(|policy| policy.limits.max_in_flight);
            limit.is_some_and(|limit| bucket.in_flight().saturating_add(of.units) > limit)
        };
        let own_is_full = self.ledger.buckets.get(&own).is_some_and(is_full);
        let above = self.ledger.above(own).find(|(_, bucket)| is_full(bucket));
        match above {
            Some((uid, _)) if !of_key && !own_is_full => {
                self.ledger.with_all_below(uid).into_iter().map(Some).collect()
            }
            _ => vec![own],
        }
    }

    fn holder(&self, key: (RunId, u32), now: Now) -> Option<Holder> {
        let (run, token) = (self.ledger.runs.get(&key.0)?, self.ledger.tokens.get(&key)?);
        Some(Holder {
            run: key.0,
            named_shard: run.row.named_shard(),
            index: key.1,
            schedule: (run.row.namespace.clone(), run.row.schedule_id.clone()),
            state: self.event_state(key.0, key.1)?,
            age_us: (now.wall_us - token.row.acquired_us).max(0),
            timer_us: token.timer_us.map(|t| (t - now.mono_us).max(0)),
            units: token.load.units,
        })
    }

    /// How many events go before event `index` of a run (`None`: before its retries).
    fn ahead(&self, run: &LiveRun, index: Option<u32>) -> u64 {
        self.line_of(run.row.policy_uid).before(run, self.own_before(run, index))
    }
}
