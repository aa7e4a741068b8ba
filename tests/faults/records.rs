//! Reads the service's own records at the end, over its API.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tollgate_harness::resources::{PARENT, schedule_name, us};
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient;
use tollgate_proto::v1::{
    HandlerStatus, ListEventsRequest, ListRunsRequest, ListSkippedTriggersRequest, ReleaseTokenRequest, Run,
    RunState,
};
use tonic::Code;
use tonic::transport::Channel;

use crate::audit::{Ordered, Records, RunRecord};
use crate::process::Process;

/// Waits until nothing is held, waits or runs any more, and every launch that fell due has left a trace. The records of
/// then, or as they are when the patience ends.
pub(crate) async fn settled(
    processes: &[Process],
    ordered: impl Fn() -> Ordered,
    patience: Duration,
) -> Result<Records> {
    let end = Instant::now() + patience;
    let mut calm = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let statuses = statuses(processes).await;
        calm = if statuses.as_deref().is_some_and(is_calm) { calm + 1 } else { 0 };
        let is_over = Instant::now() >= end;
        if calm < 3 && !is_over {
            continue;
        }
        let records = read(&processes[0].channel, &ordered()).await;
        let (mut records, is_complete) = match records {
            Ok(read) => read,
            Err(error) if is_over => return Err(error),
            Err(_) => continue,
        };
        if is_complete || is_over {
            let statuses = statuses.unwrap_or_default();
            records.held = held(&statuses);
            records.unowned = unowned(&statuses);
            return Ok(records);
        }
        calm = 0;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Gives back the tokens of cancelled events whose deliveries ended in doubt. Nobody sends these again, and under a strict
/// policy only an operator can free them, which is what the campaign is here: `leaves` is told first. Returns how many
/// there were.
pub(crate) async fn free_by_hand(
    channel: &Channel,
    ordered: &Ordered,
    is_taken: impl Fn(&str) -> bool,
    leaves: impl Fn(&str),
) -> Result<u64> {
    let mut handler = EventHandlerServiceClient::new(channel.clone()).max_decoding_message_size(64 << 20);
    let mut freed = 0;
    for schedule in &ordered.cancelled {
        let filter = format!("schedule={schedule}");
        let request = ListRunsRequest { parent: PARENT.to_owned(), filter, ..ListRunsRequest::default() };
        for run in handler.list_runs(request).await?.into_inner().runs {
            for state in ["HELD", "SUSPECT"] {
                let request = ListEventsRequest {
                    parent: run.name.clone(),
                    page_size: 1_000,
                    filter: format!("state={state}"),
                    ..ListEventsRequest::default()
                };
                let events = handler.list_events(request).await?.into_inner().events;
                for event in events.into_iter().filter(|event| !is_taken(&event.event_id)) {
                    leaves(&event.event_id);
                    let request =
                        ReleaseTokenRequest { name: event.event_id, ..ReleaseTokenRequest::default() };
                    handler.release_token(request).await?;
                    freed += 1;
                }
            }
        }
    }
    Ok(freed)
}

/// Whether every process answers and every queue shard has an owner among them.
pub(crate) async fn is_owned(processes: &[Process]) -> bool {
    statuses(processes).await.is_some_and(|statuses| unowned(&statuses).is_empty())
}

/// What every process says; none where one does not answer.
async fn statuses(processes: &[Process]) -> Option<Vec<HandlerStatus>> {
    let mut all = Vec::new();
    for process in processes {
        all.push(process.status().await?);
    }
    Some(all)
}

fn is_calm(statuses: &[HandlerStatus]) -> bool {
    let handlers: BTreeSet<&str> = statuses.iter().map(|status| status.handler.as_str()).collect();
    statuses.iter().all(|status| {
        status.held_count + status.waiting_count + status.launched_runs_count == 0
            && status.shards.iter().all(|shard| handlers.contains(shard.owner.as_str()))
    })
}

fn unowned(statuses: &[HandlerStatus]) -> Vec<u32> {
    let handlers: BTreeSet<&str> = statuses.iter().map(|status| status.handler.as_str()).collect();
    let shards = statuses.iter().take(1).flat_map(|status| &status.shards);
    shards.filter(|shard| !handlers.contains(shard.owner.as_str())).map(|shard| shard.shard).collect()
}

fn held(statuses: &[HandlerStatus]) -> BTreeMap<String, u64> {
    let mut held: BTreeMap<String, u64> = BTreeMap::new();
    // A policy lives in one shard, so that at most one handler has it.
    for gauge in statuses.iter().flat_map(|status| &status.policies) {
        let most = held.entry(gauge.policy.clone()).or_default();
        *most = gauge.held_count.max(*most);
    }
    held
}

/// The records, and whether every launch has left a trace and ended.
async fn read(channel: &Channel, ordered: &Ordered) -> Result<(Records, bool)> {
    let mut records = Records { runs: runs(channel).await?, ..Records::default() };
    let known: BTreeSet<(&str, i64)> =
        records.runs.iter().map(|run| (run.schedule.as_str(), run.launch_us)).collect();
    let without = ordered.due.iter().filter(|due| due.required);
    let without = without.filter(|due| !known.contains(&(due.schedule.as_str(), due.launch_us)));
    let without: BTreeSet<&str> = without.map(|due| due.schedule.as_str()).collect();
    let mut skipped = BTreeSet::new();
    for schedule in without {
        for launch_us in skips(channel, schedule).await? {
            skipped.insert((schedule.to_owned(), launch_us));
        }
    }
    let has_trace = |due: &crate::audit::Due| {
        known.contains(&(due.schedule.as_str(), due.launch_us))
            || skipped.contains(&(due.schedule.clone(), due.launch_us))
    };
    let is_complete = ordered.due.iter().filter(|due| due.required).all(has_trace)
        && records.runs.iter().all(|run| run.ended)
        && crate::audit::followed(ordered, &records.runs);
    records.skipped = skipped;
    Ok((records, is_complete))
}

async fn runs(channel: &Channel) -> Result<Vec<RunRecord>> {
    let mut handler = EventHandlerServiceClient::new(channel.clone()).max_decoding_message_size(64 << 20);
    let (mut runs, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListRunsRequest {
            parent: PARENT.to_owned(),
            page_size: 1_000,
            page_token,
            ..ListRunsRequest::default()
        };
        let page = handler.list_runs(request).await.context("ListRuns")?.into_inner();
        runs.extend(page.runs.iter().map(record));
        if page.next_page_token.is_empty() {
            return Ok(runs);
        }
        if page.runs.is_empty() {
            bail!("ListRuns gives an empty page with a token for the next");
        }
        page_token = page.next_page_token;
    }
}

fn record(run: &Run) -> RunRecord {
    let counts = run.counts.unwrap_or_default();
    let ends = [RunState::Finished, RunState::FinishedWithFailures, RunState::Cancelled, RunState::Skipped];
    let ended = ends.contains(&run.state());
    RunRecord {
        name: run.name.clone(),
        schedule: run.schedule.rsplit('/').next().unwrap_or_default().to_owned(),
        launch_us: us(run.launch_time),
        follows: run.predecessor.as_ref().map(|before| before.run.clone()),
        events: run.events,
        ended,
        succeeded: counts.succeeded,
        otherwise: counts.failed + counts.dead + counts.expired + counts.cancelled + counts.lost,
        in_flight: run.in_flight_count,
    }
}

async fn skips(channel: &Channel, schedule: &str) -> Result<Vec<i64>> {
    let mut master = ScheduleMasterServiceClient::new(channel.clone());
    let request = ListSkippedTriggersRequest {
        parent: schedule_name(schedule),
        page_size: 1_000,
        ..ListSkippedTriggersRequest::default()
    };
    let page = match master.list_skipped_triggers(request).await {
        Ok(page) => page.into_inner(),
        // It has been deleted, and its records with it.
        Err(status) if status.code() == Code::NotFound => return Ok(Vec::new()),
        Err(status) => return Err(status).context("ListSkippedTriggers"),
    };
    Ok(page.skipped_triggers.iter().map(|skipped| us(skipped.launch_time)).collect())
}
