//! A resource as it stands in a file, to be copied.

use maud::{Markup, html};

/// The document in a fold.
pub(crate) fn fold(text: &str) -> Markup {
    html! {
        details.action #file {
            summary { "As YAML, for a file" }
            p.mute { "Keep it in a file, and " code { "tollgate apply -f FILE" } " makes the same again." }
            pre tabindex="0" aria-label="The resource as YAML" role="group" { code { (text) } }
        }
    }
}
