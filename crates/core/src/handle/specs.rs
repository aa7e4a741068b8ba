//! What runs share: one spec for all runs of a generation of a schedule.
//!
//! In: specs that were read, runs that enter and leave. Out: the spec of a run. Invariant: a spec stays as long as a run has it,
//! or until the next read begins; nobody looks at the others to find one that goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::steps::Counted as _;
use crate::model::RunSpec;

/// A schedule and its generation.
pub(super) type SpecKey = (Uuid, i64);

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Specs {
    /// With how many runs have each.
    by_key: BTreeMap<SpecKey, (Arc<RunSpec>, u32)>,
    /// Those that no run has.
    idle: BTreeSet<SpecKey>,
}

impl Specs {
    /// They have been read, for runs that may come. What is known stays as it is.
    pub(super) fn keep(&mut self, specs: Vec<RunSpec>) {
        for spec in specs {
            let key = (spec.schedule_uid, spec.generation);
            self.by_key.entry(key).or_insert_with(|| {
                self.idle.insert(key);
                (Arc::new(spec), 0)
            });
        }
    }

    pub(super) fn get(&self, key: &SpecKey) -> Option<&Arc<RunSpec>> {
        self.by_key.get(key).map(|(spec, _)| spec)
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// A run has it from now on.
    pub(super) fn share(&mut self, key: &SpecKey) -> Option<Arc<RunSpec>> {
        let (spec, runs) = self.by_key.get_mut(key)?;
        *runs += 1;
        if *runs == 1 {
            self.idle.remove(key);
        }
        Some(spec.clone())
    }

    /// A run that had it is gone.
    pub(super) fn give_back(&mut self, key: SpecKey) {
        let Some((_, runs)) = self.by_key.get_mut(&key) else { return };
        *runs -= 1;
        if *runs == 0 {
            self.idle.insert(key);
        }
    }

    /// A read begins: it brings what is needed and not here.
    pub(super) fn begin_read(&mut self) {
        for key in std::mem::take(&mut self.idle).iter().counted() {
            self.by_key.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::testing::live_run;

    #[test]
    fn a_spec_stays_as_long_as_a_run_has_it_or_until_the_next_read() {
        let mut specs = Specs::default();
        let spec = |number| (*live_run(Uuid::from_u128(number), 0).spec).clone();
        let [a, b] = [1, 2].map(|number| (Uuid::from_u128(number), 1));
        specs.keep(vec![spec(1), spec(2), spec(1)]);
        assert!(specs.share(&a).is_some() && specs.share(&a).is_some());
        specs.begin_read();
        assert!(specs.get(&a).is_some() && specs.get(&b).is_none());
        specs.give_back(a);
        specs.begin_read();
        specs.give_back(a);
        specs.keep(vec![spec(1)]);
        assert_eq!(specs.len(), 1);
        assert!(specs.share(&a).is_some(), "it is wanted again before a read begins");
        specs.begin_read();
        specs.give_back(a);
        specs.begin_read();
        assert_eq!((specs.len(), specs.share(&a)), (0, None));
    }
}
