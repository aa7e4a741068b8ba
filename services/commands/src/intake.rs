//! What a source needs to bring messages in: where they go, whether any are asked for, and when that ends.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::counts::Counts;
use crate::hands::Arrived;

/// The way in, of one queue.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    pub(crate) counts: Arc<Counts>,
    pub(crate) arrivals: mpsc::Sender<Arrived>,
    /// Whether messages are asked for.
    pub(crate) open: watch::Receiver<bool>,
    /// No more are asked for, ever.
    pub(crate) stop: CancellationToken,
    /// All that is under way has come to its end.
    pub(crate) end: CancellationToken,
}
