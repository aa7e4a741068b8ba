//! What the machine counts by the minute is what has happened, once, whoever had the shard.

use std::collections::BTreeMap;

use tollgate_core::handle::Shard;
use tollgate_core::handle::change::{ShardSchedule, TokenState};
use tollgate_core::handle::control::Control;
use tollgate_core::handle::release::{Release, ReleaseOutcome};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::change::{changed, keep};
use crate::handle_world::*;
use crate::random::Random;
use crate::world::*;

/// Rows as a store keeps them, and the lease under which they are counted.
#[derive(Default)]
struct Rows {
    rows: BTreeMap<(Option<Uuid>, i64, i64), MinuteRow>,
    epoch: i64,
}

impl Rows {
    /// What a process does three times a minute.
    fn write(&mut self, world: &mut World) {
        for row in world.shard.take_minutes(self.epoch, world.now) {
            assert_eq!(row.epoch, self.epoch);
            assert!((row.minute_us..=row.minute_us + MINUTE_US).contains(&row.until_us), "{row:?}");
            let until_us = world.store.counted_until_us.max(Some(row.until_us));
            world.store.counted_until_us = until_us;
            self.rows.insert((row.policy_uid, row.minute_us, row.epoch), row);
        }
    }

    /// All of a policy, or of the namespace.
    fn sum(&self, policy: Option<Uuid>) -> MinuteCounts {
        let mut sum = MinuteCounts::default();
        self.rows.values().filter(|row| row.policy_uid == policy).for_each(|row| sum += row.counts);
        (sum.waiting, sum.held) = (0, 0);
        sum
    }

    fn of_minute(&self, policy: Option<Uuid>, minute: i64) -> MinuteCounts {
        let minute_us = START_US + minute * MINUTE_US;
        self.rows.get(&(policy, minute_us, self.epoch)).map(|row| row.counts).unwrap_or_default()
    }
}

/// What the runs in the store say, of a policy or of all.
fn of_runs(world: &World, policy: Option<Uuid>) -> MinuteCounts {
    let mut sum = MinuteCounts::default();
    for run in world.store.runs.values().filter(|run| policy.is_none() || run.policy_uid == policy) {
        let counts = run.counts;
        sum.succeeded += u64::from(counts.succeeded);
        sum.failed += u64::from(counts.failed);
        sum.dead += u64::from(counts.dead);
        sum.expired += u64::from(counts.expired);
        sum.cancelled += u64::from(counts.cancelled);
        sum.lost += u64::from(counts.lost);
    }
    sum
}

fn release_as(world: &mut World, send: &tollgate_core::handle::Send, outcome: ReleaseOutcome) {
    world.release(Release { outcome, ..done(send) });
}

#[test]
fn each_thing_that_happens_is_counted_once_in_its_minute() {
    let p = policy(1, at_most(2));
    let (mut world, mut rows) = (World::with_policy(&p), Rows::default());
    let uid = Some(p.uid);
    rows.write(&mut world);
    assert_eq!(rows.rows.len(), 0, "a policy to which nothing happens has no row");
    let s = RunSpec { finish_by_s: Some(90), ..spec(10, Some(&p)) };
    let run = world.emit(run(&s, START_US + 10 * SECOND_US, 6), &s);
    world.sleep_s(10);
    let first = world.accept_all();
    assert_eq!(first.len(), 2);
    rows.write(&mut world);
    let counts = rows.of_minute(uid, 0);
    assert_eq!((counts.due, counts.started, counts.waiting, counts.held), (6, 2, 4, 2));
    assert_eq!(rows.of_minute(None, 0), counts, "the whole namespace");
    release_as(&mut world, &first[0], ReleaseOutcome::Succeeded);
    release_as(&mut world, &first[1], ReleaseOutcome::Failed);
    for send in world.take_sends() {
        world.answer(&send, refused());
    }
    world.sleep_s(50);
    rows.write(&mut world);
    let (zero, one) = (rows.of_minute(uid, 0), rows.of_minute(uid, 1));
    assert_eq!((zero.succeeded, zero.failed, zero.started), (1, 1, 6));
    assert!(zero.retried >= 2 && one.due == 0, "{zero:?} {one:?}");
    world.sleep_s(300);
    for _ in 0..20 {
        for send in world.take_sends() {
            world.answer(&send, refused());
        }
        world.sleep_s(10);
        rows.write(&mut world);
    }
    assert_eq!(world.row(run).state, RunState::Finished);
    let sum = rows.sum(uid);
    let outcomes = MinuteCounts { due: 0, started: 0, retried: 0, ..sum };
    assert_eq!(outcomes, of_runs(&world, uid));
    assert_eq!((sum.due, sum.started + sum.expired), (6, 6), "{sum:?}");
    let before = rows.rows.len();
    world.sleep_s(600);
    rows.write(&mut world);
    assert_eq!(rows.rows.len(), before, "nothing happens any more");
}

#[test]
fn what_no_durable_commit_says_is_not_counted() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 2), &s);
    let send = world.accept_all().remove(0);
    world.shard.release(done(&send), 1, world.now);
    assert!(world.shard.poll_commit(world.now).is_some());
    let whole = |world: &mut World| {
        world
            .shard
            .take_minutes(1, world.now)
            .into_iter()
            .find(|row| row.policy_uid.is_none())
            .unwrap()
            .counts
    };
    assert_eq!((whole(&mut world).succeeded, whole(&mut world).started), (0, 1), "its commit is under way");
    // It fails: the machine is dropped, and its successor counts what it does itself.
    world.shard = Shard::new(0, world.options.clone(), world.store.state(), 9, world.now);
    world.settle();
    world.shard.release(Release { attempt: None, ..done(&send) }, 1, world.now);
    world.settle();
    let counts = whole(&mut world);
    assert_eq!((counts.succeeded, counts.started), (1, 1));
}

#[test]
fn a_minute_that_has_ended_is_not_counted_in_again_when_the_clock_goes_back() {
    let p = policy(1, at_most(10));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 3), &s);
    let sends = world.accept_all();
    world.sleep_s(65);
    let minutes = |rows: &[MinuteRow]| {
        let mut all: Vec<i64> = rows.iter().map(|row| (row.minute_us - START_US) / MINUTE_US).collect();
        all.dedup();
        all
    };
    assert_eq!(minutes(&world.shard.take_minutes(1, world.now)), [0, 1]);
    world.now.wall_us -= 30 * SECOND_US;
    for send in &sends {
        world.succeed(send);
    }
    let rows = world.shard.take_minutes(1, world.now);
    assert_eq!(minutes(&rows), [1]);
    assert_eq!(rows[0].counts.succeeded, 3);
}

#[test]
fn spread_events_fall_due_in_their_own_minutes_and_those_of_a_down_time_once() {
    let (p, mut rows) = (policy(1, at_most(1)), Rows::default());
    let uid = Some(p.uid);
    let mut world = World::with_policy(&p);
    let s = RunSpec { spread_s: Some(600), ..spec(10, Some(&p)) };
    world.emit(run(&s, START_US, 600), &s);
    for _ in 0..9 {
        world.sleep_s(20);
        rows.write(&mut world);
    }
    assert_eq!([0, 1, 2].map(|minute| rows.of_minute(uid, minute).due), [61, 60, 60]);
    assert_eq!([0, 1, 2].map(|minute| rows.of_minute(uid, minute).waiting), [60, 120, 180]);
    world.restart_after_s(200);
    rows.epoch += 1;
    rows.write(&mut world);
    assert_eq!(rows.sum(uid).due, 381, "of 380 seconds");
    for _ in 0..20 {
        world.sleep_s(20);
        rows.write(&mut world);
    }
    assert_eq!(rows.sum(uid).due, 600);
    assert_eq!(rows.sum(uid), rows.sum(None));
}

#[test]
fn runs_without_a_policy_count_in_their_namespaces_only() {
    let (mut world, mut rows) = (World::new(), Rows::default());
    for (schedule, namespace) in [(10, "a"), (11, "b"), (12, "b")] {
        let s = RunSpec { namespace: namespace.to_owned(), ..spec(schedule, None) };
        world.emit(run(&s, START_US, 1), &s);
    }
    world.work_off();
    let taken = world.shard.take_minutes(0, world.now);
    let told: Vec<_> =
        taken.iter().map(|row| (row.namespace.as_str(), row.policy_uid, row.counts.succeeded)).collect();
    assert_eq!(told, [("a", None, 1), ("b", None, 2)]);
    rows.write(&mut world);
}

/// The change took effect before the run fell due, and the shard hears of it while all of the run waits.
#[test]
fn a_run_that_is_due_and_edited_is_not_due_once_more() {
    let p = Policy { token_ttl_ms: 3_600_000, ..policy(1, at_most(1)) };
    let uid = Some(p.uid);
    let launch_us = START_US + 30 * SECOND_US;
    for (events, restarts) in [(5, false), (5, true), (3, false), (8, false)] {
        let (mut world, mut rows) = (World::with_policy(&p), Rows::default());
        let first = spec(9, Some(&p));
        world.emit(run(&first, START_US, 1), &first);
        let holder = world.accept_all().remove(0);
        let s = spec(10, Some(&p));
        let id = world.emit(run(&s, launch_us, 5), &s);
        world.sleep_s(70);
        rows.write(&mut world);
        assert_eq!((rows.sum(uid).due, rows.of_minute(uid, 1).waiting), (6, 5));
        if restarts {
            world.restart_after_s(5);
            rows.epoch += 1;
            rows.write(&mut world);
        }
        let new = RunSpec { generation: 2, ..s.clone() };
        let until_us = START_US + 10 * MINUTE_US;
        let row = fence(&new, launch_us - SECOND_US, until_us, vec![launch_us]);
        keep(&mut world, &new);
        world.tell(changed(&new, ShardSchedule { events, ..row }));
        world.flush();
        assert_eq!((world.row(id).generation, world.row(id).events), (2, events));
        world.sleep_s(20);
        rows.write(&mut world);
        assert_eq!(rows.of_minute(uid, 1).waiting, u64::from(events), "it waits as it is now");
        world.release(Release { attempt: None, ..done(&holder) });
        world.work_off();
        world.sleep_s(60);
        rows.write(&mut world);
        assert_eq!(world.row(id).state, RunState::Finished);
        // What fell due before the edit stays counted.
        assert_eq!(rows.sum(uid).due, u64::from(1 + events.max(5)), "{events} {restarts}");
        assert_eq!(rows.sum(uid).succeeded, u64::from(1 + events));
    }
}

/// What waits and is held, as the store has it.
fn standing(world: &World) -> (u64, u64) {
    let rows = &world.store.tokens;
    let retrying = rows.values().filter(|row| row.state == TokenState::Waiting).count();
    let unstarted = world.store.runs.values().filter(|run| run.finished_us.is_none()).map(|run| {
        let spec = &world.store.specs[&(run.schedule_uid, run.generation)];
        let due = |index: u32| {
            let place_us = spec.stagger(run).place_us(index);
            run.launch_us + spec.start_delay_us(run) + place_us <= world.now.wall_us
        };
        (run.next_index..run.events).filter(|index| due(*index)).count()
    });
    ((retrying + unstarted.sum::<usize>()) as u64, (rows.len() - retrying) as u64)
}

/// Many worlds in which events go well, fail, are given back, expire and are cancelled, under owners that come and go.
#[test]
fn sums_are_what_the_runs_say_whatever_happens() {
    let mut all = MinuteCounts::default();
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let policies = [policy(1, at_most(3)), policy(2, at_most(40))];
        let mut world = World::with(Default::default(), policies.to_vec());
        let mut rows = Rows::default();
        for schedule in 10..16 {
            let policy = random.pick(&policies).filter(|_| schedule > 11);
            let s = RunSpec {
                finish_by_s: random.percent(40).then_some(100),
                spread_s: random.percent(30).then_some(200),
                start_within_s: random.percent(20).then_some(100),
                ..spec(schedule, policy)
            };
            let launch_us = START_US + random.within(0, 240) * SECOND_US;
            world.emit(run(&s, launch_us, random.within(1, 30) as u32), &s);
        }
        let ids: Vec<RunId> = world.store.runs.keys().copied().collect();
        for _ in 0..60 {
            for send in world.take_sends() {
                act(&mut world, &mut random, &send);
            }
            if random.percent(2) {
                let run = *random.pick(&ids).unwrap();
                world.tell(Control::CancelRun { run, reason: "no".into() });
            }
            if random.percent(5) {
                let run = *random.pick(&ids).unwrap();
                world.tell(Control::RetryDead { run, indexes: Vec::new() });
            }
            world.sleep_s(random.within(1, 19));
            world.flush();
            rows.write(&mut world);
            let now_us = world.now.wall_us - world.now.wall_us.rem_euclid(MINUTE_US);
            let shown = rows.rows.get(&(None, now_us, rows.epoch)).map(|row| row.counts).unwrap_or_default();
            assert_eq!((shown.waiting, shown.held), standing(&world), "{seed}");
            if random.percent(5) {
                world.restart_after_s(random.within(1, 100));
                rows.epoch += 1;
            }
        }
        world.sleep_s(2_000);
        for send in world.take_sends() {
            act(&mut world, &mut random, &send);
        }
        world.flush();
        rows.write(&mut world);
        let sum = rows.sum(None);
        let expected = of_runs(&world, None);
        // What was dead and lives again has been dead all the same.
        assert!(sum.dead >= expected.dead, "{seed}");
        let outcomes = MinuteCounts { due: 0, started: 0, retried: 0, dead: expected.dead, ..sum };
        assert_eq!(outcomes, expected, "{seed}");
        let events: u64 = world.store.runs.values().map(|run| u64::from(run.events)).sum();
        assert_eq!(sum.due, events, "{seed}: {sum:?}");
        let started: u64 = world.store.runs.values().map(|run| u64::from(run.next_index)).sum();
        assert!(sum.started <= started && sum.started + sum.expired + sum.cancelled >= started, "{seed}");
        for policy in &policies {
            let (sum, expected) = (rows.sum(Some(policy.uid)), of_runs(&world, Some(policy.uid)));
            assert_eq!(
                (sum.succeeded, sum.failed, sum.expired),
                (expected.succeeded, expected.failed, expected.expired)
            );
        }
        all += sum;
    }
    let seen = [all.succeeded, all.failed, all.dead, all.expired, all.cancelled, all.retried];
    assert!(seen.iter().all(|count| *count > 100), "{all:?}");
}

fn act(world: &mut World, random: &mut Random, send: &tollgate_core::handle::Send) {
    match random.within(0, 10) {
        0..=2 => world.answer(send, refused()),
        3 => world.answer(send, unclear()),
        what => {
            world.answer(send, Sent::Accepted);
            let outcome = match what {
                4 => ReleaseOutcome::Failed,
                5 => ReleaseOutcome::Retry,
                _ => ReleaseOutcome::Succeeded,
            };
            if send.explicit_release {
                release_as(world, send, outcome);
            }
        }
    }
}
