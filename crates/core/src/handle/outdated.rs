//! What reads of the store may show as it was before a commit, and for how long.
//!
//! In: what a commit changes. Out: whether a read that has begun already may show it as it was. Invariant: an entry stays until a
//! read begins after its commit is durable; no read looks at more than what goes.

use std::collections::{BTreeMap, VecDeque};

use super::steps::step;

/// Entries by their keys, each with the commit that makes it so.
#[derive(Debug)]
pub(super) struct Outdated<K, V = ()> {
    by_key: BTreeMap<K, (u64, V)>,
    /// In the order of the commits. An entry that has another commit by now, or has gone, is passed over.
    by_commit: VecDeque<(u64, K)>,
}

impl<K, V> Default for Outdated<K, V> {
    fn default() -> Self {
        Self { by_key: BTreeMap::new(), by_commit: VecDeque::new() }
    }
}

impl<K: Ord + Copy, V> Outdated<K, V> {
    /// Commits come in their order.
    pub(super) fn insert(&mut self, key: K, commit: u64, value: V) {
        self.by_key.insert(key, (commit, value));
        self.by_commit.push_back((commit, key));
    }

    /// Which commit it will be is not known yet.
    pub(super) fn insert_for_later(&mut self, key: K, value: V) {
        self.by_key.insert(key, (u64::MAX, value));
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.by_key.get(key).map(|(_, value)| value)
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.by_key.contains_key(key)
    }

    pub(super) fn remove(&mut self, key: &K) {
        self.by_key.remove(key);
    }

    /// A read begins: it shows what the first `durable` commits have made.
    pub(super) fn begin_read(&mut self, durable: u64) {
        while let Some((commit, key)) = self.by_commit.pop_front_if(|(commit, _)| *commit <= durable) {
            step();
            if self.by_key.get(&key).is_some_and(|(latest, _)| *latest == commit) {
                self.by_key.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_stays_until_a_read_begins_after_its_latest_commit() {
        let mut outdated = Outdated::default();
        outdated.insert('a', 1, 10);
        outdated.insert('b', 2, 20);
        outdated.insert('a', 3, 30);
        outdated.insert_for_later('c', 40);
        outdated.insert('d', 3, 50);
        outdated.remove(&'d');
        let is = |outdated: &Outdated<char, i32>| ['a', 'b', 'c', 'd'].map(|key| outdated.get(&key).copied());
        outdated.begin_read(1);
        assert_eq!(is(&outdated), [Some(30), Some(20), Some(40), None]);
        outdated.begin_read(2);
        assert_eq!(is(&outdated), [Some(30), None, Some(40), None]);
        outdated.insert('c', 4, 60);
        outdated.begin_read(3);
        assert_eq!(is(&outdated), [None, None, Some(60), None]);
        outdated.begin_read(4);
        assert!(outdated.by_key.is_empty() && outdated.by_commit.is_empty());
    }
}
