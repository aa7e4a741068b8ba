//! Small drawings: gauges, bars of progress. Each also stands beside its numbers in words.

use maud::{Markup, html};
use tollgate_proto::v1;

/// The share of `part` in `whole`, in thousandths, at most all of it; something rather than nothing.
pub(crate) fn share(part: u64, whole: u64) -> u64 {
    match (part, whole) {
        (0, _) | (_, 0) => 0,
        _ => (part.saturating_mul(1_000) / whole).clamp(4, 1_000),
    }
}

/// A bucket: how many of `limit` tokens are held, and how many of these are suspect.
pub(crate) fn gauge(held: u64, suspect: u64, limit: Option<u32>) -> Markup {
    let limit = limit.map_or(held.max(1), u64::from);
    let (all, odd) = (share(held, limit), share(suspect, limit));
    let class = if held >= limit && limit > 0 { "fill full" } else { "fill" };
    html! {
        svg.gauge viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
            rect.track width="1000" height="10" {}
            rect class=(class) width=(all) height="10" {}
            @if odd > 0 { rect.odd x=(all.saturating_sub(odd)) width=(odd) height="10" {} }
        }
    }
}

/// A bar of parts, each of a class, in proportion to `whole`.
pub(crate) fn bar(parts: &[(u64, &str)], whole: u64) -> Markup {
    let mut from = 0;
    let drawn = parts.iter().map(|(part, class)| {
        let (x, width) = (from, share(*part, whole).min(1_000 - from));
        from += width;
        (x, width, *class)
    });
    let drawn: Vec<(u64, u64, &str)> = drawn.filter(|(_, width, _)| *width > 0).collect();
    html! {
        svg.gauge viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
            rect.track width="1000" height="10" {}
            @for (x, width, class) in drawn { rect class=(class) x=(x) width=(width) height="10" {} }
        }
    }
}

/// One of a page's large numbers, in a `dl.numbers`.
pub(crate) fn number(label: &str, value: Markup, class: &str) -> Markup {
    html! { div class=(class) { dt { (label) } dd { (value) } } }
}

/// A run's events: done well, done otherwise, in flight.
pub(crate) fn progress(run: &v1::Run) -> Markup {
    // Nothing of it was to be done.
    if run.state() == v1::RunState::Skipped {
        return html! { span.mute { "–" } };
    }
    let counts = run.counts.unwrap_or_default();
    let bad = [counts.failed, counts.dead, counts.expired, counts.cancelled, counts.lost];
    let bad: u64 = bad.into_iter().map(u64::from).sum();
    let parts =
        [(u64::from(counts.succeeded), "done"), (bad, "odd"), (u64::from(run.in_flight_count), "flight")];
    bar(&parts, run.events.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_stay_inside() {
        assert_eq!(share(0, 10), 0);
        assert_eq!(share(5, 10), 500);
        assert_eq!(share(50, 10), 1_000);
        assert_eq!(share(1, 1_000_000), 4);
        assert_eq!(share(1, 0), 0);
        let drawn = bar(&[(9, "a"), (9, "b")], 10).into_string();
        assert!(drawn.contains(r#"x="900" width="100""#), "{drawn}");
    }
}
