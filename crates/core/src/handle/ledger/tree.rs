//! Trees of policies: which bucket is above which, and how many tokens are held below each.
//!
//! In: policies as messages tell of them, in any order; tokens that are taken and come back. Out: the way from a policy up to the
//! root of its tree. Invariants: a token counts at each policy above its own; no way up ends where it began, or is longer
//! than [`Parent::LEVELS_MAX`]: what would make one so is tangled, and lets nothing through, until the message that undoes it
//! has come.

use uuid::Uuid;

use super::Ledger;
use crate::handle::branch::Branch;
use crate::handle::bucket::Bucket;
use crate::model::{Now, Parent, Policy};

impl Ledger {
    /// The shard has been told of a policy as it is now.
    pub(in crate::handle) fn learn(&mut self, policy: Policy, now: Now) {
        let (uid, parent) = (policy.uid, policy.parent.as_ref().map(|parent| parent.uid));
        let bucket = self.bucket(Some(uid), now);
        bucket.unknown = false;
        let limit = |bucket: &Bucket| bucket.policy.as_ref().and_then(|policy| policy.limits.max_in_flight);
        let before = limit(bucket);
        bucket.change(policy, now);
        let is_same = before == limit(bucket);
        if self.wanted_parent(uid) != self.parent_of(uid) || self.tangled.contains(&uid) {
            self.take_off(uid);
            self.put_below(uid, parent, now);
        }
        for tangled in std::mem::take(&mut self.tangled) {
            self.take_off(tangled);
            self.put_below(tangled, self.wanted_parent(tangled), now);
        }
        if !is_same {
            self.tell_bounds(uid);
        }
    }

    /// A bucket goes.
    pub(in crate::handle) fn forget_bucket(&mut self, uid: Uuid) {
        self.take_off(uid);
        self.tangled.remove(&uid);
        self.drop_bucket(uid);
    }

    fn drop_bucket(&mut self, uid: Uuid) {
        self.buckets.remove(&Some(uid));
        self.ready.remove(&Some(uid));
    }

    /// The policy above a policy.
    pub(in crate::handle) fn parent_of(&self, uid: Uuid) -> Option<Uuid> {
        self.branch(uid)?.parent
    }

    /// A policy's place in a tree; none where it is in none.
    pub(in crate::handle) fn branch(&self, uid: Uuid) -> Option<&Branch> {
        self.buckets.get(&Some(uid))?.branch.as_deref()
    }

    /// A policy, and all above it.
    pub(in crate::handle) fn way_up(&self, uid: Uuid) -> impl Iterator<Item = (Uuid, &Bucket)> {
        let bucket = move |uid: Uuid| Some((uid, self.buckets.get(&Some(uid))?));
        std::iter::successors(bucket(uid), move |(uid, _)| bucket(self.parent_of(*uid)?))
    }

    /// The policies above a policy.
    pub(in crate::handle) fn above(&self, policy: Option<Uuid>) -> impl Iterator<Item = (Uuid, &Bucket)> {
        policy.into_iter().flat_map(|uid| self.way_up(uid).skip(1))
    }

    /// A policy and all below it.
    pub(in crate::handle) fn with_all_below(&self, uid: Uuid) -> Vec<Uuid> {
        let (mut all, mut next) = (vec![uid], 0);
        while let Some(branch) = all.get(next).copied().map(|uid| self.branch(uid)) {
            all.extend(branch.into_iter().flat_map(|branch| &branch.children));
            next += 1;
        }
        all
    }

    /// Whether a number of tokens bounds what starts under a policy, its own or that of one above: then no places do.
    pub(in crate::handle) fn is_bounded(&self, policy: Option<Uuid>) -> bool {
        self.buckets.get(&policy).is_some_and(Bucket::is_bounded)
    }

    /// What a policy is bounded by may have changed: all below it are told.
    fn tell_bounds(&mut self, uid: Uuid) {
        for uid in self.with_all_below(uid) {
            let is_bounded = self.above_is_bounded(uid);
            if let Some(branch) = self.branch_mut(uid) {
                branch.is_bounded = is_bounded;
            }
            // What took more tokens than there were may take fewer now.
            if let Some(bucket) = self.buckets.get_mut(&Some(uid)) {
                bucket.keys.free_all();
            }
            self.ready.insert(Some(uid));
        }
    }

    fn above_is_bounded(&self, uid: Uuid) -> bool {
        let parent = self.parent_of(uid).and_then(|parent| self.buckets.get(&Some(parent)));
        parent.is_some_and(Bucket::is_bounded)
    }

    /// The most tokens that an event under a policy may take: as many as the least of its limits and of those above it.
    pub(in crate::handle) fn limit_of(&self, policy: Option<Uuid>) -> Option<u32> {
        let buckets = policy.into_iter().flat_map(|uid| self.way_up(uid));
        buckets.filter_map(|(_, bucket)| bucket.policy.as_ref()?.limits.max_in_flight).min()
    }

    /// Whether nothing may start under a policy for now, because it is paused, or one above it is.
    pub(in crate::handle) fn is_paused(&self, policy: Option<Uuid>) -> bool {
        let own = self.buckets.get(&policy).is_some_and(Bucket::is_paused);
        own || self.above(policy).any(|(_, bucket)| bucket.is_paused())
    }

    /// Tokens below this policy have been taken, or have come back.
    pub(super) fn moved_below(&mut self, policy: Option<Uuid>, tokens: i64) {
        let mut next = policy;
        while let Some(uid) = next {
            let Some(branch) = self.branch_mut(uid) else { return };
            branch.below = branch.below.saturating_add_signed(i32::try_from(tokens).unwrap_or_default());
            next = branch.parent;
        }
    }

    fn branch_mut(&mut self, uid: Uuid) -> Option<&mut Branch> {
        self.buckets.get_mut(&Some(uid))?.branch.as_deref_mut()
    }

    fn wanted_parent(&self, uid: Uuid) -> Option<Uuid> {
        self.buckets.get(&Some(uid))?.policy.as_ref()?.parent.as_ref().map(|parent| parent.uid)
    }

    /// A policy has nothing above it any more.
    fn take_off(&mut self, uid: Uuid) {
        let Some(branch) = self.branch_mut(uid) else { return };
        branch.is_tangled = false;
        let Some(parent) = branch.parent else { return };
        self.moved_below(Some(parent), -self.tokens_of(uid));
        if let Some(branch) = self.branch_mut(uid) {
            branch.parent = None;
        }
        if let Some(above) = self.branch_mut(parent) {
            above.children.remove(&uid);
            above.turns.forget(uid);
        }
        self.tell_bounds(uid);
        self.ready.insert(Some(parent));
        // It may have been made for this one alone.
        if self.buckets.get(&Some(parent)).is_some_and(|above| above.unknown && !above.in_use()) {
            self.drop_bucket(parent);
        }
    }

    /// A policy without one gets this one above it.
    fn put_below(&mut self, uid: Uuid, parent: Option<Uuid>, now: Now) {
        let Some(parent) = parent else { return };
        self.bucket(Some(parent), now).branch.get_or_insert_default();
        let levels = self.way_up(parent).take(Parent::LEVELS_MAX).count() + self.levels_from(uid, 0);
        let is_tangled = levels > Parent::LEVELS_MAX || self.way_up(parent).any(|(above, _)| above == uid);
        let branch = self.bucket(Some(uid), now).branch.get_or_insert_default();
        branch.is_tangled = is_tangled;
        if is_tangled {
            self.tangled.insert(uid);
            return;
        }
        branch.parent = Some(parent);
        if let Some(above) = self.branch_mut(parent) {
            above.children.insert(uid);
        }
        self.moved_below(Some(parent), self.tokens_of(uid));
        self.tell_bounds(uid);
    }

    /// Tokens held by the events of a policy and of all below it.
    fn tokens_of(&self, uid: Uuid) -> i64 {
        self.buckets.get(&Some(uid)).map_or(0, |bucket| bucket.in_flight().into())
    }

    /// How many levels there are from a policy on downwards, as far as it matters.
    fn levels_from(&self, uid: Uuid, above: usize) -> usize {
        if above > Parent::LEVELS_MAX {
            return 1;
        }
        let below = self.branch(uid).into_iter().flat_map(|branch| &branch.children);
        1 + below.map(|child| self.levels_from(*child, above + 1)).max().unwrap_or_default()
    }

    /// Whether what is counted below each policy is what is held there.
    #[cfg(debug_assertions)]
    pub(super) fn recount_below(&self) {
        for (policy, bucket) in &self.buckets {
            let (Some(uid), Some(branch)) = (policy, &bucket.branch) else { continue };
            let below: u32 = branch.children.iter().map(|child| self.tokens_of(*child)).sum::<i64>() as u32;
            assert_eq!(branch.below, below, "below the policy {uid}");
            let bounds = self.above(*policy).any(|(_, bucket)| bucket.has_limit());
            assert_eq!(branch.is_bounded, bounds, "above the policy {uid}");
            for child in &branch.children {
                assert_eq!(self.parent_of(*child), Some(*uid), "above the policy {child}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::super::{LiveToken, Phase};
    use super::*;
    use crate::handle::change::TokenRow;
    use crate::handle::testing::{live_run, policy};

    const NOW: Now = Now { wall_us: 1_000_000, mono_us: 1_000_000 };

    fn uid(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    fn of(n: u128, parent: Option<u128>) -> Policy {
        let above = |parent: u128| Parent {
            uid: uid(parent),
            namespace: "n".to_owned(),
            id: parent.to_string(),
            floor: 0,
            weight: 1,
        };
        let parent = parent.map(above).map(Box::new);
        Policy { uid: uid(n), parent, ..policy(10) }
    }

    fn hold(ledger: &mut Ledger, n: u128, index: u32) {
        let mut run = live_run(uid(n), 0);
        run.row.policy_uid = Some(uid(n));
        let key = (run.row.id, index);
        if !ledger.runs.contains(&run.row.id) {
            ledger.run_enters(run, NOW);
        }
        let token = TokenRow::acquired(key, 0);
        let phase = (Phase::Sending { placed: false }, 0);
        let load = ledger.runs.get(&key.0).unwrap().load_at_first();
        ledger.enter(key, LiveToken::new(token, Some(uid(n)), load, phase));
    }

    fn in_flight(ledger: &Ledger) -> Vec<u32> {
        ledger.buckets.values().map(Bucket::in_flight).collect()
    }

    #[test]
    fn a_token_counts_at_all_policies_above_in_whatever_order_they_become_known() {
        let policies = [of(1, None), of(2, Some(1)), of(3, Some(2)), of(4, Some(1))];
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1]] {
            let mut ledger = Ledger::new(NOW);
            for n in [1, 2, 3, 3, 4] {
                let index = u32::try_from(ledger.tokens_of(uid(n))).unwrap();
                hold(&mut ledger, n, index);
            }
            for at in order {
                ledger.learn(policies[at].clone(), NOW);
                ledger.recount();
            }
            assert_eq!(in_flight(&ledger), [0, 5, 3, 2, 1]);
            assert_eq!(ledger.with_all_below(uid(1)), [1, 2, 4, 3].map(uid));
            assert_eq!(ledger.way_up(uid(3)).map(|(uid, _)| uid).collect::<Vec<_>>(), [3, 2, 1].map(uid));
            // One goes elsewhere, with what it holds.
            ledger.learn(Policy { generation: 2, ..of(2, None) }, NOW);
            ledger.recount();
            assert_eq!(in_flight(&ledger), [0, 2, 3, 2, 1]);
        }
    }

    #[test]
    fn a_way_up_that_ends_where_it_began_lets_nothing_through_until_it_is_undone() {
        let mut ledger = Ledger::new(NOW);
        ledger.learn(of(1, Some(2)), NOW);
        ledger.learn(of(2, Some(1)), NOW);
        assert!(ledger.buckets[&Some(uid(2))].is_paused());
        assert_eq!(ledger.way_up(uid(1)).count(), 2);
        ledger.learn(of(1, None), NOW);
        ledger.recount();
        assert!(!ledger.buckets[&Some(uid(2))].is_paused());
        assert_eq!(ledger.way_up(uid(2)).map(|(uid, _)| uid).collect::<Vec<_>>(), [2, 1].map(uid));
        // Five levels are one too many.
        for (n, parent) in [(3, 2), (4, 3)] {
            ledger.learn(of(n, Some(parent)), NOW);
        }
        ledger.learn(of(1, Some(9)), NOW);
        assert!(ledger.buckets[&Some(uid(1))].is_paused() && ledger.tangled.contains(&uid(1)));
        ledger.learn(of(4, None), NOW);
        assert!(ledger.tangled.is_empty() && ledger.parent_of(uid(1)) == Some(uid(9)));
    }

    #[test]
    fn what_is_made_for_a_policy_below_goes_with_it() {
        let mut ledger = Ledger::new(NOW);
        ledger.learn(of(1, Some(2)), NOW);
        assert!(ledger.buckets[&Some(uid(2))].is_paused(), "nobody has told of it");
        ledger.forget_bucket(uid(1));
        assert!(!ledger.buckets.contains_key(&Some(uid(2))));
        ledger.learn(of(2, None), NOW);
        ledger.learn(of(1, Some(2)), NOW);
        ledger.forget_bucket(uid(1));
        assert!(
            ledger.branch(uid(2)).unwrap().children.is_empty() && !ledger.buckets[&Some(uid(2))].in_use()
        );
    }
}
