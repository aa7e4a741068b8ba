//! Decides which settings there are, what each is called, and which texts it takes.
//!
//! In: a text. Out: the field of a [`ServeConfig`], or what is allowed. A setting has one name: `store_connections` is
//! the key in the file, `--store-connections` the flag and `TOLLGATE_STORE_CONNECTIONS` the variable.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use tollgate_schedule_master::QuotaOverride;
use tollgate_target::PrivateAddresses;
use tracing_subscriber::EnvFilter;

use super::{Auth, LogFormat, Role, ServeConfig};

/// One row of the table.
pub(crate) struct Setting {
    /// Its name, and its key in the file.
    pub(crate) key: &'static str,
    /// The flag without its dashes in front.
    pub(crate) flag: &'static str,
    /// Stands for the value in help texts.
    pub(crate) placeholder: &'static str,
    /// What it decides.
    pub(crate) meaning: &'static str,
    /// What is allowed.
    pub(crate) expected: &'static str,
    /// Whether it may be a map in the file; its text is JSON.
    pub(crate) is_map: bool,
    set: fn(&mut ServeConfig, &str) -> Option<()>,
    show: fn(&ServeConfig) -> String,
}

impl Setting {
    /// `--store-connections`.
    pub(crate) fn flag(&self) -> String {
        format!("--{}", self.flag)
    }

    /// `TOLLGATE_STORE_CONNECTIONS`.
    pub(crate) fn variable(&self) -> String {
        format!("TOLLGATE_{}", self.key.to_ascii_uppercase())
    }

    /// Takes a text as the value.
    ///
    /// # Errors
    /// What is allowed.
    pub(crate) fn set(&self, config: &mut ServeConfig, text: &str) -> Result<(), &'static str> {
        (self.set)(config, text.trim()).ok_or(self.expected)
    }

    /// The value as a text that [`Setting::set`] takes, and that holds no password.
    pub(crate) fn show(&self, config: &ServeConfig) -> String {
        (self.show)(config)
    }
}

/// Every setting of `tollgate serve`.
pub(crate) static SETTINGS: [Setting; 34] = [
    Setting {
        key: "store",
        flag: "store",
        placeholder: "URL",
        meaning: "Where everything is kept. SQLite serves one process with all roles; PostgreSQL serves several.",
        expected: "sqlite:PATH, sqlite::memory: or postgres://USER@HOST/DATABASE",
        is_map: false,
        set: |config, text| store(text).map(|store| config.store = store),
        show: |config| without_password(&config.store),
    },
    Setting {
        key: "roles",
        flag: "roles",
        placeholder: "LIST",
        meaning: "What this process does. Where nothing is said and others can reach the listen address: no console.",
        expected: "a comma list of master, emitter, handler, console, at least one",
        is_map: false,
        set: |config, text| roles(text).map(|roles| config.roles = roles),
        show: |config| joined(&config.roles),
    },
    Setting {
        key: "console_server",
        flag: "console-server",
        placeholder: "URL",
        meaning: "Where the console reads and acts; this process where empty.",
        expected: "http://HOST:PORT, https://HOST:PORT or nothing",
        is_map: false,
        set: |config, text| advertise(text).map(|server| config.console_server = server),
        show: |config| config.console_server.clone().unwrap_or_default(),
    },
    Setting {
        key: "listen",
        flag: "listen",
        placeholder: "ADDRESS",
        meaning: "Where everything is served: gRPC, REST, gRPC-Web, the console, metrics and probes.",
        expected: "an IP address and a port, such as 127.0.0.1:7411 or [::]:7411",
        is_map: false,
        set: |config, text| text.parse().ok().map(|listen: SocketAddr| config.listen = listen),
        show: |config| config.listen.to_string(),
    },
    Setting {
        key: "advertise",
        flag: "advertise",
        placeholder: "URL",
        meaning: "Where other processes and consumers reach this one; the listen address where empty.",
        expected: "http://HOST:PORT, https://HOST:PORT or nothing",
        is_map: false,
        set: |config, text| advertise(text).map(|advertise| config.advertise = advertise),
        show: |config| config.advertise.clone().unwrap_or_default(),
    },
    Setting {
        key: "auth",
        flag: "auth",
        placeholder: "HOW",
        meaning: "How callers are asked who they are; where empty: off on loopback addresses, keys on others.",
        expected: "keys, mtls (client certificates), off (loopback only), insecure (off anywhere) or nothing",
        is_map: false,
        set: |config, text| auth(text).map(|auth| config.auth = auth),
        show: |config| config.auth.map(|auth| auth.to_string()).unwrap_or_default(),
    },
    Setting {
        key: "tls_cert",
        flag: "tls-cert",
        placeholder: "FILE",
        meaning: "The port's certificate and those above it; plain HTTP where empty. A changed file is taken up within seconds.",
        expected: "the path of a PEM file or nothing",
        is_map: false,
        set: |config, text| path(text).map(|file| config.tls_cert = file),
        show: |config| config.tls_cert.clone().unwrap_or_default(),
    },
    Setting {
        key: "tls_key",
        flag: "tls-key",
        placeholder: "FILE",
        meaning: "The private key of tls_cert.",
        expected: "the path of a PEM file or nothing",
        is_map: false,
        set: |config, text| path(text).map(|file| config.tls_key = file),
        show: |config| config.tls_key.clone().unwrap_or_default(),
    },
    Setting {
        key: "tls_client_ca",
        flag: "tls-client-ca",
        placeholder: "FILE",
        meaning: "Whose client certificates each connection must show; none where empty.",
        expected: "the path of a PEM file or nothing",
        is_map: false,
        set: |config, text| path(text).map(|file| config.tls_client_ca = file),
        show: |config| config.tls_client_ca.clone().unwrap_or_default(),
    },
    Setting {
        key: "tls_ca",
        flag: "tls-ca",
        placeholder: "FILE",
        meaning: "Who signs the certificates of the installation's other processes; the system's authorities where empty.",
        expected: "the path of a PEM file or nothing",
        is_map: false,
        set: |config, text| path(text).map(|file| config.tls_ca = file),
        show: |config| config.tls_ca.clone().unwrap_or_default(),
    },
    Setting {
        key: "metrics_open",
        flag: "metrics-open",
        placeholder: "BOOL",
        meaning: "Whether /metrics needs no key. It names namespaces and policies.",
        expected: "true or false",
        is_map: false,
        set: |config, text| text.parse().ok().map(|open| config.metrics_open = open),
        show: |config| config.metrics_open.to_string(),
    },
    Setting {
        key: "message_max",
        flag: "message-max",
        placeholder: "BYTES",
        meaning: "The largest gRPC message or REST body that is taken.",
        expected: "a whole number from 65536 to 67108864",
        is_map: false,
        set: |config, text| number(text, 65_536..=67_108_864).map(|bytes| config.message_max = bytes),
        show: |config| config.message_max.to_string(),
    },
    Setting {
        key: "streams_max",
        flag: "streams-max",
        placeholder: "N",
        meaning: "Calls under way at once on one connection; more wait.",
        expected: "a whole number from 1 to 100000",
        is_map: false,
        set: |config, text| number(text, 1..=100_000).map(|n| config.streams_max = n),
        show: |config| config.streams_max.to_string(),
    },
    Setting {
        key: "connections_max",
        flag: "connections-max",
        placeholder: "N",
        meaning: "Connections that may be open at once; more are closed at once.",
        expected: "a whole number from 1 to 1000000",
        is_map: false,
        set: |config, text| number(text, 1..=1_000_000).map(|n| config.connections_max = n),
        show: |config| config.connections_max.to_string(),
    },
    Setting {
        key: "request_timeout",
        flag: "request-timeout",
        placeholder: "DURATION",
        meaning: "How long a call may take that is no stream.",
        expected: "whole milliseconds from 1s to 1h",
        is_map: false,
        set: |config, text| whole(text, 1, 1_000..=3_600_000).map(|ms| config.request_timeout_ms = ms),
        show: |config| duration(config.request_timeout_ms, 1),
    },
    Setting {
        key: "handshake_timeout",
        flag: "handshake-timeout",
        placeholder: "DURATION",
        meaning: "How long a connection may take until its first request begins; HTTP/1.1 headers have 30 s more.",
        expected: "whole milliseconds from 100ms to 5m",
        is_map: false,
        set: |config, text| whole(text, 1, 100..=300_000).map(|ms| config.handshake_timeout_ms = ms),
        show: |config| duration(config.handshake_timeout_ms, 1),
    },
    Setting {
        key: "store_connections",
        flag: "store-connections",
        placeholder: "N",
        meaning: "The most connections that this process opens to PostgreSQL, at least 2; SQLite has its own.",
        expected: "a whole number from 1 to 1000",
        is_map: false,
        set: |config, text| number(text, 1..=1_000).map(|n| config.store_connections = n),
        show: |config| config.store_connections.to_string(),
    },
    Setting {
        key: "window",
        flag: "window",
        placeholder: "DURATION",
        meaning: "Length of a scan window. All emitters of an installation should agree in it.",
        expected: "whole seconds from 1s to 1h",
        is_map: false,
        set: |config, text| whole(text, 1_000, 1..=3_600).map(|s| config.window_s = s),
        show: |config| duration(config.window_s, 1_000),
    },
    Setting {
        key: "ahead",
        flag: "ahead",
        placeholder: "DURATION",
        meaning: "How far ahead of now windows are emitted.",
        expected: "whole seconds from 0s to 1day",
        is_map: false,
        set: |config, text| whole(text, 1_000, 0..=86_400).map(|s| config.ahead_s = s),
        show: |config| duration(config.ahead_s, 1_000),
    },
    Setting {
        key: "retention",
        flag: "retention",
        placeholder: "DURATION",
        meaning: "How long finished events and runs are kept.",
        expected: "whole days from 1day to 3650days",
        is_map: false,
        set: |config, text| whole(text, DAY_MS, 1..=3_650).map(|days| config.retention_days = days),
        show: |config| format!("{}days", config.retention_days),
    },
    Setting {
        key: "sends_max",
        flag: "sends-max",
        placeholder: "N",
        meaning: "Deliveries under way at once, per queue shard, where no max_in_flight bounds them.",
        expected: "a whole number from 1 to 1000000",
        is_map: false,
        set: |config, text| number(text, 1..=1_000_000).map(|n| config.sends_max = n),
        show: |config| config.sends_max.to_string(),
    },
    Setting {
        key: "retrying_max",
        flag: "retrying-max",
        placeholder: "N",
        meaning: "While so many events of a run wait for another attempt, it starts no new ones.",
        expected: "a whole number from 1 to 10000000",
        is_map: false,
        set: |config, text| number(text, 1..=10_000_000).map(|n| config.retrying_max = n),
        show: |config| config.retrying_max.to_string(),
    },
    Setting {
        key: "lease_ttl",
        flag: "lease-ttl",
        placeholder: "DURATION",
        meaning: "A process that has shown no sign of life for so long has lost its queue shards.",
        expected: "whole milliseconds from 500ms to 10m",
        is_map: false,
        set: |config, text| whole(text, 1, 500..=600_000).map(|ms| config.lease_ttl_ms = ms),
        show: |config| duration(config.lease_ttl_ms, 1),
    },
    Setting {
        key: "allow_private_addresses",
        flag: "allow-private-addresses",
        placeholder: "WHICH",
        meaning: "Whether deliveries may go to addresses that are not public: by default to this machine only.",
        expected: "allow, refuse, or a comma list of networks such as 10.0.0.0/8,fd00::/8",
        is_map: false,
        set: |config, text| text.parse().ok().map(|which| config.allow_private_addresses = which),
        show: |config| match &config.allow_private_addresses {
            PrivateAddresses::Allow => "allow".to_owned(),
            PrivateAddresses::Refuse => "refuse".to_owned(),
            PrivateAddresses::AllowNetworks(networks) => joined(networks),
        },
    },
    Setting {
        key: "secret_keys_file",
        flag: "secret-keys-file",
        placeholder: "FILE",
        meaning: "Keys that seal signing secrets, header values and payloads at rest: lines ID:KEY as `tollgate secrets generate-key` prints, the first seals, all open. TOLLGATE_SECRET_KEYS may hold the lines themselves. In clear where there are none.",
        expected: "the path of a file or nothing",
        is_map: false,
        set: |config, text| path(text).map(|file| config.secret_keys_file = file),
        show: |config| config.secret_keys_file.clone().unwrap_or_default(),
    },
    Setting {
        key: "quota_schedules",
        flag: "quota-schedules",
        placeholder: "N",
        meaning: "The most schedules of a namespace; 0: as many as it likes.",
        expected: "a whole number from 0 to 1000000000",
        is_map: false,
        set: |config, text| number(text, 0..=1_000_000_000).map(|n| config.quotas.each.schedules = n),
        show: |config| config.quotas.each.schedules.to_string(),
    },
    Setting {
        key: "quota_waiting_events",
        flag: "quota-waiting-events",
        placeholder: "N",
        meaning: "No trigger or backfill by hand is taken by which more events of a namespace would wait; 0: any is. What falls due by itself is never refused.",
        expected: "a whole number from 0 to 1000000000000",
        is_map: false,
        set: |config, text| {
            number(text, 0..=1_000_000_000_000).map(|n| config.quotas.each.waiting_events = n)
        },
        show: |config| config.quotas.each.waiting_events.to_string(),
    },
    Setting {
        key: "quota_writes",
        flag: "quota-writes",
        placeholder: "N",
        meaning: "Writes a second of a namespace at each process, with ten seconds' worth at once; 0: as many as it likes.",
        expected: "a whole number from 0 to 1000000",
        is_map: false,
        set: |config, text| number(text, 0..=1_000_000).map(|n| config.quotas.each.writes = n),
        show: |config| config.quotas.each.writes.to_string(),
    },
    Setting {
        key: "quota_overrides",
        flag: "quota-overrides",
        placeholder: "MAP",
        meaning: "Quotas of single namespaces: a map in the file, JSON elsewhere.",
        expected: "a map such as {\"team-a\":{\"schedules\":10,\"waiting_events\":1000,\"writes\":5}} or nothing",
        is_map: true,
        set: |config, text| overrides(text).map(|overrides| config.quotas.namespaces = overrides),
        show: |config| match &config.quotas.namespaces {
            none if none.is_empty() => String::new(),
            some => serde_json::to_string(some).unwrap_or_default(),
        },
    },
    Setting {
        key: "log",
        flag: "log",
        placeholder: "FILTER",
        meaning: "Which log lines are written, to standard error.",
        expected: "a level (error, warn, info, debug, trace, off) or directives such as info,tollgate=debug",
        is_map: false,
        set: |config, text| filter(text).map(|log| config.log = log),
        show: |config| config.log.clone(),
    },
    Setting {
        key: "log_format",
        flag: "log-format",
        placeholder: "FORMAT",
        meaning: "How log lines look.",
        expected: "text or json",
        is_map: false,
        set: |config, text| log_format(text).map(|format| config.log_format = format),
        show: |config| match config.log_format {
            LogFormat::Text => "text".to_owned(),
            LogFormat::Json => "json".to_owned(),
        },
    },
    Setting {
        key: "otlp_endpoint",
        flag: "otlp-endpoint",
        placeholder: "URL",
        meaning: "Where a collector takes traces, by OTLP over gRPC; none where empty. OTEL_EXPORTER_OTLP_ENDPOINT counts, too.",
        expected: "http://HOST:PORT, https://HOST:PORT or nothing",
        is_map: false,
        set: |config, text| otlp_endpoint(text).map(|url| config.otlp_endpoint = url),
        show: |config| config.otlp_endpoint.clone().unwrap_or_default(),
    },
    Setting {
        key: "trace_ratio",
        flag: "trace-ratio",
        placeholder: "PART",
        meaning: "The part of the events that is traced. All processes of an installation should agree in it. OTEL_TRACES_SAMPLER_ARG counts, too.",
        expected: "a number from 0 to 1",
        is_map: false,
        set: |config, text| trace_ratio(text).map(|ppm| config.trace_ppm = ppm),
        show: |config| (f64::from(config.trace_ppm) / 1e6).to_string(),
    },
    Setting {
        key: "shutdown_grace",
        flag: "shutdown-grace",
        placeholder: "DURATION",
        meaning: "How long a planned stop waits for deliveries under way.",
        expected: "whole milliseconds from 0s to 10m",
        is_map: false,
        set: |config, text| whole(text, 1, 0..=600_000).map(|ms| config.shutdown_grace_ms = ms),
        show: |config| duration(config.shutdown_grace_ms, 1),
    },
];

const DAY_MS: u64 = 86_400_000;

fn store(text: &str) -> Option<String> {
    let known = ["sqlite:", "postgres://", "postgresql://"];
    known.iter().any(|start| text.len() > start.len() && text.starts_with(start)).then(|| text.to_owned())
}

fn without_password(store: &str) -> String {
    let hidden = || {
        let (scheme, rest) = store.split_once("://")?;
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (login, host) = authority.rsplit_once('@')?;
        let (user, _) = login.split_once(':')?;
        Some(format!("{scheme}://{user}:***@{host}{path}"))
    };
    hidden().unwrap_or_else(|| store.to_owned())
}

fn roles(text: &str) -> Option<BTreeSet<Role>> {
    let named = |name: &str| Role::ALL.into_iter().find(|role| role.to_string() == name.trim());
    text.split(',').map(named).collect()
}

fn advertise(text: &str) -> Option<Option<String>> {
    if text.is_empty() {
        return Some(None);
    }
    let uri: http::Uri = text.parse().ok()?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    let bare = known && uri.port_u16().is_some() && uri.path() == "/";
    bare.then(|| Some(text.trim_end_matches('/').to_owned()))
}

fn otlp_endpoint(text: &str) -> Option<Option<String>> {
    if text.is_empty() {
        return Some(None);
    }
    let uri: http::Uri = text.parse().ok()?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    (known && uri.path() == "/").then(|| Some(text.trim_end_matches('/').to_owned()))
}

/// In millionths.
fn trace_ratio(text: &str) -> Option<u32> {
    let ratio: f64 = text.parse().ok()?;
    // A number of this range has no more than a million millionths.
    (0.0..=1.0).contains(&ratio).then(|| (ratio * 1e6).round() as u32)
}

fn auth(text: &str) -> Option<Option<Auth>> {
    if text.is_empty() {
        return Some(None);
    }
    Auth::ALL.into_iter().find(|auth| auth.to_string() == text).map(Some)
}

fn path(text: &str) -> Option<Option<String>> {
    (!text.contains('\0')).then(|| Some(text.to_owned()).filter(|text| !text.is_empty()))
}

fn overrides(text: &str) -> Option<BTreeMap<String, QuotaOverride>> {
    if text.is_empty() { Some(BTreeMap::new()) } else { serde_json::from_str(text).ok() }
}

fn number<N: FromStr + PartialOrd>(text: &str, allowed: RangeInclusive<N>) -> Option<N> {
    text.parse().ok().filter(|n| allowed.contains(n))
}

/// A duration such as `5m`, in whole units of so many milliseconds.
fn whole<N: TryFrom<u64> + PartialOrd>(text: &str, unit_ms: u64, allowed: RangeInclusive<N>) -> Option<N> {
    let span = humantime::parse_duration(text).ok()?;
    let ms = u64::try_from(span.as_millis()).ok()?;
    if Duration::from_millis(ms) != span || !ms.is_multiple_of(unit_ms) {
        return None;
    }
    N::try_from(ms / unit_ms).ok().filter(|n| allowed.contains(n))
}

fn duration(n: impl TryInto<u64>, unit_ms: u64) -> String {
    let ms = n.try_into().unwrap_or_default().saturating_mul(unit_ms);
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}

fn filter(text: &str) -> Option<String> {
    let named = |part: &str| !part.trim().is_empty();
    (text.split(',').all(named) && EnvFilter::try_new(text).is_ok()).then(|| text.to_owned())
}

fn log_format(text: &str) -> Option<LogFormat> {
    match text {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    }
}

fn joined<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value other than the default, and one that is refused.
    const CASES: [(&str, &str, &str); 34] = [
        ("store", "postgres://me@db/tollgate", "mysql://db"),
        ("roles", "master,handler", "master,butler"),
        ("console_server", "http://node-2:7411", "node-2:7411"),
        ("listen", "[::1]:80", "localhost:80"),
        ("advertise", "http://node-1:7411", "node-1:7411"),
        ("auth", "mtls", "none"),
        ("tls_cert", "tls/port.pem", "a\0"),
        ("tls_key", "tls/port.key", "a\0"),
        ("tls_client_ca", "tls/clients.pem", "a\0"),
        ("tls_ca", "tls/ca.pem", "a\0"),
        ("metrics_open", "true", "yes"),
        ("message_max", "65536", "4MiB"),
        ("streams_max", "5", "0"),
        ("connections_max", "50", "0"),
        ("request_timeout", "3s", "10ms"),
        ("handshake_timeout", "3s", "1h"),
        ("store_connections", "3", "0"),
        ("window", "30s", "1500ms"),
        ("ahead", "10m", "5"),
        ("retention", "7days", "36h"),
        ("sends_max", "7", "-1"),
        ("retrying_max", "8", "many"),
        ("lease_ttl", "2s", "10ms"),
        ("allow_private_addresses", "10.0.0.0/8", "10.0.0.0/99"),
        ("secret_keys_file", "/etc/tollgate/keys", "a\0"),
        ("quota_schedules", "10", "-1"),
        ("quota_waiting_events", "1000", "many"),
        ("quota_writes", "5", "0.5"),
        ("quota_overrides", r#"{"team-a":{"schedules":10}}"#, r#"{"team-a":{"colour":"red"}}"#),
        ("log", "warn,tollgate=trace", "tollgate=loud"),
        ("log_format", "json", "xml"),
        ("otlp_endpoint", "http://collector:4317", "collector:4317"),
        ("trace_ratio", "0.05", "5%"),
        ("shutdown_grace", "1m", "1h"),
    ];

    #[test]
    fn every_field_is_in_the_table() {
        // A new field makes this pattern incomplete, and the count wrong until the table has it.
        let ServeConfig {
            store: _,
            roles: _,
            console_server: _,
            listen: _,
            advertise: _,
            auth: _,
            tls_cert: _,
            tls_key: _,
            tls_client_ca: _,
            tls_ca: _,
            metrics_open: _,
            message_max: _,
            streams_max: _,
            connections_max: _,
            request_timeout_ms: _,
            handshake_timeout_ms: _,
            store_connections: _,
            window_s: _,
            ahead_s: _,
            retention_days: _,
            sends_max: _,
            retrying_max: _,
            lease_ttl_ms: _,
            allow_private_addresses: _,
            secret_keys_file: _,
            // From the environment only.
            secret_keys: _,
            quotas: _,
            log: _,
            log_format: _,
            otlp_endpoint: _,
            trace_ppm: _,
            shutdown_grace_ms: _,
        } = ServeConfig::default();
        let keys: BTreeSet<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
        assert_eq!(keys.len(), 34);
        assert_eq!(keys, CASES.iter().map(|(key, _, _)| *key).collect());
    }

    #[test]
    fn every_setting_changes_its_own_field_and_shows_it() {
        for (setting, (key, other, refused)) in SETTINGS.iter().zip(CASES) {
            assert_eq!(setting.key, key);
            assert_eq!(setting.flag, key.replace('_', "-"));
            let mut config = ServeConfig::default();
            assert_eq!(setting.set(&mut config, refused), Err(setting.expected), "{key}");
            assert_eq!(config, ServeConfig::default());
            assert_eq!(setting.set(&mut config, other), Ok(()), "{key}");
            assert_ne!(config, ServeConfig::default(), "{key}");
            assert_eq!(setting.show(&config), other, "{key}");
            for unchanged in SETTINGS.iter().filter(|unchanged| unchanged.key != key) {
                assert_eq!(unchanged.show(&config), unchanged.show(&ServeConfig::default()), "{key}");
            }
        }
    }

    #[test]
    fn defaults_are_texts_that_are_taken() {
        let mut config = ServeConfig::default();
        for setting in &SETTINGS {
            let text = setting.show(&config);
            assert_eq!(setting.set(&mut config, &text), Ok(()), "{}", setting.key);
        }
        assert_eq!(config, ServeConfig::default());
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("postgres://me:p@ss@db:5432/x?a=b"), "postgres://me:***@db:5432/x?a=b");
        assert_eq!(without_password("postgres://me@db/x"), "postgres://me@db/x");
        assert_eq!(without_password("sqlite:a.db"), "sqlite:a.db");
    }
}
