//! Decides which policy stands above another one, and so where that lives.
//!
//! In: a policy as somebody wants it. Out: the same with its parent looked up. A new one that names none gets the policy of its
//! namespace that adopts, else the one that the server's setting names. Invariant: a policy lives in the queue shard of its root.
//! Not here: whether it may stand there, which the store judges as it writes.

use std::collections::HashMap;

use tollgate_core::model::{Parent, Policy};
use tollgate_core::plan::units::PolicyLimits;
use tollgate_proto::convert::{Name, names};
use tollgate_proto::{FieldError, v1};
use tollgate_service::status::status;
use tonic::Status;

use crate::ScheduleMaster;

/// Policies that stand above others, or will, by their names.
pub(crate) type Known = HashMap<(String, String), Policy>;

/// The refusal of a parent that does not exist.
fn no_parent(id: &str) -> FieldError {
    let expected = "a policy of the same namespace that exists: apply it first, or with this one";
    FieldError::new("policy.parent", id, expected)
}

impl ScheduleMaster {
    /// A policy as it is wanted, with the one above it looked up: among `known` first, which remembers what is found. `Err`
    /// within: what is wrong with it.
    pub(crate) async fn with_parent(
        &self,
        mut wanted: Policy,
        given: &v1::Policy,
        stored: Option<&Policy>,
        known: &mut Known,
    ) -> Result<Result<Policy, FieldError>, Status> {
        let is_named = wanted.parent.as_ref().is_some_and(|parent| !parent.id.is_empty());
        let above = match wanted.parent.as_deref() {
            Some(parent) if !parent.uid.is_nil() => return Ok(Ok(wanted)),
            Some(parent) if is_named => {
                let found = self.known_policy(&parent.namespace, &parent.id, known).await?;
                let Some(found) = found else { return Ok(Err(no_parent(&parent.id))) };
                Some(found)
            }
            _ if stored.is_none() && given.parent.is_none() => self.default_parent(&wanted, known).await?,
            _ => None,
        };
        let said = wanted.parent.take();
        let Some(above) = above else {
            let Some(said) = said else { return Ok(Ok(wanted)) };
            let (field, value) =
                if given.floor.is_some() { ("floor", said.floor) } else { ("weight", said.weight) };
            let field = format!("policy.{field}");
            return Ok(Err(FieldError::new(field, value, "nothing of the kind without a parent")));
        };
        let (floor, weight) = said.map_or((0, 1), |said| (said.floor, said.weight));
        if stored.is_none() {
            wanted.shard = above.shard;
        }
        let Policy { uid, namespace, id, .. } = above;
        wanted.parent = Some(Box::new(Parent { uid, namespace, id, floor, weight }));
        Ok(Ok(wanted))
    }

    /// The policy that a new one gets above it which names none.
    async fn default_parent(&self, wanted: &Policy, known: &mut Known) -> Result<Option<Policy>, Status> {
        let is_own = |above: &Policy| (&above.namespace, &above.id) == (&wanted.namespace, &wanted.id);
        let planned = known.values().find(|above| above.adopts && above.namespace == wanted.namespace);
        let adopting = match planned {
            Some(planned) => Some(planned.clone()),
            None => self.store().policy_adopting(&wanted.namespace).await.map_err(status)?,
        };
        if let Some(above) = adopting {
            known.insert((above.namespace.clone(), above.id.clone()), above.clone());
            return Ok(Some(above).filter(|above| !is_own(above) && !wanted.adopts));
        }
        let Some(Name { namespace, id }) = &self.options().root_policy else { return Ok(None) };
        if (namespace, id) == (&wanted.namespace, &wanted.id) {
            return Ok(None);
        }
        let root = self.known_policy(namespace, id, known).await?;
        let root = root.ok_or_else(|| {
            let name = names::of_policy(namespace, id);
            Status::failed_precondition(format!(
                "{name}, which the server's setting root_policy names, does not exist"
            ))
        })?;
        Ok(Some(root))
    }

    /// What a policy and those above it let one event take.
    pub(crate) async fn limits_of(&self, policy: &Policy, known: &mut Known) -> Result<PolicyLimits, Status> {
        let mut above: Vec<Policy> = Vec::new();
        while let Some(parent) = above.last().unwrap_or(policy).parent.clone()
            && above.len() < Parent::LEVELS_MAX
        {
            let Some(found) = self.known_policy(&parent.namespace, &parent.id, known).await? else { break };
            above.push(found);
        }
        Ok(PolicyLimits::of(policy, &above))
    }

    async fn known_policy(
        &self,
        namespace: &str,
        id: &str,
        known: &mut Known,
    ) -> Result<Option<Policy>, Status> {
        let key = (namespace.to_owned(), id.to_owned());
        if let Some(policy) = known.get(&key) {
            return Ok(Some(policy.clone()));
        }
        let found = self.store().policy(namespace, id).await.map_err(status)?;
        if let Some(policy) = &found {
            known.insert(key, policy.clone());
        }
        Ok(found)
    }
}
