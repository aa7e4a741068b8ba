//! Decides what deliveries say about speed and promises.
//!
//! In: the sink's records of one lane. Out: rates, lateness, gaps, and what was broken. Times are microseconds.
//! All is seen from the consumer: an event is in flight from its first arrival until it is answered or released, which
//! lies within the time for which Tollgate holds its token.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::sink::record::Record;

/// Some quantiles, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Quantiles {
    /// Of microseconds in any order.
    pub(crate) fn of(mut us: Vec<i64>) -> Option<Self> {
        us.sort_unstable();
        let last = us.len().checked_sub(1)?;
        let at = |per_mille: usize| us[(last * per_mille + 500) / 1_000] as f64 / 1_000.0;
        Some(Self { p50: at(500), p99: at(990), p999: at(999), max: at(1_000) })
    }
}

/// What the records of one lane say.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figures {
    /// Distinct events that arrived.
    pub(crate) events: u64,
    /// Those that were expected and did not come.
    pub(crate) lost: u64,
    /// Deliveries of an event that had come before. The sink refuses nothing, so none has a cause.
    pub(crate) duplicates: u64,
    /// Deliveries before their launch time.
    pub(crate) early: u64,
    /// Events of one policy that were in flight at once, at most.
    pub(crate) in_flight_max: u32,
    /// From the first launch time to the end of the work on the last event.
    pub(crate) seconds: f64,
    pub(crate) events_per_s: f64,
    /// From the launch time to the first arrival.
    pub(crate) late_ms: Option<Quantiles>,
    /// From the end of the work on an event to the arrival that takes its place, while all m places are taken.
    pub(crate) gap_ms: Option<Quantiles>,
}

/// An event.
#[derive(Clone, Copy)]
struct Stay {
    launch_us: i64,
    from_us: i64,
    until_us: i64,
    group: u32,
}

impl Figures {
    /// Judges a lane. `start_us` is the first launch time, where it is known better than from the records.
    pub(crate) fn of(records: &[Record], expected: u64, limit: Option<u32>, start_us: Option<i64>) -> Self {
        let mut stays: HashMap<u64, Stay> = HashMap::with_capacity(records.len());
        for record in records {
            let until_us = if record.done_us == 0 { i64::MAX } else { record.done_us };
            let stay = stays.entry(record.id).or_insert(Stay {
                launch_us: record.launch_us,
                from_us: record.arrival_us,
                until_us,
                group: record.group,
            });
            stay.from_us = stay.from_us.min(record.arrival_us);
            stay.until_us = stay.until_us.max(until_us);
        }
        let mut groups: BTreeMap<u32, Vec<Stay>> = BTreeMap::new();
        for stay in stays.values() {
            groups.entry(stay.group).or_default().push(*stay);
        }
        let events = stays.len() as u64;
        let launched_us = start_us.or_else(|| stays.values().map(|stay| stay.launch_us).min()).unwrap_or(0);
        let ended_us = records.iter().map(|record| record.done_us.max(record.arrival_us)).max().unwrap_or(0);
        let seconds = (ended_us - launched_us).max(1) as f64 / 1e6;
        Self {
            events,
            lost: expected.saturating_sub(events),
            duplicates: records.len() as u64 - events,
            early: records.iter().filter(|record| record.arrival_us < record.launch_us).count() as u64,
            in_flight_max: groups.values().map(|stays| in_flight_max(stays)).max().unwrap_or(0),
            seconds,
            events_per_s: events as f64 / seconds,
            late_ms: Quantiles::of(stays.values().map(|stay| stay.from_us - stay.launch_us).collect()),
            gap_ms: limit.and_then(|limit| {
                Quantiles::of(groups.values().flat_map(|stays| gaps(stays, limit as usize)).collect())
            }),
        }
    }

    /// What was promised and not kept, in words.
    pub(crate) fn broken(&self, limit: Option<u32>) -> Vec<String> {
        let mut broken = Vec::new();
        let mut say = |count: u64, what: &str| {
            if count > 0 {
                broken.push(format!("{count} {what}"));
            }
        };
        say(self.lost, "events lost");
        say(self.duplicates, "duplicates without a cause");
        say(self.early, "deliveries before their launch time");
        if let Some(limit) = limit.filter(|limit| self.in_flight_max > *limit) {
            broken.push(format!("{} events in flight under a limit of {limit}", self.in_flight_max));
        }
        broken
    }
}

fn in_flight_max(stays: &[Stay]) -> u32 {
    // At the same microsecond what ends is counted before what begins: no false alarm.
    let mut steps: Vec<(i64, i32)> =
        stays.iter().flat_map(|stay| [(stay.from_us, 1), (stay.until_us, -1)]).collect();
    steps.sort_unstable();
    let (mut now, mut most) = (0_i32, 0_i32);
    for (_, step) in steps {
        now += step;
        most = most.max(now);
    }
    u32::try_from(most).unwrap_or(0)
}

/// Tokens are alike: the k-th that comes back is the one that the arrival after the first m + k takes.
fn gaps(stays: &[Stay], limit: usize) -> Vec<i64> {
    let mut arrivals: Vec<i64> = stays.iter().map(|stay| stay.from_us).collect();
    let mut ends: Vec<i64> = stays.iter().map(|stay| stay.until_us).filter(|end| *end < i64::MAX).collect();
    arrivals.sort_unstable();
    ends.sort_unstable();
    arrivals.iter().skip(limit).zip(ends).map(|(arrival, end)| (arrival - end).max(0)).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn record(id: u64, arrival_us: i64, done_us: i64) -> Record {
        Record { id, launch_us: 1_000, arrival_us, done_us, ..Record::default() }
    }

    #[test]
    fn a_clean_run_breaks_nothing() {
        let records = [record(1, 1_000, 2_000), record(2, 1_100, 2_100), record(3, 2_300, 3_000)];
        let figures = Figures::of(&records, 3, Some(2), None);
        assert_eq!((figures.events, figures.in_flight_max), (3, 2));
        assert_eq!(figures.broken(Some(2)), Vec::<String>::new());
        assert_eq!(figures.gap_ms.unwrap().max, 0.3);
        assert_eq!(figures.late_ms.unwrap().max, 1.3);
        assert_eq!(figures.seconds, 0.002);
    }

    #[test]
    fn every_broken_promise_is_seen() {
        let lost = Figures::of(&[record(1, 1_000, 2_000)], 2, None, None);
        assert_eq!(lost.broken(None), ["1 events lost"]);
        let twice = Figures::of(&[record(1, 1_000, 2_000), record(1, 2_500, 2_600)], 1, None, None);
        assert_eq!(twice.broken(None), ["1 duplicates without a cause"]);
        let early = Figures::of(&[record(1, 999, 2_000)], 1, None, None);
        assert_eq!(early.broken(None), ["1 deliveries before their launch time"]);
        let above = Figures::of(&[record(1, 1_000, 0), record(2, 9_000, 9_100)], 2, Some(1), None);
        assert_eq!(above.broken(Some(1)), ["2 events in flight under a limit of 1"]);
        let next = Figures::of(&[record(1, 1_000, 2_000), record(2, 2_000, 2_100)], 2, Some(1), None);
        assert_eq!(next.broken(Some(1)), Vec::<String>::new());
    }

    #[test]
    fn limits_are_counted_by_group() {
        let other = Record { group: 1, ..record(2, 1_100, 2_100) };
        assert_eq!(Figures::of(&[record(1, 1_000, 2_000), other], 2, Some(1), None).in_flight_max, 1);
    }
}
