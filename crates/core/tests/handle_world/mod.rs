//! What the tests of the shard's state machine share: makers of policies, specs and runs, and a store in memory.

mod store;

use std::collections::BTreeMap;

pub(crate) use store::Store;
use tollgate_core::items::{Item, of_lines, to_lines};
use tollgate_core::model::*;
use uuid::Uuid;

/// A moment far from zero, a whole minute.
pub(crate) const START_US: i64 = 1_780_000_020 * SECOND_US;

/// A policy with the given limits and short times.
pub(crate) fn policy(uid: u128, limits: Limits) -> Policy {
    Policy {
        uid: Uuid::from_u128(uid),
        namespace: "default".into(),
        id: format!("p{uid}"),
        description: String::new(),
        limits,
        keys: KeyRules::default(),
        adopts: false,
        parent: None,
        reclaim: Reclaim::AfterTtl,
        token_ttl_ms: 60_000,
        suspect_ms: 10_000,
        ttl_from: TtlFrom::TargetDefault,
        unstarted_ttl_ms: 600_000,
        pause: None,
        labels: BTreeMap::new(),
        shard: 0,
        generation: 1,
        created_us: START_US,
        updated_us: START_US,
    }
}

/// The spec of a schedule with an HTTP target, three attempts and checks rounded up to the minute.
pub(crate) fn spec(schedule: u128, policy: Option<&Policy>) -> RunSpec {
    RunSpec {
        schedule_uid: Uuid::from_u128(schedule),
        generation: 1,
        namespace: "default".into(),
        schedule_id: format!("s{schedule}"),
        policy_uid: policy.map(|p| p.uid),
        policy_id: policy.map(|p| p.id.clone()),
        key: None,
        units: 1,
        target: Target::Http {
            http: HttpTarget::plain("http://127.0.0.1/".into(), 1000),
            release: ReleaseMode::TargetDefault,
        },
        payload: Payload::default(),
        retry: RetryPolicy { attempts_max: 3, backoff_min_ms: 1000, backoff_max_ms: 8000, retry_lost: true },
        overlap: OverlapRule::Allow,
        delay_after_finish_s: None,
        finish_by_s: None,
        spread_s: None,
        start_within_s: None,
        check_again: CheckAgain { count_max: 2, horizon_s: 3600, slot_s: 60, on_guard: OnGuard::Refuse },
        on_finish: None,
    }
}

/// An emitted run of a spec, with priority 5.
pub(crate) fn run(spec: &RunSpec, launch_us: i64, events: u32) -> Run {
    Run {
        shard: 0,
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
        emitted_us: launch_us,
        ..Run::default()
    }
}

/// Items of these keys that take so many tokens, one each, as a spec has them.
pub(crate) fn weighed_items<'k>(loads: impl IntoIterator<Item = (&'k str, u32)>) -> String {
    let item = |(key, units): (&str, u32)| Item { key: key.to_owned(), units, data: "{}".to_owned() };
    let items: Vec<Item> = loads.into_iter().map(item).collect();
    to_lines(&items)
}

/// The keys and the units of a spec's items.
pub(crate) fn loads_of(spec: &RunSpec) -> Vec<(String, u32)> {
    of_lines(&spec.payload.items).map(|item| (item.key.to_owned(), item.units)).collect()
}

/// A pause.
pub(crate) fn pause() -> Pause {
    Pause { reason: "maintenance".into(), actor: "ops".into(), since_us: START_US }
}
