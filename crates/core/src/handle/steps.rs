//! How many entries of its memory the machine walks, so that tests can hold what it does for one to what that one has.
//!
//! Code that goes from entry to entry of a collection that grows with the shard counts its steps. Outside of this crate's unit
//! tests the count is nothing.

/// Counts as it goes.
pub(super) trait Counted: Iterator + Sized {
    fn counted(self) -> impl Iterator<Item = Self::Item> {
        self.inspect(|_| step())
    }
}

impl<I: Iterator> Counted for I {}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// One entry has been looked at on the way.
#[cfg(test)]
pub(super) fn step() {
    STEPS.set(STEPS.get() + 1);
}

/// One entry has been looked at on the way.
#[cfg(not(test))]
pub(super) const fn step() {}

/// Of this thread, so far.
#[cfg(test)]
pub(super) fn steps() -> u64 {
    STEPS.get()
}
