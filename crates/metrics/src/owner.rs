//! What the owner of a queue shard tells: what it hears, its commits, and the deliveries that they allow.
//!
//! In: inputs that free tokens, as they are heard; each commit; each delivery that a commit allows, before the next commit
//! begins. Out: the watches over commits and deliveries, which know by then how long the token that a delivery takes has
//! been on its way: from the input that freed it, through the commit. Tokens are handed on first in, first out within a
//! policy. Invariant: memory grows neither with events nor with runs.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tollgate_clock::Clock;
use tollgate_core::handle::change::Changes;
use tollgate_core::model::{Delivery, RunId, Sent};
use uuid::Uuid;

use crate::Metrics;
use crate::watch::{CommitWatch, DeliveryWatch};

/// The most runs, and the most policies, that are remembered; one that is forgotten is learned again by its next delivery.
const KNOWN_MAX: usize = 1_024;

/// One for each owner.
#[derive(Debug)]
pub struct OwnerWatch {
    metrics: Metrics,
    clock: Clock,
    last: Arc<Interval>,
    tokens: Tokens,
}

/// When the last commit began and ended (wall clock).
#[derive(Debug, Default)]
pub(crate) struct Interval {
    began_us: AtomicI64,
    ended_us: AtomicI64,
}

impl Interval {
    pub(crate) fn set(&self, began_us: i64, ended_us: i64) {
        self.began_us.store(began_us, Ordering::Relaxed);
        self.ended_us.store(ended_us, Ordering::Release);
    }

    fn get(&self) -> (i64, i64) {
        let ended_us = self.ended_us.load(Ordering::Acquire);
        (self.began_us.load(Ordering::Relaxed), ended_us)
    }
}

impl OwnerWatch {
    pub(crate) fn new(metrics: Metrics, clock: Clock) -> Self {
        Self { metrics, clock, last: Arc::default(), tokens: Tokens::default() }
    }

    /// A consumer's release has been heard.
    pub fn released(&mut self, run: RunId) {
        self.tokens.freed(run, self.clock.mono_us());
    }

    /// A target's answer has been heard. It frees a token where the answer releases, or says no.
    pub fn answered(&mut self, run: RunId, sent: &Sent) {
        let frees = match sent {
            Sent::Accepted => !self.tokens.waits_for_release(run),
            Sent::Refused { .. } | Sent::RefusedAlone { .. } | Sent::NotSent { .. } => true,
            Sent::Unclear { .. } => false,
        };
        if frees {
            self.released(run);
        }
    }

    /// A commit begins, of all that has been heard.
    pub fn commit(&mut self, changes: &Changes) -> CommitWatch {
        self.tokens.commit();
        CommitWatch::new(self.metrics.clone(), self.clock.clone(), changes, self.last.clone())
    }

    /// The commit is durable, and allows this delivery.
    pub fn delivery(&mut self, run: RunId, delivery: &Delivery) -> DeliveryWatch {
        let freed_us = self.tokens.taken(run, delivery);
        DeliveryWatch::new(
            self.metrics.clone(),
            self.clock.clone(),
            (run, delivery),
            self.last.get(),
            freed_us,
        )
    }
}

/// When inputs were heard that freed tokens, by policy (monotonic clock).
#[derive(Debug, Default)]
struct Tokens {
    /// A run's policy, and whether its consumers release; learned from deliveries.
    runs: HashMap<RunId, (Uuid, bool)>,
    fresh: BTreeMap<Uuid, VecDeque<i64>>,
    /// Those that the commit under way records.
    committing: BTreeMap<Uuid, VecDeque<i64>>,
}

impl Tokens {
    fn waits_for_release(&self, run: RunId) -> bool {
        self.runs.get(&run).is_some_and(|(_, explicit)| *explicit)
    }

    fn freed(&mut self, run: RunId, now_us: i64) {
        // Without a policy, or with one that is not known yet, no event waits for this one.
        if let Some((policy, _)) = self.runs.get(&run) {
            self.fresh.entry(*policy).or_default().push_back(now_us);
        }
    }

    fn commit(&mut self) {
        if self.committing.len() > KNOWN_MAX {
            self.committing.clear();
        }
        // Nobody waited for those that are left.
        self.committing.values_mut().for_each(VecDeque::clear);
        std::mem::swap(&mut self.fresh, &mut self.committing);
    }

    /// When the token was freed that a delivery takes, where one was freed for this commit.
    fn taken(&mut self, run: RunId, delivery: &Delivery) -> Option<i64> {
        let policy = delivery.spec.policy_uid?;
        if self.runs.len() >= KNOWN_MAX && !self.runs.contains_key(&run) {
            self.runs.clear();
        }
        self.runs.insert(run, (policy, delivery.explicit_release));
        self.committing.get_mut(&policy)?.pop_front()
    }
}
