//! Runs whose items have keys, under a policy that counts by key: their events start key by key.
//!
//! In: the keys of items, page by page. Out: which page is needed next; of each key, the next event. Invariants: what a key holds
//! back holds back no other key of the same run; what has not started stands in the store.

use super::exchange::KeysWanted;
use super::shard::Shard;
use crate::model::{Now, RunId};

impl Shard {
    /// The pages of items of which the machine needs the keys, each once until it is answered. To be asked for after every
    /// poll, also while a commit is under way.
    pub fn keys_wanted(&mut self) -> Vec<KeysWanted> {
        Vec::new()
    }

    /// The keys of the items of a page, from this index on, one each; empty for an item without one.
    pub fn keys_read(&mut self, _run: RunId, _first_index: u32, _keys: Vec<String>, _now: Now) {}

    /// The page that holds an index cannot be read: that event counts as one without a key.
    pub fn keys_unreadable(&mut self, _run: RunId, _index: u32, _now: Now) {}
}
