//! Tests: what the machine does for one run, event, release or message walks nothing of the others.
//!
//! A shard with few neighbours and one with many take the same steps for it, to the last one.

#![expect(clippy::unwrap_used, reason = "tests")]

use uuid::Uuid;

use super::change::ShardSchedule;
use super::control::{Control, Message};
use super::release::{Release, ReleaseOutcome};
use super::steps::steps;
use super::testing::{live_run, policy};
use super::{Context, Effect, Options, Send, Shard, ShardState};
use crate::model::{
    HttpTarget, Limits, MINUTE_US, Now, OverlapRule, Pause, Policy, ReleaseMode, Run, RunId, RunSpec,
    SECOND_US, Sent, Target,
};

/// The first launch time.
const NOON_US: i64 = 1_795_262_400 * SECOND_US;
/// Launch times that the own schedule has ahead.
const AHEAD: i64 = 20;

/// The own schedule, its policy, and how it goes on; the neighbours have larger numbers.
struct World {
    shard: Shard,
    now: Now,
    policy: Policy,
    spec: RunSpec,
    generation: i64,
    messages: u128,
    /// The latest delivery of the own schedule.
    send: Option<Send>,
    /// What each thing took.
    taken: Vec<(&'static str, u64)>,
}

fn policy_of(number: u128) -> Policy {
    Policy { uid: Uuid::from_u128(1 << 64 | number), ..policy(1) }
}

fn of(number: u128, launch_us: i64) -> (Run, RunSpec) {
    let (schedule_uid, policy) = (Uuid::from_u128(2 << 64 | number), policy_of(number));
    let policy_uid = Some(policy.uid);
    let run = live_run(schedule_uid, launch_us);
    let http = HttpTarget::plain(format!("http://{number}/"), 10_000);
    let target = Target::Http { http, release: ReleaseMode::Explicit };
    let spec = RunSpec { policy_uid, target, overlap: OverlapRule::CancelOther, ..(*run.spec).clone() };
    (Run { policy_uid, events: 2, ..run.row }, spec)
}

fn release(send: &Send) -> Release {
    Release {
        run: send.run,
        index: send.index,
        attempt: Some(send.attempt),
        outcome: ReleaseOutcome::Succeeded,
        message: String::new(),
        next_check_us: None,
        cursor: None,
        result: None,
    }
}

impl World {
    /// Each neighbour has a policy with one token, whose consumer holds an event; another one waits for the token, and
    /// one more run is upcoming. The own schedule has `siblings` siblings: runs under its former policy that were cancelled
    /// while their consumers held an event.
    fn new(neighbours: u128, siblings: u128) -> Self {
        let now = Now { wall_us: NOON_US, mono_us: SECOND_US };
        let (own, former) =
            (policy_of(0), Policy { limits: Limits::default(), ..policy_of(u128::from(u64::MAX)) });
        let policies = (1..=neighbours).map(policy_of).chain([own.clone(), former.clone()]).collect();
        let state = ShardState { policies, ..ShardState::default() };
        let shard = Shard::new(0, Options { sends_max: u32::MAX, ..Options::default() }, state, 7, now);
        let spec = of(0, 0).1;
        let mut world =
            Self { shard, now, policy: own, spec, generation: 1, messages: 0, send: None, taken: Vec::new() };
        for number in 1..=neighbours {
            let ((run, spec), (upcoming, _)) = (of(number, NOON_US), of(number, NOON_US + 10 * MINUTE_US));
            world.shard.adopt(vec![run, upcoming], vec![spec], now);
        }
        for number in 1..=siblings {
            let (run, spec) = of(0, NOON_US - i64::try_from(number).unwrap());
            let (overlap, policy_uid) = (OverlapRule::Allow, Some(former.uid));
            let run = Run { generation: 0, ..run };
            world.shard.adopt(vec![run], vec![RunSpec { overlap, generation: 0, policy_uid, ..spec }], now);
        }
        for Send { run, index, attempt, .. } in world.commit() {
            world.shard.sent(run, index, attempt, Sent::Accepted, now);
        }
        world.commit();
        let siblings: Vec<RunId> = world.shard.ledger.runs.under(Some(former.uid)).collect();
        for run in siblings {
            world.shard.cancel(run, String::new(), now);
        }
        world.commit();
        for _ in 0..2 {
            world.shard.begin_read();
        }
        world
    }

    /// What is decided is durable: the deliveries that are made then.
    fn commit(&mut self) -> Vec<Send> {
        let mut sends = Vec::new();
        self.shard.durable_after();
        while self.shard.poll_commit(self.now).is_some() {
            for effect in self.shard.committed(self.now) {
                if let Effect::Send(send) = effect {
                    sends.push(send);
                }
            }
        }
        if let Some(send) = sends.iter().rev().find(|send| send.spec.policy_uid == Some(self.policy.uid)) {
            self.send = Some(send.clone());
        }
        sends
    }

    /// Does something and commits what it comes to.
    fn count(&mut self, what: &'static str, work: impl FnOnce(&mut Self)) {
        let before = steps();
        work(self);
        self.commit();
        self.now.wall_us += SECOND_US;
        self.now.mono_us += SECOND_US;
        self.commit();
        self.taken.push((what, steps() - before));
    }

    fn sent(&mut self, sent: Sent) {
        let send = self.send.clone().unwrap();
        self.shard.sent(send.run, send.index, send.attempt, sent, self.now);
    }

    fn tell(&mut self, control: Control) {
        self.messages += 1;
        let message = Message { id: Uuid::from_u128(self.messages), control };
        self.shard.begin_read();
        self.shard.control(
            message,
            Context { specs: vec![self.spec.clone()], ..Context::default() },
            self.now,
        );
    }

    /// The next generation of the own schedule.
    fn change(&mut self, launches_us: Vec<i64>, pause: Option<Pause>, onward: Vec<u16>) {
        self.generation += 1;
        self.spec.generation = self.generation;
        let schedule = ShardSchedule {
            uid: self.spec.schedule_uid,
            generation: self.generation,
            changed_us: self.now.wall_us,
            until_us: self.now.wall_us + 10 * MINUTE_US,
            launches_us,
            events: 1,
            priority: 5,
            pause,
            ..ShardSchedule::default()
        };
        self.tell(Control::ScheduleChanged {
            schedule,
            namespace: "default".into(),
            schedule_id: "s".into(),
            policy_uid: Some(self.policy.uid),
            onward,
        });
    }
}

/// How many steps each of the things takes that happen to the own schedule.
fn each(neighbours: u128) -> Vec<(&'static str, u64)> {
    let mut world = World::new(neighbours, neighbours);
    let (run, spec) = of(0, NOON_US + 1);
    let id = run.id;
    world.count("a run launches and starts", |world| world.shard.adopt(vec![run], vec![spec], world.now));
    assert_eq!(world.send.as_ref().unwrap().run, id);
    world.count("an unclear answer", |world| {
        world.sent(Sent::Unclear { message: String::new(), retry_after_ms: Some(100) });
        world.shard.caught_up(i64::MAX);
    });
    let attempt = world.send.as_ref().unwrap().attempt;
    assert_eq!(attempt, 2, "it is sent again");
    world.count("a consumer has it", |world| world.sent(Sent::Accepted));
    world.count("a heartbeat", |world| {
        world.shard.extend((id, 0), None, Some(90_000), 1, world.now);
    });
    world.count("a release", |world| {
        let send = world.send.clone().unwrap();
        world.shard.release(release(&send), 1, world.now);
    });
    world.count("a release of what has gone", |world| {
        let gone = Release { index: 99, ..release(&world.send.clone().unwrap()) };
        world.shard.release(gone, 1, world.now);
    });
    world.count("a refusal with the wish for a pause", |world| {
        world.sent(Sent::Refused { message: String::new(), retry_after_ms: Some(500), permanent: false });
    });
    world.count("why it waits", |world| {
        let explanation = world.shard.explain(id, 1, world.now);
        assert!(explanation.is_some());
    });
    // What the neighbours wait for has been seen once.
    world.shard.take_minutes(1, world.now);
    world.count("the history is asked", |world| {
        let rows = world.shard.take_minutes(1, world.now);
        assert!(rows.iter().any(|row| row.counts.waiting > 0 && row.policy_uid.is_some()), "{rows:?}");
    });
    world.count("the next run cancels it", |world| {
        let (run, spec) = of(0, NOON_US + 2);
        world.shard.adopt(vec![run], vec![spec], world.now);
    });
    world.taken
}

/// As [`each`], for changes of the schedule: they look at all of its runs.
fn each_change(neighbours: u128) -> Vec<(&'static str, u64)> {
    let mut world = World::new(neighbours, 3);
    world.count("a schedule changes", |world| {
        let launches = (1..=AHEAD).map(|ahead| world.now.wall_us + ahead * MINUTE_US / 4).collect();
        world.change(launches, None, Vec::new());
    });
    let pause = Pause { reason: String::new(), actor: String::new(), since_us: 0 };
    world.count("it is paused", |world| world.change(Vec::new(), Some(pause.clone()), Vec::new()));
    world.count("it goes on", |world| world.change(Vec::new(), None, Vec::new()));
    world.count("everything is paused", |world| world.tell(Control::PauseShard { pause: Some(pause) }));
    world.count("everything goes on", |world| world.tell(Control::PauseShard { pause: None }));
    world.count("a read", |world| world.shard.begin_read());
    world.taken
}

#[test]
fn what_is_done_for_one_walks_no_others() {
    let (few, many) = (each(100), each(20_000));
    assert_eq!(few, many);
    let (few, many) = (each_change(100), each_change(20_000));
    assert_eq!(few, many);
    assert!(many.iter().any(|(_, steps)| *steps > 0), "{many:?}");
}

/// A policy that changes looks at what holds its own tokens.
#[test]
fn a_policy_that_changes_walks_what_is_its_own() {
    let taken = [100, 20_000].map(|neighbours| {
        let mut world = World::new(neighbours, 0);
        let policy = Policy { generation: 2, ..policy_of(7) };
        world.count("a policy changes", |world| world.tell(Control::PolicyChanged { policy }));
        world.taken[0].1
    });
    assert!(taken[0] == taken[1] && taken[0] > 0, "{taken:?}");
}

/// While very many runs end in a commit that is under way, a read passes none of them by.
#[test]
fn a_read_walks_nothing_that_is_under_way() {
    let mut world = World::new(300, 0);
    let runs: Vec<RunId> = world.shard.ledger.runs.all().map(|run| run.row.id).collect();
    for run in runs {
        world.shard.cancel(run, String::new(), world.now);
    }
    assert!(world.shard.poll_commit(world.now).is_some());
    let before = steps();
    world.shard.begin_read();
    assert_eq!(steps() - before, 0);
    world.shard.committed(world.now);
    world.shard.begin_read();
    assert!(steps() - before >= 300, "they go once they are durable");
}
