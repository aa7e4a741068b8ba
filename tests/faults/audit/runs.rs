//! Each launch that fell due: its events came, or ended in a recorded state, and the service's records agree.

use std::collections::{HashMap, HashSet};

use super::{Due, Evidence, Promise, RunRecord, Verdict};
use crate::journal::What;

type Launch<'a> = (&'a str, i64);

/// What the journal says of a launch.
#[derive(Default)]
struct Seen {
    delivered: u64,
    /// Events whose release was answered with RELEASED.
    released: u64,
}

pub(super) fn check(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let seen = seen(evidence);
    let mut runs: HashMap<Launch<'_>, &RunRecord> = HashMap::new();
    for run in &evidence.records.runs {
        if let Some(other) = runs.insert((&run.schedule, run.launch_us), run) {
            verdict.breach(Promise::Identity, || format!("two runs of one launch: {run:?}, {other:?}"));
        }
    }
    let mut due: HashSet<Launch<'_>> = HashSet::new();
    for launch in &evidence.ordered.due {
        let key = (launch.schedule.as_str(), launch.launch_us);
        due.insert(key);
        check_due(evidence, verdict, launch, runs.get(&key).copied(), seen.get(&key));
    }
    for (key, seen) in &seen {
        if !due.contains(key) && !evidence.ordered.by_hand.contains(key.0) {
            verdict.breach(Promise::NotDue, || format!("{key:?}: {} events", seen.delivered));
        }
    }
    for run in &evidence.records.runs {
        check_run(verdict, run, seen.get(&(run.schedule.as_str(), run.launch_us)));
    }
    if !evidence.records.unowned.is_empty() {
        verdict.breach(Promise::Stuck, || format!("nobody owns queue shards {:?}", evidence.records.unowned));
    }
    for (policy, held) in evidence.records.held.iter().filter(|(_, held)| **held > 0) {
        verdict.leaked += held;
        verdict.breach(Promise::Leaked, || format!("{held} tokens of {policy:?}"));
    }
}

fn seen<'a>(evidence: &Evidence<'a>) -> HashMap<Launch<'a>, Seen> {
    let events = &evidence.journal.events;
    let mut seen: HashMap<Launch<'a>, Seen> = HashMap::new();
    for event in events {
        seen.entry((&event.schedule, event.launch_us)).or_default().delivered += 1;
    }
    let released: HashSet<u32> = evidence
        .journal
        .entries
        .iter()
        .filter(|entry| matches!(entry.what, What::Released { .. }))
        .map(|entry| entry.event)
        .collect();
    for event in released.into_iter().map(|number| &events[number as usize]) {
        seen.entry((&event.schedule, event.launch_us)).or_default().released += 1;
    }
    seen
}

fn check_due(
    evidence: &Evidence<'_>,
    verdict: &mut Verdict,
    due: &Due,
    run: Option<&RunRecord>,
    seen: Option<&Seen>,
) {
    let events = u64::from(due.events);
    let delivered = seen.map_or(0, |seen| seen.delivered);
    if !due.required && delivered == 0 && run.is_none() {
        return;
    }
    verdict.events_due += events;
    let missing = events.saturating_sub(delivered);
    if run.is_none() && delivered > 0 {
        verdict
            .breach(Promise::Records, || format!("{delivered} delivered, and no run is recorded: {due:?}"));
    }
    let otherwise = match run {
        // Then it is stuck, and nobody knows what becomes of it.
        Some(run) if !run.ended => return,
        Some(run) => u64::from(run.otherwise),
        None if evidence.records.skipped.contains(&(due.schedule.clone(), due.launch_us)) => {
            verdict.skipped += events;
            if due.required {
                verdict.breach(Promise::Missed, || format!("{due:?}"));
            }
            return;
        }
        None => 0,
    };
    let lost = missing.saturating_sub(otherwise);
    verdict.ended_undelivered += missing - lost;
    verdict.lost += lost;
    if missing > lost && due.required && !evidence.ordered.cancelled.contains(&due.schedule) {
        verdict.breach(Promise::Unsent, || format!("{} of {due:?}; recorded: {run:?}", missing - lost));
    }
    if lost > 0 {
        verdict.breach(Promise::Lost, || format!("{lost} of {due:?}; recorded: {run:?}"));
    }
}

fn check_run(verdict: &mut Verdict, run: &RunRecord, seen: Option<&Seen>) {
    let (delivered, released) = seen.map_or((0, 0), |seen| (seen.delivered, seen.released));
    if !run.ended || run.in_flight > 0 || run.succeeded + run.otherwise != run.events {
        verdict.breach(Promise::Stuck, || format!("{run:?}; {delivered} delivered"));
    } else if u64::from(run.succeeded) > delivered {
        verdict.breach(Promise::Records, || format!("only {delivered} delivered: {run:?}"));
    } else if u64::from(run.succeeded) < released {
        verdict.breach(Promise::Records, || format!("{released} releases were acknowledged: {run:?}"));
    }
}
