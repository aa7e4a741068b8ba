//! Writes what was worked out, in chunks.

use std::collections::BTreeSet;

use tollgate_proto::convert::names;
use tollgate_proto::v1;
use tollgate_store::StoreError;
use tonic::Status;

use super::judge::{Planned, PolicyChange};
use super::{ERRORS_MAX, Origin};
use crate::ScheduleMaster;
use crate::change::Change;
use tollgate_status::status;

/// Whether a transaction failed because of what was in it.
fn is_own_fault(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::NotFound { .. }
            | StoreError::Conflict { .. }
            | StoreError::InUse { .. }
            | StoreError::Invalid { .. }
    )
}

fn done(response: &mut v1::ApplyResourcesResponse, is_new: bool) {
    if is_new {
        response.created_count += 1;
    } else {
        response.updated_count += 1;
    }
}

fn failed(response: &mut v1::ApplyResourcesResponse, origin: Origin, name: String, error: &StoreError) {
    response.failed_count += 1;
    if response.errors.len() < ERRORS_MAX {
        let message = format!("{error}; apply it again");
        response.errors.push(v1::ApplyError { source: origin.source, name, field: String::new(), message });
    }
}

impl ScheduleMaster {
    pub(super) async fn write_policies(
        &self,
        mut planned: Vec<Planned<PolicyChange>>,
        response: &mut v1::ApplyResourcesResponse,
    ) -> Result<(), Status> {
        while !planned.is_empty() {
            let rest = planned.split_off(planned.len().min(self.options().apply_chunk.max(1)));
            let chunk = std::mem::replace(&mut planned, rest);
            match self.commit_policies(&chunk).await {
                Ok(()) => chunk.iter().for_each(|planned| done(response, planned.is_new)),
                Err(error) if !is_own_fault(&error) => return Err(status(error)),
                Err(_) => {
                    for one in chunk {
                        match self.commit_policies(std::slice::from_ref(&one)).await {
                            Ok(()) => done(response, one.is_new),
                            Err(error) if !is_own_fault(&error) => return Err(status(error)),
                            Err(error) => {
                                let name = names::of_policy(&one.origin.name.namespace, &one.origin.name.id);
                                failed(response, one.origin, name, &error);
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    async fn commit_policies(&self, chunk: &[Planned<PolicyChange>]) -> Result<(), StoreError> {
        let _turn = match chunk.first() {
            Some(first) => Some(self.turn(&first.origin.name.namespace).await),
            None => None,
        };
        let writes = chunk.iter().map(|planned| planned.change.write.clone()).collect();
        self.store().write_plan(writes).await?;
        let shards: BTreeSet<u16> = chunk.iter().map(|planned| planned.change.shard).collect();
        shards.into_iter().for_each(|shard| self.wake(shard));
        Ok(())
    }

    pub(super) async fn write_schedules(
        &self,
        mut planned: Vec<Planned<Change>>,
        response: &mut v1::ApplyResourcesResponse,
    ) -> Result<(), Status> {
        while !planned.is_empty() {
            let rest = planned.split_off(planned.len().min(self.options().apply_chunk.max(1)));
            let chunk = std::mem::replace(&mut planned, rest);
            let changes: Vec<Change> = chunk.iter().map(|planned| planned.change.clone()).collect();
            match self.commit(changes).await {
                Ok(()) => chunk.iter().for_each(|planned| done(response, planned.is_new)),
                Err(error) if !is_own_fault(&error) => return Err(status(error)),
                Err(_) => {
                    for one in chunk {
                        match self.commit(vec![one.change]).await {
                            Ok(()) => done(response, one.is_new),
                            Err(error) if !is_own_fault(&error) => return Err(status(error)),
                            Err(error) => {
                                let name =
                                    names::of_schedule(&one.origin.name.namespace, &one.origin.name.id);
                                failed(response, one.origin, name, &error);
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
