//! Events that were taken before their policies moved, by workers and as webhooks with several events: they are released where
//! their policies are by then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use tollgate_harness::resources::{ms, policy, schedule_name};
use tollgate_harness::{Cli, Database, Kind, Service, wait_for};
use tollgate_proto::v1::target::Target as Kinds;
use tollgate_proto::v1::worker_service_client::WorkerServiceClient;
use tollgate_proto::v1::{
    AcquireEventsRequest, BatchReleaseTokensRequest, HttpBatch, HttpTarget, Policy, ReleaseStatus,
    ReleaseTokenRequest, RetryPolicy, Schedule, Target, TriggerScheduleRequest, WorkEvent,
};

use super::middle::{belongs, misplaced, stored};
use super::{QUICK, all_owned, to_move};
use crate::event_batches::{self, Notes};
use crate::pulled::talk::{Talk, patient};
use crate::pulled::worker::hello;

on_both_stores!(what_was_taken_before_is_released_after_it);

/// Events of each way at once, and half of what there are.
const HELD: usize = 3;

/// What was taken before, by each way.
struct Taken {
    by_stream: (Talk, Vec<WorkEvent>),
    by_polls: Vec<WorkEvent>,
    by_batches: Vec<ReleaseTokenRequest>,
}

/// Gives a schedule a policy of its own that will move, and triggers it: the policy.
async fn begin(service: &Service, id: &str, of: impl FnOnce(&str) -> Schedule) -> Policy {
    let policy = misplaced(service, id, &policy(HELD as u32), 256).await;
    service.create_schedule(id, of(&policy)).await.unwrap();
    let request = TriggerScheduleRequest { name: schedule_name(id), ..Default::default() };
    service.master().trigger_schedule(request).await.unwrap();
    stored(service, &policy).await
}

/// A schedule whose events come several in a request.
fn batches(url: String, policy: &str) -> Schedule {
    let batch = HttpBatch { max_events: HELD as i32, max_wait: Some(ms(20)), ..HttpBatch::default() };
    let http = HttpTarget { url, batch: Some(batch), ..HttpTarget::default() };
    Schedule {
        events: Some(2 * HELD as u32),
        policy: policy.to_owned(),
        target: Some(Target { target: Some(Kinds::Http(http)), ..Target::default() }),
        retry: Some(RetryPolicy { min_backoff: Some(ms(50)), ..RetryPolicy::default() }),
        ..Schedule::default()
    }
}

/// So many events by polls of a worker that is able to do this.
async fn polled(service: &Service, label: &str) -> Vec<WorkEvent> {
    let mut events = Vec::new();
    wait_for("events for polls", 60, async || {
        let request = AcquireEventsRequest {
            name: "namespaces/default/queues/render".to_owned(),
            max_events: u32::try_from(HELD - events.len()).unwrap(),
            wait: Some(ms(2_000)),
            labels: vec![label.to_owned()],
            worker: "poller".to_owned(),
        };
        let mut workers = WorkerServiceClient::new(service.channel());
        events.extend(workers.acquire_events(request).await.unwrap().into_inner().events);
        (events.len() == HELD).then_some(())
    })
    .await;
    events
}

/// So many events of requests that have several.
async fn batched(
    releases: &mut mpsc::UnboundedReceiver<Vec<ReleaseTokenRequest>>,
) -> Vec<ReleaseTokenRequest> {
    let mut taken = Vec::new();
    while taken.len() < HELD {
        let more = tokio::time::timeout(std::time::Duration::from_secs(60), releases.recv()).await;
        taken.extend(more.expect("events within a minute").unwrap());
    }
    taken
}

async fn streamed(worker: &mut Talk) -> Vec<WorkEvent> {
    let mut events = Vec::new();
    for _ in 0..HELD {
        events.push(worker.takes().await);
    }
    events
}

/// Releases all of them, and is told that each token is free.
async fn all_released(service: &Service, taken: &mut Taken) {
    let (worker, events) = &mut taken.by_stream;
    for event in events.drain(..) {
        assert!(worker.extends(&event, 1).await.remaining.is_some(), "{event:?}");
        assert_eq!(worker.releases(&event, 1).await, ReleaseStatus::Released, "{event:?}");
    }
    for WorkEvent { name, attempt, .. } in taken.by_polls.drain(..) {
        let release = ReleaseTokenRequest { name, attempt: Some(attempt), ..Default::default() };
        // Where its owner does not know it as yet, that is said, and it is asked again.
        let answer = wait_for("an answer to a release", 20, async || {
            service.handler().release_token(release.clone()).await.ok()
        })
        .await;
        assert_eq!(answer.into_inner().status(), ReleaseStatus::Released, "{release:?}");
    }
    let request = BatchReleaseTokensRequest { releases: std::mem::take(&mut taken.by_batches) };
    let answer = service.handler().batch_release_tokens(request).await.unwrap().into_inner();
    let statuses: Vec<ReleaseStatus> = answer.responses.iter().map(|answer| answer.status()).collect();
    assert_eq!(statuses, [ReleaseStatus::Released; HELD], "{answer:?}");
}

/// Whoever took events before the move releases them after it, and has the others then: no token stays, and nothing comes twice.
async fn what_was_taken_before_is_released_after_it(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start_with(&database, &QUICK).await;
    let notes = Arc::new(Mutex::new(Notes::default()));
    let (url, mut releases) = event_batches::consumer(notes.clone()).await;
    let events = 2 * HELD as u32;
    let policies = [
        begin(&service, "stream", |policy| patient(events, policy, &["gpu"])).await,
        begin(&service, "polls", |policy| patient(events, policy, &["cpu"])).await,
        begin(&service, "batches", |policy| batches(url, policy)).await,
    ];
    // With room for all: that it has no more is its policy's doing.
    let mut worker = Talk::open(&service, hello("w", &["gpu"], events)).await;
    let first = streamed(&mut worker).await;
    let mut taken = Taken {
        by_stream: (worker, first),
        by_polls: polled(&service, "cpu").await,
        by_batches: batched(&mut releases).await,
    };
    let (cli, store) = (Cli::new(service.url()), database.url());
    cli.json(&["store", "shards", "--to", "256", "--store", &store]);
    wait_for("all to have moved", 120, async || (to_move(&cli, &store) == 0).then_some(())).await;
    all_owned(&service, 256, 1).await;
    for policy in &policies {
        let id = policy.name.rsplit('/').next().unwrap();
        assert_eq!(u64::from(stored(&service, id).await.shard), belongs(policy, 256), "{policy:?}");
    }
    assert_eq!(service.held_count().await, 3 * HELD as u64, "as many as before");
    all_released(&service, &mut taken).await;
    taken.by_stream.1 = streamed(&mut taken.by_stream.0).await;
    taken.by_polls = polled(&service, "cpu").await;
    taken.by_batches = batched(&mut releases).await;
    all_released(&service, &mut taken).await;
    for (id, again) in [("stream", 0), ("polls", 0), ("batches", 1)] {
        let run = service.finished(id, 30).await;
        assert_eq!(run.counts.unwrap().succeeded, events, "{run:?}");
        let attempts: Vec<u32> = service.events(&run.name).await.iter().map(|event| event.attempt).collect();
        // One event of a request was refused by itself, and came again for that.
        assert_eq!(attempts.iter().filter(|attempt| **attempt > 1).count(), again, "{id}: {attempts:?}");
    }
    let expected = (0..u64::from(events)).map(|index| (index, if index == 0 { vec![1, 2] } else { vec![1] }));
    assert_eq!(notes.lock().unwrap().attempts, expected.collect::<BTreeMap<_, _>>());
    assert!(taken.by_stream.0.came.is_empty(), "{:?}", taken.by_stream.0.came);
    let status = service.status().await.unwrap();
    assert_eq!((status.held_count, status.waiting_count), (0, 0), "{status:?}");
    service.stop().await;
}
