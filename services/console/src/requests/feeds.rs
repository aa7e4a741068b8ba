//! Decides how often what happens now is read, and how many pages are told.
//!
//! Invariants: however many pages are open, a namespace is read once for all of them; one visitor's pages take no place from
//! another's; a reading that takes long is followed by a pause that is longer, up to a bound; nothing is read while nobody looks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tollgate_clock::instant_now;

use crate::requests::places::{Place, Places};

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
pub(crate) struct Feeds {
    feeds: Mutex<HashMap<String, Arc<Mutex<Feed>>>>,
    pages: Places,
}

impl Default for Feeds {
    fn default() -> Self {
        Self { feeds: Mutex::default(), pages: Places::new(STREAMS_OF_ONE_MAX, STREAMS_MAX) }
    }
}

impl Feeds {
    /// Room for one more page of a visitor; none where it has too many, or all visitors together.
    pub(crate) fn open(&self, key_id: &str) -> Option<Place> {
        self.pages.take(key_id)
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
