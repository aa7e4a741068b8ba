//! The ends of runs that another run follows.
//!
//! In: a run that has ended. Out: a message to its own shard, written by the commit that says so, and once that is durable the
//! wish to have the next run launched. Invariants: what did not become durable has no next run; the message stays until the next
//! run has been made, or is known not to be made, whoever owns the shard by then. One that lives in the same shard is made by the
//! commit that is done with the message. Not here: which run follows
//! ([`crate::model::RunEnd`]), and what becomes of it ([`crate::emit::follow`]).

use uuid::Uuid;

use super::change::ShardSchedule;
use super::control::{Control, Message};
use super::exchange::{Effect, Following, TakenUp};
use super::shard::Shard;
use crate::model::{ChainRoot, Now, Run, RunEnd, RunId, RunSpec};

impl Shard {
    /// A run has ended, which is pending.
    pub(super) fn run_ended(&mut self, run: &Run, spec: Option<&RunSpec>) {
        let Some(end) = RunEnd::of(run, spec) else { return };
        if let Some(root) = end.of.root.filter(|root| root.run == run.id) {
            self.chain_goes_on(root);
        }
        let message = Message::run_ended(end);
        self.pending.changes.inbox_new.push(message.clone());
        if let Control::RunEnded { end } = message.control {
            self.wish_next(message.id, end);
        }
    }

    /// The next run of its schedule waits for the end of the chain, or is skipped for it.
    fn chain_goes_on(&mut self, root: ChainRoot) {
        let uid = root.schedule_uid;
        let row =
            self.schedules.entry(uid).or_default().row.get_or_insert_with(|| ShardSchedule::unknown(uid));
        if !row.chains.contains(&root.run) {
            row.chains.push(root.run);
            self.pending.schedules.insert(uid);
        }
    }

    /// The chain that began with a run is at its end.
    pub(super) fn chain_ended(&mut self, uid: Uuid, run: RunId, now: Now) {
        let Some(row) = self.schedules.get_mut(&uid).and_then(|schedule| schedule.row.as_mut()) else {
            return;
        };
        let before = row.chains.len();
        row.chains.retain(|other| *other != run);
        if row.chains.len() < before {
            let row = row.clone();
            self.pending.schedules.insert(uid);
            self.forget_later(&row);
            self.launch_buffered(uid, now);
        }
    }

    /// Has the next run launched, once what is pending is durable.
    pub(super) fn wish_next(&mut self, message: Uuid, end: RunEnd) {
        self.messages.insert_for_later(message, ());
        self.ends.insert(message);
        self.pending.effects.push(Effect::Follow { message, end });
        self.pending.urgent = true;
    }

    /// The messages of ends that are being followed: they stay in the inbox for now, and no read need bring them.
    pub fn ends_waiting(&self) -> impl Iterator<Item = Uuid> {
        self.ends.iter().copied()
    }

    /// The run that follows by this message lives in this shard: the same commit makes it and is done with the message.
    /// `looked_at`: how many commits were durable ([`Self::commits`]) when somebody began to look that it had not been launched.
    pub fn follows(&mut self, message: Uuid, following: Following, looked_at: u64, now: Now) -> TakenUp {
        if !self.ends.contains(&message) {
            return TakenUp::Known;
        }
        // A run may come to an end twice, and be followed once. What a later commit than the next one says may be that the run
        // which follows has ended, and memory forgets it then.
        if self.commits() > looked_at + 1 {
            return TakenUp::Outdated;
        }
        let is_new = !self.has_been(following.run.id) && !self.followed.contains(&following.run.id);
        if is_new {
            self.specs.keep(vec![following.spec]);
            self.pending.made.insert(following.run.id, following.run.clone());
            self.adopt_run(following.run, now);
        }
        self.followed(message);
        self.pending.urgent = true;
        if is_new { TakenUp::Made } else { TakenUp::Known }
    }

    /// The run that follows by this message has been made, or is not to be.
    pub fn followed(&mut self, message: Uuid) {
        self.ends.remove(&message);
        self.messages.insert(message, self.pending_commit(), ());
        self.pending.changes.inbox_done.push(message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::live_run;
    use super::*;
    use crate::model::{Counts, FinishCondition, OnFinish, OverlapRule, Predecessor, RunKind, RunState};

    fn ended(state: RunState, counts: Counts) -> Run {
        Run { state, counts, events: 3, ..Run::default() }
    }

    #[test]
    fn the_run_that_follows_is_one_and_knows_the_run_before() {
        let when = FinishCondition::default();
        let on_finish = Some(OnFinish { schedule: "report".into(), when, events: None, items: None });
        let spec = RunSpec { on_finish, ..(*live_run(Uuid::from_u128(1), 5_000_000).spec).clone() };
        let run = Run {
            shard: 7,
            id: RunId::derive(Uuid::from_u128(1), 5_000_000),
            schedule_id: "load".to_owned(),
            finished_us: Some(9_000_000),
            cursor_out: Some("42".to_owned()),
            ..ended(RunState::Finished, Counts { succeeded: 3, ..Counts::default() })
        };
        let Some(end) = RunEnd::of(&run, Some(&spec)) else { panic!("it follows") };
        assert_eq!((end.of.place, end.ended_us, end.cursor.as_deref()), (1, 9_000_000, Some("42")));
        let (a, b) = (Uuid::from_u128(2), Uuid::from_u128(3));
        assert_eq!(end.next_run(a), end.next_run(a));
        assert_ne!(end.next_run(a), end.next_run(b));
        // Its events may be tried again, and the run end again.
        let later = RunEnd::of(&Run { finished_us: Some(10_000_000), ..run.clone() }, Some(&spec));
        assert_eq!(later.map(|later| later.next_run(a)), Some(end.next_run(a)));
        let seventh = Predecessor { place: Predecessor::PLACES_MAX - 1, ..end.of };
        let eighth = Run { predecessor: Some(Box::new(seventh)), ..run.clone() };
        assert_eq!((eighth.place(), RunEnd::of(&eighth, Some(&spec))), (Predecessor::PLACES_MAX, None));
        let failed = Counts { succeeded: 2, failed: 1, ..Counts::default() };
        assert_eq!(RunEnd::of(&Run { counts: failed, ..run.clone() }, Some(&spec)), None);
    }

    #[test]
    fn the_end_of_a_chain_is_told_to_whom_waits_for_it() {
        let on_finish = |next: &str| {
            Some(OnFinish { schedule: next.into(), when: FinishCondition::Always, events: None, items: None })
        };
        let uid = Uuid::from_u128(1);
        let plain = (*live_run(uid, 5_000_000).spec).clone();
        let spec = RunSpec { overlap: OverlapRule::Skip, on_finish: on_finish("report"), ..plain.clone() };
        let first = Run {
            id: RunId::derive(uid, 5),
            schedule_uid: uid,
            ..ended(RunState::Finished, Counts::default())
        };
        let root = RunEnd::of(&first, Some(&spec)).and_then(|end| end.of.root);
        assert_eq!(root.map(|root| (root.schedule_uid, root.run)), Some((uid, first.id)));
        let by_hand = Run { kind: RunKind::Manual, ..first.clone() };
        assert_eq!(RunEnd::of(&by_hand, Some(&spec)).and_then(|end| end.of.root), None);
        let Some(end) = RunEnd::of(&first, Some(&spec)) else { panic!("it follows") };
        let last = Run { kind: RunKind::Followed, predecessor: Some(Box::new(end.of)), ..first };
        let last = RunEnd::of(&last, Some(&plain));
        assert_eq!(last.map(|end| (end.next, end.of.root)), Some((None, root)), "also where nothing follows");
    }
}
