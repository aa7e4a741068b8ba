//! A server of lists, whose answers a test writes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::{Request, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;
use tollgate_harness::{http, now_us};

/// What was asked for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// How many requests came before.
    pub(super) number: usize,
    pub(super) path: String,
    pub(super) authorization: String,
    pub(super) at_us: i64,
}

/// What is answered.
pub(super) enum Reply {
    Whole {
        status: u16,
        kind: &'static str,
        body: String,
        link: String,
    },
    /// So much of an answer, and then nothing.
    Stall(&'static str, String),
    /// Nothing at all.
    Hang,
}

impl Reply {
    pub(super) fn ok(kind: &'static str, body: impl Into<String>) -> Self {
        Self::Whole { status: 200, kind, body: body.into(), link: String::new() }
    }

    pub(super) fn status(status: u16) -> Self {
        Self::Whole { status, kind: "text/plain", body: String::new(), link: String::new() }
    }

    pub(super) fn link(self, link: &str) -> Self {
        match self {
            Self::Whole { status, kind, body, .. } => {
                Self::Whole { status, kind, body, link: link.to_owned() }
            }
            other => other,
        }
    }
}

type Script = Arc<dyn Fn(&Asked) -> Reply + Send + Sync>;

/// The server, until it is dropped.
pub(super) struct Lists {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: JoinHandle<()>,
}

impl Lists {
    pub(super) async fn start(script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, script): (Arc<Mutex<Vec<Asked>>>, Script) = (Arc::default(), Arc::new(script));
        let book = asked.clone();
        let task = tokio::spawn(http::accept(listener, move |stream| {
            let (book, script) = (book.clone(), script.clone());
            http::serve(stream, move |request| answer(book.clone(), script.clone(), request))
        }));
        Self { address, asked, task }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    book: Arc<Mutex<Vec<Asked>>>,
    script: Script,
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let authorization = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let path = request.uri().path_and_query().unwrap().to_string();
    let asked = {
        let mut book = book.lock().unwrap();
        let authorization = authorization.unwrap_or_default().to_owned();
        let asked = Asked { number: book.len(), path, authorization, at_us: now_us() };
        book.push(asked.clone());
        asked
    };
    let response = |status: u16, kind: &str| Response::builder().status(status).header("content-type", kind);
    match script(&asked) {
        Reply::Whole { status, kind, body, link } => {
            let head = response(status, kind);
            let head = if link.is_empty() { head } else { head.header("link", link) };
            Ok(head.body(Full::new(Bytes::from(body)).boxed()).unwrap())
        }
        Reply::Stall(kind, body) => {
            let begun = tokio_stream::iter([Ok(Frame::data(Bytes::from(body)))]);
            let body = StreamBody::new(begun.chain(tokio_stream::pending()));
            Ok(response(200, kind).body(BoxBody::new(body)).unwrap())
        }
        Reply::Hang => std::future::pending().await,
    }
}
