//! A worker that pulls by a gRPC stream, and a book of what all workers of a test were given.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tollgate_harness::Service;
use tollgate_proto::v1::work_request::Message as Say;
use tollgate_proto::v1::work_response::Message as Told;
use tollgate_proto::v1::worker_service_client::WorkerServiceClient;
use tollgate_proto::v1::{
    AcceptEvent, ExtendTokenRequest, ReleaseOutcome, ReleaseTokenRequest, WorkEvent, WorkRequest,
    WorkResponse, WorkerHello,
};
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// What a worker does with an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    /// Accepts it, works for so many milliseconds, releases it.
    Work(u64),
    /// Releases it without a word of acceptance.
    ReleaseAtOnce,
    /// Says that it is to be tried again.
    Retry,
    /// Says nothing.
    Ignore,
    /// Its stream breaks before it accepts.
    Break,
    /// Accepts it, and its stream breaks.
    AcceptAndBreak,
}

/// One event that a worker was given.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) worker: String,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) schedule: String,
}

#[derive(Debug, Default)]
struct Book {
    given: Vec<Given>,
    /// What workers are at work on: accepted, and not released.
    held: BTreeSet<String>,
    held_max: usize,
    go_aways: usize,
    ends: Vec<Status>,
}

/// What all workers of a test were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(Arc<Mutex<Book>>);

impl Notes {
    pub(crate) fn given(&self) -> Vec<Given> {
        self.0.lock().unwrap().given.clone()
    }

    /// The attempts of each event, in the order of their coming.
    pub(crate) fn attempts(&self) -> BTreeMap<String, Vec<u32>> {
        let mut attempts: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for given in self.given() {
            attempts.entry(given.name).or_default().push(given.attempt);
        }
        attempts
    }

    pub(crate) fn held_max(&self) -> usize {
        self.0.lock().unwrap().held_max
    }

    pub(crate) fn go_aways(&self) -> usize {
        self.0.lock().unwrap().go_aways
    }

    pub(crate) fn of_worker(&self, worker: &str) -> Vec<Given> {
        self.given().into_iter().filter(|given| given.worker == worker).collect()
    }

    fn begins(&self, name: &str) {
        let mut book = self.0.lock().unwrap();
        book.held.insert(name.to_owned());
        book.held_max = book.held_max.max(book.held.len());
    }

    fn ends(&self, name: &str) {
        self.0.lock().unwrap().held.remove(name);
    }
}

/// Where a worker finds its service; a restart may change it.
pub(crate) type Place = Arc<Mutex<Channel>>;

pub(crate) fn place(service: &Service) -> Place {
    Arc::new(Mutex::new(service.channel()))
}

/// A worker that opens another stream whenever one breaks, until it is dropped: then it is gone without a word.
pub(crate) struct Worker(JoinHandle<()>);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Worker {
    pub(crate) fn start(
        place: &Place,
        hello: WorkerHello,
        notes: &Notes,
        deed: impl Fn(&WorkEvent) -> Deed + Send + Sync + 'static,
    ) -> Self {
        let (place, notes, deed) = (place.clone(), notes.clone(), Arc::new(deed));
        Self(tokio::spawn(async move {
            loop {
                let channel = place.lock().unwrap().clone();
                if let Err(status) = stream(channel, hello.clone(), &notes, &*deed).await {
                    notes.0.lock().unwrap().ends.push(status);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }))
    }
}

/// Who a worker of the queue `render` says that it is.
pub(crate) fn hello(worker: &str, labels: &[&str], capacity: u32) -> WorkerHello {
    WorkerHello {
        queue: "namespaces/default/queues/render".to_owned(),
        capacity,
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        worker: worker.to_owned(),
    }
}

/// A stream as its worker has it.
pub(crate) async fn open(
    channel: Channel,
    first: Option<Say>,
) -> Result<(mpsc::UnboundedSender<WorkRequest>, Streaming<WorkResponse>), Status> {
    let (say, said) = mpsc::unbounded_channel();
    say.send(WorkRequest { message: first }).unwrap();
    let told = WorkerServiceClient::new(channel).work(UnboundedReceiverStream::new(said)).await?;
    Ok((say, told.into_inner()))
}

async fn stream(
    channel: Channel,
    hello: WorkerHello,
    notes: &Notes,
    deed: &(dyn Fn(&WorkEvent) -> Deed + Send + Sync),
) -> Result<(), Status> {
    let worker = hello.worker.clone();
    let (say, mut told) = open(channel, Some(Say::Hello(hello))).await?;
    let tell = move |message| {
        let _gone = say.send(WorkRequest { message: Some(message) });
    };
    while let Some(message) = told.message().await? {
        let event = match message.message {
            Some(Told::Event(event)) => event,
            Some(Told::GoAway(_)) => {
                notes.0.lock().unwrap().go_aways += 1;
                continue;
            }
            _ => continue,
        };
        let document: serde_json::Value = serde_json::from_str(&event.event).unwrap();
        assert_eq!(
            (&document["id"], &document["attempt"]),
            (&event.name.clone().into(), &event.attempt.into())
        );
        let schedule = document["schedule"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        let WorkEvent { name, attempt, .. } = event.clone();
        notes.0.lock().unwrap().given.push(Given {
            worker: worker.clone(),
            name: name.clone(),
            attempt,
            schedule,
        });
        let accept = Say::Accept(AcceptEvent { name: name.clone(), attempt });
        let release =
            ReleaseTokenRequest { name: name.clone(), attempt: Some(attempt), ..Default::default() };
        match deed(&event) {
            Deed::Work(ms) => {
                tell(accept);
                notes.begins(&name);
                let (tell, notes) = (tell.clone(), notes.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    notes.ends(&name);
                    tell(Say::Release(release));
                });
            }
            Deed::ReleaseAtOnce => tell(Say::Release(release)),
            Deed::Retry => {
                let outcome = ReleaseOutcome::Retry.into();
                tell(Say::Release(ReleaseTokenRequest { outcome, ..release }));
            }
            Deed::Ignore => {}
            Deed::Break => return Ok(()),
            Deed::AcceptAndBreak => {
                tell(accept);
                // It has been read before the stream ends, as what is said after it is answered.
                tell(Say::Extend(ExtendTokenRequest { name, attempt: Some(attempt), ttl: None }));
                while let Some(message) = told.message().await? {
                    if matches!(message.message, Some(Told::Extended(_))) {
                        break;
                    }
                }
                return Ok(());
            }
        }
    }
    Ok(())
}
