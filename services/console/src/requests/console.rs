//! What all requests share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;
use tollgate_metrics::Metrics;
use tonic::transport::Channel;

use crate::requests::feeds::Feeds;
use crate::requests::forecasts::Forecasts;
use crate::requests::histories::Histories;
use crate::requests::places::Places;
use crate::requests::session::Login;

/// What all requests share.
#[derive(Clone)]
pub(crate) struct Console {
    pub(crate) channel: Channel,
    pub(crate) clock: Clock,
    pub(crate) stop: CancellationToken,
    pub(crate) metrics: Metrics,
    pub(crate) feeds: Arc<Feeds>,
    pub(crate) uploads: Places,
    pub(crate) forecasts: Arc<Forecasts>,
    pub(crate) histories: Arc<Histories>,
    pub(crate) login: Option<Login>,
}
