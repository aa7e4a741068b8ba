//! Schedules that change and move to another queue shard while somebody hands over what was read of them before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use tollgate_core::model::{SECOND_US, Schedule, Timing, Trigger};
use tollgate_event_emitter::Options;

use crate::world::{Hooked, Moment, World, cron, due, move_to, schedule, utc};

/// The first emitter has read the schedule as it was, and stands still. Its next generation stands in other tasks, and lives in
/// another shard: the second emitter finds no run of the same launch, and hands over one there. The first one then leaves it out.
#[tokio::test]
async fn a_launch_that_two_generations_have_in_two_shards_has_one_run() {
    let start_us = utc("2025-06-11T08:00:30Z");
    let world = World::new(start_us).await;
    let before = schedule(1, "UTC", vec![Trigger::Interval { every_s: 60, anchor_us: Some(0) }]);
    let other = schedule(2, "UTC", vec![cron("0-59 * * * *")]);
    world.put(&[before.clone(), other.clone()]).await;
    let moved = Schedule {
        generation: 2,
        updated_us: start_us,
        former_homes: vec![1],
        timing: Timing { triggers: other.timing.triggers.clone(), ..before.timing.clone() },
        ..before
    };
    let options = Options { claim: 1, late_after_s: 600, ..Options::default() };
    let (store, second, once) =
        (Arc::clone(&world.store), world.emitter(options.clone()), AtomicBool::new(false));
    let after = moved.clone();
    let hooked = Hooked::new(&world.store, move |called, at| {
        if called != "emit" || at != Moment::Before || once.swap(true, Ordering::SeqCst) {
            return async { Ok(()) }.boxed();
        }
        let (store, second, after) = (Arc::clone(&store), Arc::clone(&second), after.clone());
        async move {
            move_to(&*store, &after, 2).await;
            second.round().await.map(drop)
        }
        .boxed()
    });
    world.hooked(&hooked, options.clone()).round().await.unwrap();
    // Panics if a launch has two runs.
    let runs = world.runs().await;
    let of_moved: Vec<_> = runs.iter().filter(|run| run.schedule_uid == moved.uid).collect();
    assert!(!of_moved.is_empty() && of_moved.iter().all(|run| (run.shard, run.generation) == (2, 2)));
    let report = world.emitter(options).round().await.unwrap();
    assert_eq!(report.windows_incomplete, 0);
    let expected = due(&[moved, other], start_us - 30 * SECOND_US, report.opened_until_us.unwrap());
    assert_eq!(world.launches().await, expected);
}
