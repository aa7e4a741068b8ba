//! Whether the runs of a schedule take longer than they did.
//!
//! In: how long its latest runs took. Out: whether the last one took far longer than those before it, or whether they take
//! longer little by little. Invariants: what varies as it always did is neither, nor is one run that took long a while ago; runs
//! are compared as they are, but never with smaller ones. Not here: which schedules are looked at, and when.

use std::fmt;

use crate::model::{DAY_US, MINUTE_US, Run, RunKind, RunState, SECOND_US};

/// With how many runs before it the last one is compared at most.
pub const BEFORE_MAX: usize = 30;
/// With how many at least.
const BEFORE_MIN: usize = 5;
/// How many times their median it takes longer than.
const SUDDEN_TIMES: i64 = 3;
/// Over how many runs they rise little by little: the last one and those before it.
const TREND_RUNS: usize = 30;
/// How many of them are the first ones, and how many the last ones.
const TREND_ENDS: usize = 10;
/// What is not longer by this much is nobody's trouble.
const LONGER_MIN_US: i64 = SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;

/// What a run took that ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    /// How many events it has.
    pub events: u32,
    /// When its first event was acquired (wall clock).
    pub started_us: i64,
    /// When its last event ended (wall clock).
    pub finished_us: i64,
}

impl Took {
    /// Of a run that counts: of which every event has ended, and none badly; none of any other. What is made up for long after
    /// its launch time is not compared.
    pub fn of(run: &Run) -> Option<Self> {
        let counts = run.state == RunState::Finished && run.counts.badly() == 0;
        let (started_us, finished_us) = run.started_us.zip(run.finished_us)?;
        (counts && run.kind != RunKind::Backfill).then_some(Self {
            events: run.events,
            started_us,
            finished_us,
        })
    }

    /// A clock that was put back makes it no shorter than nothing.
    fn us(&self) -> i64 {
        self.finished_us.saturating_sub(self.started_us).max(0)
    }
}

/// How runs take longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// The last one took more than three times as long as those before it.
    Sudden {
        /// What it took.
        last_us: i64,
        /// The median of those before it.
        median_us: i64,
        /// How many these are.
        runs: usize,
    },
    /// They rise from run to run.
    Gradual {
        /// The median of the first ten.
        from_us: i64,
        /// The median of the last ten.
        to_us: i64,
        /// How many there are in all.
        runs: usize,
    },
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Sudden { last_us, median_us, runs } => write!(
                f,
                "the last one took {}, the median of {runs} before it is {}",
                span(last_us),
                span(median_us)
            ),
            Self::Gradual { from_us, to_us, runs } => write!(
                f,
                "little by little: {} is the median of the first {TREND_ENDS} of {runs}, {} that of the last {TREND_ENDS}",
                span(from_us),
                span(to_us)
            ),
        }
    }
}

/// Whether runs of one schedule take longer; the last of them is judged. `runs`: the oldest first. Of those before the last one,
/// the latest [`BEFORE_MAX`] count that had at least half as many events: what has more to do takes longer, and that is no drift.
pub fn judge(runs: &[Took]) -> Option<Drift> {
    let (last, before) = runs.split_last()?;
    let is_alike = |run: &&Took| u64::from(run.events) * 2 >= u64::from(last.events);
    let mut took: Vec<i64> = before.iter().filter(is_alike).map(Took::us).collect();
    took.drain(..took.len().saturating_sub(BEFORE_MAX));
    sudden(&took, last.us()).or_else(|| {
        took.push(last.us());
        gradual(&took)
    })
}

fn sudden(before: &[i64], last_us: i64) -> Option<Drift> {
    let median_us = median(before);
    let is_long = last_us > median_us.saturating_mul(SUDDEN_TIMES) && last_us - median_us >= LONGER_MIN_US;
    let runs = before.len();
    (runs >= BEFORE_MIN && is_long).then_some(Drift::Sudden { last_us, median_us, runs })
}

fn gradual(took: &[i64]) -> Option<Drift> {
    let took = took.last_chunk::<TREND_RUNS>()?;
    let (from_us, to_us) = (median(&took[..TREND_ENDS]), median(&took[TREND_RUNS - TREND_ENDS..]));
    // Half as long again.
    let is_long = to_us / 3 >= from_us / 2 && to_us - from_us >= LONGER_MIN_US;
    (is_long && rises(took)).then_some(Drift::Gradual { from_us, to_us, runs: TREND_RUNS })
}

/// Whether values rise, whatever else they do: the test of Mann and Kendall (H. B. Mann, Nonparametric Tests Against Trend,
/// Econometrica 13, 1945). It counts the pairs of which the later value is larger, less those of which it is smaller. Of values
/// that come in no order, that lies above three standard deviations once in 700 times. Values that are the same make it stricter.
fn rises(took: &[i64]) -> bool {
    let pairs = took.iter().enumerate().flat_map(|(at, later)| took[..at].iter().map(move |of| later - of));
    let excess: i64 = pairs.map(i64::signum).sum();
    let runs = i64::try_from(took.len()).unwrap_or(i64::MAX);
    // Without an order its variance is n (n - 1) (2 n + 5) / 18; it goes by steps, of which one half is taken off each side.
    let above = (excess - 1).max(0);
    2 * above * above > runs * (runs - 1) * (2 * runs + 5)
}

/// The value in the middle; of an even number, between the two.
fn median(values: &[i64]) -> i64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = |place: usize| sorted.get(place).copied().unwrap_or_default();
    let (low, high) = (at(sorted.len().saturating_sub(1) / 2), at(sorted.len() / 2));
    low + (high - low) / 2
}

/// A span for people, in its largest unit, with the next one while that says something.
fn span(us: i64) -> String {
    let two = |unit_us: i64, unit: &str, next_us: i64, next: &str| {
        let (whole, rest) = (us / unit_us, us % unit_us / next_us);
        if whole < 10 && rest > 0 { format!("{whole}{unit} {rest}{next}") } else { format!("{whole}{unit}") }
    };
    match us {
        ..SECOND_US => format!("{}ms", us.max(0) / 1_000),
        SECOND_US..10_000_000 => format!("{}.{}s", us / SECOND_US, us % SECOND_US / 100_000),
        10_000_000..MINUTE_US => format!("{}s", us / SECOND_US),
        MINUTE_US..HOUR_US => two(MINUTE_US, "m", SECOND_US, "s"),
        HOUR_US..DAY_US => two(HOUR_US, "h", MINUTE_US, "m"),
        _ => two(DAY_US, "d", HOUR_US, "h"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Counts;

    fn run(took_us: i64, events: u32) -> Took {
        Took { events, started_us: 7, finished_us: 7 + took_us }
    }

    fn judged(took_us: impl IntoIterator<Item = i64>) -> Option<Drift> {
        let runs: Vec<Took> = took_us.into_iter().map(|took_us| run(took_us, 10)).collect();
        judge(&runs)
    }

    /// Numbers between 0 and 1 that look like chance, and are the same each time.
    fn chance(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// Runs that take from a quarter to four times as long as they mostly do, in no order.
    #[test]
    fn what_varies_as_it_always_did_is_no_drift() {
        let mut chance = chance(7);
        let mut alarms = Vec::new();
        for series in 0..10_000 {
            let mostly_us = 10e6 * 360_f64.powf(chance());
            let mut took_us = || {
                let power = chance() + chance() + chance() + chance() - 2.0;
                (mostly_us * 2_f64.powf(power)) as i64
            };
            let took: Vec<i64> = (0..=BEFORE_MAX).map(|_| took_us()).collect();
            alarms.extend(judged(took).map(|drift| (series, drift)));
        }
        assert!(alarms.len() < 100, "{}: {alarms:?}", alarms.len());
    }

    #[test]
    fn a_last_run_of_more_than_three_times_the_median_is_sudden() {
        let before = [9, 10, 11, 10, 400].map(|s| s * SECOND_US);
        let with = |last_us| judged(before.into_iter().chain([last_us]));
        let sudden = Drift::Sudden { last_us: 31 * SECOND_US, median_us: 10 * SECOND_US, runs: 5 };
        assert_eq!((with(30 * SECOND_US), with(31 * SECOND_US)), (None, Some(sudden)));
        assert_eq!(sudden.to_string(), "the last one took 31s, the median of 5 before it is 10s");
        let fewer = before.into_iter().skip(1).chain([31 * SECOND_US]);
        assert_eq!(judged(fewer), None, "four are too few to compare it with");
    }

    #[test]
    fn a_step_is_sudden_and_becomes_the_rule_in_the_end() {
        let stepped = |after: usize| {
            let before = std::iter::repeat_n(60 * SECOND_US, BEFORE_MAX);
            judged(before.chain(std::iter::repeat_n(300 * SECOND_US, after)))
        };
        assert!((1..=15).all(|after| matches!(stepped(after), Some(Drift::Sudden { .. }))));
        assert!(matches!(stepped(17), Some(Drift::Gradual { .. })), "{:?}", stepped(17));
        assert!((25..=30).all(|after| stepped(after).is_none()));
    }

    #[test]
    fn tiny_runs_do_not_count() {
        let tiny = |last_us| judged([20_000; 10].into_iter().chain([last_us]));
        assert_eq!(tiny(1_019_999), None);
        assert!(tiny(1_020_000).is_some());
        let slower = (0..30).map(|at| 20_000 * (at + 1));
        assert_eq!(judged(slower), None, "they are longer by less than a second");
    }

    #[test]
    fn one_outlier_among_those_before_is_none() {
        for at in 0..BEFORE_MAX {
            let mut took = [40 * SECOND_US; BEFORE_MAX + 1];
            took[at] = 4_000 * SECOND_US;
            assert_eq!(judged(took), None, "{at}");
        }
    }

    /// As a database that grows makes them.
    #[test]
    fn a_slow_rise_is_gradual_and_a_fall_is_none() {
        let rising = |runs: i32| (0..runs).map(|at| (40.0 * 60e6 * 1.03_f64.powi(at)) as i64);
        let found = judged(rising(31));
        let Some(Drift::Gradual { from_us, to_us, runs: 30 }) = found else { panic!("{found:?}") };
        assert!((45..48).contains(&(from_us / MINUTE_US)) && (82..87).contains(&(to_us / MINUTE_US)));
        let text = "little by little: 47m is the median of the first 10 of 30, 1h 25m that of the last 10";
        assert_eq!(found.map(|drift| drift.to_string()).as_deref(), Some(text));
        assert_eq!(judged(rising(29)), None, "fewer runs say nothing");
        assert_eq!(judged(rising(31).collect::<Vec<_>>().into_iter().rev()), None);
        let less = (0..31).map(|at| (40.0 * 60e6 * 1.01_f64.powi(at)) as i64);
        assert_eq!(judged(less), None, "not half as long again");
    }

    #[test]
    fn a_run_is_not_compared_with_smaller_ones() {
        let small: Vec<Took> = (0..10).map(|_| run(10 * SECOND_US, 49)).collect();
        let large = [small.clone(), vec![run(500 * SECOND_US, 100)]].concat();
        assert_eq!(judge(&large), None);
        let alike = [small, vec![run(500 * SECOND_US, 98)]].concat();
        assert!(judge(&alike).is_some());
    }

    #[test]
    fn runs_count_that_ended_well() {
        let well = Run {
            state: RunState::Finished,
            events: 3,
            counts: Counts { succeeded: 3, ..Counts::default() },
            started_us: Some(10),
            finished_us: Some(90),
            ..Run::default()
        };
        assert_eq!(Took::of(&well), Some(Took { events: 3, started_us: 10, finished_us: 90 }));
        for other in [
            Run { counts: Counts { succeeded: 2, lost: 1, ..Counts::default() }, ..well.clone() },
            Run { state: RunState::Cancelled, ..well.clone() },
            Run { kind: RunKind::Backfill, ..well.clone() },
            Run { started_us: None, ..well.clone() },
            Run { finished_us: None, state: RunState::Running, ..well },
        ] {
            assert_eq!(Took::of(&other), None, "{other:?}");
        }
    }

    #[test]
    fn spans_are_short() {
        let shown = [(0, "0ms"), (112, "112ms"), (5_140, "5.1s"), (61_000, "1m 1s"), (11_400_000, "3h 10m")];
        for (ms, text) in shown {
            assert_eq!(span(ms * 1_000), text);
        }
        assert_eq!(
            (span(-5), span(58 * MINUTE_US), span(2 * DAY_US)),
            ("0ms".into(), "58m".into(), "2d".into())
        );
    }

    proptest! {
        /// Whatever runs took: what is told is true of them.
        #[test]
        fn what_is_told_is_true(
            runs in proptest::collection::vec((0..i64::MAX / 8, 1..20_u32), 0..45)
        ) {
            let runs: Vec<Took> = runs.into_iter().map(|(took_us, events)| run(took_us, events)).collect();
            match judge(&runs) {
                Some(Drift::Sudden { last_us, median_us, runs: compared }) => {
                    let last = runs[runs.len() - 1];
                    prop_assert_eq!(last.us(), last_us);
                    prop_assert!((5..=30).contains(&compared) && compared < runs.len());
                    prop_assert!(last_us / 3 >= median_us && last_us - median_us >= SECOND_US);
                    let shorter = runs.iter().filter(|run| run.us() <= median_us).count();
                    prop_assert!(shorter * 2 >= compared);
                }
                Some(Drift::Gradual { from_us, to_us, runs: compared }) => {
                    prop_assert!(compared == 30 && runs.len() >= 30);
                    prop_assert!(to_us - from_us >= SECOND_US);
                }
                None => {}
            }
        }

        /// A rise is found through what varies beside it.
        #[test]
        fn a_rise_is_found_among_noise(noise in proptest::collection::vec(0.93..1.07_f64, 31)) {
            let rising = noise.iter().zip(0..).map(|(noise, at)| (noise * 60e6 * 1.03_f64.powi(at)) as i64);
            let found = judged(rising);
            prop_assert!(matches!(found, Some(Drift::Gradual { .. })), "{found:?}");
        }
    }
}
