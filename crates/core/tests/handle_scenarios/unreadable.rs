//! Runs whose specs cannot be read: marked, out of everybody's way, and taken in once they can be. What is recorded of one that
//! had been taken in before waits for it.

use tollgate_core::handle::change::Outcome;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::{Context, Options, Send, Shard};
use tollgate_core::model::*;
use tollgate_core::own::{Ask, Kept, Left, News, Next, Owner, ReadTurns, Setup, Sizes, Standing, Why};
use uuid::Uuid;

use crate::handle_world::*;
use crate::world::*;

/// A run whose spec is not there.
fn without_spec(world: &mut World, s: &RunSpec, launch_us: i64) -> RunId {
    let emitted = run(s, launch_us, 3);
    let id = emitted.id;
    world.store.runs.insert(id, emitted);
    world.read_runs();
    id
}

#[test]
fn a_run_is_marked_and_goes_on_once_its_spec_can_be_read() {
    let mut world = World::new();
    let s = spec(10, None);
    let id = without_spec(&mut world, &s, START_US);
    assert_eq!(world.row(id).state, RunState::Unreadable);
    assert!(world.row(id).reason.contains("generation 1"), "{:?}", world.row(id));
    assert!(world.store.emitted(i64::MAX).0.is_empty(), "it is in nobody's way");
    world.read_runs();
    world.restart_after_s(1);
    assert_eq!((world.sends.len(), world.row(id).state), (0, RunState::Unreadable));
    world.store.specs.insert((s.schedule_uid, 1), s);
    world.read_runs();
    assert_eq!(world.work_off(), 3);
    assert_eq!((world.row(id).state, world.row(id).reason.as_str()), (RunState::Finished, ""));
}

#[test]
fn it_can_be_cancelled() {
    let mut world = World::new();
    let s = spec(10, None);
    let id = without_spec(&mut world, &s, START_US);
    world.tell(Control::CancelRun { run: id, reason: "enough".into() });
    assert_eq!(world.outcomes(id), [(0, 3, Outcome::Cancelled)]);
    assert_eq!((world.row(id).state, world.row(id).reason.as_str()), (RunState::Cancelled, "enough"));
    world.store.specs.insert((s.schedule_uid, 1), s);
    world.read_runs();
    assert_eq!((world.work_off(), world.shard.runs_held()), (0, 0));
}

#[test]
fn a_change_of_its_schedule_replaces_it() {
    let mut world = World::new();
    let s = spec(10, None);
    let (stays, goes) = (START_US + 10 * SECOND_US, START_US + 20 * SECOND_US);
    let (stays_id, goes_id) = (without_spec(&mut world, &s, stays), without_spec(&mut world, &s, goes));
    let next = RunSpec { generation: 2, ..s };
    world.store.specs.insert((next.schedule_uid, 2), next.clone());
    world.tell(Control::ScheduleChanged {
        schedule: fence(&next, START_US, START_US + MINUTE_US, vec![stays]),
        namespace: "default".into(),
        schedule_id: "s10".into(),
        policy_uid: None,
        onward: Vec::new(),
    });
    world.read_runs();
    assert!(!world.store.runs.contains_key(&goes_id), "withdrawn");
    world.sleep_s(30);
    assert_eq!(world.work_off(), 1);
    assert_eq!((world.row(stays_id).generation, world.row(stays_id).state), (2, RunState::Finished));
}

/// A run whose spec cannot be read any more, and two events of which consumers hold: its shard's owner does not have it.
fn left_out() -> (World, RunSpec, Vec<Send>) {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 3), &s);
    let sends = world.accept_all();
    world.store.specs.remove(&(s.schedule_uid, 1)).unwrap();
    world.restart_after_s(1);
    assert_eq!((sends.len(), world.shard.runs_held()), (2, 0));
    (world, s, sends)
}

/// Its consumer was told that it is recorded.
#[test]
fn a_recorded_release_waits_until_its_run_can_be_read() {
    let (mut world, s, sends) = left_out();
    world.tell(Control::Release { release: done(&sends[0]) });
    world.sleep_s(120);
    assert_eq!(world.store.inbox.len(), 1, "it waits");
    world.store.specs.insert((s.schedule_uid, 1), s);
    world.hand_over(0);
    assert!(world.store.inbox.is_empty());
    assert_eq!(world.ended(sends[0].run, sends[0].index).unwrap().outcome, Outcome::Succeeded);
    assert_eq!(world.accept_all().len(), 1, "its token is free");
}

/// As one that is taken in later: dead events of it were retried, say.
#[test]
fn a_run_that_is_there_after_all_keeps_no_release_waiting() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    let send = world.accept_all().remove(0);
    assert_eq!(world.row(id).state, RunState::Running);
    let mut state = world.store.state();
    state.left_out.push(id);
    world.shard = Shard::new(0, world.options.clone(), state, 9, world.now);
    world.tell(Control::Release { release: done(&send) });
    assert_eq!((world.store.inbox.len(), world.row(id).state), (0, RunState::Finished));
}

/// What an owner reads next, and the messages that it has carried out before.
fn next_read(owner: &mut Owner<()>, now: Now) -> (Ask, Vec<Uuid>) {
    let mut carried_out = Vec::new();
    loop {
        match owner.poll(0, Standing::Holds, now) {
            Some(Next::Commit(changes)) => {
                carried_out.extend(changes.inbox_done);
                owner.committed(Standing::Holds, now);
            }
            Some(Next::Read(ask)) => return (ask, carried_out),
            other => panic!("it reads: {other:?}"),
        }
    }
}

#[test]
fn a_release_that_waits_for_its_run_stands_in_the_way_of_no_other_message() {
    let (world, s, sends) = left_out();
    let now = world.now;
    let setup = Setup {
        shard: 0,
        options: Options::default(),
        turns: ReadTurns::new(Sizes::default()),
        load_ahead_us: MINUTE_US,
    };
    let mut owner: Owner<()> = Owner::new(setup, world.store.state(), 7, Kept::default(), now);
    let news = |messages: &[&Message]| News {
        messages: messages.iter().map(|message| ((*message).clone(), Context::default())).collect(),
        again: Some((0, RunId::default())),
        releases_whole: true,
        ..News::default()
    };
    let release = Message::release(done(&sends[0]));
    let other = Message { id: Uuid::from_u128(7 << 120), control: Control::PauseShard { pause: None } };
    let (first, _) = next_read(&mut owner, now);
    assert!(first.except.is_empty());
    owner.news(news(&[&release, &other]), now);
    owner.woken(now);
    let (second, carried_out) = next_read(&mut owner, now);
    assert_eq!(carried_out, [other.id]);
    assert_eq!(
        (second.except, owner.passed_over()),
        (vec![release.id], (0, 1)),
        "it is not read again at once"
    );
    owner.news(news(&[]), now);
    // Now and then it is tried again, and once the run can be read, the shard is loaded with it.
    let later = Now { wall_us: now.wall_us + 61 * SECOND_US, mono_us: now.mono_us + 61 * SECOND_US };
    let (third, _) = next_read(&mut owner, later);
    assert_eq!((third.except, third.specs), (vec![], vec![(s.schedule_uid, 1)]));
    owner.news(News { mended: true, ..news(&[&release]) }, later);
    let next = owner.poll(0, Standing::Holds, later);
    assert!(matches!(next, Some(Next::Leave(Left::Reload(Why::Mended)))), "{next:?}");
}
