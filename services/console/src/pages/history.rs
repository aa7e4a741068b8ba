//! What became of the events of a namespace, over a time that can be chosen.

use axum::extract::Query;
use axum::response::Response;
use maud::html;
use serde::Deserialize;

use crate::parts::chart::{History, OF_POLICY, legend, ranges, unknown};
use crate::parts::shell::{Body, Section};
use crate::requests::visit::Visit;
use crate::words::range::{DAY, Range};

/// Which time; 24 hours where it is none that can be chosen.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    span: String,
}

/// The page.
pub(crate) async fn page(visit: Visit, Query(wanted): Query<Wanted>) -> Response {
    let range = Range::named(&wanted.span).unwrap_or(DAY);
    let history = visit.history(&visit.parent(), range).await;
    let content = html! {
        p.crumb { a href=(visit.link("")) { "Now" } }
        h1 { "The last " (range.words) " of " (visit.ns) }
        p.lead { "What became of the events of the namespace: under all its policies, and without one." }
        div #h-history { (ranges(&visit.link("history"), "h-history", Some(range))) }
        div #live data-refresh="10" {
            @match &history {
                Ok(answer) => {
                    @let history = History::new(answer, visit.now_us);
                    (history.drawn(&OF_POLICY, true, None))
                    (legend(range.step_us))
                    (history.table())
                }
                Err(problem) => { (unknown(problem)) }
            }
        }
    };
    visit.respond(Ok(Body::new(format!("The last {}", range.words), Section::Now, content)))
}
