//! Decides when the clocks of a zone change next.

use chrono::{DateTime, Offset as _};
use chrono_tz::Tz;

const DAY_S: i64 = 86_400;
/// A zone that changes its clocks does so within a year.
const DAYS_MAX: i64 = 400;

/// A change of a zone's offset from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The first moment after it, in seconds since the epoch.
    pub(crate) at_s: i64,
    /// How far the clocks go forward, in seconds; below zero where they go back.
    pub(crate) by_s: i32,
}

/// The next change after `from_s`; none within 400 days, and none in a zone that is not known.
pub(crate) fn next_change(zone: &str, from_s: i64) -> Option<Change> {
    let zone: Tz = zone.parse().ok()?;
    let offset = |at_s: i64| {
        let at = DateTime::from_timestamp(at_s, 0)?;
        Some(at.with_timezone(&zone).offset().fix().local_minus_utc())
    };
    let before = offset(from_s)?;
    let day = (1..=DAYS_MAX).find(|day| offset(from_s + day * DAY_S).is_some_and(|o| o != before))?;
    let (mut low, mut high) = (from_s + (day - 1) * DAY_S, from_s + day * DAY_S);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if offset(middle)? == before { low = middle } else { high = middle }
    }
    Some(Change { at_s: high, by_s: offset(high)? - before })
}

/// A zone as people say it: "in Berlin", "UTC".
pub(crate) fn spoken(zone: &str) -> String {
    match zone {
        "" | "UTC" | "Etc/UTC" | "Etc/UCT" | "Zulu" => "UTC".to_owned(),
        _ if zone.starts_with("Etc/") || !zone.contains('/') => format!("in the zone {zone}"),
        _ => format!("in {}", zone.rsplit('/').next().unwrap_or(zone).replace('_', " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_change_twice_a_year() {
        // 2026-11-21: the next one in Berlin is 2027-03-28 01:00 UTC, an hour forward.
        let from_s = 1_795_219_200;
        let spring = next_change("Europe/Berlin", from_s);
        assert_eq!(spring, Some(Change { at_s: 1_806_195_600, by_s: 3_600 }));
        let autumn = next_change("Europe/Berlin", 1_806_195_600);
        assert_eq!(autumn.map(|change| change.by_s), Some(-3_600));
        assert_eq!(next_change("UTC", from_s), None);
        assert_eq!(next_change("Asia/Kolkata", from_s), None);
        assert_eq!(next_change("nowhere", from_s), None);
    }

    #[test]
    fn zones_are_spoken() {
        assert_eq!(spoken("Europe/Berlin"), "in Berlin");
        assert_eq!(spoken("America/New_York"), "in New York");
        assert_eq!(spoken("America/Argentina/Buenos_Aires"), "in Buenos Aires");
        assert_eq!(spoken("UTC"), "UTC");
        assert_eq!(spoken("Etc/GMT+3"), "in the zone Etc/GMT+3");
    }
}
