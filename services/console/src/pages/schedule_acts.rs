//! What is done to a schedule: asked with what it comes to, and then carried out.

use axum::extract::{Form, Path};
use axum::response::Response;
use chrono::DateTime;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::convert::payload::from_json;
use tollgate_proto::convert::timestamp;
use tollgate_proto::v1;

use crate::pages::schedule;
use crate::parts::confirm::{self, Deed};
use crate::parts::shell::Section;
use crate::requests::api::Api;
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{count, counted, exact, moment, short};

/// How many of a schedule's runs are read to say what goes on, or to find events to try again.
const RUNS_MAX: i32 = 200;
/// How many runs are named whose dead events could not be tried again.
const REFUSED_MAX: usize = 5;

/// The schedule's id in a path.
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
    #[serde(default)]
    events: String,
    #[serde(default)]
    launch_time: String,
    #[serde(default)]
    priority: String,
    #[serde(default)]
    payload: String,
    #[serde(default)]
    etag: String,
    #[serde(default)]
    request_id: String,
}

impl Order {
    fn events(&self) -> Result<Option<u32>, Problem> {
        match self.events.trim() {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Problem::invalid("events", text, "a whole number from 1 to 10,000,000, or nothing")
            }),
        }
    }

    /// What a trigger asks for, of a schedule by its name.
    fn wanted(&self, name: &str) -> Result<v1::TriggerScheduleRequest, Problem> {
        let launch_time = match self.launch_time.trim() {
            "" => None,
            text => Some(DateTime::parse_from_rfc3339(text).map_err(|_| {
                Problem::invalid("launch_time", text, "a time such as 2026-03-29T03:00:00Z, or nothing")
            })?),
        };
        let priority = match self.priority.trim() {
            "" => None,
            text => {
                let wrong = |_| Problem::invalid("priority", text, "0 (last) to 9 (first), or nothing");
                Some(text.parse().map_err(wrong)?)
            }
        };
        let payload = match self.payload.trim() {
            "" => None,
            text => {
                let wrong = |error| Problem::invalid("payload", text, &format!("JSON, or nothing: {error}"));
                Some(from_json(&serde_json::from_str(text).map_err(wrong)?))
            }
        };
        Ok(v1::TriggerScheduleRequest {
            name: name.to_owned(),
            events: self.events()?,
            request_id: self.request_id.clone(),
            launch_time: launch_time.map(|at| timestamp(at.timestamp_micros())),
            priority,
            payload,
        })
    }
}

/// Asks, or does what has been confirmed.
pub(crate) async fn act(visit: Visit, Path(Id { id }): Path<Id>, Form(order): Form<Order>) -> Response {
    let name = visit.full("schedules", &id);
    match Box::pin(carry_out(&visit, &name, &order)).await {
        Ok(response) => response,
        Err(problem) => {
            let body =
                Box::pin(schedule::body(&visit, &name, &schedule::Wanted::default(), Some(problem))).await;
            visit.respond(body)
        }
    }
}

async fn carry_out(visit: &Visit, name: &str, order: &Order) -> Result<Response, Problem> {
    let deed = deed(visit, name, order).await?;
    let given = (order.confirmed.as_str(), order.reason.as_str());
    confirm::settle(visit, Section::Schedules, &deed, given, |reason| carried_out(visit, name, order, reason))
        .await
}

async fn carried_out(visit: &Visit, name: &str, order: &Order, reason: String) -> Result<Response, Problem> {
    let api = visit.api.because(&reason);
    let mut master = api.master();
    let (path, name) = (to(name), name.to_owned());
    Ok(match order.action.as_str() {
        "trigger" => {
            let run = master.trigger_schedule(order.wanted(&name)?).await?;
            visit.after(&to(&run.into_inner().name), "triggered")
        }
        "pause" => {
            master.pause_schedule(v1::PauseScheduleRequest { name, reason, ..Default::default() }).await?;
            visit.after(&path, "paused")
        }
        "resume" => {
            master.resume_schedule(v1::ResumeScheduleRequest { name, ..Default::default() }).await?;
            visit.after(&path, "resumed")
        }
        "retry" => {
            try_again(&api, with_dead(visit, &name).await?.runs).await?;
            visit.after(&path, "retried")
        }
        _ => {
            master
                .delete_schedule(v1::DeleteScheduleRequest {
                    name,
                    etag: order.etag.clone(),
                    ..Default::default()
                })
                .await?;
            visit.after(&visit.link("schedules"), "deleted")
        }
    })
}

/// Tries the dead events of runs again. One that is refused keeps no other back; how many were is said.
async fn try_again(api: &Api, runs: Vec<v1::Run>) -> Result<(), Problem> {
    let mut done = 0_u64;
    let mut refused: Vec<(String, Problem)> = Vec::new();
    for run in runs {
        let request = v1::RetryDeadEventsRequest { parent: run.name.clone(), events: Vec::new() };
        match api.handler().retry_dead_events(request).await {
            Ok(_) => done += 1,
            Err(status) => refused.push((run.name, status.into())),
        }
    }
    not_all(done, &refused).map_or(Ok(()), Err)
}

/// What is said where some runs' events are not tried again; none where all are.
fn not_all(done: u64, refused: &[(String, Problem)]) -> Option<Problem> {
    let (_, first) = refused.first()?;
    let title = format!(
        "The dead events of {} will be tried again; those of {} will not.",
        counted(done, "run"),
        counted(refused.len() as u64, "run"),
    );
    let lines = refused.iter().take(REFUSED_MAX);
    let lines = lines.map(|(run, problem)| format!("{}: {}", short(run), problem.text())).collect();
    Some(Problem { title, lines, ..first.clone() })
}

/// Runs of a schedule that have dead events, among the latest that are read.
struct WithDead {
    runs: Vec<v1::Run>,
    events: u64,
    cut: bool,
}

async fn with_dead(visit: &Visit, name: &str) -> Result<WithDead, Problem> {
    let filter = format!("schedule={} AND launch_time<={}", short(name), exact(visit.now_us));
    let read = visit.api.runs(visit.parent(), &filter, RUNS_MAX, "").await?;
    let dead = |run: &v1::Run| u64::from(run.counts.unwrap_or_default().dead);
    let runs: Vec<v1::Run> = read.runs.into_iter().filter(|run| dead(run) > 0).collect();
    let events = runs.iter().map(dead).sum();
    Ok(WithDead { runs, events, cut: !read.next_page_token.is_empty() })
}

async fn deed(visit: &Visit, name: &str, order: &Order) -> Result<Deed, Problem> {
    let schedule = visit.api.schedule(name).await?;
    let id = short(name);
    let mut fields =
        vec![("action".to_owned(), order.action.clone()), ("etag".to_owned(), schedule.etag.clone())];
    let (question, effects, button) = match order.action.as_str() {
        "trigger" => {
            let said = [("events", &order.events), ("launch_time", &order.launch_time)];
            let more = [("priority", &order.priority), ("payload", &order.payload)];
            fields.extend(said.into_iter().chain(more).map(|(key, text)| (key.to_owned(), text.clone())));
            fields.push(confirm::once(&order.request_id));
            let wanted = order.wanted(name)?;
            let effects = trigger(visit, &schedule, &wanted).await;
            let when = if wanted.launch_time.is_some() { "" } else { " now" };
            (format!("Trigger {id}{when}?"), effects, "Trigger it")
        }
        "pause" => (format!("Pause {id}?"), pause(visit, name).await, "Pause it"),
        "resume" => (format!("Resume {id}?"), resume(&schedule), "Resume it"),
        "retry" => {
            let found = with_dead(visit, name).await?;
            (format!("Try the dead events of {id} again?"), retry(&found), "Try them again")
        }
        "delete" => (format!("Delete {id}?"), delete(visit, name).await, "Delete it"),
        other => {
            return Err(Problem::invalid("action", other, "trigger, pause, resume, retry or delete"));
        }
    };
    let is_dangerous = !matches!(order.action.as_str(), "resume" | "retry");
    Ok(Deed { question, effects, path: to(name), fields, button, is_dangerous })
}

/// Its runs that are due and unfinished, their waiting events and those in flight.
async fn unfinished(visit: &Visit, name: &str) -> Markup {
    let mut sums = (0_u64, 0_u64, 0_u64, false);
    for state in ["WAITING", "RUNNING"] {
        // Runs are emitted ahead, and those that are still to come are withdrawn or corrected with it.
        let due = exact(visit.now_us);
        let filter = format!("schedule={} AND state={state} AND launch_time<={due}", short(name));
        let Ok(read) = visit.api.runs(visit.parent(), &filter, RUNS_MAX, "").await else {
            return html! { "What of it is unfinished cannot be said now." };
        };
        for run in &read.runs {
            sums.0 += 1;
            sums.1 += u64::from(run.waiting_count);
            sums.2 += u64::from(run.in_flight_count);
        }
        sums.3 |= !read.next_page_token.is_empty();
    }
    html! {
        @if sums.0 == 0 { "None of its runs is due and unfinished." } @else {
            @if sums.3 { "More than " }
            strong { (counted(sums.0, "run")) } " due and unfinished: " (counted(sums.1, "waiting event")) ", "
            (count(sums.2)) " in flight. What is in flight ends as usual."
        }
    }
}

async fn trigger(visit: &Visit, schedule: &v1::Schedule, wanted: &v1::TriggerScheduleRequest) -> Vec<Markup> {
    let events = wanted.events.or(schedule.events).unwrap_or(1);
    let status = visit.api.handler_status(visit.parent()).await.unwrap_or_default();
    let gauge = status.policies.into_iter().find(|gauge| gauge.policy == schedule.policy);
    let gauge = gauge.filter(|_| !schedule.policy.is_empty());
    let free = gauge.as_ref().and_then(|gauge| {
        Some(u64::from(gauge.max_in_flight?).saturating_sub(gauge.held_count + gauge.waiting_count))
    });
    let target = match schedule.target.as_ref().and_then(|target| target.target.as_ref()) {
        Some(v1::target::Target::Http(http)) => http.url.clone(),
        Some(v1::target::Target::Sqs(sqs)) => sqs.queue_url.clone(),
        Some(v1::target::Target::Kafka(kafka)) => kafka.shown(),
        Some(v1::target::Target::Pull(pull)) => pull.address(),
        None => String::new(),
    };
    vec![
        html! {
            "A run of "
            @if schedule.items_from.is_some() { strong { "an event for each item of its list, which is fetched first," } }
            @else { strong { (counted(events, "event")) } }
            @match &wanted.launch_time {
                Some(at) => { " falls due " (moment(visit.now_us, Some(at))) }
                None => { " is made now" }
            }
            ", for " code { (target) }
            @if let Some(priority) = wanted.priority { ", with priority " (priority) }
            @if wanted.payload.is_some() { ", with a payload of its own over the schedule's" } "."
        },
        html! {
            @match (&gauge, free) {
                (None, _) if schedule.policy.is_empty() => {
                    strong { "No policy limits it" } ": all of them may start at once."
                }
                (Some(gauge), free) => {
                    "Policy " a href=(to(&gauge.policy)) { (short(&gauge.policy)) } ": "
                    @if gauge.paused { "it is paused, so they wait." }
                    @else if let Some(free) = free {
                        (counted(free.min(events.into()), "event")) " may start at once; "
                        (count(gauge.waiting_count)) " wait there already."
                    } @else { "only its rate limits them; " (count(gauge.waiting_count)) " wait there already." }
                }
                (None, _) => { "What its policy holds cannot be said now." }
            }
        },
    ]
}

async fn pause(visit: &Visit, name: &str) -> Vec<Markup> {
    vec![
        html! { "Triggers that fall due are skipped, and are not made up for." },
        html! { "Nothing of it that waits starts. " (unfinished(visit, name).await) },
    ]
}

fn resume(schedule: &v1::Schedule) -> Vec<Markup> {
    vec![
        html! { "It fires again as its timing says. What was skipped stays skipped; " strong { "what waits may start at once" } "." },
        html! {
            @if let Some(pause) = &schedule.pause {
                "It was paused by " (pause.actor)
                @if !pause.reason.is_empty() { ": “" (pause.reason) "”" } "."
            } @else { "It is not paused." }
        },
    ]
}

fn retry(found: &WithDead) -> Vec<Markup> {
    vec![
        html! {
            strong { (counted(found.events, "dead event")) } " of " (counted(found.runs.len() as u64, "run"))
            " are tried again, under their policy as any other."
        },
        html! {
            @if found.cut { "Only the latest " (RUNS_MAX) " runs were looked at; do it again for older ones from their pages." }
            @else { "All its runs were looked at." }
        },
    ]
}

async fn delete(visit: &Visit, name: &str) -> Vec<Markup> {
    vec![
        html! {
            "It never fires again. Runs that are not due yet are withdrawn; " strong { "what is due already runs on" } "."
        },
        unfinished(visit, name).await,
        html! { "What has ended stays in the history. " strong { "This cannot be undone." } },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_were_not_tried_again_is_said() {
        assert!(not_all(3, &[]).is_none());
        let refused = |n: u32| {
            let status = tonic::Status::unavailable("no handler owns it");
            (format!("namespaces/a/runs/0a-{n}"), Problem::from(status))
        };
        let refused: Vec<_> = (0..7).map(refused).collect();
        let Some(problem) = not_all(3, &refused) else { unreachable!() };
        assert_eq!(problem.title, "The dead events of 3 runs will be tried again; those of 7 runs will not.");
        assert_eq!((problem.lines.len(), problem.lines[0].as_str()), (5, "0a-0: no handler owns it"));
        assert_eq!(problem.status, http::StatusCode::BAD_GATEWAY);
    }
}
