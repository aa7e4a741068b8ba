//! Workers that take events themselves: who is there, how much room each has, and who is given what.
//!
//! An event of a schedule whose target is `pull` starts when the policy has a token for it and a worker that is able to do it has
//! room: the owner of its queue shard asks the [`desk`] for room, takes the token, commits, and only then hands the event over.
//! Workers may be connected to any process: what they have to spare, [`elsewhere`] lends to owners in other processes.

mod away;
mod book;
mod desk;
mod elsewhere;
mod floor;
mod giving;
mod handing;
mod lack;
mod lending;
mod listed;
mod poll;
mod service;
mod sessions;
mod stream;
mod taken;
mod unable;

#[cfg(test)]
mod tests;

pub(crate) use desk::{Desk, RoomUnit};
pub(crate) use elsewhere::Elsewhere;
pub(crate) use handing::Outcome;
pub use service::Workers;
pub(crate) use unable::Unable;
