//! When what waits under a policy will have started, and when a run will have ended, if all goes on as it did lately.
//!
//! In: how many events go before, how many tokens there are and are held, the rate, and for how long tokens were held. Out:
//! a moment, or why there is none. Right for what waits now: what falls due later is not known here. Invariants: nobody
//! is expected to start before those that go before it; more tokens, or a higher rate, make nothing later.

mod holds;

pub use holds::Holds;

use crate::model::SECOND_US;

/// What keeps something from ending, until somebody does something about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Never {
    /// Dispatch is paused.
    DispatchPaused,
    /// This policy is paused.
    PolicyPaused(String),
    /// This schedule is paused.
    SchedulePaused(String),
    /// This policy lets nothing of this key start.
    KeyPaused {
        /// The policy's id.
        policy: String,
        /// The key; empty for events without one.
        key: String,
    },
    /// Silent consumers hold all tokens of this policy, and nothing takes them back.
    TokensSilent(String),
    /// This policy lets nothing through.
    NothingAllowed(String),
    /// This target refuses everything.
    TargetRefuses(String),
    /// This target does not answer.
    TargetSilent(String),
    /// Nothing can be sent to this target.
    NotSent(String),
}

impl Never {
    /// For people: "never, while …".
    pub fn in_words(&self) -> String {
        let cause = match self {
            Self::DispatchPaused => "dispatch is paused".to_owned(),
            Self::PolicyPaused(policy) => format!("the policy {policy} is paused"),
            Self::SchedulePaused(schedule) => format!("the schedule {schedule} is paused"),
            Self::KeyPaused { policy, key } => format!("the key {key:?} of {policy} is paused"),
            Self::TokensSilent(policy) => {
                format!("silent consumers hold all tokens of {policy}, which are never reclaimed")
            }
            Self::NothingAllowed(policy) => format!("the policy {policy} lets nothing through"),
            Self::TargetRefuses(target) => format!("{target} refuses everything"),
            Self::TargetSilent(target) => format!("{target} does not answer"),
            Self::NotSent(target) => format!("nothing can be sent to {target}"),
        };
        format!("never, while {cause}")
    }
}

/// When something is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Then (wall clock).
    At(i64),
    /// Not before somebody does something.
    Never(Never),
    /// It cannot be said, for this reason.
    NotKnown(&'static str),
}

impl Expected {
    /// The moment, if there is one.
    pub fn at_us(&self) -> Option<i64> {
        match self {
            Self::At(at_us) => Some(*at_us),
            Self::Never(_) | Self::NotKnown(_) => None,
        }
    }

    /// For people: why there is no moment.
    pub fn why_not(&self) -> Option<String> {
        match self {
            Self::At(_) => None,
            Self::Never(never) => Some(never.in_words()),
            Self::NotKnown(why) => Some((*why).to_owned()),
        }
    }

    /// Whether what has to happen by then is at risk. What is not known is not.
    pub fn is_after(&self, deadline_us: i64) -> bool {
        match self {
            Self::At(at_us) => *at_us > deadline_us,
            Self::Never(_) => true,
            Self::NotKnown(_) => false,
        }
    }

    /// Not before then.
    #[must_use]
    pub fn not_before(self, us: i64) -> Self {
        match self {
            Self::At(at_us) => Self::At(at_us.max(us)),
            other => other,
        }
    }

    /// Once both have come.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match other {
            Self::At(us) => self.not_before(us),
            unknown => unknown,
        }
    }
}

/// Said where nothing has ended yet, so that nobody knows how long the work takes.
pub const NOTHING_ENDED: &str = "not known yet: nothing of it has ended";

/// How fast events of a policy start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    /// The tokens that come back; none where only a rate bounds.
    pub tokens: Option<u32>,
    /// Of those, held.
    pub held: u32,
    /// At most so many start in a second.
    pub rate_per_s: Option<f64>,
    /// For how long a token is held until an event has ended, in microseconds.
    pub mean_us: Option<f64>,
}

impl Flow {
    /// When an event starts that so many go before, from now on, in microseconds; none where nobody knows.
    ///
    /// One token after the other comes back: of m tokens that are held for h each, one every h / m.
    pub fn start_after_us(&self, before: u64) -> Option<i64> {
        let by_rate = self.rate_per_s.map_or(0.0, |rate| before as f64 / rate * SECOND_US as f64);
        let by_tokens = match self.tokens {
            None => 0.0,
            Some(tokens) => {
                let free = u64::from(tokens.saturating_sub(self.held));
                match (before + 1).saturating_sub(free) {
                    0 => 0.0,
                    to_come_back => to_come_back as f64 * self.mean_us? / f64::from(tokens),
                }
            }
        };
        #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
        let after_us = by_rate.max(by_tokens).min(1e17) as i64;
        Some(after_us)
    }
}
