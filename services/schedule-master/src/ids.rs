//! Makes ids.

use std::sync::Mutex;

use tollgate_core::model::SECOND_US;
use uuid::{ContextV7, Timestamp, Uuid};

/// Makes ids that sort by time (UUID v7), also those of one millisecond.
pub(crate) struct Ids(Mutex<ContextV7>);

impl Default for Ids {
    fn default() -> Self {
        Self(Mutex::new(ContextV7::new()))
    }
}

impl Ids {
    /// A new id for this moment.
    pub(crate) fn at(&self, at_us: i64) -> Uuid {
        let seconds = u64::try_from(at_us.div_euclid(SECOND_US)).unwrap_or_default();
        let nanos = u32::try_from(at_us.rem_euclid(SECOND_US) * 1000).unwrap_or_default();
        Uuid::new_v7(Timestamp::from_unix(&self.0, seconds, nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_moment_ascend() {
        let ids = Ids::default();
        let made: Vec<Uuid> = (0..1000).map(|_| ids.at(1_780_000_000_000_000)).collect();
        assert!(made.is_sorted());
        assert!(made.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(ids.at(1_780_000_000_001_000) > made[999]);
    }
}
