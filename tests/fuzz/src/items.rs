//! Items out of bytes: however they are cut, the same comes of them, and what comes is JSON.

use bytes::Bytes;
use serde::de::IgnoredAny;
use tollgate_items::{
    DATA_MAX_BYTES, Format, Item, ItemsError, KEY_MAX_BYTES, Next, Options, Packing, Reader, UNITS_MAX,
};

use super::quick;

/// Reads the first byte as options, the second as the size of pieces, and the rest as what is submitted.
pub(crate) fn target(data: &[u8]) {
    let [how, size, bytes @ ..] = data else { return };
    let format = [Format::Ndjson, Format::Json, Format::Csv][usize::from(how % 3)];
    let packing = if how & 64 == 0 { Packing::Detect } else { Packing::Gzip };
    let wrapped = how & 32 != 0 && format != Format::Csv;
    let key_field = (how & 16 != 0 && !wrapped).then(|| "k".to_owned());
    let units_field = (how & 128 != 0 && !wrapped).then(|| "n".to_owned());
    let options = Options { packing, key_field, units_field, wrapped, ..Options::new(format) };
    let whole = quick("reading items", || read(&options, bytes, bytes.len().max(1)));
    for item in whole.iter().flatten() {
        assert!(serde_json::from_str::<IgnoredAny>(&item.data).is_ok(), "{item:?}");
        assert!(item.data.len() <= DATA_MAX_BYTES && item.key.len() <= KEY_MAX_BYTES, "{item:?}");
        assert!(item.units <= UNITS_MAX, "{item:?}");
        assert!(options.key_field.is_none() || !item.key.is_empty(), "{item:?}");
    }
    let pieces = read(&options, bytes, usize::from(*size).max(1));
    // How much of what lies before a fault in gzip is unpacked, and may be refused for another reason, is gzip's affair.
    let is_packed = bytes.starts_with(&[0x1f, 0x8b]);
    assert!(pieces == whole || is_packed && pieces.is_err() && whole.is_err(), "{pieces:?} and {whole:?}");
}

fn read(options: &Options, bytes: &[u8], size: usize) -> Result<Vec<Item>, ItemsError> {
    let mut reader = Reader::new(options.clone())?;
    let (mut items, mut pieces) = (Vec::new(), bytes.chunks(size));
    loop {
        match reader.advance()? {
            Next::Item(item) => items.push(item),
            Next::Busy => {}
            Next::End => return Ok(items),
            Next::Hungry => match pieces.next() {
                Some(piece) => reader.feed(Bytes::copy_from_slice(piece)),
                None => reader.end(),
            },
        }
    }
}
