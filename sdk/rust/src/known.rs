//! Remembers events, so that each is worked on once. When there are too many, those are forgotten that were done first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::outcome::Release;

/// The most events that are remembered beyond those at work.
const KNOWN_MAX: usize = 10_000;

/// What is to be done with an event that comes.
#[derive(Debug)]
pub(crate) enum Verdict {
    Begin,
    /// It is being worked on, and passed over.
    Working,
    /// It has been worked on, and is only released again.
    Done(Release),
}

#[derive(Debug)]
struct Entry {
    /// The latest that came.
    attempt: u32,
    release: Option<Release>,
    /// Its place among those done.
    done: u64,
}

/// The events of a worker.
#[derive(Debug)]
pub(crate) struct Known {
    state: Mutex<State>,
    max: usize,
}

#[derive(Debug, Default)]
struct State {
    events: HashMap<String, Entry>,
    order: VecDeque<(u64, String)>,
    done: u64,
}

impl Default for Known {
    fn default() -> Self {
        Self::new(KNOWN_MAX)
    }
}

impl Known {
    fn new(max: usize) -> Self {
        Self { state: Mutex::default(), max }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an event that comes.
    pub(crate) fn come(&self, id: &str, attempt: u32) -> Verdict {
        let mut state = self.state();
        let fresh = Entry { attempt, release: None, done: 0 };
        let Some(entry) = state.events.get_mut(id) else {
            state.events.insert(id.to_owned(), fresh);
            return Verdict::Begin;
        };
        let verdict = match &entry.release {
            None => Verdict::Working,
            Some(release) if release.is_open() && attempt > entry.attempt => {
                // It was given back, or was to come again: this is the next attempt.
                *entry = fresh;
                return Verdict::Begin;
            }
            Some(release) => Verdict::Done(release.clone()),
        };
        entry.attempt = entry.attempt.max(attempt);
        verdict
    }

    /// Notes how the work on an event ended.
    pub(crate) fn ended(&self, id: &str, release: &Release) {
        let mut state = self.state();
        let state = &mut *state;
        let Some(entry) = state.events.get_mut(id) else { return };
        state.done += 1;
        (entry.release, entry.done) = (Some(release.clone()), state.done);
        state.order.push_back((state.done, id.to_owned()));
        while state.order.len() > self.max {
            let Some((done, first)) = state.order.pop_front() else { break };
            // One that has begun anew has another place, or none yet.
            if state.events.get(&first).is_some_and(|entry| entry.done == done) {
                state.events.remove(&first);
            }
        }
    }

    /// Has an event at work come again under the same attempt.
    pub(crate) fn forget(&self, id: &str) {
        let mut state = self.state();
        if state.events.get(id).is_some_and(|entry| entry.release.is_none()) {
            state.events.remove(id);
        }
    }

    /// The latest attempt that came of an event; the one given where the event has been forgotten.
    pub(crate) fn attempt(&self, id: &str, otherwise: u32) -> u32 {
        self.state().events.get(id).map_or(otherwise, |entry| entry.attempt.max(otherwise))
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Verdict};
    use crate::outcome::Release;

    #[test]
    fn the_ones_that_were_done_first_are_forgotten() {
        let known = Known::new(2);
        for id in ["a", "b", "c"] {
            assert!(matches!(known.come(id, 1), Verdict::Begin));
        }
        for id in ["a", "b", "c"] {
            known.ended(id, &Release::default());
        }
        let (events, order) = {
            let state = known.state();
            (state.events.len(), state.order.len())
        };
        assert_eq!((events, order), (2, 2));
        assert!(matches!(known.come("c", 2), Verdict::Done(_)));
        assert!(matches!(known.come("a", 2), Verdict::Begin));
    }

    #[test]
    fn one_that_is_forgotten_at_work_begins_again_at_any_attempt() {
        let known = Known::new(1);
        assert!(matches!(known.come("a", 1), Verdict::Begin));
        known.forget("a");
        assert!(matches!(known.come("a", 1), Verdict::Begin));
        known.ended("a", &Release::default());
        known.forget("a");
        assert!(matches!(known.come("a", 1), Verdict::Done(_)));
    }

    #[test]
    fn one_that_was_given_back_begins_again_at_its_next_attempt_only() {
        let known = Known::new(1);
        assert!(matches!(known.come("a", 1), Verdict::Begin));
        assert!(matches!(known.come("a", 2), Verdict::Working));
        assert_eq!(known.attempt("a", 1), 2);
        known.ended("a", &Release::retry(2, "no"));
        assert!(matches!(known.come("a", 2), Verdict::Done(_)));
        assert!(matches!(known.come("a", 3), Verdict::Begin));
        // While it is at work, the place that it had among those done is taken by others.
        known.come("b", 1);
        known.ended("b", &Release::default());
        assert!(matches!(known.come("a", 3), Verdict::Working));
    }
}
