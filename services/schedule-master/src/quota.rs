//! Decides how much a namespace may have and do.
//!
//! In: what is configured, and what a call asks for. Out: leave, or RESOURCE_EXHAUSTED that names the quota, the value
//! and what is allowed. Schedules are counted when some are made, waiting events when a user asks for runs by hand, both only
//! where the quota may be near, and writes by a token bucket of this process. Invariants: without a quota nothing is counted;
//! releases, reads, pauses and
//! resumes are never refused; what falls due by a schedule's own timing is always emitted: no quota drops an
//! event.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_metrics::Bound;
use tollgate_service::room::Room;
use tollgate_service::status::status;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::ScheduleMaster;

/// How many seconds' worth of writes may come at once.
const BURST_S: f64 = 10.0;
/// Namespaces after which those with full buckets are forgotten.
const SWEEP_AT: usize = 1024;

/// How long a count of the store's is taken as known, in microseconds of the monotonic clock. Other processes make more
/// meanwhile, which is why the last tenth is always counted anew.
const KNOWN_US: i64 = 60_000_000;

/// What one namespace may have. 0 means as much as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Schedules.
    pub schedules: u64,
    /// Events of unfinished runs that have not started.
    pub waiting_events: u64,
    /// Alerts.
    pub alerts: u64,
    /// Writes per second, with a burst of ten seconds' worth.
    pub writes: u32,
}

/// What one namespace may have where it differs from the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaOverride {
    /// As [`Quota::schedules`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedules: Option<u64>,
    /// As [`Quota::waiting_events`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_events: Option<u64>,
    /// As [`Quota::alerts`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alerts: Option<u64>,
    /// As [`Quota::writes`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<u32>,
}

/// The quotas of all namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Of every namespace that is not named.
    pub each: Quota,
    /// By namespace.
    pub namespaces: BTreeMap<String, QuotaOverride>,
}

impl Quotas {
    /// What a namespace may have.
    pub fn of(&self, namespace: &str) -> Quota {
        let own = self.namespaces.get(namespace).copied().unwrap_or_default();
        Quota {
            schedules: own.schedules.unwrap_or(self.each.schedules),
            waiting_events: own.waiting_events.unwrap_or(self.each.waiting_events),
            alerts: own.alerts.unwrap_or(self.each.alerts),
            writes: own.writes.unwrap_or(self.each.writes),
        }
    }
}

/// How much each namespace has written of late.
#[derive(Debug, Default)]
pub(crate) struct Writes(Mutex<HashMap<String, Bucket>>);

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Writes that may come at once; below zero what was let in on credit.
    level: f64,
    /// When it was so (monotonic).
    mono_us: i64,
}

impl Bucket {
    fn at(self, rate: f64, mono_us: i64) -> Self {
        let passed_s =
            Duration::from_micros(u64::try_from(mono_us - self.mono_us).unwrap_or(0)).as_secs_f64();
        Self { level: (self.level + rate * passed_s).min(rate * BURST_S), mono_us }
    }
}

impl Writes {
    /// Takes `count` writes, or says when one may be tried again. A bulk of them is let in while one write is left, and
    /// is paid for by those that come after it: it could never be smaller.
    fn take(&self, namespace: &str, count: u32, per_s: u32, mono_us: i64) -> Result<(), Duration> {
        let rate = f64::from(per_s);
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= SWEEP_AT {
            buckets.retain(|_, bucket| bucket.at(rate, mono_us).level < rate * BURST_S);
        }
        let full = Bucket { level: rate * BURST_S, mono_us };
        let bucket = buckets.entry(namespace.to_owned()).or_insert(full);
        *bucket = bucket.at(rate, mono_us);
        if bucket.level < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.level) / rate));
        }
        bucket.level -= f64::from(count);
        Ok(())
    }
}

/// What is counted in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Schedules,
    Events,
}

/// How much each namespace had when it was last counted, with what was let in since. To count is work for the store, which
/// grows with what there is: far below a quota it need not be done for each call. What goes meanwhile is not noticed, so
/// that it is never less than there is of this process's.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<HashMap<(What, String), Counted>>);

#[derive(Clone, Copy, Debug)]
struct Counted {
    count: u64,
    mono_us: i64,
}

impl Tally {
    /// Whether `new` more are surely within nine tenths of what is allowed; they are noted then.
    fn is_plenty(&self, what: What, namespace: &str, new: u64, allowed: u64, mono_us: i64) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(counted) = known.get_mut(&(what, namespace.to_owned())) else { return false };
        let is_known = mono_us - counted.mono_us < KNOWN_US;
        let plenty = is_known && counted.count.saturating_add(new) <= allowed - allowed.div_ceil(10);
        if plenty {
            counted.count += new;
        }
        plenty
    }

    fn note(&self, what: What, namespace: &str, count: u64, mono_us: i64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= SWEEP_AT {
            known.retain(|_, counted| mono_us - counted.mono_us < KNOWN_US);
        }
        known.insert((what, namespace.to_owned()), Counted { count, mono_us });
    }
}

impl ScheduleMaster {
    /// Waits until it is a namespace's turn at the store: it has few at once, so that a hundred callers of one stand before
    /// another's no longer than one does. To be held for one transaction.
    pub(crate) async fn turn(&self, namespace: &str) -> Room {
        self.inner.turns.take(namespace.to_owned(), 1).await
    }

    /// Takes writes from what a namespace may do in a second, unless too much of what it changed waits to be told.
    pub(crate) fn admit_writes(&self, namespace: &str, count: usize) -> Result<(), Status> {
        self.admit_notices(namespace)?;
        let per_s = self.options().quotas.of(namespace).writes;
        if per_s == 0 || count == 0 {
            return Ok(());
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let now = self.inner.clock.now().mono_us;
        self.inner.writes.take(namespace, count, per_s, now).map_err(|wait| {
            let what = format!(
                "more writes than the quota `writes` lets in; allowed are {per_s} a second; try again in {:.1} s",
                wait.as_secs_f64().max(0.1)
            );
            self.exhausted(namespace, &what, Some(wait))
        })
    }

    /// Checks that a namespace may have `new` more schedules. The answer is to be held until they are committed: the next that
    /// counts them waits for it. Another process may pass at the same moment.
    pub(crate) async fn admit_schedules(&self, new: &BTreeMap<&str, usize>) -> Result<Vec<Room>, Status> {
        let bounded: Vec<(&str, u64, u64)> = new
            .iter()
            .map(|(namespace, new)| (*namespace, *new as u64, self.options().quotas.of(namespace).schedules))
            .filter(|(_, new, allowed)| *new > 0 && *allowed > 0)
            .collect();
        let mut held = Vec::new();
        for (namespace, new, allowed) in bounded {
            // In the order of their names: a caller that waits for one has none that comes after it.
            held.push(self.admit_schedules_of(namespace, new, allowed).await?);
        }
        Ok(held)
    }

    async fn admit_schedules_of(&self, namespace: &str, new: u64, allowed: u64) -> Result<Room, Status> {
        let now_us = self.inner.clock.now().mono_us;
        let beside = self.inner.making.take(namespace.to_owned(), 1).await;
        if self.inner.tally.is_plenty(What::Schedules, namespace, new, allowed, now_us) {
            return Ok(beside);
        }
        drop(beside);
        let mut alone = self.inner.making.take(namespace.to_owned(), usize::MAX).await;
        // One more than are allowed: the quota may have been lowered.
        let has = self.store().schedules_count(namespace, allowed + 1).await.map_err(status)?;
        if has + new > allowed {
            let has = if has > allowed { format!("more than {allowed}") } else { has.to_string() };
            let what = format!("{has} schedules and {new} more; the quota `schedules` allows {allowed}");
            return Err(self.exhausted(namespace, &what, None));
        }
        self.inner.tally.note(What::Schedules, namespace, has + new, now_us);
        // They are in the tally now, by which others may pass.
        alone.shrink();
        Ok(alone)
    }

    /// Checks that a namespace may have `new` more alerts. They are few, so each time they are counted.
    pub(crate) async fn admit_alerts(&self, namespace: &str, new: usize) -> Result<(), Status> {
        let allowed = self.options().quotas.of(namespace).alerts;
        if allowed == 0 || new == 0 {
            return Ok(());
        }
        let has = self.store().alerts_count(namespace, allowed + 1).await.map_err(status)?;
        if has + new as u64 > allowed {
            let what = format!("{has} alerts and {new} more; the quota `alerts` allows {allowed}");
            return Err(self.exhausted(namespace, &what, None));
        }
        Ok(())
    }

    /// Checks that `new` more events of a namespace may wait.
    pub(crate) async fn admit_events(&self, namespace: &str, new: u64) -> Result<(), Status> {
        let allowed = self.options().quotas.of(namespace).waiting_events;
        if allowed == 0 || new == 0 {
            return Ok(());
        }
        let now_us = self.inner.clock.now().mono_us;
        if self.inner.tally.is_plenty(What::Events, namespace, new, allowed, now_us) {
            return Ok(());
        }
        let waiting = self.store().waiting_events(namespace).await.map_err(status)?;
        if waiting.saturating_add(new) > allowed {
            let what = format!(
                "{waiting} events that have not started and {new} more; the quota `waiting_events` allows {allowed}"
            );
            return Err(self.exhausted(namespace, &what, None));
        }
        self.inner.tally.note(What::Events, namespace, waiting + new, now_us);
        Ok(())
    }

    fn exhausted(&self, namespace: &str, what: &str, wait: Option<Duration>) -> Status {
        self.options().metrics.refused(Bound::Quota);
        exhausted(namespace, what, wait)
    }
}

fn exhausted(namespace: &str, what: &str, wait: Option<Duration>) -> Status {
    let subject = format!("namespaces/{namespace}");
    let message = format!("{subject}: {what}");
    let mut details = ErrorDetails::new();
    details.add_quota_failure_violation(subject, what);
    let mut metadata = MetadataMap::new();
    if let Some(wait) = wait {
        details.set_retry_info(Some(wait));
        metadata.insert("retry-after", (wait.as_secs_f64().ceil().max(1.0) as u64).into());
    }
    Status::with_error_details_and_metadata(Code::ResourceExhausted, message, details, metadata)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn an_override_changes_what_it_names() {
        let each = Quota { schedules: 5, waiting_events: 6, alerts: 8, writes: 7 };
        let own = serde_json::from_str(r#"{"a": {"schedules": 0, "writes": 9}}"#).unwrap();
        let quotas = Quotas { each, namespaces: own };
        assert_eq!(quotas.of("a"), Quota { schedules: 0, waiting_events: 6, alerts: 8, writes: 9 });
        assert_eq!(quotas.of("b"), each);
        assert!(serde_json::from_str::<QuotaOverride>(r#"{"events": 1}"#).is_err());
    }

    #[test]
    fn writes_come_at_their_rate_after_a_burst() {
        let (writes, s) = (Writes::default(), 1_000_000);
        for _ in 0..20 {
            assert_eq!(writes.take("a", 1, 2, 0), Ok(()));
        }
        assert_eq!(writes.take("a", 1, 2, 0), Err(Duration::from_millis(500)));
        assert_eq!(writes.take("b", 1, 2, 0), Ok(()), "each namespace has its own");
        assert_eq!(writes.take("a", 1, 2, s / 2), Ok(()));
        assert!(writes.take("a", 1, 2, s / 2).is_err());
        // Ten seconds' worth, however long it was quiet.
        assert_eq!(writes.take("a", 20, 2, 1000 * s), Ok(()));
        assert!(writes.take("a", 1, 2, 1000 * s).is_err());
    }

    #[test]
    fn what_is_far_below_a_quota_is_not_counted_each_time() {
        let (tally, what) = (Tally::default(), What::Schedules);
        assert!(!tally.is_plenty(what, "a", 1, 100, 0), "nobody has counted");
        tally.note(what, "a", 80, 0);
        assert!(!tally.is_plenty(What::Events, "a", 1, 100, 0));
        assert!(!tally.is_plenty(what, "b", 1, 100, 0));
        assert!(tally.is_plenty(what, "a", 7, 100, KNOWN_US - 1));
        assert!(tally.is_plenty(what, "a", 3, 100, 0), "90 of 100");
        assert!(!tally.is_plenty(what, "a", 1, 100, 0), "the last tenth is counted");
        assert!(tally.is_plenty(what, "a", 1, 1_000, 0));
        assert!(!tally.is_plenty(what, "a", 1, 1_000, KNOWN_US), "that was long ago");
        tally.note(what, "a", 0, 0);
        assert!(!tally.is_plenty(what, "a", 1, 1, 0), "of one, the tenth is one");
    }

    #[test]
    fn a_bulk_is_paid_for_afterwards() {
        let (writes, s) = (Writes::default(), 1_000_000);
        assert_eq!(writes.take("a", 1_000, 10, 0), Ok(()));
        assert_eq!(writes.take("a", 1, 10, 0), Err(Duration::from_secs_f64(90.1)));
        assert!(writes.take("a", 1, 10, 90 * s).is_err());
        assert_eq!(writes.take("a", 1, 10, 91 * s), Ok(()));
    }
}
