//! Decides what of a batch is sent, and in which order: pure, so that any order of arrival can be tried.
//!
//! In: what each command is about, and its revision. Out: groups, one for each resource, which may be carried out side by side.
//! A group is ladders, one after the other; of a ladder the first command is sent. Where that is done, those below it are
//! outdated; where it is refused, the next one is sent. Invariants: every command is on one ladder; the highest revision of a
//! resource, or of its pause, is on top; an apply comes before what needs the resource, and a deletion after it.

use std::collections::BTreeMap;

use crate::command::{Facet, Key};

/// What is known of one command.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'c> {
    pub(crate) key: &'c Key,
    pub(crate) facet: Facet,
    pub(crate) revision: i64,
}

/// Commands by their places in the batch, the highest revision first.
pub(crate) type Ladder = Vec<usize>;

/// The ladders of each resource, in the order of the first command of each.
pub(crate) fn arrange(entries: &[Entry<'_>]) -> Vec<Vec<Ladder>> {
    let mut groups: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        groups.entry(entry.key).or_default().push(place);
    }
    let mut arranged: Vec<(usize, Vec<Ladder>)> =
        groups.into_values().map(|places| (places[0], ladders(entries, &places))).collect();
    arranged.sort_by_key(|(first, _)| *first);
    arranged.into_iter().map(|(_, ladders)| ladders).collect()
}

fn ladders(entries: &[Entry<'_>], places: &[usize]) -> Vec<Ladder> {
    let of = |wanted: &[Facet]| -> Ladder {
        let mut ladder: Ladder =
            places.iter().copied().filter(|place| wanted.contains(&entries[*place].facet)).collect();
        // Of equal ones the first that came stays the first.
        ladder.sort_by_key(|place| std::cmp::Reverse(entries[*place].revision));
        ladder
    };
    let body = of(&[Facet::Body, Facet::Deletion]);
    let pause = of(&[Facet::Pause]);
    let others = of(&[Facet::None]).into_iter().map(|place| vec![place]);
    let deletes = body.first().is_some_and(|top| entries[*top].facet == Facet::Deletion);
    let all: Vec<Ladder> = if deletes {
        // What is asked of a resource before it goes has its chance; a pause is judged by the deletion's revision.
        others.chain([body, pause]).collect()
    } else {
        [body, pause].into_iter().chain(others).collect()
    };
    all.into_iter().filter(|ladder| !ladder.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::TestCaseError;

    use super::*;

    fn key(id: u8) -> Key {
        Key { collection: "schedules", id: format!("s{id}") }
    }

    /// A server as it is: the latest revision of each resource and of its pause, and whether it was a deletion.
    #[derive(Debug, Default)]
    struct World(BTreeMap<(Key, bool), (i64, bool)>);

    impl World {
        /// What is not the latest changes nothing; a deletion counts for the pause, too.
        fn change(&mut self, entry: &Entry<'_>) {
            let deletes = entry.facet == Facet::Deletion;
            if self.put(entry, entry.facet == Facet::Pause, deletes) && deletes {
                self.put(entry, true, true);
            }
        }

        fn put(&mut self, entry: &Entry<'_>, pause: bool, deletes: bool) -> bool {
            let latest = self.0.entry((entry.key.clone(), pause)).or_default();
            let counts = latest.0 < entry.revision;
            if counts {
                *latest = (entry.revision, deletes);
            }
            counts
        }
    }

    fn commands() -> impl Strategy<Value = Vec<(u8, u8, i64)>> {
        prop::collection::vec((0_u8..3, 0_u8..4, 1_i64..12), 1..60)
    }

    fn facet(of: u8) -> Facet {
        [Facet::Body, Facet::Deletion, Facet::Pause, Facet::None][usize::from(of)]
    }

    /// One revision is one change: by its number it is a deletion or not.
    fn told(given: &[(u8, u8, i64)]) -> Vec<(Key, Facet, i64)> {
        let one = |(id, of, revision): &(u8, u8, i64)| {
            let facet = match facet(*of) {
                Facet::Body | Facet::Deletion if revision % 3 == 0 => Facet::Deletion,
                Facet::Body | Facet::Deletion => Facet::Body,
                other => other,
            };
            (key(*id), facet, *revision)
        };
        given.iter().map(one).collect()
    }

    /// Each command has one place, below none that is lower.
    fn check_places(entries: &[Entry<'_>], ladders: &[Ladder]) -> Result<(), TestCaseError> {
        let mut seen = vec![false; entries.len()];
        for ladder in ladders {
            let top = &entries[ladder[0]];
            for place in ladder {
                prop_assert!(!std::mem::replace(&mut seen[*place], true), "{place} is there twice");
                let entry = &entries[*place];
                prop_assert!(entry.key == top.key && entry.revision <= top.revision);
            }
        }
        prop_assert!(seen.into_iter().all(|seen| seen), "each has its place");
        Ok(())
    }

    /// What stays of one facet is the highest revision; a pause may have been ended by a later deletion.
    fn check_end(
        told: &[(Key, Facet, i64)],
        world: &World,
        key: &Key,
        pause: bool,
    ) -> Result<(), TestCaseError> {
        let latest = world.0.get(&(key.clone(), pause)).copied().unwrap_or_default();
        let is_of = |of: Facet| of != Facet::None && (of == Facet::Pause) == pause;
        let all = told.iter().filter(|(other, of, _)| other == key && is_of(*of));
        let best = all.map(|(_, of, revision)| (*revision, *of == Facet::Deletion)).max();
        let best = best.unwrap_or_default();
        let is_ended = pause && latest.1 && latest.0 >= best.0;
        prop_assert!(latest == best || is_ended, "{key:?}: {latest:?} for {best:?}");
        Ok(())
    }

    proptest! {
        /// In whatever order commands and their repeats come, and however they are cut into batches, what stays is the highest
        /// revision of each resource and of its pause; each command has one outcome.
        #[test]
        fn the_highest_revision_stays(
            given in commands(),
            cut in 1_usize..20,
            repeats in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
        ) {
            let mut told = told(&given);
            let again: Vec<_> = repeats.iter().map(|at| told[at.index(told.len())].clone()).collect();
            told.extend(again);
            let mut world = World::default();
            for batch in told.chunks(cut) {
                let entries: Vec<Entry<'_>> = batch
                    .iter()
                    .map(|(key, facet, revision)| Entry { key, facet: *facet, revision: *revision })
                    .collect();
                let ladders: Vec<Ladder> = arrange(&entries).into_iter().flatten().collect();
                check_places(&entries, &ladders)?;
                for top in ladders.iter().map(|ladder| &entries[ladder[0]]).filter(|top| top.facet != Facet::None) {
                    world.change(top);
                }
            }
            for (key, facet, _) in told.iter().filter(|(_, facet, _)| *facet != Facet::None) {
                check_end(&told, &world, key, *facet == Facet::Pause)?;
            }
        }
    }

    #[test]
    fn an_apply_comes_before_what_needs_it_and_a_deletion_after() {
        let key = key(1);
        let entry = |facet, revision| Entry { key: &key, facet, revision };
        let applied = [entry(Facet::None, 0), entry(Facet::Pause, 3), entry(Facet::Body, 2)];
        assert_eq!(arrange(&applied), [[vec![2], vec![1], vec![0]]]);
        let deleted = [
            entry(Facet::Deletion, 5),
            entry(Facet::None, 0),
            entry(Facet::Body, 2),
            entry(Facet::Pause, 9),
            entry(Facet::None, 0),
        ];
        assert_eq!(arrange(&deleted), [[vec![1], vec![4], vec![0, 2], vec![3]]]);
    }
}
