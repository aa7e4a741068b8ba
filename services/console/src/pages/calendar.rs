//! What will fall due, by policy and minute, against what may be in flight: the herd before it comes.
//!
//! In: forecasts, which the service works out from the launch index. Out: a heat map of a day, a week or one hour.
//! Invariant: nobody waits for a long forecast: a page without any says that it is being made.

use std::sync::Arc;

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;
use tollgate_proto::convert::timestamp;
use tollgate_proto::v1;

use crate::parts::heat::{hour_map, map, peaks};
use crate::parts::shell::{Body, Section, empty};
use crate::requests::forecasts::Drawn;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{clock, counted, encode, us};

const MINUTE_US: i64 = 60_000_000;
const HOUR_US: i64 = 60 * MINUTE_US;

/// How far one looks ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Span {
    /// 24 hours by the minute.
    Day,
    /// 7 days by ten minutes.
    Week,
    /// One hour by the minute, from a moment on.
    Hour(i64),
}

impl Span {
    fn of(wanted: &Wanted) -> Self {
        let at = wanted.at.parse::<i64>().ok().filter(|at| (0..=253_402_300_800).contains(at));
        match (wanted.span.as_str(), at) {
            ("hour", Some(at_s)) => Self::Hour(at_s.div_euclid(3_600) * HOUR_US),
            ("week", _) => Self::Week,
            _ => Self::Day,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Hour(_) => "hour",
        }
    }

    /// From and to, and how many minutes a slot has. Days and weeks begin at a full hour, so that the map stands still.
    fn slots(self, now_us: i64) -> (i64, i64, i64) {
        let hour_us = now_us.div_euclid(HOUR_US) * HOUR_US;
        match self {
            Self::Day => (hour_us, hour_us + 24 * HOUR_US, 1),
            Self::Week => (hour_us, hour_us + 7 * 24 * HOUR_US, 10),
            Self::Hour(at_us) => (at_us, at_us + HOUR_US, 1),
        }
    }
}

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    span: String,
    policy: String,
    /// The start of an hour, in seconds since the epoch.
    at: String,
}

/// The page.
pub(crate) async fn page(visit: Visit, Query(wanted): Query<Wanted>) -> Response {
    let body = body(&visit, &wanted).await;
    visit.respond(Ok(body))
}

async fn body(visit: &Visit, wanted: &Wanted) -> Body {
    let span = Span::of(wanted);
    let policy = wanted.policy.trim();
    let made = forecast(visit, policy, span).await;
    let path = visit.link("calendar");
    let at = |span: &str| format!("{path}?span={span}&policy={}", encode(policy));
    let (problem, drawn) = match made.as_deref() {
        Some(Err(problem)) => (Some(problem.clone()), None),
        Some(Ok(drawn)) => (None, Some(drawn)),
        None => (None, None),
    };
    let hour = |at_us: i64| hour_of(visit, policy, at_us);
    let content = html! {
        h1 { "Calendar" }
        p.lead { "Events that fall due, by policy and minute, against what may be in flight at once." }
        form.filters method="get" action=(path) {
            nav.tabs aria-label="Span" {
                a href=(at("day")) aria-current=[(span == Span::Day).then_some("true")] { "24 hours" }
                a href=(at("week")) aria-current=[(span == Span::Week).then_some("true")] { "7 days" }
                @if let Span::Hour(at_us) = span {
                    a href=(hour(at_us)) aria-current="true" { (clock(at_us).get(5..16).unwrap_or_default()) }
                }
            }
            input type="hidden" name="span" value=(if span == Span::Week { "week" } else { "day" });
            div {
                label for="policy" { "Policy" }
                input #policy name="policy" value=(policy) placeholder="id" autocomplete="off" spellcheck="false";
            }
            button type="submit" { "Show" }
            @if !policy.is_empty() { a href={ (path) "?span=" (span.word()) } { "Show all" } }
        }
        div #live data-refresh=(if made.is_none() { "1" } else { "60" }) {
            @match drawn {
                Some(drawn) => { (PreEscaped(drawn)) }
                None if problem.is_none() => {
                    p.notice.warn role="status" {
                        "It is being worked out from the launch index. "
                        a href=(if let Span::Hour(at_us) = span { hour(at_us) } else { at(span.word()) }) { "Look again" }
                    }
                }
                None => {}
            }
        }
    };
    Body { problem, ..Body::new("Calendar", Section::Calendar, content) }
}

/// Where an hour is shown, minute by minute.
fn hour_of(visit: &Visit, policy: &str, at_us: i64) -> String {
    let path = visit.link("calendar");
    format!("{path}?span=hour&policy={}&at={}", encode(policy), at_us / 1_000_000)
}

fn shown(
    visit: &Visit,
    forecast: &v1::DemandForecast,
    made_us: i64,
    span: Span,
    hour: &dyn Fn(i64) -> String,
) -> Markup {
    let start_us = forecast.start_time.as_ref().map_or(visit.now_us, us);
    html! {
        p.mute {
            (counted(forecast.schedules_count, "schedule"))
            @if forecast.schedules_count == 1 { " fires" } @else { " fire" }
            ", exact from the launch index, as of " (clock(made_us)) " UTC."
            @if forecast.paused_count > 0 { " " (counted(forecast.paused_count, "paused one")) " left out." }
        }
        @if forecast.left_out_count > 0 {
            p.notice.warn {
                strong { "Cut: " } (forecast.left_out_count)
                " index entries are left out: they fire too often for one answer, or cannot be read."
            }
        }
        @if forecast.policies.is_empty() {
            (empty("Nothing falls due in this time.", html! {
                a href=(visit.link("schedules")) { "Schedules" } " shows what there is."
            }))
        } @else if let Span::Hour(_) = span {
            nav.pager aria-label="Hours" {
                a href=(hour(start_us - HOUR_US)) { "The hour before" }
                a href=(hour(start_us + HOUR_US)) { "The hour after" }
            }
            (hour_map(forecast))
        } @else {
            (map(forecast, span == Span::Week, hour))
            (peaks(forecast, hour))
        }
    }
}

/// The latest forecast as it is drawn; none where the first one is still being made.
async fn forecast(visit: &Visit, policy: &str, span: Span) -> Option<Arc<Drawn>> {
    let key = [visit.ns.clone(), policy.to_owned(), format!("{span:?}"), visit.key_id().to_owned()];
    let (again, policy) = (visit.again(), policy.to_owned());
    visit.console.forecasts.latest(key, async move { make(&again, policy, span).await }).await
}

async fn make(visit: &Visit, policy: String, span: Span) -> Drawn {
    let (from_us, to_us, slot_minutes) = span.slots(visit.now_us);
    let request = v1::ForecastDemandRequest {
        parent: visit.parent(),
        start_time: Some(timestamp(from_us)),
        end_time: Some(timestamp(to_us)),
        slot: Some(prost_types::Duration { seconds: slot_minutes * 60, nanos: 0 }),
        policy,
    };
    let policy = request.policy.clone();
    match visit.api.master().forecast_demand(request).await {
        Ok(forecast) => {
            let hour = |at_us: i64| hour_of(visit, &policy, at_us);
            Ok(shown(visit, &forecast.into_inner(), visit.now_us, span, &hour).into_string())
        }
        Err(status) => Err(Problem::from(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_what_is_wanted() {
        let wanted = |span: &str, at: &str| {
            Span::of(&Wanted { span: span.to_owned(), at: at.to_owned(), ..Wanted::default() })
        };
        assert_eq!(wanted("", ""), Span::Day);
        assert_eq!(wanted("week", "5"), Span::Week);
        assert_eq!(wanted("hour", "7261"), Span::Hour(2 * HOUR_US));
        assert_eq!(wanted("hour", "-1"), Span::Day);
        assert_eq!(wanted("hour", "999999999999999"), Span::Day);
        assert_eq!(Span::Day.slots(HOUR_US + 5), (HOUR_US, 25 * HOUR_US, 1));
    }
}
