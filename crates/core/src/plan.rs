//! When a schedule fires: expressions, zones, children and launch classes; where it lives; what a change of it tells the queue
//! shards.
//!
//! In: a [`Timing`]. Out: a [`Plan`], which lists fires in any span and the children by which a scan finds the
//! schedule. Invariants: fires depend on the timing alone, not on when it was made or read; they are a set,
//! so that triggers that agree fire once; an accepted trigger can fire. Rules follow Debian's cron where cron is
//! silent about clock changes. Not here: windows and what a scan reads ([`crate::emit`]), pauses, catch-up.

mod calendar;
mod change;
mod child;
pub mod done;
mod exclusion;
mod expression;
mod field;
mod fires;
mod launch;
mod notice;
mod placement;
mod sources;
pub mod telling;
pub mod tree;
pub mod units;
pub mod warnings;
mod written;
mod zone;

use std::collections::BTreeSet;

use chrono::DateTime;
use sha2::{Digest as _, Sha256};

pub use self::change::Change;
pub use self::child::{Child, CorruptChild};
pub use self::exclusion::Exclusion;
pub use self::field::plain_list;
pub use self::launch::LaunchClass;
pub use self::notice::{News, Notice, ScheduleNews, message_id, message_ids};
pub use self::placement::{Layout, SHARDS_MAX, home, put_under, shard_of, shards_to_tell};
pub use self::sources::Fires;
pub use self::written::{Dates, Shape, Weekday, Written};

pub use self::calendar::civil_from_days;
pub(crate) use self::calendar::{DAY_MINUTES, month_days, weekday};
pub(crate) use self::child::ChildRule;
pub(crate) use self::fires::{CORRECTION_S, minute_ceil};
pub(crate) use self::launch::{DayPart, LaunchKey};
pub(crate) use self::sources::{Source, second_ceil};
pub(crate) use self::zone::Zone;

use self::child::{Family, at_child, interval_child};
use self::expression::Expression;
use self::fires::{CronRule, FIRST_S, LIMIT_S};
use crate::model::{CHILDREN_MAX, DateRange, SECOND_US, Timing, Trigger};

/// The longest interval, in seconds: its phase is a child's slot.
const EVERY_MAX_S: i64 = i32::MAX as i64;

/// Why a timing is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value:?} is not allowed: {expected}")]
pub struct PlanError {
    /// Path of the field; for cron text with which of the five fields, as in
    /// `triggers[0].cron.expression: minute`.
    pub field: String,
    /// What was given, or the part of it that is wrong.
    pub value: String,
    /// What is allowed.
    pub expected: String,
}

impl PlanError {
    fn new(field: impl Into<String>, value: impl ToString, expected: impl Into<String>) -> Self {
        Self { field: field.into(), value: value.to_string(), expected: expected.into() }
    }
}

/// A compiled timing.
#[derive(Clone, Debug)]
pub struct Plan {
    sources: Vec<Source>,
    resolved: Vec<Trigger>,
    classes: Vec<LaunchClass>,
    children: Vec<Child>,
    children_count: usize,
    start_s: i64,
    end_s: i64,
    exclusion: Option<Exclusion>,
}

impl Plan {
    /// Compiles a timing. `seed` is the schedule's uid: it gives an interval without an anchor its stable offset.
    ///
    /// # Errors
    /// [`PlanError`] for the first thing that is wrong, among them more than [`CHILDREN_MAX`] children.
    pub fn compile(timing: &Timing, seed: &[u8]) -> Result<Self, PlanError> {
        let (mut plan, families) = Self::parse(timing, seed)?;
        if plan.children_count > CHILDREN_MAX {
            let value = format!("{} children", plan.children_count);
            let expected = format!(
                "at most {CHILDREN_MAX} children (months x days x hours x minutes, over all triggers)"
            );
            return Err(PlanError::new("triggers", value, expected));
        }
        for entry in families {
            entry.expand(&mut plan.children);
        }
        plan.children.sort_unstable();
        plan.children.dedup();
        Ok(plan)
    }

    /// Compiles a timing for its fires, classes and number of children only; that number has no limit, and
    /// [`Self::children`] is empty.
    ///
    /// # Errors
    /// [`PlanError`] for the first thing that is wrong.
    pub fn forecast(timing: &Timing, seed: &[u8]) -> Result<Self, PlanError> {
        Self::parse(timing, seed).map(|(plan, _)| plan)
    }

    fn parse(timing: &Timing, seed: &[u8]) -> Result<(Self, Vec<Entry>), PlanError> {
        let parser = Parser::new(timing, seed)?;
        let mut plan = Self {
            sources: Vec::with_capacity(timing.triggers.len()),
            resolved: Vec::with_capacity(timing.triggers.len()),
            classes: Vec::new(),
            children: Vec::new(),
            children_count: 0,
            start_s: timing.start_us.map_or(FIRST_S, second_ceil),
            end_s: timing.end_us.map_or(LIMIT_S, second_ceil),
            exclusion: parser.exclusion.clone(),
        };
        let mut entries = Vec::new();
        let mut classes = BTreeSet::new();
        for (index, trigger) in timing.triggers.iter().enumerate() {
            let (source, resolved, of_trigger) = parser.trigger(&format!("triggers[{index}]"), trigger)?;
            plan.sources.push(source);
            plan.resolved.push(resolved);
            plan.children_count += of_trigger.iter().map(Entry::count).sum::<usize>();
            classes.extend(of_trigger.iter().map(Entry::class));
            entries.extend(of_trigger);
        }
        plan.classes = classes.into_iter().collect();
        Ok((plan, entries))
    }

    /// Everything that is wrong with a timing that is refused, each trigger by itself.
    pub fn faults(timing: &Timing, seed: &[u8]) -> Vec<PlanError> {
        let mut faults = Vec::new();
        let in_utc;
        let parser = match Parser::new(timing, seed) {
            Ok(parser) => parser,
            Err(error) => {
                // What is wrong with the triggers does not depend on the zone.
                let only_zone = error.field == "time_zone";
                faults.push(error);
                in_utc = Timing { time_zone: "UTC".to_owned(), ..timing.clone() };
                match Parser::new(&in_utc, seed) {
                    Ok(parser) if only_zone => parser,
                    _ => return faults,
                }
            }
        };
        for (index, trigger) in timing.triggers.iter().enumerate() {
            faults.extend(parser.trigger(&format!("triggers[{index}]"), trigger).err());
        }
        if faults.is_empty() {
            faults.extend(Self::compile(timing, seed).err());
        }
        faults
    }

    /// The fires strictly after a moment, ascending, each once; all times in microseconds since the epoch.
    pub fn fires_after(&self, after_us: i64) -> Fires {
        self.fires_in(after_us.div_euclid(SECOND_US) + 1, LIMIT_S)
    }

    /// The fires t with `after_us < t <= until_us`, ascending, each once.
    pub fn fires_between(&self, after_us: i64, until_us: i64) -> Fires {
        self.fires_in(after_us.div_euclid(SECOND_US) + 1, until_us.div_euclid(SECOND_US) + 1)
    }

    fn fires_in(&self, start: i64, end: i64) -> Fires {
        Fires::of(&self.sources, self.exclusion.as_ref(), start.max(self.start_s), end.min(self.end_s))
    }

    /// The triggers with every interval's anchor filled in.
    pub fn resolved(&self) -> &[Trigger] {
        &self.resolved
    }

    /// The launch classes, most significant first, each once.
    pub fn classes(&self) -> &[LaunchClass] {
        &self.classes
    }

    /// The children, sorted, each once; equal ones of several triggers are one.
    pub fn children(&self) -> &[Child] {
        &self.children
    }

    /// How many children the triggers have, counted one by one.
    pub fn children_count(&self) -> usize {
        self.children_count
    }
}

/// What becomes children.
enum Entry {
    Family { family: Family, zone: Zone, rule: ChildRule },
    Single { class: LaunchClass, child: Child },
}

impl Entry {
    fn count(&self) -> usize {
        match self {
            Self::Family { family, .. } => family.count(),
            Self::Single { .. } => 1,
        }
    }

    fn class(&self) -> LaunchClass {
        match self {
            Self::Family { family, .. } => family.class,
            Self::Single { class, .. } => *class,
        }
    }

    fn expand(self, children: &mut Vec<Child>) {
        match self {
            Self::Family { family, zone, rule } => family.expand(zone, rule, children),
            Self::Single { child, .. } => children.push(child),
        }
    }
}

/// What the triggers of one timing share.
struct Parser<'a> {
    timing: &'a Timing,
    zone: Zone,
    exclusion: Option<Exclusion>,
    seed: &'a [u8],
}

impl<'a> Parser<'a> {
    fn new(timing: &'a Timing, seed: &'a [u8]) -> Result<Self, PlanError> {
        let zone = Zone::named(&timing.time_zone).ok_or_else(|| {
            let mut expected =
                "the exact name of a zone in the IANA database, such as Europe/Berlin or UTC".to_owned();
            if let Some(near) = Zone::near(&timing.time_zone) {
                expected.push_str(&format!("; did you mean {near}?"));
            }
            PlanError::new("time_zone", &timing.time_zone, expected)
        })?;
        if let (Some(start), Some(end)) = (timing.start_us, timing.end_us)
            && end <= start
        {
            let expected = format!("a moment after the start, {}", moment(start));
            return Err(PlanError::new("end_us", moment(end), expected));
        }
        Ok(Self { timing, zone, exclusion: Exclusion::of(timing), seed })
    }

    fn trigger(&self, path: &str, trigger: &Trigger) -> Result<(Source, Trigger, Vec<Entry>), PlanError> {
        match trigger {
            Trigger::Cron { expression } => {
                let parsed = Expression::from_text(&format!("{path}.cron.expression"), expression)?;
                Ok(self.cron(&parsed, trigger))
            }
            Trigger::Fields { month, day_of_month, day_of_week, hour, minute } => {
                let fields = [month, day_of_month, day_of_week, hour, minute].map(Option::as_deref);
                let parsed = Expression::from_fields(&format!("{path}.fields"), fields)?;
                Ok(self.cron(&parsed, trigger))
            }
            Trigger::Interval { every_s, anchor_us } => {
                self.interval(&format!("{path}.interval"), *every_s, *anchor_us)
            }
            Trigger::At { at_us } => self.at(&format!("{path}.at"), *at_us),
        }
    }

    fn cron(&self, expression: &Expression, trigger: &Trigger) -> (Source, Trigger, Vec<Entry>) {
        let Timing { gap, repeat, start_us, end_us, .. } = *self.timing;
        let Expression { calendar, wildcard, .. } = *expression;
        let zone = self.zone;
        let rule = ChildRule { wildcard, gap, repeat, start_us, end_us, ..ChildRule::default() };
        let entries = Family::of(expression).into_iter().map(|family| Entry::Family { family, zone, rule });
        (Source::Cron(CronRule { calendar, zone, wildcard, gap, repeat }), trigger.clone(), entries.collect())
    }

    fn interval(
        &self,
        path: &str,
        every_s: i64,
        anchor_us: Option<i64>,
    ) -> Result<(Source, Trigger, Vec<Entry>), PlanError> {
        if !(1..=EVERY_MAX_S).contains(&every_s) {
            let expected = format!("1 to {EVERY_MAX_S} whole seconds");
            return Err(PlanError::new(format!("{path}.every_s"), every_s, expected));
        }
        let anchor_us = anchor_us.unwrap_or_else(|| stable_offset_s(self.seed, every_s) * SECOND_US);
        let anchor_s = anchor_us.div_euclid(SECOND_US);
        let field = format!("{path}.anchor_us");
        if anchor_us % SECOND_US != 0 || !(FIRST_S..LIMIT_S - every_s).contains(&anchor_s) {
            let expected = "a whole second in years 1 to 9999, with one interval to go before their end";
            return Err(PlanError::new(field, moment(anchor_us), expected));
        }
        if let Some(end) = self.timing.end_us.filter(|end| *end <= anchor_us) {
            let expected = format!("a moment after the interval's anchor, {}", moment(anchor_us));
            return Err(PlanError::new("end_us", moment(end), expected));
        }
        let Timing { start_us, end_us, .. } = *self.timing;
        let child = interval_child(every_s, anchor_s, ChildRule { start_us, end_us, ..ChildRule::default() });
        let resolved = Trigger::Interval { every_s, anchor_us: Some(anchor_us) };
        let entry = Entry::Single { class: LaunchClass::I, child };
        Ok((Source::Interval { every_s, anchor_s }, resolved, vec![entry]))
    }

    fn at(&self, path: &str, at_us: i64) -> Result<(Source, Trigger, Vec<Entry>), PlanError> {
        let field = format!("{path}.at_us");
        let at_s = at_us.div_euclid(SECOND_US);
        if at_us % SECOND_US != 0 || !(0..LIMIT_S).contains(&at_s) {
            let expected = "a whole second in years 1970 to 9999";
            return Err(PlanError::new(field, moment(at_us), expected));
        }
        let started = self.timing.start_us.is_none_or(|start| start <= at_us);
        if !started || self.timing.end_us.is_some_and(|end| end <= at_us) {
            let expected = "a moment at or after the schedule's start and before its end";
            return Err(PlanError::new(field, moment(at_us), expected));
        }
        if self.exclusion.as_ref().is_some_and(|exclusion| exclusion.passes_until_s(at_s).is_some()) {
            return Err(PlanError::new(field, moment(at_us), self.left(at_s)));
        }
        let entry = Entry::Single { class: LaunchClass::A, child: at_child(at_us) };
        Ok((Source::At { at_s }, Trigger::At { at_us }, vec![entry]))
    }
}

impl Parser<'_> {
    /// What a moment may be that is excluded, by whatever excludes it.
    fn left(&self, at_s: i64) -> String {
        let excludes = |dates: &[DateRange]| Exclusion::by(self.zone, dates).passes_until_s(at_s).is_some();
        let mut calendars = self.timing.calendar_dates();
        let calendar = calendars.find(|(_, dates)| excludes(dates)).map(|(calendar, _)| &calendar.id);
        let what = match calendar.filter(|_| !excludes(self.timing.own_exclude())) {
            Some(id) => format!("the calendar {id} in exclude_calendars"),
            None => "exclude".to_owned(),
        };
        format!("a moment that {what} leaves, by the dates of {}", self.timing.time_zone)
    }
}

/// An offset in `0..every_s` that depends on the seed alone, so that schedules made alike do not fire alike.
fn stable_offset_s(seed: &[u8], every_s: i64) -> i64 {
    let digest = Sha256::new().chain_update(every_s.to_be_bytes()).chain_update(seed).finalize();
    let hash = digest.iter().take(7).fold(0_i64, |hash, byte| hash << 8 | i64::from(*byte));
    hash % every_s
}

/// A moment for people.
fn moment(us: i64) -> String {
    DateTime::from_timestamp_micros(us).map_or_else(|| format!("{us} us"), |utc| utc.to_rfc3339())
}
