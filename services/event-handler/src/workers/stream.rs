//! One worker's stream: what it says, and what it is told.
//!
//! In: its messages; events from the desk. Out: events, and answers. Invariants: a worker that says what it may not is told so,
//! and its stream ends; one that does not read holds up nobody, and its stream ends once too much waits for it; nothing more is
//! written once its key is no good any more; an event that has waited for its worker to read is written only within its limit,
//! which is looked at where the transport takes it. Not here: who is given what (`desk`).

use std::collections::VecDeque;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{BoxFuture, Ready, ready};
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tollgate_auth::{Access, StreamKey};
use tollgate_metrics::Bound;
use tollgate_metrics::trace::Traceparent;
use tollgate_proto::convert::names::Name;
use tollgate_proto::convert::work;
use tollgate_proto::v1::work_request::Message as Said;
use tollgate_proto::v1::work_response::Message as Told;
use tollgate_proto::{FieldError, v1};
use tonic::{Code, Status, Streaming};

use super::book::{QueueKey, WorkerId};
use super::desk::Desk;
use super::handing::Handed;
use super::sessions::{Profile, Refused};
use crate::Shared;

/// How long a stream may be open before its worker says who it is.
const HELLO: Duration = Duration::from_secs(10);
/// Releases and heartbeats of one stream that are under way at once.
const UNDER_WAY_MAX: usize = 1_000;
/// Messages that wait to be read by the worker, beyond which its stream ends.
const UNREAD_MAX: usize = 40_000;

/// A message on its way to the transport.
pub(super) enum Passing {
    Told(Result<v1::WorkResponse, Status>),
    Event(Desk, WorkerId, Box<Handed>),
}

/// A channel has room for 32 at once from its beginning, and most streams wait: as a pointer each.
pub(super) type Outgoing = Box<Passing>;
/// Where a stream's messages go.
pub(super) type Outlet = mpsc::Sender<Outgoing>;

/// A stream as it was opened.
pub(super) struct Opened {
    pub(super) access: Access,
    pub(super) key: Option<StreamKey>,
    pub(super) parent: Option<Traceparent>,
    pub(super) incoming: Streaming<v1::WorkRequest>,
}

/// What waits to be passed on.
enum Unwritten {
    Event(Box<Handed>),
    Told(Told),
}

/// A worker that is known.
struct Stream {
    shared: Shared,
    opened: Opened,
    id: WorkerId,
    unwritten: VecDeque<Unwritten>,
    answering: FuturesUnordered<BoxFuture<'static, Told>>,
}

/// Lets the desk forget a worker, however its stream ends.
struct Leaves(Shared, WorkerId);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.desk.leave(self.1);
    }
}

/// What the transport writes now of a message that it takes: nothing, of an event that may not be written any more.
pub(super) fn written(passing: Passing) -> Ready<Option<Result<v1::WorkResponse, Status>>> {
    ready(match passing {
        Passing::Told(told) => Some(told),
        Passing::Event(desk, worker, handed) => {
            desk.write(worker, *handed).map(|event| Ok(response(Told::Event(event))))
        }
    })
}

fn response(message: Told) -> v1::WorkResponse {
    v1::WorkResponse { message: Some(message) }
}

/// Serves a stream until it ends. What it ends with, if not well.
pub(super) async fn serve(shared: Shared, mut opened: Opened, outlet: Outlet) -> Result<(), Status> {
    let first = tokio::time::timeout(HELLO, opened.incoming.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no hello came within 10 s"))?;
    let Some(first) = first? else { return Ok(()) };
    let Some(Said::Hello(hello)) = first.message else {
        return Err(FieldError::new("message", "", "hello, as the first message of a stream").into());
    };
    let (profile, capacity) = welcome(&opened.access, &hello)?;
    let (id, events) =
        shared.desk.join(profile, capacity).map_err(|refused| turned_away(&shared, refused))?;
    let _leaves = Leaves(shared.clone(), id);
    let welcome = Told::Welcome(v1::WorkerWelcome { id: id.to_string() });
    let stream = Stream {
        shared,
        opened,
        id,
        unwritten: VecDeque::from([Unwritten::Told(welcome)]),
        answering: FuturesUnordered::new(),
    };
    stream.run(events, &outlet).await
}

/// Who a worker says that it is, where it may be that.
fn welcome(access: &Access, hello: &v1::WorkerHello) -> Result<(Profile, u32), Status> {
    access.admit(hello)?;
    let queue = work::queue("hello.queue", &hello.queue)?;
    access.works(&queue.id)?;
    let labels = work::labels("hello.labels", &hello.labels)?;
    let name = work::worker("hello.worker", &hello.worker)?;
    let capacity = work::capacity("hello.capacity", hello.capacity)?;
    let Name { namespace, id } = queue;
    let queue = QueueKey { namespace: namespace.into(), queue: id.into() };
    Ok((Profile { queue, labels: labels.into(), name, polls: false }, capacity))
}

/// Why a worker is not taken in, which is counted.
pub(super) fn turned_away(shared: &Shared, refused: Refused) -> Status {
    let message = refused.to_string();
    if refused != Refused::Ending {
        shared.options.metrics.refused(Bound::Workers);
    }
    match refused {
        Refused::TooMany | Refused::TooManyKinds(_) => Status::resource_exhausted(message),
        Refused::Ending => Status::unavailable(message),
    }
}

impl Stream {
    async fn run(
        mut self,
        mut events: mpsc::UnboundedReceiver<Box<Handed>>,
        outlet: &Outlet,
    ) -> Result<(), Status> {
        let leaving = self.shared.leaving.clone();
        let mut is_told = false;
        loop {
            if self.unwritten.len() > UNREAD_MAX {
                self.shared.options.metrics.refused(Bound::Workers);
                return Err(Status::resource_exhausted(format!(
                    "the worker does not read: {UNREAD_MAX} messages wait for it"
                )));
            }
            tokio::select! {
                permit = outlet.reserve(), if !self.unwritten.is_empty() => {
                    let Ok(permit) = permit else { return Ok(()) };
                    if let Some(passing) = self.next_to_pass()? {
                        permit.send(Box::new(passing));
                    }
                }
                said = self.opened.incoming.message(), if self.answering.len() < UNDER_WAY_MAX => match said? {
                    Some(said) => self.hear(said)?,
                    None => return Ok(()),
                },
                Some(handed) = events.recv() => self.unwritten.push_back(Unwritten::Event(handed)),
                Some(told) = self.answering.next(), if !self.answering.is_empty() => {
                    self.unwritten.push_back(Unwritten::Told(told));
                }
                () = leaving.cancelled(), if !is_told => {
                    is_told = true;
                    self.unwritten.push_back(Unwritten::Told(Told::GoAway(v1::WorkerGoAway {})));
                }
            }
        }
    }

    /// What is passed on next.
    fn next_to_pass(&mut self) -> Result<Option<Passing>, Status> {
        Ok(match self.unwritten.pop_front() {
            None => None,
            Some(Unwritten::Told(told)) => Some(Passing::Told(Ok(response(told)))),
            Some(Unwritten::Event(handed)) => {
                StreamKey::check(self.opened.key.as_ref())?;
                Some(Passing::Event(self.shared.desk.clone(), self.id, handed))
            }
        })
    }

    fn hear(&mut self, said: v1::WorkRequest) -> Result<(), Status> {
        StreamKey::check(self.opened.key.as_ref())?;
        let desk = &self.shared.desk;
        desk.sign(self.id);
        match said.message {
            None => Err(FieldError::new("message", "", "capacity, accept, extend or release").into()),
            Some(Said::Hello(hello)) => {
                Err(FieldError::new("hello", hello.queue, "no second hello on a stream").into())
            }
            Some(Said::Capacity(capacity)) => {
                desk.resize(self.id, work::capacity("capacity.capacity", capacity.capacity)?);
                Ok(())
            }
            Some(Said::Accept(accept)) => {
                let accepted = desk.accept(self.id, &accept.name, accept.attempt);
                accepted.map_err(|(field, expected)| {
                    let value = format!("{} under attempt {}", accept.name, accept.attempt);
                    FieldError::new(field, value, expected).into()
                })
            }
            Some(Said::Extend(extend)) => {
                // A wrong word says nothing of the event, which the worker may still have.
                work::extend(&extend)?;
                let (shared, access) = (self.shared.clone(), self.opened.access.clone());
                self.answering.push(Box::pin(async move { extended(&shared, &access, extend).await }));
                Ok(())
            }
            Some(Said::Release(release)) => {
                desk.done(self.id, &release.name, release.attempt.unwrap_or_default());
                let (shared, access) = (self.shared.clone(), self.opened.access.clone());
                let parent = self.opened.parent;
                self.answering
                    .push(Box::pin(async move { released(&shared, &access, release, parent).await }));
                Ok(())
            }
        }
    }
}

async fn extended(shared: &Shared, access: &Access, request: v1::ExtendTokenRequest) -> Told {
    let name = request.name.clone();
    let nothing = v1::WorkerExtended { name, remaining: None, message: String::new(), try_again: false };
    Told::Extended(match shared.extend(access, request).await {
        Ok(v1::ExtendTokenResponse { remaining }) => v1::WorkerExtended { remaining, ..nothing },
        Err(status) => {
            let try_again = status.code() == Code::Unavailable;
            v1::WorkerExtended { message: status.message().to_owned(), try_again, ..nothing }
        }
    })
}

async fn released(
    shared: &Shared,
    access: &Access,
    request: v1::ReleaseTokenRequest,
    parent: Option<Traceparent>,
) -> Told {
    let name = request.name.clone();
    let answer = Box::pin(shared.release(access, request, parent)).await.into_item();
    Told::Released(match answer {
        Ok(response) => v1::WorkerReleased { name, response: Some(response), try_again: false },
        Err(_) => v1::WorkerReleased { name, response: None, try_again: true },
    })
}
