//! Event ids: what is opened is what was sealed, and nothing else opens.

use tollgate_core::model::{EventKeyring, EventRef, RunId};
use uuid::Uuid;

use super::quick;

pub(crate) fn target(data: &[u8]) {
    let keys = EventKeyring::new(&[7; 32]);
    let text = String::from_utf8_lossy(data);
    let given = quick("opening an id", || keys.open(&text));
    if let Ok(event) = given {
        assert_eq!(keys.id(event).as_str(), text, "an id with two spellings");
    }
    sealed(&keys, data);
}

/// Reads the input as shard, run, index, and a change of one byte of their id.
fn sealed(keys: &EventKeyring, data: &[u8]) {
    let mut bytes = [0; 26];
    let length = data.len().min(bytes.len());
    bytes[..length].copy_from_slice(&data[..length]);
    let [shard_high, shard_low, run @ .., place, byte, i0, i1, i2, i3, cut, add] = bytes;
    let run: [u8; 16] = run;
    let event = EventRef {
        shard: u16::from_be_bytes([shard_high, shard_low]),
        run: RunId(Uuid::from_bytes(run)),
        index: u32::from_be_bytes([i0, i1, i2, i3]),
    };
    let id = keys.id(event).to_string();
    assert_eq!(keys.open(&id), Ok(event));
    assert!(id.len() <= 80, "{id}");
    assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{id}");
    assert!(EventKeyring::new(&[8; 32]).open(&id).is_err(), "another installation takes {id}");

    let mut changed = id.clone().into_bytes();
    let place = usize::from(place) % changed.len();
    changed[place] = byte;
    let changed = String::from_utf8_lossy(&changed).into_owned();
    assert!(changed == id || keys.open(&changed).is_err(), "{changed} opens, and was made from {id}");
    let cut = &id[..usize::from(cut) % id.len()];
    assert!(keys.open(cut).is_err(), "{cut} opens, and is a part of {id}");
    let longer = format!("{id}{}", char::from(add));
    assert!(keys.open(&longer).is_err(), "{longer} opens");
}
