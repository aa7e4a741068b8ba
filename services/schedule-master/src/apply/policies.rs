//! Compares the policies that were given with those that are stored: those above others first.
//!
//! In: policies as they shall be, in any order. Out: what is to be written, by levels. Invariant: a policy is written once all
//! that stand above it are. Not here: what a parent is looked up as ([`crate::parents`]).

use std::collections::{HashMap, HashSet};

use tollgate_core::model::{Parent, Policy};
use tollgate_proto::convert::{names, policy};
use tollgate_proto::{FieldError, v1};
use tollgate_service::actor::Caller;
use tollgate_service::status::status;
use tollgate_store::StoreError;
use tollgate_store::plan::PlanWrite;
use tonic::Status;

use super::judge::{CHUNK, Judged, Known, Planned, both, by_namespace, refuse, stale};
use super::warnings::Notes;
use super::{Given, Key, Refusal, chunks, key};
use crate::audit::Deed;
use crate::change::Change;
use crate::progress::Progress;
use crate::{ScheduleMaster, parents};

/// The most policies of which it is told before anything is written whether they may stand where they are put.
const REHEARSED_MAX: usize = 1_000;

impl ScheduleMaster {
    /// Works out every change of a policy, and notes everything that is wrong.
    pub(super) async fn judge_policies(
        &self,
        given: Vec<Given<v1::Policy>>,
        actor: &Caller,
        judged: &mut Judged<'_>,
        progress: &Progress,
    ) -> Result<(), Status> {
        for (level, given) in by_level(given).into_iter().enumerate() {
            for chunk in chunks(given, CHUNK) {
                let stored = self.stored_policies(&chunk).await?;
                progress.add(chunk.len());
                for given in chunk {
                    let key = key(&given.reference);
                    judged.planning.notes.policy(&given.reference, &given.message);
                    match self
                        .judge_policy(
                            (&given, level),
                            stored.get(&key),
                            actor,
                            (&mut *judged.above, &mut judged.planning.notes),
                        )
                        .await?
                    {
                        Ok(None) => judged.planning.unchanged.push(given.reference),
                        Ok(Some((known, planned))) => {
                            judged.policies.insert(key, known);
                            judged.planning.policies.push(planned);
                        }
                        Err(errors) => {
                            // Its schedules have nothing wrong with them for that.
                            judged.policies.entry(key).or_default();
                            refuse(judged.refusals, &given.reference, errors);
                        }
                    }
                }
            }
        }
        self.rehearse_policies(&judged.planning.policies, judged.refusals).await?;
        Ok(())
    }

    async fn judge_policy(
        &self,
        (given, level): (&Given<v1::Policy>, usize),
        stored: Option<&Policy>,
        actor: &Caller,
        (above, notes): (&mut parents::Known, &mut Notes),
    ) -> Result<Result<Option<(Known, Planned)>, Vec<FieldError>>, Status> {
        let Given { reference, message } = given;
        let stale = stale("policy.etag", &message.etag, stored.map(|stored| stored.generation));
        let wanted = match both(policy::to_core(message, &reference.name, stored), stale) {
            Ok(wanted) => wanted,
            Err(errors) => return Ok(Err(errors)),
        };
        let mut wanted = match self.with_parent(wanted, message, stored, above).await? {
            Ok(wanted) => wanted,
            Err(error) => return Ok(Err(vec![error])),
        };
        notes.placed(&wanted);
        if stored == Some(&wanted) {
            return Ok(Ok(None));
        }
        let (at_us, action) = match stored {
            Some(stored) => (self.change_us(stored.updated_us), "update"),
            None => (self.now_us(), "create"),
        };
        if stored.is_none() {
            wanted.uid = self.new_id(at_us);
        }
        let deed = Deed { at_us, actor: actor.clone(), action };
        let (made, change) = self.put_policy(stored, wanted, &deed);
        let planned = Planned { level, ..Planned::new(reference, stored.is_none(), change) };
        above.insert(key(reference), made.clone());
        let limits = Some(self.limits_of(&made, above).await?);
        let known = Known { uid: made.uid, shard: made.shard, limits };
        Ok(Ok(Some((known, planned))))
    }

    /// Notes what the store would say of the places of policies in their trees.
    async fn rehearse_policies(
        &self,
        planned: &[Planned],
        refusals: &mut Vec<Refusal>,
    ) -> Result<(), Status> {
        let written = |planned: &Planned| match &planned.change {
            Change::Policy { write, .. } => Some(PlanWrite::clone(write)),
            _ => None,
        };
        let writes: Vec<PlanWrite> = planned.iter().filter_map(written).take(REHEARSED_MAX).collect();
        // A change of a policy may concern those below it.
        let in_tree = |write: &PlanWrite| match write {
            PlanWrite::PutPolicy { policy, expected_generation, .. } => {
                policy.parent.is_some() || policy.adopts || expected_generation.is_some()
            }
            _ => false,
        };
        if !writes.iter().any(in_tree) {
            return Ok(());
        }
        // What else keeps them from being written is told when they are.
        for (uid, fault) in self.store().rehearse(writes).await.unwrap_or_default() {
            let is_its = |planned: &&Planned| matches!(&planned.change, Change::Policy { notice, .. } if notice.uid == uid);
            if let Some(planned) = planned.iter().find(is_its) {
                let (field, why) = match fault {
                    StoreError::Invalid { field, message } => (field, message),
                    other => ("policy.parent".to_owned(), other.to_string()),
                };
                refuse(refusals, &planned.reference, vec![FieldError::said(field, why)]);
            }
        }
        Ok(())
    }

    async fn stored_policies(&self, given: &[Given<v1::Policy>]) -> Result<HashMap<Key, Policy>, Status> {
        let mut found = HashMap::new();
        for (namespace, ids) in by_namespace(given) {
            let policies = self.store().policies(namespace, &ids).await.map_err(status)?;
            found.extend(policies.into_iter().map(|row| ((row.namespace.clone(), row.id.clone()), row)));
        }
        Ok(found)
    }
}

/// Policies by how many of those that are given stand above them: each level can be written once those before it are.
fn by_level(given: Vec<Given<v1::Policy>>) -> Vec<Vec<Given<v1::Policy>>> {
    let above: HashMap<Key, Key> =
        given.iter().filter_map(|one| Some((key(&one.reference), above(one)?))).collect();
    let adopting: HashMap<String, Key> = given
        .iter()
        .filter(|one| one.message.adopts)
        .map(|one| (one.reference.name.namespace.clone(), key(&one.reference)))
        .collect();
    let names: HashSet<Key> = given.iter().map(|one| key(&one.reference)).collect();
    let is_plain: HashSet<Key> = given
        .iter()
        .filter(|one| one.message.parent.is_none() && !one.message.adopts)
        .map(|one| key(&one.reference))
        .collect();
    let next = |of: &Key| {
        let by_default = || adopting.get(&of.0).filter(|_| is_plain.contains(of));
        above.get(of).or_else(by_default).filter(|above| names.contains(*above)).cloned()
    };
    let mut levels: Vec<Vec<Given<v1::Policy>>> = Vec::new();
    for one in given {
        let own = key(&one.reference);
        let way = std::iter::successors(next(&own), &next);
        let level = way.take(Parent::LEVELS_MAX).count();
        if levels.len() <= level {
            levels.resize_with(level + 1, Vec::new);
        }
        if let Some(level) = levels.get_mut(level) {
            level.push(one);
        }
    }
    levels
}

/// The policy that a given one names as its parent.
fn above(given: &Given<v1::Policy>) -> Option<Key> {
    let namespace = &given.reference.name.namespace;
    let parent = given.message.parent.as_deref().filter(|parent| !parent.is_empty())?;
    let above = names::policy_within("policy.parent", namespace, parent).ok()?;
    Some((above.namespace, above.id))
}
