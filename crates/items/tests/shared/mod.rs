//! Reading bytes in pieces, to the end.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tollgate_items::{Item, ItemsError, Next, Options, Reader};

/// All items of bytes that come in pieces of these sizes, the last one again and again.
pub(crate) fn in_pieces(
    options: Options,
    bytes: &[u8],
    sizes: impl IntoIterator<Item = usize>,
) -> Result<Vec<Item>, ItemsError> {
    let mut reader = Reader::new(options)?;
    let (mut items, mut at, mut sizes, mut size) = (Vec::new(), 0, sizes.into_iter(), 1);
    loop {
        match reader.advance()? {
            Next::Item(item) => items.push(item),
            Next::Busy => {}
            Next::End => {
                assert_eq!(reader.count(), items.len() as u64);
                return Ok(items);
            }
            Next::Hungry if at == bytes.len() => reader.end(),
            Next::Hungry => {
                size = sizes.next().unwrap_or(size).max(1);
                let to = bytes.len().min(at + size);
                reader.feed(Bytes::copy_from_slice(&bytes[at..to]));
                at = to;
            }
        }
    }
}

/// All items of bytes that come in pieces of one size.
pub(crate) fn read(options: Options, bytes: &[u8], size: usize) -> Result<Vec<Item>, ItemsError> {
    in_pieces(options, bytes, [size])
}

/// Bytes as gzip.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(bytes).and_then(|()| packer.finish()).unwrap()
}

/// Data and keys.
pub(crate) fn pairs(items: &[Item]) -> Vec<(&str, &str)> {
    items.iter().map(|item| (item.data.as_str(), item.key.as_str())).collect()
}

/// Units.
pub(crate) fn units(items: &[Item]) -> Vec<u32> {
    items.iter().map(|item| item.units).collect()
}
