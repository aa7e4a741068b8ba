//! Tells pages what happens now, every few seconds.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use tollgate_metrics::Bound;

use crate::pages::now;
use crate::requests::visit::Visit;
use crate::words::show::clock;

/// How often a page is told.
const EVERY: Duration = Duration::from_secs(2);
/// Tells a page what happens now, until it is closed or the service stops.
pub(crate) async fn stream(visit: Visit) -> Response {
    let Some(place) = visit.console.feeds.open(visit.key_id()) else {
        visit.console.metrics.refused(Bound::Pages);
        return (StatusCode::SERVICE_UNAVAILABLE, "Too many pages are open.\n").into_response();
    };
    let stop = visit.console.stop.clone();
    let texts =
        futures::stream::unfold((visit, Arc::<str>::from(""), place), |(visit, sent, place)| async move {
            tokio::select! {
                () = visit.console.stop.cancelled() => return None,
                () = tokio::time::sleep(EVERY) => {}
            }
            let visit = visit.again();
            let reading = now::latest(&visit).await;
            // Also where nothing has changed: a page that hears nothing says that it is old.
            let age_ms = visit.console.clock.wall_us().saturating_sub(reading.at_us) / 1_000;
            let at = format!("{age_ms} {}", clock(reading.at_us));
            let event = if *reading.text == *sent {
                Event::default().event("same").data("-").id(at)
            } else {
                Event::default().data(&*reading.text).id(at)
            };
            Some((Ok::<_, Infallible>(event), (visit, reading.text, place)))
        });
    let texts = futures::StreamExt::take_until(texts, stop.cancelled_owned());
    Sse::new(texts).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}
