//! Each delivery: not before its time, one id for each event, attempts that grow, and no repetition without a reason.
//!
//! A later attempt is made only where the one before was refused, given back, ended in doubt, was reclaimed, or was not recorded
//! because of something that the campaign itself has done. It never comes before an earlier one, and not after a release that was
//! acknowledged; nothing explains these two. What the campaign may have read late by its own fault counts as come in time.

use std::collections::{HashMap, HashSet};

use super::{Evidence, Promise, Verdict};
use crate::journal::{Entry, Event, Met, Said, What};
use crate::sink::{DEADLINE, HEARD_US, POLLED, PULLED, SILENT};

/// The consumer's sign of life is missed after so long, and the token goes to the next attempt: `token_ttl` and the
/// suspect period of the policy that reclaims, less what an answer takes.
const RECLAIM_US: i64 = 2_900_000;
/// A pause that was acknowledged holds from then on at the latest.
const PAUSE_US: i64 = 6_000_000;
/// An owner looks into its inbox so often. The campaign leaves that as it is.
const POLL_US: i64 = 1_000_000;

/// Its deadline was over, or it was killed.
const UNHEARD: &str = "unclear: the sender had gone before the answer";
/// The campaign itself was late.
const READ_LATE: &str = "the campaign was late to read it or to answer";

/// The last that is known of an event's deliveries.
#[derive(Clone, Copy)]
struct Last {
    attempt: u32,
    met: Met,
    /// The process that gave it to its worker, where that is known.
    by: Option<u8>,
    /// When it came, and when its answer was written.
    at_us: i64,
    answered_us: Option<i64>,
    /// The connection ended with the answer.
    hung_up: bool,
    /// Of the answers with RELEASED, the one that allows least.
    released: Option<Released>,
    /// The latest attempt that was given back, and when that was answered with RELEASED.
    gave_back: Option<(u32, Released)>,
}

/// An answer with RELEASED.
#[derive(Clone, Copy)]
struct Released {
    at_us: i64,
    said: Said,
}

impl Released {
    /// What was on its way when it was carried out comes until then. One that lies in its owner's inbox is read within a poll,
    /// and carried out by a commit, which may take as long as a lease.
    fn until_us(self, evidence: &Evidence<'_>) -> i64 {
        let carried_out_us = match self.said {
            Said::Direct => self.at_us,
            Said::Recorded => self.at_us + POLL_US + evidence.lease_us,
        };
        carried_out_us + deadline_us()
    }
}

impl Last {
    fn new(at_us: i64, attempt: u32, met: Met, by: Option<u8>) -> Self {
        let (answered_us, hung_up, released, gave_back) = (None, false, None, None);
        Self { attempt, met, by, at_us, answered_us, hung_up, released, gave_back }
    }

    /// Something is told of the event after it came.
    fn note(&mut self, evidence: &Evidence<'_>, entry: &Entry) {
        let at_us = entry.at_us;
        match entry.what {
            What::Answered { attempt } if attempt == self.attempt => self.answered_us = Some(at_us),
            What::HungUp { attempt, after_ms } if attempt == self.attempt => {
                let after_us = i64::from(after_ms) * 1_000;
                let lags = evidence.lags;
                let lag_us = lags.around(at_us - after_us) + lags.around(at_us);
                self.hung_up |= after_us < HEARD_US + lag_us;
            }
            What::Released { said } => {
                let new = Released { at_us, said };
                let allows_more = |old: Released| new.until_us(evidence) < old.until_us(evidence);
                if self.released.is_none_or(allows_more) {
                    self.released = Some(new);
                }
            }
            What::GaveBack { attempt, said } => self.gave_back = Some((attempt, Released { at_us, said })),
            _ => {}
        }
    }
}

pub(super) fn check(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let mut last: HashMap<u32, Last> = HashMap::new();
    for entry in &evidence.journal.entries {
        let event = &evidence.journal.events[entry.event as usize];
        let What::Arrived { attempt, met, enters, by } = entry.what else {
            if let Some(last) = last.get_mut(&entry.event) {
                last.note(evidence, entry);
            }
            continue;
        };
        verdict.deliveries += 1;
        check_time(evidence, verdict, event, entry.at_us);
        let now = Last::new(entry.at_us, attempt, met, by);
        let Some(before) = last.get(&entry.event).copied() else {
            verdict.distinct += 1;
            check_pause(evidence, verdict, event, entry.at_us);
            last.insert(entry.event, now);
            continue;
        };
        verdict.repeats.of_done += u64::from(!enters);
        check_repeat(evidence, verdict, event, before, now);
        // The latest attempt counts, in whatever order they come.
        if attempt >= before.attempt {
            let (released, gave_back) = (before.released, before.gave_back);
            last.insert(entry.event, Last { released, gave_back, ..now });
        }
    }
    check_given_back(evidence, verdict, &last);
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

/// What was given back comes again: nobody has done it.
fn check_given_back(evidence: &Evidence<'_>, verdict: &mut Verdict, last: &HashMap<u32, Last>) {
    let ended = evidence.records.runs.iter().filter(|run| run.ended);
    let ended: HashSet<(&str, i64)> = ended.map(|run| (run.schedule.as_str(), run.launch_us)).collect();
    for (number, event) in (0..).zip(&evidence.journal.events) {
        let Some(given) = last.get(&number).filter(|last| last.met == Met::GivenBack) else { continue };
        let is_cancelled = evidence.ordered.cancelled.contains(&event.schedule);
        if !is_cancelled && ended.contains(&(event.schedule.as_str(), event.launch_us)) {
            verdict.lost += 1;
            verdict.breach(Promise::Lost, || {
                format!("attempt {} was given back, and did not come again: {event:?}", given.attempt)
            });
        }
    }
}

fn check_repeat(evidence: &Evidence<'_>, verdict: &mut Verdict, event: &Event, before: Last, now: Last) {
    let lags = evidence.lags;
    if now.attempt <= before.attempt {
        verdict.breach(Promise::Attempt, || case(evidence, event, before, now));
        return;
    }
    // The plain limit, and what the campaign's own lag adds to it.
    let limit = before.released.map(|released| {
        let lag_us = lags.around(now.at_us) + lags.around(released.at_us);
        (released.until_us(evidence), lag_us)
    });
    if limit.is_some_and(|(until_us, lag_us)| now.at_us > until_us + lag_us) {
        verdict.repeats.not_allowed += 1;
        verdict.breach(Promise::Released, || case(evidence, event, before, now));
        return;
    }
    if let Some(reason) = reason(evidence, event, before, now) {
        let is_beyond = limit.is_some_and(|(until_us, _)| now.at_us > until_us);
        let reason = if is_beyond { READ_LATE } else { reason };
        *verdict.repeats.by_reason.entry(reason).or_default() += 1;
        return;
    }
    verdict.repeats.not_allowed += 1;
    verdict.breach(Promise::Duplicate, || case(evidence, event, before, now));
}

/// All that is known of a repetition, for whoever looks for its cause.
fn case(evidence: &Evidence<'_>, event: &Event, before: Last, now: Last) -> String {
    let of = |last: Last| {
        let by = last.by.map(|process| format!(", given by process {process}")).unwrap_or_default();
        format!("attempt {} ({:?}{by}) came at {}", last.attempt, last.met, last.at_us)
    };
    let answered =
        before.answered_us.map_or("not answered".to_owned(), |at_us| format!("answered at {at_us}"));
    let hung_up = if before.hung_up { ", and its connection ended" } else { "" };
    let released = before.released.map_or("no RELEASED".to_owned(), |released| {
        let (said, until_us) = (said(released.said), released.until_us(evidence));
        format!("RELEASED ({said}) at {}, with a limit of {until_us}", released.at_us)
    });
    let gave_back = before.gave_back.map(|(attempt, back)| {
        format!("; attempt {attempt} was given back ({}) at {}", said(back.said), back.at_us)
    });
    let gave_back = gave_back.unwrap_or_default();
    let lag_us = |at_us: Option<i64>| at_us.map_or(0, |at_us| evidence.lags.around(at_us));
    let lags_us = [Some(before.at_us), before.answered_us, Some(now.at_us)].map(lag_us);
    format!(
        "policy {:?}, event {}: {} after {}, {answered}{hung_up}; {released}{gave_back}; the campaign's lag then was {} us: \
         {event:?}",
        event.policy,
        event.id,
        of(now),
        of(before),
        lags_us.into_iter().max().unwrap_or_default(),
    )
}

fn said(said: Said) -> &'static str {
    match said {
        Said::Direct => "direct",
        Said::Recorded => "recorded",
    }
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
        Met::GivenBack => Some("given back"),
        Met::Doubtful => Some("unclear: no good answer"),
        Met::Taken | Met::Abandoned if is_reclaimed => Some("reclaimed: no sign of life"),
        Met::Taken | Met::Abandoned => match answered_us {
            // The consumer writes its answer down right before it gives it. Then the sender had gone.
            None => Some(UNHEARD),
            Some(_) if before.hung_up => Some(UNHEARD),
            Some(at_us) => {
                // The answer is with its sender by then, as far as the campaign is concerned.
                let until_us = at_us + evidence.lags.around(at_us);
                let disturbed = evidence
                    .disturbances
                    .iter()
                    .find(|one| one.from_us <= until_us && at_us <= one.until_us)
                    .map(|one| one.reason);
                disturbed
                    .or_else(|| on_the_way(evidence, event, (at_us, until_us)))
                    .or_else(|| heard_late(evidence, before.at_us, at_us))
            }
        },
    }
}

/// The campaign was so late to read a delivery, and to give its answer, that the sender's deadline may have been over.
fn heard_late(evidence: &Evidence<'_>, came_us: i64, answered_us: i64) -> Option<&'static str> {
    let lag_us = evidence.lags.around(came_us) + evidence.lags.around(answered_us);
    (lag_us > 0 && answered_us - came_us + lag_us >= deadline_us()).then_some(READ_LATE)
}

fn deadline_us() -> i64 {
    i64::try_from(DEADLINE.as_micros()).unwrap_or(i64::MAX)
}

/// Whether its policy takes back what nobody speaks of.
fn comes_back(event: &Event) -> bool {
    event.policy == SILENT || event.policy == POLLED
}

/// What a worker says goes from its process to the owner's: a fault of either, or between them, may be in the way.
fn on_the_way(evidence: &Evidence<'_>, event: &Event, (at_us, until_us): (i64, i64)) -> Option<&'static str> {
    let is_pulled = event.policy == PULLED || event.policy == POLLED;
    let is_near =
        |watch: &&super::Watch| watch.from_us - 2_000_000 <= until_us && at_us < watch.until_us + 5_000_000;
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
