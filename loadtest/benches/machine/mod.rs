//! A shard's machine with one policy and one run that hardly ends: what both benches drive.

use std::collections::BTreeMap;

use tollgate_core::handle::{Commit, Effect, Options, Send, Shard, ShardState};
use tollgate_core::model::*;
use uuid::Uuid;

/// Noon of 2026-11-21.
pub(crate) const NOON_US: i64 = 1_795_262_400_000_000;

/// The machine, and the deliveries that wait for their answers.
pub(crate) struct Machine {
    shard: Shard,
    now: Now,
    sends: Vec<Send>,
}

impl Machine {
    /// With so many in flight at most; and the run as its emitter stores it.
    pub(crate) fn new(max_in_flight: u32) -> (Self, Run) {
        let policy = policy(max_in_flight);
        let (spec, run) = (spec(&policy), run(&policy));
        let now = Now { wall_us: NOON_US + 1, mono_us: 1 };
        let state = ShardState { policies: vec![policy], ..ShardState::default() };
        let mut shard = Shard::new(0, Options::default(), state, 7, now);
        shard.adopt(vec![run.clone()], vec![spec], now);
        (Self { shard, now, sends: Vec::new() }, run)
    }

    /// Every delivery is accepted, which gives its token back; what is to be written then.
    pub(crate) fn answer(&mut self) -> Option<Commit> {
        self.now.wall_us += 500;
        self.now.mono_us += 500;
        for Send { run, index, attempt, .. } in self.sends.drain(..) {
            self.shard.sent(run, index, attempt, Sent::Accepted, self.now);
        }
        self.shard.poll_commit(self.now)
    }

    /// It is written.
    pub(crate) fn committed(&mut self) -> usize {
        for effect in self.shard.committed(self.now) {
            if let Effect::Send(send) = effect {
                self.sends.push(send);
            }
        }
        self.sends.len()
    }
}

pub(crate) fn policy(max_in_flight: u32) -> Policy {
    Policy {
        uid: Uuid::from_u128(1),
        namespace: "default".into(),
        id: "p".into(),
        description: String::new(),
        limits: Limits { max_in_flight: Some(max_in_flight), rate_per_s: None, burst: None },
        keys: Default::default(),
        adopts: false,
        parent: None,
        reclaim: Reclaim::AfterTtl,
        token_ttl_ms: Policy::TOKEN_TTL_MS,
        suspect_ms: Policy::SUSPECT_MS,
        ttl_from: TtlFrom::TargetDefault,
        unstarted_ttl_ms: Policy::UNSTARTED_TTL_MS,
        pause: None,
        labels: BTreeMap::new(),
        shard: 0,
        generation: 1,
        created_us: NOON_US,
        updated_us: NOON_US,
    }
}

pub(crate) fn spec(policy: &Policy) -> RunSpec {
    RunSpec {
        schedule_uid: Uuid::from_u128(2),
        generation: 1,
        namespace: "default".into(),
        schedule_id: "s".into(),
        policy_uid: Some(policy.uid),
        policy_id: Some(policy.id.clone()),
        key: None,
        units: 1,
        target: Target::Http {
            http: HttpTarget::plain("http://127.0.0.1/".into(), 30_000),
            release: ReleaseMode::OnResponse,
        },
        payload: Payload::default(),
        retry: RetryPolicy::default(),
        overlap: OverlapRule::Allow,
        delay_after_finish_s: None,
        finish_by_s: None,
        spread_s: None,
        start_within_s: None,
        check_again: CheckAgain::default(),
        on_finish: None,
    }
}

pub(crate) fn run(policy: &Policy) -> Run {
    let schedule_uid = Uuid::from_u128(2);
    Run {
        shard: 0,
        id: RunId::derive(schedule_uid, NOON_US),
        schedule_uid,
        generation: 1,
        namespace: "default".into(),
        schedule_id: "s".into(),
        policy_uid: Some(policy.uid),
        launch_us: NOON_US,
        events: EVENTS_MAX,
        priority: 5,
        kind: RunKind::Scheduled,
        state: RunState::Emitted,
        emitted_us: NOON_US,
        ..Run::default()
    }
}
