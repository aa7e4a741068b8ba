//! What a scrape shows of this process's queue shards: the same as the status call, without the other processes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_core::handle::{Gauge, Status, TargetGauge};
use tollgate_metrics::sample::{HandlerSample, NO_POLICY, OTHER_TARGETS, PolicySample, TargetSample};

use crate::Shared;
use crate::routes::{Input, Question};

/// An owner that has not answered within this time is loading its shard.
const ANSWER_MAX: Duration = Duration::from_secs(1);

impl Shared {
    /// The shards that this process owns, asked all at once. None of one whose owner does not answer in time.
    pub(crate) async fn ask_owners<T>(
        &self,
        ask: impl Fn(oneshot::Sender<T>) -> Input + Copy,
    ) -> Vec<(u16, Option<T>)> {
        let routes = self.peers.routes();
        let asked = routes.shards().into_iter().map(|shard| async move {
            let answer = tokio::time::timeout(ANSWER_MAX, routes.ask(shard, ask)).await;
            (shard, answer.ok().flatten())
        });
        futures::future::join_all(asked).await
    }

    /// What they are doing.
    pub(crate) async fn sample(&self) -> HandlerSample {
        let (answers, troubles) = futures::future::join(
            self.ask_owners(|reply| Input::Ask(Question::Status { busy_only: false, reply })),
            self.troubles_by_kind(),
        )
        .await;
        let shards: BTreeSet<u16> = answers.iter().map(|(shard, _)| *shard).collect();
        let mut sample = HandlerSample { shards_owned: shards.len() as u64, ..HandlerSample::default() };
        let mut unthrottled = PolicySample { policy: NO_POLICY.to_owned(), ..PolicySample::default() };
        let mut targets: BTreeMap<(String, String), TargetSample> = BTreeMap::new();
        for (_, answer) in answers {
            match answer {
                Some(mut status) => {
                    for gauge in std::mem::take(&mut status.targets) {
                        add_target(&mut targets, target(gauge));
                    }
                    add(&mut sample, &mut unthrottled, status);
                }
                None => sample.shards_silent += 1,
            }
        }
        sample.targets = targets.into_values().collect();
        sample.policies.push(unthrottled);
        sample.troubles = troubles;
        (sample.workers, sample.workers_room, sample.workers_events) = self.desk.counts();
        let corrupt = self.people.rows_passed_over().into_iter();
        sample.corrupt_rows =
            corrupt.filter(|row| row.shard.is_some_and(|s| shards.contains(&s))).count() as u64;
        for shard in &shards {
            if let Some(passed_over) = self.passed_over.get(shard) {
                sample.runs_unreadable += passed_over.0 as u64;
                sample.messages_unreadable += passed_over.1 as u64;
            }
        }
        sample
    }
}

fn add(sample: &mut HandlerSample, unthrottled: &mut PolicySample, status: Status) {
    sample.runs_launched += status.runs_launched;
    sample.runs_upcoming += status.runs_upcoming;
    sample.shards_paused += u64::from(status.pause.is_some());
    sample.schedules_remembered += status.remembered.schedules as u64;
    sample.specs_remembered += status.remembered.specs as u64;
    sample.policies_remembered += status.remembered.policies as u64;
    for gauge in status.gauges {
        match policy(&gauge) {
            Some(policy) => sample.policies.push(policy),
            None => {
                unthrottled.in_flight += u64::from(gauge.held);
                unthrottled.waiting += gauge.waiting;
                unthrottled.suspect += u64::from(gauge.suspect);
                unthrottled.retrying += gauge.retrying;
                unthrottled.started_per_s += gauge.started_per_s;
                unthrottled.refused_per_s += gauge.refused_per_s;
                unthrottled.unclear_per_s += gauge.unclear_per_s;
                unthrottled.runs_at_risk += gauge.runs_at_risk;
                unthrottled.oldest_wait_us = unthrottled.oldest_wait_us.max(gauge.oldest_wait_us);
            }
        }
    }
}

fn add_target(targets: &mut BTreeMap<(String, String), TargetSample>, part: TargetSample) {
    match targets.entry((part.namespace.clone(), part.target.clone())) {
        Entry::Occupied(mut sum) => sum.get_mut().add(&part),
        Entry::Vacant(place) => {
            place.insert(part);
        }
    }
}

fn target(gauge: TargetGauge) -> TargetSample {
    TargetSample {
        namespace: gauge.namespace,
        target: gauge.target.unwrap_or_else(|| OTHER_TARGETS.to_owned()),
        in_flight: gauge.held,
        waiting: gauge.waiting,
        oldest_wait_us: gauge.oldest_wait_us,
        retrying: gauge.retrying,
        started_per_s: gauge.started_per_s,
        accepted_per_s: gauge.accepted_per_s,
        refused_per_s: gauge.refused_per_s,
        unclear_per_s: gauge.unclear_per_s,
    }
}

fn policy(gauge: &Gauge) -> Option<PolicySample> {
    let policy = gauge.policy.as_ref()?;
    Some(PolicySample {
        namespace: policy.namespace.clone(),
        policy: policy.id.clone(),
        in_flight: gauge.held.into(),
        limit: policy.limits.max_in_flight.map(u64::from),
        waiting: gauge.waiting,
        oldest_wait_us: gauge.oldest_wait_us,
        retrying: gauge.retrying,
        started_per_s: gauge.started_per_s,
        refused_per_s: gauge.refused_per_s,
        unclear_per_s: gauge.unclear_per_s,
        runs_at_risk: gauge.runs_at_risk,
        suspect: gauge.suspect.into(),
        paused: policy.pause.is_some(),
    })
}
