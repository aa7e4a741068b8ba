//! Decides where a list call goes on: page tokens that hold a position and fit only the query that made them.
//!
//! In: `page_size`, `page_token` and the query's other fields. Out: how many rows, and after which position.
//! Invariant: a token of another query is refused. Not here: what a position is; each list has its own.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::field::FieldError;

/// Rows of a page where the caller does not say.
pub const SIZE_DEFAULT: usize = 100;
/// The most rows of a page.
pub const SIZE_MAX: usize = 1_000;

/// How many rows a page has: 0 stands for [`SIZE_DEFAULT`], more than [`SIZE_MAX`] for that.
///
/// # Errors
/// A negative size, in `page_size`.
pub fn size(page_size: i32) -> Result<usize, FieldError> {
    match usize::try_from(page_size) {
        Ok(0) => Ok(SIZE_DEFAULT),
        Ok(size) => Ok(size.min(SIZE_MAX)),
        Err(_) => Err(FieldError::new("page_size", page_size, "1 to 1000, or 0 for 100")),
    }
}

/// What a page token holds.
#[derive(Serialize, Deserialize)]
pub struct Token<P> {
    /// The position after which the next page starts.
    position: P,
    /// Ties it to its query.
    check: String,
}

impl<P: Serialize + DeserializeOwned> Token<P> {
    /// The token for the page after `position` of the query: its method, parent, filter, and all else that chooses rows.
    /// Empty where the position has no JSON form.
    pub fn encode(position: P, query: &[&str]) -> String {
        let token = Self { position, check: check(query) };
        serde_json::to_vec(&token).map(|bytes| URL_SAFE_NO_PAD.encode(bytes)).unwrap_or_default()
    }

    /// The position in a token; none for the empty token, which is the first page.
    ///
    /// # Errors
    /// A token that is not one, or is another query's, in `page_token`.
    pub fn decode(token: &str, query: &[&str]) -> Result<Option<P>, FieldError> {
        if token.is_empty() {
            return Ok(None);
        }
        let refused = |expected: &str| FieldError::new("page_token", token, expected);
        let decoded: Self = URL_SAFE_NO_PAD
            .decode(token)
            .ok()
            // No position has this character, and a database may not take it.
            .filter(|bytes| !bytes.windows(6).any(|part| part == b"\\u0000"))
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or_else(|| refused("the next_page_token of an earlier answer"))?;
        if decoded.check != check(query) {
            return Err(refused(
                "the next_page_token of the same query: parent, filter and order must not change",
            ));
        }
        Ok(Some(decoded.position))
    }
}

fn check(query: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in query {
        digest.update(part.len().to_be_bytes());
        digest.update(part.as_bytes());
    }
    URL_SAFE_NO_PAD.encode(&digest.finalize()[..9])
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    type Position = (i64, String);

    #[test]
    fn a_token_continues_its_own_query_only() {
        let query = ["ListRuns", "namespaces/a", "state=DEAD"];
        let token = Token::<Position>::encode((7, "x".to_owned()), &query);
        assert_eq!(Token::<Position>::decode(&token, &query).unwrap(), Some((7, "x".to_owned())));
        assert_eq!(Token::<Position>::decode("", &query).unwrap(), None);
        for other in [["ListRuns", "namespaces/b", "state=DEAD"], ["ListRunsn", "amespaces/a", "state=DEAD"]]
        {
            assert_eq!(Token::<Position>::decode(&token, &other).unwrap_err().field, "page_token");
        }
        for text in ["x", "e30", "not base64!", &token[1..]] {
            assert_eq!(Token::<Position>::decode(text, &query).unwrap_err().field, "page_token", "{text}");
        }
        let nothing = Token::<Position>::encode((7, "a\0".to_owned()), &query);
        assert_eq!(Token::<Position>::decode(&nothing, &query).unwrap_err().field, "page_token");
        let other_list = Token::<String>::encode("x".to_owned(), &query);
        assert!(Token::<Position>::decode(&other_list, &query).is_err());
    }

    #[test]
    fn sizes_are_bounded() {
        assert_eq!([size(0).unwrap(), size(1).unwrap(), size(i32::MAX).unwrap()], [100, 1, 1000]);
        assert_eq!(size(-1).unwrap_err().field, "page_size");
    }
}
