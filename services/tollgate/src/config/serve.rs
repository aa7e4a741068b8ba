//! Decides what `tollgate serve` can be told, and the values that hold where it is told nothing.
//!
//! Not here: texts to values (`settings`), which of several sources wins (`read`).

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tollgate_proto::convert::Name;
use tollgate_schedule_master::{Quota, Quotas};
use tollgate_secrets::Keys;
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

/// How callers are asked who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    /// By a key.
    Keys,
    /// By the connection's certificate; a key, where shown, says less.
    Mtls,
    /// Not at all; on loopback addresses only.
    Off,
    /// Not at all, on any address.
    Insecure,
}

impl Auth {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Keys, Self::Mtls, Self::Off, Self::Insecure];

    /// Whether callers are asked who they are.
    pub(crate) fn asks(self) -> bool {
        matches!(self, Self::Keys | Self::Mtls)
    }
}

impl fmt::Display for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keys => "keys",
            Self::Mtls => "mtls",
            Self::Off => "off",
            Self::Insecure => "insecure",
        })
    }
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
    /// How callers are asked who they are; by the listen address where absent.
    pub(crate) auth: Option<Auth>,
    /// PEM file with the port's certificate and those above it; plain HTTP where absent.
    pub(crate) tls_cert: Option<String>,
    /// PEM file with its private key.
    pub(crate) tls_key: Option<String>,
    /// PEM file with those whose client certificates are asked for; none are where absent.
    pub(crate) tls_client_ca: Option<String>,
    /// PEM file with those who have signed the other processes' certificates; the system's where absent.
    pub(crate) tls_ca: Option<String>,
    /// Whether `/metrics` needs no key.
    pub(crate) metrics_open: bool,
    /// The largest message or body, in bytes.
    pub(crate) message_max: usize,
    /// Calls under way on one connection.
    pub(crate) streams_max: u32,
    /// Connections that may be open; by the limit of open files where absent.
    pub(crate) connections_max: Option<usize>,
    /// How long a call that is no stream may take, in milliseconds.
    pub(crate) request_timeout_ms: u64,
    /// How long a connection may take to its first request, in milliseconds.
    pub(crate) handshake_timeout_ms: u64,
    /// Connections to the store.
    pub(crate) store_connections: u32,
    /// Length of a scan window, in seconds.
    pub(crate) window_s: i64,
    /// How far ahead of now windows are opened, in seconds.
    pub(crate) ahead_s: i64,
    /// How long finished events and runs are kept, in days.
    pub(crate) retention_days: u32,
    /// The policy that stands above new ones of all namespaces.
    pub(crate) root_policy: Option<Name>,
    /// Deliveries under way at once, per shard, where no `max_in_flight` bounds them.
    pub(crate) sends_max: u32,
    /// The most events of a run that wait for another attempt before it starts no new ones.
    pub(crate) retrying_max: u32,
    /// How long a process may show no sign of life before it has lost its shards, in milliseconds.
    pub(crate) lease_ttl_ms: i64,
    /// How far the machine's clock and the database's may differ, in milliseconds; 0: they are not compared.
    pub(crate) clock_offset_max_ms: i64,
    /// Whether deliveries may go to addresses that are not public; by `auth` where absent.
    pub(crate) allow_private_addresses: Option<PrivateAddresses>,
    /// Connections to HTTP targets in use at once; by the limit of open files where absent.
    pub(crate) target_connections_max: Option<usize>,
    /// The longest pause that a target gets by `Retry-After`, in seconds.
    pub(crate) retry_after_max_s: i64,
    /// The endpoints that SQS targets may name; by `auth` where there are none.
    pub(crate) sqs_endpoints: Vec<String>,
    /// The brokers that Kafka targets may name; by `auth` where there are none.
    pub(crate) kafka_servers: Vec<String>,
    /// File with the clusters that Kafka targets reach by TLS or with a login.
    pub(crate) kafka_logins_file: Option<String>,
    /// File with the keys that seal secrets at rest; `secret_keys` where absent.
    pub(crate) secret_keys_file: Option<String>,
    /// Such keys themselves, from the environment only.
    pub(crate) secret_keys: Keys,
    /// How much each namespace may have and do.
    pub(crate) quotas: Quotas,
    /// Which log lines are written: `tracing-subscriber` directives.
    pub(crate) log: String,
    /// How log lines look.
    pub(crate) log_format: LogFormat,
    /// Where traces go; nowhere where absent.
    pub(crate) otlp_endpoint: Option<String>,
    /// The part of the events that is traced, in millionths.
    pub(crate) trace_ppm: u32,
    /// How long a planned stop waits for deliveries under way, in milliseconds.
    pub(crate) shutdown_grace_ms: u64,
}

/// What a namespace may have where nobody says otherwise: more than one has been seen to need, and not all of a machine.
const QUOTA: Quota =
    Quota { schedules: 10_000_000, waiting_events: 1_000_000_000, alerts: 100, writes: 10_000 };

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            store: "sqlite:tollgate.db".to_owned(),
            roles: BTreeSet::from(Role::ALL),
            console_server: None,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7411)),
            advertise: None,
            auth: None,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            tls_ca: None,
            metrics_open: false,
            message_max: 4 * 1024 * 1024,
            streams_max: 1_024,
            connections_max: None,
            request_timeout_ms: 120_000,
            handshake_timeout_ms: 10_000,
            store_connections: 8,
            window_s: 60,
            ahead_s: 300,
            retention_days: 45,
            root_policy: None,
            sends_max: 1_024,
            retrying_max: 1_000,
            lease_ttl_ms: 6_000,
            clock_offset_max_ms: 5_000,
            allow_private_addresses: None,
            target_connections_max: None,
            retry_after_max_s: 86_400,
            sqs_endpoints: Vec::new(),
            kafka_servers: Vec::new(),
            kafka_logins_file: None,
            secret_keys_file: None,
            secret_keys: Keys::default(),
            quotas: Quotas { each: QUOTA, ..Quotas::default() },
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            otlp_endpoint: None,
            trace_ppm: 1_000_000,
            shutdown_grace_ms: 10_000,
        }
    }
}

impl ServeConfig {
    /// Whether deliveries may go to addresses that are not public. Who may make schedules may make this machine send
    /// requests and read the start of the answers: so not to its own ports, unless the caller is on it anyway.
    pub(crate) fn private_addresses(&self, auth: Auth) -> PrivateAddresses {
        let default = || if auth.asks() { PrivateAddresses::Refuse } else { loopback() };
        self.allow_private_addresses.clone().unwrap_or_else(default)
    }

    /// The endpoints that SQS targets may name; any where absent.
    pub(crate) fn allowed_endpoints(&self, auth: Auth) -> Option<Vec<String>> {
        (auth.asks() || !self.sqs_endpoints.is_empty()).then(|| self.sqs_endpoints.clone())
    }

    /// The brokers that Kafka targets may name; any where absent.
    pub(crate) fn allowed_servers(&self, auth: Auth) -> Option<Vec<String>> {
        (auth.asks() || !self.kafka_servers.is_empty()).then(|| self.kafka_servers.clone())
    }

    /// What the port speaks.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls_cert.is_some() { "https" } else { "http" }
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
