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
    /// The member of each item, or the column, whose number says how many tokens the event takes. An item may lack the
    /// member, and the field of a row may be empty; the header must have the column.
    pub units_field: Option<String>,
    /// Whether each item is an object of `data`, of `key` and `units` where it has them, and of nothing else. Otherwise an
    /// item is data as a whole, whatever its members are called.
    pub wrapped: bool,
    /// Whether there may be none: of a list in pages, some may be empty.
    pub may_be_empty: bool,
}

impl Options {
    /// Items of this format, not packed, without keys and units.
    pub fn new(format: Format) -> Self {
        let packing = Packing::Plain;
        Self { format, packing, key_field: None, units_field: None, wrapped: false, may_be_empty: false }
    }

    pub(crate) fn check(&self) -> Result<(), ItemsError> {
        let wrong = |field: &str, said: &str| Err(ItemsError::nowhere(Problem::new(field, said)));
        let fields =
            [("key_field", "key is", &self.key_field), ("units_field", "units are", &self.units_field)];
        for (field, what, name) in fields {
            let Some(name) = name else { continue };
            if self.wrapped {
                let member = field.trim_end_matches("_field");
                let said = format!("not beside wrapped, where an item's {what} its member {member:?}");
                return wrong(field, &said);
            }
            if name.is_empty() {
                return wrong(field, "expected the name of a member of each item");
            }
        }
        if self.wrapped && self.format == Format::Csv {
            return wrong("wrapped", "not with CSV, of which each row is the data of an item");
        }
        Ok(())
    }
}
