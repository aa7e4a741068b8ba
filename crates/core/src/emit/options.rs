//! How emitters are tuned.

use crate::model::SECOND_US;

/// Tuning of an emitter. All emitters of an installation should agree in the lengths of windows; nothing is lost if
/// they do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long a window is, in seconds.
    pub window_s: i64,
    /// How far ahead of now windows are opened, in seconds.
    pub ahead_s: i64,
    /// How many children of a scan task are read at once.
    pub page: u32,
    /// How many scan tasks are claimed at once.
    pub claim: u32,
    /// How long other emitters leave a claimed task alone, in seconds. It only saves double work.
    pub lease_s: i64,
    /// A launch that is older than this when it is emitted has been missed, in seconds.
    pub late_after_s: i64,
    /// How long a window may be while an outage is caught up, in seconds.
    pub catch_up_s: i64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            window_s: 60,
            ahead_s: 300,
            page: 1_000,
            claim: 512,
            lease_s: 10,
            late_after_s: 60,
            catch_up_s: 3_600,
        }
    }
}

impl Options {
    /// The length of a window.
    pub fn window_us(&self) -> i64 {
        self.window_s.max(1).saturating_mul(SECOND_US)
    }

    /// How far ahead of now windows are opened.
    pub fn ahead_us(&self) -> i64 {
        self.ahead_s.max(0).saturating_mul(SECOND_US)
    }

    /// For how long a task is claimed.
    pub fn lease_us(&self) -> i64 {
        self.lease_s.max(1).saturating_mul(SECOND_US)
    }

    /// How old a launch is that has been missed.
    pub fn late_after_us(&self) -> i64 {
        self.late_after_s.saturating_mul(SECOND_US)
    }
}
