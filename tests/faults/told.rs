//! What the processes' logs tell of troubles that nobody injected: they were starved, or a commit took longer than a lease.
//!
//! Such a line is stamped by the campaign's clock when it is read, soon after it was written: the processes' clocks are moved.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_harness::now_us;

use crate::audit::Disturbance;

/// The service's words, and what they are a reason for.
const SIGNS: [(&str, &str); 2] = [
    ("this process gave no sign of life for too long", "process gave no sign of life for too long"),
    ("a commit outlived the lease", "commit outlived its owner's lease"),
];
/// How often the logs are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// What a process was told in the last moments before it stood still may not have been recorded, and loading anew takes a while.
const AROUND_US: i64 = 2_000_000;

/// What has been told. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<Sign>>>);

/// One of these lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sign {
    at_us: i64,
    reason: &'static str,
}

impl Told {
    /// Reads the logs of so many processes in this folder from now on. It ends with the runtime.
    pub(crate) fn start(folder: &Path, processes: usize) -> Self {
        let told = Self::default();
        let noted = told.clone();
        let log = |number: usize| Tail::new(folder.join(format!("process-{number}.log")));
        let mut tails: Vec<Tail> = (0..processes).map(log).collect();
        tokio::spawn(async move {
            loop {
                for tail in &mut tails {
                    noted.note(&tail.more(), now_us());
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        told
    }

    /// What the lines are reasons for, from before a process may have stood still: it tells so when that is over, and then its
    /// lease has ended, too.
    pub(crate) fn disturbances(&self, lease: Duration) -> Vec<Disturbance> {
        let lease_us = i64::try_from(lease.as_micros()).unwrap_or_default();
        let disturbance = |sign: &Sign| Disturbance {
            reason: sign.reason,
            from_us: sign.at_us - 2 * lease_us - AROUND_US,
            until_us: sign.at_us + AROUND_US,
        };
        self.signs().iter().map(disturbance).collect()
    }

    /// How many there were of each.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for sign in self.signs().iter() {
            *counts.entry(sign.reason).or_default() += 1;
        }
        counts
    }

    fn note(&self, lines: &[String], at_us: i64) {
        for line in lines {
            for (words, reason) in SIGNS {
                if line.contains(words) {
                    self.signs().push(Sign { at_us, reason });
                }
            }
        }
    }

    fn signs(&self) -> MutexGuard<'_, Vec<Sign>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that grows at its end.
struct Tail {
    path: PathBuf,
    read: u64,
    /// The beginning of a line that has no end as yet.
    rest: Vec<u8>,
}

impl Tail {
    fn new(path: PathBuf) -> Self {
        Self { path, read: 0, rest: Vec::new() }
    }

    /// The lines that have come to their ends since the last time. What cannot be read has none.
    fn more(&mut self) -> Vec<String> {
        let mut bytes = std::mem::take(&mut self.rest);
        let before = bytes.len();
        // Whatever was read until an error counts.
        let _broken = self.read_on(&mut bytes);
        self.read += (bytes.len() - before) as u64;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.rest = bytes.split_off(whole);
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    }

    fn read_on(&self, bytes: &mut Vec<u8>) -> std::io::Result<()> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.read))?;
        file.read_to_end(bytes)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_line_is_told_once_and_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("process-0.log");
        let mut tail = Tail::new(path.clone());
        assert!(tail.more().is_empty(), "it is not there yet");
        let mut file = File::create(path).unwrap();
        file.write_all(b"one\ntwo, and ").unwrap();
        assert_eq!(tail.more(), ["one"]);
        assert!(tail.more().is_empty());
        file.write_all(b"more\n").unwrap();
        assert_eq!(tail.more(), ["two, and more"]);
        assert!(tail.more().is_empty());
    }

    #[test]
    fn the_words_are_the_services_and_count_for_their_time() {
        let (told, at_us) = (Told::default(), 50_000_000);
        for (number, file) in ["trust.rs", "owner.rs"].into_iter().enumerate() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../services/event-handler/src/");
            let text = std::fs::read_to_string(format!("{path}{file}")).unwrap();
            let words: Vec<String> = text.lines().map(str::to_owned).collect();
            told.note(&words, at_us);
            assert_eq!(told.signs().len(), number + 1, "{file}");
        }
        told.note(&["the shard has another owner".to_owned()], at_us);
        assert_eq!(told.counts().into_values().collect::<Vec<u64>>(), [1, 1]);
        let disturbances = told.disturbances(Duration::from_secs(3));
        let times: Vec<_> = disturbances.iter().map(|one| (one.from_us, one.until_us)).collect();
        assert_eq!(times, [(42_000_000, 52_000_000); 2]);
    }
}
