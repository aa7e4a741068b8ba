//! What a target must look like before a schedule may have it.
//!
//! In: a target as the user wrote it. Out: leave, or an error that names the field, the value and what is allowed.
//! The checks here need neither network nor configuration: whether a host may be reached is decided at each send.

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Uri};
use tollgate_core::model::{HttpTarget, KafkaTarget, SqsTarget, Target, is_key_template};

use crate::signature::check_secret;

/// Longest deadline of one send, in milliseconds: ten minutes.
pub const DEADLINE_MAX_MS: i64 = 600_000;

/// Headers that Tollgate sets itself, or that belong to the connection.
const RESERVED_HEADERS: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Checks every field of a target.
///
/// # Errors
/// Names the first field that is wrong, its value and what is allowed.
pub fn check_target(target: &Target) -> Result<(), String> {
    match target {
        Target::Http { http, .. } => check_http(http),
        Target::Sqs { sqs, .. } => check_sqs(sqs),
        Target::Kafka { kafka, .. } => check_kafka(kafka),
        Target::Pull { pull, .. } => check_deadline(pull.deadline_ms()),
    }
}

/// Checks one header of an HTTP target.
///
/// # Errors
/// Where the name or value is not one of HTTP, or the name is reserved: what Tollgate sets itself (`content-type`, `host`,
/// `webhook-*` …) and what belongs to the connection.
pub fn check_header(name: &str, value: &str) -> Result<(), String> {
    let parsed = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("headers: `{name}` is not a header name"))?;
    if RESERVED_HEADERS.contains(&parsed.as_str()) || parsed.as_str().starts_with("webhook-") {
        return Err(format!(
            "headers: `{name}` is reserved; it is set by Tollgate or belongs to the connection"
        ));
    }
    HeaderValue::from_str(value).map(|_| ()).map_err(|_| {
        format!("headers: the value of `{name}` has control characters; allowed is printable text")
    })
}

fn check_http(target: &HttpTarget) -> Result<(), String> {
    parse_url("url", &target.url)?;
    target.headers.iter().try_for_each(|(name, value)| check_header(name, value))?;
    target.secret.as_deref().map_or(Ok(()), check_secret)?;
    check_deadline(target.deadline_ms)
}

fn check_sqs(target: &SqsTarget) -> Result<(), String> {
    parse_url("queue_url", &target.queue_url)?;
    target.endpoint_url.as_deref().map_or(Ok(()), |url| parse_url("endpoint_url", url).map(|_| ()))?;
    target.region.as_deref().map_or(Ok(()), check_region)?;
    if target.message_group_id.as_deref() == Some("") {
        return Err("message_group_id: it is empty; leave it out, or name a group".to_owned());
    }
    check_deadline(target.deadline_ms)
}

fn check_kafka(target: &KafkaTarget) -> Result<(), String> {
    for server in target.servers() {
        if server_host(server).is_none() {
            return Err(format!(
                "bootstrap_servers: `{server}` is no host and port, such as kafka-1.example:9092"
            ));
        }
    }
    if !target.key.as_deref().is_none_or(is_key_template) {
        return Err("key: it has braces that stand around no name of an event".to_owned());
    }
    check_deadline(target.deadline_ms)
}

/// The host of `host:port`, without brackets; none where a text is not that.
pub(crate) fn server_host(server: &str) -> Option<&str> {
    let (host, port) = server.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)).then_some(host)
}

/// Whether two texts name one broker, however they are spelled.
pub(crate) fn is_same_server(one: &str, other: &str) -> bool {
    let parts = |server: &str| {
        let host = server_host(server)?;
        let (_, port) = server.rsplit_once(':')?;
        let host = match host.parse::<IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
        };
        Some((host, port.parse::<u16>().ok()?))
    };
    one == other || parts(one).is_some_and(|one| Some(one) == parts(other))
}

/// Whether a Kafka broker is among those that targets may name.
pub(crate) fn is_known_server(known: &[String], server: &str) -> bool {
    known.iter().any(|one| is_same_server(one, server))
}

/// Why nothing is sent to a broker that is not.
pub(crate) fn not_known_server(server: &str) -> String {
    format!("`{server}` is not among the brokers of the setting kafka_servers")
}

/// A region is part of a host name, so nothing else may stand in it.
pub(crate) fn check_region(region: &str) -> Result<(), String> {
    let fits = (1..=63).contains(&region.len())
        && region.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits {
        Ok(())
    } else {
        Err(format!("region: `{region}` is not a region; allowed is one like `eu-central-1`"))
    }
}

/// An absolute `http` or `https` URL with a host and without a user.
pub(crate) fn parse_url(field: &str, text: &str) -> Result<Uri, String> {
    parse_shown(field, &format!("`{text}`"), text)
}

/// A URL, with what an error says in place of it.
pub(crate) fn parse_shown(field: &str, shown: &str, text: &str) -> Result<Uri, String> {
    let wrong =
        |why: &str| format!("{field}: {shown} {why}; allowed is http://host/path or https://host/path");
    let url: Uri = text.parse().map_err(|error| wrong(&format!("is not a URL ({error})")))?;
    match url.scheme_str() {
        Some("http" | "https") => {}
        Some(_) => return Err(wrong("has another scheme")),
        None => return Err(wrong("has no scheme")),
    }
    if url.host().is_none_or(str::is_empty) {
        return Err(wrong("has no host"));
    }
    let authority = url.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err(format!("{field}: it has a user in it; put credentials into the header `authorization`"));
    }
    // What follows the host is a port, or nothing; `http` lets some others through.
    let after_host = authority.strip_prefix(url.host().unwrap_or("")).unwrap_or("");
    if !after_host.is_empty() && url.port_u16().is_none_or(|port| port == 0) {
        return Err(wrong("has a wrong port"));
    }
    Ok(url)
}

fn check_deadline(deadline_ms: i64) -> Result<(), String> {
    if (1..=DEADLINE_MAX_MS).contains(&deadline_ms) {
        return Ok(());
    }
    Err(format!("deadline_ms: it is {deadline_ms}; allowed is 1 to {DEADLINE_MAX_MS}"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn urls_are_taken_or_refused_with_a_reason() {
        for url in ["http://a", "https://a.example:8443/x?y=z", "http://[::1]:80/", "http://127.0.0.1"] {
            assert!(parse_url("url", url).is_ok(), "{url}");
        }
        for (url, word) in [
            ("ftp://a/", "scheme"),
            ("/x", "scheme"),
            ("a.example", "scheme"),
            ("", "URL"),
            ("http://", "URL"),
            ("http://u:p@a/", "user"),
            ("http://a b/", "URL"),
            ("http://a:99999/", "port"),
            ("http://a:0/", "port"),
            ("http://a:/", "port"),
        ] {
            let error = parse_url("url", url).unwrap_err();
            assert!(error.starts_with("url: ") && error.contains(word), "{url}: {error}");
        }
    }

    #[test]
    fn reserved_and_malformed_headers_are_refused() {
        assert_eq!(check_header("Authorization", "Bearer x"), Ok(()));
        assert_eq!(check_header("x-tenant", ""), Ok(()));
        for (name, value) in [
            ("Content-Type", "text/plain"),
            ("HOST", "x"),
            ("content-length", "1"),
            ("Webhook-Id", "x"),
            ("webhook-extra", "x"),
            ("transfer-encoding", "chunked"),
            ("a b", "x"),
            ("", "x"),
            ("x", "a\r\nb: c"),
        ] {
            assert!(check_header(name, value).is_err(), "{name}");
        }
    }

    #[test]
    fn regions_cannot_leave_their_host_name() {
        assert_eq!(check_region("eu-central-1"), Ok(()));
        for region in ["", "x.evil.example", "a/b", "A", "x#", "x@y"] {
            assert!(check_region(region).is_err(), "{region}");
        }
    }

    #[test]
    fn a_target_is_checked_field_by_field() {
        let target = |json: &str| serde_json::from_str::<Target>(json).unwrap();
        let http = r#"{"kind":"http","http":{"url":"https://a/","deadline_ms":DEADLINE}}"#;
        assert_eq!(check_target(&target(&http.replace("DEADLINE", "600000"))), Ok(()));
        for deadline in ["0", "-1", "600001"] {
            let error = check_target(&target(&http.replace("DEADLINE", deadline))).unwrap_err();
            assert!(error.contains("deadline_ms") && error.contains(deadline), "{error}");
        }
        let sqs = r#"{"kind":"sqs","sqs":{"queue_url":"https://sqs.eu-west-1.amazonaws.com/1/q","region":"R","deadline_ms":5}}"#;
        assert_eq!(check_target(&target(&sqs.replace("\"R\"", "null"))), Ok(()));
        assert!(check_target(&target(sqs)).unwrap_err().contains("region"));
        let kafka = r#"{"kind":"kafka","kafka":{"bootstrap_servers":"a:9092,[::1]:9","topic":"t","key":"{key}","deadline_ms":5000}}"#;
        assert_eq!(check_target(&target(kafka)), Ok(()));
        for (from, to, word) in [
            (":9092", ":0", "bootstrap_servers"),
            ("a:9092", "a", "bootstrap_servers"),
            ("{key}", "{x}", "key:"),
        ] {
            let error = check_target(&target(&kafka.replace(from, to))).unwrap_err();
            assert!(error.starts_with(word), "{error}");
        }
    }
}
