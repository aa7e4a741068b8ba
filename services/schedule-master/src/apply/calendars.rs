//! Compares calendars with what is stored, and judges schedules again that a calendar has changed.
//!
//! Invariant: a schedule of which only the dates of a calendar change is changed by the calendar alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tollgate_core::model::Calendar;
use tollgate_proto::convert::{calendar, names};
use tollgate_proto::{FieldError, v1};
use tollgate_service::actor::Caller;
use tollgate_service::status::status;
use tonic::{Code, Status};

use super::changing::Changing;
use super::judge::{Planned, Planning, both, refuse, stale};
use super::results::failed;
use super::{Gathered, Given, Key, Refusal, ResourceRef, key};
use crate::ScheduleMaster;
use crate::audit::Deed;
use crate::calendars::Made;
use crate::dates;
use crate::progress::Progress;

/// How many ids are looked up at once.
const IDS: usize = 1_000;

impl ScheduleMaster {
    /// What is stored of the calendars that schedules name.
    pub(super) async fn known_calendars(&self, given: &[Given<v1::Schedule>]) -> Result<Changing, Status> {
        let mut wanted: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for Given { reference, message } in given {
            let namespace = reference.name.namespace.as_str();
            let named = dates::named(message, namespace);
            if !named.is_empty() {
                wanted.entry(namespace).or_default().extend(named);
            }
        }
        let mut changing = Changing::default();
        for (namespace, ids) in wanted {
            let ids: Vec<String> = ids.into_iter().collect();
            for ids in ids.chunks(IDS) {
                self.look_up_calendars(&mut changing.known, namespace, ids).await?;
            }
        }
        Ok(changing)
    }

    /// Works out what becomes of one calendar, and notes it.
    pub(super) async fn judge_calendar(
        &self,
        given: &Given<v1::Calendar>,
        calendars: &mut Changing,
        actor: &Caller,
        (planning, refusals): (&mut Planning, &mut Vec<Refusal>),
    ) -> Result<(), Status> {
        let Given { reference, message } = given;
        let name = &reference.name;
        let stored = self.store().calendar(&name.namespace, &name.id).await.map_err(status)?;
        let stored = stored.as_ref();
        let stale = stale("calendar.etag", &message.etag, stored.map(|stored| stored.generation));
        let wanted = match both(calendar::to_core(message, name, stored), stale) {
            Ok(wanted) if stored == Some(&wanted) => {
                planning.unchanged.push(reference.clone());
                return Ok(());
            }
            Ok(wanted) => wanted,
            Err(errors) => {
                // The schedules that name it have nothing wrong with them for that.
                let (namespace, id) = key(reference);
                calendars.known.know(Calendar { namespace, id, ..Calendar::default() });
                refuse(refusals, reference, errors);
                return Ok(());
            }
        };
        let (at_us, action) = match stored {
            Some(stored) => (self.change_us(stored.updated_us), "update"),
            None => (self.now_us(), "create"),
        };
        let deed = Deed { at_us, actor: actor.clone(), action };
        match self.put_calendar(stored, wanted, &deed).await {
            Ok(Made { calendar, change, warnings }) => {
                planning.notes.calendar(reference, warnings);
                if stored.is_some_and(|stored| stored.dates_generation != calendar.dates_generation) {
                    calendars.changed.insert(key(reference), calendar.clone());
                }
                calendars.known.know(calendar);
                planning.calendars.push(Planned::new(reference, stored.is_none(), change));
            }
            Err(refused) if refused.code() == Code::FailedPrecondition => {
                let message = refused.message().trim_start_matches("calendar.dates: ");
                refuse(refusals, reference, vec![FieldError::new("calendar.dates", "", message)]);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Schedules of which a calendar that has been written is one are judged again, by what they are now.
    pub(super) async fn judged_again(
        &self,
        planned: Vec<Planned>,
        actor: &Caller,
        response: &mut v1::ApplyResourcesResponse,
    ) -> Result<Vec<Planned>, Status> {
        let (again, mut rest): (Vec<Planned>, Vec<Planned>) =
            planned.into_iter().partition(|planned| planned.again.is_some());
        if again.is_empty() {
            return Ok(rest);
        }
        let mut gathered = Gathered::default();
        let mut results: HashMap<Key, (ResourceRef, Option<v1::ApplyResult>)> = HashMap::new();
        for Planned { reference, result, again, .. } in again {
            results.insert(key(&reference), (reference.clone(), result));
            gathered.schedules.extend(again.map(|message| Given { reference, message: *message }));
        }
        let mut refusals = Vec::new();
        let planning = self.judge(gathered, actor, &mut refusals, &Progress::default()).await?;
        for Refusal { source, name, error } in refusals {
            let known = results.values().find(|(known, _)| known.source == source && known.name.id == name);
            if let Some((reference, _)) = known.cloned() {
                let name = names::of_schedule(&reference.name.namespace, &reference.name.id);
                failed(response, reference, name, &error);
            }
        }
        response.unchanged_count += planning.unchanged();
        self.note_unchanged(planning.unchanged, response).await?;
        for mut planned in planning.schedules {
            planned.result = results.remove(&key(&planned.reference)).and_then(|(_, result)| result);
            rest.push(planned);
        }
        Ok(rest)
    }
}
