//! The installation's own secret, with which event ids are sealed and processes know each other.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;

use crate::keys::{Keys, SecretError, is_sealed};

/// Bytes of the secret.
const SECRET_BYTES: usize = 32;
/// What its envelope is bound to, beside the installation's id.
const FIELD: &str = "the installation's secret";

impl Keys {
    /// The secret in clear: of what is stored for the installation `id`, sealed or not.
    ///
    /// # Errors
    /// An envelope whose key is not here or does not fit, and what is neither an envelope nor a secret.
    pub fn open_installation(&self, id: Uuid, stored: &[u8]) -> Result<[u8; SECRET_BYTES], SecretError> {
        let malformed = || SecretError::Malformed { field: FIELD.to_owned() };
        let Some(envelope) = envelope(stored) else { return stored.try_into().map_err(|_| malformed()) };
        let clear = STANDARD.decode(self.open(id, FIELD, envelope)?).map_err(|_| malformed())?;
        clear.try_into().map_err(|_| malformed())
    }

    /// What is to be stored instead, so that it is sealed under the first key; none where it is so, or there are no keys.
    ///
    /// # Errors
    /// As [`Keys::open_installation`], and a system without random bytes.
    pub fn reseal_installation(&self, id: Uuid, stored: &[u8]) -> Result<Option<Vec<u8>>, SecretError> {
        if self.is_empty() || envelope(stored).is_some_and(|text| self.is_current(text)) {
            return Ok(None);
        }
        let clear = self.open_installation(id, stored)?;
        Ok(Some(self.seal(id, FIELD, &STANDARD.encode(clear))?.into_bytes()))
    }
}

/// Whether what is stored for an installation is in clear.
pub fn is_installation_clear(stored: &[u8]) -> bool {
    envelope(stored).is_none()
}

/// A secret has another length than any envelope.
fn envelope(stored: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(stored).ok()?;
    (stored.len() != SECRET_BYTES && is_sealed(text)).then_some(text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::generate_line;

    fn keys(ids: &[&str]) -> (Vec<String>, Keys) {
        let lines: Vec<String> = ids.iter().map(|id| generate_line(id).unwrap()).collect();
        let keys = Keys::parse(&lines.join("\n")).unwrap();
        (lines, keys)
    }

    #[test]
    fn it_is_sealed_opened_and_brought_under_another_key() {
        let (id, secret) = (Uuid::from_u128(7), [9_u8; SECRET_BYTES]);
        let (lines, old) = keys(&["old"]);
        let none = Keys::default();
        assert_eq!(none.open_installation(id, &secret).unwrap(), secret);
        assert_eq!(none.reseal_installation(id, &secret).unwrap(), None, "without keys it stays");
        let sealed = old.reseal_installation(id, &secret).unwrap().unwrap();
        assert!(sealed.starts_with(b"enc:v1:old:") && !sealed.windows(4).any(|part| part == [9; 4]));
        assert!(is_installation_clear(&secret) && !is_installation_clear(&sealed));
        assert_eq!(old.open_installation(id, &sealed).unwrap(), secret);
        assert_eq!(old.reseal_installation(id, &sealed).unwrap(), None, "it is so already");
        assert!(matches!(none.open_installation(id, &sealed), Err(SecretError::NoKey { .. })));
        assert!(matches!(old.open_installation(Uuid::from_u128(8), &sealed), Err(SecretError::Wrong { .. })));
        let both = Keys::parse(&format!("{}\n{}", generate_line("new").unwrap(), lines[0])).unwrap();
        let anew = both.reseal_installation(id, &sealed).unwrap().unwrap();
        assert!(anew.starts_with(b"enc:v1:new:"));
        assert_eq!(both.open_installation(id, &anew).unwrap(), secret);
        assert!(matches!(none.open_installation(id, b"short"), Err(SecretError::Malformed { .. })));
    }
}
