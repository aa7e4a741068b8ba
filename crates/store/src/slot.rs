//! Where work puts its result, so that what carries it out is compiled once and not for each kind of result.
//!
//! Transactions and statements go through tasks, time-outs and retries. Each of these as a type of its own for each of some
//! 200 kinds of work was a tenth of the program, and of the time to compile it.

use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::StoreError;
use crate::failure::Failure;

/// The work of a transaction on a connection, whose result is in its slot.
pub(crate) type Work<C> = dyn for<'c> Fn(&'c mut C) -> BoxFuture<'c, Result<(), Failure>> + Send + Sync;

/// A place for one result. Clones are the same one.
pub(crate) struct Slot<T>(Arc<Mutex<Option<T>>>);

impl<T: Send + 'static> Slot<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }

    /// A place, and work that puts its result there.
    pub(crate) fn of<C, F>(work: F) -> (Self, Arc<Work<C>>)
    where
        F: for<'c> Fn(&'c mut C) -> BoxFuture<'c, Result<T, Failure>> + Send + Sync + 'static,
    {
        let slot = Self::new();
        let put = slot.clone();
        let work = for_any_connection(move |connection| {
            let (done, put) = (work(connection), put.clone());
            async move {
                put.put(done.await?);
                Ok(())
            }
            .boxed()
        });
        (slot, Arc::new(work))
    }

    /// The latest result counts: what is tried again puts another.
    pub(crate) fn put(&self, result: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }

    /// The result, once the work has been done.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The same, of work of this name.
    pub(crate) fn result(&self, name: &'static str) -> Result<T, StoreError> {
        self.take().ok_or_else(|| StoreError::Internal(format!("{name}: it ended without a result")))
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Tells the compiler what a closure is for.
pub(crate) fn for_any_connection<C, F>(work: F) -> F
where
    F: for<'c> Fn(&'c mut C) -> BoxFuture<'c, Result<(), Failure>>,
{
    work
}
