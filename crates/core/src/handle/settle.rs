//! What becomes of acquired events: answers of targets, releases, heartbeats, silence.

use uuid::Uuid;

use super::change::{Outcome, TokenState};
use super::exchange::Effect;
use super::ledger::Phase;
use super::release::{Answer, Release, ReleaseOutcome};
use super::shard::{MonoTimer, Shard, WallTimer};
use crate::model::{MinuteCounts, NotAgain, Now, Policy, Reclaim, RunId, SECOND_US, Sent, TtlFrom};
use crate::trouble::Said;

/// How long a reclaim waits to be asked again while the inbox has not been read since its time came, in microseconds.
const UNREAD_US: i64 = SECOND_US / 20;
/// The number of a release for whose answer nobody waits: it was recorded, and answered, before.
const RECORDED: u64 = 0;

impl Shard {
    /// What a target said of a delivery. Answers to deliveries that are over are passed over.
    pub fn sent(&mut self, run: RunId, index: u32, attempt: u32, sent: Sent, now: Now) {
        let key = (run, index);
        let Some(token) = self.ledger.tokens.get_mut(&key) else { return };
        if token.row.attempt != attempt || token.row.state != TokenState::Acquired {
            return;
        }
        token.elsewhere_us = None;
        if !matches!(sent, Sent::NotSent { .. }) {
            token.unsent = None;
        }
        token.said = Said::of(&sent).or(token.said);
        let (policy, is_again) = (token.policy, token.doubtful);
        self.tally_answer(key, policy, &sent, is_again, now);
        let again = self.leave_queue(key);
        self.ledger.turn(key, Phase::Acquired);
        match sent {
            Sent::Accepted => self.accepted(key, now),
            Sent::Refused { message, retry_after_ms, permanent } => {
                if let Some(wait_ms) = retry_after_ms {
                    self.block_schedule(run, wait_ms, now);
                }
                self.refused(key, message, retry_after_ms, permanent, now);
            }
            Sent::RefusedAlone { message, retry_after_ms } => {
                self.refused(key, message, retry_after_ms, false, now);
            }
            Sent::Unclear { message, retry_after_ms } => self.unclear(key, message, retry_after_ms, now),
            Sent::NotSent { message, retry_after_ms } => self.not_sent(key, message, retry_after_ms, now),
        }
        if again {
            self.sync_lane(run, now);
        }
    }

    fn refused(
        &mut self,
        key: (RunId, u32),
        message: String,
        retry_after_ms: Option<i64>,
        permanent: bool,
        now: Now,
    ) {
        if self.ledger.tokens.get(&key).is_some_and(|t| t.doubtful) {
            self.refused_in_doubt(key, message, retry_after_ms, permanent, now);
        } else if permanent {
            self.finish(key, Outcome::Dead, message, now);
        } else {
            self.failed(key, message, retry_after_ms, Outcome::Dead, now);
        }
    }

    /// A consumer releases an event. `None`: the answer comes as an effect, numbered `reply`, once it is durable.
    pub fn release(&mut self, mut release: Release, reply: u64, now: Now) -> Option<Answer> {
        let key = (release.run, release.index);
        let Some(token) = self.ledger.tokens.get(&key) else {
            return self.once_durable(Answer::NotHeld, reply);
        };
        if !token.in_flight() || release.attempt.is_some_and(|a| a != token.row.attempt) {
            return self.once_durable(Answer::Late, reply);
        }
        let mut answer = Answer::Released;
        if let Some(check_us) = release.next_check_us {
            match self.check_slot(key, check_us, now) {
                Ok(at_us) => answer = Answer::ComesAgain { at_us },
                Err(NotAgain::Closed(guard)) => release = release.closed_by(&guard),
                Err(NotAgain::Refused(message)) => return Some(Answer::Refused { message }),
            }
        }
        // What was recorded before has been answered.
        if let Some(message) = self.result_refused(&mut release, &answer).filter(|_| reply != RECORDED) {
            return Some(Answer::Refused { message });
        }
        if let Some(cursor) = release.cursor {
            self.keep_cursor(key.0, cursor, now);
        }
        if let Some(result) = release.result {
            self.keep_result(key, *result, now);
        }
        match (&answer, release.outcome) {
            (Answer::ComesAgain { at_us }, _) => self.come_again(key, *at_us, release.message, now),
            (_, ReleaseOutcome::Succeeded) => self.finish(key, Outcome::Succeeded, release.message, now),
            (_, ReleaseOutcome::Failed) => self.finish(key, Outcome::Failed, release.message, now),
            (_, ReleaseOutcome::Retry) => self.failed(key, release.message, None, Outcome::Dead, now),
        }
        self.pending.urgent = true;
        self.pending.effects.push(Effect::Reply { reply, answer });
        None
    }

    /// Carries out a release that was answered as recorded while the attempt that it names was in flight: it can be refused no
    /// more.
    pub(super) fn recorded(&mut self, mut release: Release, now: Now) {
        let key = (release.run, release.index);
        let Some(token) = self.ledger.tokens.get(&key) else { return };
        let in_flight = token.in_flight();
        let is_of_earlier = in_flight && release.attempt.is_some_and(|a| a < token.row.attempt);
        if is_of_earlier && (release.next_check_us.is_some() || release.outcome == ReleaseOutcome::Retry) {
            // It has come again already. To give that back, too, would free the token of a consumer that is at work.
            let is_of_last = release.attempt.is_some_and(|a| a + 1 == token.row.attempt);
            if let Some(token) = self.ledger.tokens.get_mut(&key).filter(|t| is_of_last && t.is_sending()) {
                // Nobody has an earlier one any more: the answer of this one decides alone.
                token.doubtful = false;
            }
            if let Some(cursor) = release.cursor {
                self.keep_cursor(key.0, cursor, now);
            }
            return;
        }
        if let Some(check_us) = release.next_check_us
            && let Err(NotAgain::Closed(guard)) = self.check_slot(key, check_us.max(now.wall_us + 1), now)
        {
            release = release.closed_by(&guard);
        }
        let Some(token) = self.ledger.tokens.get(&key) else { return };
        let ends = match release.outcome {
            _ if release.next_check_us.is_some() => None,
            ReleaseOutcome::Succeeded => Some(Outcome::Succeeded),
            ReleaseOutcome::Failed => Some(Outcome::Failed),
            ReleaseOutcome::Retry => None,
        };
        match ends {
            // An owner that had not read it yet may have sent the event again since, or have given the consumer up.
            _ if is_of_earlier => release.attempt = None,
            Some(outcome) if !in_flight && release.attempt.is_some_and(|a| a <= token.row.attempt) => {
                if let Some(cursor) = release.cursor {
                    self.keep_cursor(key.0, cursor, now);
                }
                if let Some(result) = release.result.filter(|_| outcome == Outcome::Succeeded) {
                    self.keep_result(key, *result, now);
                }
                self.finish(key, outcome, release.message, now);
                return;
            }
            _ => {}
        }
        // Its guards were asked when it was recorded. That its moment has passed since is no reason to refuse it.
        let check_us = release.next_check_us.map(|check_us| check_us.max(now.wall_us + 1));
        release.next_check_us = check_us.filter(|check_us| self.check_slot(key, *check_us, now).is_ok());
        // Nobody waits for an answer any more: what it says is in the store.
        if let Some(_unchanged) = self.release(release, RECORDED, now) {}
    }

    /// An answer that says how things stand: at once if the store says the same already. A consumer that repeats a
    /// release must not be told that the token is free before that is certain.
    fn once_durable(&mut self, answer: Answer, reply: u64) -> Option<Answer> {
        if self.durable_after().is_none() {
            return Some(answer);
        }
        self.pending.urgent = true;
        self.pending.effects.push(Effect::Reply { reply, answer });
        None
    }

    /// A consumer says that it is still at work. `ttl_ms` overrides the policy's time to live for this event. `None`:
    /// the answer comes as an effect, numbered `reply`, once the time to live is durable.
    pub fn extend(
        &mut self,
        (run, index): (RunId, u32),
        attempt: Option<u32>,
        ttl_ms: Option<i64>,
        reply: u64,
        now: Now,
    ) -> Option<Answer> {
        let key = (run, index);
        let default_ttl_ms = self.heartbeat_ttl_ms(key);
        let (pending, durable) = (self.pending_commit(), self.commits());
        let Some(token) = self.ledger.tokens.get_mut(&key) else { return Some(Answer::NotHeld) };
        if !token.in_flight() || attempt.is_some_and(|a| a != token.row.attempt) {
            return Some(Answer::Late);
        }
        let remaining_ms = ttl_ms.unwrap_or(default_ttl_ms);
        token.sign_us = now.mono_us;
        if token.row.heartbeat_ttl_ms != Some(remaining_ms) {
            token.row.heartbeat_ttl_ms = Some(remaining_ms);
            token.ttl_commit = pending;
            self.pending.tokens.insert(key);
        }
        let waits = token.ttl_commit > durable;
        if token.row.state == TokenState::Held {
            self.arm_silence(key, now);
        }
        let answer = Answer::Extended { remaining_ms };
        if !waits {
            return Some(answer);
        }
        self.pending.urgent = true;
        self.pending.effects.push(Effect::Reply { reply, answer });
        None
    }

    fn accepted(&mut self, key: (RunId, u32), now: Now) {
        let explicit = self.taken(key, now);
        let Some(token) = self.ledger.tokens.get_mut(&key) else { return };
        token.row.delivered_us = Some(now.wall_us);
        if explicit {
            self.hold(key, now);
        } else {
            // Nobody waits for it but the run that follows: the event that takes its token makes the commit urgent.
            let (urgent, effects) = (self.pending.urgent, self.pending.effects.len());
            self.finish(key, Outcome::Succeeded, String::new(), now);
            self.pending.urgent = urgent || self.pending.effects.len() > effects;
        }
    }

    /// From now on the event is its consumer's.
    pub(super) fn hold(&mut self, key: (RunId, u32), now: Now) {
        let again = self.leave_queue(key);
        let Some(token) = self.ledger.tokens.get_mut(&key) else { return };
        token.sign_us = now.mono_us;
        self.ledger.turn(key, Phase::Held { suspect: false });
        self.pending.tokens.insert(key);
        self.arm_silence(key, now);
        if again {
            self.sync_lane(key.0, now);
        }
    }

    /// Its target took it. Whether its consumer is to release it.
    fn taken(&mut self, key: (RunId, u32), now: Now) -> bool {
        let (Some(run), Some(token)) = (self.ledger.runs.get_mut(&key.0), self.ledger.tokens.get(&key))
        else {
            return false;
        };
        run.accepted_us = now.mono_us;
        run.spec.target.releases_explicitly(token.policy.is_some())
    }

    /// A failure that leaves nothing at the consumer: the token is free, the event waits or ends as `last`.
    fn failed(&mut self, key: (RunId, u32), message: String, wait_ms: Option<i64>, last: Outcome, now: Now) {
        let (Some(run), Some(token)) = (self.ledger.runs.get(&key.0), self.ledger.tokens.get(&key)) else {
            return;
        };
        if run.cancelled {
            self.finish(key, Outcome::Cancelled, message, now);
            return;
        }
        let failures = token.row.failures + 1;
        if failures >= run.spec.retry.attempts_max {
            self.finish(key, last, message, now);
            return;
        }
        self.minutes.next(&run.row, MinuteCounts { retried: 1, ..MinuteCounts::default() });
        let elsewhere_us = self.elsewhere_left_us(key, now);
        let wait_us = self.backoff_us(key.0, failures).max(wait_ms.unwrap_or(0).saturating_mul(1000));
        self.wait(key, now.wall_us.saturating_add(wait_us.max(elsewhere_us)), message);
        if let Some(token) = self.ledger.tokens.get_mut(&key) {
            token.row.failures = failures;
        }
        self.sync_lane(key.0, now);
    }

    /// Gives the token back; the event stays and waits.
    pub(super) fn wait(&mut self, key: (RunId, u32), due_us: i64, message: String) {
        self.arm(key, None);
        self.leave_queue(key);
        self.ledger.turn(key, Phase::Waiting);
        let Some(token) = self.ledger.tokens.get_mut(&key) else { return };
        token.wait_until(due_us, message);
        self.pending.urgent = true;
        self.pending.tokens.insert(key);
        self.wall_timers.insert((due_us, WallTimer::Retry(key.0, key.1)));
    }

    /// A token's monotonic timer: time to resend, or silence for too long.
    pub(super) fn token_timer(&mut self, run: RunId, index: u32, now: Now) {
        let key = (run, index);
        let Some(token) = self.ledger.tokens.get_mut(&key) else { return };
        token.timer_us = None;
        match token.phase() {
            Phase::Waiting | Phase::Sending { .. } => {}
            Phase::Acquired | Phase::Again { .. } => self.resend(key, now),
            Phase::Held { .. } => self.silent(key, now),
        }
    }

    /// held -> suspect -> reclaimed.
    fn silent(&mut self, key: (RunId, u32), now: Now) {
        let (ttl_ms, suspect_ms, reclaim) = self.ttl_of(key);
        let Some(token) = self.ledger.tokens.get(&key) else { return };
        let silent_us = now.mono_us - token.sign_us;
        let suspect_us = token.sign_us.saturating_add(ttl_ms.saturating_mul(1000));
        let reclaim_us = suspect_us.saturating_add(suspect_ms.saturating_mul(1000));
        if now.mono_us < suspect_us {
            self.arm_silence(key, now);
            return;
        }
        self.ledger.turn(key, Phase::Held { suspect: true });
        if reclaim == Reclaim::Never {
            return;
        }
        if now.mono_us < reclaim_us {
            self.arm(key, Some(reclaim_us));
            return;
        }
        // A release that was acknowledged may wait in the inbox.
        if self.caught_up_us < reclaim_us {
            self.arm(key, Some(now.mono_us + UNREAD_US));
            return;
        }
        let message = format!("no sign of the consumer for {} s", silent_us / SECOND_US);
        self.reclaimed += 1;
        let retry = self.ledger.runs.get(&key.0).is_some_and(|r| r.spec.retry.retry_lost);
        if retry {
            self.failed(key, message, None, Outcome::Lost, now);
        } else {
            self.finish(key, Outcome::Lost, message, now);
        }
    }

    /// Sets the timer of a held token by its last sign, which may end a suspicion.
    pub(super) fn arm_silence(&mut self, key: (RunId, u32), now: Now) {
        let ttl_ms = self.ttl_of(key).0;
        let Some(token) = self.ledger.tokens.get(&key) else { return };
        let at_us = token.sign_us.saturating_add(ttl_ms.saturating_mul(1000)).max(now.mono_us);
        if at_us > now.mono_us && token.phase() == (Phase::Held { suspect: true }) {
            self.ledger.turn(key, Phase::Held { suspect: false });
        }
        self.arm(key, Some(at_us));
    }

    /// The silence that a heartbeat without a wish of its own allows: what an earlier one asked for, or the policy's
    /// time to live. The longer limit before the first heartbeat is over with it.
    fn heartbeat_ttl_ms(&self, key: (RunId, u32)) -> i64 {
        let Some(token) = self.ledger.tokens.get(&key) else { return Policy::TOKEN_TTL_MS };
        let policy = self.ledger.buckets.get(&token.policy).and_then(|b| b.policy.as_ref());
        token.row.heartbeat_ttl_ms.unwrap_or(policy.map_or(Policy::TOKEN_TTL_MS, |p| p.token_ttl_ms))
    }

    /// Allowed silence, suspect phase (milliseconds) and whether the token comes back by itself.
    pub(super) fn ttl_of(&self, key: (RunId, u32)) -> (i64, i64, Reclaim) {
        let defaults = (Policy::TOKEN_TTL_MS, Policy::SUSPECT_MS, Reclaim::AfterTtl);
        let (Some(run), Some(token)) = (self.ledger.runs.get(&key.0), self.ledger.tokens.get(&key)) else {
            return defaults;
        };
        let policy = self.ledger.buckets.get(&token.policy).and_then(|b| b.policy.as_ref());
        let from_heartbeat = match policy.map_or(TtlFrom::TargetDefault, |p| p.ttl_from) {
            TtlFrom::FirstHeartbeat => true,
            TtlFrom::Delivery => false,
            TtlFrom::TargetDefault => run.spec.target.queues(),
        };
        let (ttl_ms, unstarted_ms) = policy.map_or((Policy::TOKEN_TTL_MS, Policy::UNSTARTED_TTL_MS), |p| {
            (p.token_ttl_ms, p.unstarted_ttl_ms)
        });
        let ttl_ms = match token.row.heartbeat_ttl_ms {
            Some(ttl_ms) => ttl_ms,
            None if from_heartbeat => unstarted_ms,
            None => ttl_ms,
        };
        (ttl_ms, policy.map_or(defaults.1, |p| p.suspect_ms), policy.map_or(defaults.2, |p| p.reclaim))
    }

    /// Exponential back-off with equal jitter (Brooker, "Exponential Backoff and Jitter", 2015), in microseconds.
    pub(super) fn backoff_us(&mut self, run: RunId, failures: u32) -> i64 {
        let Some(run) = self.ledger.runs.get(&run) else { return SECOND_US };
        let (min_ms, max_ms) = (run.spec.retry.backoff_min_ms, run.spec.retry.backoff_max_ms);
        let factor = 1_i64 << failures.saturating_sub(1).min(40);
        let full_us = min_ms.saturating_mul(factor).min(max_ms).saturating_mul(1000);
        let jitter = self.random();
        #[expect(clippy::cast_possible_truncation, reason = "a fraction of full_us")]
        let jitter_us = (full_us as f64 / 2.0 * jitter) as i64;
        full_us / 2 + jitter_us
    }

    /// The schedule's target asked for a pause: nothing more of the schedule starts until it is over.
    pub(super) fn block_schedule(&mut self, run: RunId, wait_ms: i64, now: Now) {
        let Some(run) = self.ledger.runs.get(&run) else { return };
        let uid = run.row.schedule_uid;
        let until_us = now.mono_us.saturating_add(wait_ms.saturating_mul(1000));
        let schedule = self.schedules.entry(uid).or_default();
        if schedule.blocked_us.is_none_or(|b| b < until_us) {
            schedule.blocked_us = Some(until_us);
            self.mono_timers.insert((until_us, MonoTimer::Unblock(uid)));
            self.park_if_needed(uid);
        }
    }

    pub(super) fn unblock(&mut self, uid: Uuid, now: Now) {
        let Some(schedule) = self.schedules.get_mut(&uid) else { return };
        if schedule.blocked_us.is_some_and(|b| b <= now.mono_us) {
            schedule.blocked_us = None;
            self.park_if_needed(uid);
            self.forget_if_idle(uid);
        }
    }

    /// The pause that a target asked for is not another target's.
    pub(super) fn unblock_now(&mut self, uid: Uuid) {
        if let Some(schedule) = self.schedules.get_mut(&uid) {
            schedule.blocked_us = None;
        }
    }

    /// Checks a consumer's wish to look again, and rounds it up to the slot.
    fn check_slot(&self, key: (RunId, u32), check_us: i64, now: Now) -> Result<i64, NotAgain> {
        let (Some(run), Some(token)) = (self.ledger.runs.get(&key.0), self.ledger.tokens.get(&key)) else {
            return Err(NotAgain::Refused("next_check_time: the event is not in flight".to_owned()));
        };
        run.spec.check_again.slot(check_us, token.row.checks, now.wall_us)
    }

    fn come_again(&mut self, key: (RunId, u32), at_us: i64, message: String, now: Now) {
        if self.ledger.runs.get(&key.0).is_some_and(|r| r.cancelled) {
            self.finish(key, Outcome::Cancelled, message, now);
            return;
        }
        let elsewhere_us = self.elsewhere_left_us(key, now);
        self.wait(key, at_us.max(now.wall_us.saturating_add(elsewhere_us)), message);
        if let Some(token) = self.ledger.tokens.get_mut(&key) {
            token.row.checks += 1;
            token.row.failures = 0;
        }
        self.sync_lane(key.0, now);
    }

    /// Keeps a cursor for the schedule's next run.
    fn keep_cursor(&mut self, id: RunId, cursor: String, now: Now) {
        let Some(run) = self.ledger.runs.get_mut(&id) else { return };
        run.row.cursor_out = Some(cursor.clone());
        self.pending.runs.insert(id);
        let uid = run.row.schedule_uid;
        self.cursor_left(uid, (cursor, None), &[], now);
    }
}
