//! Reads items out of bytes as they come: NDJSON, a JSON array or CSV with a header row, each also as gzip.
//!
//! In: [`Options`], and bytes in any pieces ([`Reader::feed`], [`Reader::end`]). Out: one [`Item`] after the other
//! ([`Reader::advance`]), or an [`ItemsError`] that names the line, the field and what is allowed.
//!
//! - `packing`: gzip, where there is any.
//! - `lines`, `array`, `csv`: where one item ends and the next begins; of CSV, what a row is as JSON.
//! - `member`: whether an item is JSON, what is its key, and how many tokens it says that its event takes.
//! - [`Batch`]: how many items travel together.
//!
//! Invariants: memory does not grow with the number of items, with their sizes beyond the largest that is allowed, or with
//! what a compressed stream unpacks to; how the bytes are cut into pieces changes nothing; JSON goes on as it is written, digit
//! by digit; one call looks at a bounded number of bytes. Not here: where bytes come from, what becomes of items, what else a
//! submission has.

mod array;
mod batch;
mod csv;
mod item;
mod lines;
mod member;
mod options;
mod packing;
mod problem;
mod reader;

pub use batch::Batch;
pub use item::Item;
pub use options::{Format, Options, Packing};
pub use problem::ItemsError;
pub use reader::{Next, Reader};

/// The most bytes of an item's data.
pub const DATA_MAX_BYTES: usize = 256 * 1024;
/// The most bytes of a key.
pub const KEY_MAX_BYTES: usize = 128;
/// The most tokens that an item says that its event takes.
pub const UNITS_MAX: u32 = 1_000;
/// The most items.
pub const ITEMS_MAX: u64 = 10_000_000;
/// The deepest nesting of an item's data.
pub const DEPTH_MAX: usize = 128;

/// The most bytes of one item as it is written: its data, and what may be around these.
const RECORD_MAX_BYTES: usize = DATA_MAX_BYTES + 4 * 1024;
/// The most bytes of empty lines and white space between two items. More of that is no list of items.
const BLANK_MAX_BYTES: usize = 1024 * 1024;
