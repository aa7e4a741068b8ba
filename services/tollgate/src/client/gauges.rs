//! Decides what is shown of a policy's bucket: what it holds, what waits, and whether its target is well.

use std::collections::HashMap;

use prost_types::Timestamp;
use tollgate_proto::v1;

use super::style::Tone;
use super::table::{Cell, NAMESPACE, Table, View, always, filled, wide};
use super::when::{duration, relative};
use super::{Session, names, rows};

/// The buckets by their policies' names; empty where they cannot be read.
#[derive(Debug, Default)]
pub(super) struct Gauges(HashMap<String, v1::PolicyGauge>);

impl Gauges {
    /// A policy's bucket.
    pub(super) fn get(&self, policy: &str) -> Option<&v1::PolicyGauge> {
        self.0.get(policy)
    }
}

/// The buckets of a namespace, or of all. Another process may play that role, and nothing is known then.
pub(super) async fn of(session: &Session, parent: String) -> Gauges {
    let request = v1::GetHandlerStatusRequest { parent, busy_only: false };
    let answer = session.handler().get_handler_status(request).await;
    let policies = answer.map(|answer| answer.into_inner().policies).unwrap_or_default();
    Gauges(policies.into_iter().map(|gauge| (gauge.policy.clone(), gauge)).collect())
}

/// Per second, with the tone where it is not nothing.
pub(super) fn rate(per_second: f64, tone: Tone) -> Cell {
    Cell::toned(format!("{per_second:.1}"), if per_second > 0.0 { tone } else { Tone::Plain })
}

/// When what waits is expected to have started, or why that cannot be said.
fn drain(now_us: i64, gauge: &v1::PolicyGauge) -> Cell {
    match &gauge.expected_drain_time {
        Some(time) => {
            Cell::toned(relative(now_us, Some(time)), Tone::Warning.if_any(gauge.at_risk_runs_count))
        }
        None => rows::unknown_end(&gauge.no_expected_drain_reason),
    }
}

/// What was said of the latest delivery that failed, and when.
pub(super) fn said(now_us: i64, error: &str, time: Option<&Timestamp>) -> Cell {
    match error {
        "" => Cell::default(),
        error => Cell::toned(format!("{}: {error}", relative(now_us, time)), Tone::Quiet),
    }
}

fn last_error(now_us: i64, gauge: &v1::PolicyGauge) -> Cell {
    said(now_us, &gauge.last_error, gauge.last_error_time.as_ref())
}

/// How many of its parent's tokens go to a policy first.
fn floor(floor: u32) -> Cell {
    if floor > 0 { floor.to_string().into() } else { Cell::default() }
}

/// The buckets, a line each.
pub(super) fn table(view: View, policies: &[v1::PolicyGauge]) -> String {
    let in_tree = policies.iter().any(|gauge| !gauge.parent.is_empty());
    let head = [
        NAMESPACE,
        always("POLICY"),
        always("STATE"),
        filled("PARENT", in_tree),
        always("HELD"),
        filled("BELOW", in_tree),
        always("OF"),
        wide("FLOOR"),
        always("SUSPECT"),
        always("WAITING"),
        always("OLDEST"),
        always("STARTED/S"),
        always("REFUSED/S"),
        wide("ACCEPTED/S"),
        wide("UNCLEAR/S"),
        wide("RETRYING"),
        wide("RATE"),
        wide("SHARD"),
        wide("AT RISK"),
        always("EXPECTED START OF ALL"),
        wide("LAST ERROR"),
    ];
    let mut table = Table::of(view, head);
    for gauge in policies {
        let is_named = !gauge.policy.is_empty();
        table.row([
            names::namespace_of(&gauge.policy).into(),
            if is_named { names::short(&gauge.policy) } else { "(no policy)" }.into(),
            Cell::state(if gauge.paused { "PAUSED" } else { "ACTIVE" }),
            names::short(&gauge.parent).into(),
            gauge.held_count.to_string().into(),
            gauge.below_count.to_string().into(),
            gauge.max_in_flight.map(|max| max.to_string()).unwrap_or_default().into(),
            floor(gauge.floor),
            Cell::count(gauge.suspect_count, Tone::Warning),
            gauge.waiting_count.to_string().into(),
            duration(gauge.oldest_wait.as_ref()).into(),
            rate(gauge.started_per_second, Tone::Plain),
            rate(gauge.refused_per_second, Tone::Bad),
            rate(gauge.accepted_per_second, Tone::Plain),
            rate(gauge.unclear_per_second, Tone::Warning),
            Cell::count(gauge.retrying_count, Tone::Warning),
            gauge.rate_per_second.map(|rate| rate.to_string()).unwrap_or_default().into(),
            if is_named { gauge.shard.to_string() } else { String::new() }.into(),
            Cell::count(gauge.at_risk_runs_count, Tone::Warning),
            drain(view.now_us, gauge),
            last_error(view.now_us, gauge),
        ]);
    }
    rows::or_none(&table, "no policies")
}

/// Policies, with what their buckets show now, where that is known.
pub(super) fn policies(view: View, policies: &[v1::Policy], gauges: &Gauges) -> String {
    let in_tree = policies.iter().any(|policy| !policy.parent().is_empty());
    let head = [
        NAMESPACE,
        always("POLICY"),
        always("STATE"),
        filled("PARENT", in_tree),
        always("IN FLIGHT"),
        always("PER SECOND"),
        always("HELD"),
        filled("BELOW", in_tree),
        always("WAITING"),
        always("REFUSED/S"),
        wide("FLOOR"),
        wide("WEIGHT"),
        wide("BURST"),
        wide("RECLAIM"),
        wide("TTL"),
        wide("SHARD"),
        wide("ACCEPTED/S"),
        wide("UNCLEAR/S"),
        wide("RETRYING"),
        always("EXPECTED START OF ALL"),
        wide("LAST ERROR"),
    ];
    let mut table = Table::of(view, head);
    for policy in policies {
        let gauge = gauges.get(&policy.name);
        let now = |shown: &dyn Fn(&v1::PolicyGauge) -> Cell| gauge.map(shown).unwrap_or_default();
        table.row([
            names::namespace_of(&policy.name).into(),
            names::short(&policy.name).into(),
            Cell::state(rows::active(policy.pause.as_ref())),
            names::short(policy.parent()).into(),
            policy.max_in_flight.map(|max| max.to_string()).unwrap_or_default().into(),
            policy.rate_per_second.map(|rate| rate.to_string()).unwrap_or_default().into(),
            now(&|gauge| gauge.held_count.to_string().into()),
            now(&|gauge| gauge.below_count.to_string().into()),
            now(&|gauge| gauge.waiting_count.to_string().into()),
            now(&|gauge| rate(gauge.refused_per_second, Tone::Bad)),
            floor(policy.floor()),
            if policy.parent().is_empty() {
                Cell::default()
            } else {
                policy.weight.unwrap_or(1).to_string().into()
            },
            policy.burst.map(|burst| burst.to_string()).unwrap_or_default().into(),
            rows::word(policy.reclaim().as_str_name(), "RECLAIM_").into(),
            duration(policy.token_ttl.as_ref()).into(),
            policy.shard.to_string().into(),
            now(&|gauge| rate(gauge.accepted_per_second, Tone::Plain)),
            now(&|gauge| rate(gauge.unclear_per_second, Tone::Warning)),
            now(&|gauge| Cell::count(gauge.retrying_count, Tone::Warning)),
            now(&|gauge| drain(view.now_us, gauge)),
            now(&|gauge| last_error(view.now_us, gauge)),
        ]);
    }
    rows::or_none(&table, "no policies")
}

#[cfg(test)]
mod tests {
    use tollgate_proto::convert::timestamp;

    use super::super::style::plain;
    use super::*;

    #[test]
    fn a_sick_policy_is_seen_to_be_sick() {
        let gauge = v1::PolicyGauge {
            policy: "namespaces/default/policies/imports".to_owned(),
            max_in_flight: Some(4),
            waiting_count: 300,
            refused_per_second: 2.5,
            retrying_count: 300,
            last_error: "connection refused".to_owned(),
            last_error_time: Some(timestamp(-12_000_000)),
            no_expected_drain_reason: "never, while its target refuses".to_owned(),
            ..v1::PolicyGauge::default()
        };
        let text = table(View { wide: true, ..View::default() }, std::slice::from_ref(&gauge));
        assert!(text.contains(&Tone::Bad.paint("2.5")), "{text:?}");
        let text = plain(&text);
        for part in ["imports", "never, while its target refuses", "12s ago: connection refused"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let narrow = plain(&table(View::default(), &[gauge]));
        assert!(
            narrow.contains("imports  ACTIVE  0     4   0        300      -       0.0        2.5"),
            "{narrow}"
        );
        assert!(!narrow.contains("connection refused"), "{narrow}");
    }

    #[test]
    fn a_tree_shows_who_stands_below_whom() {
        let gauge = |id: &str, parent: &str, held_count, below_count| v1::PolicyGauge {
            policy: format!("namespaces/default/policies/{id}"),
            parent: parent.to_owned(),
            max_in_flight: Some(9),
            held_count,
            below_count,
            ..v1::PolicyGauge::default()
        };
        let below = gauge("below", "namespaces/default/policies/root", 3, 0);
        let text = plain(&table(View::default(), &[below, gauge("root", "", 1, 3)]));
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0][2..6], ["PARENT", "HELD", "BELOW", "OF"], "{text}");
        assert_eq!(rows[1][2..6], ["root", "3", "0", "9"], "{text}");
        assert_eq!(rows[2][2..6], ["-", "1", "3", "9"], "{text}");
    }
}
