//! A shard's machine in which one schedule has something to do among very many others that have not.

use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::{Context, Effect, Options, Send, Shard, ShardState};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::machine::{NOON_US, policy, run, spec};

/// One schedule whose target refuses each delivery and asks for a pause; and its neighbours.
pub(crate) struct Neighbours {
    shard: Shard,
    now: Now,
    policy: Policy,
    send: Option<Send>,
    messages: u128,
}

impl Neighbours {
    /// How many there are; each has a policy, and a consumer that holds an event.
    pub(crate) fn new(neighbours: u32) -> Self {
        let now = Now { wall_us: NOON_US + 1, mono_us: 1 };
        let (mut policies, mut specs, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..=u128::from(neighbours) {
            let policy = Policy { uid: Uuid::from_u128(1 << 32 | number), ..policy(1) };
            let schedule_uid = Uuid::from_u128(2 << 32 | number);
            let spec = RunSpec { schedule_uid, ..spec(&policy) };
            let retry =
                RetryPolicy { attempts_max: u32::MAX, backoff_min_ms: 1, backoff_max_ms: 1, ..spec.retry };
            let Target::Http { http, .. } = spec.target else { unreachable!("the target of all of them") };
            let target = Target::Http { http, release: ReleaseMode::Explicit };
            let id = RunId::derive(schedule_uid, NOON_US);
            specs.push(RunSpec { retry, target, ..spec });
            runs.push(Run { id, schedule_uid, events: 1, ..run(&policy) });
            policies.push(policy);
        }
        let (policy, own) = (policies[0].clone(), runs[0].id);
        let mut shard =
            Shard::new(0, Options::default(), ShardState { policies, ..ShardState::default() }, 7, now);
        shard.adopt(runs, specs, now);
        let mut all = Self { shard, now, policy, send: None, messages: 0 };
        for Send { run, index, attempt, .. } in all.commit() {
            if run != own {
                all.shard.sent(run, index, attempt, Sent::Accepted, now);
            }
        }
        all.pass();
        all.commit();
        assert!(all.send.is_some());
        all
    }

    /// The delivery is refused; once the pause that the target asks for is over, it is made again.
    pub(crate) fn refuse(&mut self) {
        let Send { run, index, attempt, .. } = self.send.take().unwrap();
        let message = String::new();
        let refused = Sent::Refused { message, retry_after_ms: Some(1), permanent: false };
        self.shard.sent(run, index, attempt, refused, self.now);
        self.commit();
        self.pass();
        self.commit();
    }

    /// The policy of the schedule changes.
    pub(crate) fn change_policy(&mut self) {
        self.policy.generation += 1;
        self.messages += 1;
        let control = Control::PolicyChanged { policy: self.policy.clone() };
        let message = Message { id: Uuid::from_u128(self.messages), control };
        self.shard.begin_read();
        self.shard.control(message, Context::default(), self.now);
        self.commit();
    }

    fn pass(&mut self) {
        self.now.wall_us += 30_000;
        self.now.mono_us += 30_000;
    }

    /// What is decided is durable: the deliveries that are made then.
    fn commit(&mut self) -> Vec<Send> {
        let mut sends = Vec::new();
        while self.shard.poll_commit(self.now).is_some() {
            for effect in self.shard.committed(self.now) {
                if let Effect::Send(send) = effect {
                    sends.push(send);
                }
            }
        }
        if let Some(send) = sends.iter().find(|send| send.spec.policy_uid == Some(self.policy.uid)) {
            self.send = Some(send.clone());
        }
        sends
    }
}
