//! Gathers events of one schedule into requests (CloudEvents, batched content mode), and tells each what became of it.
//!
//! In: an event as JSON, whose target takes several in a request. Out: a [`Sent`] for each. Each schedule has a task while it has
//! work. It takes what is there, waits for further events as long as the target says, and sends them in one request; the next
//! one is gathered meanwhile. The wait counts towards the deadlines of those that are in it, and the earliest of these is the
//! request's. Invariants: no event is in two requests; one whose leave has ended while it waited is in none. Not here: the
//! exchange itself.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};
use tollgate_clock::instant_now;
use tollgate_core::model::{Delivery, HttpBatch, RunSpec, Sent};
use uuid::Uuid;

use crate::leave::Leave;
use crate::tasks::Tasks;
use crate::{not_sent, span, unclear};

/// Media type of a body.
pub(super) const CONTENT_TYPE: &str = "application/cloudevents-batch+json; charset=utf-8";
/// A schedule's task ends after this long without work.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Characters of what is said of one event.
const MESSAGE_CHARS: usize = 200;
/// The longest wait that one event gets by its own wish: a day.
const RETRY_AFTER_MAX_MS: i64 = 86_400_000;

/// Which schedule, and as which generation it was written.
type Key = (Uuid, i64);

/// An event that waits for its request.
struct Waiting {
    /// What it shares with the others, with its secrets in clear.
    spec: Arc<RunSpec>,
    id: String,
    event: Vec<u8>,
    leave: Leave,
    reply: oneshot::Sender<Sent>,
}

/// Events that go together.
pub(super) struct Batch {
    pub(super) spec: Arc<RunSpec>,
    pub(super) body: Bytes,
    pub(super) leave: Leave,
}

/// Sends one request: the verdict, and the body of an answer of 2xx.
pub(super) type Exchange = Arc<dyn Fn(Batch) -> Exchanged + Send + Sync>;
type Exchanged = Pin<Box<dyn Future<Output = (Sent, Vec<u8>)> + Send>>;

/// The schedules that have a task.
pub(super) struct Batches(Arc<Tasks<Key, Waiting>>);

impl Batches {
    pub(super) fn new() -> Self {
        Self(Arc::new(Tasks::new(IDLE_MAX)))
    }

    /// Sends an event with others of its schedule.
    pub(super) async fn send(
        &self,
        delivery: &Delivery,
        event: Vec<u8>,
        limits: &HttpBatch,
        leave: &Leave,
        exchange: impl FnOnce() -> Exchange,
    ) -> Sent {
        let (reply, answer) = oneshot::channel();
        let (spec, id) = (Arc::clone(&delivery.spec), delivery.event_id.as_str().to_owned());
        let key = (spec.schedule_uid, spec.generation);
        self.0.put(key, Waiting { spec, id, event, leave: leave.clone(), reply }, |key, arriving| {
            tokio::spawn(run(Arc::clone(&self.0), key, *limits, arriving, exchange()));
        });
        // Its task answers within the deadline, or has gone with the runtime.
        answer.await.unwrap_or_else(|_| unclear("the task that sends batches has ended"))
    }
}

async fn run(
    tasks: Arc<Tasks<Key, Waiting>>,
    key: Key,
    limits: HttpBatch,
    mut arriving: mpsc::UnboundedReceiver<Waiting>,
    exchange: Exchange,
) {
    let mut left = None;
    loop {
        let first = match left.take() {
            Some(first) => first,
            None => match tasks.next(&key, &mut arriving).await {
                Some(first) => first,
                None => return,
            },
        };
        let (gathered, further) = gather(first, &mut arriving, &limits).await;
        left = further;
        tokio::spawn(go(gathered, Arc::clone(&exchange)));
    }
}

/// What goes into one request; and the first that has no room in it.
async fn gather(
    first: Waiting,
    arriving: &mut mpsc::UnboundedReceiver<Waiting>,
    limits: &HttpBatch,
) -> (Vec<Waiting>, Option<Waiting>) {
    let until = instant_now() + Duration::from_millis(u64::try_from(limits.max_wait_ms).unwrap_or(0));
    let (most, bytes_max) = (limits.max_events as usize, limits.max_bytes as usize);
    let mut bytes = first.event.len();
    let mut gathered = vec![first];
    // Lets the others of a commit arrive, and costs no time where there are none.
    tokio::task::yield_now().await;
    while gathered.len() < most {
        let next = match arriving.try_recv() {
            Ok(next) => next,
            Err(_) => match tokio::time::timeout_at(until, arriving.recv()).await {
                Ok(Some(next)) => next,
                _ => break,
            },
        };
        if bytes + next.event.len() > bytes_max {
            return (gathered, Some(next));
        }
        bytes += next.event.len();
        gathered.push(next);
    }
    (gathered, None)
}

/// Sends them together, and tells each what became of it.
async fn go(mut gathered: Vec<Waiting>, exchange: Exchange) {
    let Some(spec) = gathered.first().map(|waiting| Arc::clone(&waiting.spec)) else { return };
    let deadline = span(spec.target.deadline_ms());
    let withheld = gathered.extract_if(.., |waiting| waiting.leave.check(deadline).is_err());
    for Waiting { leave, reply, .. } in withheld {
        let why = leave.check(deadline).err().map_or_else(String::new, |why| why.to_string());
        tell(reply, not_sent(format!("not sent: {why}")));
    }
    if gathered.is_empty() {
        return;
    }
    let leaves: Vec<Leave> = gathered.iter().map(|waiting| waiting.leave.clone()).collect();
    let body = body_of(gathered.iter().map(|waiting| waiting.event.as_slice()));
    let batch = Batch { spec, body, leave: Leave::together(leaves, deadline) };
    let (sent, answer) = exchange(batch).await;
    let named = if sent == Sent::Accepted { named(&answer) } else { Ok(HashMap::new()) };
    for Waiting { id, reply, .. } in gathered {
        let of_it = match &named {
            Ok(named) => named.get(&id).map_or_else(|| sent.clone(), Named::verdict),
            Err(why) => unclear(format!("the answer to the batch cannot be read: {why}")),
        };
        tell(reply, of_it);
    }
}

fn tell(reply: oneshot::Sender<Sent>, sent: Sent) {
    // Its delivery may have been given up; then nobody wants to know.
    let _gone = reply.send(sent);
}

/// The events as a JSON array.
fn body_of<'a>(events: impl Iterator<Item = &'a [u8]> + Clone) -> Bytes {
    let mut body = BytesMut::with_capacity(events.clone().map(|event| event.len() + 1).sum::<usize>() + 1);
    for event in events {
        body.put_u8(if body.is_empty() { b'[' } else { b',' });
        body.put_slice(event);
    }
    body.put_u8(b']');
    body.freeze()
}

/// What an answer says of single events.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    events: Vec<Named>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    id: String,
    status: String,
    #[serde(default)]
    message: String,
    retry_after_ms: Option<i64>,
}

impl Named {
    fn verdict(&self) -> Sent {
        match self.status.as_str() {
            "ACCEPTED" => Sent::Accepted,
            "REFUSED" => Sent::RefusedAlone { message: self.words(), retry_after_ms: self.wish_ms() },
            other => unclear(format!(
                "the answer to its batch says {other:?}, which is neither ACCEPTED nor REFUSED"
            )),
        }
    }

    fn words(&self) -> String {
        let plain = self.message.chars().take(MESSAGE_CHARS).map(|c| if c.is_control() { ' ' } else { c });
        match plain.collect::<String>() {
            none if none.is_empty() => "refused in the answer to its batch".to_owned(),
            words => words,
        }
    }

    fn wish_ms(&self) -> Option<i64> {
        self.retry_after_ms.map(|wish_ms| wish_ms.clamp(0, RETRY_AFTER_MAX_MS))
    }
}

/// The events that an answer names. One that is no JSON object names none.
fn named(answer: &[u8]) -> Result<HashMap<String, Named>, serde_json::Error> {
    if !answer.trim_ascii_start().starts_with(b"{") {
        return Ok(HashMap::new());
    }
    let answer: Answer = serde_json::from_slice(answer)?;
    Ok(answer.events.into_iter().map(|named| (named.id.clone(), named)).collect())
}
