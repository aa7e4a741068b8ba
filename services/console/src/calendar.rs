//! What will fall due, by policy and minute, against what may be in flight: the herd before it comes.
//!
//! In: forecasts, which the service works out from the launch index. Out: a heat map of a day, a week or one hour.
//! Invariants: nobody waits for a long forecast: an older one is shown while a new one is made, and a page without any
//! says that it is being made; one forecast of a kind at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tollgate_clock::instant_now;
use tollgate_proto::convert::timestamp;
use tollgate_proto::v1;

use crate::heat::{hour_map, map, peaks};
use crate::login::Session;
use crate::problem::Problem;
use crate::shell::{Section, empty};
use crate::show::{clock, counted, encode, us};
use crate::visit::{Body, Visit};

/// A forecast is as good as new for so long.
const FRESH: Duration = Duration::from_secs(60);
/// A page waits so long for a new one.
const PATIENCE: Duration = Duration::from_millis(50);
/// One that has not come after this is asked for again.
const GIVEN_UP: Duration = Duration::from_secs(30);
/// So many are kept.
const KEPT_MAX: usize = 32;
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

/// A forecast as it is shown, and when it was made: drawing a week of a thousand policies takes long as well.
#[derive(Debug)]
struct Made {
    at: Instant,
    drawn: Result<String, Problem>,
}

#[derive(Default)]
struct Entry {
    made: Option<Arc<Made>>,
    /// Since when a new one is being made.
    making: Option<Instant>,
}

/// By namespace, policy, span and the visitor's key: what a key may see is not for another key.
type Key = (String, String, Span, String);

/// Forecasts that were made lately.
#[derive(Default)]
pub(crate) struct Calendars(Mutex<HashMap<Key, Entry>>);

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
        Some(Made { drawn: Err(problem), .. }) => (Some(problem.clone()), None),
        Some(Made { drawn: Ok(drawn), .. }) => (None, Some(drawn)),
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

/// The latest forecast; none where the first one is still being made. A new one is begun where it is too old.
async fn forecast(visit: &Visit, policy: &str, span: Span) -> Option<Arc<Made>> {
    let key: Key = (visit.ns.clone(), policy.to_owned(), span, key_id(visit));
    let known = {
        let mut all = visit.console.calendars.0.lock().await;
        if all.len() >= KEPT_MAX && !all.contains_key(&key) {
            all.clear();
        }
        let entry = all.entry(key.clone()).or_default();
        let known = entry.made.clone();
        let fresh = known.as_ref().is_some_and(|made| made.at.elapsed() < FRESH);
        if fresh || entry.making.is_some_and(|since| since.elapsed() < GIVEN_UP) {
            return known;
        }
        entry.making = Some(instant_now());
        known
    };
    let (visit, policy) = (visit.again(), policy.to_owned());
    let making = tokio::spawn(async move {
        let made = Arc::new(make(&visit, policy, span).await);
        let mut all = visit.console.calendars.0.lock().await;
        all.insert(key, Entry { made: Some(made.clone()), making: None });
        made
    });
    match tokio::time::timeout(PATIENCE, making).await {
        Ok(Ok(made)) => Some(made),
        _ => known,
    }
}

fn key_id(visit: &Visit) -> String {
    visit.session.as_ref().map_or("", Session::key_id).to_owned()
}

async fn make(visit: &Visit, policy: String, span: Span) -> Made {
    let (from_us, to_us, slot_minutes) = span.slots(visit.now_us);
    let request = v1::ForecastDemandRequest {
        parent: visit.parent(),
        start_time: Some(timestamp(from_us)),
        end_time: Some(timestamp(to_us)),
        slot: Some(prost_types::Duration { seconds: slot_minutes * 60, nanos: 0 }),
        policy,
    };
    let policy = request.policy.clone();
    let drawn = match visit.api.master().forecast_demand(request).await {
        Ok(forecast) => {
            let hour = |at_us: i64| hour_of(visit, &policy, at_us);
            Ok(shown(visit, &forecast.into_inner(), visit.now_us, span, &hour).into_string())
        }
        Err(status) => Err(Problem::from(status)),
    };
    Made { at: instant_now(), drawn }
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
