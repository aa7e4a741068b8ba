//! What must hold after each step, and at the end.

use std::collections::BTreeMap;

use tollgate_core::handle::Send;
use tollgate_core::handle::change::{Changes, Outcome, TokenState};
use tollgate_core::handle::release::{Answer, Release};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::world::World;

/// Events in flight by policy, and the policies' limits.
pub(crate) type Loads = BTreeMap<Uuid, (u32, Option<u32>)>;

impl World {
    pub(crate) fn loads(&self, shard: u16) -> Loads {
        let store = &self.owners[usize::from(shard)].store;
        let policies = store.policies.values();
        policies.map(|p| (p.uid, (store.in_flight(Some(p.uid)), p.limits.max_in_flight))).collect()
    }

    /// Per policy, in flight is at most the larger of the old and the new limit; what is above shrinks.
    pub(crate) fn check_commit(&mut self, shard: u16, before: &Loads, changes: &Changes) {
        for (uid, (in_flight, limit)) in self.loads(shard) {
            let Some(limit) = limit else { continue };
            let (old, old_limit) = before.get(&uid).copied().unwrap_or((0, Some(0)));
            let bound = limit.max(old_limit.unwrap_or(u32::MAX)).max(old);
            assert!(in_flight <= bound, "{in_flight} of {uid} in flight, limit {limit}, before {before:?}");
        }
        for row in &changes.history {
            self.count(match row.outcome {
                Outcome::Succeeded => "SUCCEEDED",
                Outcome::Failed => "FAILED",
                Outcome::Dead => "DEAD",
                Outcome::Expired => "EXPIRED",
                Outcome::Cancelled => "CANCELLED",
                Outcome::Lost => "LOST",
            });
        }
        for (what, rows) in [
            ("withdrawn", changes.runs_withdrawn.len()),
            ("revived", changes.history_gone.len()),
            ("skipped", changes.skipped.len()),
        ] {
            if rows > 0 {
                self.count(what);
            }
        }
        let store = &self.owners[usize::from(shard)].store;
        for run in changes.runs_changed.iter().filter(|r| r.state == RunState::Skipped) {
            assert!(store.skipped.contains_key(&(run.schedule_uid, run.launch_us)), "{run:?}");
        }
    }

    /// Only what is recorded is sent, in order, once due, from one shard, and not during a pause.
    pub(crate) fn check_send(&mut self, shard: u16, send: &Send) {
        let store = &self.owners[usize::from(shard)].store;
        let key = (send.run, send.index);
        let row = store.tokens.get(&key).unwrap_or_else(|| panic!("{key:?} is sent without a token row"));
        assert_eq!((row.state, row.attempt), (TokenState::Acquired, send.attempt), "{key:?}");
        assert!(send.launch_us <= self.wall_max_us, "{key:?} before its launch time");
        let run = &store.runs[&send.run];
        assert!(run.launch_us <= send.launch_us && send.index < run.events, "{run:?}");
        assert_eq!(send.explicit_release, run.policy_uid.is_some());
        assert!(store.pause.pause.is_none(), "{key:?} while all is paused");
        let policy = run.policy_uid.map(|uid| &store.policies[&uid]);
        assert!(policy.is_none_or(|p| p.pause.is_none()), "{key:?} while its policy is paused");
        let schedule = store.schedules.get(&run.schedule_uid);
        assert!(schedule.is_none_or(|s| s.pause.is_none()), "{key:?} while its schedule is paused");
        let last = self.attempts.insert(key, send.attempt).unwrap_or(0);
        assert!(send.attempt > last, "{key:?}: attempt {} after {last}", send.attempt);
        let from = *self.shard_of.entry(send.run).or_insert(shard);
        assert_eq!(from, shard, "{key:?} is delivered from two shards");
        self.count(if send.attempt == 1 { "send" } else { "resend" });
    }

    /// What a consumer is told is so in the store.
    pub(crate) fn check_answer(&mut self, shard: u16, release: &Release, answer: &Answer) {
        self.count_answer(answer);
        let store = &self.owners[usize::from(shard)].store;
        let token = store.tokens.get(&(release.run, release.index));
        let held = token.is_some_and(|t| {
            t.state != TokenState::Waiting && release.attempt.is_none_or(|attempt| t.attempt == attempt)
        });
        match answer {
            // Its next attempt may have started in the meantime.
            Answer::Released | Answer::ComesAgain { .. } if release.attempt.is_none() => {}
            Answer::Released | Answer::ComesAgain { .. } | Answer::Late => {
                assert!(!held, "{answer:?} to {release:?}, but the store has {token:?}");
            }
            Answer::NotHeld => {
                assert!(token.is_none(), "NotHeld to {release:?}, but the store has {token:?}")
            }
            Answer::Refused { .. } | Answer::Extended { .. } => {}
        }
    }

    /// With nothing pending, the machine counts what the store has.
    pub(crate) fn compare_gauges(&mut self, shard: u16) {
        if !self.random.percent(20) {
            return;
        }
        let now = self.now;
        let owner = &mut self.owners[usize::from(shard)];
        let Some(machine) = &mut owner.machine else { return };
        if machine.durable_after().is_some() {
            return;
        }
        let mut suspects = 0;
        for gauge in machine.status(now).gauges {
            let uid = gauge.policy.as_ref().map(|p| p.uid);
            if uid.is_some() || gauge.held > 0 {
                assert_eq!(gauge.held, owner.store.in_flight(uid), "{gauge:?}");
            }
            assert!(gauge.suspect <= gauge.held, "{gauge:?}");
            suspects += gauge.suspect;
        }
        if suspects > 0 {
            self.count("suspect");
        }
    }

    /// Somebody asks how things stand.
    pub(crate) fn look(&mut self, shard: u16) {
        let owner = &self.owners[usize::from(shard)];
        let Some(machine) = &owner.machine else { return };
        let mut buffered = false;
        for run in owner.store.runs.values() {
            for index in [0, run.cursor, run.events - 1] {
                if let Some(explanation) = machine.explain(run.id, index, self.now) {
                    buffered |= explanation
                        .reasons
                        .iter()
                        .any(|r| matches!(r, tollgate_core::handle::Reason::Buffered { .. }));
                }
            }
        }
        if buffered {
            self.count("buffered");
        }
    }

    pub(crate) fn at_rest(&self) -> bool {
        !self.master.is_anything_paused()
            && self.owners.iter().all(|owner| {
                let store = &owner.store;
                owner.is_idle()
                    && store.inbox.is_empty()
                    && store.tokens.is_empty()
                    && store.runs.values().all(has_ended)
            })
    }

    /// What keeps the world from coming to rest.
    pub(crate) fn unrest(&self) -> String {
        let mut text = String::new();
        for owner in &self.owners {
            let runs: Vec<_> = owner.store.runs.values().filter(|r| !has_ended(r)).collect();
            let (tokens, inbox) = (owner.store.tokens.values(), owner.store.inbox.values());
            let deadline = owner.machine.as_ref().map(|m| m.next_deadline());
            let why = runs.first().and_then(|r| owner.machine.as_ref()?.explain(r.id, r.cursor, self.now));
            let tokens: Vec<_> = tokens.take(3).collect();
            let inbox: Vec<_> = inbox.take(3).collect();
            text += &format!("{:?}\n{why:#?}\n{tokens:#?}\n{inbox:#?}\n{deadline:?}\n", runs.first());
        }
        text
    }

    /// Nothing is lost, nothing is twice, nothing is left.
    pub(crate) fn check_end(&mut self) {
        for (id, (uid, launch_us, kind)) in &self.master.expected {
            let rows: Vec<_> = self.owners.iter().filter_map(|o| o.store.runs.get(id)).collect();
            assert_eq!(rows.len(), 1, "the {kind:?} run {id} of {uid} at {launch_us}: {rows:?}");
        }
        for owner in &self.owners {
            for run in owner.store.runs.values() {
                let ended = owner.store.history.range((run.id, 0)..=(run.id, u32::MAX)).map(|(_, r)| r.count);
                let expected = if run.state == RunState::Skipped { 0 } else { run.events };
                assert_eq!((ended.sum::<u32>(), run.counts.total()), (expected, expected), "{run:?}");
            }
            let Some(machine) = &owner.machine else { continue };
            assert_eq!(machine.runs_held(), 0);
            for gauge in machine.status(self.now).gauges {
                assert_eq!((gauge.held, gauge.suspect, gauge.waiting), (0, 0, 0), "{gauge:?}");
            }
        }
    }
}

fn has_ended(run: &Run) -> bool {
    matches!(run.state, RunState::Finished | RunState::Cancelled | RunState::Skipped)
}
