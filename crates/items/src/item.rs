//! An item, as it is read.

/// What one event is to carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// JSON, as it is written; line breaks of an array that is written over several lines are in it.
    pub data: String,
    /// Empty where it has none.
    pub key: String,
    /// How many tokens its event takes; 0 where it does not say.
    pub units: u32,
}
