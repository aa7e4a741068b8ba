//! What roles know anyway and are asked for at each scrape.
//!
//! Invariant: each process tells of its own queue shards only, so that sums over processes are right.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tollgate_core::trouble::Kind;

/// A policy has series of its own as long as there are no more of them than this.
pub const POLICIES_MAX: usize = 1_000;
/// As many targets have series of their own.
pub const TARGETS_MAX: usize = 200;
/// Stands for the targets of a namespace that a shard does not tell apart; no address looks like this.
pub const OTHER_TARGETS: &str = "(others)";
/// Stands for the policy of runs that have none; no id looks like this.
pub const NO_POLICY: &str = "(none)";

/// The queue shards of this process, at a glance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HandlerSample {
    /// Shards that this process owns.
    pub shards_owned: u64,
    /// Of those, shards that did not answer in time: they are being loaded, or the store does not answer.
    pub shards_silent: u64,
    /// Of those, shards that are paused.
    pub shards_paused: u64,
    /// Unfinished runs that have launched.
    pub runs_launched: u64,
    /// Runs that are loaded and have not launched.
    pub runs_upcoming: u64,
    /// Rows that cannot be read.
    pub corrupt_rows: u64,
    /// Runs that are passed over as they, or their specs, cannot be read.
    pub runs_unreadable: u64,
    /// Messages that are passed over as they, or what they are about, cannot be read.
    pub messages_unreadable: u64,
    /// Schedules that are remembered: for their runs, a pause, a cursor, or a change of the last day.
    pub schedules_remembered: u64,
    /// Run specs, with their payloads, that are kept in memory.
    pub specs_remembered: u64,
    /// Policies that are.
    pub policies_remembered: u64,
    /// Workers that are connected to this process to take events.
    pub workers: u64,
    /// How many more events these would be given.
    pub workers_room: u64,
    /// Events that they have, or are being given.
    pub workers_events: u64,
    /// How many troubles of each kind there are.
    pub troubles: BTreeMap<Kind, u64>,
    /// By policy.
    pub policies: Vec<PolicySample>,
    /// By namespace and target; each once.
    pub targets: Vec<TargetSample>,
}

/// One policy, or what runs without one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicySample {
    /// Namespace; empty for what runs without a policy.
    pub namespace: String,
    /// The policy's id, or [`NO_POLICY`].
    pub policy: String,
    /// Tokens held.
    pub in_flight: u64,
    /// The most that may be held, where the policy says so.
    pub limit: Option<u64>,
    /// Events that are due and have not started, or wait for another attempt.
    pub waiting: u64,
    /// For how long the oldest of them has waited, in microseconds.
    pub oldest_wait_us: i64,
    /// Of those, events that wait for another attempt.
    pub retrying: u64,
    /// Events started per second, over the last minute.
    pub started_per_s: f64,
    /// Deliveries per second that targets refused, or that did not leave.
    pub refused_per_s: f64,
    /// Deliveries per second of which nobody knows.
    pub unclear_per_s: f64,
    /// Runs of which events are not expected to start in time.
    pub runs_at_risk: u64,
    /// Tokens whose consumers have been silent for too long.
    pub suspect: u64,
    /// Whether it is paused.
    pub paused: bool,
}

/// What events of one namespace do at one target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetSample {
    /// Namespace.
    pub namespace: String,
    /// Scheme, host and port, or the queue's URL, or [`OTHER_TARGETS`].
    pub target: String,
    /// Events in flight.
    pub in_flight: u64,
    /// Events that are due and have not started, or wait for another attempt.
    pub waiting: u64,
    /// For how long the oldest of them has waited, in microseconds.
    pub oldest_wait_us: i64,
    /// Of those, events that wait for another attempt.
    pub retrying: u64,
    /// Events started per second, over the last minute.
    pub started_per_s: f64,
    /// Deliveries per second that it took.
    pub accepted_per_s: f64,
    /// Deliveries per second that it refused, or that did not leave.
    pub refused_per_s: f64,
    /// Deliveries per second of which nobody knows.
    pub unclear_per_s: f64,
}

/// One emitter, at a glance; counters are since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmitterSample {
    /// Up to when everything has been emitted (wall clock), as of its last look.
    pub emitted_until_us: Option<i64>,
    /// Windows that it has opened.
    pub windows: u64,
    /// Scan tasks that it has done.
    pub tasks: u64,
    /// Children that it has read.
    pub children: u64,
    /// Runs that it has handed over.
    pub runs: u64,
    /// Triggers recorded as missed.
    pub missed: u64,
    /// Triggers recorded as paused.
    pub paused: u64,
    /// Rows that it could not read.
    pub corrupt: u64,
    /// Rounds that the store broke off.
    pub failures: u64,
}

impl PolicySample {
    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting == 0 && self.policy != NO_POLICY
    }
}

impl TargetSample {
    /// Greater means that it is seen first.
    fn rank(&self) -> (bool, u64, u64) {
        let is_refusing = self.accepted_per_s == 0.0 && self.refused_per_s + self.unclear_per_s > 0.0;
        (is_refusing, self.waiting, self.in_flight)
    }

    /// Adds what another shard says of the same target.
    pub fn add(&mut self, other: &Self) {
        self.in_flight += other.in_flight;
        self.waiting += other.waiting;
        self.oldest_wait_us = self.oldest_wait_us.max(other.oldest_wait_us);
        self.retrying += other.retrying;
        self.started_per_s += other.started_per_s;
        self.accepted_per_s += other.accepted_per_s;
        self.refused_per_s += other.refused_per_s;
        self.unclear_per_s += other.unclear_per_s;
    }
}

impl HandlerSample {
    /// Keeps as many targets as have series of their own: those that refuse first, then those that most waits for. Returns how
    /// many are left out.
    pub(crate) fn bound_targets(&mut self) -> u64 {
        let all = self.targets.len();
        if all > TARGETS_MAX {
            self.targets.sort_by_key(|target| Reverse(target.rank()));
            self.targets.truncate(TARGETS_MAX);
        }
        self.targets.sort_by(|a, b| (&a.namespace, &a.target).cmp(&(&b.namespace, &b.target)));
        (all - self.targets.len()) as u64
    }

    /// Keeps as many policies as have series of their own: all, or else those with something held or waiting, the
    /// longest wait first. Returns how many are left out.
    pub(crate) fn bound(&mut self) -> u64 {
        let all = self.policies.len();
        if all > POLICIES_MAX {
            self.policies.retain(|policy| !policy.is_idle());
            self.policies.sort_by_key(|policy| (Reverse(policy.oldest_wait_us), Reverse(policy.in_flight)));
            self.policies.truncate(POLICIES_MAX);
        }
        self.policies.sort_by(|a, b| (&a.namespace, &a.policy).cmp(&(&b.namespace, &b.policy)));
        (all - self.policies.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(idle: usize, busy: usize) -> HandlerSample {
        let policy = |at: usize| PolicySample {
            policy: format!("p{at:05}"),
            waiting: u64::from(at >= idle),
            oldest_wait_us: i64::try_from(at).unwrap_or_default(),
            ..PolicySample::default()
        };
        HandlerSample { policies: (0..idle + busy).map(policy).collect(), ..HandlerSample::default() }
    }

    #[test]
    fn up_to_a_thousand_policies_are_all_shown() {
        let mut sample = policies(POLICIES_MAX - 1, 1);
        assert_eq!(sample.bound(), 0);
        assert_eq!(sample.policies.len(), POLICIES_MAX);
    }

    #[test]
    fn of_more_the_idle_ones_are_left_out_and_then_the_shortest_waits() {
        let mut sample = policies(POLICIES_MAX, 3);
        assert_eq!(sample.bound(), POLICIES_MAX as u64);
        assert_eq!(sample.policies.len(), 3);
        let mut sample = policies(0, POLICIES_MAX + 7);
        assert_eq!(sample.bound(), 7);
        assert_eq!(sample.policies.first().map(|policy| policy.policy.as_str()), Some("p00007"));
    }

    #[test]
    fn of_too_many_targets_the_refusing_are_shown_and_then_the_longest_queues() {
        let target = |at: usize| TargetSample {
            target: format!("http://{at:05}"),
            waiting: at as u64,
            refused_per_s: if at == 3 { 1.0 } else { 0.0 },
            ..TargetSample::default()
        };
        let targets = (0..TARGETS_MAX + 9).map(target).collect();
        let mut sample = HandlerSample { targets, ..HandlerSample::default() };
        assert_eq!(sample.bound_targets(), 9);
        let shown: Vec<&str> = sample.targets.iter().take(2).map(|target| target.target.as_str()).collect();
        assert_eq!((sample.targets.len(), shown), (TARGETS_MAX, vec!["http://00003", "http://00010"]));
        assert_eq!(sample.bound_targets(), 0);
    }
}
