//! Decides which scan window is opened next, and when an emitter looks again.
//!
//! In: how far windows are open, the time, the [`Options`]. Out: a [`Window`], or none.
//! Invariants: windows follow each other without a gap; each ends on a whole multiple of the window's length; a long
//! one ends in the past. Not here: opening it.

use super::{Options, Window};
use crate::model::SECOND_US;

/// How soon windows are looked at again that others have not completed.
const INCOMPLETE_US: i64 = 2 * SECOND_US;
/// While this many windows are incomplete, those of an outage are not opened further: their tasks would only pile up.
const BEHIND_OPEN_MAX: usize = 8;

/// The window that is to be opened next at `now_us`, if any, where `incomplete` windows are not complete.
pub fn to_open(
    opened_until_us: Option<i64>,
    incomplete: usize,
    now_us: i64,
    options: &Options,
) -> Option<Window> {
    let window = next(opened_until_us, now_us, options)?;
    (incomplete < BEHIND_OPEN_MAX || !is_behind(window, now_us, options)).then_some(window)
}

/// When an emitter looks again, after a round that ends at `now_us`: when the next window must be opened, or sooner where
/// others have not completed theirs.
pub fn next_round_us(opened_until_us: Option<i64>, incomplete: u32, now_us: i64, options: &Options) -> i64 {
    // One microsecond after the moment up to which the windows suffice.
    let open_us = opened_until_us.map_or(now_us, |until| until - options.ahead_us() + 1);
    if incomplete > 0 { open_us.min(now_us + INCOMPLETE_US) } else { open_us }
}

/// The window after `opened_until_us` that must be open at `now_us`, if any.
fn next(opened_until_us: Option<i64>, now_us: i64, options: &Options) -> Option<Window> {
    let length_us = options.window_us();
    let current_us = floor(now_us, length_us);
    let Some(start_us) = opened_until_us else {
        return Some(Window { start_us: current_us, end_us: current_us + length_us });
    };
    if start_us >= now_us.saturating_add(options.ahead_us()) {
        return None;
    }
    let end_us = if start_us + length_us <= current_us {
        let catch_up_us = floor(options.catch_up_s.saturating_mul(SECOND_US), length_us).max(length_us);
        (floor(start_us, catch_up_us) + catch_up_us).min(current_us)
    } else {
        floor(start_us, length_us) + length_us
    };
    Some(Window { start_us, end_us })
}

/// Whether the window lies so far back that it belongs to an outage.
fn is_behind(window: Window, now_us: i64, options: &Options) -> bool {
    window.end_us <= floor(now_us, options.window_us())
}

fn floor(us: i64, step_us: i64) -> i64 {
    us - us.rem_euclid(step_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MINUTE_US;

    fn minutes(from: i64, to: i64) -> Option<Window> {
        Some(Window { start_us: from * MINUTE_US, end_us: to * MINUTE_US })
    }

    fn at(opened_until: Option<i64>, now_us: i64) -> Option<Window> {
        next(opened_until.map(|minute| minute * MINUTE_US), now_us, &Options::default())
    }

    #[test]
    fn the_first_window_holds_now() {
        assert_eq!(at(None, 600 * MINUTE_US + 17), minutes(600, 601));
        assert_eq!(at(None, 600 * MINUTE_US), minutes(600, 601));
    }

    #[test]
    fn windows_are_opened_until_they_are_far_enough_ahead() {
        assert_eq!(at(Some(604), 600 * MINUTE_US), minutes(604, 605));
        assert_eq!(at(Some(605), 600 * MINUTE_US), None);
        assert_eq!(at(Some(605), 600 * MINUTE_US + 1), minutes(605, 606));
    }

    #[test]
    fn an_outage_is_caught_up_in_hours_that_end_in_the_past() {
        assert_eq!(at(Some(605), 790 * MINUTE_US + 5), minutes(605, 660));
        assert_eq!(at(Some(660), 790 * MINUTE_US + 5), minutes(660, 720));
        assert_eq!(at(Some(780), 790 * MINUTE_US + 5), minutes(780, 790));
        assert_eq!(at(Some(790), 790 * MINUTE_US + 5), minutes(790, 791));
        assert_eq!(at(Some(789), 790 * MINUTE_US), minutes(789, 790));
    }

    #[test]
    fn any_options_give_windows_without_gaps() {
        for (window_s, catch_up_s) in [(60, 3600), (60, 90), (45, 100), (7, 1), (3600, 60)] {
            let options = Options { window_s, catch_up_s, ..Options::default() };
            // As another length of window has left it.
            let mut opened = 599 * MINUTE_US;
            let now = 900 * MINUTE_US + 1;
            while let Some(window) = next(Some(opened), now, &options) {
                assert_eq!(window.start_us, opened);
                assert!(window.end_us > opened, "{options:?}: {window:?}");
                assert_eq!(window.end_us % (window_s * SECOND_US), 0, "{options:?}: {window:?}");
                opened = window.end_us;
            }
            assert!(opened >= now + options.ahead_us());
        }
    }
}
