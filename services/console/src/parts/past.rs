//! A schedule's past: what became of each trigger, how late it started and how long it took.

use maud::{Markup, html};
use prost_types::Timestamp;
use tollgate_proto::v1;

use crate::requests::links::to;
use crate::requests::visit::Visit;
use crate::words::range::Range;
use crate::words::show::{clock, count, dated, lateness, skip_reason, span_us, tag, us};

/// How many triggers the strip shows.
const BARS: usize = 60;
/// How many of them the table shows.
const ROWS: usize = 15;
/// A run that starts later than this after its launch time is late, in microseconds.
const LATE_US: i64 = 60_000_000;

/// A trigger that has come: what became of it.
pub(crate) struct Past {
    launch_us: i64,
    run: Option<v1::Run>,
    word: String,
    class: &'static str,
    /// From its first start to its end, or to now.
    took_us: Option<i64>,
}

/// Runs and skipped triggers that have come, earliest first.
pub(crate) fn past(now_us: i64, runs: &[v1::Run], skipped: &[v1::SkippedTrigger]) -> Vec<Past> {
    let at = |time: &Option<Timestamp>| time.as_ref().map(us);
    let mut all: Vec<Past> = Vec::new();
    for run in runs {
        let Some(launch_us) = at(&run.launch_time).filter(|launch| *launch <= now_us) else { continue };
        let (start, finish) = (at(&run.start_time), at(&run.finish_time));
        let took_us = start.map(|start| finish.unwrap_or(now_us) - start);
        let (word, class) = verdict(run, launch_us, start);
        all.push(Past { launch_us, run: Some(run.clone()), word: word.to_owned(), class, took_us });
    }
    for trigger in skipped {
        let Some(launch_us) = at(&trigger.launch_time) else { continue };
        let word = format!("no run: {}", skip_reason(trigger.reason()));
        let class = if matches!(trigger.reason(), v1::SkipReason::Missed | v1::SkipReason::NotListed) {
            "bad"
        } else {
            "warn"
        };
        all.push(Past { launch_us, run: None, word, class, took_us: None });
    }
    all.sort_by_key(|past| past.launch_us);
    let surplus = all.len().saturating_sub(BARS);
    all.split_off(surplus)
}

fn verdict(run: &v1::Run, launch_us: i64, start_us: Option<i64>) -> (&'static str, &'static str) {
    let counts = run.counts.unwrap_or_default();
    match run.state() {
        v1::RunState::Cancelled => ("cancelled", "warn"),
        v1::RunState::Skipped => ("skipped", "warn"),
        v1::RunState::Unreadable => ("unreadable", "bad"),
        v1::RunState::Running => ("running", "go"),
        v1::RunState::Listing if !run.reason.is_empty() => ("its list cannot be fetched", "bad"),
        v1::RunState::Listing => ("waits for its list", "mute"),
        v1::RunState::FinishedWithFailures if counts.dead + counts.lost + counts.failed > 0 => {
            ("finished with failures", "bad")
        }
        v1::RunState::FinishedWithFailures => ("done, some expired", "bad"),
        v1::RunState::Finished if start_us.is_some_and(|start| start - launch_us > LATE_US) => {
            ("done, late", "warn")
        }
        v1::RunState::Finished => ("done", "ok"),
        _ => ("waiting", "mute"),
    }
}

/// One bar for each trigger, as high as it took long; `ranges` chooses the time.
pub(crate) fn strip(past: &[Past], range: Option<Range>, ranges: Markup) -> Markup {
    let longest = past.iter().filter_map(|past| past.took_us).max().unwrap_or(1).max(1);
    let width = past.len().max(30) * 12;
    html! {
        section aria-labelledby="h-past" {
            div.title {
                h2 #h-past { "Past runs" @if let Some(range) = range { " of the last " (range.words) } }
                (ranges)
            }
            @if past.is_empty() {
                p.mute { @if range.is_some() { "It did not fire in this time." } @else { "It has not fired yet." } }
            } @else {
                @if past.len() >= BARS { p.mute { "The latest " (BARS) "." } }
                svg.strip viewBox={ "0 0 " (width) " 64" } role="group" aria-labelledby="h-past" {
                    @for (at, past) in past.iter().enumerate() {
                        @let height = past.took_us.map_or(6, |took| (took * 56 / longest).clamp(6, 56));
                        @let words = format!(
                            "{} UTC: {}{}", clock(past.launch_us), past.word,
                            past.took_us.map(|took| format!(", {}", span_us(took))).unwrap_or_default(),
                        );
                        @match &past.run {
                            Some(run) => {
                                a href=(to(&run.name)) aria-label=(words) {
                                    rect class=(past.class) x=(at * 12 + 1) y=(60 - height) width="10" height=(height) rx="1" {
                                        title { (words) }
                                    }
                                }
                            }
                            None => {
                                rect.hollow class=(past.class) x=(at * 12 + 2) y="53" width="8" height="6" rx="1" {
                                    title { (words) }
                                }
                            }
                        }
                    }
                    @if let Some(usual) = usual(past) {
                        @let y = 60 - (usual * 56 / longest).clamp(6, 56);
                        line.usual x1="0" x2=(width) y1=(y) y2=(y) {}
                    }
                }
                p.legend {
                    "Earliest left; the height is how long it took, at most " (span_us(longest))
                    @if let Some(usual) = usual(past) { "; the line is at half of them, " (span_us(usual)) } ". "
                    span.key.ok { "done" } " " span.key.go { "running" } " " span.key.warn { "late, cancelled or skipped" } " "
                    span.key.bad { "not all well, or missed" }
                }
                @if let Some(line) = compared(past) { p.mute { (line) } }
            }
        }
    }
}

/// Whether it has come to its own end, well or not.
fn is_finished(run: &v1::Run) -> bool {
    matches!(run.state(), v1::RunState::Finished | v1::RunState::FinishedWithFailures)
}

/// How long half of the finished runs took at most, where there are enough of them.
fn usual(past: &[Past]) -> Option<i64> {
    let finished = |past: &&Past| past.run.as_ref().is_some_and(is_finished);
    let mut took: Vec<i64> = past.iter().filter(finished).filter_map(|past| past.took_us).collect();
    took.sort_unstable();
    (took.len() > 3).then(|| took[took.len() / 2])
}

/// How long the latest finished run took, beside those before it.
fn compared(past: &[Past]) -> Option<String> {
    let finished = |past: &&Past| past.run.as_ref().is_some_and(is_finished);
    let mut took: Vec<i64> = past.iter().filter(finished).filter_map(|past| past.took_us).collect();
    let last = took.pop()?;
    if took.len() < 3 {
        return None;
    }
    took.sort_unstable();
    let median = took[took.len() / 2];
    let than = match (last * 10, median * 10) {
        (last, median) if last > median * 3 / 2 => ", longer than usual",
        (last, median) if last * 3 / 2 < median => ", shorter than usual",
        _ => "",
    };
    Some(format!(
        "The latest took {}{than}; half of the {} before it took at most {}.",
        span_us(last),
        took.len(),
        span_us(median)
    ))
}

pub(crate) fn latest(visit: &Visit, past: &[Past]) -> Markup {
    html! {
        @if !past.is_empty() {
            div.scroll role="group" aria-label="Latest runs" tabindex="0" {
                table.wide {
                    thead {
                        tr {
                            th scope="col" { "Due" }
                            th scope="col" { "What became of it" }
                            th.n scope="col" { "Started after" }
                            th.n scope="col" { "Took" }
                            th.n scope="col" { "Events" }
                            th.n.opt scope="col" { "Well" }
                            th.n.opt scope="col" { "Not well" }
                        }
                    }
                    tbody { @for past in past.iter().rev().take(ROWS) { (past_row(visit, past)) } }
                }
            }
        }
    }
}

fn past_row(visit: &Visit, past: &Past) -> Markup {
    let at = tollgate_proto::convert::timestamp(past.launch_us);
    let counts = past.run.as_ref().and_then(|run| run.counts).unwrap_or_default();
    let bad = counts.failed + counts.dead + counts.expired + counts.cancelled + counts.lost;
    html! {
        tr {
            th scope="row" {
                @match &past.run {
                    Some(run) => { a href=(to(&run.name)) { (dated(visit.now_us, Some(&at))) } }
                    None => { (dated(visit.now_us, Some(&at))) }
                }
            }
            td { (tag(&past.word, past.class)) }
            td.n {
                @if let Some(start) = past.run.as_ref().and_then(|run| run.start_time.as_ref()) {
                    (lateness(past.launch_us, us(start)))
                }
            }
            td.n { @if let Some(took) = past.took_us { (span_us(took)) } }
            td.n { @if let Some(run) = &past.run { (count(run.events)) } }
            td.n.opt { @if past.run.is_some() { (count(counts.succeeded)) } }
            td.n.opt { @if bad > 0 { span.bad { (count(bad)) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(launch_s: i64, start_s: i64, state: v1::RunState) -> v1::Run {
        let at = |seconds: i64| Some(Timestamp { seconds, nanos: 0 });
        v1::Run {
            launch_time: at(launch_s),
            start_time: at(start_s),
            finish_time: at(start_s + 10),
            state: state.into(),
            ..v1::Run::default()
        }
    }

    #[test]
    fn the_past_is_judged_and_in_order() {
        let missed = v1::SkippedTrigger {
            launch_time: Some(Timestamp { seconds: 50, nanos: 0 }),
            reason: v1::SkipReason::Missed.into(),
            ..v1::SkippedTrigger::default()
        };
        let runs = [
            run(2_000, 2_000, v1::RunState::Waiting),
            run(100, 100, v1::RunState::Finished),
            run(0, 61, v1::RunState::Finished),
        ];
        let past = past(1_000_000_000, &runs, &[missed]);
        let words: Vec<&str> = past.iter().map(|past| past.word.as_str()).collect();
        assert_eq!(words, ["done, late", "no run: missed in an outage", "done"]);
        assert_eq!(past[2].took_us, Some(10_000_000));
    }

    #[test]
    fn the_latest_run_is_compared_with_those_before() {
        let runs: Vec<v1::Run> = (0..5).map(|n| run(n * 100, n * 100, v1::RunState::Finished)).collect();
        let mut all = past(i64::MAX, &runs, &[]);
        assert_eq!(
            compared(&all).as_deref(),
            Some("The latest took 10s; half of the 4 before it took at most 10s.")
        );
        all[4].took_us = Some(20_000_000);
        assert!(compared(&all).is_some_and(|line| line.contains("20s, longer than usual")));
        assert_eq!(compared(&all[..2]), None);
    }
}
