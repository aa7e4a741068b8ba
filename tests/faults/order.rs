//! The sequence of faults: a seed gives the same one every time.

mod fault;

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};

use crate::sink::Conduct;
pub(crate) use fault::{Fault, Loss};
use tollgate_harness::proxy::Mode;

/// Where the product can be ended at once, by name.
pub(crate) const POINTS: [&str; 29] = [
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
    "handler.follow.before",
    "handler.move.before",
    "handler.move.after",
    "handler.handover.after",
    "emitter.emit.before",
    "emitter.emit.after",
    "emitter.checkpoint.before",
    "emitter.checkpoint.after",
    "emitter.follow.before",
    "emitter.follow.after",
    "handler.list.fetched",
    "handler.list.pages",
    "master.commit.before",
    "master.commit.after",
    "master.message.after",
    "master.outbox.before",
];

/// Where the master ends between the commit of a change and its message; the first that the binary has is used.
pub(crate) const CHANGE_POINTS: [&str; 2] = ["master.change.committed", "master.commit.after"];

/// What faults there can be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct World {
    pub(crate) processes: usize,
    pub(crate) lease: Duration,
    pub(crate) postgres: bool,
    /// Processes ask the campaign's own name server.
    pub(crate) names: bool,
    /// Which of [`CHANGE_POINTS`] the binary has.
    pub(crate) change_point: Option<&'static str>,
    /// Only what takes little time.
    pub(crate) short: bool,
}

/// Rounds of faults; each round has every kind once, in another order, and a third of the points.
pub(crate) struct Order {
    random: StdRng,
    world: World,
    lower: bool,
    points: Vec<&'static str>,
}

impl Order {
    /// The order of this seed.
    pub(crate) fn new(seed: u64, world: World) -> Self {
        Self { random: StdRng::seed_from_u64(seed), world, lower: false, points: Vec::new() }
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
            self.shards(),
            self.shards(),
            Fault::Cancel { lane: self.random.random_range(0..6), after: self.ms(20..400) },
        ];
        let longer = self.ms(1_000..3_000) + self.world.lease;
        faults.push(Fault::Freeze { victim: self.victim(), length: longer });
        if self.world.postgres {
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
        for _ in 0..POINTS.len().div_ceil(3) {
            let point = self.point();
            // Few come by those of the emitter, of lists and of the master.
            let often = (point.starts_with("handler.")
                && !point.starts_with("handler.list.")
                && !point.starts_with("handler.move."))
                || point.starts_with("store.");
            let pass = self.random.random_range(1..if often { 6 } else { 2 });
            faults.push(Fault::KillAt { victim: self.victim(), point, pass, down: self.ms(100..1_500) });
        }
        self.promises_to_others(&mut faults);
        faults.shuffle(&mut self.random);
        faults
    }

    /// Where somebody's own trouble, or one process's, could become everybody's; and where what was acknowledged could be
    /// lost between two processes.
    fn promises_to_others(&mut self, faults: &mut Vec<Fault>) {
        let World { lease, postgres, names, change_point, short, .. } = self.world;
        let long = if short { self.ms(6_000..7_000) } else { self.ms(9_000..13_000) };
        faults.push(Fault::BlackHole { events: 1_400, length: long });
        // Longer than what is emitted ahead, so that the message is missed.
        let down = self.ms(11_000..13_000);
        if let Some(point) = change_point {
            faults.push(Fault::ChangeLost { victim: self.victim(), how: Loss::Point(point), down });
        }
        if names && !short {
            faults.push(Fault::Lookup { events: 2_400, length: self.ms(12_000..16_000) });
        }
        if !postgres {
            return;
        }
        faults.extend([
            Fault::ClockAhead {
                victim: self.victim(),
                by_hours: self.random.random_range(3..8),
                length: long,
            },
            Fault::HandedRelease {
                victim: self.victim(),
                late: self.ms(30..60),
                length: lease + self.ms(4_000..6_000),
            },
        ]);
        if short {
            return;
        }
        let days = 24 * self.random.random_range(50..80);
        faults.extend([
            Fault::ClockAhead { victim: self.victim(), by_hours: days, length: self.ms(9_000..16_000) },
            Fault::ClockWrong { victim: self.victim(), by_hours: days, length: self.ms(8_000..12_000) },
            Fault::ClockWrong { victim: self.victim(), by_hours: -5, length: self.ms(8_000..12_000) },
            Fault::SlowQueue { victim: self.victim(), call: self.ms(90..140) },
            Fault::HistoryReader { victim: self.victim(), length: self.ms(8_000..11_000) },
            Fault::Snapshot { length: self.ms(15_000..20_000) },
            Fault::SlowReads { length: self.ms(9_000..12_000) },
            // Longer than what has been read ahead.
            Fault::BadSpecs { length: self.ms(24_000..28_000) },
            Fault::ChangeLost { victim: self.victim(), how: Loss::Locked, down },
        ]);
    }

    /// How long to wait before the next fault.
    pub(crate) fn pause(&mut self) -> Duration {
        self.ms(300..1_500)
    }

    fn limit(&mut self, moving: bool) -> Fault {
        self.lower = !self.lower;
        Fault::Limit { lower: self.lower, victim: moving.then(|| self.victim()) }
    }

    /// More, or fewer; in either case most of what there is belongs elsewhere.
    fn shards(&mut self) -> Fault {
        let to = *[16, 48, 64, 96, 128].choose(&mut self.random).unwrap_or(&64);
        Fault::Shards { to, length: self.ms(4_000..8_000) }
    }

    fn point(&mut self) -> &'static str {
        if self.points.is_empty() {
            self.points = POINTS.to_vec();
            self.points.shuffle(&mut self.random);
        }
        self.points.pop().unwrap_or(POINTS[0])
    }

    fn victim(&mut self) -> usize {
        let all: Vec<usize> = (0..self.world.processes).collect();
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

    const WORLD: World = World {
        processes: 3,
        lease: Duration::from_secs(3),
        postgres: true,
        names: true,
        change_point: Some(CHANGE_POINTS[0]),
        short: false,
    };

    #[test]
    fn a_seed_gives_the_same_faults() {
        let rounds = |seed| {
            let mut order = Order::new(seed, WORLD);
            (0..3).map(|_| order.round()).collect::<Vec<_>>()
        };
        assert_eq!(rounds(7), rounds(7));
        assert_ne!(rounds(7), rounds(8));
    }

    #[test]
    fn three_rounds_have_every_kind_and_every_point() {
        let mut order = Order::new(1, WORLD);
        let kinds: BTreeSet<String> = (0..3).flat_map(|_| order.round()).map(|fault| fault.kind()).collect();
        for point in POINTS {
            assert!(kinds.contains(&format!("kill at {point}")), "{point}");
        }
        assert_eq!(kinds.len(), POINTS.len() + 37, "{kinds:#?}");
    }

    #[test]
    fn what_cannot_be_done_here_is_left_out() {
        let world = World { processes: 1, postgres: false, names: false, change_point: None, ..WORLD };
        let faults = Order::new(1, world).round();
        let kinds: BTreeSet<String> = faults.iter().map(Fault::kind).collect();
        for kind in [
            "look-up hangs",
            "slow SQS queue during a hand-over",
            "snapshot held",
            "kill between commit and message",
        ] {
            assert!(!kinds.contains(kind), "{kind}");
        }
        assert!(kinds.contains("consumer accepts and says nothing"), "{kinds:#?}");
        assert!(faults.iter().all(|fault| fault.victim().unwrap_or_default() == 0));
    }

    /// What is one user's business may neither explain repetitions nor stop others.
    #[test]
    fn whoever_must_spare_others_has_no_excuse() {
        for fault in Order::new(1, WORLD).round().iter().filter(|fault| fault.spares_others()) {
            assert_eq!(fault.excuse(), None, "{fault:?}");
        }
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
