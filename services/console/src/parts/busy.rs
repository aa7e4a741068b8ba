//! The policies of a namespace as they are now: those that need somebody first, the idle ones folded.

use std::collections::BTreeMap;

use maud::{Markup, html};
use tollgate_proto::v1;

use crate::parts::flow::brief;
use crate::parts::picture::gauge;
use crate::parts::shell::empty;
use crate::requests::links::to;
use crate::requests::visit::Visit;
use crate::words::show::{count, duration, ms, rate, short, tag};

/// How many policies are shown; the list of policies has them all.
const SHOWN_MAX: usize = 60;
/// How many idle ones are named.
const IDLE_MAX: usize = 200;

/// What a policy's place in the list depends on, and what its row says.
struct Row<'a> {
    gauge: &'a v1::PolicyGauge,
    /// The worst trouble that names it.
    trouble: Option<v1::TroubleSeverity>,
}

impl Row<'_> {
    fn is_idle(&self) -> bool {
        let gauge = self.gauge;
        let tried = gauge.started_per_second + gauge.refused_per_second + gauge.unclear_per_second;
        let still = gauge.held_count + gauge.waiting_count == 0 && tried < 0.05;
        still && !gauge.paused && self.trouble.is_none()
    }

    /// Greater means sicker.
    fn rank(&self) -> (u8, u8, u64, u64, u64) {
        let gauge = self.gauge;
        let trouble = match self.trouble {
            Some(v1::TroubleSeverity::Critical) => 2,
            Some(_) => 1,
            None => 0,
        };
        let sick = u8::from(gauge.at_risk_runs_count > 0)
            + u8::from(gauge.suspect_count > 0)
            + u8::from(gauge.refused_per_second > 0.0)
            + u8::from(gauge.paused && gauge.waiting_count > 0);
        let wait_s =
            gauge.oldest_wait.as_ref().filter(|_| gauge.waiting_count > 0).map_or(0, ms).unsigned_abs()
                / 1_000;
        // Waits that differ by seconds do not change places at every look.
        (trouble, sick, wait_s / 60, gauge.waiting_count, gauge.held_count)
    }
}

/// The policies' gauges. That of what runs without a policy counts all namespaces, and is none of them.
fn rows<'a>(gauges: &'a [v1::PolicyGauge], troubles: &[v1::Trouble]) -> Vec<Row<'a>> {
    let mut worst: BTreeMap<&str, v1::TroubleSeverity> = BTreeMap::new();
    // They come worst first.
    for trouble in troubles.iter().filter(|trouble| !trouble.policy.is_empty()) {
        worst.entry(&trouble.policy).or_insert(trouble.severity());
    }
    let mut rows: Vec<Row<'_>> = gauges
        .iter()
        .filter(|gauge| !gauge.policy.is_empty())
        .map(|gauge| Row { gauge, trouble: worst.get(gauge.policy.as_str()).copied() })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.rank()));
    rows
}

/// The policies, sick first.
pub(crate) fn policies(visit: &Visit, gauges: &[v1::PolicyGauge], troubles: &[v1::Trouble]) -> Markup {
    let (idle, busy): (Vec<Row<'_>>, Vec<Row<'_>>) =
        rows(gauges, troubles).into_iter().partition(Row::is_idle);
    html! {
        section aria-labelledby="h-policies" {
            h2 #h-policies { "Policies" @if busy.len() > 1 { ", those that need somebody first" } }
            @if idle.is_empty() && busy.is_empty() {
                (empty("No policies yet, so nothing limits what is in flight.", html! {
                    a href=(visit.link("new/policy")) { "Make the first policy" } ", or write it into a file: "
                    code { "tollgate apply -f FILE" } "."
                }))
            } @else if busy.is_empty() {
                p.mute { "Nothing waits and nothing is in flight." }
            } @else {
                (table(visit.now_us, &busy))
            }
            @if busy.len() > SHOWN_MAX {
                p.mute { "The first " (SHOWN_MAX) " of " (count(busy.len() as u64)) ". "
                    a href=(visit.link("policies")) { "All policies" } }
            }
            @if !idle.is_empty() { (folded(&idle)) }
        }
    }
}

fn folded(idle: &[Row<'_>]) -> Markup {
    html! {
        details #idle {
            summary {
                (count(idle.len() as u64)) " idle " @if idle.len() == 1 { "policy" } @else { "policies" }
            }
            ul.names {
                @for row in idle.iter().take(IDLE_MAX) {
                    li {
                        a href=(to(&row.gauge.policy)) { (short(&row.gauge.policy)) }
                        @if let Some(limit) = row.gauge.max_in_flight { span.mute { " 0 / " (count(limit)) } }
                    }
                }
                @if idle.len() > IDLE_MAX { li.mute { "and " (count((idle.len() - IDLE_MAX) as u64)) " more" } }
            }
        }
    }
}

fn table(now_us: i64, busy: &[Row<'_>]) -> Markup {
    html! {
        div.scroll role="group" aria-labelledby="h-policies" tabindex="0" {
            table.wide.cards {
                thead {
                    tr {
                        th scope="col" { "Policy" }
                        th.gauge-cell scope="col" { "In flight" }
                        th.n scope="col" { "Held / limit" }
                        th.n scope="col" { "Waiting" }
                        th.n scope="col" { "Oldest wait" }
                        th.n scope="col" { "Started/s" }
                        th.n scope="col" { "Refused/s" }
                        th.n scope="col" { "Suspect" }
                        th.n scope="col" { "At risk" }
                        th scope="col" { "All started" }
                    }
                }
                tbody { @for row in busy.iter().take(SHOWN_MAX) { (one(now_us, row)) } }
            }
        }
    }
}

fn one(now_us: i64, row: &Row<'_>) -> Markup {
    let gauged = row.gauge;
    let refused = (gauged.refused_per_second + gauged.unclear_per_second).max(0.0);
    let cell = |label: &str, n: u64, class: &'static str| {
        let class = if n > 0 { class } else { "mute" };
        html! { td.n.zero[n == 0] data-label=(label) { span class=(class) { (count(n)) } } }
    };
    html! {
        tr id={ "p-" (short(&gauged.policy)) } {
            th scope="row" {
                a href=(to(&gauged.policy)) { (short(&gauged.policy)) }
                @if gauged.paused { " " (tag("paused", "warn")) }
                @match row.trouble {
                    Some(v1::TroubleSeverity::Critical) => { " " (tag("trouble", "bad")) }
                    Some(_) if !gauged.paused => { " " (tag("trouble", "warn")) }
                    _ => {}
                }
            }
            td.gauge-cell {
                @if gauged.max_in_flight.is_some() {
                    (gauge(gauged.held_count, gauged.suspect_count, gauged.max_in_flight))
                }
            }
            td.n data-label="Held / limit" {
                (count(gauged.held_count))
                @match gauged.max_in_flight {
                    Some(limit) => { span.mute { " / " } (count(limit)) }
                    None => { span.mute { " / no limit" } }
                }
            }
            (cell("Waiting", gauged.waiting_count, ""))
            td.n.zero[gauged.waiting_count == 0] data-label="Oldest wait" {
                @if gauged.waiting_count > 0 { (duration(gauged.oldest_wait.as_ref())) }
            }
            td.n.zero[gauged.started_per_second < 0.05] data-label="Started/s" {
                (rate(gauged.started_per_second.max(0.0)))
                @if let Some(limit) = gauged.rate_per_second { span.mute { " / " } (rate(limit)) }
            }
            td.n.zero[refused == 0.0] data-label="Refused/s" {
                span class=(if refused > 0.0 { "bad" } else { "mute" }) title=(gauged.last_error) { (rate(refused)) }
            }
            (cell("Suspect", gauged.suspect_count, "warn"))
            (cell("At risk", gauged.at_risk_runs_count, "bad"))
            td data-label=[(gauged.waiting_count > 0).then_some("All started")] {
                @if gauged.waiting_count > 0 {
                    (brief(gauged.expected_drain_time.as_ref(), &gauged.no_expected_drain_reason, now_us))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sick_come_first_and_the_idle_are_folded() {
        let gauge = |id: &str, waiting_count, held_count, paused| v1::PolicyGauge {
            policy: format!("namespaces/a/policies/{id}"),
            waiting_count,
            held_count,
            paused,
            ..v1::PolicyGauge::default()
        };
        let gauges = [
            gauge("calm", 0, 0, false),
            gauge("busy", 900, 8, false),
            gauge("paused", 3, 0, true),
            gauge("refused", 1, 0, false),
            v1::PolicyGauge { waiting_count: 7, ..v1::PolicyGauge::default() },
        ];
        let trouble = v1::Trouble {
            policy: "namespaces/a/policies/refused".to_owned(),
            severity: v1::TroubleSeverity::Critical.into(),
            ..v1::Trouble::default()
        };
        let rows = rows(&gauges, &[trouble]);
        let order: Vec<&str> = rows.iter().map(|row| short(&row.gauge.policy)).collect();
        assert_eq!(order, ["refused", "paused", "busy", "calm"]);
        let idle: Vec<bool> = rows.iter().map(Row::is_idle).collect();
        assert_eq!(idle, [false, false, false, true]);
        let drawn = folded(&rows[3..]).into_string();
        assert!(drawn.contains("1 idle policy") && drawn.contains("/n/a/policies/calm"), "{drawn}");
        assert!(
            rows.iter().all(|row| !row.gauge.policy.is_empty()),
            "what runs without a policy is nobody's row"
        );
    }
}
