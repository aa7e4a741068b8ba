//! Decides when a schedule that is deleted once it never fires again may go.
//!
//! In: the schedule, up to where the emitters have scanned, its unfinished runs. Out: whether it goes now, and else when it is to
//! be looked at again. Invariant: it does not go before a window that holds its last launch time is complete, as it is scanned
//! by what is stored.

use crate::model::{MINUTE_US, SECOND_US, Schedule, Timing, Trigger, WhenDone};

/// The shortest and the longest time before a schedule that must wait is looked at again.
const AGAIN_US: std::ops::RangeInclusive<i64> = MINUTE_US..=60 * MINUTE_US;

/// When a timing fires for the last time at the latest; none where it has no triggers, or may fire for ever.
pub fn ends_us(timing: &Timing) -> Option<i64> {
    let end_us = |trigger: &Trigger| match trigger {
        Trigger::At { at_us } => Some(*at_us),
        _ => timing.end_us,
    };
    timing.triggers.iter().map(end_us).collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// From when on a schedule may go, should all of its runs have ended by then; none where it stays.
pub fn done_us(schedule: &Schedule) -> Option<i64> {
    let WhenDone::Delete { after_s } = schedule.when_done else { return None };
    if schedule.pause.is_some() {
        return None;
    }
    let ends_us = ends_us(&schedule.timing)?.max(schedule.updated_us);
    Some(ends_us.saturating_add(after_s.saturating_mul(SECOND_US)))
}

/// The runs of a schedule, as far as it has to wait for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunsLeft {
    /// How many have not ended.
    pub unfinished: u64,
    /// When the last one that has ended did.
    pub last_finished_us: Option<i64>,
}

/// What becomes of a schedule that may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It is deleted.
    Delete,
    /// It is looked at again then.
    Later(i64),
    /// It stays.
    Keep,
}

/// Decides about a schedule at `now_us`. Windows are complete up to `scanned_until_us`.
pub fn done(schedule: &Schedule, scanned_until_us: Option<i64>, left: RunsLeft, now_us: i64) -> Done {
    let (WhenDone::Delete { after_s }, Some(done_us)) = (schedule.when_done, done_us(schedule)) else {
        return Done::Keep;
    };
    let after_us = after_s.saturating_mul(SECOND_US);
    let again_us = now_us.saturating_add(after_us.clamp(*AGAIN_US.start(), *AGAIN_US.end()));
    let is_scanned = ends_us(&schedule.timing)
        .is_some_and(|ends_us| scanned_until_us.is_some_and(|until_us| until_us > ends_us));
    if done_us > now_us {
        return Done::Later(done_us);
    }
    if !is_scanned || left.unfinished > 0 {
        return Done::Later(again_us);
    }
    match left.last_finished_us.map(|finished_us| finished_us.saturating_add(after_us)) {
        Some(until_us) if until_us > now_us => Done::Later(until_us),
        _ => Done::Delete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::testing::schedule;
    use crate::model::Pause;

    const AT_US: i64 = 1_000 * MINUTE_US;

    fn shot() -> Schedule {
        let mut shot = schedule();
        shot.timing.triggers = vec![Trigger::At { at_us: AT_US - MINUTE_US }, Trigger::At { at_us: AT_US }];
        shot.when_done = WhenDone::Delete { after_s: 3_600 };
        shot.updated_us = 0;
        shot
    }

    #[test]
    fn it_ends_with_its_last_shot_or_with_its_end() {
        let mut timing = shot().timing;
        assert_eq!(ends_us(&timing), Some(AT_US));
        timing.triggers.push(Trigger::Interval { every_s: 60, anchor_us: Some(0) });
        assert_eq!(ends_us(&timing), None);
        timing.end_us = Some(AT_US + 5);
        assert_eq!(ends_us(&timing), Some(AT_US + 5));
        timing.triggers.clear();
        assert_eq!(ends_us(&timing), None, "by hand it may fire at any time");
    }

    #[test]
    fn it_goes_when_all_is_over_for_long_enough() {
        let (shot, scanned) = (shot(), Some(AT_US + 1));
        let due_us = AT_US + 60 * MINUTE_US;
        let none = RunsLeft::default();
        assert_eq!(done_us(&shot), Some(due_us));
        assert_eq!(done(&shot, scanned, none, due_us - 1), Done::Later(due_us));
        assert_eq!(done(&shot, scanned, none, due_us), Done::Delete);
        for behind in [None, Some(AT_US)] {
            assert_eq!(
                done(&shot, behind, none, due_us),
                Done::Later(due_us + 60 * MINUTE_US),
                "not scanned yet"
            );
        }
        let unfinished = RunsLeft { unfinished: 1, last_finished_us: None };
        assert_eq!(done(&shot, scanned, unfinished, due_us), Done::Later(due_us + 60 * MINUTE_US));
        let late = RunsLeft { unfinished: 0, last_finished_us: Some(due_us - 1) };
        assert_eq!(done(&shot, scanned, late, due_us), Done::Later(due_us - 1 + 60 * MINUTE_US));
        assert_eq!(done(&shot, scanned, late, due_us - 1 + 60 * MINUTE_US), Done::Delete);
        let quick = Schedule { when_done: WhenDone::Delete { after_s: 1 }, ..shot.clone() };
        assert_eq!(
            done(&quick, scanned, unfinished, due_us),
            Done::Later(due_us + MINUTE_US),
            "not every moment"
        );
        let changed = Schedule { updated_us: AT_US + 7, ..shot };
        assert_eq!(done_us(&changed), Some(due_us + 7), "who has just changed it still needs it");
    }

    #[test]
    fn what_is_kept_or_paused_or_may_fire_stays() {
        let pause = Some(Pause { reason: String::new(), actor: String::new(), since_us: 0 });
        let mut again = shot();
        again.timing.triggers.push(Trigger::Cron { expression: "@daily".to_owned() });
        for stays in [Schedule { pause, ..shot() }, Schedule { when_done: WhenDone::Keep, ..shot() }, again] {
            assert_eq!(done_us(&stays), None);
            assert_eq!(done(&stays, Some(i64::MAX), RunsLeft::default(), i64::MAX), Done::Keep);
        }
    }
}
