//! What the handler does, at a glance.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::expected_end::Expected;
use tollgate_core::handle::Gauge;
use tollgate_proto::convert::{self, names};
use tollgate_proto::v1;
use tollgate_service::status::status as store_status;
use tollgate_store::CorruptRow;
use tonic::Status;
use uuid::Uuid;

use super::targets::{OF_ANSWER_MAX, OF_PROCESS_MAX, Targets};
use crate::Shared;
use crate::routes::{Input, Question};

impl Shared {
    /// Buckets, targets and shards of all handlers; policies and targets of one namespace if given. Runs without a policy make
    /// one line.
    pub(crate) async fn status(
        &self,
        asked: v1::GetHandlerStatusRequest,
    ) -> Result<v1::HandlerStatus, Status> {
        let v1::GetHandlerStatusRequest { parent, busy_only } = asked;
        let namespace = if parent.is_empty() { None } else { Some(names::namespace("parent", &parent)?) };
        let (mut status, _) = self.status_here(namespace.as_deref(), busy_only).await;
        for (process, answer) in self.peers.statuses(&parent, busy_only).await {
            match answer.and_then(|answer| answer.status) {
                Some(other) => merge(&mut status, other),
                None => status.silent_handlers.push(process),
            }
        }
        let (named, unnamed): (Vec<_>, Vec<_>) =
            status.policies.into_iter().partition(|g| !g.policy.is_empty());
        status.policies = named;
        status.policies.sort_by(|a, b| a.policy.cmp(&b.policy));
        status.policies.extend(unnamed.into_iter().reduce(|sum, gauge| joined(sum, &gauge)));
        let mut targets = Targets::default();
        std::mem::take(&mut status.targets).into_iter().for_each(|target| targets.add(target));
        let (targets, left_out) = targets.worst_first(OF_ANSWER_MAX);
        status.targets = targets;
        status.omitted_targets_count = status.omitted_targets_count.saturating_add(left_out);
        let paused: BTreeMap<u32, bool> = status.shards.iter().map(|s| (s.shard, s.paused)).collect();
        let leases = self.people.leases().await.map_err(store_status)?;
        let gauges = leases.into_iter().map(|lease| v1::ShardGauge {
            shard: lease.shard.into(),
            owner: lease.owner,
            epoch: lease.epoch,
            paused: paused.get(&u32::from(lease.shard)).copied().unwrap_or_default(),
        });
        status.shards = gauges.collect();
        Ok(status)
    }

    /// The latest order to pause or resume that any owner that answers has seen.
    pub(crate) async fn pause_order(&self) -> Uuid {
        let (_, here) = self.status_here(None, true).await;
        let elsewhere = self.peers.statuses("", true).await.into_iter().filter_map(|(_, answer)| answer);
        let orders = elsewhere.filter_map(|answer| Uuid::from_slice(&answer.pause_order).ok());
        orders.fold(here, Ord::max)
    }

    /// Of the shards that this process owns, and the latest order to pause or resume that they have seen.
    pub(crate) async fn status_here(
        &self,
        namespace: Option<&str>,
        busy_only: bool,
    ) -> (v1::HandlerStatus, Uuid) {
        let mut status = v1::HandlerStatus { handler: self.process.clone(), ..v1::HandlerStatus::default() };
        let mut unthrottled = v1::PolicyGauge::default();
        let mut order = Uuid::nil();
        let mut targets = Targets::default();
        for (shard, shown) in self.ask_owners(|reply| Input::Ask(Question::Status { busy_only, reply })).await
        {
            // Of a shard that is being loaded nothing is shown.
            let Some(shown) = shown else { continue };
            status.scheduled_runs_count += shown.runs_upcoming;
            status.launched_runs_count += shown.runs_launched;
            order = order.max(shown.pause_order);
            let paused = shown.pause.is_some();
            status.shards.push(v1::ShardGauge { shard: shard.into(), paused, ..v1::ShardGauge::default() });
            for target in shown.targets {
                if namespace.is_none_or(|namespace| namespace == target.namespace) {
                    targets.add(self.show_target(target));
                }
            }
            for gauge in shown.gauges {
                status.held_count += u64::from(gauge.held);
                status.suspect_count += u64::from(gauge.suspect);
                status.waiting_count += gauge.waiting;
                match &gauge.policy {
                    Some(policy) if namespace.is_none_or(|n| n == policy.namespace) => {
                        status.policies.push(self.show_gauge(&gauge, shard));
                    }
                    Some(_) => {}
                    None => {
                        let mut gauge = self.show_gauge(&gauge, shard);
                        if namespace.is_some() {
                            // Whose target it is, and what it says, is not for one namespace alone.
                            (gauge.last_error, gauge.last_error_time) = (String::new(), None);
                            gauge.no_expected_drain_reason = String::new();
                        }
                        unthrottled = joined(unthrottled, &gauge);
                    }
                }
            }
        }
        (status.targets, status.omitted_targets_count) = targets.worst_first(OF_PROCESS_MAX);
        let owned: BTreeSet<u32> = status.shards.iter().map(|gauge| gauge.shard).collect();
        let corrupt = self
            .people
            .rows_passed_over()
            .into_iter()
            .filter(|row| row.shard.is_some_and(|s| owned.contains(&s.into())));
        status.corrupt_rows = corrupt.map(corrupt_row).collect();
        let tried =
            unthrottled.accepted_per_second + unthrottled.refused_per_second + unthrottled.unclear_per_second;
        if unthrottled.held_count + unthrottled.waiting_count > 0 || tried > 0.0 {
            status.policies.push(unthrottled);
        }
        (status, order)
    }

    /// A bucket as callers see it; of what runs without a policy, no shard is named.
    fn show_gauge(&self, gauge: &Gauge, shard: u16) -> v1::PolicyGauge {
        let policy = gauge.policy.as_ref();
        let above = policy.and_then(|policy| policy.parent.as_deref());
        let error = gauge.last_error.as_ref();
        let words = error.map(|error| self.without_seal(error.event, error.words.clone()));
        let drained = gauge.drained.as_ref();
        v1::PolicyGauge {
            policy: policy.map(|p| names::of_policy(&p.namespace, &p.id)).unwrap_or_default(),
            max_in_flight: policy.and_then(|p| p.limits.max_in_flight),
            held_count: gauge.held.into(),
            suspect_count: gauge.suspect.into(),
            waiting_count: gauge.waiting,
            oldest_wait: Some(convert::duration_of_ms(gauge.oldest_wait_us / 1000)),
            rate_per_second: policy.and_then(|p| p.limits.rate_per_s),
            started_per_second: gauge.started_per_s,
            paused: policy.is_some_and(|p| p.pause.is_some()),
            shard: if policy.is_some() { shard.into() } else { 0 },
            retrying_count: gauge.retrying,
            accepted_per_second: gauge.accepted_per_s,
            refused_per_second: gauge.refused_per_s,
            unclear_per_second: gauge.unclear_per_s,
            last_error: words.unwrap_or_default(),
            last_error_time: error.map(|error| convert::timestamp(error.at_us)),
            expected_drain_time: drained.and_then(Expected::at_us).map(convert::timestamp),
            no_expected_drain_reason: drained.and_then(Expected::why_not).unwrap_or_default(),
            at_risk_runs_count: gauge.runs_at_risk,
            below_count: gauge.below.into(),
            parent: above.map(|above| names::of_policy(&above.namespace, &above.id)).unwrap_or_default(),
            floor: above.map_or(0, |above| above.floor),
        }
    }
}

fn corrupt_row(row: CorruptRow) -> v1::CorruptRow {
    let CorruptRow { table, shard, key, column, message } = row;
    v1::CorruptRow { table: table.to_owned(), shard: shard.map(u32::from), key, column, message }
}

/// Two lines about what runs without a policy, as one.
fn joined(mut sum: v1::PolicyGauge, gauge: &v1::PolicyGauge) -> v1::PolicyGauge {
    let wait = |gauge: &v1::PolicyGauge| gauge.oldest_wait.map_or((0, 0), |wait| (wait.seconds, wait.nanos));
    sum.held_count += gauge.held_count;
    sum.suspect_count += gauge.suspect_count;
    sum.waiting_count += gauge.waiting_count;
    sum.started_per_second += gauge.started_per_second;
    sum.retrying_count += gauge.retrying_count;
    sum.accepted_per_second += gauge.accepted_per_second;
    sum.refused_per_second += gauge.refused_per_second;
    sum.unclear_per_second += gauge.unclear_per_second;
    sum.at_risk_runs_count += gauge.at_risk_runs_count;
    let us =
        |time: Option<prost_types::Timestamp>| time.map_or((i64::MIN, 0), |time| (time.seconds, time.nanos));
    if us(gauge.last_error_time) > us(sum.last_error_time) {
        sum.last_error.clone_from(&gauge.last_error);
        sum.last_error_time = gauge.last_error_time;
    }
    // The last of all starts when the last of one part does; where that cannot be said of one, it cannot be of all.
    if sum.no_expected_drain_reason.is_empty() {
        sum.no_expected_drain_reason.clone_from(&gauge.no_expected_drain_reason);
    }
    if us(gauge.expected_drain_time) > us(sum.expected_drain_time) {
        sum.expected_drain_time = gauge.expected_drain_time;
    }
    if !sum.no_expected_drain_reason.is_empty() {
        sum.expected_drain_time = None;
    }
    if wait(gauge) >= wait(&sum) {
        sum.oldest_wait = gauge.oldest_wait;
    }
    sum
}

/// Adds what another handler does.
fn merge(sum: &mut v1::HandlerStatus, other: v1::HandlerStatus) {
    sum.held_count += other.held_count;
    sum.suspect_count += other.suspect_count;
    sum.waiting_count += other.waiting_count;
    sum.scheduled_runs_count += other.scheduled_runs_count;
    sum.launched_runs_count += other.launched_runs_count;
    sum.corrupt_rows.extend(other.corrupt_rows);
    sum.policies.extend(other.policies);
    sum.targets.extend(other.targets);
    sum.omitted_targets_count = sum.omitted_targets_count.saturating_add(other.omitted_targets_count);
    sum.shards.extend(other.shards);
}
