//! Signs requests as the Standard Webhooks specification says (<https://www.standardwebhooks.com>).
//!
//! In: the secret of a target, the event's id, the time of sending, the body. Out: the value of `webhook-signature`.
//! The signature covers `{id}.{timestamp}.{body}`, so neither of the three can be exchanged.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

const SECRET_PREFIX: &str = "whsec_";
/// Bytes of key material that the specification allows.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Whether a text is a Standard Webhooks secret: `whsec_` and base64 of 24 to 64 bytes.
///
/// # Errors
/// Says what is wrong with it; the message never contains the secret.
pub fn check_secret(secret: &str) -> Result<(), String> {
    key(secret).map(|_| ())
}

/// The value of the header `webhook-signature`.
///
/// # Errors
/// As [`check_secret`].
pub(crate) fn sign(secret: &str, id: &str, timestamp_s: i64, body: &[u8]) -> Result<String, String> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(&key(secret)?).map_err(|error| format!("secret: {error}"))?;
    mac.update(format!("{id}.{timestamp_s}.").as_bytes());
    mac.update(body);
    Ok(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

fn key(secret: &str) -> Result<Vec<u8>, String> {
    let text = secret.strip_prefix(SECRET_PREFIX).ok_or_else(|| {
        format!("secret: it does not begin with {SECRET_PREFIX}; allowed is {SECRET_PREFIX} and base64")
    })?;
    let key = STANDARD
        .decode(text)
        .map_err(|_| format!("secret: what follows {SECRET_PREFIX} is not base64 with padding"))?;
    if !KEY_BYTES.contains(&key.len()) {
        return Err(format!(
            "secret: it has {} bytes of key; allowed are {} to {}",
            key.len(),
            KEY_BYTES.start(),
            KEY_BYTES.end()
        ));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The case that the specification's own libraries test themselves with.
    #[test]
    fn the_published_case_has_its_published_signature() {
        let signature = sign(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, Ok("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=".to_owned()));
    }

    #[test]
    fn secrets_of_another_form_or_length_are_refused() {
        let of = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
        assert_eq!(check_secret(&of(24)), Ok(()));
        assert_eq!(check_secret(&of(64)), Ok(()));
        for (secret, word) in [
            (of(23), "23 bytes"),
            (of(65), "65 bytes"),
            ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned(), "begin"),
            ("whsec_%%%".to_owned(), "base64"),
            (String::new(), "begin"),
        ] {
            let error = check_secret(&secret).map_err(|error| error.contains(word));
            assert_eq!(error, Err(true), "{secret}");
        }
    }
}
