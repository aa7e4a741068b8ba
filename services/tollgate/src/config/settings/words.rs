//! How values of settings are read and shown.
//!
//! In: a text. Out: the value, or nothing where it is not one that is allowed; and the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use tollgate_proto::convert::{Name, names};
use tollgate_schedule_master::QuotaOverride;
use tollgate_target::PrivateAddresses;
use tracing_subscriber::EnvFilter;

use crate::config::{Auth, LogFormat, Role};

pub(super) fn store(text: &str) -> Option<String> {
    let known = ["sqlite:", "postgres://", "postgresql://"];
    known.iter().any(|start| text.len() > start.len() && text.starts_with(start)).then(|| text.to_owned())
}

/// A store's URL as it may be shown and logged.
pub(crate) fn without_password(store: &str) -> String {
    let Some((scheme, rest)) = store.split_once("://") else { return store.to_owned() };
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority = match authority.rsplit_once('@') {
        Some((login, host)) => match login.split_once(':') {
            Some((user, _)) => format!("{user}:***@{host}"),
            None => authority.to_owned(),
        },
        None => authority.to_owned(),
    };
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    let masked = query.map(|query| {
        let part = |part: &str| match part.split_once('=') {
            Some((name, _)) if is_secret(name) => format!("{name}=***"),
            _ => part.to_owned(),
        };
        format!("?{}", query.split('&').map(part).collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}://{authority}{path}{}", masked.unwrap_or_default())
}

/// Whether a parameter of a URL, whose name may be written with escapes, is a password.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("pass") || name.contains('%')
}

pub(super) fn roles(text: &str) -> Option<BTreeSet<Role>> {
    let named = |name: &str| Role::ALL.into_iter().find(|role| role.to_string() == name.trim());
    text.split(',').map(named).collect()
}

pub(super) fn advertise(text: &str) -> Option<Option<String>> {
    if text.is_empty() {
        return Some(None);
    }
    let uri: http::Uri = text.parse().ok()?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    let bare = known && uri.port_u16().is_some() && uri.path() == "/";
    bare.then(|| Some(text.trim_end_matches('/').to_owned()))
}

pub(super) fn otlp_endpoint(text: &str) -> Option<Option<String>> {
    if text.is_empty() {
        return Some(None);
    }
    let uri: http::Uri = text.parse().ok()?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    (known && uri.path() == "/").then(|| Some(text.trim_end_matches('/').to_owned()))
}

/// In millionths.
pub(super) fn trace_ratio(text: &str) -> Option<u32> {
    let ratio: f64 = text.parse().ok()?;
    // A number of this range has no more than a million millionths.
    (0.0..=1.0).contains(&ratio).then(|| (ratio * 1e6).round() as u32)
}

pub(super) fn auth(text: &str) -> Option<Option<Auth>> {
    if text.is_empty() {
        return Some(None);
    }
    Auth::ALL.into_iter().find(|auth| auth.to_string() == text).map(Some)
}

pub(super) fn path(text: &str) -> Option<Option<String>> {
    (!text.contains('\0')).then(|| Some(text.to_owned()).filter(|text| !text.is_empty()))
}

pub(super) fn policy(text: &str) -> Option<Option<Name>> {
    if text.is_empty() { Some(None) } else { names::policy("root_policy", text).ok().map(Some) }
}

pub(super) fn overrides(text: &str) -> Option<BTreeMap<String, QuotaOverride>> {
    if text.is_empty() { Some(BTreeMap::new()) } else { serde_json::from_str(text).ok() }
}

pub(super) fn number<N: FromStr + PartialOrd>(text: &str, allowed: RangeInclusive<N>) -> Option<N> {
    text.parse().ok().filter(|n| allowed.contains(n))
}

/// A number, or none.
pub(super) fn maybe<N: FromStr + PartialOrd>(text: &str, allowed: RangeInclusive<N>) -> Option<Option<N>> {
    if text.is_empty() { Some(None) } else { number(text, allowed).map(Some) }
}

pub(super) fn shown(number: Option<impl Display>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

pub(super) fn private(text: &str) -> Option<Option<PrivateAddresses>> {
    if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
}

pub(super) fn endpoints(text: &str) -> Option<Vec<String>> {
    let items = text.split(',').map(str::trim).filter(|_| !text.is_empty());
    items
        .map(|item| {
            let uri: http::Uri = item.parse().ok()?;
            let known = matches!(uri.scheme_str(), Some("http" | "https"));
            (known && uri.host().is_some_and(|host| !host.is_empty())).then(|| item.to_owned())
        })
        .collect()
}

/// `host:port`, several with commas between them.
pub(super) fn servers(text: &str) -> Option<Vec<String>> {
    let items = text.split(',').map(str::trim).filter(|_| !text.is_empty());
    items
        .map(|item| {
            let (host, port) = item.rsplit_once(':')?;
            let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
            let is_host = !host.is_empty() && !host.contains(['/', '@', ' ']);
            (is_host && is_port).then(|| item.to_owned())
        })
        .collect()
}

/// A duration such as `5m`, in whole units of `unit_ms`.
pub(super) fn whole<N: TryFrom<u64> + PartialOrd>(
    text: &str,
    unit_ms: u64,
    allowed: RangeInclusive<N>,
) -> Option<N> {
    let span = humantime::parse_duration(text).ok()?;
    let ms = u64::try_from(span.as_millis()).ok()?;
    if Duration::from_millis(ms) != span || !ms.is_multiple_of(unit_ms) {
        return None;
    }
    N::try_from(ms / unit_ms).ok().filter(|n| allowed.contains(n))
}

pub(super) fn duration(n: impl TryInto<u64>, unit_ms: u64) -> String {
    let ms = n.try_into().unwrap_or_default().saturating_mul(unit_ms);
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}

pub(super) fn filter(text: &str) -> Option<String> {
    let named = |part: &str| !part.trim().is_empty();
    (text.split(',').all(named) && EnvFilter::try_new(text).is_ok()).then(|| text.to_owned())
}

pub(super) fn log_format(text: &str) -> Option<LogFormat> {
    match text {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    }
}

pub(super) fn joined<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}
