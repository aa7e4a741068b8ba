//! Two masters with clocks of their own: schedules and policies that change while runs of theirs are on the way. What a
//! change makes of a schedule, and what it tells which shards, the real core says ([`crate::telling`] plays how it is told).

use std::collections::BTreeMap;

use tollgate_core::handle::change::Outcome;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::*;
use tollgate_core::plan::telling::may_be_open_until_us;
use tollgate_core::plan::{Change, Layout, Notice, Plan, home, put_under, shard_of};
use uuid::Uuid;

use crate::check::KEYS;
use crate::handle_world::{pause, policy, run, spec, weighed_items};
use crate::random::Random;
use crate::telling::Errand;
use crate::totals::Seen;
use crate::units;
use crate::world::{Event, SHARDS, World};

/// A schedule as it is stored, and its children.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) schedule: Schedule,
    pub(crate) plan: Plan,
    pub(crate) shard: u16,
    pub(crate) changed_us: i64,
    pub(crate) deleted: bool,
}

impl Stored {
    /// The launches in (after, until] that go out.
    pub(crate) fn launches(&self, after_us: i64, until_us: i64) -> Vec<i64> {
        if self.deleted {
            return Vec::new();
        }
        // What fell due before the pause goes out.
        let until_us = self.schedule.pause.as_ref().map_or(until_us, |pause| until_us.min(pause.since_us));
        launches(&self.schedule.timing, after_us, until_us)
    }

    fn run(&self, launch_us: i64, kind: RunKind, now: Now) -> Run {
        let spec = RunSpec::of(&self.schedule);
        let emitted = run(&spec, launch_us, self.schedule.events);
        let (shard, priority) = (self.shard, self.schedule.priority);
        Run { shard, priority, kind, emitted_us: now.wall_us, ..emitted }
    }
}

/// The launches of intervals in (after, until], told without the plan.
pub(crate) fn launches(timing: &Timing, after_us: i64, until_us: i64) -> Vec<i64> {
    let mut all = Vec::new();
    for trigger in &timing.triggers {
        let Trigger::Interval { every_s, anchor_us } = trigger else { continue };
        let (every_us, anchor_us) = (every_s * SECOND_US, anchor_us.unwrap_or_default());
        let first = (after_us - anchor_us).div_euclid(every_us) + 1;
        all.extend(
            (first..).map(|k| anchor_us + k * every_us).take_while(|launch_us| *launch_us <= until_us),
        );
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[derive(Default)]
pub(crate) struct Master {
    pub(crate) schedules: BTreeMap<Uuid, Stored>,
    pub(crate) policies: BTreeMap<Uuid, Policy>,
    /// The end of the newest window but one, and when the newest was announced (monotonic).
    pub(crate) frontier_before_us: Option<i64>,
    pub(crate) announced_us: i64,
    pub(crate) outbox: BTreeMap<(Uuid, i64), Notice>,
    /// Recorded skips, but for those of shards.
    pub(crate) skipped: BTreeMap<(Uuid, i64), Skipped>,
    /// Who is on the way with notices.
    pub(crate) errands: BTreeMap<u64, Errand>,
    /// The latest generation that has been told.
    pub(crate) told: BTreeMap<Uuid, i64>,
    /// Up to where windows were open by the latest generation that has been told, and generations that knew of less than the one
    /// before.
    pub(crate) told_until_us: BTreeMap<Uuid, i64>,
    pub(crate) narrowed: Vec<(Uuid, i64)>,
    /// The shard that must hear of each generation first: where the schedule lived longest ago.
    pub(crate) first_homes: BTreeMap<(Uuid, i64), u16>,
    /// Where each schedule has lived, in this order.
    homes: BTreeMap<Uuid, Vec<u16>>,
    /// Pauses: since when, and until when.
    pauses: BTreeMap<Uuid, Vec<(i64, i64)>>,
}

impl Master {
    pub(crate) fn is_anything_paused(&self) -> bool {
        self.schedules.values().any(|stored| !stored.deleted && stored.schedule.pause.is_some())
    }

    /// Whether a launch falls due in a pause.
    pub(crate) fn was_paused_at(&self, uid: Uuid, launch_us: i64) -> bool {
        let mut pauses = self.pauses.get(&uid).into_iter().flatten();
        pauses.any(|(since_us, until_us)| *since_us < launch_us && launch_us <= *until_us)
    }

    /// Writes down a change as a bystander sees it: pauses, and where the schedule lives.
    fn note(&mut self, before: Option<&Stored>, after: &Schedule, at_us: i64) {
        let was_paused = before.is_some_and(|before| before.schedule.pause.is_some());
        let pauses = self.pauses.entry(after.uid).or_default();
        match (was_paused, after.pause.is_some()) {
            (true, false) => pauses.iter_mut().for_each(|(_, until_us)| *until_us = (*until_us).min(at_us)),
            (false, true) => pauses.push((at_us, i64::MAX)),
            _ => {}
        }
        // A policy's row says where it lives.
        let policy = after.policy_uid.map(|uid| self.policies[&uid].shard);
        let home = policy.unwrap_or_else(|| shard_of(after.uid, SHARDS));
        let homes = self.homes.entry(after.uid).or_default();
        homes.retain(|shard| *shard != home);
        homes.push(home);
        let generation = before.map_or(1, |before| before.schedule.generation + 1);
        self.first_homes.insert((after.uid, generation), homes[0]);
    }
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
        for uid in policy_numbers() {
            let limits = self.limits();
            let shard = shard_of(Uuid::from_u128(uid), SHARDS);
            let p = self.some_policy(uid, limits, shard);
            self.publish_policy(p);
        }
        if self.random.percent(60) {
            self.make_tree();
        }
    }

    pub(crate) fn some_policy(&mut self, uid: u128, limits: Limits, shard: u16) -> Policy {
        Policy {
            shard,
            token_ttl_ms: 10_000,
            suspect_ms: 5_000,
            unstarted_ttl_ms: 20_000,
            reclaim: if self.random.percent(20) { Reclaim::Never } else { Reclaim::AfterTtl },
            keys: self.key_rules(),
            ..policy(uid, limits)
        }
    }

    pub(crate) fn change_policy(&mut self) {
        let keys = self.key_rules();
        let limits = self.limits();
        let uids: Vec<_> = self.master.policies.keys().copied().collect();
        let Some(mut p) = self.random.pick(&uids).map(|uid| self.master.policies[uid].clone()) else {
            return;
        };
        match self.random.within(0, 12) {
            0..4 => p.limits = self.limits_under(p.parent.is_some(), limits),
            4..6 => p.keys = keys,
            6..8 => p.pause = if p.pause.is_none() && self.troubles.pauses { Some(pause()) } else { None },
            8 => p.token_ttl_ms = self.random.within(2_000, 20_000),
            9..11 => self.change_parent(&mut p),
            _ => p.reclaim = if p.reclaim == Reclaim::Never { Reclaim::AfterTtl } else { Reclaim::Never },
        }
        p.generation += 1;
        self.publish_policy(p);
    }

    /// A policy that is made or changed, in one transaction.
    pub(crate) fn publish_policy(&mut self, policy: Policy) {
        self.say(|| format!("~ publishes {policy:?}"));
        let policy = Policy { updated_us: self.now.wall_us, ..policy };
        let notice = Notice::of_policy(&policy);
        self.master.policies.insert(policy.uid, policy);
        self.write_down(notice);
    }

    /// A notice is written with its change. Whoever made that tells the shards afterwards.
    fn write_down(&mut self, notice: Notice) {
        self.master.outbox.insert((notice.uid, notice.generation), notice.clone());
        self.tell_of(notice);
    }

    pub(crate) fn create_schedule(&mut self) {
        if self.master.schedules.len() >= 7 {
            return;
        }
        let mut schedule = schedule(100 + self.master.schedules.len() as u128);
        if self.troubles.workers && self.random.percent(40) {
            schedule.target = self.pulled();
        }
        if let Target::Http { http, .. } = &mut schedule.target {
            // Shorter than the time for which a dead process's shards have no owner, and longer.
            http.deadline_ms = self.wait_us(&[1_000, 4_000, 10_000]);
        }
        self.alter(&mut schedule);
        self.settle_policy(&mut schedule);
        self.publish(Some(schedule), None);
    }

    pub(crate) fn change_schedule(&mut self) {
        let uids: Vec<_> = self.master.schedules.keys().copied().collect();
        let Some(uid) = self.random.pick(&uids).copied() else { return };
        let before = self.master.schedules[&uid].clone();
        if before.deleted {
            return;
        }
        let (shard, mut after) = (before.shard, before.schedule.clone());
        match self.random.within(0, 100) {
            0..15 => after.pause = if after.pause.is_none() { Some(pause()) } else { None },
            15..20 => {
                self.count(Seen::Deleted);
                self.publish(None, Some(before));
                return;
            }
            _ => self.alter(&mut after),
        }
        if self.troubles.moves && self.random.percent(40) {
            self.settle_policy(&mut after);
        }
        self.publish(Some(after), Some(before));
        let after = &self.master.schedules[&uid];
        let (moved, long) = (after.shard != shard, after.schedule.former_homes.len() > 1);
        if moved {
            self.count(Seen::Moved);
        }
        if long {
            self.count(Seen::LongWay);
        }
    }

    /// Everything but the policy.
    fn alter(&mut self, schedule: &mut Schedule) {
        let (random, has_units) = (&mut self.random, self.troubles.units);
        // Few of them, so that schedules share scan tasks.
        let every_s = *random.pick(&[4, 6, 10, 10, 15, 30]).unwrap();
        let anchor = |random: &mut Random| Some(random.within(0, every_s) * SECOND_US);
        let count = if random.percent(60) { 1 } else { random.within(2, 4) };
        let trigger = |_| Trigger::Interval { every_s, anchor_us: anchor(random) };
        schedule.timing.triggers = (0..count).map(trigger).collect();
        schedule.events = *random.pick(&[1, 2, 5, 20]).unwrap();
        schedule.priority = random.within(0, 10) as u8;
        schedule.key = random.pick(&KEYS).filter(|key| !key.is_empty()).map(|key| (*key).to_owned());
        let has_items = random.percent(40);
        let loads = units::some_loads(random, if has_items { schedule.events } else { 0 }, has_units);
        schedule.payload = Payload::of(schedule.payload.json.clone()).with_items(weighed_items(loads));
        schedule.units = if has_units { units::some(random) } else { 1 };
        let rules = [OverlapRule::Allow, OverlapRule::Skip, OverlapRule::BufferOne, OverlapRule::CancelOther];
        schedule.overlap = *random.pick(&rules).unwrap();
        let may_rest = matches!(schedule.overlap, OverlapRule::Skip | OverlapRule::BufferOne);
        schedule.delay_after_finish_s = (may_rest && random.percent(40)).then(|| random.within(1, 20));
        let rules = [
            CatchUp::None,
            CatchUp::Latest,
            CatchUp::All { horizon_s: 25 },
            CatchUp::All { horizon_s: 3600 },
        ];
        schedule.catch_up = *random.pick(&rules).unwrap();
        schedule.finish_by_s = random.percent(30).then(|| random.within(1, 30));
        schedule.spread_s = random.percent(30).then(|| random.within(1, 20));
        schedule.start_within_s = random.percent(20).then(|| random.within(1, 20));
        schedule.retry.attempts_max = random.within(1, 5) as u32;
        schedule.retry.retry_lost = random.percent(50);
        schedule.on_finish = self.some_next(&schedule.id.clone());
    }

    /// Chooses a policy; the schedule lives where that does.
    fn settle_policy(&mut self, schedule: &mut Schedule) {
        let uids: Vec<_> = self.master.policies.keys().copied().collect();
        let policy = self.random.percent(85).then(|| *self.random.pick(&uids).unwrap());
        let placed = policy.map(|uid| (uid, self.master.policies[&uid].shard));
        let before = self.master.schedules.get(&schedule.uid).map(|stored| stored.schedule.clone());
        put_under(schedule, placed, before.as_ref(), Layout { base: SHARDS, now: SHARDS });
        schedule.policy = schedule.policy_uid.map(|uid| self.master.policies[&uid].id.clone());
    }

    /// A new generation, in one transaction.
    pub(crate) fn publish(&mut self, after: Option<Schedule>, before: Option<Stored>) {
        // Each master has its own clock; a change is never before the one that it follows.
        let apart_us =
            if self.troubles.clocks { self.wait_us(&[-4 * SECOND_US, 0, 3 * SECOND_US]) } else { 0 };
        let last_us = before.as_ref().map_or(i64::MIN, |before| before.schedule.updated_us + 1);
        let at_us = (self.now.wall_us + apart_us).max(last_us);
        let old = before.as_ref().map(|before| before.schedule.clone());
        let change = match after {
            Some(mut after) => {
                if let Some(pause) =
                    after.pause.as_mut().filter(|_| old.as_ref().is_none_or(|old| old.pause.is_none()))
                {
                    pause.since_us = at_us;
                }
                let plan = Plan::compile(&after.timing, after.uid.as_bytes()).unwrap();
                Change::to(old, after, plan, at_us, SHARDS)
            }
            None => Change::deletion(old.unwrap(), at_us),
        };
        let schedule = change.schedule().unwrap().clone();
        let deleted = change.after.is_none();
        let plan =
            change.after.as_ref().map(|(_, plan)| plan.clone()).or(before.as_ref().map(|b| b.plan.clone()));
        let shard = home(&schedule, SHARDS);
        let stored = Stored { schedule, plan: plan.unwrap(), shard, changed_us: at_us, deleted };
        self.say(|| format!("~ publishes {stored:?}"));
        self.master.note(before.as_ref(), &stored.schedule, at_us);
        self.expect_change(&stored);
        if !deleted {
            // Specs are shared: each shard that may need one has it.
            let spec = RunSpec::of(&stored.schedule);
            for store in &mut self.stores {
                store.specs.insert((spec.schedule_uid, spec.generation), spec.clone());
            }
        }
        self.master.schedules.insert(stored.schedule.uid, stored);
        // How far windows were open a moment before.
        let stale = self.now.mono_us - self.master.announced_us < 2 * SECOND_US && self.random.percent(50);
        let opened_us = if stale { self.master.frontier_before_us } else { self.frontier_us() };
        let until_us = may_be_open_until_us(opened_us, self.now.wall_us);
        if let Some(notice) = change.notice(until_us, SHARDS) {
            self.write_down(notice);
        }
    }

    /// What a change makes of the runs that must exist.
    fn expect_change(&mut self, stored: &Stored) {
        let uid = stored.schedule.uid;
        let told = |world: &Self, id: &RunId| world.stores.iter().any(|s| s.runs.contains_key(id));
        let mut doubtful = Vec::new();
        for (id, (schedule, launch_us, kind)) in &self.model.expected {
            if *schedule != uid || *kind != RunKind::Scheduled {
                continue;
            }
            if *launch_us > stored.changed_us {
                doubtful.push((*id, None));
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
        let Some(frontier_us) = self.frontier_us() else { return };
        for launch_us in stored.launches(stored.changed_us, frontier_us - 1) {
            self.model.expect(uid, launch_us, RunKind::Scheduled);
        }
    }

    pub(crate) fn run_by_hand(&mut self) {
        let all: Vec<_> = self.master.schedules.values().filter(|stored| !stored.deleted).cloned().collect();
        let Some(stored) = self.random.pick(&all).cloned() else { return };
        let kind = if self.random.percent(50) { RunKind::Manual } else { RunKind::Backfill };
        let uid = stored.schedule.uid;
        let mut launch_us = self.now.wall_us.div_euclid(1000) * 1000 + 7;
        // The same moment may come again, on a clock that was set back.
        while self.model.expected.contains_key(&RunId::derive(uid, launch_us)) {
            launch_us += 1000;
        }
        self.model.expect(uid, launch_us, kind);
        for _ in 0..=u8::from(self.random.percent(20)) {
            let late_us = self.wait_us(&[0, 0, 2 * SECOND_US, 20 * SECOND_US]);
            let spec = RunSpec::of(&stored.schedule);
            let emission = Box::new((stored.run(launch_us, kind, self.now), spec));
            self.after(late_us, Event::Emit(stored.shard, emission));
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
        for policy in self.master.policies.clone().into_values() {
            let calm = units::in_peace(policy.clone(), self.troubles.units);
            if calm != policy {
                self.publish_policy(Policy { generation: policy.generation + 1, ..calm });
            }
        }
        self.touch_all();
    }

    pub(crate) fn resume_schedules(&mut self) {
        let paused = |stored: &&Stored| !stored.deleted && stored.schedule.pause.is_some();
        for before in self.master.schedules.values().filter(paused).cloned().collect::<Vec<_>>() {
            let after = Schedule { pause: None, ..before.schedule.clone() };
            self.publish(Some(after), Some(before));
        }
    }
}

/// A schedule that does nothing yet.
fn schedule(number: u128) -> Schedule {
    let RunSpec { schedule_uid: uid, namespace, schedule_id: id, target, payload, retry, .. } =
        spec(number, None);
    Schedule {
        uid,
        namespace,
        id,
        description: String::new(),
        timing: Timing { time_zone: "UTC".into(), ..Timing::default() },
        events: 1,
        target,
        payload,
        policy: None,
        policy_uid: None,
        shard: None,
        key: None,
        key_label: None,
        units: 1,
        priority: 5,
        retry: RetryPolicy { backoff_min_ms: 500, ..retry },
        catch_up: CatchUp::default(),
        overlap: OverlapRule::Allow,
        delay_after_finish_s: None,
        finish_by_s: None,
        spread_s: None,
        start_within_s: None,
        start_within_percent: None,
        check_again: CheckAgain { count_max: 2, horizon_s: 60, slot_s: 5, on_guard: OnGuard::Refuse },
        on_finish: None,
        when_done: Default::default(),
        pause: None,
        past_pauses: Vec::new(),
        labels: BTreeMap::new(),
        former_homes: Vec::new(),
        generation: 0,
        created_us: 0,
        updated_us: 0,
    }
}

/// One policy in each shard, and one more.
fn policy_numbers() -> Vec<u128> {
    let first = |shard: u16| (1..).find(|uid| shard_of(Uuid::from_u128(*uid), SHARDS) == shard).unwrap();
    let mut numbers: Vec<u128> = (0..SHARDS).map(first).collect();
    numbers.push((1..).find(|uid| !numbers.contains(uid)).unwrap());
    numbers
}
