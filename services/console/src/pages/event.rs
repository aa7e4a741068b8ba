//! One event: when what happened to it, why it is where it is, and freeing its token.

use axum::extract::{Form, Path};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::parts::release::{outcome_field, release};
use crate::parts::shell::{Body, Section};
use crate::parts::timeline::{TimelineStep, timeline};
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{
    clipped, counted, duration, event_state, exact, fine, reason_code, seen, short, shortened, tag, us,
};

/// How much of an item is shown, in characters.
const ITEM_CHARS: usize = 2_000;
/// How many of the latest attempts that were not taken the timeline shows.
const IN_TIMELINE: usize = 5;
/// How many of the latest attempts the table shows.
const IN_TABLE: usize = 25;

/// The event's id in a path.
#[derive(Deserialize)]
pub(crate) struct Id {
    id: String,
}

/// The page.
pub(crate) async fn page(visit: Visit, Path(Id { id }): Path<Id>) -> Response {
    let body = body(&visit, &visit.full("events", &id), None).await;
    visit.respond(body)
}

/// What the form of this page says.
#[derive(Deserialize)]
pub(crate) struct Order {
    #[serde(default)]
    outcome: String,
    #[serde(default)]
    reason: String,
}

/// Frees its token.
pub(crate) async fn act(visit: Visit, Path(Id { id }): Path<Id>, Form(order): Form<Order>) -> Response {
    let name = visit.full("events", &id);
    match release(&visit, &name, &order.outcome, &order.reason).await {
        Ok(done) => visit.after(&to(&name), done),
        Err(problem) => {
            let body = body(&visit, &name, Some(problem)).await;
            visit.respond(body)
        }
    }
}

/// An event's name without the token at its end, `<shard>-<run>-<index>`.
async fn body(visit: &Visit, name: &str, problem: Option<Problem>) -> Result<Body, Problem> {
    let why = visit.api.explain(name).await?;
    let event = why.event.clone().unwrap_or_default();
    let request = v1::GetRunRequest { name: event.run.clone() };
    let run = visit.api.handler().get_run(request).await.map(tonic::Response::into_inner).ok();
    let holds =
        matches!(event.state(), v1::EventState::Acquired | v1::EventState::Held | v1::EventState::Suspect);
    let open = event.finish_time.is_none();
    let content = html! {
        p.crumb {
            a href=(to(&event.schedule)) { (short(&event.schedule)) } " · "
            a href=(to(&event.run)) { "its run" } ", event " (event.index)
        }
        h1 { "Event " (clipped(&event.event_id)) " " (event_state(event.state())) }
        p.id { code { (event.event_id) } }
        div #live data-refresh=[open.then_some("3")] {
            (reasons(&why, open))
            (load(&event))
            (timeline(visit.now_us, &steps(visit.now_us, &why, run.as_ref())))
            (attempts(visit.now_us, &why))
            (holders(visit.now_us, &why))
        }
        @if holds { (free(visit, &event)) }
    };
    Ok(Body { problem, ..Body::new(format!("Event {}", event.event_id), Section::Runs, content) })
}

fn reasons(why: &v1::Explanation, open: bool) -> Markup {
    html! {
        section aria-labelledby="h-why" {
            h2 #h-why { @if open { "Why it is where it is" } @else { "How it ended" } }
            p.lead { (why.summary) }
            @if open {
                ul {
                    @for reason in &why.reasons {
                        li { (reason.message) " " span.mute { "(" (reason_code(reason.code())) ")" } }
                    }
                    @match why.place_in_line {
                        0 => { li { "It is next in line." } }
                        1 => { li { "1 event starts before it." } }
                        ahead @ 2.. => { li { (counted(ahead.unsigned_abs(), "event")) " start before it." } }
                        _ => {}
                    }
                }
                @if !why.freed_by.is_empty() { p { strong { "What would let it go on: " } (why.freed_by) } }
            }
        }
    }
}

/// Whose it is, how many tokens it takes, what it carries.
fn load(event: &v1::Event) -> Markup {
    html! {
        @if !event.key.is_empty() || event.units > 1 || !event.data.is_empty() || !event.result.is_empty() {
            dl.facts #load {
                @if !event.key.is_empty() { dt { "Key" } dd { (event.key) } }
                @if event.units > 1 { dt { "Tokens" } dd { (event.units) } }
                @if !event.data.is_empty() { dt { "Item" } dd { code { (shortened(&event.data, ITEM_CHARS)) } } }
                @if !event.result.is_empty() {
                    dt { "Result" } dd { code { (shortened(&event.result, ITEM_CHARS)) } }
                }
            }
        }
    }
}

fn steps(now_us: i64, why: &v1::Explanation, run: Option<&v1::Run>) -> Vec<TimelineStep> {
    let event = &why.event.clone().unwrap_or_default();
    let at = |label: &'static str, time: Option<&prost_types::Timestamp>, note: &str| {
        time.map(|time| TimelineStep { label, at_us: us(time), note: note.to_owned() })
    };
    let held = match event.state() {
        v1::EventState::Succeeded => "token released: done",
        v1::EventState::Failed => "token released: failed",
        v1::EventState::Lost => "token reclaimed",
        v1::EventState::Expired => "expired",
        v1::EventState::Cancelled => "cancelled",
        v1::EventState::Dead => "given up",
        _ => "ended",
    };
    let mut steps: Vec<TimelineStep> = [
        at("emitted", run.and_then(|run| run.emit_time.as_ref()), "the run, with all its events"),
        at("due", event.launch_time.as_ref(), ""),
        at("token acquired", event.acquire_time.as_ref(), "after waiting for it"),
        at("delivered", event.deliver_time.as_ref(), "the consumer took it"),
        at(held, event.finish_time.as_ref(), ""),
        at("next attempt", event.due_time.as_ref(), ""),
    ]
    .into_iter()
    .flatten()
    .collect();
    for made in why.attempts.iter().rev().take(IN_TIMELINE) {
        let label = match made.answer() {
            v1::AttemptAnswer::Refused => "attempt refused",
            v1::AttemptAnswer::Unclear => "attempt unclear",
            _ => continue,
        };
        let Some(at) = &made.start_time else { continue };
        steps.push(TimelineStep {
            label,
            at_us: us(at),
            note: format!("attempt {}: {}", made.attempt, made.message),
        });
    }
    steps.sort_by_key(|step| step.at_us);
    if event.finish_time.is_none() && event.launch_time.as_ref().is_some_and(|launch| us(launch) <= now_us) {
        let label = match event.state() {
            v1::EventState::Waiting => "waits for a token until now",
            v1::EventState::Retrying => "waits for another attempt until now",
            _ => "holds its token until now",
        };
        let after = steps.partition_point(|step| step.at_us <= now_us);
        steps.insert(after, TimelineStep { label, at_us: now_us, note: String::new() });
    }
    steps
}

fn attempts(now_us: i64, why: &v1::Explanation) -> Markup {
    let event = why.event.clone().unwrap_or_default();
    let known = why.attempts.iter().map(|made| made.attempt).collect::<std::collections::BTreeSet<_>>().len();
    let untold = (event.attempt as usize).saturating_sub(known);
    html! {
        section aria-labelledby="h-attempts" {
            h2 #h-attempts { "Attempts" }
            @if event.attempt == 0 {
                p.mute { "It has not been delivered yet." }
            } @else {
                dl.facts {
                    dt { "Latest attempt" } dd { (event.attempt) }
                    @if let Some(at) = &event.deliver_time { dt { "Taken" } dd { (seen(now_us, us(at))) } }
                    @if let Some(at) = &event.due_time { dt { "Next attempt" } dd { (seen(now_us, us(at))) } }
                    dt { "Last message or answer" }
                    dd { @if event.message.is_empty() { span.mute { "none" } } @else { (event.message) } }
                }
                @if !why.attempts.is_empty() { (attempt_table(now_us, &why.attempts)) }
                @if untold > 0 && event.attempt > 1 {
                    p.mute {
                        (counted(untold as u64, "attempt")) " more: taken at once, or made by a handler that has ended since."
                    }
                }
            }
        }
    }
}

fn attempt_table(now_us: i64, attempts: &[v1::Attempt]) -> Markup {
    html! {
        @if attempts.len() > IN_TABLE { p.mute { "The latest " (IN_TABLE) " of " (attempts.len()) " that are kept." } }
        div.scroll role="group" aria-labelledby="h-attempts" tabindex="0" {
            table.wide {
                thead {
                    tr {
                        th.n scope="col" { "Attempt" }
                        th scope="col" { "Began" }
                        th.n scope="col" { "Answer after" }
                        th scope="col" { "Answer" }
                        th scope="col" { "In words" }
                    }
                }
                tbody {
                    @for made in attempts.iter().rev().take(IN_TABLE) {
                        tr {
                            td.n { (made.attempt) }
                            td { @if let Some(at) = &made.start_time {
                                time.num datetime=(exact(us(at))) { (fine(us(at)).get(11..).unwrap_or_default()) }
                                " " span.mute { (seen(now_us, us(at))) }
                            } }
                            td.n { (duration(made.duration.as_ref())) }
                            td { (answer(made.answer())) }
                            td.text { (made.message) }
                        }
                    }
                }
            }
        }
    }
}

fn answer(answer: v1::AttemptAnswer) -> Markup {
    match answer {
        v1::AttemptAnswer::Accepted => tag("taken", "ok"),
        v1::AttemptAnswer::Refused => tag("refused", "bad"),
        v1::AttemptAnswer::Unclear => tag("unclear", "warn"),
        v1::AttemptAnswer::Unspecified => tag("not known", "mute"),
    }
}

fn holders(now_us: i64, why: &v1::Explanation) -> Markup {
    let has_units = why.holders.iter().any(|holder| holder.units > 1);
    html! {
        @if !why.holders.is_empty() {
            section aria-labelledby="h-holders" {
                h2 #h-holders { "Who holds its policy's tokens, longest first" }
                div.scroll role="group" aria-labelledby="h-holders" tabindex="0" {
                    table.wide {
                        thead {
                            tr {
                                th scope="col" { "Event" }
                                th scope="col" { "Schedule" }
                                th scope="col" { "State" }
                                @if has_units { th.n scope="col" { "Tokens" } }
                                th.n scope="col" { "Held for" }
                                th.opt scope="col" { "If it stays silent" }
                            }
                        }
                        tbody {
                            @for holder in &why.holders {
                                tr {
                                    th.id scope="row" { a href=(to(&holder.event)) { (clipped(short(&holder.event))) } }
                                    td { a href=(to(&holder.schedule)) { (short(&holder.schedule)) } }
                                    td { (event_state(holder.state())) }
                                    @if has_units { td.n { (holder.units) } }
                                    td.n { (duration(holder.age.as_ref())) }
                                    td.opt {
                                        @match &holder.expire_time {
                                            Some(at) => { (seen(now_us, us(at))) }
                                            None => { span.mute { "nothing" } }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn free(visit: &Visit, event: &v1::Event) -> Markup {
    html! {
        section.actions aria-labelledby="h-free" {
            h2 #h-free { "Free its token" }
            form method="post" action=(to(&event.name)) {
                div { (outcome_field("event")) }
                div.grow {
                    label for="reason" { "Reason" }
                    input #reason name="reason" required maxlength="1000" autocomplete="off";
                }
                button.danger type="submit" { "Free the token" }
                p.hint {
                    "Only where its consumer does not work on it any more: otherwise one more event than the limit may \
                     be worked on. The reason becomes the event's message, as said by " (visit.actor) "."
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;

    #[test]
    fn a_timeline_is_in_order_and_reaches_now() {
        let at = |seconds: i64| Some(Timestamp { seconds, nanos: 0 });
        let event = v1::Event {
            state: v1::EventState::Held.into(),
            launch_time: at(10),
            acquire_time: at(12),
            deliver_time: at(13),
            ..v1::Event::default()
        };
        let run = v1::Run { emit_time: at(1), ..v1::Run::default() };
        let refused = v1::Attempt {
            start_time: Some(Timestamp { seconds: 12, nanos: 500_000_000 }),
            answer: v1::AttemptAnswer::Refused.into(),
            ..v1::Attempt::default()
        };
        let why =
            v1::Explanation { event: Some(event), attempts: vec![refused], ..v1::Explanation::default() };
        let steps = steps(20_000_000, &why, Some(&run));
        let labels: Vec<&str> = steps.iter().map(|step| step.label).collect();
        let last = ["attempt refused", "delivered", "holds its token until now"];
        assert_eq!(labels, [&["emitted", "due", "token acquired"][..], &last].concat());
        let drawn = timeline(20_000_000, &steps).into_string();
        assert!(drawn.contains("+2.0s") && drawn.contains("+7.0s"), "{drawn}");
    }
}
