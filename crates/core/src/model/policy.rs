//! A policy: at most m events in flight, over all schedules that use it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Pause;

/// What a bucket lets through. At least one of the two is set, but where a bucket above it lets things through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Events in flight at once.
    pub max_in_flight: Option<u32>,
    /// Events started per second, on average.
    pub rate_per_s: Option<f64>,
    /// How many may start at once when the rate has been unused; at least 1. Absent: one second's worth.
    pub burst: Option<u32>,
}

impl Limits {
    /// How many events may start at once when the rate has been unused.
    pub fn burst(&self) -> f64 {
        let said = self.burst.map(f64::from).or(self.rate_per_s);
        said.unwrap_or_default().max(1.0)
    }
}

/// What a policy says of the keys of its events. Events without a key share one, the empty one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyRules {
    /// What is let through of each key. Absent: all that the policy lets through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<Limits>,
    /// What is said of single keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub of: BTreeMap<String, KeyRule>,
}

/// What a policy says of one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyRule {
    /// Instead of what is said of each key, field by field.
    #[serde(default)]
    pub limits: Limits,
    /// Turns in a row, where keys take turns; 1 by default.
    pub weight: u32,
    /// Nothing of it starts.
    #[serde(default)]
    pub paused: bool,
    /// Why, for the next operator.
    #[serde(default)]
    pub reason: String,
}

impl Default for KeyRule {
    fn default() -> Self {
        Self { limits: Limits::default(), weight: 1, paused: false, reason: String::new() }
    }
}

impl KeyRules {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.each.is_none() && self.of.is_empty()
    }

    /// What is let through of a key.
    pub fn limits_of(&self, key: &str) -> Limits {
        let each = self.each.clone().unwrap_or_default();
        let Some(Limits { max_in_flight, rate_per_s, burst }) = self.of.get(key).map(|rule| &rule.limits)
        else {
            return each;
        };
        // A burst belongs to its rate.
        let burst = if rate_per_s.is_some() { *burst } else { burst.or(each.burst) };
        Limits {
            max_in_flight: max_in_flight.or(each.max_in_flight),
            rate_per_s: rate_per_s.or(each.rate_per_s),
            burst,
        }
    }

    /// How many turns in a row a key has.
    pub fn weight_of(&self, key: &str) -> u32 {
        self.of.get(key).map_or(1, |rule| rule.weight.max(1))
    }

    /// Why nothing of a key starts, where it is paused.
    pub fn pause_of(&self, key: &str) -> Option<&str> {
        self.of.get(key).filter(|rule| rule.paused).map(|rule| rule.reason.as_str())
    }
}

/// The policy above another one, and what that has of it. An event takes a token of its own policy, and of each one above it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Which one; it lives in the same queue shard.
    pub uid: Uuid,
    /// Its namespace's id.
    pub namespace: String,
    /// Its id within that.
    pub id: String,
    /// So many of its tokens are for the events below this policy first, whenever they want them.
    pub floor: u32,
    /// Turns in a row, where policies of one parent take turns; at least 1.
    pub weight: u32,
}

impl Parent {
    /// The most policies from one to the root of its tree, both counted.
    pub const LEVELS_MAX: usize = 4;
}

/// Whether a token comes back without its consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reclaim {
    /// After `token_ttl` without a heartbeat, and the suspect phase.
    #[default]
    AfterTtl,
    /// Only when an operator frees it.
    Never,
}

/// From when the time to live of a token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TtlFrom {
    /// Delivery for HTTP, first heartbeat for SQS and Kafka.
    #[default]
    TargetDefault,
    /// The moment of delivery.
    Delivery,
    /// The consumer's first heartbeat; before it, `unstarted_ttl` holds.
    FirstHeartbeat,
}

/// A throttling policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Chosen by the service.
    pub uid: Uuid,
    /// The namespace's id.
    pub namespace: String,
    /// The policy's id within its namespace.
    pub id: String,
    /// Free text.
    #[serde(default)]
    pub description: String,
    /// The bucket.
    pub limits: Limits,
    /// What is said of the keys of its events.
    #[serde(default, skip_serializing_if = "KeyRules::is_empty")]
    pub keys: KeyRules,
    /// New policies of its namespace that name no parent get this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopts: bool,
    /// The policy above it, which bounds it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<Parent>>,
    /// Whether tokens come back by themselves.
    pub reclaim: Reclaim,
    /// Silence after which a held token becomes suspect, in milliseconds.
    pub token_ttl_ms: i64,
    /// How long a suspect token stays before it is reclaimed, in milliseconds.
    pub suspect_ms: i64,
    /// From when the time counts.
    pub ttl_from: TtlFrom,
    /// Limit before the first heartbeat where the time counts from it, in milliseconds.
    pub unstarted_ttl_ms: i64,
    /// Set while it is paused.
    pub pause: Option<Pause>,
    /// Labels for the user's own filters.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The queue shard in which the policy lives; its whole tree moves when their number is changed.
    pub shard: u16,
    /// Grows by one with every change; also the etag.
    pub generation: i64,
    /// When it was made.
    pub created_us: i64,
    /// When it was last changed.
    pub updated_us: i64,
}

impl Policy {
    /// Default of `token_ttl_ms`: 15 minutes.
    pub const TOKEN_TTL_MS: i64 = 15 * 60_000;
    /// Default of `suspect_ms`: one minute.
    pub const SUSPECT_MS: i64 = 60_000;
    /// Default of `unstarted_ttl_ms`: 12 hours.
    pub const UNSTARTED_TTL_MS: i64 = 12 * 3_600_000;
}
