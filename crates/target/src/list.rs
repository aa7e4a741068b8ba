//! Asks for a page of a list by HTTP GET.
//!
//! In: where, with which headers, for which namespace. Out: the answer's bytes as they come, where the next page is, or why there
//! is no page and whether asking again may help. Invariants: a URL is looked at as the client that asks reads it, its host with
//! each request; no redirect is followed and no proxy variable is read; looking up, connecting and all of the answer end with the
//! deadline; the next page is on the same host, as headers may be credentials. Not here: what a page holds, how often is asked.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, LINK};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{Client, Response, Url};
use tokio::time::Instant;
use tollgate_clock::{Clock, instant_now};

use crate::address::{AddressRefused, GuardedNames};
use crate::check::check_header;
use crate::http::retry_after_ms;
use crate::post::{Place, client, place, words};
use crate::{TargetError, TargetOptions, causes, chain};

/// What is asked for where the schedule's headers do not say.
const ACCEPTED: &str = "application/x-ndjson, application/jsonl, application/json, text/csv";
/// Statuses below 500 that may be others soon: the list may not be there yet.
const MAY_CHANGE: [u16; 6] = [404, 408, 409, 423, 425, 429];

/// Why there is no page, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPage {
    /// What is wrong. No URL is in it.
    pub message: String,
    /// Asking again does not help.
    pub is_final: bool,
    /// How long not to ask again, in milliseconds.
    pub retry_after_ms: Option<i64>,
}

impl NoPage {
    /// It may be there later.
    pub fn yet(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_final: false, retry_after_ms: None }
    }

    /// It will not be.
    pub fn ever(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_final: true, retry_after_ms: None }
    }
}

/// Which page is asked for.
#[derive(Clone, Copy, Debug)]
pub struct PageAsk<'a> {
    /// At whose charge its name is looked up.
    pub namespace: &'a str,
    /// Where it is.
    pub url: &'a str,
    /// Sent with the request.
    pub headers: &'a BTreeMap<String, String>,
    /// From now to the end of the answer.
    pub deadline: Duration,
}

/// What asks for lists. Clones share all of it.
#[derive(Clone)]
pub struct ListClient(Arc<Inner>);

struct Inner {
    client: Client,
    names: GuardedNames,
    retry_after_max_ms: i64,
    clock: Clock,
}

impl fmt::Debug for ListClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ListClient")
    }
}

/// The answer to a request for a page.
#[derive(Debug)]
pub struct Page {
    response: Response,
    until: Instant,
    deadline: Duration,
}

impl ListClient {
    /// A client with these options. Nothing is connected to before the first request.
    ///
    /// # Errors
    /// As [`crate::Post::new`].
    pub fn new(options: &TargetOptions) -> Result<Self, TargetError> {
        let names = options.names();
        let client = client(options, names.clone())?;
        let (retry_after_max_ms, clock) = (options.retry_after_max_ms, options.clock.clone());
        Ok(Self(Arc::new(Inner { client, names, retry_after_max_ms, clock })))
    }

    /// Asks for a page; its status is 200 then.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn page(&self, ask: PageAsk<'_>) -> Result<Page, NoPage> {
        let place = place(&self.0.names, ask.url).map_err(NoPage::ever)?;
        let headers = headers(ask.headers).map_err(NoPage::ever)?;
        let until = instant_now() + ask.deadline;
        let response = tokio::time::timeout_at(until, Box::pin(self.exchange(ask.namespace, place, headers)));
        let response = response.await.unwrap_or_else(|_| Err(late(ask.deadline)))?;
        if response.status() == StatusCode::OK {
            return Ok(Page { response, until, deadline: ask.deadline });
        }
        Err(self.refused(&response))
    }

    async fn exchange(&self, namespace: &str, place: Place, headers: HeaderMap) -> Result<Response, NoPage> {
        // Before the client does, which finds what is remembered of it: at the charge of the namespace.
        if let Some(name) = &place.name
            && let Err(error) = self.0.names.resolve(name, namespace).await
        {
            return Err(unreached(&*error));
        }
        let sent = self.0.client.get(place.url).headers(headers).send().await;
        sent.map_err(|error| {
            if error.is_connect() {
                let error = error.without_url();
                return unreached(causes(&error).nth(2).unwrap_or(&error));
            }
            NoPage::yet(format!("no answer: {}", words(error)))
        })
    }

    fn refused(&self, response: &Response) -> NoPage {
        let status = response.status();
        let is_final = !(status.is_server_error() || MAY_CHANGE.contains(&status.as_u16()));
        let note = if status.is_redirection() { ", and redirects are not followed" } else { "" };
        let retry_after_ms =
            retry_after_ms(response.headers(), self.0.retry_after_max_ms, self.0.clock.wall_us());
        NoPage { message: format!("HTTP {status}{note}"), is_final, retry_after_ms }
    }
}

impl Page {
    /// What its answer says that it is.
    pub fn content_type(&self) -> Option<&str> {
        self.response.headers().get(CONTENT_TYPE)?.to_str().ok()
    }

    /// Where the next page is, as the answer's `Link` says.
    pub fn next_link(&self) -> Option<String> {
        let links = self.response.headers().get_all(LINK).iter();
        links.filter_map(|value| value.to_str().ok()).find_map(next_of_link)
    }

    /// The bytes that follow; none at the end.
    ///
    /// # Errors
    /// Why there is no complete answer.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, NoPage> {
        match tokio::time::timeout_at(self.until, self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => Err(NoPage::yet(format!("no complete answer: {}", words(error)))),
            Err(_) => Err(late(self.deadline)),
        }
    }
}

/// The URL of the next page: `next` may be relative to `current`.
///
/// # Errors
/// What is wrong with it.
pub fn next_url(current: &str, next: &str) -> Result<String, String> {
    let of = |error| format!("the URL of the next page cannot be used: {error}");
    let current = Url::parse(current).map_err(of)?;
    let next = current.join(next).map_err(of)?;
    if next.origin() != current.origin() {
        return Err("the next page is under another scheme, host or port than the list".to_owned());
    }
    Ok(next.into())
}

/// A URL in which one parameter has this value.
///
/// # Errors
/// A text that is no URL.
pub fn with_parameter(url: &str, name: &str, value: &str) -> Result<String, String> {
    let mut url = Url::parse(url).map_err(|error| format!("url: it cannot be used: {error}"))?;
    let others: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(key, _)| key != name)
        .map(|(key, value)| (key.into(), value.into()))
        .collect();
    url.query_pairs_mut().clear().extend_pairs(others).append_pair(name, value);
    Ok(url.into())
}

/// The target of the first link of a header whose relations have `next` among them.
fn next_of_link(header: &str) -> Option<String> {
    let mut rest = header;
    while let Some((target, after)) = rest.split_once('<').and_then(|(_, link)| link.split_once('>')) {
        let end = end_of_link(after);
        let mut parameters = after[..end].split(';').filter_map(|parameter| parameter.split_once('='));
        let is_next = parameters.any(|(name, value)| {
            let relations = value.trim().trim_matches('"');
            name.trim().eq_ignore_ascii_case("rel")
                && relations.split_ascii_whitespace().any(|relation| relation.eq_ignore_ascii_case("next"))
        });
        if is_next {
            return Some(target.to_owned());
        }
        rest = &after[end..];
    }
    None
}

/// Where the parameters of a link end: at a comma that is in no quotes.
fn end_of_link(parameters: &str) -> usize {
    let mut in_quotes = false;
    let end = parameters.char_indices().find(|(_, character)| {
        in_quotes ^= *character == '"';
        *character == ',' && !in_quotes
    });
    end.map_or(parameters.len(), |(at, _)| at)
}

fn headers(given: &BTreeMap<String, String>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
    for (name, value) in given {
        check_header(name, value)?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| format!("headers: {error}"))?;
        let mut value = HeaderValue::from_str(value).map_err(|error| format!("headers: {error}"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Why there is no connection.
fn unreached(error: &(dyn std::error::Error + 'static)) -> NoPage {
    match causes(error).find_map(|cause| cause.downcast_ref::<AddressRefused>()) {
        Some(refusal) => NoPage::ever(refusal.to_string()),
        None => NoPage::yet(chain(error)),
    }
}

fn late(deadline: Duration) -> NoPage {
    NoPage::yet(format!("no complete answer within {} ms", deadline.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_names_the_next_page() {
        let next = |header: &str| next_of_link(header);
        let found = Some("/list?page=2".to_owned());
        assert_eq!(next("</list?page=2>; rel=\"next\""), found);
        assert_eq!(next("</list?page=9>; rel=last, </list?page=2>;title=\"a, b\"; REL=next"), found);
        assert_eq!(next("</list?page=2>; rel=\"prefetch next\""), found);
        assert_eq!(next("</list?page=1>; rel=prev"), None);
        assert_eq!(next("nonsense, <"), None);
    }

    #[test]
    fn the_next_page_is_on_the_same_host() {
        let next = |next| next_url("https://a.example/lists/1?x=1", next);
        assert_eq!(next("2").as_deref(), Ok("https://a.example/lists/2"));
        assert_eq!(next("?x=2").as_deref(), Ok("https://a.example/lists/1?x=2"));
        assert_eq!(next("https://a.example:443/b").as_deref(), Ok("https://a.example/b"));
        for other in ["http://a.example/", "https://b.example/", "//b.example/", "https://a.example:8443/"] {
            assert!(next(other).is_err_and(|why| why.contains("another scheme")), "{other}");
        }
    }

    #[test]
    fn a_parameter_takes_the_place_of_one_of_its_name() {
        let with = |url| with_parameter(url, "cursor", "a b&c");
        assert_eq!(with("http://a/l").as_deref(), Ok("http://a/l?cursor=a+b%26c"));
        assert_eq!(with("http://a/l?cursor=1&n=2").as_deref(), Ok("http://a/l?n=2&cursor=a+b%26c"));
    }
}
