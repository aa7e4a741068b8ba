//! Targets and consumers: prompt, slow, silent, forgetful, repetitive, lying.

use tollgate_core::handle::Send;
use tollgate_core::handle::change::TokenState;
use tollgate_core::handle::control::Control;
use tollgate_core::handle::release::{Release, ReleaseOutcome};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::bug::Bug;
use crate::totals::Seen;
use crate::world::{At, Event, SHARDS, World};

/// Until when, and before which loss of trust, a delivery may go out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leave {
    until_us: i64,
    lapses: u64,
}

fn deadline_us(target: &Target) -> i64 {
    1_000
        * match target {
            Target::Http { http, .. } => http.deadline_ms,
            Target::Sqs { sqs, .. } => sqs.deadline_ms,
            Target::Kafka { kafka, .. } => kafka.deadline_ms,
            Target::Pull { pull, .. } => pull.deadline_ms(),
        }
}

impl World {
    /// A delivery begins: it waits for a queue, a slot, a lookup, a connection, a handshake and a socket, each of which may take
    /// its time, and which together have one deadline.
    pub(crate) fn deliver(&mut self, at: At, send: Send) {
        self.use_room(at, &send);
        let (long_us, world_us) = (deadline_us(&send.spec.target), self.now.mono_us);
        let until_us = self.now_at(at.slot).mono_us + long_us;
        let Some(owner) = self.owner(at) else { return };
        owner.begun.insert((send.run, send.index, send.attempt), world_us + long_us);
        let leave = Leave { until_us, lapses: owner.lapses };
        let mut wait_us = 0;
        if self.chaos && self.troubles.senders {
            for _stage in 0..6 {
                wait_us += self.wait_us(&[0, 0, 0, 0, 1_000, 20_000, 300_000, 2_500_000]);
            }
        }
        if wait_us == 0 {
            self.arrive(at, send);
        } else {
            self.count(Seen::SentSlowly);
            self.after(wait_us, Event::Write(at, Box::new(send), leave));
        }
    }

    /// Its turn has come: it goes out, if it still may.
    pub(crate) fn write_out(&mut self, at: At, send: Send, leave: Leave) {
        let late = self.now_at(at.slot).mono_us >= leave.until_us && self.bug != Bug::DeadlineFromTurn;
        let lost = !self.may_send(at.slot, leave.lapses) && self.bug != Bug::TrustNotLookedAtAgain;
        let key = (send.run, send.index);
        let revoked = self.model.revoked.contains(&(at.slot, key, send.attempt));
        let released = revoked && self.bug != Bug::ReleasedIsSent;
        if !late && !lost && !released {
            self.arrive(at, send);
            return;
        }
        self.count(if lost { Seen::WithheldUntrusted } else { Seen::WithheldLate });
        self.model.withheld(key, send.attempt);
        let by_target = !lost || self.random.percent(50);
        let sent = by_target.then(|| Sent::NotSent { message: "withheld".to_owned(), retry_after_ms: None });
        let (run, index, attempt) = (send.run, send.index, send.attempt);
        self.after(0, Event::Answer { at, run, index, attempt, sent });
    }

    /// The target answers, and the consumer may have it.
    fn arrive(&mut self, at: At, send: Send) {
        let (sent, arrives) = self.temper();
        self.model.written(&send);
        self.model.delivered(&send, &sent, arrives);
        let sent = Some(sent);
        let event = Event::Answer { at, run: send.run, index: send.index, attempt: send.attempt, sent };
        let wait_us = self.wait_us(&[1_000, 20_000, 2 * SECOND_US]);
        self.after(wait_us, event);
        if arrives && send.explicit_release {
            self.work(at.shard, &send);
        }
    }

    fn temper(&mut self) -> (Sent, bool) {
        let message = "no".to_owned();
        if !self.chaos || !self.troubles.consumers {
            return (Sent::Accepted, true);
        }
        let wish = Some(self.random.within(100, 15_000));
        match self.random.within(0, 100) {
            0..70 => (Sent::Accepted, true),
            70..78 => (Sent::Refused { message, retry_after_ms: None, permanent: false }, false),
            78..80 => (Sent::Refused { message, retry_after_ms: wish, permanent: false }, false),
            80..82 => (Sent::RefusedAlone { message, retry_after_ms: wish }, false),
            82..84 => (Sent::Refused { message, retry_after_ms: None, permanent: true }, false),
            84..94 => (Sent::Unclear { message, retry_after_ms: None }, true),
            94..96 => (Sent::Unclear { message, retry_after_ms: wish }, false),
            _ => (Sent::Unclear { message, retry_after_ms: None }, false),
        }
    }

    /// What the consumer does with it.
    fn work(&mut self, shard: u16, send: &Send) {
        let attempt = self.random.percent(80).then_some(send.attempt);
        let (run, index) = (send.run, send.index);
        let mut release = Release {
            run,
            index,
            attempt,
            outcome: ReleaseOutcome::Succeeded,
            message: String::new(),
            next_check_us: None,
            cursor: None,
            result: None,
        };
        if !self.chaos || !self.troubles.consumers {
            let soon_us = self.wait_us(&[0, 50_000, SECOND_US]);
            self.call(soon_us, shard, release, false);
            return;
        }
        if self.random.percent(20) {
            release.cursor = Some(format!("{run} {index} {}", send.attempt));
        }
        let inbox = self.random.percent(15);
        let soon_us = self.random.within(0, 6 * SECOND_US);
        match self.random.within(0, 100) {
            0..44 => {}
            44..51 => release.outcome = ReleaseOutcome::Failed,
            51..58 => release.outcome = ReleaseOutcome::Retry,
            58..65 => {
                let ahead_us = self.random.within(-5 * SECOND_US, 90 * SECOND_US);
                release.next_check_us = Some(self.now.wall_us + soon_us + ahead_us);
            }
            65..74 => {
                let again_us = self.random.within(0, 3 * SECOND_US);
                self.call(soon_us + again_us, shard, release.clone(), false);
            }
            74..80 => {
                let late_us = self.random.within(15 * SECOND_US, 60 * SECOND_US);
                self.call(late_us, shard, release, inbox);
                return;
            }
            80..86 => {
                let event = Event::Heartbeat { shard, run, index, attempt: send.attempt, left: 6 };
                self.after(soon_us, event);
                self.call(6 * soon_us, shard, release, inbox);
                return;
            }
            86..93 => self.lie(shard, send, &release),
            // It has died.
            _ => return,
        }
        self.call(soon_us, shard, release, inbox);
    }

    fn call(&mut self, us: i64, shard: u16, release: Release, inbox: bool) {
        self.after(us, Event::Release { shard, release, inbox, tries: 0 });
    }

    /// It says that something else is done than what it was given.
    fn lie(&mut self, shard: u16, send: &Send, release: &Release) {
        let mut forged = Release { cursor: None, ..release.clone() };
        match self.random.within(0, 5) {
            0 => forged.attempt = Some(send.attempt + 1),
            1 => forged.attempt = Some(send.attempt.wrapping_sub(1)),
            2 => (forged.index, forged.attempt) = (send.events, None),
            3 => {
                (forged.run, forged.attempt) = (RunId(Uuid::from_u128(u128::from(self.random.next()))), None)
            }
            _ => {
                let other = self.random.within(0, i64::from(SHARDS)) as u16;
                if other != shard {
                    self.count(Seen::ForgedRelease);
                    self.call(0, other, forged, false);
                }
                return;
            }
        }
        self.count(Seen::ForgedRelease);
        let soon_us = self.random.within(0, SECOND_US);
        self.call(soon_us, shard, forged, false);
    }

    /// At the end an operator frees what nothing else frees.
    pub(crate) fn free_held(&mut self) {
        for shard in 0..SHARDS {
            let store = &self.stores[usize::from(shard)];
            let held: Vec<_> = store
                .tokens
                .values()
                .filter(|t| t.state == TokenState::Held)
                .filter(|t| {
                    let policy = store.runs[&t.run].policy_uid.and_then(|uid| store.policies.get(&uid));
                    policy.is_some_and(|p| p.reclaim == Reclaim::Never)
                })
                .map(|t| (t.run, t.index))
                .collect();
            for (run, index) in held {
                let release = Release {
                    run,
                    index,
                    attempt: None,
                    outcome: ReleaseOutcome::Failed,
                    message: "freed".into(),
                    next_check_us: None,
                    cursor: None,
                    result: None,
                };
                self.count(Seen::FreedByOperator);
                self.model.release_called(&release);
                self.post_later(shard, Control::Release { release });
            }
        }
    }
}
