//! One fault: what it is called, whom it concerns, which repetitions it explains, and whom it must not concern.

use std::time::Duration;

use crate::sink::Conduct;
use tollgate_harness::proxy::Mode;

/// One fault. Victims are numbers of processes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// kill -9.
    Kill { victim: usize, down: Duration },
    /// The process ends at a named point, at this pass.
    KillAt { victim: usize, point: &'static str, pass: u32, down: Duration },
    /// SIGSTOP, and SIGCONT after longer than the lease.
    Freeze { victim: usize, length: Duration },
    /// SIGTERM and a new start.
    Restart { victim: usize },
    /// The database restarts.
    StoreRestart,
    /// The database stops as in a power cut.
    StoreCrash { down: Duration },
    /// Connections are ended by the database, those that commit first.
    EndBackends { count: u32 },
    /// Every fsync takes so long.
    SlowDisk { ms: i64, length: Duration },
    /// No file grows.
    FullDisk { length: Duration },
    /// The network between a process and the database. `heals`: connections go on afterwards, else they are reset.
    CutStore { victim: usize, mode: Mode, heals: bool, length: Duration },
    /// The network between all processes and the consumer.
    CutConsumer { mode: Mode, length: Duration },
    /// The network between a process and the others.
    CutPeers { victim: usize, mode: Mode, length: Duration },
    /// Every delivery is met so.
    Outage { conduct: Conduct, length: Duration },
    /// The wall clock goes back an hour, and forward an hour later. None: everywhere, in the database, too.
    Clock { victim: Option<usize>, length: Duration },
    /// One process's wall clock jumps ahead, and comes back.
    ClockAhead { victim: usize, by_hours: i64, length: Duration },
    /// A process starts with a wall clock that is wrong, and hears the right time later.
    ClockWrong { victim: usize, by_hours: i64, length: Duration },
    /// A limit changes; with a victim, while its shards move to others.
    Limit { lower: bool, victim: Option<usize> },
    /// The number of queue shards that are used is changed, and nearly everything moves.
    Shards { to: u16, length: Duration },
    /// A run is cancelled while its events are being released.
    Cancel { lane: usize, after: Duration },
    /// The look-ups of one name are not answered.
    Lookup { events: u32, length: Duration },
    /// Each call to a queue takes so long that its messages wait beyond their deadline; a process leaves and comes back.
    SlowQueue { victim: usize, call: Duration },
    /// Somebody reads the history while partitions are made and dropped by a process that starts.
    HistoryReader { victim: usize, length: Duration },
    /// A snapshot is held.
    Snapshot { length: Duration },
    /// People read slowly, many at once.
    SlowReads { length: Duration },
    /// Rows that cannot be read, by the thousand.
    BadSpecs { length: Duration },
    /// A consumer takes more than there are places, and says nothing.
    BlackHole { events: u32, length: Duration },
    /// kill -9 between the commit of a change and its message.
    ChangeLost { victim: usize, how: Loss, down: Duration },
    /// Releases through a process with a slow network to the database while the shards of another, killed, move.
    HandedRelease { victim: usize, late: Duration, length: Duration },
}

/// How a change's message is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The process ends at this point.
    Point(&'static str),
    /// The inboxes are locked, the change is answered, and the process is killed.
    Locked,
}

impl Fault {
    /// The kind, as the verdict counts it.
    pub(crate) fn kind(&self) -> String {
        let text = match self {
            Self::Kill { .. } => "kill -9",
            Self::KillAt { point, .. } => return format!("kill at {point}"),
            Self::Freeze { .. } => "SIGSTOP longer than the lease",
            Self::Restart { .. } => "planned restart",
            Self::StoreRestart => "PostgreSQL restart",
            Self::StoreCrash { .. } => "PostgreSQL immediate stop",
            Self::EndBackends { .. } => "backends ended during COMMIT",
            Self::SlowDisk { .. } => "slow fsync",
            Self::FullDisk { .. } => "disk full",
            Self::CutStore { mode: Mode::Reset, .. } => "network to the database: reset",
            Self::CutStore { heals: true, .. } => "network to the database: stalls",
            Self::CutStore { .. } => "network to the database: half open",
            Self::CutConsumer { mode: Mode::Reset, .. } => "network to the consumer: reset",
            Self::CutConsumer { .. } => "network to the consumer: stalls",
            Self::CutPeers { mode: Mode::Reset, .. } => "network to the peers: reset",
            Self::CutPeers { .. } => "network to the peers: stalls",
            Self::Outage { conduct: Conduct::Hang, .. } => "consumer outage: hangs",
            Self::Outage { conduct: Conduct::Reset, .. } => "consumer outage: resets",
            Self::Outage { .. } => "consumer outage: 500s and throttling",
            Self::Clock { .. } => "wall clock back an hour, and forward",
            Self::ClockAhead { by_hours: ..24, .. } => "one clock hours ahead, and back",
            Self::ClockAhead { .. } => "one clock days ahead, and back",
            Self::ClockWrong { by_hours: ..0, .. } => "one clock starts hours behind",
            Self::ClockWrong { .. } => "one clock starts days ahead",
            Self::Limit { victim: None, .. } => "limit changed",
            Self::Limit { .. } => "limit changed during fail-over",
            Self::Shards { .. } => "number of queue shards changed",
            Self::Cancel { .. } => "cancel racing with releases",
            Self::Lookup { .. } => "look-up hangs",
            Self::SlowQueue { .. } => "slow SQS queue during a hand-over",
            Self::HistoryReader { .. } => "reader keeps history locked",
            Self::Snapshot { .. } => "snapshot held",
            Self::SlowReads { .. } => "slow reads by people",
            Self::BadSpecs { .. } => "specs that cannot be read",
            Self::BlackHole { .. } => "consumer accepts and says nothing",
            Self::ChangeLost { how: Loss::Point(_), .. } => "kill between commit and message",
            Self::ChangeLost { .. } => "kill after an answer, message not posted",
            Self::HandedRelease { .. } => "release while the shard changes hands",
        };
        text.to_owned()
    }

    /// Why a delivery that was taken and answered while it lasted may come again; none where it may not.
    pub(crate) fn excuse(&self) -> Option<&'static str> {
        match self {
            Self::Kill { .. }
            | Self::KillAt { .. }
            | Self::ClockWrong { .. }
            | Self::ChangeLost { .. }
            | Self::Limit { victim: Some(_), .. } => Some("process killed before it was recorded"),
            Self::Freeze { .. } => Some("process frozen beyond its lease"),
            Self::StoreRestart | Self::StoreCrash { .. } => Some("database away"),
            Self::EndBackends { .. } => Some("connection to the database ended in a commit"),
            Self::FullDisk { .. } => Some("database's disk full"),
            // The next owner's way to the database is slow: that is the point of it.
            Self::HandedRelease { .. } | Self::SlowDisk { .. } => Some("commit outlived its owner's lease"),
            Self::CutStore { .. } => Some("network to the database cut"),
            Self::CutConsumer { .. } => Some("answer cut off on its way"),
            Self::Restart { .. }
            | Self::CutPeers { .. }
            | Self::Outage { .. }
            | Self::Clock { .. }
            | Self::ClockAhead { .. }
            | Self::Limit { .. }
            | Self::Shards { .. }
            | Self::Cancel { .. }
            | Self::Lookup { .. }
            | Self::SlowQueue { .. }
            | Self::HistoryReader { .. }
            | Self::Snapshot { .. }
            | Self::SlowReads { .. }
            | Self::BadSpecs { .. }
            | Self::BlackHole { .. } => None,
        }
    }

    /// Whether what it excuses ends with a process that died: nothing can come of it much later.
    pub(crate) fn kills(&self) -> bool {
        matches!(
            self,
            Self::Kill { .. }
                | Self::KillAt { .. }
                | Self::Limit { .. }
                | Self::ClockWrong { .. }
                | Self::ChangeLost { .. }
        )
    }

    /// Whether commits wait for it before it kills: what they would have recorded is lost with the process.
    pub(crate) fn holds_commits(&self) -> bool {
        matches!(self, Self::ChangeLost { how: Loss::Locked, .. })
    }

    /// Whether it is somebody's own business, and must not stop anybody else.
    pub(crate) fn spares_others(&self) -> bool {
        matches!(
            self,
            Self::Lookup { .. }
                | Self::SlowQueue { .. }
                | Self::HistoryReader { .. }
                | Self::Snapshot { .. }
                | Self::SlowReads { .. }
                | Self::BadSpecs { .. }
                | Self::BlackHole { .. }
        )
    }

    /// The process that it concerns more than the others.
    pub(crate) fn victim(&self) -> Option<usize> {
        match self {
            Self::Kill { victim, .. }
            | Self::KillAt { victim, .. }
            | Self::Freeze { victim, .. }
            | Self::Restart { victim }
            | Self::CutStore { victim, .. }
            | Self::CutPeers { victim, .. }
            | Self::ClockAhead { victim, .. }
            | Self::ClockWrong { victim, .. }
            | Self::SlowQueue { victim, .. }
            | Self::ChangeLost { victim, .. }
            | Self::HandedRelease { victim, .. } => Some(*victim),
            Self::Clock { victim, .. } | Self::Limit { victim, .. } => *victim,
            _ => None,
        }
    }
}
