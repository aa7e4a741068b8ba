//! Decides how moments and spans are shown and read: "in 3m", "2h5m ago", RFC 3339 in UTC.

use anyhow::anyhow;
use chrono::{DateTime, SecondsFormat, Utc};
use prost_types::{Duration, Timestamp};
use tollgate_proto::convert::timestamp;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// A moment in microseconds since the epoch.
pub(super) fn us(time: &Timestamp) -> i64 {
    time.seconds.saturating_mul(1_000_000).saturating_add(i64::from(time.nanos) / 1_000)
}

/// Seen from `now_us`, as in "in 3m20s"; empty for an absent moment.
pub(crate) fn relative(now_us: i64, time: Option<&Timestamp>) -> String {
    let Some(time) = time else { return String::new() };
    let ms = us(time).saturating_sub(now_us) / 1_000;
    match ms {
        -999..=999 => "now".to_owned(),
        1_000.. => format!("in {}", span(ms.unsigned_abs())),
        _ => format!("{} ago", span(ms.unsigned_abs())),
    }
}

/// RFC 3339 in UTC; empty for an absent moment.
pub(crate) fn exact(time: Option<&Timestamp>) -> String {
    let moment = time.and_then(|time| DateTime::from_timestamp_micros(us(time)));
    moment.map(|moment| moment.to_rfc3339_opts(SecondsFormat::AutoSi, true)).unwrap_or_default()
}

/// As in "2026-03-29T01:00:00Z (in 3m)"; empty for an absent moment.
pub(crate) fn both(now_us: i64, time: Option<&Timestamp>) -> String {
    match time {
        Some(_) => format!("{} ({})", exact(time), relative(now_us, time)),
        None => String::new(),
    }
}

/// A span in milliseconds, in its largest unit, with the next one while that says something.
pub(crate) fn span(ms: u64) -> String {
    let two = |unit_ms: u64, unit: &str, next_ms: u64, next: &str| {
        let (whole, rest) = (ms / unit_ms, ms % unit_ms / next_ms);
        if whole < 10 && rest > 0 { format!("{whole}{unit}{rest}{next}") } else { format!("{whole}{unit}") }
    };
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..MINUTE_MS => format!("{}s", ms / 1_000),
        MINUTE_MS..HOUR_MS => two(MINUTE_MS, "m", 1_000, "s"),
        HOUR_MS..DAY_MS => two(HOUR_MS, "h", MINUTE_MS, "m"),
        _ => two(DAY_MS, "d", HOUR_MS, "h"),
    }
}

/// A span of a message; empty where absent.
pub(crate) fn duration(span_: Option<&Duration>) -> String {
    let ms = |span: &Duration| {
        let ms = span.seconds.saturating_mul(1_000).saturating_add(i64::from(span.nanos) / 1_000_000);
        if ms < 0 { format!("-{}", self::span(ms.unsigned_abs())) } else { self::span(ms.unsigned_abs()) }
    };
    span_.map(ms).unwrap_or_default()
}

/// Reads a moment in RFC 3339.
///
/// # Errors
/// What is allowed.
pub(crate) fn moment(text: &str) -> anyhow::Result<Timestamp> {
    let moment = DateTime::parse_from_rfc3339(text.trim()).map_err(|_| {
        anyhow!("expected a moment such as 2026-03-29T02:30:00Z or 2026-03-29T02:30:00+02:00")
    })?;
    Ok(timestamp(moment.with_timezone(&Utc).timestamp_micros()))
}

/// Reads a moment in RFC 3339, or a span from now on such as `15m`.
///
/// # Errors
/// What is allowed.
pub(crate) fn moment_or_span(now_us: i64, text: &str) -> anyhow::Result<Timestamp> {
    match humantime::parse_duration(text) {
        Ok(span) => {
            let us = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
            Ok(timestamp(now_us.saturating_add(us)))
        }
        Err(_) => moment(text).map_err(|error| anyhow!("{error}, or a span from now on such as 15m")),
    }
}

/// Reads a span such as `15m`.
///
/// # Errors
/// What is allowed.
pub(crate) fn parse_span(text: &str) -> anyhow::Result<Duration> {
    let span =
        humantime::parse_duration(text).map_err(|_| anyhow!("expected a duration such as 90s or 15m"))?;
    Duration::try_from(span).map_err(|_| anyhow!("expected a shorter duration"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn moments_are_seen_from_now() {
        let now_us = 1_774_746_000_000_000;
        let seen = |ms: i64| relative(now_us, Some(&timestamp(now_us + ms * 1_000)));
        assert_eq!(seen(0), "now");
        assert_eq!(seen(200_000), "in 3m20s");
        assert_eq!(seen(180_000), "in 3m");
        assert_eq!(seen(45_000), "in 45s");
        assert_eq!(seen(-7_500_000), "2h5m ago");
        assert_eq!(seen(-40_000_000), "11h ago");
        assert_eq!(seen(-270_000_000), "3d3h ago");
        assert_eq!(relative(now_us, None), "");
        assert_eq!(both(now_us, Some(&timestamp(now_us + 60_000_000))), "2026-03-29T01:01:00Z (in 1m)");
    }

    #[test]
    fn moments_are_read() {
        let now_us = 1_774_746_000_000_000;
        assert_eq!(moment("2026-03-29T03:00:00+02:00").unwrap(), timestamp(now_us));
        assert_eq!(moment_or_span(now_us, "15m").unwrap(), timestamp(now_us + 900_000_000));
        assert_eq!(moment_or_span(0, "2026-03-29T01:00:00Z").unwrap(), timestamp(now_us));
        let error = moment_or_span(0, "tomorrow").unwrap_err().to_string();
        assert!(error.contains("2026-03-29T02:30:00Z") && error.contains("15m"), "{error}");
        assert_eq!(duration(Some(&parse_span("90s").unwrap())), "1m30s");
    }
}
