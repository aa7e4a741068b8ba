//! What a list of policies or schedules is narrowed to: the form, the API's filter, the links to its pages.

use maud::{Markup, html};
use serde::Deserialize;

use crate::parts::shell::pager;
use crate::words::show::encode;

/// How many rows a page shows.
pub(crate) const PAGE: i32 = 50;

/// What a list is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    /// `ACTIVE`, `PAUSED` or empty.
    #[serde(default)]
    pub(crate) state: String,
    /// `key=value` or empty.
    #[serde(default)]
    pub(crate) label: String,
    /// A policy's id or empty.
    #[serde(default)]
    pub(crate) policy: String,
    /// A part of the id, or empty.
    #[serde(default)]
    pub(crate) name: String,
    /// The page's token.
    #[serde(default)]
    pub(crate) page: String,
}

impl Wanted {
    /// The filter in the API's words.
    pub(crate) fn filter(&self) -> String {
        let mut terms = Vec::new();
        let name = self.name.trim().trim_matches('*');
        if !name.is_empty() {
            terms.push(format!("name=*{name}*"));
        }
        if !self.state.is_empty() {
            terms.push(format!("state={}", self.state));
        }
        if !self.policy.trim().is_empty() {
            terms.push(format!("policy={}", self.policy.trim()));
        }
        if !self.label.trim().is_empty() {
            terms.push(format!("label.{}", self.label.trim()));
        }
        terms.join(" AND ")
    }

    /// Whether anything is left out.
    pub(crate) fn narrows(&self) -> bool {
        !self.filter().is_empty()
    }

    /// The address of a page of the same list.
    pub(crate) fn at(&self, path: &str, page: &str) -> String {
        let parts =
            [("name", &self.name), ("state", &self.state), ("label", &self.label), ("policy", &self.policy)];
        let mut query: Vec<String> = parts
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name}={}", encode(value)))
            .collect();
        if !page.is_empty() {
            query.push(format!("page={}", encode(page)));
        }
        if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
    }

    /// Where the next page and the first one are.
    pub(crate) fn pager(&self, path: &str, next: &str) -> Markup {
        let first = (!self.page.is_empty()).then(|| self.at(path, ""));
        pager((!next.is_empty()).then(|| self.at(path, next)), first)
    }
}

/// The fields by which a list is narrowed.
pub(crate) fn filters(path: &str, wanted: &Wanted, by_policy: bool) -> Markup {
    html! {
        form.filters method="get" action=(path) {
            div {
                label for="name" { "Name has in it" }
                input #name name="name" value=(wanted.name) autocomplete="off" spellcheck="false" maxlength="63";
            }
            div {
                label for="state" { "State" }
                select #state name="state" {
                    @for (value, name) in [("", "all"), ("ACTIVE", "active"), ("PAUSED", "paused")] {
                        option value=(value) selected[wanted.state == value] { (name) }
                    }
                }
            }
            @if by_policy {
                div {
                    label for="policy" { "Policy" }
                    input #policy name="policy" value=(wanted.policy) placeholder="id" autocomplete="off"
                        spellcheck="false";
                }
            }
            div {
                label for="label" { "Label" }
                input #label name="label" value=(wanted.label) placeholder="key=value" autocomplete="off"
                    spellcheck="false";
            }
            button type="submit" { "Show" }
            @if wanted.narrows() { a href=(path) { "Show all" } }
        }
    }
}

/// The buttons for all schedules that match.
pub(crate) fn of_all(path: &str, filter: &str) -> Markup {
    html! {
        form.ask method="post" action=(path) {
            input type="hidden" name="filter" value=(filter);
            span.mute { "All of these: " }
            button type="submit" name="action" value="pause" { "Pause…" }
            button type="submit" name="action" value="resume" { "Resume…" }
            button type="submit" name="action" value="trigger" { "Trigger…" }
            button.danger type="submit" name="action" value="delete" { "Delete…" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_the_apis() {
        let wanted = Wanted {
            state: "PAUSED".to_owned(),
            label: " team=a b ".to_owned(),
            policy: "imports".to_owned(),
            name: "night*".to_owned(),
            page: "x".to_owned(),
        };
        assert_eq!(wanted.filter(), "name=*night* AND state=PAUSED AND policy=imports AND label.team=a b");
        assert_eq!(
            wanted.at("/n/a/schedules", "t+/"),
            "/n/a/schedules?name=night%2A&state=PAUSED&label=%20team%3Da%20b%20&policy=imports&page=t%2B%2F"
        );
        assert!(!Wanted::default().narrows());
    }

    #[test]
    fn what_is_done_to_all_carries_the_filter() {
        let text = of_all("/n/a/schedules", "label.team=\"x\"").into_string();
        assert!(text.contains("value=\"label.team=&quot;x&quot;\""), "{text}");
    }
}
