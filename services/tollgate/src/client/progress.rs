//! One line on standard error that says how far something has come, drawn anew in its place; nothing where that is no terminal.

use std::future::Future;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use tollgate_clock::Clock;

use super::when::span;

/// How often the line is drawn.
const EVERY: Duration = Duration::from_millis(250);
/// The time over which a rate is measured before it is told.
const RATE_AFTER_MS: u64 = 1_000;

/// A line in its place.
pub(super) struct Line {
    is_terminal: bool,
    is_drawn: bool,
}

impl Line {
    /// On standard error.
    pub(super) fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), is_drawn: false }
    }

    /// Whether anybody sees it.
    pub(super) fn is_seen(&self) -> bool {
        self.is_terminal
    }

    /// Draws it. Nobody may be left to see it.
    pub(super) fn draw(&mut self, text: &str) {
        if self.is_terminal {
            self.is_drawn = true;
            let _nobody = write!(std::io::stderr(), "\r\u{1b}[2K{text}");
        }
    }

    /// Takes it away.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let _nobody = write!(std::io::stderr(), "\r\u{1b}[2K");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Waits for `call`, and meanwhile draws what `said` makes of the time since it began, in milliseconds.
pub(super) async fn beside<T>(call: impl Future<Output = T>, said: impl Fn(u64) -> String) -> T {
    let (mut line, clock) = (Line::new(), Clock::system());
    let began_us = clock.wall_us();
    let mut call = std::pin::pin!(call);
    loop {
        match tokio::time::timeout(EVERY, &mut call).await {
            Ok(done) => return done,
            Err(_) => {
                let us = clock.wall_us().saturating_sub(began_us);
                line.draw(&said(u64::try_from(us).unwrap_or_default() / 1_000));
            }
        }
    }
}

/// `, 240.0/s`: how many of `done` were done in a second of `ms`; nothing before that can be told.
pub(super) fn rate(done: u64, ms: u64) -> String {
    if ms < RATE_AFTER_MS || done == 0 {
        return String::new();
    }
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rate = done as f64 * 1_000.0 / ms as f64;
    format!(", {rate:.1}/s")
}

/// `1200 of 5000, 240.0/s, 15s left`: `done` of `total` in `ms`.
pub(super) fn text(done: u64, total: u64, ms: u64) -> String {
    further(0, done, total, ms)
}

/// As [`text`], where `from` of them had been done before.
pub(super) fn further(from: u64, done: u64, total: u64, ms: u64) -> String {
    let fresh = done.saturating_sub(from);
    let rate = rate(fresh, ms);
    let mut text = format!("{done} of {total}{rate}");
    if done < total && !rate.is_empty() {
        // Rounded up to whole seconds: what is nearly done is not done.
        let left_ms = u128::from(total - done) * u128::from(ms) / u128::from(fresh);
        text.push_str(&format!(
            ", {} left",
            span(u64::try_from(left_ms).unwrap_or(u64::MAX).div_ceil(1_000) * 1_000)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_the_rate() {
        assert_eq!(text(1_200, 5_000, 5_000), "1200 of 5000, 240.0/s, 16s left");
        assert_eq!(text(5_000, 5_000, 5_000), "5000 of 5000, 1000.0/s");
        assert_eq!(further(1_000, 1_200, 1_600, 5_000), "1200 of 1600, 40.0/s, 10s left");
        assert_eq!((text(0, 5, 9_000), text(3, 5, 10)), ("0 of 5".to_owned(), "3 of 5".to_owned()));
    }
}
