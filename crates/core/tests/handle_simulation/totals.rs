//! How often what happened: rare states must have been reached, or a run over many worlds proves nothing.

macro_rules! states {
    ($($name:ident),* $(,)?) => {
        /// A state that must be reached.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Seen { $($name),* }
        /// All of them.
        const ALL: &[Seen] = &[$(Seen::$name),*];
    };
}

states! {
    // Deliveries.
    Sent, SentAtLaunch, SentSlowly, WithheldLate, WithheldUntrusted, Resent, SentAfterReload, UnclearTwice,
    RefusedInDoubt, HeldWithoutAnswer,
    // Commits.
    Committed, CommitFailed, UnknownDurable, UnknownNotDurable, UnknownDurableLate, FencedZombie, FencedLateCommit,
    // Processes.
    Crash, CrashInCommit, Freeze, FreezeBeforeCommitArrives, FreezeAfterCommit, Cut, TakenFromTheDead, TakenFromTheLiving,
    TakeoverLost, RetakenFromOneself, EffectsWithoutTrust, TrustLapsed, HeartbeatUnheard,
    JudgedLate, MachinePaused, MemberForgotten, ClockJudged, HandOver, HandOverWithNote, NotedTwice,
    AnswerReported, AnswersGivenUp, AnswerLost, NothingOwnsIt, ShardLost, LeftToItsLease, Reloaded, Closed,
    ReadFailed, ReadInParts, Synced,
    // Consumers.
    Released, ComesAgain, Late, NotHeld, Refused, Extended, ReleasedByInbox, PostedTooLate, ReleaseAskedAgain, ForgedRelease,
    LateAfterReclaim, Suspect, Reclaimed, FreedByOperator,
    // Ends.
    Succeeded, Failed, Dead, Expired, Cancelled, Lost, Skipped,
    // Schedules and policies.
    Moved, LongWay, Forwarded, ForwardedAgain, Withdrawn, Revived, CancelledByHand, Deleted, Buffered, LimitBelowHeld, KeyFull,
    KeysRead, PassedOver, OutOfOrder, TreeFull, FloorUnmet, ParentChanged,
    TookSeveral, CountedAsMost, AboveLimit, TokensKept,
    // Chains.
    FollowedHere, FollowedAtOnce, LookOutdated, FollowedElsewhere, FollowedBefore, NotFollowed, ChainEnded, BehindChain,
    // Workers that pull.
    RoomLacking, RoomGiven, RoomLeft, RoomRefused, NoRoom,
    // Masters and emitters.
    MasterDied, Swept, ToldByAnother, ClockJump, EmitterFrozen, EmitterDied, TaskRedone, EmittedTwice, EmittedStale, DoubtSettled,
    WindowScannedAfterChange, ScannedAfterPause, PostedTwice, TaskLost, PutOff,
    AnnouncedByAnother, PageLeft, CheckpointTaken, RoundFailed, Missed,
    // Holes that are known: see README's known gaps.
    HoleChangedBeforeScan,
}

/// Counters of one world, or of many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    counts: Vec<u64>,
    /// Inputs, reads, commits and timers handled.
    pub(crate) steps: u64,
    /// What happened, in order, boiled down.
    pub(crate) digest: u64,
}

impl Default for Totals {
    fn default() -> Self {
        Self { counts: vec![0; ALL.len()], steps: 0, digest: 0 }
    }
}

impl Totals {
    pub(crate) fn count(&mut self, what: Seen) {
        self.counts[what as usize] += 1;
    }

    /// Mixes something that happened into the digest (FNV-1a over words).
    pub(crate) fn note(&mut self, what: u64) {
        self.digest = (self.digest ^ what).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, n)| *sum += n);
        self.steps += other.steps;
        self.digest = self.digest.wrapping_add(other.digest);
    }

    pub(crate) fn never_seen(&self) -> Vec<Seen> {
        ALL.iter().copied().filter(|what| self.counts[*what as usize] == 0).collect()
    }

    pub(crate) fn table(&self) -> String {
        let rows = ALL.iter().map(|what| format!("{what:?} {}", self.counts[*what as usize]));
        rows.collect::<Vec<_>>().join(", ")
    }
}
