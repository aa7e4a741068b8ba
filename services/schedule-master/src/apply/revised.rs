//! Leaves out what is outdated: resources of which the given revision, or a later one, has been here.

use tollgate_proto::v1;
use tollgate_service::status::status;
use tollgate_store::plan::PlanWrite;
use tollgate_store::revision::Revision;
use tonic::Status;

use super::judge::CHUNK;
use super::results::RESULTS_MAX;
use super::write::failed;
use super::{Gathered, Given, ResourceRef, chunks};
use crate::ScheduleMaster;
use crate::change::is_own_fault;
use crate::revisions::{Latest, note};

impl ResourceRef {
    /// The resource's full name.
    pub(super) fn full_name(&self) -> String {
        self.of.full_name(&self.name)
    }

    /// What is to be noted with its change.
    pub(super) fn note(&self, at_us: i64) -> Option<Revision> {
        Some(note(self.of, &self.name, self.revision?, at_us))
    }

    /// Whether it is outdated; otherwise it is to follow what is known.
    fn is_older(&mut self, latest: &Latest) -> bool {
        let Some((former, given)) = &mut self.revision else { return false };
        let known = latest.get(&(self.of, self.name.namespace.clone(), self.name.id.clone()));
        *former = known.copied().unwrap_or_default();
        given <= former
    }
}

/// Counts it, and lists it where there is room.
pub(super) fn outdated(reference: ResourceRef, response: &mut v1::ApplyResourcesResponse) {
    response.outdated_count += 1;
    if response.results.len() < RESULTS_MAX {
        response.results.push(v1::ApplyResult {
            name: reference.full_name(),
            source: reference.source,
            action: v1::ApplyAction::Outdated.into(),
            difference: None,
        });
    }
}

fn split<M>(given: &mut Vec<Given<M>>, latest: &Latest, outdated: &mut Vec<ResourceRef>) {
    let older = given.extract_if(.., |one| one.reference.is_older(latest));
    outdated.extend(older.map(|one| one.reference));
}

impl Gathered {
    fn numbered(&self) -> Vec<&ResourceRef> {
        let all = self.policies.iter().map(|one| &one.reference);
        let all = all.chain(self.calendars.iter().map(|one| &one.reference));
        let all = all.chain(self.schedules.iter().map(|one| &one.reference));
        let all = all.chain(self.alerts.iter().map(|one| &one.reference));
        all.filter(|reference| reference.revision.is_some()).collect()
    }
}

impl ScheduleMaster {
    /// Takes out what is outdated.
    pub(super) async fn without_outdated(&self, given: &mut Gathered) -> Result<Vec<ResourceRef>, Status> {
        let mut outdated = Vec::new();
        let numbered = given.numbered();
        if numbered.is_empty() {
            return Ok(outdated);
        }
        let latest = self.latest_of(numbered.into_iter().map(|one| (one.of, &one.name))).await?;
        split(&mut given.policies, &latest, &mut outdated);
        split(&mut given.calendars, &latest, &mut outdated);
        split(&mut given.schedules, &latest, &mut outdated);
        split(&mut given.alerts, &latest, &mut outdated);
        Ok(outdated)
    }

    /// Whether a later revision has been here meanwhile.
    pub(super) async fn is_outdated(&self, reference: &ResourceRef) -> Result<bool, Status> {
        let wanted = reference.revision.map(|_| (reference.of, &reference.name));
        let latest = self.latest_of(wanted.into_iter()).await?;
        Ok(reference.clone().is_older(&latest))
    }

    /// Notes the revisions of what is as given already. Where another one has come meanwhile, it may be so no more.
    pub(super) async fn note_unchanged(
        &self,
        unchanged: Vec<ResourceRef>,
        response: &mut v1::ApplyResourcesResponse,
    ) -> Result<(), Status> {
        let now_us = self.now_us();
        let numbered = unchanged.into_iter().filter(|reference| reference.revision.is_some()).collect();
        for chunk in chunks::<ResourceRef>(numbered, CHUNK) {
            let revise =
                |reference: &ResourceRef| Some(PlanWrite::Revise { revision: reference.note(now_us)? });
            match self.store().write_plan(chunk.iter().filter_map(revise).collect()).await {
                Ok(()) => continue,
                Err(error) if !is_own_fault(&error) => return Err(status(error)),
                Err(_) => {}
            }
            for reference in chunk {
                match self.store().write_plan(revise(&reference).into_iter().collect()).await {
                    Ok(()) => {}
                    Err(error) if !is_own_fault(&error) => return Err(status(error)),
                    Err(error) => {
                        response.unchanged_count = response.unchanged_count.saturating_sub(1);
                        if self.is_outdated(&reference).await? {
                            outdated(reference, response);
                        } else {
                            let name = reference.full_name();
                            failed(response, reference, name, &error);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
