//! What keeps an event from starting, read from memory.
//!
//! In: a run, as what its event counts. Out: reasons, the most lasting first, and of each policy what it and what those above
//! it let through. Not here: where an event stands, and who holds what it waits for ([`super::explain`]).

use super::bucket::Bucket;
use super::explain::Reason;
use super::keys::{KeyHolds, KeyOf, Load};
use super::live::LiveRun;
use super::rounds::load_of;
use super::shard::Shard;
use crate::model::Now;

impl Shard {
    /// What holds back an event of a run.
    pub(super) fn reasons(&self, run: &LiveRun, of: &Load, now: Now) -> Vec<Reason> {
        let mut reasons = Vec::new();
        reasons.extend(self.pause.pause.clone().map(Reason::AllPaused));
        let schedule = self.schedules.get(&run.row.schedule_uid);
        if let Some(schedule) = schedule {
            let pause = schedule.row.as_ref().and_then(|r| r.pause.clone());
            reasons.extend(pause.map(Reason::SchedulePaused));
            let wait_us = schedule.blocked_us.map(|b| (b - now.mono_us).max(0));
            reasons.extend(wait_us.map(|wait_us| Reason::TargetAskedToWait { wait_us }));
            if schedule.buffered == Some(run.row.id) {
                let until_us = schedule.rest_until_us();
                reasons.push(match (schedule.active.first(), schedule.chain()) {
                    (Some(behind), _) => Reason::Buffered { behind },
                    (None, Some(first)) => Reason::BehindChain { first },
                    (None, None) => Reason::Resting { until_us },
                });
            }
        }
        reasons.extend(self.refusal(run, now).map(Reason::TargetRefuses));
        let retrying = run.counts.coming_again();
        if retrying >= self.options.retrying_max {
            reasons.push(Reason::RunRetrying { retrying });
        }
        if let Some(bucket) = self.ledger.buckets.get(&run.row.policy_uid) {
            reasons.extend(lasting(bucket, run, of));
            let places = bucket.counts.places();
            if !self.ledger.is_bounded(run.row.policy_uid)
                && places.holds(&run.sharer, self.options.sends_max).is_some()
            {
                reasons.push(Reason::SendsFull { sending: places.taken() });
            }
            if let (Some(pull), Some(pool)) =
                (run.spec.target.pull(), run.pool().filter(|_| self.lacks_room(run)))
            {
                let (queue, requires) = (pull.queue().to_owned(), pull.requires().to_vec());
                reasons.push(Reason::NoRoom { queue, requires, pool });
            }
            reasons.extend(key_holds((run, of), bucket, now).or_else(|| self.kept_of_key(run, of)));
            reasons.extend(rate_holds(bucket, now));
        }
        for (_, above) in self.ledger.above(run.row.policy_uid) {
            let policy = above.policy.as_ref().map(|policy| policy.id.clone()).unwrap_or_default();
            let holds = lasting(above, run, of).into_iter().chain(rate_holds(above, now));
            reasons
                .extend(holds.map(|holds| Reason::Above { policy: policy.clone(), holds: Box::new(holds) }));
        }
        if reasons.is_empty() {
            reasons.push(Reason::Turn);
        }
        reasons
    }

    /// Whether what is left to the key of an event is kept for one before it.
    fn kept_of_key(&self, run: &LiveRun, of: &Load) -> Option<Reason> {
        let work = self.queues.get(&run.row.policy_uid)?.kept_of(run.lane(&of.key).circle)?;
        let first = self.ledger.runs.get(&work.run())?;
        let (_, units) = load_of(first, &self.ledger.tokens, work);
        let is_other = first.row.id != run.row.id || units > of.units;
        is_other.then_some(Reason::TokensKept { run: first.row.id, units })
    }
}

/// What holds back an event that would start under a policy, until somebody does something.
fn lasting(bucket: &Bucket, run: &LiveRun, of: &Load) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if bucket.unknown || bucket.branch.as_ref().is_some_and(|branch| branch.is_tangled) {
        reasons.push(Reason::PolicyUnknown);
    }
    let pause = bucket.policy.as_ref().and_then(|policy| policy.pause.clone());
    reasons.extend(pause.map(Reason::PolicyPaused));
    let limit = bucket.policy.as_ref().and_then(|policy| policy.limits.max_in_flight);
    let held = bucket.in_flight();
    let units = of.units;
    match limit {
        Some(limit) if units > limit.max(1) => reasons.push(Reason::AboveLimit { units, limit, key: None }),
        Some(limit) if held.saturating_add(units) > limit => {
            reasons.push(Reason::PolicyFull { held, limit, units });
        }
        _ => {
            // There is enough for it, and not for one before it.
            let kept = bucket.kept.filter(|kept| kept.run != run.row.id || kept.units > units);
            reasons.extend(kept.map(|kept| Reason::TokensKept { run: kept.run, units: kept.units }));
        }
    }
    reasons
}

/// Whether the rate of a policy lets nothing through for now.
fn rate_holds(bucket: &Bucket, now: Now) -> Option<Reason> {
    let at_us = bucket.next_permit_us(now)?;
    Some(Reason::RateLimited { wait_us: at_us - now.mono_us })
}

/// What holds back the key of an event.
fn key_holds((run, of): (&LiveRun, &Load), bucket: &Bucket, now: Now) -> Option<Reason> {
    if bucket.is_unread() || of.key == KeyOf::Unread && run.sorted.is_some() {
        return Some(Reason::KeysUnread);
    }
    let (key, sharer) = (run.key(&of.key).to_owned(), run.sharer.with(&of.key));
    Some(match bucket.key_holds(&key, &sharer, of.units, now)? {
        KeyHolds::Paused => {
            let reason = bucket.rules().and_then(|rules| rules.pause_of(&key)).unwrap_or_default().to_owned();
            Reason::KeyPaused { key, reason }
        }
        KeyHolds::Full { limit, .. } => {
            Reason::KeyFull { key, held: bucket.counts.held_of(sharer.key()), limit, units: of.units }
        }
        KeyHolds::Above { limit } => Reason::AboveLimit { units: of.units, limit, key: Some(key) },
        KeyHolds::Rate { at_us } => Reason::KeyRateLimited { key, wait_us: at_us - now.mono_us },
    })
}
