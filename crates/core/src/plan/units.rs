//! How many tokens an event may take: no more than any limit that bounds it.
//!
//! In: a policy and those above it; a key and how many tokens are asked for. Out: the limit that is exceeded, for people. Not
//! here: what becomes of an event that is waiting when a limit is lowered below what it takes ([`crate::handle`]).

use crate::items::of_lines;
use crate::model::{KeyRules, Limits, Policy, Schedule};

/// The limits of a policy, and of those above it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyLimits {
    /// The policy's own.
    pub own: Limits,
    /// The least of the policy and those above it, and whose it is.
    least: Option<(u32, String)>,
    /// Of the policy's own keys, and the policy.
    keys: KeyRules,
    policy: String,
    /// As what items count that do not say.
    key: String,
    units: u32,
}

/// Somebody asks for more than there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitFault {
    /// The field of the schedule.
    pub field: String,
    /// How many tokens are asked for.
    pub units: u32,
    /// What is allowed.
    pub expected: String,
}

impl PolicyLimits {
    /// Those of a policy and of the ones above it, the nearest first.
    pub fn of<'p>(policy: &Policy, above: impl IntoIterator<Item = &'p Policy>) -> Self {
        let mut limits = Self {
            own: policy.limits.clone(),
            least: policy.limits.max_in_flight.map(|most| (most, format!("its policy {}", policy.id))),
            keys: policy.keys.clone(),
            policy: policy.id.clone(),
            key: String::new(),
            units: 1,
        };
        for above in above {
            let is_less = |most: &u32| limits.least.as_ref().is_none_or(|(least, _)| most < least);
            if let Some(most) = above.limits.max_in_flight.filter(is_less) {
                limits.least = Some((most, format!("{}, a policy above its own", above.id)));
            }
        }
        limits
    }

    /// For items of a schedule whose events have this key and take so many tokens.
    #[must_use]
    pub fn with_defaults(self, key: &str, units: u32) -> Self {
        Self { key: key.to_owned(), units, ..self }
    }

    /// How many tokens an event of this key asks for, and what is allowed, where that is less; an empty key and 0 are those of
    /// its schedule. One token is never too much: where nothing is allowed, it waits.
    pub fn exceeded(&self, key: &str, units: u32) -> Option<(u32, String)> {
        let units = if units == 0 { self.units } else { units };
        if units <= 1 {
            return None;
        }
        let key = if key.is_empty() { &self.key } else { key };
        let of_key = self.keys.limits_of(key).max_in_flight.map(|most| {
            let whose =
                if key.is_empty() { "events without a key".to_owned() } else { format!("the key {key:?}") };
            (most, format!("{whose} under {}", self.policy))
        });
        let least = self.least.iter().chain(&of_key).min_by_key(|(most, _)| *most);
        let (most, whose) = least.filter(|(most, _)| units > *most)?;
        Some((units, format!("at most {}, the max_in_flight of {whose}", most.max(&1))))
    }

    /// What of a schedule exceeds its limits: of its items the first.
    pub fn faults(&self, schedule: &Schedule) -> Vec<UnitFault> {
        let limits = self.clone().with_defaults(schedule.key.as_deref().unwrap_or_default(), schedule.units);
        let fault = |field: String, (units, expected): (u32, String)| UnitFault { field, units, expected };
        let own = limits.exceeded("", 0).map(|exceeded| fault("units".to_owned(), exceeded));
        let mut items = of_lines(&schedule.payload.items).enumerate();
        let item = items.find_map(|(index, item)| {
            let exceeded = limits.exceeded(item.key, item.units)?;
            Some(fault(format!("items[{index}].units"), exceeded))
        });
        // Where each item says its own, the schedule's is nobody's.
        let is_used = schedule.payload.items.is_empty()
            || of_lines(&schedule.payload.items).any(|item| item.units == 0);
        own.filter(|_| is_used).into_iter().chain(item).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::testing::{policy, schedule};
    use crate::model::{KeyRule, Payload};

    fn limits(own: u32, above: &[u32]) -> PolicyLimits {
        let keys = KeyRules {
            each: Some(Limits { max_in_flight: Some(5), ..Limits::default() }),
            of: [(
                "big".to_owned(),
                KeyRule {
                    limits: Limits { max_in_flight: Some(50), ..Limits::default() },
                    ..KeyRule::default()
                },
            )]
            .into(),
        };
        let own = Policy { id: "own".to_owned(), keys, ..policy(own) };
        let above = above.iter().map(|most| Policy { id: format!("p{most}"), ..policy(*most) });
        PolicyLimits::of(&own, &above.collect::<Vec<_>>())
    }

    #[test]
    fn the_least_limit_is_told_with_its_owner() {
        let told = |limits: PolicyLimits, key: &str, units| {
            let (asked, expected) = limits.exceeded(key, units)?;
            assert_eq!(asked, units);
            Some(expected)
        };
        assert_eq!(told(limits(10, &[]), "big", 10), None);
        let expected = "at most 10, the max_in_flight of its policy own";
        assert_eq!(told(limits(10, &[20]), "big", 11).as_deref(), Some(expected));
        let expected = "at most 8, the max_in_flight of p8, a policy above its own";
        assert_eq!(told(limits(10, &[20, 8]), "big", 9).as_deref(), Some(expected));
        let expected = "at most 5, the max_in_flight of the key \"acme\" under own";
        assert_eq!(told(limits(10, &[8]), "acme", 6).as_deref(), Some(expected));
        let expected = "at most 5, the max_in_flight of events without a key under own";
        assert_eq!(told(limits(10, &[8]), "", 6).as_deref(), Some(expected));
        assert_eq!(told(limits(0, &[]), "", 1), None, "it waits");
        assert_eq!(told(PolicyLimits::default(), "", 1_000), None);
        let of_schedule = limits(10, &[]).with_defaults("big", 11);
        let expected = "at most 10, the max_in_flight of its policy own".to_owned();
        assert_eq!(of_schedule.exceeded("", 0), Some((11, expected)));
    }

    #[test]
    fn what_a_schedule_says_is_for_items_that_do_not() {
        let faults = |units, items: &str| {
            let payload = Payload::default().with_items(items);
            let schedule = Schedule { units, payload, key: Some("big".to_owned()), ..schedule() };
            let faults = limits(10, &[]).faults(&schedule).into_iter();
            faults.map(|fault| (fault.field, fault.units)).collect::<Vec<_>>()
        };
        let told = |field: &str, units: u32| (field.to_owned(), units);
        assert_eq!(faults(10, ""), []);
        assert_eq!(faults(11, ""), [told("units", 11)]);
        assert_eq!(faults(6, "\t1\nacme\t1\n"), [told("items[1].units", 6)]);
        assert_eq!(faults(11, "\t10\t1\nacme\t5\t1\n"), [], "each says its own");
        assert_eq!(faults(1, "\t11\t1\n"), [told("items[0].units", 11)]);
    }
}
