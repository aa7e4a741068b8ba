//! The verdict file, and the table for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::audit::{Lateness, Verdict};
use crate::campaign::{Campaign, Recovery, Wish};
use crate::lag::Lags;

/// What the verdict is about.
pub(crate) struct Report<'a> {
    pub(crate) wish: &'a Wish,
    pub(crate) verdict: &'a Verdict,
    pub(crate) campaign: &'a Campaign,
    pub(crate) took_s: u64,
    /// Of the sources when it began.
    pub(crate) commit: &'a str,
    /// How late the campaign itself was.
    pub(crate) lags: &'a Lags,
    /// What the processes' logs told, by reason.
    pub(crate) told: &'a BTreeMap<&'static str, u64>,
}

impl Report<'_> {
    /// Whether every promise was kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.verdict.is_kept() && self.campaign.log.oddities.is_empty()
    }

    /// The verdict for programs.
    pub(crate) fn json(&self) -> Value {
        let (verdict, log) = (self.verdict, &self.campaign.log);
        let breaches: BTreeMap<&str, Value> = verdict
            .breaches
            .iter()
            .map(|(promise, breach)| (promise.name(), json!({"count": breach.count, "cases": breach.cases})))
            .collect();
        let recovery: BTreeMap<&str, Value> =
            log.recovery.iter().map(|(kind, one)| (kind.as_str(), recovery(one))).collect();
        let repeats = &verdict.repeats;
        json!({
            "verdict": self.word(),
            "commit": self.commit,
            "date": chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
            "store": self.store(),
            "processes": self.campaign.processes.len(),
            "lease_ms": u64::try_from(self.wish.lease.as_millis()).unwrap_or_default(),
            "seed": self.wish.seed,
            "seconds": self.took_s,
            "events_due": verdict.events_due,
            "deliveries": verdict.deliveries,
            "distinct": verdict.distinct,
            "ended_undelivered": verdict.ended_undelivered,
            "skipped": verdict.skipped,
            "lost": verdict.lost,
            "above_m_max": verdict.above_m_max,
            "fired_early": verdict.early,
            "leaked_tokens": verdict.leaked,
            "cancelled_in_doubt_freed_by_hand": log.freed_by_hand,
            "repeats": {
                "by_reason": repeats.by_reason,
                "not_allowed": repeats.not_allowed,
                "of_events_released_already": repeats.of_done,
            },
            "healthy_without_faults": lateness(verdict.calm),
            "healthy_beside": verdict.neighbours.iter().map(|(kind, late)| {
                (kind.clone(), lateness(*late))
            }).collect::<serde_json::Map<_, _>>(),
            "campaign_late": {
                "worst_ms": self.lags.worst_us() / 1_000,
                "seconds": self.lags.seconds().0,
                "seconds_late_by_a_deadline": self.lags.seconds().1,
                "overloaded": self.lags.is_overload(),
            },
            "told_by_logs": self.told,
            "left_out": log.left_out,
            "snapshots": log.dead_rows.iter().map(|(seconds, rows)| {
                json!({"seconds": seconds, "dead_lease_rows": rows})
            }).collect::<Vec<_>>(),
            "in_flight_max": verdict.in_flight_max.iter().map(|(policy, (most, limit))| {
                (policy.clone(), json!({"max": most, "limit": limit}))
            }).collect::<serde_json::Map<_, _>>(),
            "faults": log.injected,
            "points_not_passed": log.missed_points,
            "consumer": self.campaign.sink.journal().misbehaved,
            "recovery_ms": recovery,
            "breaches": breaches,
            "oddities": log.oddities,
        })
    }

    /// The verdict for people.
    pub(crate) fn table(&self) -> String {
        let (verdict, log) = (self.verdict, &self.campaign.log);
        let repeats = &verdict.repeats;
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "{name:<34} {value}");
        };
        line(
            "verdict",
            format!("{}, {}, seed {}, {} s", self.word(), self.store(), self.wish.seed, self.took_s),
        );
        line("events due", verdict.events_due.to_string());
        line("deliveries, distinct events", format!("{}, {}", verdict.deliveries, verdict.distinct));
        line(
            "ended undelivered, skipped",
            format!("{}, {} (recorded)", verdict.ended_undelivered, verdict.skipped),
        );
        line("lost", verdict.lost.to_string());
        line("above m", verdict.above_m_max.to_string());
        line("fired early", verdict.early.to_string());
        line("leaked tokens", verdict.leaked.to_string());
        line("cancelled in doubt, freed by hand", log.freed_by_hand.to_string());
        for (reason, count) in &repeats.by_reason {
            line("repeated", format!("{count:>7}  {reason}"));
        }
        line("repeated without leave", repeats.not_allowed.to_string());
        line("released, and delivered again", repeats.of_done.to_string());
        let ((seconds, late), worst_ms) = (self.lags.seconds(), self.lags.worst_us() / 1_000);
        line(
            "the campaign itself was late",
            format!("{worst_ms} ms at most; by a deadline or more in {late} of {seconds} s"),
        );
        for (reason, count) in self.told {
            line("told by the logs", format!("{count:>7}  {reason}"));
        }
        for (seconds, rows) in &log.dead_rows {
            line("snapshot held", format!("{seconds} s, {rows} dead rows of leases more"));
        }
        for what in &log.left_out {
            line("LEFT OUT", what.clone());
        }
        line("", String::new());
        line(
            "fault",
            "count  affected shards: median, max ms   anywhere: max ms   after its end: max ms   healthy beside it: \
             p99, max ms"
                .to_owned(),
        );
        line("(none)", format!("{:>68} {:>8}", verdict.calm.p99_ms, verdict.calm.max_ms));
        for (kind, count) in &log.injected {
            let one = log.recovery.get(kind).cloned().unwrap_or_default();
            let healthy = verdict.neighbours.get(kind).copied().unwrap_or_default();
            let shown = |value: Option<i64>| value.map_or("-".to_owned(), |ms| ms.to_string());
            line(
                kind,
                format!(
                    "{count:>5}  {:>8} {:>8} {:>16} {:>16} {:>10} {:>8}",
                    shown(median(&one.affected_ms)),
                    shown(one.affected_ms.iter().max().copied()),
                    shown(one.any_ms.iter().max().copied()),
                    shown(one.after_end_ms.iter().max().copied()),
                    healthy.p99_ms,
                    healthy.max_ms
                ),
            );
        }
        for (kind, count) in &self.campaign.sink.journal().misbehaved {
            line(kind, format!("{count:>5}"));
        }
        for (kind, count) in &log.missed_points {
            line(kind, format!("{count:>5}  not passed in time"));
        }
        for (promise, breach) in &verdict.breaches {
            line("BROKEN", format!("{}: {} times", promise.name(), breach.count));
            for case in breach.cases.iter().take(5) {
                line("", case.clone());
            }
        }
        for oddity in &log.oddities {
            line("BROKEN", oddity.clone());
        }
        if self.lags.is_overload() {
            line("THE MACHINE WAS OVERLOADED", "a run that is clean beside this proves little".to_owned());
        }
        text
    }

    fn word(&self) -> &'static str {
        match (self.is_kept(), self.lags.is_overload()) {
            (true, false) => "kept",
            (true, true) => "kept, on an overloaded machine",
            (false, _) => "broken",
        }
    }

    fn store(&self) -> &'static str {
        if self.wish.postgres { "postgres" } else { "sqlite" }
    }
}

fn lateness(late: Lateness) -> Value {
    json!({"events": late.events, "median_ms": late.median_ms, "p99_ms": late.p99_ms, "max_ms": late.max_ms})
}

fn recovery(one: &Recovery) -> Value {
    let both = |all: &[i64]| json!({"median": median(all), "max": all.iter().max()});
    json!({
        "affected": both(&one.affected_ms),
        "anywhere": both(&one.any_ms),
        "after_end": both(&one.after_end_ms),
    })
}

fn median(all: &[i64]) -> Option<i64> {
    let mut all = all.to_vec();
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}

/// The commit of the sources, where there is one; with a mark where they have been changed.
pub(crate) fn commit() -> String {
    let git = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    git.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
