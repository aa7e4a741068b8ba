//! Asks the service why an event is where it is.

use tollgate_proto::v1;

use super::{Session, ids};

/// Why an event is where it is.
pub(super) async fn explanation(session: &Session, name: &str) -> anyhow::Result<v1::Explanation> {
    let name = ids::event(session, name).await?;
    let tried = format!("explain event {name}");
    let answer = session.handler().explain_event(v1::ExplainEventRequest { name }).await;
    Ok(answer.map_err(|status| session.failure(tried, status))?.into_inner())
}
