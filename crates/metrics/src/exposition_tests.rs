#![expect(clippy::unwrap_used, reason = "tests")]

use tollgate_clock::Clock;
use tollgate_core::handle::change::{Changes, HistoryRow, Outcome};
use tollgate_core::model::{RunId, SkipReason};
use tollgate_store::{CommitError, StoreError};

use super::*;
use crate::{ReleaseAnswer, Role};

fn scrape(metrics: &Metrics) -> Scrape {
    let policy = |policy: &str, limit| PolicySample {
        namespace: "default".to_owned(),
        policy: policy.to_owned(),
        in_flight: 3,
        limit,
        waiting: 7,
        oldest_wait_us: 1_500_000,
        ..PolicySample::default()
    };
    Scrape {
        metrics: metrics.clone(),
        version: "1.2.3\"\\".to_owned(),
        now_us: 10_000_000,
        ready: true,
        handler: Some(HandlerSample {
            shards_owned: 64,
            policies: vec![policy("gentle", Some(5)), policy("rated", None)],
            ..HandlerSample::default()
        }),
        policies_left_out: 4,
        emitter: Some(EmitterSample {
            emitted_until_us: Some(12_000_000),
            missed: 2,
            failures: 1,
            ..EmitterSample::default()
        }),
        process: Process::read(),
    }
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|other| other == line), "no line {line:?} in\n{text}");
}

#[test]
fn what_was_noted_is_told() {
    let (metrics, clock) = (Metrics::default(), Clock::manual(0));
    let row = |outcome, count| HistoryRow {
        run: RunId::derive(Default::default(), 0),
        index: 0,
        count,
        outcome,
        attempt: 1,
        acquired_us: None,
        delivered_us: None,
        finished_us: 0,
        message: String::new(),
    };
    let history = vec![row(Outcome::Succeeded, 1), row(Outcome::Succeeded, 1), row(Outcome::Expired, 40)];
    let changes = Changes { history, ..Changes::default() };
    let watch = metrics.commit(&clock, &changes);
    clock.advance_us(2_000);
    watch.ended(&Ok(()));
    // Nobody knows whether these have ended.
    metrics.commit(&clock, &changes).ended(&Err(CommitError::Unknown(StoreError::Internal(String::new()))));
    metrics.release(&clock).ended(ReleaseAnswer::Late);
    metrics.store_failed(Role::Emitter);
    metrics.skipped(SkipReason::Missed, 3);
    metrics.shard_taken("", "me");
    metrics.shard_taken("other", "me");
    metrics.reclaimed(9);
    let text = openmetrics(scrape(&metrics)).unwrap();
    for line in [
        "tollgate_events_ended_total{outcome=\"succeeded\"} 2",
        "tollgate_events_ended_total{outcome=\"expired\"} 40",
        "tollgate_events_ended_total{outcome=\"lost\"} 0",
        "tollgate_commit_failures_total{kind=\"unknown\"} 1",
        "tollgate_commit_duration_seconds_count 2",
        "tollgate_commit_duration_seconds_sum 0.002",
        "tollgate_commit_duration_seconds_bucket{le=\"0.0025\"} 2",
        "tollgate_releases_total{answer=\"late\"} 1",
        "tollgate_store_failures_total{role=\"emitter\"} 2",
        "tollgate_triggers_skipped_total{reason=\"missed\"} 5",
        "tollgate_shards_taken_total{from=\"nobody\"} 1",
        "tollgate_shards_taken_total{from=\"dead\"} 1",
        "tollgate_tokens_reclaimed_total 9",
        "tollgate_emitter_lag_seconds -2.0",
        "tollgate_policy_limit{namespace=\"default\",policy=\"gentle\"} 5.0",
        "tollgate_policy_oldest_wait_seconds{namespace=\"default\",policy=\"rated\"} 1.5",
        "tollgate_policies_left_out 4.0",
        "tollgate_build_info{version=\"1.2.3\\\"\\\\\"} 1",
    ] {
        has(&text, line);
    }
    assert!(!text.contains("tollgate_policy_limit{namespace=\"default\",policy=\"rated\"}"));
    assert!(text.ends_with("\n# EOF\n"));
}

#[test]
fn the_older_text_names_counters_as_their_samples() {
    let text = classic(&openmetrics(scrape(&Metrics::default())).unwrap());
    has(&text, "# TYPE tollgate_deliveries_total counter");
    has(&text, "tollgate_deliveries_total{target=\"sqs\",outcome=\"unclear\"} 0");
    has(&text, "# TYPE tollgate_lateness_seconds histogram");
    has(&text, "tollgate_lateness_seconds_bucket{le=\"+Inf\",throttled=\"true\"} 0");
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"));
    let mut family = String::new();
    for line in text.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(rest) => rest.split(' ').next().unwrap().clone_into(&mut family),
            None if line.starts_with('#') => {}
            None => assert!(line.starts_with(&family), "{line} is not of {family}"),
        }
    }
}

#[test]
fn a_process_without_a_role_says_nothing_of_it() {
    let text = openmetrics(Scrape { handler: None, emitter: None, ..scrape(&Metrics::default()) }).unwrap();
    for absent in ["tollgate_policy_", "tollgate_shards_owned", "tollgate_emitter_lag", "tollgate_runs_"] {
        assert!(!text.contains(absent), "{absent}");
    }
    has(&text, "tollgate_ready 1.0");
}
