//! What the service warns of in what was accepted: shown before it is saved, and after.
//!
//! Invariant: who saves something that is warned of reads it before the resource's page, which does not know it any more.

use axum::response::Response;
use maud::{Markup, html};
use tollgate_proto::v1;

use crate::parts::shell::{Body, Section, done};
use crate::requests::links::to;
use crate::requests::problem::Field;
use crate::requests::visit::Visit;

/// As what a deed comes to.
pub(crate) fn effects(warnings: &[v1::Warning]) -> impl Iterator<Item = Markup> {
    warnings.iter().map(|warning| html! { strong { "Warning: " } (sentence(warning)) })
}

/// One warning: its field, and what will happen.
fn sentence(warning: &v1::Warning) -> Markup {
    let field = Field { name: warning.field.clone(), message: String::new() };
    html! {
        @if !field.path().is_empty() { code { (field.path()) } ": " }
        (warning.message)
    }
}

/// All of them; nothing where there are none.
pub(crate) fn notice(warnings: &[v1::Warning]) -> Markup {
    html! {
        @if !warnings.is_empty() {
            div.notice.warn.warnings role="status" {
                strong { "It can be kept, and will probably not do what is meant:" }
                ul { @for warning in warnings { li { (sentence(warning)) } } }
            }
        }
    }
}

/// Where somebody comes who has saved a resource: to its page, or first to what is warned of.
pub(crate) fn saved(
    visit: &Visit,
    section: Section,
    name: &str,
    code: &str,
    warnings: &[v1::Warning],
) -> Response {
    let path = to(name);
    if warnings.is_empty() {
        return visit.after(&path, code);
    }
    let content = html! {
        h1 { "Saved, with warnings" }
        p.lead { (done(code).unwrap_or_default()) }
        (notice(warnings))
        p { a.button href={ (path) "/edit" } { "Edit it" } " " a href=(path) { "Leave it so" } }
    };
    visit.respond(Ok(Body::new("Saved, with warnings", section, content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_says_its_field_and_its_words() {
        let warning = |field: &str, message: &str| v1::Warning {
            field: field.to_owned(),
            message: message.to_owned(),
            ..v1::Warning::default()
        };
        let shown = notice(&[warning("schedule.finish_by", "1 < 2"), warning("", "new")]).into_string();
        assert!(shown.contains("<li><code>finish_by</code>: 1 &lt; 2</li><li>new</li>"), "{shown}");
        assert_eq!(notice(&[]).into_string(), "");
    }
}
