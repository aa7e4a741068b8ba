//! Runs that are due and have not started, under what they wait for: one reason for many is said once.

use maud::{Markup, html};

use crate::parts::waiting::{Due, DueRun, WAITING_READ_MAX};
use crate::requests::links::to;
use crate::requests::visit::Visit;
use crate::words::show::{count, counted, moment, seen, short, tag};

/// How many runs of each kind are shown.
pub(crate) const RUNS_MAX: usize = 25;
/// How many of one reason are shown.
const OF_ONE_MAX: usize = 8;

/// Runs that wait for the same thing.
struct Group<'a> {
    /// What they wait for; empty where it is not known.
    reason: &'a str,
    policy: &'a str,
    runs: Vec<&'a DueRun>,
}

/// The runs by what they wait for, in the order of their first ones.
fn grouped(runs: &[DueRun]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for due_run in runs {
        let reason = due_run.reason().unwrap_or_default();
        let policy = due_run.run.policy.as_str();
        match groups.iter_mut().find(|group| group.reason == reason && group.policy == policy) {
            Some(group) => group.runs.push(due_run),
            None => groups.push(Group { reason, policy, runs: vec![due_run] }),
        }
    }
    groups
}

/// Runs that are due and have not started.
pub(crate) fn not_started(visit: &Visit, due: &Due) -> Markup {
    html! {
        section aria-labelledby="h-waiting" {
            h2 #h-waiting { "Due, not started" }
            @if due.waiting.is_empty() {
                @if due.waiting_cut {
                    p.mute { "None among the " (count(WAITING_READ_MAX.unsigned_abs())) " runs with the latest launch times; there are more." }
                } @else {
                    p.mute { "Nothing: all that is due has started." }
                }
            } @else {
                (table(visit.now_us, &grouped(&due.waiting)))
                @if due.waiting_cut { p.mute { "There are more: only those with the latest launch times were read." } }
            }
        }
    }
}

fn table(now_us: i64, groups: &[Group<'_>]) -> Markup {
    html! {
        div.scroll role="group" aria-labelledby="h-waiting" tabindex="0" {
            table.wide {
                thead {
                    tr {
                        th scope="col" { "Schedule" }
                        th scope="col" { "Run, due" }
                        th.n scope="col" { "Events" }
                        th.opt scope="col" { "Behind it" }
                        th scope="col" { "Finish by" }
                    }
                }
                @for group in groups.iter().take(RUNS_MAX) { (rows(now_us, group)) }
            }
        }
        @if groups.len() > RUNS_MAX { p.mute { "And " (groups.len() - RUNS_MAX) " more reasons." } }
    }
}

fn rows(now_us: i64, group: &Group<'_>) -> Markup {
    let runs: u64 = group.runs.iter().map(|due_run| 1 + due_run.behind.0 as u64).sum();
    let events: u64 = group.runs.iter().map(|due_run| u64::from(due_run.run.events) + due_run.behind.1).sum();
    html! {
        tbody {
            tr.reason {
                th colspan="5" scope="rowgroup" {
                    @if group.policy.is_empty() { "Without a policy" } @else {
                        a href=(to(group.policy)) { (short(group.policy)) }
                    }
                    ": "
                    @if group.reason.is_empty() { "why was not asked" } @else { (group.reason) }
                    span.mute { " — " (counted(runs, "run")) ", " (counted(events, "event")) }
                }
            }
            @for due_run in group.runs.iter().take(OF_ONE_MAX) { (row(now_us, due_run)) }
            @if group.runs.len() > OF_ONE_MAX {
                tr { td.mute colspan="5" { "and " (counted((group.runs.len() - OF_ONE_MAX) as u64, "more schedule")) } }
            }
        }
    }
}

fn row(now_us: i64, due_run: &DueRun) -> Markup {
    html! {
        tr id={ "r-" (short(&due_run.run.name)) } {
            th scope="row" { a href=(to(&due_run.run.schedule)) { (short(&due_run.run.schedule)) } }
            td { a href=(to(&due_run.run.name)) { (moment(now_us, due_run.run.launch_time.as_ref())) } }
            td.n { (count(u64::from(due_run.run.events) + due_run.behind.1)) }
            td.opt { @if due_run.behind.0 > 0 { span.mute { (counted(due_run.behind.0 as u64, "later run")) } } }
            td { (deadline(now_us, due_run)) }
        }
    }
}

/// When a run must have started.
pub(crate) fn deadline(now_us: i64, due_run: &DueRun) -> Markup {
    html! {
        @if let Some(end_us) = due_run.deadline_us {
            (seen(now_us, end_us))
            @if due_run.at_risk { " " (tag("at risk", "bad")) }
        }
    }
}

/// What is said of runs that are left out.
pub(crate) fn cut(read: usize, more: bool) -> Markup {
    html! {
        @if read > RUNS_MAX {
            p.mute { "The " (RUNS_MAX) " that have been due longest of " (read) @if more { " that were read; there are more" } "." }
        } @else if more {
            p.mute { "There are more: only those with the latest launch times were read." }
        }
    }
}
