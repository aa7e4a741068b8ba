//! What is done to a policy: asked with what it comes to, and then carried out.

use axum::extract::{Form, Path};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::pages::policy;
use crate::parts::confirm::{self, Deed};
use crate::parts::release::release;
use crate::parts::shell::Section;
use crate::parts::warnings;
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{count, counted, duration, rate, short};

/// How many schedules that use a policy are counted.
const USERS_MAX: i32 = 1_000;

/// The policy's id in a path.
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

/// The limits that a form names, or that a policy has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    pub(crate) max_in_flight: Option<u32>,
    pub(crate) rate_per_second: Option<f64>,
}

impl Order {
    fn limits(&self) -> Result<Limits, Problem> {
        Ok(Limits {
            max_in_flight: number(
                "max_in_flight",
                &self.max_in_flight,
                "a whole number from 1 on, or nothing",
            )?,
            rate_per_second: number(
                "rate_per_second",
                &self.rate_per_second,
                "a number above 0, or nothing",
            )?,
        })
    }
}

/// Asks, or does what has been confirmed.
pub(crate) async fn act(visit: Visit, Path(Id { id }): Path<Id>, Form(order): Form<Order>) -> Response {
    let name = visit.full("policies", &id);
    match Box::pin(carry_out(&visit, &name, &order)).await {
        Ok(response) => response,
        Err(problem) => {
            let body = Box::pin(policy::body(&visit, &name, &policy::Wanted::default(), Some(problem))).await;
            visit.respond(body)
        }
    }
}

async fn carry_out(visit: &Visit, name: &str, order: &Order) -> Result<Response, Problem> {
    // The form that frees a token says itself what becomes of the event, and why.
    if order.action == "release" {
        let done = release(visit, &order.event, &order.outcome, &order.reason).await?;
        return Ok(visit.after(&to(name), done));
    }
    let deed = deed(visit, name, order).await?;
    let given = (order.confirmed.as_str(), order.reason.as_str());
    confirm::settle(visit, Section::Policies, &deed, given, |reason| carried_out(visit, name, order, reason))
        .await
}

async fn carried_out(visit: &Visit, name: &str, order: &Order, reason: String) -> Result<Response, Problem> {
    let mut master = visit.api.because(&reason).master();
    let (path, name) = (to(name), name.to_owned());
    let done = match order.action.as_str() {
        "limit" => {
            let kept = master.update_policy(update(name.clone(), order, false)?).await?.into_inner();
            return Ok(warnings::saved(visit, Section::Policies, &name, "limit", &kept.warnings));
        }
        "pause" => {
            master.pause_policy(v1::PausePolicyRequest { name, reason, ..Default::default() }).await?;
            "paused"
        }
        "resume" => {
            master.resume_policy(v1::ResumePolicyRequest { name, ..Default::default() }).await?;
            "resumed"
        }
        _ => {
            master
                .delete_policy(v1::DeletePolicyRequest {
                    name,
                    etag: order.etag.clone(),
                    ..Default::default()
                })
                .await?;
            return Ok(visit.after(&visit.link("policies"), "deleted"));
        }
    };
    Ok(visit.after(&path, done))
}

fn update(name: String, order: &Order, validate_only: bool) -> Result<v1::UpdatePolicyRequest, Problem> {
    let Limits { max_in_flight, rate_per_second } = order.limits()?;
    let etag = order.etag.clone();
    let policy = v1::Policy { name, max_in_flight, rate_per_second, etag, ..v1::Policy::default() };
    let paths = vec!["max_in_flight".to_owned(), "rate_per_second".to_owned()];
    Ok(v1::UpdatePolicyRequest {
        policy: Some(policy),
        update_mask: Some(prost_types::FieldMask { paths }),
        validate_only,
    })
}

/// What is so now: what an act comes to depends on it.
struct Present {
    policy: v1::Policy,
    /// None where it cannot be said now.
    gauge: Option<v1::PolicyGauge>,
    hold_p99: String,
}

async fn present(visit: &Visit, name: &str) -> Result<Present, Problem> {
    let (mut master, mut handler) = (visit.api.master(), visit.api.handler());
    let asked =
        v1::GetPolicyQueueRequest { name: name.to_owned(), holders_max: 1, waiters_max: 1, keys_max: 1 };
    let (policy, status, queue) = futures::future::join3(
        master.get_policy(v1::GetPolicyRequest { name: name.to_owned() }),
        visit.api.handler_status(visit.parent()),
        handler.get_policy_queue(asked),
    )
    .await;
    let gauge = status.ok().and_then(|status| status.policies.into_iter().find(|gauge| gauge.policy == name));
    let p99 = queue.ok().and_then(|queue| queue.into_inner().hold_p99);
    Ok(Present {
        policy: policy?.into_inner(),
        gauge,
        hold_p99: p99.map(|p99| duration(Some(&p99))).unwrap_or_default(),
    })
}

async fn deed(visit: &Visit, name: &str, order: &Order) -> Result<Deed, Problem> {
    let now = present(visit, name).await?;
    let id = short(name);
    let mut fields =
        vec![("action".to_owned(), order.action.clone()), ("etag".to_owned(), now.policy.etag.clone())];
    let (question, effects, button) = match order.action.as_str() {
        "limit" => {
            let limits = order.limits()?;
            // Whether it may be said at all is for the service.
            let could_be = visit.api.master().update_policy(update(name.to_owned(), order, true)?).await?;
            let said = [
                ("action", &order.action),
                ("etag", &order.etag),
                ("max_in_flight", &order.max_in_flight),
                ("rate_per_second", &order.rate_per_second),
            ];
            fields = said.map(|(name, value)| (name.to_owned(), value.clone())).into();
            let mut effects = new_limits(&now, &limits);
            effects.extend(warnings::effects(&could_be.into_inner().warnings));
            (format!("Change the limits of {id}?"), effects, "Change the limits")
        }
        "pause" => (format!("Pause {id}?"), pause(&now), "Pause it"),
        "resume" => (format!("Resume {id}?"), resume(&now), "Resume it"),
        "delete" => {
            let effects = delete(visit, name, &now).await;
            (format!("Delete {id}?"), effects, "Delete it")
        }
        other => return Err(Problem::invalid("action", other, "limit, pause, resume, delete or release")),
    };
    let is_dangerous = order.action != "resume";
    Ok(Deed { question, effects, path: to(name), fields, button, is_dangerous })
}

/// What new limits come to that are part of an edit; `path` and `fields` are those of the edit's form.
pub(crate) async fn edited_limits(
    visit: &Visit,
    name: &str,
    limits: &Limits,
    path: String,
    fields: Vec<(String, String)>,
) -> Result<Deed, Problem> {
    let mut effects = new_limits(&present(visit, name).await?, limits);
    effects.push(html! { "Whatever else was changed in the form is saved with it." });
    Ok(Deed {
        question: format!("Change the limits of {}?", short(name)),
        effects,
        path,
        fields,
        button: "Save all changes",
        is_dangerous: true,
    })
}

/// How many of its waiting events may start at once under a limit.
fn at_once(gauge: &v1::PolicyGauge, max_in_flight: Option<u32>) -> u64 {
    let free = max_in_flight.map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(gauge.held_count));
    free.min(gauge.waiting_count)
}

/// Where there is no gauge.
fn unknown() -> Markup {
    html! { "How much waits and is in flight cannot be said now." }
}

fn limit_words(limit: Option<u32>) -> String {
    limit.map_or_else(|| "no limit".to_owned(), count)
}

fn new_limits(now: &Present, limits: &Limits) -> Vec<Markup> {
    let (old, new) = (now.policy.max_in_flight, limits.max_in_flight);
    let mut effects = Vec::new();
    if old != new {
        effects.push(html! {
            "In flight at most: " del { (limit_words(old)) } " → " strong { (limit_words(new)) } "."
        });
    }
    if now.policy.rate_per_second != limits.rate_per_second {
        let words = |limit: Option<f64>| limit.map_or_else(|| "no limit".to_owned(), rate);
        effects.push(html! {
            "Started per second at most: " del { (words(now.policy.rate_per_second)) } " → "
            strong { (words(limits.rate_per_second)) } "."
        });
    }
    if effects.is_empty() {
        effects.push(html! { "Nothing changes: these are its limits already." });
    }
    effects.push(now.gauge.as_ref().map_or_else(unknown, |gauge| starting(now, gauge, limits)));
    if !now.hold_p99.is_empty() {
        effects.push(html! { "Its consumers hold a token for at most " (now.hold_p99) " (p99)." });
    }
    effects
}

/// What may start under new limits.
fn starting(now: &Present, gauge: &v1::PolicyGauge, limits: &Limits) -> Markup {
    let held = gauge.held_count;
    let over = limits.max_in_flight.map_or(0, |limit| (held + 1).saturating_sub(limit.into()));
    match (at_once(gauge, limits.max_in_flight), over) {
        (0, _) if gauge.waiting_count == 0 => html! { "No event waits for it now." },
        (0, over) => html! {
            (counted(held, "token")) " held: nothing starts until " strong { (count(over)) } " more have come back."
        },
        (starts, _) if now.policy.pause.is_some() => html! {
            (counted(starts, "event")) " may start once the policy is resumed."
        },
        (starts, _) => html! {
            strong { (counted(starts, "event")) " may start at once" }
            @if limits.rate_per_second.is_some() { ", as fast as the rate lets them" }
            ", of " (count(gauge.waiting_count)) " that wait."
        },
    }
}

fn pause(now: &Present) -> Vec<Markup> {
    let Some(gauge) = &now.gauge else {
        return vec![
            html! { "What waits and all that falls due stand still; what is in flight ends as usual." },
            unknown(),
            html! { "Events whose " code { "finish_by" } " passes meanwhile expire, and are not done." },
        ];
    };
    vec![
        html! { strong { (counted(gauge.waiting_count, "waiting event")) } " and all that falls due stand still." },
        html! { (counted(gauge.held_count, "event")) " in flight end as usual." },
        html! { "Events whose " code { "finish_by" } " passes meanwhile expire, and are not done." },
    ]
}

fn resume(now: &Present) -> Vec<Markup> {
    let pause = now.policy.pause.as_ref();
    vec![
        html! {
            @if let Some(gauge) = &now.gauge {
                strong { (counted(at_once(gauge, now.policy.max_in_flight), "event")) " may start at once" }
                ", of " (count(gauge.waiting_count)) " that wait."
            } @else { (unknown()) }
        },
        html! {
            @match pause {
                Some(pause) => {
                    "It was paused by " (pause.actor)
                    @if !pause.reason.is_empty() { ": “" (pause.reason) "”" } "."
                }
                None => { "It is not paused." }
            }
        },
    ]
}

async fn delete(visit: &Visit, name: &str, now: &Present) -> Vec<Markup> {
    let request = v1::ListSchedulesRequest {
        parent: visit.parent(),
        page_size: USERS_MAX,
        page_token: String::new(),
        filter: format!("policy={}", short(name)),
    };
    let users = visit.api.master().list_schedules(request).await.map(tonic::Response::into_inner);
    vec![
        html! {
            @match &users {
                Ok(list) if list.schedules.is_empty() => { "No schedule uses it." }
                Ok(list) => {
                    strong {
                        @if !list.next_page_token.is_empty() { "More than " }
                        (counted(list.schedules.len() as u64, "schedule"))
                    }
                    " "
                    a href={ (visit.link("schedules")) "?policy=" (short(name)) } { "use it" }
                    ": the service refuses to delete it."
                }
                Err(_) => { "Which schedules use it cannot be said now; the service refuses where any does." }
            }
        },
        html! {
            @if let Some(gauge) = &now.gauge {
                (counted(gauge.held_count, "token")) " held, " (counted(gauge.waiting_count, "event")) " waiting."
            } @else { (unknown()) }
        },
        html! { "This cannot be undone." },
    ]
}

/// A number in a form; none where the field is empty.
fn number<N: std::str::FromStr>(field: &str, text: &str, expected: &str) -> Result<Option<N>, Problem> {
    match text.trim() {
        "" => Ok(None),
        given => given.parse().map(Some).map_err(|_| Problem::invalid(field, given, expected)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(limit: u32, held: u64, waiting: u64) -> Present {
        Present {
            policy: v1::Policy { max_in_flight: Some(limit), ..v1::Policy::default() },
            gauge: Some(v1::PolicyGauge {
                held_count: held,
                waiting_count: waiting,
                ..v1::PolicyGauge::default()
            }),
            hold_p99: "3s".to_owned(),
        }
    }

    fn text(effects: Vec<Markup>) -> String {
        effects.into_iter().map(Markup::into_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_limit_says_what_it_comes_to() {
        let limits = |max_in_flight| Limits { max_in_flight: Some(max_in_flight), rate_per_second: None };
        let more = text(new_limits(&now(50, 50, 14_431), &limits(5_000)));
        for part in
            ["<del>50</del> → <strong>5,000</strong>", "4,950 events may start at once", "14,431 that", "3s"]
        {
            assert!(more.contains(part), "{part}\n{more}");
        }
        let fewer = text(new_limits(&now(8, 8, 3), &limits(2)));
        assert!(fewer.contains("nothing starts until <strong>7</strong> more"), "{fewer}");
        assert!(text(new_limits(&now(8, 0, 0), &limits(8))).contains("Nothing changes"));
    }

    #[test]
    fn what_is_not_known_is_no_zero() {
        let unknown = Present { gauge: None, ..now(8, 0, 0) };
        let limits = Limits { max_in_flight: Some(2), rate_per_second: None };
        for said in [text(new_limits(&unknown, &limits)), text(pause(&unknown)), text(resume(&unknown))] {
            assert!(said.contains("cannot be said now") && !said.contains('0'), "{said}");
        }
    }

    #[test]
    fn numbers_in_forms_are_read() {
        assert_eq!(number::<u32>("a", " 7 ", "").ok().flatten(), Some(7));
        assert!(number::<u32>("a", "", "").is_ok_and(|none| none.is_none()));
        let refused = number::<u32>("a", "-1", "more").map_err(|problem| problem.text());
        assert_eq!(refused, Err("a: \"-1\" is not allowed, expected more".to_owned()));
    }
}
