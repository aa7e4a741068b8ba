//! Ends messages: answers those who asked, hands what is refused to the dead-letter queue, and deletes what is done with.
//!
//! Invariants: a message is deleted only after the service's answer, after its reply has been sent where one was asked for, and
//! after its dead letter where it is refused; a refused message that nobody is told of is not deleted, but comes again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::api::Done;
use crate::backoff::{Backoff, Outage};
use crate::command::{Label, Op};
use crate::counts::{Counts, Ending};
use crate::fault::{Fault, word};
use crate::hands::Place;
use crate::read::VERSION;
use crate::sqs::{BYTES_MAX, MESSAGES_MAX, NotSent, Outgoing, Queue, Received};

/// A message, its place, and what its sender calls it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) message: Received,
    pub(crate) place: Place,
    pub(crate) label: Label,
}

/// What became of a message.
#[derive(Debug)]
pub(crate) enum End {
    Done(Ending, Done),
    Refused(Fault),
    /// It comes again after this time.
    Later(Duration),
}

/// How often what is to be sent or deleted is tried, before the messages go back: others wait for the turn.
const TRIES_MAX: u32 = 6;
/// The most bytes of what is wrong, in an attribute.
const ERROR_BYTES_MAX: usize = 4_000;

/// Ends the messages of one queue.
#[derive(Clone, Debug)]
pub(crate) struct Settler {
    pub(crate) queue: Queue,
    pub(crate) replies: Option<Queue>,
    pub(crate) dead_letters: Option<Queue>,
    pub(crate) counts: Arc<Counts>,
    /// Nothing is tried again any more.
    pub(crate) end: CancellationToken,
}

/// A message that is being ended.
struct Ended {
    held: Held,
    reply: Option<Outgoing>,
    dead: Option<Outgoing>,
    /// For how long it is hidden; none where it is deleted.
    hide: Option<Duration>,
}

/// How long a message is hidden that is refused, and that nobody is told of: twice as long each time.
fn unheard(times: u32) -> Duration {
    Duration::from_secs(30 << times.saturating_sub(1).min(7))
}

impl Settler {
    /// Ends messages, ten at most.
    pub(crate) async fn settle(&self, all: Vec<(Held, End)>) {
        debug_assert!(all.len() <= MESSAGES_MAX, "one call each");
        let mut all: Vec<Ended> = all.into_iter().map(|(held, end)| self.decide(held, end)).collect();
        if let Some(queue) = &self.replies {
            let (count, outage) = (&self.counts.replies, &self.counts.reply_queue);
            self.send(queue, &mut all, (count, outage), |ended| ended.reply.take()).await;
        }
        if let Some(queue) = &self.dead_letters {
            // One by one: each may be as large as a call. What comes again has its dead letter then.
            for ended in all.iter_mut().filter(|ended| ended.hide.is_none()) {
                let one = std::slice::from_mut(ended);
                let (count, outage) = (&self.counts.dead_letters, &self.counts.dead_letter_queue);
                self.send(queue, one, (count, outage), |ended| ended.dead.take()).await;
            }
        }
        let done: Vec<String> = all
            .iter()
            .filter(|ended| ended.hide.is_none())
            .map(|ended| ended.held.message.receipt.clone())
            .collect();
        self.delete(done).await;
        let hidden = all.iter().filter_map(|ended| Some((ended.held.message.receipt.clone(), ended.hide?)));
        let hidden: Vec<(String, Duration)> = hidden.collect();
        if !hidden.is_empty()
            && let Err(said) = self.queue.hide(&hidden).await
        {
            // They come again when they are no longer hidden.
            self.counts.sqs.failed(&said);
        }
        for ended in all {
            drop(ended.held.place);
        }
    }

    fn decide(&self, held: Held, end: End) -> Ended {
        let op = held.label.op;
        let asked = held.label.reply.is_some() && self.replies.is_some();
        match end {
            End::Done(ending, done) => {
                self.counts.ended(op, ending);
                let reply = asked.then(|| self.reply(&held, ending, Ok(&done)));
                Ended { held, reply, dead: None, hide: None }
            }
            End::Refused(fault) => {
                let reply = asked.then(|| self.reply(&held, Ending::Refused, Err(&fault)));
                let dead = self.dead_letters.is_some().then(|| self.dead_letter(&held, &fault));
                let is_told = reply.is_some() || dead.is_some();
                self.log(&held, &fault, is_told);
                self.counts.ended(op, Ending::Refused);
                let hide = (!is_told).then(|| unheard(held.message.times));
                Ended { held, reply, dead, hide }
            }
            End::Later(span) => {
                self.counts.ended(op, Ending::Later);
                Ended { held, reply: None, dead: None, hide: Some(span) }
            }
        }
    }

    fn log(&self, held: &Held, fault: &Fault, is_told: bool) {
        let Held { message, label, .. } = held;
        let (queue, fault) = (&self.counts.queue, fault.text());
        let id = label.id.as_deref().unwrap_or_default();
        if is_told {
            return tracing::info!(queue, message_id = message.id, id, "refused: {fault}");
        }
        // Each time it comes there are fewer lines.
        if message.times.is_power_of_two() {
            tracing::warn!(
                queue,
                message_id = message.id,
                id,
                times = message.times,
                "refused, and left in the queue, as there is nobody to tell: {fault}"
            );
        }
    }

    /// The answer to a command.
    fn reply(&self, held: &Held, ending: Ending, result: Result<&Done, &Fault>) -> Outgoing {
        let Held { message, label, .. } = held;
        let mut body = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(name.to_owned(), value);
            }
        };
        put("version", Some(VERSION.into()));
        put("id", label.id.clone().map(Value::from));
        put("op", label.op.map(|op: Op| op.word().into()));
        put("resource", label.resource.clone().map(Value::from));
        put("revision", label.revision.map(Value::from));
        put("outcome", Some(ending.word().into()));
        match result {
            Ok(done) => {
                put("answer", done.answer.clone().map(Value::from));
                put("run", done.run.clone().map(Value::from));
            }
            Err(fault) => put("error", Some(fault.to_json())),
        }
        put("queue", Some(self.counts.queue.as_str().into()));
        put("reply", label.reply.clone());
        let body = Value::Object(body).to_string();
        self.outgoing(body, Vec::new(), message)
    }

    /// The message as it came, with what is wrong with it. Where there is no room for that, without: the log has it.
    fn dead_letter(&self, held: &Held, fault: &Fault) -> Outgoing {
        let Held { message, .. } = held;
        let error = fault.to_json_within(ERROR_BYTES_MAX).to_string();
        let attributes = vec![
            ("tollgate-queue", self.counts.queue.clone()),
            ("tollgate-code", word(fault.code).to_owned()),
            ("tollgate-error", error),
        ];
        let whole = self.outgoing(message.body.clone(), attributes, message);
        if whole.bytes() > BYTES_MAX { Outgoing { attributes: Vec::new(), ..whole } } else { whole }
    }

    fn outgoing(
        &self,
        body: String,
        attributes: Vec<(&'static str, String)>,
        message: &Received,
    ) -> Outgoing {
        let group = message.group.clone().unwrap_or_else(|| self.counts.queue.clone());
        Outgoing { body, attributes, group, sameness: message.id.clone() }
    }

    /// Sends what `pick` takes out of the messages. What the queue will never take is not sent, nor what it has not taken after
    /// some tries: the message stays in its queue, and comes again.
    async fn send(
        &self,
        queue: &Queue,
        all: &mut [Ended],
        (count, outage): (&AtomicU64, &Outage),
        pick: impl Fn(&mut Ended) -> Option<Outgoing>,
    ) {
        let picked = all.iter_mut().enumerate().filter_map(|(at, ended)| Some((at, pick(ended)?)));
        let mut waiting: Vec<(usize, Outgoing)> = picked.collect();
        // While it is known to be away, once is enough.
        let tries = if outage.lasts() { 1 } else { TRIES_MAX };
        let (mut backoff, mut tried) = (Backoff::default(), 0);
        while !waiting.is_empty() {
            let (places, messages): (Vec<usize>, Vec<Outgoing>) = waiting.into_iter().unzip();
            let sent = queue.send(&messages).await;
            waiting = Vec::new();
            for ((place, message), sent) in places.into_iter().zip(messages).zip(sent) {
                match sent {
                    Ok(()) => {
                        outage.worked();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(NotSent::Later(said)) => {
                        outage.failed(&said);
                        waiting.push((place, message));
                    }
                    Err(NotSent::Never(said)) if message.attributes.is_empty() => {
                        self.keep(&mut all[place], &said);
                    }
                    Err(NotSent::Never(_)) => {
                        waiting.push((place, Outgoing { attributes: Vec::new(), ..message }));
                    }
                }
            }
            tried += 1;
            if waiting.is_empty() || (tried < tries && self.pause(&mut backoff).await) {
                continue;
            }
            let stopped = self.end.is_cancelled();
            for (place, _) in waiting {
                let ended = &mut all[place];
                let hide = if stopped { Duration::ZERO } else { unheard(ended.held.message.times) };
                ended.hide = Some(hide);
            }
            return;
        }
    }

    /// A message whose answer or dead letter its queue never takes stays where it is.
    fn keep(&self, ended: &mut Ended, said: &str) {
        let message = &ended.held.message;
        let queue = &self.counts.queue;
        tracing::warn!(queue, message_id = message.id, "left in the queue: not sent on: {said}");
        ended.hide.get_or_insert(unheard(message.times));
    }

    /// Deletes messages. Those that cannot be deleted for a while come again, which changes nothing.
    async fn delete(&self, mut receipts: Vec<String>) {
        let mut backoff = Backoff::default();
        for _ in 0..TRIES_MAX {
            if receipts.is_empty() {
                return;
            }
            match self.queue.delete(&receipts).await {
                Ok(again) => {
                    self.counts.sqs.worked();
                    receipts = again.into_iter().filter_map(|at| receipts.get(at).cloned()).collect();
                }
                Err(said) => self.counts.sqs.failed(&said),
            }
            if !receipts.is_empty() && !self.pause(&mut backoff).await {
                return;
            }
        }
    }

    /// Whether it is to be tried again, after a pause.
    async fn pause(&self, backoff: &mut Backoff) -> bool {
        tokio::select! {
            () = self.end.cancelled() => false,
            () = tokio::time::sleep(backoff.next(None)) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_heard_comes_ever_more_rarely() {
        let spans: Vec<u64> = [1, 2, 3, 8, 100].map(|times| unheard(times).as_secs()).to_vec();
        assert_eq!(spans, [30, 60, 120, 3_840, 3_840]);
    }
}
