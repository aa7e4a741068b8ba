//! The sequence of faults: a seed gives the same one every time.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};

use crate::proxy::Mode;
use crate::sink::Conduct;

/// Where the product can be ended at once, by name.
pub(crate) const POINTS: [&str; 22] = [
    "store.fence.before",
    "store.fence.after",
    "store.commit.before",
    "store.commit.after",
    "handler.acquire.before",
    "handler.acquire.after",
    "handler.send.before",
    "handler.send.after",
    "handler.mark.before",
    "handler.mark.after",
    "handler.release.before",
    "handler.release.after",
    "handler.handover.before",
    "handler.handover.after",
    "emitter.emit.before",
    "emitter.emit.after",
    "emitter.checkpoint.before",
    "emitter.checkpoint.after",
    "master.commit.before",
    "master.commit.after",
    "master.message.after",
    "master.outbox.before",
];

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
    /// The wall clock goes back an hour, and forward an hour later. None: everywhere.
    Clock { victim: Option<usize>, length: Duration },
    /// A limit changes; with a victim, while its shards move to others.
    Limit { lower: bool, victim: Option<usize> },
    /// A run is cancelled while its events are being released.
    Cancel { lane: usize, after: Duration },
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
            Self::Limit { victim: None, .. } => "limit changed",
            Self::Limit { .. } => "limit changed during fail-over",
            Self::Cancel { .. } => "cancel racing with releases",
        };
        text.to_owned()
    }

    /// Whether a delivery that was taken while it lasted may not have been recorded.
    pub(crate) fn disturbs(&self) -> bool {
        match self {
            Self::Kill { .. }
            | Self::KillAt { .. }
            | Self::Freeze { .. }
            | Self::StoreRestart
            | Self::StoreCrash { .. }
            | Self::EndBackends { .. }
            | Self::FullDisk { .. }
            | Self::CutStore { .. }
            | Self::CutConsumer { .. }
            // A commit may outlive its owner's lease.
            | Self::SlowDisk { .. }
            | Self::Limit { victim: Some(_), .. } => true,
            Self::Restart { .. }
            | Self::CutPeers { .. }
            | Self::Outage { .. }
            | Self::Clock { .. }
            | Self::Limit { .. }
            | Self::Cancel { .. } => false,
        }
    }

    /// The process that it concerns more than the others.
    pub(crate) fn victim(&self) -> Option<usize> {
        match self {
            Self::Kill { victim, .. }
            | Self::KillAt { victim, .. }
            | Self::Freeze { victim, .. }
            | Self::Restart { victim }
            | Self::CutStore { victim, .. }
            | Self::CutPeers { victim, .. } => Some(*victim),
            Self::Clock { victim, .. } | Self::Limit { victim, .. } => *victim,
            _ => None,
        }
    }
}

/// Rounds of faults; each round has every kind once, in another order, and a third of the points.
pub(crate) struct Order {
    random: StdRng,
    processes: usize,
    lease: Duration,
    postgres: bool,
    lower: bool,
    points: Vec<&'static str>,
}

impl Order {
    /// The order of this seed, for so many processes with this lease.
    pub(crate) fn new(seed: u64, processes: usize, lease: Duration, postgres: bool) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            processes,
            lease,
            postgres,
            lower: false,
            points: Vec::new(),
        }
    }

    /// The faults of the next round.
    pub(crate) fn round(&mut self) -> Vec<Fault> {
        let mut faults = vec![
            Fault::Kill { victim: self.victim(), down: self.ms(300..2_500) },
            Fault::Restart { victim: self.victim() },
            Fault::SlowDisk { ms: self.random.random_range(100..400), length: self.ms(2_000..4_000) },
            Fault::FullDisk { length: self.ms(1_500..3_000) },
            Fault::CutConsumer { mode: Mode::Stall, length: self.ms(1_000..3_000) },
            Fault::CutConsumer { mode: Mode::Reset, length: self.ms(500..2_000) },
            Fault::Outage { conduct: Conduct::Refuse(500), length: self.ms(1_000..3_000) },
            Fault::Outage { conduct: Conduct::Hang, length: self.ms(500..2_000) },
            Fault::Outage { conduct: Conduct::Reset, length: self.ms(500..2_000) },
            Fault::Clock { victim: Some(self.victim()), length: self.ms(1_500..4_000) },
            Fault::Clock { victim: None, length: self.ms(1_500..4_000) },
            self.limit(false),
            self.limit(true),
            Fault::Cancel { lane: self.random.random_range(0..6), after: self.ms(20..400) },
        ];
        let longer = self.ms(1_000..3_000) + self.lease;
        faults.push(Fault::Freeze { victim: self.victim(), length: longer });
        if self.postgres {
            faults.extend([
                Fault::StoreRestart,
                Fault::StoreCrash { down: self.ms(100..2_000) },
                Fault::EndBackends { count: self.random.random_range(5..20) },
                Fault::CutStore { victim: self.victim(), mode: Mode::Stall, heals: true, length: longer },
                Fault::CutStore { victim: self.victim(), mode: Mode::Stall, heals: false, length: longer },
                Fault::CutStore {
                    victim: self.victim(),
                    mode: Mode::Reset,
                    heals: true,
                    length: self.ms(500..6_000),
                },
                Fault::CutPeers { victim: self.victim(), mode: Mode::Stall, length: self.ms(1_000..4_000) },
                Fault::CutPeers { victim: self.victim(), mode: Mode::Reset, length: self.ms(1_000..3_000) },
            ]);
        }
        for _ in 0..POINTS.len() / 3 {
            let point = self.point();
            // Few come by those of the emitter and the master.
            let often = point.starts_with("handler.") || point.starts_with("store.");
            let pass = self.random.random_range(1..if often { 6 } else { 2 });
            faults.push(Fault::KillAt { victim: self.victim(), point, pass, down: self.ms(100..1_500) });
        }
        faults.shuffle(&mut self.random);
        faults
    }

    /// How long to wait before the next fault.
    pub(crate) fn pause(&mut self) -> Duration {
        self.ms(300..1_500)
    }

    fn limit(&mut self, moving: bool) -> Fault {
        self.lower = !self.lower;
        Fault::Limit { lower: self.lower, victim: moving.then(|| self.victim()) }
    }

    fn point(&mut self) -> &'static str {
        if self.points.is_empty() {
            self.points = POINTS.to_vec();
            self.points.shuffle(&mut self.random);
        }
        self.points.pop().unwrap_or(POINTS[0])
    }

    fn victim(&mut self) -> usize {
        let all: Vec<usize> = (0..self.processes).collect();
        all.choose(&mut self.random).copied().unwrap_or_default()
    }

    fn ms(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.random_range(range))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults() {
        let rounds = |seed| {
            let mut order = Order::new(seed, 3, Duration::from_secs(3), true);
            (0..3).map(|_| order.round()).collect::<Vec<_>>()
        };
        assert_eq!(rounds(7), rounds(7));
        assert_ne!(rounds(7), rounds(8));
    }

    #[test]
    fn three_rounds_have_every_kind_and_every_point() {
        let mut order = Order::new(1, 3, Duration::from_secs(3), true);
        let kinds: BTreeSet<String> = (0..3).flat_map(|_| order.round()).map(|fault| fault.kind()).collect();
        for point in POINTS {
            assert!(kinds.contains(&format!("kill at {point}")), "{point}");
        }
        assert_eq!(kinds.len(), POINTS.len() + 22, "{kinds:#?}");
    }

    #[test]
    fn every_point_is_in_the_product() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut source = String::new();
        let mut folders = vec![root.join("crates"), root.join("services")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    source.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        for point in POINTS {
            assert!(source.contains(&format!("pass(\"{point}\")")), "{point}");
        }
    }
}
