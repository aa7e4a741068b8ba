//! Decides what may be asked for.

use crate::problem::{ItemsError, Problem};

/// How items are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A JSON value a line. Empty lines count for nothing.
    Ndjson,
    /// One JSON array, whose elements are the items.
    Json,
    /// A header row, and then a row an item: an object of the header's names and the row's texts. Numbers stay texts.
    Csv,
}

/// How bytes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// As gzip, in one member or several.
    Gzip,
    /// As gzip if they begin so, else not at all: no text begins as gzip does.
    Detect,
}

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How items are written.
    pub format: Format,
    /// How bytes are packed.
    pub packing: Packing,
    /// The member of each item, or the column, whose text or number is the key. Each item must have it then.
    pub key_field: Option<String>,
    /// Whether each item is an object of `data`, and of `key` where it has one, and of nothing else. Otherwise an item is
    /// data as a whole, whatever its members are called.
    pub wrapped: bool,
    /// Whether there may be none: of a list in pages, some may be empty.
    pub may_be_empty: bool,
}

impl Options {
    /// Items of this format, not packed, without keys.
    pub fn new(format: Format) -> Self {
        Self { format, packing: Packing::Plain, key_field: None, wrapped: false, may_be_empty: false }
    }

    pub(crate) fn check(&self) -> Result<(), ItemsError> {
        let wrong = |field: &str, said: &str| Err(ItemsError::nowhere(Problem::new(field, said)));
        if self.wrapped && self.key_field.is_some() {
            return wrong(
                "key_field",
                "not beside wrapped, where the key of each item is its member \"key\"",
            );
        }
        if self.wrapped && self.format == Format::Csv {
            return wrong("wrapped", "not with CSV, of which each row is the data of an item");
        }
        match &self.key_field {
            Some(name) if name.is_empty() => wrong("key_field", "expected the name of a member of each item"),
            _ => Ok(()),
        }
    }
}
