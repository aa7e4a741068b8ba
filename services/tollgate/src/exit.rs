//! The end of a command that has said all there is to say, with an exit code of its own.

use std::fmt;

/// All events of a run have ended, and some not well; or it was cancelled or skipped.
pub(crate) const NOT_WELL: u8 = 3;
/// What was waited for has not come in time.
pub(crate) const TIMED_OUT: u8 = 4;

/// The same had been submitted before, and is not made again.
pub(crate) const HAD_BEEN: u8 = 5;

/// An exit code without a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {}", self.0)
    }
}

impl std::error::Error for Exit {}
