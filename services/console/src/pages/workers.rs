//! The workers that take events themselves: what each is able to do, its room, when it was heard of, and what it has.

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::parts::shell::{Body, Section, empty};
use crate::parts::targets::pulled;
use crate::requests::links::{to, workers};
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{clipped, count, counted, moment, short};

/// How many workers are shown.
const SHOWN_MAX: usize = 200;
/// How often the page looks again, in seconds.
const EVERY_S: &str = "3";

/// Of which queue.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    queue: String,
}

/// The page.
pub(crate) async fn page(visit: Visit, Query(wanted): Query<Wanted>) -> Response {
    let queue = wanted.queue.trim();
    let parent = if queue.is_empty() { visit.parent() } else { visit.full("queues", queue) };
    let (mut handler, mut of_workers) = (visit.api.handler(), visit.api.workers());
    let asked = v1::GetHandlerStatusRequest { parent: visit.parent(), busy_only: true };
    let (status, list) = futures::future::join(
        handler.get_handler_status(asked),
        of_workers.list_workers(v1::ListWorkersRequest { parent }),
    )
    .await;
    let status = status.map(tonic::Response::into_inner).unwrap_or_default();
    let (list, problem): (Option<v1::ListWorkersResponse>, Option<Problem>) = match list {
        Ok(list) => (Some(list.into_inner()), None),
        Err(status) => (None, Some(status.into())),
    };
    let content = html! {
        h1 { "Workers" @if !queue.is_empty() { " of " (queue) } }
        (filters(&visit.link("workers"), queue))
        div #live data-refresh=(EVERY_S) {
            @if let Some(list) = &list { (listed(&visit, queue, list)) }
            (pulled(visit.now_us, &status, &visit.ns, queue))
        }
    };
    visit.respond(Ok(Body { problem, ..Body::new("Workers", Section::Workers, content) }))
}

fn filters(path: &str, queue: &str) -> Markup {
    html! {
        form.filters method="get" action=(path) {
            div {
                label for="queue" { "Queue" }
                input #queue name="queue" value=(queue) placeholder="id" autocomplete="off" spellcheck="false";
            }
            button type="submit" { "Show" }
            @if !queue.is_empty() { a href=(path) { "Show all" } }
        }
    }
}

fn listed(visit: &Visit, queue: &str, list: &v1::ListWorkersResponse) -> Markup {
    let left_out = list.workers.len().saturating_sub(SHOWN_MAX) as u64 + u64::from(list.more_count);
    html! {
        section #workers aria-label="Workers" {
            @if list.unreached_count > 0 {
                p.notice.warn {
                    (counted(list.unreached_count, "handler")) " did not answer: workers that are connected there are missing here."
                }
            }
            @if list.workers.is_empty() {
                @if queue.is_empty() {
                    (empty("No worker is connected.", html! {
                        "A worker takes the events of schedules whose target is a queue of workers (" code { "target.pull" }
                        "). It connects to this service, and needs no address."
                    }))
                } @else {
                    (empty("No worker of this queue is connected.", html! {
                        a href=(visit.link("workers")) { "Show the workers of all queues" }
                    }))
                }
            } @else {
                (table(visit, &list.workers))
                @if left_out > 0 { p.mute { "And " (count(left_out)) " more. Name a queue to see fewer." } }
            }
        }
    }
}

fn table(visit: &Visit, workers: &[v1::Worker]) -> Markup {
    html! {
        div.scroll role="group" aria-label="Workers" tabindex="0" {
            table.wide.cards.named {
                thead {
                    tr {
                        th scope="col" { "Worker" }
                        th scope="col" { "Queue" }
                        th scope="col" { "Labels" }
                        th.n scope="col" { "At once" }
                        th.n scope="col" { "Room" }
                        th scope="col" { "Has" }
                        th.n scope="col" { "Given so far" }
                        th scope="col" { "Last sign" }
                        th scope="col" { "Since" }
                    }
                }
                tbody { @for worker in workers.iter().take(SHOWN_MAX) { (row(visit, worker)) } }
            }
        }
    }
}

fn row(visit: &Visit, worker: &v1::Worker) -> Markup {
    let queue = short(&worker.queue);
    html! {
        tr {
            th scope="row" {
                @if worker.worker.is_empty() {
                    span.mute { "nameless" @if !worker.id.is_empty() { ", " (worker.id) } }
                } @else { (worker.worker) }
                @if worker.polls { " " span.mute { "polls" } }
            }
            td.name data-label="Queue" { a href=(workers(&visit.ns, queue)) { (queue) } }
            td.text data-label=[(!worker.labels.is_empty()).then_some("Labels")] {
                @for (at, label) in worker.labels.iter().enumerate() {
                    @if at > 0 { ", " }
                    code { (label) }
                }
            }
            td.n data-label="At once" { (count(worker.capacity)) }
            td.n.zero[worker.room == 0] data-label="Room" {
                span class=(if worker.room > 0 { "" } else { "mute" }) { (count(worker.room)) }
            }
            td data-label="Has" { (events(visit, worker)) }
            td.n data-label="Given so far" { (count(worker.given_count)) }
            td data-label="Last sign" { (moment(visit.now_us, worker.last_sign_time.as_ref())) }
            td data-label="Since" { (moment(visit.now_us, worker.connect_time.as_ref())) }
        }
    }
}

/// The events that it has, the oldest first.
fn events(visit: &Visit, worker: &v1::Worker) -> Markup {
    let more = worker.events_count.saturating_sub(u32::try_from(worker.events.len()).unwrap_or(u32::MAX));
    html! {
        @if worker.events_count == 0 { span.mute { "nothing" } } @else {
            // Under the worker's own name, so that it stays open.
            details id={ "w-" (worker.queue) "-" (worker.id) } {
                summary { (counted(worker.events_count, "event")) }
                ul {
                    @for event in &worker.events {
                        li { a href=(to(&visit.full("events", event))) { (clipped(event)) } }
                    }
                    @if more > 0 { li.mute { "and " (count(more)) " later ones" } }
                }
            }
        }
    }
}
