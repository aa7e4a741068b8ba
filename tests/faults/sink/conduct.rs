//! How the consumer meets a delivery: drawn from the seed, the event's id and the attempt, so that it can be repeated.

use crate::journal::{Event, Met};

/// From this attempt on an event is met well, so that everything ends.
const PATIENCE: u32 = 4;
/// Consumers of events under this policy die now and then without a word.
pub(crate) const SILENT: &str = "silent";

/// How the names of schedules begin whose deliveries are met in their own way.
pub(crate) mod kind {
    /// Work that nothing is wrong with: what it feels of others' trouble is measured.
    pub(crate) const HEALTHY: &str = "healthy-";
    /// Their consumer says nothing while it is a black hole.
    pub(crate) const HOLE: &str = "hole-";
    /// Their name is not resolved for a while.
    pub(crate) const UNNAMED: &str = "unnamed-";
    /// They are paused while the process that is told so dies.
    pub(crate) const CHANGED: &str = "changed-";
    /// Their consumer takes the first attempt without a word, and releases some seconds later.
    pub(crate) const HANDED: &str = "handed-";
    /// Their queue is slow.
    pub(crate) const SLOW_QUEUE: &str = "slowq-";

    /// The first schedules of chains end so: each event has a result.
    pub(crate) const CHAIN: &str = "-chain";

    /// Those that are met well unless somebody says otherwise.
    pub(crate) const GOOD: [&str; 5] = [HEALTHY, HOLE, UNNAMED, CHANGED, SLOW_QUEUE];
}

/// One way to meet a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// Takes it at once.
    Prompt,
    /// Takes it, and takes its time to say so.
    Slow,
    /// Takes it, and says so with an answer of tens of megabytes.
    Huge,
    /// Takes it, and says so after the sender has given up.
    Late,
    /// Takes it, and dies.
    Die,
    /// Answers with this status.
    Refuse(u16),
    /// Sends the sender elsewhere.
    Redirect,
    /// Refuses it with an answer of tens of megabytes.
    HugeRefusal,
    /// Takes it, works long, releases, and never answers.
    Keep,
    /// Reads it, and never answers.
    Hang,
    /// Reads it, and closes the connection.
    Reset,
    /// Answers 200 and half of the rest.
    Garbage,
}

/// Of a thousand deliveries, so many are met so.
const ODDS: [(u64, Conduct); 9] = [
    (15, Conduct::Refuse(500)),
    (5, Conduct::Redirect),
    (1, Conduct::HugeRefusal),
    (5, Conduct::Hang),
    (8, Conduct::Reset),
    (5, Conduct::Garbage),
    (5, Conduct::Late),
    (20, Conduct::Slow),
    (1, Conduct::Huge),
];

impl Conduct {
    /// How a delivery is met in the ordinary course of the campaign.
    pub(crate) fn of(seed: u64, event: &Event, attempt: u32) -> Self {
        if event.schedule.starts_with(kind::HANDED) && attempt == 1 {
            return Self::Keep;
        }
        let is_good = kind::GOOD.iter().any(|kind| event.schedule.starts_with(kind));
        if attempt >= PATIENCE || is_good {
            return Self::Prompt;
        }
        let mut drawn = draw(seed, &event.id, attempt) % 1_000;
        if event.policy == SILENT && drawn >= 880 {
            return Self::Die;
        }
        for (odds, conduct) in ODDS {
            if drawn < odds {
                return conduct;
            }
            drawn -= odds;
        }
        Self::Prompt
    }

    /// What that is to the sender.
    pub(crate) fn met(self) -> Met {
        match self {
            Self::Prompt | Self::Slow | Self::Huge => Met::Taken,
            Self::Die => Met::Abandoned,
            Self::Refuse(_) | Self::Redirect | Self::HugeRefusal => Met::Refused,
            Self::Late | Self::Keep | Self::Hang | Self::Reset | Self::Garbage => Met::Doubtful,
        }
    }

    /// Its name among the faults; none where nothing is wrong.
    pub(crate) fn misbehaviour(self) -> Option<&'static str> {
        Some(match self {
            Self::Prompt => return None,
            Self::Slow => "consumer: slow answer",
            Self::Huge | Self::HugeRefusal => "consumer: huge answer",
            Self::Late => "consumer: answer after the deadline",
            Self::Die => "consumer: dies in silence",
            Self::Refuse(_) => "consumer: 500",
            Self::Redirect => "consumer: redirect",
            Self::Keep => "consumer: works without an answer",
            Self::Hang => "consumer: hangs",
            Self::Reset => "consumer: reset after reading",
            Self::Garbage => "consumer: half an answer",
        })
    }
}

/// A number that looks random, the same for the same arguments (FNV-1a, finished as splitmix64 is).
pub(crate) fn draw(seed: u64, id: &str, attempt: u32) -> u64 {
    let bytes = id.bytes().chain(attempt.to_be_bytes()).chain(seed.to_be_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
