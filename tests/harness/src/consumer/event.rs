//! Checks the form of a delivery: CloudEvents 1.0 in JSON, signed as Standard Webhooks say.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use hyper::HeaderMap;
use serde_json::Value;
use sha2::Sha256;

use crate::{Arrival, now_us};

/// The event in a body.
///
/// # Errors
/// What is wrong with it.
pub fn read(body: &[u8]) -> Result<Arrival, String> {
    let event: Value = serde_json::from_slice(body).map_err(|error| format!("no JSON: {error}"))?;
    let text = |name: &str| {
        event[name].as_str().map(str::to_owned).ok_or_else(|| format!("{name} is no text: {event}"))
    };
    let number = |name: &str| {
        let number = event[name].as_u64().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| format!("{name} is no number: {event}"))
    };
    if text("specversion")? != "1.0" || text("datacontenttype")? != "application/json" {
        return Err(format!("not a CloudEvent 1.0 with JSON: {event}"));
    }
    let event_id = text("id")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if event_id.len() > 80 || !event_id.chars().all(plain) {
        return Err(format!("id {event_id:?}"));
    }
    if text("subject")?.rsplit('/').next() != Some(&event_id)
        || !text("source")?.ends_with(&text("schedule")?)
    {
        return Err(format!("subject or source: {event}"));
    }
    text("type")?;
    let time =
        chrono::DateTime::parse_from_rfc3339(&text("time")?).map_err(|error| format!("time: {error}"))?;
    Ok(Arrival {
        event_id,
        attempt: number("attempt")?,
        index: number("index")?,
        count: number("count")?,
        schedule: text("schedule")?.rsplit('/').next().unwrap_or_default().to_owned(),
        run: text("run")?,
        launch_us: time.timestamp_micros(),
        arrived_us: now_us(),
        policy: event["policy"]
            .as_str()
            .and_then(|name| name.rsplit('/').next())
            .unwrap_or_default()
            .to_owned(),
        explicit_release: event["release"].as_str() == Some("explicit"),
        cursor: event["cursor"].as_str().map(str::to_owned),
        data: event["data"].clone(),
    })
}

/// Whether the headers belong to the body; with a secret, whether they are signed with it.
///
/// # Errors
/// What is wrong with them.
pub fn check_headers(
    headers: &HeaderMap,
    event_id: &str,
    body: &[u8],
    secret: Option<&str>,
) -> Result<(), String> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !header("content-type").starts_with("application/cloudevents+json") {
        return Err(format!("content-type {:?}", header("content-type")));
    }
    if header("webhook-id") != event_id {
        return Err(format!("webhook-id {:?}, id {event_id:?}", header("webhook-id")));
    }
    let sent_s: i64 = header("webhook-timestamp").parse().map_err(|_| "no webhook-timestamp".to_owned())?;
    if (now_us() / 1_000_000 - sent_s).abs() > 60 {
        return Err(format!("webhook-timestamp {sent_s} is not now"));
    }
    let Some(secret) = secret else { return Ok(()) };
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).map_err(|error| error.to_string())?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).map_err(|error| error.to_string())?;
    mac.update(format!("{event_id}.{sent_s}.").as_bytes());
    mac.update(body);
    let signed = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let given = header("webhook-signature");
    if given.split(' ').any(|one| one == signed) {
        Ok(())
    } else {
        Err(format!("webhook-signature {given:?}"))
    }
}
