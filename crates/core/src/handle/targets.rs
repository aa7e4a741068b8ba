//! How fast events go to each target, for people: what each said in the last minute, and what went wrong last.
//!
//! In: runs that launch and that leave; what became of deliveries, added up by commit. Out: by namespace and target, what
//! waits, counts per second, the latest failure. Invariants: a target is known while launched runs of it are here, and for a
//! minute after its last answer; what one namespace has at a target is never counted with another's; a namespace takes at most
//! four fifths of what all others leave of [`TARGETS_MAX`], and what it has beyond that is counted together; answers for the run
//! that answered last look nothing up; nothing here decides what starts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::live::LiveRun;
use super::pace::{Answers, LastError, RATE_WINDOW_S, Recent, per_s, second_of};
use super::places::{LEFT_TO_OTHERS, Sharer};
use super::steps::Counted as _;
use super::waiting::AtTarget;
use crate::model::{Now, RunId};

/// How many targets a shard tells apart.
const TARGETS_MAX: u32 = 1_000;

/// A target within a namespace, or what a namespace has beyond its share of them.
pub(super) type TargetId = u128;

/// How the target of a run is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// By itself.
    ByItself,
    /// With others of its namespace, as there is no room for more.
    WithOthers,
}

impl Told {
    pub(super) fn id(self, sharer: &Sharer) -> TargetId {
        match self {
            Self::ByItself => sharer.target(),
            Self::WithOthers => sharer.namespace(),
        }
    }
}

/// A target at a glance.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetGauge {
    /// The namespace whose events go there.
    pub namespace: String,
    /// Scheme, host and port, the queue's URL, or Kafka's brokers; none: the targets of the namespace that are not told apart.
    pub target: Option<String>,
    /// Events in flight: under way, or at a consumer.
    pub held: u64,
    /// Events that are due and wait for a token or for another attempt.
    pub waiting: u64,
    /// For how long the oldest has waited, in microseconds.
    pub oldest_wait_us: i64,
    /// Of those, events that wait for another attempt.
    pub retrying: u64,
    /// Events started per second, over the last minute: those that it took, or may have taken.
    pub started_per_s: f64,
    /// Deliveries per second that it took.
    pub accepted_per_s: f64,
    /// Deliveries per second that it did not take, or that did not leave.
    pub refused_per_s: f64,
    /// Deliveries per second of which nobody knows.
    pub unclear_per_s: f64,
    /// The latest delivery that failed, as far as this owner has heard it.
    pub last_error: Option<Arc<LastError>>,
}

#[derive(Debug)]
struct LiveTarget {
    namespace: String,
    /// See [`TargetGauge::target`].
    address: Option<String>,
    /// The whole namespace's id.
    within: TargetId,
    /// Launched runs.
    runs: u32,
    recent: Recent,
    last_error: Option<Arc<LastError>>,
    /// Its place among those that may go.
    idle_second: Option<i64>,
}

/// What has not been added to its target yet. It is of one target at a time, so that counting an event looks nothing up.
#[derive(Debug, Default)]
struct TargetTally {
    /// The run that answered last.
    run: Option<RunId>,
    target: TargetId,
    answers: Answers,
    error: Option<Arc<LastError>>,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Targets {
    by_id: BTreeMap<TargetId, LiveTarget>,
    /// How many targets of each namespace are told by themselves, and how many of all.
    own: BTreeMap<TargetId, u32>,
    all: u32,
    /// Those that may have no runs any more, by the second of an answer that they had.
    idle: BTreeSet<(i64, TargetId)>,
    tally: TargetTally,
}

impl Targets {
    /// What one costs, without its texts and answers.
    #[cfg(test)]
    pub(super) const ENTRY_BYTES: usize = size_of::<(TargetId, LiveTarget)>();

    /// A run has launched.
    pub(super) fn enter(&mut self, run: &mut LiveRun) {
        if run.told.is_some() {
            return;
        }
        let (namespace, target) = (run.sharer.namespace(), run.sharer.target());
        let is_known = self.by_id.contains_key(&target);
        let told = if is_known || self.has_room(namespace) { Told::ByItself } else { Told::WithOthers };
        let id = told.id(&run.sharer);
        let entry = self.by_id.entry(id).or_insert_with(|| {
            let address = (told == Told::ByItself).then(|| run.spec.target.address().to_owned());
            if address.is_some() {
                *self.own.entry(namespace).or_default() += 1;
                self.all += 1;
            }
            LiveTarget {
                namespace: run.row.namespace.clone(),
                address,
                within: namespace,
                runs: 0,
                recent: Recent::default(),
                last_error: None,
                idle_second: None,
            }
        });
        entry.runs += 1;
        run.told = Some(told);
    }

    /// Whether one more target of a namespace is told by itself.
    fn has_room(&self, namespace: TargetId) -> bool {
        let own = self.own.get(&namespace).copied().unwrap_or_default();
        let free = TARGETS_MAX - (self.all - own);
        own < free - free / LEFT_TO_OTHERS
    }

    /// A run is gone.
    pub(super) fn leave(&mut self, run: &LiveRun) {
        if self.tally.run == Some(run.row.id) {
            self.tally.run = None;
        }
        let Some(id) = run.target() else { return };
        let Some(target) = self.by_id.get_mut(&id) else { return };
        target.runs -= 1;
        if target.runs == 0 && target.idle_second.is_none() {
            let second = target.recent.last_second().unwrap_or(i64::MIN);
            target.idle_second = Some(second);
            self.idle.insert((second, id));
        }
    }

    /// Whether answers are counted for the target of this run now.
    pub(super) fn is_told_of(&self, run: RunId) -> bool {
        self.tally.run == Some(run)
    }

    /// The next answers are of this run, which goes there.
    pub(super) fn turn_to(&mut self, run: RunId, target: TargetId, now: Now) {
        if self.tally.target != target {
            self.add_tally(now);
            self.tally.target = target;
        }
        self.tally.run = Some(run);
    }

    /// Of the target that was turned to.
    pub(super) fn answers(&mut self) -> &mut Answers {
        &mut self.tally.answers
    }

    /// A delivery of the run whose answer has just been counted went wrong.
    pub(super) fn has_failed(&mut self, run: RunId, error: &Arc<LastError>) {
        if self.is_told_of(run) {
            self.tally.error = Some(error.clone());
        }
    }

    /// Adds what has been counted, and forgets targets that have neither runs nor answers of the last minute.
    pub(super) fn advance(&mut self, now: Now) {
        self.add_tally(now);
        let since = second_of(now) - RATE_WINDOW_S;
        while let Some((second, id)) = self.idle.first().copied().filter(|(second, _)| *second <= since) {
            super::steps::step();
            self.idle.remove(&(second, id));
            let Some(target) = self.by_id.get_mut(&id) else { continue };
            target.idle_second = None;
            if target.runs > 0 {
                continue;
            }
            match target.recent.last_second().filter(|last| *last > since) {
                Some(last) => {
                    target.idle_second = Some(last);
                    self.idle.insert((last, id));
                }
                None => self.forget(id),
            }
        }
    }

    fn add_tally(&mut self, now: Now) {
        let (answers, error) = (std::mem::take(&mut self.tally.answers), self.tally.error.take());
        if answers == Answers::default() {
            return;
        }
        if let Some(target) = self.by_id.get_mut(&self.tally.target) {
            target.recent.take(answers, now);
            target.last_error = error.or(target.last_error.take());
        }
    }

    fn forget(&mut self, id: TargetId) {
        let Some(target) = self.by_id.remove(&id).filter(|target| target.address.is_some()) else { return };
        self.all -= 1;
        if let Some(own) = self.own.get_mut(&target.within) {
            *own -= 1;
            if *own == 0 {
                self.own.remove(&target.within);
            }
        }
    }

    /// Each target, with what waits for it. Where only the busy ones are asked for, the others are left out.
    pub(super) fn gauges(
        &self,
        waiting: &BTreeMap<TargetId, AtTarget>,
        busy_only: bool,
        now: Now,
    ) -> Vec<TargetGauge> {
        let gauge = |(id, target): (&TargetId, &LiveTarget)| {
            let minute = target.recent.sum(now);
            let at_target = waiting.get(id).copied().unwrap_or_default();
            let AtTarget { held, waiting } = at_target;
            let is_idle = held + waiting.events == 0 && minute.tried() == 0;
            if is_idle && (busy_only || target.runs == 0) {
                return None;
            }
            Some(TargetGauge {
                namespace: target.namespace.clone(),
                target: target.address.clone(),
                held,
                waiting: waiting.events,
                oldest_wait_us: waiting.since_us.map_or(0, |since| (now.wall_us - since).max(0)),
                retrying: waiting.retrying,
                started_per_s: per_s(minute.started),
                accepted_per_s: per_s(minute.accepted),
                refused_per_s: per_s(minute.refused),
                unclear_per_s: per_s(minute.unclear),
                last_error: target.last_error.clone(),
            })
        };
        self.by_id.iter().counted().filter_map(gauge).collect()
    }

    /// Counts everything anew, and compares.
    #[cfg(debug_assertions)]
    pub(super) fn recount<'a>(&self, runs: impl Iterator<Item = &'a LiveRun>) {
        let mut counts: BTreeMap<TargetId, u32> = BTreeMap::new();
        for run in runs {
            assert_eq!(run.told.is_some(), run.launched, "{run:?}");
            run.target().into_iter().for_each(|id| *counts.entry(id).or_default() += 1);
        }
        let mut own: BTreeMap<TargetId, u32> = BTreeMap::new();
        for (id, target) in &self.by_id {
            assert_eq!(target.runs, counts.remove(id).unwrap_or_default(), "{target:?}");
            assert!(target.runs > 0 || target.idle_second.is_some(), "nobody forgets {target:?}");
            let is_in = target.idle_second.is_none_or(|second| self.idle.contains(&(second, *id)));
            assert!(is_in, "{target:?}");
            if target.address.is_some() {
                *own.entry(target.within).or_default() += 1;
            }
        }
        assert!(counts.is_empty(), "without a target: {counts:?}");
        assert_eq!((self.all, &self.own), (own.values().sum(), &own));
        assert!(self.all <= TARGETS_MAX && self.idle.len() <= self.by_id.len());
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use uuid::Uuid;

    use super::*;
    use crate::handle::steps::steps;
    use crate::handle::testing::live_run;
    use crate::model::{HttpTarget, ReleaseMode, RunSpec, SECOND_US, Sent, Target};

    fn run_to(number: u128, url: &str) -> LiveRun {
        let run = live_run(Uuid::from_u128(number), 0);
        let http = HttpTarget::plain(url.to_owned(), 1_000);
        let target = Target::Http { http, release: ReleaseMode::default() };
        let spec = RunSpec { target, ..(*run.spec).clone() };
        LiveRun::new(run.row, spec.into())
    }

    fn at_s(seconds: i64) -> Now {
        Now { wall_us: 0, mono_us: seconds * SECOND_US }
    }

    fn accepted(targets: &mut Targets, run: &LiveRun, now: Now) {
        if !targets.is_told_of(run.row.id) {
            targets.turn_to(run.row.id, run.target().unwrap(), now);
        }
        targets.answers().count(&Sent::Accepted, false);
    }

    /// A target that goes is forgotten without a look at those that stay.
    #[test]
    fn what_is_done_for_one_target_walks_no_others() {
        let taken = [10, 700].map(|neighbours| {
            let mut targets = Targets::default();
            for number in 1..=neighbours {
                targets.enter(&mut run_to(number, &format!("http://{number}/")));
            }
            let before = steps();
            let mut run = run_to(9_999, "http://own/");
            targets.enter(&mut run);
            accepted(&mut targets, &run, at_s(100));
            targets.leave(&run);
            for second in [100, 130, 159, 160, 161, 300] {
                targets.advance(at_s(second));
            }
            assert_eq!((targets.by_id.len() as u128, targets.idle.len()), (neighbours, 0));
            steps() - before
        });
        assert_eq!(taken[0], taken[1]);
        assert_eq!(taken[0], 2, "looked at once it went, and once its minute was over");
    }

    /// Runs that come and go within a minute leave one mark of their target.
    #[test]
    fn a_target_that_comes_and_goes_is_marked_once() {
        let mut targets = Targets::default();
        for (second, number) in (0..50).zip(1_u128..) {
            let mut run = run_to(number, "http://own/");
            targets.enter(&mut run);
            accepted(&mut targets, &run, at_s(second));
            targets.leave(&run);
            targets.advance(at_s(second));
            targets.recount(std::iter::empty());
            assert_eq!((targets.by_id.len(), targets.idle.len()), (1, 1));
        }
        let gauge = targets.gauges(&BTreeMap::new(), false, at_s(49)).pop().unwrap();
        assert_eq!((gauge.accepted_per_s * 60.0).round(), 50.0);
        targets.advance(at_s(108));
        assert_eq!(targets.by_id.len(), 1);
        targets.advance(at_s(109));
        assert_eq!((targets.by_id.len(), targets.all, targets.own.len()), (0, 0, 0));
    }

    /// What is counted for a run that has gone, and come again, goes to where it goes now.
    #[test]
    fn a_run_that_comes_again_is_asked_anew() {
        let mut targets = Targets::default();
        let mut first = run_to(1, "http://first/");
        targets.enter(&mut first);
        accepted(&mut targets, &first, at_s(1));
        targets.leave(&first);
        let mut again = run_to(1, "http://second/");
        assert_eq!(again.row.id, first.row.id);
        targets.enter(&mut again);
        accepted(&mut targets, &again, at_s(1));
        targets.advance(at_s(1));
        let counts = |id: TargetId| targets.by_id[&id].recent.sum(at_s(1)).accepted;
        assert_eq!((counts(first.target().unwrap()), counts(again.target().unwrap())), (1, 1));
    }
}
