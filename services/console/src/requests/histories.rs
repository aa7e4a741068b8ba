//! Keeps for some seconds what became of events: charts are looked at again far more often than they change.
//!
//! Invariants: what a key may see is not for another key; a bounded number is kept; what could not be read is not kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tollgate_clock::instant_now;
use tollgate_proto::v1;

use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::range::Range;

/// How long the shortest steps are good; owners write them every 20 seconds.
const FRESH: Duration = Duration::from_secs(5);
/// How long others are.
const FRESH_LONG: Duration = Duration::from_secs(30);
/// The longest step of the first kind.
const SHORT_US: i64 = 60_000_000;
/// The most answers that are kept.
const KEPT_MAX: usize = 256;

/// The visitor's key, whose history, and of which time.
type Key = (String, String, Range);

/// When it was read, and the answer.
type Kept = (Instant, Arc<v1::ListHistoryResponse>);

/// What was read lately.
#[derive(Default)]
pub(crate) struct Histories(Mutex<HashMap<Key, Kept>>);

impl Visit {
    /// What became of the events of a policy or a namespace, up to now.
    pub(crate) async fn history(
        &self,
        parent: &str,
        range: Range,
    ) -> Result<Arc<v1::ListHistoryResponse>, Problem> {
        let key = (self.key_id().to_owned(), parent.to_owned(), range);
        let fresh = if range.step_us <= SHORT_US { FRESH } else { FRESH_LONG };
        let kept = &self.console.histories.0;
        if let Some((at, known)) = kept.lock().await.get(&key)
            && at.elapsed() < fresh
        {
            return Ok(known.clone());
        }
        let read = self.history_of(parent, range.start_us(self.now_us), self.now_us, range.step_us).await?;
        let read = Arc::new(read);
        let mut kept = kept.lock().await;
        if kept.len() >= KEPT_MAX && !kept.contains_key(&key) {
            kept.clear();
        }
        kept.insert(key, (instant_now(), read.clone()));
        Ok(read)
    }

    /// What became of events between two moments.
    pub(crate) async fn history_of(
        &self,
        parent: &str,
        from_us: i64,
        to_us: i64,
        step_us: i64,
    ) -> Result<v1::ListHistoryResponse, Problem> {
        let request = v1::ListHistoryRequest {
            parent: parent.to_owned(),
            from_time: Some(tollgate_proto::convert::timestamp(from_us)),
            to_time: Some(tollgate_proto::convert::timestamp(to_us)),
            step: Some(prost_types::Duration { seconds: step_us / 1_000_000, nanos: 0 }),
        };
        Ok(self.api.handler().list_history(request).await?.into_inner())
    }
}
