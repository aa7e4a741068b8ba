//! Sends events to SQS queues, gathered into batches.
//!
//! In: a delivery to an SQS target. Out: a [`Sent`]. Each queue has a task while it has work. It takes what is waiting, up to ten
//! messages, and sends it at once while few calls are under way: nothing waits for a batch to fill. Beyond these a call is made
//! for a full batch only, so that there are as many calls as what comes can fill, and few small ones. A FIFO queue has one call
//! under way at a time, so that its messages keep their order. The time until a message is in a call counts towards its
//! deadline, of which half is left for the call: one whose turn does not come in time is not sent. What is not here: retries;
//! the pace of a consumer, which its policy sets.

mod account;
mod batch;
mod gathered;
mod message;
pub(crate) mod plain;

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
use gathered::{Gathered, WaitingMessage};
use message::SqsMessage;

/// Why a message was not sent whose turn did not come in time.
const TOO_SLOW: &str = "not sent to SQS: the queue's calls are too slow for its deadline";
/// Calls under way to one standard queue, for as few messages as there are.
const CALLS_MAX: usize = 8;
/// Those beyond, for full batches.
const FULL_CALLS_MAX: usize = 56;
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

/// The calls that a queue may have under way.
struct Calls {
    any: Arc<Semaphore>,
    full: Arc<Semaphore>,
}

impl Calls {
    fn of(queue_url: &str) -> Self {
        let (any, full) = if queue_url.ends_with(".fifo") { (1, 0) } else { (CALLS_MAX, FULL_CALLS_MAX) };
        Self { any: Arc::new(Semaphore::new(any)), full: Arc::new(Semaphore::new(full)) }
    }

    /// The next call, while what arrives is gathered.
    async fn take(
        &self,
        gathered: &mut Gathered,
        arriving: &mut mpsc::UnboundedReceiver<WaitingMessage>,
    ) -> Option<OwnedSemaphorePermit> {
        loop {
            gathered.fill(arriving);
            let is_full = gathered.is_full();
            tokio::select! {
                biased;
                call = self.any.clone().acquire_owned() => return call.ok(),
                call = self.full.clone().acquire_owned(), if is_full => return call.ok(),
                Some(next) = arriving.recv(), if !is_full => gathered.push(next),
            }
        }
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
        let calls = Calls::of(&self.key.queue_url);
        let mut gathered = Gathered::new(span(self.key.deadline_ms));
        loop {
            if gathered.namespace().is_none() {
                match self.queues.tasks.next(&self.key, &mut arriving).await {
                    Some(first) => gathered.push(first),
                    None => return,
                }
            }
            let Some(turn) = self.turn(&calls, &mut gathered, &mut arriving).await else {
                // Their senders have given them up, too; the others behind them may have longer.
                gathered.forget_late();
                continue;
            };
            // Lets the others of a burst arrive, and costs no time where there are none.
            tokio::task::yield_now().await;
            gathered.fill(&mut arriving);
            let batch = gathered.take();
            if batch.is_empty() {
                continue;
            }
            let queue = self.clone();
            tokio::spawn(async move {
                queue.send(batch).await;
                drop(turn);
            });
        }
    }

    /// A call of the queue's own, and of those of all queues. None where the first message's turn did not come in time.
    async fn turn(
        &self,
        calls: &Calls,
        gathered: &mut Gathered,
        arriving: &mut mpsc::UnboundedReceiver<WaitingMessage>,
    ) -> Option<(OwnedSemaphorePermit, Place)> {
        let until = gathered.turn_until()?;
        let call = tokio::time::timeout_at(until, calls.take(gathered, arriving)).await.ok()??;
        let queue = &self.key.queue_url;
        let claims =
            [Claim::nearly_all(gathered.namespace()?), Claim::half(("queue", queue)), Claim::half(queue)];
        let place = tokio::time::timeout_at(until, self.queues.shares.take(claims)).await.ok()??;
        Some((call, place))
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
