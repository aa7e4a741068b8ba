//! What a consumer writes down, and how it may behave.
//!
//! An event is in flight for its consumer from the arrival of a request until the consumer starts the call that releases
//! it. That lies within the time in which the service must count it, so the service's own count is never smaller.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tollgate_proto::v1::{ReleaseStatus, ReleaseTokenRequest};

/// One delivery.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The event's id.
    pub event_id: String,
    /// The number of the delivery, from 1.
    pub attempt: u32,
    /// Its index in the run.
    pub index: u32,
    /// How many events the run has.
    pub count: u32,
    /// The last part of the schedule's name.
    pub schedule: String,
    /// The last part of the policy's name; empty where there is none.
    pub policy: String,
    /// Whether the consumer has to release it; otherwise its answer does.
    pub explicit_release: bool,
    /// The run's resource name.
    pub run: String,
    /// The event's launch time, in microseconds since the epoch.
    pub launch_us: i64,
    /// When it came.
    pub arrived_us: i64,
    /// What an earlier run left for this one.
    pub cursor: Option<String>,
    /// The schedule's payload.
    pub data: Value,
}

/// What a consumer does with a delivery.
#[derive(Clone, Debug)]
pub enum Conduct {
    /// Takes it, works, releases.
    Take(Work),
    /// Answers with this status, and forgets it.
    Answer(u16),
    /// Works for so long before it answers that the work is done.
    Answers(Duration),
    /// Reads it, and never answers.
    Hang,
    /// Reads it, and closes the connection.
    Reset,
}

/// The work on one event.
#[derive(Clone, Debug)]
pub struct Work {
    /// How long it takes.
    pub time: Duration,
    /// The releases, one after another; none where it never releases. Name and attempt are filled in where absent.
    pub releases: Vec<ReleaseTokenRequest>,
}

impl Conduct {
    /// Works for a random while of so many milliseconds, and releases once.
    pub fn work(ms: std::ops::Range<u64>) -> Self {
        let time = Duration::from_millis(rand::random_range(ms));
        Self::Take(Work { time, releases: vec![ReleaseTokenRequest::default()] })
    }

    /// Releases at once, with this.
    pub fn release(release: ReleaseTokenRequest) -> Self {
        Self::Take(Work { time: Duration::ZERO, releases: vec![release] })
    }

    /// Takes it, and never releases it.
    pub fn keep() -> Self {
        Self::Take(Work { time: Duration::ZERO, releases: Vec::new() })
    }
}

/// A consumer's notes; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    arrivals: Vec<Arrival>,
    /// From each event in flight to its latest attempt, and whether somebody works on it.
    in_flight: HashMap<String, (u32, bool)>,
    in_flight_max: usize,
    releases: Vec<(String, ReleaseStatus)>,
    problems: Vec<String>,
    /// What went wrong and was tried again.
    troubles: Vec<String>,
}

impl Notes {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap()
    }

    /// Every delivery, in the order of arrival.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.book().arrivals.clone()
    }

    /// How many deliveries there were.
    pub fn arrivals_count(&self) -> usize {
        self.book().arrivals.len()
    }

    /// From each event's id to the attempts with which it came, in order.
    pub fn attempts(&self) -> BTreeMap<String, Vec<u32>> {
        let mut all: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for arrival in &self.book().arrivals {
            all.entry(arrival.event_id.clone()).or_default().push(arrival.attempt);
        }
        all
    }

    /// How many distinct events came of each schedule.
    pub fn events_by_schedule(&self) -> BTreeMap<String, usize> {
        let mut events: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for arrival in self.arrivals() {
            events.entry(arrival.schedule).or_default().insert(arrival.event_id);
        }
        events.into_iter().map(|(schedule, events)| (schedule, events.len())).collect()
    }

    /// Distinct events in flight now.
    pub fn in_flight(&self) -> usize {
        self.book().in_flight.len()
    }

    /// The most distinct events that were in flight at once since the start or the last [`Notes::forget_max`].
    pub fn in_flight_max(&self) -> usize {
        self.book().in_flight_max
    }

    /// Counts the most in flight anew, from what is in flight now.
    pub fn forget_max(&self) {
        let mut book = self.book();
        book.in_flight_max = book.in_flight.len();
    }

    /// The answers to releases, in the order in which they came.
    pub fn releases(&self) -> Vec<(String, ReleaseStatus)> {
        self.book().releases.clone()
    }

    /// How many releases were answered so.
    pub fn released(&self, status: ReleaseStatus) -> usize {
        self.book().releases.iter().filter(|(_, answer)| *answer == status).count()
    }

    /// Checks that every delivery had the right form, came no sooner than its launch time, and bore a larger attempt
    /// than the delivery of the same event before it.
    ///
    /// # Panics
    /// Where one did not.
    pub fn assert_clean(&self) {
        self.assert_sound();
        for (event, attempts) in self.attempts() {
            assert!(
                attempts.is_sorted_by(|earlier, later| earlier < later),
                "{event}: attempts {attempts:?}"
            );
        }
    }

    /// As [`Self::assert_clean`], but deliveries may overtake each other on their way, as when a sender is frozen in
    /// the middle of one.
    ///
    /// # Panics
    /// Where one was not sound.
    pub fn assert_sound(&self) {
        let book = self.book();
        assert!(book.problems.is_empty(), "{} problems: {:#?}", book.problems.len(), book.problems);
        for arrival in &book.arrivals {
            assert!(arrival.arrived_us >= arrival.launch_us, "came before its launch time: {arrival:?}");
        }
    }

    /// Checks that every event came exactly once.
    ///
    /// # Panics
    /// Where one came again.
    pub fn assert_once(&self) {
        let again: Vec<_> = self.attempts().into_iter().filter(|(_, attempts)| attempts.len() > 1).collect();
        assert!(again.is_empty(), "came more than once: {again:?}");
    }

    /// Writes down a delivery; whether its work is to begin, which it is not where the event is being worked on.
    pub(crate) fn arrived(&self, arrival: &Arrival, conduct: &Conduct) -> bool {
        let mut book = self.book();
        book.arrivals.push(arrival.clone());
        let releases = match conduct {
            Conduct::Take(work) => !work.releases.is_empty(),
            Conduct::Answers(_) => true,
            Conduct::Answer(_) | Conduct::Hang | Conduct::Reset => return false,
        };
        let worked_on = book.in_flight.get(&arrival.event_id).is_some_and(|(_, worked_on)| *worked_on);
        let begins = !worked_on && releases;
        book.in_flight.insert(arrival.event_id.clone(), (arrival.attempt, worked_on || begins));
        book.in_flight_max = book.in_flight_max.max(book.in_flight.len());
        begins
    }

    /// The work on an event is done: its latest attempt.
    pub(crate) fn left(&self, event_id: &str) -> Option<u32> {
        self.book().in_flight.remove(event_id).map(|(attempt, _)| attempt)
    }

    pub(crate) fn answered(&self, event_id: String, status: ReleaseStatus) {
        self.book().releases.push((event_id, status));
    }

    pub(crate) fn trouble(&self, text: String) {
        self.book().troubles.push(text);
    }

    /// What there is to say when a test has failed.
    pub(crate) fn show(&self) {
        let book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (arrivals, in_flight) = (book.arrivals.len(), book.in_flight.len());
        #[expect(clippy::print_stderr, reason = "shown with the failed test")]
        {
            eprintln!(
                "a consumer: {arrivals} arrivals, {in_flight} in flight, {:?}, {:?}",
                book.problems, book.troubles
            );
        }
    }

    pub(crate) fn problem(&self, text: String) {
        self.book().problems.push(text);
    }
}
