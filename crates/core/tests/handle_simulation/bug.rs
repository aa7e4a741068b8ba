//! What is broken on purpose, to see that a check sees it. Bugs of the simulated world (the driver, the store, emitters, masters)
//! are listed here. Bugs of the core are planted in a copy of it: `tests/planted_bugs` has them and says how to add one.

use crate::core_bugs;

/// One broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing is broken.
    None,
    /// A process reads the members before the leases.
    MembersReadFirst,
    /// A commit asks nobody whether the shard is still its owner's.
    NoFence,
    /// The fence compares the epoch alone, which changes only with the owner.
    EpochOnly,
    /// After a commit of unknown outcome the shard is loaded anew without a fresh lease.
    UnknownTakenAsFailed,
    /// Effects are performed though their commit failed.
    EffectsOfFailedCommits,
    /// Answers are given before the commit.
    RepliesEarly,
    /// The inbox is read with a cursor over its sequence.
    InboxCursor,
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
    /// The way of a change leaves out the homes that the schedule had.
    FormerHomesNotTold,
    /// The frontier is read before a change is committed.
    FrontierReadEarly,
    /// What a master left undone when it died stays undone.
    NoRepair,
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
    /// The core's own, by its name: in the copy only.
    Core(&'static str),
}

impl Bug {
    /// All of the world.
    const WORLD: &[Self] = &[
        Self::MembersReadFirst,
        Self::NoFence,
        Self::EpochOnly,
        Self::UnknownTakenAsFailed,
        Self::EffectsOfFailedCommits,
        Self::RepliesEarly,
        Self::InboxCursor,
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
        Self::FormerHomesNotTold,
        Self::FrontierReadEarly,
        Self::NoRepair,
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

    /// Those that are to be found: here the world's, in the copy the core's; or those, of all, whose name has one of the parts.
    pub(crate) fn wanted(parts: Option<&str>) -> Vec<Self> {
        let (world, core) = (Self::WORLD.iter().copied(), core_bugs::NAMES.iter().copied().map(Self::Core));
        let Some(parts) = parts else {
            return if core_bugs::NAMES.is_empty() { world.collect() } else { core.collect() };
        };
        let named = world.chain(core).filter(|bug| parts.split(',').any(|part| bug.name().contains(part)));
        let named: Vec<_> = named.collect();
        assert!(
            !named.is_empty(),
            "{parts}: no such bug is planted here; those of the core: ./tests/run planted"
        );
        named
    }

    /// The one of this name.
    pub(crate) fn named(name: &str) -> Self {
        let named = Self::wanted(Some(name)).into_iter().find(|bug| bug.name() == name);
        named.unwrap_or_else(|| panic!("{name}: not the whole name of a planted bug"))
    }

    /// What it is called.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Core(name) => name.to_owned(),
            world => format!("{world:?}"),
        }
    }

    /// Has the core break this rule, and no other, on this thread.
    pub(crate) fn turn_on(self) {
        core_bugs::turn_on(if let Self::Core(name) = self { Some(name) } else { None });
    }
}
