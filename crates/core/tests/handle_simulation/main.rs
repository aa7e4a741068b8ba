//! A seeded world around two shards: emitters, a master, consumers of every temper, commits that fail or are durable
//! without saying so, reads that are stale when they arrive, owners that die, clocks that jump. After each step the
//! promises are checked; at the end everything must have come to rest.
//!
//! `TOLLGATE_SIM_SEEDS` says how many seeds to try, `TOLLGATE_SIM_SEED` which one to replay.

#![expect(clippy::unwrap_used, reason = "tests")]

mod check;
mod consumer;
#[path = "../handle_world/mod.rs"]
mod handle_world;
mod master;
mod owner;
mod random;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use world::{Fault, Totals, World};

const SEEDS: u64 = 300;

fn env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

fn play(seed: u64, fault: Fault) -> Result<Totals, String> {
    catch_unwind(AssertUnwindSafe(|| World::new(seed, fault).play())).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}

#[test]
fn the_promises_hold_in_every_world() {
    if let Some(seed) = env("TOLLGATE_SIM_SEED") {
        World::new(seed, Fault::None).play();
        return;
    }
    let mut totals = Totals::default();
    for seed in 0..env("TOLLGATE_SIM_SEEDS").unwrap_or(SEEDS) {
        match play(seed, Fault::None) {
            Ok(more) => totals.add(&more),
            Err(text) => panic!("{text}\nreplay with TOLLGATE_SIM_SEED={seed}"),
        }
    }
    // A world in which nothing happens proves nothing.
    assert!(totals.all_seen(), "{totals:?}");
}

#[test]
fn a_seed_is_one_history() {
    assert_eq!(play(11, Fault::None), play(11, Fault::None));
}

#[test]
fn planted_faults_are_seen() {
    let missed: Vec<_> =
        Fault::PLANTED.into_iter().filter(|fault| (0..40).all(|seed| play(seed, *fault).is_ok())).collect();
    assert!(missed.is_empty(), "no check sees {missed:?}");
}
