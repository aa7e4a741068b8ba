//! Has the settings that every client of Kafka has here, also those for topics that the operator names.
//!
//! In: brokers, and how they are spoken to. Out: a client's configuration, to which each client adds its own. Not here: whose
//! addresses may be reached, and who may use which login.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::producer::BaseProducer;
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::kafka_login::{KafkaAccess, KafkaTls};

/// For how long a broker may be silent before its connection is given up.
const SILENCE_MS: u64 = 10_000;
/// How long connecting to a broker of the operator's may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// What a client is told that speaks with these brokers, which have commas between them, in this way.
pub(super) fn config(servers: &str, access: &KafkaAccess, connect_timeout: Duration) -> ClientConfig {
    let mut config = ClientConfig::new();
    for (name, value) in [
        ("bootstrap.servers", servers),
        ("client.id", "tollgate"),
        ("socket.timeout.ms", &SILENCE_MS.to_string()),
        ("socket.connection.setup.timeout.ms", &connect_timeout.as_millis().max(1_000).to_string()),
        ("socket.keepalive.enable", "true"),
        ("reconnect.backoff.max.ms", "2000"),
        ("log.connection.close", "false"),
    ] {
        config.set(name, value);
    }
    speak(&mut config, access);
    config.set_log_level(RDKafkaLogLevel::Warning);
    config
}

/// Has a client speak to its brokers in this way.
fn speak(config: &mut ClientConfig, access: &KafkaAccess) {
    let protocol = match (&access.tls, &access.login) {
        (None, None) => "plaintext",
        (Some(_), None) => "ssl",
        (None, Some(_)) => "sasl_plaintext",
        (Some(_), Some(_)) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);
    if let Some(KafkaTls { ca_file, identity }) = &access.tls {
        // The OpenSSL that is linked in knows no folder of the system's: the client looks at the usual places.
        let ca = ca_file.as_deref().map_or(Cow::Borrowed("probe"), Path::to_string_lossy);
        config.set("ssl.ca.location", ca);
        config.set("ssl.endpoint.identification.algorithm", "https");
        if let Some((certificate, key)) = identity {
            config.set("ssl.certificate.location", certificate.to_string_lossy());
            config.set("ssl.key.location", key.to_string_lossy());
        }
    }
    if let Some(login) = &access.login {
        config.set("sasl.mechanism", login.mechanism);
        config.set("sasl.username", login.user.as_str());
        config.set("sasl.password", login.password.reveal());
    }
}

/// Whether Kafka's client takes these files: a key that goes with another certificate is found here. Nothing is connected to.
///
/// # Errors
/// What the client says.
pub(super) fn try_out(access: &KafkaAccess) -> Result<(), String> {
    let mut config = ClientConfig::new();
    speak(&mut config, access);
    config.set_log_level(RDKafkaLogLevel::Critical);
    config.create::<BaseProducer>().map(drop).map_err(|error| error.to_string())
}

/// Whether what a client says is that there is no TLS or no login with a broker. What OpenSSL says comes as an error of the
/// connection, too: so do alerts of TLS 1.3 about the client's certificate, and by chance those of a first attempt.
pub fn is_kafka_denial(code: Option<Code>, reason: &str) -> bool {
    match code {
        Some(Code::Authentication | Code::SSL) => true,
        Some(Code::BrokerTransportFailure) => reason.contains("SSL routines"),
        _ => false,
    }
}

/// What a producer is told besides. Each request has one record, as brokers judge all records of one together.
pub(super) fn writes(config: &mut ClientConfig) {
    for (name, value) in [
        ("acks", "all"),
        ("enable.idempotence", "true"),
        ("batch.num.messages", "1"),
        ("linger.ms", "0"),
        // As the producers of Java have it, so that a key of theirs is in the same partition.
        ("partitioner", "murmur2_random"),
    ] {
        config.set(name, value);
    }
}

/// The same for brokers that the operator names, and of which nothing is a user's: no address is guarded.
pub fn kafka_client(servers: &[String], access: &KafkaAccess) -> ClientConfig {
    config(&servers.join(","), access, CONNECT_MAX)
}

/// As [`kafka_client`], of a producer.
pub fn kafka_producer(servers: &[String], access: &KafkaAccess) -> ClientConfig {
    let mut config = kafka_client(servers, access);
    writes(&mut config);
    config
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::kafka_logins::KafkaLogins;

    #[test]
    fn the_client_takes_what_a_file_of_clusters_says() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("password"), "geheim").unwrap();
        let login = "{mechanism: SCRAM-SHA-512, user: me, passwordFile: password}";
        let file = folder.path().join("logins.yaml");
        let text = format!("clusters:\n  - bootstrapServers: ['a:1']\n    tls: {{}}\n    login: {login}\n");
        std::fs::write(&file, text).unwrap();
        let access = KafkaLogins::read(&file).unwrap().of(["a:1"], "team").unwrap();
        assert_eq!(try_out(&access), Ok(()));
        let told = config("a:1", &access, CONNECT_MAX);
        for (name, value) in [
            ("security.protocol", "sasl_ssl"),
            ("ssl.ca.location", "probe"),
            ("ssl.endpoint.identification.algorithm", "https"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.username", "me"),
            ("sasl.password", "geheim"),
        ] {
            assert_eq!(told.get(name), Some(value), "{name}");
        }
        let clear = config("a:1", &KafkaAccess::default(), CONNECT_MAX);
        assert_eq!((clear.get("security.protocol"), clear.get("sasl.password")), (Some("plaintext"), None));
    }

    #[test]
    fn a_certificate_that_is_none_is_found_before_anything_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n").unwrap();
        let tls = KafkaTls { ca_file: Some(file), identity: None };
        let said = try_out(&KafkaAccess { tls: Some(tls), login: None }).unwrap_err();
        assert!(said.contains("ssl.ca.location"), "{said}");
    }
}
