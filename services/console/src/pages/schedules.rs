//! The list of schedules, a page at a time.

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use tollgate_proto::v1;

use crate::parts::filters::{PAGE, Wanted, filters, of_all};
use crate::parts::shell::{Body, Section, empty};
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::sentence::sentence;
use crate::words::show::{active, count, duration, moment, short};

/// The page.
pub(crate) async fn page(visit: Visit, Query(wanted): Query<Wanted>) -> Response {
    let body = body(&visit, &wanted, None).await;
    visit.respond(Ok(body))
}

/// The list, with what went wrong before.
pub(crate) async fn body(visit: &Visit, wanted: &Wanted, problem: Option<Problem>) -> Body {
    let path = visit.link("schedules");
    let request = v1::ListSchedulesRequest {
        parent: visit.parent(),
        page_size: PAGE,
        page_token: wanted.page.clone(),
        filter: wanted.filter(),
    };
    let list = visit.api.master().list_schedules(request).await.map(tonic::Response::into_inner);
    let (list, problem) = match list {
        Ok(list) => (Some(list), problem),
        Err(status) => (None, Some(status.into())),
    };
    let content = html! {
        div.title {
            h1 { "Schedules" }
            a.button href=(visit.link("calendars")) { "Calendars" }
            a.button href=(visit.link("new/schedule")) { "New schedule" }
        }
        (filters(&path, wanted, true))
        @if let Some(list) = list {
            @if list.schedules.is_empty() {
                @if wanted.narrows() {
                    (empty("No schedule fits this.", html! { a href=(path) { "Show all schedules" } }))
                } @else {
                    (empty("No schedules yet.", html! {
                        "Write one into a file, and " code { "tollgate apply -f FILE" } " makes it; "
                        code { "tollgate preview -f FILE" } " shows first when it would fire."
                    }))
                }
            } @else {
                @if wanted.narrows() { (of_all(&path, &wanted.filter())) }
                (table(visit, &list.schedules))
                (wanted.pager(&path, &list.next_page_token))
            }
        }
    };
    Body { problem, ..Body::new("Schedules", Section::Schedules, content) }
}

fn table(visit: &Visit, schedules: &[v1::Schedule]) -> Markup {
    html! {
        div.scroll role="group" aria-label="Schedules" tabindex="0" {
            table.wide.cards.named {
                thead {
                    tr {
                        th scope="col" { "Schedule" }
                        th scope="col" { "State" }
                        th scope="col" { "Fires" }
                        th scope="col" { "Next" }
                        th.n scope="col" { "Events" }
                        th scope="col" { "Policy" }
                        th.n scope="col" { "Priority" }
                    }
                }
                tbody {
                    @for schedule in schedules {
                        tr {
                            th scope="row" { a href=(to(&schedule.name)) { (short(&schedule.name)) } }
                            td { (active(schedule.pause.as_ref())) }
                            td.text { (sentence(schedule)) }
                            td data-label="Next" {
                                @match &schedule.next_launch_time {
                                    Some(next) => {
                                        (moment(visit.now_us, Some(next)))
                                        @if schedule.start_delay.is_some() {
                                            span.mute { ", starts " (duration(schedule.start_delay.as_ref())) " later" }
                                        }
                                    }
                                    None if schedule.triggers.is_empty() => { span.mute { "manual" } }
                                    None => { span.mute { "never again" } }
                                }
                            }
                            td.n data-label="Events" {
                                @if schedule.items_from.is_some() { "a list" }
                                @else { (count(schedule.events.unwrap_or(1))) }
                            }
                            td data-label="Policy" {
                                @if schedule.policy.is_empty() { span.mute { "none" } }
                                @else { a href=(to(&schedule.policy)) { (short(&schedule.policy)) } }
                            }
                            td.n data-label="Priority" { (schedule.priority.unwrap_or(5)) }
                        }
                    }
                }
            }
        }
    }
}
