//! Where work puts its result, so that what carries it out is compiled once and not for each kind of result.
//!
//! Transactions and statements go through tasks, time-outs and retries. Each of these as a type of its own for each of some
//! 200 kinds of work was a tenth of the program, and of the time to compile it.

use std::sync::{Arc, Mutex, PoisonError};

/// A place for one result. Clones are the same one.
pub(crate) struct Slot<T>(Arc<Mutex<Option<T>>>);

impl<T> Slot<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }

    /// The latest result counts: what is tried again puts another.
    pub(crate) fn put(&self, result: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }

    /// The result, once the work has said that it is done.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
