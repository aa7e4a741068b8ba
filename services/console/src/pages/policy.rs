//! One policy: its bucket, the events that hold its tokens, the schedules that wait, and what can be done about it.

use std::sync::Arc;

use axum::extract::{Path, Query};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_files::document;
use tollgate_proto::v1;

use crate::parts::bucket::{holders, keys, waiters};
use crate::parts::changes::changes as audited;
use crate::parts::chart::{History, OF_POLICY, legend, ranges, unknown};
use crate::parts::confirm::ask;
use crate::parts::copy;
use crate::parts::draft::What;
use crate::parts::flow::bucket;
use crate::parts::shell::{Body, Section};
use crate::parts::tree::tree;
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::range::{HOUR, Range};
use crate::words::show::{active, count, counted, dated, duration, encode, moment, short};

/// How many changes a page shows.
const CHANGES: i32 = 8;

/// The policy's id in a path.
#[derive(Deserialize)]
pub(crate) struct Id {
    id: String,
}

/// Of which time the charts are; an hour where it is none that can be chosen.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    span: String,
}

/// The page.
pub(crate) async fn page(visit: Visit, Path(Id { id }): Path<Id>, Query(wanted): Query<Wanted>) -> Response {
    let body = body(&visit, &visit.full("policies", &id), &wanted, None).await;
    visit.respond(body)
}

/// The policy, with what went wrong before.
pub(crate) async fn body(
    visit: &Visit,
    name: &str,
    wanted: &Wanted,
    problem: Option<Problem>,
) -> Result<Body, Problem> {
    let range = Range::named(&wanted.span).unwrap_or(HOUR);
    let (mut master, mut handler) = (visit.api.master(), visit.api.handler());
    let asked = v1::GetPolicyQueueRequest { name: name.to_owned(), ..v1::GetPolicyQueueRequest::default() };
    let of_it = format!("resource={name}");
    let (policy, status, queue, changes, history) = futures::future::join5(
        master.get_policy(v1::GetPolicyRequest { name: name.to_owned() }),
        visit.api.handler_status(visit.parent()),
        handler.get_policy_queue(asked),
        visit.api.audit(visit.parent(), &of_it, CHANGES, ""),
        visit.history(name, range),
    )
    .await;
    let policy = policy?.into_inner();
    let now = status.iter().flat_map(|status| &status.policies).find(|gauge| gauge.policy == name);
    let content = html! {
        p.crumb { a href=(visit.link("policies")) { "Policies" } }
        h1 { (short(name)) " " (active(policy.pause.as_ref())) }
        @if !policy.description.is_empty() { p.lead { (policy.description) } }
        div #live data-refresh="5" {
            @if let Some(pause) = &policy.pause {
                p.notice.warn { strong { "Paused" } " by " (pause.actor) ", " (moment(visit.now_us, pause.since.as_ref()))
                    @if !pause.reason.is_empty() { ": " (pause.reason) } ". Nothing under it starts." }
            }
            (bucket(visit.now_us, &policy, now))
            @if let Ok(status) = &status { (tree(&status.policies, name)) }
            (charts(visit, &policy, range, &history))
            @match queue {
                Ok(queue) => {
                    @let queue = queue.into_inner();
                    (holders(visit, &policy, &queue))
                    (waiters(visit, &queue, now))
                    (keys(visit, &queue))
                }
                Err(status) => {
                    p.notice.bad { "The holders of tokens and the schedules that wait cannot be shown: " (Problem::from(status).text()) }
                }
            }
        }
        (actions(&policy))
        section aria-labelledby="h-changes" {
            h2 #h-changes { "Latest changes" }
            @if let Ok(changes) = &changes { (audited(visit, &changes.audit_entries, false)) }
            p { a href={ (visit.link("audit")) "?resource=" (encode(name)) } { "All changes of this policy" } }
        }
        (facts(visit, &policy))
        (copy::fold(&document(What::Policy.kind(), &policy)))
    };
    Ok(Body { problem, ..Body::new(short(name), Section::Policies, content) })
}

fn charts(
    visit: &Visit,
    policy: &v1::Policy,
    range: Range,
    history: &Result<Arc<v1::ListHistoryResponse>, Problem>,
) -> Markup {
    html! {
        section aria-labelledby="h-history" {
            div.title { h2 #h-history { "The last " (range.words) } (ranges(&to(&policy.name), "h-history", Some(range))) }
            @match history {
                Ok(answer) => {
                    @let history = History::new(answer, visit.now_us);
                    (history.drawn(&OF_POLICY, true, policy.max_in_flight))
                    (legend(range.step_us))
                    (history.table())
                }
                Err(problem) => { (unknown(problem)) }
            }
        }
    }
}

fn actions(policy: &v1::Policy) -> Markup {
    let path = to(&policy.name);
    let limit = policy.max_in_flight.map(|limit| limit.to_string()).unwrap_or_default();
    let per_second = policy.rate_per_second.map(|rate| rate.to_string()).unwrap_or_default();
    html! {
        section.actions aria-labelledby="h-actions" {
            h2 #h-actions { "Change" }
            form method="post" action=(path) {
                input type="hidden" name="etag" value=(policy.etag);
                div {
                    label for="max_in_flight" { "In flight at most" }
                    input #max_in_flight name="max_in_flight" value=(limit) inputmode="numeric" autocomplete="off" size="8";
                }
                div {
                    label for="rate_per_second" { "Started per second at most" }
                    input #rate_per_second name="rate_per_second" value=(per_second) inputmode="decimal"
                        autocomplete="off" size="8";
                }
                button type="submit" name="action" value="limit" { "Change the limits…" }
                p.hint { "At least one of them, but below another policy; empty means none. What it comes to is shown before it is done." }
            }
            div.row {
                @if policy.pause.is_some() { (ask(&path, "resume", "Resume", false)) }
                @else { (ask(&path, "pause", "Pause", true)) }
                a.button href={ (path) "/edit" } { "Edit all settings" }
                (ask(&path, "delete", "Delete", true))
            }
        }
    }
}

/// Where it stands in a tree.
fn place(policy: &v1::Policy) -> Markup {
    html! {
        @if !policy.parent().is_empty() {
            dt { "Stands below" } dd { a href=(to(policy.parent())) { (short(policy.parent())) } }
            dt { "Floor" }
            dd {
                @match policy.floor() {
                    0 => { "none" }
                    floor => { (counted(floor, "token")) " of " (short(policy.parent())) }
                }
            }
            dt { "Weight" } dd { (count(policy.weight.unwrap_or(1))) }
        }
        @if policy.adopts { dt { "Adopts" } dd { "new policies of the namespace that name no parent" } }
    }
}

fn facts(visit: &Visit, policy: &v1::Policy) -> Markup {
    let reclaim = match policy.reclaim() {
        v1::Reclaim::Never => "never: a silent consumer's token is freed by an operator only".to_owned(),
        _ => format!(
            "after {} of silence, and {} more as suspect",
            duration(policy.token_ttl.as_ref()),
            policy.suspect_period.as_ref().map_or_else(|| "none".to_owned(), |period| duration(Some(period))),
        ),
    };
    html! {
        section aria-labelledby="h-facts" {
            h2 #h-facts { "Settings" }
            dl.facts {
                dt { "Tokens come back" } dd { (reclaim) }
                @if let Some(burst) = policy.burst { dt { "Burst" } dd { (count(burst)) } }
                (place(policy))
                @for (key, value) in &policy.labels { dt { "Label " (key) } dd { (value) } }
                dt { "Made" } dd { (dated(visit.now_us, policy.create_time.as_ref())) }
                dt { "Changed" } dd { (dated(visit.now_us, policy.update_time.as_ref())) }
                dt { "Schedules" }
                dd { a href={ (visit.link("schedules")) "?policy=" (short(&policy.name)) } { "those that use it" } }
            }
        }
        details.action #internals {
            summary { "Internals" }
            dl.facts { dt { "Queue shard" } dd { (policy.shard) } dt { "Uid" } dd { code { (policy.uid) } } }
        }
    }
}
