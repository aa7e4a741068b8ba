//! Decides under which name the audit log notes a caller, and with which reason.

use percent_encoding::percent_decode_str;
use tonic::metadata::MetadataMap;

/// The most characters of a name.
const CHARS_MAX: usize = 128;
/// The most bytes of a reason.
const REASON_MAX_BYTES: usize = 4096;

/// Who calls, and why, for the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The name, as [`actor`] reads it.
    pub name: String,
    /// Why, as [`reason`] reads it.
    pub reason: String,
}

/// Who calls, and why.
pub fn caller(metadata: &MetadataMap) -> Caller {
    Caller { name: actor(metadata), reason: reason(metadata) }
}

/// The reason in `tollgate-reason`, which is percent-encoded UTF-8; empty where none is given, cut to 4 KiB.
pub fn reason(metadata: &MetadataMap) -> String {
    let given = metadata.get("tollgate-reason").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let text = percent_decode_str(given.trim()).decode_utf8_lossy();
    text[..text.floor_char_boundary(REASON_MAX_BYTES)].trim().to_owned()
}

/// The name that the caller gives, without blanks around it and cut to 128 characters; else `anonymous`.
pub fn actor(metadata: &MetadataMap) -> String {
    let given =
        metadata.get("tollgate-actor").and_then(|value| value.to_str().ok()).unwrap_or_default().trim();
    if given.is_empty() { "anonymous".to_owned() } else { given.chars().take(CHARS_MAX).collect() }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_reason_is_decoded_and_may_be_missing() {
        for (given, noted) in [
            ("a%20disk%20is%20full", "a disk is full"),
            ("100%", "100%"),
            ("gr%C3%BCn %zz", "grün %zz"),
            ("", ""),
        ] {
            let mut metadata = MetadataMap::new();
            metadata.insert("tollgate-reason", given.parse().unwrap());
            assert_eq!(reason(&metadata), noted, "{given:?}");
        }
        assert_eq!(
            caller(&MetadataMap::new()),
            Caller { name: "anonymous".to_owned(), reason: String::new() }
        );
    }

    #[test]
    fn a_name_is_trimmed_and_cut_and_never_empty() {
        let long = "x".repeat(200);
        for (given, noted) in [
            ("ci", "ci"),
            ("  ada  ", "ada"),
            ("", "anonymous"),
            ("   ", "anonymous"),
            (&*long, &long[..128]),
        ] {
            let mut metadata = MetadataMap::new();
            metadata.insert("tollgate-actor", given.parse().unwrap());
            assert_eq!(actor(&metadata), noted, "{given:?}");
        }
        assert_eq!(actor(&MetadataMap::new()), "anonymous");
    }
}
