//! Decides how results look: rows for people while rounds go by, medians and bars at the end, JSON for programs.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::ops::Range;

use serde::Serialize;

use crate::figures::Figures;
use crate::run::Used;
use crate::scenario::{Bar, Scenario};

/// One round of one variant, or of the yardstick.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) who: String,
    pub(crate) round: u32,
    /// Of the yardstick's rate in the same round.
    pub(crate) ratio: Option<f64>,
    pub(crate) figures: Option<Figures>,
    pub(crate) used: Used,
    /// Promises that were not kept.
    pub(crate) broken: Vec<String>,
    pub(crate) notes: Vec<String>,
    /// How long it took to apply what the round needs.
    pub(crate) apply_ms: Option<f64>,
    pub(crate) applied_per_s: Option<f64>,
    /// CPU of service and database for one scan window.
    pub(crate) window_cpu_ms: Option<f64>,
    /// Rows of the launch index that were read for each run that they came to.
    pub(crate) rows_read_per_run: Option<f64>,
    /// What service and database use of a core, in percent, while there is nothing to do.
    pub(crate) idle_cpu: Option<f64>,
}

impl Row {
    /// The name under which the yardstick's rows go.
    pub(crate) const YARDSTICK: &str = "yardstick";

    pub(crate) fn new(
        who: &str,
        round: u32,
        figures: Option<Figures>,
        used: Used,
        broken: Vec<String>,
    ) -> Self {
        Self {
            who: who.to_owned(),
            round,
            ratio: None,
            figures,
            used,
            broken,
            notes: Vec::new(),
            apply_ms: None,
            applied_per_s: None,
            window_cpu_ms: None,
            rows_read_per_run: None,
            idle_cpu: None,
        }
    }

    /// A figure by name.
    fn figure(&self, name: &str) -> Option<f64> {
        let figures = self.figures.as_ref();
        let late = figures.and_then(|figures| figures.late_ms);
        let gap = figures.and_then(|figures| figures.gap_ms);
        match name {
            "events_per_s" => figures.map(|figures| figures.events_per_s),
            "ratio" => self.ratio,
            "late_p50_ms" => late.map(|q| q.p50),
            "late_p99_ms" => late.map(|q| q.p99),
            "late_p999_ms" => late.map(|q| q.p999),
            "late_max_ms" => late.map(|q| q.max),
            "gap_p50_ms" => gap.map(|q| q.p50),
            "gap_p99_ms" => gap.map(|q| q.p99),
            "in_flight_max" => figures.map(|figures| f64::from(figures.in_flight_max)),
            "duplicates" => figures.map(|figures| figures.duplicates as f64),
            "service_cpu_s" => self.used.service_cpu_s,
            "database_cpu_s" => self.used.database_cpu_s,
            "cpu_s" => self.used.cpu_s,
            "sink_cpu_s" => self.used.sink_cpu_s,
            "wal_bytes" => self.used.wal_bytes,
            "disk_bytes" => self.used.disk_bytes,
            "peak_mib" => self.used.peak_mib,
            "apply_ms" => self.apply_ms,
            "applied_per_s" => self.applied_per_s,
            "window_cpu_ms" => self.window_cpu_ms,
            "rows_read_per_run" => self.rows_read_per_run,
            "idle_cpu" => self.idle_cpu,
            _ => None,
        }
    }
}

/// A column of the table: its two heads, the figure, and the figure's decimals.
type Column = (&'static str, &'static str, &'static str, usize);

/// Of [`COLUMNS`]: those that scenarios with deliveries have, and those that the others have.
const DELIVERIES: Range<usize> = 0..18;
const WITHOUT: Range<usize> = 12..22;

const COLUMNS: [Column; 22] = [
    ("", "events/s", "events_per_s", 0),
    ("of", "yardst.", "ratio", 2),
    ("late ms", "p50", "late_p50_ms", 2),
    ("", "p99", "late_p99_ms", 2),
    ("", "p99.9", "late_p999_ms", 2),
    ("", "max", "late_max_ms", 2),
    ("answer", "next p50", "gap_p50_ms", 2),
    ("", "p99 ms", "gap_p99_ms", 2),
    ("most in", "flight", "in_flight_max", 0),
    ("", "twice", "duplicates", 0),
    ("CPU s /", "100k svc", "service_cpu_s", 2),
    ("", "database", "database_cpu_s", 2),
    ("", "svc + db", "cpu_s", 2),
    ("", "sink", "sink_cpu_s", 2),
    ("bytes/ev", "WAL", "wal_bytes", 0),
    ("", "disk", "disk_bytes", 0),
    ("peak", "MiB", "peak_mib", 1),
    ("apply", "ms", "apply_ms", 1),
    ("applied", "/s", "applied_per_s", 0),
    ("window", "CPU ms", "window_cpu_ms", 0),
    ("rows", "per run", "rows_read_per_run", 3),
    ("idle", "CPU %", "idle_cpu", 2),
];

/// A bar, and what was measured against it.
#[derive(Clone, Debug, Serialize)]
struct Judged {
    what: String,
    measured: f64,
    met: bool,
}

/// A scenario that was carried out.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(skip)]
    columns: Range<usize>,
    scenario: String,
    about: String,
    store: &'static str,
    /// Of the service.
    processes: u32,
    rows: Vec<Row>,
    bars: Vec<Judged>,
    #[serde(skip)]
    asked: Vec<Bar>,
}

impl Report {
    pub(crate) fn new(scenario: &Scenario, store: &'static str, processes: u32) -> Self {
        let delivers = scenario.variants.iter().any(|variant| variant.expected() > 0);
        Self {
            columns: if delivers { DELIVERIES } else { WITHOUT },
            scenario: scenario.name.clone(),
            about: scenario.about.clone(),
            store,
            processes,
            rows: Vec::new(),
            bars: Vec::new(),
            asked: scenario.bars.clone(),
        }
    }

    /// Takes a round in, and prints it.
    pub(crate) fn add(&mut self, rows: Vec<Row>) -> io::Result<()> {
        let from = self.rows.len();
        self.take(rows);
        let mut out = io::stdout().lock();
        for row in &self.rows[from..] {
            let name = format!("{} {}", row.who, row.round);
            writeln!(out, "{}", line(&name, &self.columns, |name| row.figure(name)))?;
            for text in row.notes.iter().chain(&row.broken) {
                writeln!(out, "    {text}")?;
            }
        }
        Ok(())
    }

    /// Takes a round in.
    pub(crate) fn take(&mut self, mut rows: Vec<Row>) {
        let rate = |row: &Row| row.figures.as_ref().map(|figures| figures.events_per_s);
        let yardstick = rows.iter().find(|row| row.who == Row::YARDSTICK).and_then(rate);
        for row in &mut rows {
            row.ratio = rate(row).zip(yardstick).map(|(rate, yardstick)| rate / yardstick);
        }
        self.rows.extend(rows);
        self.judge();
    }

    /// Promises that were not kept, with who did not.
    pub(crate) fn broken(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rows.iter().flat_map(|row| row.broken.iter().map(|text| (row.who.as_str(), text.as_str())))
    }

    /// Whether no promise was broken.
    pub(crate) fn is_clean(&self) -> bool {
        self.rows.iter().all(|row| row.broken.is_empty())
    }

    /// Who took part, in order.
    fn all(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !all.contains(&row.who.as_str()) {
                all.push(&row.who);
            }
        }
        all
    }

    /// Of a figure over all rounds.
    pub(crate) fn median(&self, who: &str, figure: &str) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| row.who == who);
        let mut values: Vec<f64> = rows.filter_map(|row| row.figure(figure)).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        Some(if values.len() % 2 == 1 { upper } else { (values[middle - 1] + upper) / 2.0 })
    }

    fn judge(&mut self) {
        let first = self.rows.first().map(|row| row.who.clone()).unwrap_or_default();
        let judged = self.asked.iter().filter_map(|bar| {
            let who = bar.variant.as_ref().unwrap_or(&first);
            // Not every store has every figure.
            let measured = self.median(who, &bar.figure)?;
            let base = match &bar.times {
                Some(other) => self.median(other, &bar.figure)?,
                None => 1.0,
            };
            let of = bar.times.as_ref().map(|other| format!(" x {other}")).unwrap_or_default();
            let limits = [(">=", bar.min), ("<=", bar.max)];
            let limits = limits.into_iter().filter_map(|(sign, limit)| Some((sign, limit?)));
            let text: Vec<String> = limits.map(|(sign, limit)| format!("{sign} {limit}{of}")).collect();
            let met = bar.min.is_none_or(|min| measured >= min * base)
                && bar.max.is_none_or(|max| measured <= max * base);
            Some(Judged { what: format!("{who}: {} {}", bar.figure, text.join(", ")), measured, met })
        });
        self.bars = judged.collect();
    }
}

/// One line of the table.
fn line(name: &str, columns: &Range<usize>, figure: impl Fn(&str) -> Option<f64>) -> String {
    let mut line = format!("{name:<24}");
    for (_, _, column, decimals) in &COLUMNS[columns.clone()] {
        match figure(column) {
            Some(value) => line.push_str(&format!(" {value:>8.decimals$}")),
            None => line.push_str(&format!(" {:>8}", "-")),
        }
    }
    line
}

fn heads(columns: &Range<usize>, out: &mut impl io::Write) -> io::Result<()> {
    let mut heads = [0, 1].map(|_| " ".repeat(24));
    for (upper, lower, _, _) in &COLUMNS[columns.clone()] {
        heads[0].push_str(&format!(" {upper:>8}"));
        heads[1].push_str(&format!(" {lower:>8}"));
    }
    heads.iter().try_for_each(|head| writeln!(out, "{}", head.trim_end()))
}

/// The head of a scenario's table.
pub(crate) fn print_head(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let processes = match report.processes {
        1 => String::new(),
        processes => format!(", {processes} processes"),
    };
    writeln!(out, "\n{} on {}{processes}: {}", report.scenario, report.store, report.about)?;
    heads(&report.columns, &mut out)
}

/// Medians and bars.
pub(crate) fn print_end(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    medians(report, &report.columns, &mut out)?;
    for Judged { what, measured, met } in &report.bars {
        writeln!(out, "  {} {what}: measured {measured:.2}", if *met { "met   " } else { "MISSED" })?;
    }
    Ok(())
}

fn medians(report: &Report, columns: &Range<usize>, out: &mut impl io::Write) -> io::Result<()> {
    for who in report.all() {
        writeln!(out, "{}", line(&format!("{who} median"), columns, |name| report.median(who, name)))?;
    }
    Ok(())
}

/// The medians of all scenarios.
pub(crate) fn print_medians(reports: &[Report]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "\nMedians")?;
    let all = 0..COLUMNS.len();
    heads(&all, &mut out)?;
    for report in reports {
        writeln!(out, "{} on {}", report.scenario, report.store)?;
        medians(report, &all, &mut out)?;
    }
    let broken: BTreeMap<&str, usize> = reports
        .iter()
        .map(|report| (report.scenario.as_str(), report.rows.iter().map(|row| row.broken.len()).sum()))
        .filter(|(_, broken)| *broken > 0)
        .collect();
    if !broken.is_empty() {
        writeln!(out, "Promises were broken in: {broken:?}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(who: &str, rate: f64) -> Row {
        let figures = Figures { events_per_s: rate, ..Figures::default() };
        Row::new(who, 1, Some(figures), Used::default(), Vec::new())
    }

    #[test]
    fn medians_and_ratios_are_of_the_same_round() {
        let asked = vec![
            Bar { variant: None, figure: "ratio".to_owned(), min: Some(0.5), max: None, times: None },
            Bar {
                variant: Some("b".to_owned()),
                figure: "events_per_s".to_owned(),
                min: Some(0.9),
                max: None,
                times: Some("a".to_owned()),
            },
        ];
        let mut report = Report {
            columns: DELIVERIES,
            scenario: String::new(),
            about: String::new(),
            store: "sqlite",
            processes: 1,
            rows: Vec::new(),
            bars: Vec::new(),
            asked,
        };
        for (a, yardstick) in [(10.0, 20.0), (30.0, 40.0), (5.0, 5.0)] {
            let rows = vec![row("a", a), row("b", a / 2.0), row(Row::YARDSTICK, yardstick)];
            assert!(report.add(rows).is_ok());
        }
        assert_eq!(report.median("a", "events_per_s"), Some(10.0));
        assert_eq!(report.median("a", "ratio"), Some(0.75));
        assert_eq!(report.bars.iter().map(|bar| bar.met).collect::<Vec<_>>(), [true, false]);
    }
}
