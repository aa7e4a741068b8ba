//! Decides whether a text is a live key: by what this process remembers of them all, so that nothing a caller says
//! becomes a question to the store.
//!
//! In: the live keys, as often as somebody has read them. Out: who a text belongs to, or why to nobody.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::access::Principal;
use crate::key::KeyText;
use crate::scope::Scopes;

/// A live key.
#[derive(Clone, Debug)]
pub struct KeyEntry {
    /// Its public part.
    pub id: String,
    /// Who it is for.
    pub name: String,
    /// The only namespace that it reaches; none for all.
    pub namespace: Option<String>,
    /// What it may do.
    pub scopes: Scopes,
    /// SHA-256 of its secret part.
    pub hash: [u8; 32],
    /// When it ends by itself, in microseconds since the epoch.
    pub expires_us: Option<i64>,
}

struct Known {
    principal: Arc<Principal>,
    hash: [u8; 32],
    expires_us: Option<i64>,
}

/// Why a text admits nobody. A caller is not told which of them it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It does not look like a key.
    Form,
    /// There is no live key of this id: it never was, was revoked, or was made within the last second or two.
    Unknown,
    /// Its secret is wrong.
    Secret,
    /// It has expired.
    Expired,
}

/// The live keys, as this process knows them; cheap to clone, all clones are one.
#[derive(Clone, Default)]
pub struct Directory {
    keys: Arc<RwLock<Arc<HashMap<String, Known>>>>,
}

impl Directory {
    /// From now on, these are the live keys; how many.
    pub fn replace(&self, entries: Vec<KeyEntry>) -> usize {
        let keys: HashMap<String, Known> =
            entries.into_iter().map(|entry| (entry.id.clone(), known(entry))).collect();
        let count = keys.len();
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        count
    }

    /// Who a key belongs to.
    ///
    /// # Errors
    /// Why it admits nobody.
    pub fn verify(&self, text: &str, now_us: i64) -> Result<Arc<Principal>, Refusal> {
        let key = KeyText::parse(text).map_err(|_| Refusal::Form)?;
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        let known = keys.get(key.id()).ok_or(Refusal::Unknown)?;
        if !key.matches(&known.hash) {
            return Err(Refusal::Secret);
        }
        if known.expires_us.is_some_and(|expires_us| expires_us <= now_us) {
            return Err(Refusal::Expired);
        }
        Ok(known.principal.clone())
    }

    /// Whether the key of this id, which has been verified before, is still good.
    ///
    /// # Errors
    /// Why it is not.
    pub fn verify_again(&self, id: &str, now_us: i64) -> Result<(), Refusal> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        let known = keys.get(id).ok_or(Refusal::Unknown)?;
        if known.expires_us.is_some_and(|expires_us| expires_us <= now_us) {
            return Err(Refusal::Expired);
        }
        Ok(())
    }
}

fn known(entry: KeyEntry) -> Known {
    let KeyEntry { id, name, namespace, scopes, hash, expires_us } = entry;
    Known {
        principal: Arc::new(Principal { name, namespace, scopes, credential: format!("key {id}") }),
        hash,
        expires_us,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn entry(key: &KeyText, expires_us: Option<i64>) -> KeyEntry {
        let scopes = "read".parse().unwrap();
        let namespace = Some("team".to_owned());
        KeyEntry {
            id: key.id().to_owned(),
            name: "ci".to_owned(),
            namespace,
            scopes,
            hash: key.hash(),
            expires_us,
        }
    }

    #[test]
    fn a_live_key_is_known_until_it_is_replaced_or_expires() {
        let (one, two) = (KeyText::generate(), KeyText::generate());
        let directory = Directory::default();
        let verify = |key: &KeyText, now_us| {
            directory.verify(&key.reveal(), now_us).map(|principal| principal.name.clone())
        };
        assert_eq!(verify(&one, 0), Err(Refusal::Unknown));
        assert_eq!(directory.replace(vec![entry(&one, None), entry(&two, Some(100))]), 2);
        assert_eq!(verify(&one, 1_000), Ok("ci".to_owned()));
        assert_eq!(verify(&two, 99), Ok("ci".to_owned()));
        assert_eq!(verify(&two, 100), Err(Refusal::Expired));
        let again = |key: &KeyText, now_us| directory.verify_again(key.id(), now_us);
        assert_eq!((again(&one, 1_000), again(&two, 100)), (Ok(()), Err(Refusal::Expired)));
        directory.replace(vec![entry(&two, None)]);
        assert_eq!(verify(&one, 0), Err(Refusal::Unknown), "revoked");
        assert_eq!(directory.verify_again(one.id(), 0), Err(Refusal::Unknown));
    }

    #[test]
    fn the_secret_counts() {
        let (one, two) = (KeyText::generate(), KeyText::generate());
        let directory = Directory::default();
        directory.replace(vec![entry(&one, None)]);
        let secret = two.reveal().rsplit_once('_').unwrap().1.to_owned();
        let forged = format!("tgk_{}_{secret}", one.id());
        assert_eq!(directory.verify(&forged, 0).unwrap_err(), Refusal::Secret);
        assert_eq!(directory.verify("tgk_", 0).unwrap_err(), Refusal::Form);
    }
}
