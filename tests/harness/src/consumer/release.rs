//! How consumers release: one call each, in batches, or by stream; and to which service.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::{
    BatchReleaseTokensRequest, ReleaseStatus, ReleaseTokenRequest, ReleaseTokensRequest,
};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::{Notes, Service};

/// Pause before a release is repeated.
const AGAIN: Duration = Duration::from_millis(50);
/// How long releases are gathered for one call.
const GATHER: Duration = Duration::from_millis(5);

/// Which service consumers release to. Clones share it.
#[derive(Clone, Debug)]
pub struct Link(Arc<Mutex<Channel>>);

impl Link {
    pub(crate) fn new(channel: Channel) -> Self {
        Self(Arc::new(Mutex::new(channel)))
    }

    /// Points consumers at another service.
    pub fn follow(&self, service: &Service) {
        *self.0.lock().unwrap() = service.channel();
    }

    fn client(&self) -> EventHandlerServiceClient<Channel> {
        EventHandlerServiceClient::new(self.0.lock().unwrap().clone())
    }
}

/// By which call a consumer releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Releases {
    /// ReleaseToken, one call for each event.
    Unary,
    /// BatchReleaseTokens.
    Batch,
    /// ReleaseTokens, a stream.
    Stream,
}

/// Takes releases, and repeats each until it is answered.
#[derive(Clone, Debug)]
pub(crate) struct Releaser {
    how: Releases,
    link: Link,
    notes: Notes,
    gather: mpsc::UnboundedSender<ReleaseTokenRequest>,
}

impl Releaser {
    pub(crate) fn new(how: Releases, link: Link, notes: Notes) -> Self {
        let (gather, gathered) = mpsc::unbounded_channel();
        let releaser = Self { how, link, notes, gather };
        if how != Releases::Unary {
            tokio::spawn(calls(how, releaser.link.clone(), releaser.notes.clone(), gathered));
        }
        releaser
    }

    /// Releases; with [`Releases::Unary`] the answer has come when this returns.
    pub(crate) async fn release(&self, release: ReleaseTokenRequest) {
        if self.how != Releases::Unary {
            // Nobody gathers once the test's runtime ends.
            let _ = self.gather.send(release);
            return;
        }
        let name = release.name.clone();
        loop {
            let mut client = self.link.client();
            match client.release_token(release.clone()).await {
                Ok(answer) => return self.notes.answered(name, answer.into_inner().status()),
                Err(status) if is_refusal(&self.notes, &status) => return,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}

/// Whether the service said no, which is written down; otherwise it was not there, and the call is repeated.
fn is_refusal(notes: &Notes, status: &Status) -> bool {
    let absent = matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled);
    if !absent {
        notes.problem(format!("release: {status:?}"));
    }
    !absent
}

async fn calls(
    how: Releases,
    link: Link,
    notes: Notes,
    mut gathered: mpsc::UnboundedReceiver<ReleaseTokenRequest>,
) {
    loop {
        let mut releases = Vec::new();
        if gathered.recv_many(&mut releases, 1_000).await == 0 {
            return;
        }
        tokio::time::sleep(GATHER).await;
        while releases.len() < 1_000
            && let Ok(release) = gathered.try_recv()
        {
            releases.push(release);
        }
        if how == Releases::Batch {
            batch(&link, &notes, releases).await;
        } else {
            stream(&link, &notes, releases).await;
        }
    }
}

async fn batch(link: &Link, notes: &Notes, releases: Vec<ReleaseTokenRequest>) {
    let names: Vec<String> = releases.iter().map(|release| release.name.clone()).collect();
    let request = BatchReleaseTokensRequest { releases };
    let responses = loop {
        let mut client = link.client();
        match client.batch_release_tokens(request.clone()).await {
            Ok(answer) => break answer.into_inner().responses,
            Err(status) if is_refusal(notes, &status) => return,
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    };
    if responses.len() != names.len() {
        notes.problem(format!("{} answers to {} releases", responses.len(), names.len()));
    }
    for (name, response) in names.into_iter().zip(responses) {
        notes.answered(name, response.status());
    }
}

async fn stream(link: &Link, notes: &Notes, releases: Vec<ReleaseTokenRequest>) {
    let messages: Vec<_> =
        releases.chunks(100).map(|part| ReleaseTokensRequest { releases: part.to_vec() }).collect();
    let answer = loop {
        let mut client = link.client();
        match client.release_tokens(tokio_stream::iter(messages.clone())).await {
            Ok(answer) => break answer.into_inner(),
            Err(status) if is_refusal(notes, &status) => return,
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    };
    // The answer counts, and names only what changed nothing; the names of the others are not needed.
    let counts = [
        (answer.released_count, ReleaseStatus::Released),
        (answer.comes_again_count, ReleaseStatus::ComesAgain),
        (answer.already_released_count, ReleaseStatus::AlreadyReleased),
        (answer.late_count, ReleaseStatus::Late),
        (answer.unknown_count, ReleaseStatus::Unknown),
        (answer.invalid_count, ReleaseStatus::Invalid),
    ];
    for (count, status) in counts {
        (0..count).for_each(|_| notes.answered(String::new(), status));
    }
}
