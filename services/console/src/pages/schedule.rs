//! One schedule: when it fires, how its runs went, and what can be done about it.

use axum::extract::{Path, Query};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_files::document;
use tollgate_proto::v1;
use tollgate_proto::v1::preview_schedule_request::Source;

use crate::parts::chain;
use crate::parts::chart::ranges;
use crate::parts::confirm::ask;
use crate::parts::copy;
use crate::parts::draft::What;
use crate::parts::meanwhile;
use crate::parts::past::{Past, latest, past, strip};
use crate::parts::shell::{Body, Section};
use crate::parts::targets;
use crate::requests::links::{to, workers};
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::range::{DAY, Range};
use crate::words::sentence::{follows_clocks, sentence, written};
use crate::words::show::{
    active, clock, counted, dated, duration, encode, events_said, exact, moment, seen, short, span, us,
};
use crate::words::zone::{Change, next_change};

/// How many runs and skipped triggers are read.
const PAST: i32 = 60;
/// How many index entries are read.
const CHILDREN: i32 = 100;
const HOUR_US: i64 = 3_600_000_000;

/// The schedule's id in a path.
#[derive(Deserialize)]
pub(crate) struct Id {
    id: String,
}

/// Of which time the past is shown; the latest runs, and charts of a day, where it is none that can be chosen.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    span: String,
}

/// The page.
pub(crate) async fn page(visit: Visit, Path(Id { id }): Path<Id>, Query(wanted): Query<Wanted>) -> Response {
    let body = Box::pin(body(&visit, &visit.full("schedules", &id), &wanted, None)).await;
    visit.respond(body)
}

/// The schedule, with what went wrong before.
pub(crate) async fn body(
    visit: &Visit,
    name: &str,
    wanted: &Wanted,
    problem: Option<Problem>,
) -> Result<Body, Problem> {
    let range = Range::named(&wanted.span);
    let schedule = visit.api.schedule(name).await?;
    let children = v1::ListScheduleChildrenRequest {
        parent: name.to_owned(),
        page_size: CHILDREN,
        page_token: String::new(),
    };
    let mut index = visit.api.master();
    let around = futures::future::join4(
        preview(visit, name, None, 10),
        around_change(visit, &schedule),
        targets::of_schedule(visit, &schedule),
        chain::read(visit, &schedule),
    );
    let parent = meanwhile::parent(visit, &schedule.policy);
    let stored = futures::future::join3(
        past_of(visit, name, range),
        index.list_schedule_children(children),
        visit.history(&parent, range.unwrap_or(DAY)),
    );
    let ((next, change, target, chain), (past, children, history)) =
        futures::future::join(Box::pin(around), Box::pin(stored)).await;
    let content = html! {
        p.crumb { a href=(visit.link("schedules")) { "Schedules" } }
        h1 { (short(name)) " " (active(schedule.pause.as_ref())) }
        p.lead {
            (events_said(&schedule)) " " (sentence(&schedule))
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
                    Ok(_) if schedule.triggers.is_empty() && !schedule.follows.is_empty() => {
                        p.mute { "None of its own: a run is launched when one before it in its chain has ended." }
                    }
                    Ok(_) if schedule.triggers.is_empty() => {
                        p.mute { "None: it is manual, and fires when it is triggered." }
                    }
                    Ok(next) if next.is_empty() => { p.mute { "Never again." } }
                    Ok(next) => { (fires(visit.now_us, next, None)) }
                    Err(problem) => { p.notice.bad { (problem.text()) } }
                }
            }
            @if let Some((change, around)) = &change {
                (clock_change(visit, &schedule, change, around))
            }
        }
        div #live data-refresh="5" {
            (strip(&past, range, ranges(&to(name), "h-past", range)))
            (latest(visit, &past))
            @if let Some(chain) = &chain { (chain::picture(chain)) }
            (target)
            p { a href={ (visit.link("runs")) "?schedule=" (encode(short(name))) } { "All runs of this schedule" } }
            (meanwhile::of_schedule(visit, &schedule.policy, range.unwrap_or(DAY), history.as_deref()))
        }
        (actions(&schedule))
        (facts(visit, &schedule))
        (copy::fold(&document(What::Schedule.kind(), &schedule)))
        @if let Ok(children) = children { (index_entries(&schedule, &children.into_inner().children)) }
    };
    Ok(Body { problem, ..Body::new(short(name), Section::Schedules, content) })
}

/// What became of its triggers: the latest ones, of a time where one is chosen.
async fn past_of(visit: &Visit, name: &str, range: Option<Range>) -> Vec<Past> {
    // Runs are emitted ahead, and those that are still to come are not its past.
    let mut filter = format!("schedule={} AND launch_time<={}", short(name), exact(visit.now_us));
    let from_us = range.map(|range| range.start_us(visit.now_us));
    if let Some(from_us) = from_us {
        filter.push_str(&format!(" AND launch_time>={}", exact(from_us)));
    }
    let skipped = v1::ListSkippedTriggersRequest {
        parent: name.to_owned(),
        page_size: PAST,
        page_token: String::new(),
    };
    let mut master = visit.api.master();
    let (runs, skipped) = futures::future::join(
        visit.api.runs(visit.parent(), &filter, PAST, ""),
        master.list_skipped_triggers(skipped),
    )
    .await;
    let mut skipped = skipped.map(|page| page.into_inner().skipped_triggers).unwrap_or_default();
    skipped.retain(|skipped| skipped.launch_time.as_ref().map(us) >= from_us);
    past(visit.now_us, &runs.map(|page| page.runs).unwrap_or_default(), &skipped)
}

fn clock_change(
    visit: &Visit,
    schedule: &v1::Schedule,
    change: &Change,
    around: &[v1::LaunchTime],
) -> Markup {
    html! {
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
    let is_delayed = launches.iter().any(|launch| launch.start_time.is_some());
    html! {
        div.scroll role="group" aria-label="Launch times" tabindex="0" { table.fires {
            thead {
                tr {
                    th scope="col" { "Local time" }
                    th scope="col" { "Offset" }
                    th.opt scope="col" { "UTC" }
                    @if is_delayed { th scope="col" { "Starts (UTC)" } }
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
                        @if is_delayed {
                            td.num { (launch.start_time.as_ref().map(|at| clock(self::us(at))).unwrap_or_default()) }
                        }
                        td { time datetime=(exact(us)) { (seen(now_us, us)) } }
                    }
                }
            }
        } }
    }
}

fn actions(schedule: &v1::Schedule) -> Markup {
    let path = to(&schedule.name);
    html! {
        section.actions aria-labelledby="h-actions" {
            h2 #h-actions { "Act" }
            form method="post" action=(path) {
                div {
                    label for="events" { "Events" }
                    input #events name="events" inputmode="numeric" autocomplete="off" size="8"
                        disabled[schedule.items_from.is_some()]
                        placeholder=(schedule.events.unwrap_or(1));
                }
                div {
                    label for="launch_time" { "Launch time" }
                    input #launch_time name="launch_time" autocomplete="off" size="22" placeholder="now";
                }
                div {
                    label for="run_priority" { "Priority" }
                    input #run_priority name="priority" inputmode="numeric" autocomplete="off" size="4"
                        placeholder=(schedule.priority.unwrap_or(5));
                }
                div {
                    label for="run_payload" { "Payload over the schedule's" }
                    input #run_payload name="payload" autocomplete="off" size="30" spellcheck="false"
                        placeholder="{\"dataset\": \"customers\"}";
                }
                button type="submit" name="action" value="trigger" { "Trigger…" }
                p.hint { "Makes a run outside of its timing: now, or at a time within a day; under its policy as any other." }
            }
            div.row {
                @if schedule.pause.is_some() { (ask(&path, "resume", "Resume", false)) }
                @else { (ask(&path, "pause", "Pause", true)) }
                a.button href={ (path) "/edit" } { "Edit this schedule" }
                a.button href={ (path) "/submit" } { "Submit a list…" }
                @if !schedule.triggers.is_empty() { a.button href={ (path) "/backfill" } { "Backfill…" } }
                (ask(&path, "retry", "Try dead events again", false))
                (ask(&path, "delete", "Delete", true))
            }
        }
    }
}

/// How the emitter finds it.
fn index_entries(schedule: &v1::Schedule, children: &[v1::ScheduleChild]) -> Markup {
    let all = counted(schedule.children_count, "entry").replace("entrys", "entries");
    html! {
        section {
            details.action #children {
                summary { "Internals: how the emitter finds it" }
                p.mute {
                    "By " (all) " of the launch index, its children, of class " (schedule.launch_classes.join(", ")) "."
                }
                div.scroll role="group" aria-label="Children" tabindex="0" {
                    table.fires {
                        thead {
                            tr {
                                th scope="col" { "Class" }
                                th scope="col" { "Launch expression" }
                                th.n scope="col" { "Slot" }
                                th scope="col" { "Time zone" }
                                th scope="col" { "Rule" }
                            }
                        }
                        tbody {
                            @for child in children {
                                tr {
                                    td { (child.launch_class) }
                                    td { code { (child.launch_expression) } }
                                    td.n { (child.slot) }
                                    td { (child.time_zone) }
                                    td { code { (child.rule) } }
                                }
                            }
                        }
                    }
                }
                @if schedule.children_count as usize > children.len() {
                    p.mute { "The first " (children.len()) " of " (all) "." }
                }
            }
        }
    }
}

fn goes_to(visit: &Visit, target: Option<&v1::target::Target>) -> Markup {
    html! {
        @match target {
            Some(v1::target::Target::Http(http)) => { code { "POST " (http.url) } }
            Some(v1::target::Target::Sqs(sqs)) => { code { (sqs.queue_url) } }
            Some(v1::target::Target::Kafka(kafka)) => { code { (kafka.shown()) } }
            Some(v1::target::Target::Pull(pull)) => {
                "workers that take events of " a href=(workers(&visit.ns, &pull.queue)) { (pull.queue) }
                @if !pull.requires.is_empty() { ", with " code { (pull.requires.join(", ")) } }
            }
            None => { "nowhere" }
        }
    }
}

fn facts(visit: &Visit, schedule: &v1::Schedule) -> Markup {
    let target = schedule.target.as_ref().and_then(|target| target.target.as_ref());
    let list = schedule.items_from.as_ref().and_then(|from| from.source.as_ref());
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
                (tokens(schedule))
                dt { "Priority" } dd { (schedule.priority.unwrap_or(5)) " of 0 to 9" }
                dt { "Goes to" }
                dd {
                    (goes_to(visit, target))
                }
                @if let Some(v1::items_from::Source::Http(list)) = list {
                    dt { "Its items come from" }
                    dd { code { "GET " (list.url) } ", fetched ahead of each run" }
                }
                @if !schedule.items.is_empty() {
                    dt { "Each event has its own" }
                    dd { "item of a list of " (schedule.items.len()) ", " a href={ (to(&schedule.name)) "/edit" } { "to look at" } }
                }
                dt { "Time zone" } dd { (if schedule.time_zone.is_empty() { "UTC" } else { &schedule.time_zone }) }
                @if let Some(by) = &schedule.finish_by { dt { "Must start within" } dd { (duration(Some(by))) } }
                @if let Some(spread) = &schedule.spread { dt { "Spread over" } dd { (duration(Some(spread))) } }
                (excluded(schedule))
                @if let Some(percent) = schedule.start_within_percent {
                    dt { "Starts within" }
                    dd { (percent) " % of its interval: " (duration(schedule.start_delay.as_ref())) " after each launch time" }
                }
                @if let Some(within) = &schedule.start_within {
                    dt { "Starts within" }
                    dd { (duration(Some(within))) ": " (duration(schedule.start_delay.as_ref())) " after each launch time" }
                }
                dt { "Attempts" }
                dd { "up to " (retry.max_attempts.unwrap_or(20)) ", after "
                    (duration(retry.min_backoff.as_ref())) " to " (duration(retry.max_backoff.as_ref())) }
                dt { "If a run is unfinished" } dd { (overlap) }
                @if let Some(rest) = &schedule.delay_after_finish { dt { "Rests after each run" } dd { (duration(Some(rest))) } }
                dt { "Missed in an outage" } dd { (catch_up) }
                @if schedule.when_done() == v1::WhenDone::Delete {
                    dt { "Once it never fires again" }
                    dd { "it is deleted, after " (duration(schedule.delete_after.as_ref())) }
                }
                @for (key, value) in &schedule.labels { dt { "Label " (key) } dd { (value) } }
                dt { "Changed" } dd { (dated(visit.now_us, schedule.update_time.as_ref()))
                    " · " a href={ (visit.link("audit")) "?resource=" (encode(&schedule.name)) } { "history" } }
            }
        }
    }
}

/// How many tokens each of its events takes, where that is not one.
fn tokens(schedule: &v1::Schedule) -> Markup {
    html! {
        @if let Some(units) = schedule.units.filter(|units| *units > 1) {
            dt { "Tokens of an event" } dd { (units) ", unless its item says otherwise" }
        }
    }
}

/// On which dates it does not fire.
fn excluded(schedule: &v1::Schedule) -> Markup {
    html! {
        @if !schedule.exclude.is_empty() { dt { "Not on" } dd { (schedule.exclude.join(", ")) } }
        @if !schedule.exclude_calendars.is_empty() {
            dt { "Not on the dates of" }
            dd { @for calendar in &schedule.exclude_calendars { a href=(to(calendar)) { (short(calendar)) } " " } }
        }
    }
}
