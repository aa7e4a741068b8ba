//! A seeded world around three shards: handlers that die, freeze, lose the database and hand their shards over; two
//! emitters and two masters that do the same; consumers of every temper; commits that fail, are durable without an
//! answer or long after everybody gave them up; reads that are stale when they arrive; clocks that jump. After each
//! step the promises are checked against a naive model; at the end everything must have come to rest.
//!
//! Read from the environment: `TOLLGATE_SIM_SEEDS` (how many worlds), `TOLLGATE_SIM_SEED` (the one to replay),
//! `TOLLGATE_SIM_VERBOSE` (tells what happens in it), `TOLLGATE_SIM_SECONDS` (go on with new worlds for so long),
//! `TOLLGATE_SIM_BUG` (a part of the name of a planted bug, several with commas; with a seed, its whole name). Bugs of the core
//! are in the copy alone that `./tests/run planted` makes, plays, and passes these to.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "how long a run over many worlds takes"
)]

mod bug;
mod calls;
mod chains;
mod check;
mod commit;
mod consumer;
mod core_bugs;
mod cursors;
mod emitter;
mod fence;
#[path = "../handle_world/mod.rs"]
mod handle_world;
mod master;
mod model;
mod owner;
mod process;
mod random;
mod read;
mod runner;
mod telling;
mod totals;
mod tree;
mod troubles;
mod units;
mod windows;
mod workers;
mod world;

use std::time::{Duration, Instant};

use bug::Bug;
use runner::{env, first_failure, play, play_all};

/// Worlds that are tried without a wish from the environment.
const SEEDS: u64 = 2_000;
/// A planted bug must be found in so many worlds.
const SEEDS_PLANTED: u64 = 10_000;

#[test]
fn the_promises_hold_in_every_world() {
    if let Some(seed) = env("TOLLGATE_SIM_SEED") {
        let bug = std::env::var("TOLLGATE_SIM_BUG").map_or(Bug::None, |name| Bug::named(&name));
        let totals = world::World::new(seed, bug).play();
        println!("seed {seed}: {} steps; {}", totals.steps, totals.table());
        return;
    }
    let end = env("TOLLGATE_SIM_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let seeds = env("TOLLGATE_SIM_SEEDS").unwrap_or(if end.is_some() { u64::MAX } else { SEEDS });
    // A long run tries other worlds than the one before.
    let first = end.map_or(0, |_| std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() << 20);
    let began = Instant::now();
    let (totals, worlds, threads) = play_all(first..first.saturating_add(seeds), Bug::None, end);
    let seconds = began.elapsed().as_secs_f64();
    let per_second = totals.steps as f64 / seconds / threads as f64;
    println!(
        "{worlds} worlds in {seconds:.1} s on {threads} threads, {} steps, {per_second:.0} a second and thread",
        totals.steps
    );
    println!("{}", totals.table());
    // A world in which nothing happens proves nothing.
    let missing = totals.never_seen();
    assert!(worlds < 1_000 || missing.is_empty(), "never seen: {missing:?}");
}

#[test]
fn a_seed_is_one_history() {
    for seed in [11, 12] {
        assert_eq!(play(seed, Bug::None), play(seed, Bug::None));
    }
}

#[test]
fn planted_bugs_are_found() {
    let wanted = std::env::var("TOLLGATE_SIM_BUG").ok();
    let mut missed = Vec::new();
    for bug in Bug::wanted(wanted.as_deref()) {
        // Said before, too: a bug may keep a machine busy for ever.
        println!("{} …", bug.name());
        match first_failure(SEEDS_PLANTED, bug) {
            Some((seed, text)) => {
                let first: String = text.lines().next().unwrap_or_default().chars().take(120).collect();
                println!("{}: found after {} worlds: {first}", bug.name(), seed + 1);
            }
            None => missed.push(bug.name()),
        }
    }
    assert!(missed.is_empty(), "no check sees {missed:?}");
}
