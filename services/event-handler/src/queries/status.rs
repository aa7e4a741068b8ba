//! What the handler does, at a glance.

use tollgate_core::handle::Gauge;
use tollgate_proto::convert::{self, names};
use tollgate_proto::v1;
use tollgate_status::status as store_status;
use tonic::Status;

use crate::Shared;
use crate::routes::Input;

impl Shared {
    /// Buckets and shards; policies of one namespace if given. Runs without a policy make one line.
    pub(crate) async fn status(&self, namespace: Option<&str>) -> Result<v1::HandlerStatus, Status> {
        let mut status = v1::HandlerStatus { handler: self.process.clone(), ..v1::HandlerStatus::default() };
        let mut unthrottled = v1::PolicyGauge::default();
        let mut paused = vec![false; usize::from(self.shards)];
        for shard in self.routes.shards() {
            let Some(shown) = self.routes.ask(shard, |reply| Input::Status { reply }).await else { continue };
            status.scheduled_runs_count += shown.runs_upcoming;
            if let Some(flag) = paused.get_mut(usize::from(shard)) {
                *flag = shown.pause.is_some();
            }
            for gauge in shown.gauges {
                status.held_count += u64::from(gauge.held);
                status.suspect_count += u64::from(gauge.suspect);
                status.waiting_count += gauge.waiting;
                match &gauge.policy {
                    Some(policy) if namespace.is_none_or(|n| n == policy.namespace) => {
                        status.policies.push(show(&gauge, shard));
                    }
                    Some(_) => {}
                    None => add(&mut unthrottled, &gauge),
                }
            }
        }
        status.policies.sort_by(|a, b| a.policy.cmp(&b.policy));
        if unthrottled.held_count + unthrottled.waiting_count > 0 || unthrottled.started_per_second > 0.0 {
            status.policies.push(unthrottled);
        }
        for lease in self.store.leases().await.map_err(store_status)? {
            let paused = paused.get(usize::from(lease.shard)).copied().unwrap_or_default();
            status.shards.push(v1::ShardGauge {
                shard: lease.shard.into(),
                owner: lease.owner,
                epoch: lease.epoch,
                paused,
            });
        }
        Ok(status)
    }
}

fn show(gauge: &Gauge, shard: u16) -> v1::PolicyGauge {
    let policy = gauge.policy.as_ref();
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
        shard: shard.into(),
    }
}

fn add(sum: &mut v1::PolicyGauge, gauge: &Gauge) {
    let oldest_ms = sum.oldest_wait.as_ref().map_or(0, |d| d.seconds * 1000 + i64::from(d.nanos) / 1_000_000);
    sum.held_count += u64::from(gauge.held);
    sum.suspect_count += u64::from(gauge.suspect);
    sum.waiting_count += gauge.waiting;
    sum.started_per_second += gauge.started_per_s;
    sum.oldest_wait = Some(convert::duration_of_ms(oldest_ms.max(gauge.oldest_wait_us / 1000)));
}
