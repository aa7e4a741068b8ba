//! Decides how secrets look at rest: sealed under a named key, and bound to the schedule and field they belong to.
//!
//! In: keys, and a schedule's target and payload. Out: the same with its secret parts (signing secret, header values,
//! payload) as envelopes `enc:v1:{key id}:{base64 of nonce, ciphertext and tag}` of AES-256-GCM, or back in clear.
//! The additional data is the schedule's uid and the field's path, so an envelope that is copied to another schedule
//! or field does not open. Invariants: envelopes travel through store, inbox and audit log as they are, and are opened
//! in two places only: where a schedule or an alert is shown to a caller, and where its event or message is sent; no
//! error, log line or `Debug` text holds a secret or a key. The installation's own secret is sealed in the same way,
//! bound to the installation's id.
//! Without keys everything stays in clear. Not here: where keys come from.

mod alert;
mod installation;
mod items;
mod keys;
mod parts;

pub use alert::is_alert_sealed;
pub use installation::is_installation_clear;
pub use items::{item_field, result_field};
pub use keys::{ENVELOPE, Keys, KeysError, SecretError, generate_line, is_sealed};
pub use parts::{ITEMS, Resealed, has_sealed};
