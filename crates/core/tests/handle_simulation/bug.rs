//! What is broken on purpose, to see that a check sees it: rules of the driver, the store, emitters and masters here,
//! the machine's own behind the feature `planted-bugs` of the core.

#[cfg(feature = "planted-bugs")]
use tollgate_core::handle::Planted;

/// One broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing is broken.
    None,
    /// A commit asks nobody whether the shard is still its owner's.
    NoFence,
    /// The fence compares the epoch alone, which changes only with the owner.
    EpochOnly,
    /// A shard is taken before its owner's trust has ended.
    TakenEarly,
    /// An owner that no longer trusts its lease goes on.
    NoTrust,
    /// After a commit of unknown outcome the shard is loaded anew without a fresh lease.
    UnknownTakenAsFailed,
    /// Effects are performed before the commit is durable.
    FireBeforeCommit,
    /// Effects are performed though their commit failed.
    EffectsOfFailedCommits,
    /// Answers are given before the commit.
    RepliesEarly,
    /// The inbox is read with a cursor over its sequence.
    InboxCursor,
    /// An owner takes the inbox for read, whenever that was.
    CaughtUpBlindly,
    /// A commit empties the inbox, also of what was not read.
    InboxWholesale,
    /// Messages for other shards are posted after the commit.
    ForwardsAfterCommit,
    /// Now and then a commit loses its token rows.
    TokensNotWritten,
    /// The attempt of a resend is not written.
    AttemptNotWritten,
    /// Withdrawn runs stay in the store.
    WithdrawnStay,
    /// A new owner does not load waiting events.
    WaitingNotLoaded,
    /// A new owner does not load held tokens.
    HeldNotLoaded,
    /// A new owner loads limits twice as large as stored.
    LimitDoubled,
    /// A changed policy is not written.
    LimitInMemoryOnly,
    /// The machine is told the time by its load and the monotonic clock.
    WallClockNotFollowed,
    /// A planned hand-over leaves no note.
    HandOverWithoutNote,
    /// A new owner acts before it has read its inbox.
    NoteReadLate,
    /// The way of a change leaves out the homes that the schedule had.
    FormerHomesNotTold,
    /// The frontier is read before a change is committed.
    FrontierReadEarly,
    /// What a master left undone when it died stays undone.
    NoRepair,
    /// A window is announced though another one ends after its start.
    WindowsOverlap,
    /// A message is posted though its notice is no longer in the outbox.
    ToldWithoutNotice,
    /// Redone emissions make runs of their own.
    EmissionMakesNewRuns,
    /// Redone emissions overwrite the run.
    EmissionOverwrites,
    /// An emitter does not ask whether a launch has a run where its schedule lived before.
    DoubtIgnored,
    /// An emitter makes a launch within a pause that was lifted before it came to scan.
    PastPausesForgotten,
    /// A task is done before its runs are handed over.
    DoneBeforeHandOver,
    /// An emitter does not ask whether a former shard of a schedule has yet to hear of a change.
    UnheardIgnored,
    /// A sender does not look at its owner's trust again before it writes.
    TrustNotLookedAtAgain,
    /// A sender's deadline begins when its turn has come.
    DeadlineFromTurn,
    /// A delivery that waits for its turn goes out though its event has been released.
    ReleasedIsSent,
    /// A delivery that waits for its turn goes out though its shard has been handed over.
    HandOverLeavesQueued,
    /// The machine's own.
    #[cfg(feature = "planted-bugs")]
    Core(Planted),
}

impl Bug {
    /// All of them.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![
            Self::NoFence,
            Self::EpochOnly,
            Self::TakenEarly,
            Self::NoTrust,
            Self::UnknownTakenAsFailed,
            Self::FireBeforeCommit,
            Self::EffectsOfFailedCommits,
            Self::RepliesEarly,
            Self::InboxCursor,
            Self::CaughtUpBlindly,
            Self::InboxWholesale,
            Self::ForwardsAfterCommit,
            Self::TokensNotWritten,
            Self::AttemptNotWritten,
            Self::WithdrawnStay,
            Self::WaitingNotLoaded,
            Self::HeldNotLoaded,
            Self::LimitDoubled,
            Self::LimitInMemoryOnly,
            Self::WallClockNotFollowed,
            Self::HandOverWithoutNote,
            Self::NoteReadLate,
            Self::FormerHomesNotTold,
            Self::FrontierReadEarly,
            Self::NoRepair,
            Self::WindowsOverlap,
            Self::ToldWithoutNotice,
            Self::EmissionMakesNewRuns,
            Self::EmissionOverwrites,
            Self::DoubtIgnored,
            Self::PastPausesForgotten,
            Self::DoneBeforeHandOver,
            Self::UnheardIgnored,
            Self::TrustNotLookedAtAgain,
            Self::DeadlineFromTurn,
            Self::ReleasedIsSent,
            Self::HandOverLeavesQueued,
        ];
        #[cfg(feature = "planted-bugs")]
        all.extend(Planted::ALL.into_iter().map(Self::Core));
        all.shrink_to_fit();
        all
    }
}
