//! What will fall due, by policy and slot of time, against what may be in flight: the herd before it comes.
//!
//! In: schedules and the previews of their launch times. Out: a heat map. Invariants: so many schedules, previews and
//! seconds at most, and what is left out is said; the same map is not worked out twice within a minute.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::Query;
use axum::response::Response;
use futures::StreamExt;
use maud::{Markup, html};
use serde::Deserialize;
use tokio::sync::Mutex;
use tollgate_proto::v1;
use tollgate_proto::v1::preview_schedule_request::Source;

use crate::problem::Problem;
use crate::shell::{Section, empty};
use crate::show::{clock, count, counted, encode, short, us};
use crate::visit::{Body, Visit, to};

/// So many schedules are looked at.
const SCHEDULES_MAX: i32 = 500;
/// So many launch times come with one preview: the most that the service gives.
const PREVIEW: i32 = 1_000;
/// So many previews are made of one schedule.
const PREVIEWS_EACH: u32 = 3;
/// Previews at once.
const AT_ONCE: usize = 8;
/// No preview begins after this.
const PATIENCE: Duration = Duration::from_secs(4);
/// A map is shown again for so long.
const KEPT: Duration = Duration::from_secs(60);
/// So many maps are kept.
const MAPS_MAX: usize = 32;
/// So many policies are shown.
const ROWS_MAX: usize = 40;
/// So many minutes are named.
const PEAKS: usize = 12;
/// So many of one policy.
const PEAKS_EACH: usize = 3;
const MINUTE_S: i64 = 60;

/// How far one looks ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Span {
    Day,
    Week,
}

impl Span {
    /// The length of a slot in seconds, and how many there are.
    fn slots(self) -> (i64, usize) {
        match self {
            Self::Day => (1_800, 48),
            Self::Week => (3 * 3_600, 56),
        }
    }

    /// How many minutes a slot has.
    fn slot_minutes(self) -> usize {
        usize::try_from(self.slots().0 / MINUTE_S).unwrap_or(1)
    }
}

/// Demand, minute by minute.
#[derive(Debug, Default)]
struct Map {
    from_s: i64,
    made_us: i64,
    /// From a policy's name, empty for none, to the events that fall due in each minute.
    demand: BTreeMap<String, Vec<u64>>,
    schedules: usize,
    paused: usize,
    /// There are more schedules than were looked at.
    more: bool,
    /// Schedules whose demand is continued at their average rate.
    continued: Vec<String>,
    /// Schedules for which there was no time.
    untold: usize,
}

type Key = (String, String, Span);

/// Maps that were made lately.
#[derive(Default)]
pub(crate) struct Calendars(Mutex<HashMap<Key, (Instant, Arc<Map>)>>);

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    span: String,
    #[serde(default)]
    policy: String,
}

/// The page.
pub(crate) async fn page(visit: Visit, Query(wanted): Query<Wanted>) -> Response {
    let body = body(&visit, &wanted).await;
    visit.respond(body)
}

async fn body(visit: &Visit, wanted: &Wanted) -> Result<Body, Problem> {
    let span = if wanted.span == "week" { Span::Week } else { Span::Day };
    let policy = wanted.policy.trim();
    let (map, limits) = futures::future::join(map(visit, policy, span), limits(visit)).await;
    let (map, problem) = match map {
        Ok(map) => (Some(map), None),
        Err(problem) => (None, Some(problem)),
    };
    let path = visit.link("calendar");
    let at = |span: &str| format!("{path}?span={span}&policy={}", encode(policy));
    let content = html! {
        h1 { "Calendar" }
        p.lead { "Events that fall due, by policy, against what may be in flight at once." }
        form.filters method="get" action=(path) {
            nav.tabs aria-label="Span" {
                a href=(at("day")) aria-current=[(span == Span::Day).then_some("true")] { "24 hours" }
                a href=(at("week")) aria-current=[(span == Span::Week).then_some("true")] { "7 days" }
            }
            input type="hidden" name="span" value=(if span == Span::Week { "week" } else { "day" });
            div {
                label for="policy" { "Policy" }
                input #policy name="policy" value=(policy) placeholder="id" autocomplete="off" spellcheck="false";
            }
            button type="submit" { "Show" }
            @if !policy.is_empty() { a href={ (path) "?span=" (wanted.span) } { "Show all" } }
        }
        @if let Some(map) = &map {
            @if map.schedules == 0 {
                (empty("No schedules yet, so nothing will fall due.", html! {
                    code { "tollgate apply -f FILE" } " makes them."
                }))
            } @else {
                (said(map))
                @if map.demand.is_empty() {
                    p.mute { "Nothing falls due in this time." }
                } @else {
                    (heat(map, &limits, span))
                    (peaks(map, &limits))
                }
            }
        }
    };
    Ok(Body { problem, ..Body::new("Calendar", Section::Calendar, content) })
}

/// From a policy's name to what may be in flight.
async fn limits(visit: &Visit) -> BTreeMap<String, u32> {
    let status = visit.api.handler_status(visit.parent()).await.unwrap_or_default();
    let limit = |gauge: v1::PolicyGauge| Some((gauge.policy, gauge.max_in_flight?));
    status.policies.into_iter().filter_map(limit).collect()
}

async fn map(visit: &Visit, policy: &str, span: Span) -> Result<Arc<Map>, Problem> {
    let key = (visit.ns.clone(), policy.to_owned(), span);
    // Held while a map is made: whoever asks meanwhile would only make another one.
    let mut maps = visit.console.calendars.0.lock().await;
    if let Some((at, map)) = maps.get(&key)
        && at.elapsed() < KEPT
    {
        return Ok(map.clone());
    }
    if maps.len() >= MAPS_MAX {
        maps.clear();
    }
    let map = Arc::new(make(visit, policy, span).await?);
    maps.insert(key, (Instant::now(), map.clone()));
    Ok(map)
}

async fn make(visit: &Visit, policy: &str, span: Span) -> Result<Map, Problem> {
    let filter = if policy.is_empty() { String::new() } else { format!("policy={policy}") };
    let request = v1::ListSchedulesRequest {
        parent: visit.parent(),
        page_size: SCHEDULES_MAX,
        page_token: String::new(),
        filter,
    };
    let list = visit.api.master().list_schedules(request).await?.into_inner();
    let (slot_s, slots) = span.slots();
    let from_s = visit.now_us.div_euclid(1_000_000).div_euclid(slot_s) * slot_s;
    let minutes = span.slot_minutes() * slots;
    let end_us = (from_s + MINUTE_S * i64::try_from(minutes).unwrap_or_default()) * 1_000_000;
    let mut map = Map {
        from_s,
        made_us: visit.now_us,
        schedules: list.schedules.len(),
        more: !list.next_page_token.is_empty(),
        ..Map::default()
    };
    map.paused = list.schedules.iter().filter(|schedule| schedule.pause.is_some()).count();
    let comes = |schedule: &v1::Schedule| {
        schedule.pause.is_none() && schedule.next_launch_time.as_ref().is_some_and(|next| us(next) < end_us)
    };
    let began = Instant::now();
    let told = list.schedules.into_iter().filter(comes).map(|schedule| async move {
        if began.elapsed() > PATIENCE {
            return (schedule, None);
        }
        let fires = fires(visit, &schedule.name, end_us).await;
        (schedule, fires)
    });
    let told: Vec<_> = futures::stream::iter(told).buffer_unordered(AT_ONCE).collect().await;
    for (schedule, fires) in told {
        let Some((fires, cut)) = fires else {
            map.untold += 1;
            continue;
        };
        let n = u64::from(schedule.events.unwrap_or(1));
        let row = map.demand.entry(schedule.policy.clone()).or_insert_with(|| vec![0; minutes]);
        add(row, &fires, n, from_s);
        if cut {
            carry_on(row, &fires, n, from_s);
            map.continued.push(schedule.name);
        }
    }
    map.demand.retain(|_, row| row.iter().any(|n| *n > 0));
    Ok(map)
}

/// A schedule's fires before `end_us`, and whether there are more than were read; none where they cannot be told.
async fn fires(visit: &Visit, name: &str, end_us: i64) -> Option<(Vec<i64>, bool)> {
    let mut all: Vec<i64> = Vec::new();
    let mut from_us = visit.now_us;
    for _ in 0..PREVIEWS_EACH {
        let request = v1::PreviewScheduleRequest {
            source: Some(Source::Name(name.to_owned())),
            from_time: Some(tollgate_proto::convert::timestamp(from_us)),
            count: PREVIEW,
        };
        let answer = visit.api.master().preview_schedule(request).await.ok()?.into_inner();
        let times: Vec<i64> = answer.launch_times.iter().filter_map(|at| at.time.as_ref()).map(us).collect();
        let all_read = times.len() < usize::try_from(PREVIEW).unwrap_or_default();
        let reached = times.last().is_some_and(|last| *last >= end_us);
        from_us = times.last().copied().unwrap_or(end_us);
        all.extend(times.into_iter().filter(|at| *at < end_us));
        if all_read || reached {
            return Some((all, false));
        }
    }
    Some((all, true))
}

/// Adds `n` events for each fire to its minute.
fn add(row: &mut [u64], fires: &[i64], n: u64, from_s: i64) {
    for at_us in fires {
        let minute = (at_us.div_euclid(1_000_000) - from_s).div_euclid(MINUTE_S);
        if let Some(cell) = usize::try_from(minute).ok().and_then(|minute| row.get_mut(minute)) {
            *cell += n;
        }
    }
}

/// Continues beyond the last fire at the average rate of those before it.
fn carry_on(row: &mut [u64], fires: &[i64], n: u64, from_s: i64) {
    let (Some(first), Some(last)) = (fires.first(), fires.last()) else { return };
    let intervals = i64::try_from(fires.len()).unwrap_or(i64::MAX).saturating_sub(1).max(1);
    let apart_us = ((last - first) / intervals).max(1);
    let mut at_us = last + apart_us;
    for (minute, cell) in (1_i64..).zip(row.iter_mut()) {
        let end_us = (from_s + minute * MINUTE_S) * 1_000_000;
        let here = if at_us < end_us { (end_us - 1 - at_us) / apart_us + 1 } else { 0 };
        *cell += u64::try_from(here).unwrap_or_default() * n;
        at_us += here * apart_us;
    }
}

/// What the map is made from, and what it leaves out.
fn said(map: &Map) -> Markup {
    html! {
        p.mute {
            "From " (counted(map.schedules as u64, "schedule")) ", as of " (clock(map.made_us)) "."
            @if map.paused > 0 { " " (counted(map.paused as u64, "paused one")) " left out." }
        }
        @if map.more {
            p.notice.warn {
                strong { "Cut: " } "only the first " (map.schedules) " schedules by name were looked at. Choose a policy to \
                 see all of its own."
            }
        }
        @if map.untold > 0 {
            p.notice.warn { strong { "Cut: " } (counted(map.untold as u64, "schedule")) " left out for want of time." }
        }
        @if !map.continued.is_empty() {
            p.mute {
                "Fires so often that only the beginning was worked out, and the rest is continued at the same rate: "
                (map.continued.iter().take(5).map(|name| short(name)).collect::<Vec<_>>().join(", "))
                @if map.continued.len() > 5 { " and " (map.continued.len() - 5) " more" } "."
            }
        }
    }
}

/// How the fullest minute of a slot compares with what may be in flight at once.
fn level(demand: u64, limit: Option<u32>) -> &'static str {
    let limit = limit.map(u64::from);
    match (demand, limit) {
        (0, _) => "h0",
        (_, None) => "h1",
        (n, Some(limit)) if n <= limit => "h1",
        (n, Some(limit)) if n <= limit * 10 => "h2",
        (n, Some(limit)) if n <= limit * 40 => "h3",
        _ => "h4",
    }
}

fn words(from_s: i64, slot_s: i64, slot: usize) -> String {
    let at_s = from_s + slot_s * i64::try_from(slot).unwrap_or_default();
    let hour_minute = |at_s: i64| clock(at_s * 1_000_000).get(11..16).unwrap_or_default().to_owned();
    let day = clock(at_s * 1_000_000).get(..10).unwrap_or_default().to_owned();
    format!("{day} {} to {}", hour_minute(at_s), hour_minute(at_s + slot_s))
}

fn heat(map: &Map, limits: &BTreeMap<String, u32>, span: Span) -> Markup {
    let (slot_s, slots) = span.slots();
    let mut rows: Vec<(&String, &Vec<u64>)> = map.demand.iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.iter().sum::<u64>()));
    let left_out = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    rows.sort();
    // A head for every so many slots: full hours, or days.
    let each = if span == Span::Day { 4 } else { 8 };
    html! {
        div.scroll role="group" aria-label="Demand by policy and time" tabindex="0" {
            table.heat {
                thead {
                    tr {
                        th scope="col" { "Policy" }
                        th.n scope="col" { "Limit" }
                        @for slot in (0..slots).step_by(each) {
                            @let at = clock((map.from_s + slot_s * slot as i64) * 1_000_000);
                            th.slot scope="colgroup" colspan=(each) {
                                (if span == Span::Day { at.get(11..16) } else { at.get(5..10) }.unwrap_or_default())
                            }
                        }
                        th.n scope="col" { "Events" }
                    }
                }
                tbody {
                    @for (policy, row) in &rows {
                        @let limit = limits.get(*policy).copied();
                        tr {
                            th scope="row" {
                                @if policy.is_empty() { span.mute { "without a policy" } }
                                @else { a href=(to(policy)) { (short(policy)) } }
                            }
                            td.n { @match limit { Some(limit) => { (count(limit)) } None => { span.mute { "none" } } } }
                            @for (slot, minutes) in row.chunks(span.slot_minutes()).enumerate() {
                                @let (n, most) = (minutes.iter().sum::<u64>(), minutes.iter().max().copied().unwrap_or(0));
                                td class={ "cell " (level(most, limit)) }
                                    title={
                                        (words(map.from_s, slot_s, slot)) ": " (counted(n, "event"))
                                        @if n > 0 { ", at most " (count(most)) " in one minute" }
                                    } {
                                    span.hidden { (n) }
                                }
                            }
                            td.n { (count(row.iter().sum::<u64>())) }
                        }
                    }
                }
            }
        }
        p.legend {
            "The fullest minute of each slot holds: "
            span.key.h1 { "no more than the limit" } " " span.key.h2 { "up to 10 times as much" } " "
            span.key.h3 { "up to 40 times" } " " span.key.h4 { "more" }
            " · slots of " (if span == Span::Day { "30 minutes" } else { "3 hours" }) ", UTC"
        }
        @if left_out > 0 { p.mute { (left_out) " policies with less demand are left out." } }
    }
}

/// The minutes with the most demand for their policy, in words.
fn peaks(map: &Map, limits: &BTreeMap<String, u32>) -> Markup {
    let mut all: Vec<(&str, usize, u64, u32)> = Vec::new();
    for (policy, row) in &map.demand {
        let Some(limit) = limits.get(policy).copied().filter(|limit| *limit > 0) else { continue };
        let above = row.iter().enumerate().filter(|(_, n)| **n > u64::from(limit));
        let mut own: Vec<_> = above.map(|(minute, n)| (policy.as_str(), minute, *n, limit)).collect();
        own.sort_by_key(|(_, minute, n, _)| (std::cmp::Reverse(*n), *minute));
        own.truncate(PEAKS_EACH);
        all.extend(own);
    }
    let order = |(policy, minute, n, limit): &(&str, usize, u64, u32)| {
        (std::cmp::Reverse(n * 10 / u64::from(*limit)), (*policy).to_owned(), *minute)
    };
    all.sort_by_key(order);
    all.truncate(PEAKS);
    html! {
        section aria-labelledby="h-peaks" {
            h2 #h-peaks { "Where most will wait" }
            @if all.is_empty() {
                p.mute { "In no minute does more fall due than may be in flight at once." }
            } @else {
                div.scroll role="group" aria-labelledby="h-peaks" tabindex="0" {
                    table.fires {
                        thead {
                            tr {
                                th scope="col" { "Minute" }
                                th scope="col" { "Policy" }
                                th.n scope="col" { "Events" }
                                th.n scope="col" { "For each token" }
                            }
                        }
                        tbody {
                            @for (policy, minute, n, limit) in all {
                                @let at_s = map.from_s + MINUTE_S * i64::try_from(minute).unwrap_or_default();
                                tr {
                                    td.num { (clock(at_s * 1_000_000).get(..16).unwrap_or_default()) }
                                    td { a href=(to(policy)) { (short(policy)) } }
                                    td.n { (count(n)) }
                                    td.n { (format!("{:.1}", n as f64 / f64::from(limit))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_counted_by_minute_and_continued() {
        let mut row = [0; 4];
        let fires = [0, 30_000_000, 60_000_000, 90_000_000];
        add(&mut row, &fires, 3, 0);
        assert_eq!(row, [6, 6, 0, 0]);
        carry_on(&mut row, &fires, 3, 0);
        assert_eq!(row, [6, 6, 6, 6]);
        add(&mut row, &[1_000_000_000, -1], 1, 0);
        assert_eq!(row, [6, 6, 6, 6]);
    }

    #[test]
    fn levels_compare_with_the_limit() {
        assert_eq!(level(0, Some(4)), "h0");
        assert_eq!(level(4, Some(4)), "h1");
        assert_eq!(level(40, Some(4)), "h2");
        assert_eq!(level(160, Some(4)), "h3");
        assert_eq!(level(161, Some(4)), "h4");
        assert_eq!(level(1_000, None), "h1");
        assert_eq!(words(0, 1_800, 3), "1970-01-01 01:30 to 02:00");
    }
}
