//! Decides which policy may stand below which, and with which floor.
//!
//! In: a policy, and those around it. Out: what is wrong with its place. Not here: whether it may be put there now, which hangs
//! on what it holds.

use crate::model::{Parent, Policy};

/// The policies around one in its tree.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// Those above, the nearest first.
    pub above: Vec<Policy>,
    /// The others right below the same one.
    pub siblings: Vec<Policy>,
    /// Those right below.
    pub children: Vec<Policy>,
    /// How many levels there are below.
    pub levels_below: usize,
}

/// What is wrong with a policy's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFault {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What is allowed.
    pub expected: String,
}

/// So many tokens of their parent are for these first.
fn floors(policies: &[Policy]) -> u64 {
    policies.iter().filter_map(|policy| policy.parent.as_ref()).map(|parent| u64::from(parent.floor)).sum()
}

/// What is wrong with the place of a policy.
pub fn faults(policy: &Policy, around: &Around) -> Vec<TreeFault> {
    let mut faults = Vec::new();
    let mut fault =
        |field, value: String, expected: String| faults.push(TreeFault { field, value, expected });
    let limit = policy.limits.max_in_flight;
    let below = floors(&around.children);
    if below > limit.map_or(0, u64::from) {
        let value = limit.map(|limit| limit.to_string()).unwrap_or_default();
        fault("max_in_flight", value, format!("at least {below}, the floors of the policies below it"));
    }
    let Some(Parent { id, floor, .. }) = policy.parent.as_deref() else { return faults };
    if around.above.iter().any(|above| above.uid == policy.uid) {
        fault("parent", id.clone(), "a policy that does not stand below this one".to_owned());
        return faults;
    }
    let levels = around.above.len() + 1 + around.levels_below;
    if levels > Parent::LEVELS_MAX {
        let expected = format!("a tree of at most {} levels, not {levels}", Parent::LEVELS_MAX);
        fault("parent", id.clone(), expected);
    }
    let Some(above) = around.above.first().filter(|_| *floor > 0) else { return faults };
    let others = floors(&around.siblings);
    let expected = match (above.limits.max_in_flight, limit) {
        (None, _) => format!("none, as {id} has no max_in_flight"),
        (Some(of), _) if u64::from(*floor) + others > u64::from(of) => {
            let left = u64::from(of).saturating_sub(others);
            format!("at most {left}: {id} has {of} tokens, and {others} of them are the floors of others")
        }
        (_, Some(own)) if *floor > own => format!("at most {own}, its own max_in_flight"),
        _ => return faults,
    };
    fault("floor", floor.to_string(), expected);
    faults
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::handle::testing::policy;

    fn of(uid: u128, limit: u32, floor: u32) -> Policy {
        let parent = Parent {
            uid: Uuid::from_u128(1),
            namespace: "n".to_owned(),
            id: "root".to_owned(),
            floor,
            weight: 1,
        };
        Policy { uid: Uuid::from_u128(uid), parent: Some(Box::new(parent)), ..policy(limit) }
    }

    fn root(limit: u32) -> Policy {
        Policy { uid: Uuid::from_u128(1), parent: None, ..policy(limit) }
    }

    fn told(policy: &Policy, around: &Around) -> Vec<(&'static str, String)> {
        faults(policy, around).into_iter().map(|fault| (fault.field, fault.expected)).collect()
    }

    #[test]
    fn floors_are_at_most_what_their_parent_has() {
        let around = Around { above: vec![root(10)], siblings: vec![of(3, 9, 4)], ..Around::default() };
        assert_eq!(told(&of(2, 9, 6), &around), []);
        let expected = "at most 6: root has 10 tokens, and 4 of them are the floors of others".to_owned();
        assert_eq!(told(&of(2, 9, 7), &around), [("floor", expected)]);
        assert_eq!(told(&of(2, 3, 4), &around), [("floor", "at most 3, its own max_in_flight".to_owned())]);
        let mut free = root(1);
        free.limits.max_in_flight = None;
        let around = Around { above: vec![free.clone()], ..Around::default() };
        assert_eq!(told(&of(2, 9, 1), &around), [("floor", "none, as root has no max_in_flight".to_owned())]);
        assert_eq!(told(&of(2, 9, 0), &around), []);
        let around =
            Around { children: vec![of(2, 9, 4), of(3, 9, 4)], levels_below: 1, ..Around::default() };
        assert_eq!(told(&root(8), &around), []);
        let expected = "at least 8, the floors of the policies below it".to_owned();
        assert_eq!(told(&root(7), &around), [("max_in_flight", expected.clone())]);
        assert_eq!(told(&free, &around), [("max_in_flight", expected)]);
    }

    #[test]
    fn a_tree_has_an_end_on_both_sides() {
        let above =
            |count: u128| (0..count).map(|n| Policy { uid: Uuid::from_u128(50 + n), ..root(9) }).collect();
        let around = |count, levels_below| Around { above: above(count), levels_below, ..Around::default() };
        assert_eq!(told(&of(2, 9, 0), &around(3, 0)), []);
        assert_eq!(told(&of(2, 9, 0), &around(2, 1)), []);
        let expected = "a tree of at most 4 levels, not 5".to_owned();
        assert_eq!(told(&of(2, 9, 0), &around(2, 2)), [("parent", expected.clone())]);
        assert_eq!(told(&of(2, 9, 0), &around(4, 0)), [("parent", expected)]);
        let expected = "a policy that does not stand below this one".to_owned();
        assert_eq!(told(&of(51, 9, 0), &around(2, 0)), [("parent", expected)]);
    }
}
