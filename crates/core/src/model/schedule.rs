//! A schedule: when, how many, where, under which policy.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{CalendarUse, DateRange, OnFinish, Payload, SECOND_US, Stagger, Target};

/// One rule that says when a schedule fires; a schedule fires at the union of its triggers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Trigger {
    /// Five fields or a macro, as in `30 2 * * MON-FRI`.
    Cron {
        /// The text as the user wrote it.
        expression: String,
    },
    /// The same fields by name. An absent field is `*`; minute `*` means on the hour.
    Fields {
        /// 1-12 or JAN-DEC.
        month: Option<String>,
        /// 1-31 or L.
        day_of_month: Option<String>,
        /// 0-7 or SUN-SAT, `d#k`, `d#L`, `nL`.
        day_of_week: Option<String>,
        /// 0-23.
        hour: Option<String>,
        /// 0-59.
        minute: Option<String>,
    },
    /// At equal distances of elapsed time, counted from an anchor.
    Interval {
        /// Whole seconds between two fires, at least 1.
        every_s: i64,
        /// A moment at which it fires; absent until the service has chosen a stable offset.
        anchor_us: Option<i64>,
    },
    /// Once.
    At {
        /// The moment, a whole second.
        at_us: i64,
    },
}

/// What happens to a fixed launch minute that a clock change skips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum GapRule {
    /// It fires at the first instant after the gap.
    #[default]
    NextValid,
    /// It does not fire that day.
    Skip,
}

/// What happens to a fixed launch minute that a clock change repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RepeatRule {
    /// It fires in the first pass only.
    #[default]
    First,
    /// It fires in both passes.
    Both,
}

/// When a schedule fires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Fires are their union, once each. Without one it is manual: it fires by hand alone.
    pub triggers: Vec<Trigger>,
    /// IANA name; `UTC` by default.
    pub time_zone: String,
    /// For fixed launch minutes that are skipped.
    #[serde(default)]
    pub gap: GapRule,
    /// For fixed launch minutes that are repeated.
    #[serde(default)]
    pub repeat: RepeatRule,
    /// Nothing fires before this moment.
    #[serde(default)]
    pub start_us: Option<i64>,
    /// Nothing fires at or after this moment.
    #[serde(default)]
    pub end_us: Option<i64>,
    /// On these local dates nothing fires: its own, and then those of its calendars ([`Self::own_exclude`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<DateRange>,
    /// The calendars of which dates are among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calendars: Vec<CalendarUse>,
}

/// What becomes of triggers that fell due while nothing could emit them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// They are recorded as missed.
    None,
    /// The latest one fires, the others are recorded as missed.
    #[default]
    Latest,
    /// Each one that is at most this old fires; older ones are recorded as missed.
    All {
        /// How far back, in seconds.
        horizon_s: i64,
    },
}

/// What happens when a schedule falls due while an earlier run of it is unfinished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OverlapRule {
    /// Both run.
    #[default]
    Allow,
    /// The new one is recorded as skipped.
    Skip,
    /// The new one waits for the old one; while one waits, further ones are recorded as skipped.
    BufferOne,
    /// What the old one has not started is cancelled, and the new one runs.
    CancelOther,
}

/// What becomes of a schedule that never fires again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenDone {
    /// It stays.
    #[default]
    Keep,
    /// The service deletes it.
    Delete {
        /// So long after its last launch time, its last change and the end of its last run, in seconds.
        after_s: i64,
    },
}

/// How often and after what time a failed event is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Deliveries in all, at least 1.
    pub attempts_max: u32,
    /// Wait before the second attempt.
    pub backoff_min_ms: i64,
    /// The wait doubles up to this.
    pub backoff_max_ms: i64,
    /// Whether a reclaimed event is tried again (else it is closed as LOST).
    pub retry_lost: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        // Rides out an hour of a consumer that is down.
        Self { attempts_max: 20, backoff_min_ms: 1_000, backoff_max_ms: 300_000, retry_lost: true }
    }
}

/// What becomes of an event whose consumer asks for it once more often, or further ahead, than the guards allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OnGuard {
    /// The release is refused, and the token stays.
    #[default]
    Refuse,
    /// The release is taken, and the event ends as failed.
    Close,
}

/// Why an event does not come again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAgain {
    /// The release is refused: what is wrong with it, the value and what is allowed.
    Refused(String),
    /// The event ends as failed, by the guard that this names.
    Closed(String),
}

/// Guards for a consumer's `next_check_time`, and the slot to which it is rounded up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckAgain {
    /// How often one event may ask to come again; 0 forbids it.
    pub count_max: u32,
    /// How far ahead a check may lie, in seconds.
    pub horizon_s: i64,
    /// Checks, and the moments of triggers `at`, are rounded up to whole multiples of this many seconds since the epoch.
    pub slot_s: i64,
    /// What a guard does.
    #[serde(default)]
    pub on_guard: OnGuard,
}

impl CheckAgain {
    /// When an event comes again whose consumer asks for it at `check_us`: rounded up to the slot. `checks`: how often the
    /// event has come again like this.
    ///
    /// # Errors
    /// What is wrong with the moment, or the guard that does not allow it, and what follows.
    pub fn slot(&self, check_us: i64, checks: u32, now_us: i64) -> Result<i64, NotAgain> {
        let guard = |message: String| match self.on_guard {
            OnGuard::Refuse => NotAgain::Refused(message),
            OnGuard::Close => NotAgain::Closed(message),
        };
        if checks >= self.count_max {
            return Err(guard(format!(
                "next_check_time: the event has come {checks} times, check_again.max_checks allows {}",
                self.count_max
            )));
        }
        if check_us <= now_us {
            let message = "next_check_time: it lies in the past; it must lie in the future";
            return Err(NotAgain::Refused(message.to_owned()));
        }
        if check_us > now_us + self.horizon_s * SECOND_US {
            return Err(guard(format!(
                "next_check_time: it lies {} s ahead, check_again.horizon allows {} s",
                (check_us - now_us) / SECOND_US,
                self.horizon_s
            )));
        }
        Ok(Self::up_to_slot_us(check_us, self.slot_s))
    }

    /// The begin of a slot of so many seconds, counted from the epoch, at a moment or after it.
    pub fn up_to_slot_us(at_us: i64, slot_s: i64) -> i64 {
        let slot_us = slot_s.max(1) * SECOND_US;
        (at_us + slot_us - 1).div_euclid(slot_us) * slot_us
    }
}

impl Default for CheckAgain {
    fn default() -> Self {
        Self { count_max: 100, horizon_s: 7 * 24 * 3600, slot_s: 1, on_guard: OnGuard::Refuse }
    }
}

/// Who paused something, when and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Free text for the next operator.
    pub reason: String,
    /// Who did it.
    pub actor: String,
    /// When.
    pub since_us: i64,
}

/// A pause that has been lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastPause {
    /// When it began.
    pub since_us: i64,
    /// When it was lifted.
    pub until_us: i64,
}

/// A schedule as the Schedule Master keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Chosen by the service, never used again for another schedule.
    pub uid: Uuid,
    /// The namespace's id.
    pub namespace: String,
    /// The schedule's id within its namespace.
    pub id: String,
    /// Free text.
    #[serde(default)]
    pub description: String,
    /// When it fires.
    pub timing: Timing,
    /// Events per trigger, 1 to [`super::EVENTS_MAX`]; 0 where a list that is fetched for each says how many.
    pub events: u32,
    /// Where its events go.
    pub target: Target,
    /// What its events carry.
    pub payload: Payload,
    /// Id of the policy in the same namespace; none means no limit.
    pub policy: Option<String>,
    /// Uid of that policy.
    pub policy_uid: Option<Uuid>,
    /// The queue shard of its runs, where it is another one than its policy's uid, or its own where it has no policy, chooses
    /// among the shards that the installation had at first. The name in what is stored is of the time when only that of a
    /// policy was written down.
    #[serde(default, rename = "policy_shard", skip_serializing_if = "Option::is_none")]
    pub shard: Option<u16>,
    /// As what its events count where its policy counts by key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The label of which `key` is the value, where it follows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_label: Option<String>,
    /// How many tokens each of its events takes whose item does not say, 1 to [`crate::items::UNITS_MAX`].
    #[serde(default = "super::run::one", skip_serializing_if = "super::run::is_one")]
    pub units: u32,
    /// 0 (last) to 9 (first); 5 by default.
    pub priority: u8,
    /// How failures are retried.
    pub retry: RetryPolicy,
    /// Triggers missed in an outage.
    pub catch_up: CatchUp,
    /// A run that falls due while another is unfinished.
    pub overlap: OverlapRule,
    /// Its runs start no sooner than this long after the end of the last one; what falls due before, the overlap rule decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_after_finish_s: Option<i64>,
    /// Events that have not started this long after the launch time expire.
    pub finish_by_s: Option<i64>,
    /// Events are spaced evenly over this long.
    pub spread_s: Option<i64>,
    /// Its runs start at a moment of its own within this long after the launch time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_within_s: Option<i64>,
    /// The share of its interval that this is, where it follows that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_within_percent: Option<u32>,
    /// Guards for `next_check_time`.
    pub check_again: CheckAgain,
    /// What follows its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_finish: Option<OnFinish>,
    /// What becomes of it once it never fires again.
    #[serde(default)]
    pub when_done: WhenDone,
    /// Set while it is paused.
    pub pause: Option<Pause>,
    /// The latest pauses that have been lifted, the oldest first: an emitter that scans a window late leaves out what fell due in
    /// them. At most [`Self::PAST_PAUSES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_pauses: Vec<PastPause>,
    /// Labels for the user's own filters.
    #[serde(default)]
    pub labels: std::collections::BTreeMap<String, String>,
    /// The queue shards in which it lived before, in the order in which it left them; not the one where it lives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_homes: Vec<u16>,
    /// Grows by one with every change; also the etag.
    pub generation: i64,
    /// When it was made.
    pub created_us: i64,
    /// When it was last changed.
    pub updated_us: i64,
}

impl Schedule {
    /// How many pauses that have been lifted are remembered.
    pub const PAST_PAUSES_MAX: usize = 16;

    /// How its events are set off from its launch times.
    pub fn stagger(&self) -> Stagger {
        let Self { start_within_s, spread_s, events, .. } = *self;
        Stagger { start_within_s, spread_s, events }
    }

    /// How long after each launch time its first event falls due.
    pub fn start_delay_us(&self) -> i64 {
        self.stagger().delay_us(self.uid)
    }

    /// Until when the pause lasts in which a launch falls due: the present one, or one that has been lifted. `i64::MAX` where
    /// that is not known.
    pub fn paused_until_us(&self, launch_us: i64) -> Option<i64> {
        if self.pause.as_ref().is_some_and(|pause| pause.since_us < launch_us) {
            return Some(i64::MAX);
        }
        let past = self.past_pauses.iter();
        past.map(|pause| (pause.since_us, pause.until_us))
            .find(|(since_us, until_us)| *since_us < launch_us && launch_us <= *until_us)
            .map(|(_, until_us)| until_us)
    }

    /// Takes over the past pauses of the schedule as it was before a change at `at_us`, and remembers the pause that the
    /// change ends or replaces.
    pub fn remember_pauses(&mut self, before: &Self, at_us: i64) {
        self.past_pauses.clone_from(&before.past_pauses);
        let since_us = |schedule: &Self| schedule.pause.as_ref().map(|pause| pause.since_us);
        if let Some(since_us) = since_us(before).filter(|ended| since_us(self) != Some(*ended)) {
            self.past_pauses.push(PastPause { since_us, until_us: at_us });
            let excess = self.past_pauses.len().saturating_sub(Self::PAST_PAUSES_MAX);
            self.past_pauses.drain(..excess);
        }
    }
}
