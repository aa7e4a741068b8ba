//! When runs are expected to end, against when they did: ten loads on the machine itself, with consumers that take as
//! long as they like.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use tollgate_core::expected_end::{Expected, Never};
use tollgate_core::handle::release::Answer;
use tollgate_core::handle::{Options, Outlook, Send};
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::random::Random;
use crate::world::*;

/// For how long a consumer works, in microseconds.
#[derive(Clone, Copy)]
enum Hold {
    Constant(i64),
    Exponential(i64),
    /// Most are short; one in so many is long.
    Bimodal(i64, i64, u64),
}

struct Load {
    name: &'static str,
    limits: Limits,
    hold: Hold,
    /// Schedule, priority, events.
    runs: &'static [(u128, u8, u32)],
}

impl Hold {
    fn us(self, random: &mut Random) -> i64 {
        match self {
            Self::Constant(us) => us,
            Self::Exponential(mean_us) => {
                let part = random.within(1, 1 << 31) as f64 / (1_u64 << 31) as f64;
                (-part.ln() * mean_us as f64) as i64
            }
            Self::Bimodal(short_us, long_us, one_in) => {
                if random.next().is_multiple_of(one_in) {
                    long_us
                } else {
                    short_us
                }
            }
        }
    }
}

fn limits(max_in_flight: Option<u32>, rate_per_s: Option<f64>) -> Limits {
    Limits { max_in_flight, rate_per_s, burst: None }
}

const S: i64 = SECOND_US;

fn loads() -> [Load; 10] {
    use Hold::{Bimodal, Constant, Exponential};
    [
        Load {
            name: "one token, constant",
            limits: at_most(1),
            hold: Constant(2 * S),
            runs: &[(10, 5, 200)],
        },
        Load {
            name: "5 tokens, constant",
            limits: at_most(5),
            hold: Constant(30 * S),
            runs: &[(10, 5, 300)],
        },
        Load {
            name: "5 tokens, exponential",
            limits: at_most(5),
            hold: Exponential(10 * S),
            runs: &[(10, 5, 400)],
        },
        Load {
            name: "50 tokens, exponential",
            limits: at_most(50),
            hold: Exponential(3 * S),
            runs: &[(10, 5, 2_000)],
        },
        Load {
            name: "10 tokens, bimodal",
            limits: at_most(10),
            hold: Bimodal(S, 60 * S, 20),
            runs: &[(10, 5, 800)],
        },
        Load {
            name: "a rate that binds",
            limits: limits(Some(20), Some(2.0)),
            hold: Exponential(3 * S),
            runs: &[(10, 5, 500)],
        },
        Load {
            name: "a rate alone",
            limits: limits(None, Some(5.0)),
            hold: Constant(S),
            runs: &[(10, 5, 600)],
        },
        Load {
            name: "three schedules take turns",
            limits: at_most(6),
            hold: Exponential(5 * S),
            runs: &[(10, 5, 100), (11, 5, 400), (12, 5, 200)],
        },
        Load {
            name: "three priorities",
            limits: at_most(6),
            hold: Exponential(5 * S),
            runs: &[(10, 1, 150), (11, 9, 200), (12, 5, 200)],
        },
        Load {
            name: "turns within priorities, bimodal",
            limits: at_most(20),
            hold: Bimodal(2 * S, 20 * S, 10),
            runs: &[(10, 9, 300), (11, 5, 100), (12, 5, 500), (13, 2, 200)],
        },
    ]
}

fn look(world: &World, id: RunId) -> Option<Outlook> {
    world.shard.outlooks(&[id], world.now).pop().unwrap()
}

/// What was expected of a run, when, and what came.
struct Told {
    run: usize,
    at_us: i64,
    done: u32,
    expected_us: Option<i64>,
}

/// A world in which consumers work off what is sent to them.
struct Play {
    world: World,
    random: Random,
    hold: Hold,
    /// Releases to come.
    working: BinaryHeap<Reverse<(i64, u64)>>,
    sends: BTreeMap<u64, Send>,
    taken: u64,
}

impl Play {
    fn new(load: &Load, seed: u64) -> (Self, Vec<RunId>) {
        let p = Policy { token_ttl_ms: 86_400_000, ..policy(1, load.limits.clone()) };
        let mut world = World::with(Options::default(), vec![p.clone()]);
        let emit = |(schedule, priority, events): &(u128, u8, u32)| {
            let s = spec(*schedule, Some(&p));
            world.emit(Run { priority: *priority, ..run(&s, START_US, *events) }, &s)
        };
        let runs = load.runs.iter().map(emit).collect();
        let (working, sends) = (BinaryHeap::new(), BTreeMap::new());
        (Self { world, random: Random::new(seed), hold: load.hold, working, sends, taken: 0 }, runs)
    }

    fn take(&mut self) {
        for send in self.world.accept_all() {
            let at_us = self.world.now.mono_us + self.hold.us(&mut self.random);
            self.taken += 1;
            self.working.push(Reverse((at_us, self.taken)));
            self.sends.insert(self.taken, send);
        }
    }

    /// The next thing that happens; false once nothing does.
    fn step(&mut self) -> bool {
        self.take();
        let next_us = self.working.peek().map(|Reverse((at_us, _))| *at_us);
        let wake_us = self.world.shard.next_deadline().mono_us;
        let Some(at_us) = next_us.into_iter().chain(wake_us).min() else { return false };
        self.world.sleep_us((at_us - self.world.now.mono_us).max(0));
        if let Some(Reverse((at_us, number))) = self.working.peek().copied()
            && at_us <= self.world.now.mono_us
            && let Some(send) = self.sends.remove(&number)
        {
            self.working.pop();
            self.world.succeed(&send);
        }
        true
    }
}

/// Plays a load; looks at each run when a tenth, a quarter, half and three quarters of all events have ended.
fn play(load: &Load, seed: u64) -> (Vec<Told>, Vec<i64>) {
    let (mut play, runs) = Play::new(load, seed);
    let events: u32 = load.runs.iter().map(|(.., events)| events).sum();
    let mut looks = vec![10, 25, 50, 75];
    let mut told = Vec::new();
    loop {
        let done: u32 = runs.iter().map(|id| play.world.row(*id).counts.total()).sum();
        while looks.first().is_some_and(|percent| done * 100 >= events * percent) {
            let percent = looks.remove(0);
            for (run, id) in runs.iter().enumerate() {
                if let Some(outlook) = look(&play.world, *id) {
                    let (at_us, expected_us) = (play.world.now.wall_us, outlook.end.at_us());
                    told.push(Told { run, at_us, done: percent, expected_us });
                }
            }
        }
        if !play.step() {
            break;
        }
    }
    let ends = runs.iter().map(|id| play.world.row(*id).finished_us.unwrap()).collect();
    (told, ends)
}

/// From a quarter on, a run is expected to end when it does, give or take a quarter of the time that it has left, three
/// average holds, and one that is among the longest: of the last few, one may be such.
#[test]
#[expect(clippy::print_stdout, reason = "the table is for people")]
fn runs_end_when_they_are_expected_to() {
    println!("{:34} {:>4} {:>5} {:>10} {:>10} {:>8}", "load", "run", "done", "expected", "actual", "error");
    let mut worst: f64 = 0.0;
    let mut sum = (0.0, 0.0);
    for load in loads() {
        let (told, ends) = play(&load, 42);
        assert!(!told.is_empty());
        let (mean_s, long_s) = match load.hold {
            Hold::Constant(us) => (us as f64 / 1e6, us as f64 / 1e6),
            Hold::Exponential(us) => (us as f64 / 1e6, us as f64 / 1e6 * 100_f64.ln()),
            Hold::Bimodal(short, long, one_in) => {
                let mean = (short as f64 * (one_in - 1) as f64 + long as f64) / one_in as f64;
                (mean / 1e6, long as f64 / 1e6)
            }
        };
        for Told { run, at_us, done, expected_us } in told {
            let expected_us = expected_us.unwrap_or_else(|| panic!("{}: nothing is expected", load.name));
            let (expected_s, actual_s) =
                ((expected_us - at_us) as f64 / 1e6, (ends[run] - at_us) as f64 / 1e6);
            let error = (expected_s - actual_s) / actual_s.max(mean_s);
            println!(
                "{:34} {:>4} {:>4}% {expected_s:>9.1}s {actual_s:>9.1}s {:>7.1}%",
                load.name,
                load.runs[run].0,
                done,
                error * 100.0
            );
            if done >= 25 {
                let allowed_s = 0.25 * actual_s + 3.0 * mean_s + long_s;
                let off_s = (expected_s - actual_s).abs();
                assert!(off_s <= allowed_s, "{}, {done}%: {off_s} s, more than {allowed_s} s", load.name);
                worst = worst.max(error.abs());
                sum = (sum.0 + error.abs(), sum.1 + 1.0);
            }
        }
    }
    println!("from a quarter on: {:.1}% on average, {:.1}% at worst", sum.0 / sum.1 * 100.0, worst * 100.0);
}

#[test]
fn nothing_is_expected_while_it_cannot_start_and_it_says_why() {
    let mut p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = RunSpec { finish_by_s: Some(3_600), ..spec(10, Some(&p)) };
    let id = world.emit(run(&s, START_US, 10), &s);
    let outlook = |world: &World| look(world, id).unwrap();
    assert!(matches!(outlook(&world).end, Expected::NotKnown(_)), "nothing has ended yet");
    assert_eq!(outlook(&world).late, None, "nothing is known yet");
    let sends = world.accept_all();
    world.sleep_s(10);
    sends.iter().for_each(|send| assert!(matches!(world.succeed(send), Answer::Released)));
    let Expected::At(end_us) = outlook(&world).end else { panic!("{:?}", outlook(&world)) };
    let left_s = (end_us - world.now.wall_us) / SECOND_US;
    assert!((35..=50).contains(&left_s), "8 events, two at a time, 10 s each: {left_s} s");
    world.change_policy(&mut p, |p| p.pause = Some(pause()));
    let paused = Expected::Never(Never::PolicyPaused(p.id.clone()));
    assert_eq!((outlook(&world).end, outlook(&world).late.map(|(_, events)| events)), (paused, Some(6)));
    let gauge = world.shard.status(world.now).gauges.pop().unwrap();
    assert_eq!(
        gauge.drained.and_then(|drained| drained.why_not()).unwrap(),
        format!("never, while the policy {} is paused", p.id)
    );
    assert_eq!(gauge.runs_at_risk, 1, "at once");
    world.change_policy(&mut p, |p| p.pause = None);
    assert_eq!(outlook(&world).late, None);
}

#[test]
fn what_will_be_late_is_counted_before_it_is() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = RunSpec { finish_by_s: Some(100), ..spec(10, Some(&p)) };
    let id = world.emit(run(&s, START_US, 30), &s);
    for _ in 0..3 {
        let sends = world.accept_all();
        world.sleep_s(10);
        sends.iter().for_each(|send| assert_eq!(world.succeed(send), Answer::Released));
    }
    // 3 have ended after 30 s, one begins every 10 s: at 90 s the tenth does, and 20 are left at 100 s.
    let (deadline_us, late) = look(&world, id).unwrap().late.unwrap();
    assert_eq!(deadline_us, START_US + 100 * SECOND_US);
    assert!((19..=21).contains(&late), "{late}");
    let sight = world.shard.sight(world.now);
    let risk = sight.sufferers[0].at_risk.clone().unwrap();
    assert_eq!((risk.events, risk.runs, risk.deadline_us), (late, 1, deadline_us));
    assert_eq!(world.shard.status(world.now).gauges.pop().unwrap().runs_at_risk, 1);
    world.sleep_s(71);
    assert_eq!(world.row(id).counts.expired, 26, "as nobody went on");
}

/// What has lasted for 40 s and goes on keeps the others waiting for as long again, at the least.
#[test]
fn consumers_that_never_end_anything_put_a_deadline_at_risk() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = RunSpec { finish_by_s: Some(100), ..spec(10, Some(&p)) };
    let id = world.emit(run(&s, START_US, 3), &s);
    world.accept_all();
    for (second, late) in [(10, None), (30, None), (40, Some(1)), (55, Some(2))] {
        world.sleep_us(START_US + second * SECOND_US - world.now.wall_us);
        let outlook = look(&world, id).unwrap();
        assert!(matches!(outlook.end, Expected::NotKnown(_)), "{outlook:?}");
        assert_eq!(outlook.late.map(|(_, events)| events), late, "after {second} s");
    }
}

#[test]
fn a_target_that_refuses_everything_starts_nothing_and_says_so() {
    let p = policy(1, at_most(3));
    let mut world = World::with_policy(&p);
    let retry = RetryPolicy { attempts_max: 1_000, ..RetryPolicy::default() };
    let s = RunSpec { finish_by_s: Some(3_600), retry, ..spec(10, Some(&p)) };
    let id = world.emit(run(&s, START_US, 50), &s);
    for _ in 0..30 {
        for send in world.take_sends() {
            let message = "connection refused".to_owned();
            world.answer(&send, Sent::Refused { message, retry_after_ms: None, permanent: false });
        }
        world.sleep_s(1);
    }
    let gauge = world.shard.status(world.now).gauges.pop().unwrap();
    assert_eq!((gauge.started_per_s, gauge.accepted_per_s, gauge.unclear_per_s), (0.0, 0.0, 0.0));
    assert!(gauge.refused_per_s > 0.5, "{}", gauge.refused_per_s);
    assert!(gauge.retrying > 3 && gauge.waiting == 47, "{gauge:?}");
    assert_eq!(gauge.last_error.unwrap().words, "connection refused");
    let never = format!("never, while {} refuses everything", s.target.address());
    assert_eq!(gauge.drained.and_then(|drained| drained.why_not()), Some(never));
    let outlook = look(&world, id).unwrap();
    assert!(matches!(&outlook.end, Expected::Never(Never::TargetRefuses(_))), "{outlook:?}");
    assert!(outlook.late.is_some(), "at risk at once");
}

/// One that is sent again because nobody knew whether it arrived starts once.
#[test]
fn an_unclear_delivery_starts_once() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 1), &s);
    let send = world.take_sends().remove(0);
    world.answer(&send, unclear());
    world.sleep_s(30);
    world.accept_all();
    let gauge = world.shard.status(world.now).gauges.pop().unwrap();
    let counts =
        [gauge.started_per_s, gauge.accepted_per_s, gauge.unclear_per_s].map(|per_s| (per_s * 60.0).round());
    assert_eq!(counts, [1.0, 1.0, 1.0]);
}

/// Each event says truly how many go before it, whatever waits beside it.
#[test]
fn the_place_in_line_is_the_place_in_line() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let holder = spec(9, Some(&p));
    world.emit(run(&holder, START_US, 1), &holder);
    let runs: Vec<(RunId, u32)> =
        [(10, 5, 3), (11, 5, 1), (12, 5, 6), (13, 9, 2), (14, 1, 2), (15, 5, 2), (16, 5, 1)]
            .into_iter()
            .map(|(number, priority, events)| {
                let s = spec(number, Some(&p));
                (world.emit(Run { priority, ..run(&s, START_US, events) }, &s), events)
            })
            .collect();
    let all = runs.iter().flat_map(|(id, events)| (0..*events).map(|index| (*id, index)));
    let place =
        |world: &World, (id, index)| world.shard.explain(id, index, world.now).unwrap().ahead.unwrap();
    let mut told: Vec<(u64, (RunId, u32))> = all.map(|event| (place(&world, event), event)).collect();
    told.sort_unstable_by_key(|(place, _)| *place);
    let places: Vec<u64> = told.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, (0..17).collect::<Vec<u64>>(), "each has a place of its own");
    let mut order = Vec::new();
    loop {
        let sends = world.accept_all();
        let Some(send) = sends.first() else { break };
        order.push((send.run, send.index));
        world.succeed(send);
    }
    assert_eq!(order[1..], told.into_iter().map(|(_, event)| event).collect::<Vec<_>>());
}

/// Whoever asks for one run does not make its owner walk thousands of others.
#[test]
fn nothing_is_said_of_a_run_among_too_many() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let runs: Vec<Run> = (0..5_002).map(|at| run(&s, START_US - at, 1)).collect();
    let last = runs[5_001].id;
    runs.into_iter().for_each(|run| world.store.emit(run, &s));
    world.read_runs();
    let last = look(&world, last).unwrap();
    assert_eq!(last.end.why_not().unwrap(), "not known: more than 5,000 runs wait under its policy");
}

/// Its end is that of the run before, and then its own: also where other schedules wait under the policy.
#[test]
fn a_run_that_waits_for_another_one_of_its_schedule_is_expected_after_it() {
    for others in [0, 12] {
        let p = Policy { token_ttl_ms: 86_400_000, ..policy(1, at_most(2)) };
        let mut world = World::with_policy(&p);
        let s = RunSpec { overlap: OverlapRule::BufferOne, ..spec(10, Some(&p)) };
        let first = world.emit(run(&s, START_US, 10), &s);
        if others > 0 {
            let other = spec(11, Some(&p));
            world.emit(run(&other, START_US, others), &other);
        }
        world.sleep_s(1);
        let second = world.emit(run(&s, START_US + SECOND_US, 4), &s);
        assert!(matches!(look(&world, second).unwrap().end, Expected::NotKnown(_)), "nothing has ended");
        let mut told = None;
        let mut held = world.accept_all();
        for round in 0.. {
            world.sleep_s(10);
            held.iter().for_each(|send| assert!(matches!(world.succeed(send), Answer::Released)));
            held = world.accept_all();
            if round == 1 {
                let (before, after) = (look(&world, first).unwrap().end, look(&world, second).unwrap().end);
                told = after.at_us();
                assert!(before.at_us() < told, "{before:?} {after:?}");
            }
            if held.is_empty() {
                break;
            }
        }
        let (told_us, ended_us) = (told.unwrap(), world.row(second).finished_us.unwrap());
        let off_s = (told_us - ended_us) / SECOND_US;
        assert!(off_s.abs() <= 25, "{others}: {off_s} s off");
        assert_eq!(world.row(second).counts.succeeded, 4);
    }
}

#[test]
fn a_run_behind_one_that_never_ends_is_never_expected() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let retry = RetryPolicy { attempts_max: 1_000, ..RetryPolicy::default() };
    let s = RunSpec { overlap: OverlapRule::BufferOne, retry, ..spec(10, Some(&p)) };
    world.emit(run(&s, START_US, 10), &s);
    world.sleep_s(1);
    let second = world.emit(run(&s, START_US + SECOND_US, 4), &s);
    for _ in 0..30 {
        for send in world.take_sends() {
            world.answer(&send, refused());
        }
        world.sleep_s(2);
    }
    let end = look(&world, second).unwrap().end;
    assert!(matches!(end, Expected::Never(Never::TargetRefuses(_))), "{end:?}");
}
