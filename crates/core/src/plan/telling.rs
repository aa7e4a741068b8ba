//! Decides how notices are told to the queue shards: in which order, and what each of them says.
//!
//! In: notices that wait in the outbox, then what became of each [`TellingStep`]. Out: the next step. Invariants: a notice is
//! told once, by the process that takes it out of the outbox; how far windows are open is read after the notices of earlier
//! generations have been told, so that of two generations the later one never knows of fewer windows than the earlier one; it
//! is read after the change was committed, so that a window is either opened later, and scanned with the new children, or lies
//! below, and is put right by the message. Not here: reading and writing, when the outbox is swept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use uuid::Uuid;

use super::{Notice, Plan, message_id};
use crate::handle::change::ShardSchedule;
use crate::handle::control::{Control, Message};
use crate::model::{MINUTE_US, SkipReason, Skipped};

/// Emitters open no more than this between a look at the frontier and the end of a transaction, where they keep up.
const OPENED_MEANWHILE_US: i64 = 10 * MINUTE_US;
/// How far ahead of now they may come in that time where they were behind: longer than windows may be opened ahead.
const OPENED_AT_ONCE_US: i64 = 26 * 60 * MINUTE_US;

/// Plans at hand, by schedule and generation.
pub type Plans<'a> = BTreeMap<(Uuid, i64), &'a Plan>;

/// How patiently notices are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Somebody waits: the first shard that does not take its messages ends it.
    AnswerSoon,
    /// Every shard is tried.
    TryAll,
}

/// What is to be done next, and then told to the [`Telling`].
#[derive(Debug)]
pub enum TellingStep<'a> {
    /// Read which notices of earlier generations of these (schedule, generation) wait; then [`Telling::earlier`].
    Earlier(Vec<(Uuid, i64)>),
    /// Read up to where windows are open; then [`Telling::opened`].
    Frontier,
    /// Tell in one transaction; then [`Telling::told`] or [`Telling::refused`].
    Tell {
        /// Into whose inbox the messages go.
        shard: u16,
        /// What is told.
        told: &'a [Told],
    },
    /// Nothing is left.
    End,
}

/// What a notice says. It is carried out in the transaction that takes the notice out of the outbox; if it is no
/// longer there, nothing is.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The schedule.
    pub schedule_uid: Uuid,
    /// Of the notice.
    pub generation: i64,
    /// For the first of the shards that must be told. None where there is nothing to tell: a new schedule that does not
    /// fire in what is open.
    pub message: Option<Message>,
    /// The span (after, until] in microseconds in which recorded skips of a pause no longer hold.
    pub taken_back: Option<(i64, i64)>,
    /// Triggers that the emitter will not find any more, and that the pause leaves out.
    pub skipped: Vec<Skipped>,
}

impl Told {
    /// What a notice says where windows have been opened up to `opened_until_us`. `plan`: none for a deletion.
    fn of(notice: &Notice, plan: Option<&Plan>, opened_until_us: Option<i64>, recorded_us: i64) -> Self {
        let until_us =
            opened_until_us.unwrap_or(notice.changed_us).min(notice.until_us).max(notice.changed_us);
        let launches_us: Vec<i64> =
            plan.into_iter().flat_map(|plan| plan.fires_between(notice.changed_us, until_us)).collect();
        let (fires, skips) =
            if notice.pause.is_some() { (vec![], launches_us) } else { (launches_us, vec![]) };
        let skip = |launch_us| Skipped {
            schedule_uid: notice.schedule_uid,
            launch_us,
            reason: SkipReason::Paused,
            recorded_us,
        };
        let nothing = notice.is_new && fires.is_empty();
        Self {
            schedule_uid: notice.schedule_uid,
            generation: notice.generation,
            message: (!nothing).then(|| message(notice, until_us, fires)),
            taken_back: opened_until_us.filter(|_| notice.was_paused).map(|_| (notice.changed_us, until_us)),
            skipped: skips.into_iter().map(skip).collect(),
        }
    }
}

fn message(notice: &Notice, until_us: i64, launches_us: Vec<i64>) -> Message {
    let schedule = ShardSchedule {
        uid: notice.schedule_uid,
        generation: notice.generation,
        changed_us: notice.changed_us,
        until_us,
        launches_us,
        events: notice.events,
        priority: notice.priority,
        pause: notice.pause.clone(),
        deleted: notice.timing.is_none(),
        cursor: None,
        earlier: Vec::new(),
        home: None,
    };
    Message {
        id: message_id(notice.schedule_uid, notice.generation),
        control: Control::ScheduleChanged {
            schedule,
            namespace: notice.namespace.clone(),
            schedule_id: notice.schedule_id.clone(),
            policy_uid: notice.policy_uid,
            onward: notice.way.iter().skip(1).copied().collect(),
        },
    }
}

/// No window that ends later is open when a transaction that begins at `now_us` ends, where windows are open up to
/// `opened_until_us`.
pub fn may_be_open_until_us(opened_until_us: Option<i64>, now_us: i64) -> i64 {
    match opened_until_us {
        Some(opened_until_us) if opened_until_us >= now_us => opened_until_us + OPENED_MEANWHILE_US,
        _ => now_us + OPENED_AT_ONCE_US,
    }
}

#[derive(Debug)]
enum Stage {
    Begin,
    /// The next wave waits for the frontier.
    Wave,
    /// A wave is told, shard by shard.
    Tell(VecDeque<(u16, Vec<Told>)>),
    End,
}

/// Notices that are being told.
#[derive(Debug)]
pub struct Telling<'a> {
    notices: Vec<Notice>,
    plans: Plans<'a>,
    patience: Patience,
    stage: Stage,
    waves: VecDeque<Vec<Notice>>,
    /// Schedules of which a notice was not told: later ones wait for it.
    held_back: BTreeSet<Uuid>,
    unreadable: Vec<(Notice, String)>,
}

impl<'a> Telling<'a> {
    /// Tells notices, after those of the same schedules that were left before them.
    pub fn new(notices: Vec<Notice>, plans: Plans<'a>, patience: Patience) -> Self {
        Self {
            notices,
            plans,
            patience,
            stage: Stage::Begin,
            waves: VecDeque::new(),
            held_back: BTreeSet::new(),
            unreadable: Vec::new(),
        }
    }

    /// What is to be done next.
    pub fn step(&mut self) -> TellingStep<'_> {
        if matches!(self.stage, Stage::Begin) {
            // A creation has none before it.
            let changed: Vec<(Uuid, i64)> = self.notices.iter().filter(|one| !one.is_new).map(key).collect();
            if !changed.is_empty() {
                return TellingStep::Earlier(changed);
            }
            self.earlier(Vec::new());
        }
        if matches!(&self.stage, Stage::Tell(shards) if shards.is_empty()) {
            self.stage = Stage::Wave;
        }
        match &self.stage {
            Stage::Wave if !self.waves.is_empty() => TellingStep::Frontier,
            Stage::Tell(shards) => shards
                .front()
                .map_or(TellingStep::End, |(shard, told)| TellingStep::Tell { shard: *shard, told }),
            _ => TellingStep::End,
        }
    }

    /// Notices of earlier generations that wait.
    pub fn earlier(&mut self, earlier: Vec<Notice>) {
        let mut notices = std::mem::take(&mut self.notices);
        notices.extend(earlier);
        notices.sort_by_key(key);
        notices.dedup_by_key(|notice| key(notice));
        self.waves = waves(notices);
        self.stage = Stage::Wave;
    }

    /// Up to where windows are open, now that all waves before have been told.
    pub fn opened(&mut self, opened_until_us: Option<i64>, now_us: i64) {
        let mut shards: BTreeMap<u16, Vec<Told>> = BTreeMap::new();
        for notice in self.waves.pop_front().unwrap_or_default() {
            if self.held_back.contains(&notice.schedule_uid) {
                continue;
            }
            match self.say(&notice, opened_until_us, now_us) {
                Ok(told) => shards.entry(notice.first()).or_default().push(told),
                Err(error) => {
                    self.held_back.insert(notice.schedule_uid);
                    self.unreadable.push((notice, error));
                }
            }
        }
        self.stage = Stage::Tell(shards.into_iter().collect());
    }

    fn say(&self, notice: &Notice, opened_until_us: Option<i64>, now_us: i64) -> Result<Told, String> {
        let read;
        let plan = match (&notice.timing, self.plans.get(&key(notice))) {
            (None, _) => None,
            (Some(_), Some(plan)) => Some(*plan),
            (Some(timing), None) => {
                read = Plan::forecast(timing, notice.schedule_uid.as_bytes())
                    .map_err(|error| error.to_string())?;
                Some(&read)
            }
        };
        Ok(Told::of(notice, plan, opened_until_us, now_us))
    }

    /// It has been told, by this or by somebody else.
    pub fn told(&mut self) {
        if let Stage::Tell(shards) = &mut self.stage {
            shards.pop_front();
        }
    }

    /// The shard has not taken it.
    pub fn refused(&mut self) {
        if let Stage::Tell(shards) = &mut self.stage
            && let Some((_, told)) = shards.pop_front()
        {
            self.held_back.extend(told.iter().map(|one| one.schedule_uid));
        }
        if self.patience == Patience::AnswerSoon {
            self.stage = Stage::End;
        }
    }

    /// Notices that were passed over since the last call, because their timing cannot be read, and why.
    pub fn take_unreadable(&mut self) -> Vec<(Notice, String)> {
        std::mem::take(&mut self.unreadable)
    }
}

fn key(notice: &Notice) -> (Uuid, i64) {
    (notice.schedule_uid, notice.generation)
}

/// Notices in the order of schedules and generations as waves: of one schedule, each generation comes in a wave after the
/// one before.
fn waves(notices: Vec<Notice>) -> VecDeque<Vec<Notice>> {
    let mut waves: VecDeque<Vec<Notice>> = VecDeque::new();
    let mut before: Option<(Uuid, usize)> = None;
    for notice in notices {
        let wave = before.filter(|(uid, _)| *uid == notice.schedule_uid).map_or(0, |(_, wave)| wave + 1);
        before = Some((notice.schedule_uid, wave));
        if waves.len() <= wave {
            waves.push_back(Vec::new());
        }
        waves[wave].push(notice);
    }
    waves
}
