//! Which windows are opened, which launch expressions they can fire, which slots of them to read, when each child fires,
//! and what becomes of each launch.
//!
//! In: a [`Window`] and the registry of (zone, launch expression) pairs that have children. Out: [`Task`]s, and for
//! each child that a task reads, its launch times in the window.
//! Invariants: cutting time into windows in any way gives the same launch times as the plan; away from clock
//! changes what a task reads is what fires, but for an ANDed day-of-week and a schedule's start and end; at a
//! clock change the child's own rule has the last word.
//! Not here: reading and writing (the emitter and the stores).

mod batch;
mod claim;
mod follow;
mod judge;
mod local;
mod options;
mod scan;
mod windows;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

pub use self::batch::{Handed, is_in_doubt};
pub use self::claim::{Checkpoint, ClaimedTask, ScanPage, ScannedChild, TaskLease, backoff, is_given_back};
pub use self::follow::{Next, follow};
pub use self::judge::{Fate, Judge};
pub use self::options::Options;
pub use self::scan::{Scan, ScanStep, Unreadable};
pub use self::windows::{next_round_us, to_open};

use self::local::{Minutes, local_keys};
use crate::model::SECOND_US;
use crate::plan::{Child, CorruptChild, Exclusion, LaunchKey, Zone, second_ceil};

/// A span of launch times, `[start_us, end_us)`, in microseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// First moment.
    pub start_us: i64,
    /// First moment after it.
    pub end_us: i64,
}

impl Window {
    /// The whole seconds in the window, as a half-open range.
    fn seconds(self) -> (i64, i64) {
        (second_ceil(self.start_us), second_ceil(self.end_us))
    }
}

/// The children that one window needs of one (zone, launch expression).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// As in [`Child::zone`].
    pub zone: String,
    /// As in [`Child::launch_expression`].
    pub launch_expression: String,
    /// Ranges of [`Child::slot`], ascending and disjoint.
    pub slots: Vec<RangeInclusive<i32>>,
}

/// Every slot there is: for a pair that cannot be read, so that its children are read and name the corruption.
const EVERY_SLOT: RangeInclusive<i32> = i32::MIN..=i32::MAX;

/// The tasks of a window: those pairs of the registry that can fire in it, in the registry's order.
///
/// A pair with an unknown zone or a corrupt launch expression gets a task for every slot: [`launch_times`] then
/// names what is wrong, and nothing is lost in silence.
pub fn tasks<Z, E>(window: Window, registry: impl IntoIterator<Item = (Z, E)>) -> Vec<Task>
where
    Z: AsRef<str>,
    E: AsRef<str>,
{
    let mut zones = BTreeMap::new();
    let mut tasks = Vec::new();
    for (zone, launch_expression) in registry {
        let (zone, launch_expression) = (zone.as_ref(), launch_expression.as_ref());
        let slots = slots(window, zone, launch_expression, &mut zones);
        if !slots.is_empty() {
            let launch_expression = launch_expression.to_owned();
            tasks.push(Task { zone: zone.to_owned(), launch_expression, slots });
        }
    }
    tasks
}

/// The launch expressions that can fire in a window: for a zone about two dozen an hour, for the empty zone the
/// single shots of each hour. Intervals (`I.*`) are not among them: any of them may fire, so that [`tasks`] decides.
///
/// An unknown zone has none.
pub fn eligible(zone: &str, window: Window) -> Vec<String> {
    if zone.is_empty() {
        let (start, end) = window.seconds();
        let hours = start.div_euclid(3600)..=(end - 1).div_euclid(3600);
        return hours.filter(|_| start < end).map(|hour| LaunchKey::At { hour }.to_string()).collect();
    }
    Zone::named(zone)
        .map(|zone| local_keys(zone, window.seconds()).keys().map(LaunchKey::to_string).collect())
        .unwrap_or_default()
}

/// When a child fires in a window, in microseconds since the epoch, ascending; empty where its ANDed day-of-week,
/// its schedule's start or end, excluded dates, or a clock change excludes it. The dates are the schedule's, not the child's.
///
/// # Errors
/// [`CorruptChild`] names the column and the value that cannot be read.
pub fn launch_times(
    child: &Child,
    exclusion: Option<&Exclusion>,
    window: Window,
) -> Result<Vec<i64>, CorruptChild> {
    let (source, rule) = child.read()?;
    let (start, end) = window.seconds();
    let start = rule.start_us.map_or(start, |from| start.max(second_ceil(from)));
    let end = rule.end_us.map_or(end, |until| end.min(second_ceil(until)));
    Ok(source.fires(start, end, exclusion).map(|second| second * SECOND_US).collect())
}

fn slots(
    window: Window,
    zone: &str,
    launch_expression: &str,
    zones: &mut BTreeMap<String, Option<BTreeMap<LaunchKey, Minutes>>>,
) -> Vec<RangeInclusive<i32>> {
    let seconds = window.seconds();
    match LaunchKey::parse(launch_expression) {
        Some(LaunchKey::Interval { every_s }) if zone.is_empty() => phases(every_s, seconds),
        Some(LaunchKey::At { hour }) if zone.is_empty() => {
            let start = hour.saturating_mul(3600);
            let from = seconds.0.max(start) - start;
            let to = seconds.1.min(start.saturating_add(3600)) - start;
            range(from, to).into_iter().collect()
        }
        Some(key @ LaunchKey::Cron { .. }) if !zone.is_empty() => {
            if !zones.contains_key(zone) {
                let keys = Zone::named(zone).map(|zone| local_keys(zone, seconds));
                zones.insert(zone.to_owned(), keys);
            }
            match zones.get(zone) {
                Some(Some(keys)) => keys.get(&key).map(|minutes| minutes.ranges()).unwrap_or_default(),
                _ => vec![EVERY_SLOT],
            }
        }
        _ => vec![EVERY_SLOT],
    }
}

/// The phases modulo an interval that fire in `[start, end)`: one range, or two around zero.
fn phases(every_s: i64, (start, end): (i64, i64)) -> Vec<RangeInclusive<i32>> {
    if end - start >= every_s {
        return range(0, every_s).into_iter().collect();
    }
    let from = start.rem_euclid(every_s);
    let to = from + (end - start);
    [range(0, to - every_s), range(from, to.min(every_s))].into_iter().flatten().collect()
}

/// `from..to` as slots, if there are any.
fn range(from: i64, to: i64) -> Option<RangeInclusive<i32>> {
    let slot = |value: i64| i32::try_from(value).unwrap_or(i32::MAX);
    (from < to).then(|| slot(from)..=slot(to - 1))
}
