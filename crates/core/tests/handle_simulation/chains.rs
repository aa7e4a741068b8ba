//! Chains of runs: what launches the run that follows an end, in the process of the owner that wishes it, and what must hold of
//! chains in the end.

use tollgate_core::emit::{Judge, Next, follow};
use tollgate_core::handle::change::Changes;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::{Following, Shard, TakenUp};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::check::has_ended;
use crate::handle_world::Store;
use crate::master::Stored;
use crate::owner::Owner;
use crate::totals::Seen;
use crate::world::{At, Event, SHARDS, World};

impl World {
    /// What follows a schedule: any other one, or none.
    pub(crate) fn some_next(&mut self, own: &str) -> Option<OnFinish> {
        let ids: Vec<String> =
            self.master.schedules.values().map(|stored| stored.schedule.id.clone()).collect();
        let schedule = self.random.pick(&ids).filter(|id| *id != own)?.clone();
        let conditions = [
            FinishCondition::AllSucceeded,
            FinishCondition::AnyFailed,
            FinishCondition::Always,
            FinishCondition::Always,
        ];
        let when = *self.random.pick(&conditions)?;
        let events = self.random.percent(30).then(|| self.random.within(1, 4) as u32);
        self.random.percent(30).then_some(OnFinish { schedule, when, events, items: None })
    }

    fn named(&self, id: &str) -> Option<&Stored> {
        self.master.schedules.values().find(|stored| stored.schedule.id == id)
    }

    /// A commit is durable that says so.
    pub(crate) fn wish_next(&mut self, at: At, message: Uuid, end: RunEnd) {
        let run = &self.stores[usize::from(at.shard)].runs[&end.of.run];
        let is_so = has_ended(run)
            && (run.state, run.counts, run.finished_us) == (end.of.state, end.of.counts, Some(end.ended_us));
        assert!(is_so || self.model.came_back.contains(&run.id), "{run:?} has not ended like {end:?}");
        if let Some((commits, following)) = self.ahead.remove(&(at.life, message)) {
            let wait_us = if self.chaos { self.wait_us(&[0, 0, 1_000, 100_000]) } else { 0 };
            self.after(wait_us, Event::Ahead(at, message, commits, Box::new((following, end))));
            return;
        }
        let wait_us = if self.chaos { self.wait_us(&[0, 0, 1_000, 100_000, 4 * SECOND_US]) } else { 0 };
        self.after(wait_us, Event::Follow(at, message, Some(Box::new(end))));
    }

    /// A commit begins: what follows the ends that it says may be looked up meanwhile.
    pub(crate) fn look_ahead_of(&mut self, at: At, changes: &Changes) {
        let commits = self.living(at).and_then(|owner| owner.machine()).map(Shard::commits);
        let Some(commits) = commits else { return };
        for message in &changes.inbox_new {
            if let Control::RunEnded { end } = &message.control
                && self.random.percent(70)
            {
                let wait_us = self.wait_us(&[0, 0, 1_000, 50_000]);
                let end = Box::new(end.clone());
                self.after(wait_us, Event::LookAhead(at, message.id, commits, end));
            }
        }
    }

    pub(crate) fn look_ahead(&mut self, at: At, message: Uuid, commits: u64, end: RunEnd) {
        let next = end.next.as_ref().and_then(|next| self.named(&next.schedule));
        let Some(next) = next.filter(|stored| !stored.deleted).map(|stored| stored.schedule.clone()) else {
            return;
        };
        let mut judge = Judge::new(self.now_at(at.slot).wall_us, self.late_after_us());
        let Ok(Next::Run(run)) = follow(&end, Some(&next), SHARDS, &mut judge) else { return };
        let is_launched = self.stores.iter().any(|store| store.runs.contains_key(&run.id));
        if run.shard == at.shard && run.state == RunState::Emitted && !is_launched && !self.is_cut(at.slot) {
            let following = Following { run: *run, spec: RunSpec::of(&next) };
            self.ahead.insert((at.life, message), (commits, following));
        }
    }

    /// The owner is told what a look has found.
    pub(crate) fn take_up(&mut self, at: At, message: Uuid, commits: u64, found: (Following, RunEnd)) {
        let (now, (following, end)) = (self.now_at(at.slot), found);
        let (run, shard) = (following.run.id, usize::from(at.shard));
        let key = (following.spec.schedule_uid, following.spec.generation);
        self.stores[shard].specs.entry(key).or_insert_with(|| following.spec.clone());
        // The next life wishes for itself.
        let Some(core) = self.living(at).and_then(Owner::open) else { return };
        match core.follows(message, following, commits, now) {
            TakenUp::Made => {
                self.model.allow_run(run);
                self.count(Seen::FollowedAtOnce);
            }
            TakenUp::Known => {}
            TakenUp::Outdated => {
                self.count(Seen::LookOutdated);
                self.after(0, Event::Follow(at, message, Some(Box::new(end))));
            }
        }
        self.touch(at);
    }

    /// The run that follows is launched, by a process that may have lost its shard in the meantime.
    pub(crate) fn follow(&mut self, at: At, message: Uuid, end: Box<RunEnd>) {
        if self.is_cut(at.slot) {
            self.after(300_000, Event::Follow(at, message, Some(end)));
            return;
        }
        let next = end.next.as_ref().and_then(|next| self.named(&next.schedule));
        let next = next.filter(|stored| !stored.deleted);
        let next = next.map(|stored| stored.schedule.clone());
        let mut judge = Judge::new(self.now_at(at.slot).wall_us, self.late_after_us());
        let decided = follow(&end, next.as_ref(), SHARDS, &mut judge).unwrap();
        let follows = |run: &Run| run.predecessor.as_ref().is_some_and(|before| before.run == end.of.run);
        // By an owner who died before it could say so.
        let mut runs = self.stores.iter().flat_map(|store| store.runs.values());
        let launched_us = runs.find(|run| follows(run)).map(|run| run.launch_us);
        let is_launched = launched_us.is_some();
        let is_over = |root: ChainRoot| match launched_us {
            Some(launch_us) => end.gives_up(root, launch_us),
            None => !matches!(decided, Next::Run(_)),
        };
        if let Some(root) = end.of.root.filter(|root| is_over(*root)) {
            self.count(Seen::ChainEnded);
            let told = Message::chain_ended(root);
            self.stores[usize::from(root.shard)].inbox.entry(told.id).or_insert(told);
        }
        match decided {
            _ if is_launched => self.count(Seen::FollowedBefore),
            Next::Run(run) => {
                self.count(if run.shard == at.shard { Seen::FollowedHere } else { Seen::FollowedElsewhere });
                self.model.allow_run(run.id);
                let spec = RunSpec::of(&next.unwrap());
                self.stores[usize::from(run.shard)].emit(*run, &spec);
            }
            Next::Skip(skip) => {
                self.count(Seen::NotFollowed);
                self.model.ended_chains.insert(end.of.run);
                self.master.skipped.entry((skip.schedule_uid, skip.launch_us)).or_insert(skip);
            }
            Next::Nothing => {
                self.count(Seen::NotFollowed);
                self.model.ended_chains.insert(end.of.run);
            }
        }
        let wait_us = if self.chaos { self.wait_us(&[0, 1_000, 50_000, 2 * SECOND_US]) } else { 0 };
        self.after(wait_us, Event::Follow(at, message, None));
    }

    /// The owner hears of it, whatever its life is by now.
    pub(crate) fn followed(&mut self, at: At, message: Uuid) {
        if let Some(core) = self.owner(at).and_then(Owner::open) {
            core.followed(message);
            self.touch(at);
        }
    }

    /// From each end that asks for it follows one run, unless its schedule could not have one; and no other run follows.
    pub(crate) fn check_chains(&self) {
        let runs = || self.stores.iter().flat_map(|store| store.runs.values().map(move |run| (store, run)));
        let spec = |store: &Store, run: &Run| store.specs[&(run.schedule_uid, run.generation)].clone();
        for (store, run) in runs() {
            let Some(end) = RunEnd::of(run, Some(&spec(store, run))) else { continue };
            let Some(next) = end.next.as_ref().and_then(|next| self.named(&next.schedule)) else { continue };
            let id = end.next_run(next.schedule.uid);
            let found = runs().filter(|(_, other)| other.id == id).count();
            let may_be_none = self.model.ended_chains.contains(&run.id);
            assert!(found == 1 || found == 0 && may_be_none, "{found} runs follow {run:?} by {end:?}");
        }
        for (_, run) in runs().filter(|(_, run)| run.kind == RunKind::Followed) {
            let before = run.predecessor.as_deref().unwrap();
            let (store, of) = runs().find(|(_, other)| other.id == before.run).unwrap();
            let on_finish = spec(store, of).on_finish;
            let named = on_finish.as_ref().is_some_and(|on_finish| on_finish.schedule == run.schedule_id);
            let ended = Run { state: before.state, counts: before.counts, ..of.clone() };
            let holds = on_finish.is_some_and(|on_finish| on_finish.when.holds(&ended));
            let place = of.place() + 1 == run.place() && run.place() <= Predecessor::PLACES_MAX;
            assert!(named && holds && place && of.shard == before.shard, "{run:?} follows {of:?}");
            let follows = |other: &Run| other.predecessor.as_ref().is_some_and(|other| other.run == of.id);
            let twins = runs().filter(|(_, other)| follows(other) && other.schedule_uid == run.schedule_uid);
            assert_eq!(twins.count(), 1, "several runs follow {of:?}");
        }
        for row in self.stores.iter().flat_map(|store| store.schedules.values()) {
            assert!(row.chains.is_empty(), "{row:?} waits for the end of a chain for ever");
        }
    }

    /// Whether dead events have been tried again of a run, or of one before it: the chain may have been at its end.
    fn has_come_back(&self, run: &Run) -> bool {
        let mut next = Some(run);
        while let Some(run) = next {
            if self.model.came_back.contains(&run.id) {
                return true;
            }
            let before = run.predecessor.as_ref().map(|before| (before.shard, before.run));
            next = before.and_then(|(shard, id)| self.stores[usize::from(shard)].runs.get(&id));
        }
        false
    }

    /// No run of a timing starts while an earlier one's chain goes on for whose end it waits.
    pub(crate) fn check_behind_chains(&self, shard: u16, changes: &Changes) {
        let store = &self.stores[usize::from(shard)];
        let starts = |run: &&Run| {
            let is_new = store.runs.get(&run.id).is_none_or(|old| old.started_us.is_none());
            let spec = &store.specs[&(run.schedule_uid, run.generation)];
            let waits = matches!(spec.overlap, OverlapRule::Skip | OverlapRule::BufferOne);
            run.kind == RunKind::Scheduled && run.started_us.is_some() && is_new && waits
        };
        for run in changes.runs_changed.iter().filter(starts) {
            let goes_on = |other: &&Run| {
                let root = other.predecessor.as_ref().and_then(|before| before.root);
                let here = root.is_some_and(|root| {
                    // One that was never launched, as its window ended before, may have ended after the launch of this one.
                    let has_started = store.runs.get(&root.run).is_some_and(|of| of.started_us.is_some());
                    let is_of = (root.shard, root.schedule_uid) == (shard, run.schedule_uid);
                    is_of && has_started && root.run != run.id
                });
                here && !has_ended(other) && !self.has_come_back(other)
            };
            let other = self.stores.iter().flat_map(|store| store.runs.values()).find(goes_on);
            assert!(other.is_none(), "{run:?} starts while the chain goes on: {other:?}");
        }
    }
}
