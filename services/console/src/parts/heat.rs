//! Draws demand against tokens: by policy and slot of time, coloured by how often the fullest minute would fill the bucket.

use maud::{Markup, html};
use tollgate_proto::v1;

use crate::requests::links::to;
use crate::words::show::{clock, count, counted, short, us};

/// How many policies are shown: those with the most demand.
const ROWS_MAX: usize = 40;
/// How many minutes are named.
const PEAKS: usize = 12;
/// How many of one policy.
const PEAKS_EACH: usize = 3;
const MINUTE_US: i64 = 60_000_000;
const HOUR_US: i64 = 60 * MINUTE_US;
/// Classes by level, without the lowest, which is the background.
const LEVELS: [&str; 4] = ["h1", "h2", "h3", "h4"];

/// How the fullest minute of a slot compares with what may be in flight at once: 0 for nothing, to 4.
fn level(demand: u64, limit: Option<u32>) -> usize {
    match (demand, limit.map(u64::from)) {
        (0, _) => 0,
        (_, None) => 1,
        (n, Some(limit)) if n <= limit => 1,
        (n, Some(limit)) if n <= limit * 10 => 2,
        (n, Some(limit)) if n <= limit * 40 => 3,
        _ => 4,
    }
}

/// The policies that are shown, by name, and how many are left out.
fn rows(forecast: &v1::DemandForecast) -> (Vec<&v1::PolicyDemand>, usize) {
    let mut rows: Vec<&v1::PolicyDemand> = forecast.policies.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.events_count));
    let left_out = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    rows.sort_by(|a, b| a.policy.cmp(&b.policy));
    (rows, left_out)
}

/// Slots of one level as the outline of an area, neighbours joined.
fn area(row: &v1::PolicyDemand, wanted: usize) -> String {
    let mut path = String::new();
    let mut open: Option<(u32, u32)> = None;
    for slot in row.slots.iter().filter(|slot| level(slot.minute_max, row.max_in_flight) == wanted) {
        open = match open {
            Some((from, to)) if to == slot.slot => Some((from, slot.slot + 1)),
            before => {
                path.push_str(&outline(before));
                Some((slot.slot, slot.slot + 1))
            }
        };
    }
    path.push_str(&outline(open));
    path
}

fn outline(run: Option<(u32, u32)>) -> String {
    run.map(|(from, to)| format!("M{from} 0H{to}V1H{from}Z")).unwrap_or_default()
}

fn name_cell(policy: &str) -> Markup {
    html! {
        th scope="row" {
            @if policy.is_empty() { span.mute { "without a policy" } } @else { a href=(to(policy)) { (short(policy)) } }
        }
    }
}

fn limit_cell(limit: Option<u32>) -> Markup {
    html! { td.n { @match limit { Some(limit) => { (count(limit)) } None => { span.mute { "none" } } } } }
}

/// A day by the minute, or a week by ten minutes. `hour` is where an hour is shown.
pub(crate) fn map(forecast: &v1::DemandForecast, week: bool, hour: &dyn Fn(i64) -> String) -> Markup {
    let start_us = forecast.start_time.as_ref().map_or(0, us);
    let end_us = forecast.end_time.as_ref().map_or(0, us);
    let slot_us = forecast.slot.as_ref().map_or(60, |slot| slot.seconds.max(60)) * 1_000_000;
    let slots = (end_us - start_us) / slot_us;
    let (rows, left_out) = rows(forecast);
    let step_us = if week { 12 * HOUR_US } else { HOUR_US };
    let marks: Vec<i64> = (0..).map(|n| start_us + n * step_us).take_while(|at| *at < end_us).collect();
    html! {
        div.scroll role="group" aria-label="Demand by policy and time" tabindex="0" {
            table.heat {
                thead {
                    tr {
                        th scope="col" { "Policy" }
                        th.n scope="col" { "Limit" }
                        th.hours scope="col" {
                            span.hidden { "Demand over time; each time leads to its hour, minute by minute: " }
                            span.marks {
                                @for at in &marks {
                                    @let text = clock(*at);
                                    a href=(hour(*at)) title={ (text.get(..16).unwrap_or_default()) " UTC, minute by minute" } {
                                        (if week { text.get(5..13).map(|text| text.replace(' ', "\u{a0}")) } else { text.get(11..13).map(str::to_owned) }.unwrap_or_default())
                                    }
                                }
                            }
                        }
                        th.n scope="col" { "Events" }
                    }
                }
                tbody {
                    @for row in &rows {
                        tr {
                            (name_cell(&row.policy))
                            (limit_cell(row.max_in_flight))
                            td.band {
                                svg viewBox={ "0 0 " (slots) " 1" } preserveAspectRatio="none" role="img" aria-label=(fullest(row, start_us, slot_us)) {
                                    @for (place, class) in LEVELS.iter().enumerate() {
                                        @let path = area(row, place + 1);
                                        @if !path.is_empty() { path class=(class) d=(path) {} }
                                    }
                                }
                            }
                            td.n { (count(row.events_count)) }
                        }
                    }
                }
            }
        }
        (legend())
        p.mute {
            "Every column is " (if week { "ten minutes, coloured by the fullest of them" } else { "a minute" }) "; times are UTC."
            @if left_out > 0 { " " (left_out) " policies with less demand are left out." }
        }
    }
}

fn legend() -> Markup {
    html! {
        p.legend {
            "The fullest minute holds: "
            span.key.h1 { "no more than the limit" } " " span.key.h2 { "up to 10 times as much" } " "
            span.key.h3 { "up to 40 times" } " " span.key.h4 { "more" }
        }
    }
}

/// A row in words, for people who do not see it.
fn fullest(row: &v1::PolicyDemand, start_us: i64, slot_us: i64) -> String {
    let most = row.slots.iter().max_by_key(|slot| (slot.minute_max, std::cmp::Reverse(slot.slot)));
    match most {
        Some(most) => format!(
            "{} in all; the fullest minute has {}, at {} UTC",
            counted(row.events_count, "event"),
            count(most.minute_max),
            clock(start_us + slot_us * i64::from(most.slot)).get(..16).unwrap_or_default(),
        ),
        None => "nothing".to_owned(),
    }
}

/// One hour, minute by minute, with its numbers.
pub(crate) fn hour_map(forecast: &v1::DemandForecast) -> Markup {
    let start_us = forecast.start_time.as_ref().map_or(0, us);
    let (rows, left_out) = rows(forecast);
    html! {
        div.scroll role="group" aria-label="Demand by policy and minute" tabindex="0" {
            table.heat.hour {
                thead {
                    tr {
                        th scope="col" { "Policy" }
                        th.n scope="col" { "Limit" }
                        @for minute in 0..12_i64 {
                            th.slot scope="colgroup" colspan="5" { (clock(start_us + minute * 5 * MINUTE_US).get(11..16).unwrap_or_default()) }
                        }
                        th.n scope="col" { "Events" }
                    }
                }
                tbody {
                    @for row in &rows {
                        tr {
                            (name_cell(&row.policy))
                            (limit_cell(row.max_in_flight))
                            @for minute in 0..60_u32 {
                                @let n = row.slots.iter().find(|slot| slot.slot == minute).map_or(0, |slot| slot.events_count);
                                @let at = clock(start_us + i64::from(minute) * MINUTE_US);
                                td class={ "cell h" (level(n, row.max_in_flight)) }
                                    title={ (at.get(11..16).unwrap_or_default()) ": " (counted(n, "event")) } {
                                    span.hidden { (n) }
                                }
                            }
                            td.n { (count(row.events_count)) }
                        }
                    }
                }
            }
        }
        (legend())
        @if left_out > 0 { p.mute { (left_out) " policies with less demand are left out." } }
        (minutes(&rows, start_us))
    }
}

/// The minutes of an hour in which something falls due, as numbers.
fn minutes(rows: &[&v1::PolicyDemand], start_us: i64) -> Markup {
    let mut all: Vec<(&v1::PolicyDemand, &v1::DemandSlot)> =
        rows.iter().flat_map(|row| row.slots.iter().map(move |slot| (*row, slot))).collect();
    all.sort_by_key(|(_, slot)| (std::cmp::Reverse(slot.events_count), slot.slot));
    all.truncate(20);
    html! {
        section aria-labelledby="h-minutes" {
            h2 #h-minutes { "The fullest minutes of this hour" }
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
                    @for (row, slot) in all {
                        tr {
                            td.num { (clock(start_us + i64::from(slot.slot) * MINUTE_US).get(11..16).unwrap_or_default()) }
                            td { @if row.policy.is_empty() { span.mute { "without a policy" } } @else { a href=(to(&row.policy)) { (short(&row.policy)) } } }
                            td.n { (count(slot.events_count)) }
                            td.n { (for_each(slot.events_count, row.max_in_flight)) }
                        }
                    }
                }
            }
        }
    }
}

fn for_each(events: u64, limit: Option<u32>) -> String {
    match limit {
        Some(limit) if limit > 0 => format!("{:.1}", events as f64 / f64::from(limit)),
        _ => "–".to_owned(),
    }
}

/// The minutes with the most demand for their policy.
pub(crate) fn peaks(forecast: &v1::DemandForecast, hour: &dyn Fn(i64) -> String) -> Markup {
    let start_us = forecast.start_time.as_ref().map_or(0, us);
    let slot_us = forecast.slot.as_ref().map_or(60, |slot| slot.seconds.max(60)) * 1_000_000;
    let mut all: Vec<(&str, i64, u64, u32)> = Vec::new();
    for row in &forecast.policies {
        let Some(limit) = row.max_in_flight.filter(|limit| *limit > 0) else { continue };
        let above = row.slots.iter().filter(|slot| slot.minute_max > u64::from(limit));
        let mut own: Vec<_> = above
            .map(|slot| {
                (row.policy.as_str(), start_us + slot_us * i64::from(slot.slot), slot.minute_max, limit)
            })
            .collect();
        own.sort_by_key(|(_, at_us, n, _)| (std::cmp::Reverse(*n), *at_us));
        own.truncate(PEAKS_EACH);
        all.extend(own);
    }
    all.sort_by_key(|(policy, at_us, n, limit)| {
        (std::cmp::Reverse(n * 10 / u64::from(*limit)), (*policy).to_owned(), *at_us)
    });
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
                                th scope="col" { (if slot_us > MINUTE_US { "Within 10 minutes from" } else { "Minute" }) }
                                th scope="col" { "Policy" }
                                th.n scope="col" { "Events in a minute" }
                                th.n scope="col" { "For each token" }
                            }
                        }
                        tbody {
                            @for (policy, at_us, n, limit) in all {
                                tr {
                                    td.num { a href=(hour(at_us)) { (clock(at_us).get(..16).unwrap_or_default()) } }
                                    td { a href=(to(policy)) { (short(policy)) } }
                                    td.n { (count(n)) }
                                    td.n { (for_each(n, Some(limit))) }
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
    fn levels_compare_with_the_limit() {
        let levels =
            [(0, Some(4)), (4, Some(4)), (40, Some(4)), (160, Some(4)), (161, Some(4)), (1_000, None)];
        assert_eq!(levels.map(|(n, limit)| level(n, limit)), [0, 1, 2, 3, 4, 1]);
    }

    #[test]
    fn neighbours_are_one_area() {
        let slot = |slot: u32, n: u64| v1::DemandSlot { slot, events_count: n, minute_max: n };
        let row = v1::PolicyDemand {
            max_in_flight: Some(4),
            slots: vec![slot(0, 1), slot(1, 4), slot(2, 5), slot(3, 2), slot(9, 2)],
            events_count: 14,
            ..v1::PolicyDemand::default()
        };
        assert_eq!(area(&row, 1), "M0 0H2V1H0ZM3 0H4V1H3ZM9 0H10V1H9Z");
        assert_eq!(area(&row, 2), "M2 0H3V1H2Z");
        assert_eq!(area(&row, 3), "");
        assert_eq!(
            fullest(&row, 0, MINUTE_US),
            "14 events in all; the fullest minute has 5, at 1970-01-01 00:02 UTC"
        );
    }
}
