//! What a scrape shows.

#![expect(clippy::unwrap_used, reason = "tests")]

use tollgate_clock::Clock;
use tollgate_core::handle::change::{Changes, HistoryRow, Outcome};
use tollgate_core::model::*;
use tollgate_store::{CommitError, StoreError};

use uuid::Uuid;

use super::*;
use crate::{AlertMessage, Bound, ReleaseAnswer, Role};

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
            troubles: [(Kind::TargetRefuses, 2)].into(),
            targets: vec![TargetSample {
                namespace: "default".to_owned(),
                target: "http://shop:8080".to_owned(),
                refused_per_s: 0.5,
                ..TargetSample::default()
            }],
            policies: vec![policy("gentle", Some(5)), policy("rated", None)],
            ..HandlerSample::default()
        }),
        policies_left_out: 4,
        targets_left_out: 5,
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
    let mut owner = metrics.owner(&clock);
    let watch = owner.commit(&changes);
    clock.advance_us(2_000);
    watch.ended(&Ok(()));
    // Nobody knows whether these have ended.
    owner.commit(&changes).ended(&Err(CommitError::Unknown(StoreError::Internal(String::new()))));
    metrics.release(&clock).ended(ReleaseAnswer::Late);
    metrics.store_failed(Role::Emitter);
    metrics.skipped(SkipReason::Missed, 3);
    metrics.shard_taken("", "me");
    metrics.shard_taken("other", "me");
    metrics.reclaimed(9);
    metrics.refused(Bound::Reflection);
    metrics.alert_messages(AlertMessage::Failed, 3);
    metrics.certificate_ends(1_800_000_000);
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
        "tollgate_refused_total{bound=\"reflection\"} 1",
        "tollgate_refused_total{bound=\"quota\"} 0",
        "tollgate_alert_messages_total{result=\"failed\"} 3",
        "tollgate_alert_messages_total{result=\"dropped\"} 0",
        "tollgate_certificate_end_seconds 1800000000.0",
        "tollgate_certificate_stale 0.0",
        "tollgate_emitter_lag_seconds -2.0",
        "tollgate_policy_limit{namespace=\"default\",policy=\"gentle\"} 5.0",
        "tollgate_policy_oldest_wait_seconds{namespace=\"default\",policy=\"rated\"} 1.5",
        "tollgate_policies_left_out 4.0",
        "tollgate_targets_left_out 5.0",
        "tollgate_target_refused_per_second{namespace=\"default\",target=\"http://shop:8080\"} 0.5",
        "tollgate_target_waiting{namespace=\"default\",target=\"http://shop:8080\"} 0.0",
        "tollgate_troubles{kind=\"target_refuses\"} 2.0",
        "tollgate_troubles{kind=\"shards_without_owner\"} 0.0",
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

fn delivery(policy: Option<Uuid>, explicit_release: bool) -> Delivery {
    let keyring = EventKeyring::new(&[7; 32]);
    let run = RunId::derive(Uuid::nil(), 0);
    let http = HttpTarget::plain(String::new(), 1);
    Delivery {
        event_id: keyring.id(EventRef { shard: 0, run, index: 0 }),
        attempt: 1,
        index: 0,
        events: 9,
        launch_us: 0,
        checks: 0,
        cursor: None,
        predecessor: None,
        explicit_release,
        spec: std::sync::Arc::new(RunSpec {
            schedule_uid: Uuid::nil(),
            generation: 1,
            namespace: "default".to_owned(),
            schedule_id: "s".to_owned(),
            policy_uid: policy,
            policy_id: policy.map(|policy| policy.to_string()),
            key: None,
            units: 1,
            target: Target::Http { http, release: ReleaseMode::TargetDefault },
            payload: Payload::default(),
            retry: RetryPolicy::default(),
            overlap: OverlapRule::Allow,
            delay_after_finish_s: None,
            finish_by_s: None,
            spread_s: None,
            start_within_s: None,
            check_again: CheckAgain::default(),
            on_finish: None,
        }),
        item: None,
    }
}

/// An owner under a clock that is moved by hand.
struct World {
    metrics: Metrics,
    clock: Clock,
    owner: crate::OwnerWatch,
}

impl World {
    fn new() -> Self {
        let (metrics, clock) = (Metrics::default(), Clock::manual(0));
        let owner = metrics.owner(&clock);
        Self { metrics, clock, owner }
    }

    /// A commit of two milliseconds that allows deliveries of these runs.
    async fn commit(&mut self, deliveries: &[(RunId, &Delivery)]) {
        let watch = self.owner.commit(&Changes::default());
        self.clock.advance_us(2_000);
        watch.ended(&Ok(()));
        for (run, delivery) in deliveries {
            self.owner.delivery(*run, delivery).over(async { Sent::Accepted }).await;
        }
    }

    /// How many tokens have been handed on, and how long that took in all, in milliseconds.
    fn handed_on(&self) -> (u64, f64) {
        let (buckets, sum_s) = self.metrics.instruments().answer_to_fire.read();
        (buckets.iter().map(|(_, count)| count).sum(), sum_s * 1_000.0)
    }
}

#[tokio::test]
async fn a_token_is_timed_from_the_input_that_frees_it_to_the_delivery_that_takes_it() {
    let run = |number| RunId::derive(Uuid::from_u128(number), 0);
    let [a, b] = [1, 2].map(|policy| Some(Uuid::from_u128(policy)));
    let (explicit, answered, free) = (delivery(a, true), delivery(b, false), delivery(None, false));
    let mut world = World::new();
    // First deliveries take tokens that nobody has freed.
    world.commit(&[(run(1), &explicit), (run(2), &answered), (run(3), &free)]).await;
    assert_eq!(world.handed_on(), (0, 0.0));
    // Accepted: the first is held, the second is free, and the third has no token.
    for number in 1..=3 {
        world.owner.answered(run(number), &Sent::Accepted);
    }
    world.clock.advance_us(3_000);
    world.commit(&[(run(1), &explicit), (run(2), &answered), (run(3), &free)]).await;
    assert_eq!(world.handed_on(), (1, 5.0));
    // A release that comes while a commit is under way waits for the next one; the policy's other run takes it.
    let watch = world.owner.commit(&Changes::default());
    world.owner.released(run(1));
    world.clock.advance_us(10_000);
    watch.ended(&Ok(()));
    assert_eq!(world.handed_on(), (1, 5.0));
    world.commit(&[(run(4), &explicit)]).await;
    assert_eq!(world.handed_on(), (2, 17.0));
    // Nobody waited for this one: it is not what the delivery after it took.
    world.owner.released(run(1));
    world.commit(&[]).await;
    world.clock.advance_us(60_000_000);
    world.commit(&[(run(1), &explicit)]).await;
    assert_eq!(world.handed_on(), (2, 17.0));
    // Refused: free. Unclear: not.
    let refused = Sent::Refused { message: String::new(), retry_after_ms: None, permanent: false };
    let unclear = Sent::Unclear { message: String::new(), retry_after_ms: None };
    world.owner.answered(run(1), &refused);
    world.owner.answered(run(2), &unclear);
    world.commit(&[(run(1), &explicit), (run(2), &answered)]).await;
    assert_eq!(world.handed_on(), (3, 19.0));
    let text = openmetrics(scrape(&world.metrics)).unwrap();
    has(&text, "tollgate_answer_to_fire_seconds_count 3");
}
