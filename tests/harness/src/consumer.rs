//! An HTTP consumer on a real port.

pub mod event;
pub(crate) mod notes;
pub(crate) mod release;

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::{Arrival, Conduct, Link, Notes, Releases, Work, http};
use release::Releaser;

/// A Standard Webhooks secret; requests to [`Consumer::url`] must be signed with it.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

type Script = Arc<dyn Fn(&Arrival) -> Conduct + Send + Sync>;

/// A consumer; it ends when dropped.
pub struct Consumer {
    address: SocketAddr,
    task: JoinHandle<()>,
    /// What it has seen.
    pub notes: Notes,
}

#[derive(Clone)]
struct Desk {
    notes: Notes,
    releaser: Releaser,
    script: Script,
}

impl Consumer {
    /// Listens on a free port and does with each delivery as the script says.
    pub async fn start(
        link: Link,
        how: Releases,
        script: impl Fn(&Arrival) -> Conduct + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let notes = Notes::default();
        let releaser = Releaser::new(how, link, notes.clone());
        let desk = Desk { notes: notes.clone(), releaser, script: Arc::new(script) };
        let task = tokio::spawn(http::accept(listener, move |stream| {
            let desk = desk.clone();
            http::serve(stream, move |request| take(desk.clone(), request))
        }));
        Self { address, task, notes }
    }

    /// Where it takes events.
    pub fn url(&self) -> String {
        format!("http://{}/work", self.address)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn take(desk: Desk, request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, std::io::Error> {
    let headers = request.headers().clone();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let arrival = event::read(&body).and_then(|arrival| {
        event::check_headers(&headers, &arrival.event_id, &body, Some(SECRET)).map(|()| arrival)
    });
    let arrival = match arrival {
        Ok(arrival) => arrival,
        Err(problem) => {
            desk.notes.problem(problem);
            return Ok(answer(StatusCode::BAD_REQUEST));
        }
    };
    let conduct = (desk.script)(&arrival);
    let begins = desk.notes.arrived(&arrival, &conduct);
    match conduct {
        Conduct::Take(work) => {
            if begins {
                tokio::spawn(work_on(arrival.event_id, work, desk.notes, desk.releaser));
            }
            Ok(answer(StatusCode::ACCEPTED))
        }
        Conduct::Answers(after) => {
            tokio::time::sleep(after).await;
            desk.notes.left(&arrival.event_id);
            Ok(answer(StatusCode::OK))
        }
        Conduct::Answer(status) => Ok(answer(StatusCode::from_u16(status).map_err(std::io::Error::other)?)),
        Conduct::Hang => std::future::pending().await,
        Conduct::Reset => Err(std::io::ErrorKind::ConnectionReset.into()),
    }
}

/// Works on an event, and releases it.
pub(crate) async fn work_on(event_id: String, work: Work, notes: Notes, releaser: Releaser) {
    tokio::time::sleep(work.time).await;
    let attempt = notes.left(&event_id);
    for mut release in work.releases {
        if release.name.is_empty() {
            release.name.clone_from(&event_id);
        }
        release.attempt = release.attempt.or(attempt);
        releaser.release(release).await;
    }
}

fn answer(status: StatusCode) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    response
}
