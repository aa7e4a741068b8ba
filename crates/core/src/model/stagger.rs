//! How the events of a run are set off from its launch time: all of them by a delay that is the schedule's own, and
//! from each other by their places in the spread.
//!
//! Invariant: both depend on the schedule's uid and its settings alone, so that whoever works them out (previews,
//! forecasts, the owner of a shard) comes to the same moment. Not here: launch times themselves ([`crate::plan`]).

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::SECOND_US;

const MS_US: i64 = 1_000;

/// The settings that decide it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stagger {
    /// The schedule starts at a moment of its own within this long after the launch time.
    pub start_within_s: Option<i64>,
    /// Events are spaced evenly over this long.
    pub spread_s: Option<i64>,
    /// How many events a run has.
    pub events: u32,
}

impl Stagger {
    /// How long after the launch time the first event of each run falls due: whole milliseconds, stable for this schedule.
    /// A single event has no place among others in the spread, so the schedule's own place in it counts.
    pub fn delay_us(self, uid: Uuid) -> i64 {
        let alone_s = self.spread_s.filter(|_| self.events == 1);
        stable_us(uid, b"start", self.start_within_s) + stable_us(uid, b"spread", alone_s)
    }

    /// How long after the first event this one falls due.
    pub fn place_us(self, index: u32) -> i64 {
        let Some(spread_s) = self.spread_s else { return 0 };
        let place = i128::from(index) * i128::from(spread_s) * i128::from(SECOND_US);
        #[expect(clippy::cast_possible_truncation, reason = "less than the spread")]
        let place = (place / i128::from(self.events.max(1))) as i64;
        place
    }
}

/// A moment in `[0, within)` in whole milliseconds, chosen by the uid alone: with a longer time it moves in proportion.
fn stable_us(uid: Uuid, what: &[u8], within_s: Option<i64>) -> i64 {
    let Some(within_s) = within_s else { return 0 };
    let digest = Sha256::new().chain_update(what).chain_update(uid.as_bytes()).finalize();
    let hash = digest.iter().take(8).fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
    let within_ms = i128::from(within_s.max(0)) * i128::from(SECOND_US / MS_US);
    i64::try_from((i128::from(hash) * within_ms) >> 64).unwrap_or_default() * MS_US
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTES_10_S: i64 = 600;

    fn uids(first: u128) -> impl Iterator<Item = Uuid> {
        // As far apart as random ones, and the same each time.
        (first..first + 10_000).map(|n| {
            let digest = Sha256::digest(n.to_be_bytes());
            Uuid::from_slice(&digest[..16]).unwrap_or_default()
        })
    }

    #[test]
    fn ten_thousand_schedules_start_evenly_within_ten_minutes() {
        let stagger = Stagger { start_within_s: Some(MINUTES_10_S), events: 1, ..Stagger::default() };
        for first in [0, 1 << 20, 1 << 40] {
            let mut seconds = [0_u32; MINUTES_10_S as usize];
            for uid in uids(first) {
                let delay_us = stagger.delay_us(uid);
                assert!((0..MINUTES_10_S * SECOND_US).contains(&delay_us), "{delay_us}");
                seconds[usize::try_from(delay_us / SECOND_US).unwrap_or_default()] += 1;
            }
            let mean = 10_000.0 / seconds.len() as f64;
            let fullest = f64::from(*seconds.iter().max().unwrap_or(&0));
            assert!(fullest <= 2.0 * mean, "{fullest} in the fullest second, {mean:.1} on average");
        }
    }

    #[test]
    fn a_delay_is_stable_and_grows_with_the_time_allowed() {
        let of = |within_s| Stagger { start_within_s: within_s, events: 7, spread_s: Some(60) };
        for uid in uids(7).take(100) {
            let (one, ten) = (of(Some(60)).delay_us(uid), of(Some(600)).delay_us(uid));
            assert_eq!(one, of(Some(60)).delay_us(uid));
            assert!((ten - 10 * one).abs() <= 10 * MS_US, "{one} {ten}");
            assert_eq!(of(None).delay_us(uid), 0, "several events have their places in the spread");
        }
    }

    #[test]
    fn a_single_event_has_a_place_of_its_own_in_the_spread() {
        let stagger = Stagger { spread_s: Some(3_600), events: 1, start_within_s: None };
        let delays: std::collections::BTreeSet<i64> =
            uids(9).take(200).map(|uid| stagger.delay_us(uid)).collect();
        assert!(delays.len() > 190, "they differ");
        assert!(delays.iter().all(|us| (0..3_600 * SECOND_US).contains(us)));
        let both = Stagger { start_within_s: Some(3_600), ..stagger };
        let uid = Uuid::from_u128(3);
        let start = Stagger { spread_s: None, ..both };
        assert_eq!(both.delay_us(uid), stagger.delay_us(uid) + start.delay_us(uid));
        assert_ne!(stagger.delay_us(uid), start.delay_us(uid), "neither follows the other");
    }

    #[test]
    fn several_events_are_spaced_evenly() {
        let stagger = Stagger { spread_s: Some(4), events: 8, ..Stagger::default() };
        assert_eq!((0..8).map(|index| stagger.place_us(index)).max(), Some(3_500_000));
        assert_eq!(stagger.place_us(1), 500_000);
        assert_eq!(Stagger { spread_s: None, ..stagger }.place_us(5), 0);
    }
}
