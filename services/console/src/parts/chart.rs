//! Draws what became of events: one bar for each step of time, its number on hover, all of them in a table.
//!
//! Invariants: what is drawn is what the service says, step by step; the step under way is told from those that are whole; each
//! chart is said in words too.

use maud::{Markup, html};
use tollgate_proto::v1;
use tollgate_proto::v1::HistoryPoint;

use crate::requests::problem::Problem;
use crate::words::range::{RANGES, Range, by_step};
use crate::words::show::{clock, count, ms, us};

/// The height of a chart, in its own units.
const HEIGHT: u64 = 100;
/// The width of a step.
const STEP: usize = 10;
const DAY_US: i64 = 86_400_000_000;

/// A number of a step.
type Of = fn(&HistoryPoint) -> u64;

/// What a chart shows.
pub(crate) struct Chart {
    label: &'static str,
    /// From below: the word, the colour, the number.
    parts: &'static [(&'static str, &'static str, Of)],
    /// How many there were at the end of a minute, at most; not how many there came.
    is_level: bool,
}

pub(crate) const WAITING: Chart =
    Chart { label: "Waiting", parts: &[("waiting", "calm", |p| p.waiting_count)], is_level: true };
const HELD: Chart =
    Chart { label: "Tokens held", parts: &[("held", "go", |p| p.held_count)], is_level: true };
const DUE: Chart = Chart { label: "Fell due", parts: &[("due", "calm", |p| p.due_count)], is_level: false };
pub(crate) const STARTED: Chart = Chart {
    label: "Started: first attempts",
    parts: &[("started", "go", |p| p.started_count)],
    is_level: false,
};
const RETRIED: Chart = Chart {
    label: "Attempts that failed",
    parts: &[("failed attempts", "warn", |p| p.retried_count)],
    is_level: false,
};
pub(crate) const NOT_WELL: Chart = Chart {
    label: "Failed, dead, lost or expired",
    parts: &[
        ("failed", "bad", |p| p.failed_count),
        ("dead", "bad", |p| p.dead_count),
        ("lost", "bad", |p| p.lost_count),
        ("expired", "warn", |p| p.expired_count),
    ],
    is_level: false,
};
/// What the page of a policy shows.
pub(crate) const OF_POLICY: [&Chart; 6] = [&WAITING, &HELD, &NOT_WELL, &DUE, &STARTED, &RETRIED];

/// The columns of the table beside the time.
const COLUMNS: [(&str, Of); 11] = [
    ("Fell due", |p| p.due_count),
    ("Started", |p| p.started_count),
    ("Tried again", |p| p.retried_count),
    ("Succeeded", |p| p.succeeded_count),
    ("Failed", |p| p.failed_count),
    ("Dead", |p| p.dead_count),
    ("Lost", |p| p.lost_count),
    ("Expired", |p| p.expired_count),
    ("Cancelled", |p| p.cancelled_count),
    ("Waiting", |p| p.waiting_count),
    ("Held", |p| p.held_count),
];

impl Chart {
    fn sum(&self, point: &HistoryPoint) -> u64 {
        self.parts.iter().map(|(_, _, of)| of(point)).sum()
    }

    /// A step in words: `5 dead, 2 expired`.
    fn words(&self, point: &HistoryPoint) -> String {
        let parts = self.parts.iter().map(|(word, _, of)| (of(point), word));
        let said: Vec<String> = parts
            .filter(|(n, _)| *n > 0 || self.parts.len() == 1)
            .map(|(n, word)| format!("{} {word}", count(n)))
            .collect();
        if said.is_empty() { "none".to_owned() } else { said.join(", ") }
    }
}

/// When a point begins.
fn at_us(point: &HistoryPoint) -> i64 {
    point.time.as_ref().map(us).unwrap_or_default()
}

/// The time of a step, short: the day too where the charts are of more than one.
fn time(at_us: i64, is_long: bool) -> String {
    let clock = clock(at_us);
    clock.get(if is_long { 5..16 } else { 11..16 }).unwrap_or_default().to_owned()
}

/// The history of some time, with what is needed to draw it.
pub(crate) struct History<'a> {
    points: &'a [HistoryPoint],
    step_us: i64,
    now_us: i64,
}

impl<'a> History<'a> {
    pub(crate) fn new(answer: &'a v1::ListHistoryResponse, now_us: i64) -> Self {
        let step_us = answer.step.as_ref().map_or(1, |step| ms(step) * 1_000).max(1);
        Self { points: &answer.points, step_us, now_us }
    }

    /// How long a step is, in microseconds.
    pub(crate) fn step_us(&self) -> i64 {
        self.step_us
    }

    /// The moments at which it begins and ends.
    fn ends(&self) -> (i64, i64) {
        let last = self.points.last().map_or(0, at_us).saturating_add(self.step_us);
        (self.points.first().map_or(0, at_us), last.min(self.now_us))
    }

    fn is_long(&self) -> bool {
        let (from, to) = self.ends();
        to - from > DAY_US
    }

    /// Whether a step has not ended.
    fn is_under_way(&self, point: &HistoryPoint) -> bool {
        at_us(point).saturating_add(self.step_us) > self.now_us
    }

    fn time_of(&self, point: &HistoryPoint) -> String {
        time(at_us(point), self.is_long())
    }

    /// How much it is, in a few words, beside the chart's name.
    fn figure(&self, chart: &Chart) -> String {
        let each = self.points.iter().map(|point| chart.sum(point));
        if !chart.is_level {
            return count(each.sum::<u64>());
        }
        let last = self.points.last().map_or(0, |point| chart.sum(point));
        format!("{} · at most {}", count(last), count(each.max().unwrap_or(0)))
    }

    /// What the chart shows, for people who do not see it.
    fn in_words(&self, chart: &Chart) -> String {
        let (from_us, to_us) = self.ends();
        let is_long = self.is_long();
        let most = self.points.iter().max_by_key(|point| (chart.sum(point), std::cmp::Reverse(at_us(point))));
        let most = most.filter(|point| chart.sum(point) > 0);
        let of = format!(
            "{}, {} to {} UTC {}",
            chart.label,
            time(from_us, is_long),
            time(to_us, is_long),
            by_step(self.step_us)
        );
        let Some(most) = most else { return format!("{of}: none.") };
        let (top, when) = (chart.words(most), self.time_of(most));
        match chart.is_level {
            true => {
                let last = self.points.last().map_or(0, |point| chart.sum(point));
                format!("{of}: {} in the latest step, at most {top}, at {when}.", count(last))
            }
            false => {
                let all: u64 = self.points.iter().map(|point| chart.sum(point)).sum();
                format!("{of}: {} in all, at most {top} in one step, at {when}.", count(all))
            }
        }
    }

    /// Some charts side by side. `limit` is the policy's, as it is now.
    pub(crate) fn drawn(&self, charts: &[&Chart], is_large: bool, limit: Option<u32>) -> Markup {
        html! {
            div.charts.large[is_large] {
                @for chart in charts {
                    (self.one(chart, is_large, limit.filter(|_| chart.label == HELD.label).map(u64::from)))
                }
            }
        }
    }

    fn one(&self, chart: &Chart, is_large: bool, limit: Option<u64>) -> Markup {
        let most = self.points.iter().map(|point| chart.sum(point)).max().unwrap_or(0);
        // A limit far above all that was held would flatten it.
        let line = limit.filter(|limit| *limit <= most.max(1).saturating_mul(10));
        let top = most.max(line.unwrap_or(0)).max(1);
        let width = (self.points.len().max(1)) * STEP;
        let height = |n: u64| if n == 0 { 0 } else { (n * HEIGHT / top).max(2) };
        html! {
            figure {
                figcaption {
                    span { (chart.label) }
                    strong.bad[!chart.is_level && chart.parts.len() > 1 && most > 0] {
                        (self.figure(chart)) @if let Some(limit) = limit { span.mute { " of " (count(limit)) } }
                    }
                }
                div.scale aria-hidden="true" { span { (count(top)) } span { "0" } }
                svg viewBox={ "0 0 " (width) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                    aria-label=(self.in_words(chart)) {
                    // A small chart is sent again and again: what is nothing has no place in it.
                    @for (place, point) in self.points.iter().enumerate() {
                        @if is_large || chart.sum(point) > 0 { (self.bar(chart, place * STEP, point, &height)) }
                    }
                    @if let Some(line) = line { path.limit d={ "M0 " (HEIGHT - height(line)) "H" (width) } {} }
                }
                (self.axis())
            }
        }
    }

    fn bar(&self, chart: &Chart, x: usize, point: &HistoryPoint, height: &dyn Fn(u64) -> u64) -> Markup {
        let mut from = HEIGHT;
        let parts = chart.parts.iter().map(|(_, class, of)| {
            let tall = height(of(point)).min(from);
            from -= tall;
            (*class, from, tall)
        });
        let parts: Vec<_> = parts.filter(|(_, _, tall)| *tall > 0).collect();
        let is_under_way = self.is_under_way(point);
        html! {
            g class=[is_under_way.then_some("soon")] {
                title { (self.time_of(point)) " UTC: " (chart.words(point)) @if is_under_way { " so far" } }
                rect.hover x=(x) {}
                @for (class, y, tall) in parts { rect class=(class) x=(x + 1) y=(y) width=(STEP - 2) height=(tall) {} }
            }
        }
    }

    /// The times below a chart.
    fn axis(&self) -> Markup {
        let (from_us, to_us) = self.ends();
        let is_long = self.is_long();
        let is_now = self.now_us - to_us < self.step_us;
        html! {
            div.ends aria-hidden="true" {
                span { (time(from_us, is_long)) }
                @if !is_now { span { (time(to_us, is_long)) " UTC" } }
                @else { span { (time(from_us + (to_us - from_us) / 2, is_long)) } span { "now" } }
            }
        }
    }

    /// All numbers, latest first, in a fold; steps in which nothing was counted are left out, and that is said.
    pub(crate) fn table(&self) -> Markup {
        let something = |point: &&HistoryPoint| COLUMNS.iter().any(|(_, of)| of(point) > 0);
        let rows: Vec<&HistoryPoint> = self.points.iter().rev().filter(something).collect();
        html! {
            details #numbers {
                summary { "The numbers as a table, " (by_step(self.step_us)) }
                @if rows.is_empty() { p.mute { "Nothing was counted in this time." } } @else {
                    div.scroll role="group" aria-label="The numbers" tabindex="0" {
                        table.wide {
                            thead {
                                tr {
                                    th scope="col" { "From, UTC" }
                                    @for (name, _) in COLUMNS { th.n scope="col" { (name) } }
                                }
                            }
                            tbody {
                                @for point in &rows {
                                    tr {
                                        th.when scope="row" { (clock(at_us(point)).get(..16).unwrap_or_default())
                                            @if self.is_under_way(point) { " " span.mute { "so far" } } }
                                        @for (_, of) in COLUMNS {
                                            @let n = of(point);
                                            td.n { span.mute[n == 0] { (count(n)) } }
                                        }
                                    }
                                }
                            }
                        }
                    }
                    p.mute {
                        "Latest first; steps in which nothing was counted are left out. Waiting and held: the most at the end of any minute."
                        @if self.ends().0 < self.now_us - 2 * DAY_US {
                            " Of a namespace and more than two days ago: the sum of what was the most of each policy in an hour."
                        }
                    }
                }
            }
        }
    }
}

/// Whether nothing was counted at all.
pub(crate) fn is_quiet(answer: &v1::ListHistoryResponse) -> bool {
    answer.points.iter().all(|point| COLUMNS.iter().all(|(_, of)| of(point) == 0))
}

/// What is to be known of all charts.
pub(crate) fn legend(step_us: i64) -> Markup {
    html! {
        p.legend {
            "A bar is what was counted " (by_step(step_us)) ". It is written every 20 seconds, and the last bar is not whole. "
            "Where there is none, nothing was counted: nothing happened, or no process ran."
        }
    }
}

/// The choice of a time; `path` is the page's own, `place` the id of what it concerns.
pub(crate) fn ranges(path: &str, place: &str, chosen: Option<Range>) -> Markup {
    html! {
        nav.tabs aria-label="Time range" {
            @for range in RANGES {
                a href={ (path) "?span=" (range.key) "#" (place) } aria-current=[(Some(range) == chosen).then_some("true")] {
                    (range.key)
                }
            }
        }
    }
}

/// Where the history cannot be read.
pub(crate) fn unknown(problem: &Problem) -> Markup {
    html! { p.notice.bad { "What became of events cannot be shown: " (problem.title) " " (problem.text()) } }
}

#[cfg(test)]
mod tests {
    use tollgate_proto::convert::{duration_of_s, timestamp};

    use super::*;

    fn answer() -> v1::ListHistoryResponse {
        let point = |minute: i64, waiting_count, dead_count, expired_count| HistoryPoint {
            time: Some(timestamp(minute * 60_000_000)),
            waiting_count,
            dead_count,
            expired_count,
            ..HistoryPoint::default()
        };
        let points = vec![point(0, 5, 0, 0), point(1, 0, 0, 0), point(2, 1_200, 3, 1), point(3, 7, 0, 0)];
        v1::ListHistoryResponse { step: Some(duration_of_s(60)), points }
    }

    #[test]
    fn a_chart_says_in_words_what_it_shows() {
        let answer = answer();
        let history = History::new(&answer, 3 * 60_000_000 + 30_000_000);
        let drawn = history.drawn(&[&WAITING, &NOT_WELL, &STARTED], false, None).into_string();
        for part in [
            "Waiting, 00:00 to 00:03 UTC by the minute: 7 in the latest step, at most 1,200 waiting, at 00:02.",
            "expired, 00:00 to 00:03 UTC by the minute: 4 in all, at most 3 dead, 1 expired in one step, at 00:02.",
            "Started: first attempts, 00:00 to 00:03 UTC by the minute: none.",
            "<title>00:02 UTC: 3 dead, 1 expired</title>",
            "<title>00:03 UTC: 7 waiting so far</title>",
            "7 · at most 1,200",
        ] {
            assert!(drawn.contains(part), "{part}\n{drawn}");
        }
        let large = history.drawn(&[&WAITING], true, None).into_string();
        assert!(
            large.contains("<title>00:01 UTC: 0 waiting</title>") && !drawn.contains(": 0 waiting<"),
            "{large}"
        );
        // What is nothing has no bar, what is little has one.
        assert!(drawn.contains(r#"<rect class="calm" x="21" y="0" width="8" height="100">"#), "{drawn}");
        assert!(drawn.contains(r#"<rect class="calm" x="1" y="98" width="8" height="2">"#), "{drawn}");
        assert_eq!(drawn.matches(r#"class="calm""#).count(), 3, "{drawn}");
    }

    #[test]
    fn the_limit_is_drawn_where_it_flattens_nothing() {
        let held = HistoryPoint { held_count: 4, time: Some(timestamp(0)), ..HistoryPoint::default() };
        let answer = v1::ListHistoryResponse { step: Some(duration_of_s(60)), points: vec![held] };
        let drawn =
            |limit| History::new(&answer, 60_000_000).drawn(&[&HELD], true, Some(limit)).into_string();
        assert!(drawn(8).contains(r#"class="limit" d="M0 0H10""#), "{}", drawn(8));
        assert!(drawn(8).contains(r#"y="50""#) && drawn(8).contains("of 8"), "{}", drawn(8));
        let far = drawn(5_000);
        assert!(!far.contains("class=\"limit\"") && far.contains("of 5,000"), "{far}");
    }

    #[test]
    fn the_table_has_every_number_that_was_counted() {
        let answer = answer();
        let table = History::new(&answer, 4 * 60_000_000).table().into_string();
        assert_eq!(table.matches("<tr>").count(), 1 + 3, "{table}");
        let first = table.find("00:03").zip(table.find("00:00"));
        assert!(first.is_some_and(|(latest, earliest)| latest < earliest), "{table}");
        assert!(table.contains("1,200") && !table.contains("so far"), "{table}");
    }
}
