//! Sends what is no event: the messages of alerts.
//!
//! In: a [`Parcel`] and where it goes. Out: a [`Sent`], always. HTTP goes by reqwest, which costs more for a request than the
//! deliveries' connections and needs none of their care: messages are few. Invariants: a URL is looked at as the client that
//! sends reads it, its host with each message; no redirect is followed and no proxy variable is read; a connection serves one
//! message, and there are no more at once than the options say; looking up, connecting, writing and reading the answer all
//! end with the deadline; of an answer no more is read than is kept; no URL is told, as it may be a secret. Not here: retries.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Response, Url, redirect, retry};
use tokio::sync::Semaphore;
use tollgate_clock::{Clock, instant_now};
use tollgate_core::model::{AlertTarget, HttpTarget, Sent};

use crate::address::{AddressRefused, GuardedNames};
use crate::check::parse_shown;
use crate::http::{Content, HttpAnswer, tls};
use crate::names::without_port;
use crate::opening::Opener;
use crate::parcel::Parcel;
use crate::sqs::Sqs;
use crate::{
    TargetError, TargetOptions, causes, chain, is_own, not_sent, refused, refused_for_good, span, unclear,
};

/// What sends messages that are no events. Clones share connections and SQS queues.
#[derive(Clone, Debug)]
pub struct Post {
    web: Arc<Web>,
    sqs: Arc<Sqs>,
    opener: Arc<Opener>,
}

impl Post {
    /// A post with these options. Nothing is connected to before the first message.
    ///
    /// # Errors
    /// [`TargetError::Roots`] where the system's root certificates cannot be loaded.
    pub fn new(options: TargetOptions) -> Result<Self, TargetError> {
        let names = options.names();
        let web = Web::new(&options, names.clone())?;
        let sqs = Sqs::new(&options, names, Arc::new(options.context()), options.connect_timeout());
        let opener = Arc::new(Opener::new(options.keys));
        Ok(Self { web: Arc::new(web), sqs: Arc::new(sqs), opener })
    }

    /// Delivers a message once, beginning now.
    pub async fn send(&self, parcel: &Parcel, target: &AlertTarget) -> Sent {
        let target = match self.opener.open_alert(parcel.sender, target) {
            Ok(target) => target,
            Err(error) => return not_sent(format!("not sent: {error}")),
        };
        match &target {
            AlertTarget::Http { http } => self.web.send(parcel, http).await,
            AlertTarget::Slack { slack } => {
                self.web.send(parcel, &HttpTarget::plain(slack.url.clone(), slack.deadline_ms)).await
            }
            AlertTarget::Sqs { sqs } => Box::pin(self.sqs.post(parcel, sqs)).await,
        }
    }
}

/// Messages by HTTP.
struct Web {
    client: Client,
    names: GuardedNames,
    /// Turns to have a connection.
    turns: Semaphore,
    answer_max_bytes: usize,
    retry_after_max_ms: i64,
    clock: Clock,
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("turns", &self.turns).finish_non_exhaustive()
    }
}

/// Where a message goes, or a list is.
pub(crate) struct Place {
    pub(crate) url: Url,
    /// What has to be looked up; none where the host is an address.
    pub(crate) name: Option<String>,
}

/// Where a URL leads, as the client will read it: it takes `0x7f.1` for an address, and names have another form.
pub(crate) fn place(names: &GuardedNames, text: &str) -> Result<Place, String> {
    parse_shown("url", "it", text)?;
    let url = Url::parse(text).map_err(|error| format!("url: it cannot be used: {error}"))?;
    let host = url.host_str().unwrap_or("");
    names.guard.check_host(host).map_err(|refusal| refusal.to_string())?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = bare.parse::<IpAddr>().is_err().then(|| bare.to_owned());
    Ok(Place { url, name })
}

/// A client that goes only where it is told to, and only to addresses that may be reached.
pub(crate) fn client(options: &TargetOptions, names: GuardedNames) -> Result<Client, TargetError> {
    let builder = Client::builder()
        .tls_backend_preconfigured(tls()?)
        .dns_resolver(Resolver(names))
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .no_proxy()
        .referer(false)
        .pool_max_idle_per_host(0)
        .connect_timeout(options.connect_timeout());
    builder.build().map_err(TargetError::Client)
}

impl Web {
    fn new(options: &TargetOptions, names: GuardedNames) -> Result<Self, TargetError> {
        let client = client(options, names.clone())?;
        let turns = Semaphore::new(options.connections_max.clamp(1, Semaphore::MAX_PERMITS));
        let (answer_max_bytes, retry_after_max_ms) = (options.answer_max_bytes, options.retry_after_max_ms);
        let clock = options.clock.clone();
        Ok(Self { client, names, turns, answer_max_bytes, retry_after_max_ms, clock })
    }

    async fn send(&self, parcel: &Parcel, target: &HttpTarget) -> Sent {
        let place = match place(&self.names, &target.url) {
            Ok(place) => place,
            Err(message) => return refused_for_good(message),
        };
        let until = instant_now() + span(target.deadline_ms);
        let deadline_ms = target.deadline_ms;
        let Ok(Ok(_turn)) = tokio::time::timeout_at(until, self.turns.acquire()).await else {
            return not_sent(format!("not sent: no turn within {deadline_ms} ms"));
        };
        let exchange = Box::pin(self.exchange(parcel, target, place));
        tokio::time::timeout_at(until, exchange)
            .await
            .unwrap_or_else(|_| unclear(format!("no complete answer within {deadline_ms} ms")))
    }

    async fn exchange(&self, parcel: &Parcel, target: &HttpTarget, place: Place) -> Sent {
        // Before the client does, which finds what is remembered of it: at the charge of the namespace.
        if let Some(name) = &place.name
            && let Err(error) = self.names.resolve(name, &parcel.namespace).await
        {
            return unsent(&*error);
        }
        let body = Bytes::from(parcel.body.clone());
        let content = Content {
            id: &parcel.id,
            media_type: parcel.content_type,
            traceparent: None,
            body: body.clone(),
        };
        let headers = match content.headers(target, self.clock.wall_us()) {
            Ok(headers) => headers,
            Err(message) => return refused_for_good(message),
        };
        match self.client.post(place.url).headers(headers).body(body).send().await {
            Ok(response) => self.judge(response).await,
            Err(error) => verdict(error),
        }
    }

    /// Reads the answer as far as it is kept.
    async fn judge(&self, mut response: Response) -> Sent {
        let status = response.status();
        let mut answer = HttpAnswer { status, headers: response.headers().clone(), body: Vec::new() };
        while answer.body.len() < self.answer_max_bytes {
            match response.chunk().await {
                Ok(Some(data)) => {
                    let room = self.answer_max_bytes - answer.body.len();
                    answer.body.extend_from_slice(&data[..data.len().min(room)]);
                }
                Ok(None) => break,
                Err(error) => {
                    let why = words(error);
                    return unclear(format!("HTTP {}, and then no complete answer: {why}", status.as_u16()));
                }
            }
        }
        answer.verdict(self.retry_after_max_ms, self.clock.wall_us())
    }
}

/// What an error of the client means for the message.
fn verdict(error: reqwest::Error) -> Sent {
    if error.is_connect() {
        let error = error.without_url();
        // What it says itself is that it could not connect.
        return unsent(causes(&error).nth(2).unwrap_or(&error));
    }
    unclear(format!("no answer: {}", words(error)))
}

/// An error and what caused it, without the URL.
pub(crate) fn words(error: reqwest::Error) -> String {
    let error = error.without_url();
    causes(&error).nth(1).map_or_else(|| error.to_string(), chain)
}

/// Why there is no connection.
fn unsent(error: &(dyn std::error::Error + 'static)) -> Sent {
    match causes(error).find_map(|cause| cause.downcast_ref::<AddressRefused>()) {
        Some(refusal) => refused_for_good(refusal.to_string()),
        None if is_own(error) => not_sent(format!("not sent: {}", chain(error))),
        None => refused(format!("not sent: {}", chain(error)), None),
    }
}

/// Names in the form that the client wants, none of them with an address that may not be reached.
struct Resolver(GuardedNames);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let names = self.0.clone();
        Box::pin(async move {
            let found = names.resolve(name.as_str(), "").await?;
            let addresses: Addrs = Box::new(without_port(&found).collect::<Vec<_>>().into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::{Lookup, PrivateAddresses};

    /// Also where the address was a public one when the message was looked at.
    #[tokio::test]
    async fn the_client_s_own_lookup_is_guarded() {
        let lookup = Lookup::by(|_| Ok(vec![[127, 0, 0, 1].into(), [1, 1, 1, 1].into()]));
        let mut options = TargetOptions { lookup, ..TargetOptions::default() };
        let found = async |options: &TargetOptions| {
            let found = Resolver(options.names()).resolve("a.example".parse().unwrap()).await;
            found.map(|addresses| addresses.map(|address| address.ip()).collect::<Vec<_>>())
        };
        assert_eq!(found(&options).await.unwrap(), [IpAddr::from([1, 1, 1, 1])]);
        options.lookup = Lookup::by(|_| Ok(vec![[10, 0, 0, 1].into()]));
        assert!(found(&options).await.unwrap_err().downcast_ref::<AddressRefused>().is_some());
        options.allow_private_addresses = PrivateAddresses::Allow;
        assert_eq!(found(&options).await.unwrap(), [IpAddr::from([10, 0, 0, 1])]);
    }
}
