//! Makers of policies, specs and runs for the tests of this folder.

use uuid::Uuid;

use crate::model::*;

pub(super) fn policy(max_in_flight: u32) -> Policy {
    Policy {
        uid: Uuid::from_u128(1),
        namespace: "default".into(),
        id: "p".into(),
        description: String::new(),
        limits: Limits { max_in_flight: Some(max_in_flight), rate_per_s: None, burst: None },
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

pub(super) fn spec(schedule: u128, policy: Option<&Policy>) -> RunSpec {
    RunSpec {
        schedule_uid: Uuid::from_u128(schedule),
        generation: 1,
        namespace: "default".into(),
        schedule_id: format!("s{schedule}"),
        policy_uid: policy.map(|p| p.uid),
        policy_id: policy.map(|p| p.id.clone()),
        target: Target::Http {
            http: HttpTarget {
                url: "http://127.0.0.1/".into(),
                headers: Default::default(),
                secret: None,
                deadline_ms: 1000,
            },
            release: ReleaseMode::TargetDefault,
        },
        payload: Payload::default(),
        retry: RetryPolicy { attempts_max: 3, backoff_min_ms: 1000, backoff_max_ms: 8000, retry_lost: true },
        overlap: OverlapRule::Allow,
        finish_by_s: None,
        spread_s: None,
        check_again: CheckAgain { count_max: 2, horizon_s: 3600, slot_s: 60 },
    }
}

pub(super) fn run(spec: &RunSpec, launch_us: i64, events: u32) -> Run {
    Run {
        shard: 3,
        id: RunId::derive(spec.schedule_uid, launch_us),
        schedule_uid: spec.schedule_uid,
        generation: spec.generation,
        namespace: spec.namespace.clone(),
        schedule_id: spec.schedule_id.clone(),
        policy_uid: spec.policy_uid,
        launch_us,
        events,
        priority: 5,
        kind: RunKind::Scheduled,
        state: RunState::Emitted,
        reason: String::new(),
        cursor: 0,
        counts: Counts::default(),
        cursor_in: None,
        cursor_out: None,
        emitted_us: 0,
        started_us: None,
        finished_us: None,
    }
}
