//! The list of calendars: dates under a name, and how many schedules go by each.

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::parts::shell::{Body, Section, empty, pager};
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{count, encode, short};

/// How many calendars a page shows.
const PAGE: i32 = 50;

/// Which page.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    page: String,
}

/// The page.
pub(crate) async fn page(visit: Visit, Query(wanted): Query<Wanted>) -> Response {
    let path = visit.link("calendars");
    let request = v1::ListCalendarsRequest {
        parent: visit.parent(),
        page_size: PAGE,
        page_token: wanted.page.clone(),
        ..v1::ListCalendarsRequest::default()
    };
    let list = visit.api.master().list_calendars(request).await.map(tonic::Response::into_inner);
    let (list, problem): (Option<v1::ListCalendarsResponse>, Option<Problem>) = match list {
        Ok(list) => (Some(list), None),
        Err(status) => (None, Some(status.into())),
    };
    let content = html! {
        p.crumb { a href=(visit.link("schedules")) { "Schedules" } }
        div.title { h1 { "Calendars" } a.button href=(visit.link("new/calendar")) { "New calendar" } }
        @if let Some(list) = &list {
            @if list.calendars.is_empty() {
                (empty("There are no calendars.", html! {
                    "A calendar is a list of dates, such as holidays, on which the schedules that name it do not fire: "
                    a href=(visit.link("new/calendar")) { "make the first one" } "."
                }))
            } @else {
                p.mute { "On the dates of a calendar the schedules that name it do not fire." }
                (table(&list.calendars))
                @let next = &list.next_page_token;
                @let at = |page: &str| format!("{path}?page={}", encode(page));
                (pager((!next.is_empty()).then(|| at(next)), (!wanted.page.is_empty()).then(|| path.clone())))
            }
        }
    };
    visit.respond(Ok(Body { problem, ..Body::new("Calendars", Section::Schedules, content) }))
}

fn table(calendars: &[v1::Calendar]) -> Markup {
    html! {
        div.scroll role="group" aria-label="Calendars" tabindex="0" {
            table.wide.cards.named {
                thead {
                    tr {
                        th scope="col" { "Calendar" }
                        th scope="col" { "Description" }
                        th.n scope="col" { "Dates" }
                        th scope="col" { "Last date" }
                        th.n scope="col" { "Schedules" }
                    }
                }
                tbody {
                    @for calendar in calendars {
                        @let last = calendar.dates.iter().filter_map(|range| range.rsplit("..").next()).max();
                        tr {
                            th scope="row" { a href=(to(&calendar.name)) { (short(&calendar.name)) } }
                            td.text { (calendar.description) }
                            td.n data-label="Dates" { (count(calendar.dates.len() as u64)) }
                            td data-label="Last date" { (last.unwrap_or("none")) }
                            td.n data-label="Schedules" { (count(calendar.used_by_count)) }
                        }
                    }
                }
            }
        }
    }
}
