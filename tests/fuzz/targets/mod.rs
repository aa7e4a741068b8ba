//! Input from outside, as bytes, through the code that reads it. Each target panics where a promise is broken, and
//! returns what became of the input: inputs with a new answer are worth mutating further.

pub(crate) mod event_id;
pub(crate) mod expression;
pub(crate) mod http_answer;
pub(crate) mod proto;
pub(crate) mod yaml;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// The longest input.
pub(crate) const INPUT_MAX_BYTES: usize = 64 * 1024;

/// How long reading one input may take: 100 ms as released. Unoptimised code is a good deal slower, and other tests run
/// beside this one.
const TIME_MAX: Duration = Duration::from_millis(if cfg!(debug_assertions) { 2_500 } else { 100 });

/// Runs what must be quick.
pub(crate) fn quick<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    let took = start.elapsed();
    assert!(took < TIME_MAX, "{what} took {took:?}");
    result
}

/// A fingerprint of an answer: its text without digits and what stands in quotes.
pub(crate) fn kind(answer: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let unquoted = answer.split('"').step_by(2);
    for part in unquoted {
        part.chars().filter(|c| !c.is_ascii_digit()).for_each(|c| c.hash(&mut hasher));
    }
    hasher.finish()
}
