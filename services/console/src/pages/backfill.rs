//! Makes runs for launch times that have passed: first shown, then asked, then made.

use axum::extract::{Form, Path};
use axum::response::Response;
use chrono::DateTime;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;
use tollgate_proto::v1::preview_schedule_request::Source;

use crate::parts::confirm::{self, Deed};
use crate::parts::shell::{Body, Section};
use crate::requests::links::to;
use crate::requests::problem::{Field, Problem};
use crate::requests::visit::Visit;
use crate::words::sentence::sentence;
use crate::words::show::{count, counted, events_said, exact, short, us};

/// How many launch times a preview counts.
const COUNT_MAX: i32 = 1_000;
/// What a form proposes: the last day.
const DAY_US: i64 = 86_400_000_000;

/// The schedule's id in a path.
#[derive(Deserialize)]
pub(crate) struct Id {
    id: String,
}

/// What the form says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Order {
    confirmed: String,
    reason: String,
    from: String,
    to: String,
    priority: String,
    request_id: String,
}

/// The form as a range.
struct Range {
    from_us: i64,
    to_us: i64,
    priority: Option<u32>,
}

impl Order {
    fn range(&self) -> Result<Range, Problem> {
        let mut wrong = Vec::new();
        let mut moment = |name: &str, text: &str| {
            let read = DateTime::parse_from_rfc3339(text.trim()).map(|at| at.timestamp_micros());
            read.unwrap_or_else(|_| {
                let message =
                    format!("{text:?} is not allowed, expected a time such as 2026-03-29T03:00:00Z");
                wrong.push(Field { name: name.to_owned(), message });
                0
            })
        };
        let (from_us, to_us) = (moment("from", &self.from), moment("to", &self.to));
        let priority = match self.priority.trim() {
            "" => None,
            text => text.parse().map(Some).unwrap_or_else(|_| {
                let message = format!("{text:?} is not allowed, expected 0 to 9");
                wrong.push(Field { name: "priority".to_owned(), message });
                None
            }),
        };
        if wrong.is_empty() { Ok(Range { from_us, to_us, priority }) } else { Err(Problem::of_fields(wrong)) }
    }
}

/// The page.
pub(crate) async fn page(visit: Visit, Path(Id { id }): Path<Id>) -> Response {
    let order = Order {
        from: exact((visit.now_us - DAY_US).div_euclid(60_000_000) * 60_000_000),
        to: exact(visit.now_us.div_euclid(60_000_000) * 60_000_000),
        ..Order::default()
    };
    let schedule = visit.api.schedule(&visit.full("schedules", &id)).await;
    let body = schedule.map(|schedule| drawn(&schedule, &order, None));
    visit.respond(body)
}

/// Shows what would be made, or makes what has been confirmed.
pub(crate) async fn act(visit: Visit, Path(Id { id }): Path<Id>, Form(order): Form<Order>) -> Response {
    let schedule = match visit.api.schedule(&visit.full("schedules", &id)).await {
        Ok(schedule) => schedule,
        Err(problem) => return visit.respond(Err(problem)),
    };
    match carry_out(&visit, &schedule, &order).await {
        Ok(response) => response,
        Err(problem) => visit.respond(Ok(drawn(&schedule, &order, Some(problem)))),
    }
}

async fn carry_out(visit: &Visit, schedule: &v1::Schedule, order: &Order) -> Result<Response, Problem> {
    let range = order.range()?;
    let deed = deed(visit, schedule, order, &range).await?;
    let given = (order.confirmed.as_str(), order.reason.as_str());
    let make = |reason| carried_out(visit, schedule, (order, &range), reason);
    confirm::settle(visit, Section::Schedules, &deed, given, make).await
}

async fn carried_out(
    visit: &Visit,
    schedule: &v1::Schedule,
    (order, range): (&Order, &Range),
    reason: String,
) -> Result<Response, Problem> {
    let request = v1::BackfillScheduleRequest {
        name: schedule.name.clone(),
        start_time: Some(tollgate_proto::convert::timestamp(range.from_us)),
        end_time: Some(tollgate_proto::convert::timestamp(range.to_us)),
        priority: range.priority,
        request_id: order.request_id.clone(),
    };
    visit.api.because(&reason).master().backfill_schedule(request).await?;
    Ok(visit.after(&to(&schedule.name), "backfilled"))
}

/// The launch times in a range, as many as a preview counts.
async fn launches(
    visit: &Visit,
    schedule: &v1::Schedule,
    range: &Range,
) -> Result<Vec<v1::LaunchTime>, Problem> {
    let request = v1::PreviewScheduleRequest {
        source: Some(Source::Name(schedule.name.clone())),
        // A preview begins after its moment, a backfill with it.
        from_time: Some(tollgate_proto::convert::timestamp(range.from_us - 1)),
        count: COUNT_MAX,
    };
    let mut found = visit.api.master().preview_schedule(request).await?.into_inner().launch_times;
    found.retain(|launch| launch.time.as_ref().is_some_and(|time| us(time) < range.to_us));
    Ok(found)
}

async fn deed(visit: &Visit, schedule: &v1::Schedule, order: &Order, range: &Range) -> Result<Deed, Problem> {
    let found = launches(visit, schedule, range).await?;
    let said = [("from", &order.from), ("to", &order.to), ("priority", &order.priority)];
    let mut fields: Vec<_> = said.map(|(name, value)| (name.to_owned(), value.clone())).into();
    fields.push(confirm::once(&order.request_id));
    Ok(Deed {
        question: format!("Backfill {}?", short(&schedule.name)),
        effects: effects(schedule, &found, range),
        path: format!("{}/backfill", to(&schedule.name)),
        fields,
        button: "Make these runs",
        is_dangerous: true,
    })
}

fn effects(schedule: &v1::Schedule, found: &[v1::LaunchTime], range: &Range) -> Vec<Markup> {
    let events = found.len() as u64 * u64::from(schedule.events.unwrap_or(1));
    let is_cut = found.len() >= COUNT_MAX.unsigned_abs() as usize;
    vec![
        html! {
            strong {
                @if is_cut { "At least " }
                (counted(found.len() as u64, "run")) " of " (counted(events, "event")) " in all"
            }
            ", but for launch times that have a run already: these stay as they are."
        },
        html! {
            @match (found.first(), found.last()) {
                (Some(first), Some(last)) if !is_cut => {
                    "The first of " span.num { (first.local_time) " " (first.utc_offset) } ", the last of "
                    span.num { (last.local_time) " " (last.utc_offset) } "."
                }
                (Some(first), _) => { "The first of " span.num { (first.local_time) " " (first.utc_offset) } "." }
                _ => { "It does not fire in this time: nothing is made." }
            }
        },
        html! {
            @if schedule.policy.is_empty() { strong { "No policy limits it" } ": all of them may start at once." }
            @else { "Under policy " a href=(to(&schedule.policy)) { (short(&schedule.policy)) } ", with priority "
                (range.priority.unwrap_or(0)) @if range.priority.is_none() { ", so after what is due now" } "." }
        },
    ]
}

fn drawn(schedule: &v1::Schedule, order: &Order, problem: Option<Problem>) -> Body {
    let name = &schedule.name;
    let refused = problem.as_ref().map(|problem| problem.fields.as_slice()).unwrap_or_default();
    let fields = [
        ("from", "Launch times from", &order.from, "2026-03-29T03:00:00Z, with it"),
        ("to", "up to", &order.to, "without it, and not in the future"),
        ("priority", "Priority", &order.priority, "0 (last) to 9 (first); 0 where empty"),
    ];
    let content = html! {
        p.crumb { a href=(to(name)) { (short(name)) } }
        h1 { "Backfill " (short(name)) }
        p.lead { (events_said(schedule)) " " (sentence(schedule)) }
        p { "Makes a run for each launch time that has passed and has none, at most " (count(10_000_u32)) " at once." }
        form.edit method="post" action={ (to(name)) "/backfill" } {
            @for (id, label, value, hint) in fields {
                @let wrong = refused.iter().find(|field| field.name == id || field.name == format!("{id}_time"));
                div.field {
                    label for=(id) { (label) }
                    input id=(id) name=(id) value=(value) autocomplete="off" spellcheck="false"
                        aria-describedby={ "hint-" (id) } aria-invalid=[wrong.map(|_| "true")];
                    @if let Some(wrong) = wrong { p.error { (wrong.message) } }
                    p.hint id={ "hint-" (id) } { (hint) }
                }
            }
            div.buttons { button.main type="submit" { "Show what it would make…" } }
        }
    };
    Body { problem, ..Body::new(format!("Backfill {}", short(name)), Section::Schedules, content) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_and_what_is_wrong_is_said_at_its_field() {
        let order =
            Order { from: "2026-03-29T03:00:00Z".to_owned(), to: "soon".to_owned(), ..Order::default() };
        let wrong = order.range().err().map(|problem| problem.fields[0].name.clone());
        assert_eq!(wrong.as_deref(), Some("to"));
        let order = Order { to: "2026-03-29T04:00:00Z".to_owned(), priority: "3".to_owned(), ..order };
        let range = order.range().ok().map(|range| (range.to_us - range.from_us, range.priority));
        assert_eq!(range, Some((3_600_000_000, Some(3))));
    }
}
