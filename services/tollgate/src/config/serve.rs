//! Decides what `tollgate serve` can be told, and the values that hold where it is told nothing.
//!
//! Not here: texts to values (`settings`), which of several sources wins (`read`).

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tollgate_target::{Network, PrivateAddresses};

/// A part of the service that a process can play.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// The Schedule Master.
    Master,
    /// The Event Emitter.
    Emitter,
    /// The Event Handler.
    Handler,
    /// The web console.
    Console,
}

impl Role {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Master, Self::Emitter, Self::Handler, Self::Console];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Master => "master",
            Self::Emitter => "emitter",
            Self::Handler => "handler",
            Self::Console => "console",
        })
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What `tollgate serve` needs to know. The table [`super::settings::SETTINGS`] describes each field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServeConfig {
    /// `sqlite:PATH` or a `postgres://` URL.
    pub(crate) store: String,
    /// What this process does.
    pub(crate) roles: BTreeSet<Role>,
    /// Where the console reads and acts; this process where absent.
    pub(crate) console_server: Option<String>,
    /// Where gRPC is served.
    pub(crate) listen: SocketAddr,
    /// Where other processes and consumers reach this one; `listen` where absent.
    pub(crate) advertise: Option<String>,
    /// Connections to the store.
    pub(crate) store_connections: u32,
    /// Length of a scan window, in seconds.
    pub(crate) window_s: i64,
    /// How far ahead of now windows are opened, in seconds.
    pub(crate) ahead_s: i64,
    /// How long finished events and runs are kept, in days.
    pub(crate) retention_days: u32,
    /// Deliveries under way at once, per shard, where no `max_in_flight` bounds them.
    pub(crate) sends_max: u32,
    /// While so many events of a run wait for another attempt, it starts no new ones.
    pub(crate) retrying_max: u32,
    /// A process that has shown no sign of life for so long has lost its shards, in milliseconds.
    pub(crate) lease_ttl_ms: i64,
    /// Whether deliveries may go to addresses that are not public.
    pub(crate) allow_private_addresses: PrivateAddresses,
    /// Which log lines are written: `tracing-subscriber` directives.
    pub(crate) log: String,
    /// How log lines look.
    pub(crate) log_format: LogFormat,
    /// How long a planned stop waits for deliveries under way, in milliseconds.
    pub(crate) shutdown_grace_ms: u64,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            store: "sqlite:tollgate.db".to_owned(),
            roles: BTreeSet::from(Role::ALL),
            console_server: None,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7411)),
            advertise: None,
            store_connections: 8,
            window_s: 60,
            ahead_s: 300,
            retention_days: 45,
            sends_max: 1_024,
            retrying_max: 1_000,
            lease_ttl_ms: 6_000,
            allow_private_addresses: loopback(),
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            shutdown_grace_ms: 10_000,
        }
    }
}

/// A consumer on the same machine is where everybody begins; further networks must be named.
fn loopback() -> PrivateAddresses {
    let networks = [
        Network::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
        Network::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    ];
    PrivateAddresses::AllowNetworks(networks.into_iter().flatten().collect())
}
