//! Decides where the items of a schedule's runs may be fetched. Whether an address may be reached is decided at every fetch.

use std::ops::RangeInclusive;
use std::sync::Arc;

use tollgate_core::model::{HttpItems, ItemsFrom, ListFormat};

use super::check::Check;
use super::headers::{headers, kept, shown_headers};
use super::target::{self, origin, url};
use super::{duration_of_ms, duration_of_s};
use crate::v1;
use crate::v1::items_from::Source;

const AHEAD_S: RangeInclusive<i64> = 0..=ItemsFrom::FETCH_AHEAD_MAX_S;
const GIVE_UP_S: RangeInclusive<i64> = 1..=24 * 3_600;
/// The most bytes of the name of a member, a column or a parameter.
const NAME_MAX_BYTES: usize = 128;
/// Where the headers stand.
const HEADERS: &str = "items_from.http.headers";
/// Why the value of a header must be given again.
const ELSEWHERE: &str =
    "because the list has another scheme, host or port than the one that it was stored for";
const FORMATS: &str = "NDJSON, JSON or CSV";

/// Where items come from. Header values that the message says to keep are taken from `stored`.
pub(super) fn to_core(
    check: &mut Check,
    message: &v1::Schedule,
    stored: Option<&ItemsFrom>,
) -> Option<Arc<ItemsFrom>> {
    let given = message.items_from.as_ref()?;
    if !message.items.is_empty() {
        check.refuse("items_from", "a list", "none beside items: a schedule has its items, or fetches them");
    }
    let Some(Source::Http(http)) = &given.source else {
        let expected = "http, such as {http: {url: \"http://127.0.0.1:8080/list\"}}";
        check.refuse("items_from", "", expected);
        return None;
    };
    let http = http_to_core(check, http, stored.map(|stored| &stored.http));
    let fetch_ahead_s = check.s("items_from.fetch_ahead", given.fetch_ahead.as_ref(), &AHEAD_S);
    let give_up_after_s = check.s("items_from.give_up_after", given.give_up_after.as_ref(), &GIVE_UP_S);
    Some(Arc::new(ItemsFrom {
        http,
        fetch_ahead_s: fetch_ahead_s.unwrap_or(ItemsFrom::FETCH_AHEAD_S),
        give_up_after_s: give_up_after_s.unwrap_or(ItemsFrom::GIVE_UP_AFTER_S),
    }))
}

fn http_to_core(check: &mut Check, given: &v1::HttpItems, stored: Option<&HttpItems>) -> HttpItems {
    url(check, "items_from.http.url", &given.url);
    headers(check, HEADERS, &given.headers);
    let elsewhere = stored.filter(|stored| origin(&stored.url) != origin(&given.url)).map(|_| ELSEWHERE);
    let headers = kept(check, HEADERS, &given.headers, (stored.map(|stored| &stored.headers), elsewhere));
    let format = match check.choice("items_from.http.format", given.format, FORMATS) {
        v1::ItemsFormat::Unspecified => None,
        v1::ItemsFormat::Ndjson => Some(ListFormat::Ndjson),
        v1::ItemsFormat::Json => Some(ListFormat::Json),
        v1::ItemsFormat::Csv => Some(ListFormat::Csv),
    };
    for (name, value) in [
        ("key_field", &given.key_field),
        ("units_field", &given.units_field),
        ("items_field", &given.items_field),
        ("next_field", &given.next_field),
        ("next_parameter", &given.next_parameter),
    ] {
        member_name(check, &format!("items_from.http.{name}"), value);
    }
    if !given.items_field.is_empty() && !matches!(format, None | Some(ListFormat::Json)) {
        let expected = "none but with the format JSON: it is the member of an object";
        check.refuse("items_from.http.items_field", &given.items_field, expected);
    }
    if !given.next_field.is_empty() && given.items_field.is_empty() {
        let expected = "none without items_field: it is a member of the same object";
        check.refuse("items_from.http.next_field", &given.next_field, expected);
    }
    if !given.next_parameter.is_empty() && given.next_field.is_empty() {
        let expected = "none without next_field, which says what it is set to";
        check.refuse("items_from.http.next_parameter", &given.next_parameter, expected);
    }
    HttpItems {
        url: given.url.clone(),
        headers,
        format,
        key_field: given.key_field.clone(),
        units_field: given.units_field.clone(),
        items_field: given.items_field.clone(),
        next_field: given.next_field.clone(),
        next_parameter: given.next_parameter.clone(),
        deadline_ms: check.ms(
            "items_from.http.deadline",
            given.deadline.as_ref(),
            ItemsFrom::DEADLINE_MS,
            &target::DEADLINE_MS,
        ),
    }
}

/// The name of a member, a column or a parameter.
pub(super) fn member_name(check: &mut Check, field: &str, name: &str) {
    if name.len() > NAME_MAX_BYTES || name.chars().any(char::is_control) {
        check.refuse(field, name, format!("at most {NAME_MAX_BYTES} bytes, without control characters"));
    }
}

/// Where items come from, as callers see it.
pub(super) fn to_message(from: &ItemsFrom) -> v1::ItemsFrom {
    let HttpItems {
        url,
        headers,
        format,
        key_field,
        units_field,
        items_field,
        next_field,
        next_parameter,
        deadline_ms,
    } = &from.http;
    let format = match format {
        None => v1::ItemsFormat::Unspecified,
        Some(ListFormat::Ndjson) => v1::ItemsFormat::Ndjson,
        Some(ListFormat::Json) => v1::ItemsFormat::Json,
        Some(ListFormat::Csv) => v1::ItemsFormat::Csv,
    };
    let http = v1::HttpItems {
        url: url.clone(),
        headers: shown_headers(headers),
        format: format.into(),
        key_field: key_field.clone(),
        units_field: units_field.clone(),
        items_field: items_field.clone(),
        next_field: next_field.clone(),
        next_parameter: next_parameter.clone(),
        deadline: Some(duration_of_ms(*deadline_ms)),
    };
    v1::ItemsFrom {
        source: Some(Source::Http(http)),
        fetch_ahead: Some(duration_of_s(from.fetch_ahead_s)),
        give_up_after: Some(duration_of_s(from.give_up_after_s)),
    }
}

/// Whether a list is elsewhere than the one that is stored: under another scheme, host or port.
pub fn is_list_elsewhere(stored: &ItemsFrom, given: &v1::ItemsFrom) -> bool {
    let Some(Source::Http(given)) = &given.source else { return true };
    origin(&stored.http.url) != origin(&given.url)
}

/// The headers of the request for a list.
pub fn list_headers(from: &mut v1::ItemsFrom) -> Option<&mut std::collections::BTreeMap<String, String>> {
    let Some(Source::Http(http)) = &mut from.source else { return None };
    Some(&mut http.headers)
}
