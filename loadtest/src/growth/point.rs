//! Decides which points are measured, and what there is at each.

use clap::ValueEnum;
use serde::Serialize;

use crate::scenario::{Kind, Scenario};

/// What there is more and more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Axis {
    /// Runs that are due and wait under policies that are paused
    Waiting,
    /// Policies that are stored; the load uses up to 16 of them
    Policies,
    /// Daily schedules that are stored, in 48 zones, as many due in each minute of the day as in any other
    Schedules,
    /// Queue shards
    Shards,
    /// Processes of one store; PostgreSQL only
    Processes,
}

impl Axis {
    /// In rising order.
    pub(crate) fn sizes(self) -> &'static [u64] {
        match self {
            Self::Waiting => &[1, 1_000, 100_000, 1_000_000],
            Self::Policies => &[1, 1_000, 100_000],
            Self::Schedules => &[1_000, 100_000, 5_000_000],
            Self::Shards => &[1, 16, 64, 256],
            Self::Processes => &[1, 2, 4],
        }
    }

    /// As the table calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Policies => "policies",
            Self::Schedules => "schedules",
            Self::Shards => "shards",
            Self::Processes => "processes",
        }
    }
}

/// What there is beside the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) axis: Axis,
    pub(crate) size: u64,
    /// Runs of one event that wait.
    pub(crate) waiting: u64,
    /// Those of the load are among them.
    pub(crate) policies: u32,
    pub(crate) schedules: u32,
    pub(crate) shards: u16,
    pub(crate) processes: u32,
}

impl Point {
    /// `size` of one thing, and little of the others.
    pub(crate) fn of(axis: Axis, size: u64) -> Self {
        let mut point =
            Self { axis, size, waiting: 0, policies: 16, schedules: 0, shards: SHARDS, processes: 1 };
        let count = u32::try_from(size).unwrap_or(u32::MAX);
        match axis {
            Axis::Waiting => point.waiting = size,
            Axis::Policies => point.policies = count,
            Axis::Schedules => point.schedules = count,
            Axis::Shards => point.shards = u16::try_from(size).unwrap_or(u16::MAX),
            Axis::Processes => point.processes = count,
        }
        point
    }

    /// The work, with no more policies than there are: as many events under fewer.
    pub(crate) fn adapted(&self, scenario: &Scenario) -> Scenario {
        let mut scenario = scenario.clone();
        for variant in &mut scenario.variants {
            let policies = variant.policies.min(self.policies);
            if variant.kind == Kind::Burst {
                variant.events = variant.events * variant.policies / policies;
            }
            variant.policies = policies;
        }
        scenario
    }
}

/// Queue shards of a new installation.
pub(crate) const SHARDS: u16 = 64;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use super::*;

    #[test]
    fn the_work_is_the_same_at_every_point() {
        let scenario =
            Scenario::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/growth.yaml"))).unwrap();
        let sum = |scenario: &Scenario| scenario.variants.iter().map(|v| v.expected()).collect::<Vec<_>>();
        for axis in Axis::value_variants() {
            assert!(axis.sizes().is_sorted());
            for size in axis.sizes() {
                let point = Point::of(*axis, *size);
                let adapted = point.adapted(&scenario);
                assert_eq!(sum(&adapted), sum(&scenario), "{axis:?} {size}");
                assert!(adapted.variants.iter().all(|variant| variant.policies <= point.policies));
            }
        }
    }
}
