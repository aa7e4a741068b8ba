//! Ever new inputs for one target, by libFuzzer: those that reach new code are kept, and changed further.
//!
//! `TOLLGATE_FUZZ_TARGET` names it; `tests/run fuzz` builds this with the flags that it needs, and runs it.
#![no_main]

use std::sync::LazyLock;

use tollgate_fuzz::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let wanted = std::env::var("TOLLGATE_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.into_iter().find(|(name, _)| *name == wanted);
    found.unwrap_or_else(|| panic!("TOLLGATE_FUZZ_TARGET={wanted} is no target")).1
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET(input));
