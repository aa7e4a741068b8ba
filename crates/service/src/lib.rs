//! What the services share: one module for each thing.
//!
//! | module | decides |
//! | --- | --- |
//! | [`actor`] | the name under which the audit log notes a caller |
//! | [`redact`] | what a caller may see of an answer |
//! | [`room`] | how much each caller gets of what many share |
//! | [`status`] | what a caller learns of a store's error |
//! | [`wake`] | how a service wakes the owner of a queue shard |
//!
//! The clock and the fault points are crates of their own, because the store needs them and this crate needs the store.

pub mod actor;
pub mod follow;
pub mod redact;
pub mod room;
pub mod status;
pub mod wake;
