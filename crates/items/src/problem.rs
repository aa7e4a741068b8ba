//! Decides how it is said what is wrong, and where.

use std::fmt;

/// The most characters of what was given that a text repeats.
const GIVEN_CHARS_MAX: usize = 60;

/// What is wrong with an item or with what is around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The member or column; empty where it is none of them.
    pub(crate) field: String,
    /// What is wrong, and what is allowed.
    pub(crate) said: String,
    /// Whether it is about one place, and not about all that has been read.
    pub(crate) has_place: bool,
}

impl Problem {
    pub(crate) fn new(field: &str, said: impl Into<String>) -> Self {
        Self { field: shortened(field), said: said.into(), has_place: true }
    }

    /// A problem of no field.
    pub(crate) fn said(said: impl Into<String>) -> Self {
        Self::new("", said)
    }

    /// A problem of all that has been read.
    pub(crate) fn of_all(said: impl Into<String>) -> Self {
        Self { has_place: false, ..Self::said(said) }
    }
}

/// Why there are no further items.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ItemsError {
    /// Where, as in `line 7` or `item 5 (line 12)`; empty where it is about all of it, or about how it is packed.
    pub place: String,
    /// The member, the column or the option; empty where it is none of them.
    pub field: String,
    /// What is wrong, and what is allowed.
    pub said: String,
}

impl ItemsError {
    pub(crate) fn nowhere(problem: Problem) -> Self {
        Self { place: String::new(), field: problem.field, said: problem.said }
    }
}

impl fmt::Display for ItemsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.place, &self.field].into_iter().filter(|part| !part.is_empty()) {
            write!(f, "{part}: ")?;
        }
        f.write_str(&self.said)
    }
}

/// What was given, cut short.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(GIVEN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Bytes as text.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|error| {
        Problem::said(format!("not UTF-8 from byte {} on, expected text in UTF-8", error.valid_up_to() + 1))
    })
}

/// What is too large for an item.
pub(crate) fn too_large() -> Problem {
    Problem::said(format!("the item is too large, expected at most {} bytes", crate::DATA_MAX_BYTES))
}

/// What is no list of items.
pub(crate) fn too_blank() -> Problem {
    Problem::said(format!("more than {} bytes of empty lines, expected an item", crate::BLANK_MAX_BYTES))
}
