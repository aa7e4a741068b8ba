//! A policy for the tests of this folder.

use uuid::Uuid;

use crate::model::{Limits, Policy, Reclaim, TtlFrom};

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
