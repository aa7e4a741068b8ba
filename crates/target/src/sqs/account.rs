//! Makes SQS clients: credentials, regions, endpoints.
//!
//! AWS's default chain (environment, profile, container, instance) is asked once per process, when the first delivery
//! needs it. Invariants: the SDK never retries, so that each attempt is one that Tollgate has committed; an endpoint that a
//! user gave is reached through the address guard, AWS's own endpoints are not, as they may be private ones of a VPC.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::SharedHttpClient;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use tokio::sync::OnceCell;
use tollgate_core::model::SqsTarget;

use crate::address::{Guard, GuardedNames};
use crate::check::{check_region, parse_url};

/// How long an unused connection is kept: less than SQS keeps it.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// Why there is no client.
#[derive(Debug)]
pub(super) enum NoClient {
    /// The target itself is wrong.
    Target(String),
    /// The process has no region.
    Region(String),
}

/// A target's region and endpoint, as far as it has them.
type ClientKey = (Option<String>, Option<String>);

/// The process's AWS account, and its clients.
#[derive(Debug)]
pub(super) struct Account {
    guard: Guard,
    /// What targets may name; anything where absent.
    endpoints: Option<Vec<String>>,
    connect_timeout: Duration,
    /// For AWS's own hosts, and for credentials: the instance's own are at a link-local address.
    plain: SharedHttpClient,
    /// For endpoints that users gave.
    guarded: SharedHttpClient,
    /// For targets that name their region, so that nobody waits for an instance to tell its own.
    with_region: OnceCell<SdkConfig>,
    /// For targets that do not.
    by_default: OnceCell<SdkConfig>,
    clients: Mutex<HashMap<ClientKey, Client>>,
}

impl Account {
    pub(super) fn new(
        names: GuardedNames,
        connect_timeout: Duration,
        endpoints: Option<Vec<String>>,
    ) -> Self {
        let builder =
            || Builder::new().pool_idle_timeout(IDLE_MAX).tls_provider(Provider::Rustls(CryptoMode::Ring));
        Self {
            plain: builder().build_with_resolver(names.names.clone()),
            guard: names.guard.clone(),
            guarded: builder().build_with_resolver(names),
            endpoints,
            connect_timeout,
            with_region: OnceCell::new(),
            by_default: OnceCell::new(),
            clients: Mutex::default(),
        }
    }

    /// The client for a target's region and endpoint.
    pub(super) async fn client(&self, target: &SqsTarget) -> Result<Client, NoClient> {
        let region = target.region.clone().or_else(|| region_of_queue(&target.queue_url));
        let key = (region.clone(), target.endpoint_url.clone());
        if let Some(client) = self.clients.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(client.clone());
        }
        if let Some(region) = &region {
            check_region(region).map_err(NoClient::Target)?;
        }
        if let Some(endpoint) = &target.endpoint_url {
            self.check_endpoint(endpoint).map_err(NoClient::Target)?;
            let url = parse_url("endpoint_url", endpoint).map_err(NoClient::Target)?;
            self.guard
                .check_host(url.host().unwrap_or(""))
                .map_err(|refusal| NoClient::Target(format!("endpoint_url: {refusal}")))?;
        }
        let client = self.make(region, target.endpoint_url.as_deref()).await?;
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).insert(key, client.clone());
        Ok(client)
    }

    /// An endpoint gets the process's key id and a request that is signed with its credentials.
    fn check_endpoint(&self, endpoint: &str) -> Result<(), String> {
        let bare = |url: &str| url.trim_end_matches('/').to_ascii_lowercase();
        match &self.endpoints {
            Some(known) if !known.iter().any(|one| bare(one) == bare(endpoint)) => Err(format!(
                "endpoint_url: `{endpoint}` is not one that the service may use; allowed are those of its setting sqs_endpoints"
            )),
            _ => Ok(()),
        }
    }

    async fn make(&self, region: Option<String>, endpoint: Option<&str>) -> Result<Client, NoClient> {
        let base = match &region {
            Some(region) => self.with_region.get_or_init(|| self.load(Some(region.clone()))).await,
            None => self.by_default.get_or_init(|| self.load(None)).await,
        };
        let region = region.map(Region::new).or_else(|| base.region().cloned()).ok_or_else(|| {
            NoClient::Region(
                "region: neither the target, nor its queue_url, nor AWS_REGION, nor a profile has one".into(),
            )
        })?;
        let mut config = aws_sdk_sqs::config::Builder::from(base)
            .region(region)
            .retry_config(RetryConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .timeout_config(TimeoutConfig::builder().connect_timeout(self.connect_timeout).build());
        if let Some(endpoint) = endpoint {
            config = config.endpoint_url(endpoint).http_client(self.guarded.clone());
        }
        Ok(Client::from_conf(config.build()))
    }

    async fn load(&self, region: Option<String>) -> SdkConfig {
        let loader = aws_config::defaults(BehaviorVersion::latest()).http_client(self.plain.clone());
        match region {
            Some(region) => Box::pin(loader.region(Region::new(region)).load()).await,
            None => Box::pin(loader.load()).await,
        }
    }
}

/// The region in the host of a queue's URL: `sqs.<region>.amazonaws.com`, its FIPS, VPC, dual-stack and Chinese forms, and
/// the old `<region>.queue.amazonaws.com`.
pub(super) fn region_of_queue(queue_url: &str) -> Option<String> {
    let url = parse_url("queue_url", queue_url).ok()?;
    let host = url.host()?.to_ascii_lowercase();
    if ![".amazonaws.com", ".amazonaws.com.cn", ".api.aws"].iter().any(|end| host.ends_with(end)) {
        return None;
    }
    let labels: Vec<&str> = host.split('.').collect();
    let region = match labels.iter().position(|label| matches!(*label, "sqs" | "sqs-fips")) {
        Some(at) => labels.get(at + 1)?,
        None if labels.get(1) == Some(&"queue") => labels.first()?,
        None => return None,
    };
    // `sqs.amazonaws.com` has none.
    region.contains('-').then(|| (*region).to_owned())
}

#[cfg(test)]
mod tests {
    use super::region_of_queue;

    #[test]
    fn the_region_is_read_from_aws_hosts_only() {
        for (host, region) in [
            ("sqs.eu-central-1.amazonaws.com", Some("eu-central-1")),
            ("sqs.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("sqs-fips.us-east-1.amazonaws.com", Some("us-east-1")),
            ("sqs.us-west-2.api.aws", Some("us-west-2")),
            ("vpce-1-2.sqs.us-east-2.vpce.amazonaws.com", Some("us-east-2")),
            ("us-west-1.queue.amazonaws.com", Some("us-west-1")),
            ("queue.amazonaws.com", None),
            ("sqs.amazonaws.com", None),
            ("sqs.eu-central-1.example.com", None),
            ("localhost:9324", None),
        ] {
            assert_eq!(region_of_queue(&format!("https://{host}/1/q")).as_deref(), region, "{host}");
        }
    }
}
