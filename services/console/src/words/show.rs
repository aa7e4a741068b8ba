//! Decides how numbers, moments, spans and states look.

use chrono::{DateTime, SecondsFormat};
use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use prost_types::{Duration, Timestamp};
use tollgate_proto::v1::{EventState, Pause, ReasonCode, Run, RunKind, RunState, Schedule, SkipReason};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// A moment in microseconds since the epoch.
pub(crate) fn us(time: &Timestamp) -> i64 {
    time.seconds.saturating_mul(1_000_000).saturating_add(i64::from(time.nanos) / 1_000)
}

/// A span in milliseconds.
pub(crate) fn ms(span: &Duration) -> i64 {
    span.seconds.saturating_mul(1_000).saturating_add(i64::from(span.nanos) / 1_000_000)
}

/// The last part of a name, which is enough inside a namespace.
pub(crate) fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// With a comma after each thousand.
pub(crate) fn count(n: impl Into<u64>) -> String {
    let digits = n.into().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many events each run of a schedule has, as a form or the service says it.
pub(crate) fn events_of(schedule: &Schedule) -> u32 {
    match u32::try_from(schedule.items.len()) {
        Ok(0) | Err(_) => schedule.events.unwrap_or(1),
        Ok(items) => items,
    }
}

/// As [`events_of`], in words.
pub(crate) fn events_said(schedule: &Schedule) -> String {
    let events = match schedule.items_from {
        Some(_) => "An event for each item of a list".to_owned(),
        None => counted(schedule.events.unwrap_or(1), "event"),
    };
    match schedule.units.unwrap_or(1) {
        0 | 1 => events,
        units => format!("{events} of {} each", counted(units, "token")),
    }
}

/// `1 event`, `2 events`.
pub(crate) fn counted(n: impl Into<u64>, thing: &str) -> String {
    let n = n.into();
    format!("{} {thing}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A rate with one digit after the point, below 1 with two digits that count, without those that say nothing.
pub(crate) fn rate(per_second: f64) -> String {
    let places = match per_second.abs() {
        small if small > 0.0 && small < 1.0 => (1.0 - small.log10().floor()).min(6.0) as usize,
        _ => 1,
    };
    // The sum of nothing is -0.
    let text = format!("{:.places$}", per_second + 0.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A span in milliseconds, in its largest unit, with the next one while that says something.
pub(crate) fn span(ms: u64) -> String {
    let two = |unit_ms: u64, unit: &str, next_ms: u64, next: &str| {
        let (whole, rest) = (ms / unit_ms, ms % unit_ms / next_ms);
        if whole < 10 && rest > 0 { format!("{whole}{unit} {rest}{next}") } else { format!("{whole}{unit}") }
    };
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..10_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        10_000..MINUTE_MS => format!("{}s", ms / 1_000),
        MINUTE_MS..HOUR_MS => two(MINUTE_MS, "m", 1_000, "s"),
        HOUR_MS..DAY_MS => two(HOUR_MS, "h", MINUTE_MS, "m"),
        _ => two(DAY_MS, "d", HOUR_MS, "h"),
    }
}

/// A span in microseconds; nothing below zero.
pub(crate) fn span_us(us: i64) -> String {
    span(u64::try_from(us / 1_000).unwrap_or_default())
}

/// A span of a message; empty where absent.
pub(crate) fn duration(given: Option<&Duration>) -> String {
    given.map(|given| span(ms(given).unsigned_abs())).unwrap_or_default()
}

/// As a date and a time in UTC, to the second.
pub(crate) fn clock(us: i64) -> String {
    DateTime::from_timestamp_micros(us)
        .map(|at| at.format("%Y-%m-%d %H:%M:%S").to_string())
        .unwrap_or_default()
}

/// As [`clock`], to the millisecond.
pub(crate) fn fine(us: i64) -> String {
    DateTime::from_timestamp_micros(us)
        .map(|at| at.format("%Y-%m-%d %H:%M:%S%.3f").to_string())
        .unwrap_or_default()
}

/// RFC 3339 in UTC.
pub(crate) fn exact(us: i64) -> String {
    let at = DateTime::from_timestamp_micros(us);
    at.map(|at| at.to_rfc3339_opts(SecondsFormat::AutoSi, true)).unwrap_or_default()
}

/// Seen from `now_us`: "in 3m 20s", "2h ago".
pub(crate) fn seen(now_us: i64, us: i64) -> String {
    let ms = us.saturating_sub(now_us) / 1_000;
    // Whole seconds: tenths would change with every look.
    let whole = ms.unsigned_abs() / 1_000 * 1_000;
    let text = if whole < 10_000 { format!("{}s", whole / 1_000) } else { span(whole) };
    match ms {
        -999..=999 => "now".to_owned(),
        1_000.. => format!("in {text}"),
        _ => format!("{text} ago"),
    }
}

/// A moment seen from now, with the exact one behind it.
pub(crate) fn moment(now_us: i64, time: Option<&Timestamp>) -> Markup {
    match time.map(us) {
        Some(us) => html! { time datetime=(exact(us)) title={ (clock(us)) " UTC" } { (seen(now_us, us)) } },
        None => html! {},
    }
}

/// A moment as a date and time in UTC, and seen from now.
pub(crate) fn dated(now_us: i64, time: Option<&Timestamp>) -> Markup {
    match time.map(us) {
        Some(us) => html! {
            time.num datetime=(exact(us)) { (clock(us)) }
            " " span.mute { (seen(now_us, us)) }
        },
        None => html! {},
    }
}

/// A state in words, in a colour that says whether somebody should look.
pub(crate) fn tag(word: &str, class: &str) -> Markup {
    html! { span class={ "tag " (class) } { (word) } }
}

/// An enum's value in small words, without the enum's name.
fn word(full: &str, prefix: &str) -> String {
    full.strip_prefix(prefix).unwrap_or(full).to_ascii_lowercase().replace('_', " ")
}

/// A run's state.
pub(crate) fn run_state(run: &Run) -> Markup {
    let state = run.state();
    let class = match state {
        RunState::Running => "go",
        RunState::Finished => "ok",
        RunState::Cancelled | RunState::Skipped => "warn",
        RunState::Unreadable | RunState::FinishedWithFailures => "bad",
        _ => "mute",
    };
    tag(&word(state.as_str_name(), "RUN_STATE_"), class)
}

/// An event's state.
pub(crate) fn event_state(state: EventState) -> Markup {
    let class = match state {
        EventState::Acquired | EventState::Held => "go",
        EventState::Succeeded => "ok",
        EventState::Suspect | EventState::Retrying | EventState::Expired | EventState::Cancelled => "warn",
        EventState::Failed | EventState::Dead | EventState::Lost => "bad",
        _ => "mute",
    };
    tag(&word(state.as_str_name(), "EVENT_STATE_"), class)
}

/// Why a trigger made no run.
pub(crate) fn skip_reason(reason: SkipReason) -> String {
    match reason {
        SkipReason::Missed => "missed in an outage".to_owned(),
        SkipReason::Paused => "the schedule was paused".to_owned(),
        SkipReason::Overlap => "an earlier run was unfinished".to_owned(),
        SkipReason::NotListed => "its items could not be fetched".to_owned(),
        SkipReason::Unspecified => "not known".to_owned(),
    }
}

/// A reason's code in small words.
pub(crate) fn reason_code(code: ReasonCode) -> String {
    word(code.as_str_name(), "REASON_CODE_")
}

/// Active, or paused.
pub(crate) fn active(pause: Option<&Pause>) -> Markup {
    if pause.is_some() { tag("paused", "warn") } else { tag("active", "mute") }
}

/// An id's beginning and end; the whole stands in its page.
pub(crate) fn clipped(id: &str) -> String {
    let chars: Vec<char> = id.chars().collect();
    if chars.len() <= 20 {
        return id.to_owned();
    }
    let (start, end) = (&chars[..8], &chars[chars.len() - 8..]);
    format!("{}…{}", start.iter().collect::<String>(), end.iter().collect::<String>())
}

/// How late something was, or is.
pub(crate) fn lateness(launch_us: i64, start_us: i64) -> String {
    span_us(start_us.saturating_sub(launch_us))
}

/// What made a run.
pub(crate) fn made_by(kind: RunKind) -> &'static str {
    match kind {
        RunKind::Scheduled => "its schedule",
        RunKind::Manual => "hand",
        RunKind::Backfill => "backfill",
        RunKind::Submitted => "submitted",
        RunKind::Followed => "the run before",
        RunKind::Unspecified => "",
    }
}

/// What is encoded: all but what a path segment and a query value may hold as it is.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Percent-encodes what may not stand in a path segment or a query value.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// A value of a filter; empty where it is empty.
pub(crate) fn quoted(value: &str) -> String {
    if value.is_empty() {
        return String::new();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The beginning of a text.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(count(0_u32), "0");
        assert_eq!(count(999_u32), "999");
        assert_eq!(count(1_000_u32), "1,000");
        assert_eq!(count(10_000_000_u32), "10,000,000");
        assert_eq!(counted(1_u32, "event"), "1 event");
        assert_eq!(counted(2_000_u32, "event"), "2,000 events");
        assert_eq!(rate(std::iter::empty::<f64>().sum()), "0");
        for (per_second, text) in [
            (0.0, "0"),
            (10.0, "10"),
            (12.34, "12.3"),
            (0.5, "0.5"),
            (0.04, "0.04"),
            (0.0125, "0.013"),
            (1e-9, "0"),
        ] {
            assert_eq!(rate(per_second), text);
        }
    }

    #[test]
    fn spans_have_two_units_at_most() {
        for (ms, text) in [
            (250, "250ms"),
            (1_500, "1.5s"),
            (59_999, "59s"),
            (200_000, "3m 20s"),
            (180_000, "3m"),
            (3_700_000, "1h 1m"),
            (50_000_000, "13h"),
            (100_000_000, "1d 3h"),
        ] {
            assert_eq!(span(ms), text);
        }
        assert_eq!(seen(0, 200_000_000), "in 3m 20s");
        assert_eq!(seen(5_400_000, 0), "5s ago");
        assert_eq!(seen(0, 0), "now");
        assert_eq!(clock(0), "1970-01-01 00:00:00");
    }

    #[test]
    fn long_ids_are_clipped() {
        assert_eq!(clipped("0a-0123456789abcdef0123456789abcdef-17-x"), "0a-01234…def-17-x");
    }

    #[test]
    fn text_in_links_is_encoded() {
        assert_eq!(encode("a/b c&<é"), "a%2Fb%20c%26%3C%C3%A9");
    }
}
