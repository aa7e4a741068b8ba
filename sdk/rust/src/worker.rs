//! The worker: its options, how it begins and how it ends.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::calls::Calls;
use crate::client::{self, Client, Refused};
use crate::context::Context;
use crate::engine::{Engine, Handler};
use crate::event::Event;
use crate::http::Http;
use crate::outcome::{Failure, Outcome};
use crate::pull::{Asker, Pull};
#[cfg(feature = "sqs")]
use crate::sqs::Sqs;

/// How long releases may go on after the work was given up.
const LAST_RELEASES: Duration = Duration::from_secs(10);
const NAME_MAX: usize = 64;

/// Where events come from.
#[derive(Debug)]
#[non_exhaustive]
pub enum Source {
    /// A queue of Tollgate.
    Pull(Pull),
    /// Requests that Tollgate sends.
    Http(Http),
    /// A queue of SQS.
    #[cfg(feature = "sqs")]
    Sqs(Sqs),
}

impl From<Pull> for Source {
    fn from(pull: Pull) -> Self {
        Self::Pull(pull)
    }
}

impl From<Http> for Source {
    fn from(http: Http) -> Self {
        Self::Http(http)
    }
}

#[cfg(feature = "sqs")]
impl From<Sqs> for Source {
    fn from(sqs: Sqs) -> Self {
        Self::Sqs(sqs)
    }
}

/// Why a worker ended that was not told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is wrong.
    #[error("{0}")]
    Option(String),
    /// The server refuses what will not change.
    #[error("the server refuses this worker: {0}")]
    Refused(#[from] Refused),
    /// Neither signals nor TLS can be had.
    #[error("the worker cannot begin: {0}")]
    System(String),
    /// The worker was told to stop, and the server did not answer any more.
    #[error("tokens could not be released before the worker stopped; Tollgate takes them back")]
    NotReleased,
}

/// Has a worker stop in order.
#[derive(Clone, Debug, Default)]
pub struct Stop(CancellationToken);

impl Stop {
    /// Nothing new is taken, the work under way ends, its tokens are given back, and `run` returns. Does not wait.
    pub fn stop(&self) {
        self.0.cancel();
    }
}

/// The loop of a consumer.
pub struct Worker {
    source: Source,
    handler: Handler,
    server: String,
    key: String,
    namespace: String,
    concurrency: usize,
    labels: Vec<String>,
    name: String,
    drain_timeout: Duration,
    request_timeout: Duration,
    first_heartbeat: Duration,
    stop: Stop,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("source", &self.source)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker. What the handler returns is released: an [`Outcome`], `()`, or JSON as its result. A [`Failure`] has the
    /// event tried again, or fail for good.
    pub fn new<H, F, O>(source: impl Into<Source>, handler: H) -> Self
    where
        H: Fn(Event, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, Failure>> + Send + 'static,
        O: Into<Outcome>,
    {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let handler: Handler = Box::new(move |event, context| {
            let work = handler(event, context);
            Box::pin(async move { work.await.map(Into::into) })
        });
        Self {
            source: source.into(),
            handler,
            server: variable("TOLLGATE").unwrap_or_else(|| "http://127.0.0.1:7411".into()),
            key: variable("TOLLGATE_KEY").unwrap_or_default(),
            namespace: "default".into(),
            concurrency: 1,
            labels: Vec::new(),
            // Of two processes of one machine each is a worker.
            name: own_name(&variable("HOSTNAME").unwrap_or_default()),
            drain_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(10),
            first_heartbeat: Duration::from_secs(10),
            stop: Stop::default(),
        }
    }

    /// Where Tollgate is. By default the variable `TOLLGATE`, else `http://127.0.0.1:7411`.
    #[must_use]
    pub fn server(self, server: impl Into<String>) -> Self {
        Self { server: server.into(), ..self }
    }

    /// The key, where the server asks for keys. By default the variable `TOLLGATE_KEY`.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// The namespace of the queue; `default` by default.
    #[must_use]
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), ..self }
    }

    /// How many events are worked on at once, 1 to 10,000; 1 by default.
    #[must_use]
    pub fn concurrency(self, concurrency: usize) -> Self {
        Self { concurrency, ..self }
    }

    /// What the worker is able to do, for the source [`Pull`]; at most 16.
    #[must_use]
    pub fn labels<L: Into<String>>(self, labels: impl IntoIterator<Item = L>) -> Self {
        Self { labels: labels.into_iter().map(Into::into).collect(), ..self }
    }

    /// Its name for people, of at most 64 characters; by default the variable `HOSTNAME` and the process's number.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// How long work may go on after the worker was told to stop; 30 s by default.
    #[must_use]
    pub fn drain_timeout(self, drain_timeout: Duration) -> Self {
        Self { drain_timeout, ..self }
    }

    /// How long an answer of the server may take; 10 s by default.
    #[must_use]
    pub fn request_timeout(self, request_timeout: Duration) -> Self {
        Self { request_timeout, ..self }
    }

    /// When the first heartbeat is sent where the source does not say how long silence is allowed; 10 s by default. It is to be
    /// shorter than the policy's `token_ttl`.
    #[must_use]
    pub fn first_heartbeat(self, first_heartbeat: Duration) -> Self {
        Self { first_heartbeat, ..self }
    }

    /// What has it stop, from anywhere.
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    fn check(&self) -> Result<(), Error> {
        let wrong = |text: String| Err(Error::Option(text));
        if !self.server.starts_with("http://") && !self.server.starts_with("https://") {
            return wrong(format!("server: {:?}, expected a URL such as http://127.0.0.1:7411", self.server));
        }
        if !(1..=10_000).contains(&self.concurrency) {
            return wrong(format!("concurrency: {}, expected 1 to 10,000", self.concurrency));
        }
        if self.labels.len() > 16 {
            return wrong(format!("labels: {}, expected at most 16", self.labels.len()));
        }
        if self.name.chars().count() > NAME_MAX {
            return wrong(format!("name: {:?}, expected at most {NAME_MAX} characters", self.name));
        }
        let is_in_path = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.namespace.is_empty() || !self.namespace.chars().all(is_in_path) {
            return wrong(format!(
                "namespace: {:?}, expected letters, digits, `-`, `_` and `.`",
                self.namespace
            ));
        }
        let timeouts = [("request_timeout", self.request_timeout), ("first_heartbeat", self.first_heartbeat)];
        if let Some((name, _)) = timeouts.iter().find(|(_, timeout)| timeout.is_zero()) {
            return wrong(format!("{name}: 0s, expected more"));
        }
        let source = match &self.source {
            Source::Pull(pull) => pull.check(),
            Source::Http(_) => Ok(()),
            #[cfg(feature = "sqs")]
            Source::Sqs(sqs) => sqs.check(),
        };
        source.map_err(Error::Option)
    }

    /// Works until it is told to stop, by SIGTERM, SIGINT or [`Stop`]; then it drains.
    ///
    /// # Errors
    /// A wrong option, a refusal of the server that will not change, tokens that could not be released.
    pub async fn run(self) -> Result<(), Error> {
        self.check()?;
        let system = |error: std::io::Error| Error::System(error.to_string());
        let mut terminate = signal(SignalKind::terminate()).map_err(system)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(system)?;
        let client = Client {
            http: client::http().map_err(Error::System)?,
            server: self.server.trim_end_matches('/').to_owned(),
            key: self.key,
            timeout: self.request_timeout,
        };
        let engine = Arc::new(Engine {
            calls: Arc::new(Calls::new(client)),
            handler: self.handler,
            first_heartbeat: self.first_heartbeat,
            places: Arc::new(Semaphore::new(self.concurrency)),
            taking: CancellationToken::new(),
            work: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        let told = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = self.stop.0.cancelled() => {}
                () = engine.calls.refusing.cancelled() => {}
            }
        };
        let asker = Asker { namespace: self.namespace, labels: self.labels, name: self.name };
        let taken = take(self.source, &engine, asker, told, self.drain_timeout).await;
        match engine.calls.refusal() {
            Some(refused) => Err(refused.into()),
            None => taken,
        }
    }
}

/// Takes events until that is told, and drains then.
async fn take(
    source: Source,
    engine: &Arc<Engine>,
    asker: Asker,
    told: impl Future<Output = ()>,
    drain_timeout: Duration,
) -> Result<(), Error> {
    let taking = async {
        match source {
            Source::Pull(pull) => (pull.run(engine, asker).await, None),
            Source::Http(http) => {
                let serving = http.start(engine);
                serving.run().await;
                (Ok(()), Some(serving))
            }
            #[cfg(feature = "sqs")]
            Source::Sqs(sqs) => {
                sqs.run(engine).await;
                (Ok(()), None)
            }
        }
    };
    let mut taking = std::pin::pin!(taking);
    let (ended, serving) = tokio::select! {
        ended = taking.as_mut() => ended,
        () = told => {
            engine.taking.cancel();
            taking.await
        }
    };
    // Also where the source ended by itself.
    engine.taking.cancel();
    let drained = drain(engine, drain_timeout).await;
    if let Some(serving) = serving {
        serving.close().await;
    }
    ended.map_err(Error::from).and(drained)
}

/// Waits for the work under way, gives up what is left, and has all tokens released.
async fn drain(engine: &Engine, drain_timeout: Duration) -> Result<(), Error> {
    engine.tasks.close();
    if tokio::time::timeout(drain_timeout, engine.tasks.wait()).await.is_ok() {
        return Ok(());
    }
    engine.work.cancel();
    let released = tokio::time::timeout(LAST_RELEASES, engine.tasks.wait()).await.is_ok();
    engine.calls.over.cancel();
    released.then_some(()).ok_or(Error::NotReleased)
}

fn own_name(machine: &str) -> String {
    let machine: String = machine.chars().filter(char::is_ascii_graphic).take(50).collect();
    let machine = if machine.is_empty() { "worker" } else { &machine };
    format!("{machine}-{}", std::process::id())
}
