//! One policy: its bucket, the events that hold its tokens, the schedules that wait, and what can be done about it.

use axum::extract::{Form, Path};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::parts::bucket::{holders, waiters};
use crate::parts::changes::changes as audited;
use crate::parts::chart::chart;
use crate::parts::picture::gauge;
use crate::parts::release::release;
use crate::parts::shell::{Body, Section};
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{active, count, dated, duration, encode, moment, rate, short};

/// How many changes a page shows.
const CHANGES: i32 = 8;

/// The policy's id in a path.
#[derive(Deserialize)]
pub(crate) struct Id {
    id: String,
}

/// The page.
pub(crate) async fn page(visit: Visit, Path(Id { id }): Path<Id>) -> Response {
    let body = body(&visit, &visit.full("policies", &id), None).await;
    visit.respond(body)
}

/// What a form of this page says.
#[derive(Deserialize)]
pub(crate) struct Order {
    action: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    max_in_flight: String,
    #[serde(default)]
    rate_per_second: String,
    #[serde(default)]
    etag: String,
    #[serde(default)]
    event: String,
    #[serde(default)]
    outcome: String,
}

/// Changes its limits, pauses or resumes it, or frees a token.
pub(crate) async fn act(visit: Visit, Path(Id { id }): Path<Id>, Form(order): Form<Order>) -> Response {
    let name = visit.full("policies", &id);
    match carry_out(&visit, &name, order).await {
        Ok(done) => visit.after(&to(&name), done),
        Err(problem) => {
            let body = body(&visit, &name, Some(problem)).await;
            visit.respond(body)
        }
    }
}

async fn carry_out(visit: &Visit, name: &str, order: Order) -> Result<&'static str, Problem> {
    let mut master = visit.api.master();
    let (name, reason) = (name.to_owned(), order.reason);
    match order.action.as_str() {
        "limit" => {
            let policy = v1::Policy {
                name,
                max_in_flight: number(
                    "max_in_flight",
                    &order.max_in_flight,
                    "a whole number from 1 on, or nothing",
                )?,
                rate_per_second: number(
                    "rate_per_second",
                    &order.rate_per_second,
                    "a number above 0, or nothing",
                )?,
                etag: order.etag,
                ..v1::Policy::default()
            };
            let paths = vec!["max_in_flight".to_owned(), "rate_per_second".to_owned()];
            let request = v1::UpdatePolicyRequest {
                policy: Some(policy),
                update_mask: Some(prost_types::FieldMask { paths }),
                validate_only: false,
            };
            master.update_policy(request).await?;
            Ok("limit")
        }
        "pause" => {
            master.pause_policy(v1::PausePolicyRequest { name, reason }).await?;
            Ok("paused")
        }
        "resume" => {
            master.resume_policy(v1::ResumePolicyRequest { name }).await?;
            Ok("resumed")
        }
        "release" => release(visit, &order.event, &order.outcome, reason).await,
        other => Err(Problem::invalid("action", other, "limit, pause, resume or release")),
    }
}

/// A number in a form; none where the field is empty.
fn number<N: std::str::FromStr>(field: &str, text: &str, expected: &str) -> Result<Option<N>, Problem> {
    match text.trim() {
        "" => Ok(None),
        given => given.parse().map(Some).map_err(|_| Problem::invalid(field, given, expected)),
    }
}

async fn body(visit: &Visit, name: &str, problem: Option<Problem>) -> Result<Body, Problem> {
    let (mut master, mut handler) = (visit.api.master(), visit.api.handler());
    let asked = v1::GetPolicyQueueRequest { name: name.to_owned(), ..v1::GetPolicyQueueRequest::default() };
    let (policy, status, queue, changes) = futures::future::join4(
        master.get_policy(v1::GetPolicyRequest { name: name.to_owned() }),
        visit.api.handler_status(visit.parent()),
        handler.get_policy_queue(asked),
        visit.api.audit(visit.parent(), name, CHANGES, ""),
    )
    .await;
    let policy = policy?.into_inner();
    let gauges = status.map(|status| status.policies).unwrap_or_default();
    visit.console.histories.note(visit.now_us, &gauges);
    let now = gauges.iter().find(|gauge| gauge.policy == name);
    let content = html! {
        p.crumb { a href=(visit.link("policies")) { "Policies" } }
        h1 { (short(name)) " " (active(policy.pause.as_ref())) }
        @if !policy.description.is_empty() { p.lead { (policy.description) } }
        div #live data-refresh="5" {
            @if let Some(pause) = &policy.pause {
                p.notice.warn { strong { "Paused" } " by " (pause.actor) ", " (moment(visit.now_us, pause.since.as_ref()))
                    @if !pause.reason.is_empty() { ": " (pause.reason) } ". Nothing under it starts." }
            }
            (bucket(&policy, now))
            @match queue {
                Ok(queue) => {
                    @let queue = queue.into_inner();
                    (holders(visit, &policy, &queue))
                    (waiters(visit, &queue, now))
                }
                Err(status) => {
                    p.notice.bad { "The holders of tokens and the schedules that wait cannot be shown: " (Problem::from(status).text()) }
                }
            }
            (chart(&visit.console, name, visit.now_us))
        }
        (actions(visit, &policy))
        section aria-labelledby="h-changes" {
            h2 #h-changes { "Latest changes" }
            @if let Ok(changes) = &changes { (audited(visit, &changes.audit_entries, false)) }
            p { a href={ (visit.link("audit")) "?resource=" (encode(name)) } { "All changes of this policy" } }
        }
        (facts(visit, &policy))
    };
    Ok(Body { problem, ..Body::new(short(name), Section::Policies, content) })
}

fn bucket(policy: &v1::Policy, now: Option<&v1::PolicyGauge>) -> Markup {
    let (held, suspect) = now.map_or((0, 0), |now| (now.held_count, now.suspect_count));
    let part = |label: &str, value: String, class: &str| {
        html! { div class=(class) { dt { (label) } dd { (value) } } }
    };
    html! {
        @if policy.max_in_flight.is_some() { div.big-gauge { (gauge(held, suspect, policy.max_in_flight)) } }
        dl.numbers {
            (part("Tokens held", match policy.max_in_flight {
                Some(limit) => format!("{} / {}", count(held), count(limit)),
                None => count(held),
            }, ""))
            (part("Events waiting", count(now.map_or(0, |now| now.waiting_count)), ""))
            (part("Oldest wait", now.filter(|now| now.waiting_count > 0)
                .map_or_else(|| "–".to_owned(), |now| duration(now.oldest_wait.as_ref())), ""))
            (part("Started per second", rate(now.map_or(0.0, |now| now.started_per_second)), ""))
            @if let Some(limit) = policy.rate_per_second { (part("Rate limit/s", rate(limit), "")) }
            (part("Tokens suspect", count(suspect), if suspect > 0 { "warn" } else { "" }))
        }
    }
}

fn actions(visit: &Visit, policy: &v1::Policy) -> Markup {
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
                button type="submit" name="action" value="limit" { "Change the limits" }
                p.hint {
                    "At least one of them; empty means none. After a decrease nothing starts until enough tokens have \
                     come back."
                }
            }
            form method="post" action=(path) {
                @if policy.pause.is_some() {
                    button type="submit" name="action" value="resume" { "Resume" }
                    p.hint { "What is due starts at once, as far as the limits let it." }
                } @else {
                    div.grow {
                        label for="reason" { "Reason, for the next operator" }
                        input #reason name="reason" maxlength="1000" autocomplete="off";
                    }
                    button.danger type="submit" name="action" value="pause" { "Pause" }
                    p.hint { "Nothing under it starts; what is in flight ends as usual." }
                }
            }
        }
        p.mute { "It will stand in the audit log as done by " (visit.actor) ". " a href=(visit.link("you")) { "Another name" } }
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
                @for (key, value) in &policy.labels { dt { "Label " (key) } dd { (value) } }
                dt { "Made" } dd { (dated(visit.now_us, policy.create_time.as_ref())) }
                dt { "Changed" } dd { (dated(visit.now_us, policy.update_time.as_ref())) }
                dt { "Queue shard" } dd { (policy.shard) }
                dt { "Schedules" }
                dd { a href={ (visit.link("schedules")) "?policy=" (short(&policy.name)) } { "those that use it" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_forms_are_read() {
        assert_eq!(number::<u32>("a", " 7 ", "").ok().flatten(), Some(7));
        assert!(number::<u32>("a", "", "").is_ok_and(|none| none.is_none()));
        let refused = number::<u32>("a", "-1", "more").map_err(|problem| problem.text());
        assert_eq!(refused, Err("a: \"-1\" is not allowed, expected more".to_owned()));
    }
}
