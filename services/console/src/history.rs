//! Remembers how full each bucket was, and draws it.
//!
//! In: the buckets, every few seconds, from a sampler of this console and from whoever looks. Out: a chart for a policy.
//! Invariants: a value is kept when it changes, and the sampler asks for busy policies only, so that a quiet one costs
//! nothing; an hour at most, and so many points and policies; what was not seen is a gap in the chart, never a line through
//! it; a reading that takes long is followed by a pause that is longer. Not here: anything durable: what a console
//! remembers begins and ends with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use maud::{Markup, html};
use tollgate_clock::instant_now;
use tollgate_proto::v1;

use crate::Console;
use crate::api::Api;
use crate::show::{clock, count, counted, seen};

/// How often the buckets are looked at.
const EVERY: Duration = Duration::from_secs(5);
/// Of the time, at most one part in so many is spent looking.
const PAUSE: u32 = 20;
/// So long is remembered, in microseconds.
const SPAN_US: i64 = 3_600_000_000;
/// Without a reading for so long, there is a gap.
const GAP_US: i64 = 20_000_000;
/// So many points of each policy.
const POINTS_MAX: usize = 800;
/// So many policies.
const POLICIES_MAX: usize = 5_000;
const WIDTH: i64 = 720;
const HEIGHT: i64 = 100;
/// Room above the highest value, for the line that is drawn there.
const HEADROOM: i64 = 4;

/// A bucket as it was from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    at_us: i64,
    /// Until when it was seen to be so.
    until_us: i64,
    held: u64,
    limit: Option<u32>,
}

/// All policies.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    rings: Mutex<BTreeMap<String, VecDeque<Point>>>,
}

impl Histories {
    /// Takes in what is so now.
    pub(crate) fn note(&self, now_us: i64, gauges: &[v1::PolicyGauge]) {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        for gauge in gauges.iter().filter(|gauge| !gauge.policy.is_empty()) {
            if rings.len() >= POLICIES_MAX && !rings.contains_key(&gauge.policy) {
                continue;
            }
            let ring = rings.entry(gauge.policy.clone()).or_default();
            add(ring, now_us, gauge.held_count, gauge.max_in_flight);
        }
        rings.retain(|_, ring| ring.back().is_some_and(|last| now_us - last.until_us < SPAN_US));
    }

    /// Takes in what is so now, where policies that are not among these hold nothing.
    pub(crate) fn note_busy(&self, now_us: i64, busy: &[v1::PolicyGauge]) {
        self.note(now_us, busy);
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        for ring in rings.values_mut() {
            // Those that were noted just now stay as they are.
            if let Some(limit) = ring.back().map(|last| last.limit) {
                add(ring, now_us, 0, limit);
            }
        }
        // One that has been quiet for as long as is remembered makes room.
        rings.retain(|_, ring| {
            ring.len() > 1 || ring.back().is_some_and(|last| last.held > 0 || now_us - last.at_us < SPAN_US)
        });
    }

    fn of(&self, policy: &str) -> Vec<Point> {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        rings.get(policy).map(|ring| ring.iter().copied().collect()).unwrap_or_default()
    }
}

fn add(ring: &mut VecDeque<Point>, now_us: i64, held: u64, limit: Option<u32>) {
    match ring.back_mut() {
        // Two who look at once may come in either order.
        Some(last) if last.until_us >= now_us => return,
        Some(last) if now_us - last.until_us < GAP_US => {
            last.until_us = now_us;
            if (last.held, last.limit) != (held, limit) {
                ring.push_back(Point { at_us: now_us, until_us: now_us, held, limit });
            }
        }
        _ => ring.push_back(Point { at_us: now_us, until_us: now_us, held, limit }),
    }
    while ring.len() > POINTS_MAX || ring.front().is_some_and(|first| first.until_us < now_us - SPAN_US) {
        ring.pop_front();
    }
}

/// Looks at the buckets every few seconds until the console stops.
pub(crate) async fn sample(console: Console) {
    // Whoever must show a key sees only what its visitors see.
    if console.login.is_some() {
        return;
    }
    let api = Api::new(console.channel.clone(), "console", None);
    let mut pause = EVERY;
    loop {
        tokio::select! {
            () = console.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let began = instant_now();
        // Whoever cannot be asked leaves a gap, which says enough.
        if let Ok(status) = api.busy().await {
            let now_us = console.clock.wall_us();
            if status.silent_handlers.is_empty() {
                console.histories.note_busy(now_us, &status.policies);
            } else {
                console.histories.note(now_us, &status.policies);
            }
        }
        pause = EVERY.max(began.elapsed() * PAUSE);
    }
}

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

/// What the chart shows, for whoever does not see it.
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
    fn only_changes_and_gaps_make_points() {
        let histories = Histories::default();
        let second = 1_000_000;
        for (at, held) in [(0, 1), (5, 1), (10, 1), (15, 2), (20, 2), (60, 2)] {
            histories.note(at * second, &[gauge(held, 4)]);
        }
        let points = histories.of("namespaces/a/policies/p");
        let spans: Vec<_> = points.iter().map(|p| (p.at_us / second, p.until_us / second, p.held)).collect();
        assert_eq!(spans, [(0, 15, 1), (15, 20, 2), (60, 60, 2)]);
        histories.note(8 * SPAN_US, &[]);
        assert!(histories.of("namespaces/a/policies/p").is_empty());
    }

    #[test]
    fn who_is_not_among_the_busy_holds_nothing_and_is_forgotten_after_an_hour() {
        let (histories, second) = (Histories::default(), 1_000_000);
        histories.note_busy(0, &[gauge(3, 4)]);
        histories.note_busy(5 * second, &[]);
        histories.note_busy(10 * second, &[]);
        let points = || histories.of("namespaces/a/policies/p");
        let spans: Vec<_> =
            points().iter().map(|p| (p.at_us / second, p.until_us / second, p.held, p.limit)).collect();
        assert_eq!(spans, [(0, 5, 3, Some(4)), (5, 10, 0, Some(4))]);
        for at in (10..3 * SPAN_US / second).step_by(10) {
            histories.note_busy(at * second, &[]);
        }
        assert!(points().is_empty());
        assert!(
            show(&histories, "", "namespaces/a/policies/p", 0).into_string().contains("Nothing was held")
        );
    }

    #[test]
    fn a_chart_says_in_words_what_it_shows() {
        let histories = Histories::default();
        for (at, held, limit) in [(0, 1, 4), (5, 4, 4), (10, 2, 8)] {
            histories.note(at * 1_000_000, &[gauge(held, limit)]);
        }
        let drawn = show(&histories, "seen", "namespaces/a/policies/p", 12_000_000).into_string();
        for part in
            ["between 1 and 4, now 2", "the limit is 8 and has changed 1 time.", "M0 52H300L300 52H600L600 4"]
        {
            assert!(drawn.contains(part), "{part}\n{drawn}");
        }
    }
}
