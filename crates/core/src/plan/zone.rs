//! Offsets from UTC: the pieces of constant offset in a span of time.
//!
//! In: an IANA name, a span of instants in seconds. Out: segments that cover the span, cut exactly at each change.
//! Invariant: equal offsets on both sides of a change never make a cut; only the total offset counts, not
//! whether it is called daylight saving time. Not here: what a gap or a repeat means (`fires`).

use std::str::FromStr as _;

use chrono::{DateTime, Offset as _, TimeZone as _};
use chrono_tz::Tz;

use crate::nearest;

/// No zone has ever been further from UTC than this, in seconds (Manila was 15:56 behind).
pub(crate) const OFFSET_MAX_S: i64 = 16 * 3600;

/// Changes of one zone are at least 6.9 days apart in tzdata, so that a step of this length holds at most one.
const PROBE_S: i64 = 4 * 86_400;

/// A zone of the IANA database, by its exact name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Zone(Tz);

/// A stretch of instants with one offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// First instant, in seconds since the epoch.
    pub(crate) start: i64,
    /// First instant after it.
    pub(crate) end: i64,
    /// Local time minus UTC, in seconds.
    pub(crate) offset: i64,
}

impl Zone {
    /// The zone of this name, which must be spelt as in the database.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Tz::from_str(name).ok().filter(|tz| tz.name() == name).map(Self)
    }

    /// The name of the zone that somebody meant who wrote `name`: it has the same letters, ends so, or is a slip away.
    pub(crate) fn near(name: &str) -> Option<&'static str> {
        let names = || chrono_tz::TZ_VARIANTS.iter().map(|tz| tz.name());
        let ends = |zone: &&str| {
            zone.rsplit_once('/').is_some_and(|(_, city)| nearest::plain(city) == nearest::plain(name))
        };
        nearest::same(name, names())
            .or_else(|| names().find(ends))
            .or_else(|| nearest::nearest(name, names()))
    }

    /// The name.
    pub(crate) fn name(self) -> &'static str {
        self.0.name()
    }

    /// Local time minus UTC at an instant, in seconds.
    pub(crate) fn offset(self, instant: i64) -> i64 {
        let Some(utc) = DateTime::from_timestamp(instant, 0) else { return 0 };
        i64::from(self.0.offset_from_utc_datetime(&utc.naive_utc()).fix().local_minus_utc())
    }

    /// The segments that cover `[start, end)`, in order, cut to it.
    pub(crate) fn segments(self, start: i64, end: i64) -> Vec<Segment> {
        let mut segments = Vec::with_capacity(2);
        let mut open = Segment { start, end, offset: self.offset(start) };
        let mut known = start;
        while known < end - 1 {
            let probe = (known + PROBE_S).min(end - 1);
            let offset = self.offset(probe);
            if offset != open.offset {
                let change = self.change(known, probe);
                segments.push(Segment { end: change, ..open });
                open = Segment { start: change, end, offset };
            }
            known = probe;
        }
        segments.push(open);
        segments
    }

    /// The first instant with another offset than `before` has, given that `after` has another. By bisection.
    fn change(self, mut before: i64, mut after: i64) -> i64 {
        let offset = self.offset(before);
        while after - before > 1 {
            let middle = before + (after - before) / 2;
            if self.offset(middle) == offset {
                before = middle;
            } else {
                after = middle;
            }
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The probing step is sound: looking every day finds no change that the long steps miss.
    #[test]
    fn changes_are_further_apart_than_the_probing_step() {
        let (start, end) = (-2_208_988_800, 4_102_444_800);
        for tz in chrono_tz::TZ_VARIANTS.iter().step_by(7) {
            let zone = Zone(*tz);
            let segments = zone.segments(start, end);
            for pair in segments.windows(2) {
                assert_eq!(pair[0].end, pair[1].start);
                assert_ne!(pair[0].offset, pair[1].offset);
                assert!(pair[1].end - pair[1].start > PROBE_S, "{tz} at {}", pair[1].start);
                assert!(pair[1].offset.abs() < OFFSET_MAX_S);
            }
            for segment in segments {
                for instant in (segment.start..segment.end).step_by(86_400).chain([segment.end - 1]) {
                    assert_eq!(zone.offset(instant), segment.offset, "{tz} at {instant}");
                }
            }
        }
    }

    #[test]
    fn a_near_name_is_found() {
        for (given, near) in [
            ("europe/berlin", Some("Europe/Berlin")),
            ("Europe/Berln", Some("Europe/Berlin")),
            ("Berlin", Some("Europe/Berlin")),
            ("New York", Some("America/New_York")),
            ("utc", Some("UTC")),
            ("Atlantis/Capital", None),
            ("", None),
        ] {
            assert_eq!(Zone::near(given), near, "{given}");
        }
    }

    #[test]
    fn a_name_must_be_exact() {
        for name in ["UTC", "EST", "Zulu", "Asia/Calcutta", "Europe/Berlin"] {
            assert_eq!(Zone::named(name).map(Zone::name), Some(name));
        }
        for name in
            ["", "utc", "europe/berlin", "Europe", "CEST", " UTC", "UTC\0", "GMT+25", "US/Pacific-New"]
        {
            assert_eq!(Zone::named(name), None, "{name:?}");
        }
    }
}
