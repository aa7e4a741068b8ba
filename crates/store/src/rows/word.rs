//! Words that are columns: the same as in JSON.

use tollgate_core::handle::change::{Outcome, TokenState};
use tollgate_core::model::{RunKind, RunState, SkipReason};

/// A type whose values are words in a column.
pub(crate) trait Word: Copy + PartialEq + Sized + 'static {
    /// Every value and its word.
    const WORDS: &'static [(Self, &'static str)];

    /// The word of a value.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(value, _)| *value == self).map_or("", |(_, word)| word)
    }

    /// The value of a column's word.
    fn of(column: &'static str, word: &str) -> Result<Self, (&'static str, String)> {
        let found = Self::WORDS.iter().find(|(_, known)| *known == word);
        found.map(|(value, _)| *value).ok_or_else(|| (column, format!("{word:?} is no known word")))
    }
}

impl Word for RunKind {
    const WORDS: &'static [(Self, &'static str)] = &[
        (Self::Scheduled, "SCHEDULED"),
        (Self::Manual, "MANUAL"),
        (Self::Backfill, "BACKFILL"),
        (Self::Submitted, "SUBMITTED"),
        (Self::Followed, "FOLLOWED"),
    ];
}

impl Word for RunState {
    const WORDS: &'static [(Self, &'static str)] = &[
        (Self::Emitted, "EMITTED"),
        (Self::Listing, "LISTING"),
        (Self::Waiting, "WAITING"),
        (Self::Running, "RUNNING"),
        (Self::Finished, "FINISHED"),
        (Self::Cancelled, "CANCELLED"),
        (Self::Skipped, "SKIPPED"),
        (Self::Unreadable, "UNREADABLE"),
    ];
}

impl Word for SkipReason {
    const WORDS: &'static [(Self, &'static str)] = &[
        (Self::Missed, "MISSED"),
        (Self::Paused, "PAUSED"),
        (Self::Overlap, "OVERLAP"),
        (Self::NotListed, "NOT_LISTED"),
    ];
}

impl Word for TokenState {
    const WORDS: &'static [(Self, &'static str)] =
        &[(Self::Acquired, "ACQUIRED"), (Self::Held, "HELD"), (Self::Waiting, "WAITING")];
}

impl Word for Outcome {
    const WORDS: &'static [(Self, &'static str)] = &[
        (Self::Succeeded, "SUCCEEDED"),
        (Self::Failed, "FAILED"),
        (Self::Dead, "DEAD"),
        (Self::Expired, "EXPIRED"),
        (Self::Cancelled, "CANCELLED"),
        (Self::Lost, "LOST"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_in_json<T: Word + serde::Serialize + std::fmt::Debug>(count: usize) {
        assert_eq!(T::WORDS.len(), count);
        for (value, word) in T::WORDS {
            assert_eq!(serde_json::json!(value), *word);
            assert_eq!(T::of("c", word), Ok(*value));
        }
        assert!(T::of("c", "NONSENSE").is_err());
    }

    #[test]
    fn words_are_those_of_json() {
        as_in_json::<RunKind>(5);
        as_in_json::<RunState>(8);
        as_in_json::<SkipReason>(4);
        as_in_json::<TokenState>(3);
        as_in_json::<Outcome>(6);
    }
}
