//! Lists of a run's events, by index and state.

use tollgate_core::handle::change::Outcome;
use tollgate_core::model::Run;
use tollgate_proto::{convert, filter, page, v1};
use tonic::Status;

use crate::Shared;

impl Shared {
    /// The events of a run, by index.
    pub(crate) async fn list_events(
        &self,
        request: &v1::ListEventsRequest,
    ) -> Result<v1::ListEventsResponse, Status> {
        let size = page::size(request.page_size)?;
        let query = ["ListEvents", &request.parent, &request.filter];
        let from = page::Token::<u32>::decode(&request.page_token, &query)?.unwrap_or(0);
        let run = self.find_run("parent", &request.parent).await?;
        let (events, next) = self.page_of_events(run, &request.filter, from, size).await?;
        let next_page_token = next.map(|next| page::Token::encode(next, &query)).unwrap_or_default();
        Ok(v1::ListEventsResponse { events, next_page_token })
    }

    /// A page of a run's events, and where the next one begins.
    async fn page_of_events(
        &self,
        run: Run,
        text: &str,
        from: u32,
        size: usize,
    ) -> Result<(Vec<v1::Event>, Option<u32>), Status> {
        let wanted = match filter::parse(text, &["state"])?.first() {
            Some(term) => Some(convert::event::state_in_filter(&term.value)?),
            None => None,
        };
        let limit = u32::try_from(size).unwrap_or(u32::MAX);
        let view = self.view(run).await?;
        let Some(wanted) = wanted else {
            let events = self.events(&view, from, limit).await?;
            let next = from.saturating_add(limit);
            return Ok((events, (next < view.run.events).then_some(next)));
        };
        let events = match outcome(wanted) {
            Some(outcome) => self.ended_events(&view, outcome, from, limit).await?,
            None if matches!(wanted, v1::EventState::Scheduled | v1::EventState::Waiting) => {
                self.events(&view, from.max(view.run.next_index), limit).await?
            }
            None => self.token_events(&view, from, limit).await?,
        };
        let next = events.last().map(|last| last.index + 1).filter(|_| events.len() == size);
        Ok((events.into_iter().filter(|event| event.state() == wanted).collect(), next))
    }
}

fn outcome(state: v1::EventState) -> Option<Outcome> {
    Some(match state {
        v1::EventState::Succeeded => Outcome::Succeeded,
        v1::EventState::Failed => Outcome::Failed,
        v1::EventState::Dead => Outcome::Dead,
        v1::EventState::Expired => Outcome::Expired,
        v1::EventState::Cancelled => Outcome::Cancelled,
        v1::EventState::Lost => Outcome::Lost,
        _ => return None,
    })
}
