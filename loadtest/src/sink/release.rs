//! Gives tokens back by gRPC, as a consumer does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::{ReleaseStatus, ReleaseTokenRequest, ReleaseTokensRequest, ReleaseTokensResponse};
use tonic::transport::Channel;

use super::record::Records;
use super::wall_us;

/// How many releases one message of the stream has at most.
const MESSAGE_MAX: usize = 1_000;

/// What is to be released, and its number among the records.
type Item = (usize, ReleaseTokenRequest);

/// Takes releases of all lanes.
#[derive(Clone)]
pub(crate) struct Releaser {
    client: EventHandlerServiceClient<Channel>,
    records: Arc<Records>,
    stream: Arc<Mutex<Option<Stream>>>,
    released: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
}

struct Stream {
    items: mpsc::UnboundedSender<Item>,
    ends: JoinHandle<Result<ReleaseTokensResponse, tonic::Status>>,
}

impl Releaser {
    pub(crate) fn new(channel: Channel, records: Arc<Records>) -> Self {
        let client = EventHandlerServiceClient::new(channel);
        let count = || Arc::new(AtomicU64::new(0));
        Self { client, records, stream: Arc::default(), released: count(), refused: count() }
    }

    /// By a call of its own.
    pub(crate) async fn unary(&self, number: usize, request: ReleaseTokenRequest) {
        self.records.done(number, wall_us());
        let answer = self.client.clone().release_token(request).await;
        let released = answer.is_ok_and(|answer| answer.into_inner().status() == ReleaseStatus::Released);
        self.ended(released);
    }

    /// Notes how a release ended that was made elsewhere.
    pub(crate) fn ended(&self, released: bool) {
        let count = if released { &self.released } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// By the stream, which begins with the first of them.
    pub(crate) fn stream(&self, number: usize, request: ReleaseTokenRequest) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let open = stream.get_or_insert_with(|| self.open());
        // A stream that broke off says so when it is finished.
        let _broken = open.items.send((number, request));
    }

    fn open(&self) -> Stream {
        let (items, mut gathered) = mpsc::unbounded_channel::<Item>();
        let (messages, outgoing) = mpsc::channel(64);
        let records = self.records.clone();
        tokio::spawn(async move {
            let mut batch = Vec::with_capacity(MESSAGE_MAX);
            while gathered.recv_many(&mut batch, MESSAGE_MAX).await > 0 {
                let now_us = wall_us();
                batch.iter().for_each(|(number, _)| records.done(*number, now_us));
                let releases = batch.drain(..).map(|(_, request)| request).collect();
                if messages.send(ReleaseTokensRequest { releases }).await.is_err() {
                    return;
                }
            }
        });
        let mut client = self.client.clone();
        let ends = tokio::spawn(async move {
            client.release_tokens(ReceiverStream::new(outgoing)).await.map(tonic::Response::into_inner)
        });
        Stream { items, ends }
    }

    /// Ends the stream. How many releases were taken since the last call, and how many were not, or what broke.
    pub(crate) async fn finish(&self) -> Result<(u64, u64), String> {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (mut released, mut refused) =
            (self.released.swap(0, Ordering::Relaxed), self.refused.swap(0, Ordering::Relaxed));
        if let Some(Stream { items, ends }) = stream {
            drop(items);
            let tally = ends.await.map_err(|e| e.to_string())?.map_err(|status| status.to_string())?;
            released += tally.released_count;
            refused +=
                tally.already_released_count + tally.late_count + tally.unknown_count + tally.invalid_count;
        }
        Ok((released, refused))
    }
}
