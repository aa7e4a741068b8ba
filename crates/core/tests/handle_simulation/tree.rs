//! Trees of policies: how masters make them, and what must hold of each policy in one.

use std::collections::BTreeMap;

use tollgate_core::model::*;
use uuid::Uuid;

use crate::handle_world::Store;
use crate::totals::{Seen, Totals};
use crate::world::World;

/// The numbers of policies that stand below others.
const NUMBERS: std::ops::Range<u128> = 900..904;

/// Tokens held by the events of each policy and of all below it, as a store knows their tree. `own`: by a policy's own.
pub(crate) fn held(store: &Store, own: impl Fn(Uuid) -> u32) -> BTreeMap<Uuid, u32> {
    let mut held: BTreeMap<Uuid, u32> = BTreeMap::new();
    for policy in store.policies.values() {
        let own = own(policy.uid);
        for uid in way_up(policy.uid, &store.policies) {
            *held.entry(uid).or_default() += own;
        }
    }
    held
}

/// Counts a policy whose tokens are all held, not all by its own events.
pub(crate) fn count_full(
    totals: &mut Totals,
    store: &Store,
    (policy, own): (&Policy, u32),
    held: &BTreeMap<Uuid, u32>,
) {
    let in_flight = held[&policy.uid];
    if own == in_flight || policy.limits.max_in_flight != Some(in_flight) {
        return;
    }
    totals.count(Seen::TreeFull);
    let children = store.policies.values().filter_map(|p| Some((p.uid, p.parent.as_ref()?)));
    let mut children = children.filter(|(_, parent)| parent.uid == policy.uid);
    if children.any(|(child, parent)| held[&child] < parent.floor) {
        totals.count(Seen::FloorUnmet);
    }
}

/// A policy and those above it. One that nobody has told of ends the way, and so does one that has been there.
pub(crate) fn way_up(uid: Uuid, policies: &BTreeMap<Uuid, Policy>) -> Vec<Uuid> {
    let (mut way, mut next) = (Vec::new(), Some(uid));
    while let Some(uid) = next.filter(|uid| !way.contains(uid) && way.len() < Parent::LEVELS_MAX) {
        way.push(uid);
        next = policies.get(&uid).and_then(|policy| policy.parent.as_ref()).map(|parent| parent.uid);
    }
    way
}

impl World {
    /// Some policies below one of those that there are.
    pub(crate) fn make_tree(&mut self) {
        let roots: Vec<Policy> = self.master.policies.values().cloned().collect();
        let Some(root) = self.random.pick(&roots).cloned() else { return };
        let mut members = vec![root];
        for number in NUMBERS {
            let Some(parent) = self.random.pick(&members).cloned() else { return };
            if way_up(parent.uid, &self.master.policies).len() == Parent::LEVELS_MAX {
                continue;
            }
            let limits = self.limits();
            let limits = self.limits_under(true, limits);
            let mut child = self.some_policy(number, limits, parent.shard);
            child.parent = Some(self.below(&parent));
            self.publish_policy(child.clone());
            members.push(child);
        }
    }

    /// A policy that has one above it may be without limits.
    pub(crate) fn limits_under(&mut self, has_parent: bool, limits: Limits) -> Limits {
        if has_parent && self.random.percent(40) { Limits::default() } else { limits }
    }

    fn below(&mut self, parent: &Policy) -> Box<Parent> {
        let parent = Parent {
            uid: parent.uid,
            namespace: parent.namespace.clone(),
            id: parent.id.clone(),
            floor: if self.random.percent(40) { self.random.within(1, 3) as u32 } else { 0 },
            weight: self.random.within(1, 4) as u32,
        };
        Box::new(parent)
    }

    /// Another floor and weight; or another parent, or none, where it holds nothing and its shard knows that it is paused.
    pub(crate) fn change_parent(&mut self, policy: &mut Policy) {
        let store = &self.stores[usize::from(policy.shard)];
        let is_still = policy.pause.is_some()
            && store.policies.get(&policy.uid) == Some(policy)
            && store.in_flight(Some(policy.uid)) == 0;
        let of = |other: &Policy| other.parent.as_ref().map(|parent| parent.uid);
        let has_children = self.master.policies.values().any(|other| of(other) == Some(policy.uid));
        let others: Vec<Policy> = self.master.policies.values().cloned().collect();
        let fits = |other: &&Policy| {
            let way = way_up(other.uid, &self.master.policies);
            other.shard == policy.shard && !way.contains(&policy.uid) && way.len() < Parent::LEVELS_MAX
        };
        let others: Vec<Policy> = others.iter().filter(fits).cloned().collect();
        if !is_still || has_children {
            if let Some(above) = of(policy).and_then(|uid| self.master.policies.get(&uid).cloned()) {
                policy.parent = Some(self.below(&above));
            }
            return;
        }
        self.count(Seen::ParentChanged);
        let above = self.random.pick(&others).cloned();
        policy.parent = above.filter(|_| self.random.percent(70)).map(|above| self.below(&above));
        if policy.parent.is_none() && policy.limits == Limits::default() {
            policy.limits.max_in_flight = Some(2);
        }
    }
}
