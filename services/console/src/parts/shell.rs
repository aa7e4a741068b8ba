//! What surrounds every page: head, navigation, messages, foot.

use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use maud::{DOCTYPE, Markup, html};

use crate::parts::assets;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::clock;

/// Which entry of the navigation a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Now,
    Policies,
    Schedules,
    Runs,
    Failures,
    Workers,
    Calendar,
    Alerts,
    Audit,
    None,
}

const SECTIONS: [(Section, &str, &str); 9] = [
    (Section::Now, "Now", ""),
    (Section::Policies, "Policies", "policies"),
    (Section::Schedules, "Schedules", "schedules"),
    (Section::Runs, "Runs", "runs"),
    (Section::Failures, "Failures", "failures"),
    (Section::Workers, "Workers", "workers"),
    (Section::Calendar, "Calendar", "calendar"),
    (Section::Alerts, "Alerts", "alerts"),
    (Section::Audit, "Audit", "audit"),
];

/// What stands between a page's head and foot.
pub(crate) struct Body {
    pub(crate) title: String,
    pub(crate) section: Section,
    pub(crate) content: Markup,
    /// What went wrong before the page was made.
    pub(crate) problem: Option<Problem>,
    /// When what it shows was read; none where that was for this request.
    pub(crate) at_us: Option<i64>,
}

impl Body {
    /// A page about which nothing is wrong.
    pub(crate) fn new(title: impl Into<String>, section: Section, content: Markup) -> Self {
        Self { title: title.into(), section, content, problem: None, at_us: None }
    }
}

impl Visit {
    /// The page, or the page that says why there is none.
    pub(crate) fn respond(&self, body: Result<Body, Problem>) -> Response {
        let (status, body) = match body {
            Ok(body) => (body.problem.as_ref().map_or(StatusCode::OK, |p| p.status), body),
            Err(problem) => {
                let content = html! {
                    p { a href=(self.link("")) { "Back to what happens now" } }
                };
                let status = problem.status;
                let body = Body { problem: Some(problem), ..Body::new("Not shown", Section::None, content) };
                (status, body)
            }
        };
        let done = self.done.as_deref().and_then(done);
        (status, page(self, &body, done)).into_response()
    }
}

/// What was done, in words, for the page that follows.
pub(crate) fn done(code: &str) -> Option<&'static str> {
    Some(match code {
        "limit" => "The policy's limits have been changed.",
        "paused" => "Paused.",
        "resumed" => "Resumed.",
        "released" => "The token is free.",
        "already" => "Nothing changed: the token had been given back before.",
        "late" => "Nothing changed: the event is in flight again under a later attempt, or waits for one.",
        "triggered" => "This run was made just now.",
        "cancelled" => "What the run had not started is cancelled.",
        "retried" => "The dead events will be tried again.",
        "closed" => "The failures are closed.",
        "edited" => "The schedule has been changed.",
        "settings" => "The policy has been changed.",
        "alert" => "The alert has been changed.",
        "dates" => "The calendar has been changed, and with its dates the schedules that name it.",
        "disabled" => "Disabled: nobody is told by it.",
        "enabled" => "Enabled.",
        "deleted" => "Deleted.",
        "created" => "It has been made.",
        "backfilled" => "The runs have been made.",
        "many" => "It is done to all of them.",
        "named" => "Your name will stand in the audit log.",
        _ => return None,
    })
}

/// A whole page.
pub(crate) fn page(visit: &Visit, body: &Body, done: Option<&str>) -> Html<String> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (body.title) " · Tollgate" }
                link rel="icon" href=(assets::ICON) type="image/svg+xml";
                link rel="stylesheet" href=(assets::STYLE);
                script src=(assets::SCRIPT) defer {}
            }
            body {
                a.skip href="#main" { "Skip to content" }
                (head(visit, body.section))
                (lost())
                main #main tabindex="-1" {
                    @if let Some(done) = done { p.notice.ok role="status" { (done) } }
                    @if let Some(problem) = &body.problem { (notice(problem)) }
                    (body.content)
                }
                footer {
                    "Times are UTC unless a zone is named. Page of "
                    span #page-time .num { (clock(body.at_us.unwrap_or(visit.now_us))) } "."
                    " " span #link-state role="status" {}
                }
            }
        }
    };
    Html(page.into_string())
}

/// What a page says when it is old, in the script's hands.
fn lost() -> Markup {
    html! {
        div #lost role="alert" hidden {
            div.bar {
                p {
                    strong #lost-what { "The connection is lost." }
                    " What you see is " strong #lost-age aria-live="off" {} " old, of " span #lost-time .num aria-live="off" {}
                    " UTC. Nothing here is live."
                }
                button #lost-again type="button" { "Load the page again" }
            }
        }
    }
}

/// A problem at the top of a page.
fn notice(problem: &Problem) -> Markup {
    html! {
        div.notice.bad role="alert" {
            strong { (problem.title) }
            @for line in &problem.lines { p { (line) } }
        }
    }
}

fn head(visit: &Visit, section: Section) -> Markup {
    html! {
        header {
            div.bar {
                a.brand href=(visit.link("")) { (mark()) "Tollgate" }
                nav aria-label="Pages" {
                    ul {
                        @for (entry, name, rest) in SECTIONS {
                            li {
                                a href=(visit.link(rest)) aria-current=[(entry == section).then_some("page")] {
                                    (name)
                                }
                            }
                        }
                    }
                }
                form.goto role="search" method="get" action=(visit.link("go")) {
                    label.hidden for="go" { "Search schedules, policies, alerts, runs and events" }
                    input #go name="q" type="search" placeholder="Search  /" autocomplete="off"
                        spellcheck="false" maxlength="300" aria-keyshortcuts="/";
                    button type="submit" { "Find" }
                }
                p.who {
                    a href=(visit.link("namespaces")) { span.mute { "in " } (visit.ns) }
                    " "
                    a href=(visit.link("you")) { span.mute { "as " } (visit.signature()) }
                }
            }
        }
    }
}

fn mark() -> Markup {
    html! {
        svg.mark viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" {
            rect x="1" y="2" width="3" height="12" rx="1" {}
            rect x="4" y="4" width="11" height="3" rx="1" {}
            rect.dim x="6" y="9" width="9" height="5" rx="1" {}
        }
    }
}

/// A list's foot: whether there is more, and where.
pub(crate) fn pager(next: Option<String>, first: Option<String>) -> Markup {
    html! {
        @if next.is_some() || first.is_some() {
            nav.pager aria-label="Pages of this list" {
                @if let Some(first) = first { a href=(first) { "First page" } }
                @if let Some(next) = next { a href=(next) rel="next" { "Next page" } }
            }
        }
    }
}

/// Where there is nothing to show: what is the case, and what to do next.
pub(crate) fn empty(what: &str, next: Markup) -> Markup {
    html! { div.empty { p { (what) } p { (next) } } }
}
