//! The master and the emitters: schedules and policies that change while runs of theirs are on the way.

use std::collections::BTreeMap;

use tollgate_core::handle::change::{Outcome, ShardSchedule};
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::handle_world::{fence, pause, policy, run, spec};
use crate::world::{Event, SHARDS, World};

/// The time between two windows, and how far ahead they are opened.
const WINDOW_US: i64 = 15 * SECOND_US;
const AHEAD_US: i64 = 60 * SECOND_US;

/// A schedule as its master knows it: it fires at `offset` and every `period` after.
#[derive(Clone)]
pub(crate) struct Plan {
    spec: RunSpec,
    shard: u16,
    former_homes: Vec<u16>,
    period_us: i64,
    offset_us: i64,
    events: u32,
    priority: u8,
    changed_us: i64,
    pause: Option<Pause>,
    deleted: bool,
}

impl Plan {
    fn launches(&self, after_us: i64, until_us: i64) -> Vec<i64> {
        if self.pause.is_some() || self.deleted {
            return Vec::new();
        }
        let first = (after_us - self.offset_us).div_euclid(self.period_us) + 1;
        (first..).map(|k| self.offset_us + k * self.period_us).take_while(|l| *l <= until_us).collect()
    }

    fn run(&self, launch_us: i64, kind: RunKind, now: Now) -> Run {
        let emitted = run(&self.spec, launch_us, self.events);
        Run { shard: self.shard, priority: self.priority, kind, emitted_us: now.wall_us, ..emitted }
    }
}

pub(crate) struct Master {
    pub(crate) plans: BTreeMap<Uuid, Plan>,
    pub(crate) policies: BTreeMap<Uuid, Policy>,
    /// Launch times below have been read by an emitter.
    frontier_us: i64,
    /// Runs that must exist in the end.
    pub(crate) expected: BTreeMap<RunId, (Uuid, i64, RunKind)>,
}

impl Master {
    pub(crate) fn is_anything_paused(&self) -> bool {
        self.plans.values().any(|p| p.pause.is_some())
    }

    pub(crate) fn new(wall_us: i64) -> Self {
        Self {
            plans: BTreeMap::new(),
            policies: BTreeMap::new(),
            frontier_us: wall_us,
            expected: BTreeMap::new(),
        }
    }
}

impl World {
    pub(crate) fn post(&mut self, shard: u16, control: Control) {
        let message = Message { id: self.id(&control), control };
        self.owners[usize::from(shard)].store.inbox.insert(message.id, message);
    }

    pub(crate) fn make_policies(&mut self) {
        for uid in 1..=4 {
            let limits = self.limits();
            let p = Policy {
                shard: (uid % u128::from(SHARDS)) as u16,
                token_ttl_ms: 10_000,
                suspect_ms: 5_000,
                unstarted_ttl_ms: 20_000,
                reclaim: if self.random.percent(20) { Reclaim::Never } else { Reclaim::AfterTtl },
                ..policy(uid, limits)
            };
            self.master.policies.insert(p.uid, p.clone());
            self.post(p.shard, Control::PolicyChanged { policy: p });
        }
    }

    fn limits(&mut self) -> Limits {
        let rate = self.random.percent(30);
        Limits {
            max_in_flight: (!rate || self.random.percent(50)).then(|| self.random.within(1, 6) as u32),
            rate_per_s: rate.then(|| self.random.within(1, 20) as f64),
            burst: self.random.percent(50).then_some(5),
        }
    }

    pub(crate) fn change_policy(&mut self) {
        let limits = self.limits();
        let uids: Vec<_> = self.master.policies.keys().copied().collect();
        let Some(p) = self.random.pick(&uids).and_then(|uid| self.master.policies.get_mut(uid)) else {
            return;
        };
        p.generation += 1;
        match self.random.within(0, 10) {
            0..6 => p.limits = limits,
            6..8 => p.pause = if p.pause.is_none() { Some(pause()) } else { None },
            8 => p.token_ttl_ms = self.random.within(2_000, 20_000),
            _ => p.reclaim = if p.reclaim == Reclaim::Never { Reclaim::AfterTtl } else { Reclaim::Never },
        }
        let policy = p.clone();
        self.post(policy.shard, Control::PolicyChanged { policy });
    }

    pub(crate) fn create_schedule(&mut self) {
        if self.master.plans.len() >= 8 {
            return;
        }
        let number = 100 + self.master.plans.len() as u128;
        let mut plan = Plan {
            spec: spec(number, None),
            shard: (number % u128::from(SHARDS)) as u16,
            former_homes: Vec::new(),
            period_us: SECOND_US,
            offset_us: 0,
            events: 1,
            priority: 5,
            changed_us: 0,
            pause: None,
            deleted: false,
        };
        plan.spec.generation = 0;
        self.alter(&mut plan);
        plan.shard = self.settle_policy(&mut plan);
        self.publish(plan);
    }

    pub(crate) fn change_schedule(&mut self) {
        let uids: Vec<_> = self.master.plans.keys().copied().collect();
        let Some(uid) = self.random.pick(&uids).copied() else { return };
        let mut plan = self.master.plans[&uid].clone();
        if plan.deleted {
            return;
        }
        match self.random.within(0, 100) {
            0..15 => plan.pause = if plan.pause.is_none() { Some(pause()) } else { None },
            15..22 => {
                plan.deleted = true;
                self.count("deleted");
            }
            _ => self.alter(&mut plan),
        }
        if !plan.deleted && self.random.percent(40) {
            let old_shard = plan.shard;
            plan.shard = self.settle_policy(&mut plan);
            if plan.shard != old_shard {
                self.count("moved");
                plan.former_homes.retain(|shard| *shard != plan.shard);
                plan.former_homes.push(old_shard);
            }
        }
        if plan.former_homes.len() > 1 {
            self.count("on a long way");
        }
        self.publish(plan);
    }

    /// Everything but the policy.
    fn alter(&mut self, plan: &mut Plan) {
        let random = &mut self.random;
        plan.period_us = random.within(4, 40) * SECOND_US;
        plan.offset_us = random.within(0, 10) * SECOND_US;
        plan.events = *random.pick(&[1, 2, 5, 30]).unwrap();
        plan.priority = random.within(0, 10) as u8;
        let rules = [OverlapRule::Allow, OverlapRule::Skip, OverlapRule::BufferOne, OverlapRule::CancelOther];
        plan.spec.overlap = *random.pick(&rules).unwrap();
        plan.spec.finish_by_s = random.percent(30).then(|| random.within(1, 30));
        plan.spec.spread_s = random.percent(30).then(|| random.within(1, 20));
        plan.spec.retry.attempts_max = random.within(1, 5) as u32;
        plan.spec.retry.backoff_min_ms = 500;
        plan.spec.retry.retry_lost = random.percent(50);
        plan.spec.check_again.slot_s = 5;
        plan.spec.check_again.horizon_s = 60;
    }

    /// Chooses a policy; the schedule lives where that does.
    fn settle_policy(&mut self, plan: &mut Plan) -> u16 {
        let uids: Vec<_> = self.master.policies.keys().copied().collect();
        let uid = self.random.percent(85).then(|| *self.random.pick(&uids).unwrap());
        let p = uid.map(|uid| self.master.policies[&uid].clone());
        (plan.spec.policy_uid, plan.spec.policy_id) = (uid, p.as_ref().map(|p| p.id.clone()));
        p.map_or((plan.spec.schedule_uid.as_u128() % u128::from(SHARDS)) as u16, |p| p.shard)
    }

    /// A new generation: rows and message in one transaction.
    fn publish(&mut self, mut plan: Plan) {
        plan.spec.generation += 1;
        plan.changed_us = self.now.wall_us.max(plan.changed_us + 1);
        let uid = plan.spec.schedule_uid;
        let until_us = self.master.frontier_us - 1;
        let launches_us = plan.launches(plan.changed_us, until_us);
        let changed_us = plan.changed_us;
        let upcoming = |kind: RunKind, launch_us: i64| kind == RunKind::Scheduled && launch_us > changed_us;
        self.master.expected.retain(|_, (s, launch_us, kind)| *s != uid || !upcoming(*kind, *launch_us));
        for launch_us in &launches_us {
            let id = RunId::derive(uid, *launch_us);
            self.master.expected.insert(id, (uid, *launch_us, RunKind::Scheduled));
        }
        let row = ShardSchedule {
            events: plan.events,
            priority: plan.priority,
            pause: plan.pause.clone(),
            deleted: plan.deleted,
            ..fence(&plan.spec, changed_us, until_us, launches_us)
        };
        // Specs are shared: each shard that may need one has it.
        for owner in &mut self.owners {
            owner.store.specs.insert((uid, plan.spec.generation), plan.spec.clone());
        }
        let mut way = plan.former_homes.clone();
        way.push(plan.shard);
        let control = Control::ScheduleChanged {
            schedule: row,
            namespace: plan.spec.namespace.clone(),
            schedule_id: plan.spec.schedule_id.clone(),
            policy_uid: plan.spec.policy_uid,
            onward: way[1..].to_vec(),
        };
        self.post(way[0], control);
        self.master.plans.insert(uid, plan);
    }

    /// An emitter reads what fires in the next windows; what it hands over arrives when it arrives.
    pub(crate) fn open_window(&mut self) {
        while self.chaos && self.master.frontier_us < self.now.wall_us + AHEAD_US {
            let from_us = self.master.frontier_us;
            self.master.frontier_us += WINDOW_US;
            for plan in self.master.plans.clone().into_values() {
                for launch_us in plan.launches((from_us - 1).max(plan.changed_us), from_us + WINDOW_US - 1) {
                    let uid = plan.spec.schedule_uid;
                    let id = RunId::derive(uid, launch_us);
                    self.master.expected.insert(id, (uid, launch_us, RunKind::Scheduled));
                    self.emit(&plan, launch_us, RunKind::Scheduled);
                }
            }
        }
        if self.chaos {
            self.after(SECOND_US, Event::Window);
        }
    }

    fn emit(&mut self, plan: &Plan, launch_us: i64, kind: RunKind) {
        for _ in 0..=u8::from(self.random.percent(20)) {
            let late_us = *self.random.pick(&[0, 0, 2, 30, 90]).unwrap() * SECOND_US;
            let jitter_us = self.random.within(0, SECOND_US);
            let emission = Box::new((plan.run(launch_us, kind, self.now), plan.spec.clone()));
            self.after(late_us + jitter_us, Event::Emit(plan.shard, emission));
        }
    }

    pub(crate) fn run_by_hand(&mut self) {
        let plans: Vec<_> = self.master.plans.values().filter(|p| !p.deleted).cloned().collect();
        let Some(plan) = self.random.pick(&plans).cloned() else { return };
        let kind = if self.random.percent(50) { RunKind::Manual } else { RunKind::Backfill };
        let uid = plan.spec.schedule_uid;
        let mut launch_us = self.now.wall_us.div_euclid(1000) * 1000 + 7;
        // The same moment may come again, on a clock that was set back.
        while self.master.expected.contains_key(&RunId::derive(uid, launch_us)) {
            launch_us += 1000;
        }
        self.master.expected.insert(RunId::derive(uid, launch_us), (uid, launch_us, kind));
        self.emit(&plan, launch_us, kind);
    }

    pub(crate) fn cancel_a_run(&mut self, shard: u16) {
        let runs: Vec<_> = self.owners[usize::from(shard)].store.runs.keys().copied().collect();
        if let Some(run) = self.random.pick(&runs).copied() {
            self.count("cancel");
            self.post(shard, Control::CancelRun { run, reason: "cancelled by hand".into() });
        }
    }

    pub(crate) fn retry_dead(&mut self, shard: u16) {
        let history = self.owners[usize::from(shard)].store.history.values();
        let dead: Vec<_> = history.filter(|r| r.outcome == Outcome::Dead).map(|r| (r.run, r.index)).collect();
        let Some((run, index)) = self.random.pick(&dead).copied() else { return };
        for _ in 0..=u8::from(self.random.percent(40)) {
            let indexes = if self.random.percent(50) { vec![index] } else { Vec::new() };
            self.post(shard, Control::RetryDead { run, indexes });
        }
    }

    /// Whoever paused something takes it back.
    pub(crate) fn make_peace(&mut self) {
        for shard in 0..SHARDS {
            self.post(shard, Control::PauseShard { pause: None });
        }
        for mut policy in self.master.policies.clone().into_values().filter(|p| p.pause.is_some()) {
            (policy.pause, policy.generation) = (None, policy.generation + 1);
            self.post(policy.shard, Control::PolicyChanged { policy });
        }
    }

    pub(crate) fn resume_schedules(&mut self) {
        for mut plan in self.master.plans.clone().into_values().filter(|p| p.pause.is_some()) {
            plan.pause = None;
            self.publish(plan);
        }
    }
}
