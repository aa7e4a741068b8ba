//! Makes clients for queues that the operator names, and of which nothing is a user's: no address is guarded.

use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_sqs::Client;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use super::account::region_of_queue;
use crate::check::{check_region, parse_url};

/// A connection is given up after this time.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A call is, which may be a long poll of 20 s.
const CALL_MAX: Duration = Duration::from_secs(35);

/// A client of one queue: by AWS's default chain, in the region that is given, or that the queue's URL names, or the process's.
/// Nothing is tried again by itself.
///
/// # Errors
/// A URL that is none, and a queue without a region.
pub async fn queue_client(
    queue_url: &str,
    region: Option<&str>,
    endpoint: Option<&str>,
) -> Result<Client, String> {
    parse_url("url", queue_url)?;
    endpoint.map_or(Ok(()), |endpoint| parse_url("endpointUrl", endpoint).map(|_| ()))?;
    region.map_or(Ok(()), check_region)?;
    let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http);
    if let Some(region) = region.map(str::to_owned).or_else(|| region_of_queue(queue_url)) {
        loader = loader.region(Region::new(region));
    }
    let base = Box::pin(loader.load()).await;
    if base.region().is_none() {
        return Err(
            "region: neither the queue, nor its URL, nor AWS_REGION, nor a profile has one".to_owned()
        );
    }
    let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT_MAX).operation_timeout(CALL_MAX);
    let mut config = aws_sdk_sqs::config::Builder::from(&base)
        .retry_config(RetryConfig::disabled())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .timeout_config(timeouts.build());
    if let Some(endpoint) = endpoint {
        config = config.endpoint_url(endpoint);
    }
    Ok(Client::from_conf(config.build()))
}

/// Whether a text is the URL of a queue or of an endpoint.
///
/// # Errors
/// What is wrong with it; `field` names it.
pub fn check_queue(field: &str, url: &str) -> Result<(), String> {
    parse_url(field, url).map(|_| ())
}
