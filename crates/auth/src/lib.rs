//! Decides who a caller is, and what that caller may call: keys, scopes, namespaces.
//!
//! In: the head of a request, and what its connection has shown. Out: an [`Access`] among the request's extensions, or a
//! refusal. The flow of a call: [`Door`] finds out who it is, [`needs`] what the RPC asks for, and where the service
//! reads the request's names, [`Access::admit`] compares their namespaces before anything is looked up.
//!
//! Invariants: an RPC that the table does not name is for nobody without a key; a refusal says nothing of what exists; no
//! secret is kept, only its hash; the caller's name for the audit log is the key's, not one that the caller gives.
//! Not here: where keys are stored, what an event's token is worth (its seal is checked with the release).

mod access;
mod directory;
mod door;
mod key;
mod named;
mod scope;
mod table;

pub use access::{Access, Aim, EventRefusal, NamedEvent, NamedId, Principal};
pub use directory::{Directory, KeyEntry, Refusal};
pub use door::{ConnectionInfo, Door, Guarded, Mode, Origin, StreamKey};
pub use key::{KeyError, KeyText};
pub use named::Named;
pub use scope::{Scope, ScopeError, Scopes};
pub use table::{Needs, TABLE, is_stream, needs};
