//! Keys by name, and single texts under them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use uuid::Uuid;

/// What every envelope begins with.
pub const ENVELOPE: &str = "enc:v1:";
/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Most characters of a key's id.
const ID_CHARS_MAX: usize = 64;

/// Keys by id. The first one seals, all of them open.
#[derive(Clone, Default)]
pub struct Keys(Vec<(String, LessSafeKey)>);

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

/// Two sets of keys are the same where their ids are: keys themselves are never compared.
impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        self.ids().eq(other.ids())
    }
}

impl Eq for Keys {}

/// Why a list of keys cannot be read. Never holds a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line}: {what}; expected ID:KEY, where KEY is base64 of 32 bytes, as `tollgate secrets generate-key` prints"
)]
pub struct KeysError {
    /// From 1.
    pub line: usize,
    what: String,
}

/// Why a text could not be sealed or opened. Never holds the text or a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The key is not there.
    #[error(
        "{field} is sealed with key {key:?}, which this process does not have ({known}); \
         add that key's line to its secret keys"
    )]
    NoKey {
        /// What is sealed.
        field: String,
        /// The key's id.
        key: String,
        /// What it has.
        known: String,
    },
    /// The key is there and does not fit.
    #[error(
        "{field} does not open with key {key:?}: that id stands for another key here, or the stored text \
         was changed or belongs to another schedule"
    )]
    Wrong {
        /// What is sealed.
        field: String,
        /// The key's id.
        key: String,
    },
    /// Not an envelope although it begins like one.
    #[error("{field} begins with {ENVELOPE} and is no envelope")]
    Malformed {
        /// What is wrong.
        field: String,
    },
    /// The system gives no random bytes.
    #[error("{field} cannot be sealed: the system gives no random bytes")]
    NoRandom {
        /// What was to be sealed.
        field: String,
    },
}

impl SecretError {
    /// The id of the key that is needed, where one is.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::NoKey { key, .. } | Self::Wrong { key, .. } => Some(key),
            Self::Malformed { .. } | Self::NoRandom { .. } => None,
        }
    }
}

/// Whether a text is an envelope.
pub fn is_sealed(text: &str) -> bool {
    text.starts_with(ENVELOPE)
}

/// A line with a new key of this id.
///
/// # Errors
/// An id that is none, or a system without random bytes.
pub fn generate_line(id: &str) -> Result<String, String> {
    if !is_id(id) {
        return Err(format!(
            "{id:?} is no key id; allowed are 1 to {ID_CHARS_MAX} of A-Z, a-z, 0-9, '-', '_', '.'"
        ));
    }
    let mut key = [0_u8; KEY_BYTES];
    SystemRandom::new().fill(&mut key).map_err(|_| "the system gives no random bytes".to_owned())?;
    Ok(format!("{id}:{}", STANDARD.encode(key)))
}

fn is_id(id: &str) -> bool {
    (1..=ID_CHARS_MAX).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

impl Keys {
    /// The keys of a text: a line (or an item between commas) each, `#` begins a comment.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let mut keys = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            for item in line.split(',').map(str::trim).filter(|item| !item.is_empty()) {
                keys.add(item).map_err(|what| KeysError { line: number + 1, what })?;
            }
        }
        Ok(keys)
    }

    fn add(&mut self, item: &str) -> Result<(), String> {
        let (id, key) = item.split_once(':').ok_or("it has no colon")?;
        let (id, key) = (id.trim(), key.trim());
        if !is_id(id) {
            return Err(format!("its id is not 1 to {ID_CHARS_MAX} of A-Z, a-z, 0-9, '-', '_', '.'"));
        }
        if self.key(id).is_some() {
            return Err(format!("key {id:?} is given twice"));
        }
        let bytes = STANDARD.decode(key).map_err(|_| format!("key {id:?} is not base64 with padding"))?;
        let key = UnboundKey::new(&AES_256_GCM, &bytes)
            .map_err(|_| format!("key {id:?} has {} bytes, not {KEY_BYTES}", bytes.len()))?;
        self.0.push((id.to_owned(), LessSafeKey::new(key)));
        Ok(())
    }

    /// Whether there are none: then everything stays in clear.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ids, the sealing one first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(id, _)| id.as_str())
    }

    fn key(&self, id: &str) -> Option<&LessSafeKey> {
        self.0.iter().find(|(known, _)| known == id).map(|(_, key)| key)
    }

    /// Whether a text is as this process would write it: sealed with the first key, or in clear where there is none.
    pub fn is_current(&self, text: &str) -> bool {
        match self.ids().next() {
            None => !is_sealed(text),
            Some(id) => key_of(text) == Some(id),
        }
    }

    /// A text sealed for a field of a schedule, with a nonce of its own; unchanged where there are no keys.
    ///
    /// # Errors
    /// [`SecretError::NoRandom`].
    pub fn seal(&self, schedule: Uuid, field: &str, clear: &str) -> Result<String, SecretError> {
        let Some((id, key)) = self.0.first() else { return Ok(clear.to_owned()) };
        let no_random = |_| SecretError::NoRandom { field: field.to_owned() };
        let mut nonce = [0_u8; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(no_random)?;
        let mut text = clear.as_bytes().to_vec();
        let bound = Aad::from(binding(schedule, field));
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), bound, &mut text)
            .map_err(no_random)?;
        let mut bytes = nonce.to_vec();
        bytes.append(&mut text);
        Ok(format!("{ENVELOPE}{id}:{}", STANDARD.encode(bytes)))
    }

    /// A text in clear: what an envelope holds, or what was in clear anyway.
    ///
    /// # Errors
    /// An envelope whose key is not here or does not fit, and what is none.
    pub fn open(&self, schedule: Uuid, field: &str, text: &str) -> Result<String, SecretError> {
        let Some(rest) = text.strip_prefix(ENVELOPE) else { return Ok(text.to_owned()) };
        let malformed = || SecretError::Malformed { field: field.to_owned() };
        let (id, body) = rest.split_once(':').ok_or_else(malformed)?;
        let key = self.key(id).ok_or_else(|| SecretError::NoKey {
            field: field.to_owned(),
            key: id.to_owned(),
            known: match self.is_empty() {
                true => "it has none".to_owned(),
                false => format!("it has {}", self.ids().collect::<Vec<_>>().join(", ")),
            },
        })?;
        let wrong = || SecretError::Wrong { field: field.to_owned(), key: id.to_owned() };
        let mut bytes = STANDARD.decode(body).map_err(|_| malformed())?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN).ok_or_else(malformed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| malformed())?;
        let bound = Aad::from(binding(schedule, field));
        let clear = key.open_in_place(nonce, bound, sealed).map_err(|_| wrong())?;
        String::from_utf8(clear.to_vec()).map_err(|_| wrong())
    }
}

/// The id of the key of an envelope.
pub(crate) fn key_of(text: &str) -> Option<&str> {
    text.strip_prefix(ENVELOPE)?.split_once(':').map(|(id, _)| id)
}

/// What an envelope is bound to.
fn binding(schedule: Uuid, field: &str) -> Vec<u8> {
    format!("tollgate/v1/{schedule}/{field}").into_bytes()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const ONE: &str = "one:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const UID: Uuid = Uuid::from_u128(7);

    fn keys(text: &str) -> Keys {
        Keys::parse(text).unwrap()
    }

    #[test]
    fn what_is_sealed_opens_only_where_it_belongs() {
        let keys = keys(ONE);
        let sealed = keys.seal(UID, "payload", "{\"a\":1}").unwrap();
        assert!(sealed.starts_with("enc:v1:one:") && !sealed.contains("{\"a\""), "{sealed}");
        assert_eq!(keys.open(UID, "payload", &sealed).unwrap(), "{\"a\":1}");
        assert_ne!(keys.seal(UID, "payload", "{\"a\":1}").unwrap(), sealed, "each has its own nonce");
        let wrong = |field: &str| SecretError::Wrong { field: field.to_owned(), key: "one".to_owned() };
        assert_eq!(keys.open(Uuid::from_u128(8), "payload", &sealed), Err(wrong("payload")));
        assert_eq!(keys.open(UID, "other", &sealed), Err(wrong("other")));
        // Any byte that is changed is seen.
        let body = sealed.len() - 20;
        for at in body..sealed.len() - 4 {
            let mut other = sealed.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(keys.open(UID, "payload", &String::from_utf8(other).unwrap()), Err(wrong("payload")));
        }
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let two = generate_line("two").unwrap();
        let (old, both) = (keys(ONE), keys(&format!("{two}\n# the former one\n{ONE}\n")));
        let sealed = old.seal(UID, "f", "x").unwrap();
        assert_eq!(both.open(UID, "f", &sealed).unwrap(), "x");
        assert!(!both.is_current(&sealed) && old.is_current(&sealed) && !both.is_current("x"));
        let again = both.seal(UID, "f", "x").unwrap();
        assert!(again.starts_with("enc:v1:two:") && both.is_current(&again));
        let error = old.open(UID, "f", &again).unwrap_err();
        assert_eq!(error.key(), Some("two"));
        assert!(error.to_string().contains("\"two\"") && error.to_string().contains("it has one"), "{error}");
        let error = Keys::default().open(UID, "f", &again).unwrap_err().to_string();
        assert!(error.contains("it has none"), "{error}");
    }

    #[test]
    fn without_keys_all_stays_in_clear() {
        let none = Keys::parse("# nothing\n\n").unwrap();
        assert!(none.is_empty() && none.is_current("x"));
        assert_eq!(none.seal(UID, "f", "x").unwrap(), "x");
        assert_eq!(none.open(UID, "f", "x").unwrap(), "x");
    }

    #[test]
    fn wrong_lines_and_envelopes_are_named_without_their_text() {
        let short = STANDARD.encode([7; 31]);
        for (text, line, word) in [
            ("one".to_owned(), 1, "colon"),
            (format!("\n{ONE},{ONE}"), 2, "twice"),
            (format!("one:{short}"), 1, "31 bytes"),
            ("one:%%%".to_owned(), 1, "base64"),
            (format!("a b:{short}"), 1, "id"),
            (format!(":{short}"), 1, "id"),
        ] {
            let error = Keys::parse(&text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.to_string().contains(word) && !error.to_string().contains(&short), "{error}");
        }
        for text in ["enc:v1:", "enc:v1:one:", "enc:v1:one:%", "enc:v1:one:AAAA"] {
            let error = keys(ONE).open(UID, "f", text).unwrap_err();
            assert_eq!(error, SecretError::Malformed { field: "f".to_owned() }, "{text}");
        }
        assert!(generate_line("a:b").unwrap_err().contains("a:b"));
    }

    #[test]
    fn keys_do_not_show_themselves() {
        let text = format!("{:?}", keys(ONE));
        assert_eq!(text, "[\"one\"]");
    }
}
