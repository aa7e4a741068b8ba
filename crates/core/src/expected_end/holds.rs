//! For how long the tokens of a policy are held: on average, and by part of the events.
//!
//! The average is all the time for which tokens were held, by the number of events that ended (Little's law): so it takes in
//! tokens that are held still, deliveries that were refused, and tries that were in vain. Old times are forgotten in
//! steps: what is known is of the last one to two steps, each of [`STEP_ENDED`] events and [`STEP_US`] at least.

use crate::model::MINUTE_US;

/// How many events end in a step, at least.
const STEP_ENDED: u64 = 128;
/// How long a step is, at least.
const STEP_US: i64 = MINUTE_US;
/// The unit of a hold in the histogram, as a power of two of microseconds: 64 µs.
const UNIT_BITS: u32 = 6;
/// The classes of the histogram: four for each doubling, up to 76 hours.
const CLASSES: usize = 128;

#[derive(Clone, Debug)]
struct Step {
    /// Microseconds for which tokens were held, over all tokens.
    held_us: f64,
    ended: u64,
    /// Holds of some of the events, by class.
    classes: [u32; CLASSES],
}

impl Step {
    const EMPTY: Self = Self { held_us: 0.0, ended: 0, classes: [0; CLASSES] };
}

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct Holds {
    /// So many tokens have been held since the moment below.
    held: u32,
    counted_us: i64,
    step_began_us: i64,
    step: Step,
    before: Step,
}

impl Holds {
    /// Nothing is known before this moment (monotonic).
    pub fn since(mono_us: i64) -> Self {
        let (step, before) = (Step::EMPTY, Step::EMPTY);
        Self { held: 0, counted_us: mono_us, step_began_us: mono_us, step, before }
    }

    /// So many tokens are held from now on.
    pub fn hold(&mut self, held: u32, mono_us: i64) {
        self.step.held_us += self.held_us_since(mono_us);
        (self.held, self.counted_us) = (held, mono_us.max(self.counted_us));
    }

    /// So many events have ended since it was said last; one of them had held its token for so long.
    pub fn ended(&mut self, events: u32, hold_us: Option<i64>, mono_us: i64) {
        self.step.ended += u64::from(events);
        if let Some(count) = hold_us.and_then(|us| self.step.classes.get_mut(class_of(us))) {
            *count = count.saturating_add(1);
        }
        if self.step.ended >= STEP_ENDED && mono_us - self.step_began_us >= STEP_US {
            self.before = std::mem::replace(&mut self.step, Step::EMPTY);
            self.step_began_us = mono_us;
        }
    }

    /// For how long a token is held until an event has ended, in microseconds; none before one has.
    pub fn mean_us(&self, mono_us: i64) -> Option<f64> {
        let ended = self.step.ended + self.before.ended;
        let held_us = self.step.held_us + self.before.held_us + self.held_us_since(mono_us);
        (ended > 0).then(|| held_us / ended as f64)
    }

    /// Before an event has ended: for how long tokens are held at the least, in microseconds.
    pub fn at_least_us(&self, mono_us: i64) -> Option<f64> {
        let is_unknown = self.mean_us(mono_us).is_none() && self.held > 0;
        is_unknown.then(|| (self.step.held_us + self.held_us_since(mono_us)) / f64::from(self.held))
    }

    /// For how long the one of so many tokens is held that is held longest, on average, in microseconds; none before one has
    /// come back.
    pub fn longest_of_us(&self, tokens: u32) -> Option<i64> {
        let counts =
            || self.step.classes.iter().zip(&self.before.classes).map(|(a, b)| f64::from(*a) + f64::from(*b));
        let all: f64 = counts().sum();
        if all <= 0.0 {
            return None;
        }
        // All of them are held for no longer than a class says with the chance of one, to the power of how many they are.
        let (mut so_far, mut chance, mut longest_us) = (0.0, 0.0, 0.0);
        for (class, count) in counts().enumerate() {
            so_far += count;
            let all_within = (so_far / all).powf(f64::from(tokens.max(1)));
            longest_us += (all_within - chance) * middle_us(class) as f64;
            chance = all_within;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most the longest hold")]
        let longest_us = longest_us as i64;
        Some(longest_us)
    }

    fn held_us_since(&self, mono_us: i64) -> f64 {
        f64::from(self.held) * (mono_us - self.counted_us).max(0) as f64
    }
}

fn class_of(us: i64) -> usize {
    let units = u64::try_from(us).unwrap_or(0) >> UNIT_BITS;
    let doublings = units.max(1).ilog2();
    let quarter = ((units.max(1) << 2) >> doublings) & 3;
    (doublings as usize * 4 + usize::try_from(quarter).unwrap_or(0)).min(CLASSES - 1)
}

fn middle_us(class: usize) -> i64 {
    let (doublings, quarter) = (class / 4, class % 4);
    let lowest = (4 + quarter as u64) << doublings;
    // Eight times the middle of the class, in units.
    let middle = 2 * lowest + (1 << doublings);
    i64::try_from((middle << UNIT_BITS) / 8).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::model::SECOND_US;

    #[test]
    fn a_class_tells_a_hold_to_an_eighth() {
        for us in [64, 100, 999, 20_000, 1_000_000, 90 * SECOND_US, 3_600 * SECOND_US, 86_400 * SECOND_US] {
            let told = middle_us(class_of(us));
            assert!((told - us).abs() <= us / 7 + 64, "{us} is told as {told}");
        }
        assert_eq!(class_of(-5), class_of(0));
        assert_eq!(class_of(i64::MAX), CLASSES - 1);
    }

    #[test]
    fn the_mean_counts_what_is_held_still_and_what_was_held_in_vain() {
        let mut holds = Holds::since(0);
        assert_eq!((holds.mean_us(5), holds.longest_of_us(1)), (None, None));
        assert_eq!(holds.at_least_us(5), None);
        holds.hold(2, 0);
        holds.hold(2, 10 * SECOND_US);
        assert_eq!(holds.at_least_us(10 * SECOND_US), Some(10e6));
        holds.ended(1, Some(10 * SECOND_US), 10 * SECOND_US);
        assert_eq!(holds.mean_us(10 * SECOND_US), Some(20e6));
        assert_eq!(holds.at_least_us(10 * SECOND_US), None);
        assert_eq!(holds.mean_us(30 * SECOND_US), Some(60e6), "the two that are held go on");
        let longest = holds.longest_of_us(9).unwrap();
        assert!((longest - 10 * SECOND_US).abs() <= SECOND_US * 5 / 4, "{longest}");
    }

    #[test]
    fn old_times_are_forgotten() {
        let mut holds = Holds::since(0);
        holds.hold(1, 0);
        let mut now_us = 0;
        for (hold_us, events) in [(SECOND_US, 300), (4 * SECOND_US, 300)] {
            for _ in 0..events {
                now_us += hold_us;
                holds.hold(1, now_us);
                holds.ended(1, Some(hold_us), now_us);
            }
        }
        let mean = holds.mean_us(now_us).unwrap();
        assert!((mean - 4e6).abs() < 1.0, "{mean}");
        assert!(holds.longest_of_us(1).unwrap() > 3 * SECOND_US);
    }

    #[test]
    fn of_many_the_longest_is_longer() {
        let mut holds = Holds::since(0);
        for at in 0..1_000 {
            holds.ended(1, Some(if at % 10 == 0 { 50 } else { 2 } * SECOND_US), at);
        }
        let [one, five, many] = [1, 5, 1_000].map(|tokens| holds.longest_of_us(tokens).unwrap() / SECOND_US);
        // One in ten is long: 6.8 s on average; of five one is with a chance of 41 percent.
        assert!(
            (5..=9).contains(&one) && (18..=26).contains(&five) && (43..=57).contains(&many),
            "{one} {five} {many}"
        );
    }
}
