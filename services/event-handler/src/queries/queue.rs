//! Which events hold a policy's tokens, and which schedules wait for them in which order.
//!
//! In: a policy's name. Out: rows of the store, and from the owner's memory what no row says: suspect tokens, when
//! something happens by itself, places in line. Invariants: runs, tokens and questions are bounded, and what was
//! left out is said; the owner is asked only about what is shown.

use std::collections::BTreeMap;

use futures::StreamExt;
use tollgate_core::handle::KeyCount;
use tollgate_core::handle::change::{TokenRow, TokenState};
use tollgate_core::model::{EventRef, Policy, Run, RunSpec, RunState, SECOND_US};
use tollgate_proto::convert::{self, event, names};
use tollgate_proto::{FieldError, v1};
use tollgate_service::status::status as store_status;
use tonic::Status;
use uuid::Uuid;

use crate::Shared;
use crate::routes::{Input, Question};

/// The most unfinished runs of a policy that are read.
const RUNS_MAX: u32 = 2_000;
/// The most tokens that are read.
const TOKENS_MAX: u32 = 20_000;
/// How many runs' tokens are read at once.
const AT_ONCE: usize = 8;
const SHOWN_DEFAULT: usize = 50;
const SHOWN_MAX: usize = 200;
/// The most keys of an answer.
const KEYS_SHOWN_MAX: usize = 1_000;
/// The most waiting schedules for which the owner is asked: it looks at every token for each.
const ASKED_MAX: usize = 12;
/// Holds of runs that ended longer ago say nothing about now.
const SAMPLED_US: i64 = 3_600 * SECOND_US;
/// The most runs that are looked at for how long tokens were held.
const SAMPLED_RUNS: u32 = 20;
/// The most events of each.
const SAMPLED_EVENTS: u32 = 200;

/// A token that is held, with its run.
struct Held<'a> {
    run: &'a Run,
    row: TokenRow,
}

/// What is known of the keys of a policy: some of them, how many there are, how many events have keys that have not been read,
/// and whether nobody who knows has answered.
#[derive(Default)]
struct Keys {
    keys: Vec<v1::PolicyKey>,
    all: u32,
    unread: u64,
    is_unknown: bool,
}

impl Shared {
    /// The queue of one policy.
    pub(crate) async fn policy_queue(
        &self,
        request: v1::GetPolicyQueueRequest,
    ) -> Result<v1::PolicyQueue, Status> {
        let name = names::policy("name", &request.name)?;
        let holders_max = shown("holders_max", request.holders_max, SHOWN_MAX)?;
        let waiters_max = shown("waiters_max", request.waiters_max, SHOWN_MAX)?;
        let keys_max = shown("keys_max", request.keys_max, KEYS_SHOWN_MAX)?;
        let policy = self.people.policy_by_name(&name.namespace, &name.id).await.map_err(store_status)?;
        let policy = policy
            .ok_or_else(|| Status::not_found(format!("name: there is no policy {:?}", request.name)))?;
        let now_us = self.clock.wall_us();
        let runs = self.people.policy_runs_open(policy.shard, policy.uid, now_us.saturating_add(1), RUNS_MAX);
        let runs = runs.await.map_err(store_status)?;
        let (held, all_read) = self.held(&runs).await?;
        let (holders, waiters, holds, keys) = futures::future::join4(
            self.holders(&held, holders_max, now_us),
            self.waiters(&runs, waiters_max, now_us),
            self.holds(&policy, &runs, now_us),
            self.keys(&policy),
        )
        .await;
        let Keys { mut keys, all: keys_read_count, unread: keys_unread_count, is_unknown } = keys;
        keys.truncate(keys_max);
        let ((waiters, waiting), mut holds) = (waiters?, holds?);
        holds.sort_unstable();
        let part = |percent: usize| {
            let place = (holds.len() * percent).div_ceil(100).saturating_sub(1);
            holds.get(place).map(|us| convert::duration_of_ms(us / 1_000))
        };
        Ok(v1::PolicyQueue {
            name: request.name,
            holders,
            holders_read_count: count(held.len()),
            waiters,
            waiters_read_count: count(waiting),
            incomplete: !all_read || runs.len() >= RUNS_MAX as usize || is_unknown,
            hold_p50: part(50),
            hold_p99: part(99),
            holds_sampled_count: count(holds.len()),
            keys,
            keys_read_count,
            keys_unread_count,
        })
    }

    /// The tokens that are held, longest first, and whether all were read.
    async fn held<'a>(&self, runs: &'a [Run]) -> Result<(Vec<Held<'a>>, bool), Status> {
        let mut reads = Vec::new();
        for run in runs.iter().filter(|run| run.next_index > run.counts.total()) {
            reads.push(async move { (run, self.people.tokens(run.shard, run.id, 0, TOKENS_MAX).await) });
        }
        let mut reads = futures::stream::iter(reads).buffered(AT_ONCE);
        let (mut held, mut read) = (Vec::new(), 0);
        while read < TOKENS_MAX as usize
            && let Some((run, rows)) = reads.next().await
        {
            let rows = rows.map_err(store_status)?;
            read += rows.len();
            let in_flight = rows.into_iter().filter(|row| row.state != TokenState::Waiting);
            held.extend(in_flight.map(|row| Held { run, row }));
        }
        drop(reads);
        held.sort_by_key(|held| (held.row.acquired_us, held.row.index));
        Ok((held, read < TOKENS_MAX as usize))
    }

    async fn holders(&self, held: &[Held<'_>], max: usize, now_us: i64) -> Vec<v1::Holder> {
        let asked = held.iter().take(max).map(|held| self.held_token(held, now_us));
        futures::future::join_all(asked).await
    }

    /// As its owner knows it; where that does not answer, as its row says.
    async fn held_token(&self, held: &Held<'_>, now_us: i64) -> v1::Holder {
        let (run, row) = (held.run, &held.row);
        let id = self.keyring.id(EventRef { shard: run.named_shard(), run: run.id, index: row.index });
        let shown =
            event::to_message(&id, run, row.index, 0, event::EventRecord::Token { row, suspect: false });
        let ask = |reply| Input::Ask(Question::Explain { run: run.id, index: row.index, reply });
        let known = match self.peers.routes().ask(run.shard, ask).await {
            Some(explained) => explained
                .and_then(|explained| explained.holders.into_iter().next())
                .map(|holder| self.holder(&holder, now_us)),
            None => {
                let explained = self.peers.explain(run.shard, &shown.name).await;
                explained.and_then(|explained| {
                    explained.holders.into_iter().find(|holder| holder.event == shown.name)
                })
            }
        };
        known.unwrap_or_else(|| v1::Holder {
            event: shown.name.clone(),
            schedule: shown.schedule.clone(),
            state: shown.state,
            age: Some(convert::duration_of_ms((now_us - row.acquired_us).max(0) / 1_000)),
            expire_time: None,
            units: 0,
        })
    }

    /// The schedules that wait, in the order in which they go, and how many there are.
    async fn waiters(
        &self,
        runs: &[Run],
        max: usize,
        now_us: i64,
    ) -> Result<(Vec<v1::PolicyWaiter>, usize), Status> {
        // Runs come earliest first, so that the first of each schedule is the one that goes next.
        let mut by_schedule: BTreeMap<Uuid, (&Run, u32, u64)> = BTreeMap::new();
        for run in runs.iter().filter(|run| run.next_index < run.events) {
            let (_, runs_count, waiting) = by_schedule.entry(run.schedule_uid).or_insert((run, 0, 0));
            *runs_count += 1;
            *waiting += u64::from(run.events - run.next_index);
        }
        let waiting = by_schedule.len();
        let mut all: Vec<(&Run, u32, u64)> = by_schedule.into_values().collect();
        all.sort_by_key(|(run, ..)| (std::cmp::Reverse(run.priority), run.launch_us, run.id));
        all.truncate(max);
        let specs = self.specs_of(all.iter().map(|(run, ..)| *run)).await?;
        let told = all.into_iter().enumerate().map(|(place, (run, runs_count, waiting_count))| {
            let finish_by_s =
                specs.get(&(run.schedule_uid, run.generation)).and_then(|spec| spec.finish_by_s);
            async move {
                let first = self.unstarted_indexes(run, 0, 1).await.unwrap_or_default();
                let next = first.first().copied().unwrap_or(run.next_index);
                let mut waiter = self.waiter((run, next), finish_by_s);
                (waiter.runs_count, waiter.waiting_count) = (runs_count, waiting_count);
                if place < ASKED_MAX {
                    self.ask_place((run, next), &mut waiter, now_us).await;
                }
                waiter
            }
        });
        let mut waiters = futures::future::join_all(told).await;
        // A schedule that is not known to be in line comes after those that are.
        let place = |waiter: &v1::PolicyWaiter| u64::try_from(waiter.place_in_line).unwrap_or(u64::MAX);
        waiters.sort_by_key(|waiter| (std::cmp::Reverse(waiter.priority), place(waiter)));
        Ok((waiters, waiting))
    }

    fn waiter(&self, (run, next): (&Run, u32), finish_by_s: Option<i64>) -> v1::PolicyWaiter {
        let id = self.keyring.id(EventRef { shard: run.named_shard(), run: run.id, index: next });
        let end_us = finish_by_s.map(|after| run.launch_us.saturating_add(after.saturating_mul(SECOND_US)));
        v1::PolicyWaiter {
            schedule: names::of_schedule(&run.namespace, &run.schedule_id),
            run: names::of_run(&run.namespace, run.named_shard(), run.id),
            launch_time: Some(convert::timestamp(run.launch_us)),
            finish_by_time: end_us.map(convert::timestamp),
            priority: u32::from(run.priority),
            event: names::of_event(&run.namespace, id.as_str()),
            place_in_line: -1,
            ..v1::PolicyWaiter::default()
        }
    }

    /// Asks the owner for the next event's place in line, why it waits, and how much of its run will be late.
    async fn ask_place(&self, (run, next): (&Run, u32), waiter: &mut v1::PolicyWaiter, now_us: i64) {
        let known = self.outstanding(std::slice::from_ref(run)).await.pop().flatten();
        waiter.at_risk_count = known.map_or(0, |known| known.at_risk_count);
        let ask = |reply| Input::Ask(Question::Explain { run: run.id, index: next, reply });
        match self.peers.routes().ask(run.shard, ask).await {
            Some(Some(explained)) => {
                let told = self.why(&explained, now_us);
                (waiter.place_in_line, waiter.summary) = (told.place_in_line, told.summary);
            }
            // It has started since its row was read.
            Some(None) => {}
            None => {
                if let Some(told) = self.peers.explain(run.shard, &waiter.event).await {
                    (waiter.place_in_line, waiter.summary) = (told.place_in_line, told.summary);
                }
            }
        }
    }

    /// What the events of each key hold and wait for, the one with most waiting events first, and how many wait whose keys have
    /// not been read yet; nothing where the policy says nothing of keys. Of keys that the policy names and that nothing is
    /// known of, what the policy says.
    async fn keys(&self, policy: &Policy) -> Keys {
        if policy.keys.is_empty() {
            return Keys::default();
        }
        let counted = match self.keys_here(policy.shard, policy.uid).await {
            Some(counted) => Some(counted),
            None => self.peers.keys(policy.shard, policy.uid).await,
        };
        let is_unknown = counted.is_none();
        let v1::CountKeysResponse { keys, unread_count, keys_count, .. } = counted.unwrap_or_default();
        let of_policy = policy.keys.of.keys().map(|key| (key.clone(), v1::PolicyKey::default()));
        let mut all: BTreeMap<String, v1::PolicyKey> = of_policy.collect();
        all.extend(keys.into_iter().map(|key| (key.key.clone(), key)));
        let mut keys: Vec<_> = all.into_iter().map(|(key, counts)| said_of(policy, key, counts)).collect();
        keys.sort_by_key(|key| (std::cmp::Reverse(key.waiting_count), std::cmp::Reverse(key.held_count)));
        let all = keys_count.max(count(keys.len()));
        Keys { keys, all, unread: unread_count, is_unknown }
    }

    /// As [`Self::keys`], of a shard that this process owns; without what the policy says.
    pub(crate) async fn keys_here(&self, shard: u16, policy: Uuid) -> Option<v1::CountKeysResponse> {
        let counts =
            self.peers.routes().ask(shard, |reply| Input::Ask(Question::Keys { policy, reply })).await?;
        let now_us = self.clock.wall_us();
        let shown = |count: KeyCount| v1::PolicyKey {
            key: count.key,
            held_count: count.held,
            waiting_count: count.waiting,
            oldest_wait: count.since_us.map(|us| convert::duration_of_ms((now_us - us).max(0) / 1_000)),
            ..v1::PolicyKey::default()
        };
        let keys = counts.keys.into_iter().map(shown).collect();
        let (keys_count, unread_count) = (count(counts.all), counts.unread);
        Some(v1::CountKeysResponse { known: true, keys, unread_count, keys_count })
    }

    /// How long tokens were held lately, in microseconds: of the latest events of runs that run, or ended lately.
    async fn holds(&self, policy: &Policy, open: &[Run], now_us: i64) -> Result<Vec<i64>, Status> {
        let since_us = now_us - SAMPLED_US;
        let ended = self.people.policy_runs_ended(policy.shard, policy.uid, since_us, SAMPLED_RUNS).await;
        let ended = ended.map_err(store_status)?;
        let running =
            open.iter().rev().filter(|run| run.state == RunState::Running && run.counts.total() > 0);
        let sampled = running.chain(&ended).take(SAMPLED_RUNS as usize);
        let reads = sampled.map(|run| {
            let from = run.next_index.saturating_sub(SAMPLED_EVENTS);
            self.people.history(run.shard, run.id, from, None, SAMPLED_EVENTS)
        });
        let mut holds = Vec::new();
        for rows in futures::future::join_all(reads).await {
            let rows = rows.map_err(store_status)?;
            holds.extend(rows.iter().filter_map(|row| Some((row.finished_us - row.acquired_us?).max(0))));
        }
        Ok(holds)
    }

    /// The specs of runs, each shard asked once.
    pub(crate) async fn specs_of(
        &self,
        runs: impl Iterator<Item = &Run>,
    ) -> Result<BTreeMap<(Uuid, i64), RunSpec>, Status> {
        let mut by_shard: BTreeMap<u16, Vec<(Uuid, i64)>> = BTreeMap::new();
        for run in runs {
            by_shard.entry(run.shard).or_default().push((run.schedule_uid, run.generation));
        }
        let mut reads = Vec::new();
        for (shard, mut keys) in by_shard {
            keys.sort_unstable();
            keys.dedup();
            reads.push(async move { super::readable_specs(&*self.people, shard, &keys).await });
        }
        let mut reads = futures::stream::iter(reads).buffer_unordered(AT_ONCE);
        let mut specs = BTreeMap::new();
        while let Some(read) = reads.next().await {
            let read = read.map_err(store_status)?;
            specs.extend(read.into_iter().map(|spec| ((spec.schedule_uid, spec.generation), spec)));
        }
        Ok(specs)
    }
}

/// A key with what its policy says of it.
fn said_of(policy: &Policy, key: String, counts: v1::PolicyKey) -> v1::PolicyKey {
    let limits = policy.keys.limits_of(&key);
    let pause = policy.keys.pause_of(&key);
    v1::PolicyKey {
        max_in_flight: limits.max_in_flight,
        rate_per_second: limits.rate_per_s,
        weight: policy.keys.weight_of(&key),
        paused: pause.is_some(),
        reason: pause.unwrap_or_default().to_owned(),
        key,
        ..counts
    }
}

fn shown(field: &str, given: i32, most: usize) -> Result<usize, FieldError> {
    match usize::try_from(given) {
        Ok(0) => Ok(SHOWN_DEFAULT),
        Ok(given) => Ok(given.min(most)),
        Err(_) => Err(FieldError::new(field, given, "0 or more")),
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
