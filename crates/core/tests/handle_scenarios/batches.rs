//! Acquired batches: what is in them is in them only, whatever the store says, and whatever happens.

use tollgate_core::handle::Shard;
use tollgate_core::handle::batch::TokenBatch;
use tollgate_core::handle::change::TokenState;
use tollgate_core::handle::release::Answer;
use tollgate_core::model::*;

use crate::fuzz;
use crate::handle_world::*;
use crate::world::*;

/// Worlds that are played.
const SEEDS: u64 = 32;

#[test]
fn memory_and_store_agree_whatever_happens() {
    for seed in 0..SEEDS {
        let played = std::panic::catch_unwind(|| fuzz::play(seed)).unwrap_or_else(|_| panic!("seed {seed}"));
        assert!(played.commits.iter().any(|changes| !changes.batches_changed.is_empty()), "seed {seed}");
    }
}

/// The store has an event twice: its own row says more than its batch, and it counts once.
#[test]
fn an_event_in_a_batch_and_in_a_row_of_its_own_counts_once() {
    let p = policy(1, at_most(3));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 3), &s);
    let sends = world.accept_all();
    let answer = world.extend((id, 1), None, Some(200_000));
    assert_eq!(answer, Answer::Extended { remaining_ms: 200_000 });
    world.flush();
    let mut state = world.store.state();
    let left = state.batches[0].clone();
    assert_eq!((state.batches.len(), state.tokens.len(), left.contains(1)), (1, 1, false));
    let times = (left.acquired_us, left.delivered_us);
    state.batches = vec![TokenBatch::held_unless((id, 0, 3), times, |_| false)];
    world.shard = Shard::new(0, world.options.clone(), state, 8, world.now);
    assert_eq!(world.held(&p), 3);
    world.shard.durable_after();
    let changes = world.shard.poll_commit(world.now).unwrap().changes;
    assert_eq!(changes.batches_changed, [left], "the next commit puts it right");
    world.store.apply(&changes);
    world.shard.committed(world.now);
    let answer = world.extend((id, 1), None, None);
    assert_eq!(answer, Answer::Extended { remaining_ms: 200_000 }, "its own row counts");
    for send in &sends {
        assert_eq!(world.succeed(send), Answer::Released);
        assert_eq!(world.succeed(send), Answer::NotHeld);
    }
    assert_eq!((world.row(id).state, world.row(id).counts.succeeded), (RunState::Finished, 3));
    assert_eq!((world.held(&p), world.store.batches.len(), world.store.tokens.len()), (0, 0, 0));
}

/// Tokens that change hands one at a time, as under a small policy: the row stays, and grows.
#[test]
fn what_the_next_commits_acquire_goes_into_the_same_batch_for_a_second() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 10), &s);
    let mut held = std::collections::VecDeque::from(world.accept_all());
    let mut next = |world: &mut World| {
        world.succeed(&held.pop_front().unwrap());
        held.extend(world.accept_all());
        world.flush();
    };
    let counts = |world: &World| -> Vec<(u32, u32)> {
        world.store.batches.values().map(|batch| (batch.first, batch.count)).collect()
    };
    next(&mut world);
    next(&mut world);
    assert_eq!(counts(&world), [(0, 4)]);
    let first = world.store.batches[&(id, 0)].clone();
    assert_eq!(first.rows().map(|row| row.index).collect::<Vec<_>>(), [2, 3]);
    // What people read from it since when a consumer has held its token is at most a second off.
    world.sleep_s(1);
    next(&mut world);
    assert_eq!(counts(&world), [(0, 4), (4, 1)]);
    assert_eq!(world.store.batches[&(id, 4)].acquired_us - first.acquired_us, SECOND_US);
    // A next owner goes on where this one was.
    world.restart_after_s(0);
    assert_eq!(world.held(&p), 2);
    next(&mut world);
    assert_eq!(counts(&world), [(4, 2)], "the older one is empty, and has gone");
}

#[test]
fn a_batch_of_which_nothing_is_left_goes() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 4), &s);
    let sends = world.accept_all();
    world.succeed(&sends[0]);
    world.accept_all();
    let empty = TokenBatch::held_unless((id, 3, 1), (START_US, None), |_| true);
    world.store.batches.insert(empty.key(), empty);
    world.restart_after_s(1);
    assert!(!world.store.batches.contains_key(&(id, 3)));
    assert_eq!(world.held(&p), 2);
    world.work_off();
    assert_eq!(world.succeed(&sends[1]), Answer::Released);
}

#[test]
fn a_batch_whose_bits_are_unknown_holds_what_is_nowhere_else() {
    let id = RunId::derive(uuid::Uuid::nil(), 0);
    let batch = TokenBatch::held_unless((id, 5, 11), (7, Some(8)), |index| index < 8 || index == 15);
    let rows: Vec<_> = batch.rows().map(|row| (row.index, row.state, row.delivered_us)).collect();
    let held: Vec<_> = (8..15).map(|index| (index, TokenState::Held, Some(8))).collect();
    assert_eq!((rows, batch.acquired_us), (held, 7));
    assert_eq!((batch.gone(), batch.held()), (&[0b111, 0b100][..], &[0b1111_1000, 0b11][..]));
    let counts = [0, 513].map(|count| TokenBatch::held_unless((id, 0, count), (0, None), |_| false).count);
    assert_eq!(counts, [1, 512]);
}
