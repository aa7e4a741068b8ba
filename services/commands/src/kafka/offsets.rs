//! Decides which offsets may be committed.
//!
//! In: assignments of partitions, records that are read, records that have come to their ends, in any order. Out: for each
//! partition that has got further, the offset of the first record that has not ended, or the one after the last that was read.
//! Invariants: no offset is committed beyond a record that has not ended; what an assignment has read that is over counts for
//! nothing; offsets may have gaps.

use std::collections::{BTreeMap, BTreeSet};

use crate::message::Mark;

/// The partitions of a topic that this process reads.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    /// Assignments so far, of whatever partition.
    generation: u64,
    partitions: BTreeMap<i32, Partition>,
}

#[derive(Debug)]
struct Partition {
    generation: u64,
    /// What has been read, and has not ended.
    under_way: BTreeSet<i64>,
    /// After the last that was read; none before the first.
    next: Option<i64>,
    /// The latest of which the group knows; at first, where it has begun.
    committed: Option<i64>,
}

impl Partition {
    /// What a process should begin with that has this partition next.
    fn position(&self) -> Option<i64> {
        self.under_way.first().copied().or(self.next)
    }
}

impl Offsets {
    /// Partitions are read from now on, each anew. How many are, in all.
    pub(super) fn assigned(&mut self, partitions: &[i32]) -> usize {
        self.generation += 1;
        for partition in partitions {
            let new = Partition {
                generation: self.generation,
                under_way: BTreeSet::new(),
                next: None,
                committed: None,
            };
            self.partitions.insert(*partition, new);
        }
        self.partitions.len()
    }

    /// Partitions are read no more. How many are yet.
    pub(super) fn revoked(&mut self, partitions: &[i32]) -> usize {
        for partition in partitions {
            self.partitions.remove(partition);
        }
        self.partitions.len()
    }

    /// All partitions that are read.
    pub(super) fn partitions(&self) -> Vec<i32> {
        self.partitions.keys().copied().collect()
    }

    /// A record has been read. None where its partition is not this process's.
    pub(super) fn read(&mut self, partition: i32, offset: i64) -> Option<Mark> {
        let of = self.partitions.get_mut(&partition)?;
        of.under_way.insert(offset);
        // The group has begun with the first, whatever it calls that.
        of.committed.get_or_insert(offset);
        // Where the client has gone back, it reads what follows again.
        of.next = Some(offset.saturating_add(1));
        Some(Mark { partition, offset, generation: of.generation })
    }

    /// A record has come to its end.
    pub(super) fn ended(&mut self, mark: Mark) {
        if let Some(of) = self.partitions.get_mut(&mark.partition)
            && of.generation == mark.generation
        {
            of.under_way.remove(&mark.offset);
        }
    }

    /// Whether the assignment lasts in which a record was read.
    pub(super) fn is_current(&self, mark: Mark) -> bool {
        self.partitions.get(&mark.partition).is_some_and(|of| of.generation == mark.generation)
    }

    /// Partitions and offsets that are to be committed.
    pub(super) fn due(&self) -> Vec<(i32, i64)> {
        let due = |(partition, of): (&i32, &Partition)| {
            let position = of.position().filter(|at| of.committed != Some(*at))?;
            Some((*partition, position))
        };
        self.partitions.iter().filter_map(due).collect()
    }

    /// These have been committed.
    pub(super) fn committed(&mut self, offsets: &[(i32, i64)]) {
        for (partition, offset) in offsets {
            if let Some(of) = self.partitions.get_mut(partition) {
                of.committed = Some(*offset);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_first_that_has_not_ended_counts() {
        let mut offsets = Offsets::default();
        assert_eq!(offsets.read(0, 5), None, "it is not assigned");
        assert_eq!((offsets.assigned(&[0, 1]), offsets.partitions()), (2, vec![0, 1]));
        // Transactions and compaction leave gaps.
        let marks: Vec<Mark> = [5, 7, 8, 12].map(|offset| offsets.read(0, offset).unwrap()).to_vec();
        assert_eq!(offsets.due(), [], "nothing has ended");
        offsets.ended(marks[1]);
        offsets.ended(marks[2]);
        assert_eq!(offsets.due(), [], "5 is under way");
        offsets.ended(marks[0]);
        assert_eq!(offsets.due(), [(0, 12)]);
        offsets.committed(&[(0, 12)]);
        assert_eq!(offsets.due(), []);
        offsets.ended(marks[3]);
        offsets.ended(marks[3]);
        assert_eq!(offsets.due(), [(0, 13)]);
        assert_eq!(offsets.due(), [(0, 13)], "until that has been done");
    }

    #[test]
    fn what_an_assignment_has_read_that_is_over_counts_for_nothing() {
        let mut offsets = Offsets::default();
        offsets.assigned(&[0]);
        let old = offsets.read(0, 5).unwrap();
        assert_eq!((offsets.revoked(&[0]), offsets.is_current(old)), (0, false));
        offsets.ended(old);
        assert_eq!(offsets.due(), []);
        offsets.assigned(&[0]);
        let new = offsets.read(0, 5).unwrap();
        offsets.ended(old);
        assert_eq!((offsets.due(), offsets.is_current(old)), (vec![], false), "the same record, read anew");
        offsets.ended(new);
        assert_eq!(offsets.due(), [(0, 6)]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Assign(i32),
        Revoke(i32),
        /// Of a partition, so many offsets after the last.
        Read(i32, i64),
        /// One of those that have been read, whenever that was.
        End(usize),
        Commit,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => (0..3i32).prop_map(Step::Assign),
            1 => (0..3i32).prop_map(Step::Revoke),
            8 => (0..3i32, 1..4i64).prop_map(|(partition, gap)| Step::Read(partition, gap)),
            8 => any::<usize>().prop_map(Step::End),
            3 => Just(Step::Commit),
        ]
    }

    /// A group that knows only what is committed, and a process that has a partition or not.
    #[derive(Default)]
    struct Model {
        offsets: Offsets,
        committed: BTreeMap<i32, i64>,
        /// The last offset of each partition that is assigned.
        last: BTreeMap<i32, i64>,
        marks: Vec<Mark>,
        /// All that has come to its end, by whichever assignment, and all that has been read.
        ended: BTreeSet<(i32, i64)>,
        seen: BTreeSet<(i32, i64)>,
    }

    impl Model {
        fn play(&mut self, step: &Step) {
            match *step {
                Step::Assign(partition) if !self.last.contains_key(&partition) => {
                    self.offsets.assigned(&[partition]);
                    self.last.insert(partition, self.committed.get(&partition).map_or(-1, |at| at - 1));
                }
                Step::Revoke(partition) => {
                    self.offsets.revoked(&[partition]);
                    self.last.remove(&partition);
                }
                Step::Read(partition, gap) => {
                    let Some(last) = self.last.get_mut(&partition) else { return };
                    // What is in the topic already is read in its order; beyond that the topic grows.
                    let known = self.seen.range((partition, *last + 1)..=(partition, i64::MAX)).next();
                    let offset = known.map_or(*last + gap, |(_, offset)| *offset);
                    *last = offset;
                    self.seen.insert((partition, offset));
                    self.marks.extend(self.offsets.read(partition, offset));
                }
                Step::End(at) if !self.marks.is_empty() => {
                    let mark = self.marks.swap_remove(at % self.marks.len());
                    self.ended.insert((mark.partition, mark.offset));
                    self.offsets.ended(mark);
                }
                Step::Commit => {
                    let due = self.offsets.due();
                    self.committed.extend(due.iter().copied());
                    self.offsets.committed(&due);
                    assert_eq!(self.offsets.due(), []);
                }
                Step::Assign(_) | Step::End(_) => {}
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_committed_that_has_not_ended(steps in prop::collection::vec(step(), 1..200)) {
            let mut model = Model::default();
            for step in &steps {
                model.play(step);
                for (partition, offset) in &model.seen {
                    let is_behind = model.committed.get(partition).is_some_and(|at| offset < at);
                    prop_assert!(!is_behind || model.ended.contains(&(*partition, *offset)), "{partition}: {offset}");
                }
            }
            // Once all has ended, all of it is committed.
            for mark in std::mem::take(&mut model.marks) {
                model.offsets.ended(mark);
            }
            model.play(&Step::Commit);
            for (partition, last) in &model.last {
                let has_read = model.offsets.partitions.get(partition).is_some_and(|of| of.next.is_some());
                if has_read {
                    prop_assert_eq!(model.committed.get(partition).copied(), Some(last + 1));
                }
            }
        }
    }
}
