//! Each setting is documented, and can be given in all ways.

use std::collections::BTreeSet;

use super::super::ServeConfig;
use super::*;

/// A value other than the default, and one that is refused.
const CASES: [(&str, &str, &str); 42] = [
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
    ("root_policy", "namespaces/ops/policies/all", "policies/all"),
    ("sends_max", "7", "-1"),
    ("retrying_max", "8", "many"),
    ("lease_ttl", "2s", "10ms"),
    ("clock_offset_max", "2s", "2h"),
    ("allow_private_addresses", "10.0.0.0/8", "10.0.0.0/99"),
    ("target_connections_max", "60", "0"),
    ("retry_after_max", "10m", "2days"),
    ("sqs_endpoints", "http://sqs:9324,https://sqs.internal", "sqs:9324"),
    ("kafka_servers", "kafka-1:9092,[::1]:9093", "kafka-1"),
    ("kafka_logins_file", "/etc/tollgate/kafka.yaml", "a\0"),
    ("secret_keys_file", "/etc/tollgate/keys", "a\0"),
    ("quota_schedules", "10", "-1"),
    ("quota_waiting_events", "1000", "many"),
    ("quota_alerts", "5", "-1"),
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
        root_policy: _,
        sends_max: _,
        retrying_max: _,
        lease_ttl_ms: _,
        clock_offset_max_ms: _,
        allow_private_addresses: _,
        target_connections_max: _,
        retry_after_max_s: _,
        sqs_endpoints: _,
        kafka_servers: _,
        kafka_logins_file: _,
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
    assert_eq!(keys.len(), 42);
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
    let masked = [
        ("postgres://db/x?user=me&password=geheim&a=b", "postgres://db/x?user=me&password=***&a=b"),
        ("postgres://me:s:e@db?PassWord=geheim", "postgres://me:***@db?PassWord=***"),
        (
            "postgres://db/x?p%61ssword=geheim&sslpassword=geheim",
            "postgres://db/x?p%61ssword=***&sslpassword=***",
        ),
    ];
    for (url, shown) in masked {
        assert_eq!(without_password(url), shown);
    }
    assert_eq!(without_password("sqlite:a.db"), "sqlite:a.db");
}
