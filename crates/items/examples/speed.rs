//! How many items a second are read on one core: `cargo run --release -p tollgate-items --example speed`.
#![expect(clippy::unwrap_used, reason = "a measurement")]
#![expect(clippy::disallowed_methods, reason = "it measures with the machine's clock")]
#![expect(clippy::print_stdout, reason = "what it is for")]

use std::io::Write as _;
use std::time::Instant;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tollgate_items::{Format, Next, Options, Packing, Reader};

const ITEMS: u64 = 1_000_000;
const PIECE_BYTES: usize = 64 * 1024;

fn main() {
    let about = "x".repeat(230);
    let object =
        |n: u64| format!("{{\"tenant\":\"tenant-{n}\",\"n\":{n},\"ok\":true,\"about\":\"{about}\"}}");
    let lines: String = (0..ITEMS).map(|n| object(n) + "\n").collect();
    let array = format!("[{}]", (0..ITEMS).map(object).collect::<Vec<_>>().join(","));
    let rows = (0..ITEMS).map(|n| format!("tenant-{n},{n},true,{about}\n")).collect::<String>();
    let rows = format!("tenant,n,ok,about\n{rows}");
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(lines.as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    for (name, format, bytes) in [
        ("NDJSON", Format::Ndjson, lines.into_bytes()),
        ("NDJSON as gzip", Format::Ndjson, packed),
        ("JSON array", Format::Json, array.into_bytes()),
        ("CSV", Format::Csv, rows.into_bytes()),
    ] {
        let bytes = Bytes::from(bytes);
        for key_field in [None, Some("tenant".to_owned())] {
            let keyed = if key_field.is_some() { " with keys" } else { "" };
            let begun = Instant::now();
            read(Options { key_field, packing: Packing::Detect, ..Options::new(format) }, &bytes);
            let rate = ITEMS as f64 / begun.elapsed().as_secs_f64();
            println!("{name}{keyed}: {rate:.0} items/s");
        }
    }
}

fn read(options: Options, bytes: &Bytes) {
    let mut reader = Reader::new(options).unwrap();
    let mut at = 0;
    loop {
        match reader.advance().unwrap() {
            Next::Item(_) | Next::Busy => {}
            Next::Hungry if at == bytes.len() => reader.end(),
            Next::Hungry => {
                let to = bytes.len().min(at + PIECE_BYTES);
                reader.feed(bytes.slice(at..to));
                at = to;
            }
            Next::End => break,
        }
    }
    assert_eq!(reader.count(), ITEMS);
}
