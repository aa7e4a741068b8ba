//! What is done to all schedules that match: counted, asked, and then done step by step.

use axum::extract::Form;
use axum::response::Response;
use maud::html;
use serde::Deserialize;
use tollgate_proto::v1;

use crate::pages::schedules;
use crate::parts::confirm::{self, Deed};
use crate::parts::filters::Wanted;
use crate::parts::shell::Section;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{counted, short};

/// How many steps one request takes: to count, and to do something.
const COUNT_STEPS: usize = 10;
const STEPS: usize = 10;

/// What a form says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Order {
    action: String,
    confirmed: String,
    reason: String,
    /// Which schedules, in the API's words.
    filter: String,
    /// Where the steps before have ended.
    page_token: String,
    request_id: String,
}

/// How far some steps have come.
#[derive(Clone, Debug, Default)]
struct Steps {
    matched: u64,
    done: u64,
    refused: u64,
    refusals: Vec<v1::ScheduleRefusal>,
    /// For the next step; empty where there is none.
    next: String,
}

macro_rules! add {
    ($steps:ident, $answer:expr, $done:ident) => {{
        let answer = $answer.into_inner();
        $steps.matched += u64::from(answer.matched_count);
        $steps.done += u64::from(answer.$done);
        $steps.refused += u64::from(answer.refused_count);
        $steps.refusals.extend(answer.refusals);
        $steps.next = answer.next_page_token;
    }};
}

/// Asks, or does what has been confirmed.
pub(crate) async fn act(visit: Visit, Form(order): Form<Order>) -> Response {
    match Box::pin(carry_out(&visit, &order)).await {
        Ok(response) => response,
        Err(problem) => {
            let body = Box::pin(schedules::body(&visit, &Wanted::default(), Some(problem))).await;
            visit.respond(Ok(body))
        }
    }
}

async fn carry_out(visit: &Visit, order: &Order) -> Result<Response, Problem> {
    if !matches!(order.action.as_str(), "pause" | "resume" | "trigger" | "delete") {
        return Err(Problem::invalid("action", &order.action, "pause, resume, trigger or delete"));
    }
    let matched = steps(visit, order, "", COUNT_STEPS, true).await?;
    let deed = deed(visit, order, &matched, None);
    let given = (order.confirmed.as_str(), order.reason.as_str());
    confirm::settle(visit, Section::Schedules, &deed, given, |reason| carried_out(visit, order, reason)).await
}

async fn carried_out(visit: &Visit, order: &Order, reason: String) -> Result<Response, Problem> {
    let done = steps(visit, order, &reason, STEPS, false).await?;
    if !done.next.is_empty() {
        // The rest is asked for again, from where this has ended.
        let rest = Order { page_token: done.next.clone(), ..order.clone() };
        let matched = steps(visit, &rest, "", COUNT_STEPS, true).await?;
        let deed = deed(visit, &rest, &matched, Some(&done));
        let path = visit.link("schedules");
        let nothing = |_| async { Ok(visit.after(&path, "")) };
        return confirm::settle(visit, Section::Schedules, &deed, ("", &reason), nothing).await;
    }
    if done.refused > 0 {
        return Err(refused(&done));
    }
    Ok(visit.after(&visit.link("schedules"), "many"))
}

/// What is said where some could not be.
fn refused(done: &Steps) -> Problem {
    let lines = done.refusals.iter().map(|one| format!("{}: {}", short(&one.schedule), one.message));
    Problem {
        status: http::StatusCode::CONFLICT,
        title: format!(
            "It is done to {}; {} could not be.",
            counted(done.done, "schedule"),
            counted(done.refused, "other schedule")
        ),
        lines: lines.collect(),
        fields: Vec::new(),
    }
}

/// Some steps, from where the order says; with `validate_only` they count and change nothing.
async fn steps(
    visit: &Visit,
    order: &Order,
    reason: &str,
    most: usize,
    validate_only: bool,
) -> Result<Steps, Problem> {
    let api = visit.api.because(reason);
    let mut master = api.master();
    let mut done = Steps { next: order.page_token.clone(), ..Steps::default() };
    for _ in 0..most {
        let (parent, filter) = (visit.parent(), order.filter.clone());
        let page_token = std::mem::take(&mut done.next);
        match order.action.as_str() {
            "pause" => {
                let reason = reason.to_owned();
                let request = v1::PauseSchedulesRequest { parent, filter, page_token, validate_only, reason };
                add!(done, master.pause_schedules(request).await?, paused_count);
            }
            "resume" => {
                let request = v1::ResumeSchedulesRequest { parent, filter, page_token, validate_only };
                add!(done, master.resume_schedules(request).await?, resumed_count);
            }
            "trigger" => {
                let request_id = order.request_id.clone();
                let request = v1::TriggerSchedulesRequest {
                    parent,
                    filter,
                    page_token,
                    validate_only,
                    request_id,
                    events: None,
                };
                add!(done, master.trigger_schedules(request).await?, triggered_count);
            }
            _ => {
                let request = v1::DeleteSchedulesRequest { parent, filter, page_token, validate_only };
                add!(done, master.delete_schedules(request).await?, deleted_count);
            }
        }
        if done.next.is_empty() {
            break;
        }
    }
    Ok(done)
}

fn deed(visit: &Visit, order: &Order, matched: &Steps, before: Option<&Steps>) -> Deed {
    let at_least = if matched.next.is_empty() { "" } else { "at least " };
    let (verb, effect, button) = match order.action.as_str() {
        "pause" => (
            "Pause",
            " are paused: their triggers are skipped, and nothing of them that waits starts.",
            "Pause them",
        ),
        "resume" => ("Resume", " are resumed; what waits may start at once.", "Resume them"),
        "trigger" => ("Trigger", " have a run each, now, but for those that are paused.", "Trigger them"),
        _ => ("Delete", " are deleted. This cannot be undone.", "Delete them"),
    };
    let mut effects = Vec::new();
    if let Some(before) = before {
        effects.push(html! { (counted(before.done, "schedule")) " are done. There are more: go on?" });
        if before.refused > 0 {
            effects.push(html! { (refused(before).text()) });
        }
    }
    effects.push(html! { strong { (at_least) (counted(matched.matched, "schedule")) } (effect) });
    effects.push(html! { "Only of those that fit: " code { (order.filter) } });
    let fields = [("action", &order.action), ("filter", &order.filter), ("page_token", &order.page_token)];
    let mut fields = fields.map(|(name, value)| (name.to_owned(), value.clone())).to_vec();
    fields.push(confirm::once(&order.request_id));
    Deed {
        question: format!("{verb} all of these schedules?"),
        effects,
        path: visit.link("schedules"),
        fields,
        button,
        is_dangerous: order.action != "resume",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_could_not_be_are_named() {
        let refusal = v1::ScheduleRefusal {
            schedule: "namespaces/a/schedules/nightly".to_owned(),
            message: "it is paused".to_owned(),
        };
        let done = Steps { done: 2, refused: 1, refusals: vec![refusal], ..Steps::default() };
        let problem = refused(&done);
        assert_eq!(problem.title, "It is done to 2 schedules; 1 other schedule could not be.");
        assert_eq!(problem.lines, ["nightly: it is paused"]);
    }
}
