//! Decides what a policy may be.

use tollgate_core::model::{KeyRule, KeyRules, Limits, Parent, Policy, Reclaim, TtlFrom};
use uuid::Uuid;

use super::check::Check;
use super::{Name, duration_of_ms, items, names, pause, timestamp};
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
/// The most keys of which a policy says something.
const KEYS_MAX: usize = 1_000;
/// The most turns in a row.
const WEIGHT_MAX: u32 = 1_000;
/// The longest reason of a key's pause, in bytes.
const REASON_MAX: usize = 1024;

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
        limits: limits(&mut check, message, has_parent(message, stored)),
        keys: keys(&mut check, message),
        adopts: message.adopts,
        parent: parent(&mut check, message, name, stored),
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

/// Limits as they are given, at a path within the policy. `has_rate`: a burst has a rate from elsewhere.
fn given_limits(check: &mut Check, path: &str, given: Limits, has_rate: bool) -> Limits {
    let field = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if given.max_in_flight == Some(0) {
        let expected =
            if path.is_empty() { "at least 1; pause the policy to let nothing start" } else { "at least 1" };
        check.refuse(&field("max_in_flight"), 0, expected);
    }
    if let Some(rate) = given.rate_per_s
        && !(rate > 0.0 && rate <= RATE_MAX)
    {
        check.refuse(&field("rate_per_second"), rate, format!("above 0 and at most {RATE_MAX}"));
    }
    if let Some(burst) = given.burst {
        if !(1..=BURST_MAX).contains(&burst) {
            check.refuse(&field("burst"), burst, format!("1 to {BURST_MAX}"));
        } else if given.rate_per_s.is_none() && !has_rate {
            check.refuse(
                &field("burst"),
                burst,
                "no burst without rate_per_second: give that too, or leave burst out",
            );
        }
    }
    given
}

/// Whether a policy has one above it, as far as it says so itself.
fn has_parent(message: &v1::Policy, stored: Option<&Policy>) -> bool {
    match &message.parent {
        Some(parent) => !parent.is_empty(),
        None => stored.is_some_and(|stored| stored.parent.is_some()),
    }
}

/// The policy above. Its uid is looked up where it is another one than before. Without an id: it is not named, and what is said
/// of it waits for the one that new policies get.
fn parent(
    check: &mut Check,
    message: &v1::Policy,
    name: &Name,
    stored: Option<&Policy>,
) -> Option<Box<Parent>> {
    let before = stored.and_then(|stored| stored.parent.as_deref());
    let weight = message.weight.unwrap_or(1);
    if !(1..=WEIGHT_MAX).contains(&weight) {
        check.refuse("weight", weight, format!("1 to {WEIGHT_MAX}"));
    }
    let floor = message.floor.unwrap_or_default();
    let says = message.floor.is_some() || message.weight.is_some();
    let unknown =
        |id: String| Parent { uid: Uuid::nil(), namespace: name.namespace.clone(), id, floor, weight };
    let kept = |before: &Parent| Parent { floor, weight, ..before.clone() };
    let is_kept = |before: &&Parent, text: &str| {
        text == names::of_policy(&before.namespace, &before.id)
            || before.namespace == name.namespace && text == before.id
    };
    let parent = match message.parent.as_deref() {
        None if before.is_some() => before.map(kept),
        None => (says && stored.is_none()).then(|| unknown(String::new())),
        Some("") => None,
        Some(text) => match before.filter(|before| is_kept(before, text)) {
            Some(before) => Some(kept(before)),
            None => {
                let above = names::policy_within("policy.parent", &name.namespace, text);
                Some(check.keep(above).map_or_else(|| unknown(text.to_owned()), |above| unknown(above.id)))
            }
        },
    };
    if parent.is_none() && says {
        let (field, value) = match message.floor {
            Some(floor) => ("floor", floor),
            None => ("weight", weight),
        };
        check.refuse(field, value, "nothing of the kind without a parent");
    }
    parent.map(Box::new)
}

/// What is said of keys.
fn keys(check: &mut Check, message: &v1::Policy) -> KeyRules {
    let each = message.per_key.as_ref().map(|given| {
        let v1::KeyLimits { max_in_flight, rate_per_second: rate_per_s, burst } = *given;
        if max_in_flight.is_none() && rate_per_s.is_none() {
            let expected = "a limit, such as max_in_flight: 2, or rate_per_second: 10, or both";
            check.refuse("per_key.max_in_flight", "", expected);
        }
        given_limits(check, "per_key", Limits { max_in_flight, rate_per_s, burst }, false)
    });
    if message.keys.len() > KEYS_MAX {
        check.refuse("keys", message.keys.len(), format!("at most {KEYS_MAX} of them"));
    }
    let has_rate = each.as_ref().is_some_and(|each| each.rate_per_s.is_some());
    let of = message.keys.iter().map(|(key, given)| {
        let path = format!("keys[{key:?}]");
        if key.is_empty() {
            check.refuse("keys", "an empty key", "keys of at least one byte: what has none is in per_key");
        }
        let at = check.path("keys");
        check.keep(items::key(&at, key));
        let v1::KeyRule { max_in_flight, rate_per_second: rate_per_s, burst, weight, paused, reason } = given;
        let limits = Limits { max_in_flight: *max_in_flight, rate_per_s: *rate_per_s, burst: *burst };
        let limits = given_limits(check, &path, limits, has_rate);
        let weight = weight.unwrap_or(1);
        if !(1..=WEIGHT_MAX).contains(&weight) {
            check.refuse(&format!("{path}.weight"), weight, format!("1 to {WEIGHT_MAX}"));
        }
        if reason.len() > REASON_MAX {
            let given = format!("{} bytes", reason.len());
            check.refuse(&format!("{path}.reason"), given, format!("at most {REASON_MAX} bytes"));
        }
        (key.clone(), KeyRule { limits, weight, paused: *paused, reason: reason.clone() })
    });
    KeyRules { each, of: of.collect() }
}

fn limits(check: &mut Check, message: &v1::Policy, has_parent: bool) -> Limits {
    let limits = Limits {
        max_in_flight: message.max_in_flight,
        rate_per_s: message.rate_per_second,
        burst: message.burst,
    };
    let limits = given_limits(check, "", limits, false);
    if !has_parent && message.max_in_flight.is_none() && message.rate_per_second.is_none() {
        check.refuse(
            "max_in_flight",
            "",
            "a limit, such as max_in_flight: 5, or rate_per_second: 10, or both, or a parent",
        );
    }
    limits
}

/// A policy as callers see it.
pub fn to_message(policy: &Policy) -> v1::Policy {
    let above = policy.parent.as_deref();
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
        per_key: policy.keys.each.as_ref().map(|each| v1::KeyLimits {
            max_in_flight: each.max_in_flight,
            rate_per_second: each.rate_per_s,
            burst: each.burst,
        }),
        keys: policy.keys.of.iter().map(|(key, rule)| (key.clone(), key_rule(rule))).collect(),
        parent: above.map(|above| names::of_policy(&above.namespace, &above.id)),
        floor: above.map(|above| above.floor).filter(|floor| *floor > 0),
        weight: above.map(|above| above.weight).filter(|weight| *weight > 1),
        adopts: policy.adopts,
    }
}

fn key_rule(rule: &KeyRule) -> v1::KeyRule {
    v1::KeyRule {
        max_in_flight: rule.limits.max_in_flight,
        rate_per_second: rule.limits.rate_per_s,
        burst: rule.limits.burst,
        weight: (rule.weight != 1).then_some(rule.weight),
        paused: rule.paused,
        reason: rule.reason.clone(),
    }
}
