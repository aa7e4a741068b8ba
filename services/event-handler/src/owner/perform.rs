//! Inputs into the machine, effects out of it.
//!
//! A commit may allow a thousand deliveries. They are begun a few at a time, so that what falls due in other shards
//! meanwhile does not stand behind all of them at each of its steps.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tollgate_core::handle::release::{Answer, Release};
use tollgate_core::handle::{Effect, KeysWanted, Pulled, RoomAsk, Send};
use tollgate_core::model::{Delivery, EventRef, ItemsIn, Now, RunId};
use tollgate_core::own::{CallerAnswer, DeliveryKey};
use tollgate_target::Leave;

use super::load::wait_to_try;
use super::{Life, Owner};
use crate::attempts::PulledBy;
use crate::items::{ItemRef, Unread};
use crate::routes::{Input, Replied};

/// The most deliveries that are begun before others have their turn.
const SENDS_AT_ONCE: usize = 32;

/// Deliveries that a commit has allowed and that have not been begun yet, in their order.
#[derive(Default)]
pub(super) struct Outgoing {
    waiting: VecDeque<BoxFuture<'static, ()>>,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Begins the first [`SENDS_AT_ONCE`] of them.
    pub(super) fn begin_some(&mut self) {
        let some = self.waiting.len().min(SENDS_AT_ONCE);
        self.waiting.drain(..some).for_each(|delivery| drop(tokio::spawn(delivery)));
    }

    pub(super) fn begin_all(&mut self) {
        self.waiting.drain(..).for_each(|delivery| drop(tokio::spawn(delivery)));
    }

    fn push(&mut self, delivery: impl Future<Output = ()> + std::marker::Send + 'static) {
        self.waiting.push_back(delivery.boxed());
    }
}

impl Owner {
    pub(super) fn handle(&mut self, life: &mut Life, input: Input, now: Now) {
        match input {
            Input::Wake => life.woken(now),
            Input::NoNews { began_us } => life.no_news(began_us),
            Input::Sync { reply } => life.sync(reply, now),
            Input::Sent { run, index, attempt, sent } => {
                self.begun.remove(&(run, index, attempt));
                self.watch.answered(run, &sent);
                tollgate_fault_points::pass("handler.mark.before");
                life.sent(run, index, attempt, sent, now);
                // It may have been released before anybody here heard who took it.
                self.check_who_has(life, run, index);
                tollgate_fault_points::pass("handler.mark.after");
            }
            Input::Unsent { run, index, attempt } => {
                self.begun.remove(&(run, index, attempt));
                life.unsent(run, index, attempt, now);
            }
            Input::RoomGiven { pool, units } => {
                if !life.room_given(pool, units, now) {
                    self.shared.desk.put_back(self.lease.shard, pool, units);
                }
            }
            Input::Followed { message } => life.followed(message),
            Input::Ahead(ahead) => self.take_up(life, *ahead, now),
            Input::KeysRead { of, first_index, items } => life.keys_read(of, first_index, items, now),
            Input::KeysUnreadable { of, index } => life.keys_unreadable(of, index, now),
            Input::Release { release, namespace, reply } => {
                self.release(life, release, namespace, reply, now);
            }
            Input::Extend { run, index, namespace, attempt, ttl_ms, reply } => {
                if is_foreign(life, run, namespace.as_deref()) {
                    let _gone = reply.send(Replied::Foreign);
                    return;
                }
                let number = self.next_reply();
                let told = life.extend((run, index), attempt, ttl_ms, number, (self.standing(), now));
                if let Some(event) = life.machine().pulled(run, index)
                    && attempt.is_none_or(|attempt| attempt == event.attempt)
                {
                    self.shared.desk.signed(self.lease.shard, (run, index), &event, now);
                }
                self.answer_or_keep(number, told, reply);
            }
            Input::Ask(question) => self.answer(life, question, now),
        }
    }

    fn release(
        &mut self,
        life: &mut Life,
        release: Release,
        namespace: Option<String>,
        reply: oneshot::Sender<Replied>,
        now: Now,
    ) {
        if is_foreign(life, release.run, namespace.as_deref()) {
            let _gone = reply.send(Replied::Foreign);
            return;
        }
        self.watch.released(release.run);
        tollgate_fault_points::pass("handler.release.before");
        let number = self.next_reply();
        let (run, index) = (release.run, release.index);
        let (told, revoked) = life.release(release, number, self.standing(), now);
        self.check_who_has(life, run, index);
        revoked.iter().for_each(|delivery| self.revoke(delivery));
        self.answer_or_keep(number, told, reply);
    }

    fn check_who_has(&self, life: &Life, run: RunId, index: u32) {
        let attempt = || life.machine().pulled(run, index).map(|event| event.attempt);
        self.shared.desk.is_under(self.lease.shard, (run, index), attempt);
    }

    /// A delivery does not go out, if it still waits for its turn.
    pub(super) fn revoke(&self, delivery: &DeliveryKey) {
        if let Some(leave) = self.begun.get(delivery) {
            leave.revoke();
        }
    }

    fn next_reply(&mut self) -> u64 {
        self.reply_next += 1;
        self.reply_next
    }

    fn answer_or_keep(&mut self, number: u64, told: CallerAnswer, reply: oneshot::Sender<Replied>) {
        // A caller that has gone needs no answer.
        let _gone = match told {
            CallerAnswer::Answer(answer) => reply.send(Replied::Answer(answer)),
            CallerAnswer::AskAgain => reply.send(Replied::TryAgain),
            CallerAnswer::Later => {
                self.replies.insert(number, reply);
                return;
            }
        };
    }

    /// Does what a durable commit allows.
    pub(super) fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(send) => self.deliver(send),
                Effect::Reply { reply, answer } => self.reply(reply, answer),
                Effect::Follow { message, end } => self.launch_next(message, end),
            }
        }
    }

    /// Looks for room at workers.
    pub(super) fn look_for_room(&self, life: &mut Life, asks: &[RoomAsk]) {
        let shard = self.lease.shard;
        for ask in asks {
            let units = self.shared.desk.ask(shard, ask);
            if units < ask.want {
                self.shared.desk.look_elsewhere(ask.pool);
            }
            if units > 0 && !life.room_given(ask.pool, units, self.shared.clock.now()) {
                self.shared.desk.put_back(shard, ask.pool, units);
            }
        }
    }

    /// Gives room back of which no use was made.
    pub(super) fn give_room_back(&self, life: &mut Life) {
        for (pool, units) in life.room_left() {
            self.shared.desk.put_back(self.lease.shard, pool, units);
        }
    }

    /// Has keys read that the machine needs. As long as the store gives none, they are asked for again.
    pub(super) fn read_keys(&self, wanted: KeysWanted) {
        let KeysWanted { run, index, spec, item_in } = wanted;
        let (namespace, asked) = (Arc::from(spec.namespace.as_str()), (run, spec.generation));
        let spec = (item_in == ItemsIn::Spec).then_some(spec);
        let of = ItemRef { namespace, shard: self.lease.shard, run, index, spec };
        let (items, loopback) = (self.shared.items.clone(), self.loopback.clone());
        tokio::spawn(async move {
            let mut failures = 0;
            let input = loop {
                match items.loads_of_page(&of).await {
                    Ok((first_index, items)) => break Input::KeysRead { of: asked, first_index, items },
                    Err(Unread::Ever(why)) => {
                        tracing::warn!(%run, index, why, "an event counts as one whose item says nothing");
                        break Input::KeysUnreadable { of: asked, index };
                    }
                    Err(Unread::Yet(why)) => {
                        tracing::debug!(%run, index, why, "the keys of items are read again");
                        wait_to_try(failures).await;
                        failures += 1;
                    }
                }
                if loopback.is_closed() {
                    return;
                }
            };
            // An owner that has gone will not miss it.
            let _gone = loopback.send(input);
        });
    }

    fn reply(&mut self, number: u64, answer: Answer) {
        if let Some(reply) = self.replies.remove(&number) {
            tollgate_fault_points::pass("handler.release.after");
            let _gone = reply.send(Replied::Answer(answer));
        }
    }

    fn deliver(&mut self, send: Send) {
        let shard = self.lease.shard;
        let event = EventRef { shard: send.named_shard, run: send.run, index: send.index };
        let event_id = self.shared.keyring.id(event);
        let delivery = Delivery {
            event_id,
            attempt: send.attempt,
            index: send.index,
            events: send.events,
            launch_us: send.launch_us,
            checks: send.checks,
            cursor: send.cursor,
            predecessor: send.predecessor,
            explicit_release: send.explicit_release,
            spec: send.spec,
            item: None,
        };
        let watch = self.watch.delivery(send.run, &delivery);
        let (targets, loopback) = (self.shared.targets.clone(), self.loopback.clone());
        let (trust, lapses) = (self.shared.trust.clone(), self.lapses);
        // The deadline begins here, where the shard is known to be this process's own: the next owner counts on that.
        let leave = {
            let trust = trust.clone();
            Leave::now(move || trust.may_send(lapses))
        };
        let (run, index, attempt) = (send.run, send.index, send.attempt);
        let wanted = (send.item_in != ItemsIn::Nothing).then(|| {
            let spec = (send.item_in == ItemsIn::Spec).then(|| Arc::clone(&delivery.spec));
            let namespace = Arc::from(delivery.spec.namespace.as_str());
            (self.shared.items.clone(), ItemRef { namespace, shard, run, index, spec })
        });
        let payloads = self.shared.payloads.clone();
        let pulled = send.pulled.map(|Pulled { pool, silence_ms, token_ttl_ms }| {
            let unit = self.shared.desk.unit(shard, pool);
            PulledBy { desk: self.shared.desk.clone(), shard, event, unit, silence_ms, token_ttl_ms }
        });
        self.begun.insert((run, index, attempt), leave.clone());
        self.outgoing.push(async move {
            let mut delivery = delivery;
            let ready = async {
                if let Some((items, of)) = &wanted {
                    delivery.item = Some(items.of_delivery(of, (&delivery.spec.target, &leave)).await?);
                }
                payloads.room(&delivery.spec, delivery.item.as_deref(), (&leave, rand::random())).await
            };
            let room = ready.await;
            // The process may have been frozen since the commit, and the shard be another's by now.
            let input = if let Err(no_room) = room {
                Input::Sent { run, index, attempt, sent: no_room }
            } else if trust.may_send(lapses) {
                tollgate_fault_points::pass("handler.send.before");
                // Pinned where it is made: it is large, and would be moved several times.
                let sent = watch.over(pin!(targets.send(run, delivery, leave, pulled))).await;
                tollgate_fault_points::pass("handler.send.after");
                Input::Sent { run, index, attempt, sent }
            } else {
                Input::Unsent { run, index, attempt }
            };
            // An owner that has gone will not miss it: its successor sends again.
            let _gone = loopback.send(input);
        });
    }
}

fn is_foreign(life: &Life, run: RunId, namespace: Option<&str>) -> bool {
    namespace.is_some_and(|given| life.machine().namespace_of(run).is_some_and(|own| own != given))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    #[tokio::test]
    async fn deliveries_begin_a_few_at_a_time_in_their_order_and_at_the_end_all() {
        let begun = Arc::new(Mutex::new(Vec::new()));
        let mut outgoing = Outgoing::default();
        for number in 0..3 * SENDS_AT_ONCE {
            let begun = Arc::clone(&begun);
            outgoing.push(async move { begun.lock().unwrap_or_else(PoisonError::into_inner).push(number) });
        }
        let so_many = async |expected: usize| {
            // One thread: what has been spawned runs now.
            tokio::task::yield_now().await;
            let begun = begun.lock().unwrap_or_else(PoisonError::into_inner).clone();
            assert_eq!(begun, (0..expected).collect::<Vec<_>>());
        };
        so_many(0).await;
        outgoing.begin_some();
        so_many(SENDS_AT_ONCE).await;
        outgoing.begin_some();
        so_many(2 * SENDS_AT_ONCE).await;
        assert!(!outgoing.is_empty());
        outgoing.begin_all();
        so_many(3 * SENDS_AT_ONCE).await;
        assert!(outgoing.is_empty());
    }
}
