//! Each delivery: not before its time, one id for each event, attempts that grow, and no repetition without a reason.
//!
//! A later attempt is made only where the one before was refused, ended in doubt, was reclaimed, or was not recorded because
//! of something that the campaign itself has done. It never comes before an earlier one, and not after a release that was
//! acknowledged; nothing explains these two.

use std::collections::HashMap;

use super::{Evidence, Promise, Verdict};
use crate::journal::{Event, Met, What};
use crate::sink::{DEADLINE, POLLED, PULLED, SILENT};

/// The consumer's sign of life is missed after so long, and the token goes to the next attempt: `token_ttl` and the
/// suspect period of the policy that reclaims, less what an answer takes.
const RECLAIM_US: i64 = 2_900_000;
/// A pause that was acknowledged holds from then on at the latest.
const PAUSE_US: i64 = 6_000_000;

/// Its deadline was over, or it was killed.
const UNHEARD: &str = "unclear: the sender had gone before the answer";

/// The last that is known of an event's deliveries.
#[derive(Clone, Copy)]
struct Last {
    attempt: u32,
    met: Met,
    /// When it came, and when its answer was written.
    at_us: i64,
    answered_us: Option<i64>,
    /// The connection ended with the answer.
    hung_up: bool,
    /// When a release of the event was first answered with RELEASED.
    released_us: Option<i64>,
}

pub(super) fn check(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let mut last: HashMap<u32, Last> = HashMap::new();
    for entry in &evidence.journal.entries {
        let event = &evidence.journal.events[entry.event as usize];
        match entry.what {
            What::Arrived { attempt, met, enters } => {
                verdict.deliveries += 1;
                check_time(evidence, verdict, event, entry.at_us);
                let before = last.get(&entry.event).copied();
                let released_us = before.and_then(|before| before.released_us);
                let now =
                    Last { attempt, met, at_us: entry.at_us, answered_us: None, hung_up: false, released_us };
                let Some(before) = before else {
                    verdict.distinct += 1;
                    check_pause(evidence, verdict, event, entry.at_us);
                    last.insert(entry.event, now);
                    continue;
                };
                verdict.repeats.of_done += u64::from(!enters);
                check_repeat(evidence, verdict, event, before, now);
                // The latest attempt counts, in whatever order they come.
                if attempt >= before.attempt {
                    last.insert(entry.event, now);
                }
            }
            What::Answered { attempt } => {
                if let Some(last) = last.get_mut(&entry.event).filter(|last| last.attempt == attempt) {
                    last.answered_us = Some(entry.at_us);
                }
            }
            What::HungUp { attempt } => {
                if let Some(last) = last.get_mut(&entry.event).filter(|last| last.attempt == attempt) {
                    last.hung_up = true;
                }
            }
            What::Released => {
                if let Some(last) = last.get_mut(&entry.event) {
                    last.released_us.get_or_insert(entry.at_us);
                }
            }
            What::Left => {}
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

fn check_pause(evidence: &Evidence<'_>, verdict: &mut Verdict, event: &Event, at_us: i64) {
    let of_event = evidence.ordered.pauses.iter().filter(|pause| pause.schedule == event.schedule);
    for pause in of_event {
        if (pause.from_us + PAUSE_US..pause.until_us).contains(&event.launch_us) {
            verdict.breach(Promise::Paused, || {
                format!("{} us after {pause:?}: {event:?} at {at_us}", event.launch_us - pause.from_us)
            });
        }
    }
}

fn check_repeat(evidence: &Evidence<'_>, verdict: &mut Verdict, event: &Event, before: Last, now: Last) {
    if now.attempt <= before.attempt {
        verdict.breach(Promise::Attempt, || {
            format!("attempt {} after {} at {}: {event:?}", now.attempt, before.attempt, now.at_us)
        });
        return;
    }
    // What was on its way when the release was acknowledged comes within its deadline.
    let deadline_us = i64::try_from(DEADLINE.as_micros()).unwrap_or(i64::MAX);
    if let Some(released_us) = before.released_us.filter(|released_us| now.at_us > released_us + deadline_us)
    {
        verdict.repeats.not_allowed += 1;
        verdict.breach(Promise::Released, || {
            format!(
                "attempt {} came at {}, RELEASED was said at {released_us}: {event:?}",
                now.attempt, now.at_us
            )
        });
        return;
    }
    if let Some(reason) = reason(evidence, event, before, now) {
        *verdict.repeats.by_reason.entry(reason).or_default() += 1;
        return;
    }
    verdict.repeats.not_allowed += 1;
    verdict.breach(Promise::Duplicate, || {
        let answered_us = before.answered_us.unwrap_or_default();
        format!(
            "attempt {} came at {} though {} was taken at {answered_us}: {event:?}",
            now.attempt, now.at_us, before.attempt
        )
    });
}

/// Why there is another attempt; none where there should not be.
fn reason(evidence: &Evidence<'_>, event: &Event, before: Last, now: Last) -> Option<&'static str> {
    let answered_us = before.answered_us;
    // Whoever was sent away by a clock that everybody follows has waited long enough by that clock.
    let is_ahead = evidence.ahead.is_some_and(|ahead| now.at_us >= ahead.from_us);
    let waited_us = now.at_us - answered_us.unwrap_or(before.at_us);
    let is_reclaimed = comes_back(event) && (waited_us >= RECLAIM_US || is_ahead);
    match before.met {
        Met::Refused => Some("refused"),
        Met::Doubtful => Some("unclear: no good answer"),
        Met::Taken | Met::Abandoned if is_reclaimed => Some("reclaimed: no sign of life"),
        Met::Taken | Met::Abandoned => match answered_us {
            // The consumer writes its answer down right before it gives it. Then the sender had gone.
            None => Some(UNHEARD),
            Some(_) if before.hung_up => Some(UNHEARD),
            Some(at_us) => {
                let disturbed =
                    evidence.disturbances.iter().find(|one| (one.from_us..=one.until_us).contains(&at_us));
                disturbed.map(|one| one.reason).or_else(|| on_the_way(evidence, event, at_us))
            }
        },
    }
}

/// Whether its policy takes back what nobody speaks of.
fn comes_back(event: &Event) -> bool {
    event.policy == SILENT || event.policy == POLLED
}

/// What a worker says goes from its process to the owner's: a fault of either, or between them, may be in the way.
fn on_the_way(evidence: &Evidence<'_>, event: &Event, at_us: i64) -> Option<&'static str> {
    let is_pulled = event.policy == PULLED || event.policy == POLLED;
    let is_near =
        |watch: &&super::Watch| (watch.from_us - 2_000_000..watch.until_us + 5_000_000).contains(&at_us);
    let near = evidence.watches.iter().find(is_near).filter(|_| is_pulled);
    near.map(|_| "worker: its word was lost on the way to the owner")
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
