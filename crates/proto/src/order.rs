//! Decides what an `order_by` asks for: one field, and which end of it comes first.
//!
//! In: the text and the field that a list can be ordered by. Out: the direction. Not here: how a list is read in it.

use crate::field::FieldError;

/// Which end of a list comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The smallest value, or the earliest.
    Rising,
    /// The largest value, or the latest.
    Falling,
}

/// The order that a text asks for, `field` or `field desc`; none for an empty one.
///
/// # Errors
/// Any other text, in `order_by`.
pub fn parse(order_by: &str, field: &str) -> Result<Option<Order>, FieldError> {
    let words: Vec<&str> = order_by.split_whitespace().collect();
    match words.as_slice() {
        [] => Ok(None),
        [name] if *name == field => Ok(Some(Order::Rising)),
        [name, "desc"] if *name == field => Ok(Some(Order::Falling)),
        _ => Err(FieldError::new("order_by", order_by, format!("{field} or {field} desc"))),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn one_field_has_two_orders() {
        let read = |text| parse(text, "launch_time").unwrap();
        assert_eq!(read(" "), None);
        assert_eq!(read("launch_time"), Some(Order::Rising));
        assert_eq!(read(" launch_time  desc "), Some(Order::Falling));
        for wrong in ["launch_time asc", "launchTime", "desc", "launch_time desc, name", "launch_time,"] {
            let error = parse(wrong, "launch_time").unwrap_err();
            assert_eq!(error.field, "order_by", "{wrong}");
            assert!(error.to_string().contains("launch_time or launch_time desc"), "{error}");
        }
    }
}
