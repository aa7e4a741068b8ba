//! Input from outside, as bytes, through the code that reads it. Each target panics where a promise is broken.
//!
//! In: [`TARGETS`], by name; `corpus/NAME` holds inputs worth keeping, `dictionary/NAME` words worth inserting. Two programs
//! use them: `replay` (a test) does each input of the corpus once, and `coverage` (by `tests/run fuzz`) makes ever new
//! ones, guided by which code they reach.
#![expect(clippy::unwrap_used, reason = "whatever fails, fails the target")]

mod commands;
mod event_id;
mod expression;
mod http_answer;
mod items;
mod proto;
mod yaml;

use std::time::{Duration, Instant};

/// What reads an input.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: [(&str, Target); 7] = [
    ("commands", commands::target),
    ("event_id", event_id::target),
    ("expression", expression::target),
    ("http_answer", http_answer::target),
    ("items", items::target),
    ("proto", proto::target),
    ("yaml", yaml::target),
];

/// How long reading one input may take: 100 ms as released. Unoptimised code is a good deal slower, and other tests run
/// beside this one. What counts the code that it reaches is slower still, and may have to wait for its turn.
const TIME_MAX: Duration = Duration::from_millis(if cfg!(feature = "coverage") {
    15_000
} else if cfg!(debug_assertions) {
    2_500
} else {
    100
});

/// Runs what must be quick.
fn quick<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    let took = start.elapsed();
    assert!(took < TIME_MAX, "{what} took {took:?}");
    result
}
