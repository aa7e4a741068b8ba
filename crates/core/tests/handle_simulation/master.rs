//! Two masters with clocks of their own: schedules and policies that change while runs of theirs are on the way, and
//! messages about it that come late, twice, or only once another master repairs what a dead one left.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use tollgate_core::handle::change::{Outcome, ShardSchedule};
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::bug::Bug;
use crate::handle_world::{fence, pause, policy, run, spec};
use crate::totals::Seen;
use crate::world::{Event, SHARDS, World};

/// A schedule as it is stored: it fires at `offset` and every `period` after.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) spec: RunSpec,
    pub(crate) shard: u16,
    pub(crate) former_homes: Vec<u16>,
    period_us: i64,
    offset_us: i64,
    events: u32,
    priority: u8,
    pub(crate) changed_us: i64,
    pub(crate) pause: Option<Pause>,
    /// Of pauses that were lifted: when they began, and were lifted.
    past_pauses: Vec<(i64, i64)>,
    /// When the pause began.
    paused_us: i64,
    pub(crate) deleted: bool,
}

impl Plan {
    pub(crate) fn launches(&self, after_us: i64, until_us: i64) -> Vec<i64> {
        if self.deleted {
            return Vec::new();
        }
        // What fell due before the pause goes out.
        let until_us = if self.pause.is_some() { until_us.min(self.paused_us) } else { until_us };
        let first = (after_us - self.offset_us).div_euclid(self.period_us) + 1;
        (first..).map(|k| self.offset_us + k * self.period_us).take_while(|l| *l <= until_us).collect()
    }

    /// Whether a launch fell due in a pause that has been lifted.
    pub(crate) fn was_paused_at(&self, launch_us: i64) -> bool {
        self.past_pauses.iter().any(|(since_us, until_us)| (since_us + 1..=*until_us).contains(&launch_us))
    }

    pub(crate) fn run(&self, launch_us: i64, kind: RunKind, now: Now) -> Run {
        let emitted = run(&self.spec, launch_us, self.events);
        Run { shard: self.shard, priority: self.priority, kind, emitted_us: now.wall_us, ..emitted }
    }
}

/// What a master has to tell: a plan, and how far windows had been opened.
#[derive(Debug)]
pub(crate) struct Told {
    plan: Plan,
    /// Where the frontier was read before the commit (a bug).
    frontier_us: Option<i64>,
}

impl Told {
    /// Of which schedule it is.
    pub(crate) fn uid(&self) -> Uuid {
        self.plan.spec.schedule_uid
    }
}

pub(crate) struct Master {
    pub(crate) plans: BTreeMap<Uuid, Plan>,
    pub(crate) policies: BTreeMap<Uuid, Policy>,
    /// Windows below have been announced.
    pub(crate) frontier_us: i64,
    /// The same before the latest was, and when that was (monotonic).
    pub(crate) frontier_before_us: i64,
    pub(crate) announced_us: i64,
    /// Generations whose message has not been posted: nobody knows of them but the plans.
    untold: BTreeMap<Uuid, i64>,
}

impl Master {
    pub(crate) fn is_anything_paused(&self) -> bool {
        self.plans.values().any(|p| p.pause.is_some())
    }

    /// Whether a change of a schedule has not been told.
    pub(crate) fn is_untold(&self, uid: Uuid) -> bool {
        self.untold.contains_key(&uid)
    }

    pub(crate) fn new(wall_us: i64) -> Self {
        Self {
            plans: BTreeMap::new(),
            policies: BTreeMap::new(),
            frontier_us: wall_us,
            frontier_before_us: wall_us,
            announced_us: 0,
            untold: BTreeMap::new(),
        }
    }
}

/// The id of the message that tells `shard` of a generation.
fn message_id(uid: Uuid, generation: i64, shard: u16) -> Uuid {
    let digest = Sha256::new()
        .chain_update(uid.as_bytes())
        .chain_update(generation.to_be_bytes())
        .chain_update(shard.to_be_bytes())
        .finalize();
    Uuid::from_slice(&digest[..16]).unwrap()
}

impl World {
    /// Puts a message into an inbox. It becomes visible when it does: ids and sequence say nothing about that.
    pub(crate) fn post_later(&mut self, shard: u16, control: Control) {
        self.numbers += 1;
        let message = Message { id: Uuid::from_u64_pair(self.numbers, 0), control };
        self.post(shard, message);
    }

    fn post(&mut self, shard: u16, message: Message) {
        self.numbers += 1;
        self.sequence.insert(message.id, self.numbers);
        let late_us = if self.chaos { self.wait_us(&[0, 0, 1_000, 30_000, SECOND_US]) } else { 0 };
        if late_us > 0 {
            self.count(Seen::OutOfOrder);
        }
        self.after(late_us, Event::Post(shard, Box::new(message)));
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
            self.post_later(p.shard, Control::PolicyChanged { policy: p });
        }
    }

    fn limits(&mut self) -> Limits {
        let rate = self.random.percent(25);
        Limits {
            max_in_flight: (!rate || self.random.percent(60)).then(|| self.random.within(1, 6) as u32),
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
            6..8 => p.pause = if p.pause.is_none() && self.troubles.pauses { Some(pause()) } else { None },
            8 => p.token_ttl_ms = self.random.within(2_000, 20_000),
            _ => p.reclaim = if p.reclaim == Reclaim::Never { Reclaim::AfterTtl } else { Reclaim::Never },
        }
        let policy = p.clone();
        self.post_later(policy.shard, Control::PolicyChanged { policy });
    }

    pub(crate) fn create_schedule(&mut self) {
        if self.master.plans.len() >= 7 {
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
            past_pauses: Vec::new(),
            paused_us: 0,
            deleted: false,
        };
        plan.spec.generation = 0;
        if let Target::Http { http, .. } = &mut plan.spec.target {
            // Shorter than the time for which a dead process's shards have no owner, and longer.
            http.deadline_ms = self.wait_us(&[1_000, 4_000, 10_000]);
        }
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
            15..20 => {
                plan.deleted = true;
                self.count(Seen::Deleted);
            }
            _ => self.alter(&mut plan),
        }
        if !plan.deleted && self.troubles.moves && self.random.percent(40) {
            let old_shard = plan.shard;
            plan.shard = self.settle_policy(&mut plan);
            if plan.shard != old_shard {
                self.count(Seen::Moved);
                plan.former_homes.push(old_shard);
                plan.former_homes.retain(|shard| *shard != plan.shard);
            }
        }
        if plan.former_homes.len() > 1 {
            self.count(Seen::LongWay);
        }
        self.publish(plan);
    }

    /// Everything but the policy.
    fn alter(&mut self, plan: &mut Plan) {
        let random = &mut self.random;
        plan.period_us = random.within(4, 30) * SECOND_US;
        plan.offset_us = random.within(0, 10) * SECOND_US;
        plan.events = *random.pick(&[1, 2, 5, 20]).unwrap();
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

    /// A new generation, in one transaction. Whoever made it tells the shards afterwards, if it lives so long.
    pub(crate) fn publish(&mut self, mut plan: Plan) {
        plan.spec.generation += 1;
        // Each master has its own clock; a change is never before the one that it follows.
        let apart_us =
            if self.troubles.clocks { self.wait_us(&[-4 * SECOND_US, 0, 3 * SECOND_US]) } else { 0 };
        plan.changed_us = (self.now.wall_us + apart_us).max(plan.changed_us + 1);
        let (uid, generation) = (plan.spec.schedule_uid, plan.spec.generation);
        let was_paused = self.master.plans.get(&uid).is_some_and(|before| before.pause.is_some());
        match (was_paused, plan.pause.is_some()) {
            (true, false) => plan.past_pauses.push((plan.paused_us, plan.changed_us)),
            (false, true) => plan.paused_us = plan.changed_us,
            _ => {}
        }
        self.say(|| format!("~ publishes {plan:?}"));
        self.expect_change(&plan);
        // Specs are shared: each shard that may need one has it.
        for store in &mut self.stores {
            store.specs.insert((uid, generation), plan.spec.clone());
        }
        let early =
            self.bug == Bug::FrontierReadEarly && self.now.mono_us - self.master.announced_us < 2 * SECOND_US;
        let told = Told { plan: plan.clone(), frontier_us: early.then_some(self.master.frontier_before_us) };
        self.master.plans.insert(uid, plan);
        self.master.untold.insert(uid, generation);
        if self.strikes(self.troubles.masters, 15) {
            self.count(Seen::MasterDied);
            let later_us = self.random.within(SECOND_US, 20 * SECOND_US);
            if self.bug != Bug::NoRepair {
                self.after(later_us, Event::Repair(uid));
            }
            return;
        }
        let soon_us = self.wait_us(&[0, 0, 1_000, 200_000, 3 * SECOND_US]);
        self.after(soon_us, Event::Tell(Box::new(told)));
    }

    /// What a change makes of the runs that must exist.
    fn expect_change(&mut self, plan: &Plan) {
        let uid = plan.spec.schedule_uid;
        let overtaken = self.master.untold.contains_key(&uid);
        let before_us = self.master.plans.get(&uid).map_or(i64::MIN, |before| before.changed_us);
        let told = |world: &Self, id: &RunId| world.stores.iter().any(|s| s.runs.contains_key(id));
        let mut doubtful = Vec::new();
        for (id, (schedule, launch_us, kind)) in &self.model.expected {
            if *schedule != uid || *kind != RunKind::Scheduled {
                continue;
            }
            if *launch_us > plan.changed_us {
                doubtful.push((*id, None));
            } else if *launch_us > before_us && overtaken {
                doubtful.push((*id, Some(Seen::HoleOvertakenUntold)));
            } else if !told(self, id) && self.is_unscanned(uid, *launch_us) {
                doubtful.push((*id, Some(Seen::HoleChangedBeforeScan)));
            }
        }
        for (id, hole) in doubtful {
            if let Some(hole) = hole {
                self.count(hole);
            }
            self.model.expected.remove(&id);
        }
        for launch_us in plan.launches(plan.changed_us, self.master.frontier_us - 1) {
            self.model.expect(uid, launch_us, RunKind::Scheduled);
        }
    }

    /// The message about one generation.
    pub(crate) fn tell(&mut self, told: &Told) {
        let plan = &told.plan;
        let (uid, generation) = (plan.spec.schedule_uid, plan.spec.generation);
        let frontier_us = told.frontier_us.unwrap_or(self.master.frontier_us);
        let until_us = (frontier_us - 1).max(plan.changed_us);
        let launches_us = plan.launches(plan.changed_us, until_us);
        // Should it be overtaken, what it makes may start before the shard hears of that.
        launches_us.iter().for_each(|launch_us| self.model.allow(uid, *launch_us));
        let row = ShardSchedule {
            events: plan.events,
            priority: plan.priority,
            pause: plan.pause.clone(),
            deleted: plan.deleted,
            ..fence(&plan.spec, plan.changed_us, until_us, launches_us)
        };
        let mut way = plan.former_homes.clone();
        if self.bug == Bug::FormerHomesNotTold {
            way.clear();
        }
        way.push(plan.shard);
        let control = Control::ScheduleChanged {
            schedule: row,
            namespace: plan.spec.namespace.clone(),
            schedule_id: plan.spec.schedule_id.clone(),
            policy_uid: plan.spec.policy_uid,
            onward: way[1..].to_vec(),
        };
        if self.master.untold.get(&uid) == Some(&generation) {
            self.master.untold.remove(&uid);
        }
        self.post(way[0], Message { id: message_id(uid, generation, way[0]), control });
    }

    /// A master that starts tells again what the log says was changed: the present generation.
    pub(crate) fn repair(&mut self, uid: Uuid) {
        let Some(plan) = self.master.plans.get(&uid).cloned() else { return };
        self.count(Seen::Repaired);
        self.tell(&Told { plan, frontier_us: None });
    }

    pub(crate) fn run_by_hand(&mut self) {
        let plans: Vec<_> = self.master.plans.values().filter(|p| !p.deleted).cloned().collect();
        let Some(plan) = self.random.pick(&plans).cloned() else { return };
        let kind = if self.random.percent(50) { RunKind::Manual } else { RunKind::Backfill };
        let uid = plan.spec.schedule_uid;
        let mut launch_us = self.now.wall_us.div_euclid(1000) * 1000 + 7;
        // The same moment may come again, on a clock that was set back.
        while self.model.expected.contains_key(&RunId::derive(uid, launch_us)) {
            launch_us += 1000;
        }
        self.model.expect(uid, launch_us, kind);
        for _ in 0..=u8::from(self.random.percent(20)) {
            let late_us = self.wait_us(&[0, 0, 2 * SECOND_US, 20 * SECOND_US]);
            let emission = Box::new((plan.run(launch_us, kind, self.now), plan.spec.clone()));
            self.after(late_us, Event::Emit(plan.shard, emission));
        }
    }

    pub(crate) fn cancel_a_run(&mut self, shard: u16) {
        let runs: Vec<_> = self.stores[usize::from(shard)].runs.values().collect();
        if let Some(run) = self.random.pick(&runs) {
            let run = run.id;
            self.count(Seen::CancelledByHand);
            self.post_later(shard, Control::CancelRun { run, reason: "cancelled by hand".into() });
        }
    }

    pub(crate) fn retry_dead(&mut self, shard: u16) {
        let history = self.stores[usize::from(shard)].history.values();
        let dead: Vec<_> = history.filter(|r| r.outcome == Outcome::Dead).map(|r| (r.run, r.index)).collect();
        let Some((run, index)) = self.random.pick(&dead).copied() else { return };
        for _ in 0..=u8::from(self.random.percent(40)) {
            let indexes = if self.random.percent(50) { vec![index] } else { Vec::new() };
            self.post_later(shard, Control::RetryDead { run, indexes });
        }
    }

    /// Nothing goes wrong any more, and whoever paused something takes it back.
    pub(crate) fn make_peace(&mut self) {
        self.make_peace_among_processes();
        self.make_peace_among_emitters();
        for shard in 0..SHARDS {
            self.post_later(shard, Control::PauseShard { pause: None });
        }
        for mut policy in self.master.policies.clone().into_values().filter(|p| p.pause.is_some()) {
            (policy.pause, policy.generation) = (None, policy.generation + 1);
            self.post_later(policy.shard, Control::PolicyChanged { policy });
        }
        self.touch_all();
    }

    pub(crate) fn resume_schedules(&mut self) {
        for mut plan in self.master.plans.clone().into_values().filter(|p| p.pause.is_some()) {
            plan.pause = None;
            self.publish(plan);
        }
    }
}
