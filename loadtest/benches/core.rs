//! What the decisions cost: expressions, launch expressions of a window, the machine of a shard.

#![expect(clippy::unwrap_used, reason = "benchmarks")]

mod machine;
#[path = "machine/neighbours.rs"]
mod neighbours;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use machine::Machine;
use neighbours::Neighbours;
use tollgate_core::emit::{Window, eligible, tasks};
use tollgate_core::model::{Timing, Trigger};
use tollgate_core::plan::Plan;

const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Australia/Lord_Howe",
    "America/Los_Angeles",
    "Africa/Cairo",
];

fn main() {
    divan::main();
}

fn timing(expression: &str) -> Timing {
    let trigger = Trigger::Cron { expression: expression.to_owned() };
    Timing { triggers: vec![trigger], time_zone: "Europe/Berlin".to_owned(), ..Timing::default() }
}

/// From text to children.
#[divan::bench(args = ["30 2 * * *", "*/15 * * * *", "0 9 * * MON-FRI", "15 3 L * *", "0 0 1,15 */2 FRI#2"])]
fn compile(bencher: Bencher, expression: &str) {
    let timing = timing(expression);
    bencher.bench(|| Plan::compile(black_box(&timing), b"seed").unwrap());
}

/// The next hundred launch times.
#[divan::bench(args = ["30 2 * * *", "*/15 * * * *", "15 3 L * *"])]
fn fires(bencher: Bencher, expression: &str) {
    let plan = Plan::compile(&timing(expression), b"seed").unwrap();
    let now_us = 1_795_262_400_000_000;
    bencher
        .counter(ItemsCount::new(100_u32))
        .bench(|| plan.fires_after(black_box(now_us)).take(100).sum::<i64>());
}

/// A minute that begins so many seconds after noon of 2026-11-21.
fn minute(after_s: i64) -> Window {
    let start_us = (1_795_262_400 + after_s) * 1_000_000;
    Window { start_us, end_us: start_us + 60_000_000 }
}

/// Which launch expressions can fire in a minute, in one zone.
#[divan::bench(args = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", ""])]
fn eligible_of_zone(bencher: Bencher, zone: &str) {
    bencher.bench(|| eligible(black_box(zone), minute(0)));
}

/// The tasks of a minute over a registry in which every zone has every launch expression of a day.
#[divan::bench]
fn tasks_of_window(bencher: Bencher) {
    let mut registry: Vec<(String, String)> = Vec::new();
    for zone in ZONES {
        let day = (0..24).flat_map(|hour| eligible(zone, minute(hour * 3_600)));
        registry.extend(day.map(|expression| (zone.to_owned(), expression)));
    }
    registry.sort();
    registry.dedup();
    bencher
        .counter(ItemsCount::new(registry.len()))
        .bench(|| tasks(minute(0), black_box(&registry).iter().map(|(zone, expression)| (zone, expression))));
}

/// One cycle: m answers come in, m tokens are freed and taken again, the commit is durable. Counted in events.
#[divan::bench(args = [1, 64, 1_000, 5_000])]
fn machine_cycle(bencher: Bencher, max_in_flight: u32) {
    let (mut machine, _) = Machine::new(max_in_flight);
    bencher.counter(ItemsCount::new(max_in_flight)).bench_local(|| {
        let commit = machine.answer();
        if machine.committed() == 0 {
            // The run of ten million events has ended.
            (machine, _) = Machine::new(max_in_flight);
        }
        commit
    });
}

/// One event is refused with the wish for a pause, and sent again when that is over; so many schedules with policies of
/// their own have nothing to do with it.
#[divan::bench(args = [1, 1_000, 100_000])]
fn refused_among_policies(bencher: Bencher, neighbours: u32) {
    let mut machine = Neighbours::new(neighbours);
    bencher.bench_local(|| machine.refuse());
}

/// A policy changes; so many others, each with an event that is held, do not.
#[divan::bench(args = [1, 1_000, 100_000])]
fn policy_changed_among_policies(bencher: Bencher, neighbours: u32) {
    let mut machine = Neighbours::new(neighbours);
    bencher.bench_local(|| machine.change_policy());
}
