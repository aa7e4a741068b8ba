//! Runs whose items have keys, under a policy that counts by key, or say how many tokens their events take: their events start
//! key by key.
//!
//! In: the keys and the units of items, page by page. Out: which page is needed next; of each key, the next event. Invariants:
//! what a key holds back holds back no other key of the same run; an event whose key has been read stands in the line of that
//! key until it starts; what has not started of what has been sorted is told by bits, which are stored with each commit.
//!
//! Keys are read a little ahead, and further only while nothing that is known may start. After a takeover, the keys of what has
//! been sorted, and has not started, are read again. Not here: who is next ([`super::queue`]).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::change::{UNSTARTED_EVENTS, Unstarted};
use super::keys::{KeyOf, Load};
use super::live::LiveRun;
use super::steps::Counted as _;
use crate::model::RunId;

/// With fewer known events than this, a run has more keys read.
const KNOWN_MIN: u32 = 2_000;

/// What is known of the keys of a run.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    lines: BTreeMap<u128, KeyLine>,
    /// Which of the events that have been sorted have not started, by the first index of each stretch; none that is all zeros.
    stretches: BTreeMap<u32, Stretch>,
    /// How many events stand in lines.
    known: u32,
    /// In how many ranges.
    ranges: usize,
    /// Below it, the keys of all events that have not started are known.
    read_to: u32,
    /// Keys of events that have not been sorted, from the first of these on: they are not due.
    ahead: VecDeque<Load>,
}

/// A bit an event, and how many are set.
#[derive(Debug)]
struct Stretch {
    bits: Vec<u8>,
    set: u32,
}

/// Events of one key that have not started.
#[derive(Debug)]
struct KeyLine {
    key: KeyOf,
    /// Ascending.
    ranges: VecDeque<Alike>,
    events: u32,
}

/// Events of one key that follow one another, and take as many tokens each.
#[derive(Debug)]
struct Alike {
    indexes: Range<u32>,
    units: u32,
}

/// The next event of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub index: u32,
    pub load: Load,
    /// The last that is known of its key.
    pub is_last: bool,
}

impl Stretch {
    const BYTES: usize = UNSTARTED_EVENTS as usize / 8;

    fn place(index: u32) -> (usize, u8) {
        let at = index % UNSTARTED_EVENTS;
        (at as usize / 8, 1 << (at % 8))
    }

    fn has(&self, index: u32) -> bool {
        let (byte, bit) = Self::place(index);
        self.bits.get(byte).is_some_and(|bits| bits & bit != 0)
    }

    fn turn(&mut self, index: u32, on: bool) {
        let (byte, bit) = Self::place(index);
        if self.has(index) != on
            && let Some(bits) = self.bits.get_mut(byte)
        {
            *bits ^= bit;
            self.set = if on { self.set + 1 } else { self.set - 1 };
        }
    }
}

/// The first index of the stretch that holds an index.
pub(super) fn stretch_of(index: u32) -> u32 {
    index - index % UNSTARTED_EVENTS
}

impl Sorted {
    /// Of a run that starts its events key by key from this index on.
    pub(super) fn from(index: u32) -> Self {
        Self { read_to: index, ..Self::default() }
    }

    /// As it was stored: no key is known.
    pub(super) fn restored(stored: Vec<Unstarted>, sorted_to: u32) -> Self {
        let mut sorted = Self::default();
        for Unstarted { first, mut bits, .. } in stored {
            bits.resize(Stretch::BYTES, 0);
            let set = bits.iter().map(|byte| byte.count_ones()).sum();
            sorted.stretches.insert(first, Stretch { bits, set });
        }
        sorted.read_to = sorted.next_left(0, sorted_to);
        sorted
    }

    /// The first event from this index on, below `sorted_to`, that has not started; else that.
    fn next_left(&self, from: u32, sorted_to: u32) -> u32 {
        for (first, stretch) in self.stretches.range(stretch_of(from)..) {
            let indexes = from.max(*first)..sorted_to.min(first + UNSTARTED_EVENTS);
            if let Some(index) = indexes.into_iter().find(|index| stretch.has(*index)) {
                return index;
            }
        }
        sorted_to
    }

    /// Whether an event that has been sorted has not started.
    pub(super) fn is_unstarted(&self, index: u32) -> bool {
        self.stretches.get(&stretch_of(index)).is_some_and(|stretch| stretch.has(index))
    }

    /// How many events stand in lines.
    pub(super) fn known(&self) -> u32 {
        self.known
    }

    /// In how many ranges these are.
    pub(super) fn ranges(&self) -> usize {
        self.ranges
    }

    /// The keys of which events are known.
    pub(super) fn keys(&self) -> impl Iterator<Item = &KeyOf> {
        self.lines.values().counted().map(|line| &line.key)
    }

    /// Each key with its known events, and the first of them.
    pub(super) fn lines(&self) -> impl Iterator<Item = (&KeyOf, u32, u32)> {
        let first = |line: &KeyLine| line.ranges.front().map_or(0, |alike| alike.indexes.start);
        self.lines.values().counted().map(move |line| (&line.key, line.events, first(line)))
    }

    /// The key that this stands for, where events of it are known, and how many.
    pub(super) fn line(&self, key: u128) -> Option<(&KeyOf, u32)> {
        self.lines.get(&key).map(|line| (&line.key, line.events))
    }

    /// The key that this stands for, where events of it are known, and how many tokens the next of them takes.
    pub(super) fn next_of(&self, key: u128) -> Option<(&KeyOf, u32)> {
        let line = self.lines.get(&key)?;
        Some((&line.key, line.ranges.front()?.units))
    }

    /// As what an event counts that stands in a line. Looks at all lines: for people.
    pub(super) fn load_of(&self, index: u32) -> Option<Load> {
        self.lines.values().counted().find_map(|line| {
            let at = line.ranges.partition_point(|alike| alike.indexes.end <= index);
            let alike = line.ranges.get(at).filter(|alike| alike.indexes.contains(&index))?;
            Some(Load { key: line.key.clone(), units: alike.units })
        })
    }

    /// The first event whose key is to be read; none where there is none, or what has been read is not due.
    pub(super) fn next_unread(&self, sorted_to: u32, events: u32) -> Option<u32> {
        if self.read_to < sorted_to {
            Some(self.read_to)
        } else {
            (self.ahead.is_empty() && sorted_to < events).then_some(sorted_to)
        }
    }

    /// Whether more keys are to be read, whatever may start.
    pub(super) fn is_short(&self) -> bool {
        self.known < KNOWN_MIN
    }

    /// The keys of the events from `first` on have been read. The keys of which events are known now, and were not before.
    pub(super) fn read(
        &mut self,
        first: u32,
        loads: &[Load],
        sorted_to: u32,
        group: impl Fn(&KeyOf) -> u128,
    ) -> Vec<KeyOf> {
        let end = first.saturating_add(u32::try_from(loads.len()).unwrap_or(u32::MAX));
        let load_at = |index: u32| loads.get((index - first) as usize);
        let mut new = Vec::new();
        while (first..end.min(sorted_to)).contains(&self.read_to) {
            let index = self.read_to;
            if let Some(load) = load_at(index) {
                new.extend(self.stand(index, load, group(&load.key)));
            }
            self.read_to = self.next_left(index + 1, sorted_to);
        }
        if self.read_to >= sorted_to && self.ahead.is_empty() && (first..end).contains(&sorted_to) {
            self.ahead.extend((sorted_to..end).filter_map(load_at).cloned());
        }
        new
    }

    /// The next event that is read and has not been sorted has fallen due: it has this index. Its key, if no event of it was
    /// known before.
    pub(super) fn sort(&mut self, index: u32, group: impl Fn(&KeyOf) -> u128) -> Option<KeyOf> {
        let load = self.ahead.pop_front()?;
        let group = group(&load.key);
        let bits = || Stretch { bits: vec![0; Stretch::BYTES], set: 0 };
        self.stretches.entry(stretch_of(index)).or_insert_with(bits).turn(index, true);
        self.read_to = index + 1;
        self.stand(index, &load, group)
    }

    /// Whether a key has been read that waits to be sorted.
    pub(super) fn has_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// An event goes to the end of its line. Its key, where the line is new.
    fn stand(&mut self, index: u32, load: &Load, group: u128) -> Option<KeyOf> {
        self.known += 1;
        let alike = Alike { indexes: index..index + 1, units: load.units };
        if let Some(line) = self.lines.get_mut(&group) {
            line.events += 1;
            let goes_on = |last: &&mut Alike| last.indexes.end == index && last.units == load.units;
            if let Some(last) = line.ranges.back_mut().filter(goes_on) {
                last.indexes.end += 1;
            } else {
                line.ranges.push_back(alike);
                self.ranges += 1;
            }
            return None;
        }
        self.ranges += 1;
        let mut ranges = VecDeque::with_capacity(1);
        ranges.push_back(alike);
        self.lines.insert(group, KeyLine { key: load.key.clone(), ranges, events: 1 });
        Some(load.key.clone())
    }

    /// Takes the next event of a key.
    pub(super) fn take(&mut self, group: u128) -> Option<Taken> {
        let line = self.lines.get_mut(&group)?;
        let Alike { indexes, units } = line.ranges.front_mut()?;
        let (index, units) = (indexes.start, *units);
        indexes.start += 1;
        if indexes.start == indexes.end {
            line.ranges.pop_front();
            self.ranges -= 1;
        }
        line.events -= 1;
        self.known -= 1;
        let is_last = line.events == 0;
        let gone = if is_last { self.lines.remove(&group) } else { None };
        let key = match gone {
            Some(gone) => gone.key,
            None => self.lines.get(&group)?.key.clone(),
        };
        let first = stretch_of(index);
        if let Some(stretch) = self.stretches.get_mut(&first) {
            stretch.turn(index, false);
            if stretch.set == 0 {
                self.stretches.remove(&first);
            }
        }
        Some(Taken { index, load: Load { key, units }, is_last })
    }

    /// What is stored of a stretch: none where all of it has started.
    pub(super) fn stored(&self, run: RunId, first: u32) -> Option<Unstarted> {
        let stretch = self.stretches.get(&first)?;
        let end = stretch.bits.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        Some(Unstarted { run, first, bits: stretch.bits[..end].to_vec() })
    }

    /// The first indexes of its stretches.
    pub(super) fn stretches(&self) -> impl Iterator<Item = u32> {
        self.stretches.keys().counted().copied()
    }

    /// The events that have been sorted and have not started, as ranges.
    fn left(&self) -> impl Iterator<Item = Range<u32>> {
        let indexes = self.stretches.iter().flat_map(|(first, stretch)| {
            (*first..first + UNSTARTED_EVENTS).filter(|index| stretch.has(*index))
        });
        in_ranges(indexes)
    }
}

fn in_ranges(indexes: impl Iterator<Item = u32>) -> impl Iterator<Item = Range<u32>> {
    let mut indexes = indexes.peekable();
    std::iter::from_fn(move || {
        let first = indexes.next()?;
        let mut end = first + 1;
        while indexes.next_if_eq(&end).is_some() {
            end += 1;
        }
        Some(first..end)
    })
}

impl LiveRun {
    /// The events that have not started, as ranges.
    pub(super) fn unstarted(&self) -> Vec<Range<u32>> {
        let mut all: Vec<Range<u32>> = self.sorted.iter().flat_map(|sorted| sorted.left()).collect();
        let rest = self.front()..self.row.events;
        match all.last_mut().filter(|last| last.end == rest.start) {
            Some(last) => last.end = rest.end,
            None if !rest.is_empty() => all.push(rest),
            None => {}
        }
        all
    }

    /// As what an event that has not started counts, as far as that is known.
    pub(super) fn load_of_unstarted(&self, index: u32) -> Load {
        match &self.sorted {
            Some(sorted) => sorted.load_of(index).unwrap_or_else(|| self.load_at_first()),
            None => Load { key: KeyOf::Schedule, units: self.load_at_first().units },
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::keys::ItemKey;
    use super::*;

    fn key(n: u128) -> KeyOf {
        KeyOf::Item(Arc::new(ItemKey { name: n.to_string(), stand_in: n }))
    }

    fn units(at: usize) -> u32 {
        [1, 1, 1, 7, 2][at % 5]
    }

    fn group(key: &KeyOf) -> u128 {
        match key {
            KeyOf::Item(item) => item.stand_in,
            _ => 0,
        }
    }

    proptest! {
        /// Whatever is read, started and taken over in whatever order, each event is taken once, each key's in their order, and
        /// what is left is what has not been taken.
        #[test]
        fn each_event_is_taken_once(
            keys in prop::collection::vec(1..5_u128, 1..6_000),
            pages in prop::collection::vec(1..2_000_usize, 1..8),
            takes in prop::collection::vec((1..5_u128, 0..500_usize, prop::bool::weighted(0.1)), 1..40),
        ) {
            let run = RunId::default();
            let events = u32::try_from(keys.len()).unwrap();
            let (mut sorted, mut sorted_to) = (Sorted::from(0), 0);
            let mut taken = vec![false; keys.len()];
            let mut latest = [None; 5];
            let mut sizes = pages.iter().cycle();
            let last = (1..5).map(|key| (key, usize::MAX, false));
            for (of, count, crash) in takes.into_iter().chain(last) {
                if crash {
                    let stored: Vec<_> = sorted.stretches().map(|first| sorted.stored(run, first).unwrap()).collect();
                    sorted = Sorted::restored(stored, sorted_to);
                }
                while let Some(next) = sorted.next_unread(sorted_to, events) && (sorted.is_short() || count == usize::MAX) {
                    // A page holds the index, and does not begin with it.
                    let size = *sizes.next().unwrap();
                    let first = next as usize / size * size;
                    let load = |at: usize| Load { key: key(keys[at]), units: units(at) };
                    let page: Vec<Load> = (first..keys.len().min(first + size)).map(load).collect();
                    sorted.read(u32::try_from(first).unwrap(), &page, sorted_to, group);
                    while sorted.has_ahead() {
                        sorted.sort(sorted_to, group);
                        sorted_to += 1;
                    }
                }
                for _ in 0..count {
                    let next = sorted.next_of(of).map(|(key, units)| (key.clone(), units));
                    let Some(Taken { index, load, .. }) = sorted.take(of) else { break };
                    let at = index as usize;
                    prop_assert_eq!(next, Some((load.key.clone(), load.units)));
                    prop_assert!(!taken[at] && group(&load.key) == keys[at] && keys[at] == of);
                    prop_assert_eq!(load.units, units(at));
                    prop_assert!(latest[of as usize].replace(index) < Some(index), "in their order");
                    taken[at] = true;
                }
                for (index, taken) in taken.iter().enumerate().take(sorted_to as usize) {
                    prop_assert_eq!(sorted.is_unstarted(u32::try_from(index).unwrap()), !taken);
                }
                prop_assert_eq!(sorted.ranges(), sorted.lines.values().map(|line| line.ranges.len()).sum::<usize>());
            }
            prop_assert!(taken.into_iter().all(|taken| taken) && sorted.stretches.is_empty() && sorted.known() == 0);
        }
    }

    #[test]
    fn what_is_left_is_told_in_ranges() {
        let ranges: Vec<_> = in_ranges([1, 2, 3, 7, 9, 10].into_iter()).collect();
        assert_eq!(ranges, [1..4, 7..8, 9..11]);
    }
}
