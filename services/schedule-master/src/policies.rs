//! Decides how one policy is made, changed, paused and deleted.
//!
//! Invariant: a policy's queue shard is chosen with its uid, or is that of the policy above it; no call changes it.

use prost_types::FieldMask;
use tollgate_core::model::{Pause, Policy};
use tollgate_core::plan::Notice;
use tollgate_proto::convert::{self, Name, names, policy};
use tollgate_proto::{FieldError, field, mask, v1};
use tollgate_store::plan::PlanWrite;
use tollgate_store::revision::Revision;
use tonic::Status;

use crate::ScheduleMaster;
use crate::audit::{self, Deed};
use crate::change::{Change, again, check_etag};
use crate::deletions::Deletion;
use crate::parents::Known;
use crate::revisions::{Numbered, Revised};
use crate::warnings::namespace_new;
use tollgate_service::actor::Caller;
use tollgate_service::status::status;

impl ScheduleMaster {
    pub(crate) async fn create_policy(
        &self,
        request: v1::CreatePolicyRequest,
        actor: Caller,
    ) -> Result<v1::Policy, Status> {
        let namespace = names::namespace("parent", &request.parent)?;
        let message = request.policy.ok_or_else(|| FieldError::new("policy", "", "a policy"))?;
        let given = (("policy_id", request.policy_id.as_str()), ("policy.name", message.name.as_str()));
        let name = names::to_create(&namespace, "policies", given.0, given.1)?;
        let wanted =
            policy::to_core(&message, &name, None).map_err(|errors| field::invalid_argument(&errors))?;
        let is_new = self.is_new(&name.namespace).await;
        let mut try_number = 1;
        let made = loop {
            // Somebody else has made it meanwhile, which the next try says, or its tree has moved to another queue shard.
            let made = self.policy_once(&message, wanted.clone(), actor.clone(), request.validate_only).await;
            match made {
                Err(failed) if again(try_number, &failed) => try_number += 1,
                done => break done?,
            }
        };
        let mut warnings: Vec<v1::Warning> =
            is_new.then(|| namespace_new(&name.namespace)).into_iter().collect();
        warnings.extend(self.policy_warnings(&made).await);
        Ok(v1::Policy { warnings, ..policy::to_message(&made) })
    }

    /// Makes it of what is stored now.
    async fn policy_once(
        &self,
        message: &v1::Policy,
        wanted: Policy,
        actor: Caller,
        validate_only: bool,
    ) -> Result<Policy, Status> {
        let (namespace, id) = (wanted.namespace.clone(), wanted.id.clone());
        if self.store().policy(&namespace, &id).await.map_err(status)?.is_some() {
            let taken = names::of_policy(&namespace, &id);
            return Err(Status::already_exists(format!("{taken} exists already")));
        }
        let wanted = self.with_parent(wanted, message, None, &mut Known::new()).await??;
        let deed = Deed { at_us: self.now_us(), actor, action: "create" };
        let (made, change) = self.put_policy(None, wanted, &deed);
        if validate_only {
            self.rehearse(&change).await?;
        } else {
            self.admit_writes(&namespace, 1)?;
            self.commit(&[&change]).await.map_err(status)?;
        }
        Ok(made)
    }

    pub(crate) async fn get_policy(&self, request: v1::GetPolicyRequest) -> Result<v1::Policy, Status> {
        Ok(policy::to_message(&self.stored_policy(&names::policy("name", &request.name)?).await?))
    }

    pub(crate) async fn update_policy(
        &self,
        request: v1::UpdatePolicyRequest,
        actor: Caller,
    ) -> Result<v1::Policy, Status> {
        let message = request.policy.ok_or_else(|| FieldError::new("policy", "", "a policy"))?;
        let name = names::policy("policy.name", &message.name)?;
        let etag = convert::etag("policy.etag", &message.etag)?;
        let update_mask: Option<&FieldMask> = request.update_mask.as_ref();
        let mut try_number = 1;
        loop {
            let stored = self.stored_policy(&name).await?;
            check_etag(&message.name, etag, stored.generation)?;
            let masked = mask::apply_mask(&policy::to_message(&stored), &message, update_mask)?;
            let wanted = policy::to_core(&masked, &name, Some(&stored))
                .map_err(|errors| field::invalid_argument(&errors))?;
            let wanted = self.with_parent(wanted, &masked, Some(&stored), &mut Known::new()).await??;
            if !request.validate_only && wanted != stored {
                self.admit_writes(&name.namespace, 1)?;
            }
            let deed =
                Deed { at_us: self.change_us(stored.updated_us), actor: actor.clone(), action: "update" };
            let of = wanted.clone();
            if request.validate_only {
                return self.would_be(&stored, wanted, &deed).await;
            }
            match self.change_policy(&stored, wanted, &deed, Vec::new()).await {
                Err(failed) if again(try_number, &failed) => try_number += 1,
                Ok(done) => return Ok(v1::Policy { warnings: self.policy_warnings(&of).await, ..done }),
                refused => return refused,
            }
        }
    }

    pub(crate) async fn delete_policy(
        &self,
        request: v1::DeletePolicyRequest,
        actor: Caller,
    ) -> Result<(), Status> {
        let name = names::policy("name", &request.name)?;
        let asked = (request.etag.as_str(), request.revision);
        let deletion = Deletion::new(Revised::Policy, (&name, &request.name), asked, actor)?;
        let state = |stored: &Policy| (stored.generation, stored.updated_us);
        self.delete(
            deletion,
            || self.stored_policy(&name),
            state,
            |stored, deed| self.drop_policy(&stored, &deed),
        )
        .await
    }

    pub(crate) async fn pause_policy(
        &self,
        request: v1::PausePolicyRequest,
        actor: Caller,
    ) -> Result<v1::Policy, Status> {
        let reason = convert::remark("reason", &request.reason)?;
        let pause = |policy: &mut Policy, since_us: i64| {
            if policy.pause.as_ref().is_none_or(|pause| pause.reason != reason) {
                policy.pause = Some(Pause { reason: reason.clone(), actor: actor.name.clone(), since_us });
            }
        };
        self.steer_policy((&request.name, request.revision), "pause", &actor, pause).await
    }

    pub(crate) async fn resume_policy(
        &self,
        request: v1::ResumePolicyRequest,
        actor: Caller,
    ) -> Result<v1::Policy, Status> {
        let named = (request.name.as_str(), request.revision);
        self.steer_policy(named, "resume", &actor, |policy, _| policy.pause = None).await
    }

    async fn steer_policy(
        &self,
        (name, revision): (&str, i64),
        action: &'static str,
        actor: &Caller,
        steer: impl Fn(&mut Policy, i64) + Send + Sync,
    ) -> Result<v1::Policy, Status> {
        let name = names::policy("name", name)?;
        let numbered = Numbered::change(Revised::PolicyPause, &name, revision)?;
        let mut try_number = 1;
        loop {
            let revisions = self.not_outdated(&numbered).await?;
            let stored = self.stored_policy(&name).await?;
            let deed = Deed { at_us: self.change_us(stored.updated_us), actor: actor.clone(), action };
            let mut wanted = stored.clone();
            steer(&mut wanted, deed.at_us);
            match self.change_policy(&stored, wanted, &deed, revisions).await {
                Err(failed) if again(try_number, &failed) => try_number += 1,
                done => return done,
            }
        }
    }

    /// Brings a policy from `stored` to `wanted`, if they differ, and notes these revisions.
    async fn change_policy(
        &self,
        stored: &Policy,
        wanted: Policy,
        deed: &Deed,
        revisions: Vec<Revision>,
    ) -> Result<v1::Policy, Status> {
        if wanted == *stored {
            self.write_revisions(revisions).await?;
            return Ok(policy::to_message(stored));
        }
        let (made, change) = self.put_policy(Some(stored), wanted, deed);
        self.commit_as(&[&change], revisions).await.map_err(status)?;
        Ok(policy::to_message(&made))
    }

    /// What `stored` would be.
    async fn would_be(&self, stored: &Policy, wanted: Policy, deed: &Deed) -> Result<v1::Policy, Status> {
        let warnings = self.policy_warnings(&wanted).await;
        let shown = if wanted == *stored {
            policy::to_message(stored)
        } else {
            let (made, change) = self.put_policy(Some(stored), wanted, deed);
            self.rehearse(&change).await?;
            policy::to_message(&made)
        };
        Ok(v1::Policy { warnings, ..shown })
    }

    /// What the store would say of a change, which it does not make.
    async fn rehearse(&self, change: &Change) -> Result<(), Status> {
        let Change::Policy { write, .. } = change else { return Ok(()) };
        let faults = self.store().rehearse(vec![PlanWrite::clone(write)]).await.map_err(status)?;
        faults.into_iter().next().map_or(Ok(()), |(_, fault)| Err(status(fault)))
    }

    /// The policy with its new generation, and the change that makes it.
    pub(crate) fn put_policy(
        &self,
        stored: Option<&Policy>,
        wanted: Policy,
        deed: &Deed,
    ) -> (Policy, Change) {
        let mut policy = wanted;
        if stored.is_none() {
            if policy.uid.is_nil() {
                policy.uid = self.new_id(deed.at_us);
            }
            if policy.parent.is_none() {
                policy.shard = self.shard_of(policy.uid);
            }
            policy.created_us = deed.at_us;
        }
        policy.generation = stored.map_or(1, |stored| stored.generation + 1);
        policy.updated_us = deed.at_us;
        let named = (policy.namespace.as_str(), policy.id.as_str());
        let audit = audit::of_policy(self.new_id(deed.at_us), deed, stored, Some(&policy), named);
        let expected_generation = stored.map(|stored| stored.generation);
        let notice = Box::new(Notice::of_policy(&policy));
        let write = PlanWrite::PutPolicy { policy: Box::new(policy.clone()), expected_generation, audit };
        (policy, Change::Policy { write: Box::new(write), notice })
    }

    fn drop_policy(&self, stored: &Policy, deed: &Deed) -> Change {
        let named = (stored.namespace.as_str(), stored.id.as_str());
        let write = PlanWrite::DeletePolicy {
            uid: stored.uid,
            name: stored.id.clone(),
            expected_generation: stored.generation,
            audit: audit::of_policy(self.new_id(deed.at_us), deed, Some(stored), None, named),
        };
        let notice = Box::new(Notice::of_deleted_policy(stored, deed.at_us));
        Change::Policy { write: Box::new(write), notice }
    }

    async fn stored_policy(&self, name: &Name) -> Result<Policy, Status> {
        let found = self.store().policy(&name.namespace, &name.id).await.map_err(status)?;
        found.ok_or_else(|| {
            let name = names::of_policy(&name.namespace, &name.id);
            Status::not_found(format!("{name} does not exist"))
        })
    }
}
