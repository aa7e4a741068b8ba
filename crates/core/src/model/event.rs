//! Event ids: where an event's token is kept, in the id itself, so that a release needs no look-up.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use uuid::Uuid;

use super::RunId;

/// Characters of an id, at most.
const ID_MAX: usize = 80;
/// Bytes of the authenticator in an id.
const SEAL_BYTES: usize = 8;

/// Which event: the queue shard, the run and the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventRef {
    /// The queue shard that owns the run.
    pub shard: u16,
    /// The run.
    pub run: RunId,
    /// 0 to n-1.
    pub index: u32,
}

/// An event's id as consumers see it: `<shard>-<run>-<index>-<seal>`, at most 80 characters of `[A-Za-z0-9_-]`.
///
/// The seal authenticates the rest, so that an id cannot be guessed and a forged one is refused without a look-up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventId(String);

impl EventId {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The run, as resource names have it: `<shard>-<run>`.
    pub fn run(&self) -> &str {
        let end = self.0.match_indices('-').nth(1).map_or(self.0.len(), |(end, _)| end);
        self.0.get(..end).unwrap_or_default()
    }

    /// An id without its seal, `<shard>-<run>-<index>`: it names the event, and authorises nothing. None where the text has
    /// no seal.
    pub fn without_seal(id: &str) -> Option<&str> {
        let (end, _) = id.match_indices('-').nth(2)?;
        id.get(..end)
    }

    /// Which event an id without its seal names; none for any other text.
    pub fn read_unsealed(id: &str) -> Option<EventRef> {
        let mut parts = id.splitn(3, '-');
        let event = EventRef {
            shard: u16::from_str_radix(parts.next()?, 16).ok()?,
            run: RunId(Uuid::try_parse(parts.next()?).ok()?),
            index: parts.next()?.parse().ok()?,
        };
        // One event has one name.
        (unsealed(event) == id).then_some(event)
    }
}

fn unsealed(event: EventRef) -> String {
    // With room for the seal.
    let mut id = String::with_capacity(ID_MAX);
    // A string takes all that is written into it.
    let _written = write!(id, "{:02x}-{}-{}", event.shard, event.run, event.index);
    id
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<EventId> for String {
    fn from(id: EventId) -> Self {
        id.0
    }
}

/// Why a text is not the id of an event of this installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventIdError {
    /// It does not have the parts of an id.
    #[error("it does not have the form <shard>-<run>-<index>-<seal>")]
    Form,
    /// It was not made here.
    #[error("its seal is wrong: it was not issued by this installation")]
    Forged,
}

/// Makes and checks event ids with a secret that all processes of an installation share.
#[derive(Clone)]
pub struct EventKeyring {
    mac: Hmac<Sha256>,
}

impl fmt::Debug for EventKeyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventKeyring")
    }
}

impl EventKeyring {
    /// A keyring for this secret.
    pub fn new(secret: &[u8; 32]) -> Self {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mac = Hmac::new_from_slice(secret).expect("HMAC takes keys of any length");
        Self { mac }
    }

    /// The id of an event.
    pub fn id(&self, event: EventRef) -> EventId {
        let mut id = unsealed(event);
        id.push('-');
        URL_SAFE_NO_PAD.encode_string(&self.sealed(event).finalize().into_bytes()[..SEAL_BYTES], &mut id);
        EventId(id)
    }

    /// Which event an id names.
    ///
    /// # Errors
    /// [`EventIdError`] where the text is not an id that this keyring made.
    pub fn open(&self, id: &str) -> Result<EventRef, EventIdError> {
        let mut parts = id.splitn(4, '-');
        let (Some(shard), Some(run), Some(index), Some(seal)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(EventIdError::Form);
        };
        let event = EventRef {
            shard: u16::from_str_radix(shard, 16).map_err(|_| EventIdError::Form)?,
            run: RunId(Uuid::try_parse(run).map_err(|_| EventIdError::Form)?),
            index: index.parse().map_err(|_| EventIdError::Form)?,
        };
        let given = URL_SAFE_NO_PAD.decode(seal).map_err(|_| EventIdError::Form)?;
        let sealed = self.sealed(event).verify_truncated_left(&given);
        // The text must be the canonical one: one event has one id.
        if given.len() != SEAL_BYTES || sealed.is_err() || self.id(event).as_str() != id {
            return Err(EventIdError::Forged);
        }
        Ok(event)
    }

    fn sealed(&self, event: EventRef) -> Hmac<Sha256> {
        self.mac
            .clone()
            .chain_update(event.shard.to_be_bytes())
            .chain_update(event.run.0.as_bytes())
            .chain_update(event.index.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> EventRef {
        EventRef { shard: 63, run: RunId::derive(Uuid::nil(), 1_780_000_000_000_000), index: 9_999_999 }
    }

    #[test]
    fn an_id_opens_to_its_event_and_fits() {
        let keys = EventKeyring::new(&[7; 32]);
        let id = keys.id(event());
        assert_eq!(keys.open(id.as_str()), Ok(event()));
        assert_eq!(id.run(), format!("3f-{}", event().run));
        assert!(id.as_str().len() <= ID_MAX, "{id}");
        assert!(id.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{id}");
    }

    #[test]
    fn the_id_of_an_event_in_the_last_shard_that_may_be_opens_and_fits() {
        let keys = EventKeyring::new(&[7; 32]);
        let last = EventRef { shard: 1_023, index: u32::MAX, ..event() };
        let id = keys.id(last);
        assert_eq!(keys.open(id.as_str()), Ok(last));
        assert_eq!(
            EventId::read_unsealed(EventId::without_seal(id.as_str()).unwrap_or_default()),
            Some(last)
        );
        assert!(id.run().starts_with("3ff-") && id.as_str().len() <= ID_MAX, "{id}");
    }

    #[test]
    fn an_id_without_its_seal_names_the_event_and_opens_nothing() {
        let keys = EventKeyring::new(&[7; 32]);
        let id = keys.id(event());
        let bare = EventId::without_seal(id.as_str()).unwrap_or_default();
        assert_eq!(EventId::read_unsealed(bare), Some(event()));
        assert_eq!(EventId::without_seal(bare), None);
        assert!(keys.open(bare).is_err());
        for other in [id.as_str(), "", "3f", &bare.to_uppercase(), &bare.replace("-9999999", "-09999999")] {
            assert_eq!(EventId::read_unsealed(other), None, "{other}");
        }
    }

    #[test]
    fn another_index_secret_or_spelling_is_refused() {
        let keys = EventKeyring::new(&[7; 32]);
        let id = keys.id(event()).to_string();
        assert_eq!(EventKeyring::new(&[8; 32]).open(&id), Err(EventIdError::Forged));
        assert_eq!(keys.open(&id.replace("-9999999-", "-9999998-")), Err(EventIdError::Forged));
        assert_eq!(keys.open(&id.replace("-9999999-", "-09999999-")), Err(EventIdError::Forged));
        assert!(keys.open(&id.to_uppercase()).is_err());
        for text in ["", "-", "3f", "3f-x-1-y", "zz-00-1-", "3f-0-1-AAAA"] {
            assert!(keys.open(text).is_err(), "{text}");
        }
    }
}
