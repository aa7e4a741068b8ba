//! What an owner reads of what is new in the store, and what it passes over because it cannot be read.
//!
//! In: what reads have found. Out: what the next one asks for. Invariants: of each namespace something is taken in by each read;
//! what cannot be read, or waits for a run that cannot, is tried again, now and then, and is in no other message's way. Not
//! here: reading.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::backlog::ReadSize;
use crate::handle::Context;
use crate::handle::control::{Control, Message};
use crate::model::{Run, RunId, RunSpec};

/// How many dead events of a run, and how many runs that could not be read before, one read takes.
pub const READ_MAX: u32 = 2_000;
/// To read what a message is about takes as long as to take in this many runs.
const MESSAGE_RUNS: usize = 4;
/// When what has been passed over is counted, in microseconds.
const SOON_US: i64 = 2_000_000;
/// When what could not be read is tried again, at the earliest, in microseconds.
const TRY_AGAIN_US: i64 = 60_000_000;

/// What a read is to bring.
#[derive(Clone, Debug)]
pub struct Ask {
    /// How much.
    pub part: ReadSize,
    /// Messages that have been passed over, and those of ends that are being followed.
    pub except: Vec<Uuid>,
    /// Look again at runs that have been, from this id on.
    pub again: Option<RunId>,
    /// Look again at these specs.
    pub specs: Vec<(Uuid, i64)>,
}

/// What is new in the store.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// Runs that nobody has taken in.
    pub runs: Vec<Run>,
    /// Their specs, as far as the machine has not asked for others.
    pub specs: Vec<RunSpec>,
    /// Messages, read after the runs, so that what a run needs is among them.
    pub messages: Vec<(Message, Context)>,
    /// Messages that cannot be read, or whose context cannot.
    pub unreadable: Vec<Uuid>,
    /// Runs that had been passed over and were read again: how many, and the last one's id.
    pub again: Option<(usize, RunId)>,
    /// Rows of runs cannot be read, and have been marked.
    pub broken: bool,
    /// Specs can be read that could not when the machine was loaded.
    pub mended: bool,
    /// There may be more.
    pub full: bool,
    /// No release waits in the inbox.
    pub releases_whole: bool,
    /// The specs are there that the machine has asked for.
    pub complete: bool,
}

/// What one read takes of an inbox.
#[derive(Clone, Debug)]
pub struct Page {
    /// In their order.
    pub messages: Vec<Message>,
    /// There may be more.
    pub full: bool,
    /// No release waits beside them.
    pub releases_whole: bool,
}

impl ReadSize {
    /// Whether `rows` rows are all that a read takes of runs.
    pub fn is_full(&self, rows: usize) -> bool {
        rows >= self.runs_max as usize
    }

    /// Whether what launches about now is read beside `rows` rows, the last of which launches at `last_us`: it does not wait
    /// for them.
    pub fn wants_recent(&self, rows: usize, last_us: Option<i64>) -> bool {
        self.is_full(rows) && last_us.is_some_and(|last_us| last_us < self.recent_us.start)
    }

    /// What is taken of `rows` rows of an inbox: these messages, and these that cannot be read.
    pub fn page(&self, rows: usize, messages: Vec<Message>, unreadable: &[Uuid]) -> Page {
        let is_whole = rows < self.messages_max as usize;
        let last = messages.iter().map(|message| message.id).chain(unreadable.iter().copied()).max();
        let (messages, others_wait) = in_turn(messages, self.runs_max as usize);
        let releases_whole = is_whole || last.is_some_and(Message::is_beyond_releases);
        Page { messages, full: others_wait || !is_whole, releases_whole }
    }
}

/// Those of some messages that are taken in at once, in their order, and whether others wait for the next read: those that
/// would make more runs than `runs_max`. Each namespace's first one is taken in all the same, and so is what makes none, so
/// that a pause does not wait for somebody's thousands of new schedules.
fn in_turn(mut messages: Vec<Message>, runs_max: usize) -> (Vec<Message>, bool) {
    let (mut runs, mut namespaces, mut waiting) = (0, BTreeSet::new(), BTreeSet::new());
    messages.retain(|message| {
        let Control::ScheduleChanged { schedule, namespace, .. } = &message.control else { return true };
        // One generation after the other.
        let mut goes = !waiting.contains(&schedule.uid);
        if goes && !schedule.launches_us.is_empty() {
            let more = runs + schedule.launches_us.len() + MESSAGE_RUNS;
            goes = namespaces.insert(namespace.clone()) || more <= runs_max;
            runs = if goes { more } else { runs };
        }
        if !goes {
            waiting.insert(schedule.uid);
        }
        goes
    });
    (messages, !waiting.is_empty())
}

/// What is passed over because it cannot be read, and when it is tried again.
#[derive(Debug)]
pub(super) struct PassedOver {
    /// Messages of the inbox, also those that can be read and wait for a run that cannot.
    messages: BTreeSet<Uuid>,
    /// Runs that the look under way has come across.
    runs: usize,
    /// Up to which id it has looked; none where none is under way.
    looked: Option<RunId>,
    began_us: i64,
    again_us: i64,
    /// Specs of runs that have been taken in before, and were left out when the machine was loaded.
    specs: Vec<(Uuid, i64)>,
    /// They are to be tried again by the next read.
    try_specs: bool,
    /// Some of them can be read again.
    pub(super) mended: bool,
}

impl PassedOver {
    /// As of a shard that has been read: what of its runs has no spec is left out.
    pub(super) fn of(runs: &[Run], specs: &[RunSpec], now_us: i64) -> Self {
        let read: BTreeSet<_> = specs.iter().map(|spec| (spec.schedule_uid, spec.generation)).collect();
        let wanted: BTreeSet<_> = runs.iter().map(|run| (run.schedule_uid, run.generation)).collect();
        Self {
            messages: BTreeSet::new(),
            runs: 0,
            looked: Some(RunId::default()),
            began_us: now_us,
            again_us: now_us,
            specs: wanted.difference(&read).copied().collect(),
            try_specs: false,
            mended: false,
        }
    }

    /// When to look again.
    pub(super) fn again_us(&self) -> i64 {
        self.again_us
    }

    /// A read begins, which looks again if it is time.
    pub(super) fn ask(&mut self, part: ReadSize, now_us: i64) -> Ask {
        if self.looked.is_none() && now_us >= self.again_us {
            self.messages.clear();
            (self.looked, self.runs, self.began_us) = (Some(RunId::default()), 0, now_us);
            self.try_specs = true;
        }
        // None but for the first read of a look.
        let specs = if std::mem::take(&mut self.try_specs) { self.specs.clone() } else { Vec::new() };
        Ask { part, except: self.messages.iter().copied().collect(), again: self.looked, specs }
    }

    /// Takes what a read has found. True where there is more to be looked at.
    pub(super) fn found(&mut self, news: &News, now_us: i64) -> bool {
        self.messages.extend(news.unreadable.iter().copied());
        let Some((rows, last)) = news.again else { return false };
        self.runs += rows;
        if rows >= READ_MAX as usize {
            self.looked = Some(last);
            return true;
        }
        self.looked = None;
        // Many of them take their time, and do not get more than a part of it.
        self.again_us = now_us + TRY_AGAIN_US.max((now_us - self.began_us) * 20);
        false
    }

    /// A message waits for a run that cannot be read.
    pub(super) fn waits(&mut self, message: Uuid) {
        self.messages.insert(message);
    }

    /// More has been passed over: it is to be counted and named, once its marks are durable.
    pub(super) fn look_soon(&mut self, now_us: i64) {
        self.again_us = self.again_us.min(now_us + SOON_US);
    }

    /// How many runs, and how many messages, as of the last look.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.runs, self.messages.len())
    }
}

#[cfg(test)]
mod tests;
