//! Decides which settings there are, what each is called, and which texts it takes.
//!
//! In: a text. Out: the field of a [`ServeConfig`], or what is allowed. A setting has one name: `store_connections` is
//! the key in the file, `--store-connections` the flag and `TOLLGATE_STORE_CONNECTIONS` the variable.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use tollgate_target::PrivateAddresses;
use tracing_subscriber::EnvFilter;

use super::{LogFormat, Role, ServeConfig};

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
pub(crate) static SETTINGS: [Setting; 16] = [
    Setting {
        key: "store",
        flag: "store",
        placeholder: "URL",
        meaning: "Where everything is kept. SQLite serves one process with all roles; PostgreSQL serves several.",
        expected: "sqlite:PATH, sqlite::memory: or postgres://USER@HOST/DATABASE",
        set: |config, text| store(text).map(|store| config.store = store),
        show: |config| without_password(&config.store),
    },
    Setting {
        key: "roles",
        flag: "roles",
        placeholder: "LIST",
        meaning: "What this process does. Where nothing is said and others can reach the listen address: no console.",
        expected: "a comma list of master, emitter, handler, console, at least one",
        set: |config, text| roles(text).map(|roles| config.roles = roles),
        show: |config| joined(&config.roles),
    },
    Setting {
        key: "console_server",
        flag: "console-server",
        placeholder: "URL",
        meaning: "Where the console reads and acts; this process where empty.",
        expected: "http://HOST:PORT or nothing",
        set: |config, text| advertise(text).map(|server| config.console_server = server),
        show: |config| config.console_server.clone().unwrap_or_default(),
    },
    Setting {
        key: "listen",
        flag: "listen",
        placeholder: "ADDRESS",
        meaning: "Where gRPC is served.",
        expected: "an IP address and a port, such as 127.0.0.1:7411 or [::]:7411",
        set: |config, text| text.parse().ok().map(|listen: SocketAddr| config.listen = listen),
        show: |config| config.listen.to_string(),
    },
    Setting {
        key: "advertise",
        flag: "advertise",
        placeholder: "URL",
        meaning: "Where other processes and consumers reach this one; the listen address where empty.",
        expected: "http://HOST:PORT or nothing",
        set: |config, text| advertise(text).map(|advertise| config.advertise = advertise),
        show: |config| config.advertise.clone().unwrap_or_default(),
    },
    Setting {
        key: "store_connections",
        flag: "store-connections",
        placeholder: "N",
        meaning: "The most connections that this process opens to PostgreSQL, at least 2; SQLite has its own.",
        expected: "a whole number from 1 to 1000",
        set: |config, text| number(text, 1..=1_000).map(|n| config.store_connections = n),
        show: |config| config.store_connections.to_string(),
    },
    Setting {
        key: "window",
        flag: "window",
        placeholder: "DURATION",
        meaning: "Length of a scan window. All emitters of an installation should agree in it.",
        expected: "whole seconds from 1s to 1h",
        set: |config, text| whole(text, 1_000, 1..=3_600).map(|s| config.window_s = s),
        show: |config| duration(config.window_s, 1_000),
    },
    Setting {
        key: "ahead",
        flag: "ahead",
        placeholder: "DURATION",
        meaning: "How far ahead of now windows are emitted.",
        expected: "whole seconds from 0s to 1day",
        set: |config, text| whole(text, 1_000, 0..=86_400).map(|s| config.ahead_s = s),
        show: |config| duration(config.ahead_s, 1_000),
    },
    Setting {
        key: "retention",
        flag: "retention",
        placeholder: "DURATION",
        meaning: "How long finished events and runs are kept.",
        expected: "whole days from 1day to 3650days",
        set: |config, text| whole(text, DAY_MS, 1..=3_650).map(|days| config.retention_days = days),
        show: |config| format!("{}days", config.retention_days),
    },
    Setting {
        key: "sends_max",
        flag: "sends-max",
        placeholder: "N",
        meaning: "Deliveries under way at once, per queue shard, where no max_in_flight bounds them.",
        expected: "a whole number from 1 to 1000000",
        set: |config, text| number(text, 1..=1_000_000).map(|n| config.sends_max = n),
        show: |config| config.sends_max.to_string(),
    },
    Setting {
        key: "retrying_max",
        flag: "retrying-max",
        placeholder: "N",
        meaning: "While so many events of a run wait for another attempt, it starts no new ones.",
        expected: "a whole number from 1 to 10000000",
        set: |config, text| number(text, 1..=10_000_000).map(|n| config.retrying_max = n),
        show: |config| config.retrying_max.to_string(),
    },
    Setting {
        key: "lease_ttl",
        flag: "lease-ttl",
        placeholder: "DURATION",
        meaning: "A process that has shown no sign of life for so long has lost its queue shards.",
        expected: "whole milliseconds from 500ms to 10m",
        set: |config, text| whole(text, 1, 500..=600_000).map(|ms| config.lease_ttl_ms = ms),
        show: |config| duration(config.lease_ttl_ms, 1),
    },
    Setting {
        key: "allow_private_addresses",
        flag: "allow-private-addresses",
        placeholder: "WHICH",
        meaning: "Whether deliveries may go to addresses that are not public: by default to this machine only.",
        expected: "allow, refuse, or a comma list of networks such as 10.0.0.0/8,fd00::/8",
        set: |config, text| text.parse().ok().map(|which| config.allow_private_addresses = which),
        show: |config| match &config.allow_private_addresses {
            PrivateAddresses::Allow => "allow".to_owned(),
            PrivateAddresses::Refuse => "refuse".to_owned(),
            PrivateAddresses::AllowNetworks(networks) => joined(networks),
        },
    },
    Setting {
        key: "log",
        flag: "log",
        placeholder: "FILTER",
        meaning: "Which log lines are written, to standard error.",
        expected: "a level (error, warn, info, debug, trace, off) or directives such as info,tollgate=debug",
        set: |config, text| filter(text).map(|log| config.log = log),
        show: |config| config.log.clone(),
    },
    Setting {
        key: "log_format",
        flag: "log-format",
        placeholder: "FORMAT",
        meaning: "How log lines look.",
        expected: "text or json",
        set: |config, text| log_format(text).map(|format| config.log_format = format),
        show: |config| match config.log_format {
            LogFormat::Text => "text".to_owned(),
            LogFormat::Json => "json".to_owned(),
        },
    },
    Setting {
        key: "shutdown_grace",
        flag: "shutdown-grace",
        placeholder: "DURATION",
        meaning: "How long a planned stop waits for deliveries under way.",
        expected: "whole milliseconds from 0s to 10m",
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
    let plain = uri.scheme_str() == Some("http") && uri.port_u16().is_some() && uri.path() == "/";
    plain.then(|| Some(text.trim_end_matches('/').to_owned()))
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
    const CASES: [(&str, &str, &str); 16] = [
        ("store", "postgres://me@db/tollgate", "mysql://db"),
        ("roles", "master,handler", "master,butler"),
        ("console_server", "http://node-2:7411", "node-2:7411"),
        ("listen", "[::1]:80", "localhost:80"),
        ("advertise", "http://node-1:7411", "node-1:7411"),
        ("store_connections", "3", "0"),
        ("window", "30s", "1500ms"),
        ("ahead", "10m", "5"),
        ("retention", "7days", "36h"),
        ("sends_max", "7", "-1"),
        ("retrying_max", "8", "many"),
        ("lease_ttl", "2s", "10ms"),
        ("allow_private_addresses", "10.0.0.0/8", "10.0.0.0/99"),
        ("log", "warn,tollgate=trace", "tollgate=loud"),
        ("log_format", "json", "xml"),
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
            store_connections: _,
            window_s: _,
            ahead_s: _,
            retention_days: _,
            sends_max: _,
            retrying_max: _,
            lease_ttl_ms: _,
            allow_private_addresses: _,
            log: _,
            log_format: _,
            shutdown_grace_ms: _,
        } = ServeConfig::default();
        let keys: BTreeSet<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
        assert_eq!(keys.len(), 16);
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
