//! Brings about what there is beside the load: by the calls that users make, so that it is what theirs would be.
//!
//! Runs that wait are those that a paused policy has held up: schedules of every minute, whose runs of the last minutes
//! are made by backfill. Schedules are like those of `windows-500k`, in fewer zones; what falls due of them goes to a lane
//! of its own.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::task::JoinSet;
use tollgate_proto::v1::apply_resources_request::Resource;
use tollgate_proto::v1::trigger::Trigger as Rule;
use tollgate_proto::v1::{BackfillScheduleRequest, PausePolicyRequest, Policy, Schedule, Trigger};

use super::point::Point;
use crate::load::{Load, moment};
use crate::scenario::{Kind, Variant};
use crate::service::{NAMESPACE, Service};
use crate::sink::wall_us;

/// Resources of one stream.
const STREAM: u32 = 10_000;
/// Schedules that share the runs that wait.
const WAITING_SCHEDULES: u64 = 1_000;
/// Policies that hold them up: enough for nearly every queue shard to have some.
const PAUSED_POLICIES: u64 = 256;
/// Backfills under way at once.
const BACKFILLS: usize = 4;
/// The longest silence of the owners while they take runs in.
const PATIENCE: Duration = Duration::from_secs(60);

/// Fills a store. `like` is the load's first variant, `port` where what falls due goes.
///
/// # Errors
/// Refusals, and runs that do not arrive.
pub(super) async fn fill(service: &Service, point: &Point, like: &Variant, port: u16) -> anyhow::Result<()> {
    let load = Load { variant: like, ports: [port; 2], round: 0 };
    stream(service, point.policies, |number| Resource::Policy(load.policy(number)))
        .await
        .context("policies")?;
    if point.schedules > 0 {
        let stored = Variant {
            name: "stored".to_owned(),
            kind: Kind::Windows,
            events: 1,
            max_in_flight: None,
            ..like.clone()
        };
        let load = Load { variant: &stored, ..load };
        let schedule = |number: u32| Resource::Schedule(load.schedule(number.into(), 0));
        stream(service, point.schedules, schedule).await.context("schedules")?;
    }
    if point.waiting > 0 {
        hold_up(service, point.waiting, &load).await.context("runs that wait")?;
    }
    Ok(())
}

/// Applies so many resources.
async fn stream(service: &Service, count: u32, resource: impl Fn(u32) -> Resource) -> anyhow::Result<()> {
    let mut from = 0;
    while from < count {
        let to = count.min(from + STREAM);
        service.apply((from..to).map(&resource).collect()).await?;
        from = to;
    }
    Ok(())
}

/// Makes so many runs wait.
async fn hold_up(service: &Service, count: u64, load: &Load<'_>) -> anyhow::Result<()> {
    let schedules = count.min(WAITING_SCHEDULES);
    let policies = schedules.min(PAUSED_POLICIES);
    let paused: Vec<Policy> = (0..policies)
        .map(|number| Policy {
            name: format!("namespaces/{NAMESPACE}/policies/paused-{number}"),
            max_in_flight: Some(1),
            ..Policy::default()
        })
        .collect();
    service.apply(paused.iter().cloned().map(Resource::Policy).collect()).await?;
    for Policy { name, .. } in paused {
        service
            .master()
            .pause_policy(PausePolicyRequest { name, reason: String::new(), ..Default::default() })
            .await?;
    }
    let end_s = wall_us() / 60_000_000 * 60;
    let start_s = end_s - i64::try_from(count.div_ceil(schedules))? * 60;
    let schedules: Vec<Schedule> = (0..schedules)
        .map(|number| Schedule {
            name: format!("namespaces/{NAMESPACE}/schedules/waiting-{number}"),
            triggers: vec![Trigger { trigger: Some(Rule::Cron("* * * * *".to_owned())) }],
            policy: format!("paused-{}", number % policies),
            start_time: Some(moment(start_s)),
            // Nothing is added to them while the load is measured.
            end_time: Some(moment(end_s)),
            events: Some(1),
            ..load.schedule(number, start_s)
        })
        .collect();
    service.apply(schedules.iter().cloned().map(Resource::Schedule).collect()).await?;
    let made = backfill(service, schedules, start_s, end_s).await?;
    ensure!(made == count, "{made} of {count} runs were made");
    taken_in(service, count).await
}

/// Makes the runs of a time that has passed. How many.
async fn backfill(
    service: &Service,
    schedules: Vec<Schedule>,
    start_s: i64,
    end_s: i64,
) -> anyhow::Result<u64> {
    let (mut made, mut calls) = (0, JoinSet::new());
    for Schedule { name, .. } in schedules {
        if calls.len() >= BACKFILLS
            && let Some(done) = calls.join_next().await
        {
            made += done??;
        }
        let mut master = service.master();
        let request = BackfillScheduleRequest {
            name,
            start_time: Some(moment(start_s)),
            end_time: Some(moment(end_s)),
            priority: None,
            ..Default::default()
        };
        calls.spawn(async move {
            let answer = master.backfill_schedule(request).await?.into_inner();
            anyhow::Ok(u64::from(answer.created_count))
        });
    }
    while let Some(done) = calls.join_next().await {
        made += done??;
    }
    Ok(made)
}

/// Waits until the owners of the queue shards have so many due and unfinished runs in their memory.
///
/// # Errors
/// Runs that do not come.
pub(super) async fn taken_in(service: &Service, count: u64) -> anyhow::Result<()> {
    let (mut last, mut moved) = (0, Instant::now());
    loop {
        let runs = service.launched_runs().await?;
        if runs >= count {
            return Ok(());
        }
        if runs != last {
            (last, moved) = (runs, Instant::now());
        }
        ensure!(moved.elapsed() < PATIENCE, "the owners have taken in {runs} of {count} runs that wait");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
