//! The list of alerts: who is told of what, and whether that works.

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::pages::alert::{scope, state, subject};
use crate::pages::edit_asks::tells;
use crate::parts::shell::{Body, Section, empty, pager};
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{count, encode, moment, short};

/// How many alerts a page shows.
const PAGE: i32 = 50;

/// Which page.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    page: String,
}

/// The page.
pub(crate) async fn page(visit: Visit, Query(wanted): Query<Wanted>) -> Response {
    let path = visit.link("alerts");
    let request = v1::ListAlertsRequest {
        parent: visit.parent(),
        page_size: PAGE,
        page_token: wanted.page.clone(),
        ..v1::ListAlertsRequest::default()
    };
    let list = visit.api.master().list_alerts(request).await.map(tonic::Response::into_inner);
    let (list, problem): (Option<v1::ListAlertsResponse>, Option<Problem>) = match list {
        Ok(list) => (Some(list), None),
        Err(status) => (None, Some(status.into())),
    };
    let content = html! {
        div.title { h1 { "Alerts" } a.button href=(visit.link("new/alert")) { "New alert" } }
        @if let Some(list) = &list {
            @if list.alerts.is_empty() {
                (empty("Nobody is told when something is wrong.", html! {
                    "An alert sends a message to a webhook, to Slack or to a queue: "
                    a href=(visit.link("new/alert")) { "make the first one" } "."
                }))
            } @else {
                p.mute { "Who is told when something is wrong, or when runs have finished." }
                (table(&visit, &list.alerts))
                @let next = &list.next_page_token;
                @let at = |page: &str| format!("{path}?page={}", encode(page));
                (pager((!next.is_empty()).then(|| at(next)), (!wanted.page.is_empty()).then(|| path.clone())))
            }
        }
    };
    visit.respond(Ok(Body { problem, ..Body::new("Alerts", Section::Alerts, content) }))
}

fn table(visit: &Visit, alerts: &[v1::Alert]) -> Markup {
    html! {
        div.scroll role="group" aria-label="Alerts" tabindex="0" {
            table.wide.cards.named {
                thead {
                    tr {
                        th scope="col" { "Alert" }
                        th scope="col" { "State" }
                        th scope="col" { "Tells of" }
                        th scope="col" { "Tells" }
                        th scope="col" { "Told last" }
                        th.n scope="col" { "Troubles now" }
                        th.n scope="col" { "Messages" }
                    }
                }
                tbody {
                    @for alert in alerts {
                        @let status = alert.status.clone().unwrap_or_default();
                        tr {
                            th scope="row" { a href=(to(&alert.name)) { (short(&alert.name)) } }
                            td { (state(alert)) }
                            td.text { (subject(alert)) span.mute { ", of " (scope(alert)) } }
                            td.text { code { (tells(alert)) } }
                            td data-label="Told last" {
                                @if status.last_send_time.is_some() { (moment(visit.now_us, status.last_send_time.as_ref())) }
                                @else { span.mute { "never" } }
                            }
                            td.n data-label="Troubles now" { (count(status.raised_count)) }
                            td.n data-label="Messages" { (count(status.sent_count)) }
                        }
                    }
                }
            }
        }
    }
}
