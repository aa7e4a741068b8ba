//! The name under which the items of a run are sealed: bound to their place, so that none takes another's.

use uuid::Uuid;

/// The name under which the result of an event is sealed, beside the id of its run.
pub fn result_field(index: u32) -> String {
    format!("result.{index}")
}

/// Of the page of a run that begins with this index; of what all its events carry, where there is none.
pub fn item_field(run: Uuid, first_index: Option<u32>) -> String {
    match first_index {
        Some(first) => format!("items.{}.{first}", run.as_simple()),
        None => format!("items.{}.payload", run.as_simple()),
    }
}
