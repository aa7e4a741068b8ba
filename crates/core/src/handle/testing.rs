//! A policy, a schedule and runs for tests.

use uuid::Uuid;

use super::live::LiveRun;
use crate::model::{
    CatchUp, CheckAgain, HttpTarget, Limits, OverlapRule, Payload, Policy, Reclaim, ReleaseMode, RetryPolicy,
    Run, RunId, RunKind, RunSpec, RunState, Schedule, Target, Timing, TtlFrom,
};

pub(crate) fn policy(max_in_flight: u32) -> Policy {
    Policy {
        uid: Uuid::from_u128(1),
        namespace: "default".into(),
        id: "p".into(),
        description: String::new(),
        limits: Limits { max_in_flight: Some(max_in_flight), rate_per_s: None, burst: None },
        keys: Default::default(),
        adopts: false,
        parent: None,
        reclaim: Reclaim::AfterTtl,
        token_ttl_ms: 60_000,
        suspect_ms: 10_000,
        ttl_from: TtlFrom::TargetDefault,
        unstarted_ttl_ms: 600_000,
        pause: None,
        labels: Default::default(),
        shard: 3,
        generation: 1,
        created_us: 0,
        updated_us: 0,
    }
}

/// One that nothing makes fire.
pub(crate) fn schedule() -> Schedule {
    let url = "http://127.0.0.1/".into();
    let http = HttpTarget::plain(url, 10_000);
    Schedule {
        uid: Uuid::from_u128(2),
        namespace: "default".into(),
        id: "s".into(),
        description: String::new(),
        timing: Timing { time_zone: "UTC".into(), ..Timing::default() },
        events: 1,
        target: Target::Http { http, release: ReleaseMode::default() },
        payload: Payload::default(),
        policy: None,
        policy_uid: None,
        shard: None,
        key: None,
        key_label: None,
        units: 1,
        priority: 5,
        retry: RetryPolicy::default(),
        catch_up: CatchUp::default(),
        overlap: OverlapRule::Allow,
        delay_after_finish_s: None,
        finish_by_s: None,
        spread_s: None,
        start_within_s: None,
        start_within_percent: None,
        check_again: CheckAgain::default(),
        on_finish: None,
        when_done: Default::default(),
        pause: None,
        past_pauses: Vec::new(),
        labels: Default::default(),
        former_homes: Vec::new(),
        generation: 1,
        created_us: 0,
        updated_us: 0,
    }
}

pub(super) fn live_run(schedule_uid: Uuid, launch_us: i64) -> LiveRun {
    let url = "http://127.0.0.1/".into();
    let http = HttpTarget::plain(url, 10_000);
    let spec = RunSpec {
        schedule_uid,
        generation: 1,
        namespace: "default".into(),
        schedule_id: "s".into(),
        policy_uid: None,
        policy_id: None,
        key: None,
        units: 1,
        target: Target::Http { http, release: ReleaseMode::default() },
        payload: Payload::default(),
        retry: RetryPolicy::default(),
        overlap: OverlapRule::Allow,
        delay_after_finish_s: None,
        finish_by_s: None,
        spread_s: None,
        start_within_s: None,
        check_again: CheckAgain::default(),
        on_finish: None,
    };
    let run = Run {
        shard: 3,
        id: RunId::derive(schedule_uid, launch_us),
        schedule_uid,
        generation: 1,
        namespace: "default".into(),
        schedule_id: "s".into(),
        policy_uid: None,
        launch_us,
        events: 1,
        priority: 5,
        kind: RunKind::Scheduled,
        state: RunState::Waiting,
        ..Run::default()
    };
    LiveRun::new(run, spec.into())
}
