//! Targets and consumers: prompt, slow, silent, forgetful, repetitive.

use tollgate_core::handle::Send;
use tollgate_core::handle::change::TokenState;
use tollgate_core::handle::control::Control;
use tollgate_core::handle::release::{Release, ReleaseOutcome};
use tollgate_core::model::*;

use crate::world::{Event, World};

impl World {
    /// A delivery goes out: the target answers, and the consumer may have it.
    pub(crate) fn deliver(&mut self, shard: u16, send: Send) {
        let (sent, arrives) = self.temper();
        let event = Event::Answer {
            shard,
            life: self.owners[usize::from(shard)].life,
            run: send.run,
            index: send.index,
            attempt: send.attempt,
            sent,
        };
        let wait_us = *self.random.pick(&[1_000, 20_000, 2 * SECOND_US]).unwrap();
        self.after(wait_us, event);
        if arrives && send.explicit_release {
            self.work(shard, &send);
        }
    }

    fn temper(&mut self) -> (Sent, bool) {
        let message = "no".to_owned();
        if !self.chaos {
            return (Sent::Accepted, true);
        }
        let wish = Some(self.random.within(100, 15_000));
        match self.random.within(0, 100) {
            0..70 => (Sent::Accepted, true),
            70..78 => (Sent::Refused { message, retry_after_ms: None, permanent: false }, false),
            78..82 => (Sent::Refused { message, retry_after_ms: wish, permanent: false }, false),
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
        };
        if !self.chaos {
            self.after(50_000, Event::Release { shard, release, inbox: false });
            return;
        }
        if self.random.percent(20) {
            release.cursor = Some(format!("{index}"));
        }
        let inbox = self.random.percent(15);
        let soon_us = self.random.within(0, 6 * SECOND_US);
        match self.random.within(0, 100) {
            0..50 => {}
            50..58 => release.outcome = ReleaseOutcome::Failed,
            58..66 => release.outcome = ReleaseOutcome::Retry,
            66..72 => {
                let ahead_us = self.random.within(-5 * SECOND_US, 90 * SECOND_US);
                release.next_check_us = Some(self.now.wall_us + soon_us + ahead_us);
            }
            72..80 => {
                let again_us = self.random.within(0, 3 * SECOND_US);
                let release = release.clone();
                self.after(soon_us + again_us, Event::Release { shard, release, inbox: false });
            }
            80..86 => {
                let late_us = self.random.within(20 * SECOND_US, 80 * SECOND_US);
                self.after(late_us, Event::Release { shard, release, inbox });
                return;
            }
            86..94 => {
                let event = Event::Heartbeat { shard, run, index, attempt: send.attempt, left: 6 };
                self.after(soon_us, event);
                self.after(6 * soon_us, Event::Release { shard, release, inbox });
                return;
            }
            // It has died.
            _ => return,
        }
        self.after(soon_us, Event::Release { shard, release, inbox });
    }

    pub(crate) fn heartbeat(&mut self, shard: u16, event: (RunId, u32, u32), left: u32) {
        let (run, index, attempt) = event;
        let ttl_ms = self.random.percent(30).then_some(12_000);
        let now = self.now;
        if let Some(machine) = &mut self.owners[usize::from(shard)].machine {
            self.numbers += 1;
            if let Some(answer) = machine.extend((run, index), Some(attempt), ttl_ms, self.numbers, now) {
                self.count_answer(&answer);
            }
        }
        if left > 0 && self.chaos {
            self.after(3 * SECOND_US, Event::Heartbeat { shard, run, index, attempt, left: left - 1 });
        }
    }

    /// At the end an operator frees what nothing else frees.
    pub(crate) fn free_held(&mut self) {
        for shard in 0..crate::world::SHARDS {
            let store = &self.owners[usize::from(shard)].store;
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
                };
                self.post(shard, Control::Release { release });
            }
        }
    }
}
