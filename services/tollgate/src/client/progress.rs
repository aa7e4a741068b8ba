//! One line on standard error that says how far something has come, drawn anew in its place; nothing where that is no terminal.

use std::future::Future;
use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tollgate_clock::Clock;
use tollgate_proto::v1;
use tonic::{Code, Status, Streaming};

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

/// The answer of a call that is watched, where anybody would see that and the service knows it; else of the plain one.
///
/// # Errors
/// Those of the call.
pub(super) async fn watched_or_plain<T>(
    watched: impl Future<Output = Result<T, Status>>,
    plain: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    if Line::new().is_seen() {
        match watched.await {
            // A version before this one.
            Err(status) if status.code() == Code::Unimplemented => {}
            answer => return answer,
        }
    }
    plain.await
}

/// Waits for `call`, and meanwhile draws what `said` makes of the time since it began, in milliseconds.
pub(super) async fn beside<T>(call: impl Future<Output = T>, said: impl Fn(u64) -> String) -> T {
    let (mut line, clock) = (Line::new(), Clock::system());
    let began_us = clock.wall_us();
    let mut call = std::pin::pin!(call);
    loop {
        match tokio::time::timeout(EVERY, &mut call).await {
            Ok(done) => return done,
            Err(_) => line.draw(&said(ms_since(&clock, began_us))),
        }
    }
}

/// How far a call has come, as the service tells it.
#[derive(Debug, Default)]
pub(super) struct Told {
    now: Mutex<(u64, v1::CallProgress)>,
}

impl Told {
    /// Notes what was told `ms` after the call began.
    fn note(&self, ms: u64, progress: v1::CallProgress) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let since_ms = if now.1.stage == progress.stage { now.0 } else { ms };
        *now = (since_ms, progress);
    }

    /// `1200 of 5000, 240.0/s, 15s left` of what it does now; none before anything was told.
    fn text(&self, ms: u64) -> Option<(v1::CallStage, String)> {
        let (since_ms, progress) = *self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let v1::CallProgress { done_count, total_count, .. } = progress;
        let stage = progress.stage();
        let is_told = stage != v1::CallStage::Unspecified;
        is_told.then(|| (stage, text(done_count, total_count, ms.saturating_sub(since_ms))))
    }
}

/// A message of a call that tells how far it has come.
pub(super) trait Step {
    /// The answer of the call.
    type Response;

    /// How far it has come, or the answer; none of a message that this build does not know.
    fn step(self) -> Option<Result<Self::Response, v1::CallProgress>>;
}

impl Step for v1::ApplyResourcesProgress {
    type Response = v1::ApplyResourcesResponse;

    fn step(self) -> Option<Result<Self::Response, v1::CallProgress>> {
        use v1::apply_resources_progress::Step as Message;
        self.step.map(|step| match step {
            Message::Progress(progress) => Err(progress),
            Message::Response(response) => Ok(response),
        })
    }
}

impl Step for v1::BackfillScheduleProgress {
    type Response = v1::BackfillScheduleResponse;

    fn step(self) -> Option<Result<Self::Response, v1::CallProgress>> {
        use v1::backfill_schedule_progress::Step as Message;
        self.step.map(|step| match step {
            Message::Progress(progress) => Err(progress),
            Message::Response(response) => Ok(response),
        })
    }
}

/// The answer of a call that tells how far it has come, with a line that says it. `before`: the line until something is told;
/// both are given the time since the call began, in milliseconds.
///
/// # Errors
/// Those of the call; ABORTED where it ends without an answer.
pub(super) async fn told<M: Step>(
    call: impl Future<Output = Result<tonic::Response<Streaming<M>>, Status>>,
    before: impl Fn(u64) -> String,
    said: impl Fn(v1::CallStage, &str) -> String,
) -> Result<M::Response, Status> {
    let (told, clock) = (Told::default(), Clock::system());
    let began_us = clock.wall_us();
    let answer = async {
        let mut steps = call.await?.into_inner();
        while let Some(message) = steps.message().await? {
            match message.step() {
                Some(Ok(response)) => return Ok(response),
                Some(Err(progress)) => told.note(ms_since(&clock, began_us), progress),
                None => {}
            }
        }
        Err(Status::aborted("the answer ended before it said what was done"))
    };
    beside(answer, |ms| told.text(ms).map_or_else(|| before(ms), |(stage, text)| said(stage, &text))).await
}

fn ms_since(clock: &Clock, began_us: i64) -> u64 {
    u64::try_from(clock.wall_us().saturating_sub(began_us)).unwrap_or_default() / 1_000
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
        let told = Told::default();
        assert_eq!(told.text(500), None);
        let progress = |stage: v1::CallStage, done_count| v1::CallProgress {
            stage: stage.into(),
            done_count,
            total_count: 600,
        };
        told.note(1_000, progress(v1::CallStage::Check, 600));
        told.note(2_000, progress(v1::CallStage::Write, 10));
        told.note(3_000, progress(v1::CallStage::Write, 200));
        let text_at_4_s = "200 of 600, 100.0/s, 4s left".to_owned();
        assert_eq!(told.text(4_000), Some((v1::CallStage::Write, text_at_4_s)), "the stage began at 2 s");
        assert_eq!((text(0, 5, 9_000), text(3, 5, 10)), ("0 of 5".to_owned(), "3 of 5".to_owned()));
    }
}
