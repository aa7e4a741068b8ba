//! Decides under which name the audit log notes a caller.

use tonic::metadata::MetadataMap;

/// The most characters of a name.
const CHARS_MAX: usize = 128;

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
