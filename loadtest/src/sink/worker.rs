//! Workers that pull: streams with more room than there are tokens.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tollgate_proto::v1::work_request::Message as Say;
use tollgate_proto::v1::work_response::Message as Told;
use tollgate_proto::v1::worker_service_client::WorkerServiceClient;
use tollgate_proto::v1::{
    AcceptEvent, ReleaseStatus, ReleaseTokenRequest, WorkEvent, WorkRequest, WorkerHello,
};
use tonic::Status;
use tonic::transport::Channel;

use super::event::Seen;
use super::record::Record;
use super::{Consumer, wall_us};

/// Streams of one lane, and how much each does at once.
const STREAMS: usize = 8;
const CAPACITY: u32 = 1_000;
/// How soon a stream that broke, or found nobody, is opened again.
const AGAIN: Duration = Duration::from_millis(100);

/// The queue of a lane.
pub(crate) fn queue(port: u16) -> String {
    format!("lane-{port}")
}

/// Works until the sink is killed.
pub(super) fn start(channel: Channel, queue: &str, consumer: &Arc<Consumer>) {
    for number in 0..STREAMS {
        let hello = WorkerHello {
            queue: format!("namespaces/default/queues/{queue}"),
            capacity: CAPACITY,
            labels: Vec::new(),
            worker: format!("sink-{number}"),
        };
        let (client, consumer) = (WorkerServiceClient::new(channel.clone()), consumer.clone());
        tokio::spawn(async move {
            loop {
                // What breaks it, the rounds tell.
                let _broken = work(client.clone(), hello.clone(), &consumer).await;
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
}

async fn work(
    mut client: WorkerServiceClient<Channel>,
    hello: WorkerHello,
    consumer: &Arc<Consumer>,
) -> Result<(), Status> {
    let (say, said) = mpsc::unbounded_channel();
    let tell = move |message| {
        let _gone = say.send(WorkRequest { message: Some(message) });
    };
    tell(Say::Hello(hello));
    let mut told = client.work(UnboundedReceiverStream::new(said)).await?.into_inner();
    while let Some(message) = told.message().await? {
        match message.message {
            Some(Told::Event(event)) => take(consumer, event, tell.clone()),
            Some(Told::Released(released)) => {
                let response = released.response.unwrap_or_default();
                consumer.releaser.ended(response.status() == ReleaseStatus::Released);
            }
            _ => {}
        }
    }
    Ok(())
}

fn take(consumer: &Arc<Consumer>, event: WorkEvent, tell: impl Fn(Say) + Send + 'static) {
    let arrival_us = wall_us();
    let WorkEvent { name, attempt, event, .. } = event;
    let Some(seen) = Seen::find(event.as_bytes()) else { return };
    let record = Record {
        id: seen.hash(),
        launch_us: seen.launch_us,
        arrival_us,
        done_us: 0,
        group: 0,
        lane: consumer.number,
        attempt: seen.attempt,
    };
    let number = consumer.records.push(record);
    tell(Say::Accept(AcceptEvent { name: name.clone(), attempt }));
    let (consumer, work_ms) = (consumer.clone(), consumer.lane.work_ms);
    let done = move || {
        consumer.records.done(number, wall_us());
        let release = ReleaseTokenRequest { name, attempt: Some(attempt), ..ReleaseTokenRequest::default() };
        tell(Say::Release(release));
    };
    if work_ms == 0 {
        return done();
    }
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(work_ms)).await;
        done();
    });
}
