//! One alert: of what and whom it tells, what became of its messages, and what can be done about it.

use axum::extract::{Form, Path};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_files::document;
use tollgate_proto::v1;

use crate::pages::edit_asks::tells;
use crate::parts::alert_fields::kind;
use crate::parts::changes::changes as audited;
use crate::parts::confirm::{self, Deed, ask};
use crate::parts::copy;
use crate::parts::draft::What;
use crate::parts::picture::number;
use crate::parts::shell::{Body, Section};
use crate::parts::warnings;
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{count, counted, dated, duration, encode, moment, seen, short, tag, us};

/// How many changes a page shows.
const CHANGES: i32 = 8;

/// The alert's id in a path.
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

/// What a page says beside the alert.
#[derive(Default)]
struct Said {
    problem: Option<Problem>,
    /// What became of a test message.
    tested: Option<v1::SendTestAlertResponse>,
}

/// The page.
pub(crate) async fn page(visit: Visit, Path(Id { id }): Path<Id>) -> Response {
    let body = body(&visit, &visit.full("alerts", &id), Said::default()).await;
    visit.respond(body)
}

/// Sends a test message, asks, or does what has been confirmed.
pub(crate) async fn act(visit: Visit, Path(Id { id }): Path<Id>, Form(order): Form<Order>) -> Response {
    let name = visit.full("alerts", &id);
    let said = if order.action == "test" {
        let sent = visit.api.handler().send_test_alert(v1::SendTestAlertRequest { name: name.clone() }).await;
        match sent {
            Ok(sent) => Said { tested: Some(sent.into_inner()), problem: None },
            Err(status) => Said { problem: Some(status.into()), tested: None },
        }
    } else {
        match carry_out(&visit, &name, &order).await {
            Ok(response) => return response,
            Err(problem) => Said { problem: Some(problem), tested: None },
        }
    };
    let body = body(&visit, &name, said).await;
    visit.respond(body)
}

async fn carry_out(visit: &Visit, name: &str, order: &Order) -> Result<Response, Problem> {
    let request = v1::GetAlertRequest { name: name.to_owned() };
    let alert = visit.api.master().get_alert(request).await?.into_inner();
    let deed = deed(&alert, order)?;
    let given = (order.confirmed.as_str(), order.reason.as_str());
    confirm::settle(visit, Section::Alerts, &deed, given, |reason| carried_out(visit, alert, order, reason))
        .await
}

async fn carried_out(
    visit: &Visit,
    alert: v1::Alert,
    order: &Order,
    reason: String,
) -> Result<Response, Problem> {
    let mut master = visit.api.because(&reason).master();
    let (name, etag) = (alert.name, alert.etag);
    if order.action == "delete" {
        master.delete_alert(v1::DeleteAlertRequest { name, etag, ..Default::default() }).await?;
        return Ok(visit.after(&visit.link("alerts"), "deleted"));
    }
    let disabled = order.action == "disable";
    let update_mask = Some(prost_types::FieldMask { paths: vec!["disabled".to_owned()] });
    let alert = Some(v1::Alert { name: name.clone(), etag, disabled, ..v1::Alert::default() });
    let request = v1::UpdateAlertRequest { alert, update_mask, validate_only: false };
    let kept = master.update_alert(request).await?.into_inner();
    if disabled {
        // What it would do wrong it does not do now.
        return Ok(visit.after(&to(&name), "disabled"));
    }
    Ok(warnings::saved(visit, Section::Alerts, &name, "enabled", &kept.warnings))
}

fn deed(alert: &v1::Alert, order: &Order) -> Result<Deed, Problem> {
    let id = short(&alert.name);
    let raised = alert.status.as_ref().map_or(0, |status| status.raised_count);
    let told = html! { "It keeps account of " (counted(raised, "trouble")) " now." };
    let (question, effects, button) = match order.action.as_str() {
        "disable" => (
            format!("Disable {id}?"),
            vec![
                html! { strong { (tells(alert)) " is told nothing any more" } ", nor afterwards of the time until it is enabled." },
                told,
            ],
            "Disable it",
        ),
        "enable" => (
            format!("Enable {id}?"),
            vec![html! { (tells(alert)) " is told what is wrong from now on, and what is wrong already." }],
            "Enable it",
        ),
        "delete" => (
            format!("Delete {id}?"),
            vec![
                html! { strong { "What it has not told yet is not told any more." } " This cannot be undone." },
                told,
            ],
            "Delete it",
        ),
        other => return Err(Problem::invalid("action", other, "test, disable, enable or delete")),
    };
    Ok(Deed {
        question,
        effects,
        path: to(&alert.name),
        fields: vec![("action".to_owned(), order.action.clone())],
        button,
        is_dangerous: order.action != "enable",
    })
}

async fn body(visit: &Visit, name: &str, said: Said) -> Result<Body, Problem> {
    let mut master = visit.api.master();
    let of_it = format!("resource={name}");
    let (alert, changes) = futures::future::join(
        master.get_alert(v1::GetAlertRequest { name: name.to_owned() }),
        visit.api.audit(visit.parent(), &of_it, CHANGES, ""),
    )
    .await;
    let alert = alert?.into_inner();
    let content = html! {
        p.crumb { a href=(visit.link("alerts")) { "Alerts" } }
        h1 { (short(name)) " " (state(&alert)) }
        p.lead { "Tells " code { (tells(&alert)) } " of " (subject(&alert)) ", of " (scope(&alert)) "." }
        @if !alert.description.is_empty() { p { (alert.description) } }
        @if let Some(tested) = &said.tested { (test(tested)) }
        div #live data-refresh="5" { (messages(visit.now_us, &alert)) }
        (actions(&alert))
        section aria-labelledby="h-changes" {
            h2 #h-changes { "Latest changes" }
            @match &changes {
                Ok(changes) => { (audited(visit, &changes.audit_entries, false)) }
                Err(problem) => { p.notice.bad { "They cannot be shown: " (problem.text()) } }
            }
            p { a href={ (visit.link("audit")) "?resource=" (encode(name)) } { "All changes of this alert" } }
        }
        (facts(visit, &alert))
        (copy::fold(&document(What::Alert.kind(), &alert)))
    };
    Ok(Body { problem: said.problem, ..Body::new(short(name), Section::Alerts, content) })
}

/// What the receiver said to a test message.
fn test(tested: &v1::SendTestAlertResponse) -> Markup {
    html! {
        @if tested.taken {
            p.notice.ok #tested role="status" { strong { "The receiver has taken the test message." } " Its id is " code { (tested.message_id) } "." }
        } @else {
            p.notice.bad #tested role="alert" { strong { "The receiver has not taken the test message." } " " (tested.message) }
        }
    }
}

/// What became of its messages.
fn messages(now_us: i64, alert: &v1::Alert) -> Markup {
    let status = alert.status.clone().unwrap_or_default();
    html! {
        dl.numbers {
            (number("Troubles it keeps account of", html! { (count(status.raised_count)) }, if status.raised_count > 0 { "bad" } else { "" }))
            (number("Messages taken", html! { (count(status.sent_count)) }, ""))
            (number("Messages dropped", html! { (count(status.dropped_count)) }, if status.dropped_count > 0 { "bad" } else { "" }))
            (number("Told last", html! {
                @if status.last_send_time.is_some() { (moment(now_us, status.last_send_time.as_ref())) } @else { "never" }
            }, ""))
        }
        @if status.attempts > 0 {
            p.notice.warn #under-way {
                strong { "A message is under way" } ", tried " (counted(status.attempts, "time"))
                @if let Some(next) = &status.next_attempt_time { "; next " (seen(now_us, us(next))) } "."
            }
        }
        @if !status.last_error.is_empty() {
            p.notice.(if is_failing(&status) { "bad" } else { "warn" }) #last-error {
                strong { "Latest failure" } ", " (moment(now_us, status.last_error_time.as_ref())) ": " (status.last_error)
                @if !is_failing(&status) { " A later message was taken." }
            }
        }
    }
}

/// Whether the latest that is known of its messages is a failure.
fn is_failing(status: &v1::AlertStatus) -> bool {
    let at = |time: &Option<prost_types::Timestamp>| time.as_ref().map(us);
    status.last_error_time.is_some() && at(&status.last_error_time) > at(&status.last_send_time)
}

fn actions(alert: &v1::Alert) -> Markup {
    let path = to(&alert.name);
    html! {
        section.actions aria-labelledby="h-actions" {
            h2 #h-actions { "Act" }
            div.row {
                form.ask method="post" action=(path) {
                    button type="submit" name="action" value="test" { "Send a test message" }
                }
                a.button href={ (path) "/edit" } { "Edit this alert" }
                @if alert.disabled { (ask(&path, "enable", "Enable", false)) }
                @else { (ask(&path, "disable", "Disable", true)) }
                (ask(&path, "delete", "Delete", true))
            }
            p.hint { "A test message says that it is one; what the receiver answers is shown here." }
        }
    }
}

fn facts(visit: &Visit, alert: &v1::Alert) -> Markup {
    let repeat = alert.repeat_interval.as_ref().filter(|interval| interval.seconds > 0);
    html! {
        section aria-labelledby="h-facts" {
            h2 #h-facts { "Settings" }
            dl.facts {
                dt { "Waits for others" } dd { (duration(alert.group_wait.as_ref())) }
                dt { "Told again" }
                dd { @match repeat { Some(repeat) => { "after " (duration(Some(repeat))) ", as long as it stays" } None => { "never" } } }
                dt { "Tells that it is over" } dd { (if alert.send_resolved.unwrap_or(true) { "yes" } else { "no" }) }
                @for (key, value) in &alert.labels { dt { "Label " (key) } dd { (value) } }
                dt { "Made" } dd { (dated(visit.now_us, alert.create_time.as_ref())) }
                dt { "Changed" } dd { (dated(visit.now_us, alert.update_time.as_ref())) }
            }
        }
    }
}

/// Whether it tells anybody, and whether that works.
pub(crate) fn state(alert: &v1::Alert) -> Markup {
    let status = alert.status.clone().unwrap_or_default();
    match (alert.disabled, is_failing(&status), status.raised_count) {
        (true, _, _) => tag("disabled", "warn"),
        (_, true, _) => tag("not taken", "bad"),
        (_, _, 0) => tag("quiet", "mute"),
        _ => tag("raised", "bad"),
    }
}

/// Of what it tells, in words.
pub(crate) fn subject(alert: &v1::Alert) -> String {
    let troubles = alert.troubles.as_ref().map(|troubles| {
        let critical = troubles.least_severity() == v1::TroubleSeverity::Critical;
        let kinds: Vec<&str> = troubles.kinds().map(|each| kind(each.as_str_name())).collect();
        match (kinds.is_empty(), critical) {
            (true, true) => "critical troubles".to_owned(),
            (true, false) => "all troubles".to_owned(),
            (false, true) => format!("critical troubles of these kinds: {}", kinds.join("; ")),
            (false, false) => format!("troubles of these kinds: {}", kinds.join("; ")),
        }
    });
    let runs = match alert.runs() {
        v1::AlertRuns::Finished => Some("runs that finish".to_owned()),
        v1::AlertRuns::FinishedWithFailures => Some("runs that finish with failures".to_owned()),
        v1::AlertRuns::Unspecified => None,
    };
    let parts: Vec<String> = [troubles, runs].into_iter().flatten().collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", and ") }
}

/// Of which schedules and policies.
pub(crate) fn scope(alert: &v1::Alert) -> String {
    let named = |word: &str, names: &[String]| {
        let names: Vec<&str> = names.iter().map(|name| short(name)).collect();
        (!names.is_empty()).then(|| format!("{word} {}", names.join(", ")))
    };
    let labels: Vec<String> =
        alert.schedule_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let labels = (!labels.is_empty()).then(|| format!("schedules with {}", labels.join(" and ")));
    let parts = [named("schedule", &alert.schedules), named("policy", &alert.policies), labels];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let also = if alert.troubles.as_ref().is_some_and(|troubles| troubles.installation) {
        ", and the whole installation"
    } else {
        ""
    };
    let own = if parts.is_empty() { "the whole namespace".to_owned() } else { parts.join(" or ") };
    format!("{own}{also}")
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;

    #[test]
    fn an_alert_is_said_in_words() {
        let troubles = v1::AlertTroubles {
            kinds: vec![v1::TroubleKind::NotSent.into()],
            least_severity: v1::TroubleSeverity::Critical.into(),
            installation: true,
        };
        let alert = v1::Alert {
            troubles: Some(troubles),
            runs: v1::AlertRuns::Finished.into(),
            policies: vec!["namespaces/a/policies/p".to_owned()],
            schedule_labels: [("team".to_owned(), "x".to_owned())].into(),
            ..v1::Alert::default()
        };
        assert_eq!(
            subject(&alert),
            "critical troubles of these kinds: events do not leave, and runs that finish"
        );
        assert_eq!(scope(&alert), "policy p or schedules with team=x, and the whole installation");
        let all = v1::Alert { troubles: Some(v1::AlertTroubles::default()), ..v1::Alert::default() };
        assert_eq!((subject(&all), scope(&all)), ("all troubles".into(), "the whole namespace".into()));
    }

    #[test]
    fn a_failure_that_is_over_is_told_from_one_that_is_not() {
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let with = |sent, failed| {
            let (last_send_time, last_error_time) = (sent, failed);
            let last_error = "503".to_owned();
            v1::AlertStatus { last_send_time, last_error_time, last_error, ..v1::AlertStatus::default() }
        };
        assert!(is_failing(&with(None, at(1))) && is_failing(&with(at(1), at(2))));
        assert!(!is_failing(&with(at(3), at(2))) && !is_failing(&with(None, None)));
        let alert = v1::Alert { status: Some(with(at(3), at(2))), ..v1::Alert::default() };
        assert!(messages(0, &alert).into_string().contains("A later message was taken."));
    }
}
