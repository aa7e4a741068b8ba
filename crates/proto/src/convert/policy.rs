//! Decides what a policy may be.

use tollgate_core::model::{Limits, Policy, Reclaim, TtlFrom};
use uuid::Uuid;

use super::check::Check;
use super::{Name, duration_of_ms, names, pause, timestamp};
use crate::field::FieldError;
use crate::v1;

/// The shortest time to live, in milliseconds.
pub const TTL_MIN_MS: i64 = 1_000;
/// The longest time to live, in milliseconds.
pub const TTL_MAX_MS: i64 = 30 * 24 * 3_600_000;
/// The highest rate, in events per second.
const RATE_MAX: f64 = 1_000_000.0;
/// The largest burst.
const BURST_MAX: u32 = 10_000_000;

/// The policy that `message` describes, under `name`. What only the service decides (uid, pause, shard, generation,
/// times) is taken from `stored`, and zero where there is none.
///
/// # Errors
/// Every field that is wrong, as `policy.…`.
pub fn to_core(
    message: &v1::Policy,
    name: &Name,
    stored: Option<&Policy>,
) -> Result<Policy, Vec<FieldError>> {
    let mut check = Check::new("policy");
    check.text("description", &message.description);
    check.labels(&message.labels);
    let reclaim = check.choice("reclaim", message.reclaim, "AFTER_TTL or NEVER");
    let ttl_from = check.choice("ttl_from", message.ttl_from, "DELIVERY or FIRST_HEARTBEAT");
    let ttl = TTL_MIN_MS..=TTL_MAX_MS;
    let policy = Policy {
        uid: stored.map_or(Uuid::nil(), |stored| stored.uid),
        namespace: name.namespace.clone(),
        id: name.id.clone(),
        description: message.description.clone(),
        limits: limits(&mut check, message),
        reclaim: match reclaim {
            v1::Reclaim::Unspecified | v1::Reclaim::AfterTtl => Reclaim::AfterTtl,
            v1::Reclaim::Never => Reclaim::Never,
        },
        token_ttl_ms: check.ms("token_ttl", message.token_ttl.as_ref(), Policy::TOKEN_TTL_MS, &ttl),
        suspect_ms: check.ms(
            "suspect_period",
            message.suspect_period.as_ref(),
            Policy::SUSPECT_MS,
            &(0..=TTL_MAX_MS),
        ),
        ttl_from: match ttl_from {
            v1::TtlFrom::Unspecified => TtlFrom::TargetDefault,
            v1::TtlFrom::Delivery => TtlFrom::Delivery,
            v1::TtlFrom::FirstHeartbeat => TtlFrom::FirstHeartbeat,
        },
        unstarted_ttl_ms: check.ms(
            "unstarted_ttl",
            message.unstarted_ttl.as_ref(),
            Policy::UNSTARTED_TTL_MS,
            &ttl,
        ),
        pause: stored.and_then(|stored| stored.pause.clone()),
        labels: message.labels.clone(),
        shard: stored.map_or(0, |stored| stored.shard),
        generation: stored.map_or(0, |stored| stored.generation),
        created_us: stored.map_or(0, |stored| stored.created_us),
        updated_us: stored.map_or(0, |stored| stored.updated_us),
    };
    check.finish(Some(policy))
}

fn limits(check: &mut Check, message: &v1::Policy) -> Limits {
    if message.max_in_flight == Some(0) {
        check.refuse("max_in_flight", 0, "at least 1; pause the policy to let nothing start");
    }
    if let Some(rate) = message.rate_per_second
        && !(rate > 0.0 && rate <= RATE_MAX)
    {
        check.refuse("rate_per_second", rate, format!("above 0 and at most {RATE_MAX}"));
    }
    if let Some(burst) = message.burst {
        if !(1..=BURST_MAX).contains(&burst) {
            check.refuse("burst", burst, format!("1 to {BURST_MAX}"));
        } else if message.rate_per_second.is_none() {
            check.refuse(
                "burst",
                burst,
                "no burst without rate_per_second: give that too, or leave burst out",
            );
        }
    }
    if message.max_in_flight.is_none() && message.rate_per_second.is_none() {
        check.refuse(
            "max_in_flight",
            "",
            "a limit, such as max_in_flight: 5, or rate_per_second: 10, or both",
        );
    }
    Limits { max_in_flight: message.max_in_flight, rate_per_s: message.rate_per_second, burst: message.burst }
}

/// A policy as callers see it.
pub fn to_message(policy: &Policy) -> v1::Policy {
    v1::Policy {
        name: names::of_policy(&policy.namespace, &policy.id),
        uid: policy.uid.to_string(),
        description: policy.description.clone(),
        max_in_flight: policy.limits.max_in_flight,
        rate_per_second: policy.limits.rate_per_s,
        burst: policy.limits.burst,
        reclaim: match policy.reclaim {
            Reclaim::AfterTtl => v1::Reclaim::AfterTtl,
            Reclaim::Never => v1::Reclaim::Never,
        }
        .into(),
        token_ttl: Some(duration_of_ms(policy.token_ttl_ms)),
        suspect_period: Some(duration_of_ms(policy.suspect_ms)),
        ttl_from: match policy.ttl_from {
            TtlFrom::TargetDefault => v1::TtlFrom::Unspecified,
            TtlFrom::Delivery => v1::TtlFrom::Delivery,
            TtlFrom::FirstHeartbeat => v1::TtlFrom::FirstHeartbeat,
        }
        .into(),
        unstarted_ttl: Some(duration_of_ms(policy.unstarted_ttl_ms)),
        labels: policy.labels.clone(),
        pause: pause(policy.pause.as_ref()),
        etag: policy.generation.to_string(),
        create_time: Some(timestamp(policy.created_us)),
        update_time: Some(timestamp(policy.updated_us)),
        shard: u32::from(policy.shard),
        warnings: Vec::new(),
    }
}
