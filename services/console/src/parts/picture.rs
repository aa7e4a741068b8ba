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

/// A bucket of a tree: the tokens of its own events, those of the events below, and a mark at the floor. `of`: how many tokens
/// the bar stands for.
pub(crate) fn tree_gauge(now: &v1::PolicyGauge, of: Option<u32>) -> Markup {
    let all = now.held_count.saturating_add(now.below_count);
    let whole = of.map_or(all.max(now.floor.into()).max(1), u64::from);
    let (own, odd) = (share(now.held_count, whole), share(now.suspect_count, whole));
    let below = share(now.below_count, whole).min(1_000_u64.saturating_sub(own));
    let class = if all >= whole { "fill full" } else { "fill" };
    html! {
        svg.gauge viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
            rect.track width="1000" height="10" {}
            rect class=(class) width=(own) height="10" {}
            @if odd > 0 { rect.odd x=(own.saturating_sub(odd)) width=(odd) height="10" {} }
            @if below > 0 { rect.below x=(own) width=(below) height="10" {} }
            @if now.floor > 0 { rect.floor x=(share(now.floor.into(), whole).min(994)) width="6" height="10" {} }
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

    #[test]
    fn a_bucket_of_a_tree_shows_what_is_below_and_its_floor() {
        let now = v1::PolicyGauge { held_count: 2, below_count: 5, floor: 4, ..v1::PolicyGauge::default() };
        let drawn = tree_gauge(&now, Some(10)).into_string();
        for part in [
            r#"<rect class="fill" width="200""#,
            r#"<rect class="below" x="200" width="500""#,
            r#"<rect class="floor" x="400""#,
        ] {
            assert!(drawn.contains(part), "{part}\n{drawn}");
        }
        let full = tree_gauge(&now, Some(5)).into_string();
        assert!(
            full.contains(r#"class="below" x="400" width="600""#) && full.contains("fill full"),
            "{full}"
        );
        // Without a limit, the bar stands for what is held, or for the floor where that is more.
        let free = v1::PolicyGauge { held_count: 0, below_count: 0, ..now };
        assert!(tree_gauge(&free, None).into_string().contains(r#"x="994""#));
    }
}
