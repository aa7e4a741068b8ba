//! Which addresses deliveries reach.

use tollgate_core::model::Sent;
use tollgate_target::{PrivateAddresses, TargetOptions, Targets};

use crate::samples::{delivery, http, permanent, with};
use crate::server::{Server, answer};

#[tokio::test]
async fn private_addresses_are_refused_unless_configured() {
    let server = Server::always(answer(200, "", "")).await;
    let targets = Targets::new(TargetOptions::default()).unwrap();
    for host in [
        "127.0.0.1",
        "127.0.0.2",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "169.254.169.254",
        "10.0.0.1",
        "localhost",
        "LOCALHOST",
    ] {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:{}/", server.port);
            let message = permanent(targets.send(delivery(http(&url))).await);
            assert!(message.contains("address"), "{url}: {message}");
        }
    }
    // Spellings that only the resolver understands; some of them are no names for TLS, which comes first.
    for host in [
        "2130706433",
        "0x7f000001",
        "0X7F.0.0.1",
        "017700000001",
        "0177.0.0.1",
        "0177.0x0.0.1",
        "127.1",
        "127.0.1",
    ] {
        let message =
            permanent(targets.send(delivery(http(format!("http://{host}:{}/", server.port)))).await);
        assert!(message.contains("loopback"), "{host}: {message}");
        let sent = targets.send(delivery(http(format!("https://{host}:{}/", server.port)))).await;
        assert!(matches!(sent, Sent::Refused { .. }), "{host}: {sent:?}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_configured_network_opens_names_and_literals_in_it() {
    let server = Server::always(answer(200, "", "")).await;
    let targets = with(|options| options.allow_private_addresses = "127.0.0.0/8".parse().unwrap());
    for host in ["127.0.0.1", "localhost", "2130706433"] {
        let url = format!("http://{host}:{}/", server.port);
        assert_eq!(targets.send(delivery(http(&url))).await, Sent::Accepted, "{url}");
    }
    let other = with(|options| options.allow_private_addresses = "10.0.0.0/8".parse().unwrap());
    for host in ["127.0.0.1", "localhost"] {
        permanent(other.send(delivery(http(format!("http://{host}:{}/", server.port)))).await);
    }
    assert_eq!(server.requests().len(), 3);
    assert_eq!("allow".parse(), Ok(PrivateAddresses::Allow));
}
