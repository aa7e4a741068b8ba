//! One schedule: when it fires, how its runs went, and what can be done about it.

use axum::extract::{Form, Path};
use axum::response::Response;
use maud::{Markup, html};
use prost_types::Timestamp;
use serde::Deserialize;
use tollgate_proto::v1;
use tollgate_proto::v1::preview_schedule_request::Source;

use crate::now::lateness;
use crate::problem::Problem;
use crate::sentence::{follows_clocks, sentence, written};
use crate::shell::Section;
use crate::show::{
    active, clock, count, counted, dated, duration, encode, exact, moment, seen, short, skip_reason, span,
    span_us, tag, us,
};
use crate::visit::{Body, Visit, to};
use crate::zone::{Change, next_change};

/// So many runs and skipped triggers are read for the strip.
const PAST: i32 = 60;
/// So many of them are in the table.
const ROWS: usize = 15;
/// A run that starts later than this after its launch time is late, in microseconds.
const LATE_US: i64 = 60_000_000;
const HOUR_US: i64 = 3_600_000_000;

/// The schedule's id in a path.
#[derive(Deserialize)]
pub(crate) struct Id {
    id: String,
}

/// The page.
pub(crate) async fn page(visit: Visit, Path(Id { id }): Path<Id>) -> Response {
    let body = Box::pin(body(&visit, &visit.full("schedules", &id), None)).await;
    visit.respond(body)
}

/// What a form of this page says.
#[derive(Deserialize)]
pub(crate) struct Order {
    action: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    events: String,
}

/// Triggers, pauses or resumes it.
pub(crate) async fn act(visit: Visit, Path(Id { id }): Path<Id>, Form(order): Form<Order>) -> Response {
    let name = visit.full("schedules", &id);
    match carry_out(&visit, &name, order).await {
        Ok((path, done)) => visit.after(&path, done),
        Err(problem) => {
            let body = Box::pin(body(&visit, &name, Some(problem))).await;
            visit.respond(body)
        }
    }
}

async fn carry_out(visit: &Visit, name: &str, order: Order) -> Result<(String, &'static str), Problem> {
    let mut master = visit.api.master();
    let (path, name) = (to(name), name.to_owned());
    match order.action.as_str() {
        "trigger" => {
            let events = match order.events.trim() {
                "" => None,
                text => Some(text.parse().map_err(|_| {
                    Problem::invalid("events", text, "a whole number from 1 to 10,000,000, or nothing")
                })?),
            };
            let run =
                master.trigger_schedule(v1::TriggerScheduleRequest { name, events }).await?.into_inner();
            Ok((to(&run.name), "triggered"))
        }
        "pause" => {
            master.pause_schedule(v1::PauseScheduleRequest { name, reason: order.reason }).await?;
            Ok((path, "paused"))
        }
        "resume" => {
            master.resume_schedule(v1::ResumeScheduleRequest { name }).await?;
            Ok((path, "resumed"))
        }
        other => Err(Problem::invalid("action", other, "trigger, pause or resume")),
    }
}

async fn body(visit: &Visit, name: &str, problem: Option<Problem>) -> Result<Body, Problem> {
    let schedule = visit.api.schedule(name).await?;
    let skipped = v1::ListSkippedTriggersRequest {
        parent: name.to_owned(),
        page_size: PAST,
        page_token: String::new(),
    };
    let mut master = visit.api.master();
    let filter = format!("schedule={}", short(name));
    let (next, change, runs, skipped) = futures::future::join4(
        preview(visit, name, None, 10),
        around_change(visit, &schedule),
        visit.api.runs(visit.parent(), &filter, PAST, ""),
        master.list_skipped_triggers(skipped),
    )
    .await;
    let past = past(
        visit.now_us,
        &runs.map(|page| page.runs).unwrap_or_default(),
        &skipped.map(|page| page.into_inner().skipped_triggers).unwrap_or_default(),
    );
    let content = html! {
        p.crumb { a href=(visit.link("schedules")) { "Schedules" } }
        h1 { (short(name)) " " (active(schedule.pause.as_ref())) }
        p.lead {
            (counted(schedule.events.unwrap_or(1), "event")) " " (sentence(&schedule))
            @for text in written(&schedule) { " " code { (text) } }
        }
        @if !schedule.description.is_empty() { p { (schedule.description) } }
        @if let Some(pause) = &schedule.pause {
            p.notice.warn { strong { "Paused" } " by " (pause.actor) ", " (moment(visit.now_us, pause.since.as_ref()))
                @if !pause.reason.is_empty() { ": " (pause.reason) }
                ". Triggers that fall due are recorded as skipped, and nothing that waits starts." }
        }
        div.columns {
            section aria-labelledby="h-next" {
                h2 #h-next { "Next fires" }
                @match &next {
                    Ok(next) if next.is_empty() => { p.mute { "Never again." } }
                    Ok(next) => { (fires(visit.now_us, next, None)) }
                    Err(problem) => { p.notice.bad { (problem.text()) } }
                }
            }
            @if let Some((change, around)) = &change {
                section aria-labelledby="h-change" {
                    h2 #h-change { "Around the next clock change" }
                    p {
                        "The clocks in " (schedule.time_zone) " go "
                        @if change.by_s > 0 { "forward" } @else { "back" }
                        " by " (span(u64::from(change.by_s.unsigned_abs()) * 1_000)) " "
                        (seen(visit.now_us, change.at_s * 1_000_000))
                        ", at " span.num { (clock(change.at_s * 1_000_000)) } " UTC."
                    }
                    (fires(visit.now_us, around, Some(change)))
                }
            }
        }
        div #live data-refresh="5" {
            (strip(visit, &past))
            (latest(visit, &past))
        }
        p { a href={ (visit.link("runs")) "?schedule=" (encode(short(name))) } { "All runs of this schedule" } }
        (actions(visit, &schedule))
        (facts(visit, &schedule))
    };
    Ok(Body { problem, ..Body::new(short(name), Section::Schedules, content) })
}

async fn preview(
    visit: &Visit,
    name: &str,
    from_us: Option<i64>,
    count: i32,
) -> Result<Vec<v1::LaunchTime>, Problem> {
    let from_time = from_us.map(tollgate_proto::convert::timestamp);
    let request =
        v1::PreviewScheduleRequest { source: Some(Source::Name(name.to_owned())), from_time, count };
    Ok(visit.api.master().preview_schedule(request).await?.into_inner().launch_times)
}

/// The next change of its zone's clocks, and a few fires before and after it; none where clocks do not matter.
async fn around_change(visit: &Visit, schedule: &v1::Schedule) -> Option<(Change, Vec<v1::LaunchTime>)> {
    if !follows_clocks(schedule) {
        return None;
    }
    let change = next_change(&schedule.time_zone, visit.now_us.div_euclid(1_000_000))?;
    let at_us = change.at_s * 1_000_000;
    // Over a weekend, too, something lies before it.
    let mut coarse = preview(visit, &schedule.name, Some(at_us - 100 * HOUR_US), 10).await.ok()?;
    let (Some(first), Some(last)) = (launch_us(coarse.first()), launch_us(coarse.last())) else {
        return Some((change, coarse));
    };
    if last > at_us {
        let before =
            coarse.iter().filter(|launch| launch_us(Some(launch)).is_some_and(|us| us < at_us)).count();
        coarse.drain(..before.saturating_sub(4));
        coarse.truncate(8);
        return Some((change, coarse));
    }
    // It fires more often: begin so near that the change lies in the middle.
    let apart_us = (last - first) / 9;
    let near = preview(visit, &schedule.name, Some(at_us - apart_us * 7 / 2), 8).await.ok()?;
    Some((change, near))
}

fn launch_us(launch: Option<&v1::LaunchTime>) -> Option<i64> {
    launch.and_then(|launch| launch.time.as_ref()).map(us)
}

fn fires(now_us: i64, launches: &[v1::LaunchTime], change: Option<&Change>) -> Markup {
    let change_us = change.map(|change| change.at_s * 1_000_000);
    let first_after = change_us.and_then(|change_us| {
        launches.iter().position(|launch| launch_us(Some(launch)).is_some_and(|at| at >= change_us))
    });
    html! {
        div.scroll role="group" aria-label="Launch times" tabindex="0" { table.fires {
            thead {
                tr {
                    th scope="col" { "Local time" }
                    th scope="col" { "Offset" }
                    th.opt scope="col" { "UTC" }
                    th scope="col" { "From now" }
                }
            }
            tbody {
                @for (at, launch) in launches.iter().enumerate() {
                    @let us = launch_us(Some(launch)).unwrap_or_default();
                    tr.after[first_after == Some(at)] {
                        td.num { (launch.local_time) }
                        td.num { (launch.utc_offset) }
                        td.num.opt { (clock(us)) }
                        td { time datetime=(exact(us)) { (seen(now_us, us)) } }
                    }
                }
            }
        } }
    }
}

/// A trigger that has come: what became of it.
struct Past {
    launch_us: i64,
    run: Option<v1::Run>,
    word: String,
    class: &'static str,
    /// From its first start to its end, or to now.
    took_us: Option<i64>,
}

/// Runs and skipped triggers that have come, earliest first.
fn past(now_us: i64, runs: &[v1::Run], skipped: &[v1::SkippedTrigger]) -> Vec<Past> {
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
        let class = if trigger.reason() == v1::SkipReason::Missed { "bad" } else { "warn" };
        all.push(Past { launch_us, run: None, word, class, took_us: None });
    }
    all.sort_by_key(|past| past.launch_us);
    let surplus = all.len().saturating_sub(usize::try_from(PAST).unwrap_or_default());
    all.split_off(surplus)
}

fn verdict(run: &v1::Run, launch_us: i64, start_us: Option<i64>) -> (&'static str, &'static str) {
    let counts = run.counts.unwrap_or_default();
    match run.state() {
        v1::RunState::Cancelled => ("cancelled", "warn"),
        v1::RunState::Skipped => ("skipped", "warn"),
        v1::RunState::Running => ("running", "go"),
        v1::RunState::Finished if counts.dead + counts.lost + counts.failed > 0 => {
            ("done, not all well", "bad")
        }
        v1::RunState::Finished if counts.expired > 0 => ("done, some expired", "bad"),
        v1::RunState::Finished if start_us.is_some_and(|start| start - launch_us > LATE_US) => {
            ("done, late", "warn")
        }
        v1::RunState::Finished => ("done", "ok"),
        _ => ("waiting", "mute"),
    }
}

/// One bar for each trigger, as high as it took long.
fn strip(visit: &Visit, past: &[Past]) -> Markup {
    let longest = past.iter().filter_map(|past| past.took_us).max().unwrap_or(1).max(1);
    let width = past.len().max(30) * 12;
    html! {
        section aria-labelledby="h-past" {
            h2 #h-past { "Past runs" }
            @if past.is_empty() {
                p.mute { "It has not fired yet." }
            } @else {
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
                }
                p.legend {
                    "Earliest left; the height is how long it took, at most " (span_us(longest)) ". "
                    span.key.ok { "done" } " " span.key.go { "running" } " " span.key.warn { "late, cancelled or skipped" } " "
                    span.key.bad { "not all well, or missed" }
                }
                @if let Some(line) = compared(past) { p.mute { (line) } }
            }
            p.hidden { "As of " (clock(visit.now_us)) }
        }
    }
}

/// How long the latest finished run took, beside those before it.
fn compared(past: &[Past]) -> Option<String> {
    let finished = |past: &&Past| past.run.as_ref().is_some_and(|run| run.state() == v1::RunState::Finished);
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

fn latest(visit: &Visit, past: &[Past]) -> Markup {
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

fn actions(visit: &Visit, schedule: &v1::Schedule) -> Markup {
    let path = to(&schedule.name);
    html! {
        section.actions aria-labelledby="h-actions" {
            h2 #h-actions { "Act" }
            form method="post" action=(path) {
                div {
                    label for="events" { "Events" }
                    input #events name="events" inputmode="numeric" autocomplete="off" size="8"
                        placeholder=(schedule.events.unwrap_or(1));
                }
                button type="submit" name="action" value="trigger" { "Trigger now" }
                p.hint { "Makes a run now, whatever its timing says; under its policy as any other." }
            }
            form method="post" action=(path) {
                @if schedule.pause.is_some() {
                    button type="submit" name="action" value="resume" { "Resume" }
                    p.hint { "It fires again as its timing says. What was skipped stays skipped." }
                } @else {
                    div.grow {
                        label for="reason" { "Reason, for the next operator" }
                        input #reason name="reason" maxlength="1000" autocomplete="off";
                    }
                    button.danger type="submit" name="action" value="pause" { "Pause" }
                    p.hint { "Triggers that fall due are skipped, and nothing that waits starts." }
                }
            }
        }
        p.mute { "It will stand in the audit log as done by " (visit.actor) ". " a href=(visit.link("you")) { "Another name" } }
    }
}

fn facts(visit: &Visit, schedule: &v1::Schedule) -> Markup {
    let target = schedule.target.as_ref().and_then(|target| target.target.as_ref());
    let retry = schedule.retry.unwrap_or_default();
    let overlap = match schedule.overlap() {
        v1::Overlap::Skip => "the new run is skipped",
        v1::Overlap::BufferOne => "the new run waits for the old one; further ones are skipped",
        v1::Overlap::CancelOther => "what the old run has not started is cancelled",
        _ => "both run",
    };
    let catch_up = match schedule.catch_up.map(|rule| rule.mode()).unwrap_or_default() {
        v1::CatchUpMode::None => "none runs",
        v1::CatchUpMode::All => "each runs, back to the horizon",
        _ => "the latest runs",
    };
    html! {
        section aria-labelledby="h-facts" {
            h2 #h-facts { "Settings" }
            dl.facts {
                dt { "Policy" }
                dd {
                    @if schedule.policy.is_empty() { "none: nothing limits it" }
                    @else { a href=(to(&schedule.policy)) { (short(&schedule.policy)) } }
                }
                dt { "Priority" } dd { (schedule.priority.unwrap_or(5)) " of 0 to 9" }
                dt { "Goes to" }
                dd {
                    @match target {
                        Some(v1::target::Target::Http(http)) => { code { "POST " (http.url) } }
                        Some(v1::target::Target::Sqs(sqs)) => { code { (sqs.queue_url) } }
                        None => { "nowhere" }
                    }
                }
                dt { "Time zone" } dd { (if schedule.time_zone.is_empty() { "UTC" } else { &schedule.time_zone }) }
                @if let Some(by) = &schedule.finish_by { dt { "Must start within" } dd { (duration(Some(by))) } }
                @if let Some(spread) = &schedule.spread { dt { "Spread over" } dd { (duration(Some(spread))) } }
                dt { "Attempts" }
                dd { "up to " (retry.max_attempts.unwrap_or(20)) ", after "
                    (duration(retry.min_backoff.as_ref())) " to " (duration(retry.max_backoff.as_ref())) }
                dt { "If a run is unfinished" } dd { (overlap) }
                dt { "Missed in an outage" } dd { (catch_up) }
                @for (key, value) in &schedule.labels { dt { "Label " (key) } dd { (value) } }
                dt { "Index" }
                dd { (counted(schedule.children_count, "entry").replace("entrys", "entries")) " of class "
                    (schedule.launch_classes.join(", ")) }
                dt { "Changed" } dd { (dated(visit.now_us, schedule.update_time.as_ref()))
                    " · " a href={ (visit.link("audit")) "?resource=" (encode(&schedule.name)) } { "history" } }
            }
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
