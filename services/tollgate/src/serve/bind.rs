//! Opens the port; says in plain words why it cannot be opened.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;

use anyhow::anyhow;
use tokio::net::TcpListener;

use crate::usage::plain;

/// Listens.
///
/// # Errors
/// A port that another process has, an address that is not of this machine, a port for root alone.
pub(super) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|error| anyhow!("cannot listen on {address}: {}", told(address, &error)))
}

/// What is wrong, and what to try.
fn told(address: SocketAddr, error: &Error) -> String {
    let mut other = address;
    other.set_port(address.port().checked_add(1).unwrap_or(7411));
    let port = address.port();
    match error.kind() {
        ErrorKind::AddrInUse => format!(
            "another process has the port {port}. Is a Tollgate running already (`tollgate ping`)? Stop it, or listen \
             elsewhere: --listen {other}; `ss -ltnp sport = :{port}` shows whose it is"
        ),
        ErrorKind::AddrNotAvailable => format!(
            "{} is no address of this machine; `--listen 0.0.0.0:{port}` listens on all of its addresses",
            address.ip()
        ),
        ErrorKind::PermissionDenied => {
            other.set_port(7411);
            format!("ports below 1024 are for root; listen on another one: --listen {other}")
        }
        _ => format!("{}; choose another address with --listen", plain(error)),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn a_port_that_is_taken_is_said_to_be() {
        let taken = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = taken.local_addr().unwrap();
        let text = bind(address).await.unwrap_err().to_string();
        let port = address.port();
        assert!(
            text.starts_with(&format!("cannot listen on {address}: another process has the port {port}")),
            "{text}"
        );
        assert!(text.contains("--listen 127.0.0.1:"), "{text}");
        let text = bind("192.0.2.1:7411".parse().unwrap()).await.unwrap_err().to_string();
        assert!(text.contains("192.0.2.1 is no address of this machine"), "{text}");
        let denied = told("127.0.0.1:80".parse().unwrap(), &ErrorKind::PermissionDenied.into());
        assert!(denied.contains("--listen 127.0.0.1:7411"), "{denied}");
    }
}
