//! Decides what the web console is given: a channel to the API, and how visitors log in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::{Extensions, HeaderMap, HeaderValue, header};
use tokio_util::sync::CancellationToken;
use tollgate_auth::{Access, Door, Scope};
use tollgate_clock::Clock;
use tollgate_console::{Admit, Login, Options, Visitor};
use tollgate_metrics::Metrics;
use tonic::transport::Endpoint;

use super::listen::Inside;
use super::tls;
use crate::config::ServeConfig;

/// How long a connection to the API may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The console's routes. It asks the process itself, through the same door as any client, unless told otherwise. Where
/// callers are asked for keys, each visitor logs in with one, and acts with it.
///
/// # Errors
/// An address that is none.
pub(super) fn router(
    config: &ServeConfig,
    (clock, metrics): (Clock, &Metrics),
    address: SocketAddr,
    stop: &CancellationToken,
    door: &Door,
    inside: Inside,
) -> anyhow::Result<axum::Router> {
    let wrong = "the console's server is no URL";
    let channel = match &config.console_server {
        None => Endpoint::from_static("http://console.localhost").connect_with_connector_lazy(inside),
        Some(server) => {
            let mut endpoint = Endpoint::from_shared(server.clone()).context(wrong)?;
            if server.starts_with("https:") {
                endpoint = endpoint.tls_config(tls::to_others(config)?).context(wrong)?;
            }
            endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true).connect_lazy()
        }
    };
    tracing::info!("the console is at {}://{}/", config.scheme(), own(address));
    let secure = config.tls_cert.is_some();
    let stop = stop.child_token();
    let metrics = metrics.clone();
    let options =
        Options { clock, stop, secure, metrics, login: login(door).map(|admit| Login { admit, secure }) };
    Ok(tollgate_console::router(channel, options))
}

/// Who a key admits; none where keys are not asked for.
fn login(door: &Door) -> Option<Admit> {
    if !door.asks_for_keys() {
        return None;
    }
    let door = door.clone();
    Some(Arc::new(move |key: &str| {
        let bearer = HeaderValue::from_str(&format!("Bearer {key}")).ok()?;
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, bearer)]);
        match door.identify(&headers, &Extensions::new()) {
            Ok(Access::Holder(principal)) if principal.scopes.allow(Scope::Read) => {
                Some(Visitor { name: principal.name.clone(), namespace: principal.namespace.clone() })
            }
            _ => None,
        }
    }))
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
