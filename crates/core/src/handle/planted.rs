//! Bugs planted on purpose, to see that the simulation finds them: which ones there are, and whether one is on.
//!
//! Without the feature `planted-bugs`, which no product has, the question is a constant and the hooks are nothing.

use super::shard::Shard;

/// A rule of the machine that is broken.
#[cfg_attr(not(feature = "planted-bugs"), expect(unreachable_pub, reason = "public with the feature"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A freed token is counted as two.
    FreedTwice,
    /// An unclear delivery frees its token.
    UnclearFrees,
    /// Silence is counted by the wall clock.
    WallClockTtl,
    /// Silence goes on while nothing runs.
    TtlRunsWhileDown,
    /// A release frees whatever attempt is in flight.
    LateReleaseFrees,
    /// A refusal frees the token though an earlier delivery is unclear.
    RefusalEndsDoubt,
    /// A resend has the number of the delivery before.
    AttemptNotRaised,
    /// The next shard on a schedule's way is told before it is durable that nothing starts here.
    MovedEarly,
    /// A buffered run stays when the run before it ends.
    BufferedForgotten,
    /// A cancel leaves what waits for another attempt.
    CancelKeepsRetries,
    /// The end of a window is counted twice.
    WindowCountedTwice,
    /// The end of a window is not looked for.
    WindowIgnored,
    /// Emissions of older generations are taken in.
    FenceIgnored,
    /// A message that was taken in is taken in again.
    MessageTwice,
    /// Runs that have ended meanwhile are adopted from a read that began before.
    GoneForgotten,
    /// Events start though their shard is paused.
    PauseIgnored,
    /// A heartbeat is answered and forgotten.
    HeartbeatIgnored,
    /// What is acquired before its launch time is sent at once.
    SentEarly,
    /// An answer says what is pending as if it were durable.
    AnswerBeforeDurable,
    /// An event that gets a row of its own stays in its batch.
    BatchKept,
    /// That a consumer has an event is not written into its batch.
    BatchHoldForgotten,
    /// An unclear event keeps its place while it waits to be sent again, and for good.
    PlaceKept,
    /// A release that was recorded in the inbox is dropped if the event has been sent again since.
    RecordedReleaseDropped,
}

#[cfg(feature = "planted-bugs")]
impl Planted {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::FreedTwice,
        Self::UnclearFrees,
        Self::WallClockTtl,
        Self::TtlRunsWhileDown,
        Self::LateReleaseFrees,
        Self::RefusalEndsDoubt,
        Self::AttemptNotRaised,
        Self::MovedEarly,
        Self::BufferedForgotten,
        Self::CancelKeepsRetries,
        Self::WindowCountedTwice,
        Self::WindowIgnored,
        Self::FenceIgnored,
        Self::MessageTwice,
        Self::GoneForgotten,
        Self::PauseIgnored,
        Self::HeartbeatIgnored,
        Self::SentEarly,
        Self::AnswerBeforeDurable,
        Self::BatchKept,
        Self::BatchHoldForgotten,
        Self::PlaceKept,
        Self::RecordedReleaseDropped,
    ];
}

impl Shard {
    /// Whether this bug is on.
    #[cfg(feature = "planted-bugs")]
    pub(super) fn has(&self, bug: Planted) -> bool {
        self.options.planted == Some(bug)
    }

    /// Whether this bug is on.
    #[cfg(not(feature = "planted-bugs"))]
    pub(super) const fn has(&self, _bug: Planted) -> bool {
        false
    }
}
