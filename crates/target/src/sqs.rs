//! Sends events to SQS queues, gathered into batches.
//!
//! In: a delivery to an SQS target. Out: a [`Sent`]. Each queue has a task while it has work. It takes what is waiting, up to ten
//! messages, and sends it at once: nothing waits for a batch to fill, and batches fill by themselves when deliveries come
//! faster than calls end. A FIFO queue has one call under way at a time, so that its messages keep their order; others
//! have several. What is not here: retries; the pace of a consumer, which its policy sets.

mod account;
mod batch;
mod message;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tollgate_core::model::{Delivery, Sent, SqsTarget};

use crate::address::Guard;
use crate::cloud_event::Origin;
use crate::{refused, refused_for_good, span, unclear};

use account::{Account, NoClient};
use message::Message;

/// Entries that SQS takes in a batch.
const BATCH_MAX_ENTRIES: usize = 10;
/// Bytes of a batch. SQS takes more, but emulators and older queues do not; a larger message is a batch of its own.
const BATCH_MAX_BYTES: usize = 256 * 1024;
/// Calls under way to one standard queue.
const CALLS_MAX: usize = 8;
/// A queue's task ends after this long without work.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// All SQS targets.
#[derive(Debug)]
pub(crate) struct Sqs {
    account: Arc<Account>,
    origin: Arc<Origin>,
    queues: Arc<Queues>,
}

impl Sqs {
    pub(crate) fn new(guard: Guard, origin: Arc<Origin>, connect_timeout: Duration) -> Self {
        Self { account: Arc::new(Account::new(guard, connect_timeout)), origin, queues: Arc::default() }
    }

    /// Delivers one event once, in a batch with others of its queue.
    pub(crate) async fn send(&self, delivery: &Delivery, target: &SqsTarget) -> Sent {
        let message = match Message::new(delivery, target, &self.origin) {
            Ok(message) => message,
            Err(message) => return refused_for_good(message),
        };
        let (reply, answer) = oneshot::channel();
        self.queues.put(target, Waiting { message, reply }, &self.account);
        answer.await.unwrap_or_else(|_| unclear("SQS: the task that sent the batch ended without an answer"))
    }
}

/// Deliveries with equal keys can share a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct QueueKey {
    queue_url: String,
    region: Option<String>,
    endpoint_url: Option<String>,
    deadline_ms: i64,
}

#[derive(Debug)]
struct Waiting {
    message: Message,
    reply: oneshot::Sender<Sent>,
}

/// The queues that have a task, each with the way to it.
#[derive(Debug, Default)]
struct Queues(Mutex<HashMap<QueueKey, mpsc::UnboundedSender<Waiting>>>);

impl Queues {
    /// Hands a message to its queue's task; starts one where there is none.
    fn put(self: &Arc<Self>, target: &SqsTarget, waiting: Waiting, account: &Arc<Account>) {
        let key = QueueKey {
            queue_url: target.queue_url.clone(),
            region: target.region.clone(),
            endpoint_url: target.endpoint_url.clone(),
            deadline_ms: target.deadline_ms,
        };
        let mut queues = self.lock();
        let waiting = match queues.get(&key) {
            None => waiting,
            Some(queue) => match queue.send(waiting) {
                Ok(()) => return,
                // Its task has gone with the runtime that ran it.
                Err(mpsc::error::SendError(waiting)) => waiting,
            },
        };
        let (queue, arriving) = mpsc::unbounded_channel();
        // The receiver is at hand, so this cannot fail.
        let put = queue.send(waiting);
        debug_assert!(put.is_ok());
        queues.insert(key.clone(), queue);
        let queue = Queue { key, target: target.clone(), account: account.clone(), queues: self.clone() };
        tokio::spawn(Arc::new(queue).run(arriving));
    }

    /// Takes an idle queue out; messages are put in under the same lock, so none is left behind.
    fn retire(&self, key: &QueueKey, arriving: &mpsc::UnboundedReceiver<Waiting>) -> bool {
        let mut queues = self.lock();
        arriving.is_empty() && queues.remove(key).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<QueueKey, mpsc::UnboundedSender<Waiting>>> {
        // Each change is one call on the map, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One queue that has work.
struct Queue {
    key: QueueKey,
    target: SqsTarget,
    account: Arc<Account>,
    queues: Arc<Queues>,
}

impl Queue {
    async fn run(self: Arc<Self>, mut arriving: mpsc::UnboundedReceiver<Waiting>) {
        let calls = if self.key.queue_url.ends_with(".fifo") { 1 } else { CALLS_MAX };
        let calls = Arc::new(Semaphore::new(calls));
        let mut held = None;
        loop {
            let first = match held.take() {
                Some(first) => first,
                None => match tokio::time::timeout(IDLE_MAX, arriving.recv()).await {
                    Ok(Some(first)) => first,
                    Ok(None) => return,
                    Err(_) if self.queues.retire(&self.key, &arriving) => return,
                    Err(_) => continue,
                },
            };
            if first.reply.is_closed() {
                continue;
            }
            let Ok(call) = calls.clone().acquire_owned().await else { return };
            // Lets the others of a burst arrive, and costs no time where there are none.
            tokio::task::yield_now().await;
            let (batch, left) = gather(first, &mut arriving);
            held = left;
            let queue = self.clone();
            tokio::spawn(async move {
                queue.send(batch).await;
                drop(call);
            });
        }
    }

    async fn send(&self, batch: Vec<Waiting>) {
        let messages: Vec<&Message> = batch.iter().map(|waiting| &waiting.message).collect();
        let deadline = span(self.key.deadline_ms);
        let sent = match tokio::time::timeout(deadline, self.account.client(&self.target)).await {
            Ok(Ok(client)) => batch::send(&client, &self.key.queue_url, &messages, deadline).await,
            Ok(Err(NoClient::Target(message))) => vec![refused_for_good(message); messages.len()],
            Ok(Err(NoClient::Region(message))) => vec![refused(message, None); messages.len()],
            Err(_) => vec![
                refused("not sent to SQS: no AWS configuration within the deadline", None);
                messages.len()
            ],
        };
        for (waiting, sent) in batch.into_iter().zip(sent) {
            // Whoever waited may have gone; then nobody wants to know.
            let _ = waiting.reply.send(sent);
        }
    }
}

/// What is waiting, as far as it fits into one call; and the first that does not.
fn gather(
    first: Waiting,
    arriving: &mut mpsc::UnboundedReceiver<Waiting>,
) -> (Vec<Waiting>, Option<Waiting>) {
    let mut bytes = first.message.bytes;
    let mut batch = vec![first];
    while batch.len() < BATCH_MAX_ENTRIES
        && let Ok(next) = arriving.try_recv()
    {
        if next.reply.is_closed() {
            continue;
        }
        bytes += next.message.bytes;
        if bytes > BATCH_MAX_BYTES {
            return (batch, Some(next));
        }
        batch.push(next);
    }
    (batch, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_retires_only_when_nothing_waits() {
        let queues = Queues::default();
        let key = QueueKey { queue_url: "q".into(), region: None, endpoint_url: None, deadline_ms: 1 };
        let (queue, mut arriving) = mpsc::unbounded_channel();
        queues.lock().insert(key.clone(), queue.clone());
        let put = queue.send(Waiting { message: Message::default(), reply: oneshot::channel().0 });
        assert!(put.is_ok() && !queues.retire(&key, &arriving));
        assert!(arriving.try_recv().is_ok() && queues.retire(&key, &arriving));
        assert!(queues.lock().is_empty());
    }
}
