//! Inputs into the machine, effects out of it.

use tokio::sync::oneshot;
use tollgate_core::handle::release::{Answer, Release};
use tollgate_core::handle::{Effect, Send, Shard};
use tollgate_core::model::{Delivery, EventRef, RunId};

use super::Owner;
use crate::routes::{Input, Replied};

impl Owner {
    /// One input that does not concern the store.
    pub(super) fn handle(&mut self, machine: &mut Shard, input: Input) {
        let now = self.shared.clock.now();
        match input {
            Input::Wake | Input::Sync { .. } => {}
            Input::Sent { run, index, attempt, sent } => machine.sent(run, index, attempt, sent, now),
            Input::Release { release, namespace, reply } => self.release(machine, release, namespace, reply),
            Input::Extend { run, index, namespace, attempt, ttl_ms, reply } => {
                let replied = if is_foreign(machine, run, namespace.as_deref()) {
                    Replied::Foreign
                } else {
                    Replied::Answer(machine.extend(run, index, attempt, ttl_ms, now))
                };
                let _gone = reply.send(replied);
            }
            Input::Explain { run, index, reply } => {
                let _gone = reply.send(machine.explain(run, index, now));
            }
            Input::Outstanding { run, reply } => {
                let _gone = reply.send(machine.outstanding(run));
            }
            Input::Status { reply } => {
                let _gone = reply.send(machine.status(now));
            }
        }
    }

    fn release(
        &mut self,
        machine: &mut Shard,
        release: Release,
        namespace: Option<String>,
        reply: oneshot::Sender<Replied>,
    ) {
        if is_foreign(machine, release.run, namespace.as_deref()) {
            let _gone = reply.send(Replied::Foreign);
            return;
        }
        let number = self.reply_next;
        self.reply_next += 1;
        match machine.release(release, number, self.shared.clock.now()) {
            Some(answer) => {
                let _gone = reply.send(Replied::Answer(answer));
            }
            None => {
                self.replies.insert(number, reply);
            }
        }
    }

    /// Does what a durable commit allows.
    pub(super) fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(send) => self.deliver(send),
                Effect::Reply { reply, answer } => self.reply(reply, answer),
            }
        }
    }

    fn reply(&mut self, number: u64, answer: Answer) {
        if let Some(reply) = self.replies.remove(&number) {
            let _gone = reply.send(Replied::Answer(answer));
        }
    }

    fn deliver(&self, send: Send) {
        let shard = self.lease.shard;
        let event_id = self.shared.keyring.id(EventRef { shard, run: send.run, index: send.index });
        let delivery = Delivery {
            event_id,
            attempt: send.attempt,
            run: format!("{shard:02x}-{}", send.run),
            index: send.index,
            events: send.events,
            launch_us: send.launch_us,
            cursor: send.cursor,
            explicit_release: send.explicit_release,
            spec: send.spec,
        };
        let (targets, loopback) = (self.shared.targets.clone(), self.loopback.clone());
        let (run, index, attempt) = (send.run, send.index, send.attempt);
        tokio::spawn(async move {
            let sent = targets.send(delivery).await;
            // An owner that has gone will not miss it: its successor sends again.
            let _gone = loopback.send(Input::Sent { run, index, attempt, sent });
        });
    }
}

fn is_foreign(machine: &Shard, run: RunId, namespace: Option<&str>) -> bool {
    namespace.is_some_and(|given| machine.namespace_of(run).is_some_and(|own| own != given))
}
