//! How things are said: numbers, moments, states, timings. Words import nothing of this crate.

pub(crate) mod range;
pub(crate) mod sentence;
pub(crate) mod show;
pub(crate) mod zone;
