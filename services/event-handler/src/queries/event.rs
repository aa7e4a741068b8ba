//! Events: an acquired, unfinished one has a token row, an ended one is in the done queue, and the others follow from
//! their run's next index.

use std::collections::BTreeMap;

use tollgate_core::handle::EventState;
use tollgate_core::handle::change::{Outcome, TokenRow, Unstarted};
use tollgate_core::model::{EventRef, ItemsIn, Run, RunKind, RunSpec, RunState, Stagger};
use tollgate_proto::convert::event::{self, EventRecord};
use tollgate_proto::v1;
use tollgate_service::status::status as store_status;
use tonic::Status;

use crate::Shared;
use crate::addresses::Addressed;
use crate::routes::{Input, Question};

/// A run with what its events' times follow from.
pub(crate) struct RunView {
    pub(crate) run: Run,
    stagger: Stagger,
    delay_us: i64,
    /// Of its schedule; may be empty.
    key: String,
    /// How many tokens each of its events takes whose item does not say; 0 without a policy.
    units: u32,
    /// What has its items, where that is not the store.
    spec: Option<RunSpec>,
}

impl RunView {
    /// Whether its events carry anything of their own.
    pub(super) fn has_items(&self) -> bool {
        self.spec.is_some() || self.run.kind == RunKind::Submitted || self.run.result_items().is_some()
    }

    /// Whether an event has this key whose item has `of_item`, which may be empty.
    pub(super) fn has_key(&self, key: &str, of_item: &str) -> bool {
        key == if of_item.is_empty() { &self.key } else { of_item }
    }

    /// For a look-up of items.
    pub(super) fn items_of(&self) -> (&Run, Option<&RunSpec>) {
        (&self.run, self.spec.as_ref())
    }
}

impl Shared {
    pub(crate) async fn view(&self, run: Run) -> Result<RunView, Status> {
        let specs = self
            .people
            .specs(run.shard, &[(run.schedule_uid, run.generation)])
            .await
            .map_err(store_status)?;
        let spec = specs.into_iter().next();
        let stagger = spec.as_ref().map(|spec| spec.stagger(&run)).unwrap_or_default();
        let delay_us = spec.as_ref().map_or(0, |spec| spec.start_delay_us(&run));
        let key = spec.as_ref().map(|spec| spec.key().to_owned()).unwrap_or_default();
        let units = spec.as_ref().filter(|_| run.policy_uid.is_some()).map_or(0, |spec| spec.units);
        let spec = spec.filter(|spec| spec.items_of(&run) == ItemsIn::Spec);
        Ok(RunView { stagger, delay_us, key, units, run, spec })
    }

    /// One event, as its owner knows it. `name` is the caller's own text.
    pub(crate) async fn find_event(&self, name: &str, at: &Addressed) -> Result<v1::Event, Status> {
        let event = at.event;
        let mut shown = self.find_event_row(name, at).await?;
        // The owner's memory knows what no row says: a suspect token.
        if shown.state() != v1::EventState::Held {
            return Ok(shown);
        }
        let ask = |reply| Input::Ask(Question::Explain { run: event.run, index: event.index, reply });
        let suspect = match self.peers.routes().ask(event.shard, ask).await {
            Some(explained) => explained.is_some_and(|explained| explained.state == EventState::Suspect),
            None => {
                let explained = self.peers.explain(event.shard, &shown.name).await.and_then(|e| e.event);
                explained.is_some_and(|event| event.state() == v1::EventState::Suspect)
            }
        };
        if suspect {
            shown.set_state(v1::EventState::Suspect);
        }
        Ok(shown)
    }

    /// One event, as the store knows it. `name` is the caller's own text.
    pub(crate) async fn find_event_row(&self, name: &str, at: &Addressed) -> Result<v1::Event, Status> {
        let Addressed { event, namespace, .. } = at;
        let unknown = || Status::not_found(format!("name: there is no event {name:?}"));
        let runs = self.people.runs(event.shard, &[event.run]).await.map_err(store_status)?;
        let run = runs.into_iter().next().ok_or_else(unknown)?;
        let is_foreign = namespace.as_ref().is_some_and(|given| *given != run.namespace);
        if run.state == RunState::Listing && !is_foreign {
            let why =
                if run.reason.is_empty() { "its items are fetched before it falls due" } else { &run.reason };
            return Err(Status::failed_precondition(format!("name: its run has no events yet: {why}")));
        }
        if event.index >= run.events || is_foreign {
            return Err(unknown());
        }
        let view = self.view(run).await?;
        let mut events = self.events(&view, event.index, 1).await?;
        self.add_items(&view, &mut events, true).await;
        let mut event = events.into_iter().next().ok_or_else(unknown)?;
        self.add_result(&view.run, &mut event).await?;
        Ok(event)
    }

    /// Adds the keys and the units of their items to events of a run, by ascending index; their data too, where that is wanted.
    /// An item that cannot be read leaves them out.
    pub(crate) async fn add_items(&self, view: &RunView, events: &mut [v1::Event], with_data: bool) {
        if !view.has_items() {
            return;
        }
        let indexes = events.iter().map(|event| event.index).collect::<Vec<_>>().into_iter();
        match self.items.look_up(&*self.people, view.items_of(), indexes).await {
            Ok(items) => {
                for (event, item) in events.iter_mut().zip(items) {
                    if !item.key.is_empty() {
                        event.key = item.key;
                    }
                    if item.units > 0 && view.run.policy_uid.is_some() {
                        event.units = item.units;
                    }
                    if with_data {
                        event.data = item.data;
                    }
                }
            }
            Err(error) => tracing::debug!(run = %view.run.id, error, "events are shown without their items"),
        }
    }

    /// Up to `limit` events of a run from `from_index` on.
    pub(crate) async fn events(
        &self,
        view: &RunView,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<v1::Event>, Status> {
        let run = &view.run;
        let tokens = self.people.tokens(run.shard, run.id, from_index, limit).await.map_err(store_status)?;
        let ended =
            self.people.history(run.shard, run.id, from_index, None, limit).await.map_err(store_status)?;
        let tokens: BTreeMap<u32, TokenRow> = tokens.into_iter().map(|t| (t.index, t)).collect();
        let mut ended = ended.into_iter().peekable();
        let until = run.events.min(from_index.saturating_add(limit));
        let now_us = self.clock.wall_us();
        let mut events = Vec::new();
        for index in from_index..until {
            while ended.peek().is_some_and(|row| row.index + row.count <= index) {
                ended.next();
            }
            let covering = ended.peek().filter(|row| row.index <= index);
            events.push(match (tokens.get(&index), covering) {
                (Some(token), _) => self.of_token(view, token),
                (None, Some(row)) => self.show(view, index, EventRecord::Done(row)),
                (None, None) => self.unstarted(view, index, now_us),
            });
        }
        Ok(events)
    }

    /// Up to `limit` events of a run that ended so, from `from_index` on.
    pub(crate) async fn ended_events(
        &self,
        view: &RunView,
        outcome: Outcome,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<v1::Event>, Status> {
        let run = &view.run;
        let rows = self
            .people
            .history(run.shard, run.id, from_index, Some(outcome), limit)
            .await
            .map_err(store_status)?;
        let indexes =
            rows.iter().flat_map(|row| (row.index..row.index + row.count).map(move |index| (index, row)));
        let from = indexes.filter(|(index, _)| *index >= from_index).take(limit as usize);
        Ok(from.map(|(index, row)| self.show(view, index, EventRecord::Done(row))).collect())
    }

    /// Up to `limit` acquired, unfinished events of a run, from `from_index` on.
    pub(crate) async fn token_events(
        &self,
        view: &RunView,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<v1::Event>, Status> {
        let run = &view.run;
        let rows = self.people.tokens(run.shard, run.id, from_index, limit).await.map_err(store_status)?;
        Ok(rows.iter().map(|row| self.of_token(view, row)).collect())
    }

    pub(super) fn show(&self, view: &RunView, index: u32, record: EventRecord<'_>) -> v1::Event {
        let run = &view.run;
        let id = self.keyring.id(EventRef { shard: run.named_shard(), run: run.id, index });
        let shown = event::to_message(&id, run, index, view.launch_of(index), record);
        v1::Event { key: view.key.clone(), units: view.units, ..shown }
    }

    /// Up to `limit` events of a run that have not started, from `from_index` on.
    pub(crate) async fn unstarted_events(
        &self,
        view: &RunView,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<v1::Event>, Status> {
        let indexes = self.unstarted_indexes(&view.run, from_index, limit).await?;
        let now_us = self.clock.wall_us();
        Ok(indexes.into_iter().map(|index| self.unstarted(view, index, now_us)).collect())
    }

    /// The indexes of up to `limit` events of a run that have not started, from `from_index` on.
    pub(super) async fn unstarted_indexes(
        &self,
        run: &Run,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<u32>, Status> {
        let Some(sorted_to) = run.sorted_to else {
            return Ok((from_index.max(run.next_index)..run.events).take(limit as usize).collect());
        };
        // Each stretch but the first has an event that counts.
        let stretches = self.people.unstarted(run.shard, run.id, from_index, limit.saturating_add(1)).await;
        let stretches = stretches.map_err(store_status)?;
        let all = stretches.iter().flat_map(Unstarted::indexes).chain(sorted_to..run.events);
        Ok(all.filter(|index| *index >= from_index).take(limit as usize).collect())
    }

    fn of_token(&self, view: &RunView, row: &TokenRow) -> v1::Event {
        self.show(view, row.index, EventRecord::Token { row, suspect: false })
    }

    fn unstarted(&self, view: &RunView, index: u32, now_us: i64) -> v1::Event {
        let due = view.launch_of(index) <= now_us;
        self.show(view, index, if due { EventRecord::Waiting } else { EventRecord::Scheduled })
    }
}

impl RunView {
    fn launch_of(&self, index: u32) -> i64 {
        self.run.launch_us + self.delay_us + self.stagger.place_us(index)
    }
}
