//! Decides which settings there are, what each is called, and which texts it takes.
//!
//! In: a text. Out: the field of a [`ServeConfig`], or what is allowed. A setting has one name: `store_connections` is
//! the key in the file, `--store-connections` the flag and `TOLLGATE_STORE_CONNECTIONS` the variable.

#[cfg(test)]
mod tests;
mod words;

use std::net::SocketAddr;

use tollgate_proto::convert::names;
use tollgate_target::PrivateAddresses;

use super::{LogFormat, ServeConfig};
use words::{
    advertise, auth, duration, endpoints, filter, joined, log_format, maybe, number, otlp_endpoint,
    overrides, path, policy, private, roles, servers, shown, store, trace_ratio, whole,
};

pub(crate) use words::without_password;

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
pub(crate) static SETTINGS: [Setting; 41] = [
    Setting {
        key: "store",
        flag: "store",
        placeholder: "URL",
        meaning: "The database that holds everything. An SQLite file serves one process with all roles; PostgreSQL serves several processes. Put a URL with a password into the variable or the file, because everybody on the machine sees flags.",
        expected: "sqlite:PATH, sqlite::memory: or postgres://USER@HOST/DATABASE",
        is_map: false,
        set: |config, text| store(text).map(|store| config.store = store),
        show: |config| without_password(&config.store),
    },
    Setting {
        key: "roles",
        flag: "roles",
        placeholder: "LIST",
        meaning: "The roles of this process. If the setting is empty and others can reach the listen address, the process has no console.",
        expected: "a comma list of master, emitter, handler, console, at least one",
        is_map: false,
        set: |config, text| roles(text).map(|roles| config.roles = roles),
        show: |config| joined(&config.roles),
    },
    Setting {
        key: "console_server",
        flag: "console-server",
        placeholder: "URL",
        meaning: "The server that the console shows and changes. Empty: this process.",
        expected: "http://HOST:PORT, https://HOST:PORT or nothing",
        is_map: false,
        set: |config, text| advertise(text).map(|server| config.console_server = server),
        show: |config| config.console_server.clone().unwrap_or_default(),
    },
    Setting {
        key: "listen",
        flag: "listen",
        placeholder: "ADDRESS",
        meaning: "The address at which this process serves everything: gRPC, REST, gRPC-Web, the console, metrics and probes.",
        expected: "an IP address and a port, such as 127.0.0.1:7411 or [::]:7411",
        is_map: false,
        set: |config, text| text.parse().ok().map(|listen: SocketAddr| config.listen = listen),
        show: |config| config.listen.to_string(),
    },
    Setting {
        key: "advertise",
        flag: "advertise",
        placeholder: "URL",
        meaning: "The URL at which other processes and consumers reach this process. Empty: the listen address.",
        expected: "http://HOST:PORT, https://HOST:PORT or nothing",
        is_map: false,
        set: |config, text| advertise(text).map(|advertise| config.advertise = advertise),
        show: |config| config.advertise.clone().unwrap_or_default(),
    },
    Setting {
        key: "auth",
        flag: "auth",
        placeholder: "HOW",
        meaning: "How callers prove who they are. Empty: off on loopback addresses, keys on others.",
        expected: "keys, mtls (client certificates), off (loopback only), insecure (off anywhere) or nothing",
        is_map: false,
        set: |config, text| auth(text).map(|auth| config.auth = auth),
        show: |config| config.auth.map(|auth| auth.to_string()).unwrap_or_default(),
    },
    Setting {
        key: "tls_cert",
        flag: "tls-cert",
        placeholder: "FILE",
        meaning: "The certificate of the port, followed by those of its issuers. Empty: the port speaks plain HTTP. A changed file is used within seconds.",
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
        meaning: "The authority that must have issued the certificate of each client. Empty: clients need no certificate.",
        expected: "the path of a PEM file or nothing",
        is_map: false,
        set: |config, text| path(text).map(|file| config.tls_client_ca = file),
        show: |config| config.tls_client_ca.clone().unwrap_or_default(),
    },
    Setting {
        key: "tls_ca",
        flag: "tls-ca",
        placeholder: "FILE",
        meaning: "The authority that issues the certificates of the installation's other processes. Empty: the system's authorities.",
        expected: "the path of a PEM file or nothing",
        is_map: false,
        set: |config, text| path(text).map(|file| config.tls_ca = file),
        show: |config| config.tls_ca.clone().unwrap_or_default(),
    },
    Setting {
        key: "metrics_open",
        flag: "metrics-open",
        placeholder: "BOOL",
        meaning: "Whether callers need no key for /metrics. The page names namespaces and policies.",
        expected: "true or false",
        is_map: false,
        set: |config, text| text.parse().ok().map(|open| config.metrics_open = open),
        show: |config| config.metrics_open.to_string(),
    },
    Setting {
        key: "message_max",
        flag: "message-max",
        placeholder: "BYTES",
        meaning: "The largest gRPC message or REST body that the process accepts.",
        expected: "a whole number from 65536 to 67108864",
        is_map: false,
        set: |config, text| number(text, 65_536..=67_108_864).map(|bytes| config.message_max = bytes),
        show: |config| config.message_max.to_string(),
    },
    Setting {
        key: "streams_max",
        flag: "streams-max",
        placeholder: "N",
        meaning: "The most calls that are under way at once on one connection. Further calls wait.",
        expected: "a whole number from 1 to 100000",
        is_map: false,
        set: |config, text| number(text, 1..=100_000).map(|n| config.streams_max = n),
        show: |config| config.streams_max.to_string(),
    },
    Setting {
        key: "connections_max",
        flag: "connections-max",
        placeholder: "N",
        meaning: "The most connections that are open at once. When one more arrives, the process closes the oldest that has not begun a request, or else the new one. Empty: the limit of open files decides, up to 10000.",
        expected: "a whole number from 1 to 1000000 or nothing",
        is_map: false,
        set: |config, text| maybe(text, 1..=1_000_000).map(|n| config.connections_max = n),
        show: |config| shown(config.connections_max),
    },
    Setting {
        key: "request_timeout",
        flag: "request-timeout",
        placeholder: "DURATION",
        meaning: "The longest time that a call may take. Streams have no such limit.",
        expected: "whole milliseconds from 1s to 1h",
        is_map: false,
        set: |config, text| whole(text, 1, 1_000..=3_600_000).map(|ms| config.request_timeout_ms = ms),
        show: |config| duration(config.request_timeout_ms, 1),
    },
    Setting {
        key: "handshake_timeout",
        flag: "handshake-timeout",
        placeholder: "DURATION",
        meaning: "The longest time from the opening of a connection to the start of its first request. HTTP/1.1 headers get 30 s more.",
        expected: "whole milliseconds from 100ms to 5m",
        is_map: false,
        set: |config, text| whole(text, 1, 100..=300_000).map(|ms| config.handshake_timeout_ms = ms),
        show: |config| duration(config.handshake_timeout_ms, 1),
    },
    Setting {
        key: "store_connections",
        flag: "store-connections",
        placeholder: "N",
        meaning: "The most connections that this process opens to PostgreSQL, at least 2. From 5 on, one is for the heartbeat, some are for commits, and a quarter is for the requests of people. SQLite does not use the setting.",
        expected: "a whole number from 1 to 1000",
        is_map: false,
        set: |config, text| number(text, 1..=1_000).map(|n| config.store_connections = n),
        show: |config| config.store_connections.to_string(),
    },
    Setting {
        key: "window",
        flag: "window",
        placeholder: "DURATION",
        meaning: "The length of a scan window. All emitters of an installation should have the same length.",
        expected: "whole seconds from 1s to 1h",
        is_map: false,
        set: |config, text| whole(text, 1_000, 1..=3_600).map(|s| config.window_s = s),
        show: |config| duration(config.window_s, 1_000),
    },
    Setting {
        key: "ahead",
        flag: "ahead",
        placeholder: "DURATION",
        meaning: "How far ahead of now the emitters emit scan windows.",
        expected: "whole seconds from 0s to 1day",
        is_map: false,
        set: |config, text| whole(text, 1_000, 0..=86_400).map(|s| config.ahead_s = s),
        show: |config| duration(config.ahead_s, 1_000),
    },
    Setting {
        key: "retention",
        flag: "retention",
        placeholder: "DURATION",
        meaning: "How long finished events and runs are kept. SQLite keeps an event as long as its run.",
        expected: "whole days from 1day to 3650days",
        is_map: false,
        set: |config, text| whole(text, DAY_MS, 1..=3_650).map(|days| config.retention_days = days),
        show: |config| format!("{}days", config.retention_days),
    },
    Setting {
        key: "root_policy",
        flag: "root-policy",
        placeholder: "NAME",
        meaning: "The policy that stands above new policies of all namespaces which name no parent and have none that adopts them. Empty: none.",
        expected: "namespaces/NAMESPACE/policies/POLICY or nothing",
        is_map: false,
        set: |config, text| policy(text).map(|name| config.root_policy = name),
        show: |config| {
            config
                .root_policy
                .as_ref()
                .map(|name| names::of_policy(&name.namespace, &name.id))
                .unwrap_or_default()
        },
    },
    Setting {
        key: "sends_max",
        flag: "sends-max",
        placeholder: "N",
        meaning: "The most deliveries that are under way at once in a queue shard, of events that no max_in_flight bounds.",
        expected: "a whole number from 1 to 1000000",
        is_map: false,
        set: |config, text| number(text, 1..=1_000_000).map(|n| config.sends_max = n),
        show: |config| config.sends_max.to_string(),
    },
    Setting {
        key: "retrying_max",
        flag: "retrying-max",
        placeholder: "N",
        meaning: "The most events of a run that wait for another attempt before the run stops starting new ones.",
        expected: "a whole number from 1 to 10000000",
        is_map: false,
        set: |config, text| number(text, 1..=10_000_000).map(|n| config.retrying_max = n),
        show: |config| config.retrying_max.to_string(),
    },
    Setting {
        key: "lease_ttl",
        flag: "lease-ttl",
        placeholder: "DURATION",
        meaning: "How long a process may show no sign of life before it loses its queue shards.",
        expected: "whole milliseconds from 500ms to 10m",
        is_map: false,
        set: |config, text| whole(text, 1, 500..=600_000).map(|ms| config.lease_ttl_ms = ms),
        show: |config| duration(config.lease_ttl_ms, 1),
    },
    Setting {
        key: "clock_offset_max",
        flag: "clock-offset-max",
        placeholder: "DURATION",
        meaning: "The most by which the clocks of this machine and of the database may differ. 0s: they are not compared.",
        expected: "whole milliseconds from 0s to 1h",
        is_map: false,
        set: |config, text| whole(text, 1, 0..=3_600_000).map(|ms| config.clock_offset_max_ms = ms),
        show: |config| duration(config.clock_offset_max_ms, 1),
    },
    Setting {
        key: "allow_private_addresses",
        flag: "allow-private-addresses",
        placeholder: "WHICH",
        meaning: "Whether deliveries may go to addresses that are not public. Empty: to this machine while callers need no key, else to none.",
        expected: "allow, refuse, a comma list of networks such as 10.0.0.0/8,fd00::/8, or nothing",
        is_map: false,
        set: |config, text| private(text).map(|which| config.allow_private_addresses = which),
        show: |config| match &config.allow_private_addresses {
            None => String::new(),
            Some(PrivateAddresses::Allow) => "allow".to_owned(),
            Some(PrivateAddresses::Refuse) => "refuse".to_owned(),
            Some(PrivateAddresses::AllowNetworks(networks)) => joined(networks),
        },
    },
    Setting {
        key: "target_connections_max",
        flag: "target-connections-max",
        placeholder: "N",
        meaning: "The most connections to HTTP targets that are in use at once. No schedule, target or namespace gets all of them. Half as many more may be idle or carry SQS calls. Empty: the limit of open files decides, up to 8192.",
        expected: "a whole number from 1 to 1000000 or nothing",
        is_map: false,
        set: |config, text| maybe(text, 1..=1_000_000).map(|n| config.target_connections_max = n),
        show: |config| shown(config.target_connections_max),
    },
    Setting {
        key: "retry_after_max",
        flag: "retry-after-max",
        placeholder: "DURATION",
        meaning: "The longest pause that a target gets by Retry-After. The pause holds the whole schedule back until it ends or the schedule gets another target.",
        expected: "whole seconds from 0s to 1day",
        is_map: false,
        set: |config, text| whole(text, 1_000, 0..=86_400).map(|s| config.retry_after_max_s = s),
        show: |config| duration(config.retry_after_max_s, 1_000),
    },
    Setting {
        key: "sqs_endpoints",
        flag: "sqs-endpoints",
        placeholder: "LIST",
        meaning: "The endpoints that SQS targets may name. Each of them gets this process's key id and a signed request. Empty: any endpoint while callers need no key, else only those of AWS.",
        expected: "a comma list of http://HOST:PORT or https://HOST or nothing",
        is_map: false,
        set: |config, text| endpoints(text).map(|list| config.sqs_endpoints = list),
        show: |config| joined(&config.sqs_endpoints),
    },
    Setting {
        key: "kafka_servers",
        flag: "kafka-servers",
        placeholder: "LIST",
        meaning: "The brokers that Kafka targets may name. Name only clusters that you trust: their brokers say themselves where the others are. Empty: any broker while callers need no key, else none.",
        expected: "a comma list of HOST:PORT or nothing",
        is_map: false,
        set: |config, text| servers(text).map(|list| config.kafka_servers = list),
        show: |config| joined(&config.kafka_servers),
    },
    Setting {
        key: "secret_keys_file",
        flag: "secret-keys-file",
        placeholder: "FILE",
        meaning: "The file of the keys that seal signing secrets, header values and payloads at rest. Each line is ID:KEY, as `tollgate secrets generate-key` prints it. The first key seals, and all keys open. TOLLGATE_SECRET_KEYS may hold the lines themselves. Without any key, secrets are stored in clear.",
        expected: "the path of a file or nothing",
        is_map: false,
        set: |config, text| path(text).map(|file| config.secret_keys_file = file),
        show: |config| config.secret_keys_file.clone().unwrap_or_default(),
    },
    Setting {
        key: "quota_schedules",
        flag: "quota-schedules",
        placeholder: "N",
        meaning: "The most schedules of a namespace. 0: unlimited.",
        expected: "a whole number from 0 to 1000000000",
        is_map: false,
        set: |config, text| number(text, 0..=1_000_000_000).map(|n| config.quotas.each.schedules = n),
        show: |config| config.quotas.each.schedules.to_string(),
    },
    Setting {
        key: "quota_waiting_events",
        flag: "quota-waiting-events",
        placeholder: "N",
        meaning: "The most events of a namespace that may wait. Triggers and backfills by hand that would exceed it are refused; what falls due by itself never is. 0: unlimited.",
        expected: "a whole number from 0 to 1000000000000",
        is_map: false,
        set: |config, text| {
            number(text, 0..=1_000_000_000_000).map(|n| config.quotas.each.waiting_events = n)
        },
        show: |config| config.quotas.each.waiting_events.to_string(),
    },
    Setting {
        key: "quota_alerts",
        flag: "quota-alerts",
        placeholder: "N",
        meaning: "The most alerts of a namespace. 0: unlimited.",
        expected: "a whole number from 0 to 100000",
        is_map: false,
        set: |config, text| number(text, 0..=100_000).map(|n| config.quotas.each.alerts = n),
        show: |config| config.quotas.each.alerts.to_string(),
    },
    Setting {
        key: "quota_writes",
        flag: "quota-writes",
        placeholder: "N",
        meaning: "The most writes a second of a namespace at each process. Ten seconds' worth may come at once. 0: unlimited.",
        expected: "a whole number from 0 to 1000000",
        is_map: false,
        set: |config, text| number(text, 0..=1_000_000).map(|n| config.quotas.each.writes = n),
        show: |config| config.quotas.each.writes.to_string(),
    },
    Setting {
        key: "quota_overrides",
        flag: "quota-overrides",
        placeholder: "MAP",
        meaning: "The quotas of single namespaces: a map in the file, JSON elsewhere.",
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
        meaning: "The log lines that the process writes to standard error.",
        expected: "a level (error, warn, info, debug, trace, off) or directives such as info,tollgate=debug",
        is_map: false,
        set: |config, text| filter(text).map(|log| config.log = log),
        show: |config| config.log.clone(),
    },
    Setting {
        key: "log_format",
        flag: "log-format",
        placeholder: "FORMAT",
        meaning: "The format of log lines.",
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
        meaning: "The collector that gets traces, by OTLP over gRPC. Empty: no traces are sent. OTEL_EXPORTER_OTLP_ENDPOINT sets it, too.",
        expected: "http://HOST:PORT, https://HOST:PORT or nothing",
        is_map: false,
        set: |config, text| otlp_endpoint(text).map(|url| config.otlp_endpoint = url),
        show: |config| config.otlp_endpoint.clone().unwrap_or_default(),
    },
    Setting {
        key: "trace_ratio",
        flag: "trace-ratio",
        placeholder: "PART",
        meaning: "The share of events that are traced. All processes of an installation should have the same share. OTEL_TRACES_SAMPLER_ARG sets it, too.",
        expected: "a number from 0 to 1",
        is_map: false,
        set: |config, text| trace_ratio(text).map(|ppm| config.trace_ppm = ppm),
        show: |config| (f64::from(config.trace_ppm) / 1e6).to_string(),
    },
    Setting {
        key: "shutdown_grace",
        flag: "shutdown-grace",
        placeholder: "DURATION",
        meaning: "The longest time that a planned stop waits for deliveries under way.",
        expected: "whole milliseconds from 0s to 10m",
        is_map: false,
        set: |config, text| whole(text, 1, 0..=600_000).map(|ms| config.shutdown_grace_ms = ms),
        show: |config| duration(config.shutdown_grace_ms, 1),
    },
];

const DAY_MS: u64 = 86_400_000;
