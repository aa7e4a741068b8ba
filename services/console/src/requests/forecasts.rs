//! Keeps forecasts that were made lately, as they are drawn: drawing a week of a thousand policies takes long as well.
//!
//! Invariants: nobody waits for a long forecast: an older one is given while a new one is made; one forecast of a kind is made
//! at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tollgate_clock::instant_now;

use crate::requests::problem::Problem;

/// How long a forecast is as good as new.
const FRESH: Duration = Duration::from_secs(60);
/// How long a page waits for a new one.
const PATIENCE: Duration = Duration::from_millis(50);
/// One that has not come after this is asked for again.
const GIVEN_UP: Duration = Duration::from_secs(30);
/// The most forecasts that are kept.
const KEPT_MAX: usize = 32;

/// A forecast as it is shown, or why there is none.
pub(crate) type Drawn = Result<String, Problem>;

/// Namespace, policy, span and the visitor's key: what a key may see is not for another key.
pub(crate) type Key = [String; 4];

#[derive(Default)]
struct Entry {
    /// When it was made, and what came of it.
    made: Option<(Instant, Arc<Drawn>)>,
    /// Since when a new one is being made.
    making: Option<Instant>,
}

/// Forecasts that were made lately.
#[derive(Default)]
pub(crate) struct Forecasts(Mutex<HashMap<Key, Entry>>);

impl Forecasts {
    /// The latest one; none where the first is still being made. `make` begins a new one where it is too old.
    pub(crate) async fn latest<F>(self: &Arc<Self>, key: Key, make: F) -> Option<Arc<Drawn>>
    where
        F: Future<Output = Drawn> + Send + 'static,
    {
        let known = {
            let mut all = self.0.lock().await;
            if all.len() >= KEPT_MAX && !all.contains_key(&key) {
                all.clear();
            }
            let entry = all.entry(key.clone()).or_default();
            let known = entry.made.as_ref().map(|(_, drawn)| drawn.clone());
            let fresh = entry.made.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH);
            if fresh || entry.making.is_some_and(|since| since.elapsed() < GIVEN_UP) {
                return known;
            }
            entry.making = Some(instant_now());
            known
        };
        let forecasts = self.clone();
        let making = tokio::spawn(async move {
            let drawn = Arc::new(make.await);
            let made = Some((instant_now(), drawn.clone()));
            forecasts.0.lock().await.insert(key, Entry { made, making: None });
            drawn
        });
        match tokio::time::timeout(PATIENCE, making).await {
            Ok(Ok(drawn)) => Some(drawn),
            _ => known,
        }
    }
}
