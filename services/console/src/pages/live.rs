//! Tells pages what happens now, every few seconds.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use tollgate_metrics::Bound;

use crate::pages::now;
use crate::requests::visit::Visit;

/// How often a page is told.
const EVERY: Duration = Duration::from_secs(2);
/// Tells a page what happens now, until it is closed or the service stops.
pub(crate) async fn stream(visit: Visit) -> Response {
    let Some(place) = visit.console.feeds.open(visit.key_id()) else {
        visit.console.metrics.refused(Bound::Pages);
        return (StatusCode::SERVICE_UNAVAILABLE, "Too many pages are open.\n").into_response();
    };
    let stop = visit.console.stop.clone();
    let texts = futures::stream::unfold((visit, String::new(), place), |(visit, sent, place)| async move {
        loop {
            tokio::select! {
                () = visit.console.stop.cancelled() => return None,
                () = tokio::time::sleep(EVERY) => {}
            }
            let text = now::latest(&visit.again()).await;
            if *text != *sent {
                let event = Event::default().data(&*text);
                return Some((Ok::<_, Infallible>(event), (visit, text.to_string(), place)));
            }
        }
    });
    let texts = futures::StreamExt::take_until(texts, stop.cancelled_owned());
    Sse::new(texts).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}
