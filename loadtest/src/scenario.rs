//! Decides what a scenario file can say.
//!
//! In: a YAML file. Out: a [`Scenario`]. A scenario has variants, which run in turn with each other and with the yardstick,
//! round by round, because the speed of a machine drifts: only neighbours compare.

use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::sink::lane::{Lane, Protocol, Release};

/// One file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// The file's name without its ending.
    #[serde(skip)]
    pub(crate) name: String,
    /// What it shows, in one line.
    pub(crate) about: String,
    /// How often everything runs.
    #[serde(default = "three")]
    pub(crate) rounds: u32,
    /// What Tollgate does.
    pub(crate) variants: Vec<Variant>,
    /// What a bare client does; absent where nothing compares.
    #[serde(default)]
    pub(crate) yardstick: Option<Yardstick>,
    /// What shall be reached.
    #[serde(default)]
    pub(crate) bars: Vec<Bar>,
    /// More flags of `tollgate serve`.
    #[serde(default)]
    pub(crate) serve: Vec<String>,
}

/// How the events of a variant fall due.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Every schedule fires once, all at one instant.
    Burst,
    /// Each event belongs to another schedule; `per_second` of them are due at each whole second.
    Singles,
    /// `per_second` events, evenly spaced: each schedule spreads its own over `seconds`.
    Spaced,
    /// As singles, but each made by TriggerSchedule, one after another at an even pace.
    Triggered,
    /// As triggered, but what is measured follows that: late is what starts after the end of the run before.
    Chained,
    /// Each schedule fires every `every_s`, for `seconds`.
    Intervals,
    /// Schedules are applied by stream; nothing fires.
    Apply,
    /// Schedules are stored, and the emitter is watched for `seconds`.
    Windows,
    /// So many workers as `events` are connected and have nothing to do, for `seconds`.
    Workers,
    /// As workers, but they poll, by HTTP as the packages do.
    Polls,
}

/// One way to run Tollgate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    /// Part of ids: `[a-z0-9-]`.
    pub(crate) name: String,
    /// How its events fall due.
    pub(crate) kind: Kind,
    /// Events of each trigger.
    #[serde(default = "one")]
    pub(crate) events: u32,
    /// Schedules of each policy.
    #[serde(default = "one")]
    pub(crate) schedules: u32,
    /// How many policies; they matter with `max_in_flight` only.
    #[serde(default = "one")]
    pub(crate) policies: u32,
    /// What they are called, before `-` and a number; as the variant by default. Variants may share them.
    #[serde(default)]
    pub(crate) policy: Option<String>,
    /// m; absent means no policy.
    #[serde(default)]
    pub(crate) max_in_flight: Option<u32>,
    /// Time zones of schedules that are stored, the first so many of all; absent: 48 of all continents.
    #[serde(default)]
    pub(crate) zones: Option<usize>,
    #[serde(default)]
    pub(crate) every_s: u32,
    #[serde(default)]
    pub(crate) seconds: u32,
    #[serde(default)]
    pub(crate) per_second: u32,
    /// What the consumer takes for one event.
    #[serde(default)]
    pub(crate) work_ms: u64,
    #[serde(default)]
    pub(crate) release: Release,
    #[serde(default)]
    pub(crate) protocol: Protocol,
    /// Of a burst: each event carries data of its own, and the run is submitted.
    #[serde(default)]
    pub(crate) items: bool,
    /// Each schedule has a key of its own, and the bad neighbour another.
    #[serde(default)]
    pub(crate) key_each: bool,
    /// How many keys items have; none where absent.
    #[serde(default)]
    pub(crate) keys: u32,
    /// What the policy lets through of each key; absent means that it counts by no key.
    #[serde(default)]
    pub(crate) max_in_flight_per_key: Option<u32>,
    /// Each schedule has a policy of its own, two levels below the variant's, which alone has a limit.
    #[serde(default)]
    pub(crate) tree: bool,
    /// Length of `data`.
    #[serde(default = "three_hundred")]
    pub(crate) payload_bytes: usize,
    /// A burst to another consumer, of other schedules, due at the same time; it is not measured.
    #[serde(default)]
    pub(crate) beside: Option<Beside>,
    /// How many queue shards are used, one number after the other, while events go.
    #[serde(default)]
    pub(crate) shards: Vec<u16>,
    /// The longest silence of the consumer before events count as lost.
    #[serde(default = "thirty")]
    pub(crate) patience_s: u32,
}

/// What a bad neighbour does.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Beside {
    /// Of each schedule.
    pub(crate) events: u32,
    #[serde(default = "one")]
    pub(crate) schedules: u32,
    #[serde(default)]
    pub(crate) work_ms: u64,
    /// Under the first policy of the variant; else under none.
    #[serde(default)]
    pub(crate) same_policy: bool,
}

/// A bare client against the same consumer.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Yardstick {
    pub(crate) events: u32,
    /// Requests under way at once.
    pub(crate) in_flight: u32,
    /// At this pace; absent means as fast as it goes.
    #[serde(default)]
    pub(crate) per_second: Option<u32>,
    #[serde(default)]
    pub(crate) work_ms: u64,
    #[serde(default)]
    pub(crate) protocol: Protocol,
}

/// A figure, by its name in the JSON output, and what it must be in the median of all rounds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bar {
    /// The first variant where absent.
    #[serde(default)]
    pub(crate) variant: Option<String>,
    pub(crate) figure: String,
    #[serde(default)]
    pub(crate) min: Option<f64>,
    #[serde(default)]
    pub(crate) max: Option<f64>,
    /// Limits are multiples of the same figure of this variant.
    #[serde(default)]
    pub(crate) times: Option<String>,
}

impl Scenario {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let place = || format!("cannot read the scenario {}", path.display());
        let text = std::fs::read_to_string(path).with_context(place)?;
        let mut scenario: Self = serde_saphyr::from_str(&text).with_context(place)?;
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        name.clone_into(&mut scenario.name);
        scenario.check().with_context(place)?;
        Ok(scenario)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.variants.is_empty(), "variants: at least one is needed");
        for Variant { name, kind, zones, every_s, seconds, per_second, items, tree, policies, .. } in
            &self.variants
        {
            ensure!(!tree || *policies == 1, "{name}: tree: it has one root, so policies is 1");
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            ensure!(
                !name.is_empty() && name.chars().all(fits),
                "variants.name: {name:?}: [a-z0-9-] is allowed"
            );
            let paced = matches!(kind, Kind::Singles | Kind::Spaced | Kind::Triggered | Kind::Chained);
            ensure!(!paced || *per_second > 0, "{name}: per_second: at least 1 is needed");
            let timed =
                paced || matches!(kind, Kind::Intervals | Kind::Windows | Kind::Workers | Kind::Polls);
            ensure!(!timed || *seconds > 0, "{name}: seconds: at least 1 is needed");
            let zones_max = chrono_tz::TZ_VARIANTS.len();
            ensure!(
                zones.is_none_or(|zones| (1..=zones_max).contains(&zones)),
                "{name}: zones: {zones:?}: 1 to {zones_max} are allowed"
            );
            ensure!(*kind != Kind::Intervals || *every_s > 0, "{name}: every_s: at least 1 is needed");
            ensure!(!items || *kind == Kind::Burst, "{name}: items: only a burst has items");
        }
        for bar in &self.bars {
            let named = [&bar.variant, &bar.times].into_iter().flatten();
            for name in named {
                ensure!(self.variants.iter().any(|v| v.name == *name), "bars: there is no variant {name:?}");
            }
        }
        Ok(())
    }

    /// The consumers: two for each variant (its own, its neighbour's), and at last the yardstick's.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        let mut lanes = Vec::new();
        for Variant { work_ms, release, protocol, beside, .. } in &self.variants {
            lanes.push(Lane { protocol: *protocol, work_ms: *work_ms, release: *release });
            lanes.push(Lane { work_ms: beside.map_or(0, |beside| beside.work_ms), ..Lane::default() });
        }
        if let Some(Yardstick { work_ms, protocol, .. }) = self.yardstick {
            lanes.push(Lane { protocol, work_ms, ..Lane::default() });
        }
        lanes
    }
}

impl Variant {
    /// Events that will fall due.
    pub(crate) fn expected(&self) -> u64 {
        let [events, schedules, policies] = [self.events, self.schedules, self.policies].map(u64::from);
        let [seconds, per_second, every_s] = [self.seconds, self.per_second, self.every_s].map(u64::from);
        match self.kind {
            Kind::Burst => events * schedules * policies,
            Kind::Singles | Kind::Spaced | Kind::Triggered | Kind::Chained => seconds * per_second,
            Kind::Intervals => events * schedules * policies * (seconds / every_s),
            Kind::Apply | Kind::Windows | Kind::Workers | Kind::Polls => 0,
        }
    }
}

fn one() -> u32 {
    1
}

fn three() -> u32 {
    3
}

fn thirty() -> u32 {
    30
}

fn three_hundred() -> usize {
    300
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn yaml(folder: &Path) -> Vec<std::path::PathBuf> {
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension() == Some("yaml".as_ref())).collect()
    }

    #[test]
    fn every_scenario_can_be_read() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios"));
        let mut count = 0;
        for path in [folder.to_owned(), folder.join("large")].into_iter().flat_map(|folder| yaml(&folder)) {
            let scenario = Scenario::read(&path).unwrap();
            assert_eq!(
                scenario.lanes().len(),
                2 * scenario.variants.len() + usize::from(scenario.yardstick.is_some())
            );
            count += 1;
        }
        assert!(count >= 10, "{count}");
    }

    #[test]
    fn wrong_fields_are_named() {
        let wrong = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            format!("{:#}", Scenario::read(file.path()).unwrap_err())
        };
        assert!(wrong("about: a\nvariants: [{name: x, kind: burst, evnts: 3}]").contains("evnts"));
        assert!(wrong("about: a\nvariants: [{name: X, kind: burst}]").contains("\"X\""));
        assert!(wrong("about: a\nvariants: [{name: x, kind: singles, seconds: 1}]").contains("per_second"));
        let text = "about: a\nvariants: [{name: x, kind: burst}]\nbars: [{variant: y, figure: ratio}]";
        assert!(wrong(text).contains("\"y\""));
    }
}
