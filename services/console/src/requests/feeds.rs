//! Decides how often what happens now is read, and how many pages are told.
//!
//! Invariants: however many pages are open, a namespace is read once for all of them; one visitor's pages take no place from
//! another's; a reading that takes long is followed by a pause that is longer, up to a bound; nothing is read while nobody looks.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tollgate_clock::instant_now;

/// How old a reading may be: less than the time between two, so that each page that asks gets a new one.
const FRESH: Duration = Duration::from_millis(1_500);
/// Of the time, at most one part in this many is spent reading, as long as no reading is kept for longer than it may.
const PAUSE: u32 = 10;
/// How long a reading is kept at most: a page whose data is older than ten seconds says that it is not live.
const KEPT_MAX: Duration = Duration::from_secs(5);
/// Feeds that are kept; there is one for each namespace that somebody looks at.
const FEEDS_MAX: usize = 64;
/// Pages of one visitor, by its key, that are told at once: of everybody where nobody logs in.
const STREAMS_OF_ONE_MAX: usize = 100;
/// Pages that are told at once.
const STREAMS_MAX: usize = 2_000;

/// A piece of a page, and when it was read, in microseconds since the epoch.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) text: Arc<str>,
    pub(crate) at_us: i64,
}

/// What happens now in a namespace, as a piece of the page, and what it was made from.
#[derive(Default)]
struct Feed {
    read: Option<(Instant, Duration, Reading)>,
}

/// What is read for all pages together, by namespace and key.
#[derive(Default)]
pub(crate) struct Feeds {
    feeds: Mutex<HashMap<String, Arc<Mutex<Feed>>>>,
    streams: Arc<Streams>,
}

/// How many pages of each visitor are open.
type Streams = std::sync::Mutex<HashMap<String, usize>>;

/// The place of an open page; given back when it is dropped.
pub(crate) struct PagePlace {
    streams: Arc<Streams>,
    of: String,
}

impl PagePlace {
    /// None where the visitor has too many, or all visitors together.
    fn take(streams: &Arc<Streams>, of: &str) -> Option<Self> {
        let mut open = streams.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.get(of).copied().unwrap_or_default();
        if own >= STREAMS_OF_ONE_MAX || open.values().sum::<usize>() >= STREAMS_MAX {
            return None;
        }
        open.insert(of.to_owned(), own + 1);
        Some(Self { streams: streams.clone(), of: of.to_owned() })
    }
}

impl Drop for PagePlace {
    fn drop(&mut self) {
        let mut open = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get_mut(&self.of) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.of)),
        }
    }
}

impl Feeds {
    /// Room for one more page of a visitor; none where it has too many, or all visitors together.
    pub(crate) fn open(&self, key_id: &str) -> Option<PagePlace> {
        PagePlace::take(&self.streams, key_id)
    }

    /// What was read last, not older than it may be: `read` makes it anew.
    pub(crate) async fn latest(
        &self,
        of: String,
        now_us: i64,
        read: impl Future<Output = String>,
    ) -> Reading {
        let feed = {
            let mut feeds = self.feeds.lock().await;
            if feeds.len() >= FEEDS_MAX && !feeds.contains_key(&of) {
                feeds.clear();
            }
            feeds.entry(of).or_default().clone()
        };
        let mut feed = feed.lock().await;
        if let Some((at, took, reading)) = &feed.read
            && at.elapsed() < FRESH.max(*took * PAUSE).min(KEPT_MAX)
        {
            return reading.clone();
        }
        let began = instant_now();
        let reading = Reading { text: read.await.into(), at_us: now_us };
        feed.read = Some((instant_now(), began.elapsed(), reading.clone()));
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_visitor_s_pages_leave_room_for_others() {
        let streams = Arc::default();
        let mut open: Vec<PagePlace> = std::iter::from_fn(|| PagePlace::take(&streams, "tgk_1")).collect();
        assert_eq!(open.len(), STREAMS_OF_ONE_MAX);
        let other = PagePlace::take(&streams, "tgk_2");
        assert!(other.is_some());
        open.pop();
        let again = PagePlace::take(&streams, "tgk_1");
        assert!(again.is_some() && PagePlace::take(&streams, "tgk_1").is_none());
        drop((open, other, again));
        assert!(streams.lock().unwrap_or_else(PoisonError::into_inner).is_empty(), "nothing is kept");
        let all: Vec<PagePlace> = (0..STREAMS_MAX)
            .filter_map(|number| PagePlace::take(&streams, &(number / STREAMS_OF_ONE_MAX).to_string()))
            .collect();
        assert_eq!(all.len(), STREAMS_MAX);
        assert!(PagePlace::take(&streams, "one more").is_none());
    }
}
