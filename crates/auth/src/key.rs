//! Decides how a key looks: `tgk_<id>_<secret>`, 16 and 64 characters of 0-9a-f.

use std::fmt;

use rand::RngCore as _;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

const PREFIX: &str = "tgk_";
const ID_CHARS: usize = 16;
const SECRET_CHARS: usize = 64;

/// A key as its holder has it. It is shown once and kept nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText {
    id: String,
    secret: String,
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyText({PREFIX}{}_…)", self.id)
    }
}

/// A text that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError;

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it does not have the form tgk_<id>_<secret>")
    }
}

impl std::error::Error for KeyError {}

impl KeyText {
    /// A new one: its secret has 256 bits of chance, so that a plain hash of it tells nothing.
    pub fn generate() -> Self {
        let (mut id, mut secret) = ([0_u8; ID_CHARS / 2], [0_u8; SECRET_CHARS / 2]);
        let mut chance = rand::rng();
        chance.fill_bytes(&mut id);
        chance.fill_bytes(&mut secret);
        Self { id: hex(&id), secret: hex(&secret) }
    }

    /// A key from its text.
    ///
    /// # Errors
    /// Any other text.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let (id, secret) = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).ok_or(KeyError)?;
        let lower_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if id.len() != ID_CHARS || secret.len() != SECRET_CHARS || !lower_hex(id) || !lower_hex(secret) {
            return Err(KeyError);
        }
        Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
    }

    /// Its public part.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What is kept of it.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.secret.as_bytes()).into()
    }

    /// Whether this is what was kept. Takes the same time wherever they differ.
    pub(crate) fn matches(&self, kept: &[u8; 32]) -> bool {
        self.hash().ct_eq(kept).into()
    }

    /// The whole text, for its holder.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_shown() {
        let key = KeyText::generate();
        let text = key.reveal();
        assert_eq!(text.len(), 4 + 16 + 1 + 64);
        let read = KeyText::parse(&text).unwrap();
        assert_eq!((read.id(), read.hash()), (key.id(), key.hash()));
        assert!(read.matches(&key.hash()));
        assert_ne!(KeyText::generate().reveal(), text);
        assert!(!format!("{key:?}").contains(&key.secret), "a secret in a log");
    }

    #[test]
    fn another_secret_does_not_match() {
        let (key, other) = (KeyText::generate(), KeyText::generate());
        assert!(!other.matches(&key.hash()));
        let mixed = KeyText { id: key.id.clone(), secret: other.secret };
        assert!(!mixed.matches(&key.hash()));
    }

    #[test]
    fn other_texts_are_no_keys() {
        let text = KeyText::generate().reveal();
        let more = format!("{text}0");
        for wrong in ["", "tgk_", "tgk__", &text[..84], &text[1..], &more, &text.to_uppercase(), "tgk_a_b"] {
            assert_eq!(KeyText::parse(wrong), Err(KeyError), "{wrong}");
        }
    }
}
