//! Decides how notices are told to the queue shards: in which order, and what each of them says.
//!
//! In: notices that wait in the outbox, then what became of each [`TellingStep`]. Out: the next step. Invariants: a notice
//! is told once, by whoever takes it out of the outbox, after those of earlier generations; for a schedule, how far windows
//! are open is read after these have been told, so that of two generations the later one never knows of fewer windows than
//! the earlier one; it is read after the change was committed, so that a window is either opened later, and scanned with
//! the new children, or lies below, and is put right by the message. Not here: reading and writing, when the outbox is
//! swept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use uuid::Uuid;

use super::{News, Notice, Plan, ScheduleNews, message_id};
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
    /// Somebody waits: all shards are told at once, and if one of them does not take its messages, that ends it.
    AnswerSoon,
    /// Every shard is tried by itself.
    TryAll,
}

/// What is to be done next, and then told to the [`Telling`].
#[derive(Debug)]
pub enum TellingStep<'a> {
    /// Read which notices of earlier generations of these (schedule or policy, generation) wait; then [`Telling::earlier`].
    Earlier(Vec<(Uuid, i64)>),
    /// Read up to where windows are open; then [`Telling::opened`].
    Frontier,
    /// Tell in one transaction; then [`Telling::told`] or [`Telling::refused`].
    Tell(&'a [Told]),
    /// Nothing is left.
    End,
}

/// What a notice says. It is carried out in the transaction that takes the notice out of the outbox; if it is no
/// longer there, nothing is.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Into whose inbox the message goes: the first of the shards that must be told.
    pub shard: u16,
    /// The schedule or policy.
    pub uid: Uuid,
    /// Of the notice.
    pub generation: i64,
    /// What the shard is told. None where there is nothing to tell: a new schedule that does not
    /// fire in what is open.
    pub message: Option<Message>,
    /// The span (after, until] in microseconds in which recorded skips of a pause no longer hold.
    pub taken_back: Option<(i64, i64)>,
    /// Triggers that the emitter will not find any more, and that the pause leaves out.
    pub skipped: Vec<Skipped>,
}

impl Told {
    /// What a notice of a policy says.
    fn of_policy(notice: &Notice, control: &Control) -> Self {
        Self {
            shard: notice.first(),
            uid: notice.uid,
            generation: notice.generation,
            message: Some(message(notice, control.clone())),
            taken_back: None,
            skipped: Vec::new(),
        }
    }

    /// What a notice of a schedule says where windows have been opened up to `opened_until_us`. `plan`: none for a deletion.
    fn of_schedule(
        notice: &Notice,
        news: &ScheduleNews,
        plan: Option<&Plan>,
        opened_until_us: Option<i64>,
        recorded_us: i64,
    ) -> Self {
        let until_us = opened_until_us.unwrap_or(notice.changed_us).min(news.until_us).max(notice.changed_us);
        let launches_us: Vec<i64> =
            plan.into_iter().flat_map(|plan| plan.fires_between(notice.changed_us, until_us)).collect();
        let (fires, skips) = if news.pause.is_some() { (vec![], launches_us) } else { (launches_us, vec![]) };
        let skip = |launch_us| Skipped {
            schedule_uid: notice.uid,
            launch_us,
            reason: SkipReason::Paused,
            recorded_us,
        };
        let nothing = notice.is_new && fires.is_empty();
        Self {
            shard: notice.first(),
            uid: notice.uid,
            generation: notice.generation,
            message: (!nothing).then(|| message(notice, changed(notice, news, until_us, fires))),
            taken_back: opened_until_us.filter(|_| news.was_paused).map(|_| (notice.changed_us, until_us)),
            skipped: skips.into_iter().map(skip).collect(),
        }
    }
}

fn message(notice: &Notice, control: Control) -> Message {
    Message { id: message_id(notice.uid, notice.generation), control }
}

fn changed(notice: &Notice, news: &ScheduleNews, until_us: i64, launches_us: Vec<i64>) -> Control {
    let schedule = ShardSchedule {
        uid: notice.uid,
        generation: notice.generation,
        changed_us: notice.changed_us,
        until_us,
        launches_us,
        events: news.events,
        priority: news.priority,
        pause: news.pause.clone(),
        deleted: news.timing.is_none(),
        ..ShardSchedule::default()
    };
    Control::ScheduleChanged {
        schedule,
        namespace: notice.namespace.clone(),
        schedule_id: notice.id.clone(),
        policy_uid: news.policy_uid,
        onward: notice.way.iter().skip(1).copied().collect(),
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
    /// The next wave waits for the frontier, if it needs it.
    Wave,
    /// A wave is told, part by part.
    Tell(VecDeque<Vec<Told>>),
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
    /// Schedules and policies of which a notice was not told: later ones wait for it.
    held_back: BTreeSet<Uuid>,
    unreadable: Vec<(Notice, String)>,
}

impl<'a> Telling<'a> {
    /// Tells notices, after those of the same schedules and policies that were left before them.
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
        let asks = |wave: &Vec<Notice>| wave.iter().any(|one| matches!(one.news, News::Schedule(_)));
        loop {
            if matches!(&self.stage, Stage::Tell(parts) if parts.is_empty()) {
                self.stage = Stage::Wave;
            }
            // A wave of policies alone needs no frontier.
            match self.waves.front() {
                Some(wave) if matches!(self.stage, Stage::Wave) && !asks(wave) => self.opened(None, 0),
                _ => break,
            }
        }
        match &self.stage {
            Stage::Wave if !self.waves.is_empty() => TellingStep::Frontier,
            Stage::Tell(parts) => parts.front().map_or(TellingStep::End, |told| TellingStep::Tell(told)),
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
        // Of one shard each, or all together.
        let mut parts: BTreeMap<Option<u16>, Vec<Told>> = BTreeMap::new();
        for notice in self.waves.pop_front().unwrap_or_default() {
            if self.held_back.contains(&notice.uid) {
                continue;
            }
            match self.say(&notice, opened_until_us, now_us) {
                Ok(told) => {
                    let part = (self.patience == Patience::TryAll).then_some(told.shard);
                    parts.entry(part).or_default().push(told);
                }
                Err(error) => {
                    self.held_back.insert(notice.uid);
                    self.unreadable.push((notice, error));
                }
            }
        }
        self.stage = Stage::Tell(parts.into_values().collect());
    }

    fn say(&self, notice: &Notice, opened_until_us: Option<i64>, now_us: i64) -> Result<Told, String> {
        let news = match &notice.news {
            News::Policy { control } => return Ok(Told::of_policy(notice, control)),
            News::Schedule(news) => news,
        };
        let read;
        let plan = match (&news.timing, self.plans.get(&key(notice))) {
            (None, _) => None,
            (Some(_), Some(plan)) => Some(*plan),
            (Some(timing), None) => {
                read = Plan::forecast(timing, notice.uid.as_bytes()).map_err(|error| error.to_string())?;
                Some(&read)
            }
        };
        Ok(Told::of_schedule(notice, news, plan, opened_until_us, now_us))
    }

    /// It has been told, by this or by somebody else.
    pub fn told(&mut self) {
        if let Stage::Tell(parts) = &mut self.stage {
            parts.pop_front();
        }
    }

    /// It has not been told.
    pub fn refused(&mut self) {
        if let Stage::Tell(parts) = &mut self.stage
            && let Some(told) = parts.pop_front()
        {
            self.held_back.extend(told.iter().map(|one| one.uid));
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
    (notice.uid, notice.generation)
}

/// Notices in the order of uids and generations as waves: of one schedule or policy, each generation comes in a wave after
/// the one before.
fn waves(notices: Vec<Notice>) -> VecDeque<Vec<Notice>> {
    let mut waves: VecDeque<Vec<Notice>> = VecDeque::new();
    let mut before: Option<(Uuid, usize)> = None;
    for notice in notices {
        let wave = before.filter(|(uid, _)| *uid == notice.uid).map_or(0, |(_, wave)| wave + 1);
        before = Some((notice.uid, wave));
        if waves.len() <= wave {
            waves.push_back(Vec::new());
        }
        waves[wave].push(notice);
    }
    waves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::testing::policy;

    /// Its shard takes nothing, and it has been changed more often than a stack is deep.
    #[test]
    fn of_a_policy_that_is_held_back_no_later_change_is_told() {
        let change = |generation| Notice::of_policy(&crate::model::Policy { generation, ..policy(3) });
        let changes: Vec<Notice> = (1..=50_000).map(change).collect();
        let mut telling = Telling::new(changes, Plans::new(), Patience::TryAll);
        assert!(matches!(telling.step(), TellingStep::Earlier(_)));
        telling.earlier(Vec::new());
        let TellingStep::Tell(told) = telling.step() else { panic!("the first is told") };
        assert_eq!(told.iter().map(|one| one.generation).collect::<Vec<_>>(), [1]);
        telling.refused();
        assert!(matches!(telling.step(), TellingStep::End), "a later one never goes before");
    }
}
