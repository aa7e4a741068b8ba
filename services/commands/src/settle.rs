//! Ends messages: answers those who asked, hands what is refused to the dead letters, and tells the source of what is done with.
//!
//! Invariants: a message ends only after the service's answer, after its reply has been sent where one was asked for, and after
//! its dead letter where it is refused; a refused message that nobody is told of does not end, but comes again.

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
use crate::hands::{MESSAGES_MAX, Place};
use crate::message::{Envelope, NotSent, Outgoing, Received};
use crate::read::VERSION;
use crate::source::{Outlet, Source};

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
    pub(crate) source: Source,
    pub(crate) replies: Option<Outlet>,
    pub(crate) dead_letters: Option<Outlet>,
    pub(crate) counts: Arc<Counts>,
    /// No more messages are asked for: what could not be sent waits no longer.
    pub(crate) stop: CancellationToken,
    /// Nothing is tried again any more.
    pub(crate) end: CancellationToken,
}

/// A message that is being ended.
pub(crate) struct Ended {
    held: Held,
    reply: Option<Outgoing>,
    dead: Option<Outgoing>,
    /// After how long it comes again; none where it ends.
    again: Option<Duration>,
    /// Its answer or its dead letter could not be sent, and waits here.
    unsent: bool,
    /// It has been said that it never will be.
    is_told: bool,
}

impl Ended {
    /// Whether there is more to do than to say that it has ended.
    fn has_more(&self) -> bool {
        self.reply.is_some() || self.dead.is_some() || self.again.is_some()
    }
}

/// How long a message is hidden that is refused, and that nobody is told of: twice as long each time.
fn unheard(times: u32) -> Duration {
    Duration::from_secs(30 << times.saturating_sub(1).min(7))
}

impl Settler {
    /// Ends messages, ten at most. Gives those whose answer or dead letter could not be sent, where they wait here.
    pub(crate) async fn settle(&self, all: Vec<(Held, End)>) -> Vec<Ended> {
        debug_assert!(all.len() <= MESSAGES_MAX, "one call each");
        self.finish(all.into_iter().map(|(held, end)| self.decide(held, end)).collect()).await
    }

    /// Tries to send what could not be sent, with growing pauses, until it has been, or another process has the message.
    pub(crate) async fn persist(&self, mut unsent: Vec<Ended>) {
        let (waiting, mut backoff) = (&self.counts.unsent, Backoff::default());
        while !unsent.is_empty() {
            let count = unsent.len() as u64;
            waiting.fetch_add(count, Ordering::Relaxed);
            let goes_on = tokio::select! {
                () = self.stop.cancelled() => false,
                goes_on = self.pause(&mut backoff) => goes_on,
            };
            waiting.fetch_sub(count, Ordering::Relaxed);
            if !goes_on {
                return;
            }
            unsent.retain(|ended| self.source.is_ours(&ended.held.message));
            unsent = self.finish(unsent).await;
        }
    }

    async fn finish(&self, mut all: Vec<Ended>) -> Vec<Ended> {
        all.iter_mut().for_each(|ended| ended.unsent = false);
        let holds_on = self.source.holds_on();
        if holds_on {
            // What has nothing to be sent waits for nobody.
            let (sends, ends): (Vec<Ended>, Vec<Ended>) = all.into_iter().partition(Ended::has_more);
            self.conclude(ends.iter().map(|ended| &ended.held.message).collect()).await;
            all = sends;
        }
        if let Some(outlet) = &self.replies {
            let (count, outage) = (&self.counts.replies, &self.counts.reply_queue);
            self.send(outlet, &mut all, (count, outage), |ended| &mut ended.reply).await;
        }
        if let Some(outlet) = &self.dead_letters {
            // Of SQS one by one: each may be as large as a call.
            let most = if holds_on { MESSAGES_MAX } else { 1 };
            for some in all.chunks_mut(most) {
                let (count, outage) = (&self.counts.dead_letters, &self.counts.dead_letter_queue);
                self.send(outlet, some, (count, outage), |ended| &mut ended.dead).await;
            }
        }
        let (unsent, all): (Vec<Ended>, Vec<Ended>) = all.into_iter().partition(|ended| ended.unsent);
        let done = all.iter().filter(|ended| ended.again.is_none());
        self.conclude(done.map(|ended| &ended.held.message).collect()).await;
        let put_off = |ended: Ended| Some(((ended.held.message, ended.held.place), ended.again?));
        let put_off: Vec<_> = all.into_iter().filter_map(put_off).collect();
        if !put_off.is_empty()
            && let Err(said) = self.source.put_off(put_off).await
        {
            // They come again all the same.
            self.counts.source.failed(&said);
        }
        unsent
    }

    fn decide(&self, held: Held, end: End) -> Ended {
        let op = held.label.op;
        let asked = held.label.reply.is_some() && self.replies.is_some();
        let (reply, dead, again) = match end {
            End::Done(ending, done) => {
                self.counts.ended(op, ending);
                (asked.then(|| self.reply(&held, ending, Ok(&done))), None, None)
            }
            End::Refused(fault) => {
                let reply = asked.then(|| self.reply(&held, Ending::Refused, Err(&fault)));
                let dead = self.dead_letters.as_ref().map(|outlet| self.dead_letter(&held, &fault, outlet));
                let is_told = reply.is_some() || dead.is_some();
                self.log(&held, &fault, is_told);
                self.counts.ended(op, Ending::Refused);
                let again = (!is_told).then(|| unheard(held.message.times));
                (reply, dead, again)
            }
            End::Later(span) => {
                self.counts.ended(op, Ending::Later);
                (None, None, Some(span))
            }
        };
        Ended { held, reply, dead, again, unsent: false, is_told: false }
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
        Outgoing {
            body: Value::Object(body).to_string().into_bytes(),
            attributes: Vec::new(),
            envelope: Envelope::of_answer(message, &self.counts.queue),
        }
    }

    /// The message as it came, with what is wrong with it. Where there is no room for that, without: the log has it.
    fn dead_letter(&self, held: &Held, fault: &Fault, outlet: &Outlet) -> Outgoing {
        let Held { message, .. } = held;
        let error = fault.to_json_within(ERROR_BYTES_MAX).to_string();
        let attributes = vec![
            ("tollgate-queue", self.counts.queue.clone()),
            ("tollgate-code", word(fault.code).to_owned()),
            ("tollgate-error", error),
        ];
        let envelope = Envelope::of_dead_letter(message, &self.counts.queue);
        let whole = Outgoing { body: message.body.clone(), attributes, envelope };
        if outlet.has_room_for(&whole) { whole } else { Outgoing { attributes: Vec::new(), ..whole } }
    }

    /// Sends what these parts of the messages have. What has not been taken after some tries, or never is, waits here, or the
    /// message comes again.
    async fn send(
        &self,
        outlet: &Outlet,
        all: &mut [Ended],
        (count, outage): (&AtomicU64, &Outage),
        part: fn(&mut Ended) -> &mut Option<Outgoing>,
    ) {
        // What comes again, or waits here, has the rest sent then.
        let now = all.iter_mut().enumerate().filter(|(_, ended)| ended.again.is_none() && !ended.unsent);
        let picked = now.filter_map(|(at, ended)| Some((at, part(ended).take()?)));
        let mut waiting: Vec<(usize, Outgoing)> = picked.collect();
        // While it is known to be away, once is enough; and where it is tried again from here.
        let tries = if outage.lasts() || self.source.holds_on() { 1 } else { TRIES_MAX };
        let (mut backoff, mut tried) = (Backoff::default(), 0);
        while !waiting.is_empty() {
            let (places, messages): (Vec<usize>, Vec<Outgoing>) = waiting.into_iter().unzip();
            let sent = outlet.send(&messages).await;
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
                        *part(&mut all[place]) = Some(message);
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
            for (place, message) in waiting {
                let ended = &mut all[place];
                *part(ended) = Some(message);
                let span = if stopped { Duration::ZERO } else { unheard(ended.held.message.times) };
                self.not_sent(ended, span);
            }
            return;
        }
    }

    /// A message whose answer or dead letter is never taken stays where it is.
    fn keep(&self, ended: &mut Ended, said: &str) {
        let message = &ended.held.message;
        let queue = &self.counts.queue;
        if !ended.is_told {
            tracing::warn!(queue, message_id = message.id, "left in the queue: not sent on: {said}");
        }
        ended.is_told = true;
        let span = unheard(message.times);
        self.not_sent(ended, span);
    }

    /// Where it cannot wait here, it comes again after this time.
    fn not_sent(&self, ended: &mut Ended, span: Duration) {
        if self.source.holds_on() {
            ended.unsent = true;
        } else {
            ended.again.get_or_insert(span);
        }
    }

    /// Tells the source of messages that have come to their end. Those of which it does not hear for a while come again, which
    /// changes nothing.
    async fn conclude(&self, mut messages: Vec<&Received>) {
        let mut backoff = Backoff::default();
        for _ in 0..TRIES_MAX {
            if messages.is_empty() {
                return;
            }
            match self.source.end(&messages).await {
                Ok(again) => {
                    if !self.source.holds_on() {
                        self.counts.source.worked();
                    }
                    messages = again.into_iter().filter_map(|at| messages.get(at).copied()).collect();
                }
                Err(said) => self.counts.source.failed(&said),
            }
            if !messages.is_empty() && !self.pause(&mut backoff).await {
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
