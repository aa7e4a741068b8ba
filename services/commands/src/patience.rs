//! How long commands have waited for what they need, as far as this process knows.
//!
//! In: each judgement of the service that sends a command back, and the pause after it. Out: how long it has waited since the
//! first. Invariants: what passes before the first judgement does not count, nor what a pause was longer than it was to be: an
//! outage or a backlog takes no patience; no more than [`COMMANDS_MAX`] are remembered.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The most commands of a queue that are remembered.
const COMMANDS_MAX: usize = 50_000;
/// Where there is no room: how old a judgement is of a command that somebody else has ended.
const FORGOTTEN: Duration = Duration::from_secs(3_600);

/// The commands of one queue that wait, by the ids of their messages.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    waiting: Mutex<BTreeMap<String, Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    waited: Duration,
    judged_at: Instant,
    pause: Duration,
}

impl Patience {
    /// Notes a judgement now, after which a command pauses for so long. How long it has waited; none where there is no room to
    /// remember it.
    pub(crate) fn judged(&self, id: &str, pause: Duration, now: Instant) -> Option<Duration> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = waiting.get_mut(id) {
            let gap = now.saturating_duration_since(one.judged_at);
            one.waited += gap.min(one.pause.saturating_mul(2));
            (one.judged_at, one.pause) = (now, pause);
            return Some(one.waited);
        }
        if waiting.len() >= COMMANDS_MAX {
            waiting.retain(|_, one| now.saturating_duration_since(one.judged_at) < FORGOTTEN);
        }
        if waiting.len() >= COMMANDS_MAX {
            return None;
        }
        waiting.insert(id.to_owned(), Waiting { waited: Duration::ZERO, judged_at: now, pause });
        Some(Duration::ZERO)
    }

    /// A command has come to its end.
    pub(crate) fn forget(&self, id: &str) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_clock::instant_now;

    const PAUSE: Duration = Duration::from_secs(4);

    #[test]
    fn patience_begins_with_the_first_judgement_and_an_outage_takes_none() {
        let (patience, start) = (Patience::default(), instant_now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(patience.judged("a", PAUSE, at(9_000)), Some(Duration::ZERO), "however old it is");
        assert_eq!(patience.judged("a", PAUSE, at(9_005)), Some(Duration::from_secs(5)));
        assert_eq!(patience.judged("a", PAUSE, at(19_005)), Some(Duration::from_secs(13)), "an outage");
        patience.forget("a");
        assert_eq!(patience.judged("a", PAUSE, at(19_006)), Some(Duration::ZERO));
    }

    #[test]
    fn no_more_are_remembered_than_may_be() {
        let (patience, start) = (Patience::default(), instant_now());
        for number in 0..COMMANDS_MAX {
            assert!(patience.judged(&number.to_string(), PAUSE, start).is_some());
        }
        assert_eq!(patience.judged("more", PAUSE, start), None);
        assert!(patience.judged("7", PAUSE, start).is_some(), "who is known stays so");
        assert!(patience.judged("more", PAUSE, start + FORGOTTEN).is_some(), "others have ended elsewhere");
    }
}
