//! Decides what a `filter` asks for: terms `key=value` joined by AND.
//!
//! In: the text and the keys that a list knows. Out: the terms, in order, each key once. Values may stand in double
//! quotes, where `\"` and `\\` are a quote and a backslash. Not here: what a term selects.

use crate::field::FieldError;

/// One term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Such as `state` or `label.team`.
    pub key: String,
    /// Never empty.
    pub value: String,
}

/// The terms of a filter; none for an empty one. A key in `allowed` that ends in `.*` stands for every key that begins so.
///
/// # Errors
/// The first term that is wrong, in `filter`, with the keys that are allowed.
pub fn parse(filter: &str, allowed: &[&str]) -> Result<Vec<Term>, FieldError> {
    let mut terms: Vec<Term> = Vec::new();
    // Nothing that is stored has such a character, and a database may not take it.
    if filter.chars().any(|character| character.is_control() && !character.is_whitespace()) {
        return Err(FieldError::new("filter", filter, "no control characters"));
    }
    let mut rest = filter.trim();
    while !rest.is_empty() {
        let refused = |what: &str| FieldError::new("filter", rest, what);
        let form = || format!("terms key=value joined by AND, with the keys {}", allowed.join(", "));
        let (key, after) = rest.split_once('=').ok_or_else(|| refused(&form()))?;
        let key = key.trim();
        if !allowed.iter().any(|pattern| matches(pattern, key)) {
            return Err(FieldError::new("filter", key, form()));
        }
        let (value, after) = value(after.trim_start()).ok_or_else(|| refused("a closing quote"))?;
        if value.is_empty() {
            return Err(refused("a value after ="));
        }
        if terms.iter().any(|term| term.key == key) {
            return Err(FieldError::new("filter", key, "each key once"));
        }
        terms.push(Term { key: key.to_owned(), value });
        let after = after.trim_start();
        rest = match after.strip_prefix("AND") {
            Some(next) if next.starts_with(char::is_whitespace) && !next.trim().is_empty() => next.trim(),
            None if after.is_empty() => after,
            _ => return Err(FieldError::new("filter", after, "AND and another term, or the end")),
        };
    }
    Ok(terms)
}

/// A moment in a filter, in microseconds since the epoch.
///
/// # Errors
/// What is no time of RFC 3339, in `filter`.
pub fn moment(text: &str) -> Result<i64, FieldError> {
    let read = chrono::DateTime::parse_from_rfc3339(text);
    let refused = |_| FieldError::new("filter", text, "a time such as 2026-03-29T03:00:00Z");
    read.map(|at| at.timestamp_micros()).map_err(refused)
}

fn matches(pattern: &str, key: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => key.strip_prefix(start).is_some_and(|name| !name.is_empty() && !name.contains(' ')),
        None => pattern == key,
    }
}

/// The value at the start of `text`, and what follows it; none where a quote is not closed.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const KEYS: [&str; 3] = ["state", "policy", "label.*"];

    fn pairs(filter: &str) -> Vec<(String, String)> {
        parse(filter, &KEYS).unwrap().into_iter().map(|term| (term.key, term.value)).collect()
    }

    #[test]
    fn terms_are_read() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(pairs("  "), []);
        assert_eq!(
            pairs("state=PAUSED AND policy = x  AND label.team=y"),
            [pair("state", "PAUSED"), pair("policy", "x"), pair("label.team", "y")]
        );
        assert_eq!(pairs(r#"label.a.b="x AND \"y\\""#), [pair("label.a.b", r#"x AND "y\"#)]);
        assert_eq!(pairs("policy=ANDREA"), [pair("policy", "ANDREA")]);
    }

    #[test]
    fn refusals_name_the_term_and_what_is_allowed() {
        let error = parse("state=PAUSED AND colour=red", &KEYS).unwrap_err();
        assert_eq!((error.field.as_str(), error.value.as_str()), ("filter", "colour"));
        assert!(error.expected.contains("state, policy, label.*"), "{error}");
        for text in [
            "state",
            "state=",
            "=x",
            "state=A policy=b",
            "state=A AND",
            "state=A OR policy=b",
            "state=A ANDpolicy=b",
            "label.=x",
            "state=\"A",
            "state=\"A\\",
            "state=A AND state=B",
            "label.a=\0",
            "label.a\0=b",
            "label.a=\"b\u{1b}\"",
        ] {
            assert_eq!(parse(text, &KEYS).unwrap_err().field, "filter", "{text}");
        }
    }
}
