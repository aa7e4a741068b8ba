//! What is wrong, worst first, with what to do: for the top of a page.

use maud::{Markup, html};
use tollgate_proto::v1;

use crate::parts::confirm::ask;
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::words::show::{count, counted, moment, short, tag};

/// How many are shown.
pub(crate) const SHOWN_MAX: i32 = 20;
/// How many of these are open: what else there is on the page is not to be pushed away.
const OPEN_MAX: usize = 8;

/// What is wrong; that nothing is, or that it cannot be said, is said too. `home` is the page on which this stands.
pub(crate) fn troubles(
    now_us: i64,
    home: &str,
    answer: Result<&v1::ListTroublesResponse, &Problem>,
) -> Markup {
    html! {
        section #troubles aria-labelledby="h-troubles" {
            @match answer {
                Ok(answer) => {
                    h2 #h-troubles .ok[answer.total_size == 0 && !answer.incomplete] {
                        @match answer.total_size {
                            0 if answer.incomplete => "No trouble is known",
                            0 => "Nothing is wrong",
                            size => { (counted(size, "trouble")) ", worst first" }
                        }
                    }
                    @for trouble in answer.troubles.iter().take(OPEN_MAX) { (one(now_us, home, trouble)) }
                    @if answer.troubles.len() > OPEN_MAX {
                        details #more-troubles {
                            summary { "The next " (answer.troubles.len() - OPEN_MAX) }
                            @for trouble in answer.troubles.iter().skip(OPEN_MAX) { (one(now_us, home, trouble)) }
                        }
                    }
                    @let left = answer.total_size.saturating_sub(shown(answer));
                    @if left > 0 { p.mute { (count(left)) " more; tollgate troubles lists all" } }
                    @if answer.incomplete {
                        p.notice.warn { "Some troubles may be missing: not everything could be looked at." }
                    }
                }
                Err(problem) => {
                    h2 #h-troubles { "What is wrong cannot be said" }
                    p.notice.bad { (problem.title) " " (problem.text()) }
                }
            }
        }
    }
}

fn shown(answer: &v1::ListTroublesResponse) -> u32 {
    u32::try_from(answer.troubles.len()).unwrap_or(u32::MAX)
}

fn one(now_us: i64, home: &str, trouble: &v1::Trouble) -> Markup {
    let (word, class) = match trouble.severity() {
        v1::TroubleSeverity::Critical => ("critical", "bad"),
        _ => ("warning", "warn"),
    };
    html! {
        div.trouble.notice.(class) {
            div.said { p {
                (tag(word, class)) " " strong { (trouble.summary) }
                @if trouble.since_time.is_some() { ", began " (moment(now_us, trouble.since_time.as_ref())) }
            }
            p { (with_code(&trouble.what_to_do)) }
            @if !trouble.schedule.is_empty() || !trouble.policy.is_empty() {
                p {
                    @if !trouble.schedule.is_empty() {
                        "Schedule " a href=(to(&trouble.schedule)) { (short(&trouble.schedule)) } " "
                    }
                    @if !trouble.policy.is_empty() {
                        "Policy " a href=(to(&trouble.policy)) { (short(&trouble.policy)) }
                    }
                }
            } }
            div.row { (acts(home, trouble)) }
        }
    }
}

/// What can be done about it from here; each is asked once more, with what it comes to.
fn acts(home: &str, trouble: &v1::Trouble) -> Markup {
    use v1::TroubleKind as Kind;
    let (schedule, policy) = (to(&trouble.schedule), to(&trouble.policy));
    let (has_schedule, has_policy) = (!trouble.schedule.is_empty(), !trouble.policy.is_empty());
    html! {
        @match trouble.kind() {
            Kind::PolicyPaused if has_policy => { (ask(&policy, "resume", "Resume the policy", false)) }
            Kind::DispatchPaused => { (ask(home, "resume", "Resume dispatch", false)) }
            Kind::TokensSilent if has_policy => { a.button href=(policy) { "See who holds tokens" } }
            Kind::EventsFailed if has_schedule => {
                (ask(&schedule, "retry", "Try dead events again", false))
                a.button href=(schedule) { "Open the schedule" }
            }
            Kind::TargetRefuses | Kind::TargetSilent | Kind::NotSent | Kind::ConsumerFails if has_schedule => {
                a.button href=(schedule) { "Open the schedule" }
                (ask(&schedule, "pause", "Pause the schedule", true))
            }
            _ if has_schedule => { a.button href=(schedule) { "Open the schedule" } }
            _ if has_policy => { a.button href=(policy) { "Open the policy" } }
            _ => {}
        }
    }
}

/// A text in which commands stand between backticks.
fn with_code(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_words() {
        let shown = with_code("See `tollgate <why> x`, then go.").into_string();
        assert_eq!(shown, "See <code>tollgate &lt;why&gt; x</code>, then go.");
    }

    #[test]
    fn troubles_are_shown_with_their_places_and_what_is_left_out_is_said() {
        let trouble = v1::Trouble {
            severity: v1::TroubleSeverity::Critical.into(),
            summary: "http://b7 refuses <nightly>".to_owned(),
            schedule: "namespaces/default/schedules/nightly".to_owned(),
            ..v1::Trouble::default()
        };
        let answer = v1::ListTroublesResponse {
            troubles: vec![trouble],
            total_size: 1_201,
            incomplete: true,
            ..v1::ListTroublesResponse::default()
        };
        let shown = troubles(0, "/n/other", Ok(&answer)).into_string();
        for text in [
            "1,201 troubles, worst first",
            "http://b7 refuses &lt;nightly&gt;",
            "href=\"/n/default/schedules/nightly\"",
            "1,200 more",
            "Some troubles may be missing",
        ] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        let paused = v1::Trouble { kind: v1::TroubleKind::DispatchPaused.into(), ..v1::Trouble::default() };
        assert!(acts("/n/other", &paused).into_string().contains("action=\"/n/other\""));
        let nothing = troubles(0, "/n/other", Ok(&v1::ListTroublesResponse::default())).into_string();
        assert!(nothing.contains("Nothing is wrong") && !nothing.contains("notice"), "{nothing}");
    }
}
