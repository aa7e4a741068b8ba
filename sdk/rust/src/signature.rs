//! Checks requests as the Standard Webhooks specification says.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use hyper::HeaderMap;
use sha2::Sha256;

/// An older request may be somebody else's copy.
const AGE_MAX_S: u64 = 300;

/// The secrets in one of which a request is signed.
#[derive(Clone)]
pub(crate) struct Secrets(Vec<Vec<u8>>);

impl Secrets {
    pub(crate) fn read<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut keys = Vec::new();
        for secret in secrets {
            let key = STANDARD.decode(secret.trim_start_matches("whsec_")).unwrap_or_default();
            if key.is_empty() {
                return Err("secrets: one cannot be read, expected whsec_ and base64".into());
            }
            keys.push(key);
        }
        if keys.is_empty() {
            return Err("secrets: missing, expected the schedule's target.http.secret".into());
        }
        Ok(Self(keys))
    }

    pub(crate) fn signed(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (id, sent) = (header("webhook-id"), header("webhook-timestamp"));
        let now_s = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let fresh = sent.parse().is_ok_and(|sent_s: u64| now_s.abs_diff(sent_s) <= AGE_MAX_S);
        let signatures = header("webhook-signature");
        let matches = |key: &Vec<u8>| {
            let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return false };
            mac.update(format!("{id}.{sent}.").as_bytes());
            mac.update(body);
            signatures.split(' ').any(|signature| {
                let given = signature.strip_prefix("v1,").and_then(|text| STANDARD.decode(text).ok());
                given.is_some_and(|given| mac.clone().verify_slice(&given).is_ok())
            })
        };
        fresh && self.0.iter().any(matches)
    }
}
