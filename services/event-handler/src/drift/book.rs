//! Remembers which schedules are to be looked at, as runs of theirs have ended, and which of them take longer.
//!
//! In: runs that ended well, queue shards that come and go, what was decided. Out: the schedule that is looked at next, and those
//! that take longer. Invariants: a schedule is noted once, however many of its runs end; of what is noted and of what is kept, a
//! namespace has three quarters of what the others leave at most; namespaces take turns. What finds no place is noted again when
//! its next run ends. Not here: reading, and what takes longer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use tollgate_core::model::{DAY_US, MINUTE_US, Now, Run};
use tollgate_core::trouble::Drifting;
use tollgate_core::trouble::drift::Took;
use uuid::Uuid;

/// How many schedules are noted at most. They take some 3 MB.
const NOTED_MAX: usize = 10_000;
/// How many that take longer are kept.
const KEPT_MAX: usize = 2_000;
/// The part of what is free that a namespace leaves to others: one in this number.
const LEFT_TO_OTHERS: usize = 4;
/// After so long those that are kept are looked at again, as they may have gone unnoticed.
const AGAIN_US: i64 = 10 * MINUTE_US;

/// A schedule that is to be looked at, and the last of its runs that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) shard: u16,
    pub(super) namespace: String,
    pub(super) schedule: String,
    pub(super) uid: Uuid,
    pub(super) generation: i64,
    pub(super) launch_us: i64,
    /// It ended before its shard came here.
    is_old: bool,
}

impl Note {
    /// Of a run that counts.
    pub(super) fn of(run: &Run) -> Option<Self> {
        Took::of(run)?;
        Some(Self {
            shard: run.shard,
            namespace: run.namespace.clone(),
            schedule: run.schedule_id.clone(),
            uid: run.schedule_uid,
            generation: run.generation,
            launch_us: run.launch_us,
            is_old: false,
        })
    }
}

/// What is noted of one namespace.
#[derive(Debug, Default)]
struct Lane {
    order: VecDeque<Uuid>,
    notes: BTreeMap<Uuid, Note>,
}

impl Lane {
    fn retain(&mut self, keep: impl Fn(&Note) -> bool) {
        self.notes.retain(|_, note| keep(note));
        self.order.retain(|uid| self.notes.contains_key(uid));
    }
}

#[derive(Debug)]
struct Kept {
    note: Note,
    drifting: Drifting,
    /// When it was looked at, or noted again (monotonic).
    looked_us: i64,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Book {
    lanes: BTreeMap<String, Lane>,
    /// How many are noted.
    noted: usize,
    /// The namespace that had the last turn.
    last: String,
    kept: BTreeMap<Uuid, Kept>,
    /// When one found no place among these (monotonic).
    cut_us: Option<i64>,
    /// Shards of which is noted what had ended before they came here.
    read: BTreeSet<u16>,
}

impl Book {
    /// A run of a schedule has ended. The later one counts.
    pub(super) fn note(&mut self, note: Note) {
        let lane = self.lanes.entry(note.namespace.clone()).or_default();
        if let Some(known) = lane.notes.get_mut(&note.uid) {
            if note.launch_us >= known.launch_us {
                *known = Note { is_old: known.is_old, ..note };
            }
            return;
        }
        let others = self.noted - lane.notes.len();
        if has_room(lane.notes.len(), NOTED_MAX.saturating_sub(others)) {
            lane.order.push_back(note.uid);
            lane.notes.insert(note.uid, note);
            self.noted += 1;
        } else if lane.notes.is_empty() {
            self.lanes.remove(&note.namespace);
        }
    }

    /// A schedule has been deleted, or lives in another shard.
    pub(super) fn forget(&mut self, shard: u16, uid: Uuid) {
        let is_it = |note: &Note| note.uid == uid && note.shard == shard;
        self.kept.retain(|_, kept| !is_it(&kept.note));
        let is_noted = |lane: &Lane| lane.notes.get(&uid).is_some_and(is_it);
        if self.lanes.values().any(is_noted) {
            self.retain(|note| !is_it(note));
        }
    }

    /// Forgets what is of other shards than these, and what took longer a day ago; notes again what has not been looked at for
    /// a while.
    pub(super) fn keep_only(&mut self, shards: &[u16], now: Now) {
        let is_here = |shard: u16| shards.binary_search(&shard).is_ok();
        if self.read.iter().any(|shard| !is_here(*shard)) {
            self.retain(|note| is_here(note.shard));
        }
        self.read.retain(|shard| is_here(*shard));
        let day_us = now.wall_us - DAY_US;
        self.kept.retain(|_, kept| is_here(kept.note.shard) && kept.drifting.ended_us > day_us);
        let mut again = Vec::new();
        for kept in self.kept.values_mut().filter(|kept| now.mono_us - kept.looked_us >= AGAIN_US) {
            kept.looked_us = now.mono_us;
            again.push(kept.note.clone());
        }
        again.into_iter().for_each(|note| self.note(note));
    }

    fn retain(&mut self, keep: impl Fn(&Note) -> bool) {
        self.lanes.values_mut().for_each(|lane| lane.retain(&keep));
        self.lanes.retain(|_, lane| !lane.notes.is_empty());
        self.noted = self.lanes.values().map(|lane| lane.notes.len()).sum();
    }

    /// One of these shards of which is not noted yet what ended before it came here.
    pub(super) fn unread(&self, shards: &[u16]) -> Option<u16> {
        shards.iter().copied().find(|shard| !self.read.contains(shard))
    }

    /// These runs of it had ended.
    pub(super) fn read(&mut self, shard: u16, ended: impl Iterator<Item = Note>) {
        self.read.insert(shard);
        ended.for_each(|note| self.note(Note { is_old: true, ..note }));
    }

    /// The schedule that is looked at next.
    pub(super) fn take(&mut self) -> Option<Note> {
        let after = (Bound::Excluded(self.last.clone()), Bound::Unbounded);
        let next = self.lanes.range(after).next().or_else(|| self.lanes.iter().next());
        self.last = next.map(|(namespace, _)| namespace.clone())?;
        let lane = self.lanes.get_mut(&self.last)?;
        let note = lane.order.pop_front().and_then(|uid| lane.notes.remove(&uid));
        if lane.notes.is_empty() {
            self.lanes.remove(&self.last);
        }
        self.noted -= usize::from(note.is_some());
        note
    }

    /// It has been looked at.
    pub(super) fn judged(&mut self, note: Note, drifting: Option<Drifting>, mono_us: i64) {
        let Some(drifting) = drifting else {
            self.kept.remove(&note.uid);
            return;
        };
        let own = self.kept.values().filter(|kept| kept.note.namespace == note.namespace).count();
        let others = self.kept.len() - own;
        if self.kept.contains_key(&note.uid) || has_room(own, KEPT_MAX.saturating_sub(others)) {
            self.kept.insert(note.uid, Kept { note, drifting, looked_us: mono_us });
        } else {
            self.cut_us = Some(mono_us);
        }
    }

    /// Those of these shards that take longer.
    pub(super) fn drifting(&self, shards: &[u16]) -> Vec<Drifting> {
        let here = self.kept.values().filter(|kept| shards.binary_search(&kept.note.shard).is_ok());
        here.map(|kept| kept.drifting.clone()).collect()
    }

    /// Whether one of late has found no place among them.
    pub(super) fn is_cut(&self, mono_us: i64) -> bool {
        self.cut_us.is_some_and(|cut_us| mono_us - cut_us < AGAIN_US)
    }

    /// Whether something that ended before one of these shards came here has not been looked at.
    pub(super) fn is_settling(&self, shards: &[u16]) -> bool {
        let is_old = |note: &Note| note.is_old && shards.binary_search(&note.shard).is_ok();
        self.unread(shards).is_some() || self.lanes.values().any(|lane| lane.notes.values().any(is_old))
    }
}

/// Whether a namespace that has so many may have one more, where the others leave so much.
fn has_room(own: usize, free: usize) -> bool {
    own < free - free / LEFT_TO_OTHERS
}

#[cfg(test)]
mod tests {
    use tollgate_core::model::{RunState, SECOND_US};
    use tollgate_core::trouble::drift::Drift;

    use super::*;

    fn note(namespace: &str, number: u128, launch_us: i64) -> Note {
        let uid = Uuid::from_u128(number);
        let (namespace, schedule) = (namespace.to_owned(), number.to_string());
        Note { shard: 5, namespace, schedule, uid, generation: 1, launch_us, is_old: false }
    }

    fn drifting(note: &Note, ended_us: i64) -> Option<Drifting> {
        Some(Drifting {
            namespace: note.namespace.clone(),
            schedule: note.schedule.clone(),
            policy: String::new(),
            ended_us,
            drift: Drift::Sudden { last_us: 9 * SECOND_US, median_us: SECOND_US, runs: 5 },
        })
    }

    fn now(us: i64) -> Now {
        Now { wall_us: us, mono_us: us }
    }

    #[test]
    fn thousands_of_one_namespace_leave_room_and_turns_to_another() {
        let mut book = Book::default();
        (0..20_000).for_each(|number| book.note(note("many", number, 1)));
        assert_eq!(book.noted, 7_500, "three quarters of 10,000");
        (20_000..20_010).for_each(|number| book.note(note("few", number, 1)));
        assert_eq!(book.noted, 7_510);
        // A round of reads.
        let first: Vec<Note> = (0..50).filter_map(|_| book.take()).collect();
        assert_eq!(first.iter().filter(|note| note.namespace == "few").count(), 10);
        let many: Vec<u128> =
            first.iter().filter(|note| note.namespace == "many").map(|note| note.uid.as_u128()).collect();
        assert_eq!(many, (0..40).collect::<Vec<_>>(), "in their order");
        let rest = std::iter::from_fn(|| book.take()).count();
        assert_eq!((rest, book.noted, book.lanes.len()), (7_460, 0, 0));
    }

    #[test]
    fn those_of_one_namespace_that_take_longer_leave_room_to_another() {
        let mut book = Book::default();
        for number in 0..3_000 {
            let note = note("many", number, 1);
            let drifting = drifting(&note, 1);
            book.judged(note, drifting, 7);
        }
        assert_eq!((book.kept.len(), book.is_cut(8), book.is_cut(7 + AGAIN_US)), (1_500, true, false));
        let few = note("few", 5_000, 1);
        let told = drifting(&few, 1);
        book.judged(few, told.clone(), 8);
        assert!(told.is_some_and(|told| book.drifting(&[5]).contains(&told)));
        book.judged(note("many", 1_499, 2), None, 9);
        assert_eq!(book.kept.len(), 1_500, "a place has come free");
    }

    #[test]
    fn a_schedule_is_noted_once_and_its_later_run_counts() {
        let mut book = Book::default();
        for launch_us in [3, 9, 6] {
            book.note(note("a", 1, launch_us));
        }
        assert_eq!((book.take(), book.take()), (Some(note("a", 1, 9)), None));
        let run =
            Run { state: RunState::Finished, started_us: Some(1), finished_us: Some(2), ..Run::default() };
        assert!(Note::of(&run).is_some() && Note::of(&Run { started_us: None, ..run }).is_none());
    }

    #[test]
    fn what_goes_is_forgotten() {
        let mut book = Book::default();
        for number in 0..4 {
            let note = note("a", number, 1);
            let drifting = drifting(&note, 10);
            book.note(note.clone());
            book.judged(note, drifting, 0);
        }
        book.forget(6, Uuid::from_u128(0));
        assert_eq!((book.noted, book.kept.len()), (4, 4), "another shard's");
        book.forget(5, Uuid::from_u128(0));
        assert_eq!((book.noted, book.kept.len()), (3, 3));
        let uids: Vec<u128> =
            [book.take(), book.take()].into_iter().flatten().map(|note| note.uid.as_u128()).collect();
        assert_eq!(uids, [1, 2]);
        book.read(5, std::iter::empty());
        book.keep_only(&[5], now(20));
        assert_eq!((book.noted, book.kept.len()), (1, 3));
        assert!(book.drifting(&[4, 6]).is_empty());
        book.keep_only(&[4, 6], now(20));
        assert_eq!((book.noted, book.kept.len(), book.unread(&[5])), (0, 0, Some(5)));
    }

    #[test]
    fn what_is_kept_is_looked_at_again_and_ends_after_a_day() {
        let mut book = Book::default();
        let one = note("a", 1, 1);
        let told = drifting(&one, 10);
        book.judged(one.clone(), told, 0);
        book.keep_only(&[5], now(AGAIN_US - 1));
        assert_eq!(book.take(), None);
        book.keep_only(&[5], now(AGAIN_US));
        book.keep_only(&[5], now(AGAIN_US + 1));
        assert_eq!((book.take(), book.take()), (Some(one), None));
        book.keep_only(&[5], now(DAY_US + 9));
        assert_eq!(book.kept.len(), 1);
        book.keep_only(&[5], now(DAY_US + 10));
        assert!(book.kept.is_empty());
    }

    #[test]
    fn a_shard_settles_until_what_had_ended_is_looked_at() {
        let mut book = Book::default();
        assert!(!book.is_settling(&[]) && book.is_settling(&[5]));
        book.read(5, [note("a", 1, 1), note("a", 2, 1)].into_iter());
        assert_eq!((book.is_settling(&[5]), book.unread(&[5])), (true, None));
        // A later run of it ends meanwhile, and one of another.
        book.note(note("a", 1, 2));
        book.note(note("a", 3, 2));
        assert_eq!(book.take().map(|note| note.launch_us), Some(2));
        assert!(book.is_settling(&[5]) && !book.is_settling(&[]));
        assert_eq!(book.take().map(|note| note.is_old), Some(true));
        assert!(!book.is_settling(&[5]));
        book.keep_only(&[], now(1));
        assert!(book.is_settling(&[5]), "it may come again");
    }
}
