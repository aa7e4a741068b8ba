//! Frees a token in an operator's name, and the part of a form that says what becomes of its event.

use maud::{Markup, html};
use tollgate_proto::v1;

use crate::requests::problem::Problem;
use crate::requests::visit::Visit;

fn without_token(name: &str) -> &str {
    let start = name.rfind('/').map_or(0, |slash| slash + 1);
    name[start..].match_indices('-').nth(2).map_or(name, |(end, _)| &name[..start + end])
}

/// Gives an event's token back in an operator's name; what that came to, for the page that follows.
pub(crate) async fn release(
    visit: &Visit,
    name: &str,
    outcome: &str,
    reason: &str,
) -> Result<&'static str, Problem> {
    let outcome = match outcome {
        "" | "RETRY" => v1::ReleaseOutcome::Retry,
        "SUCCEEDED" => v1::ReleaseOutcome::Succeeded,
        "FAILED" => v1::ReleaseOutcome::Failed,
        other => return Err(Problem::invalid("outcome", other, "RETRY, SUCCEEDED or FAILED")),
    };
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(Problem::invalid("reason", "", "why the token is freed, for the next operator"));
    }
    let request = v1::ReleaseTokenRequest {
        // A visitor with a key acts by it, and not by the token: so the audit log has it.
        name: if visit.session.is_some() { without_token(name) } else { name }.to_owned(),
        outcome: outcome.into(),
        message: format!("freed by {}: {}", visit.actor, reason),
        ..v1::ReleaseTokenRequest::default()
    };
    let answer = visit.api.because(reason).handler().release_token(request).await?.into_inner();
    Ok(match answer.status() {
        v1::ReleaseStatus::AlreadyReleased => "already",
        v1::ReleaseStatus::Late => "late",
        _ => "released",
    })
}

/// What becomes of the event whose token is freed.
pub(crate) fn outcome_field(id: &str) -> Markup {
    html! {
        label for={ "o-" (id) } { "The event" }
        select id={ "o-" (id) } name="outcome" {
            option value="RETRY" { "is tried again" }
            option value="SUCCEEDED" { "counts as done" }
            option value="FAILED" { "counts as failed" }
        }
    }
}
