//! Decides where events may go. Whether an address may be reached is decided at every send, not here.

use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tollgate_core::model::{Http2, HttpBatch, HttpTarget, ReleaseMode, SqsTarget, Target};

use super::check::Check;
use super::headers::{headers, hide_values, kept, shown_headers};
use super::{duration_of_ms, kafka, work};
use crate::v1;
use crate::v1::target::Target as Kind;

/// How long a request may take, in milliseconds.
pub(super) const DEADLINE_MS: RangeInclusive<i64> = 1..=15 * 60_000;
const HTTP_DEADLINE_MS: i64 = 30_000;
const SQS_DEADLINE_MS: i64 = 10_000;
const URL_MAX_BYTES: usize = 2_048;
const GROUP_MAX_BYTES: usize = 128;
const REGION_MAX_BYTES: usize = 64;
/// What a schedule without a target is told.
const NONE: &str = "http, sqs, kafka or pull, such as {http: {url: \"http://127.0.0.1:8080/\"}}";
/// The target of a schedule. A secret or header value that the message says to keep is taken from `stored`.
pub(super) fn to_core(
    check: &mut Check,
    message: Option<&v1::Target>,
    stored: Option<&Target>,
) -> Option<Target> {
    let Some(message) = message else {
        check.refuse("target", "", NONE);
        return None;
    };
    let release = check.choice("target.release", message.release, "ON_RESPONSE or EXPLICIT");
    let release = match release {
        v1::ReleaseMode::Unspecified => ReleaseMode::TargetDefault,
        v1::ReleaseMode::OnResponse => ReleaseMode::OnResponse,
        v1::ReleaseMode::Explicit => ReleaseMode::Explicit,
    };
    match &message.target {
        None => {
            check.refuse("target", "", NONE);
            None
        }
        Some(Kind::Http(given)) => {
            let stored = match stored {
                Some(Target::Http { http, .. }) => Some(http),
                _ => None,
            };
            Some(Target::Http { http: http(check, given, stored), release })
        }
        Some(Kind::Sqs(given)) => Some(Target::Sqs { sqs: sqs(check, given), release }),
        Some(Kind::Kafka(given)) => {
            let stored = match stored {
                Some(Target::Kafka { kafka, .. }) => Some(kafka),
                _ => None,
            };
            Some(Target::Kafka { kafka: kafka::target(check, given, stored), release })
        }
        Some(Kind::Pull(given)) => Some(Target::Pull { pull: work::target(check, given), release }),
    }
}

/// What is stored of a target, and whether the message leads elsewhere. What callers do not get to see goes nowhere but
/// where it was meant to.
#[derive(Clone, Copy)]
struct Stored<'s> {
    http: Option<&'s HttpTarget>,
    elsewhere: bool,
}

/// Where the headers of an HTTP target stand.
const HEADERS: &str = "target.http.headers";

/// Why a secret must be given again.
const ELSEWHERE: &str =
    "because the target has another scheme, host or port than the one that it was stored for";

/// An HTTP target, of a schedule or an alert.
pub(super) fn http(check: &mut Check, message: &v1::HttpTarget, stored: Option<&HttpTarget>) -> HttpTarget {
    url(check, "target.http.url", &message.url);
    headers(check, HEADERS, &message.headers);
    let elsewhere = stored.is_some_and(|stored| origin(&stored.url) != origin(&message.url));
    let stored = Stored { http: stored, elsewhere };
    HttpTarget {
        url: message.url.clone(),
        headers: kept(
            check,
            HEADERS,
            &message.headers,
            (stored.http.map(|stored| &stored.headers), stored.elsewhere.then_some(ELSEWHERE)),
        ),
        secret: secret(check, message, stored),
        deadline_ms: check.ms(
            "target.http.deadline",
            message.deadline.as_ref(),
            HTTP_DEADLINE_MS,
            &DEADLINE_MS,
        ),
        http2: http2(check, message),
        batch: message.batch.as_ref().map(|batch| batch_of(check, message, batch)),
    }
}

fn batch_of(check: &mut Check, message: &v1::HttpTarget, batch: &v1::HttpBatch) -> HttpBatch {
    let mut number = |field: &str, value: i32, allowed: &RangeInclusive<u32>| {
        let number = u32::try_from(value).ok().filter(|number| allowed.contains(number));
        number.unwrap_or_else(|| {
            check.refuse(field, value, format!("{} to {}", allowed.start(), allowed.end()));
            *allowed.start()
        })
    };
    let max_events = number("target.http.batch.max_events", batch.max_events, &(2..=HttpBatch::EVENTS_MAX));
    let max_bytes = match batch.max_bytes {
        0 => HttpBatch::BYTES_DEFAULT,
        bytes => number("target.http.batch.max_bytes", bytes, &HttpBatch::BYTES),
    };
    const WAIT: &str = "target.http.batch.max_wait";
    let max_wait_ms = check.ms(WAIT, batch.max_wait.as_ref(), 0, &(0..=HttpBatch::WAIT_MAX_MS));
    let deadline_ms = message.deadline.as_ref().map_or(HTTP_DEADLINE_MS, |deadline| {
        deadline.seconds.saturating_mul(1_000).saturating_add(i64::from(deadline.nanos) / 1_000_000)
    });
    if max_wait_ms > 0 && max_wait_ms >= deadline_ms / 2 {
        check.refuse(
            WAIT,
            format!("{max_wait_ms} ms"),
            format!("less than half of the deadline of {deadline_ms} ms"),
        );
    }
    HttpBatch { max_events, max_bytes, max_wait_ms }
}

fn http2(check: &mut Check, message: &v1::HttpTarget) -> Http2 {
    const FIELD: &str = "target.http.http2";
    match check.choice(FIELD, message.http2, "PRIOR_KNOWLEDGE or NEVER, or nothing") {
        v1::Http2::PriorKnowledge if message.url.to_ascii_lowercase().starts_with("https:") => {
            let expected = "nothing or NEVER for an https:// URL, whose server is asked as TLS begins";
            check.refuse(FIELD, "PRIOR_KNOWLEDGE", expected);
            Http2::Auto
        }
        v1::Http2::Unspecified => Http2::Auto,
        v1::Http2::PriorKnowledge => Http2::PriorKnowledge,
        v1::Http2::Never => Http2::Never,
    }
}

fn secret(check: &mut Check, message: &v1::HttpTarget, stored: Stored<'_>) -> Option<String> {
    if message.secret.is_empty() {
        let before = stored.http.and_then(|stored| stored.secret.as_deref()).filter(|_| message.has_secret);
        match before {
            Some(_) if stored.elsewhere => {
                check.refuse(
                    "target.http.secret",
                    "",
                    format!("the secret again, or has_secret false, {ELSEWHERE}"),
                );
            }
            None if message.has_secret => check.refuse(
                "target.http.secret",
                "",
                "the secret, because none is stored that has_secret could keep",
            ),
            _ => {}
        }
        return before.map(str::to_owned);
    }
    let bytes = message.secret.strip_prefix("whsec_").and_then(|text| STANDARD.decode(text).ok());
    if !bytes.is_some_and(|bytes| (24..=64).contains(&bytes.len())) {
        check.refuse("target.http.secret", "", "whsec_ and base64 of 24 to 64 bytes");
    }
    Some(message.secret.clone())
}

/// The scheme, host and port of a URL; none of a text that is none.
pub(super) fn origin(url: &str) -> Option<(String, String, u16)> {
    let uri: http::Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    Some((scheme, uri.host()?.to_ascii_lowercase(), port))
}

/// Whether a target leads elsewhere than the one that is stored: to another scheme, host or port, another queue, or another
/// topic.
pub fn is_elsewhere(stored: &Target, given: &v1::Target) -> bool {
    match (stored, &given.target) {
        (Target::Http { http, .. }, Some(Kind::Http(given))) => origin(&http.url) != origin(&given.url),
        (Target::Sqs { sqs, .. }, Some(Kind::Sqs(given))) => {
            sqs.queue_url != given.queue_url
                || sqs.endpoint_url.as_deref().unwrap_or_default() != given.endpoint_url
        }
        (Target::Kafka { kafka, .. }, Some(Kind::Kafka(given))) => kafka::is_elsewhere(kafka, given),
        (Target::Pull { pull, .. }, Some(Kind::Pull(given))) => pull.queue() != given.queue,
        _ => true,
    }
}

/// Hides the values of all headers of a target, as those of credentials are hidden anyway.
pub fn hide_headers(target: &mut v1::Target) {
    match &mut target.target {
        Some(Kind::Http(http)) => hide_all_headers(http),
        Some(Kind::Kafka(kafka)) => hide_values(&mut kafka.headers),
        Some(Kind::Sqs(_) | Kind::Pull(_)) | None => {}
    }
}

/// Hides the values of all headers of an HTTP target.
pub fn hide_all_headers(http: &mut v1::HttpTarget) {
    hide_values(&mut http.headers);
}

/// An SQS target, of a schedule or an alert.
pub(super) fn sqs(check: &mut Check, message: &v1::SqsTarget) -> SqsTarget {
    if url(check, "target.sqs.queue_url", &message.queue_url)
        && message.queue_url.splitn(4, '/').nth(3).unwrap_or_default().trim_matches('/').is_empty()
    {
        check.refuse("target.sqs.queue_url", &message.queue_url, "a queue's URL, with the queue in its path");
    }
    if !message.endpoint_url.is_empty() {
        url(check, "target.sqs.endpoint_url", &message.endpoint_url);
    }
    let region = message.region.as_str();
    let in_region = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if region.len() > REGION_MAX_BYTES || !region.bytes().all(in_region) {
        check.refuse("target.sqs.region", region, "a region such as eu-central-1");
    }
    let group = message.message_group_id.as_str();
    if group.len() > GROUP_MAX_BYTES || !group.bytes().all(|byte| byte.is_ascii_graphic()) {
        let expected = format!("at most {GROUP_MAX_BYTES} ASCII letters, digits and punctuation");
        check.refuse("target.sqs.message_group_id", group, expected);
    }
    if message.group_by_key && !message.queue_url.ends_with(".fifo") {
        let expected = "false, or a FIFO queue, whose URL ends in .fifo: others have no groups";
        check.refuse("target.sqs.group_by_key", "true", expected);
    }
    SqsTarget {
        queue_url: message.queue_url.clone(),
        region: given(region),
        endpoint_url: given(&message.endpoint_url),
        message_group_id: given(group),
        group_by_key: message.group_by_key,
        deadline_ms: check.ms(
            "target.sqs.deadline",
            message.deadline.as_ref(),
            SQS_DEADLINE_MS,
            &DEADLINE_MS,
        ),
    }
}

/// What an address is.
pub(super) const URL: &str = "http:// or https://, a host, no user name or password, at most 2048 bytes";

/// Checks an address; says whether it is one.
pub(super) fn url(check: &mut Check, field: &str, text: &str) -> bool {
    let fits = is_url(text);
    if !fits {
        // User name and password, where there are some, are not repeated.
        let shown = if text.contains('@') { "" } else { text };
        check.refuse(field, shown, URL);
    }
    fits
}

/// Whether a text is an address.
pub(super) fn is_url(text: &str) -> bool {
    let parsed =
        text.parse::<http::Uri>().ok().filter(|_| text.len() <= URL_MAX_BYTES && !text.contains('#'));
    parsed.is_some_and(|uri| {
        let port = uri.authority().map_or("", |authority| &authority.as_str()[authority.host().len()..]);
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty() && host != "[]")
            && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
            && (port.is_empty() || uri.port_u16().is_some_and(|port| port > 0))
    })
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A target as callers see it, without its secret and without the values of headers that are likely to be credentials.
pub(super) fn to_message(target: &Target) -> v1::Target {
    let (kind, release) = match target {
        Target::Http { http, release } => (Kind::Http(http_to_message(http)), release),
        Target::Sqs { sqs, release } => (Kind::Sqs(sqs_to_message(sqs)), release),
        Target::Kafka { kafka, release } => (Kind::Kafka(kafka::to_message(kafka)), release),
        Target::Pull { pull, release } => (Kind::Pull(work::to_message(pull)), release),
    };
    let release = match release {
        ReleaseMode::TargetDefault => v1::ReleaseMode::Unspecified,
        ReleaseMode::OnResponse => v1::ReleaseMode::OnResponse,
        ReleaseMode::Explicit => v1::ReleaseMode::Explicit,
    };
    v1::Target { target: Some(kind), release: release.into() }
}

/// An HTTP target as callers see it.
pub(super) fn http_to_message(http: &HttpTarget) -> v1::HttpTarget {
    v1::HttpTarget {
        url: http.url.clone(),
        headers: shown_headers(&http.headers),
        secret: String::new(),
        has_secret: http.secret.is_some(),
        deadline: Some(duration_of_ms(http.deadline_ms)),
        http2: match http.http2 {
            Http2::Auto => v1::Http2::Unspecified,
            Http2::PriorKnowledge => v1::Http2::PriorKnowledge,
            Http2::Never => v1::Http2::Never,
        }
        .into(),
        batch: http.batch.map(|batch| v1::HttpBatch {
            max_events: count(batch.max_events),
            max_bytes: count(batch.max_bytes),
            max_wait: Some(duration_of_ms(batch.max_wait_ms)),
        }),
    }
}

/// A number of at most a few millions, as messages have it.
fn count(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// An SQS target as callers see it.
pub(super) fn sqs_to_message(sqs: &SqsTarget) -> v1::SqsTarget {
    v1::SqsTarget {
        queue_url: sqs.queue_url.clone(),
        region: sqs.region.clone().unwrap_or_default(),
        endpoint_url: sqs.endpoint_url.clone().unwrap_or_default(),
        message_group_id: sqs.message_group_id.clone().unwrap_or_default(),
        group_by_key: sqs.group_by_key,
        deadline: Some(duration_of_ms(sqs.deadline_ms)),
    }
}
