//! Ends of runs that another run follows: they are wished once they are durable, by whoever owns the shard, until it is done.

use tollgate_core::handle::change::Outcome;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::{Context, Following, Options, ShardState, TakenUp};
use tollgate_core::model::*;
use tollgate_core::own::{Kept, News, Next, Owner, ReadTurns, Setup, Sizes, Standing};

use uuid::Uuid;

use crate::handle_world::*;
use crate::world::*;

fn followed_spec(p: &Policy) -> RunSpec {
    let when = FinishCondition::Always;
    let on_finish = Some(OnFinish { schedule: "report".to_owned(), when, events: None, items: None });
    RunSpec { on_finish, ..spec(10, Some(p)) }
}

#[test]
fn an_end_is_wished_once_durable_and_by_the_next_owner_until_it_is_done() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = followed_spec(&p);
    let run = world.emit(run(&s, START_US, 1), &s);
    assert_eq!(world.work_off(), 1);
    let [(message, end)] = world.ends.as_slice() else { panic!("{:?}", world.ends) };
    let (message, end) = (*message, end.clone());
    assert_eq!(
        (end.of.run, end.of.state, world.row(run).state),
        (run, RunState::Finished, RunState::Finished)
    );
    assert!(matches!(&world.store.inbox[&message].control, Control::RunEnded { end: of } if *of == end));
    // The owner dies before it hears of it; its successor wishes the same.
    world.ends.clear();
    world.restart_after_s(10);
    let stored = world.store.inbox[&message].clone();
    world.shard.begin_read();
    world.shard.control(stored, Context::default(), world.now);
    world.settle();
    assert_eq!(world.ends, [(message, end)]);
    world.shard.followed(message);
    world.flush();
    assert!(world.store.inbox.is_empty());
}

/// The end of a run by an answer is committed at once where another run follows it, and else with what else there is.
#[test]
fn what_follows_an_answer_does_not_wait_for_company() {
    let p = policy(1, at_most(2));
    for (s, is_at_once) in [(followed_spec(&p), true), (spec(10, Some(&p)), false)] {
        let mut s = s;
        if let Target::Http { release, .. } = &mut s.target {
            *release = ReleaseMode::OnResponse;
        }
        let mut world = World::with_policy(&p);
        world.emit(run(&s, START_US, 1), &s);
        let send = world.take_sends().remove(0);
        // Between two ticks of the grid on which such commits go together.
        let grid_us = Options::default().lazy_us;
        world.pass(grid_us - world.now.wall_us.rem_euclid(grid_us) + 1_000);
        world.shard.sent(send.run, send.index, send.attempt, Sent::Accepted, world.now);
        assert_eq!(world.shard.poll_commit(world.now).is_some(), is_at_once);
    }
}

/// The run that follows, of two events, in the same shard. Its spec is in the store.
fn following(world: &mut World, end: &RunEnd, p: &Policy) -> Following {
    let spec = RunSpec { schedule_id: "report".to_owned(), ..spec(20, Some(p)) };
    world.store.specs.insert((spec.schedule_uid, spec.generation), spec.clone());
    let run = Run {
        id: end.next_run(spec.schedule_uid),
        kind: RunKind::Followed,
        predecessor: Some(Box::new(end.of.clone())),
        ..run(&spec, end.launch_us(), 2)
    };
    Following { run, spec }
}

#[test]
fn what_follows_in_the_same_shard_is_made_by_the_commit_that_is_done_with_the_end() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = followed_spec(&p);
    world.emit(run(&s, START_US, 1), &s);
    assert_eq!(world.work_off(), 1);
    let (message, end) = world.ends[0].clone();
    let next = following(&mut world, &end, &p);
    let commits = world.shard.commits();
    assert_eq!(world.shard.follows(message, next.clone(), commits, world.now), TakenUp::Made);
    world.pass(1);
    let commit = world.shard.poll_commit(world.now).expect("nothing waits for company");
    let changes = &commit.changes;
    let made: Vec<RunId> = changes.runs_new.iter().map(|run| run.id).collect();
    assert_eq!((made, changes.inbox_done.as_slice()), (vec![next.run.id], &[message][..]));
    assert_eq!(changes.batches_new[0].run, next.run.id, "its events have their tokens at once");
    world.store.apply(changes);
    assert_eq!(world.shard.committed(world.now).len(), 2, "and leave");
    assert_eq!(world.row(next.run.id).predecessor.as_deref(), Some(&end.of));
    // Nobody waits for it any more.
    assert_eq!(world.shard.follows(message, next, commits + 1, world.now), TakenUp::Known);
}

#[test]
fn a_run_that_ends_twice_is_followed_once_however_late_a_look_is_told() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = followed_spec(&p);
    world.emit(run(&s, START_US, 1), &s);
    assert_eq!(world.work_off(), 1);
    let (first, end) = world.ends[0].clone();
    let next = following(&mut world, &end, &p);
    let looked_at = world.shard.commits();
    world.tell(Control::RunEnded { end: end.clone() });
    world.tell(Control::RunEnded { end });
    let [second, third] = [world.ends[1].0, world.ends[2].0];
    let commits = world.shard.commits();
    assert_eq!(world.shard.follows(first, next.clone(), commits, world.now), TakenUp::Made);
    assert_eq!(world.shard.follows(second, next.clone(), commits, world.now), TakenUp::Known);
    world.settle();
    world.pass(1);
    world.settle();
    assert_eq!(world.work_off(), 2, "one run of two events");
    // It has ended, and memory has forgotten it.
    world.read_runs();
    assert_eq!(world.row(next.run.id).state, RunState::Finished);
    assert_eq!(world.shard.follows(third, next, looked_at, world.now), TakenUp::Outdated);
    world.flush();
    assert!(world.store.inbox.contains_key(&third), "somebody is to look anew");
}

/// The run that follows is over with the commit that makes it, and a read begins: a look that has missed it still counts.
#[test]
fn a_run_that_is_over_at_once_does_not_come_again() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = followed_spec(&p);
    world.emit(run(&s, START_US, 1), &s);
    assert_eq!(world.work_off(), 1);
    let (first, end) = world.ends[0].clone();
    let next = following(&mut world, &end, &p);
    world.tell(Control::RunEnded { end });
    let (second, looked_at) = (world.ends[1].0, world.shard.commits());
    assert_eq!(world.shard.follows(first, next.clone(), looked_at, world.now), TakenUp::Made);
    world.shard.control(
        Message {
            id: Uuid::from_u128(99),
            control: Control::CancelRun { run: next.run.id, reason: String::new() },
        },
        Context::default(),
        world.now,
    );
    world.settle();
    assert_eq!((world.shard.commits(), world.row(next.run.id).state), (looked_at + 1, RunState::Cancelled));
    world.shard.begin_read();
    assert_eq!(world.shard.follows(second, next.clone(), looked_at, world.now), TakenUp::Known);
    world.flush();
    assert_eq!(world.row(next.run.id).state, RunState::Cancelled);
    assert!(world.take_sends().is_empty() && world.store.inbox.is_empty());
}

#[test]
fn a_run_in_a_chain_that_is_cancelled_unread_ends_the_chain() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let of = run(&s, START_US, 1);
    let root = Some(ChainRoot { shard: 3, schedule_uid: s.schedule_uid, run: of.id });
    let before = Predecessor {
        shard: 3,
        run: of.id,
        schedule_id: "first".to_owned(),
        place: 1,
        state: RunState::Finished,
        counts: Counts::default(),
        root,
        items: None,
    };
    let unread =
        Run { kind: RunKind::Followed, predecessor: Some(Box::new(before)), ..run(&s, START_US + 1, 1) };
    // Its spec is not there.
    world.store.runs.insert(unread.id, unread.clone());
    world.tell(Control::CancelRun { run: unread.id, reason: String::new() });
    assert_eq!(world.row(unread.id).state, RunState::Cancelled);
    let [(_, end)] = world.ends.as_slice() else { panic!("{:?}", world.ends) };
    assert_eq!((&end.next, end.of.root), (&None, root), "who waits for the chain is told");
}

#[test]
fn ends_that_wait_stand_in_the_way_of_no_other_message() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = followed_spec(&p);
    for number in 0..300 {
        world.emit(run(&s, START_US - number, 1), &s);
    }
    assert_eq!(world.work_off(), 300);
    let messages: Vec<_> = world.store.inbox.values().map(|m| (m.clone(), Context::default())).collect();
    assert_eq!(messages.len(), 300);
    let setup = Setup {
        shard: 0,
        options: Options::default(),
        turns: ReadTurns::new(Sizes::default()),
        load_ahead_us: MINUTE_US,
    };
    let mut owner: Owner<()> = Owner::new(setup, ShardState::default(), 7, Kept::default(), world.now);
    let Some(Next::Read(_)) = owner.poll(0, Standing::Holds, world.now) else { panic!("it reads first") };
    let news = News { messages, releases_whole: true, complete: true, ..News::default() };
    owner.news(news, world.now);
    let Some(Next::Commit(_)) = owner.poll(0, Standing::Holds, world.now) else { panic!("it wishes") };
    owner.committed(Standing::Holds, world.now);
    owner.woken(world.now);
    let Some(Next::Read(ask)) = owner.poll(0, Standing::Holds, world.now) else { panic!("it reads again") };
    assert_eq!(ask.except.len(), 300, "what waits is not read once more");
    let first = *world.store.inbox.keys().next().unwrap();
    owner.followed(first);
    owner.news(News { releases_whole: true, complete: true, ..News::default() }, world.now);
    owner.woken(world.now);
    let mut next = owner.poll(0, Standing::Holds, world.now);
    while let Some(Next::Commit(_)) = next {
        owner.committed(Standing::Holds, world.now);
        next = owner.poll(0, Standing::Holds, world.now);
    }
    let Some(Next::Read(ask)) = next else { panic!("it reads again") };
    assert_eq!(ask.except.len(), 299);
}

#[test]
fn a_chain_that_comes_back_to_its_beginning_does_not_wait_for_itself() {
    let p = policy(1, at_most(2));
    for overlap in [OverlapRule::BufferOne, OverlapRule::Skip] {
        let mut world = World::with_policy(&p);
        let s = RunSpec { overlap, ..followed_spec(&p) };
        let first = world.emit(run(&s, START_US - 2, 1), &s);
        assert_eq!(world.work_off(), 1);
        let root = world.ends[0].1.of.root;
        assert_eq!(root.map(|root| root.run), Some(first), "its schedule's next run waits for the chain");
        let before = Predecessor {
            shard: 3,
            run: RunId::derive(Uuid::from_u128(77), START_US),
            schedule_id: "report".to_owned(),
            place: 2,
            state: RunState::Finished,
            counts: Counts::default(),
            root,
            items: None,
        };
        let own = run(&s, START_US, 1);
        let own = Run { kind: RunKind::Followed, predecessor: Some(Box::new(before)), ..own };
        world.emit(own, &s);
        assert_eq!(world.work_off(), 1);
        let other = world.emit(run(&s, START_US - 1, 1), &s);
        assert!(world.take_sends().is_empty(), "another run waits, or is skipped");
        let waits = if overlap == OverlapRule::Skip { RunState::Skipped } else { RunState::Waiting };
        assert_eq!(world.row(other).state, waits);
    }
}

#[test]
fn what_cancels_others_waits_for_no_chain() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = RunSpec { overlap: OverlapRule::CancelOther, ..followed_spec(&p) };
    world.emit(run(&s, START_US - 2, 1), &s);
    assert_eq!(world.work_off(), 1);
    // Its chain goes on. The next run goes beside it, and is cancelled by the one after.
    let second = world.emit(run(&s, START_US - 1, 5), &s);
    assert_eq!(world.take_sends().len(), 2);
    let third = world.emit(run(&s, START_US, 1), &s);
    assert_eq!(world.outcomes(second), [(2, 3, Outcome::Cancelled)], "what it has not started");
    assert_eq!(world.row(third).state, RunState::Waiting, "the tokens are the run's before");
}

/// The first step rests for 90 s after a run, and its next run waits for the chain, too. The first run has ended after 10 s, and
/// the second falls due after a minute.
fn restful_chain() -> (World, Uuid, [RunId; 2]) {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let (overlap, delay_after_finish_s) = (OverlapRule::BufferOne, Some(90));
    let s = RunSpec { overlap, delay_after_finish_s, ..followed_spec(&p) };
    let runs = [0, 1].map(|minute| world.emit(run(&s, START_US + minute * MINUTE_US, 1), &s));
    world.sleep_s(10);
    assert_eq!(world.work_off(), 1);
    let (message, end) = world.ends[0].clone();
    assert_eq!(end.of.root.map(|root| root.run), Some(runs[0]), "its next run waits for the chain");
    world.shard.followed(message);
    world.flush();
    (world, s.schedule_uid, runs)
}

#[test]
fn the_rest_counts_from_the_end_of_the_own_run_where_its_chain_ends_within_it() {
    let (mut world, schedule_uid, [first, second]) = restful_chain();
    let until_us = START_US + 100 * SECOND_US;
    assert_eq!(world.store.schedules[&schedule_uid].rest_until_us, until_us);
    world.sleep_s(70);
    world.tell(Control::ChainEnded { schedule_uid, run: first });
    assert_eq!(world.store.schedules[&schedule_uid].rest_until_us, until_us, "the end of a chain is no rest");
    world.sleep_us(20 * SECOND_US - 1);
    assert!(world.take_sends().is_empty(), "it still rests");
    world.sleep_us(1);
    assert_eq!(world.work_off(), 1);
    assert_eq!((world.now.wall_us, world.row(second).state), (until_us, RunState::Finished));
}

#[test]
fn a_chain_that_outlasts_the_rest_of_its_first_step_has_no_rest_of_its_own() {
    let (mut world, schedule_uid, [first, second]) = restful_chain();
    world.sleep_s(100);
    world.restart_after_s(40);
    assert_eq!(
        (world.take_sends().len(), world.row(second).state),
        (0, RunState::Waiting),
        "its chain goes on"
    );
    world.tell(Control::ChainEnded { schedule_uid, run: first });
    assert_eq!(world.work_off(), 1);
    assert_eq!(world.now.wall_us, START_US + 150 * SECOND_US, "at once");
    assert_eq!(world.row(second).state, RunState::Finished);
}
