//! Draws how full a bucket was. What was not seen is a gap, never a line through it.

use maud::{Markup, html};

use crate::requests::buckets::{Histories, Point, SPAN_US};
use crate::requests::console::Console;
use crate::words::show::{clock, count, counted, seen};

const WIDTH: i64 = 720;
const HEIGHT: i64 = 100;
/// Room above the highest value, for the line that is drawn there.
const HEADROOM: i64 = 4;

/// The limit and the tokens held of one policy, over the last hour or since the console began.
pub(crate) fn chart(console: &Console, policy: &str, now_us: i64) -> Markup {
    let how = match console.login {
        None => "as this console saw it every 5 seconds",
        Some(_) => "as this console saw it while somebody looked at this page or at Now",
    };
    show(&console.histories, how, policy, now_us)
}

fn show(histories: &Histories, how: &str, policy: &str, now_us: i64) -> Markup {
    let points = histories.of(policy);
    let from_us = points.first().map_or(now_us, |first| first.at_us).max(now_us - SPAN_US);
    html! {
        section aria-labelledby="h-history" {
            h2 #h-history { "Limit and tokens held" }
            @if points.is_empty() {
                p.mute { "Nothing was held while this console watched." }
            } @else if points.len() < 2 && now_us - from_us < 2 * 5_000_000 {
                p.mute { "Not watched for long enough yet." }
            } @else {
                (drawn(&points, from_us, now_us))
                p.legend {
                    span.key.held { "tokens held" } " " span.key.limit { "limit" }
                    " · " (how) "; it remembers an hour, and nothing from before its start"
                }
            }
        }
    }
}

fn drawn(points: &[Point], from_us: i64, now_us: i64) -> Markup {
    let top = points.iter().map(|point| point.held.max(point.limit.unwrap_or(0).into())).max();
    let top = top.unwrap_or(1).max(1);
    let span_us = (now_us - from_us).max(1);
    let x = |at_us: i64| {
        ((at_us.clamp(from_us, now_us) - from_us) as f64 * WIDTH as f64 / span_us as f64).round()
    };
    let y = |value: u64| HEIGHT as f64 - (value as f64 * (HEIGHT - HEADROOM) as f64 / top as f64).round();
    let (mut area, mut line) = (String::new(), String::new());
    for (place, point) in points.iter().enumerate() {
        let (left, right) = (x(point.at_us), x(point.until_us).max(x(point.at_us) + 1.0));
        area.push_str(&format!("M{left} {HEIGHT}V{}H{right}V{HEIGHT}Z", y(point.held)));
        let Some(limit) = point.limit else { continue };
        let before = place.checked_sub(1).and_then(|place| points.get(place));
        let joined = before.is_some_and(|before| before.until_us == point.at_us && before.limit.is_some());
        let start = if joined { "L" } else { "M" };
        line.push_str(&format!("{start}{left} {y}H{right}", y = y(limit.into())));
    }
    let words = in_words(points, from_us, now_us);
    html! {
        figure.history {
            div.scale aria-hidden="true" { span { (count(top)) } span { "0" } }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(words) {
                path.held d=(area) {}
                path.limit d=(line) {}
            }
            div.ends aria-hidden="true" {
                span { (clock(from_us).get(11..19).unwrap_or_default()) " UTC, " (seen(now_us, from_us)) }
                span { "now" }
            }
        }
    }
}

/// What the chart shows, for people who do not see it.
fn in_words(points: &[Point], from_us: i64, now_us: i64) -> String {
    let held = points.iter().map(|point| point.held);
    let (low, high) = (held.clone().min().unwrap_or(0), held.max().unwrap_or(0));
    let last = points.last().map_or(0, |last| last.held);
    let changes = points.windows(2).filter(|pair| pair[0].limit != pair[1].limit).count();
    let limit = match points.last().and_then(|last| last.limit) {
        Some(limit) => format!("the limit is {}", count(limit)),
        None => "there is no limit".to_owned(),
    };
    format!(
        "Tokens held since {} UTC ({}): between {} and {}, now {}; {limit} and has changed {}.",
        clock(from_us),
        seen(now_us, from_us),
        count(low),
        count(high),
        count(last),
        counted(changes as u64, "time"),
    )
}

#[cfg(test)]
mod tests {
    use tollgate_proto::v1;

    use super::*;

    fn gauge(held: u64, limit: u32) -> v1::PolicyGauge {
        v1::PolicyGauge {
            policy: "namespaces/a/policies/p".to_owned(),
            held_count: held,
            max_in_flight: Some(limit),
            ..v1::PolicyGauge::default()
        }
    }

    #[test]
    fn a_chart_says_in_words_what_it_shows() {
        let histories = Histories::default();
        for (at, held, limit) in [(0, 1, 4), (5, 4, 4), (10, 2, 8)] {
            histories.note(at * 1_000_000, &[gauge(held, limit)]);
        }
        assert!(
            show(&Histories::default(), "", "namespaces/a/policies/p", 0)
                .into_string()
                .contains("Nothing was held")
        );
        let drawn = show(&histories, "seen", "namespaces/a/policies/p", 12_000_000).into_string();
        for part in
            ["between 1 and 4, now 2", "the limit is 8 and has changed 1 time.", "M0 52H300L300 52H600L600 4"]
        {
            assert!(drawn.contains(part), "{part}\n{drawn}");
        }
    }
}
