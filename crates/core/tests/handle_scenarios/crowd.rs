//! A schedule with very many runs, and what is done for one run or for another schedule: that takes no longer for it.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "the work itself is measured")]

use std::time::{Duration, Instant};

use tollgate_core::handle::Context;
use tollgate_core::handle::control::Message;
use tollgate_core::model::*;
use uuid::Uuid;

use crate::change::changed;
use crate::handle_world::*;
use crate::world::*;

/// How long a launch takes, and the change of another schedule, where so many runs of one launch at once.
fn each(runs: u32) -> (Duration, Duration) {
    const CHANGES: u32 = 500;
    let mut world = World::new();
    let crowd = spec(10, None);
    let runs_of = (1..=i64::from(runs)).map(|before_us| run(&crowd, START_US - before_us, 1)).collect();
    world.shard.adopt(runs_of, vec![crowd], world.now);
    let began = Instant::now();
    assert!(world.shard.poll_commit(world.now).is_some());
    let launch = began.elapsed() / runs;
    let began = Instant::now();
    for number in 0..CHANGES {
        let other = spec(1_000 + u128::from(number), None);
        let row = fence(&other, START_US, START_US + MINUTE_US, Vec::new());
        let message = Message { id: Uuid::from_u128(1 + u128::from(number)), control: changed(&other, row) };
        world.shard.control(message, Context::default(), world.now);
    }
    let change = began.elapsed() / CHANGES;
    assert_eq!(world.shard.runs_held(), runs as usize);
    (launch, change)
}

/// Forty times as many make neither ten times as slow; where all are walked, it is forty times.
#[test]
fn what_is_done_for_one_run_walks_no_others() {
    let (few, many) = (each(1_000), each(40_000));
    assert!(many.0 < few.0 * 10, "a launch: {:?} among many, {:?} among few", many.0, few.0);
    assert!(many.1 < few.1 * 10, "a change: {:?} among many, {:?} among few", many.1, few.1);
}
