//! Opens connections, to addresses that may be reached and within the connect timeout.
//!
//! The timeout covers TCP and TLS. What is not here: which connection a request gets;
//! hosts that are addresses, which no resolver sees and which are checked before each request.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::Uri;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::ring;
use tollgate_core::model::Http2;
use tower_service::Service;

use crate::TargetError;
use crate::address::GuardedNames;
use crate::names::without_port;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// An open connection.
pub(super) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// How long a connection may be silent before the kernel asks whether the other side lives.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// TLS as all requests have it: the system's roots, and the one crypto provider.
pub(crate) fn tls() -> Result<ClientConfig, TargetError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TargetError::Roots(io::Error::other(error)))?;
    Ok(config.with_native_roots().map_err(TargetError::Roots)?.with_no_client_auth())
}

type Inner = HttpsConnector<HttpConnector<Resolver>>;

/// Connects by HTTP or HTTPS.
#[derive(Clone)]
pub(super) struct Connector {
    /// Offers HTTP/1.1 alone, where it is asked.
    single: Inner,
    /// Offers HTTP/2, too.
    both: Inner,
    timeout: Duration,
}

/// Whether both sides chose HTTP/2 while they agreed on TLS.
pub(super) fn agreed_on_http2(stream: &Stream) -> bool {
    match stream {
        MaybeHttpsStream::Http(_) => false,
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().1.alpn_protocol() == Some(b"h2".as_slice()),
    }
}

impl Connector {
    pub(super) fn new(names: GuardedNames, timeout: Duration) -> Result<Self, TargetError> {
        let mut tcp = HttpConnector::new_with_resolver(Resolver(names));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_connect_timeout(Some(timeout));
        let tls = tls()?;
        let builder =
            || HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http().enable_http1();
        let single = builder().wrap_connector(tcp.clone());
        Ok(Self { single, both: builder().enable_http2().wrap_connector(tcp), timeout })
    }

    /// A connection to where this URL leads.
    pub(super) async fn connect(&self, url: &Uri, http2: Http2) -> Result<Stream, BoxError> {
        let mut inner = if http2 == Http2::Auto { self.both.clone() } else { self.single.clone() };
        poll_fn(|cx| inner.poll_ready(cx)).await?;
        self.in_time(inner.call(url.clone())).await
    }

    /// Waits as long as the opening of a connection may take.
    pub(super) async fn in_time<T>(
        &self,
        opening: impl Future<Output = Result<T, BoxError>>,
    ) -> Result<T, BoxError> {
        let timeout = self.timeout;
        tokio::time::timeout(timeout, opening)
            .await
            .unwrap_or_else(|_| Err(format!("no connection within {} ms", timeout.as_millis()).into()))
    }
}

/// Names in the form that the TCP connector wants. The name has been looked up a moment before, for the caller's
/// namespace.
#[derive(Clone)]
pub(super) struct Resolver(GuardedNames);

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Boxed<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let names = self.0.clone();
        Box::pin(async move {
            let found = names.resolve(name.as_str(), "").await?;
            Ok(without_port(&found).collect::<Vec<_>>().into_iter())
        })
    }
}
