//! Decides how points look: a line each for people, all rounds of all points as JSON.

use std::io::{self, Write as _};

use serde::Serialize;

use super::point::Axis;
use crate::report::{Report, Row};

/// A point that was measured, or could not be.
#[derive(Debug, Serialize)]
pub(crate) struct PointResult {
    axis: Axis,
    size: u64,
    /// What kept it from being measured.
    failed: Option<String>,
    /// Why there is no such point.
    left_out: Option<&'static str>,
    /// To bring about what there is.
    pub(crate) fill_s: Option<f64>,
    /// From the start of a process until it owns every queue shard and has all runs that wait in its memory.
    pub(crate) start_s: Option<f64>,
    /// CPU of service and database while nothing is due.
    pub(crate) idle_cpu_ms_per_s: Option<f64>,
    /// All rounds, where it was measured.
    pub(crate) report: Option<Report>,
}

impl PointResult {
    pub(crate) fn new(axis: Axis, size: u64, report: Option<Report>) -> Self {
        Self {
            axis,
            size,
            failed: None,
            left_out: None,
            fill_s: None,
            start_s: None,
            idle_cpu_ms_per_s: None,
            report,
        }
    }

    pub(crate) fn failed(axis: Axis, size: u64, why: String) -> Self {
        Self { failed: Some(why), ..Self::new(axis, size, None) }
    }

    pub(crate) fn left_out(axis: Axis, size: u64, why: &'static str) -> Self {
        Self { left_out: Some(why), ..Self::new(axis, size, None) }
    }

    /// Takes a round in.
    pub(crate) fn take(&mut self, rows: Vec<Row>) {
        if let Some(report) = &mut self.report {
            report.take(rows);
        }
    }

    /// Whether it was measured, and every promise was kept.
    pub(crate) fn is_clean(&self) -> bool {
        self.failed.is_none() && self.report.as_ref().is_none_or(Report::is_clean)
    }

    fn figure(&self, who: &str, name: &str) -> Option<f64> {
        match name {
            "fill_s" => self.fill_s,
            "start_s" => self.start_s,
            "idle_cpu_ms_per_s" => self.idle_cpu_ms_per_s,
            _ => self.report.as_ref()?.median(who, name),
        }
    }
}

/// Its two heads, whose figure it is and which, and the figure's decimals.
type Column = (&'static str, &'static str, &'static str, &'static str, usize);

const COLUMNS: [Column; 13] = [
    ("fill", "s", "", "fill_s", 1),
    ("start", "s", "", "start_s", 2),
    ("idle CPU", "ms/s", "", "idle_cpu_ms_per_s", 0),
    ("", "events/s", "burst", "events_per_s", 0),
    ("of", "yardst.", "burst", "ratio", 2),
    ("wide", "events/s", "wide", "events_per_s", 0),
    ("of", "yardst.", "wide", "ratio", 2),
    ("late ms", "p50", "singles", "late_p50_ms", 2),
    ("", "p99", "singles", "late_p99_ms", 2),
    ("CPU s /", "100k", "burst", "cpu_s", 2),
    ("wide", "100k", "wide", "cpu_s", 2),
    ("peak", "MiB", "burst", "peak_mib", 1),
    ("wide", "MiB", "wide", "peak_mib", 1),
];

const NAME: usize = 20;

/// The head of the table.
pub(crate) fn print_head(postgres: bool) -> io::Result<()> {
    let mut heads = [0, 1].map(|_| " ".repeat(NAME));
    for (upper, lower, ..) in &COLUMNS {
        heads[0].push_str(&format!(" {upper:>8}"));
        heads[1].push_str(&format!(" {lower:>8}"));
    }
    let mut out = io::stdout().lock();
    writeln!(out, "growth on {}", if postgres { "postgres" } else { "sqlite" })?;
    heads.iter().try_for_each(|head| writeln!(out, "{}", head.trim_end()))
}

/// A point, and which promises were broken at it.
pub(crate) fn print(line: &PointResult) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{:<NAME$}", format!("{} {}", line.axis.name(), grouped(line.size)))?;
    if let Some(why) = &line.failed {
        return writeln!(out, " failed: {why}");
    }
    if let Some(why) = line.left_out {
        return writeln!(out, " left out: {why}");
    }
    for (_, _, who, figure, decimals) in &COLUMNS {
        match line.figure(who, figure) {
            Some(value) => write!(out, " {value:>8.decimals$}")?,
            None => write!(out, " {:>8}", "-")?,
        }
    }
    writeln!(out)?;
    let mut broken = line.report.iter().flat_map(Report::broken);
    broken.try_for_each(|(who, text)| writeln!(out, "    {who}: {text}"))
}

/// `1,000,000`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_sizes_can_be_read() {
        let texts = [1, 64, 1_000, 100_000, 5_000_000].map(grouped);
        assert_eq!(texts, ["1", "64", "1,000", "100,000", "5,000,000"]);
    }

    #[test]
    fn what_failed_is_not_clean_and_what_cannot_be_is() {
        assert!(!PointResult::failed(Axis::Waiting, 1, "no".to_owned()).is_clean());
        assert!(PointResult::left_out(Axis::Processes, 2, "no").is_clean());
    }
}
