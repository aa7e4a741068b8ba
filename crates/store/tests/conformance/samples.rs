//! Things to store.

use std::collections::BTreeMap;

use serde_json::json;
use tollgate_core::handle::change::{Changes, HistoryRow, Outcome, ShardSchedule, TokenRow, TokenState};
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::release::{Release, ReleaseOutcome};
use tollgate_core::model::{
    CatchUp, CheckAgain, HttpTarget, Limits, OverlapRule, PastPause, Pause, Payload, Policy, Reclaim,
    ReleaseMode, RetryPolicy, Run, RunId, RunKind, RunState, Schedule, SkipReason, Skipped, Target, Timing,
    Trigger, TtlFrom,
};
use tollgate_core::plan::Child;
use tollgate_store::Store;
use tollgate_store::handle::Lease;
use tollgate_store::plan::{Audit, PlanWrite};
use uuid::Uuid;

/// Noon of 2026-11-21.
pub(crate) const NOON_US: i64 = 1_795_262_400_000_000;
pub(crate) const SECOND_US: i64 = 1_000_000;

pub(crate) fn schedule(id: &str) -> Schedule {
    let trigger = Trigger::Cron { expression: "30 2 * * *".to_owned() };
    Schedule {
        uid: Uuid::new_v4(),
        namespace: "default".to_owned(),
        id: id.to_owned(),
        description: "Übung \"eins\"\n".to_owned(),
        timing: Timing {
            triggers: vec![trigger],
            time_zone: "Europe/Berlin".to_owned(),
            exclude: vec!["2026-12-24..2027-01-01".parse().unwrap()],
            ..Timing::default()
        },
        events: 1000,
        target: Target::Http {
            http: HttpTarget::plain("http://consumer.example/run".to_owned(), 30_000),
            release: ReleaseMode::Explicit,
        },
        payload: Payload::of(r#"{"a": [1, "é"]}"#),
        policy: None,
        policy_uid: None,
        shard: None,
        key: Some("acme".to_owned()),
        key_label: Some("tenant".to_owned()),
        units: 2,
        priority: 5,
        retry: RetryPolicy::default(),
        catch_up: CatchUp::default(),
        overlap: OverlapRule::default(),
        delay_after_finish_s: Some(75),
        finish_by_s: None,
        spread_s: Some(60),
        start_within_s: Some(90),
        start_within_percent: Some(3),
        check_again: CheckAgain::default(),
        on_finish: None,
        when_done: Default::default(),
        pause: None,
        past_pauses: vec![PastPause { since_us: NOON_US - 2, until_us: NOON_US - 1 }],
        labels: BTreeMap::new(),
        former_homes: vec![7],
        generation: 1,
        created_us: NOON_US,
        updated_us: NOON_US,
    }
}

pub(crate) fn policy(id: &str) -> Policy {
    Policy {
        uid: Uuid::new_v4(),
        namespace: "default".to_owned(),
        id: id.to_owned(),
        description: String::new(),
        limits: Limits { max_in_flight: Some(64), rate_per_s: Some(0.1), burst: None },
        keys: Default::default(),
        adopts: false,
        parent: None,
        reclaim: Reclaim::AfterTtl,
        token_ttl_ms: Policy::TOKEN_TTL_MS,
        suspect_ms: Policy::SUSPECT_MS,
        ttl_from: TtlFrom::TargetDefault,
        unstarted_ttl_ms: Policy::UNSTARTED_TTL_MS,
        pause: None,
        labels: BTreeMap::new(),
        shard: 3,
        generation: 1,
        created_us: NOON_US,
        updated_us: NOON_US,
    }
}

pub(crate) fn pause(reason: &str) -> Pause {
    Pause { reason: reason.to_owned(), actor: "ada".to_owned(), since_us: NOON_US }
}

pub(crate) fn audit(resource: &str) -> Audit {
    Audit {
        id: Uuid::now_v7(),
        at_us: NOON_US,
        actor: "ada".to_owned(),
        namespace: "default".to_owned(),
        resource: resource.to_owned(),
        action: "create".to_owned(),
        difference: json!({"events": {"old": null, "new": 1000}}),
    }
}

pub(crate) fn child(launch_expression: &str, slot: i32) -> Child {
    Child {
        zone: "Europe/Berlin".to_owned(),
        launch_expression: launch_expression.to_owned(),
        slot,
        rule: "wildcard days=1,2".to_owned(),
    }
}

pub(crate) fn put(schedule: &Schedule, expected_generation: Option<i64>, children: Vec<Child>) -> PlanWrite {
    PlanWrite::PutSchedule {
        schedule: Box::new(schedule.clone()),
        expected_generation,
        lived_in: None,
        children,
        shard: 5,
        audit: audit(&format!("namespaces/default/schedules/{}", schedule.id)),
    }
}

pub(crate) fn delete(schedule: &Schedule) -> PlanWrite {
    PlanWrite::DeleteSchedule {
        uid: schedule.uid,
        name: schedule.id.clone(),
        expected_generation: schedule.generation,
        audit: audit(&format!("namespaces/default/schedules/{}", schedule.id)),
    }
}

pub(crate) fn put_policy(policy: &Policy, expected_generation: Option<i64>) -> PlanWrite {
    PlanWrite::PutPolicy {
        policy: Box::new(policy.clone()),
        expected_generation,
        audit: audit(&format!("namespaces/default/policies/{}", policy.id)),
    }
}

pub(crate) fn delete_policy(policy: &Policy) -> PlanWrite {
    PlanWrite::DeletePolicy {
        uid: policy.uid,
        name: policy.id.clone(),
        expected_generation: policy.generation,
        audit: audit(&format!("namespaces/default/policies/{}", policy.id)),
    }
}

pub(crate) fn run(schedule: &Schedule, shard: u16, launch_us: i64) -> Run {
    Run {
        shard,
        id: RunId::derive(schedule.uid, launch_us),
        schedule_uid: schedule.uid,
        generation: schedule.generation,
        namespace: schedule.namespace.clone(),
        schedule_id: schedule.id.clone(),
        policy_uid: schedule.policy_uid,
        launch_us,
        events: schedule.events,
        priority: schedule.priority,
        kind: RunKind::Scheduled,
        state: RunState::Emitted,
        emitted_us: NOON_US,
        ..Run::default()
    }
}

pub(crate) fn waiting(schedule: &Schedule, shard: u16, launch_us: i64) -> Run {
    Run { state: RunState::Waiting, ..run(schedule, shard, launch_us) }
}

pub(crate) fn finished(schedule: &Schedule, shard: u16, launch_us: i64) -> Run {
    Run {
        state: RunState::Finished,
        finished_us: Some(launch_us + SECOND_US),
        ..run(schedule, shard, launch_us)
    }
}

pub(crate) fn token(run: RunId, index: u32) -> TokenRow {
    TokenRow {
        run,
        index,
        state: TokenState::Acquired,
        attempt: 1,
        failures: 0,
        checks: 0,
        due_us: NOON_US,
        acquired_us: NOON_US + 1,
        delivered_us: None,
        heartbeat_ttl_ms: None,
        message: String::new(),
    }
}

pub(crate) fn ended(run: RunId, index: u32, outcome: Outcome) -> HistoryRow {
    HistoryRow {
        run,
        index,
        count: 1,
        outcome,
        attempt: 2,
        acquired_us: Some(NOON_US),
        delivered_us: Some(NOON_US + 5),
        finished_us: NOON_US + SECOND_US,
        message: "done".to_owned(),
    }
}

pub(crate) fn shard_schedule(schedule: &Schedule) -> ShardSchedule {
    ShardSchedule {
        uid: schedule.uid,
        generation: schedule.generation,
        changed_us: NOON_US,
        until_us: NOON_US + SECOND_US,
        launches_us: vec![NOON_US + 3],
        events: schedule.events,
        priority: schedule.priority,
        pause: Some(pause("deploy")),
        deleted: false,
        cursor: Some("page 7".to_owned()),
        cursor_us: NOON_US - 1,
        earlier: Vec::new(),
        home: Some(4),
        rest_until_us: 5,
        chains: vec![RunId::derive(schedule.uid, NOON_US)],
    }
}

pub(crate) fn skipped(schedule: &Schedule, launch_us: i64, reason: SkipReason) -> Skipped {
    Skipped { schedule_uid: schedule.uid, launch_us, reason, recorded_us: launch_us + 1 }
}

pub(crate) fn message() -> Message {
    Message { id: Uuid::now_v7(), control: Control::PauseShard { pause: Some(pause("m")) } }
}

/// Takes a shard over.
pub(crate) async fn take(store: &dyn Store, shard: u16) -> Lease {
    let leases = store.leases().await.unwrap();
    store.take_shard(&leases[usize::from(shard)], "me").await.unwrap().expect("nobody else takes shards")
}

/// Takes a shard over and commits changes to it.
pub(crate) async fn commit(store: &dyn Store, shard: u16, changes: Changes) -> Lease {
    let lease = take(store, shard).await;
    store.commit(&lease, &changes).await.unwrap();
    lease
}

/// A consumer's release of one event, as it is recorded.
pub(crate) fn release(run: RunId, index: u32) -> Message {
    Message::release(Release {
        run,
        index,
        attempt: Some(1),
        outcome: ReleaseOutcome::Succeeded,
        message: String::new(),
        next_check_us: None,
        cursor: None,
        result: None,
    })
}
