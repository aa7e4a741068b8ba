//! How fast events start and are refused, what was said last, and when it will all have started.

use maud::{Markup, html};
use prost_types::Timestamp;
use tollgate_proto::v1;

use crate::parts::picture::{number, tree_gauge};
use crate::words::show::{count, duration, moment, rate};

/// An expected end, or why there is none; none where neither is known.
pub(crate) fn expected(now_us: i64, time: Option<&Timestamp>, why_not: &str) -> Option<Markup> {
    match time {
        Some(time) => Some(moment(now_us, Some(time))),
        None if why_not.is_empty() => None,
        None => Some(html! { (why_not) }),
    }
}

/// When what waits for a policy will have started.
pub(crate) fn drained(now_us: i64, gauge: &v1::PolicyGauge) -> Option<Markup> {
    expected(now_us, gauge.expected_drain_time.as_ref(), &gauge.no_expected_drain_reason)
}

/// When a run will have ended.
pub(crate) fn finished(now_us: i64, run: &v1::Run) -> Option<Markup> {
    expected(now_us, run.expected_finish_time.as_ref(), &run.no_expected_finish_reason)
}

/// As a cell of a table: a reason is long, and `never` says whether somebody has to look.
pub(crate) fn brief(time: Option<&Timestamp>, why_not: &str, now_us: i64) -> Markup {
    html! {
        @if time.is_some() { (moment(now_us, time)) }
        @else if why_not.starts_with("never") { span.bad title=(why_not) { "never" } span.hidden { (why_not) } }
        @else if !why_not.is_empty() { span.mute title=(why_not) { "not known" } span.hidden { ": " (why_not) } }
    }
}

/// The numbers of a policy as it is now.
pub(crate) fn bucket(now_us: i64, policy: &v1::Policy, now: Option<&v1::PolicyGauge>) -> Markup {
    let Some(now) = now else {
        return html! { p.notice.warn { "How much of it is held and what waits for it cannot be said now." } };
    };
    let text = |text: String| html! { (text) };
    let ill = |n: u64, class: &'static str| if n > 0 { class } else { "" };
    html! {
        @if policy.max_in_flight.is_some() {
            div.big-gauge { (tree_gauge(now, policy.max_in_flight)) }
        }
        dl.numbers {
            (number("Tokens held", text(match policy.max_in_flight {
                Some(limit) => format!("{} / {}", count(now.held_count), count(limit)),
                None => count(now.held_count),
            }), ""))
            @if now.below_count > 0 { (number("Held below it", text(count(now.below_count)), "")) }
            (number("Events waiting", text(count(now.waiting_count)), ""))
            (number("Oldest wait", text(match now.waiting_count {
                0 => "–".to_owned(),
                _ => duration(now.oldest_wait.as_ref()),
            }), ""))
            (number("Wait to be tried again", text(count(now.retrying_count)), ill(now.retrying_count, "warn")))
            (number("Tokens suspect", text(count(now.suspect_count)), ill(now.suspect_count, "warn")))
            (number("Windows at risk", text(count(now.at_risk_runs_count)), ill(now.at_risk_runs_count, "bad")))
        }
        (speed(policy, now))
        @if now.waiting_count > 0 && let Some(drained) = drained(now_us, now) {
            p.lead #expected { "What waits now will have started: " strong { (drained) } "." }
        }
        (last_error(now_us, now))
    }
}

/// What became of the attempts of the last minute.
fn speed(policy: &v1::Policy, now: &v1::PolicyGauge) -> Markup {
    let per_second = |n: f64| html! { (rate(n.max(0.0))) };
    let ill = |n: f64, class: &'static str| if n > 0.0 { class } else { "" };
    html! {
        dl.numbers.small aria-label="Per second, over the last minute" {
            (number("Started/s", html! {
                (per_second(now.started_per_second))
                @if let Some(limit) = policy.rate_per_second { span.mute { " / " (rate(limit)) } }
            }, ""))
            (number("Accepted/s", per_second(now.accepted_per_second), ""))
            (number("Refused/s", per_second(now.refused_per_second), ill(now.refused_per_second, "bad")))
            (number("Unclear/s", per_second(now.unclear_per_second), ill(now.unclear_per_second, "warn")))
        }
    }
}

/// What a target said of the latest delivery that failed.
pub(crate) fn last_error(now_us: i64, now: &v1::PolicyGauge) -> Markup {
    html! {
        @if !now.last_error.is_empty() {
            p.notice.(if now.refused_per_second > 0.0 { "bad" } else { "warn" }) #last-error {
                strong { "Latest failure" } ", " (moment(now_us, now.last_error_time.as_ref())) ": " (now.last_error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_expected_or_it_is_said_why_not() {
        let at = Timestamp { seconds: 200, nanos: 0 };
        let text = |markup: Option<Markup>| markup.map(Markup::into_string);
        assert!(text(expected(0, Some(&at), "")).is_some_and(|text| text.contains("in 3m 20s")));
        let never = "never, while the policy backups is paused";
        assert_eq!(text(expected(0, None, never)).as_deref(), Some(never));
        assert_eq!(text(expected(0, None, "")), None);
        assert!(brief(None, never, 0).into_string().contains(r#"<span class="bad""#));
        assert!(brief(None, "not known yet: nothing of it has ended", 0).into_string().contains("not known"));
    }

    #[test]
    fn a_policy_that_is_refused_looks_refused() {
        let policy = v1::Policy { max_in_flight: Some(3), ..v1::Policy::default() };
        let now = v1::PolicyGauge {
            waiting_count: 312,
            refused_per_second: 2.4,
            retrying_count: 300,
            last_error: "127.0.0.1:1: connection <refused>".to_owned(),
            no_expected_drain_reason: "never, while its target refuses".to_owned(),
            ..v1::PolicyGauge::default()
        };
        let shown = bucket(0, &policy, Some(&now)).into_string();
        for part in [
            "<div class=\"bad\"><dt>Refused/s</dt><dd>2.4</dd>",
            "connection &lt;refused&gt;",
            "<strong>never, while its target refuses</strong>",
            "<div class=\"warn\"><dt>Wait to be tried again</dt><dd>300</dd>",
        ] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
        assert!(!bucket(0, &policy, None).into_string().contains('0'));
    }
}
