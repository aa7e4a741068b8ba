//! What the sink knows of each delivery, and how that travels to the driver.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One delivery. Times are microseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// A hash of the event's id.
    pub(crate) id: u64,
    pub(crate) launch_us: i64,
    pub(crate) arrival_us: i64,
    /// Just before the answer, or the release; 0 while the work goes on.
    pub(crate) done_us: i64,
    /// From the path of the URL: whose limit it counts against.
    pub(crate) group: u32,
    pub(crate) lane: u16,
    pub(crate) attempt: u16,
}

/// Length of a record in a dump.
const BYTES: usize = 40;

impl Record {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.id.to_le_bytes());
        for time in [self.launch_us, self.arrival_us, self.done_us] {
            out.extend(time.to_le_bytes());
        }
        out.extend(self.group.to_le_bytes());
        out.extend(self.lane.to_le_bytes());
        out.extend(self.attempt.to_le_bytes());
    }

    fn read(bytes: &[u8; BYTES]) -> Self {
        let long = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            word
        };
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self {
            id: u64::from_le_bytes(long(0)),
            launch_us: i64::from_le_bytes(long(8)),
            arrival_us: i64::from_le_bytes(long(16)),
            done_us: i64::from_le_bytes(long(24)),
            group: u32::from(short(32)) | u32::from(short(34)) << 16,
            lane: short(36),
            attempt: short(38),
        }
    }
}

/// All deliveries since the last reset.
#[derive(Debug, Default)]
pub(crate) struct Records(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    records: Vec<Record>,
    /// By lane: deliveries, and how many of them are done.
    counts: Vec<(usize, usize)>,
}

impl All {
    fn count(&mut self, lane: u16) -> &mut (usize, usize) {
        let lane = usize::from(lane);
        if self.counts.len() <= lane {
            self.counts.resize(lane + 1, (0, 0));
        }
        &mut self.counts[lane]
    }
}

impl Records {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a delivery, and returns its number.
    pub(crate) fn push(&self, record: Record) -> usize {
        let mut all = self.all();
        let count = all.count(record.lane);
        count.0 += 1;
        count.1 += usize::from(record.done_us > 0);
        all.records.push(record);
        all.records.len() - 1
    }

    /// The work on a delivery is done.
    pub(crate) fn done(&self, number: usize, done_us: i64) {
        let mut all = self.all();
        // A reset may have come between.
        let Some(record) = all.records.get_mut(number) else { return };
        record.done_us = done_us;
        let lane = record.lane;
        all.count(lane).1 += 1;
    }

    /// How many deliveries to a lane there were, and how many of them are done.
    pub(crate) fn counts(&self, lane: u16) -> (usize, usize) {
        *self.all().count(lane)
    }

    pub(crate) fn reset(&self) {
        *self.all() = All::default();
    }

    pub(crate) fn dump(&self) -> Vec<u8> {
        let all = self.all();
        let mut out = Vec::with_capacity(all.records.len() * BYTES);
        all.records.iter().for_each(|record| record.write(&mut out));
        out
    }
}

/// Reads a dump.
pub(crate) fn read(dump: &[u8]) -> Vec<Record> {
    dump.as_chunks::<BYTES>().0.iter().map(Record::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_can_be_read() {
        let record = Record {
            id: u64::MAX - 1,
            launch_us: -1,
            arrival_us: 1_795_262_400_000_000,
            done_us: 7,
            group: 70_000,
            lane: 3,
            attempt: 2,
        };
        let records = Records::default();
        let number = records.push(Record { done_us: 0, ..record });
        assert_eq!(records.counts(3), (1, 0));
        records.done(number, 7);
        assert_eq!((records.counts(3), records.counts(4)), ((1, 1), (0, 0)));
        assert_eq!(read(&records.dump()), vec![record]);
    }
}
