//! Decides which connections there are: accepts them, with TLS where it is set up, and bounds how many there are and how
//! long they may say nothing.
//!
//! In: a listener. Out: connections for the HTTP server, each with what it has shown of its other end. Invariants: a
//! handshake delays no other connection; one that has not begun a request in time is closed, and before that if somebody
//! else needs its place ([`places`]), so that connections which nobody uses keep nobody out. Not here: requests.

mod places;

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tollgate_auth::{self as auth, Origin};
use tollgate_metrics::{Bound, Metrics};
use tonic::transport::server::Connected;
use tower_service::Service;

use super::tls::{self, Tls};
use places::{ConnectionPlace, ConnectionPlaces, Taken, address_of};

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
    /// Open at once.
    pub(super) connections_max: usize,
    /// Whether one address leaves some to others: where all callers have the same, there are no others.
    pub(super) divided: bool,
    /// From a connection to the beginning of its first request.
    pub(super) patience: Duration,
}

/// A way to hand connections to the server.
pub(super) type Sender = mpsc::Sender<io::Result<Connection>>;
/// The server's end of it.
pub(super) type Receiver = mpsc::Receiver<io::Result<Connection>>;

/// Where connections go from the listener to the server.
pub(super) fn queue() -> (Sender, Receiver) {
    mpsc::channel(QUEUE)
}

/// A connection.
pub(super) struct Connection {
    io: Io,
    origin: Origin,
    /// Where its other end is.
    address: Option<IpAddr>,
    /// Until its first request has begun.
    beginning: Option<Beginning>,
    /// Its place among those that may be open.
    _place: Option<ConnectionPlace>,
}

/// A connection that has not begun a request.
struct Beginning {
    /// Bytes that are missing.
    missing: usize,
    /// When it is too late.
    late: Pin<Box<Sleep>>,
    /// Somebody else gets its place.
    evicted: oneshot::Receiver<()>,
}

impl Beginning {
    fn now(patience: Duration, evicted: oneshot::Receiver<()>) -> Self {
        let late = Box::pin(tokio::time::sleep(patience));
        Self { missing: BEGINNING_BYTES, late, evicted }
    }

    /// Why it is over, if it is.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<&'static str> {
        if let Poll::Ready(Ok(())) = Pin::new(&mut self.evicted).poll(context) {
            return Poll::Ready("no request has begun, and others need the place");
        }
        ready!(self.late.as_mut().poll(context));
        Poll::Ready("no request has begun in time")
    }
}

enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Inside(DuplexStream),
}

impl Connection {
    fn inside(stream: DuplexStream) -> Self {
        Self { io: Io::Inside(stream), origin: Origin::Inside, address: None, beginning: None, _place: None }
    }
}

/// What a connection needs on its way to the server.
#[derive(Clone)]
struct Way {
    tls: Option<Arc<Tls>>,
    patience: Duration,
    sender: Sender,
}

/// Accepts until `close`.
pub(super) async fn accept(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    metrics: Metrics,
    sender: Sender,
    close: CancellationToken,
) {
    let places = ConnectionPlaces::new(limits.connections_max, limits.divided);
    let way = Way { tls, patience: limits.patience, sender };
    let mut full = false;
    loop {
        let accepted = tokio::select! {
            () = close.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok((stream, address)) => (stream, address_of(address.ip())),
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        // Small answers are not to wait for more; where it cannot be set, they do.
        let _as_it_is = stream.set_nodelay(true);
        let taken = places.take(address);
        let is_full = match &taken {
            Ok(taken) => taken.was_full,
            Err(bound) => *bound == Bound::Connections,
        };
        if is_full && !full {
            tracing::warn!(
                "{} connections are open, as many as connections_max allows; each further one takes the place of one that has not \
                 begun a request, or is closed",
                limits.connections_max
            );
        }
        full = is_full;
        match taken {
            Ok(taken) if way.tls.is_some() => drop(tokio::spawn(way.clone().go(stream, taken))),
            Ok(taken) => {
                if !way.clone().go(stream, taken).await {
                    return;
                }
            }
            Err(bound) => {
                tracing::debug!(%address, ?bound, "a connection is closed at once");
                metrics.refused(bound);
            }
        }
    }
}

impl Way {
    /// Brings a connection to the server; false if that has stopped.
    async fn go(self, stream: TcpStream, taken: Taken) -> bool {
        let Taken { place, evicted, .. } = taken;
        let (mut begun, address) = (Beginning::now(self.patience, evicted), Some(place.address()));
        let Some(tls) = self.tls else {
            let (io, origin) = (Io::Plain(stream), Origin::Plain);
            let connection = Connection { io, origin, address, beginning: Some(begun), _place: Some(place) };
            return self.sender.send(Ok(connection)).await.is_ok();
        };
        let shaken = tokio::select! {
            shaken = tls.acceptor().accept(stream) => shaken,
            why = poll_fn(|context| begun.poll_over(context)) => {
                tracing::debug!(why, "a TLS handshake took too long");
                return true;
            }
        };
        let stream = match shaken {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a TLS handshake failed");
                return true;
            }
        };
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(tls::name_of);
        let origin = shown.map_or(Origin::Plain, Origin::Certificate);
        let io = Io::Tls(Box::new(stream));
        let connection = Connection { io, origin, address, beginning: Some(begun), _place: Some(place) };
        self.sender.send(Ok(connection)).await.is_ok()
    }
}

impl Connected for Connection {
    type ConnectInfo = auth::ConnectionInfo;

    fn connect_info(&self) -> auth::ConnectionInfo {
        auth::ConnectionInfo { origin: self.origin.clone(), address: self.address }
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
        let Some(beginning) = &mut this.beginning else { return read };
        if read.is_ready() {
            beginning.missing = beginning.missing.saturating_sub(buffer.filled().len() - before);
            if beginning.missing == 0 {
                this.beginning = None;
            }
            return read;
        }
        let why = ready!(beginning.poll_over(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
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

/// Connects to the server in this process without a socket, and without what the port asks of others.
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
