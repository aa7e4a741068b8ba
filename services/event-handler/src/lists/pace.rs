//! Decides when a list is asked for again, and when no more.
//!
//! In: why there is no page, how often there was none, until when is tried. Out: what is next. Not here: clocks.

use tollgate_core::model::SECOND_US;
use tollgate_target::NoPage;

/// The wait after the first failure; it doubles.
const WAIT_US: i64 = SECOND_US;
/// The longest wait, but for one that is asked for.
const WAIT_MAX_US: i64 = 60 * SECOND_US;

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another attempt.
    Again {
        /// When.
        at_us: i64,
    },
    /// None.
    GiveUp,
}

/// What follows the attempt of this number, which failed at `now_us`: the last attempt is made when the time is up. `luck`:
/// any number, which lengthens a wait by up to a quarter.
pub(super) fn after(no_page: &NoPage, (attempt, luck): (u32, u8), now_us: i64, give_up_us: i64) -> Next {
    if no_page.is_final || now_us >= give_up_us {
        return Next::GiveUp;
    }
    let doubled_us = WAIT_US.saturating_mul(1 << attempt.saturating_sub(1).min(30)).min(WAIT_MAX_US);
    let asked_us = no_page.retry_after_ms.unwrap_or_default().saturating_mul(1_000);
    let wait_us = (doubled_us + doubled_us * i64::from(luck) / 1_024).max(asked_us);
    Next::Again { at_us: now_us.saturating_add(wait_us).min(give_up_us) }
}

/// `1 attempt`.
pub(super) fn times(attempts: u32) -> String {
    if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(no_page: &NoPage) -> Vec<i64> {
        let mut waits = Vec::new();
        let mut now_us = 0;
        while let Next::Again { at_us } = after(no_page, (waits.len() as u32 + 1, 0), now_us, 200 * SECOND_US)
        {
            waits.push((at_us - now_us) / SECOND_US);
            now_us = at_us;
        }
        waits
    }

    #[test]
    fn waits_double_and_the_last_attempt_is_made_when_the_time_is_up() {
        assert_eq!(waits(&NoPage::yet("HTTP 503")), [1, 2, 4, 8, 16, 32, 60, 60, 17]);
    }

    #[test]
    fn a_pause_that_is_asked_for_is_kept() {
        let asked = NoPage { retry_after_ms: Some(90_000), ..NoPage::yet("HTTP 429") };
        assert_eq!(waits(&asked), [90, 90, 20]);
    }

    #[test]
    fn what_does_not_help_is_not_tried_again() {
        assert_eq!(waits(&NoPage::ever("HTTP 401")), [0; 0]);
        assert_eq!((times(1), times(3)), ("1 attempt".to_owned(), "3 attempts".to_owned()));
    }

    #[test]
    fn luck_only_lengthens_a_wait() {
        let next = after(&NoPage::yet("x"), (1, u8::MAX), 0, i64::MAX);
        assert!(matches!(next, Next::Again { at_us } if (SECOND_US..=SECOND_US * 5 / 4).contains(&at_us)));
    }
}
