//! Lists of a run's events, by index and state.

use std::ops::Range;

use tollgate_core::handle::change::Outcome;
use tollgate_proto::{convert, filter, page, v1};
use tollgate_service::status::status as store_status;
use tonic::Status;

use crate::Shared;
use crate::queries::event::RunView;

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
        let view = self.view(run).await?;
        let (mut events, next) = self.page_of_events(&view, &request.filter, from, size).await?;
        self.add_items(&view, &mut events, false).await;
        let next_page_token = next.map(|next| page::Token::encode(next, &query)).unwrap_or_default();
        Ok(v1::ListEventsResponse { events, next_page_token })
    }

    /// A page of a run's events, and where the next one begins.
    async fn page_of_events(
        &self,
        view: &RunView,
        text: &str,
        from: u32,
        size: usize,
    ) -> Result<(Vec<v1::Event>, Option<u32>), Status> {
        let (mut wanted, mut key) = (None, None);
        for term in filter::parse(text, &["state", "key"])? {
            match term.key.as_str() {
                "state" => wanted = Some(convert::event::state_in_filter(&term.value)?),
                _ => key = Some(term.value),
            }
        }
        if let Some(key) = key {
            let (mut events, next) = self.events_with_key(view, &key, from, size).await?;
            events.retain(|event| wanted.is_none_or(|wanted| event.state() == wanted));
            return Ok((events, next));
        }
        let limit = u32::try_from(size).unwrap_or(u32::MAX);
        let Some(wanted) = wanted else {
            let events = self.events(view, from, limit).await?;
            let next = from.saturating_add(limit);
            return Ok((events, (next < view.run.events).then_some(next)));
        };
        let events = match outcome(wanted) {
            Some(outcome) => self.ended_events(view, outcome, from, limit).await?,
            None if matches!(wanted, v1::EventState::Scheduled | v1::EventState::Waiting) => {
                self.unstarted_events(view, from, limit).await?
            }
            None => self.token_events(view, from, limit).await?,
        };
        let next = events.last().map(|last| last.index + 1).filter(|_| events.len() == size);
        Ok((events.into_iter().filter(|event| event.state() == wanted).collect(), next))
    }
}

/// How many pages of items are asked about at once whether they have a key, and how many of them are read.
const PAGES_ASKED: u32 = 2_000;
const PAGES_READ: usize = 16;
/// How many events of a key are shown at once.
const OF_KEY_MAX: usize = 100;

impl Shared {
    /// Events of a run that have a key, by index, and where to go on: a step that finds none may have more after it.
    async fn events_with_key(
        &self,
        view: &RunView,
        key: &str,
        from: u32,
        size: usize,
    ) -> Result<(Vec<v1::Event>, Option<u32>), Status> {
        let (run, spec) = view.items_of();
        // Items without a key have their schedule's, as all events without items have.
        let is_of_schedule = view.has_key(key, "");
        if !view.has_items() {
            let end = if is_of_schedule { run.events } else { from };
            return self.so_many(view, (from..end).take(OF_KEY_MAX + 1).collect(), size, None).await;
        }
        if spec.is_some() {
            // They are few.
            let found = self.indexes_with_key(view, key, from..run.events).await?;
            return self.so_many(view, found, size, None).await;
        }
        let pages = self.people.item_page_keys(run.shard, run.id, from, PAGES_ASKED).await;
        let pages = pages.map_err(store_status)?;
        let mut next = pages.last().map(|page| page.first_index + page.events);
        let (mut found, mut read) = (Vec::new(), 0);
        for page in pages.iter().filter(|page| is_of_schedule || page.may_have(key)) {
            if read == PAGES_READ || found.len() >= size.min(OF_KEY_MAX) {
                next = Some(page.first_index.max(from));
                break;
            }
            read += 1;
            let indexes = page.first_index.max(from)..page.first_index + page.events;
            found.extend(self.indexes_with_key(view, key, indexes).await?);
        }
        self.so_many(view, found, size, next).await
    }

    /// Those of some indexes of which the events have a key.
    async fn indexes_with_key(
        &self,
        view: &RunView,
        key: &str,
        indexes: Range<u32>,
    ) -> Result<Vec<u32>, Status> {
        let items = self.items.look_up(&*self.people, view.items_of(), indexes.clone()).await;
        let of_key =
            indexes.zip(items.map_err(Status::unavailable)?).filter(|(_, item)| view.has_key(key, &item.key));
        Ok(of_key.map(|(index, _)| index).collect())
    }

    /// As many of the events that were found as are shown at once, and where to go on; at `next` where these are all.
    async fn so_many(
        &self,
        view: &RunView,
        mut found: Vec<u32>,
        size: usize,
        mut next: Option<u32>,
    ) -> Result<(Vec<v1::Event>, Option<u32>), Status> {
        if found.len() > size.min(OF_KEY_MAX) {
            next = found.get(size.min(OF_KEY_MAX)).copied();
            found.truncate(size.min(OF_KEY_MAX));
        }
        let mut events = Vec::new();
        for index in found {
            events.extend(self.events(view, index, 1).await?);
        }
        Ok((events, next.filter(|next| *next < view.run.events)))
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
