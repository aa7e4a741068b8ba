//! Compares what was given with what is stored.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tollgate_core::model::{Alert, Schedule};
use tollgate_core::plan::put_under;
use tollgate_core::plan::units::PolicyLimits;
use tollgate_proto::convert::{self, names};
use tollgate_proto::v1::CallStage;
use tollgate_proto::{FieldError, v1};
use tollgate_secrets::SecretError;
use tonic::Status;
use uuid::Uuid;

use super::changing::Changing;
use super::warnings::Notes;
use super::{Gathered, Given, Key, Refusal, ResourceRef, chunks, key};
use crate::alerts::drafted;
use crate::audit::Deed;
use crate::chains::Links;
use crate::change::Change;
use crate::draft::{draft, no_policy, too_many_units};
use crate::progress::Progress;
use crate::{ScheduleMaster, parents};
use tollgate_service::actor::Caller;
use tollgate_service::status::status;

/// How many resources are read from the store at once, and judged without a pause.
pub(super) const CHUNK: usize = 1000;

/// A change, and the resource that it is of.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) reference: ResourceRef,
    pub(super) is_new: bool,
    pub(super) change: Change,
    /// What the answer says of it, where there is room.
    pub(super) result: Option<v1::ApplyResult>,
    /// What was given, of a schedule that is to be judged again once its calendars are written: they change it, too.
    pub(super) again: Option<Box<v1::Schedule>>,
    /// How many policies that are given stand above it; how many schedules follow it.
    pub(super) level: usize,
}

impl Planned {
    pub(super) fn new(reference: &ResourceRef, is_new: bool, change: Change) -> Self {
        Self { reference: reference.clone(), is_new, change, result: None, again: None, level: 0 }
    }
}

/// What is known of a policy that schedules use.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) uid: Uuid,
    pub(super) shard: u16,
    pub(super) limits: Option<PolicyLimits>,
}

/// What the policies add to.
pub(super) struct Judged<'a> {
    pub(super) planning: &'a mut Planning,
    /// What schedules may use.
    pub(super) policies: &'a mut HashMap<Key, Known>,
    /// Policies as they will be.
    pub(super) above: &'a mut parents::Known,
    pub(super) refusals: &'a mut Vec<Refusal>,
}

/// All that is to be written.
#[derive(Debug, Default)]
pub(super) struct Planning {
    /// What is as given already.
    pub(super) unchanged: Vec<ResourceRef>,
    pub(super) policies: Vec<Planned>,
    pub(super) calendars: Vec<Planned>,
    pub(super) schedules: Vec<Planned>,
    pub(super) alerts: Vec<Planned>,
    /// What is worth a warning.
    pub(super) notes: Notes,
}

impl Planning {
    /// How much would be written in each namespace, and how many new schedules are among it.
    pub(super) fn by_namespace(&self) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
        let (mut changed, mut new) = (BTreeMap::new(), BTreeMap::new());
        let mut note = |reference: &ResourceRef, is_new: bool| {
            let namespace = &reference.name.namespace;
            *changed.entry(namespace.clone()).or_default() += 1;
            if is_new {
                *new.entry(namespace.clone()).or_default() += 1;
            }
        };
        self.policies.iter().for_each(|planned| note(&planned.reference, false));
        self.calendars.iter().for_each(|planned| note(&planned.reference, false));
        self.schedules.iter().for_each(|planned| note(&planned.reference, planned.is_new));
        self.alerts.iter().for_each(|planned| note(&planned.reference, false));
        // Of what is as given already, the revision is written.
        let revised = self.unchanged.iter().filter(|reference| reference.revision.is_some());
        revised.for_each(|reference| note(reference, false));
        (changed, new)
    }

    /// How many are as given already.
    pub(super) fn unchanged(&self) -> u32 {
        u32::try_from(self.unchanged.len()).unwrap_or(u32::MAX)
    }

    /// How many changes there are.
    pub(super) fn changes(&self) -> usize {
        self.policies.len() + self.calendars.len() + self.schedules.len() + self.alerts.len()
    }

    /// How many new alerts there would be in each namespace.
    pub(super) fn new_alerts(&self) -> BTreeMap<String, usize> {
        let mut new = BTreeMap::new();
        for planned in self.alerts.iter().filter(|planned| planned.is_new) {
            *new.entry(planned.reference.name.namespace.clone()).or_default() += 1;
        }
        new
    }

    /// Counts and lists what would be written.
    pub(super) fn count(self, response: &mut v1::ApplyResourcesResponse) {
        let first = self.policies.into_iter().chain(self.calendars);
        for planned in first.chain(self.schedules).chain(self.alerts) {
            planned.done(response);
        }
    }
}

/// The refusal of an etag that is not that of what is stored.
pub(super) fn stale(path: &str, etag: &str, stored: Option<i64>) -> Result<(), FieldError> {
    match (convert::etag(path, etag)?, stored) {
        (None, _) => Ok(()),
        (Some(given), Some(stored)) if given == stored => Ok(()),
        (Some(_), Some(stored)) => {
            Err(FieldError::new(path, etag, format!("\"{stored}\", what is stored now")))
        }
        (Some(_), None) => Err(FieldError::new(path, etag, "none: it does not exist")),
    }
}

/// What was read, unless it or its etag is refused: all refusals.
pub(super) fn both<T>(
    read: Result<T, Vec<FieldError>>,
    stale: Result<(), FieldError>,
) -> Result<T, Vec<FieldError>> {
    match (read, stale) {
        (read, Ok(())) => read,
        (Ok(_), Err(error)) => Err(vec![error]),
        (Err(mut errors), Err(error)) => {
            errors.push(error);
            Err(errors)
        }
    }
}

impl ScheduleMaster {
    /// Works out every change, and notes everything that is wrong.
    pub(super) async fn judge(
        &self,
        mut given: Gathered,
        actor: &Caller,
        refusals: &mut Vec<Refusal>,
        progress: &Progress,
    ) -> Result<Planning, Status> {
        progress.begin(CallStage::Check, given.count());
        let mut planning = Planning::default();
        planning.notes.remember(&given);
        let (mut policies, mut above) = (HashMap::new(), parents::Known::new());
        let given_policies = std::mem::take(&mut given.policies);
        let mut judged =
            Judged { planning: &mut planning, policies: &mut policies, above: &mut above, refusals };
        self.judge_policies(given_policies, actor, &mut judged, progress).await?;
        self.stored_uids(&given, &mut policies, &mut above).await?;
        let mut calendars = self.known_calendars(&given.schedules).await?;
        for given in std::mem::take(&mut given.calendars) {
            progress.add(1);
            self.judge_calendar(&given, &mut calendars, actor, (&mut planning, &mut *refusals)).await?;
        }
        for chunk in chunks(given.schedules, CHUNK) {
            let stored = self.stored_schedules(&chunk).await?;
            progress.add(chunk.len());
            for given in chunk {
                let known = stored.get(&key(&given.reference));
                let known = (known, &policies, &mut calendars);
                match self.judge_schedule(&given, known, actor, &mut planning.notes) {
                    Ok(None) => planning.unchanged.push(given.reference),
                    Ok(Some(planned)) => planning.schedules.push(planned),
                    Err(errors) => refuse(refusals, &given.reference, errors),
                }
            }
            // Judging does not wait for anything: let others have their turn.
            tokio::task::yield_now().await;
        }
        self.judge_chains(&mut planning.schedules, refusals).await?;
        for chunk in chunks(given.alerts, CHUNK) {
            let stored = self.stored_alerts(&chunk).await?;
            progress.add(chunk.len());
            for given in chunk {
                let known = stored.get(&key(&given.reference));
                match self.judge_alert(&given, known, actor, &mut planning.notes) {
                    Ok(None) => planning.unchanged.push(given.reference),
                    Ok(Some(planned)) => planning.alerts.push(planned),
                    Err(errors) => refuse(refusals, &given.reference, errors),
                }
            }
        }
        Ok(planning)
    }

    /// What follows schedules, as all of them will be; those that follow are written first.
    async fn judge_chains(
        &self,
        schedules: &mut [Planned],
        refusals: &mut Vec<Refusal>,
    ) -> Result<(), Status> {
        let mut links = Links::default();
        let after = |planned: &Planned| {
            planned.change.after().next().is_some_and(|(schedule, _)| schedule.on_finish.is_some())
        };
        if !schedules.iter().any(after) {
            return Ok(());
        }
        for planned in &*schedules {
            planned.change.after().for_each(|(schedule, _)| links.know(schedule));
        }
        for planned in schedules.iter_mut() {
            let Some((schedule, _)) = planned.change.after().next() else { continue };
            let level = links.below(schedule);
            let fault = self.chain_fault(schedule, !planned.is_new, &mut links).await?;
            refuse(refusals, &planned.reference, fault.into_iter().collect());
            planned.level = level;
        }
        schedules.sort_by_key(|planned| planned.level);
        Ok(())
    }

    fn judge_alert(
        &self,
        given: &Given<v1::Alert>,
        stored: Option<&Alert>,
        actor: &Caller,
        notes: &mut Notes,
    ) -> Result<Option<Planned>, Vec<FieldError>> {
        let sealed = |error: SecretError| vec![FieldError::new("alert", "", error.to_string())];
        let Given { reference, message } = given;
        let opened = stored.map(|stored| self.opened_alert(stored)).transpose().map_err(sealed)?;
        let stale = stale("alert.etag", &message.etag, stored.map(|stored| stored.generation));
        let wanted = both(drafted(message, &reference.name, opened.as_ref()), stale)?;
        notes.alert(reference, &wanted);
        if opened.as_ref() == Some(&wanted) {
            return Ok(None);
        }
        let (at_us, action) = match stored {
            Some(stored) => (self.change_us(stored.updated_us), "update"),
            None => (self.now_us(), "create"),
        };
        let deed = Deed { at_us, actor: actor.clone(), action };
        let (_, change) = self.put_alert(stored, wanted, &deed).map_err(sealed)?;
        Ok(Some(Planned::new(reference, stored.is_none(), change)))
    }

    async fn stored_alerts(&self, given: &[Given<v1::Alert>]) -> Result<HashMap<Key, Alert>, Status> {
        let mut found = HashMap::new();
        for (namespace, ids) in by_namespace(given) {
            let alerts = self.store().alerts(namespace, &ids).await.map_err(status)?;
            found.extend(alerts.into_iter().map(|row| ((row.namespace.clone(), row.id.clone()), row)));
        }
        Ok(found)
    }

    fn judge_schedule(
        &self,
        given: &Given<v1::Schedule>,
        (stored, policies, calendars): (Option<&Schedule>, &HashMap<Key, Known>, &mut Changing),
        actor: &Caller,
        notes: &mut Notes,
    ) -> Result<Option<Planned>, Vec<FieldError>> {
        let Given { reference, message } = given;
        let (at_us, action) = match stored {
            Some(stored) => (self.change_us(stored.updated_us), "update"),
            None => (self.now_us(), "create"),
        };
        let sealed = |error: SecretError| vec![FieldError::new("schedule", "", error.to_string())];
        let mut opened = stored.map(|stored| self.opened(stored)).transpose().map_err(sealed)?;
        let is_changing = opened.as_mut().is_some_and(|opened| calendars.change(opened));
        let (uid, speaks_kafka) = (self.new_id(at_us), self.options().speaks_kafka);
        let drafted = draft(message, &reference.name, opened.as_ref(), uid, &calendars.known, speaks_kafka);
        let mut errors = Vec::new();
        errors.extend(stale("schedule.etag", &message.etag, stored.map(|stored| stored.generation)).err());
        let policy = names::policy_within("schedule.policy", &reference.name.namespace, &message.policy).ok();
        let policy = policy.and_then(|policy| {
            let known = policies.get(&(policy.namespace.clone(), policy.id.clone()));
            if known.is_none() {
                errors.push(no_policy(&policy.id));
            }
            known
        });
        let mut draft = match drafted {
            Ok(draft) if errors.is_empty() => draft,
            Ok(_) => return Err(errors),
            Err(mut wrong) => {
                wrong.extend(errors);
                return Err(wrong);
            }
        };
        let above = policy.map(|policy| (policy.uid, policy.shard));
        put_under(&mut draft.schedule, above, stored, self.layout());
        let limits = policy.and_then(|policy| policy.limits.as_ref());
        let too_many = limits.map(|limits| too_many_units(&draft.schedule, opened.as_ref(), limits));
        if let Some(errors) = too_many.filter(|errors| !errors.is_empty()) {
            return Err(errors);
        }
        notes.schedule(reference, &draft, (!message.time_zone.is_empty(), limits), self.now_us());
        calendars.known.join(&draft.schedule.timing, stored.map(|stored| &stored.timing));
        if opened.as_ref() == Some(&draft.schedule) {
            return Ok(None);
        }
        self.seal(&mut draft.schedule, stored).map_err(sealed)?;
        let deed = Deed { at_us, actor: actor.clone(), action };
        let change = Change::to(stored.cloned(), draft.schedule, draft.plan, deed, self.inner.base);
        let again = is_changing.then(|| Box::new(message.clone()));
        Ok(Some(Planned { again, ..Planned::new(reference, stored.is_none(), change) }))
    }

    /// Adds the stored policies among those that the schedules use, unless they change. A policy `above` them may.
    async fn stored_uids(
        &self,
        given: &Gathered,
        policies: &mut HashMap<Key, Known>,
        above: &mut parents::Known,
    ) -> Result<(), Status> {
        let mut wanted: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for Given { reference, message } in &given.schedules {
            let namespace = reference.name.namespace.as_str();
            if let Ok(policy) = names::policy_within("schedule.policy", namespace, &message.policy) {
                wanted.entry(namespace).or_default().insert(policy.id);
            }
        }
        for (namespace, ids) in wanted {
            let ids: Vec<String> = ids.into_iter().collect();
            for ids in ids.chunks(CHUNK) {
                for policy in self.store().policies(namespace, ids).await.map_err(status)? {
                    let key = (policy.namespace.clone(), policy.id.clone());
                    if policies.get(&key).is_none_or(|known| known.limits.is_none()) {
                        let limits = Some(self.limits_of(&policy, above).await?);
                        policies.insert(key, Known { uid: policy.uid, shard: policy.shard, limits });
                    }
                }
            }
        }
        Ok(())
    }

    async fn stored_schedules(
        &self,
        given: &[Given<v1::Schedule>],
    ) -> Result<HashMap<Key, Schedule>, Status> {
        let mut found = HashMap::new();
        for (namespace, ids) in by_namespace(given) {
            let schedules = self.store().schedules(namespace, &ids).await.map_err(status)?;
            found.extend(schedules.into_iter().map(|row| ((row.namespace.clone(), row.id.clone()), row)));
        }
        Ok(found)
    }
}

pub(super) fn refuse(refusals: &mut Vec<Refusal>, reference: &ResourceRef, errors: Vec<FieldError>) {
    refusals
        .extend(errors.into_iter().map(|error| Refusal::new(&reference.source, &reference.name.id, error)));
}

pub(super) fn by_namespace<M>(given: &[Given<M>]) -> BTreeMap<&str, Vec<String>> {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for Given { reference, .. } in given {
        found.entry(&reference.name.namespace).or_default().push(reference.name.id.clone());
    }
    found
}
