//! Each delivery: not before its time, one id for each event, attempts that grow, and no repetition without a reason.

use std::collections::HashMap;

use super::{Evidence, Promise, Verdict};
use crate::journal::{Event, Met, What};

/// The last that is known of an event's deliveries.
#[derive(Clone, Copy)]
struct Last {
    attempt: u32,
    met: Met,
    /// When it came, and when its answer was written.
    at_us: i64,
    answered_us: Option<i64>,
}

pub(super) fn check(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let mut last: HashMap<u32, Last> = HashMap::new();
    for entry in &evidence.journal.entries {
        let event = &evidence.journal.events[entry.event as usize];
        match entry.what {
            What::Arrived { attempt, met, enters } => {
                verdict.deliveries += 1;
                check_time(evidence, verdict, event, entry.at_us);
                let now = Last { attempt, met, at_us: entry.at_us, answered_us: None };
                match last.insert(entry.event, now) {
                    None => verdict.distinct += 1,
                    Some(before) => {
                        verdict.repeats.of_done += u64::from(!enters);
                        check_repeat(evidence, verdict, event, before, now);
                        // The latest attempt counts, in whatever order they come.
                        if before.attempt > attempt {
                            last.insert(entry.event, before);
                        }
                    }
                }
            }
            What::Answered { attempt } => {
                if let Some(last) = last.get_mut(&entry.event).filter(|last| last.attempt == attempt) {
                    last.answered_us = Some(entry.at_us);
                }
            }
            What::Left | What::Released => {}
        }
    }
    check_identity(&evidence.journal.events, verdict);
}

fn check_time(evidence: &Evidence<'_>, verdict: &mut Verdict, event: &Event, at_us: i64) {
    let ahead_us = evidence.ahead.filter(|ahead| at_us >= ahead.from_us).map_or(0, |ahead| ahead.by_us);
    if event.launch_us > at_us + ahead_us {
        verdict.early += 1;
        verdict.breach(Promise::Early, || {
            format!("{} us early: {event:?} at {at_us}", event.launch_us - at_us - ahead_us)
        });
    }
}

fn check_repeat(evidence: &Evidence<'_>, verdict: &mut Verdict, event: &Event, before: Last, now: Last) {
    let is_disturbed = |from_us: i64, until_us: i64| {
        evidence.disturbances.iter().any(|one| one.from_us <= until_us && from_us <= one.until_us)
    };
    // Two deliveries under way at once may overtake each other, where the network or a process stood still.
    let overtaken = now.attempt < before.attempt && is_disturbed(now.at_us, now.at_us);
    if now.attempt <= before.attempt && !overtaken {
        verdict.breach(Promise::Attempt, || {
            format!("attempt {} after {} at {}: {event:?}", now.attempt, before.attempt, now.at_us)
        });
    }
    let repeats = &mut verdict.repeats;
    match before.met {
        Met::Refused => repeats.after_refusal += 1,
        Met::Doubtful => repeats.after_doubt += 1,
        Met::Abandoned => repeats.after_silence += 1,
        // Without an answer, whatever kept it from being written lay between the two deliveries.
        Met::Taken
            if overtaken
                || is_disturbed(
                    before.answered_us.unwrap_or(before.at_us),
                    before.answered_us.unwrap_or(now.at_us),
                ) =>
        {
            repeats.unrecorded += 1;
        }
        Met::Taken => {
            repeats.not_allowed += 1;
            verdict.breach(Promise::Duplicate, || {
                let answered_us = before.answered_us.unwrap_or_default();
                format!(
                    "attempt {} came at {} though {} was taken at {answered_us}: {event:?}",
                    now.attempt, now.at_us, before.attempt
                )
            });
        }
    }
}

/// One id for each place in a run, one run for each launch.
fn check_identity(events: &[Event], verdict: &mut Verdict) {
    let mut places: HashMap<(&str, i64, u32), &Event> = HashMap::new();
    for event in events {
        if let Some(other) = places.insert((&event.schedule, event.launch_us, event.index), event) {
            verdict.breach(Promise::Identity, || format!("{event:?} and {other:?}"));
        }
        if event.index >= event.count {
            verdict.breach(Promise::Identity, || format!("no such index: {event:?}"));
        }
    }
}
