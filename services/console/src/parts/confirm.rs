//! What is asked before something is done: what it would come to, and why it is to be done.
//!
//! Invariant: what is asked for here is not done before it has been confirmed, with or without a script. Not here: the forms
//! that free a token, or that save what was made or edited and does no harm: each is filled in for that alone.

use axum::response::Response;
use maud::{Markup, html};
use uuid::Uuid;

use crate::parts::shell::{Body, Section};
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;

/// What `confirmed` says in a form that has been confirmed.
const YES: &str = "yes";

/// Something that is about to be done.
pub(crate) struct Deed {
    /// As a question: `Pause imports?`.
    pub(crate) question: String,
    /// What it comes to, a sentence each.
    pub(crate) effects: Vec<Markup>,
    /// Where the form goes, and where somebody goes who thinks better of it.
    pub(crate) path: String,
    /// What the form says beside the reason.
    pub(crate) fields: Vec<(String, String)>,
    /// The button's words.
    pub(crate) button: &'static str,
    /// Whether it does harm when it is a mistake: then a reason must be given.
    pub(crate) is_dangerous: bool,
}

/// The reason that a form gives for a deed; a dangerous one is not done without.
fn reason(deed: &Deed, given: &str) -> Result<String, Problem> {
    let given = given.trim();
    if deed.is_dangerous && given.is_empty() {
        return Err(Problem::invalid("reason", given, "why it is done, for the next operator"));
    }
    Ok(given.to_owned())
}

/// Asks, or acts where that has been confirmed with the reason that it needs. `given` is what the form says: `confirmed` and
/// the reason.
pub(crate) async fn settle<F>(
    visit: &Visit,
    section: Section,
    deed: &Deed,
    given: (&str, &str),
    act: impl FnOnce(String) -> F,
) -> Result<Response, Problem>
where
    F: Future<Output = Result<Response, Problem>>,
{
    let (confirmed, given) = given;
    if confirmed != YES {
        return Ok(visit.respond(Ok(page(visit, section, deed, given, None))));
    }
    match reason(deed, given) {
        Ok(reason) => act(reason).await,
        Err(problem) => Ok(visit.respond(Ok(page(visit, section, deed, given, Some(problem))))),
    }
}

/// The page that asks.
fn page(visit: &Visit, section: Section, deed: &Deed, given: &str, problem: Option<Problem>) -> Body {
    let invalid = problem.is_some().then_some("true");
    let content = html! {
        h1 { (deed.question) }
        div.effects.(if deed.is_dangerous { "bad" } else { "warn" }) {
            h2 { "What it comes to" }
            ul { @for effect in &deed.effects { li { (effect) } } }
        }
        form.confirm method="post" action=(deed.path) {
            @for (name, value) in &deed.fields { input type="hidden" name=(name) value=(value); }
            input type="hidden" name="confirmed" value=(YES);
            div.field {
                label for="reason" {
                    "Reason, for the next operator and the audit log" @if !deed.is_dangerous { " (may be empty)" }
                }
                input #reason name="reason" value=(given) maxlength="1000" autocomplete="off"
                    required[deed.is_dangerous] aria-invalid=[invalid] autofocus;
            }
            div.buttons {
                button.(if deed.is_dangerous { "danger" } else { "main" }) type="submit" { (deed.button) }
                a.button href=(deed.path) { "No, go back" }
            }
        }
        p.mute { "It will stand in the audit log as done by " (visit.signature()) ". "
            a href=(visit.link("you")) { "Another name" } }
    };
    Body { problem, ..Body::new(deed.question.clone(), section, content) }
}

/// The field that makes of a form that is sent twice one request. `given` is what the form that was sent says.
pub(crate) fn once(given: &str) -> (String, String) {
    let id = if given.is_empty() { format!("console-{}", Uuid::new_v4().simple()) } else { given.to_owned() };
    ("request_id".to_owned(), id)
}

/// A button that leads to the page that asks, from anywhere.
pub(crate) fn ask(path: &str, action: &str, words: &str, is_dangerous: bool) -> Markup {
    html! {
        form.ask method="post" action=(path) {
            button.danger[is_dangerous] type="submit" name="action" value=(action) { (words) "…" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_that_is_sent_twice_is_one_request() {
        let (name, id) = once("");
        assert_eq!(name, "request_id");
        assert_eq!(once(&id).1, id);
        assert_ne!(once("").1, id, "two forms are two");
    }

    #[test]
    fn a_dangerous_deed_needs_a_reason() {
        let deed = |is_dangerous| Deed {
            question: String::new(),
            effects: Vec::new(),
            path: String::new(),
            fields: Vec::new(),
            button: "",
            is_dangerous,
        };
        assert!(reason(&deed(true), "  ").is_err());
        assert_eq!(reason(&deed(true), " a drill ").ok().as_deref(), Some("a drill"));
        assert_eq!(reason(&deed(false), "").ok().as_deref(), Some(""));
    }
}
