//! The error of a command line that cannot be carried out as it is: people change it, and come again.

use std::fmt;
use std::time::Duration;

/// What is wrong with it, and what is expected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error of the system without its number.
pub(crate) fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// A span of time on the command line.
///
/// # Errors
/// A text that is none, with what is expected.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "expected a duration such as 30s, 15m or 1h 30m".to_owned())
}
