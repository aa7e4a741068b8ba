//! Decides which headers a request or a record may have, which of them are hidden, and what stands for a hidden one.

use std::collections::BTreeMap;

use super::check::Check;

const HEADERS_MAX: usize = 64;
const HEADER_VALUE_MAX_BYTES: usize = 4_096;
/// Stands for the value of a header that is likely to be a credential where a target is shown; given back, it keeps
/// what is stored.
pub(super) const HIDDEN: &str = "***";
/// What the service sets itself, in lower case.
const HEADERS_OWN: [&str; 9] = [
    "content-type",
    "content-length",
    "host",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
];

/// Headers that a request may have, in `field`.
pub(super) fn headers(check: &mut Check, field: &str, headers: &BTreeMap<String, String>) {
    headers_but(check, field, headers, |name| HEADERS_OWN.contains(&name) || name.starts_with("webhook-"));
}

/// Headers, but for those that the service sets itself, whose names are given to `is_own` in lower case.
pub(super) fn headers_but(
    check: &mut Check,
    field: &str,
    headers: &BTreeMap<String, String>,
    is_own: impl Fn(&str) -> bool,
) {
    if headers.len() > HEADERS_MAX {
        check.refuse(field, headers.len(), format!("at most {HEADERS_MAX} headers"));
    }
    let mut seen = std::collections::BTreeSet::new();
    for (name, value) in headers {
        let lower = name.to_ascii_lowercase();
        if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
            check.refuse(field, name, "header names of letters, digits and !#$%&'*+-.^_`|~");
        } else if is_own(&lower) {
            check.refuse(field, name, "other headers: this one is set by the service");
        } else if !seen.insert(lower) {
            check.refuse(field, name, "each header once; upper and lower case are the same");
        }
        if value.len() > HEADER_VALUE_MAX_BYTES || http::HeaderValue::from_str(value).is_err() {
            // The value may be a credential.
            check.refuse(
                &format!("{field}.{name}"),
                "",
                format!("at most {HEADER_VALUE_MAX_BYTES} bytes of visible ASCII and blanks"),
            );
        }
    }
}

/// The headers, with what is stored for those that were given as they are shown. `elsewhere`: why what is stored does not go
/// there.
pub(super) fn kept(
    check: &mut Check,
    field: &str,
    given: &BTreeMap<String, String>,
    (stored, elsewhere): (Option<&BTreeMap<String, String>>, Option<&str>),
) -> BTreeMap<String, String> {
    let mut headers = given.clone();
    for (name, value) in headers.iter_mut().filter(|(_, value)| *value == HIDDEN) {
        let field = format!("{field}.{name}");
        match (stored.and_then(|stored| stored.get(name)), elsewhere) {
            (Some(before), None) => before.clone_into(value),
            // Stored as it looks.
            (Some(before), Some(_)) if before == HIDDEN => {}
            (Some(_), Some(why)) => check.refuse(&field, HIDDEN, format!("the value itself, {why}")),
            (None, _) if is_credential(name) => {
                check.refuse(&field, HIDDEN, "the value itself, because none is stored that this could keep");
            }
            (None, _) => {}
        }
    }
    headers
}

/// Hides what headers say.
pub fn hide_values(headers: &mut BTreeMap<String, String>) {
    headers.values_mut().for_each(|value| HIDDEN.clone_into(value));
}

/// Whether a header's value is likely to be a credential, by the header's name.
pub fn is_credential(header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    ["auth", "cookie", "key", "secret", "token", "password"].iter().any(|word| header.contains(word))
}

/// Headers as callers see them.
pub(super) fn shown_headers(headers: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let shown = |(name, value): (&String, &String)| {
        let value = if is_credential(name) { HIDDEN } else { value };
        (name.clone(), value.to_owned())
    };
    headers.iter().map(shown).collect()
}
