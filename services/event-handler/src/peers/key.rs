//! How the processes of an installation know each other: by the secret that they share in the store.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

/// Where the credential travels.
const METADATA: &str = "tollgate-peer";
/// Keeps this use of the secret apart from others.
const LABEL: &[u8] = b"tollgate: a call from one process to another, version 1\0";

/// Makes and checks the credentials of calls between processes.
///
/// A credential is an HMAC over the id of the process that is called, made anew at every start: at another process, or
/// after a restart, it is worth nothing.
#[derive(Clone)]
pub(crate) struct PeerKey(Hmac<Sha256>);

impl PeerKey {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mac = Hmac::new_from_slice(secret).expect("HMAC takes keys of any length");
        Self(mac)
    }

    /// What a call to this process must carry.
    pub(crate) fn credential(&self, callee: &str) -> Option<MetadataValue<Ascii>> {
        URL_SAFE_NO_PAD.encode(self.of(callee).finalize().into_bytes()).parse().ok()
    }

    /// Adds a credential to a call.
    pub(crate) fn attach(metadata: &mut MetadataMap, credential: &MetadataValue<Ascii>) {
        metadata.insert(METADATA, credential.clone());
    }

    /// Whether a call to this process comes from one of the installation. Takes the same time for every key.
    pub(crate) fn admits(&self, own: &str, metadata: &MetadataMap) -> bool {
        let given = metadata.get(METADATA).and_then(|given| URL_SAFE_NO_PAD.decode(given.as_bytes()).ok());
        self.of(own).verify_slice(&given.unwrap_or_default()).is_ok()
    }

    fn of(&self, callee: &str) -> Hmac<Sha256> {
        self.0.clone().chain_update(LABEL).chain_update(callee.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_credential_is_good_for_one_process_of_one_installation() {
        let key = PeerKey::new(&[7; 32]);
        let mut metadata = MetadataMap::new();
        assert!(!key.admits("a", &metadata), "none at all");
        PeerKey::attach(&mut metadata, &key.credential("a").unwrap());
        assert!(key.admits("a", &metadata));
        assert!(!key.admits("b", &metadata), "another process");
        assert!(!PeerKey::new(&[8; 32]).admits("a", &metadata), "another installation");
        for forged in ["", "AAAA", "not base64!", "a"] {
            metadata.insert(METADATA, forged.parse().unwrap());
            assert!(!key.admits("a", &metadata), "{forged}");
        }
        let cut = key.credential("a").unwrap().to_str().unwrap()[..20].to_owned();
        metadata.insert(METADATA, cut.parse().unwrap());
        assert!(!key.admits("a", &metadata), "a part of it");
    }
}
