//! What is done to a run: asked with what it comes to, and then carried out.

use axum::extract::{Form, Path};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::pages::run::{self, Wanted};
use crate::parts::confirm::{self, Deed};
use crate::parts::failures;
use crate::parts::shell::Section;
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{count, counted, short};

/// How many events one call takes up by name.
const NAMED_MAX: usize = 1_000;

/// The run's id in a path.
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
    /// Only events that ended with such a message.
    #[serde(default)]
    like: String,
}

/// Asks, or does what has been confirmed.
pub(crate) async fn act(visit: Visit, Path(Id { id }): Path<Id>, Form(order): Form<Order>) -> Response {
    let name = visit.full("runs", &id);
    match Box::pin(carry_out(&visit, &name, &order)).await {
        Ok(response) => response,
        Err(problem) => {
            let body = Box::pin(run::body(&visit, &name, &Wanted::default(), Some(problem))).await;
            visit.respond(body)
        }
    }
}

async fn carry_out(visit: &Visit, name: &str, order: &Order) -> Result<Response, Problem> {
    let run = visit.api.handler().get_run(v1::GetRunRequest { name: name.to_owned() }).await?.into_inner();
    let deed = deed(visit, &run, order).await?;
    let given = (order.confirmed.as_str(), order.reason.as_str());
    confirm::settle(visit, Section::Runs, &deed, given, |reason| carried_out(visit, name, order, reason))
        .await
}

async fn carried_out(visit: &Visit, name: &str, order: &Order, reason: String) -> Result<Response, Problem> {
    let mut handler = visit.api.because(&reason).handler();
    let name = name.to_owned();
    let done = if order.action == "cancel" {
        handler.cancel_run(v1::CancelRunRequest { name: name.clone(), reason }).await?;
        "cancelled"
    } else {
        let events = alike(visit, &name, &order.like).await?;
        if !order.like.is_empty() && events.is_empty() {
            return Err(Problem::invalid("like", &order.like, "a message of dead events of this run"));
        }
        handler.retry_dead_events(v1::RetryDeadEventsRequest { parent: name.clone(), events }).await?;
        "retried"
    };
    Ok(visit.after(&to(&name), done))
}

/// The dead events with messages of this kind, as many as one call takes up; none where no kind is named.
async fn alike(visit: &Visit, run: &str, like: &str) -> Result<Vec<String>, Problem> {
    if like.is_empty() {
        return Ok(Vec::new());
    }
    let events = visit.api.events(run, "state=DEAD", failures::READ_MAX, "").await?.events;
    let alike = events.into_iter().filter(|event| failures::normalised(&event.message) == like);
    Ok(alike.map(|event| event.name).take(NAMED_MAX).collect())
}

async fn deed(visit: &Visit, run: &v1::Run, order: &Order) -> Result<Deed, Problem> {
    let of = short(&run.schedule);
    let (question, effects, button) = match order.action.as_str() {
        "cancel" => (format!("Cancel this run of {of}?"), cancel(run), "Cancel the run"),
        "retry" => {
            let events = match order.like.as_str() {
                "" => u64::from(run.counts.unwrap_or_default().dead),
                like => alike(visit, &run.name, like).await?.len() as u64,
            };
            ("Try the dead events again?".to_owned(), retry(run, events, &order.like), "Try them again")
        }
        other => return Err(Problem::invalid("action", other, "cancel or retry")),
    };
    let fields = vec![("action".to_owned(), order.action.clone()), ("like".to_owned(), order.like.clone())];
    let is_dangerous = order.action == "cancel";
    Ok(Deed { question, effects, path: to(&run.name), fields, button, is_dangerous })
}

fn cancel(run: &v1::Run) -> Vec<Markup> {
    vec![
        html! {
            strong { (counted(run.waiting_count, "event")) } " of " (count(run.events))
            " that have not started never will. " strong { "This cannot be undone." }
        },
        html! { (counted(run.in_flight_count, "event")) " in flight end as their consumers say." },
    ]
}

fn retry(run: &v1::Run, events: u64, like: &str) -> Vec<Markup> {
    vec![
        html! {
            strong { (counted(events, "dead event")) } " are tried again"
            @if !run.policy.is_empty() { ", under " a href=(to(&run.policy)) { (short(&run.policy)) } " as any other" }
            "."
        },
        html! {
            @if like.is_empty() { "All dead events of this run." } @else { "Only those that ended with: " code { (like) } }
        },
    ]
}
