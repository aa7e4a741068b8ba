//! Results of events: written with the release that ends the event, once, and within the bounds of their run.

use tollgate_core::handle::Send;
use tollgate_core::handle::change::TokenState;
use tollgate_core::handle::control::Control;
use tollgate_core::handle::release::{Answer, EventResult, Release, ReleaseOutcome};
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::world::*;

fn with(send: &Send, bytes: u32, items: u32) -> Release {
    let body = format!("\"{} {}\"", send.index, send.attempt);
    Release { result: Some(Box::new(EventResult { body, bytes, items })), ..done(send) }
}

/// A world in which all events of a run are at their consumer.
fn held(events: u32) -> (World, RunId, Vec<Send>) {
    let p = policy(1, at_most(100));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let run = world.emit(run(&s, START_US, events), &s);
    let sends = world.accept_all();
    assert_eq!(sends.len(), events as usize);
    (world, run, sends)
}

#[test]
fn a_result_is_durable_with_its_release_and_a_repeat_changes_nothing() {
    let (mut world, run, sends) = held(2);
    assert_eq!(world.release(with(&sends[1], 7, 3)), Answer::Released);
    assert_eq!(world.store.results[&(run, 1)], "\"1 1\"");
    assert_eq!((world.row(run).result_bytes, world.row(run).result_count), (7, 3));
    assert_eq!(world.release(with(&sends[1], 9, 9)), Answer::NotHeld);
    let late = Release { attempt: Some(9), ..with(&sends[0], 9, 9) };
    assert_eq!(world.release(late), Answer::Late);
    assert_eq!((world.row(run).result_bytes, world.store.results.len()), (7, 1));
    // Whoever owns the shard next counts on.
    world.restart_after_s(1);
    assert_eq!(world.release(with(&sends[0], 5, 1)), Answer::Released);
    assert_eq!((world.row(run).result_bytes, world.row(run).result_count), (12, 4));
}

#[test]
fn an_event_that_is_not_ended_well_leaves_no_result() {
    let (mut world, run, sends) = held(3);
    world.release(Release { outcome: ReleaseOutcome::Retry, ..with(&sends[0], 1, 1) });
    world.release(Release { outcome: ReleaseOutcome::Failed, ..with(&sends[1], 1, 1) });
    world.release(Release { next_check_us: Some(START_US + MINUTE_US), ..with(&sends[2], 1, 1) });
    assert!(world.store.results.is_empty() && world.row(run).result_bytes == 0);
    assert!(world.store.tokens.values().all(|token| token.state == TokenState::Waiting));
}

#[test]
fn what_is_too_much_for_a_run_is_refused_and_stays_held() {
    let (mut world, run, sends) = held(3);
    assert_eq!(world.release(with(&sends[0], EventResult::RUN_BYTES_MAX - 1, 1)), Answer::Released);
    let refused = world.release(with(&sends[1], 2, 1));
    assert!(
        matches!(&refused, Answer::Refused { message } if message.starts_with("result: 16777217 bytes")),
        "{refused:?}"
    );
    let refused = world.release(with(&sends[1], 1, EventResult::RUN_ITEMS_MAX));
    assert!(
        matches!(&refused, Answer::Refused { message } if message.contains("at most 100000 items")),
        "{refused:?}"
    );
    assert_eq!((world.store.results.len(), world.row(run).counts.succeeded), (1, 1), "nothing is half done");
    assert_eq!(world.release(with(&sends[1], 1, 1)), Answer::Released);
    assert_eq!(world.release(done(&sends[2])), Answer::Released);
    assert_eq!(world.row(run).state, RunState::Finished);
}

#[test]
fn a_result_that_was_recorded_elsewhere_comes_with_its_release() {
    let (mut world, run, sends) = held(2);
    world.tell(Control::Release { release: with(&sends[0], 7, 1) });
    assert_eq!((world.store.results[&(run, 0)].as_str(), world.row(run).result_bytes), ("\"0 1\"", 7));
    // It was answered: it can be refused no more.
    world.tell(Control::Release { release: with(&sends[1], EventResult::RUN_BYTES_MAX, 1) });
    assert_eq!((world.store.results.len(), world.row(run).state), (2, RunState::Finished));
}
