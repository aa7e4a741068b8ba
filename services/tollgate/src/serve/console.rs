//! Decides what the web console is given: a channel to the API, and the names under which it may be asked for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;
use tollgate_console::Options;
use tonic::transport::Endpoint;

use crate::config::ServeConfig;

/// How long a connection to the API may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The console's routes. It asks the process itself, over the same port as any client, unless told otherwise.
///
/// # Errors
/// An address that is none.
pub(super) fn router(
    config: &ServeConfig,
    address: SocketAddr,
    stop: &CancellationToken,
) -> anyhow::Result<axum::Router> {
    let server = config.console_server.clone().unwrap_or_else(|| format!("http://{}", own(address)));
    let endpoint = Endpoint::from_shared(server).context("the console's server is no URL")?;
    let channel = endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true).connect_lazy();
    let hosts = address.ip().is_loopback().then(|| {
        let named = config.advertise.as_deref().and_then(|url| url.parse::<http::Uri>().ok());
        named.as_ref().and_then(http::Uri::host).map(str::to_owned).into_iter().collect()
    });
    tracing::info!("the console is at http://{}/", own(address));
    let options = Options { clock: Clock::system(), stop: stop.child_token(), hosts };
    Ok(tollgate_console::router(channel, options))
}

/// Where the process reaches itself.
fn own(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        named => named,
    };
    SocketAddr::new(ip, address.port())
}
