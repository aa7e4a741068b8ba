//! Decides how many things that last a visitor may have open: pages that are told what happens, uploads.
//!
//! Invariants: one visitor takes no place from another beyond its own bound; a place is given back when it is dropped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// So many places of one visitor, by its key, and of all: of everybody where nobody logs in. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Places {
    each_max: usize,
    all_max: usize,
    taken: Arc<Mutex<HashMap<String, usize>>>,
}

/// A place that is taken; given back when it is dropped.
pub(crate) struct Place {
    of: String,
    taken: Arc<Mutex<HashMap<String, usize>>>,
}

impl Places {
    pub(crate) fn new(each_max: usize, all_max: usize) -> Self {
        Self { each_max, all_max, taken: Arc::default() }
    }

    /// None where the visitor has too many, or all visitors together.
    pub(crate) fn take(&self, key_id: &str) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(key_id).copied().unwrap_or_default();
        if own >= self.each_max || taken.values().sum::<usize>() >= self.all_max {
            return None;
        }
        taken.insert(key_id.to_owned(), own + 1);
        Some(Place { of: key_id.to_owned(), taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.of) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.of)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_visitor_s_pages_leave_room_for_others() {
        const EACH: usize = 100;
        const ALL: usize = 2_000;
        let places = Places::new(EACH, ALL);
        let mut open: Vec<Place> = std::iter::from_fn(|| places.take("tgk_1")).collect();
        assert_eq!(open.len(), EACH);
        let other = places.take("tgk_2");
        assert!(other.is_some());
        open.pop();
        let again = places.take("tgk_1");
        assert!(again.is_some() && places.take("tgk_1").is_none());
        drop((open, other, again));
        assert!(places.taken.lock().unwrap_or_else(PoisonError::into_inner).is_empty(), "nothing is kept");
        let all: Vec<Place> =
            (0..ALL).filter_map(|number| places.take(&(number / EACH).to_string())).collect();
        assert_eq!(all.len(), ALL);
        assert!(places.take("one more").is_none());
    }
}
