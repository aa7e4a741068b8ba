//! Named points at which a test can end the process as a power cut would: at once, with nothing flushed or unwound.
//!
//! Product code says [`pass`] with the name of a point, which is nothing without the feature `enabled`. With it, the file that
//! the variable `TOLLGATE_FAULT_POINT` names says which point ends the process, and at which pass: `store.commit.after 3`.
//! It may change while the process runs. The name goes into the file beside it that ends in `.fired`.
//!
//! Invariants: without the variable, nothing happens; a point never returns an error. Not here: which points there are.

/// Passes the point of this name.
#[inline]
pub fn pass(name: &'static str) {
    #[cfg(feature = "enabled")]
    armed::pass(name);
    #[cfg(not(feature = "enabled"))]
    let _ = name;
}

#[cfg(feature = "enabled")]
mod armed {
    #![expect(clippy::disallowed_methods, reason = "a test's own pace; no time of the service")]

    use std::path::PathBuf;
    use std::sync::{LazyLock, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    /// How often the file is read again.
    const READ_EVERY: Duration = Duration::from_millis(20);

    static ORDER: LazyLock<Option<Mutex<Order>>> = LazyLock::new(|| {
        let path = std::env::var_os("TOLLGATE_FAULT_POINT").map(PathBuf::from)?;
        Some(Mutex::new(Order { path, text: String::new(), read: None, passes: 0 }))
    });

    struct Order {
        path: PathBuf,
        text: String,
        read: Option<Instant>,
        /// Of the point that the text names, since it names it.
        passes: u32,
    }

    pub(super) fn pass(name: &str) {
        let Some(order) = &*ORDER else { return };
        // Nothing in here can be left half done.
        order.lock().unwrap_or_else(PoisonError::into_inner).pass(name);
    }

    impl Order {
        fn pass(&mut self, name: &str) {
            if self.read.is_none_or(|read| read.elapsed() >= READ_EVERY) {
                // No file: no order.
                let text = std::fs::read_to_string(&self.path).unwrap_or_default();
                if text != self.text {
                    self.passes = 0;
                    self.text = text;
                }
                self.read = Some(Instant::now());
            }
            let mut words = self.text.split_whitespace();
            if words.next() != Some(name) {
                return;
            }
            self.passes += 1;
            let wanted = words.next().and_then(|word| word.parse().ok()).unwrap_or(1);
            if self.passes >= wanted {
                // The test would else believe that nothing happened; the process ends all the same.
                let _ = std::fs::write(self.path.with_extension("fired"), name);
                std::process::abort();
            }
        }
    }
}
