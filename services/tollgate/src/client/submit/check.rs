//! Reads all items before any is sent: whether they can be read, how many there are, and by what they are known again.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tollgate_clock::Clock;
use tollgate_items::Item;
use tollgate_proto::v1;

use super::super::progress::Line;
use super::source::Source;

/// The most different keys that are counted: as many hashes are in memory.
pub(super) const KEYS_MAX: usize = 1_000_000;
/// How often it is looked at the clock.
const LOOK_ITEMS: u64 = 4_096;
/// How often a line is drawn.
const DRAWN_US: i64 = 250_000;
/// Stands before an item's units, where a length would: none is so long.
const UNITS: u64 = u64::MAX;
/// Characters of a digest that name a submission: 160 bits.
const NAME_CHARS: usize = 40;

/// What has been found in a file.
pub(super) struct Checked {
    /// Items.
    pub(super) count: u64,
    /// Bytes of their data.
    pub(super) bytes: u64,
    /// Items with a key.
    pub(super) keyed: u64,
    /// The most tokens that an item says that its event takes; 0 where none says so.
    pub(super) units_max: u32,
    /// Hashes of different keys; none where there are too many.
    keys: Option<HashSet<u64>>,
    /// What they are known by.
    pub(super) digest: [u8; 32],
}

impl Checked {
    /// How many different keys there are, if not too many.
    pub(super) fn keys(&self) -> Option<usize> {
        self.keys.as_ref().map(HashSet::len)
    }

    /// A name that all this has, and nothing else: the items, and what goes with them.
    pub(super) fn request_id(&self, header: &v1::SubmissionHeader) -> String {
        let header = v1::SubmissionHeader { request_id: String::new(), resume_from: 0, ..header.clone() };
        let hash = Sha256::new().chain_update(self.digest).chain_update(canonical(header));
        let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256-{}", &hex[..NAME_CHARS])
    }
}

/// The same bytes for the same header: members of a payload have their order in JSON.
fn canonical(mut header: v1::SubmissionHeader) -> Vec<u8> {
    let payload = header.payload.take();
    let payload =
        payload.and_then(|payload| tollgate_proto::convert::payload::to_core("", Some(&payload)).ok());
    let mut bytes = header.encode_length_delimited_to_vec();
    bytes.extend(payload.map(|payload| payload.json).unwrap_or_default().into_bytes());
    bytes
}

/// What items are known by, as they come.
#[derive(Default)]
pub(super) struct ItemsDigest(Sha256);

impl ItemsDigest {
    pub(super) fn add(&mut self, item: &Item) {
        for part in [&item.data, &item.key] {
            self.0.update((part.len() as u64).to_be_bytes());
            self.0.update(part);
        }
        // Without units, a list has the name that it had before there were any.
        if item.units > 0 {
            self.0.update(UNITS.to_be_bytes());
            self.0.update(item.units.to_be_bytes());
        }
    }

    pub(super) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// Reads all items.
///
/// # Errors
/// What is wrong, and on which line.
pub(super) fn all(source: &Source) -> anyhow::Result<Checked> {
    let (mut line, clock) = (Line::new(), Clock::system());
    let (mut items, mut digest, hasher) = (source.items()?, ItemsDigest::default(), RandomState::new());
    let mut checked =
        Checked { count: 0, bytes: 0, keyed: 0, units_max: 0, keys: Some(HashSet::new()), digest: [0; 32] };
    let mut drawn_us = clock.wall_us();
    while let Some(item) = items.next()? {
        digest.add(&item);
        checked.count += 1;
        checked.bytes += item.data.len() as u64;
        checked.units_max = checked.units_max.max(item.units);
        if !item.key.is_empty() {
            checked.keyed += 1;
            if let Some(keys) = &mut checked.keys {
                keys.insert(hasher.hash_one(&item.key));
            }
            checked.keys.take_if(|keys| keys.len() > KEYS_MAX);
        }
        if checked.count.is_multiple_of(LOOK_ITEMS) && clock.wall_us() - drawn_us > DRAWN_US {
            drawn_us = clock.wall_us();
            let percent = items.read_bytes * 100 / source.size_bytes.max(1);
            line.draw(&format!("read {} items, {}%", checked.count, percent.min(100)));
        }
    }
    checked.digest = digest.finish();
    Ok(checked)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn with_units(items: &[(&str, &str, u32)]) -> Checked {
        let mut digest = ItemsDigest::default();
        for (data, key, units) in items {
            digest.add(&Item { data: (*data).to_owned(), key: (*key).to_owned(), units: *units });
        }
        Checked { count: 0, bytes: 0, keyed: 0, units_max: 0, keys: None, digest: digest.finish() }
    }

    fn checked(items: &[(&str, &str)]) -> Checked {
        with_units(&items.iter().map(|(data, key)| (*data, *key, 0)).collect::<Vec<_>>())
    }

    #[test]
    fn units_are_a_part_of_what_is_submitted() {
        let name =
            |items: &[(&str, &str, u32)]| with_units(items).request_id(&v1::SubmissionHeader::default());
        let names = [
            name(&[("1", "", 0), ("2", "", 0)]),
            name(&[("1", "", 1), ("2", "", 0)]),
            name(&[("1", "", 0), ("2", "", 1)]),
            name(&[("1", "", 0), ("2", "", 12)]),
        ];
        assert!((0..names.len()).all(|at| !names[at + 1..].contains(&names[at])), "{names:?}");
    }

    #[test]
    fn a_name_is_of_all_that_is_submitted_and_of_nothing_else() {
        let header = v1::SubmissionHeader { name: "n".to_owned(), ..v1::SubmissionHeader::default() };
        let name = checked(&[("1", ""), ("2", "a")]).request_id(&header);
        assert!(
            name.len() == 47 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
            "{name}"
        );
        let same = v1::SubmissionHeader { request_id: "x".to_owned(), resume_from: 7, ..header.clone() };
        assert_eq!(checked(&[("1", ""), ("2", "a")]).request_id(&same), name);
        for other in [&[("1", ""), ("2", "b")][..], &[("12", "a")], &[("1", ""), ("2a", "")], &[("1", "")]] {
            assert_ne!(checked(other).request_id(&header), name, "{other:?}");
        }
        let value =
            |text: &str| tollgate_proto::convert::payload::from_json(&serde_json::from_str(text).unwrap());
        for other in [
            v1::SubmissionHeader { name: "m".to_owned(), ..header.clone() },
            v1::SubmissionHeader { priority: Some(0), ..header.clone() },
            v1::SubmissionHeader { payload: Some(value("{}")), ..header.clone() },
            v1::SubmissionHeader { launch_time: Some(prost_types::Timestamp::default()), ..header.clone() },
        ] {
            assert_ne!(checked(&[("1", ""), ("2", "a")]).request_id(&other), name, "{other:?}");
        }
        let with = |text: &str| v1::SubmissionHeader { payload: Some(value(text)), ..header.clone() };
        let two = [r#"{"a": 1, "b": 2}"#, r#"{"b": 2.0, "a": 1}"#];
        assert_eq!(checked(&[]).request_id(&with(two[0])), checked(&[]).request_id(&with(two[1])));
    }
}
