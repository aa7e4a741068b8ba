//! Decides what may follow a schedule.
//!
//! In: a schedule as somebody wants it, and those that the same call writes. Out: what is wrong with what follows. Invariants:
//! what follows exists; no chain comes back to a schedule, or has more than [`Predecessor::PLACES_MAX`] of them. Two that are
//! written at the same moment by others may pass it together: then the chain ends at that many runs. Not here: that what follows
//! stays, to which the store sees.

use std::collections::HashMap;

use tollgate_core::model::{Predecessor, Schedule};
use tollgate_proto::FieldError;
use tollgate_service::status::status;
use tonic::Status;

use crate::ScheduleMaster;

/// What is known of a schedule in a chain.
#[derive(Clone, Debug)]
struct Link {
    next: Option<String>,
    has_items: bool,
}

/// Schedules in chains by namespace and id: those that a call writes, and those that it has read.
#[derive(Debug, Default)]
pub(crate) struct Links(HashMap<(String, String), Option<Link>>);

impl Links {
    /// A schedule as it will be.
    pub(crate) fn know(&mut self, schedule: &Schedule) {
        let link = Link {
            next: schedule.on_finish.as_ref().map(|on_finish| on_finish.schedule.clone()),
            has_items: schedule.payload.from.is_some() || !schedule.payload.items.is_empty(),
        };
        self.0.insert((schedule.namespace.clone(), schedule.id.clone()), Some(link));
    }

    /// How many schedules that are known follow a schedule, one after the other.
    pub(crate) fn below(&self, schedule: &Schedule) -> usize {
        let mut next = schedule.on_finish.as_ref().map(|on_finish| on_finish.schedule.clone());
        let mut below = 0;
        while let Some(id) = next.take()
            && below < usize::from(Predecessor::PLACES_MAX)
            && let Some(Some(link)) = self.0.get(&(schedule.namespace.clone(), id))
        {
            below += 1;
            next.clone_from(&link.next);
        }
        below
    }
}

fn refused(field: &str, value: &str, expected: impl Into<String>) -> Option<FieldError> {
    Some(FieldError::new(format!("schedule.on_finish.{field}"), value, expected))
}

impl ScheduleMaster {
    /// What is wrong with what follows a schedule, if anything is. `is_stored`: another one may lead to it already.
    pub(crate) async fn chain_fault(
        &self,
        schedule: &Schedule,
        is_stored: bool,
        links: &mut Links,
    ) -> Result<Option<FieldError>, Status> {
        let Some(on_finish) = &schedule.on_finish else { return Ok(None) };
        let namespace = &schedule.namespace;
        let first = on_finish.schedule.as_str();
        let mut way = vec![schedule.id.clone()];
        let mut next = Some(first.to_owned());
        while let Some(id) = next.take() {
            if id == schedule.id {
                way.push(id);
                let expected =
                    format!("one that does not lead back to this one, as {} does", way.join(" -> "));
                return Ok(refused("schedule", first, expected));
            }
            let Some(link) = self.link(namespace, &id, links).await? else {
                let expected =
                    "a schedule of the same namespace that exists: apply it first, or with this one";
                return Ok(if way.len() == 1 { refused("schedule", first, expected) } else { None });
            };
            if way.len() == 1 && on_finish.events.is_some() && link.has_items {
                let events = on_finish.events.unwrap_or_default().to_string();
                let expected = format!("none: {id} has items, which say how many events there are");
                return Ok(refused("events", &events, expected));
            }
            if way.len() == 1 && on_finish.items.is_some() && link.has_items {
                let expected = format!("none: {id} has items of its own");
                return Ok(refused("items_from_results", "given", expected));
            }
            way.push(id);
            if way.len() > usize::from(Predecessor::PLACES_MAX) {
                break;
            }
            next = link.next;
        }
        let before = if is_stored {
            self.store().places_before(namespace, &schedule.id).await.map_err(status)?
        } else {
            0
        };
        let places = way.len() + usize::try_from(before).unwrap_or(usize::MAX);
        if places <= usize::from(Predecessor::PLACES_MAX) {
            return Ok(None);
        }
        let expected = format!(
            "one with which the chain has at most {} schedules, not {places}{}",
            Predecessor::PLACES_MAX,
            if before == 0 { format!(": {}", way.join(" -> ")) } else { String::new() },
        );
        Ok(refused("schedule", first, expected))
    }

    async fn link(&self, namespace: &str, id: &str, links: &mut Links) -> Result<Option<Link>, Status> {
        let key = (namespace.to_owned(), id.to_owned());
        if let Some(link) = links.0.get(&key) {
            return Ok(link.clone());
        }
        let found = self.store().schedule(namespace, id).await.map_err(status)?;
        match found {
            Some(schedule) => links.know(&schedule),
            None => drop(links.0.insert(key.clone(), None)),
        }
        Ok(links.0.get(&key).cloned().flatten())
    }
}
