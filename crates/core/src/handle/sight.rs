//! What of a shard is not well, for [`crate::trouble`]: which schedules' deliveries fail, and how; whose tokens are
//! silent; what is paused with work behind it; what has ended badly of runs that go on.
//!
//! Read from memory when somebody asks; nothing is kept for it. Invariants: it takes time in proportion to the
//! unfinished runs, and looks at a bounded number of their events. Events that fail stay where they are, and those that
//! go well make way: so those that fail are among the first of their run.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::bucket;
use super::change::TokenRow;
use super::ledger::{Key, Phase};
use super::live::{LiveRun, LiveToken};
use super::outlook::{Budget, Lines};
use super::shard::Shard;
use super::waiting::WaitingEvents;
use crate::alert::UNSURE_US;
use crate::expected_end::Expected;
use crate::model::{Now, SECOND_US};
use crate::trouble::{AtRisk, Bucket, Ended, Failing, Said, Sight, Silent, Sufferer, lasts};

/// How many acquired events of a run are looked at.
const OF_RUN_MAX: usize = 32;
/// How many of the shard are; and as many again for silent tokens.
const LOOKED_AT_MAX: usize = 20_000;
/// How many schedules are told of: those with the most that waits.
const SUFFERERS_MAX: usize = 1_000;
/// How many runs of a schedule are looked at for how its target takes events.
const OF_SCHEDULE_MAX: usize = 8;
/// A target that took an event so short a time ago does not refuse everything.
const TAKES_US: i64 = 30 * SECOND_US;

/// A target that takes nothing of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// What it says.
    pub said: Said,
    /// In its own words.
    pub words: String,
    /// Scheme, host and port, or the queue's URL.
    pub target: String,
    /// The event of which it said so.
    pub event: Key,
    /// When one of them is sent again, at the earliest (wall clock).
    pub next_us: i64,
}

/// What is found of one schedule on the way through its runs.
struct Found<'a> {
    run: &'a LiveRun,
    waiting: u64,
    oldest_launch_us: Option<i64>,
    at_consumer: u64,
    failing: BTreeMap<Said, Failing>,
    ended: Ended,
    at_risk: Option<AtRisk>,
}

impl<'a> Found<'a> {
    fn nothing(run: &'a LiveRun) -> Self {
        Self {
            run,
            waiting: 0,
            oldest_launch_us: None,
            at_consumer: 0,
            failing: BTreeMap::new(),
            ended: Ended::default(),
            at_risk: None,
        }
    }

    /// So many events of one of its runs are not expected to start in time.
    fn is_late(&mut self, (deadline_us, events, last_start): (i64, u64, Expected)) {
        let risk = AtRisk { deadline_us, events, runs: 1, last_start };
        self.at_risk = Some(match self.at_risk.take() {
            Some(known) => known.joined(risk),
            None => risk,
        });
    }

    fn waits(&mut self, events: u64, since_us: i64) {
        if events > 0 {
            self.waiting += events;
            self.oldest_launch_us = Some(self.oldest_launch_us.map_or(since_us, |us| us.min(since_us)));
        }
    }

    fn has_ended(&mut self, run: &LiveRun) {
        let counts = &run.row.counts;
        let (failed, expired) = (counts.failed + counts.dead + counts.lost, counts.expired);
        if failed + expired > 0 {
            let ended = &mut self.ended;
            ended.failed += u64::from(failed);
            ended.expired += u64::from(expired);
            ended.since_us =
                if ended.runs == 0 { run.row.launch_us } else { ended.since_us.min(run.row.launch_us) };
            ended.runs += 1;
        }
    }

    fn event(&mut self, token: &LiveToken) {
        if matches!(token.phase(), Phase::Held { .. }) {
            self.at_consumer += 1;
        }
        let Some(said) = latest_said(token) else { return };
        let failures = token.failures();
        let since_us = token.row.acquired_us;
        let failing = self.failing.entry(said).or_insert(Failing {
            said,
            events: 0,
            since_us,
            failures: 0,
            words: String::new(),
            event: (token.row.run, token.row.index),
        });
        failing.events += 1;
        failing.since_us = failing.since_us.min(since_us);
        if failures > failing.failures {
            failing.failures = failures;
            failing.words.clone_from(&token.row.message);
            failing.event = (token.row.run, token.row.index);
        }
    }

    fn into_sufferer(self) -> Option<Sufferer> {
        let is_bad = self.ended.runs > 0;
        if self.failing.is_empty() && !is_bad && self.at_risk.is_none() {
            return None;
        }
        let (row, spec) = (&self.run.row, &self.run.spec);
        let (namespace, schedule) = (row.namespace.clone(), row.schedule_id.clone());
        let policy = spec.policy_id.clone().unwrap_or_default();
        let of = |ended| Ended {
            namespace: namespace.clone(),
            schedule: schedule.clone(),
            policy: policy.clone(),
            ..ended
        };
        let ended = is_bad.then(|| of(self.ended));
        Some(Sufferer {
            target: spec.target.address().to_owned(),
            waiting: self.waiting,
            oldest_launch_us: self.oldest_launch_us,
            at_consumer: self.at_consumer,
            failing: self.failing.into_values().collect(),
            ended,
            at_risk: self.at_risk,
            namespace,
            schedule,
            policy,
        })
    }
}

impl Shard {
    /// What is not well.
    pub fn sight(&self, now: Now) -> Sight {
        let mut by_schedule: BTreeMap<Uuid, Found<'_>> = BTreeMap::new();
        let mut sight = Sight { pause: self.pause.pause.clone(), ..Sight::default() };
        let mut left = LOOKED_AT_MAX;
        let is_new = now.mono_us.saturating_sub(self.since_us) < UNSURE_US;
        let (mut lines, mut budget) = (Lines::new(), Budget::default());
        for run in self.ledger.runs.all().filter(|run| run.launched) {
            let found = by_schedule.entry(run.row.schedule_uid).or_insert_with(|| Found::nothing(run));
            found.has_ended(run);
            if run.cancelled {
                continue;
            }
            let (waiting, since_us) = self.waiting_of(run, now);
            found.waits(waiting, since_us);
            if let Some(late) = self.late_of(run, &mut lines, &mut budget, now) {
                found.is_late(late);
            }
            if run.counts.outstanding() > 0 {
                sight.incomplete |= left == 0;
                let events = self.ledger.tokens.of(run.row.id).take(OF_RUN_MAX.min(left));
                events.for_each(|(_, token)| {
                    left -= 1;
                    sight.settling |= is_new && is_unheard(token, self.since_us);
                    found.event(token);
                });
            }
        }
        sight.incomplete |= budget.is_spent;
        sight.waiting = by_schedule.values().map(|found| found.waiting).sum();
        sight.oldest_launch_us = by_schedule.values().filter_map(|found| found.oldest_launch_us).min();
        sight.buckets = self.buckets_not_well(now, &mut sight.incomplete);
        sight.sufferers = by_schedule.into_values().filter_map(Found::into_sufferer).collect();
        sight.incomplete |= sight.sufferers.len() > SUFFERERS_MAX;
        sight.sufferers.sort_by_key(|sufferer| std::cmp::Reverse(sufferer.waiting));
        sight.sufferers.truncate(SUFFERERS_MAX);
        sight
    }

    /// Whether the target of a run's schedule takes nothing: its tries last and fail, nothing is at its consumer, not more are
    /// on their way for the first time, and it took nothing lately.
    pub(super) fn refusal(&self, run: &LiveRun, now: Now) -> Option<Refusal> {
        let mut refusal: Option<(u32, Refusal)> = None;
        let runs = self.ledger.runs.of(run.row.schedule_uid).filter(|run| run.counts.outstanding() > 0);
        for run in runs.take(OF_SCHEDULE_MAX) {
            if now.mono_us.saturating_sub(run.accepted_us) < TAKES_US {
                return None;
            }
            let (mut found, mut on_their_way) = (Found::nothing(run), 0);
            for (key, token) in self.ledger.tokens.of(run.row.id).take(OF_RUN_MAX) {
                found.event(token);
                let said = latest_said(token).filter(|said| *said != Said::GivenBack);
                let Some(said) = said else {
                    on_their_way += u64::from(token.is_sending());
                    continue;
                };
                let next_us = match token.phase() {
                    Phase::Waiting => token.row.due_us.max(now.wall_us),
                    Phase::Again { at_us } => now.wall_us + (at_us - now.mono_us).max(0),
                    _ => now.wall_us,
                };
                let (failures, words) = (token.failures(), token.row.message.clone());
                let target = run.spec.target.address().to_owned();
                refusal = Some(match refusal.take() {
                    Some((most, known)) if most >= failures => {
                        (most, Refusal { next_us: known.next_us.min(next_us), ..known })
                    }
                    before => {
                        let next_us = before.map_or(next_us, |(_, known)| known.next_us.min(next_us));
                        (failures, Refusal { said, words, target, event: key, next_us })
                    }
                });
            }
            let failing = || found.failing.values().filter(|failing| failing.said != Said::GivenBack);
            let lasts = failing().any(|failing| lasts(failing, now.wall_us));
            let is_less = failing().map(|failing| failing.events).sum::<u64>() < on_their_way;
            if found.at_consumer > 0 || is_less || !lasts {
                return None;
            }
        }
        refusal.map(|(_, refusal)| refusal)
    }

    /// Events of a run that are due and hold no token, and since when at the most.
    pub(super) fn waiting_of(&self, run: &LiveRun, now: Now) -> (u64, i64) {
        let retrying = u64::from(run.counts.retrying());
        if !run.next_is_due(now.wall_us, &self.options) {
            return (retrying, run.start_us());
        }
        let since_us = if retrying > 0 { run.start_us() } else { run.launch_of(run.row.next_index) };
        (retrying + self.due_now(run, now), since_us)
    }

    /// Policies that are paused with work behind them, or have silent tokens.
    fn buckets_not_well(&self, now: Now, incomplete: &mut bool) -> Vec<Bucket> {
        let looked_at = |bucket: &bucket::Bucket| bucket.is_paused() || bucket.counts.suspect() > 0;
        let all = self.ledger.buckets.iter().filter(|(_, bucket)| looked_at(bucket)).collect::<Vec<_>>();
        if all.is_empty() {
            return Vec::new();
        }
        let mut left = LOOKED_AT_MAX;
        let waiting = self.all_waiting(now).by_policy;
        let mut buckets = Vec::new();
        for (uid, bucket) in all {
            let Some(policy) = &bucket.policy else { continue };
            let tokens = bucket.counts.suspect();
            // What waits below it waits for it, too.
            let mut behind = WaitingEvents::default();
            for below in self.ledger.with_all_below(policy.uid) {
                waiting.get(&Some(below)).into_iter().for_each(|of| behind.add(*of));
            }
            let waiting = behind;
            if tokens == 0 && waiting.events == 0 {
                continue;
            }
            *incomplete |= tokens > 0 && left == 0;
            let longest = self.longest_silent(*uid, tokens, &mut left);
            buckets.push(Bucket {
                namespace: policy.namespace.clone(),
                policy: policy.id.clone(),
                pause: policy.pause.clone(),
                limit: policy.limits.max_in_flight,
                waiting: waiting.events,
                oldest_launch_us: waiting.since_us,
                silent: (tokens > 0).then(|| Silent {
                    tokens,
                    since_us: longest.map(|(_, sign_us)| now.wall_us - (now.mono_us - sign_us)),
                    schedule: longest.map_or_else(String::new, |(key, _)| self.schedule_of(key)),
                }),
            });
        }
        buckets
    }

    /// The silent event under a policy that has not been heard of for longest, and when it was (monotonic).
    fn longest_silent(&self, policy: Option<Uuid>, tokens: u32, left: &mut usize) -> Option<(Key, i64)> {
        if tokens == 0 {
            return None;
        }
        let looked_at = self.ledger.tokens_under(policy).take(*left).inspect(|_| *left -= 1);
        let silent = looked_at.filter(|(_, token)| token.phase() == Phase::Held { suspect: true });
        silent.map(|(key, token)| (key, token.sign_us)).min_by_key(|(_, sign_us)| *sign_us)
    }

    fn schedule_of(&self, (run, _): Key) -> String {
        self.ledger.runs.get(&run).map(|run| run.row.schedule_id.clone()).unwrap_or_default()
    }
}

/// Whether nothing has been heard of an event since its shard was taken over: what the former owner heard of its
/// delivery, that it did not leave, and for how long its consumer had been silent, is not stored.
fn is_unheard(token: &LiveToken, since_us: i64) -> bool {
    match token.phase() {
        Phase::Held { suspect } => !suspect && token.sign_us == since_us,
        Phase::Waiting => token.said.is_none() && is_unsent(token),
        Phase::Acquired | Phase::Sending { .. } | Phase::Again { .. } => {
            token.doubtful && token.said.is_none()
        }
    }
}

/// What was said of an event's latest delivery, where it is to be sent again. A former owner has left what it heard of
/// those that wait.
fn latest_said(token: &LiveToken) -> Option<Said> {
    let waits = match token.phase() {
        Phase::Held { .. } => return None,
        phase => phase == Phase::Waiting,
    };
    match token.said {
        Some(Said::NotSent) => Some(Said::NotSent),
        _ if token.row.failures == 0 => None,
        None if waits && token.row.delivered_us.is_some() => Some(Said::GivenBack),
        None if waits => Some(Said::Refused),
        said => said,
    }
}

/// Whether the latest delivery of an event that waits may not have left, as far as its row says.
fn is_unsent(token: &LiveToken) -> bool {
    let TokenRow { failures, delivered_us, message, .. } = &token.row;
    *failures == 0 && delivered_us.is_none() && !message.is_empty()
}
