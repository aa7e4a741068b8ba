//! Decides what is shown of targets: which of them do something, and whether they are well.

use tollgate_proto::v1;

use super::gauges::{rate, said};
use super::names;
use super::style::Tone;
use super::table::{Cell, NAMESPACE, Table, View, always, wide};
use super::when::duration;

/// Targets at which something happens, the sick first, a line each; nothing where there are none.
pub(super) fn table(view: View, status: &v1::HandlerStatus) -> String {
    let head = [
        NAMESPACE,
        always("TARGET"),
        always("STATE"),
        always("IN FLIGHT"),
        always("WAITING"),
        always("OLDEST"),
        always("STARTED/S"),
        always("REFUSED/S"),
        wide("ACCEPTED/S"),
        wide("UNCLEAR/S"),
        wide("RETRYING"),
        wide("LAST ERROR"),
    ];
    let mut table = Table::of(view, head);
    for gauge in status.targets.iter().filter(|gauge| is_busy(gauge)) {
        let target = if gauge.target.is_empty() { "(others)" } else { &gauge.target };
        table.row([
            names::namespace_of(&gauge.parent).into(),
            target.into(),
            if gauge.refusing { Cell::toned("REFUSING", Tone::Bad) } else { "OK".into() },
            gauge.held_count.to_string().into(),
            gauge.waiting_count.to_string().into(),
            duration(gauge.oldest_wait.as_ref()).into(),
            rate(gauge.started_per_second, Tone::Plain),
            rate(gauge.refused_per_second, Tone::Bad),
            rate(gauge.accepted_per_second, Tone::Plain),
            rate(gauge.unclear_per_second, Tone::Warning),
            Cell::count(gauge.retrying_count, Tone::Warning),
            said(view.now_us, &gauge.last_error, gauge.last_error_time.as_ref()),
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    let more = match status.omitted_targets_count {
        0 => String::new(),
        more => format!("and {more} more targets, at which less waits\n"),
    };
    format!("\n{table}{more}")
}

fn is_busy(gauge: &v1::TargetGauge) -> bool {
    let tried = gauge.accepted_per_second + gauge.refused_per_second + gauge.unclear_per_second;
    gauge.held_count + gauge.waiting_count > 0 || tried > 0.0
}

#[cfg(test)]
mod tests {
    use tollgate_proto::convert::timestamp;

    use super::super::style::plain;
    use super::*;

    #[test]
    fn busy_targets_are_shown_and_one_that_refuses_is_seen_to() {
        let gauge = |target: &str, waiting_count| v1::TargetGauge {
            parent: "namespaces/default".to_owned(),
            target: target.to_owned(),
            waiting_count,
            ..v1::TargetGauge::default()
        };
        let sick = v1::TargetGauge {
            refusing: true,
            refused_per_second: 0.5,
            retrying_count: 3,
            last_error: "503: full".to_owned(),
            last_error_time: Some(timestamp(-5_000_000)),
            ..gauge("http://sick:80", 3)
        };
        let targets = vec![sick, gauge("", 2), gauge("http://idle", 0)];
        let mut status = v1::HandlerStatus { targets, ..v1::HandlerStatus::default() };
        let text = table(View { wide: true, ..View::default() }, &status);
        assert!(text.contains(&Tone::Bad.paint("REFUSING")), "{text:?}");
        let text = plain(&text);
        for part in ["http://sick:80", "5s ago: 503: full", "(others)        OK"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("idle") && !text.contains("more targets"), "{text}");
        status.omitted_targets_count = 7;
        assert!(plain(&table(View::default(), &status)).contains("and 7 more targets"));
        assert_eq!(table(View::default(), &v1::HandlerStatus::default()), "");
    }
}
