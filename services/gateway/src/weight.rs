//! Decides whether a JSON text is light enough to be read: a value takes a few thousand bytes of memory as a message, for
//! two of text.
//!
//! In: the text. Out: nothing, or what is too much. Invariant: it allocates nothing. Not here: whether it is JSON.

/// A list or an object weighs so much, and everything else that follows a comma or a colon 1.
const NEST_WEIGHT: usize = 2;
/// The deepest nesting: that of a payload, in the message around it.
const DEPTH_MAX: usize = 40;

/// What a body may weigh where it may hold free JSON: 256 KiB of payload, as people write it, weigh less.
pub(crate) const FREE_MAX: usize = 160_000;
/// What any other body may weigh: 1,000 releases with everything that they may have weigh less.
pub(crate) const PLAIN_MAX: usize = 20_000;

/// Why a text is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heavy {
    /// It has too many values.
    Wide,
    /// It is nested too deep.
    Deep,
}

impl Heavy {
    /// For people.
    pub(crate) fn expected(self, max: usize) -> String {
        match self {
            Self::Wide => format!("at most {max} values, where a list or an object counts as {NEST_WEIGHT}"),
            Self::Deep => format!("lists and objects nested at most {DEPTH_MAX} levels deep"),
        }
    }
}

/// Weighs a text.
pub(crate) fn check(text: &[u8], max: usize) -> Result<(), Heavy> {
    let (mut weight, mut depth, mut quoted, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in text {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'{' | b'[' => (depth, weight) = (depth + 1, weight + NEST_WEIGHT),
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' | b':' => weight += 1,
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(Heavy::Deep);
        }
        if weight > max {
            return Err(Heavy::Wide);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_and_texts_do_not() {
        assert_eq!(check(br#"{"a": "{{{{,,,,::::[[\"[[\\", "b": [1, 2]}"#, 8), Ok(()));
        assert_eq!(check(br#"{"a": "{{{{,,,,::::[[\"[[\\", "b": [1, 2]}"#, 7), Err(Heavy::Wide));
        assert_eq!(check(&b"[".repeat(DEPTH_MAX), usize::MAX), Ok(()));
        assert_eq!(check(&b"[".repeat(DEPTH_MAX + 1), usize::MAX), Err(Heavy::Deep));
        assert_eq!(check(&b"[]".repeat(DEPTH_MAX + 1), usize::MAX), Ok(()), "one after the other");
    }

    #[test]
    fn the_largest_things_that_are_allowed_are_light_enough() {
        let release =
            r#"{"name":"x","attempt":1,"outcome":"RETRY","message":"m","nextCheckTime":"t","cursor":"c"},"#;
        let batch = format!("{{\"releases\":[{}]}}", release.repeat(1_000));
        assert_eq!(check(batch.as_bytes(), PLAIN_MAX), Ok(()));
        assert_eq!(check("0,".repeat(128 * 1024).as_bytes(), FREE_MAX), Ok(()), "256 KiB of digits");
        let rows = r#"{"id":17,"name":"a"},"#.repeat(256 * 1024 / 21);
        assert_eq!(check(rows.as_bytes(), FREE_MAX), Ok(()));
    }
}
