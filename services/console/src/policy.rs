//! One policy: its bucket, who holds its tokens, who waits, and what can be done about it.

use axum::extract::{Form, Path};
use axum::response::Response;
use futures::future::join_all;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::audit;
use crate::event;
use crate::now::{progress, reason};
use crate::picture::gauge;
use crate::problem::Problem;
use crate::shell::Section;
use crate::show::{active, count, dated, duration, event_state, moment, rate, seen, short, span_us, tag, us};
use crate::visit::{Body, Visit, to};
use crate::waiting::{Due, Line, due};

/// So many runs are asked who holds their tokens.
const RUNS_ASKED: usize = 10;
/// So many events of each state are read of each of them.
const EVENTS_READ: i32 = 50;
/// So many holders are shown.
const HOLDERS_MAX: usize = 50;
/// So many changes are shown.
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
        "release" => event::release(visit, &order.event, &order.outcome, reason).await,
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

/// An event that holds a token of the policy.
struct Holding {
    event: String,
    schedule: String,
    state: v1::EventState,
    since_us: i64,
    expire_us: Option<i64>,
    delivered: bool,
}

async fn body(visit: &Visit, name: &str, problem: Option<Problem>) -> Result<Body, Problem> {
    let mut master = visit.api.master();
    let (policy, status, changes) = futures::future::join3(
        master.get_policy(v1::GetPolicyRequest { name: name.to_owned() }),
        visit.api.handler_status(visit.parent()),
        visit.api.audit(visit.parent(), name, CHANGES, ""),
    )
    .await;
    let policy = policy?.into_inner();
    let due = due(&visit.api, &visit.parent(), visit.now_us, Some(name), status.as_ref().ok()).await;
    let (due, gauges) = (due.unwrap_or_default(), status.map(|status| status.policies).unwrap_or_default());
    let holding = holding(visit, &due).await;
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
            (holders(visit, &policy, now, &holding))
            (waiters(visit, &due))
        }
        (actions(visit, &policy))
        section aria-labelledby="h-changes" {
            h2 #h-changes { "Latest changes" }
            @if let Ok(changes) = &changes { (audit::table(visit, &changes.audit_entries, false)) }
            p { a href={ (visit.link("audit")) "?resource=" (crate::show::encode(name)) } { "All changes of this policy" } }
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

/// Who holds tokens, longest first: there is no list of holders, so the unfinished runs are asked, and an event that waits
/// knows when the oldest ten come back by themselves.
async fn holding(visit: &Visit, due: &Due) -> Vec<Holding> {
    let asked = due.running.iter().filter(|line| line.run.in_flight_count > 0).take(RUNS_ASKED);
    let read = asked.flat_map(|line| {
        ["state=HELD", "state=ACQUIRED"]
            .map(|filter| visit.api.events(&line.run.name, filter, EVENTS_READ, ""))
    });
    let pages = join_all(read).await;
    let events = pages.into_iter().flatten().flat_map(|page| page.events);
    let mut all: Vec<Holding> = events
        .map(|event| Holding {
            state: event.state(),
            since_us: event.acquire_time.as_ref().map_or(visit.now_us, us),
            expire_us: None,
            delivered: event.deliver_time.is_some(),
            event: event.name,
            schedule: event.schedule,
        })
        .collect();
    all.sort_by_key(|holding| holding.since_us);
    all.truncate(HOLDERS_MAX);
    // What waits is told who holds what it waits for.
    let told = due.running.iter().chain(&due.waiting).find_map(|line| line.why.as_ref());
    let own = match (told, all.first()) {
        (None, Some(oldest)) => visit.api.explain(&oldest.event).await.ok(),
        _ => None,
    };
    for holder in told.or(own.as_ref()).into_iter().flat_map(|why| &why.holders) {
        if let Some(known) = all.iter_mut().find(|known| known.event == holder.event) {
            known.state = holder.state();
            known.expire_us = holder.expire_time.as_ref().map(us);
        }
    }
    all
}

fn holders(visit: &Visit, policy: &v1::Policy, now: Option<&v1::PolicyGauge>, all: &[Holding]) -> Markup {
    let held = now.map_or(0, |now| now.held_count);
    html! {
        section aria-labelledby="h-holders" {
            h2 #h-holders { "Who holds tokens, longest first" }
            @if all.is_empty() {
                p.mute {
                    @if held > 0 { "Nobody that could be read just now; " (count(held)) " tokens are held." }
                    @else { "Nobody." }
                }
            } @else {
                div.scroll role="group" aria-labelledby="h-holders" tabindex="0" {
                    table.wide {
                        thead {
                            tr {
                                th scope="col" { "Event" }
                                th scope="col" { "Schedule" }
                                th scope="col" { "State" }
                                th.n scope="col" { "Held for" }
                                th.opt scope="col" { "If it stays silent" }
                                th scope="col" { span.hidden { "Action" } }
                            }
                        }
                        tbody { @for holding in all { (holder_row(visit, policy, holding)) } }
                    }
                }
                @if held > all.len() as u64 {
                    p.mute { (all.len()) " of about " (count(held)) " are shown, from the runs that have been due longest." }
                }
            }
        }
    }
}

fn holder_row(visit: &Visit, policy: &v1::Policy, holding: &Holding) -> Markup {
    let id = short(&holding.event);
    html! {
        tr id={ "h-" (id) } {
            th.id scope="row" { a href=(to(&holding.event)) title=(id) { (clipped(id)) } }
            td { a href=(to(&holding.schedule)) { (short(&holding.schedule)) } }
            td {
                (event_state(holding.state))
                @if !holding.delivered { " " span.mute { "delivery under way" } }
            }
            td.n { (span_us(visit.now_us - holding.since_us)) }
            td.opt {
                @match (holding.expire_us, policy.reclaim()) {
                    (Some(at), _) => { (seen(visit.now_us, at)) }
                    (None, v1::Reclaim::Never) => { span.mute { "nothing: an operator frees it" } }
                    (None, _) => {}
                }
            }
            td {
                details.free id={ "f-" (id) } {
                    summary { "Free…" span.hidden { " the token of " (id) } }
                    form method="post" action=(to(&policy.name)) data-keep {
                        input type="hidden" name="event" value=(holding.event);
                        (event::outcome_field(id))
                        label for={ "m-" (id) } { "Reason" }
                        input id={ "m-" (id) } name="reason" required maxlength="1000" autocomplete="off";
                        button.danger type="submit" name="action" value="release" { "Free the token" }
                    }
                }
            }
        }
    }
}

/// An id's beginning and end; the whole stands in its page.
pub(crate) fn clipped(id: &str) -> String {
    let chars: Vec<char> = id.chars().collect();
    if chars.len() <= 20 {
        return id.to_owned();
    }
    let (start, end) = (&chars[..8], &chars[chars.len() - 8..]);
    format!("{}…{}", start.iter().collect::<String>(), end.iter().collect::<String>())
}

fn waiters(visit: &Visit, due: &Due) -> Markup {
    let mut lines: Vec<&Line> =
        due.running.iter().chain(&due.waiting).filter(|line| line.run.waiting_count > 0).collect();
    let place = |line: &Line| line.why.as_ref().map(|why| why.place_in_line).filter(|place| *place >= 0);
    lines.sort_by_key(|line| {
        let launch_us = line.run.launch_time.as_ref().map(us);
        (std::cmp::Reverse(line.run.priority), place(line).unwrap_or(i64::MAX), launch_us)
    });
    html! {
        section aria-labelledby="h-waiters" {
            h2 #h-waiters { "Who waits, in the order in which they go" }
            @if lines.is_empty() {
                p.mute { "Nobody: all that is due under this policy has started." }
            } @else {
                div.scroll role="group" aria-labelledby="h-waiters" tabindex="0" {
                    table.wide {
                        thead {
                            tr {
                                th.n scope="col" { "Priority" }
                                th scope="col" { "Schedule" }
                                th scope="col" { "Run, due" }
                                th.gauge-cell.opt scope="col" { "Progress" }
                                th.n scope="col" { "Waiting" }
                                th.n scope="col" { "Before its next" }
                                th.opt scope="col" { "Why" }
                            }
                        }
                        tbody {
                            @for line in &lines {
                                tr id={ "w-" (short(&line.run.name)) } {
                                    td.n { (line.run.priority) }
                                    th scope="row" { a href=(to(&line.run.schedule)) { (short(&line.run.schedule)) } }
                                    td {
                                        a href=(to(&line.run.name)) { (moment(visit.now_us, line.run.launch_time.as_ref())) }
                                        @if line.at_risk { " " (tag("at risk", "bad")) }
                                    }
                                    td.gauge-cell.opt { (progress(&line.run)) }
                                    td.n {
                                        (count(u64::from(line.run.waiting_count) + line.behind.1))
                                        @if line.behind.0 > 0 {
                                            " " span.mute { "in " (line.behind.0 + 1) " runs" }
                                        }
                                    }
                                    td.n {
                                        @match place(line) {
                                            Some(0) => { "next" }
                                            Some(ahead) => { (count(ahead.unsigned_abs())) }
                                            None => { span.mute { "–" } }
                                        }
                                    }
                                    td.opt.text { (reason(line)) }
                                }
                            }
                        }
                    }
                }
                p.mute { "Higher priorities go first; schedules of the same priority take turns." }
                @if due.running_cut || due.waiting_cut {
                    p.mute { "There are more runs in the namespace than were read: some may be missing here." }
                }
            }
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
        assert_eq!(clipped("0a-0123456789abcdef0123456789abcdef-17-x"), "0a-01234…def-17-x");
    }
}
