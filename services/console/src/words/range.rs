//! Decides which times charts and lists of the past can be asked for.

const MINUTE_US: i64 = 60_000_000;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: i64 = 24 * HOUR_US;
/// The most steps of a chart: each is to be told from the next.
const STEPS_MAX: i64 = 100;
/// The steps that are used, in microseconds.
const STEPS_US: [i64; 10] = [
    MINUTE_US,
    5 * MINUTE_US,
    15 * MINUTE_US,
    30 * MINUTE_US,
    HOUR_US,
    2 * HOUR_US,
    4 * HOUR_US,
    6 * HOUR_US,
    12 * HOUR_US,
    DAY_US,
];

/// A time up to now, cut into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    /// In addresses: `6h`.
    pub(crate) key: &'static str,
    /// After "the last": `6 hours`.
    pub(crate) words: &'static str,
    pub(crate) length_us: i64,
    pub(crate) step_us: i64,
}

const fn range(key: &'static str, words: &'static str, length_us: i64, step_us: i64) -> Range {
    Range { key, words, length_us, step_us }
}

pub(crate) const HOUR: Range = range("1h", "hour", HOUR_US, MINUTE_US);
pub(crate) const DAY: Range = range("24h", "24 hours", DAY_US, 15 * MINUTE_US);
/// All that can be chosen, shortest first.
pub(crate) const RANGES: [Range; 5] = [
    HOUR,
    range("6h", "6 hours", 6 * HOUR_US, 5 * MINUTE_US),
    DAY,
    range("7d", "7 days", 7 * DAY_US, 2 * HOUR_US),
    range("45d", "45 days", 45 * DAY_US, 12 * HOUR_US),
];

impl Range {
    /// The one that an address names.
    pub(crate) fn named(key: &str) -> Option<Self> {
        RANGES.into_iter().find(|range| range.key == key)
    }

    /// When it begins: with a step.
    pub(crate) fn start_us(self, now_us: i64) -> i64 {
        let under_way = now_us.div_euclid(self.step_us) * self.step_us;
        under_way - self.length_us + self.step_us
    }
}

/// The shortest step that cuts a time into few enough pieces.
pub(crate) fn step_of(length_us: i64) -> i64 {
    STEPS_US.into_iter().find(|step| length_us <= step * STEPS_MAX).unwrap_or(DAY_US)
}

/// A step in words, as in "by the minute", "by 15 minutes".
pub(crate) fn by_step(step_us: i64) -> String {
    match (step_us / DAY_US, step_us / HOUR_US, step_us / MINUTE_US) {
        (1.., _, _) => "by the day".to_owned(),
        (_, 1, _) => "by the hour".to_owned(),
        (_, 2.., _) => format!("by {} hours", step_us / HOUR_US),
        (_, _, 1) => "by the minute".to_owned(),
        (_, _, minutes) => format!("by {minutes} minutes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_has_whole_steps_that_can_be_told_apart() {
        for range in RANGES {
            let steps = range.length_us / range.step_us;
            assert_eq!(range.length_us % range.step_us, 0, "{range:?}");
            assert!((48..=STEPS_MAX).contains(&steps), "{range:?}: {steps}");
            assert!(STEPS_US.contains(&range.step_us), "{range:?}");
            assert_eq!(Range::named(range.key), Some(range));
            // The step under way is the last of them.
            let now_us = 1_000 * DAY_US + 77;
            assert_eq!((now_us - range.start_us(now_us)) / range.step_us, steps - 1);
        }
        assert_eq!(Range::named("2h"), None);
        assert_eq!((step_of(MINUTE_US), step_of(100 * MINUTE_US + 1)), (MINUTE_US, 5 * MINUTE_US));
        assert_eq!(
            (by_step(HOUR_US), by_step(15 * MINUTE_US)),
            ("by the hour".into(), "by 15 minutes".into())
        );
    }
}
