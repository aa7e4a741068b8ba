//! Decides how callers are asked who they are, and keeps the live keys at hand.
//!
//! In: settings, the store. Out: the [`Door`] around the services, and the guards of the pages that are no RPCs. Invariants:
//! a port that others can reach is never open unasked; a key that was made or revoked counts so everywhere within two
//! seconds; while the store is away, the keys that were last read go on to count until they expire.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header};
use tokio_util::sync::CancellationToken;
use tollgate_auth::{Access, Directory, Door, KeyEntry, Mode, Scope, Scopes};
use tollgate_clock::Clock;
use tollgate_gateway::Hosts;
use tollgate_store::{Store, StoreError};

use crate::config::{Auth, ServeConfig};
use crate::usage::Usage;

/// How often the live keys are read.
const READ: Duration = Duration::from_secs(1);

/// How callers are asked, as the settings say; where they say nothing: not at all on a loopback address, else for a key.
///
/// # Errors
/// Settings that contradict each other, or would leave a port open that others can reach.
pub(super) fn chosen(config: &ServeConfig) -> Result<Auth, Usage> {
    let wrong = |text: String| Err(Usage(text));
    let (listen, loopback) = (config.listen, config.listen.ip().is_loopback());
    let default = if loopback { Auth::Off } else { Auth::Keys };
    let auth = config.auth.unwrap_or(default);
    if config.tls_cert.is_some() != config.tls_key.is_some() {
        return wrong("tls_cert and tls_key: one of them is missing, expected both or none".to_owned());
    }
    if config.tls_client_ca.is_some() && config.tls_cert.is_none() {
        return wrong(
            "tls_client_ca: client certificates need TLS, expected tls_cert and tls_key as well".to_owned(),
        );
    }
    if auth == Auth::Mtls && config.tls_client_ca.is_none() {
        return wrong(
            "auth: mtls asks for client certificates, expected tls_client_ca to say whose".to_owned(),
        );
    }
    if auth == Auth::Off && !loopback {
        return wrong(format!(
            "auth: off is allowed on loopback addresses only, and others can reach {listen}: expected --auth keys (`tollgate \
             key create NAME --scopes admin --all-namespaces` makes one), --auth mtls, or --auth insecure where something else keeps strangers away"
        ));
    }
    let scheme = config.scheme();
    if let Some(url) = config.advertise.as_ref().filter(|url| !url.starts_with(&format!("{scheme}://"))) {
        return wrong(format!(
            "advertise: {url:?} is not allowed, expected {scheme}://HOST:PORT, as the port speaks it"
        ));
    }
    Ok(auth)
}

/// The door that was chosen, with the keys that are live now.
///
/// # Errors
/// A store that cannot be read.
pub(super) async fn open(
    auth: Auth,
    config: &ServeConfig,
    store: &Arc<dyn Store>,
    clock: &Clock,
    stop: &CancellationToken,
) -> anyhow::Result<Door> {
    let deadline = Duration::from_millis(config.request_timeout_ms);
    if matches!(auth, Auth::Off | Auth::Insecure) {
        let who = if config.listen.ip().is_loopback() {
            "everybody on this machine"
        } else {
            "everybody who reaches it"
        };
        tracing::warn!("auth is {auth}: {who} may do everything, as anybody");
        return Ok(Door::new(Mode::Open, deadline));
    }
    let directory = Directory::default();
    let live = read(store, clock, &directory).await.context("cannot read the keys")?;
    if auth == Auth::Keys && live == 0 {
        tracing::warn!(
            "there is no key yet, so only consumers can call: `tollgate key create NAME --scopes admin --all-namespaces` \
             makes one"
        );
    }
    if auth == Auth::Keys && config.tls_cert.is_none() && !config.listen.ip().is_loopback() {
        tracing::warn!(
            "keys travel in the clear: set tls_cert and tls_key, or put something before it that speaks TLS"
        );
    }
    tokio::spawn(keep_reading(store.clone(), clock.clone(), directory.clone(), stop.clone()));
    let clock = clock.clone();
    let now_us = Arc::new(move || clock.wall_us());
    let mode = match auth {
        Auth::Mtls => Mode::Certificates(directory, now_us),
        _ => Mode::Keys(directory, now_us),
    };
    Ok(Door::new(mode, deadline))
}

async fn read(store: &Arc<dyn Store>, clock: &Clock, directory: &Directory) -> Result<usize, StoreError> {
    let keys = store.live_keys(clock.wall_us()).await?;
    let entries = keys.into_iter().map(|key| {
        // What a newer version may have named is not known here, and gives nothing.
        let scopes = Scopes::known(key.scopes.iter().map(String::as_str));
        let (id, name, namespace, hash, expires_us) =
            (key.id, key.name, key.namespace, key.hash, key.expires_us);
        KeyEntry { id, name, namespace, scopes, hash, expires_us }
    });
    Ok(directory.replace(entries.collect()))
}

async fn keep_reading(store: Arc<dyn Store>, clock: Clock, directory: Directory, stop: CancellationToken) {
    let mut failing = false;
    while stop.run_until_cancelled(tokio::time::sleep(READ)).await.is_some() {
        let read = read(&store, &clock, &directory).await;
        match &read {
            Err(error) if !failing => {
                tracing::warn!(%error, "the keys cannot be read; the keys that were read before still count")
            }
            Ok(_) if failing => tracing::info!("the keys can be read again"),
            _ => {}
        }
        failing = read.is_err();
    }
}

/// Under which names the port may be asked for. Where only this machine reaches it, no foreign page shall come under a name
/// of its own that leads here (DNS rebinding).
pub(super) fn hosts(config: &ServeConfig, address: SocketAddr, door: &Door) -> Hosts {
    if !address.ip().is_loopback() {
        return Hosts::any();
    }
    let advertised = config.advertise.as_deref().and_then(|url| url.parse::<http::Uri>().ok());
    let names = advertised.as_ref().and_then(http::Uri::host).map(str::to_owned).into_iter().collect();
    if door.is_open() { Hosts::only(names) } else { Hosts::only_for_pages(names) }
}

/// The pages of `crates/metrics`, of which `/metrics` names policies: only for those who may read everything, unless it is
/// said to be open.
pub(super) fn metrics(pages: Router, door: &Door, open: bool) -> Router {
    if open || door.is_open() {
        return pages;
    }
    pages.layer(axum::middleware::from_fn_with_state(door.clone(), guard_metrics))
}

async fn guard_metrics(State(door): State<Door>, request: Request, next: Next) -> Response {
    if request.uri().path() != "/metrics" {
        return next.run(request).await;
    }
    let refused = |status: StatusCode, text: &str| {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        (status, challenge, format!("{text}\n")).into_response()
    };
    match door.identify(request.headers(), request.extensions()) {
        Ok(Access::Holder(principal))
            if principal.namespace.is_some() || !principal.scopes.allow(Scope::Read) =>
        {
            refused(
                StatusCode::FORBIDDEN,
                "the metrics are for keys with the scope read that reach all namespaces",
            )
        }
        Ok(Access::Open | Access::Holder(_)) => next.run(request).await,
        Ok(Access::Nobody) => {
            refused(StatusCode::UNAUTHORIZED, "no key: expected authorization: Bearer tgk_…")
        }
        Err(status) => refused(StatusCode::UNAUTHORIZED, status.message()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn settings(change: impl FnOnce(&mut ServeConfig)) -> Result<Auth, String> {
        let mut config = ServeConfig::default();
        change(&mut config);
        chosen(&config).map_err(|usage| usage.0)
    }

    fn far(config: &mut ServeConfig) {
        config.listen = "0.0.0.0:7411".parse().unwrap();
    }

    #[test]
    fn others_are_asked_and_the_own_machine_is_not() {
        assert_eq!(settings(|_| {}), Ok(Auth::Off));
        assert_eq!(settings(far), Ok(Auth::Keys));
        assert_eq!(settings(|config| config.auth = Some(Auth::Keys)), Ok(Auth::Keys));
        let open = settings(|config| {
            far(config);
            config.auth = Some(Auth::Off);
        });
        assert!(open.unwrap_err().contains("others can reach 0.0.0.0:7411"));
        let insecure = settings(|config| {
            far(config);
            config.auth = Some(Auth::Insecure);
        });
        assert_eq!(insecure, Ok(Auth::Insecure));
    }

    #[test]
    fn half_of_tls_is_refused() {
        let file = || Some("x.pem".to_owned());
        assert!(settings(|config| config.tls_cert = file()).unwrap_err().contains("tls_key"));
        assert!(settings(|config| config.tls_client_ca = file()).unwrap_err().contains("tls_cert"));
        assert!(settings(|config| config.auth = Some(Auth::Mtls)).unwrap_err().contains("tls_client_ca"));
        let tls = |config: &mut ServeConfig| (config.tls_cert, config.tls_key) = (file(), file());
        assert_eq!(settings(tls), Ok(Auth::Off));
        let plain = settings(|config| {
            tls(config);
            config.advertise = Some("http://node-1:7411".to_owned());
        });
        assert!(plain.unwrap_err().contains("https://HOST:PORT"));
    }
}
