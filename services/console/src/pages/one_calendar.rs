//! One calendar: its dates, the schedules that go by it, and its latest changes.

use axum::extract::{Form, Path};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_files::document;
use tollgate_proto::v1;

use crate::parts::changes::changes as audited;
use crate::parts::confirm::{self, Deed, ask};
use crate::parts::copy;
use crate::parts::draft::What;
use crate::parts::shell::{Body, Section};
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{counted, dated, encode, short};

/// How many changes a page shows.
const CHANGES: i32 = 8;

/// The calendar's id in a path.
#[derive(Deserialize)]
pub(crate) struct Id {
    id: String,
}

/// What a form says.
#[derive(Clone, Deserialize)]
pub(crate) struct Order {
    action: String,
    #[serde(default)]
    confirmed: String,
    #[serde(default)]
    reason: String,
}

/// The page.
pub(crate) async fn page(visit: Visit, Path(Id { id }): Path<Id>) -> Response {
    let body = body(&visit, &visit.full("calendars", &id), None).await;
    visit.respond(body)
}

/// Asks, or does what has been confirmed.
pub(crate) async fn act(visit: Visit, Path(Id { id }): Path<Id>, Form(order): Form<Order>) -> Response {
    let name = visit.full("calendars", &id);
    match carry_out(&visit, &name, &order).await {
        Ok(response) => response,
        Err(problem) => {
            let body = body(&visit, &name, Some(problem)).await;
            visit.respond(body)
        }
    }
}

async fn carry_out(visit: &Visit, name: &str, order: &Order) -> Result<Response, Problem> {
    if order.action != "delete" {
        return Err(Problem::invalid("action", &order.action, "delete"));
    }
    let request = v1::GetCalendarRequest { name: name.to_owned() };
    let calendar = visit.api.master().get_calendar(request).await?.into_inner();
    let deed = Deed {
        question: format!("Delete {}?", short(name)),
        effects: vec![html! {
            strong { "This cannot be undone." }
            @if calendar.used_by_count > 0 {
                " " (counted(calendar.used_by_count, "schedule")) " named it when this page was made: "
                "it stays as long as any does."
            }
        }],
        path: to(name),
        fields: vec![("action".to_owned(), order.action.clone())],
        button: "Delete it",
        is_dangerous: true,
    };
    let given = (order.confirmed.as_str(), order.reason.as_str());
    confirm::settle(visit, Section::Schedules, &deed, given, |reason| async move {
        let request =
            v1::DeleteCalendarRequest { name: calendar.name, etag: calendar.etag, ..Default::default() };
        visit.api.because(&reason).master().delete_calendar(request).await?;
        Ok(visit.after(&visit.link("calendars"), "deleted"))
    })
    .await
}

async fn body(visit: &Visit, name: &str, problem: Option<Problem>) -> Result<Body, Problem> {
    let mut master = visit.api.master();
    let of_it = format!("resource={name}");
    let (calendar, changes) = futures::future::join(
        master.get_calendar(v1::GetCalendarRequest { name: name.to_owned() }),
        visit.api.audit(visit.parent(), &of_it, CHANGES, ""),
    )
    .await;
    let calendar = calendar?.into_inner();
    let content = html! {
        p.crumb {
            a href=(visit.link("schedules")) { "Schedules" } " · " a href=(visit.link("calendars")) { "Calendars" }
        }
        h1 { (short(name)) }
        p.lead {
            (counted(calendar.used_by_count, "schedule")) " named it when this page was made. On its dates none of them fires."
        }
        @if !calendar.description.is_empty() { p { (calendar.description) } }
        (dates(&calendar))
        (users(&calendar))
        section.actions aria-labelledby="h-actions" {
            h2 #h-actions { "Act" }
            div.row {
                a.button href={ (to(name)) "/edit" } { "Edit this calendar" }
                (ask(&to(name), "delete", "Delete", true))
            }
        }
        section aria-labelledby="h-changes" {
            h2 #h-changes { "Latest changes" }
            @match &changes {
                Ok(changes) => { (audited(visit, &changes.audit_entries, false)) }
                Err(problem) => { p.notice.bad { "They cannot be shown: " (problem.text()) } }
            }
            p { a href={ (visit.link("audit")) "?resource=" (encode(name)) } { "All changes of this calendar" } }
        }
        dl.facts {
            @for (key, value) in &calendar.labels { dt { "Label " (key) } dd { (value) } }
            dt { "Made" } dd { (dated(visit.now_us, calendar.create_time.as_ref())) }
            dt { "Changed" } dd { (dated(visit.now_us, calendar.update_time.as_ref())) }
        }
        (copy::fold(&document(What::Calendar.kind(), &calendar)))
    };
    Ok(Body { problem, ..Body::new(short(name), Section::Schedules, content) })
}

fn dates(calendar: &v1::Calendar) -> Markup {
    let mut dates: Vec<&str> = calendar.dates.iter().map(String::as_str).collect();
    dates.sort_unstable();
    html! {
        section aria-labelledby="h-dates" {
            h2 #h-dates { "Dates" }
            @if dates.is_empty() { p.mute { "None yet." } }
            @else { ul #dates { @for date in dates { li.num { (date) } } } }
        }
    }
}

fn users(calendar: &v1::Calendar) -> Markup {
    let more = u64::from(calendar.used_by_count).saturating_sub(calendar.used_by.len() as u64);
    html! {
        section aria-labelledby="h-users" {
            h2 #h-users { "Schedules that name it" }
            @if calendar.used_by.is_empty() { p.mute { "None." } }
            @else {
                ul #users { @for name in &calendar.used_by { li { a href=(to(name)) { (short(name)) } } } }
                @if more > 0 { p.mute { "And " (more) " more." } }
            }
        }
    }
}
