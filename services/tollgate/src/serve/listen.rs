//! Decides which connections there are: accepts them, with TLS where it is set up, and bounds how many there are and how
//! long they may say nothing.
//!
//! In: a listener. Out: connections for the HTTP server, each with what it has shown of its other end. Invariants: a
//! handshake delays no other connection; one that has not begun a request in time is closed, so that connections which
//! nobody uses do not add up. Not here: requests.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tollgate_auth::Origin;
use tonic::transport::server::Connected;
use tower_service::Service;

use super::tls::{self, Tls};

/// What one connection carries for the process's own console, in bytes, either way.
const INSIDE_BYTES: usize = 256 * 1024;
/// Connections that are accepted and not taken up yet.
const QUEUE: usize = 64;
/// The shortest beginning of a request that counts: the preface of HTTP/2. No request of HTTP/1.1 is shorter.
const BEGINNING_BYTES: usize = 24;
/// After a failure to accept, which is mostly a want of file descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// How many connections, and how patient.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Open at once; more are closed at once.
    pub(super) connections_max: usize,
    /// From a connection to the beginning of its first request.
    pub(super) patience: Duration,
}

/// A way to hand connections to the server.
pub(super) type Sender = mpsc::Sender<io::Result<Connection>>;
/// The server's end of it.
pub(super) type Receiver = mpsc::Receiver<io::Result<Connection>>;

/// Where connections go from whoever accepts them to the server.
pub(super) fn queue() -> (Sender, Receiver) {
    mpsc::channel(QUEUE)
}

/// A connection.
pub(super) struct Connection {
    io: Io,
    origin: Origin,
    /// Until its first request has begun: how much of it is missing, and when it is too late.
    beginning: Option<(usize, Pin<Box<Sleep>>)>,
    /// Its place among those that may be open.
    _place: Option<OwnedSemaphorePermit>,
}

enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Inside(DuplexStream),
}

impl Connection {
    fn inside(stream: DuplexStream) -> Self {
        Self { io: Io::Inside(stream), origin: Origin::Inside, beginning: None, _place: None }
    }
}

/// Accepts until `close`.
pub(super) async fn accept(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    sender: Sender,
    close: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let mut full = false;
    loop {
        let accepted = tokio::select! {
            () = close.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            if !std::mem::replace(&mut full, true) {
                tracing::warn!(
                    "{} connections are open, connections_max; more are closed at once",
                    limits.connections_max
                );
            }
            continue;
        };
        full = false;
        // Small answers are not to wait for more; where it cannot be set, they do.
        let _as_it_is = stream.set_nodelay(true);
        match &tls {
            None => {
                let late = Box::pin(tokio::time::sleep(limits.patience));
                let beginning = Some((BEGINNING_BYTES, late));
                let connection = Connection {
                    io: Io::Plain(stream),
                    origin: Origin::Plain,
                    beginning,
                    _place: Some(place),
                };
                if sender.send(Ok(connection)).await.is_err() {
                    return;
                }
            }
            Some(tls) => {
                tokio::spawn(shake_hands(tls.clone(), stream, place, limits.patience, sender.clone()));
            }
        }
    }
}

async fn shake_hands(
    tls: Arc<Tls>,
    stream: TcpStream,
    place: OwnedSemaphorePermit,
    patience: Duration,
    sender: Sender,
) {
    let late = Box::pin(tokio::time::sleep(patience));
    let stream = match tokio::time::timeout(patience, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(tls::name_of);
    let origin = shown.map_or(Origin::Plain, Origin::Certificate);
    let beginning = Some((BEGINNING_BYTES, late));
    let connection = Connection { io: Io::Tls(Box::new(stream)), origin, beginning, _place: Some(place) };
    // The server may have stopped.
    let _gone = sender.send(Ok(connection)).await;
}

impl Connected for Connection {
    type ConnectInfo = Origin;

    fn connect_info(&self) -> Origin {
        self.origin.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = match &mut this.io {
            Io::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Io::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
            Io::Inside(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        let Some((missing, late)) = &mut this.beginning else { return read };
        if read.is_ready() {
            *missing = missing.saturating_sub(buffer.filled().len() - before);
            if *missing == 0 {
                this.beginning = None;
            }
            return read;
        }
        ready!(late.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no request has begun in time")))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Io::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Io::Inside(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_flush(context),
            Io::Tls(stream) => Pin::new(stream).poll_flush(context),
            Io::Inside(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Io::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Io::Inside(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Io::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Io::Inside(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(stream) => stream.is_write_vectored(),
            Io::Tls(stream) => stream.is_write_vectored(),
            Io::Inside(stream) => stream.is_write_vectored(),
        }
    }
}

/// Connects to the server in this process without a socket, whatever the port asks of others.
#[derive(Clone)]
pub(super) struct Inside(pub(super) Sender);

impl Service<Uri> for Inside {
    type Response = TokioIo<DuplexStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<DuplexStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let sender = self.0.clone();
        Box::pin(async move {
            let (own, servers) = tokio::io::duplex(INSIDE_BYTES);
            let stopped = |_| io::Error::new(io::ErrorKind::ConnectionRefused, "the server has stopped");
            sender.send(Ok(Connection::inside(servers))).await.map_err(stopped)?;
            Ok(TokioIo::new(own))
        })
    }
}
