//! What is remembered of an alert, and what it does next.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    AGE_MAX_US, ASKED_MAX_US, BACKOFF_MAX_US, BACKOFF_MIN_US, CATCH_UP_US, LISTED_MAX, OVERLAP_US,
    RAISED_MAX, SEEN_MAX, SPARE_US, UNSURE_US,
};
use crate::trouble::{Kind, Severity, Subject, Trouble};

/// When an alert tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The alert's; a message that waits for its next attempt is tried at once when the alert was changed.
    pub generation: i64,
    /// When the alert was made or enabled: nothing is told of the time before.
    pub enabled_us: i64,
    /// How long what is new waits for others.
    pub group_wait_us: i64,
    /// How often is repeated what stays; 0: never.
    pub repeat_us: i64,
    /// Whether the end of a trouble is told.
    pub resolved: bool,
    /// How long one attempt may take.
    pub deadline_us: i64,
}

/// What there is now that concerns an alert.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Worst first.
    pub troubles: &'a [Trouble],
    /// Nothing is missing.
    pub is_sure: bool,
}

/// A trouble that an alert has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// The kind's word.
    pub kind: String,
    /// What is in trouble.
    pub subject: Subject,
    /// How bad, when it was seen last.
    pub severity: Severity,
    /// For the message that says that it is over.
    pub summary: String,
    /// When it was seen first.
    pub raised_us: i64,
    /// When the latest message that tells of it was made; none before the first.
    pub told_us: Option<i64>,
    /// The number of that message.
    pub told_in: u64,
    /// How bad that message says it is.
    pub told: Severity,
    /// Since when it is worse than that.
    pub worse_us: Option<i64>,
    /// How bad the latest message says it is that the receiver has taken; none before the first.
    pub known: Option<Severity>,
    /// Since when it is not seen any more.
    pub gone_us: Option<i64>,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The run's resource name.
    pub run: String,
    /// The schedule's id.
    pub schedule: String,
    /// When it was due.
    pub launch_us: i64,
    /// When it finished.
    pub finished_us: i64,
    /// How many events it had.
    pub events: u32,
    /// Of these, how many went well.
    pub succeeded: u32,
    /// How many failed, died or were lost.
    pub failed: u32,
    /// How many did not start in time.
    pub expired: u32,
}

/// A trouble in a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// The kind's word.
    pub kind: String,
    /// How bad.
    pub severity: Severity,
    /// What is in trouble.
    pub subject: Subject,
    /// One sentence.
    pub summary: String,
    /// What to do; empty where it is over.
    pub what_to_do: String,
    /// Since when, as far as is known.
    pub since_us: Option<i64>,
    /// It was told before.
    pub is_repeated: bool,
    /// It was told before as less bad.
    pub is_worse: bool,
}

/// What is told at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Grows by one with each message of the alert.
    pub number: u64,
    /// When it was made.
    pub made_us: i64,
    /// What is wrong, worst first, and how much more than is listed.
    pub raised: Vec<Item>,
    /// As many more.
    pub raised_more: u64,
    /// What is over.
    pub resolved: Vec<Item>,
    /// As many more.
    pub resolved_more: u64,
    /// Runs that finished.
    pub ended: Vec<Ended>,
    /// As many more.
    pub ended_more: u64,
}

/// A message that is to be delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Which one.
    pub message: Message,
    /// Attempts so far.
    pub attempts: u32,
    /// When the next one may be made.
    pub next_us: i64,
    /// The alert's generation at the latest attempt.
    pub generation: i64,
}

/// All that is remembered of an alert.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// The alert's generation at the latest look, and since when it was enabled then.
    pub of: Option<(i64, i64)>,
    /// What is wrong, and what is over and has not been told yet.
    pub raised: Vec<Raised>,
    /// Ends of runs that have not been told.
    pub ended: Vec<Ended>,
    /// How many more.
    pub ended_more: u64,
    /// When the first of them was seen.
    pub ended_us: Option<i64>,
    /// When the first look at runs was.
    pub begun_us: Option<i64>,
    /// What finished up to then has been read; none before the first look.
    pub read_us: Option<i64>,
    /// Runs that have been taken from what is read again.
    pub seen: Vec<(String, i64)>,
    /// The last run in the order of their ends of those that are not among them any more because there were too many:
    /// neither it nor any before it is taken.
    pub floor: Option<(i64, String)>,
    /// What is under way.
    pub pending: Option<Pending>,
    /// Messages made so far.
    pub made: u64,
    /// Messages that were taken.
    pub sent: u64,
    /// Messages that nobody took in time.
    pub dropped: u64,
    /// When the latest was taken.
    pub sent_us: Option<i64>,
    /// What went wrong at the latest attempt that failed.
    pub error: String,
    /// When.
    pub error_us: Option<i64>,
}

type Identity<'a> = (&'a str, &'a Subject);

impl State {
    /// Takes in what has become of the alert since the latest look: what it is not to tell of any more is forgotten, and so is
    /// what was to be told before it was disabled. `all` are the troubles that there are, wanted or not.
    pub fn renew(&mut self, rules: &Rules, all: &[Trouble], wanted: &[Trouble]) {
        let Some((generation, enabled_us)) = self.of.replace((rules.generation, rules.enabled_us)) else {
            return;
        };
        if enabled_us != rules.enabled_us {
            self.forget_runs();
            self.ended.clear();
            (self.ended_more, self.ended_us) = (0, None);
            self.take_back();
        }
        if generation != rules.generation {
            let of = |troubles: &'_ [Trouble]| -> BTreeSet<(&'static str, Subject)> {
                troubles.iter().map(|trouble| (trouble.kind.word(), trouble.subject.clone())).collect()
            };
            let unwanted = &of(all) - &of(wanted);
            self.raised.retain(|raised| {
                !unwanted.iter().any(|(kind, subject)| (*kind, subject) == raised.identity())
            });
        }
    }

    /// Whether the latest attempt failed.
    pub fn is_failing(&self) -> bool {
        self.error_us.is_some_and(|error_us| self.sent_us.is_none_or(|sent_us| sent_us < error_us))
    }

    /// Takes in what there is now, and answers with the message that is to be sent now, after the state has been stored.
    pub fn step(&mut self, rules: &Rules, look: Look<'_>, now_us: i64) -> Option<Message> {
        self.look(look, now_us);
        if self.pending.as_ref().is_some_and(|pending| now_us - pending.message.made_us >= AGE_MAX_US) {
            self.drop_pending(now_us);
        }
        if self.pending.is_none() {
            self.pending = self.compose(rules, look, now_us);
        }
        let pending = self.pending.as_mut()?;
        if now_us < pending.next_us && pending.generation == rules.generation {
            return None;
        }
        pending.attempts += 1;
        pending.generation = rules.generation;
        // Whoever stores this has the attempt; nobody else makes one before it is over.
        pending.next_us = now_us + (rules.deadline_us + SPARE_US).max(backoff_us(pending.attempts));
        Some(pending.message.clone())
    }

    /// The receiver has taken a message.
    pub fn taken(&mut self, number: u64, now_us: i64) {
        if self.pending.as_ref().is_none_or(|pending| pending.message.number != number) {
            return;
        }
        self.pending = None;
        self.sent += 1;
        self.sent_us = Some(now_us);
        for raised in self.raised.iter_mut().filter(|raised| raised.told_in == number) {
            raised.known = Some(raised.told);
        }
    }

    /// The receiver has not taken a message, and may have asked for a pause.
    pub fn failed(&mut self, number: u64, words: String, asked_us: Option<i64>, now_us: i64) {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.message.number == number) else {
            return;
        };
        let asked_us = asked_us.unwrap_or(0).clamp(0, ASKED_MAX_US);
        pending.next_us = now_us + backoff_us(pending.attempts).max(asked_us);
        self.error = words;
        self.error_us = Some(now_us);
    }

    /// From when on ends of runs are to be read again; none before the first look, at which there is nothing to be read.
    pub fn runs_from_us(&self, now_us: i64) -> Option<i64> {
        let begun_us = self.begun_us.filter(|_| self.read_us.is_some())?;
        let from_us = self.read_us.map_or(now_us, |read_us| read_us - OVERLAP_US);
        let floor_us = self.floor.as_ref().map_or(begun_us, |(floor_us, _)| *floor_us);
        Some(from_us.max(begun_us).max(floor_us).max(now_us - CATCH_UP_US))
    }

    /// Takes in runs that finished, of which some may have been taken in before; all that finished before `until_us` are
    /// among them, or were taken in before.
    pub fn finished(&mut self, runs: impl IntoIterator<Item = Ended>, until_us: i64, now_us: i64) {
        let begun_us = *self.begun_us.get_or_insert(until_us);
        let mut seen: BTreeSet<(String, i64)> = self.seen.iter().cloned().collect();
        let read_us = self.read_us.map_or(until_us, |read_us| read_us.max(until_us));
        let mut is_new = self.read_us.is_none_or(|before_us| read_us - before_us >= OVERLAP_US);
        for run in runs {
            let key = (run.run.clone(), run.finished_us);
            let is_below = self
                .floor
                .as_ref()
                .is_some_and(|(at_us, floor)| (run.finished_us, &run.run) <= (*at_us, floor));
            if run.finished_us < begun_us || is_below || !seen.insert(key.clone()) {
                continue;
            }
            is_new = true;
            self.seen.push(key);
            self.ended_us.get_or_insert(now_us);
            if self.ended.len() < LISTED_MAX {
                self.ended.push(run);
            } else {
                self.ended_more += 1;
            }
        }
        // Where nothing is new the place moves now and then only: each move is a write.
        if is_new {
            self.read_us = Some(read_us);
            self.bound_seen(read_us - OVERLAP_US);
        }
    }

    /// Forgets runs that are not read again; where there are too many, the earliest, which then are not read again either.
    fn bound_seen(&mut self, from_us: i64) {
        self.seen.retain(|(_, finished_us)| *finished_us >= from_us);
        let beyond = self.seen.len().saturating_sub(SEEN_MAX);
        if beyond > 0 {
            self.seen.sort_by(|(a, a_us), (b, b_us)| (a_us, a).cmp(&(b_us, b)));
            let last = self.seen.drain(..beyond).next_back();
            self.floor = last.map(|(run, finished_us)| (finished_us, run));
        }
    }

    /// Nobody asks for ends of runs any more.
    pub fn forget_runs(&mut self) {
        (self.begun_us, self.read_us, self.floor) = (None, None, None);
        self.seen.clear();
    }

    fn look(&mut self, look: Look<'_>, now_us: i64) {
        let mut present: BTreeMap<Identity<'_>, &Trouble> = BTreeMap::new();
        for trouble in look.troubles {
            present.entry((trouble.kind.word(), &trouble.subject)).or_insert(trouble);
        }
        self.raised.retain_mut(|raised| {
            if let Some(trouble) = present.get(&(raised.kind.as_str(), &raised.subject)) {
                raised.seen(trouble, now_us);
                return true;
            }
            let gone_us = *raised.gone_us.get_or_insert(now_us);
            // What nobody was told of goes without a word.
            let untold = raised.told_us.is_none();
            !(untold && (look.is_sure || now_us - gone_us >= UNSURE_US))
        });
        let mut known: BTreeSet<Identity<'_>> = self.raised.iter().map(Raised::identity).collect();
        let mut new = Vec::new();
        // In their order, so that the worst have room first.
        for trouble in look.troubles {
            let room = if trouble.severity == Severity::Critical { 2 * RAISED_MAX } else { RAISED_MAX };
            if known.len() < room && known.insert((trouble.kind.word(), &trouble.subject)) {
                new.push(Raised::new(trouble, now_us));
            }
        }
        self.raised.extend(new);
    }

    fn compose(&mut self, rules: &Rules, look: Look<'_>, now_us: i64) -> Option<Pending> {
        let gone_after_us = if look.is_sure { rules.group_wait_us } else { UNSURE_US };
        let is_over =
            |raised: &Raised| raised.gone_us.is_some_and(|gone_us| now_us - gone_us >= gone_after_us);
        // What the receiver was never told of goes without a word; so does all, where ends are not told.
        self.raised.retain(|raised| !is_over(raised) || (raised.known.is_some() && rules.resolved));
        let is_new = |raised: &Raised| raised.new_us().is_some();
        let is_due = |raised: &Raised| {
            let since_us = raised.told_us.filter(|_| raised.gone_us.is_none());
            rules.repeat_us > 0 && since_us.is_some_and(|told_us| now_us - told_us >= rules.repeat_us)
        };
        let waits_since = self.raised.iter().filter_map(Raised::new_us);
        let group_is_ready =
            waits_since.chain(self.ended_us).min().is_some_and(|us| now_us - us >= rules.group_wait_us);
        let is_told = |raised: &Raised| (group_is_ready && is_new(raised)) || is_due(raised);
        if !group_is_ready && !self.raised.iter().any(|raised| is_over(raised) || is_due(raised)) {
            return None;
        }
        let mut message = Message { number: self.made + 1, made_us: now_us, ..Message::default() };
        let (over, others): (Vec<_>, Vec<_>) = self.raised.drain(..).partition(is_over);
        message.resolved = over.iter().take(LISTED_MAX).map(Item::over).collect();
        message.resolved_more = over.len().saturating_sub(LISTED_MAX) as u64;
        self.raised = others;
        let known: BTreeSet<Identity<'_>> =
            self.raised.iter().filter(|raised| is_told(raised)).map(Raised::identity).collect();
        let tracked: BTreeSet<Identity<'_>> = self.raised.iter().map(Raised::identity).collect();
        let of = |trouble: &&Trouble, set: &BTreeSet<Identity<'_>>| {
            set.contains(&(trouble.kind.word(), &trouble.subject))
        };
        let told = look.troubles.iter().filter(|trouble| of(trouble, &known));
        let of_those = |is: fn(&Raised) -> bool| -> BTreeSet<Identity<'_>> {
            self.raised.iter().filter(|raised| is(raised)).map(Raised::identity).collect()
        };
        let repeated = of_those(|raised| raised.told_us.is_some());
        let worse = of_those(|raised| raised.worse_us.is_some());
        let item = |trouble: &Trouble| Item::of(trouble, of(&trouble, &repeated), of(&trouble, &worse));
        message.raised = told.take(LISTED_MAX).map(item).collect();
        let beyond = look.troubles.iter().filter(|trouble| !of(trouble, &tracked)).count();
        let more =
            known.len().saturating_sub(message.raised.len()) + if known.is_empty() { 0 } else { beyond };
        message.raised_more = more as u64;
        if group_is_ready {
            message.ended = std::mem::take(&mut self.ended);
            message.ended_more = std::mem::take(&mut self.ended_more);
            self.ended_us = None;
        }
        for raised in self.raised.iter_mut().filter(|raised| is_told(raised)) {
            (raised.told_us, raised.told_in) = (Some(now_us), message.number);
            (raised.told, raised.worse_us) = (raised.severity, None);
        }
        self.made = message.number;
        Some(Pending { message, attempts: 0, next_us: now_us, generation: rules.generation })
    }

    /// Nobody took it in time.
    fn drop_pending(&mut self, now_us: i64) {
        let told_in = self.take_back();
        self.dropped += u64::from(told_in.is_some());
        // It waits for others anew.
        for raised in self.raised.iter_mut().filter(|raised| Some(raised.told_in) == told_in) {
            if raised.told_us.is_none() {
                raised.raised_us = now_us;
            } else if raised.severity < raised.told {
                raised.worse_us = Some(now_us);
            }
        }
    }

    /// The message that is under way is not sent any more: what it would have told first is new again.
    fn take_back(&mut self) -> Option<u64> {
        let number = self.pending.take()?.message.number;
        for raised in self.raised.iter_mut().filter(|raised| raised.told_in == number) {
            match raised.known {
                None => raised.told_us = None,
                Some(known) => raised.told = known,
            }
        }
        Some(number)
    }
}

impl Raised {
    fn new(trouble: &Trouble, now_us: i64) -> Self {
        Self {
            kind: trouble.kind.word().to_owned(),
            subject: trouble.subject.clone(),
            severity: trouble.severity,
            summary: trouble.summary(),
            raised_us: now_us,
            told_us: None,
            told_in: 0,
            told: trouble.severity,
            worse_us: None,
            known: None,
            gone_us: None,
        }
    }

    /// It is there.
    fn seen(&mut self, trouble: &Trouble, now_us: i64) {
        self.gone_us = None;
        self.severity = trouble.severity;
        // The worse, the less.
        let is_worse = self.told_us.is_some() && self.severity < self.told;
        self.worse_us = is_worse.then(|| self.worse_us.unwrap_or(now_us));
    }

    /// Since when it is to be told as new; none where it is not.
    fn new_us(&self) -> Option<i64> {
        let since_us = if self.told_us.is_some() { self.worse_us } else { Some(self.raised_us) };
        since_us.filter(|_| self.gone_us.is_none())
    }

    fn identity(&self) -> Identity<'_> {
        (&self.kind, &self.subject)
    }
}

impl Item {
    fn of(trouble: &Trouble, is_repeated: bool, is_worse: bool) -> Self {
        Self {
            kind: trouble.kind.word().to_owned(),
            severity: trouble.severity,
            subject: trouble.subject.clone(),
            summary: trouble.summary(),
            what_to_do: trouble.what_to_do(),
            since_us: trouble.since_us,
            is_repeated,
            is_worse,
        }
    }

    fn over(raised: &Raised) -> Self {
        Self {
            kind: raised.kind.clone(),
            severity: raised.severity,
            subject: raised.subject.clone(),
            summary: raised.summary.clone(),
            what_to_do: String::new(),
            since_us: Some(raised.raised_us),
            is_repeated: false,
            is_worse: false,
        }
    }
}

impl Look<'_> {
    /// Whether a list of troubles shows all there are: none of them says that something is not seen.
    pub fn is_whole(troubles: &[Trouble]) -> bool {
        use Kind::{HandlerSilent, ShardsNotLoaded, ShardsWithoutOwner, StoreFails};
        let blind = [StoreFails, ShardsWithoutOwner, HandlerSilent, ShardsNotLoaded];
        !troubles.iter().any(|trouble| blind.contains(&trouble.kind))
    }
}

/// The pause after so many attempts.
fn backoff_us(attempts: u32) -> i64 {
    BACKOFF_MIN_US.saturating_mul(1_i64 << attempts.saturating_sub(1).min(30)).min(BACKOFF_MAX_US)
}
