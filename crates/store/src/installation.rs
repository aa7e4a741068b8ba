//! Making and reading the installation's identity.

use uuid::Uuid;

use crate::Installation;
use crate::layout::ShardCount;

/// How many queue shards a new installation has.
const SHARDS: u16 = 64;
/// Bytes of a secret that is stored in clear.
const SECRET_BYTES: usize = 32;
/// What one begins with that is sealed.
const SEALED: &[u8] = b"enc:";

impl Installation {
    /// A new one.
    pub(crate) fn fresh() -> Self {
        // Version 4 UUIDs come from the operating system's randomness, 122 bits each.
        let mut secret = [0_u8; 32];
        secret[..16].copy_from_slice(Uuid::new_v4().as_bytes());
        secret[16..].copy_from_slice(Uuid::new_v4().as_bytes());
        Self { id: Uuid::new_v4(), secret: secret.to_vec(), shards: SHARDS }
    }

    /// One from its row; none if the row is corrupt.
    pub(crate) fn read(id: Uuid, secret: Vec<u8>, shards: i32) -> Option<Self> {
        let shards = u16::try_from(shards).ok().filter(|shards| *shards > 0)?;
        let readable = secret.len() == SECRET_BYTES || secret.starts_with(SEALED);
        readable.then_some(Self { id, secret, shards })
    }

    /// As [`Installation::read`], and how many queue shards there are by now.
    pub(crate) fn with_count(
        id: Uuid,
        secret: Vec<u8>,
        shards: i32,
        now: &[(i32, i32)],
    ) -> Option<(Self, ShardCount)> {
        let installation = Self::read(id, secret, shards)?;
        let count = ShardCount::new(installation.shards);
        count.learn(now);
        Some((installation, count))
    }
}
