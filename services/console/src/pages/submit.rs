//! Submits a list out of a file: it is uploaded, shown as it is read, asked about, and only then made a run.
//!
//! The items go to the service as they come, as a submission that is held: nothing of it falls due before it is confirmed, and
//! what nobody confirms is forgotten. Not here: how a body becomes items ([`upload`]).

mod upload;

use axum::extract::{Form, FromRequest as _, Path, Request};
use axum::response::{IntoResponse as _, Response};
use http::header;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;
use tollgate_proto::v1::submit_items_request::Part;

use crate::parts::confirm::{self, Deed};
use crate::parts::shell::{Body, Section};
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{count, counted, short};
use upload::{Read, Row, Said};

/// The schedule's id in a path.
#[derive(Deserialize)]
pub(crate) struct Id {
    id: String,
}

/// What the form says that confirms an upload.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Order {
    confirmed: String,
    reason: String,
    request_id: String,
}

/// The page with the form.
pub(crate) async fn page(visit: Visit, Path(Id { id }): Path<Id>) -> Response {
    let schedule = visit.api.schedule(&visit.full("schedules", &id)).await;
    visit.respond(schedule.map(|schedule| drawn(&schedule, &Said::default(), None)))
}

/// Takes a file and asks about it, or makes the run of what has been confirmed.
pub(crate) async fn act(visit: Visit, Path(Id { id }): Path<Id>, request: Request) -> Response {
    let schedule = match visit.api.schedule(&visit.full("schedules", &id)).await {
        Ok(schedule) => schedule,
        Err(problem) => return visit.respond(Err(problem)),
    };
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if let Some(boundary) = kind.and_then(|kind| multer::parse_boundary(kind).ok()) {
        let (said, read) = upload::take(&visit, &schedule.name, (request.into_body(), boundary)).await;
        let answer = match read {
            Ok(read) => settle(&visit, &schedule, &read, &Order::default()).await,
            Err(problem) => Err(problem),
        };
        return answer.unwrap_or_else(|problem| visit.respond(Ok(drawn(&schedule, &said, Some(problem)))));
    }
    match Form::<Order>::from_request(request, &()).await {
        Ok(Form(order)) => confirmed(&visit, &schedule, &order).await,
        Err(refused) => refused.into_response(),
    }
}

async fn confirmed(visit: &Visit, schedule: &v1::Schedule, order: &Order) -> Response {
    let settled = async {
        let name = format!("{}/submissions/{}", schedule.name, order.request_id);
        let request = v1::GetSubmissionRequest { name };
        let found = visit.api.master().get_submission(request).await?.into_inner();
        if let Some(run) = found.run {
            // The form was sent twice.
            return Ok(visit.after(&to(&run.name), "triggered"));
        }
        let request_id = order.request_id.clone();
        let read = Read { request_id, items: found.received_count, ..Read::default() };
        settle(visit, schedule, &read, order).await
    };
    let settled: Result<Response, Problem> = settled.await;
    settled.unwrap_or_else(|problem| visit.respond(Ok(drawn(schedule, &Said::default(), Some(problem)))))
}

/// Asks whether what was read is to be a run, or makes it where that has been confirmed.
async fn settle(
    visit: &Visit,
    schedule: &v1::Schedule,
    read: &Read,
    order: &Order,
) -> Result<Response, Problem> {
    let deed = Deed {
        question: format!("Submit {} to {}?", counted(read.items, "item"), short(&schedule.name)),
        effects: effects(visit, schedule, read).await,
        path: format!("{}/submit", to(&schedule.name)),
        fields: vec![("request_id".to_owned(), read.request_id.clone())],
        button: "Make the run",
        is_dangerous: true,
    };
    let given = (order.confirmed.as_str(), order.reason.as_str());
    confirm::settle(visit, Section::Schedules, &deed, given, |reason| make(visit, schedule, read, reason))
        .await
}

async fn make(
    visit: &Visit,
    schedule: &v1::Schedule,
    read: &Read,
    reason: String,
) -> Result<Response, Problem> {
    let header = v1::SubmissionHeader {
        name: schedule.name.clone(),
        request_id: read.request_id.clone(),
        resume_from: read.items,
        ..v1::SubmissionHeader::default()
    };
    let whole = v1::SubmitItemsRequest { part: Some(Part::Header(header)) };
    let stream = futures::stream::iter([whole]);
    let made = visit.api.because(&reason).master().submit_items(stream).await?.into_inner();
    let run = made.run.map(|run| to(&run.name)).unwrap_or_else(|| to(&schedule.name));
    Ok(visit.after(&run, "triggered"))
}

async fn effects(visit: &Visit, schedule: &v1::Schedule, read: &Read) -> Vec<Markup> {
    let limit = if schedule.policy.is_empty() {
        html! { strong { "No policy limits it" } ": all of them may start at once." }
    } else {
        let status = visit.api.handler_status(visit.parent()).await.unwrap_or_default();
        let gauge = status.policies.into_iter().find(|gauge| gauge.policy == schedule.policy);
        html! {
            "Under policy " a href=(to(&schedule.policy)) { (short(&schedule.policy)) }
            @match &gauge {
                Some(gauge) if gauge.paused => { ", which is paused: they wait." }
                Some(gauge) => {
                    @if let Some(most) = gauge.max_in_flight { ": at most " (count(most)) " at once" }
                    @else { ": only its rate limits them" }
                    "; " (count(gauge.waiting_count)) " wait there already."
                }
                None => { "; what it holds cannot be said now." }
            }
        }
    };
    let mut effects = vec![
        html! { "A run of " strong { (counted(read.items, "event")) } " is made now, an event an item." },
        limit,
    ];
    if !read.rows.is_empty() {
        effects.push(html! {
            (count(read.items)) " read without a fault, " (count(read.keyed)) " of them with a key"
            @if read.with_units > 0 { ", " (count(read.with_units)) " with units" }
            ". "
            @if (read.rows.len() as u64) < u64::from(read.items) { "The first " (read.rows.len()) ":" } @else { "All of them:" }
            (rows(&read.rows))
        });
    }
    effects.push(html! { "The items lie in the service. What is not confirmed within an hour is forgotten, and makes no run." });
    effects
}

fn rows(rows: &[Row]) -> Markup {
    let has_units = rows.iter().any(|row| row.units > 0);
    html! {
        div.scroll role="group" aria-label="The first items" tabindex="0" {
            table.fires {
                thead { tr {
                    th.n scope="col" { "Event" } th scope="col" { "Key" }
                    @if has_units { th.n scope="col" { "Units" } }
                    th scope="col" { "Data" }
                } }
                tbody {
                    @for (at, row) in rows.iter().enumerate() {
                        tr {
                            td.n { (at) } td { (row.key) }
                            @if has_units { td.n { @if row.units > 0 { (row.units) } } }
                            td { code { (row.data) } }
                        }
                    }
                }
            }
        }
    }
}

fn drawn(schedule: &v1::Schedule, said: &Said, problem: Option<Problem>) -> Body {
    let name = &schedule.name;
    let formats = [
        ("", "as the file's name says"),
        ("ndjson", "NDJSON: a JSON value a line"),
        ("json", "one JSON array"),
        ("csv", "CSV with a header row"),
    ];
    let content = html! {
        p.crumb { a href=(to(name)) { (short(name)) } }
        h1 { "Submit a list to " (short(name)) }
        p { "Makes one run with an event for each item of a file, which carries the item as its data. "
            "Nothing is made before you have seen how the file is read." }
        form.edit method="post" action={ (to(name)) "/submit" } enctype="multipart/form-data" {
            div.field {
                label for="format" { "How it is written" }
                select #format name="format" aria-describedby="hint-format" {
                    @for (value, words) in formats { option value=(value) selected[said.format == value] { (words) } }
                }
                p.hint id="hint-format" { ".ndjson, .jsonl, .json or .csv; gzip is known by its beginning." }
            }
            div.field {
                label for="key_field" { "Key" }
                input #key_field name="key_field" value=(said.key_field) autocomplete="off" spellcheck="false"
                    aria-describedby="hint-key_field";
                p.hint id="hint-key_field" { "The member or column that says whose an item is, such as tenant; none where empty." }
            }
            div.field {
                label for="units_field" { "Units" }
                input #units_field name="units_field" value=(said.units_field) autocomplete="off" spellcheck="false"
                    aria-describedby="hint-units_field";
                p.hint id="hint-units_field" { "The member or column that says how many tokens an item's event takes, 1 to 1,000; "
                    "as the schedule says where an item lacks it." }
            }
            div.field {
                label for="wrapped" { "An item is" }
                select #wrapped name="wrapped" aria-describedby="hint-wrapped" {
                    option value="" selected[!said.wrapped] { "its data" }
                    option value="true" selected[said.wrapped] { "an object of data, key and units" }
                }
                p.hint id="hint-wrapped" { "{\"data\": …, \"key\": \"acme\", \"units\": 3}: of JSON only, and with no key or units named above." }
            }
            // Last: what stands above must be known before it comes.
            div.field {
                label for="file" { "File" }
                input #file name="file" type="file" required aria-describedby="hint-file"
                    accept=".ndjson,.jsonl,.json,.csv,.gz";
                p.hint id="hint-file" { "1 to 10,000,000 items of 256 KiB at most." }
            }
            div.buttons { button.main type="submit" { "Read it…" } }
        }
    };
    Body { problem, ..Body::new(format!("Submit to {}", short(name)), Section::Schedules, content) }
}
