//! Sends events to SQS queues, gathered into batches.
//!
//! In: a delivery to an SQS target. Out: a [`Sent`]. Each queue has a task while it has work. It takes what is waiting, up to ten
//! messages, and sends it at once: nothing waits for a batch to fill, and batches fill by themselves when deliveries come
//! faster than calls end. A FIFO queue has one call under way at a time, so that its messages keep their order; others
//! have several. The time until a message is in a call counts towards its deadline, of which half is left for the call: one
//! whose turn does not come in time is not sent. What is not here: retries; the pace of a consumer, which its policy sets.

mod account;
mod batch;
mod message;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tollgate_clock::instant_now;
use tollgate_core::model::{Delivery, Sent, SqsTarget};

use crate::address::GuardedNames;
use crate::cloud_event::EventContext;
use crate::leave::Leave;
use crate::parcel::Parcel;
use crate::shares::{Claim, Place, Shares, key_of};
use crate::tasks::Tasks;
use crate::{TargetOptions, not_sent, refused, refused_for_good, span, unclear};

use account::{Account, NoClient};
use batch::Held;
use message::SqsMessage;

/// Why a message was not sent whose turn did not come in time.
const TOO_SLOW: &str = "not sent to SQS: the queue's calls are too slow for its deadline";
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
    context: Arc<EventContext>,
    queues: Arc<Queues>,
}

impl Sqs {
    pub(crate) fn new(
        options: &TargetOptions,
        names: GuardedNames,
        context: Arc<EventContext>,
        connect_timeout: Duration,
    ) -> Self {
        let account = Account::new(names, connect_timeout, options.sqs_endpoints.clone());
        let shares = Shares::new((options.connections_max / 4).max(1));
        let queues = Arc::new(Queues { tasks: Tasks::new(IDLE_MAX), shares });
        Self { account: Arc::new(account), context, queues }
    }

    /// Delivers one event once, in a batch with others of its queue.
    pub(crate) async fn send(&self, delivery: &Delivery, target: &SqsTarget, leave: Leave) -> Sent {
        let message = match SqsMessage::new(delivery, target, &self.context) {
            Ok(message) => message,
            Err(message) => return refused_for_good(message),
        };
        self.put(message, &delivery.spec.namespace, target, leave).await
    }

    /// Delivers a message that is no event once.
    pub(crate) async fn post(&self, parcel: &Parcel, target: &SqsTarget) -> Sent {
        match SqsMessage::of_parcel(parcel, target) {
            Ok(message) => self.put(message, &parcel.namespace, target, Leave::always()).await,
            Err(message) => refused_for_good(message),
        }
    }

    async fn put(&self, message: SqsMessage, namespace: &str, target: &SqsTarget, leave: Leave) -> Sent {
        let turn_until = leave.turn_until(span(target.deadline_ms));
        let (reply, mut answer) = oneshot::channel();
        let taken = Arc::new(AtomicBool::new(false));
        let namespace = key_of(("namespace", namespace));
        let waiting = WaitingMessage { message, reply, leave, taken: taken.clone(), namespace };
        self.queues.put(target, waiting, &self.account);
        let answered = tokio::time::timeout_at(turn_until, &mut answer).await;
        // The first to take it decides.
        let had_no_turn = !matches!(answered, Ok(Ok(_))) && !taken.swap(true, Ordering::AcqRel);
        let sent = match answered {
            Ok(sent) => sent,
            Err(_) if !had_no_turn => answer.await,
            Err(_) => return not_sent(TOO_SLOW),
        };
        match sent {
            Ok(sent) => sent,
            // The queue's task has seen first that its time had passed.
            Err(_) if had_no_turn && instant_now() >= turn_until => not_sent(TOO_SLOW),
            Err(_) if had_no_turn => not_sent("not sent to SQS: the task that sends batches has ended"),
            Err(_) => unclear("SQS: the task that sent the batch ended without an answer"),
        }
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
struct WaitingMessage {
    message: SqsMessage,
    reply: oneshot::Sender<Sent>,
    leave: Leave,
    /// It has been taken into a batch, or given up.
    taken: Arc<AtomicBool>,
    /// The key of its namespace.
    namespace: u64,
}

impl WaitingMessage {
    /// Takes it into a batch, if its time has not passed.
    fn take(self, deadline: Duration) -> Option<Self> {
        let is_late = instant_now() >= self.leave.turn_until(deadline);
        (!is_late && !self.taken.swap(true, Ordering::AcqRel)).then_some(self)
    }
}

/// The queues that have a task.
#[derive(Debug)]
struct Queues {
    tasks: Tasks<QueueKey, WaitingMessage>,
    /// How many calls each namespace may have at once.
    shares: Shares,
}

impl Queues {
    /// Hands a message to its queue's task.
    fn put(self: &Arc<Self>, target: &SqsTarget, waiting: WaitingMessage, account: &Arc<Account>) {
        let key = QueueKey {
            queue_url: target.queue_url.clone(),
            region: target.region.clone(),
            endpoint_url: target.endpoint_url.clone(),
            deadline_ms: target.deadline_ms,
        };
        self.tasks.put(key, waiting, |key, arriving| {
            let queue = Queue { key, target: target.clone(), account: account.clone(), queues: self.clone() };
            tokio::spawn(Arc::new(queue).run(arriving));
        });
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
    async fn run(self: Arc<Self>, mut arriving: mpsc::UnboundedReceiver<WaitingMessage>) {
        let calls = if self.key.queue_url.ends_with(".fifo") { 1 } else { CALLS_MAX };
        let calls = Arc::new(Semaphore::new(calls));
        let mut held = None;
        loop {
            let first = match held.take() {
                Some(first) => first,
                None => match self.queues.tasks.next(&self.key, &mut arriving).await {
                    Some(first) => first,
                    None => return,
                },
            };
            let deadline = span(self.key.deadline_ms);
            let turn = self.turn(&calls, first.namespace);
            let Ok(Some(turn)) = tokio::time::timeout_at(first.leave.turn_until(deadline), turn).await else {
                // Its sender has given it up, too; the others behind it may have longer.
                continue;
            };
            // Lets the others of a burst arrive, and costs no time where there are none.
            tokio::task::yield_now().await;
            let Some(first) = first.take(deadline) else { continue };
            let (batch, left) = gather(first, &mut arriving, deadline);
            held = left;
            let queue = self.clone();
            tokio::spawn(async move {
                queue.send(batch).await;
                drop(turn);
            });
        }
    }

    /// A call of the queue's own, and of those of all queues.
    async fn turn(&self, calls: &Arc<Semaphore>, namespace: u64) -> Option<(OwnedSemaphorePermit, Place)> {
        let call = calls.clone().acquire_owned().await.ok()?;
        let queue = &self.key.queue_url;
        let claims = [Claim::nearly_all(namespace), Claim::half(("queue", queue)), Claim::half(queue)];
        Some((call, self.queues.shares.take(claims).await?))
    }

    /// Makes one call, within the deadline of each of its messages.
    async fn send(&self, batch: Vec<WaitingMessage>) {
        let messages: Vec<&SqsMessage> = batch.iter().map(|waiting| &waiting.message).collect();
        let leaves: Vec<Leave> = batch.iter().map(|waiting| waiting.leave.clone()).collect();
        let deadline = span(self.key.deadline_ms);
        let first = leaves.iter().map(|leave| leave.until(deadline)).min();
        let until = first.unwrap_or_else(|| instant_now() + deadline);
        let sent = match tokio::time::timeout_at(until, self.account.client(&self.target)).await {
            Ok(Ok(client)) => {
                let held = Held { leaves, deadline, until };
                batch::send(&client, &self.key.queue_url, &messages, held).await
            }
            Ok(Err(NoClient::Target(message))) => vec![refused_for_good(message); messages.len()],
            Ok(Err(NoClient::Region(message))) => vec![refused(message, None); messages.len()],
            Err(_) => {
                vec![not_sent("not sent to SQS: no AWS configuration within the deadline"); messages.len()]
            }
        };
        for (waiting, sent) in batch.into_iter().zip(sent) {
            // The sender may have gone; then nobody wants to know.
            let _ = waiting.reply.send(sent);
        }
    }
}

/// What is waiting, as far as it fits into one call; and the first that does not.
fn gather(
    first: WaitingMessage,
    arriving: &mut mpsc::UnboundedReceiver<WaitingMessage>,
    deadline: Duration,
) -> (Vec<WaitingMessage>, Option<WaitingMessage>) {
    let mut bytes = first.message.bytes;
    let mut batch = vec![first];
    while batch.len() < BATCH_MAX_ENTRIES
        && let Ok(next) = arriving.try_recv()
    {
        if bytes + next.message.bytes > BATCH_MAX_BYTES {
            return (batch, Some(next));
        }
        if let Some(next) = next.take(deadline) {
            bytes += next.message.bytes;
            batch.push(next);
        }
    }
    (batch, None)
}
